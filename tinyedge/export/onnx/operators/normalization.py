"""Normalizations."""

from __future__ import annotations

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir.uop import UOp
from tinyedge.core.tensor.normalization import (
    batch_norm,
    group_norm,
    grouped,
    instance_norm,
    layer_norm,
    local_response_norm,
    moments,
    normalized,
    rms_norm,
)
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.folding import fuse_into_weights
from tinyedge.export.onnx.reader import DTYPES
from tinyedge.export.onnx.registry import Node, operator


@operator("BatchNormalization", limits="before opset 14 inference only")
def batch_normalization(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> Tensor | list[Tensor]:
    """A scale and a shift per channel, computed at import; folded into the weights if it can be."""
    if node.integer("training_mode", 0):
        return _of_the_batch(node, x, scale, bias, mean, variance)
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
    return batch_norm(x, mean, variance, scale, bias, epsilon)


def _of_the_batch(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> list[Tensor]:
    """Normalized by the mean and the variance of the batch; then running ones with part of these.

    Statistics are computed in float32 at least.
    """
    wide = x.cast(dt.float32) if x.dtype.bits < 32 else x
    now, spread = moments(wide)
    result = batch_norm(wide, now, spread, scale, bias, node.number("epsilon", 1e-5))
    share = node.number("momentum", 0.9)

    def running(before: Tensor, after: Tensor) -> Tensor:
        return (before.cast(wide.dtype) * share + after * (1.0 - share)).cast(before.dtype)

    return [result.cast(x.dtype), running(mean, now), running(variance, spread)]


def _stashed(node: Node, x: Tensor) -> tuple[DType, DType]:
    """The type that means are computed in: `stash_type`, unless x has as many bits; and that."""
    stash = DTYPES.get(node.integer("stash_type", 1), dt.float32)
    return (stash if stash.bits > x.dtype.bits else x.dtype), stash


@operator("LayerNormalization", since=17)
def layer_normalization(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> list[Tensor]:
    axis = node.axis(-1, x.ndim)
    wide, stash = _stashed(node, x)
    result, mean, inverse = layer_norm(
        x, range(axis, x.ndim), scale, bias, node.number("epsilon", 1e-5), wide
    )
    return [result, mean.cast(stash), inverse.cast(stash)]


@operator("RMSNormalization")
def rms_normalization(node: Node, x: Tensor, scale: Tensor) -> Tensor:
    axis = node.axis(-1, x.ndim)
    wide, _ = _stashed(node, x)
    return rms_norm(x, range(axis, x.ndim), scale, node.number("epsilon", 1e-5), wide)


@operator("InstanceNormalization")
def instance_normalization(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return instance_norm(x, scale, bias, node.number("epsilon", 1e-5))


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
    epsilon = node.number("epsilon", 1e-5)
    if node.opset < 21:  # one scale a group
        shape = (1, groups, 1, *(1,) * (x.ndim - 2))
        factor, shift = (t.cast(wide).reshape(shape) for t in (scale, bias))
        normal = grouped(x.cast(wide), groups, epsilon)
        return (normal * factor + shift).reshape(x.shape).cast(x.dtype)
    return group_norm(x, groups, scale, bias, epsilon, wide)


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
    return normalized(x, axis, float(p))


@operator("LRN")
def local_response_normalization(node: Node, x: Tensor) -> Tensor:
    size = node.integer("size", 0)
    if size < 1 or x.ndim < 2:
        raise node.invalid(f"size {size} over {x.ndim} axes")
    alpha, beta = node.number("alpha", 1e-4), node.number("beta", 0.75)
    return local_response_norm(x, size, alpha, beta, node.number("bias", 1.0))
