"""Recurrent layers."""

from __future__ import annotations

from tests.onnxfuzz.builder import Builder
from tests.onnxfuzz.makers import Made, maker

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@maker("RNN", "GRU", "LSTM", weight=0.7)
def recurrent(g: Builder, op: str) -> Made:
    direction = g.choice((None, "forward", "reverse", "bidirectional"))
    directions = 2 if direction == "bidirectional" else 1
    steps, batch, inputs, hidden = (
        g.integer(1, 4),
        g.integer(1, 2),
        g.integer(1, 3),
        g.integer(1, 3),
    )
    gates = GATES[op]

    def weights(*shape: int) -> str:
        return g.leaf("float32", (directions, *shape), "normal", True)

    x = g.leaf("float32", (steps, batch, inputs), "normal", False)
    given = [x, weights(gates * hidden, inputs), weights(gates * hidden, hidden)]
    given.append(weights(2 * gates * hidden) if g.chance(0.6) else "")
    lengths = g.filled((batch,), lambda rng, s: rng.integers(1, steps + 1, s).astype("int32"))
    given.append(lengths if g.chance(0.4) else "")
    given.append(g.leaf("float32", (directions, batch, hidden), "normal") if g.chance(0.5) else "")
    attributes: dict = {"hidden_size": hidden, "direction": direction}
    if op == "LSTM":
        state = g.leaf("float32", (directions, batch, hidden), "normal")
        given.append(state if g.chance(0.5) else "")
        given.append(weights(3 * hidden) if g.chance(0.4) else "")
    if op == "GRU":
        attributes["linear_before_reset"] = g.choice((None, 0, 1))
    if g.chance(0.2):
        attributes["clip"] = 1.5
    if g.chance(0.25):
        functions = ("Relu", "Tanh", "Sigmoid", "Softsign", "HardSigmoid")
        count = {"RNN": 1, "GRU": 2, "LSTM": 3}[op] * directions
        attributes["activations"] = [g.choice(functions) for _ in range(count)]
    return g.node(op, given, 3 if op == "LSTM" else 2, **attributes)
