"""Normalizations as layers, with torch's names, defaults and first values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.gradient.trees import Buffer
from tinyedge.core.ir.shapes import product
from tinyedge.core.tensor import normalization
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.nn.linear import channels_of
from tinyedge.nn.module import Module, current


def _full(name: str, shape: Sequence[int], value: float) -> Tensor:
    return Tensor.weight(name, np.full(tuple(shape), value, np.float32))


class BatchNorm(Module):
    """x [N, C, *S] by the mean and variance of each channel, scaled and shifted.

    In training these are the batch's, and the running ones move towards them by `momentum` (the
    variance without bias); else they are the running ones. track: whether there are running ones;
    without them they are always the batch's.
    """

    def __init__(
        self,
        channels: int,
        epsilon: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track: bool = True,
    ) -> None:
        self.epsilon, self.momentum = epsilon, momentum
        self.weight = _full("weight", (channels,), 1) if affine else None
        self.bias = _full("bias", (channels,), 0) if affine else None
        self.running_mean = Buffer(_full("running_mean", (channels,), 0)) if track else None
        self.running_var = Buffer(_full("running_var", (channels,), 1)) if track else None

    def __call__(self, x: Tensor) -> Tensor:
        kept = self.weight if self.running_mean is None else self.running_mean.value
        if kept is not None and kept.shape != (channels_of(x),):
            raise ValueError(f"BatchNorm of {list(x.shape)}, {kept.shape[0]} channels")
        run = current()
        if self.running_mean is None or self.running_var is None:
            mean, variance = self._of_batch(x)
        elif run is None:
            mean, variance = self.running_mean.value, self.running_var.value
        else:
            mean, variance = self._of_batch(x)
            count = x.from_size(product((x.shape[0], *x.shape[2:])), variance.dtype)
            for buffer, new in (
                (self.running_mean, mean),
                (self.running_var, variance * (count / (count - 1.0))),
            ):
                old = run.value(buffer)
                moved = old * (1.0 - self.momentum) + new.cast(old.dtype) * self.momentum
                run.keep(buffer, moved)
        ones = Tensor.full((channels_of(x),), 1, x.dtype) if self.weight is None else self.weight
        zeros = Tensor.full((channels_of(x),), 0, x.dtype) if self.bias is None else self.bias
        return normalization.batch_norm(x, mean, variance, ones, zeros, self.epsilon)

    def _of_batch(self, x: Tensor) -> tuple[Tensor, Tensor]:
        channels_of(x)
        wide = x if x.dtype.bits >= 32 else x.cast(dt.float32)
        axes = (0, *range(2, x.ndim))
        mean = wide.mean(axes, keepdims=True)
        difference = wide - mean
        return mean.squeeze(axes), (difference * difference).mean(axes)


class LayerNorm(Module):
    """x normalized over its last axes, which have the given shape, scaled and shifted."""

    def __init__(
        self,
        shape: int | Sequence[int],
        epsilon: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
    ) -> None:
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.epsilon = epsilon
        self.weight = _full("weight", self.shape, 1) if affine else None
        self.bias = _full("bias", self.shape, 0) if affine and bias else None

    def __call__(self, x: Tensor) -> Tensor:
        axes = _last(x, self.shape)
        return normalization.layer_norm(x, axes, self.weight, self.bias, self.epsilon)[0]


class RMSNorm(Module):
    """x by the root of its mean square over its last axes, scaled.

    epsilon: None for that of float32, 2^-23.
    """

    def __init__(
        self, shape: int | Sequence[int], epsilon: float | None = None, affine: bool = True
    ) -> None:
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.epsilon = 2.0**-23 if epsilon is None else epsilon
        self.weight = _full("weight", self.shape, 1) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        return normalization.rms_norm(x, _last(x, self.shape), self.weight, self.epsilon)


def _last(x: Tensor, shape: tuple[int, ...]) -> range:
    if not shape or x.shape[-len(shape) :] != shape:
        raise ValueError(f"a normalization over {list(shape)} of {list(x.shape)}")
    return range(x.ndim - len(shape), x.ndim)


class GroupNorm(Module):
    """x [N, C, *S] normalized by groups of channels, each channel scaled and shifted."""

    def __init__(
        self, groups: int, channels: int, epsilon: float = 1e-5, affine: bool = True
    ) -> None:
        if groups < 1 or channels % groups:
            raise ValueError(f"{channels} channels in {groups} groups")
        self.groups, self.epsilon = groups, epsilon
        self.weight = _full("weight", (channels,), 1) if affine else None
        self.bias = _full("bias", (channels,), 0) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        channels = channels_of(x)
        if channels % self.groups or (self.weight is not None and self.weight.shape != (channels,)):
            raise ValueError(f"GroupNorm of {list(x.shape)}, {self.groups} groups")
        if self.weight is None or self.bias is None:
            return normalization.grouped(x, self.groups, self.epsilon).reshape(x.shape)
        return normalization.group_norm(x, self.groups, self.weight, self.bias, self.epsilon)


class InstanceNorm(Module):
    """x [N, C, *S] normalized over its spatial axes; affine: scaled and shifted."""

    def __init__(self, channels: int, epsilon: float = 1e-5, affine: bool = False) -> None:
        self.channels, self.epsilon = channels, epsilon
        self.weight = _full("weight", (channels,), 1) if affine else None
        self.bias = _full("bias", (channels,), 0) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        if channels_of(x) != self.channels or x.ndim < 3:
            raise ValueError(f"InstanceNorm of {list(x.shape)}, {self.channels} channels")
        if self.weight is None or self.bias is None:
            difference, _, inverse = normalization.centered(x, range(2, x.ndim), self.epsilon)
            return difference * inverse
        return normalization.instance_norm(x, self.weight, self.bias, self.epsilon)
