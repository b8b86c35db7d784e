"""Normalizations."""

from __future__ import annotations

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.uop import UOp
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.folding import fuse_into_weights
from tinyedge.export.onnx.reader import DTYPES
from tinyedge.export.onnx.registry import Node, operator


@operator("BatchNormalization", limits="inference only")
def batch_normalization(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    """A scale and a shift per channel, computed at import; folded into the weights if it can be."""
    if node.integer("training_mode", 0):
        raise node.unsupported("training_mode is 1", supported="inference")
    if node.opset < 7 and not node.integer("is_test", 0):
        raise node.unsupported("is_test is 0", supported="inference")
    if not node.integer("spatial", 1):
        raise node.unsupported("spatial is 0", supported="one scale a channel")
    epsilon = node.number("epsilon", 1e-5)
    known = [node.known(t) for t in (scale, bias, mean, variance)]
    shape = (-1,) + (1,) * (x.ndim - 2) if x.ndim > 1 else (-1,)
    if all(value is not None and value.ndim == 1 for value in known):
        s, b, m, v = (value.astype(np.float64) for value in known)
        factor = s / np.sqrt(v + epsilon)
        shift = b - m * factor
        fused = fuse_into_weights(node, x, node.inputs[0], factor, shift)
        if fused is not None:
            return fused
        kind = x.dtype.numpy
        return x * node.constant(factor.astype(kind).reshape(shape)) + node.constant(
            shift.astype(kind).reshape(shape)
        )
    s_, b_, m_, v_ = (t.reshape(shape).cast(x.dtype) for t in (scale, bias, mean, variance))
    return (x - m_) * (s_ / (v_ + epsilon).sqrt()) + b_


def centered(x: Tensor, axes: tuple[int, ...], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """x - mean, mean, 1 / sqrt(variance + epsilon); the variance is that of centered values."""
    mean = x.mean(axes, keepdims=True)
    difference = x - mean
    variance = (difference * difference).mean(axes, keepdims=True)
    return difference, mean, 1.0 / (variance + epsilon).sqrt()


def _stashed(node: Node, x: Tensor) -> tuple[Tensor, DType]:
    """x in the type of `stash_type`, unless it has as many bits itself; and that type."""
    stash = DTYPES.get(node.integer("stash_type", 1), dt.float32)
    return (x.cast(stash) if stash.bits > x.dtype.bits else x), stash


@operator("LayerNormalization", since=17)
def layer_normalization(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> list[Tensor]:
    axis = node.axis(-1, x.ndim)
    wide, stash = _stashed(node, x)
    difference, mean, inverse = centered(
        wide, tuple(range(axis, x.ndim)), node.number("epsilon", 1e-5)
    )
    result = (difference * inverse).cast(x.dtype) * scale
    shifted = result if bias is None else result + bias
    return [shifted, mean.cast(stash), inverse.cast(stash)]


@operator("RMSNormalization")
def rms_normalization(node: Node, x: Tensor, scale: Tensor) -> Tensor:
    axis = node.axis(-1, x.ndim)
    wide, _ = _stashed(node, x)
    mean = (wide * wide).mean(tuple(range(axis, x.ndim)), keepdims=True)
    return (wide / (mean + node.number("epsilon", 1e-5)).sqrt()).cast(scale.dtype) * scale


@operator("InstanceNormalization")
def instance_normalization(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    difference, _, inverse = centered(x, tuple(range(2, x.ndim)), node.number("epsilon", 1e-5))
    shape = (-1,) + (1,) * (x.ndim - 2)
    return difference * (inverse * scale.reshape(shape)) + bias.reshape(shape)


@operator("GroupNormalization")
def group_normalization(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    groups = node.integer("num_groups", 0)
    channels = x.shape[1]
    if groups > 0 and isinstance(channels, UOp):
        raise node.unsupported(
            f"it has {show(channels)} channels",
            supported="a fixed number of channels",
            next=node.remedy(channels),
        )
    if groups < 1 or not isinstance(channels, int) or channels % groups:
        raise node.invalid(f"{show(channels)} channels in {groups} groups")
    wide, _ = _stashed(node, x)
    grouped = wide.reshape((x.shape[0], groups, channels // groups, *x.shape[2:]))
    difference, _, inverse = centered(
        grouped, tuple(range(2, grouped.ndim)), node.number("epsilon", 1e-5)
    )
    normal = difference * inverse
    tail = (1,) * (x.ndim - 2)
    if node.opset < 21:  # one scale a group
        factor, shift = (t.cast(wide.dtype).reshape((1, groups, 1, *tail)) for t in (scale, bias))
        return (normal * factor + shift).reshape(x.shape).cast(x.dtype)
    flat = normal.reshape(x.shape).cast(x.dtype)
    return flat * scale.reshape((-1, *tail)) + bias.reshape((-1, *tail))


@operator("MeanVarianceNormalization")
def mean_variance_normalization(node: Node, x: Tensor) -> Tensor:
    axes = node.integer_list("axes")
    chosen = tuple(node.wrap(axis, x.ndim) for axis in ([0, 2, 3] if axes is None else axes))
    difference = x - x.mean(chosen, keepdims=True)
    deviation = (difference * difference).mean(chosen, keepdims=True).sqrt()
    return difference / (deviation + 1e-9)


@operator("LpNormalization")
def lp_normalization(node: Node, x: Tensor) -> Tensor:
    """x / norm; 0 where the norm is 0."""
    axis, p = node.axis(-1, x.ndim), node.integer("p", 2)
    if p not in (1, 2):
        raise node.invalid(f"p is {p}")
    norm = x.norm(axis, keepdims=True, exponent=float(p))
    zero = norm.eq(0.0)
    return zero.where(0.0, x / zero.where(1.0, norm))


@operator("LRN")
def local_response_normalization(node: Node, x: Tensor) -> Tensor:
    size = node.integer("size", 0)
    if size < 1 or x.ndim < 2:
        raise node.invalid(f"size {size} over {x.ndim} axes")
    alpha, beta = node.number("alpha", 1e-4), node.number("beta", 0.75)
    farthest = max(0, maximum(x.shape[1]) - 1)
    before, after = min((size - 1) // 2, farthest), min(size // 2, farthest)
    pads = [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)]
    squares = (x * x).pad(pads).window(1, before + 1 + after).sum(-1)
    return x / (squares * (alpha / size) + node.number("bias", 1.0)) ** beta
