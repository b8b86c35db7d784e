"""Fragments of matrices: what they mean, and what may not be done with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InternalError
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.buffers import KernelArg, row_major
from tinyedge.core.ir.fragments import SIDE, fragment
from tinyedge.core.ir.lowered import Geometry, Linear
from tinyedge.core.ir.reference_lowered import run_lowered
from tinyedge.core.ir.spec_lowered import check_lowered
from tinyedge.core.ir.text import statements_text
from tinyedge.core.ir.uop import UOp, const

Array = np.ndarray[Any, Any]

ROWS, COLUMNS, SUMMED = 32, 48, 64  # of the product
THREADS = 96  # three subgroups: one for each 16 columns
THREAD = UOp(ops.SPECIAL, dt.index, (), args.Special("thread", 0))
BARRIER = UOp(ops.BARRIER, dt.index)
A, B, C = map(fragment, "abc")
GEOMETRY = Geometry((ROWS // SIDE, 1, 1), (THREADS, 1, 1), ())


def number(value: int) -> UOp:
    return const(value, dt.index)


def index(op: ops.Primitive, a: UOp, b: UOp | int) -> UOp:
    return UOp(op, dt.index, (a, number(b) if isinstance(b, int) else b))


def param(slot: int, dtype: DType, *shape: int) -> UOp:
    return UOp(ops.PARAM, dtype, (), KernelArg(slot, shape, row_major(shape), written=slot == 0))


def load(dtype: DType, buffer: UOp, place: UOp, stride: int, transposed: bool = False) -> UOp:
    return UOp(ops.FRAGMENT_LOAD, dtype, (buffer, place, number(stride)), transposed)


def multiply(a: UOp, b: UOp, c: UOp) -> UOp:
    return UOp(ops.FRAGMENT_MULTIPLY, C, (a, b, c))


def store(buffer: UOp, value: UOp, place: UOp, stride: int) -> UOp:
    return UOp(ops.FRAGMENT_STORE, dt.index, (buffer, value, place, number(stride)))


OUT = param(0, dt.float32, ROWS, COLUMNS)
X, W = param(1, dt.float16, ROWS, SUMMED), param(2, dt.float16, SUMMED, COLUMNS)
TURNED = param(2, dt.float16, COLUMNS, SUMMED)
MEMORY = UOp(ops.SHARED, dt.float16, (), args.Shared(0, SIDE * SIDE))
SUBGROUP = index(ops.FLOORDIV, THREAD, 32)
GROUP = UOp(ops.SPECIAL, dt.index, (), args.Special("group", 0))
ACCUMULATOR = UOp(ops.ACCUMULATOR, C, (), args.Accumulator(0, ops.ADD))
STEP = UOp(ops.RANGE, dt.index, (number(SUMMED // SIDE),), args.Range(0, "reduce"))
ROW, COLUMN = index(ops.MUL, GROUP, SIDE), index(ops.MUL, SUBGROUP, SIDE)
DEEP = index(ops.MUL, STEP, SIDE)


def address(row: UOp, width: int, column: UOp) -> UOp:
    return index(ops.ADD, index(ops.MUL, row, width), column)


def product(*body: UOp, a: UOp, transposed: bool = False) -> Linear:
    """Each workgroup makes 16 rows, each of its subgroups 16 columns of them."""
    if transposed:
        b = load(B, TURNED, address(COLUMN, SUMMED, DEEP), SUMMED, True)
    else:
        b = load(B, W, address(DEEP, COLUMNS, COLUMN), COLUMNS)
    scale = UOp(ops.VECTOR, C, (const(0.5, dt.float32),))
    return Linear(
        [
            ACCUMULATOR,
            UOp(ops.BEGIN, dt.index, (STEP,)),
            *body,
            a,
            UOp(ops.SET, C, (ACCUMULATOR, multiply(a, b, ACCUMULATOR))),
            UOp(ops.END, dt.index, (STEP,)),
            store(
                OUT, UOp(ops.MUL, C, (ACCUMULATOR, scale)), address(ROW, COLUMNS, COLUMN), COLUMNS
            ),
        ]
    )


def by_workgroup() -> Linear:
    """Threads bring a's 256 elements into workgroup memory: 96, 96 and 64 of them."""
    copies = []
    for first in range(0, SIDE * SIDE, THREADS):
        here = index(ops.ADD, THREAD, first)
        row = index(ops.ADD, ROW, index(ops.FLOORDIV, here, SIDE))
        column = index(ops.ADD, DEEP, index(ops.MOD, here, SIDE))
        inside = UOp(ops.LT, dt.bool_, (here, number(SIDE * SIDE)))
        loaded = access.load(X, (address(row, SUMMED, column),))
        copies.append(access.store(MEMORY, loaded, (here,), inside))
    return product(BARRIER, *copies, BARRIER, a=load(A, MEMORY, number(0), SIDE))


