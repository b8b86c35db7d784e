"""Reductions that look alike but run over other axes are not taken for one another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tinyedge
from tinyedge import Tensor


def _constant(*shape: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32) / 8


def _attention(x: Tensor) -> Tensor:
    w = _constant(32, 32)
    return ((x @ w) @ (x @ w).transpose()).softmax(-1) @ (x @ w) @ w


# All sizes are equal, so that shapes say nothing.
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "two products": lambda x: (x @ _constant(32, 32)).relu() @ _constant(32, 32),
    "product with itself": lambda x: x.transpose() @ x @ x.transpose(),
    "attention": _attention,
    "softmax of softmax": lambda x: x.softmax(0).softmax(1),
    "softmax twice": lambda x: x.softmax(1).softmax(1),
    "sum of softmax": lambda x: x.softmax(0).sum(1),
    "other axes": lambda x: x.max(0, keepdims=True) - x.sum(1, keepdims=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("optimize", [True, False])
def test_against_the_reference(tmp_path: Path, name: str, optimize: bool) -> None:
    x = _constant(32, 32) * 8
    out = tinyedge.export_function(
        FUNCTIONS[name], [x], target="cpu", out=tmp_path / "f", golden=False, optimize=optimize
    )
    with tinyedge.load(out) as loaded:
        result = loaded.run({"input_0": x})["output"]
    expected = FUNCTIONS[name](Tensor(x)).numpy()
    assert np.abs(result - expected).max() <= 1e-4 * np.abs(expected).max()
