"""Rounding of expected values to fp16."""

from __future__ import annotations

import numpy as np

from tinyedge.core.compiler.schedule.forming import LARGEST_FP16
from tinyedge.export.verify.fp16 import rounded


def test_rounding_gives_the_bits_of_a_conversion() -> None:
    """All that fp16 holds, what lies between two of them, the floats beside these, and others;
    numbers below fp16's normal ones, zeros of both signs.
    """
    held = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = ((held[:-1].astype(np.float64) + held[1:]) / 2).astype(np.float32)
    bits = np.concatenate([held, between]).view(np.uint32)
    beside = np.concatenate([bits + np.uint32(step) for step in (0, 1, 2, 2**32 - 1)])
    random = np.random.default_rng(1).integers(0, 2**32, 1 << 20, np.uint32)
    values = np.concatenate([beside, beside | np.uint32(1 << 31), random]).view(np.float32)
    values = values[np.abs(values) <= LARGEST_FP16]
    expected = values.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(rounded(values).view(np.uint32), expected.view(np.uint32))
