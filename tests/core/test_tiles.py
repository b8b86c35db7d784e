"""Contractions on processors: tiles in registers, panels of filters, and no test in inner loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.agreement import Inputs, assert_agreement, compiled, find_target, graph, reference, run
from tests.core.profile import examples
from tinyedge.choices import find_fallback
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.assemble import stored_array
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.optimize.tiles import panel_vectors
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.state import Compilation, CompiledKernel
from tinyedge.core.gradient.transforms import grad
from tinyedge.core.ir import ops
from tinyedge.core.ir.reference_kernel import run_kernel
from tinyedge.core.ir.reference_lowered import run_lowered
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Graphs, Port, State
from tinyedge.core.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
PROFILES = tuple(find_target("cpu").profiles)
# Of networks for pictures: channels, filters, side of the picture, of the filter, step, groups.
CONVOLUTIONS = {
    "resnet 56": (64, 64, 56, 3, 1, 1),
    "resnet 28, by 2": (64, 128, 56, 3, 2, 1),
    "resnet 7": (512, 512, 7, 3, 1, 1),
    "pointwise": (96, 24, 14, 1, 1, 1),
    "five by five": (32, 48, 20, 5, 1, 1),
    "grouped": (32, 64, 14, 3, 1, 4),
}
DEPTHWISE = {"3x3, by 2": (96, 96, 28, 3, 2, 96), "5x5": (48, 48, 14, 5, 1, 48)}
RNG = np.random.default_rng(3)


def convolution(channels: int, filters: int, side: int, kernel: int, step: int, groups: int) -> Any:
    """The output of convolutions, of which each writes as the next one reads; the inputs. The
    second is as described.
    """
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, channels, side, side)).astype(np.float32))
    first = Tensor.weight("v", RNG.normal(size=(channels, channels, 1, 1)).astype(np.float32))
    shape = (filters, channels // groups, kernel, kernel)
    weight = Tensor.weight("w", RNG.normal(size=shape).astype(np.float32))
    pad = kernel // 2
    y = x.conv(first).conv(
        weight, strides=(step, step), pads=((pad, pad), (pad, pad)), groups=groups
    )
    last = Tensor.weight(
        "l", RNG.normal(size=(filters, filters, 1, 1)).astype(np.float32) / filters
    )
    return {"y": y.relu().conv(last)}, inputs


def compiled_for(profile: str, *model: Any) -> Compilation:
    """As plain sums and products: Winograd's method and attention have tests of their own."""
    options = Options(profile=profile, winograd=0, attention=False)
    return compiled(*model, find_target("cpu"), options)


def inner_loads(state: Compilation) -> Iterator[UOp]:
    """The loads that depend on the innermost range of a sum, in the order of the kernels."""
    for kernel in state.kernels.values():
        assert kernel.text is not None
        loops: list[UOp] = []
        for node in kernel.text.linear.statements:
            if node.op is ops.BEGIN:
                loops.append(node.src[0])
            elif node.op is ops.END:
                loops.pop()
            elif loops and loops[-1].arg.kind == "reduce":
                for load in toposort((node,)):
                    if load.op is ops.LOAD and loops[-1] in load.ranges:
                        yield load


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_no_test_in_an_inner_loop(name: str, profile: str) -> None:
    loads = list(inner_loads(compiled_for(profile, *convolution(*CONVOLUTIONS[name]))))
    assert loads and not any(load.arg for load in loads)
    if CONVOLUTIONS[name][3] > 1:
        assert any(load.src[0].op is ops.REGION for load in loads)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", DEPTHWISE)
