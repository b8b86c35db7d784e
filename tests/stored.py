"""A function of inputs of every stored type, for tests of bundles and runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.cases import all_codes
from tinyedge.core import dtype as dt
from tinyedge.core.tensor.tensor import Tensor

SHAPE = (3, 5)


def examples(seed: int = 0) -> dict[str, Any]:
    """An input of each type, of numbers, as ml_dtypes has them."""
    generator = np.random.default_rng(seed)
    arrays = {}
    for dtype in dt.STORED:
        codes = all_codes(dtype)
        numbers = Tensor(codes).bitcast(dtype).cast(dt.float32).numpy()
        finite = codes[np.isfinite(numbers) & (np.abs(numbers) < 1e4)]
        arrays[dtype.name] = dt.named(generator.choice(finite, SHAPE), dtype)
    return arrays


def function(**inputs: Tensor) -> dict[str, Tensor]:
    """The codes transposed, the numbers, and the type's rounding of half of them."""
    outputs = {}
    for name, x in inputs.items():
        numbers = x.cast(dt.float32)
        outputs[f"{name} codes"] = x.permute((1, 0))
        outputs[f"{name} numbers"] = numbers
        outputs[f"{name} halves"] = (numbers * 0.5).cast(x.dtype)
    return outputs


def expected(inputs: dict[str, Any]) -> dict[str, Any]:
    """The function's results by numpy and ml_dtypes."""
    outputs = {}
    for name, array in inputs.items():
        numbers = array.astype(np.float32)
        halves = numbers * np.float32(0.5)
        outputs[f"{name} codes"] = array.T
        outputs[f"{name} numbers"] = numbers
        outputs[f"{name} halves"] = halves.astype(array.dtype)
    return outputs
