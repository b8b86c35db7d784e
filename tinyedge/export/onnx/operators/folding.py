"""Constant scales and shifts, multiplied into the constant weights of the operator before them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.affine import Affine
from tinyedge.export.onnx.registry import Node


def remember(
    node: Node,
    result: Tensor,
    make: Callable[[Any, Any], Tensor],
    weight: Any,
    bias: Any,
    *,
    filters: int,
    channel: int,
) -> Tensor:
    """Note that a result is linear in known weights: what follows can be folded into them."""
    channels = weight.shape[filters]
    start = np.zeros(channels) if bias is None else bias.astype(np.float64).reshape(channels)
    ones, zeros = np.ones(channels), np.zeros(channels)
    node.context.affine[result.node] = Affine(make, weight, start, filters, channel, ones, zeros)
    return result


def fuse_into_weights(node: Node, x: Tensor, name: str, scale: Any, shift: Any) -> Tensor | None:
    """x * scale + shift by changed weights, where known weights made x and only this node uses it.

    scale, shift: one value a channel, in double precision. name: the ONNX name of x.
    """
    context = node.context
    affine = context.affine.get(x.node)
    if affine is None or context.uses[name] != 1:
        return None
    channels = affine.weight.shape[affine.filters]
    if not np.all(np.isfinite(scale)) or not np.all(np.isfinite(shift)):
        return None
    changed = replace(
        affine,
        scale=affine.scale * np.broadcast_to(scale, channels),
        shift=affine.shift * scale + np.broadcast_to(shift, channels),
    )
    result = changed.tensor()
    context.affine[result.node] = changed
    context.merged += 1
    before = context.names.pop(x.node, None)
    if before is not None:
        context.names[result.node] = f"{before}+{node.name}"
    return result


def per_channel(node: Node, x: Tensor, constant: Tensor) -> Any:
    """A constant operand as one value a channel of x (or one for all), in double, if it is that."""
    affine = node.context.affine.get(x.node)
    if affine is None:
        return None
    value = node.known(constant)
    if value is None or value.ndim > x.ndim:
        return None
    shape = (1,) * (x.ndim - value.ndim) + value.shape
    channels = affine.weight.shape[affine.filters]
    for axis, size in enumerate(shape):
        if size != 1 and (axis != affine.channel or size != channels):
            return None
    return value.astype(np.float64).reshape(-1)