def test_depthwise_loads_are_under_no_condition(name: str, profile: str) -> None:
    """Rows of a tile share what their windows share; a region is chosen for many loads at once, or
    the loop over the window's rows ends at the border.
    """
    state = compiled_for(profile, *convolution(*DEPTHWISE[name]))
    kernel = list(state.kernels.values())[1]
    assert kernel.text is not None
    nodes = toposort(kernel.text.linear.statements)
    regions = [n for n in nodes if n.op is ops.REGION]
    ends = [n for n in nodes if n.op is ops.RANGE and len(n.src) > 1]
    assert bool(regions) is not bool(ends)
    memory = ops.REGION if regions else ops.PARAM
    read = [n for n in nodes if n.op is ops.LOAD and n.src[0].op is memory]
    assert read and not any(n.arg and n.dtype.lanes > 1 for n in nodes if n.op is ops.LOAD)
    assert len(regions) * 2 < len(read)
    sums = [n for n in nodes if n.op in (ops.FMA, ops.MUL) and n.dtype.lanes > 1]
    assert len(read) < len(sums)


@pytest.mark.parametrize("profile", PROFILES)
def test_keys_lie_as_scores_read_them(profile: str, cpu_device: Device) -> None:
    """softmax(q k^T) v with keys from a product of their own: tokens are innermost in the keys and
    the scores, features in the values.
    """
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(70, 48)).astype(np.float32))
    weights = [RNG.normal(size=(48, 48)).astype(np.float32) / 7 for _ in range(3)]
    q, k, v = (
        (x @ Tensor.weight(f"w{n}", w)).reshape((70, 3, 16)).permute((1, 0, 2))
        for n, w in enumerate(weights)
    )
    scores = (q @ k.permute((0, 2, 1)) * 0.25).softmax(-1)
    outputs = {"y": (scores @ v).relu()}
    state = compiled_for(profile, outputs, inputs)
    products = [launch for launch in state.launches if launch.contraction is not None]
    written = [storage for launch in products for storage in launch.written]
    lies = [(storage.shape, storage.layout.order[-1]) for storage in written]
    assert sorted(lies[:-1]) == [((3, 70, 70), 2), ((70, 48), 0), ((70, 48), 1), ((70, 48), 1)]
    got = run(outputs, inputs, "cpu", cpu_device, Options(profile=profile))
    assert_agreement(got, reference(outputs, inputs))


@pytest.mark.parametrize(
    "profile, sums", [("default", 8), ("sse", 8), ("avx512", 28), ("neon", 16)]
)
def test_tiles_fill_the_registers(profile: str, sums: int) -> None:
    """As many sums as leave room for what a step loads, and keep the processor busy."""
    caps = find_target("cpu").caps(profile)
    state = compiled_for(profile, *convolution(*CONVOLUTIONS["resnet 56"]))
    kernel = list(state.kernels.values())[1]
    assert kernel.text is not None
    found = [n for n in kernel.text.linear.statements if n.op is ops.ACCUMULATOR]
    assert len(found) == sums and {n.dtype.lanes for n in found} == {caps.vector}
    assert len(found) < caps.max_vector_registers


@pytest.mark.parametrize(
    ("shape", "sums", "loads"),
    [((128, 384, 384), 8, 4 + 2), ((50, 64, 20), 10, 10 + 1)],
)
def test_what_a_step_loads_fits_beside_the_sums(
    shape: tuple[int, int, int], sums: int, loads: int
) -> None:
    """Where all of it is loaded before the first product (the fallback of pages), a step of 4 x 2
    sums loads 6 vectors, in 14 registers; and steps are no copies. One vector waits for no other.
    """
    rows, summed, columns = shape
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(rows, summed)).astype(np.float32))
    weight = Tensor.weight("w", RNG.normal(size=(summed, columns)).astype(np.float32))
    target = find_fallback("wasm", "webgpu")
    state = compiled({"y": x @ weight}, inputs, target, Options(profile="default"))
    (kernel,) = state.kernels.values()
    assert kernel.text is not None
    statements = kernel.text.linear.statements
    assert len([n for n in statements if n.op is ops.ACCUMULATOR]) == sums
    assert len(set(inner_loads(state))) == loads
    if loads < sums:
        assert sums + loads <= target.caps("default").max_vector_registers


