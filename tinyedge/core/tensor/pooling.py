"""Pooling over sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.base import Sizes, each
from tinyedge.core.tensor.reductions import Reductions

T = TypeVar("T", bound=Reductions)


@dataclass(frozen=True)
class Windows:
    """Windows over the spatial axes."""

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[tuple[Size, Size]]
    tail: Sequence[Size]  # what is added after the padding for partial windows

    def over(self, x: T, value: Any, tail_value: Any = None) -> T:
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


def tail(size: Size, pads: tuple[Size, Size], span: int, stride: int) -> Size:
    """Room for a last partial window, unless it would begin after data and leading padding.

    Of an open size it may be less than 0: padding in which no window ends.
    """
    padded = size + pads[0] + pads[1]
    last = ix.ceildiv(padded - span, stride)
    begins = (size + pads[0] - 1) // stride
    start = ix.minimum(last, begins) * stride
    more = start + span - padded
    return max(0, more) if isinstance(more, int) else more


def windows_of(
    x: T,
    kernel: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    *,
    ceil: bool = False,
) -> Windows:
    """The windows over the spatial axes of x [N, C, *S]. stride: None for the kernel's sizes; ceil:
    partial windows at the end count, too. Raises ValueError.
    """
    axes = x.ndim - 2
    if axes < 1:
        raise ValueError(f"a pool of {list(x.shape)}: it takes [N, C, *S]")
    taps = each(kernel, axes, "kernel")
    strides = taps if stride is None else each(stride, axes, "stride")
    dilations = each(dilation, axes, "dilation")
    margins = each(padding, axes, "padding")
    if any(2 * pad > size for pad, size in zip(margins, taps, strict=True)):
        raise ValueError(f"padding {margins} of windows of {taps}: at most half of them")
    pads = [(pad, pad) for pad in margins]
    spans = [(k - 1) * d + 1 for k, d in zip(taps, dilations, strict=True)]
    tails = [
        tail(size, pad, span, step) if ceil else 0
        for size, pad, span, step in zip(x.shape[2:], pads, spans, strides, strict=True)
    ]
    return Windows(taps, strides, dilations, pads, tails)


def spread(windows: Windows, x: T) -> T:
    """x in windows, [N, C, *O, *K], less than every number beside it."""
    return windows.over(x, -np.inf if x.dtype.is_float else x.dtype.limits[0])


def max_pool(windows: Windows, x: T) -> T:
    """The greatest element of each window of x [N, C, *S]: [N, C, *O]."""
    return spread(windows, x).max(windows.axes)


def max_places(windows: Windows, x: T, order: Sequence[int] | None = None) -> T:
    """For every window the place of its greatest element (the first) in the flat input, int32.

    order: of the axes of x in which places are counted.
    """
    order = range(x.ndim) if order is None else order
    values = max_pool(windows, x)
    numbers = x.arange(x.size).reshape([x.shape[axis] for axis in order])
    places = numbers.permute([order.index(axis) for axis in range(x.ndim)])
    inside = windows.over(x.full(x.shape, True, dt.bool_), False)
    at = windows.over(places, 0)
    hit = spread(windows, x).eq(values.reshape(values.shape + (1,) * len(windows.axes))) & inside
    return hit.where(at, dt.int32.limits[1]).min(windows.axes)


def average_pool(windows: Windows, x: T, count: T | None = None) -> T:
    """The mean of each window of x [N, C, *S]. count: of `counts`; None: all elements count."""
    total = windows.over(x, 0).sum(windows.axes)
    return total / (float(np.prod(windows.kernel)) if count is None else count)


def counts(windows: Windows, x: T, *, pads: bool) -> T | None:
    """How many elements each window has; None if all have the same. pads: with the padding, but
    not what is beyond.
    """
    if all(t == 0 for t in windows.tail) and (pads or all(p == (0, 0) for p in windows.pads)):
        return None
    ones = x.full((1, 1, *x.shape[2:]), 1.0, x.dtype)
    return windows.over(ones, 1.0 if pads else 0.0, 0.0).sum(windows.axes)
