"""Pooling over sliding windows, and over everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.operators.convolution import check_windows, pads_of, spatial_attribute
from tinyedge.export.onnx.registry import Node, operator


@dataclass(frozen=True)
class Windows:
    """Windows over the spatial axes."""

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[tuple[Size, Size]]
    tail: Sequence[Size]  # what ceil_mode adds after the padding

    def over(self, x: Tensor, value: Any, tail_value: Any = None) -> Tensor:
        """x [N, C, *S] as [N, C, *O, *K]; `value` fills the padding."""
        lead = [(0, 0)] * 2
        if tail_value is None or tail_value == value:
            both = [(lo, hi + t) for (lo, hi), t in zip(self.pads, self.tail, strict=True)]
            x = x.pad([*lead, *both], value)
        else:
            x = x.pad([*lead, *self.pads], value)
            x = x.pad([*lead, *((0, t) for t in self.tail)], tail_value)
        for axis, k in enumerate(self.kernel):
            x = x.window(2 + axis, k, self.strides[axis], self.dilations[axis])
        return x

    @property
    def axes(self) -> tuple[int, ...]:
        """The window axes of the result of `over`."""
        first = 2 + len(self.kernel)
        return tuple(range(first, first + len(self.kernel)))


def windows_of(node: Node, x: Tensor) -> Windows:
    """The windows of a pooling node."""
    spatial = x.ndim - 2
    kernel = node.integer_list("kernel_shape")
    if kernel is None or len(kernel) != spatial or any(k < 1 for k in kernel):
        raise node.invalid(f"kernel_shape is {kernel} for {spatial} spatial axes")
    strides = spatial_attribute(node, "strides", spatial, 1)
    dilations = spatial_attribute(node, "dilations", spatial, 1)
    sizes = x.shape[2:]
    pads = pads_of(node, sizes, kernel, strides, dilations)
    tail: list[Size] = [0] * spatial
    if node.integer("ceil_mode", 0):
        for axis in range(spatial):
            span = (kernel[axis] - 1) * dilations[axis] + 1
            tail[axis] = _tail(sizes[axis], pads[axis], span, strides[axis])
    padded = [size + lo + hi + more for size, (lo, hi), more in zip(sizes, pads, tail, strict=True)]
    check_windows(node, padded, kernel, dilations)
    return Windows(kernel, strides, dilations, pads, tail)


def _tail(size: Size, pads: tuple[Size, Size], span: int, stride: int) -> Size:
    """Room for a last partial window, unless it would begin after data and leading padding.

    Of an open size it may be less than 0: padding in which no window ends.
    """
    padded = size + pads[0] + pads[1]
    last = ix.ceildiv(padded - span, stride)
    begins = (size + pads[0] - 1) // stride
    start = ix.minimum(last, begins) * stride
    more = start + span - padded
    return max(0, more) if isinstance(more, int) else more


@operator("MaxPool")
def max_pool(node: Node, x: Tensor) -> list[Tensor]:
    windows = windows_of(node, x)
    lowest = -np.inf if x.dtype.is_float else x.dtype.limits[0]
    spread = windows.over(x, lowest)
    values = spread.max(windows.axes)
    if len(node.outputs) < 2:
        return [values]
    return [values, _max_indices(node, x, windows, values, spread)]


def _max_indices(node: Node, x: Tensor, windows: Windows, values: Tensor, spread: Tensor) -> Tensor:
    """For every window the place of its greatest element (the first) in the flat input."""
    order = list(range(x.ndim))
    if node.integer("storage_order", 0):
        order = [0, 1, *reversed(order[2:])]
    numbers = Tensor.arange(x.size).reshape([x.shape[axis] for axis in order])
    places = numbers.permute([order.index(axis) for axis in range(x.ndim)])
    far = dt.int32.limits[1]
    inside = windows.over(Tensor.full(x.shape, True, dt.bool_), False)
    at = windows.over(places, 0)
    hit = spread.eq(values.reshape(values.shape + (1,) * len(windows.axes))) & inside
    return hit.where(at, far).min(windows.axes).cast(dt.int64)


@operator("AveragePool")
def average_pool(node: Node, x: Tensor) -> Tensor:
    windows = windows_of(node, x)
    total = windows.over(x, 0).sum(windows.axes)
    everything = all(t == 0 for t in windows.tail) and (
        bool(node.integer("count_include_pad", 0)) or all(p == (0, 0) for p in windows.pads)
    )
    if everything:
        return total / float(np.prod(windows.kernel))
    counted = 1.0 if node.integer("count_include_pad", 0) else 0.0
    ones = Tensor.full((1, 1, *x.shape[2:]), 1.0, x.dtype)
    count = windows.over(ones, counted, 0.0).sum(windows.axes)
    return total / node.folded(count)


@operator("LpPool")
def lp_pool(node: Node, x: Tensor) -> Tensor:
    exponent = float(node.integer("p", 2))
    windows = windows_of(node, x)
    return windows.over(x, 0).norm(windows.axes, exponent=exponent)


def _global_axes(node: Node, x: Tensor) -> tuple[int, ...]:
    if x.ndim < 3:
        raise node.invalid(f"its input has {x.ndim} axes")
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool")
def global_average_pool(node: Node, x: Tensor) -> Tensor:
    return x.mean(_global_axes(node, x), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(node: Node, x: Tensor) -> Tensor:
    return x.max(_global_axes(node, x), keepdims=True)


@operator("GlobalLpPool")
def global_lp_pool(node: Node, x: Tensor) -> Tensor:
    exponent = float(node.integer("p", 2))
    return x.norm(_global_axes(node, x), keepdims=True, exponent=exponent)
