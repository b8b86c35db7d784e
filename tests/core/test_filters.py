"""Filters that are no weights, before products that read them in panels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, compiled, find_target, reference, replay
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.ir import ops
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.ir.uop import Shape, toposort
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

ROWS = 40


def _floats(*shape: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def _convolved(inputs: Inputs) -> Tensor:
    x, w = inputs.new(_floats(2, 8, 9, 9)), inputs.new(_floats(16, 8, 3, 3))
    return x.conv(w).relu().max(1)


def _backwards(inputs: Inputs) -> Tensor:
    """What the gradient of a convolution's data is: its filter's taps in falling order."""
    x, w = inputs.new(_floats(2, 16, 9, 9)), inputs.new(_floats(16, 8, 3, 3))
    return (x.conv(w.permute((1, 0, 2, 3)).flip((2, 3)), pads=((2, 2), (2, 2))) * 2.0).max(1)


def _transposed(inputs: Inputs) -> Tensor:
    return inputs.new(_floats(ROWS, 24)) @ inputs.new(_floats(32, 24)).transpose()


def _in_order(inputs: Inputs) -> Tensor:
    return inputs.new(_floats(ROWS, 24)) @ inputs.new(_floats(24, 32))


def _of_few_rows(inputs: Inputs) -> Tensor:
    return inputs.new(_floats(8, 24)) @ inputs.new(_floats(32, 24)).transpose()


def _repeated(inputs: Inputs) -> Tensor:
    """One copy for all of its products."""
    x, w = inputs.new(_floats(ROWS, 32)), inputs.new(_floats(32, 32))
    for _ in range(3):
        x = (x @ w.transpose()).tanh()
    return x


def _uneven(inputs: Inputs) -> Tensor:
    """The last panel overlaps the one before, and what is no number stays in its own column."""
    weight = _floats(24, 33)
    weight[[3, 5, 7], [32, 10, 20]] = np.inf, np.nan, -np.inf
    return inputs.new(_floats(ROWS, 24)) @ inputs.new(weight)


def _large(inputs: Inputs) -> Tensor:
    return inputs.new(_floats(500, 600)) @ inputs.new(_floats(600, 128))


def _across(inputs: Inputs) -> Tensor:
    """Both operands: the rows of the data lie beside each other, and the last panels overlap."""
    return inputs.new(_floats(600, 500)).transpose() @ inputs.new(_floats(600, 128))


def _by_itself(inputs: Inputs) -> Tensor:
    """The filter is in panels and the data, which is the same, is not."""
    x = inputs.new(_floats(ROWS, 24))
    return x @ x.transpose()


def _computed(inputs: Inputs) -> Tensor:
    return inputs.new(_floats(2, ROWS, 24)) @ inputs.new(_floats(2, 24, 30)).exp()


def _gathered(state: Compilation) -> list[bool]:
    """Of each launch of a product whether it makes vectors element by element."""
    kernels = (state.kernels[each.sink] for each in state.launches if each.contraction)
    return ["(f32x8){b" in kernel.source for kernel in kernels]


def _others(state: Compilation) -> int:
    """Launches that only move and combine elements."""
    sums = [[n for n in toposort((s.sink,)) if n.op is ops.REDUCE_LOOP] for s in state.launches]
    return sums.count([])


@pytest.mark.parametrize(
    ("build", "copies", "gathered"),
    [
        (_convolved, 1, False),
        (_backwards, 1, False),
        (_transposed, 1, False),
        (_in_order, 0, False),
        (_of_few_rows, 0, True),
        (_repeated, 1, False),
        (_uneven, 1, False),
        (_large, 1, False),
        (_across, 2, False),
        (_by_itself, 1, False),
        (_computed, 2, False),
    ],
)
def test_a_filter_is_copied_for_many_rows(
    build: object, copies: int, gathered: bool, cpu_device: Device
) -> None:
    inputs = Inputs()
    outputs = {"y": build(inputs)}  # type: ignore[operator]
    state = compiled(outputs, inputs, find_target("cpu"))
    assert set(_gathered(state)) == {gathered} and _others(state) == copies
    assert state.program is not None
    found = replay(state.program, cpu_device, inputs.arrays)
    assert_agreement(found, reference(outputs, inputs))


def _of_open_size(inputs: Inputs) -> Tensor:
    n = symbol("n", 1, 4096)
    return inputs.new(_floats(2100, 128)) @ inputs.new(_floats(128, 96), shape=(128, n))


@pytest.mark.parametrize(
    ("build", "shape", "order"),
    [
        (_large, (600, 8, 16), (1, 0, 2)),
        (_transposed, (2, 16, 24), (0, 2, 1)),
        (_uneven, (24, 2, 24), (1, 0, 2)),
        (_computed, (2, 24, 2, 16), (2, 0, 1, 3)),
        (_in_order, None, None),
        (_of_open_size, None, None),
    ],
)
def test_a_copy_is_in_panels(
    build: Callable[[Inputs], Tensor], shape: Shape | None, order: tuple[int, ...] | None
) -> None:
    """A panel after the other, each with as many columns of every step as a tile has."""
    inputs = Inputs()
    state = compiled({"y": build(inputs)}, inputs, find_target("cpu"))
    (product,) = (each for each in state.launches if each.contraction)
    found = [s for s in product.storages if s.role == "scratch" and len(s.shape) > 2]
    assert [(s.shape, s.layout.order) for s in found] == ([(shape, order)] if shape else [])
