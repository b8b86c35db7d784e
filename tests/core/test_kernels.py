"""Kernels mean what the tensor graph means, before their moves and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tinyedge.choices import find_target
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.assemble import stored_array
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.compiler.target import Target
from tinyedge.core.errors import InternalError
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.buffers import KernelArg, TensorBuffer, row_major
from tinyedge.core.ir.lowered import Linear
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.reference_kernel import run_kernel
from tinyedge.core.ir.reference_lowered import run_lowered
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import rewrite
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.spec import check_kernel, check_tensor
from tinyedge.core.ir.spec_lowered import check_lowered
from tinyedge.core.ir.uop import UOp, as_node, const, toposort
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(7)


def _weight(*shape: int) -> Tensor:
    return Tensor.weight("w", RNG.standard_normal(shape, dtype=np.float32))


def _convolutions(x: Tensor) -> Tensor:
    y = x.conv(_weight(10, 3, 3, 3), _weight(10), pads=((1, 1), (1, 1)), strides=(2, 1)).relu()
    return (y + y.conv(_weight(10, 1, 3, 3), pads=((1, 1), (1, 1)), groups=10)).conv(
        _weight(6, 10, 1, 1)
    )


def _siblings(x: Tensor) -> Tensor:
    """Two convolutions of one tensor in a kernel, and two of their results added in another."""
    wide, narrow = x.conv(_weight(10, 3, 3, 3), pads=((1, 1), (1, 1))), x.conv(_weight(10, 3, 1, 1))
    left, right = wide.relu().in_memory(), narrow.exp().in_memory()
    total = left.conv(_weight(6, 10, 1, 1)) + right.conv(_weight(6, 10, 1, 1))
    return total * total.max((2, 3), keepdims=True) + total.sum((2, 3), keepdims=True)


def _frames(x: Tensor) -> Tensor:
    """Parts of one tensor, each a step further, beside each other."""
    steps = x.reshape((210,))[:192].in_memory().pad(((16, 16),)).reshape((28, 8))
    return Tensor.concat([steps[n : n + 25] for n in range(4)], 1)


def _turned(x: Tensor) -> Tensor:
    """Products of which the rows are stored along columns, and not all of them."""
    product = x.reshape((210,))[:192].reshape((3, 8, 8)).permute((0, 2, 1)) @ _weight(8, 8)
    some = product.permute((0, 2, 1)).reshape((3, 64))[:, :17].abs().in_memory()
    return some @ _weight(17, 8)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "siblings": _siblings,
    "convolutions": _convolutions,
    "softmax": lambda x: x.softmax(1),
    "normalized": lambda x: (x - x.mean((2, 3), keepdims=True)) / x.max((2, 3), keepdims=True),
    "concat": lambda x: Tensor.concat([x.exp(), x[:, :1], x.flip(2)], 1).window(2, 2).sum(-1),
    "product": lambda x: x.reshape((3, -1)) @ _weight(70, 9),
    "means": lambda x: x.mean(),
    "frames": _frames,
    "turned": _turned,
}
SHAPE = (1, 3, 7, 10)


def _compile(function: Callable[[Tensor], Tensor], target: str) -> tuple[Compilation, Tensor]:
    x = Tensor.input("x", SHAPE, dt.float32)
    y = function(x)
    graph = Graph((Port("x", dt.float32, SHAPE),), (Port("y", y.dtype, y.shape, y.node),))
    if target == "images":
        return compile_graph(
            graph, _with_images(find_target("webgpu")), Options(), stop_after="lower"
        ), y
    return compile_graph(graph, find_target(target), Options()), y


@pytest.mark.parametrize(("name", "number"), [("frames", 1), ("turned", 0)])
def test_what_lies_together_is_loaded_together(name: str, number: int) -> None:
    """Of parts of a tensor no condition is left but that of its padding, which is the same in all
    lanes of a vector. Beyond the last result what a buffer has there is read in whole vectors.
    """
    kernel = [*_compile(FUNCTIONS[name], "cpu")[0].kernels.values()][number]
    assert kernel.text is not None
    nodes = toposort(kernel.text.linear.statements)
    loads = [n for n in nodes if n.op is ops.LOAD and not n.src[0].arg.weight]
    lanes = [load.dtype.lanes for load in loads]
    assert lanes and set(lanes) == {8}, kernel.source
    assert name == "turned" or (len(loads) == 1 and not any(n.op is ops.WHERE for n in nodes))


def _with_images(target: Target) -> Target:
    """A target with images of which no row is a multiple of 64 pixels by itself."""
    caps = replace(target.caps(), image=4096, image_pitch=3, typed_buffers=False)
    return replace(target, profiles={"default": caps})


def test_images_read_padding_for_free() -> None:
    state, _ = _compile(FUNCTIONS["convolutions"], "images")
    images, guarded = 0, 0
    for kernel in state.kernels.values():
        assert kernel.text is not None
        for node in toposort(kernel.text.linear.statements):
            if node.op is ops.LOAD and node.src[0].arg.is_image:
                images += 1
                guarded += bool(node.arg)
    assert images >= 10 and guarded == 0


@pytest.mark.parametrize("target", ["cpu", "webgpu", "cuda", "images"])
@pytest.mark.parametrize("stage", ["canonical", "moved", "lowered"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_agree_with_the_graph(name: str, stage: str, target: str) -> None:
    state, y = _compile(FUNCTIONS[name], target)
    x = RNG.standard_normal(SHAPE, dtype=np.float32)
    memory: dict[TensorBuffer, np.ndarray] = {}  # type: ignore[type-arg]
    for launch in state.launches:
        for storage in launch.storages:
            if storage not in memory:
                memory[storage] = _contents(storage, x)
        kernel = state.kernels[launch.sink]
        buffers = [memory[s] for s in launch.storages]
        if stage == "lowered":
            assert kernel.text is not None
            run_lowered(kernel.text.linear, kernel.text.geometry, buffers)
        else:
            run_kernel(kernel.moved if stage == "moved" else launch.sink, buffers)
    expected = evaluate([y.node], {"x": x})[0]
    result = memory[state.entries[0].schedule.outputs["0"]].reshape(expected.shape)
    np.testing.assert_allclose(result, expected, atol=1e-5 * np.abs(expected).max())


def _contents(storage: TensorBuffer, x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Memory as a run finds it: what nobody has written is NaN."""
    if storage.role == "weight":
        return stored_array(storage).reshape(-1)
    if storage.role == "input":
        return x.reshape(-1)
    count = maximum(storage.layout.count(storage.shape))
    values = np.full(count, np.nan, storage.dtype.numpy)
    if any(pad > 1 for pad in storage.layout.pads):
        values[:] = 0  # canonical kernels leave the padding alone; moved ones write zeros there
    return values


