"""Gradients of convolutions by their inputs: one sum, without all windows in memory."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, find_target, graph, reference, run
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.merged import with_merged_sums
from tinyedge.core.gradient.transforms import grad
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(5)
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "3x3": {},
    "padded": {"pads": ((1, 1), (2, 0))},
    "by 2": {"strides": (2, 2)},
    "by 3": {"strides": (3, 2), "pads": ((1, 1), (1, 1))},
    "dilated": {"dilations": (2, 1)},
    "grouped": {"groups": 2},
}


def gradient(side: int = 9, **options: Any) -> tuple[Tensor, Inputs]:
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(2, 4, side, side)).astype(np.float32))
    shape = (6, 4 // options.get("groups", 1), 3, 3)
    w = inputs.new(RNG.normal(size=shape).astype(np.float32))

    def loss(x: Tensor) -> Tensor:
        y = x.conv(w, **options)
        return (y * y).sum()

    return grad(loss)(x), inputs


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients_mean_the_same(name: str, target: str, device: Device) -> None:
    found, inputs = gradient(**CONVOLUTIONS[name])
    outputs = {"x": found}
    assert_agreement(run(outputs, inputs, target, device), reference(outputs, inputs))


@pytest.mark.parametrize("name", ["3x3", "padded", "grouped"])
def test_no_windows_are_kept(name: str) -> None:
    """Memory holds what is as large as the convolution's input and output, and nothing larger."""
    found, inputs = gradient(20, **CONVOLUTIONS[name])
    state = compile_graph(graph({"x": found}, inputs), find_target("cpu"))
    sizes = [prod(s.shape) for launch in state.launches for s in launch.storages]
    assert max(sizes) <= 2 * 6 * 20 * 20
    assert len(state.launches) == 2


def test_indices_of_a_diagonal_are_without_divisions() -> None:
    """Its element t is at t * (n + 1) of n * n: of that, t is the quotient and the rest by n."""
    from tinyedge.core.ir.text import kernel_text

    found, inputs = gradient(20)
    state = compile_graph(graph({"x": found}, inputs), find_target("cpu"))
    text = "\n".join(kernel_text(state.launches[-1].sink))
    assert "sum(" in text and "//" not in text and "%" not in text


def test_sums_that_others_use_stay() -> None:
    """A sum of overlapping windows of a product that is wanted itself, or that is not padded."""
    x = Tensor.input("x", (1, 4, 8, 8), dt.float32)
    w = Tensor.weight("w", RNG.normal(size=(4, 4, 3, 3)).astype(np.float32))
    y = x.conv(w, pads=((1, 1), (1, 1)))
    padded = y.pad([(0, 0), (0, 0), (1, 1), (1, 1)]).window(2, 3, 1).window(3, 3, 1).sum((4, 5))
    assert not with_merged_sums((padded.node, y.node))
    bare = y.window(2, 2, 2).window(3, 2, 2).sum((4, 5))
    assert not with_merged_sums((bare.node,))


def test_views_that_no_sum_is_of_stay() -> None:
    """Every third column of a padded convolution: a view, much smaller than the sum."""
    inputs = Inputs()
    x, w = (inputs.new(RNG.normal(size=size).astype(np.float32)) for size in ((2, 9), (4, 2, 2, 2)))
    y = x.reshape((1, 2, 3, 3)).conv(w, pads=((1, 1), (1, 1)))
    thirds = y.pad([(0, 0), (0, 0), (0, 0), (0, 2)]).window(3, 1, 3)
    assert not with_merged_sums((thirds.tanh().node,))
