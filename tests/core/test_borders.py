"""Padding: conditions leave the innermost loops, most of them where no zeros can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.agreement import (
    Inputs,
    assert_agreement,
    compiled,
    find_target,
    graph,
    reference,
    replay,
)
from tests.core.profile import examples
from tests.core.test_sizes import copies
from tests.core.test_tiles import CONVOLUTIONS, DEPTHWISE, check_statements, convolution
from tests.imported import import_graph
from tests.study import networks, quantized
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.counters import _innermost, _operations, inner_loops
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.state import Compilation, CompiledKernel
from tinyedge.core.ir import ops
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(3)
TARGETS = (("webgpu", "default"), ("cuda", "default"), ("qcom", "buffers"))
# Of pictures as a model gets them: channels, filters, side, side of the filter, step.
FIRST = {"by 2": (3, 32, 96, 3, 2), "7x7": (3, 64, 112, 7, 2), "gray": (1, 16, 28, 5, 1)}


def state_for(target: tuple[str, str], *model: Any) -> Compilation:
    name, profile = target
    outputs, inputs = model
    return compiled(outputs, inputs, find_target(name), Options(profile=profile, winograd=0))


def reading_borders(state: Compilation) -> list[CompiledKernel]:
    """The kernels that read padding: loads under a condition before they are lowered."""
    found = []
    for kernel in state.kernels.values():
        loads = [n for n in toposort((kernel.sink,)) if n.op is ops.LOAD]
        found += [kernel] if any(load.arg for load in loads) else []
    return found


def first_layer(
    channels: int, filters: int, side: int, kernel: int, step: int, corner: float = 1.0
) -> Any:
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, channels, side, side)).astype(np.float32))
    values = RNG.normal(size=(filters, channels, kernel, kernel)).astype(np.float32)
    values[0, 0, 0, 0] = corner
    pads = ((kernel // 2,) * 2,) * 2
    if kernel == 2:  # the last row has padding alone
        values, pads = values[:, :, :1], ((0, 1), (1, 1))
    return {"y": x.conv(Tensor.weight("w", values), strides=(step, step), pads=pads)}, inputs


def check_inner_loops(kernels: Sequence[CompiledKernel]) -> None:
    assert kernels
    for kernel in kernels:
        assert kernel.text is not None
        begins = [n for n in kernel.text.linear.statements if n.op is ops.BEGIN]
        assert begins
        assert inner_loops(kernel.text).guards == 0


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t[0])
@pytest.mark.parametrize("name", [*CONVOLUTIONS, *DEPTHWISE])
def test_no_test_in_an_inner_loop(name: str, target: tuple[str, str]) -> None:
    shape = {**CONVOLUTIONS, **DEPTHWISE}[name]
    kernels = reading_borders(state_for(target, *convolution(*shape)))
    if shape[3] > 1:
        check_inner_loops(kernels)
    else:
        assert not kernels


@pytest.mark.parametrize("target", TARGETS[::2], ids=lambda t: t[0])
@pytest.mark.parametrize("name", FIRST)
def test_first_layers_have_no_test_in_an_inner_loop(name: str, target: tuple[str, str]) -> None:
    check_inner_loops(reading_borders(state_for(target, *first_layer(*FIRST[name]))))


@pytest.mark.parametrize("profile", ["default", "avx512"])
@pytest.mark.parametrize("steps", [(1, 2), (3, 1), (2, 2)], ids=str)
def test_loads_of_different_steps_share_no_region(steps: tuple[int, int], profile: str) -> None:
    """Under one condition: a row of padding above, every first and every second element of it."""
    inputs = Inputs()
    x = inputs.new(np.arange(4 * 64, dtype=np.float32).reshape(4, 64))
    padded = x.pad([(1, 0), (0, 0)])
    first, second = (padded.stride(1, n).shrink([(0, 5), (0, 16)]) for n in steps)
    state = state_for(("cpu", profile), {"y": first + second, "z": (first + second).max(1)}, inputs)
    check_statements(state, inputs)


def check_sums(state: Compilation, least: int = 10) -> None:
    """No load under a condition in an innermost loop of a convolution that sums or stores results.
    What fills workgroup memory tests each element once. On a processor regions are not chosen there
    either, nor in the loops of Winograd's transforms.
    """
    found = 0
    for kernel in state.kernels.values():
        assert kernel.text is not None
        statements = kernel.text.linear.statements
        loops = any(n.op is ops.BEGIN for n in statements)
        every = loops and bool(kernel.contraction or state.caps.zeros)
        for body in filter(_sums_or_stores, _innermost(statements) if every else ()):
            found += 1
            loads = [n for n in _operations(body, statements) if n.op is ops.LOAD]
            assert not any(load.arg for load in loads), kernel.name
            assert not any(n.op is ops.REGION for n in body), kernel.name
    assert found >= least


def _sums_or_stores(body: Sequence[UOp]) -> bool:
    return any(
        n.arg is ops.ADD if n.op is ops.SET else n.op is ops.STORE and n.src[0].op is ops.PARAM
        for n in body
    )


def wide(step: int, side: int, channels: int = 24, far: int = 6) -> Any:
    """A window of 5 x 5 for each channel over few rows that are long, whose first and last columns
    are borders of all rows; or a first layer of 3 x 3, by 2.
    """
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, channels, far, side)).astype(np.float32))
    narrow = Tensor.weight("a", RNG.normal(size=(channels, channels, 1, 1)).astype(np.float32))
    size, groups = ((16, channels, 3, 3), 1) if channels == 3 else ((channels, 1, 5, 5), channels)
    weight = Tensor.weight("w", RNG.normal(size=size).astype(np.float32))
    pads = ((size[2] // 2,) * 2,) * 2
    x = x if channels == 3 else x.conv(narrow)
    y = x.conv(weight, strides=(step, step), pads=pads, groups=groups).relu()
    last = Tensor.weight("b", np.ones((4, size[0], 1, 1), np.float32))
    return {"y": y.conv(last)}, inputs


@pytest.mark.parametrize("target", TARGETS[::2], ids=lambda t: t[0])
def test_a_tile_that_is_rounded_up_has_no_test(target: tuple[str, str]) -> None:
    """8 pixels do not divide 127: the last two of a row, each on its own, may be its end."""
    check_inner_loops(reading_borders(state_for(target, *wide(1, 127, 3, 128))))


@pytest.mark.parametrize(("step", "side", "pixels"), [(1, 128, 8), (2, 256, 5), (1, 120, 5)])
def test_a_pixel_beyond_the_last_shares_no_loads(step: int, side: int, pixels: int) -> None:
    """5 pixels divide 120; of a row of 128 two are beyond it, which by steps of 2 share less."""
    (kernel,) = reading_borders(state_for(TARGETS[0], *wide(step, side, 3, 64)))
    assert copies(kernel.moved) == pixels


def check_processor(state: Compilation) -> None:
    """No condition in a loop that sums or stores: of no load, and of no region that it chooses."""
    assert state.caps.zeros and reading_borders(state)
    check_sums(state, least=1)


PROCESSOR = {
    "first, 7x7 by 2": lambda: first_layer(*FIRST["7x7"]),
    "first, gray": lambda: first_layer(*FIRST["gray"]),
    "first, odd": lambda: first_layer(3, 32, 31, 5, 2),
    "first, wide": lambda: wide(2, 160, 3, 24),
    "5x5 each": lambda: convolution(48, 48, 14, 5, 1, 48),
    "5x5 each, far rows": lambda: convolution(144, 144, 56, 5, 2, 144),
    "5x5 each, wide": lambda: wide(1, 80, 240, 12),
    "5x5 each, odd": lambda: wide(1, 37),
    "one row of tiles": lambda: convolution(12, 8, 95, 3, 1, 1),
    "odd": lambda: convolution(16, 24, 13, 3, 2, 1),
}


@pytest.mark.parametrize("profile", ["default", "avx512"])
@pytest.mark.parametrize("name", PROCESSOR)
def test_a_processor_tests_no_border_in_its_sums(name: str, profile: str) -> None:
    """Nor at the sides of a tile that lies along rows which are far apart: of the pixels beside
    each other only the first and the last ones have borders.
    """
    check_processor(state_for(("cpu", profile), *PROCESSOR[name]()))


@pytest.mark.parametrize("steps", [1, 2])
def test_rows_farther_apart_than_there_are_zeros(steps: int) -> None:
    """All read the same zeros: a step of the loop is none there."""
    outputs, inputs = convolution(32, 32, 40, 5, steps, 32)
    state = state_for(("cpu", "default"), outputs, inputs)
    (kernel,) = reading_borders(state)
    assert kernel.text is not None
    nodes = toposort(kernel.text.linear.statements)
    assert any(n.op is ops.WHERE and n.dtype is dt.index and n.src[2].arg == 0 for n in nodes)
    check_statements(state, inputs)


@pytest.mark.parametrize("target", TARGETS[1:], ids=lambda t: t[0])
@pytest.mark.parametrize("network", [networks.mobilenet_v2, networks.resnet18])
def test_networks_have_no_test_in_their_sums(target: tuple[str, str], network: Any) -> None:
    """At a side of 96, whose late layers are mostly border. Of webgpu: test_launches.py."""
    check_sums(network_for(target, network(96)))


@pytest.mark.parametrize("target", [TARGETS[0], TARGETS[2], ("cpu", "default")], ids=lambda t: t[0])
@pytest.mark.parametrize(
    "network",
    [(networks.efficientnet_b0, 224), (networks.unet, 64), (networks.yolo_like, 64)],
    ids=lambda network: network[0].__name__,
)
def test_more_networks_have_no_test_in_their_sums(target: tuple[str, str], network: Any) -> None:
    """With Winograd's transforms, where a target has them. EfficientNet-B0 has its own side: of one
    of 96 filters of 5 x 5 read 3 x 3 pixels, whose borders would be more sums than GPUs keep.
    """
    make, side = network
    check_sums(network_for(target, make(side), winograd=True))


@pytest.mark.parametrize("profile", ["default", "avx512"])
@pytest.mark.parametrize("network", [networks.mobilenet_v2, networks.resnet18])
def test_a_processors_networks_have_no_test_in_their_loops(profile: str, network: Any) -> None:
    """At a side of 224, where a row of depthwise layers has up to 8 tiles."""
    check_sums(network_for(("cpu", profile), network(224), winograd=True))


def network_for(target: tuple[str, str], model: Any, *, winograd: bool = False) -> Compilation:
    imported, _ = import_graph(model.SerializeToString())
    name, profile = target
    options = Options(profile=profile) if winograd else Options(profile=profile, winograd=0)
    return compile_graph(imported, find_target(name), options)


@pytest.mark.parametrize("side", [224, 96])
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t[0])
def test_efficientnet_has_no_test_in_its_sums(target: tuple[str, str], side: int) -> None:
    """Windows of 3 x 3 and 5 x 5 at the published sizes: 14 pixels are no multiple of 8 and 4. At
    a side of 96 the last windows of 5 x 5 are of 3 x 3 pixels.
    """
    imported, _ = import_graph(networks.efficientnet_b0(side).SerializeToString())
    name, profile = target
    check_sums(compile_graph(imported, find_target(name), Options(profile=profile)), least=30)


@pytest.mark.parametrize("target", TARGETS[::2], ids=lambda t: t[0])
def test_a_window_larger_than_the_picture_has_a_loop_for_each_row(target: tuple[str, str]) -> None:
    """3 x 3 pixels under 5 x 5: of 5 steps a row of a tile has 3 in the picture, each its own."""
    outputs, inputs = convolution(1152, 1152, 3, 5, 1, 1152)
    state = state_for(target, outputs, inputs)
    (kernel,) = reading_borders(state)
    check_inner_loops([kernel])
    assert kernel.text is not None
    ranges = [n.src[0] for n in kernel.text.linear.statements if n.op is ops.BEGIN]
    ends = [tuple(end.arg for end in r.src[1:]) for r in ranges if len(r.src) > 1]
    assert ends == [(2, 5), (1, 4), (0, 3)]
    check_statements(state, inputs)


def test_a_quantized_network_has_no_test_in_its_sums() -> None:
    """Filters of 8 bits, which are unpacked from words beside the sums that take them."""
    model = quantized.int8(partial(networks.mobilenet_v2, 96))
    check_sums(network_for(TARGETS[1], model))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t[0])
@pytest.mark.parametrize("scale", [0.01, np.inf], ids=str)
def test_codes_are_finite(target: tuple[str, str], scale: float, request: Any) -> None:
    """A filter of integers times scales makes no number of a zero, unless a scale is none."""
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, 960, 7, 7)).astype(np.float32))
    codes = RNG.integers(-127, 128, (960, 1, 3, 3), np.int8)
    scales = np.full((960, 1, 1, 1), 0.01, np.float32)
    scales[5] = scale
    weight = Tensor.weight("w", codes).cast(dt.float32) * Tensor.weight("s", scales)
    outputs = {"y": x.conv(weight, groups=960, pads=((1, 1), (1, 1)))}
    state = state_for(target, outputs, inputs)
    if np.isfinite(scale):
        check_sums(state, least=0)
    assert state.program is not None
    device = request.getfixturevalue(f"{target[0]}_device")
    with np.errstate(all="ignore"):
        right = reference(outputs, inputs)
    assert_agreement(replay(state.program, device, inputs.arrays), right)


@pytest.mark.parametrize("target", [*TARGETS, ("cpu", "default")], ids=lambda t: t[0])
def test_windows_along_lanes_are_no_loop(target: tuple[str, str]) -> None:
    """Of a local response norm of channels that are innermost: lanes read what others read at
    another tap, and each number is loaded once.
    """
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, 9, 9, 96)).astype(np.float32))
    around = (x * x).in_memory().pad([(0, 0), (0, 0), (0, 0), (2, 2)])
    state = state_for(target, {"y": x / (around.window(3, 5).sum(-1) + 1.0).sqrt()}, inputs)
    *_, kernel = state.kernels.values()
    assert kernel.text is not None
    statements = kernel.text.linear.statements
    assert not any(n.op is ops.SET and n.arg is ops.ADD for n in statements)
    loads = [n for n in toposort(statements) if n.op is ops.LOAD and n.arg]
    assert len(loads) <= 4, "before the first lane and behind the last"
    check_statements(state, inputs)


# Side, side of the filter, step; rows of a thread's tile, and its sums with those that rows have at
# a border, and at each place where the picture may end. 8 rows would have 16 for 14.
WINDOWS = {
    "14": ((14, 5, 1), 7, 7 + 4),
    "20": ((20, 5, 1), 4, 4 + 4),
    "13": ((13, 5, 1), 3, 3 + 7),
    "56": ((56, 3, 1), 8, 8 + 2),
    "28 by 2": ((28, 5, 2), 7, 7 + 2),
    "7x7": ((14, 7, 1), 2, 2 + 6),
}
_CUDA = find_target("cuda")
_BUSY = replace(_CUDA.profiles["default"], threads_to_saturate=1)  # so that few channels do


@pytest.mark.parametrize("name", WINDOWS)
def test_registers_hold_the_sums_of_borders(name: str) -> None:
    """A thread has no more rows than leave room for the sums that borders have besides."""
    (side, size, step), rows, sums = WINDOWS[name]
    outputs, inputs = convolution(8, 8, side, size, step, 8)
    target = replace(_CUDA, profiles={"default": _BUSY})
    state = compiled(outputs, inputs, target, Options(winograd=0))
    (kernel,) = reading_borders(state)
    check_inner_loops([kernel])
    assert kernel.text is not None
    found = sum(n.op is ops.ACCUMULATOR for n in kernel.text.linear.statements)
    assert (copies(kernel.moved), found) == (rows, sums)
    check_statements(state, inputs)


def test_a_kernel_of_two_sizes_has_no_test_in_its_inner_loop() -> None:
    """Sides that tiles of 7 do not divide: the last pixels, computed twice, are known as inside."""
    inputs, outputs = Inputs(), {}
    narrow = RNG.normal(size=(256, 4, 1, 1)).astype(np.float32)
    for side in (20, 40):
        x = inputs.new(RNG.normal(size=(1, 4, side, side)).astype(np.float32))
        each = Tensor.weight(f"w{side}", RNG.normal(size=(256, 1, 3, 3)).astype(np.float32))
        y = x.conv(Tensor.weight(f"a{side}", narrow)).relu()
        y = y.conv(each, pads=((1, 1), (1, 1)), groups=256).relu()
        last = Tensor.weight(f"b{side}", narrow.transpose(1, 0, 2, 3) / side)
        outputs[f"y{side}"] = y.conv(last)
    kernels = reading_borders(state_for(TARGETS[0], outputs, inputs))
    assert len(kernels) == 2 and kernels[0].moved is kernels[1].moved
    check_inner_loops(kernels)


def test_an_infinite_weight_meets_the_zeros_of_padding() -> None:
    """Their product is no number, which only a loop that tests for padding finds."""
    outputs, inputs = first_layer(2, 4, 6, 3, 1, corner=np.inf)
    state = state_for(TARGETS[0], outputs, inputs)
    (kernel,) = state.kernels.values()
    assert kernel.text is not None
    assert inner_loops(kernel.text).guards > 0
    check_statements(state, inputs)


@pytest.mark.parametrize(("corner", "fused", "ends"), [(1.0, 19, 1), (np.inf, 21, 0)])
def test_sums_with_zeros_in_place_of_a_buffer(corner: float, fused: int, ends: int) -> None:
    """A row of 7 pixels by 3 taps, of which the first and the last are beside the picture: they are
    not computed, and rows beside it not visited, unless the weight is infinite.
    """
    outputs, inputs = first_layer(4, 8, 7, 3, 1, corner=corner)
    state = state_for(("cpu", "default"), outputs, inputs)
    (kernel,) = state.kernels.values()
    assert kernel.text is not None
    nodes = toposort(kernel.text.linear.statements)
    assert inner_loops(kernel.text).fused == fused
    assert sum(n.op is ops.RANGE and len(n.src) > 1 for n in nodes) == ends
    assert any(n.op is ops.REGION for n in nodes) is not bool(ends)
    check_statements(state, inputs)


def pictures(channels: int, side: int, step: int, corner: float = 1.0) -> Any:
    """Filters of one channel each, of pixels that lie beside each other."""
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, channels, side, side)).astype(np.float32))
    values = RNG.normal(size=(channels, 1, 3, 3)).astype(np.float32)
    values[0, 0, 0, 0] = corner
    weight = Tensor.weight("w", values)
    pads, strides = ((1, 1), (1, 1)), (step, step)
    return {"y": x.conv(weight, strides=strides, pads=pads, groups=channels)}, inputs


# A row of pixels, how far its windows are apart, channels; sums of a thread, values that it loads.
PICTURES = {
    "7": ((960, 7, 1), 7, 7 + 3),
    "14": ((384, 14, 1), 14, 14 + 3),
    "7 by 2": ((960, 14, 2), 7, 14 + 3),
    "too few": ((32, 7, 1), 3, 3 + 3),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_thread_has_a_short_row_of_pixels(
    name: str, webgpu_device: Device, qcom_device: Device
) -> None:
    """What its windows share is loaded once, and only rows outside of the picture are left out."""
    shape, sums, loads = PICTURES[name]
    for target, device in (("webgpu", webgpu_device), ("qcom", qcom_device)):
        outputs, inputs = pictures(*shape)
        state = state_for((target, "buffers" if target == "qcom" else "default"), outputs, inputs)
        (kernel,) = state.kernels.values()
        assert kernel.text is not None and state.program is not None
        nodes = toposort(kernel.text.linear.statements)
        assert sum(n.op is ops.ACCUMULATOR for n in nodes) == sums
        assert sum(n.op is ops.LOAD for n in nodes) == loads
        expected = reference(outputs, inputs, fp64_reference=True)
        assert_agreement(replay(state.program, device, inputs.arrays), expected)


def test_a_row_of_pixels_with_an_infinite_weight(webgpu_device: Device) -> None:
    outputs, inputs = pictures(960, 7, 1, corner=np.inf)
    program = state_for(("webgpu", "default"), outputs, inputs).program
    assert program is not None
    with np.errstate(invalid="ignore"):
        expected = reference(outputs, inputs)
    assert np.isnan(expected["y"]).any()
    assert_agreement(replay(program, webgpu_device, inputs.arrays), expected)


def padded_twice() -> Any:
    """The padding of a convolution that pads, too: beside the outer border of its result the inner
    one is not met.
    """
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(2, 4, 13, 7)).astype(np.float32))
    weight = Tensor.weight("w", RNG.normal(size=(8, 4, 3, 1)).astype(np.float32))
    y = x.conv(weight, strides=(3, 1), pads=((0, 1), (1, 1)))
    return {"y": y.pad([(0, 0), (0, 0), (2, 1), (2, 3)])}, inputs


def padded_means() -> Any:
    """The same of means, whose loop has the limits of the inner border."""
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(3, 4, 5, 3)).astype(np.float32))
    y = x.avg_pool2d((3, 2), (3, 1), padding=(1, 1))
    return {"y": y.pad([(0, 0), (0, 0), (3, 1), (0, 2)])}, inputs


def shifted() -> Any:
    """A pair of columns, of which each has conditions of its own besides those of its row."""
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, 2, 5, 6)).astype(np.float32))
    shift = Tensor.weight("b", RNG.normal(size=(1, 2, 1, 1)).astype(np.float32))
    weight = Tensor.weight("w", RNG.normal(size=(2, 2, 2, 3)).astype(np.float32))
    return {"y": (x + shift).abs().conv(weight, strides=(1, 5), pads=((1, 1), (2, 2)))}, inputs


def rows_of_padding() -> Any:
    """Rows that a loop does not visit, so that what lies beside their columns begins before x."""
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, 2, 5, 17)).astype(np.float32))
    weight = Tensor.weight("w", RNG.normal(size=(2, 2, 3, 3)).astype(np.float32))
    return {"y": x.conv(weight, pads=((1, 1), (1, 1)))}, inputs


@pytest.mark.parametrize("model", [padded_twice, padded_means, shifted, rows_of_padding])
@pytest.mark.parametrize("target", [*TARGETS, ("cpu", "default")], ids=lambda t: t[0])
def test_conditions_that_belong_together(target: tuple[str, str], model: Any) -> None:
    outputs, inputs = model()
    state = state_for(target, outputs, inputs)
    assert reading_borders(state)
    check_statements(state, inputs)


def test_a_place_that_only_a_size_puts_outside_is_tested() -> None:
    """Of a row that may have ended before: no other place in the buffer is known."""
    inputs, length = Inputs(), symbol("L", 1, 20)
    x = inputs.new(np.ones((1, 8, 20), np.float32), "x", (1, 8, length))
    weight = Tensor.weight("w", RNG.normal(size=(5, 8, 1)).astype(np.float32))
    column = x.pad([(0, 0), (0, 0), (0, 9)]).shrink([(0, 1), (0, 8), (3, 4)])
    (kernel,) = reading_borders(state_for(TARGETS[1], {"y": column.conv(weight)}, inputs))
    assert kernel.text is not None
    assert inner_loops(kernel.text).guards > 0


sizes = st.tuples(
    st.sampled_from((1, 3, 4, 8, 20)),
    st.sampled_from((1, 4, 8, 12)),
    st.integers(1, 15),
    st.sampled_from((2, 3, 5, 7)),
    st.integers(1, 2),
)


@given(
    sizes,
    st.sampled_from((*TARGETS, ("cpu", "default"))),
    st.sampled_from(("dense", "first", "each", "greatest")),
)
@example((8, 8, 14, 3, 1), TARGETS[0], "each")
@example((8, 8, 7, 3, 2), TARGETS[0], "dense")
@example((3, 8, 1, 5, 1), TARGETS[0], "first")
@example((8, 1, 15, 3, 2), TARGETS[0], "greatest")
@example((3, 8, 4, 2, 2), TARGETS[0], "first")
@example((3, 8, 15, 7, 2), ("cpu", "default"), "first")
@examples(60)
def test_statements_mean_what_the_kernel_means(
    size: Any, target: tuple[str, str], kind: str
) -> None:
    """Whatever is read in vain lies in its buffer."""
    channels, filters, side, kernel, step = size
    if kind == "first":
        outputs, inputs = first_layer(channels, filters, side, kernel, step)
    elif kind == "greatest":
        inputs = Inputs()
        x = inputs.new(RNG.normal(size=(1, channels, side, side)).astype(np.float32)) - 9.0
        outputs = {"y": x.max_pool2d(kernel, step, padding=kernel // 2) + 1.0}
    else:
        groups = channels if kind == "each" else 1
        filters = channels if kind == "each" else filters
        outputs, inputs = convolution(channels, filters, side, kernel, step, groups)
    options = Options(profile=target[1], winograd=0, precision="fp32")
    found = find_target(target[0])
    state = compile_graph(graph(outputs, inputs), found, options, stop_after="lower")
    check_statements(state, inputs)
