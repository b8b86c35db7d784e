"""Channels that are scaled before a product: where the weights are scaled in their place."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, compiled, find_target, reference, run
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

Outputs = dict[str, Tensor]


def _floats(*shape: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def _excited(inputs: Inputs, columns: int = 8, axis: int = 1, batch: int = 1) -> Outputs:
    """An image scaled along an axis, by what is computed of it, and its convolution."""
    x = inputs.new(_floats(batch, 16, 10, 16)).exp().in_memory()
    others = tuple(a for a in range(1, 4) if a != axis)
    scale = x.mean(others, keepdims=True).sigmoid()
    weight = Tensor.weight("w", _floats(columns, 16, 1, 1))
    return {"y": (x * scale).conv(weight).relu()}


def _whole(state: Compilation) -> int:
    """Launches that write a tensor of the image's size."""
    sizes = ([int(size) for size in launch.storages[0].shape] for launch in state.launches)  # type: ignore[arg-type]
    return sum(size[-3:] == [16, 10, 16] for size in sizes)


def test_weights_are_scaled(target: str, device: Device) -> None:
    inputs = Inputs()
    outputs = _excited(inputs)
    assert _whole(compiled(outputs, inputs, find_target(target), Options())) == 1
    assert_agreement(run(outputs, inputs, target, device), reference(outputs, inputs))


def test_many_columns_only_where_a_launch_costs_more(target: str) -> None:
    inputs = Inputs()
    state = compiled(_excited(inputs, columns=160), inputs, find_target(target), Options())
    assert _whole(state) == (2 if target == "cpu" else 1)


@pytest.mark.parametrize("axis", [2, 3])
def test_other_axes_are_not_the_weights(axis: int, target: str, device: Device) -> None:
    """One of them is as long as the channels."""
    inputs = Inputs()
    outputs = _excited(inputs, axis=axis)
    assert _whole(compiled(outputs, inputs, find_target(target), Options())) == 2
    assert_agreement(run(outputs, inputs, target, device), reference(outputs, inputs))


def test_a_batch_has_a_scale_for_each_image(target: str) -> None:
    inputs = Inputs()
    state = compiled(_excited(inputs, batch=2), inputs, find_target(target), Options())
    assert _whole(state) == 2


def test_what_is_read_elsewhere_is_stored(target: str) -> None:
    inputs = Inputs()
    x = inputs.new(_floats(1, 16, 10, 16))
    scaled = x * x.mean((2, 3), keepdims=True)
    outputs = {"y": scaled.conv(Tensor.weight("w", _floats(8, 16, 1, 1))), "x": scaled}
    assert _whole(compiled(outputs, inputs, find_target(target), Options())) == 1
