"""Layers that differ in numbers alone are one kernel, and compute with their own."""

from __future__ import annotations

import numpy as np

from tests.agreement import (
    Inputs,
    Tolerance,
    compiled,
    disagreement,
    find_target,
    reference,
    replay,
)
from tinyedge.core import dtype as dt
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

SCALES = (0.11, 0.07, 0.23, 0.05)


def _layers(inputs: Inputs, scales: tuple[float, ...]) -> Tensor:
    """Products with a weight, each quantized in its own way."""
    random = np.random.default_rng(3)
    x = inputs.new(random.normal(size=(8, 32)).astype(np.float32))
    for number, scale in enumerate(scales):
        weight = Tensor.weight(f"w{number}", random.normal(size=(32, 32)).astype(np.float32) / 4)
        codes = ((x @ weight) / scale).round().cast(dt.int32) + number
        x = (codes.clip(-50, 50) - number).cast(dt.float32) * scale
    return x


def test_one_kernel_for_all_layers(target: str, device: Device) -> None:
    inputs = Inputs()
    outputs = {"y": _layers(inputs, SCALES)}
    found = compiled(outputs, inputs, find_target(target))
    same = Inputs()
    alike = compiled({"y": _layers(same, SCALES[:1] * 4)}, same, find_target(target))
    assert len(found.kernels) <= len(alike.kernels) < 5
    assert found.program is not None
    actual = replay(found.program, device, inputs.arrays)["y"]
    expected = reference(outputs, inputs, fp64_reference=True)["y"]
    assert not disagreement(actual, expected, Tolerance(greatest=1e-3))


def test_equal_numbers_stay_in_the_text(target: str) -> None:
    inputs = Inputs()
    x = inputs.new(np.ones((4, 8), np.float32))
    program = compiled({"y": x * 0.3125 + 7}, inputs, find_target(target)).program
    assert program is not None and not program.weights
    assert "0.3125" in program.kernels[0].source
