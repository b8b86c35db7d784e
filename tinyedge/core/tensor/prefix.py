"""Sums, products and extremes of everything up to an element, by blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from tinyedge.core import dtype as dt
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.tensor import mathematics, nn
from tinyedge.core.tensor.reductions import Reductions

T = TypeVar("T", bound=Reductions)

BLOCK = 32  # elements that are summed one by one

Combine = Callable[[T, T], T]
Fold = Callable[[T, int], T]


def cumulative_sum(x: T, axis: int, *, exclusive: bool = False) -> T:
    """out[i] = x[0] + ... + x[i] along an axis; exclusive: without x[i] itself.

    Halves are summed as float32. A sum has at most BLOCK terms a level, of log(size) / log(BLOCK)
    levels: floats are rounded that often, not `size` times.
    """
    return _along(x, axis, exclusive, Reductions.__add__, Reductions.sum, 0)


def cumulative_product(x: T, axis: int, *, exclusive: bool = False) -> T:
    """As `cumulative_sum`, multiplied."""
    return _along(x, axis, exclusive, Reductions.__mul__, Reductions.prod, 1)


def cumulative_maximum(x: T, axis: int) -> tuple[T, T]:
    """The greatest of everything up to each element, and its place (int32; of equal ones the last).

    A NaN is greater than all.
    """
    least = False if x.dtype is dt.bool_ else x.dtype.limits[0] if x.dtype.is_int else -math.inf
    values = _along(x, axis, False, Reductions.maximum, Reductions.max, least)
    hit = x.eq(values) | (x.ne(x) & values.ne(values))
    places = x.arange(x.shape[axis]).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    found = hit.where(places.broadcast_to(x.shape), 0)
    return values, _along(found, axis, False, Reductions.maximum, Reductions.max, 0)


def cumulative_log_sum_exp(x: T, axis: int) -> T:
    """log(exp(x[0]) + ... + exp(x[i])) along an axis, without overflow."""
    return _along(x, axis, False, _logaddexp, nn.log_sum_exp, -math.inf)


def _logaddexp(x: T, y: T) -> T:
    most = x.maximum(y)
    near = most + mathematics.log1p((-(x - y).abs()).exp())
    return most.isinf().where(most, near)


def _along(
    x: T, axis: int, exclusive: bool, combine: Combine[T], fold: Fold[T], neutral: float
) -> T:
    dtype = x.dtype
    if maximum(x.shape[axis]) == 0:
        return x
    last = x.cast(dtype.computed).transpose(axis, -1)
    if exclusive:
        last = _shifted(last, neutral)
    return _inclusive(last, combine, fold, neutral).transpose(axis, -1).cast(dtype)


def _shifted(x: T, neutral: float) -> T:
    """The elements of the last axis one place later, after a neutral one."""
    return x.pad([*((0, 0),) * (x.ndim - 1), (1, -1)], neutral)


def _inclusive(x: T, combine: Combine[T], fold: Fold[T], neutral: float) -> T:
    """Along the last axis: within blocks, and the blocks before, which are cumulated likewise."""
    length = x.shape[-1]
    lead = ((0, 0),) * (x.ndim - 1)
    if maximum(length) <= 2 * BLOCK:
        windows = x.pad([*lead, (maximum(length) - 1, 0)], neutral).window(-1, maximum(length))
        return fold(windows, -1)
    count = ix.ceildiv(length, BLOCK)
    padded = count * BLOCK
    blocks = x.pad([*lead, (0, padded - length)], neutral)
    blocks = blocks.reshape((*x.shape[:-1], count, BLOCK))
    before = _inclusive(_shifted(fold(blocks, -1), neutral), combine, fold, neutral)
    within = fold(blocks.pad([*lead, (0, 0), (BLOCK - 1, 0)], neutral).window(-1, BLOCK), -1)
    whole = combine(within, before.unsqueeze(-1)).reshape((*x.shape[:-1], padded))
    return whole.shrink([*((0, size) for size in x.shape[:-1]), (0, length)])
