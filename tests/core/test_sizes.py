"""Kernels that differ in sizes alone become one that reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, compiled, find_target, reference, replay
from tinyedge.core.ir import ops
from tinyedge.core.ir.lowered import FLAT
from tinyedge.core.ir.reference_kernel import run_kernel
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.nn import conv
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(np.float32)


def layers(inputs: Inputs, *shapes: tuple[int, int, int]) -> dict[str, Tensor]:
    """Products of rows x inner by inner x columns."""
    return {
        f"y{i}": (inputs.new(floats(rows, inner)) @ Tensor.weight(f"w{i}", floats(inner, columns)))
        for i, (rows, inner, columns) in enumerate(shapes)
    }


def convolutions(inputs: Inputs, *shapes: tuple[int, int]) -> dict[str, Tensor]:
    """3 x 3 filters for each channel, with padding: channels and side."""
    return {
        f"y{i}": conv(
            inputs.new(floats(1, channels, side, side)),
            Tensor.weight(f"w{i}", floats(channels, 1, 3, 3)),
            pads=((1, 1), (1, 1)),
            groups=channels,
        )
        for i, (channels, side) in enumerate(shapes)
    }


CASES = {
    "products": (layers, [(98, 64, 96), (98, 96, 64), (49, 192, 128)]),
    "a tail of threads": (layers, [(6, 64, 20), (10, 96, 36)]),
    "long and short sums": (layers, [(98, 16, 96), (98, 960, 96)]),
    "filters for each channel": (convolutions, [(8, 12), (12, 20)]),
    "filters for each channel, of many pixels": (convolutions, [(48, 20), (64, 28)]),
}


@pytest.mark.parametrize("name", CASES)
def test_one_kernel_for_many_sizes(name: str, webgpu_device: Device) -> None:
    make, shapes = CASES[name]
    inputs = Inputs()
    outputs = make(inputs, *shapes)
    state = compiled(outputs, inputs, find_target("webgpu"))
    assert state.program is not None
    assert any(kernel.groups for kernel in state.kernels.values())
    assert len(state.program.kernels) < len(state.kernels)
    expected = reference(outputs, inputs, fp64_reference=True)
    assert_agreement(replay(state.program, webgpu_device, inputs.arrays), expected)


def test_a_shared_kernel_means_what_its_launch_did() -> None:
    """Before text: on the reference, with its numbers, for each of those that share it."""
    inputs = Inputs()
    outputs = layers(inputs, (6, 64, 20), (10, 96, 36))
    state = compiled(outputs, inputs, find_target("webgpu"))
    assert len({kernel.moved for kernel in state.kernels.values()}) == 1
    for launch, array in zip(state.launches, inputs.arrays.values(), strict=True):
        kernel = state.kernels[launch.sink]
        weight, numbers = (np.asarray(storage.data) for storage in launch.storages[-2:])
        result = np.zeros(array.shape[0] * weight.shape[1], np.float32)
        run_kernel(kernel.moved, [result, array.reshape(-1), weight.reshape(-1), numbers])
        np.testing.assert_allclose(result.reshape(len(array), -1), array @ weight, 1e-4, 1e-4)
        threads = -(-len(array) // copies(kernel.moved)) * weight.shape[1] // 4
        assert kernel.groups == -(-threads // FLAT)


def copies(sink: UOp) -> int:
    """Results of a thread, in vectors."""
    found = (n for n in toposort((sink,)) if n.op is ops.RANGE and n.arg.kind == "upcast")
    return next((int(r.src[0].arg) for r in found), 1)


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param([(98, 64, 96), (3, 64, 96)], id="another tile"),
        pytest.param([(98, 64, 96), (98, 64, 94)], id="no whole vectors"),
    ],
)
def test_what_differs_in_more_stays_apart(shapes: list[tuple[int, int, int]]) -> None:
    inputs = Inputs()
    state = compiled(layers(inputs, *shapes), inputs, find_target("webgpu"))
    assert state.program is not None
    assert len(state.program.kernels) == 2
    assert not any(kernel.groups for kernel in state.kernels.values())


def test_the_cpu_keeps_constants() -> None:
    inputs = Inputs()
    state = compiled(layers(inputs, *CASES["products"][1]), inputs, find_target("cpu"))
    assert not any(kernel.groups for kernel in state.kernels.values())
