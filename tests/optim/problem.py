"""A small network and its gradients, which numpy and torch compute as well."""

from __future__ import annotations

import numpy as np

STEPS = 20
WEIGHTS = (("weight", (4, 3)), ("bias", (4,)), ("head", (2, 4)))

# Optimizers by name: ours, torch's where it has one, and what both are given.
OPTIMIZERS = {
    "SGD": ("SGD", "SGD", {}),
    "SGD momentum": ("SGD", "SGD", {"momentum": 0.9, "weight_decay": 0.01}),
    "SGD dampened": ("SGD", "SGD", {"momentum": 0.9, "dampening": 0.5}),
    "SGD Nesterov": ("SGD", "SGD", {"momentum": 0.9, "nesterov": True}),
    "Adam": ("Adam", "Adam", {}),
    "Adam decay": ("Adam", "Adam", {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    "AdamW": ("AdamW", "AdamW", {"weight_decay": 0.2}),
    "RMSprop": ("RMSprop", "RMSprop", {}),
    "RMSprop centered": (
        "RMSprop",
        "RMSprop",
        {"centered": True, "momentum": 0.5, "weight_decay": 0.1, "alpha": 0.9},
    ),
    "Adagrad": ("Adagrad", "Adagrad", {}),
    "LARS": ("LARS", "", {"weight_decay": 0.1}),
    "LAMB": ("LAMB", "", {"weight_decay": 0.1}),
    "Muon": ("Muon", "", {}),
}
RATE = 0.05


def values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    return {name: rng.normal(size=shape) for name, shape in WEIGHTS}


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(12)
    return rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
