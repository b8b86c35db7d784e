"""Recurrent layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinyedge.core import dtype as dt
from tinyedge.core.tensor import activations
from tinyedge.core.tensor.recurrent import (
    Activation,
    Layer,
    Projection,
    gru_cell,
    lstm_cell,
    plain_cell,
)
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.movement import cut
from tinyedge.export.onnx.registry import Node, operator


def _activations(node: Node, defaults: list[str], directions: int) -> list[list[Activation]]:
    """The activation functions of every direction; alpha and beta are handed out in order."""
    names = node.text_list("activations") or defaults * directions
    if len(names) != len(defaults) * directions:
        raise node.invalid(f"{len(names)} activations")
    alphas, betas = node.number_list("activation_alpha"), node.number_list("activation_beta")
    given = (iter(alphas or []), iter(betas or []))
    clip = node.number("clip", 0.0)
    made = [_activation(node, name.lower(), given, clip) for name in names]
    count = len(defaults)
    return [made[d * count : (d + 1) * count] for d in range(directions)]


def _activation(node: Node, name: str, given: Any, clip: float) -> Activation:
    alphas, betas = given

    def alpha(default: float) -> float:
        return float(next(alphas, default))

    def beta(default: float) -> float:
        return float(next(betas, default))

    function: Activation
    if name == "sigmoid":
        function = Tensor.sigmoid
    elif name == "tanh":
        function = Tensor.tanh
    elif name == "relu":
        function = Tensor.relu
    elif name == "softsign":
        function = activations.softsign
    elif name == "softplus":
        function = Tensor.softplus
    elif name == "affine":
        a, b = alpha(1.0), beta(0.0)
        function = lambda x: x * a + b  # noqa: E731
    elif name == "leakyrelu":
        a = alpha(0.01)
        function = lambda x: activations.leaky_relu(x, a)  # noqa: E731
    elif name == "thresholdedrelu":
        a = alpha(1.0)
        function = lambda x: (x >= a).where(x, 0.0)  # noqa: E731
    elif name == "scaledtanh":
        a, b = alpha(1.0), beta(1.0)
        function = lambda x: a * (b * x).tanh()  # noqa: E731
    elif name == "hardsigmoid":
        a, b = alpha(0.2), beta(0.5)
        function = lambda x: activations.hard_sigmoid(x, a, b)  # noqa: E731
    elif name == "elu":
        a = alpha(1.0)
        function = lambda x: activations.elu(x, a)  # noqa: E731
    else:
        raise node.invalid(f"it has no activation {name!r}")
    if clip <= 0:
        return function
    return lambda x: function(x.clip(-clip, clip))


@dataclass
class Weights:
    """What x and h are multiplied by, for every direction."""

    hidden: int  # H, neurons of a gate
    inputs: list[Projection]
    recurrent: list[Projection]


def directions_of(node: Node) -> int:
    direction = node.text("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise node.invalid(f"direction is {direction!r}")
    return 2 if direction == "bidirectional" else 1


def _weights(node: Node, gates: int, x: Tensor, w: Tensor, r: Tensor) -> Weights:
    """w: [D, G*H, I]; r: [D, G*H, H]."""
    directions = directions_of(node)
    if x.ndim != 3 or w.ndim != 3 or r.ndim != 3 or w.shape[0] != directions:
        raise node.invalid(f"its operands are {show(x)}, {show(w)}, {show(r)}")
    hidden = r.shape[2]
    if not isinstance(hidden, int) or w.shape[1] != gates * hidden:
        raise node.invalid(f"its weights are {show(w)}, {show(r)}")

    def projections(weight: Tensor) -> list[Projection]:
        parts = [weight[d].transpose() for d in range(directions)]
        return [lambda value, part=part: value.matmul(part) for part in parts]  # type: ignore[misc]

    return Weights(hidden, projections(w), projections(r))


def _layers(
    node: Node,
    gates: int,
    x: Tensor,
    weights: Weights,
    b: Tensor | None,
    lengths: Tensor | None,
    initial: Tensor | None,
) -> list[Layer]:
    hidden = weights.hidden
    if node.integer("hidden_size", hidden) != hidden:
        raise node.invalid(f"hidden_size is {node.integer('hidden_size', 0)}, R says {hidden}")
    if node.integer("layout", 0):
        x = x.permute((1, 0, 2))
        initial = None if initial is None else initial.permute((1, 0, 2))
    steps, batch, _ = x.shape
    if steps == 0:
        raise node.unsupported("it has no steps", supported="at least one step")
    iterations = steps if isinstance(steps, int) else 1
    node.spend((32 + iterations) * len(weights.inputs))
    result = []
    for d, (project_input, project) in enumerate(
        zip(weights.inputs, weights.recurrent, strict=True)
    ):
        projected = project_input(x)
        after = None
        if b is not None:
            projected = projected + cut(b[d], 0, 0, gates * hidden)
            after = cut(b[d], 0, gates * hidden, 2 * gates * hidden)
        zeros = Tensor.full((batch, hidden), 0.0, x.dtype)
        result.append(
            Layer(
                steps,
                node.text("direction", "forward") == "reverse" or d == 1,
                hidden,
                projected,
                project,
                after,
                None if lengths is None else lengths.cast(dt.int32),
                zeros if initial is None else initial[d],
            )
        )
    return result


def _outputs(node: Node, rows: list[Tensor], *finals: list[Tensor]) -> list[Tensor]:
    """Y [T, D, B, H] from every direction's [T, B, H], and the final states [D, B, H]."""
    y = Tensor.stack(rows, 1)
    last = [Tensor.stack(states) for states in finals]
    if node.integer("layout", 0):
        y = y.permute((2, 0, 1, 3))
        last = [state.permute((1, 0, 2)) for state in last]
    return [y, *last]


