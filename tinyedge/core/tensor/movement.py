"""Movement: the same elements at other places. Nothing is computed; padding adds constants."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import minimum, product
from tinyedge.core.ir.uop import Size, UOp, elementwise
from tinyedge.core.tensor.base import (
    Axes,
    Lazy,
    Scalar,
    UnequalSizes,
    axes_of,
    fixed,
    pairs_of,
    sizes_of,
)

if TYPE_CHECKING:
    from typing_extensions import Self

Moved = TypeVar("Moved", bound="Movement")


class Movement(Lazy):
    """Views: reshaped, repeated, permuted, padded, cut."""

    __slots__ = ()

    def reshape(self, shape: Size | Sequence[Size], *more: Size) -> Self:
        """The same elements in row-major order; one size may be -1."""
        target = sizes_of(shape, more)
        if target == self.shape:
            return self
        unknown = [axis for axis, size in enumerate(target) if isinstance(size, int) and size < 0]
        if len(unknown) > 1 or any(target[axis] != -1 for axis in unknown):
            raise ValueError(f"reshape of {list(self.shape)} to {list(target)}: one size may be -1")
        if len(unknown) == 1:
            known = product(size for axis, size in enumerate(target) if axis != unknown[0])
            if known == 0:
                raise ValueError(f"reshape of {list(self.shape)} to {list(target)}: -1 beside a 0")
            rest = self.size // known
            if isinstance(rest, int) and isinstance(self.size, int) and self.size % fixed(known):
                raise ValueError(
                    f"reshape of {list(self.shape)} to {list(target)}: {self.size} elements are no "
                    f"multiple of {known}"
                )
            target = target[: unknown[0]] + (rest,) + target[unknown[0] + 1 :]
        if product(target) != self.size:
            message = f"reshape of {list(self.shape)} to {list(target)}: the counts differ"
            raise UnequalSizes(message, (self.size, product(target)))
        source = self.node
        while source.op is ops.RESHAPE:
            source = source.src[0]
        if source.shape == target:
            return type(self)(source)
        return type(self)(UOp(ops.RESHAPE, self.dtype, (source,), target))

    def expand(self, shape: Size | Sequence[Size], *more: Size) -> Self:
        """Axes of size 1 repeated to the given sizes; same number of axes."""
        target = sizes_of(shape, more)
        if target == self.shape:
            return self
        if len(target) != self.ndim:
            message = f"expand of {list(self.shape)} to {list(target)}: broadcast_to adds axes"
            raise ValueError(message)
        for have, want in zip(self.shape, target, strict=True):
            if have != want and have != 1:
                message = f"expand of {list(self.shape)} to {list(target)}"
                raise UnequalSizes(message, (have, want))
        return type(self)(UOp(ops.EXPAND, self.dtype, (self.node,), target))

    def broadcast_to(self, shape: Sequence[Size]) -> Self:
        """As numpy's: leading axes are added, then axes of size 1 repeat."""
        target = tuple(shape)
        if target == self.shape:
            return self
        lead = len(target) - self.ndim
        return self.reshape((1,) * lead + self.shape).expand(target)

    def permute(self, axes: int | Sequence[int], *more: int) -> Self:
        order = axes_of((axes, *more) if isinstance(axes, int) else axes, self.ndim)
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"permute of {self.ndim} axes by {list(order)}")
        if order == tuple(range(self.ndim)):
            return self
        return type(self)(UOp(ops.PERMUTE, self.dtype, (self.node,), order))

    def transpose(self, a: int = -1, b: int = -2) -> Self:
        """Two axes exchanged."""
        order = list(range(self.ndim))
        a, b = axes_of((a, b), self.ndim)
        order[a], order[b] = order[b], order[a]
        return self.permute(order)

    def pad(self, pads: Sequence[tuple[Size, Size]], value: Scalar = 0) -> Self:
        """Elements added before and after each axis; negative amounts remove them."""
        pads = pairs_of(pads, self.ndim, "pad")
        if any(isinstance(amount, UOp) and minimum(amount) < 0 for pair in pads for amount in pair):
            return self._fit(pads, value)
        if any(map(_may_remove_more, self.shape, pads)):
            return self._fit(pads, value)
        if any(_negative(amount) for pair in pads for amount in pair):
            pads = [_removing(size, *pair) for size, pair in zip(self.shape, pads, strict=True)]
            cut = [
                (-min(_known(lo), 0), size + min(_known(hi), 0))
                for (lo, hi), size in zip(pads, self.shape, strict=True)
            ]
            rest = [(0 if _negative(lo) else lo, 0 if _negative(hi) else hi) for lo, hi in pads]
            return self.shrink(cut).pad(rest, value)
        margins = tuple(args.Margin(lo, hi) for lo, hi in pads)
        if all(margin == args.Margin(0, 0) for margin in margins):
            return self
        padded = UOp(ops.PAD, self.dtype, (self.node,), margins)
        if 0 in self.shape:  # nothing is left of it
            return self.full(padded.shape, value, self.dtype)
        if value == 0 and not (isinstance(value, float) and math.copysign(1, value) < 0):
            return type(self)(padded)
        inside = self.full(self.shape, True, dt.bool_)
        mask = UOp(ops.PAD, dt.bool_, (inside.node,), margins)
        outside = self.full(padded.shape, value, self.dtype)
        return type(self)(elementwise(ops.WHERE, mask, padded, outside.node))

    def _fit(self, pads: Sequence[tuple[Size, Size]], value: Scalar) -> Self:
        """`pad` by amounts of which only the run knows whether they add or remove elements, or of
        more elements than there are: first what they add, then what they remove.
        """
        grown = [(ix.maximum(lo, 0), ix.maximum(hi, 0)) for lo, hi in pads]
        region: list[tuple[Size, Size]] = []
        for size, (lo, hi) in zip(self.shape, pads, strict=True):
            start = ix.maximum(-lo, 0)
            region.append((start, start + size + lo + hi))
        return self.pad(grown, value).shrink(region)

    def shrink(self, bounds: Sequence[tuple[Size, Size]]) -> Self:
        """Elements [start, end) of each axis. Raises ValueError for those that are not there."""
        pairs = tuple(pairs_of(bounds, self.ndim, "shrink"))
        for size, (start, end) in zip(self.shape, pairs, strict=True):
            beyond = isinstance(end, int) and isinstance(size, int) and end > size
            if beyond or _negative(start):
                raise ValueError(f"shrink of {list(self.shape)} to {list(pairs)}")
        if pairs == tuple((0, size) for size in self.shape):
            return self
        spans = tuple(args.Span(start, end) for start, end in pairs)
        return type(self)(UOp(ops.SHRINK, self.dtype, (self.node,), spans))

    def flip(self, axes: Axes) -> Self:
        chosen = tuple(sorted(axes_of(axes, self.ndim)))
        return type(self)(UOp(ops.FLIP, self.dtype, (self.node,), chosen)) if chosen else self

    def window(self, axis: int, size: int, stride: int = 1, dilation: int = 1) -> Self:
        """Sliding windows along an axis: out[.., i, .., j] = self[.., i*stride + j*dilation, ..].

        The axis shrinks to floor((n - (size-1)*dilation - 1) / stride) + 1; j is a new last axis.
        """
        (axis,) = axes_of(axis, self.ndim)
        if size < 1 or stride < 1 or dilation < 1:
            raise ValueError(
                f"a window of {size} by strides of {stride} and dilations of {dilation}: each is 1 "
                "or more"
            )
        span = (size - 1) * dilation + 1
        length = self.shape[axis]
        if isinstance(length, int) and length < span:
            raise ValueError(f"a window that spans {span} does not fit axis {axis} of {length}")
        arg = args.Window(axis, size, stride, dilation)
        return type(self)(UOp(ops.WINDOW, self.dtype, (self.node,), arg))

    def stride(self, axis: int, step: int) -> Self:
        """Every `step`-th element along an axis, from the first."""
        if step == 1:
            return self
        (axis,) = axes_of(axis, self.ndim)
        length = self.shape[axis]
        if isinstance(length, int) and length == 0:
            return self
        windows = self.window(axis, 1, step)
        return windows.reshape(windows.shape[:-1])

    def squeeze(self, axes: Axes = None) -> Self:
        """Without some axes of size 1; None: without all of them."""
        if axes is None:
            return self.reshape([size for size in self.shape if size != 1])
        drop = axes_of(axes, self.ndim)
        for axis in drop:
            if isinstance(self.shape[axis], int) and self.shape[axis] != 1:
                raise ValueError(
                    f"squeeze of axis {axis} of {list(self.shape)}: its size is "
                    f"{self.shape[axis]}, not 1"
                )
        return self.reshape([size for axis, size in enumerate(self.shape) if axis not in drop])

    def unsqueeze(self, axis: int) -> Self:
        at = operator.index(axis)
        if not -self.ndim - 1 <= at <= self.ndim:
            raise ValueError(
                f"unsqueeze at axis {at} of a tensor with {self.ndim} axes: it is from "
                f"{-self.ndim - 1} to {self.ndim}"
            )
        axis = at % (self.ndim + 1)
        return self.reshape(self.shape[:axis] + (1,) + self.shape[axis:])

    def flatten(self, start: int = 0, end: int | None = None) -> Self:
        """Axes [start, end) merged into one."""
        stop = self.ndim if end is None else end
        return self.reshape(
            self.shape[:start] + (product(self.shape[start:stop]),) + self.shape[stop:]
        )

    def __getitem__(self, key: Any) -> Self:
        """Basic indexing: ints, slices with any step, None and Ellipsis."""
        items = [_index(item) for item in (key if isinstance(key, tuple) else (key,))]
        if sum(item is not None and item is not Ellipsis for item in items) > self.ndim:
            raise IndexError(f"{len(items)} indices of {list(self.shape)}")
        dots = [number for number, item in enumerate(items) if item is Ellipsis]
        if len(dots) > 1:
            raise IndexError("an index has one ellipsis at most")
        if dots:
            at = dots[0]
            missing = self.ndim - sum(item is not None for item in items) + 1
            items[at : at + 1] = [slice(None)] * missing
        result = self
        axis = 0
        for item in items:
            if item is None:
                result = result.unsqueeze(axis)
                axis += 1
            elif isinstance(item, slice):
                result = result._slice(axis, item)
                axis += 1
            else:
                length = result.shape[axis]
                start = item if item >= 0 else length + item
                if isinstance(length, int) and not 0 <= fixed(start) < length:
                    raise IndexError(f"index {item} of an axis of {length}")
                cut = result._cut(axis, start, start + 1)
                result = cut.reshape(cut.shape[:axis] + cut.shape[axis + 1 :])
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(
            "a tensor never changes: assign(region, value), where and scatter_reduce give others"
        )

    def __len__(self) -> int:
        """The size of the first axis."""
        if not self.ndim:
            raise TypeError("a scalar tensor has no length")
        return fixed(self.shape[0])

    def __iter__(self) -> Iterator[Self]:
        """Its parts along the first axis."""
        return (self[number] for number in range(len(self)))

    def _cut(self, axis: int, start: Size, end: Size) -> Self:
        pairs: list[tuple[Size, Size]] = [(0, size) for size in self.shape]
        pairs[axis] = (start, end)
        return self.shrink(pairs)

    def _slice(self, axis: int, item: slice) -> Self:
        length = self.shape[axis]
        if item == slice(None):
            return self
        if not isinstance(length, int):
            raise ValueError(f"a slice of the symbolic axis {axis}: use shrink with sizes")
        start, stop, step = item.indices(length)
        if step > 0:
            return self._cut(axis, start, max(start, stop)).stride(axis, step)
        count = max(0, -((start - stop) // step))
        if count == 0:
            return self._cut(axis, 0, 0)
        last = start + (count - 1) * step
        return self._cut(axis, last, start + 1).flip(axis).stride(axis, -step)


def _index(item: Any) -> Any:
    """What an axis may be indexed by. Raises TypeError."""
    if item is None or item is Ellipsis or isinstance(item, (slice, UOp)):
        return item
    if isinstance(item, (bool, np.bool_)) or not hasattr(item, "__index__") or _is_array(item):
        raise TypeError(
            f"an index of {type(item).__name__}: it takes whole numbers, slices, None, an ellipsis;"
            " gather takes integers, where and masked_select take bools"
        )
    return operator.index(item)


def _is_array(item: Any) -> bool:
    return isinstance(item, Lazy) or (isinstance(item, np.ndarray) and item.ndim > 0)


def _negative(size: Size) -> bool:
    return _known(size) < 0


def _known(size: Size) -> int:
    """A size that is an int; 0 for a symbolic one, which is never negative."""
    return size if isinstance(size, int) else 0


def _may_remove_more(size: Size, pads: tuple[Size, Size]) -> bool:
    """Whether an open size may be less than what these pads remove at one end."""
    return isinstance(size, UOp) and any(
        isinstance(amount, int) and amount < 0 and minimum(size) < -amount for amount in pads
    )


def _removing(size: Size, low: Size, high: Size) -> tuple[Size, Size]:
    """Pads of which none removes more than there is, for a result of the same size."""
    if isinstance(size, int) and isinstance(low, int) and isinstance(high, int):
        if low < -size:
            return -size, high + low + size
        if high < -size:
            return low + high + size, -size
    return low, high


def broadcast(*tensors: Moved) -> tuple[Moved, ...]:
    """The tensors expanded to their common shape by numpy's rules. Raises UnequalSizes."""
    ndim = max(t.ndim for t in tensors)
    shape: list[Size] = [1] * ndim
    for tensor in tensors:
        for axis, size in enumerate(tensor.shape, start=ndim - tensor.ndim):
            if size == 1 or shape[axis] == size:
                continue
            if shape[axis] != 1:
                message = f"shapes {[list(t.shape) for t in tensors]} do not broadcast"
                raise UnequalSizes(message, (shape[axis], size))
            shape[axis] = size
    return tuple(t.broadcast_to(shape) for t in tensors)
