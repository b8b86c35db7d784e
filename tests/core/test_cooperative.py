"""Reductions that threads share mean what the loop means; programs of threads that depend on the
order that they run in are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agreement import Inputs, find_target, graph
from tests.core.profile import examples
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.lower.ahead import fill_ahead
from tinyedge.core.compiler.lower.cooperative import cooperate
from tinyedge.core.compiler.lower.expand import expand, one_type_per_buffer
from tinyedge.core.compiler.lower.geometry import geometry
from tinyedge.core.compiler.lower.linear import linearize
from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.move import numbers, ranges
from tinyedge.core.compiler.optimize.moves import Split
from tinyedge.core.errors import InternalError
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.buffers import KernelArg, row_major
from tinyedge.core.ir.lowered import Geometry, Linear, shared_bytes, workgroup_buffers
from tinyedge.core.ir.reference_kernel import run_kernel
from tinyedge.core.ir.reference_lowered import run_lowered
from tinyedge.core.ir.spec_lowered import check_lowered
from tinyedge.core.ir.text import statements_text
from tinyedge.core.ir.uop import UOp, cast, const, toposort
from tinyedge.core.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    threads: int  # that share a reduction
    each: int  # elements that one of them reduces by itself
    rows: int
    rows_as: str  # what the range of rows becomes
    subgroup: int
    twice: bool  # a second reduction uses what the first gives
    scarce: bool  # workgroup memory is as small as the moves allow
    reduction: str
    dtype: dt.DType


cases = st.builds(
    Case,
    threads=st.integers(1, 64),
    each=st.integers(1, 3),
    rows=st.integers(1, 4),
    rows_as=st.sampled_from(("loop", "grid", "local", "upcast", "vector")),
    subgroup=st.sampled_from((1, 4, 16, 32)),
    twice=st.booleans(),
    scarce=st.booleans(),
    reduction=st.sampled_from(("sum", "max", "min", "prod")),
    dtype=st.sampled_from((dt.float32, dt.int32, dt.int8, dt.float64)),
)


def values(case: Case) -> Array:
    """Whole numbers of which any order of a reduction gives the same: small, or 1 and 2."""
    generator = np.random.default_rng(case.threads)
    shape = (case.rows, case.threads * case.each)
    low, high = (1, 3) if case.reduction == "prod" else (-9, 10)
    found = generator.integers(low, high, shape)
    if case.reduction == "prod":
        found[:, 6:] = 1
    return found.astype(case.dtype.numpy)


def reduced(x: Tensor, case: Case) -> Tensor:
    reduce = getattr(Tensor, case.reduction)
    if case.twice:
        x = x - x.max(1, keepdims=True)
    return reduce(x, 1)


def shared_among_threads(sink: UOp, case: Case, caps: Caps) -> UOp:
    """The kernel whose reductions are given to threads."""
    for r in [r for r in ranges(sink) if r.arg.kind == "reduce"]:
        number, size = r.arg.number, r.src[0].arg
        if size > case.threads > 1:
            outer = max(numbers(sink)) + 1
            sink = Split(number, case.threads, outer).apply(sink, caps)
            number = outer + 1
        sink = To(number, "threads").apply(sink, caps) if case.threads > 1 else sink
    lanes = case.rows in (2, 4) and case.dtype.bits == 32
    for r in [r for r in ranges(sink) if r.arg.kind == "loop"]:
        if case.rows_as != "loop" and (lanes or case.rows_as != "vector"):
            sink = To(r.arg.number, case.rows_as).apply(sink, caps)
    return sink


def lowered(sink: UOp, caps: Caps) -> tuple[Linear, Geometry]:
    sink = one_type_per_buffer(expand(sink, caps), caps)
    shape = geometry(sink, caps)
    linear = cooperate(fill_ahead(linearize(sink)), shape, caps)
    check_lowered(linear, shape)
    return linear, shape


@given(cases)
@examples(120)
def test_threads_reduce_what_a_loop_reduces(case: Case) -> None:
    inputs = Inputs()
    y = reduced(inputs.new(values(case)), case)
    caps = replace(find_target("cuda").caps(), subgroup=case.subgroup)
    if case.scarce:
        local = case.rows if case.rows_as == "local" else 1
        caps = replace(caps, shared=16 * case.threads * local)
    state = compile_graph(graph({"y": y}, inputs), find_target("cuda"), stop_after="fuse")
    memory: dict[int, Array] = {}
    for launch in state.launches:
        for storage in launch.storages:
            count = storage.layout.count(storage.shape)
            first = values(case) if storage.role == "input" else np.zeros(count)
            memory.setdefault(id(storage), first.reshape(-1).astype(storage.dtype.numpy))
        buffers = [memory[id(storage)] for storage in launch.storages]
        again = [buffer.copy() for buffer in buffers]
        run_kernel(launch.sink, buffers)
        linear, shape = lowered(shared_among_threads(launch.sink, case, caps), caps)
        buffers_of_group = workgroup_buffers(linear.statements)
        assert sum(shared_bytes(b.dtype, b.arg.length) for b in buffers_of_group) <= caps.shared
        run_lowered(linear, shape, again)
        for expected, result in zip(buffers, again, strict=True):
            np.testing.assert_array_equal(result, expected)


def test_steps_of_a_reduction() -> None:
    """64 threads: by memory the 8th part of them makes 8 of 64 parts; by subgroups of 32 two."""
    case = Case(64, 1, 1, "loop", 1, False, False, "sum", dt.float32)
    found = {}
    for subgroup in (1, 32):
        inputs = Inputs()
        caps = replace(find_target("cuda").caps(), subgroup=subgroup)
        state = compile_graph(
            graph({"y": inputs.new(values(case)).sum(1)}, inputs), find_target("cuda")
        )
        linear, _ = lowered(shared_among_threads(state.launches[0].sink, case, caps), caps)
        nodes = toposort(linear.statements)
        (shared,) = workgroup_buffers(linear.statements)
        barriers = linear.statements.count(UOp(ops.BARRIER, dt.index))
        exchanged = [node.arg for node in nodes if node.op is ops.SHUFFLE]
        found[subgroup] = (shared.arg.length, barriers, exchanged)
    assert found == {1: (64, 2, []), 32: (2, 1, [16, 8, 4, 2, 1])}


def test_reductions_take_the_memory_of_earlier_ones() -> None:
    """Four rows of two reductions in 16 bytes a thread, which is room for four of float32."""
    case = Case(64, 1, 4, "upcast", 1, True, True, "sum", dt.float32)
    inputs = Inputs()
    y = reduced(inputs.new(values(case)), case)
    state = compile_graph(graph({"y": y}, inputs), find_target("cuda"))
    (launch,) = state.launches
    found = {}
    for room in (8, 4):
        caps = replace(find_target("cuda").caps(), subgroup=1, shared=room * 64 * 4)
        linear, _ = lowered(shared_among_threads(launch.sink, case, caps), caps)
        barriers = linear.statements.count(UOp(ops.BARRIER, dt.index))
        found[room] = (len(workgroup_buffers(linear.statements)), barriers)
    # four rows share two barriers, and one before they store where others were
    assert found == {8: (8, 4), 4: (4, 5)}


# Programs of threads, by hand.

THREAD = UOp(ops.SPECIAL, dt.index, (), args.Special("thread", 0))
BARRIER = UOp(ops.BARRIER, dt.index)
MEMORY = UOp(ops.SHARED, dt.float32, (), args.Shared(0, 8))
VALUE = cast(THREAD, dt.float32)
ACCUMULATOR = UOp(ops.ACCUMULATOR, dt.float32, (), args.Accumulator(0, ops.ADD))


def number(value: int) -> UOp:
    return const(value, dt.index)


def store(place: UOp, value: UOp = VALUE) -> UOp:
    return access.store(MEMORY, value, (place,))


def load(place: UOp) -> UOp:
    return UOp(ops.LOAD, dt.float32, (MEMORY, place), False)


def beside(bits: int) -> UOp:
    return UOp(ops.XOR, dt.index, (THREAD, number(bits)))


def less(a: UOp, b: int) -> UOp:
    return UOp(ops.LT, dt.bool_, (a, number(b)))


def loop(count: UOp, *body: UOp) -> list[UOp]:
    r = UOp(ops.RANGE, dt.index, (count,), args.Range(0, "reduce"))
    return [UOp(ops.BEGIN, dt.index, (r,)), *body, UOp(ops.END, dt.index, (r,))]


def lanes() -> UOp:
    return UOp(ops.RANGE, dt.index, (number(8),), args.Range(0, "threads"))


def shuffle(value: UOp, bits: int) -> UOp:
    return UOp(ops.SHUFFLE, value.dtype, (value,), bits)


def chosen(value: UOp) -> UOp:
    return UOp(ops.WHERE, dt.float32, (less(THREAD, 4), value, const(0.0, dt.float32)))


def add(node: UOp) -> UOp:
    return UOp(ops.SET, dt.float32, (ACCUMULATOR, node), ops.ADD)


def beyond(op: ops.Primitive) -> list[UOp]:
    """A loop of 4 steps that load what op makes of the thread's number and the step's."""
    r = UOp(ops.RANGE, dt.index, (number(4),), args.Range(0, "reduce"))
    return [ACCUMULATOR, *loop(number(4), add(load(UOp(op, dt.index, (THREAD, r)))))]


SOME = UOp(ops.SYMBOL, dt.index, (), args.Symbol("n", 0, 4, 1, 0))
EXCHANGE = [store(THREAD), BARRIER, load(beside(1))]

# Programs of 8 threads that mean the same in every order, and some that do not, with the reason.
RIGHT = {
    "exchange": EXCHANGE,
    "own place": [store(THREAD), load(THREAD)],
    "again": [*EXCHANGE, BARRIER, *EXCHANGE],
    "in a loop": [
        ACCUMULATOR,
        *loop(number(3), store(THREAD), BARRIER, add(load(beside(1))), BARRIER),
    ],
    "halves": [
        store(THREAD),
        BARRIER,
        access.under(less(THREAD, 4), store(THREAD, load(beside(4)))),
        BARRIER,
        load(number(0)),
    ],
    "each of some in a loop": [store(THREAD), BARRIER, *beyond(ops.XOR)],
    "shuffle": [shuffle(VALUE, 4)],
}
WRONG = {
    "no barrier": ([store(THREAD), load(beside(1))], "needs a barrier between"),
    "still read": ([*EXCHANGE, store(THREAD)], "may still load"),
    "in one statement": (
        [store(THREAD), BARRIER, store(THREAD, load(beside(1)))],
        "may still load",
    ),
    "one place": ([store(number(0))], "two threads store to one place"),
    "the next iteration": (
        [ACCUMULATOR, *loop(number(2), store(THREAD), BARRIER, add(load(beside(1))))],
        "may still load",
    ),
    "outside": (
        [store(UOp(ops.ADD, dt.index, (THREAD, number(1))))],
        "outside of the workgroup's memory",
    ),
    "outside in a loop": (
        [store(THREAD), BARRIER, *beyond(ops.ADD)],
        "outside of the workgroup's memory",
    ),
}
REFUSED = {
    **WRONG,
    "perhaps no barrier": (
        [store(THREAD), *loop(SOME, BARRIER), load(beside(1))],
        "needs a barrier between",
    ),
    "some threads": (
        [*loop(THREAD, BARRIER)],
        "some threads leave loop 0 before others",
    ),
    "under a condition": ([chosen(shuffle(VALUE, 1))], "exchange between threads under"),
    "under a guard": (
        [access.under(less(THREAD, 4), store(THREAD, shuffle(VALUE, 1)))],
        "exchange between threads under",
    ),
    "no partner": ([shuffle(VALUE, 8)], "not every one of 8 threads has a partner"),
    "left": (
        [UOp(ops.GROUP_REDUCE, dt.float32, (VALUE, lanes()), ops.ADD)],
        "a reduction over threads is left",
    ),
    "bools": (
        [UOp(ops.LOAD, dt.bool_, (UOp(ops.SHARED, dt.bool_, (), MEMORY.arg), THREAD), False)],
        "holds numbers",
    ),
    "another type": (
        [access.store(MEMORY, THREAD, (THREAD,))],
        "by whole elements, at one index",
    ),
}
EIGHT = Geometry((1, 1, 1), (8, 1, 1), ())


@pytest.mark.parametrize("name", RIGHT)
def test_programs_that_are_right(name: str) -> None:
    linear = Linear(RIGHT[name])
    check_lowered(linear, EIGHT)
    run_lowered(linear, EIGHT, [])


@pytest.mark.parametrize("name", REFUSED)
def test_the_grammar_refuses(name: str) -> None:
    statements, why = REFUSED[name]
    with pytest.raises(InternalError, match=why):
        check_lowered(Linear(statements), EIGHT)


@pytest.mark.parametrize("name", WRONG)
def test_the_reference_refuses(name: str) -> None:
    statements, why = WRONG[name]
    with pytest.raises(ValueError, match=why):
        run_lowered(Linear(statements), EIGHT, [])


def test_what_threads_exchange() -> None:
    """Two workgroups of 8 threads: each thread gets the value of the one three bits away."""
    out = UOp(ops.PARAM, dt.float32, (), KernelArg(0, (16,), row_major((16,)), written=True))
    group = UOp(ops.SPECIAL, dt.index, (), args.Special("group", 0))
    place = UOp(ops.ADD, dt.index, (UOp(ops.MUL, dt.index, (group, number(8))), THREAD))
    value = cast(place, dt.float32)
    by_memory = [store(THREAD, value), BARRIER, load(beside(3))]
    for statements in (by_memory, [shuffle(value, 3)]):
        result = np.zeros(16, np.float32)
        end = access.store(out, statements[-1], (place,))
        run_lowered(Linear([*statements, end]), Geometry((2, 1, 1), (8, 1, 1), ()), [result])
        assert result.tolist() == [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12]


def test_the_text_of_threads() -> None:
    statements = [store(THREAD), BARRIER, load(beside(1)), shuffle(VALUE, 4)]
    assert list(statements_text(statements, {})) == [
        "shared0 = 8 float32 of the workgroup",
        "shared0[thread0] = float32(thread0)",
        "barrier",
        "v0 = shared0[thread0 ^ 1]",
        "v1 = shuffle(float32(thread0), 4)",
    ]