@pytest.mark.parametrize(("side", "sums"), [(7, 7), (14, 14), (56, 14), (5, 5)])
def test_filters_of_taps_fit_beside_the_sums(side: int, sums: int) -> None:
    """Three taps are copies. 5 x 2 sums and the taps' 6 vectors would spill a sum in each step of
    16 registers, which 14 x 1 sums in flight hide; 7 x 1 spill none and waste no row.
    """
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, 64, side, side)).astype(np.float32))
    weight = Tensor.weight("w", RNG.normal(size=(64, 64, 3, 3)).astype(np.float32))
    state = compiled_for("default", {"y": x.conv(weight, pads=((1, 1), (1, 1)))}, inputs)
    (kernel,) = state.kernels.values()
    assert kernel.text is not None
    statements = kernel.text.linear.statements
    assert len([n for n in statements if n.op is ops.ACCUMULATOR]) == sums
    (storage,) = (s for s in state.launches[0].storages if s.role == "weight")
    assert storage.layout.panel == 8  # as wide as the tile


def row_blocks(kernel: CompiledKernel) -> tuple[int, int] | None:
    """Blocks of a product's rows and tiles of rows in one, if it has blocks: a loop around that
    over columns, which is around one over rows.
    """
    loops = [n for n in toposort((kernel.moved,)) if n.op is ops.RANGE]
    outer = sorted((r for r in loops if r.arg.kind in ("grid", "loop")), key=lambda r: r.arg.number)
    if len(outer) != 3:
        return None
    blocks, columns, rows = outer
    (store,) = kernel.moved.src
    reads = [n for n in toposort((store,)) if n.op is ops.LOAD]
    (x,) = (n for n in reads if rows in n.ranges)
    assert blocks in x.ranges and columns not in x.ranges
    return blocks.src[0].arg, rows.src[0].arg


@pytest.mark.parametrize(
    ("profile", "shape", "found"),
    [
        ("default", (2048, 2048, 2048), (6, 57)),  # of 342 rows, 2.8 MB
        ("avx512", (6144, 512, 512), (4, 220)),
        ("default", (6144, 512, 512), (4, 256)),
        ("default", (128, 128, 128), None),
        ("default", (512, 512, 512), None),  # all rows stay in the cache
        ("default", (2048, 2048, 16), None),  # the rows go by once
        ("default", (200, 8192, 2048), None),  # the filter would come from memory too often
    ],
)
def test_rows_beyond_the_cache_come_in_blocks(
    profile: str, shape: tuple[int, int, int], found: tuple[int, int] | None
) -> None:
    rows, depth, columns = shape
    weight = Tensor.weight("w", np.zeros((depth, columns), np.float32))
    y = Tensor.input("x", (rows, depth), dt.float32) @ weight
    made = Graph((Port("x", dt.float32, (rows, depth)),), (Port("y", y.dtype, y.shape, y.node),))
    options = Options(profile=profile)
    state = compile_graph(made, find_target("cpu"), options, stop_after="optimize")
    (kernel,) = state.kernels.values()
    assert row_blocks(kernel) == found


