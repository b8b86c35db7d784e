"""Sizes that are counts of one mask, computed in different ways, as exporters write x[mask] = v."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from tinyedge.api import find_target
from tinyedge.core.compile import compile_graph
from tinyedge.core.device import Device
from tinyedge.core.errors import InputError, UnsupportedOp
from tinyedge.core.replay import Replay
from tinyedge.export.source import import_graph

Array = np.ndarray[Any, Any]
SHAPE = (4, 5)

# How many elements of the bool tensor m [4, 5] are true, as a list of one size `n`.
COUNTS = {
    "the sum of all": "c = Cast<to = 7>(m); n = Reshape(ReduceSum<keepdims = 0>(c), one)",
    "the sum of the flat": """f = Reshape(m, one); c = Cast<to = 7>(f);
        n = ReduceSum<keepdims = 1>(c)""",
    "the sum of the transposed": """t = Transpose(m); c = Cast<to = 6>(t);
        n = Cast<to = 7>(Reshape(ReduceSum<keepdims = 0>(c), one))""",
    "axis after axis": """c = Cast<to = 6>(m); s = ReduceSum<keepdims = 0>(c, zero);
        n = Cast<to = 7>(ReduceSum<keepdims = 1>(s, zero))""",
    "the sum of floats": """c = Cast<to = 1>(m);
        n = Reshape(Cast<to = 7>(ReduceSum<keepdims = 0>(c)), one)""",
    "casts there and back": """c = Cast<to = 7>(Cast<to = 9>(Cast<to = 6>(m)));
        n = Reshape(ReduceSum<keepdims = 0>(c), one)""",
    "not of not": """c = Cast<to = 7>(Not(Not(m)));
        n = Reshape(ReduceSum<keepdims = 0>(c), one)""",
    "without the others": """c = Cast<to = 7>(Not(m)); all = Constant<value_int = 20>();
        n = Reshape(Sub(all, ReduceSum<keepdims = 0>(c)), one)""",
    "ones where": """w = Where(m, i1, i0); n = Reshape(ReduceSum<keepdims = 0>(w), one)""",
    "the first norm": "n = Reshape(Cast<to = 7>(ReduceL1<keepdims = 0>(Cast<to = 1>(m))), one)",
    "the sum of squares": """c = Cast<to = 7>(m);
        n = Reshape(ReduceSumSquare<keepdims = 0>(c), one)""",
    "a row by itself": """f = Cast<to = 1>(Reshape(m, one));
        n = Reshape(Cast<to = 7>(MatMul(f, f)), one)""",
    "a row by the column": """f = Cast<to = 1>(Reshape(m, row));
        n = Reshape(Cast<to = 7>(MatMul(f, Transpose(f))), one)""",
    "a sum of products": """f = Cast<to = 1>(m);
        n = Reshape(Cast<to = 7>(Einsum<equation = "ij,ij">(f, f)), one)""",
    "a shape": "n = Slice(Shape(i), zero, first)",
    "an element of a shape": "n = Reshape(Gather(Shape(nz), i1), one)",
    "half of a size": "n = Reshape(Div(Size(nz), two), one)",
    "another NonZero": "n = Slice(Shape(Compress(x2, Reshape(m, one))), zero, first)",
}
CONSTANTS = """one = Constant<value_ints = [-1]>(); zero = Constant<value_ints = [0]>();
    first = Constant<value_ints = [1]>(); two = Constant<value_int = 2>();
    row = Constant<value_ints = [1, -1]>();
    i0 = Constant<value_int = 0>(); i1 = Constant<value_int = 1>();
    x2 = Reshape(x, one); nz = NonZero(m); i = Transpose(nz)"""

# What is done with it. The right values are numpy's.
USES: dict[str, tuple[str, Callable[[Array, Array, Array], Array]]] = {
    "x[m] = v": (
        "y = ScatterND(x, i, Expand(v, n))",
        lambda x, m, v: np.where(m, v, x),
    ),
    "masked_scatter": (
        "y = ScatterND(x, i, Slice(x2, zero, n))",
        lambda x, m, v: _scattered(x, m, x.reshape(-1)),
    ),
    "x[m] + v": (
        "y = Add(GatherND(x, i), Expand(v, n))",
        lambda x, m, v: x[m] + v,
    ),
    "selected by Compress": (
        "y = Mul(Compress(x2, Reshape(m, one)), Expand(v, n))",
        lambda x, m, v: x[m] * v,
    ),
}


def _scattered(x: Array, m: Array, source: Array) -> Array:
    result = x.copy()
    result[m] = source[: m.sum()]
    return result


CALL = re.compile(r"\w+(?:<[^<>]*>)?\([^()]*\)")


def _save(path: Path, body: str) -> Path:
    """A model of statements, in which a call may be an operand of another."""
    lines: list[str] = []
    for statement in f"{CONSTANTS}; {body}".split(";"):
        name, call = (part.strip() for part in statement.split("=", 1))
        while (inner := CALL.search(call)) is not None and inner.group() != call:
            made = f"made{len(lines)}"
            lines.append(f"{made} = {inner.group()}")
            call = call.replace(inner.group(), made, 1)
        lines.append(f"{name} = {call}")
    head = '<ir_version: 9, opset_import: ["" : 18]> g (float[4,5] x, bool[4,5] m, float v)'
    model = parser.parse_model(f"{head} => (float y) {{ {' '.join(lines)} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    return path


def _check(
    path: Path, body: str, wanted: Callable[..., Array], target: str, device: Device
) -> None:
    program = compile_graph(import_graph(_save(path, body))[0], find_target(target)).program
    assert program is not None
    random = np.random.default_rng(3)
    with Replay(program, device, poison=True) as replay:
        for share in (0.0, 0.4, 1.0):
            x = random.normal(size=SHAPE).astype(np.float32)
            m, v = random.random(SHAPE) < share, np.float32(7)
            y = replay.run({"x": x, "m": m, "v": np.array(v)})["y"]
            np.testing.assert_allclose(y, wanted(x, m, v), rtol=1e-6)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("count", COUNTS)
def test_counts_of_one_mask_are_one_size(
    count: str, use: str, cpu_device: Device, tmp_path: Path
) -> None:
    done, wanted = USES[use]
    _check(tmp_path / "m.onnx", f"{COUNTS[count]}; {done}", wanted, "cpu", cpu_device)


@pytest.mark.parametrize("use", USES)
def test_on_every_target(use: str, target: str, device: Device, tmp_path: Path) -> None:
    done, wanted = USES[use]
    _check(tmp_path / "m.onnx", f"{COUNTS['the sum of all']}; {done}", wanted, target, device)


@pytest.mark.parametrize("kind", [1, 6, 7, 10])
def test_what_is_not_zero(kind: int, cpu_device: Device, tmp_path: Path) -> None:
    """NonZero of numbers that are a mask's, and the sum of which is not 0."""
    body = f"""k = Cast<to = {kind}>(m); at = Transpose(NonZero(k));
        c = Cast<to = 7>(Cast<to = 9>(k));
        n = Reshape(ReduceSum<keepdims = 0>(c), one); y = ScatterND(x, at, Expand(v, n))"""
    _check(tmp_path / "m.onnx", body, lambda x, m, v: np.where(m, v, x), "cpu", cpu_device)


