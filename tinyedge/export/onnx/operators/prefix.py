"""Sums and products of everything up to an element, by blocks."""

from __future__ import annotations

from collections.abc import Callable

from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.tensor.tensor import Tensor

BLOCK = 32  # elements that are summed one by one

Combine = Callable[[Tensor, Tensor], Tensor]
Fold = Callable[[Tensor, int], Tensor]


def cumulative_sum(x: Tensor, axis: int, *, exclusive: bool = False) -> Tensor:
    """out[i] = x[0] + ... + x[i] along an axis; exclusive: without x[i] itself.

    Halves are summed as float32. A sum has at most BLOCK terms a level, of log(size) / log(BLOCK)
    levels: floats are rounded that often, not `size` times.
    """
    return _along(x, axis, exclusive, Tensor.__add__, Tensor.sum, 0)


def cumulative_product(x: Tensor, axis: int, *, exclusive: bool = False) -> Tensor:
    """As `cumulative_sum`, multiplied."""
    return _along(x, axis, exclusive, Tensor.__mul__, Tensor.prod, 1)


def _along(
    x: Tensor, axis: int, exclusive: bool, combine: Combine, fold: Fold, neutral: int
) -> Tensor:
    dtype = x.dtype
    if maximum(x.shape[axis]) == 0:
        return x
    last = x.cast(dtype.computed).transpose(axis, -1)
    if exclusive:
        last = _shifted(last, neutral)
    return _inclusive(last, combine, fold, neutral).transpose(axis, -1).cast(dtype)


def _shifted(x: Tensor, neutral: int) -> Tensor:
    """The elements of the last axis one place later, after a neutral one."""
    return x.pad([*((0, 0),) * (x.ndim - 1), (1, -1)], neutral)


def _inclusive(x: Tensor, combine: Combine, fold: Fold, neutral: int) -> Tensor:
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