def test_blocks_of_rows_agree(cpu_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a product, a batch of them and a convolution; the last block overlaps the one before."""
    small = replace(find_target("cpu").caps(), cache=4096)
    monkeypatch.setitem(find_target("cpu").profiles, "default", small)
    inputs = Inputs()
    x, a, b, image = (
        inputs.new(RNG.normal(size=shape).astype(np.float32))
        for shape in ((79, 40), (2, 79, 40), (2, 40, 48), (1, 8, 19, 19))
    )
    weights = [RNG.normal(size=shape).astype(np.float32) for shape in ((40, 48), (64, 8, 3, 3))]
    outputs = {
        "product": x @ Tensor.weight("w", weights[0]),
        "batch": a @ b,
        "convolution": image.conv(Tensor.weight("v", weights[1]), pads=((1, 1), (1, 1))),
    }
    options = Options(winograd=0)
    state = compiled(outputs, inputs, find_target("cpu"), options)
    loops = [
        sum(n.op is ops.RANGE and n.arg.kind in ("grid", "loop") for n in toposort((k.moved,)))
        for k in state.kernels.values()
    ]
    assert loops == [3, 4, 4]
    assert_agreement(run(outputs, inputs, "cpu", cpu_device, options), reference(outputs, inputs))


def test_a_panel_holds_a_tile_of_columns() -> None:
    """The filter of a tile lies together: K x 64 elements, then those of the next 64 columns."""
    weights = np.arange(6 * 128, dtype=np.float32).reshape(6, 128)
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(28, 6)).astype(np.float32))
    state = compiled_for("avx512", {"y": x @ Tensor.weight("w", weights)}, inputs)
    (storage,) = (s for s in state.launches[0].storages if s.role == "weight")
    assert storage.layout.panel == 64
    expected = np.concatenate([weights[:, :64].reshape(-1), weights[:, 64:].reshape(-1)])
    np.testing.assert_array_equal(stored_array(storage).reshape(-1), expected)
    assert [panel_vectors(n, find_target("cpu").caps("avx512")) for n in (1, 2, 5, 8)] == [
        1,
        2,
        5,
        4,
    ]


def product_with_codes(rows: int, summed: int, columns: int) -> Any:
    """x @ (q * s) with q of 8 bits and a scale for each column; the inputs."""
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(rows, summed)).astype(np.float32))
    codes = RNG.integers(-128, 128, size=(summed, columns)).astype(np.int8)
    scale = RNG.uniform(0.01, 0.02, size=columns).astype(np.float32)
    weight = Tensor.weight("q", codes).cast(dt.float32) * Tensor.weight("s", scale)
    return {"y": x @ weight}, inputs


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    ("rows", "summed", "columns", "kept"),
    [(400, 96, 192, True), (61, 384, 24, True), (64, 1536, 16, True), (16, 96, 192, False)],
)
def test_a_filter_of_few_bits_is_unpacked_once(
    profile: str, rows: int, summed: int, columns: int, kept: bool, cpu_device: Device
) -> None:
    """For many rows the loop of their products loads floats alone; for few it unpacks words."""
    outputs, inputs = product_with_codes(rows, summed, columns)
    state = compiled_for(profile, outputs, inputs)
    (kernel,) = state.kernels.values()
    stages = [n for n in toposort((kernel.moved,)) if n.op is ops.STAGE]
    fits = 4 * summed * find_target("cpu").caps(profile).vector <= find_target("cpu").caps().room
    assert len(stages) == (kept and fits)
    if stages:
        assert kernel.text is not None
        assert rows < 400 or kernel.text.geometry.grid[0] >= 6  # groups for threads
        inner = loops_of_products(kernel.text.linear.statements)
        assert inner and not any(n.op in (ops.SHL, ops.SHR) for n in inner)
    got = run(outputs, inputs, "cpu", cpu_device, Options(profile=profile))
    assert_agreement(got, reference(outputs, inputs))


def loops_of_products(statements: Iterable[UOp]) -> list[UOp]:
    """What is computed in the loops that add to sums."""
    found: list[UOp] = []
    loops: list[list[UOp]] = []
    for node in statements:
        if node.op is ops.BEGIN:
            loops.append([])
        elif node.op is ops.END:
            body = loops.pop()
            found += body if any(n.op is ops.SET for n in body) else []
        elif loops:
            loops[-1] += toposort((node,), stop=lambda n: n.op is ops.LOAD)
    return found


def test_few_panels_leave_groups_for_threads() -> None:
    """196 rows by 2 panels: a workgroup for each of 28 x 2 tiles, not one for each panel."""
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(196, 96)).astype(np.float32))
    weight = Tensor.weight("w", RNG.normal(size=(96, 128)).astype(np.float32))
    (kernel,) = compiled_for("avx512", {"y": x @ weight}, inputs).kernels.values()
    assert kernel.text is not None and kernel.text.geometry.grid == (56,)


@pytest.mark.parametrize(("channels", "filters", "taps"), [(32, 32, 5), (16, 40, 3), (24, 10, 3)])
def test_a_filters_gradient_is_in_vectors(
    channels: int, filters: int, taps: int, cpu_device: Device
) -> None:
    """Results lie taps by taps, of which no vector can be made: lanes are channels or filters,
    whichever are whole vectors, and each lane of a result is stored by itself.
    """
    inputs = Inputs()
    image = inputs.new(RNG.normal(size=(4, channels, 14, 14)).astype(np.float32))
    first = Tensor.weight("v", RNG.normal(size=(channels, channels, 1, 1)).astype(np.float32))
    w = inputs.new(RNG.normal(size=(filters, channels, taps, taps)).astype(np.float32))
    x = image.conv(first)
    outputs = {"w": grad(lambda w: (x.conv(w) * x.conv(w)).sum())(w)}
    state = compiled_for("default", outputs, inputs)
    kernel = state.kernels[state.launches[-1].sink]
    assert kernel.contraction is not None and kernel.text is not None
    found = [n for n in kernel.text.linear.statements if n.op is ops.ACCUMULATOR]
    assert {n.dtype.lanes for n in found} == {8} and len(found) > 1
    got = run(outputs, inputs, "cpu", cpu_device)
    assert_agreement(got, reference(outputs, inputs))


def test_one_row_reads_a_panel_once() -> None:
    """A vector by a matrix: the sums of a panel's columns at once, its elements in order."""
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, 96)).astype(np.float32))
    weight = Tensor.weight("w", RNG.normal(size=(96, 256)).astype(np.float32))
    state = compiled_for("avx512", {"y": x @ weight}, inputs)
    (storage,) = (s for s in state.launches[0].storages if s.role == "weight")
    (kernel,) = state.kernels.values()
    assert kernel.text is not None
    sums = [n for n in kernel.text.linear.statements if n.op is ops.ACCUMULATOR]
    assert len(sums) * 16 == storage.layout.panel == 64
    wide = [load.dtype.lanes for load in inner_loads(state) if load.dtype.lanes > 1]
    assert wide and len(wide) % len(sums) == 0


