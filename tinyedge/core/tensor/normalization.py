"""Normalizations: values less their mean, by their deviation, scaled and shifted.

x is [N, C, *S] where channels matter. wide: the type that means and variances are computed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tinyedge.core.dtype import DType
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.reductions import Reductions

T = TypeVar("T", bound=Reductions)


def centered(x: T, axes: Sequence[int], epsilon: float) -> tuple[T, T, T]:
    """x - mean, mean, 1 / sqrt(variance + epsilon); the variance is that of centered values."""
    mean = x.mean(axes, keepdims=True)
    difference = x - mean
    variance = (difference * difference).mean(axes, keepdims=True)
    return difference, mean, 1.0 / (variance + epsilon).sqrt()


def layer_norm(
    x: T,
    axes: Sequence[int],
    scale: T | None = None,
    bias: T | None = None,
    epsilon: float = 1e-5,
    wide: DType | None = None,
) -> tuple[T, T, T]:
    """x normalized over axes, and its mean and inverse deviation, which have size 1 there."""
    difference, mean, inverse = centered(x if wide is None else x.cast(wide), axes, epsilon)
    result = (difference * inverse).cast(x.dtype)
    result = result if scale is None else result * scale
    return (result if bias is None else result + bias), mean, inverse


def rms_norm(
    x: T,
    axes: Sequence[int],
    scale: T | None = None,
    epsilon: float = 1e-5,
    wide: DType | None = None,
) -> T:
    """x by the root of its mean square over axes, in the scale's type."""
    values = x if wide is None else x.cast(wide)
    mean = (values * values).mean(axes, keepdims=True)
    result = (values / (mean + epsilon).sqrt()).cast(x.dtype if scale is None else scale.dtype)
    return result if scale is None else result * scale


def moments(x: T) -> tuple[T, T]:
    """The mean and the variance of each channel over a batch: x [N, C, *S] to [C] each."""
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    mean = x.mean(axes, keepdims=True)
    difference = x - mean
    variance = (difference * difference).mean(axes)
    return mean.reshape((-1,)), variance.reshape((-1,))


def batch_norm(x: T, mean: T, variance: T, scale: T, bias: T, epsilon: float = 1e-5) -> T:
    """x by a mean and a variance for each channel, scaled and shifted: all four are [C]."""
    shape = (-1,) + (1,) * (x.ndim - 2) if x.ndim > 1 else (-1,)
    s, b, m, v = (t.reshape(shape).cast(x.dtype) for t in (scale, bias, mean, variance))
    return (x - m) * (s / (v + epsilon).sqrt()) + b


def instance_norm(x: T, scale: T, bias: T, epsilon: float = 1e-5) -> T:
    """x normalized over its spatial axes; scale and bias are [C]."""
    difference, _, inverse = centered(x, tuple(range(2, x.ndim)), epsilon)
    shape = (-1,) + (1,) * (x.ndim - 2)
    return difference * (inverse * scale.reshape(shape)) + bias.reshape(shape)


def grouped(x: T, groups: int, epsilon: float = 1e-5) -> T:
    """x normalized over groups of its channels and over its spatial axes, [N, G, C / G, *S]."""
    shape = (x.shape[0], groups, fixed(x.shape[1]) // groups, *x.shape[2:])
    split = x.reshape(shape)
    difference, _, inverse = centered(split, tuple(range(2, split.ndim)), epsilon)
    return difference * inverse


def group_norm(
    x: T, groups: int, scale: T, bias: T, epsilon: float = 1e-5, wide: DType | None = None
) -> T:
    """x normalized by groups of channels; scale and bias are [C]."""
    normal = grouped(x if wide is None else x.cast(wide), groups, epsilon)
    flat = normal.reshape(x.shape).cast(x.dtype)
    shape = (-1, *(1,) * (x.ndim - 2))
    return flat * scale.reshape(shape) + bias.reshape(shape)


def normalized(x: T, axis: int, exponent: float = 2.0) -> T:
    """x by its norm along an axis; 0 where the norm is 0."""
    norm = x.norm(axis, keepdims=True, exponent=exponent)
    zero = norm.eq(0.0)
    return zero.where(0.0, x / zero.where(1.0, norm))


def local_response_norm(
    x: T, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> T:
    """x by (bias + alpha * the mean square of `size` channels around each) ^ beta."""
    farthest = max(0, maximum(x.shape[1]) - 1)
    before, after = min((size - 1) // 2, farthest), min(size // 2, farthest)
    pads = [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)]
    squares = (x * x).pad(pads).window(1, before + 1 + after).sum(-1)
    scale = squares * (alpha / size) + bias
    if beta == 0.75 and bias > 0 and alpha >= 0:  # two roots are sooner found than a power
        root = scale.sqrt()
        return x / (root * root.sqrt())
    return x / scale**beta