@operator("RNN", limits="at least one step")
def rnn(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial: Tensor | None = None,
) -> list[Tensor]:
    layers = _layers(node, 1, x, _weights(node, 1, x, w, r), b, lengths, initial)
    functions = _activations(node, ["Tanh"], len(layers))
    rows, finals = [], []
    for layer, (f,) in zip(layers, functions, strict=True):
        y, (h,) = layer.run([layer.state], plain_cell(layer, f))
        rows.append(y)
        finals.append(h)
    return _outputs(node, rows, finals)


@operator("GRU", limits="at least one step")
def gru(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial: Tensor | None = None,
) -> list[Tensor]:
    """Gates update, reset, hidden."""
    layers = _layers(node, 3, x, _weights(node, 3, x, w, r), b, lengths, initial)
    functions = _activations(node, ["Sigmoid", "Tanh"], len(layers))
    linear_first = bool(node.integer("linear_before_reset", 0))
    rows, finals = [], []
    for d, (layer, chosen) in enumerate(zip(layers, functions, strict=True)):
        weight = None if linear_first else layer.gate(r[d].transpose(), 2)
        y, (h,) = layer.run([layer.state], gru_cell(layer, chosen, weight))
        rows.append(y)
        finals.append(h)
    return _outputs(node, rows, finals)


@operator("LSTM", limits="at least one step")
def lstm(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial: Tensor | None = None,
    initial_cell: Tensor | None = None,
    peepholes: Tensor | None = None,
) -> list[Tensor]:
    """Gates input, output, forget, cell."""
    weights = _weights(node, 4, x, w, r)
    return run_lstm(node, x, weights, b, lengths, initial, initial_cell, peepholes)


def run_lstm(
    node: Node,
    x: Tensor,
    weights: Weights,
    b: Tensor | None,
    lengths: Tensor | None,
    initial: Tensor | None,
    initial_cell: Tensor | None,
    peepholes: Tensor | None,
) -> list[Tensor]:
    """An LSTM whose x and h are multiplied in its own way."""
    layers = _layers(node, 4, x, weights, b, lengths, initial)
    functions = _activations(node, ["Sigmoid", "Tanh", "Tanh"], len(layers))
    coupled = bool(node.integer("input_forget", 0))
    if initial_cell is not None and node.integer("layout", 0):
        initial_cell = initial_cell.permute((1, 0, 2))
    rows, finals, cells = [], [], []
    for d, (layer, chosen) in enumerate(zip(layers, functions, strict=True)):
        h = layer.state
        c = Tensor.full(h.shape, 0.0, x.dtype) if initial_cell is None else initial_cell[d]
        peep = None
        if peepholes is not None:
            peep = [layer.gate(peepholes[d], number) for number in range(3)]
        y, (h, c) = layer.run([h, c], lstm_cell(layer, chosen, peep, coupled))
        rows.append(y)
        finals.append(h)
        cells.append(c)
    return _outputs(node, rows, finals, cells)
