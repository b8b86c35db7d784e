"""Recurrent layers: a loop over their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tinyedge.core import dtype as dt
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.tensor import Tensor

Activation = Callable[[Tensor], Tensor]

# What a gate's input or state contributes: [.., I] or [B, H] -> [.., G*H].
Projection = Callable[[Tensor], Tensor]

# One step: what the input contributes and the state (h first) give the new h and the new state.
Cell = Callable[..., tuple[Tensor, ...]]

FEW_STEPS = 4  # which are computed one after the other, each with kernels of its own


@dataclass
class Layer:
    """One direction of a layer with G gates of H neurons, over T steps of a batch B."""

    steps: Size
    reverse: bool
    hidden: int
    projected: Tensor  # x @ w' + bias of the input, [T, B, G*H]
    project: Projection  # h @ r'
    recurrent_bias: Tensor | None
    lengths: Tensor | None
    state: Tensor

    def gate(self, whole: Tensor, number: int) -> Tensor:
        return whole[..., number * self.hidden : (number + 1) * self.hidden]

    def run(self, first: Sequence[Tensor], cell: Cell) -> tuple[Tensor, list[Tensor]]:
        """Every step's h, [T, B, H], and the last state. first: the state before the first step."""
        if isinstance(self.steps, int) and self.steps <= FEW_STEPS:
            return self._unrolled(self.steps, first, cell)
        last = Tensor.from_size(self.steps, dt.int32) - 1

        def iteration(t: Tensor, rows: Tensor, *state: Tensor) -> Sequence[Tensor]:
            step = last - t if self.reverse else t
            row, kept = self._step(step, self.projected.gather(0, step), state, cell)
            return t + 1, rows.put(step, row), *kept

        rows = Tensor.full((self.steps, *first[0].shape), 0.0, first[0].dtype)
        start = [Tensor(0, dt.int32), rows, *first]
        _, rows, *state = Tensor.loop(start, iteration, trips=self.steps)
        return rows, state

    def _unrolled(
        self, steps: int, first: Sequence[Tensor], cell: Cell
    ) -> tuple[Tensor, list[Tensor]]:
        state = list(first)
        rows: dict[int, Tensor] = {}
        for step in range(steps - 1, -1, -1) if self.reverse else range(steps):
            rows[step], state = self._step(step, self.projected[step], state, cell)
        return Tensor.stack([rows[step] for step in range(steps)]), state

    def _step(
        self, step: int | Tensor, projected: Tensor, state: Sequence[Tensor], cell: Cell
    ) -> tuple[Tensor, list[Tensor]]:
        """What a step shows, and the state after it: the old one where the sequence has ended."""
        new = cell(projected, *state)
        if self.lengths is None:
            return new[0], list(new)
        going = (self.lengths > step).unsqueeze(1)
        kept = [going.where(after, before) for after, before in zip(new, state, strict=True)]
        return going.where(new[0], 0.0), kept


def _recurrence(layer: Layer, h: Tensor) -> Tensor:
    total = layer.project(h)
    return total if layer.recurrent_bias is None else total + layer.recurrent_bias


def plain_cell(layer: Layer, activation: Activation) -> Cell:
    """h = activation(input + recurrence)."""

    def cell(inner: Tensor, h: Tensor) -> Any:
        return (activation(inner + _recurrence(layer, h)),)

    return cell


def gru_cell(
    layer: Layer,
    activations: Sequence[Activation],
    weight: Tensor | None = None,
    order: tuple[int, int] = (0, 1),
) -> Cell:
    """Gates update and reset (numbered by `order`), and hidden.

    weight: the hidden gate's part of r', [H, H], of which the reset gate scales the operand; None:
    it scales the product.
    """
    f, g = activations
    bias = None if layer.recurrent_bias is None else layer.gate(layer.recurrent_bias, 2)

    def cell(inner: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        outer = _recurrence(layer, h)
        z = f(layer.gate(inner, order[0]) + layer.gate(outer, order[0]))
        reset = f(layer.gate(inner, order[1]) + layer.gate(outer, order[1]))
        if weight is None:
            candidate = reset * layer.gate(outer, 2)
        else:
            candidate = (reset * h).matmul(weight)
            candidate = candidate if bias is None else candidate + bias
        fresh = g(layer.gate(inner, 2) + candidate)
        return ((1.0 - z) * fresh + z * h,)

    return cell


def lstm_cell(
    layer: Layer,
    activations: Sequence[Activation],
    peep: Sequence[Tensor] | None = None,
    coupled: bool = False,
    order: tuple[int, int, int, int] = (0, 1, 2, 3),
) -> Cell:
    """Gates input, output, forget and cell, numbered by `order`.

    peep: what the cell contributes to the first three. coupled: what is not kept is replaced.
    """
    f, g, out = activations

    def cell(inner: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        total = inner + _recurrence(layer, h)
        i, o, evict, candidate = (layer.gate(total, number) for number in order)
        if peep is not None:
            i, evict = i + peep[0] * c, evict + peep[2] * c
        i = f(i)
        keep = 1.0 - i if coupled else f(evict)
        fresh = keep * c + i * g(candidate)
        if peep is not None:
            o = o + peep[1] * fresh
        return f(o) * out(fresh), fresh

    return cell
