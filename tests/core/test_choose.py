"""The moves of kernels that compute expected values, and of layers that are alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, compiled, find_target, reference, replay
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.counters import inner_loops
from tinyedge.core.compiler.lower.cooperative import SCRATCH
from tinyedge.core.compiler.optimize import choose
from tinyedge.core.compiler.optimize import together as share
from tinyedge.core.compiler.optimize.move import ranges
from tinyedge.core.compiler.optimize.tiles import columns_pay
from tinyedge.core.compiler.options import Options
from tinyedge.core.ir import ops
from tinyedge.core.ir.lowered import shared_bytes, workgroup_buffers
from tinyedge.core.ir.uop import as_node, toposort
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor

X = np.random.default_rng(1).normal(size=(3, 9, 12, 20)).astype(np.float32)
WEIGHTS = np.random.default_rng(2).normal(size=(5, 9, 3, 3)).astype(np.float32)
COLUMNS = np.random.default_rng(3).normal(size=(20, 28)).astype(np.float32)
x = Tensor.input("x", X.shape, dt.float32)

CASES = {
    "product": x @ Tensor.weight("w", COLUMNS),
    "convolution": x.conv(Tensor.weight("w", WEIGHTS), pads=((1, 1), (1, 1))),
    "odd": x @ Tensor.weight("w", COLUMNS[:, :27]),
    "normalized": (x @ Tensor.weight("w", COLUMNS)).softmax(-1),
}


@pytest.mark.parametrize("name", CASES)
def test_exact_kernels_give_the_bits_of_plain_ones(
    name: str, cpu_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lanes, and rows that share a loop, add up in the same order as alone; so do panels that
    overlap, as of an odd number of columns.
    """
    monkeypatch.setattr(share, "ROWS", {1: 8})
    y = CASES[name]
    graph = Graph((Port("x", dt.float32, X.shape),), (Port("y", dt.float32, y.shape, y.node),))

    def run(chooser: object) -> tuple[np.ndarray, list[str]]:
        with monkeypatch.context() as patch:
            patch.setattr("tinyedge.core.compiler.stages.exact", chooser)
            compiled = compile_graph(
                graph, find_target("cpu"), Options(optimize=False, fp64_reference=True)
            )
        assert compiled.program is not None
        kinds = [str(move) for kernel in compiled.kernels.values() for move in kernel.moves]
        with Replay(compiled.program, cpu_device) as replay:
            return replay.run({"x": X})["y"], kinds

    together, moves = run(choose.exact)
    alone, fewer = run(lambda sink, caps, roles, launches: choose.baseline(sink, caps, roles))
    np.testing.assert_array_equal(together.view(np.uint32), alone.view(np.uint32))
    assert any("upcast" in move for move in moves)
    assert any("vector" in move for move in moves)
    assert not any("upcast" in move or "vector" in move for move in fewer)


def test_what_outputs_share_of_a_reduction_is_computed_once() -> None:
    """Expected values of a norm along the first axis: the loop over that axis is within those that
    the sum depends on.
    """
    y = x * x.sum(0)
    graph = Graph((Port("x", dt.float32, X.shape),), (Port("y", dt.float32, y.shape, y.node),))
    options = Options(optimize=False, fp64_reference=True)
    (kernel,) = compile_graph(graph, find_target("cpu"), options).kernels.values()
    (total,) = (n for n in toposort((kernel.moved,)) if n.op is ops.REDUCE_LOOP)
    own = [r for r in ranges(kernel.moved) if r.arg.kind != "reduce"]
    assert [r.arg.kind for r in own if r not in total.ranges] == ["loop"]
    assert "loop" not in {r.arg.kind for r in own if r in total.ranges}


