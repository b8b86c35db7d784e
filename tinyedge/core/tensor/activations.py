"""Activation functions, beside those that are methods or in `mathematics`."""

from __future__ import annotations

from typing import TypeVar

from tinyedge.core.tensor.elementwise import Elementwise
from tinyedge.core.tensor.mathematics import expm1

T = TypeVar("T", bound=Elementwise)

SELU = 1.67326319217681884765625, 1.05070102214813232421875  # G. Klambauer and others, 2017


def leaky_relu(x: T, slope: float | T = 0.01) -> T:
    """x, of negative x slope * x. slope: a number, or a tensor that broadcasts to x."""
    return (x < 0).where(x * slope, x)


def hard_sigmoid(x: T, alpha: float = 1 / 6, beta: float = 0.5) -> T:
    """alpha * x + beta between 0 and 1."""
    return (x * alpha + beta).clip(0.0, 1.0)


def hard_swish(x: T) -> T:
    """x * (x + 3) / 6 between -3 and 3, where x + 3 is exact near its zero."""
    return x * ((x + 3.0).clip(0.0, 6.0) * (1 / 6))


def softsign(x: T) -> T:
    """x / (1 + |x|)."""
    return x / (1.0 + x.abs())


def elu(x: T, alpha: float = 1.0) -> T:
    """x, of negative x alpha * (exp(x) - 1). The exponential sees only x <= 0: kernels evaluate
    both branches.
    """
    return (x < 0).where(alpha * expm1(x.minimum(0.0)), x)


def selu(x: T, alpha: float = SELU[0], gamma: float = SELU[1]) -> T:
    """gamma * elu(x, alpha)."""
    return gamma * elu(x, alpha)


def celu(x: T, alpha: float = 1.0) -> T:
    """x, of negative x alpha * (exp(x / alpha) - 1)."""
    return (x < 0).where(alpha * expm1((x / alpha).minimum(0.0)), x)