@pytest.mark.parametrize("name", ["groups", "pixels", "part"])
def test_filters_are_in_vectors_where_ranges_share_an_axis(name: str, cpu_device: Device) -> None:
    """A filter's axis is read by group and column, or by channel and pixel of the layer before; or
    one of two filters is.
    """
    if name == "groups":
        outputs, inputs = convolution(*CONVOLUTIONS["grouped"])
    elif name == "part":
        inputs = Inputs()
        x = inputs.new(RNG.normal(size=(4, 16)).astype(np.float32))
        weight = Tensor.weight("w", RNG.normal(size=(2, 64, 16)).astype(np.float32))
        outputs = {"y": x @ weight[1].permute((1, 0))}
    else:
        inputs = Inputs()
        x = inputs.new(RNG.normal(size=(1, 3, 6, 6)).astype(np.float32))
        filters = Tensor.weight("v", RNG.normal(size=(16, 3, 3, 3)).astype(np.float32))
        weight = Tensor.weight("w", RNG.normal(size=(64, 256)).astype(np.float32))
        outputs = {"y": x.conv(filters).reshape((1, 256)) @ weight.permute((1, 0))}
    state = compiled_for("default", outputs, inputs)
    loads = [load for load in inner_loads(state) if load.src[0].op is ops.PARAM]
    found = [load for load in loads if load.src[0].arg.weight]
    assert found and {load.dtype.lanes for load in found} == {8}
    assert_agreement(run(outputs, inputs, "cpu", cpu_device), reference(outputs, inputs))