@pytest.mark.parametrize(
    ("launches", "rows"), [(1, 1), (4, 2), (16, 8)], ids=["one", "four", "sixteen"]
)
def test_rows_share_a_loop_by_the_work_of_all_launches(launches: int, rows: int) -> None:
    """Of expected values, 120 rows by 192 columns, 192 steps each: 2^22 products."""
    a = Tensor.input("a", (120, 192), dt.float32)
    y = a @ Tensor.weight("w", np.ones((192, 192), np.float32))
    graph = Graph((Port("a", dt.float32, (120, 192)),), (Port("y", dt.float32, y.shape, y.node),))
    options = Options(optimize=False, fp64_reference=True)
    state = compile_graph(graph, find_target("cpu"), options)
    (kernel,) = state.kernels.values()
    moved, _ = choose.exact(kernel.sink, state.caps, kernel.contraction, launches)
    copies = [r.src[0].arg for r in ranges(moved) if r.arg.kind == "upcast"]
    assert copies == ([rows] if rows > 1 else [])


# Layers that read and write pictures by channel: channels and filters, side, step, groups, pixels
# a window, whether it is transposed; loads by width in the inner loop, sums there. At 7 x 7 threads
# share a sum, the loop over their parts loads the 7 vectors of a tile's rows, and of 21 taps two
# are outside.
ALONE: dict[str, tuple[tuple[int, int, int, int, int, bool], dict[int, int], int]] = {
    "rows of a picture of 7 x 7": ((160, 7, 1, 1, 3, False), {1: 7, 4: 3}, 19),
    "by 2": ((256, 28, 2, 1, 3, False), {1: 12, 4: 6}, 30),
    "by 2, 8 pixels of a row at 7 taps": ((32, 80, 2, 1, 7, False), {1: 21, 4: 7}, 56),
    "groups, 7 pixels of a row at 3 taps": ((128, 28, 1, 4, 3, False), {1: 9, 4: 3}, 21),
    "transposed": ((64, 28, 1, 1, 3, True), {1: 9, 4: 3}, 21),
    "pixels in vectors": ((64, 28, 1, 1, 1, False), {4: 13}, 40),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_layer_alone_has_vectors_along_its_filters(name: str, webgpu_device: Device) -> None:
    """Where windows shift pixels out of vectors, a filter's weights are loaded in vectors, and each
    pixel once for all taps in a row.
    """
    (channels, side, step, groups, size, transposed), loads, sums = ALONE[name]
    inputs, random = Inputs(), np.random.default_rng(4)
    x = inputs.new(random.normal(size=(1, channels, side, side)).astype(np.float32))
    shape = (channels, channels // groups, size, size)
    weight = Tensor.weight("w", random.normal(size=shape).astype(np.float32))
    pads = ((size // 2, size // 2),) * 2
    if transposed:
        y = x.conv_transpose(weight, strides=(step, step), pads=pads)
    else:
        y = x.conv(weight, strides=(step, step), pads=pads, groups=groups)
    state = compiled({"y": y}, inputs, find_target("webgpu"))
    (kernel,) = state.kernels.values()
    assert kernel.text is not None and state.program is not None
    inner = inner_loops(kernel.text)
    assert (inner.loads, inner.fused) == (loads, sums)
    if name == "pixels in vectors":  # each vector, of 2 in 4 steps, serves all 5 rows in turn
        text = kernel.text.linear.statements
        vectors = [n.src[1].src[0] for n in text if n.op is ops.SET and n.src[1].op is ops.MUL]
        runs = [vectors.index(v) for n, v in enumerate(vectors) if n % 5 == 0]
        assert len(set(vectors)) == 8 and runs == list(range(0, 40, 5))
    memory = workgroup_buffers(kernel.text.linear.statements)
    assert sum(shared_bytes(each.dtype, each.arg.length) for each in memory) <= SCRATCH
    found = replay(state.program, webgpu_device, inputs.arrays)
    assert_agreement(found, reference({"y": y}, inputs, fp64_reference=True))


@pytest.mark.parametrize(("target", "step"), [("webgpu", 1), ("webgpu", 2), ("qcom", 1)])
def test_windows_below_each_other_share_what_they_read(
    target: str, step: int, request: pytest.FixtureRequest
) -> None:
    """A filter for each channel of a picture by channels: a thread has 4 pixels of each of 4 rows,
    reads each number of 6 rows (by 2 of 9) once, and has no loop.
    """
    inputs, random = Inputs(), np.random.default_rng(4)
    x = inputs.new(random.normal(size=(1, 16, 64 * step, 64 * step)).astype(np.float32))
    weight = Tensor.weight("w", random.normal(size=(16, 1, 3, 3)).astype(np.float32))
    y = x.conv(weight, strides=(step, step), pads=((1, 1), (1, 1)), groups=16)
    state = compiled({"y": y}, inputs, find_target(target))
    (kernel,) = state.kernels.values()
    assert kernel.text is not None and state.program is not None
    statements = toposort(kernel.text.linear.statements)
    assert not [n for n in statements if n.op is ops.ACCUMULATOR]
    loads = [n.dtype.lanes for n in statements if n.op is ops.LOAD]
    read = {1: 6 * 6, 2: 9 * 9}[step]
    assert sum(loads) == read + 9 and len([n for n in statements if n.op is ops.STORE]) == 4
    found = replay(state.program, request.getfixturevalue(f"{target}_device"), inputs.arrays)
    assert_agreement(found, reference({"y": y}, inputs, fp64_reference=True))


def test_long_sums_that_four_does_not_divide_take_five_steps_at_once() -> None:
    """Each vector of the filter serves two rows, whose numbers are read one by one."""
    inputs, random = Inputs(), np.random.default_rng(4)
    x = inputs.new(random.normal(size=(62, 1025)).astype(np.float32))
    w = Tensor.weight("w", random.normal(size=(1025, 128)).astype(np.float32))
    (kernel,) = compiled({"y": x @ w}, inputs, find_target("webgpu")).kernels.values()
    assert kernel.text is not None
    inner = inner_loops(kernel.text)
    assert (inner.loads, inner.fused) == ({1: 10, 4: 5}, 10)


def test_many_taps_are_copies(webgpu_device: Device) -> None:
    """Seven taps of 8 rows of pixels in vectors read 14 numbers and 7 vectors of the filter for 56
    products of vectors, where four channels at once would read 12 vectors for 32.
    """
    inputs, random = Inputs(), np.random.default_rng(4)
    x = inputs.new(random.normal(size=(1, 4, 128, 62)).astype(np.float32))
    y = x.conv(_filter(12, 4, 1, 1)).relu().conv(_filter(12, 12, 7, 3), pads=((3, 3), (1, 1)))
    state = compiled({"y": y}, inputs, find_target("webgpu"))
    assert state.program is not None
    kernel = max(state.kernels.values(), key=lambda kernel: kernel.flops)
    assert kernel.text is not None
    inner = inner_loops(kernel.text)
    assert (inner.loads, inner.fused, inner.guards) == ({1: 14, 4: 7}, 56, 0)
    found = replay(state.program, webgpu_device, inputs.arrays)
    assert_agreement(found, reference({"y": y}, inputs, fp64_reference=True))


@pytest.mark.parametrize(("side", "columns", "threads"), [(13, 24, 1), (5, 32, 16)])
def test_parts_of_a_concatenation_have_vectors_along_their_filters(
    side: int, columns: int, threads: int, webgpu_device: Device
) -> None:
    """Layers that write beside others read their filters as those that write alone: in vectors
    along columns, which are not put together of numbers. 510 tiles of two sums have threads enough;
    each sum of 104 is shared.
    """
    inputs, random = Inputs(), np.random.default_rng(4)
    x = inputs.new(random.normal(size=(1, 16, side, side)).astype(np.float32))
    y = x.conv(_filter(512, 16, 1, 1)).relu()
    parts = [y.conv(_filter(n, 512, 1, 1)).relu() for n in (columns, 64)]
    outputs = {"y": Tensor.concat(parts, 1).conv(_filter(8, columns + 64, 1, 1))}
    state = compiled(outputs, inputs, find_target("webgpu"))
    assert state.program is not None
    first = list(state.kernels.values())[1]
    sharers = [r.src[0].arg for r in ranges(first.moved) if r.arg.kind == "threads"]
    assert (sharers or [1]) == [threads]
    for kernel in state.kernels.values():
        assert kernel.text is not None
        made = (n for n in toposort(kernel.text.linear.statements) if n.op is ops.VECTOR)
        assert all(len(n.src) == 1 for n in made)
    found = replay(state.program, webgpu_device, inputs.arrays)
    assert_agreement(found, reference(outputs, inputs, fp64_reference=True))


def _head(x: Tensor) -> Tensor:
    y = x.conv(_filter(3 * 85, x.shape[1], 1, 1)).reshape(1, 3, 85, *x.shape[2:])
    return y.permute(0, 1, 3, 4, 2).sigmoid()


def _filter(*shape: int) -> Tensor:
    values = np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)
    return Tensor.weight(f"w{shape}", values)


# Products with a filter of columns that are no whole vectors, of a picture of 7 channels, 3 x 7.
UNEVEN: dict[str, Callable[[Tensor], Tensor]] = {
    "255 filters": lambda x: x.conv(_filter(255, 7, 1, 1)) + _filter(255, 1, 1),
    "21 filters of 3 x 3": lambda x: x.conv(_filter(21, 7, 3, 3), pads=((1, 1), (1, 1))),
    "by 2": lambda x: x.conv(_filter(10, 7, 3, 3), pads=((1, 1), (1, 1)), strides=(2, 2)),
    "channels last": lambda x: x.permute(0, 3, 1, 2).conv(_filter(17, 7, 1, 1)),
    "boxes of 85 numbers": _head,
    "groups of 10": lambda x: x.permute(0, 2, 1, 3).conv(_filter(30, 1, 3, 3), groups=3),
    "transposed": lambda x: x.conv_transpose(_filter(7, 6, 3, 3), pads=((1, 1), (1, 1))),
    "a product": lambda x: x[0, 0] @ _filter(7, 1001) + _filter(1001),
}


@pytest.mark.parametrize("target", ["webgpu", "qcom"])
def test_columns_that_are_no_whole_vectors(target: str, request: pytest.FixtureRequest) -> None:
    """They are rounded up in the filter, which is read in vectors without a test; what is stored of
    the last one is tested number by number. Each target gives what the reference does.
    """
    device = request.getfixturevalue(f"{target}_device")
    for name, make in UNEVEN.items():
        inputs = Inputs()
        picture = np.random.default_rng(7).normal(size=(1, 7, 3, 7)).astype(np.float32)
        y = make(inputs.new(picture))
        state = compiled({"y": y}, inputs, find_target(target))
        assert state.program is not None
        kernel = max(state.kernels.values(), key=lambda kernel: kernel.flops)
        assert kernel.text is not None
        sums = [n for n in kernel.text.linear.statements if n.op is ops.ACCUMULATOR]
        assert sums and {n.dtype.lanes for n in sums} == {4}, name
        loads = toposort(n for n in kernel.text.linear.statements if n.op is ops.SET)
        filters = [n for n in loads if n.op is ops.LOAD and n.src[0].arg.weight]
        assert filters and all(n.dtype.lanes == 4 and not n.arg for n in filters), name
        found = replay(state.program, device, inputs.arrays)
        assert_agreement(found, reference({"y": y}, inputs, fp64_reference=True))


def test_few_columns_are_not_rounded_up() -> None:
    """Of four, too many would be computed for nothing, or by pairs as fast."""
    caps = find_target("webgpu").caps()
    sizes = [as_node(size) for size in range(1, 12)]
    assert [n.arg for n in sizes if not columns_pay(n, caps)] == [1, 2]
    beside = [n.arg for n in sizes if not columns_pay(n, caps, contiguous=True)]
    assert beside == [1, 2, 6]
