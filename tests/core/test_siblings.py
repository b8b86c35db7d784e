"""Kernels that write several buffers: which are joined, what they bind and share, and where not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, compiled, find_target, reference, run
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.gradient.transforms import grad
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

Outputs = dict[str, Tensor]


def _floats(*shape: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def _compiled(build: Callable[[Inputs], Outputs], target: str) -> Compilation:
    inputs = Inputs()
    return compiled(build(inputs), inputs, find_target(target), Options())


def _rotated(inputs: Inputs) -> Outputs:
    """Real and imaginary parts, each of all four operands."""
    a, b, c, d = (inputs.new(_floats(6, 8)) for _ in range(4))
    return {"real": a * c - b * d, "imaginary": a * d + b * c}


def _statistics(inputs: Inputs) -> Outputs:
    x = inputs.new(_floats(5, 64))
    return {"mean": x.mean(1), "most": x.max(1), "least": x.min(1)}


def _moments(inputs: Inputs) -> Outputs:
    x = inputs.new(_floats(5, 64))
    return {"sum": x.sum(1), "squares": (x * x).sum(1)}


def _gates(inputs: Inputs) -> Outputs:
    x = inputs.new(_floats(1, 8, 14, 14))
    wide = Tensor.weight("wide", _floats(16, 8, 3, 3))
    narrow = Tensor.weight("narrow", _floats(16, 8, 1, 1))
    return {"wide": x.conv(wide, pads=((1, 1), (1, 1))).relu(), "narrow": x.conv(narrow)}


Build = Callable[[Inputs], Outputs]
JOINED = (_rotated, _statistics, _moments, _gates)


@pytest.mark.parametrize("build", JOINED, ids=lambda build: build.__name__.strip("_"))
def test_kernels_that_read_the_same_are_one(build: Build, target: str) -> None:
    state = _compiled(build, target)
    assert state.program is not None
    (launch,) = state.launches
    (kernel,) = state.program.kernels
    count = len(state.entries[0].schedule.outputs)
    assert launch.written == launch.storages[:count]
    assert set(launch.written) == set(state.entries[0].schedule.outputs.values())
    assert kernel.written[:count] == tuple(range(count))
    if not state.caps.arenas_bound_for_writing:
        assert len(kernel.written) == count
    (step,) = state.program.entries[0].steps
    assert {port.buffer for port in state.program.outputs} == set(step.buffers[:count])  # type: ignore[union-attr]


@pytest.mark.parametrize("build", [_statistics, _moments])
def test_reductions_share_their_loop_and_loads(build: Build, target: str) -> None:
    (launch,) = _compiled(build, target).launches
    nodes = toposort((launch.sink,))
    loops = {node.src[1:] for node in nodes if node.op is ops.REDUCE_LOOP}
    assert len(loops) == 1
    assert sum(node.op is ops.LOAD for node in nodes) == 1


def test_products_beside_each_other_have_loops_of_their_own(target: str) -> None:
    """Their sums would not fit the registers together; both take the tile of the first."""
    (launch,) = _compiled(_gates, target).launches
    assert launch.contraction is not None
    assert launch.contraction["columns"] and launch.contraction["rows"]
    nodes = toposort((launch.sink,))
    sums = [set(node.src[1:]) for node in nodes if node.op is ops.REDUCE_LOOP]
    assert len(sums) == 2 and not sums[0] & sums[1]


def test_long_products_of_few_outputs_stay_beside_each_other() -> None:
    """On a device with threads, one thread would do the work of two while others are idle."""

    def build(inputs: Inputs) -> Outputs:
        x = inputs.new(_floats(16, 64))
        q, k = (Tensor.weight(name, _floats(64, 32) + n) for n, name in enumerate("qk"))
        return {"q": (x @ q).tanh(), "k": (x @ k).exp()}

    assert len(_compiled(build, "webgpu").launches) == 2
    assert len(_compiled(build, "cpu").launches) == 1


@pytest.mark.parametrize("profile", ["default", "avx512"])
@pytest.mark.parametrize(("rows", "width", "heads"), [(8, 12, 1), (5, 14, 2)])
def test_orders_that_are_rounded_up_apart_are_not_one(
    rows: int, width: int, heads: int, profile: str, cpu_device: Device
) -> None:
    """Keys lie across, rounded up to whole vectors; values are an output, which is not."""
    inputs = Inputs()
    x = inputs.new(_floats(1, rows, 33))
    q, k, v = (
        (x @ Tensor.weight(name, _floats(33, width) + n))
        .reshape([1, rows, heads, width // heads])
        .permute([0, 2, 1, 3])
        for n, name in enumerate("qkv")
    )
    mixed = ((q * 0.3) @ k.transpose(2, 3)).softmax(-1) @ v
    outputs = {"mixed": mixed, "k": k, "v": v}
    found = run(outputs, inputs, "cpu", cpu_device, Options(profile=profile))
    assert_agreement(found, reference(outputs, inputs))


def test_the_gradient_of_a_column_by_itself(cpu_device: Device) -> None:
    """One of its terms is kept for the other kernel, rounded up; the sum of both is the output."""
    inputs = Inputs()
    x = inputs.new(_floats(5, 1))
    outputs = {"gradient": grad(lambda x: (x @ x.transpose(0, 1)).sin().sum())(x)}
    assert_agreement(run(outputs, inputs, "cpu", cpu_device), reference(outputs, inputs))


@pytest.mark.parametrize("same", [True, False], ids=["same place", "other places"])
def test_what_reads_the_first_is_joined_at_its_place(
    same: bool, target: str, device: Device
) -> None:
    """It has the first one's elements at hand, which it is stored before; others it has not."""

    def build(inputs: Inputs) -> Outputs:
        x = inputs.new(_floats(4, 6))
        first = x.exp().in_memory()
        return {"first": first, "second": (first if same else first.flip(1)) + x}

    written = [len(launch.written) for launch in _compiled(build, target).launches]
    assert written == ([2] if same else [1, 1])
    inputs = Inputs()
    outputs = build(inputs)
    assert_agreement(run(outputs, inputs, target, device), reference(outputs, inputs))