@pytest.mark.parametrize(("rows", "columns"), [(20, 50), (1, 257), (20, 1000)])
def test_uneven_columns_are_in_panels_that_overlap(
    rows: int, columns: int, cpu_device: Device
) -> None:
    """The last panel ends where the columns do: each sum is a vector, none is left over. So are 125
    vectors, of which tiles of 5 would wait for the filter.
    """
    weights = RNG.normal(size=(33, columns)).astype(np.float32)
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(rows, 33)).astype(np.float32))
    outputs = {"y": x @ Tensor.weight("w", weights) + Tensor.weight("b", weights[0])}
    state = compiled_for("default", outputs, inputs)
    loads = [load for load in inner_loads(state) if load.src[0].op is ops.PARAM]
    found = [load for load in loads if load.src[0].arg.weight]
    assert found and {load.dtype.lanes for load in found} == {8}
    storage = next(s for s in state.launches[0].storages if s.name == "w")
    stored = stored_array(storage)
    panel = stored.shape[-1]
    assert panel % 8 == 0 and stored.shape == (-(-columns // panel), 33, panel)
    np.testing.assert_array_equal(stored[-1], weights[:, -panel:])
    assert_agreement(run(outputs, inputs, "cpu", cpu_device), reference(outputs, inputs))


def test_what_overlapping_panels_store_is_not_read(cpu_device: Device) -> None:
    """A state plus a product: columns that two panels compute get the product once."""
    x, old = Tensor.input("x", (4, 16), dt.float32), Tensor.input("s", (4, 50), dt.float32)
    weights = RNG.normal(size=(16, 50)).astype(np.float32)
    new = Port("s", dt.float32, old.shape, (old + x @ Tensor.weight("w", weights)).node)
    given = Graph((Port("x", dt.float32, x.shape), replace(new, node=None)), (), {}, (new,))
    source = Graphs({"main": given}, (State("s", dt.float32, old.shape),))
    program = compile_graph(source, find_target("cpu")).program
    assert program is not None
    array = RNG.normal(size=(4, 16)).astype(np.float32)
    with Replay(program, cpu_device) as replay:
        replay.run({"x": array}, "main")
        np.testing.assert_allclose(replay.get_state("s"), array @ weights, rtol=1e-4, atol=1e-5)


def check_statements(state: Compilation, inputs: Inputs) -> None:
    """Every launch gives by its statements what it gives by its kernel as it was formed."""
    memory: dict[int, Array] = {}
    for launch in state.launches:
        for storage in launch.storages:
            if storage.role == "weight":
                first = stored_array(storage)
            else:
                shape_in_memory = storage.layout.stored(storage.shape)
                first = np.zeros([int(size) for size in shape_in_memory], np.float32)
                if storage.role == "input":
                    first = inputs.arrays[storage.name]
            memory.setdefault(id(storage), first.reshape(-1).astype(storage.dtype.numpy))
        buffers = [memory[id(storage)] for storage in launch.storages]
        again = [buffer.copy() for buffer in buffers]
        run_kernel(launch.sink, buffers)
        text = state.kernels[launch.sink].text
        assert text is not None
        run_lowered(text.linear, text.geometry, again)
        for expected, result in zip(buffers, again, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-3)


shapes = st.tuples(
    st.sampled_from((1, 3, 4, 16, 20, 32)),
    st.sampled_from((1, 5, 16, 32, 48, 96, 100)),
    st.integers(1, 17),
    st.sampled_from((1, 2, 3, 5)),
    st.integers(1, 2),
    st.sampled_from((1, 1, 2, 4)),
)


@given(shapes, st.sampled_from(PROFILES))
@example((4, 5, 1, 1, 1, 1), "default")  # a stage of whole vectors
@examples(60)
def test_statements_mean_what_the_kernel_means(shape: Any, profile: str) -> None:
    """Under the chosen moves, regions of zeros and panels included."""
    channels, filters, side, kernel, step, groups = shape
    if channels % groups or filters % groups or kernel > side:
        groups, kernel = 1, min(kernel, side)
    outputs, inputs = convolution(channels, filters, side, kernel, step, groups)
    options = Options(profile=profile, winograd=0)
    state = compile_graph(graph(outputs, inputs), find_target("cpu"), options, stop_after="lower")
    check_statements(state, inputs)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", [*CONVOLUTIONS, *DEPTHWISE])
def test_every_profile_agrees(name: str, profile: str, cpu_device: Device) -> None:
    outputs, inputs = convolution(*(CONVOLUTIONS | DEPTHWISE)[name])
    got = run(outputs, inputs, "cpu", cpu_device, Options(profile=profile))
    assert_agreement(got, reference(outputs, inputs))
