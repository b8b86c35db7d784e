"""Windows put together again, the transpose of `window`: where they overlap they are added."""

from __future__ import annotations

from typing import TypeVar

from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.reductions import Reductions

T = TypeVar("T", bound=Reductions)


def overlapped(x: T, axis: int, stride: int, dilation: int, length: Size) -> T:
    """Windows [.., i, .., j], of which j are the elements, as [.., p, ..]: at p below `length` the
    sum of those for which i * stride + j * dilation = p.

    With j = t * stride + r, p = (i + t * dilation) * stride + r where one of both is 1: for each
    phase r of the stride, what overlaps is summed along a diagonal of i and t. Else one tap after
    the other is added. No element is multiplied.
    """
    last = x.ndim - 1
    if stride > 1 and dilation > 1:
        return _sum_of_taps(x, axis, stride, dilation, length)
    taps = -(-fixed(x.shape[last]) // stride)
    x = resized(x, last, taps * stride).reshape((*x.shape[:-1], taps, stride))
    sums = _diagonal_sums(x.transpose(), axis, dilation)  # [.., q, .., r]
    order = [*range(axis + 1), last, *range(axis + 1, last)]
    return resized(sums.permute(order).flatten(axis, axis + 2), axis, length)


def _sum_of_taps(x: T, axis: int, stride: int, dilation: int, length: Size) -> T:
    """The same for strides and dilations that have no phases in common: a tap after the other."""
    total: T | None = None
    for tap in range(fixed(x.shape[-1])):
        placed = spread(x[..., tap], axis, stride)
        before = [(tap * dilation if other == axis else 0, 0) for other in range(placed.ndim)]
        placed = resized(placed.pad(before), axis, length)
        total = placed if total is None else total + placed
    assert total is not None
    return total


def _diagonal_sums(x: T, axis: int, dilation: int) -> T:
    """x [.., i, .., t] to [.., q, ..], the sum over i + t * dilation = q."""
    taps = fixed(x.shape[-1])
    reach = (taps - 1) * dilation
    if taps == 1:
        return x.reshape(x.shape[:-1])
    pads = [(reach, reach) if other == axis else (0, 0) for other in range(x.ndim)]
    windows = x.flip(x.ndim - 1).pad(pads).window(axis, taps, 1, dilation)
    # windows [.., q, .., t, u], wanted where t = u
    last = windows.ndim - 1
    flat = windows.reshape((*windows.shape[:-2], taps * taps))
    square = resized(flat, last - 1, taps * taps + taps)
    square = square.reshape((*windows.shape[:-2], taps, taps + 1))
    first = square.shrink([*((0, size) for size in square.shape[:-1]), (0, 1)])
    return first.sum((last - 1, last))


def spread(x: T, axis: int, step: int) -> T:
    """The elements along an axis `step` apart, zeros between them."""
    if step == 1:
        return x
    count = x.shape[axis]
    wide = resized(x.unsqueeze(axis + 1), axis + 1, step).flatten(axis, axis + 2)
    return resized(wide, axis, (count - 1) * step + 1)


def resized(x: T, axis: int, length: Size) -> T:
    """Cut or continued by zeros to a length along an axis."""
    more = length - x.shape[axis]
    return x.pad([(0, more) if other == axis else (0, 0) for other in range(x.ndim)])