def test_what_reads_more_is_not_joined(target: str) -> None:
    """The second reads what is written after the first."""

    def build(inputs: Inputs) -> Outputs:
        x = inputs.new(_floats(4, 6))
        sums = x.sum(1, keepdims=True).in_memory()
        return {"first": x.exp(), "second": x * sums.expand((4, 6)), "sums": sums}

    launches = _compiled(build, target).launches
    assert max(len(launch.written) for launch in launches) == 1


def test_plain_kernels_are_not_joined(target: str) -> None:
    inputs = Inputs()
    state = compiled(_rotated(inputs), inputs, find_target(target), Options(optimize=False))
    assert [len(launch.written) for launch in state.launches] == [1, 1]


def test_two_products_in_one_sum(target: str) -> None:
    """A convolution and the one of its shortcut, added: one launch, nothing stored between."""

    def build(inputs: Inputs) -> Outputs:
        x, y = inputs.new(_floats(1, 8, 28, 28)), inputs.new(_floats(1, 16, 14, 14))
        main = Tensor.weight("main", _floats(16, 16, 3, 3))
        shortcut = Tensor.weight("shortcut", _floats(16, 8, 1, 1))
        total = y.conv(main, pads=((1, 1), (1, 1))) + x.conv(shortcut, strides=(2, 2))
        return {"y": total.relu()}

    (launch,) = _compiled(build, target).launches
    assert launch.contraction is not None
    assert len(launch.contraction["summed"]) == 2 and len(launch.contraction["window"]) == 2


def test_products_of_other_sides_are_not_in_one_sum(target: str) -> None:
    """The weights of one run along the rows, those of the other along the columns."""

    def build(inputs: Inputs) -> Outputs:
        x, y = inputs.new(_floats(24, 32)), inputs.new(_floats(40, 16))
        right, left = Tensor.weight("r", _floats(32, 16)), Tensor.weight("l", _floats(24, 40))
        return {"y": x @ right + left @ y}

    assert len(_compiled(build, target).launches) == 2
