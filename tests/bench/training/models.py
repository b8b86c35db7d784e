"""What is trained: parameters and a batch, in numpy alone, for all sides alike."""

from __future__ import annotations

from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]

BATCH, CLASSES = 64, 10  # of the convolutional network
LAYERS, WIDTH, TOKENS, ROWS, CHARACTERS, HEADS = 4, 128, 64, 16, 96, 4  # of the GPT
BLOCK = ("ln1w", "ln1b", "qkv", "qkvb", "o", "ob", "ln2w", "ln2b", "up", "upb", "down", "downb")
RATE = {"sgd": 0.01, "adam": 0.001}


def made(model: str) -> tuple[Arrays, Arrays]:
    """A model's parameters, and a batch {"x", "y"}. model: "cnn" or "gpt"."""
    rng = np.random.default_rng(0)
    return _cnn(rng) if model == "cnn" else _gpt(rng)


def _cnn(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    """tinygrad's beautiful_mnist: two pairs of convolutions, each normalized and pooled."""
    weights: Arrays = {}
    for name, inputs, outputs, taps in (
        *(("c1", 1, 32, 5), ("c2", 32, 32, 5)),
        *(("c3", 32, 64, 3), ("c4", 64, 64, 3)),
    ):
        weights[f"{name}w"] = _uniform(rng, outputs, inputs, taps, taps)
        weights[f"{name}b"] = np.zeros(outputs, np.float32)
    for name, channels in (("b1", 32), ("b2", 64)):
        weights[f"{name}w"] = np.ones(channels, np.float32)
        weights[f"{name}b"] = np.zeros(channels, np.float32)
    weights["lw"] = _uniform(rng, CLASSES, 576)
    weights["lb"] = np.zeros(CLASSES, np.float32)
    x = rng.normal(size=(BATCH, 1, 28, 28)).astype(np.float32)
    return weights, {"x": x, "y": rng.integers(0, CLASSES, BATCH).astype(np.int32)}


def _uniform(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    most = 1 / np.sqrt(np.prod(shape[1:]))
    return rng.uniform(-most, most, shape).astype(np.float32)


def _gpt(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    """Characters to characters, by 4 blocks of attention and a perceptron."""
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "o": (WIDTH, WIDTH)}
    shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    weights: dict[str, Any] = {"tok": (CHARACTERS, WIDTH), "pos": (TOKENS, WIDTH)}
    for layer in range(LAYERS):
        for name in BLOCK:
            shape = shapes.get(name) or (shapes.get(name[:-1], (WIDTH, WIDTH))[-1],)
            weights[f"{layer}.{name}"] = shape
    weights |= {"lnw": (WIDTH,), "lnb": (WIDTH,), "head": (WIDTH, CHARACTERS)}
    made = {name: _normal(rng, name, shape) for name, shape in weights.items()}
    batch = {n: rng.integers(0, CHARACTERS, (ROWS, TOKENS)).astype(np.int32) for n in ("x", "y")}
    return made, batch


def _normal(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Weights of matrices are drawn, factors of normalizations are 1, what is added is 0."""
    if len(shape) > 1:
        return rng.normal(0, 0.02, shape).astype(np.float32)
    return np.full(shape, float(name.rpartition(".")[2] in ("ln1w", "ln2w", "lnw")), np.float32)
