"""Recurrent layers over sequences, with torch's names, gates and first values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.tensor import random
from tinyedge.core.tensor.recurrent import Cell, Layer, gru_cell, lstm_cell, plain_cell
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.nn.init import Draws
from tinyedge.nn.module import Module, current


class _Recurrent(Module):
    """Layers one upon the other over x [T, N, inputs], or [N, T, inputs] with batch_first.

    Results: the last layer's h of each step, [T, N, D * hidden] (D is 2 where bidirectional, else
    1), and the last states, each [layers * D, N, hidden]. dropout: between layers, in training.
    """

    gates = 1
    states = 1

    def __init__(
        self,
        inputs: int,
        hidden: int,
        layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        key: Tensor | None = None,
        dtype: DType = dt.float32,
    ) -> None:
        if hidden < 1 or layers < 1:
            raise ValueError(f"{layers} layers of {hidden} neurons")
        self.hidden, self.layers, self.batch_first = hidden, layers, batch_first
        self.dropout, self.bidirectional = dropout, bidirectional
        draws, bound, rows = Draws(key, dtype), 1 / math.sqrt(hidden), self.gates * hidden
        for layer in range(layers):
            width = inputs if layer == 0 else hidden * len(self._directions)
            for direction in self._directions:
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (rows, width),
                    "weight_hh": (rows, hidden),
                }
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                for name, shape in shapes.items():
                    whole = f"{name}_l{layer}{direction}"
                    setattr(self, whole, draws.uniform(whole, shape, bound))

    @property
    def _directions(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def cell(self, layer: Layer) -> Cell:
        """One step of a layer."""
        raise NotImplementedError

    def _run(
        self, x: Tensor, first: Sequence[Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        if x.ndim != 3:
            raise ValueError(f"{type(self).__name__} of {list(x.shape)}: it takes 3 axes")
        rows = x.permute((1, 0, 2)) if self.batch_first else x
        finals: list[Sequence[Tensor]] = []
        for number in range(self.layers):
            if number and self.dropout and (run := current()) is not None:
                rows = random.dropout(rows, run.key(), self.dropout)
            made = []
            for direction in self._directions:
                place = len(finals)
                start = None if first is None else [state[place] for state in first]
                shown, last = self._layer(rows, f"l{number}{direction}", start)
                made.append(shown)
                finals.append(last)
            rows = made[0] if len(made) == 1 else Tensor.concat(made, 2)
        result = rows.permute((1, 0, 2)) if self.batch_first else rows
        return result, tuple(Tensor.stack(states) for states in zip(*finals, strict=True))

    def _layer(
        self, x: Tensor, name: str, first: Sequence[Tensor] | None
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """One direction of a layer over x [T, N, I]."""
        inner, outer = getattr(self, f"weight_ih_{name}"), getattr(self, f"weight_hh_{name}")
        projected, after = x @ inner.transpose(), None
        if hasattr(self, f"bias_ih_{name}"):
            projected = projected + getattr(self, f"bias_ih_{name}")
            after = getattr(self, f"bias_hh_{name}")
        zeros = Tensor.full((x.shape[1], self.hidden), 0, x.dtype)
        start = [zeros] * self.states if first is None else list(first)
        layer = Layer(
            x.shape[0],
            name.endswith("_reverse"),
            self.hidden,
            projected,
            lambda h: h @ outer.transpose(),
            after,
            None,
            start[0],
        )
        return layer.run(start, self.cell(layer))


class _OneState(_Recurrent):
    """One tensor is carried from step to step."""

    def __call__(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        rows, (last,) = self._run(x, None if h is None else (h,))
        return rows, last


class RNN(_OneState):
    __doc__ = f"h = tanh(x w' + h r' + biases), or relu.\n\n    {_Recurrent.__doc__}"

    def __init__(
        self,
        inputs: int,
        hidden: int,
        layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        key: Tensor | None = None,
        dtype: DType = dt.float32,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"nonlinearity {nonlinearity!r}: it is 'tanh' or 'relu'")
        self.nonlinearity = nonlinearity
        super().__init__(
            inputs,
            hidden,
            layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            key=key,
            dtype=dtype,
        )

    def cell(self, layer: Layer) -> Cell:
        return plain_cell(layer, Tensor.tanh if self.nonlinearity == "tanh" else Tensor.relu)


class GRU(_OneState):
    __doc__ = f"Gates reset, update and new, in this order.\n\n    {_Recurrent.__doc__}"

    gates = 3

    def cell(self, layer: Layer) -> Cell:
        return gru_cell(layer, (Tensor.sigmoid, Tensor.tanh), order=(1, 0))


class LSTM(_Recurrent):
    __doc__ = f"Gates input, forget, cell and output, in this order.\n\n    {_Recurrent.__doc__}"

    gates = 4
    states = 2

    def cell(self, layer: Layer) -> Cell:
        functions = (Tensor.sigmoid, Tensor.tanh, Tensor.tanh)
        return lstm_cell(layer, functions, order=(0, 3, 1, 2))

    def __call__(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """state, and the second result: h and c."""
        rows, (h, c) = self._run(x, state)
        return rows, (h, c)