DIRECT = load(A, X, address(ROW, SUMMED, DEEP), SUMMED)
PROGRAMS = {
    "rows": (product(a=DIRECT), False),
    "transposed": (product(a=DIRECT, transposed=True), True),
    "workgroup memory": (by_workgroup(), False),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_product(name: str) -> None:
    linear, transposed = PROGRAMS[name]
    generator = np.random.default_rng(3)
    x = generator.integers(-8, 9, (ROWS, SUMMED)).astype(np.float16)
    w = generator.integers(-8, 9, (SUMMED, COLUMNS)).astype(np.float16)
    check_lowered(linear, GEOMETRY)
    result = np.full(ROWS * COLUMNS, np.nan, np.float32)
    given = [result, x.reshape(-1), (w.T if transposed else w).reshape(-1)]
    run_lowered(linear, GEOMETRY, given)
    expected = x.astype(np.float32) @ w.astype(np.float32) * 0.5
    np.testing.assert_array_equal(result.reshape(ROWS, COLUMNS), expected)


def test_sums_are_in_float32() -> None:
    """256 + 1 / 256 has 17 bits: more than a float16 of 256 holds."""
    ones = UOp(ops.VECTOR, A, (const(1.0, dt.float16),))
    part = UOp(ops.VECTOR, B, (const(1 / 256, dt.float16),))
    start = UOp(ops.VECTOR, C, (const(256.0, dt.float32),))
    linear = Linear([store(OUT, multiply(ones, part, start), number(0), COLUMNS)])
    result = np.zeros(ROWS * COLUMNS, np.float32)
    run_lowered(linear, Geometry((1, 1, 1), (32, 1, 1), ()), [result])
    assert result.reshape(ROWS, COLUMNS)[:SIDE, :SIDE].tolist() == [[256.0625] * SIDE] * SIDE


def guarded(node: UOp) -> UOp:
    yes = UOp(ops.LT, dt.bool_, (THREAD, number(32)))
    return UOp(ops.WHERE, C, (yes, node, node))


SUM = load(C, param(3, dt.float32, ROWS, COLUMNS), number(0), COLUMNS)
WHOLE = load(A, X, number(0), SUMMED)
REFUSED = {
    "roles": ([multiply(WHOLE, WHOLE, SUM)], "a product of fragments is of a and b"),
    "elements": ([load(A, OUT, number(0), COLUMNS)], "a fragment of float16 in memory of float32"),
    "read only": ([store(SUM.src[0], SUM, number(0), COLUMNS)], "stored to one that is written"),
    "store of a": ([store(X, WHOLE, number(0), SUMMED)], "c is stored"),
    "a place": ([load(A, X, number(8), SUMMED)], "not aligned"),
    "a stride": ([load(A, X, number(0), 20)], "not aligned"),
    "rows": ([load(A, X, number(0), 8)], "overlap"),
    "a lane": ([UOp(ops.LANE, dt.float32, (SUM,), 0)], "belong to no thread"),
    "lanes": ([UOp(ops.VECTOR, C, (const(0.0, dt.float32),) * 8)], "belong to no thread"),
    "a cast": ([UOp(ops.CAST, A, (SUM,))], "belong to no thread"),
    "threads": (
        [load(A, X, index(ops.MUL, THREAD, SIDE), SUMMED)],
        "take a fragment from several places",
    ),
    "in a loop": (
        [
            UOp(ops.BEGIN, dt.index, (STEP,)),
            load(A, X, index(ops.MUL, index(ops.MUL, STEP, THREAD), SIDE), SUMMED),
            UOp(ops.END, dt.index, (STEP,)),
        ],
        "take a fragment from several places",
    ),
    "a condition": ([guarded(SUM)], "belong to no thread|under a condition"),
    "no barrier": (
        [
            access.store(MEMORY, const(0.0, dt.float16), (THREAD,)),
            load(A, MEMORY, number(0), SIDE),
        ],
        "needs a barrier between",
    ),
    "still loaded": (
        [
            load(A, MEMORY, number(0), SIDE),
            access.store(MEMORY, const(0.0, dt.float16), (THREAD,)),
        ],
        "may still load",
    ),
    "outside": ([load(A, MEMORY, number(16), SIDE)], "outside of the workgroup's memory"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_grammar_refuses(name: str) -> None:
    statements, why = REFUSED[name]
    with pytest.raises(InternalError, match=why):
        check_lowered(Linear(statements), GEOMETRY)


@pytest.mark.parametrize("name", ["threads", "no barrier", "still loaded", "outside"])
def test_the_reference_refuses(name: str) -> None:
    statements, why = REFUSED[name]
    buffers = [np.zeros(ROWS * COLUMNS, np.float32), np.zeros(ROWS * SUMMED, np.float16)]
    with pytest.raises(ValueError, match=why):
        run_lowered(Linear(statements), GEOMETRY, buffers)


def test_a_subgroup_is_whole() -> None:
    with pytest.raises(InternalError, match="not every one of 48 threads"):
        check_lowered(Linear([SUM]), Geometry((1, 1, 1), (48, 1, 1), ()))


def test_the_text() -> None:
    statements = [SUM, store(OUT, SUM, number(0), COLUMNS)]
    assert list(statements_text(statements, {})) == [
        "v0 = fragment_load(b3, 0, 48, False)",
        "fragment_store(b0, v0, 0, 48)",
    ]
