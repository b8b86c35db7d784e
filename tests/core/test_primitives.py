"""A primitive of movement or memory is its row and its rules: what is defined here, the compiler
knows.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.agreement import find_target
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.schedule.fuse import decide
from tinyedge.core.errors import InternalError
from tinyedge.core.ir import ops
from tinyedge.core.ir.memory import Element, Memory, NewRange, row_index
from tinyedge.core.ir.memory import define as define_memory
from tinyedge.core.ir.movement import Indices, Movement, define, read
from tinyedge.core.ir.overflow import beyond
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.reference_kernel import run_kernel
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.ir.spec import check_tensor
from tinyedge.core.ir.uop import UOp, as_node
from tinyedge.core.program.program import Program
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.model import TARGETS

CAPS = find_target("cpu").caps()

# ROLL: out[i] = in[(i + arg) % n] along the last axis. arg: how far.
ROLL = ops.Primitive("roll", "movement", 1)


def _roll_source(node: UOp, indices: Indices) -> Indices:
    return (*indices[:-1], as_node((indices[-1] + node.arg) % node.shape[-1]))


define(ROLL, Movement(lambda n: n.src[0].shape, lambda a, by: np.roll(a, -by, -1), _roll_source))

# REPEAT: every row arg times, one after the other.
REPEAT = ops.Primitive("repeat", "movement", 1)
define(
    REPEAT,
    Movement(
        lambda n: (n.src[0].shape[0] * n.arg, *n.src[0].shape[1:]),
        lambda a, times: np.repeat(a, times, 0),
        lambda n, indices: (as_node(indices[0] // n.arg), *indices[1:]),
    ),
)

# SHIFT: every element arg places further along the last axis, zeros where there was none.
SHIFT = ops.Primitive("shift", "movement", 1)


def _shifted(array: np.ndarray, by: int) -> np.ndarray:
    result = np.zeros_like(array)
    result[..., by:] = array[..., :-by]
    return result


define(
    SHIFT,
    Movement(
        lambda n: n.src[0].shape,
        _shifted,
        lambda n, indices: (*indices[:-1], as_node(indices[-1] - n.arg)),
        fills=True,
    ),
)


def _apply(op: ops.Primitive, x: Tensor, arg: int) -> Tensor:
    return Tensor(UOp(op, x.dtype, (x.node,), arg))


def _expected(x: np.ndarray) -> np.ndarray:
    rolled = np.roll(x, -5, 1)
    return np.repeat(_shifted(rolled, 2) * 2, 3, 0).sum(1) - np.repeat(x, 3, 0)[:, 0]


def _graph(x: Tensor) -> Tensor:
    repeated = _apply(REPEAT, _apply(SHIFT, _apply(ROLL, x, 5), 2) * 2, 3)
    return repeated.sum(1) - _apply(REPEAT, x, 3)[:, 0]


@pytest.mark.parametrize("target", TARGETS)
def test_a_primitive_defined_here_compiles(target: str) -> None:
    x = Tensor.input("x", (4, 7), dt.float32)
    y = _graph(x)
    check_tensor([y.node])
    assert y.shape == (12,)
    data = np.random.default_rng(3).normal(size=(4, 7)).astype(np.float32)
    expected = _expected(data)
    np.testing.assert_allclose(evaluate([y.node], {"x": data})[0], expected, rtol=1e-5, atol=1e-5)
    graph = Graph((Port("x", dt.float32, (4, 7)),), (Port("y", dt.float32, (12,), y.node),))
    state = compile_graph(graph, find_target(target), Options())
    arrays = {"x": data.reshape(-1), "y": np.zeros(12, np.float32)}
    for launch in state.launches:
        names = [each.name or "y" for each in launch.storages]
        for sink in (launch.sink, state.kernels[launch.sink].moved):
            run_kernel(sink, [arrays[name] for name in names])
            np.testing.assert_allclose(arrays["y"], expected, rtol=1e-5, atol=1e-5)
    assert isinstance(state.program, Program)
    assert len(state.launches) == 1  # all three are index arithmetic


# NEAREST: the rows of the first operand at the positions of the second, of those that do not exist
# the nearest one.
NEAREST = ops.Primitive("nearest", "memory", 2)


def _nearest(arg: None, data: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return data[np.clip(positions, 0, len(data) - 1)]


def _nearest_element(node: UOp, indices: Indices, valid: UOp, new_range: NewRange) -> Element:
    data, positions = node.src
    row = row_index(data, (yield (positions, indices[:1], valid)))
    return (yield (data, (row, *indices[1:]), valid))


define_memory(
    NEAREST,
    Memory(
        lambda n: n.src[1].shape + n.src[0].shape[1:],
        _nearest,
        _nearest_element,
        bounds=lambda n, operands: operands[0],
        wrong=lambda n: "" if n.src[1].dtype.is_int else f"positions of type {n.src[1].dtype}",
        reads=lambda n, operand: 4.0 if operand is n.src[0] else n.shape[1],
        loads=1,
    ),
)


@pytest.mark.parametrize("target", TARGETS)
def test_a_primitive_of_memory_defined_here_compiles(target: str) -> None:
    x, at = Tensor.input("x", (4, 7), dt.float32), Tensor.input("at", (3,), dt.int32)
    y = Tensor(UOp(NEAREST, dt.float32, (x.node, (at + 1).node))) * 2
    check_tensor([y.node])
    arrays: dict[str, np.ndarray] = {
        "x": np.random.default_rng(4).normal(size=(4, 7)).astype(np.float32),
        "at": np.array([1, -9, 9], np.int32),
    }
    expected = arrays["x"][[2, 0, 3]] * 2
    np.testing.assert_array_equal(evaluate([y.node], arrays)[0], expected)
    ports = (Port("x", dt.float32, (4, 7)), Port("at", dt.int32, (3,)))
    graph = Graph(ports, (Port("y", dt.float32, (3, 7), y.node),))
    state = compile_graph(graph, find_target(target), Options())
    (launch,) = state.launches
    for sink in (launch.sink, state.kernels[launch.sink].moved):
        result = np.zeros(21, np.float32)
        named = {"y": result, **{name: array.reshape(-1) for name, array in arrays.items()}}
        run_kernel(sink, [named[each.name or "y"] for each in launch.storages])
        np.testing.assert_array_equal(result.reshape(3, 7), expected)


def test_a_primitive_of_memory_says_what_is_wrong_and_where_its_values_lie() -> None:
    data = Tensor(np.array([[2**40], [3]]))
    wrong = UOp(NEAREST, dt.int64, (data.node, Tensor.input("f", (2,), dt.float32).node))
    with pytest.raises(InternalError, match="positions of type float32"):
        check_tensor([wrong])
    taken = Tensor(UOp(NEAREST, dt.int64, (data.node, Tensor.input("i", (2,), dt.int32).node)))
    less = taken - 2**40  # from 3 - 2**40: beyond 32 bits
    assert beyond([less.node], {less.node}, {"int64": "int32"}) == [less.node]
    bounded = taken.minimum(7)
    assert beyond([bounded.node], {bounded.node}, {"int64": "int32"}) == []


def test_its_shape_follows_open_sizes() -> None:
    n = symbol("n", 1, 9)
    y = _apply(REPEAT, Tensor.input("x", (n, 2), dt.float32), 3)
    assert y.shape == (n * 3, 2)
    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert evaluate([y.node], {"x": data}, {"n": 4})[0].shape == (12, 2)


def test_what_fills_reads_under_a_condition() -> None:
    x = Tensor.input("x", (4, 7), dt.int64)
    node = _apply(SHIFT, x, 2).node
    i, j = (Tensor.input(name, (), dt.index).node for name in "ij")
    (row, column), inside = read(node, (i, j))
    assert row is i and column is j - 2
    assert inside.op is ops.AND
    _, everywhere = read(_apply(ROLL, x, 2).node, (i, j))
    assert everywhere.op is ops.CONST and everywhere.arg is True
    positive = Tensor(np.full(7, 2**40))  # beyond 32 bits, and 0 among them after the shift
    narrow = {"int64": "int32"}
    shifted = _apply(SHIFT, positive, 2) - 2**40
    assert beyond([shifted.node], {shifted.node}, narrow) == [shifted.node]


def test_rows_that_are_repeated_are_kept_where_they_are_costly() -> None:
    """An element of what a movement repeats is computed once where it costs more than a load."""
    x = Tensor.input("x", (4, 7), dt.float32)
    costly = x.exp().sin()
    assert costly.node in decide([_apply(REPEAT, costly, 3).node], CAPS).realized
    assert costly.node not in decide([_apply(ROLL, costly, 3).node], CAPS).realized
