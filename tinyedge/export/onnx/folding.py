"""Constant scales and shifts, multiplied into the constant weights of the operator before them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyedge.core.tensor import Tensor

if TYPE_CHECKING:
    from tinyedge.export.onnx.registry import Node


@dataclass(frozen=True)
class Affine:
    """How a result was made: make(weight, bias), linear in both, with one weight slice per channel.

    channel: the channel axis of the result (nonnegative). filters: the channel axis of the weight.
    scale, shift: applied to the original weight and bias, per channel, in double precision.
    """

    make: Callable[[Any, Any], Tensor]
    weight: Any
    bias: Any
    filters: int
    channel: int
    scale: Any
    shift: Any

    def tensor(self) -> Tensor:
        """The result with scale and shift in its weights, rounded once."""
        kind = self.weight.dtype
        shape = [1] * self.weight.ndim
        shape[self.filters] = -1
        weight = (self.weight.astype(np.float64) * self.scale.reshape(shape)).astype(kind)
        bias = self.bias * self.scale + self.shift
        return self.make(weight, bias.astype(kind))


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
    node.importer.affine[result.node] = Affine(make, weight, start, filters, channel, ones, zeros)
    return result


def absorb(node: Node, x: Tensor, name: str, scale: Any, shift: Any) -> Tensor | None:
    """x * scale + shift by changed weights, where known weights made x and only this node uses it.

    scale, shift: one value a channel, in double precision. name: the ONNX name of x.
    """
    importer = node.importer
    affine = importer.affine.get(x.node)
    if affine is None or importer.uses[name] != 1:
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
    importer.affine[result.node] = changed
    importer.merged += 1
    before = importer.names.pop(x.node, None)
    if before is not None:
        importer.names[result.node] = f"{before}+{node.name}"
    return result


def per_channel(node: Node, x: Tensor, constant: Tensor) -> Any:
    """A constant operand as one value a channel of x (or one for all), in double, if it is that."""
    affine = node.importer.affine.get(x.node)
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
