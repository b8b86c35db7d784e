"""Networks that are trained here and by torch: one text for both, and the data that they learn."""

from __future__ import annotations

from typing import Any

import numpy as np

STEPS, ROWS, CLASSES = 20, 8, 5

# Parts of the texts that are torch's where they are not ours.
TORCH = {
    "BatchNorm": "nn.BatchNorm2d",
    "MultiHeadAttention": "nn.MultiheadAttention",
}
_ATTENDING = "Call(MultiHeadAttention(8, 2, batch_first=True), lambda m, x: x + mixed(m(x, x, x)))"
_THINKING = "Call(chain(Linear(8, 16), gelu, Linear(16, 8)), lambda m, x: x + m(x))"
_AROUND = "Call(Conv2d(6, 6, 3, padding=1), lambda m, x: x + m(relu(x)))"

# Name -> the network, and the shape of a row of its input. `chain`: one part after the other;
# `mixed`: what attention gives, of torch's the first of two results.
NETWORKS: dict[str, tuple[str, tuple[int, ...]]] = {
    "perceptron": ("chain(Linear(12, 16), tanh, Linear(16, 5))", (12,)),
    "convolutions": (
        "chain(Conv2d(1, 6, 3, bias=False), BatchNorm(6), relu, pooled, flat, Linear(54, 5))",
        (1, 8, 8),
    ),
    "residuals": (
        f"chain(Conv2d(2, 6, 3, stride=2), GroupNorm(2, 6), {_AROUND}, flat, Linear(54, 5))",
        (2, 8, 8),
    ),
    "upsampling": (
        "chain(ConvTranspose2d(3, 4, 2, stride=2), tanh, Conv2d(4, 2, 3), flat, Linear(32, 5))",
        (3, 3, 3),
    ),
    "recurrence": (
        "chain(Call(LSTM(4, 8, batch_first=True), lambda m, x: m(x)[0][:, -1]), Linear(8, 5))",
        (6, 4),
    ),
    "transformer": (
        f"chain(Linear(4, 8), {_ATTENDING}, LayerNorm(8), {_THINKING}, flat, Linear(48, 5))",
        (6, 4),
    ),
}

# Name -> the options of both, the learning rate first.
OPTIMIZERS: dict[str, tuple[float, dict[str, Any]]] = {
    "SGD": (0.05, {"momentum": 0.9, "nesterov": True}),
    "Adam": (0.01, {}),
    "AdamW": (0.01, {"weight_decay": 0.1}),
    "RMSprop": (0.003, {"momentum": 0.5}),
}


def batch(name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Inputs and the classes that they have."""
    rng = np.random.default_rng([1, *map(ord, name)])
    x = rng.normal(size=(ROWS, *NETWORKS[name][1])).astype(np.float32)
    return x, rng.integers(0, CLASSES, ROWS).astype(np.int32)
