"""Reductions: sums, extremes and what is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyedge.core import dtype as dt
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.ops import Primitive
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import UOp
from tinyedge.core.tensor.base import Axes, Scalar, axes_of, computed
from tinyedge.core.tensor.memory import Memory

if TYPE_CHECKING:
    from typing_extensions import Self

MANY_TERMS = 32768  # of a float sum: beyond it they are summed by blocks
BLOCKS = (256, 4096)  # terms of a block
WHOLE = 32  # of which a block's terms are a multiple, if they can be: threads read vectors of them


class Reductions(Memory):
    """Operations over axes: an int, several, or None for all. keepdims: they stay, of size 1."""

    __slots__ = ()

    @computed
    def _reduce(self, op: Primitive, axes: Axes, keepdims: bool) -> Self:
        chosen = tuple(sorted(set(axes_of(axes, self.ndim))))
        kept = tuple(1 if a in chosen else size for a, size in enumerate(self.shape))
        if not chosen:
            return self
        result = type(self)(UOp(ops.REDUCE, self.dtype, (self.node,), args.Reduce(op, chosen)))
        return result.reshape(kept) if keepdims else result

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Self:
        return self._reduce(ops.ADD, axis, keepdims)

    @computed
    def blocked_sum(self, axis: Axes = None, keepdims: bool = False) -> Self:
        """As `sum`; but so many floats are summed by blocks that rounding errors stay small."""
        blocks = self.in_blocks(axis) if self.dtype.is_float else None
        if blocks is None:
            return self.sum(axis, keepdims)
        result = blocks.sum(-1).in_memory().blocked_sum(-1)
        chosen = axes_of(axis, self.ndim)
        kept = [1 if axis in chosen else length for axis, length in enumerate(self.shape)]
        return result.reshape(kept) if keepdims else result

    def in_blocks(self, axis: Axes = None, value: Scalar = 0) -> Self | None:
        """What a sum over the axes has in each of its blocks, [..., blocks, terms], `value` behind
        the last; None where it has so few terms that it is not by blocks.
        """
        chosen = sorted(set(axes_of(axis, self.ndim)))
        count = product(self.shape[axis] for axis in chosen)
        if not isinstance(count, int) or count <= MANY_TERMS:
            return None
        left = [axis for axis in range(self.ndim) if axis not in chosen]
        lines = self.permute([*left, *chosen]).flatten(len(left))
        sizes = [size for size in range(BLOCKS[1], BLOCKS[0] - 1, -1) if count % size == 0]
        whole = [size for size in sizes if size % WHOLE == 0]
        size = min(whole or sizes or BLOCKS[:1], key=lambda size: abs(size * size - count))
        padded = lines.pad([*((0, 0) for _ in left), (0, -count % size)], value)
        return padded.reshape((*lines.shape[:-1], -(-count // size), size))

    def prod(self, axis: Axes = None, keepdims: bool = False) -> Self:
        return self._reduce(ops.MUL, axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Self:
        if self.dtype is dt.bool_:
            return self.cast(dt.int32).max(axis, keepdims) > 0  # of nothing it is False
        return self._reduce(ops.MAX, axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Self:
        if self.dtype is dt.bool_:
            return self.cast(dt.int32).min(axis, keepdims).cast(dt.bool_)
        return self._reduce(ops.MIN, axis, keepdims)

    @computed
    def mean(self, axis: Axes = None, keepdims: bool = False) -> Self:
        count = product(self.shape[axis] for axis in set(axes_of(axis, self.ndim)))
        total = self.blocked_sum(axis, keepdims)
        return total / self.from_size(count, self.dtype)

    @computed
    def norm(self, axis: Axes = None, keepdims: bool = False, exponent: float = 2.0) -> Self:
        """sum(|x|^p)^(1/p) of floats, scaled by the greatest |x|, so that no power overflows."""
        if axis is not None and not axes_of(axis, self.ndim):
            return self.abs()
        size = self.abs()
        if exponent == 1.0:
            return size.blocked_sum(axis, keepdims)
        most = size.max(axis, keepdims=True)
        scale = (most.eq(0) | most.isinf()).where(1.0, most)
        total = ((size / scale) ** exponent).blocked_sum(axis, keepdims=True)
        result = (total.sqrt() if exponent == 2.0 else total ** (1.0 / exponent)) * scale
        return result if keepdims else result.squeeze(axes_of(axis, self.ndim))

    def argmax(self, axis: int | None = None, keepdims: bool = False, last: bool = False) -> Self:
        """int32 index of the greatest element, the first (or last) among equals; None: in the flat
        tensor.
        """
        if axis is None:
            return self.flatten().argmax(0, keepdims, last)
        axis = axes_of(axis, self.ndim)[0]
        length = self.shape[axis]
        hit = self.eq(self.max(axis, keepdims=True)) | self.isnan()
        along = [-1 if a == axis else 1 for a in range(self.ndim)]
        place = self.arange(length).reshape(along)
        if last:
            return hit.where(place, -1).max(axis, keepdims)
        beyond = self.from_size(length, dt.int32)
        return hit.where(place, beyond).min(axis, keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False, last: bool = False) -> Self:
        """int32 index of the least element, the first (or last) among equals."""
        return (-self if self.dtype.is_float else ~self).argmax(axis, keepdims, last)