def test_rows(cpu_device: Device, tmp_path: Path) -> None:
    """A mask over the first axis alone, computed twice from numbers."""
    body = """z = Constant<value_float = 0.0>(); a = ReduceMax<keepdims = 0>(x, first);
        k = Greater(a, z); b = Cast<to = 7>(Greater(a, z)); five = Constant<value_ints = [5]>();
        s = Concat<axis = 0>(Reshape(ReduceSum<keepdims = 0>(b), one), five);
        y = ScatterND(x, Transpose(NonZero(k)), Expand(v, s))"""
    keep = lambda x, m, v: np.where(x.max(1, keepdims=True) > 0, v, x)  # noqa: E731
    _check(tmp_path / "m.onnx", body, keep, "cpu", cpu_device)


@pytest.mark.parametrize(
    "count",
    [
        "c = Cast<to = 7>(Less(x, v)); n = Reshape(ReduceSum<keepdims = 0>(c), one)",
        "c = Cast<to = 7>(Tile(m, seven)); n = Reshape(ReduceSum<keepdims = 0>(c), one)",
        """f = Cast<to = 1>(m); t = Transpose(f);
        n = Reshape(Cast<to = 7>(ReduceSum<keepdims = 0>(MatMul(f, t))), one)""",
    ],
    ids=["another mask", "seven times as many", "rows by rows"],
)
def test_other_counts_are_other_sizes(count: str, tmp_path: Path) -> None:
    """The model may be a valid one: it is not called invalid, but refused."""
    body = f"seven = Constant<value_ints = [1, 7]>(); {count}; y = ScatterND(x, i, Expand(v, n))"
    path = _save(tmp_path / "m.onnx", body)
    with pytest.raises((InputError, UnsupportedOp)) as refused:
        import_graph(path, bounds={"Expand": 20})
    assert refused.value.id in ("input.sizes", "model.unsupported")
