"""Tensors kept as fp16: rounded once, saturated, and NaN and infinity where they were."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agreement import Inputs, Tolerance, disagreement, find_target, run
from tinyedge.choices import check_options
from tinyedge.core.compiler.options import Options
from tinyedge.core.errors import InputError
from tinyedge.core.program.device import Device

LARGEST = np.float32(65504)
VALUES = [0, -1.5, 0.1, 7e4, -1e30, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
@pytest.mark.parametrize("width", [7, 8])
def test_halves(width: int, optimize: bool, target: str, device: Device) -> None:
    options = Options(optimize, precision="fp16")
    caps = find_target(target).caps()
    if not caps.fp16_storage:
        with pytest.raises(InputError, match="keeps no fp16 values"):
            check_options(target, options)
        return
    values = np.array(VALUES, np.float32)[-width:]
    inputs = Inputs()
    x = inputs.new(np.stack([values, values * 0.5, values + 3]))
    kept = (x * 1.0).in_memory()
    actual = run({"twice": kept * 2.0}, inputs, target, device, options)
    expected = inputs.arrays["x0"]
    if caps.fp16_scalar_stores or (optimize and width % 4 == 0):  # else they are kept in full
        saturated = np.clip(expected, -LARGEST, LARGEST)
        expected = np.where(np.isinf(expected), expected, saturated)
    why = disagreement(actual["twice"], expected * 2, Tolerance(each=1e-3, greatest=0))
    assert not why, why
