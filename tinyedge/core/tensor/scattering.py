"""Updates that go where integers of their own say, combined with what is there."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.ops import Primitive
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.base import axes_of, given, places
from tinyedge.core.tensor.reductions import Reductions

T = TypeVar("T", bound=Reductions)

REDUCTIONS = {"sum": ops.ADD, "mean": ops.ADD, "prod": ops.MUL, "amax": ops.MAX, "amin": ops.MIN}


def scatter_elements(x: T, axis: int, indices: T, updates: T, combine: Primitive | None) -> T:
    """A copy of x in which element [i, .., indices[i, .., k], ..] gets updates[i, .., k, ..], one
    after the other; see `scatter`. Indices have the updates' shape: that of x or, but for the axis,
    less.

    Only updates in the same line along the axis can meet an element: lines do not wait for each
    other.
    """
    moved = [a for a in range(x.ndim) if a != axis] + [axis]
    data, index, update = (t.permute(moved) for t in (x, indices, updates))
    lines: list[tuple[Size, Size]] = [(0, size) for size in index.shape[:-1]]
    region = [*lines, (0, data.shape[-1])]
    result = data.shrink(region).scatter(-1, index, update, combine)
    if result.shape != data.shape:
        result = data.assign(region, result)
    return result.permute(np.argsort(moved).tolist())


def scatter_reduce(x: T, dim: int, index: T, src: T, reduce: str, include_self: bool) -> T:
    """See `Tensor.scatter_reduce`."""
    axis = axes_of(dim, x.ndim)[0]
    index = places(type(x), index, "scatter_reduce")
    src = given(type(x), src, "scatter_reduce")
    if reduce not in REDUCTIONS:
        raise ValueError(f"scatter_reduce by {reduce!r}: it is one of {sorted(REDUCTIONS)}")
    if src.dtype is not x.dtype:
        raise TypeError(f"scatter_reduce of {src.dtype} into {x.dtype}: cast one of them")
    shapes = f"src {list(src.shape)} at index {list(index.shape)} into {list(x.shape)}"
    if not x.ndim == index.ndim == src.ndim:
        raise ValueError(f"scatter_reduce of {shapes}: the axes must be as many")
    for other, sizes in enumerate(zip(index.shape, src.shape, x.shape, strict=True)):
        long, *rooms = sizes if other != axis else sizes[:2]
        if any(isinstance(n, int) and isinstance(long, int) and long > n for n in rooms):
            raise ValueError(f"scatter_reduce of {shapes}: the index is too large for axis {other}")
    if index.size == 0:
        return x
    src = src.shrink([(0, size) for size in index.shape])
    base = x
    if reduce == "mean" or not include_self:
        ones = x.full(index.shape, 1, dt.int32)
        count = scatter_elements(x.full(x.shape, 0, dt.int32), axis, index, ones, ops.ADD)
        if not include_self:
            base = (count > 0).where(_start(x, reduce), x)
    result = scatter_elements(base, axis, index, src, REDUCTIONS[reduce])
    if reduce != "mean":
        return result
    terms = (count + 1 if include_self else count.maximum(1)).cast(x.dtype)
    mean: T = result / terms if x.dtype.is_float else result // terms
    return mean


def _start(x: T, reduce: str) -> T:
    """What a reduction of no elements is."""
    if reduce in ("sum", "mean"):
        return x.full((), 0, x.dtype)
    if reduce == "prod":
        return x.full((), 1, x.dtype)
    if x.dtype is dt.bool_:
        return x.full((), reduce == "amin", x.dtype)
    if x.dtype.is_float:
        return x.full((), np.inf if reduce == "amin" else -np.inf, x.dtype)
    return x.full((), x.dtype.limits[reduce == "amin"], x.dtype)