def test_a_store_writes_where_all_its_guards_hold() -> None:
    r = UOp(ops.RANGE, dt.index, (const(8, dt.index),), args.Range(0, "loop"))
    arg = KernelArg(0, (8,), row_major((8,)), written=True)
    param = UOp(ops.PARAM, dt.float32, (), arg)
    below = ix.lt(r, 6)
    store = access.store(param, const(1.0, dt.float32), (r,), below)
    assert store.arg and access.indices_of(store) == (r,) and access.guard_of(store) is below
    assert access.under(ix.TRUE, store) is access.store(param, store.src[1], (r,))
    twice = access.also_under(ix.lt(2, r), store)
    shifted = access.at(twice, (as_node(r - 1),))
    sink = UOp(ops.SINK, dt.index, (shifted,))
    check_kernel(sink)
    buffer = np.zeros(8, np.float32)
    run_kernel(sink, [buffer])
    assert buffer.tolist() == [0, 0, 1, 1, 1, 0, 0, 0]  # at r - 1 for 2 < r < 6
    (first,) = rewrite((store,), {r: const(0, dt.index)})
    assert access.guard_of(first) is ix.TRUE
    with pytest.raises(InternalError, match="the guard of a store is a condition"):
        check_kernel(UOp(ops.SINK, dt.index, (access.under(r, store),)))


def test_grammars_refuse_what_they_should() -> None:
    x = Tensor.input("x", (4,), dt.float32).node
    mixed = UOp(ops.ADD, dt.float32, (x, Tensor.input("y", (4,), dt.int32).node))
    with pytest.raises(InternalError, match="operands of types"):
        check_tensor([mixed])
    empty = UOp(ops.EMPTY, dt.float32, (), (8,))
    once = UOp(ops.ASSIGN, dt.float32, (empty, x), (args.Span(0, 4),))
    check_tensor([once])
    with pytest.raises(InternalError, match="written twice"):
        check_tensor([UOp(ops.ASSIGN, dt.float32, (once, x), (args.Span(3, 7),))])
    with pytest.raises(InternalError, match="a constant node instead of an int"):
        check_tensor([UOp(ops.EMPTY, dt.float32, (), (const(8, dt.index),))])
    with pytest.raises(InternalError, match="sink of stores"):
        check_kernel(const(1.0, dt.float32))
    state, _ = _compile(FUNCTIONS["product"], "cpu")
    kernel = state.kernels[state.launches[0].sink]
    check_kernel(kernel.moved)
    assert kernel.text is not None
    statements = kernel.text.linear.statements
    values, geometry = kernel.text.linear.values, kernel.text.geometry
    check_lowered(kernel.text.linear, geometry)
    last = max(i for i, node in enumerate(statements) if node.op is ops.END)
    with pytest.raises(InternalError, match=r"outside of its loop|not closed"):
        check_lowered(Linear(statements[:last], values), geometry)
    unset = [node for node in statements if node.op is not ops.ACCUMULATOR]
    with pytest.raises(InternalError, match="before it is declared"):
        check_lowered(Linear(unset, values), geometry)
