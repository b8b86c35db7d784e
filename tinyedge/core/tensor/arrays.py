"""Arrays as numpy, torch and tinygrad make, move, reduce and sort them.

Each is a name, or a composition of a line or two; what is longer is a function in a file of its
subject.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor import contraction, losses, normalization, scattering, selection
from tinyedge.core.tensor.arithmetic import Arithmetic
from tinyedge.core.tensor.base import Axes, Scalar, axes_of, computed, fixed, given, unpacked
from tinyedge.core.tensor.movement import broadcast
from tinyedge.core.tensor.prefix import (
    cumulative_log_sum_exp,
    cumulative_maximum,
    cumulative_product,
    cumulative_sum,
)
from tinyedge.core.tensor.rearrange import rearranged
from tinyedge.core.tensor.sorting import order_of

if TYPE_CHECKING:
    from typing_extensions import Self


class Arrays(Arithmetic):
    """Made, moved, reduced, sorted."""

    __slots__ = ()

    @classmethod
    def zeros(cls, shape: Sequence[Size], dtype: DType = dt.float32) -> Self:
        return cls.full(shape, 0, dtype)

    @classmethod
    def ones(cls, shape: Sequence[Size], dtype: DType = dt.float32) -> Self:
        return cls.full(shape, 1, dtype)

    @classmethod
    def eye(cls, rows: Size, columns: Size | None = None, dtype: DType = dt.float32) -> Self:
        """1 on the diagonal, 0 elsewhere."""
        across = cls.arange(rows if columns is None else columns)
        return cls.arange(rows).unsqueeze(1).eq(across).cast(dtype)

    @classmethod
    def linspace(cls, start: float, stop: float, steps: int, dtype: DType = dt.float32) -> Self:
        """Evenly spaced from start to stop, both included."""
        if steps < 1:
            raise ValueError(f"linspace of {steps} steps")
        step = (stop - start) / max(1, steps - 1)
        return (cls.arange(steps).cast(dtype) * step + start).cast(dtype)

    def full_like(self, value: Scalar, dtype: DType | None = None) -> Self:
        return self.full(self.shape, value, self.dtype if dtype is None else dtype)

    def zeros_like(self, dtype: DType | None = None) -> Self:
        return self.full_like(0, dtype)

    def ones_like(self, dtype: DType | None = None) -> Self:
        return self.full_like(1, dtype)

    @classmethod
    def empty(cls, shape: Sequence[Size], dtype: DType = dt.float32) -> Self:
        """Zeros: every tensor has values."""
        return cls.zeros(shape, dtype)

    def empty_like(self, dtype: DType | None = None) -> Self:
        """Zeros."""
        return self.zeros_like(dtype)

    def one_hot(self, classes: Size) -> Self:
        """bool [*, classes]: true at the place that each integer names."""
        return self.unsqueeze(-1).cast(dt.int32).eq(self.arange(classes))

    @classmethod
    def cat(cls, tensors: Sequence[Self], dim: int = 0) -> Self:
        """See `concat`."""
        return cls.concat(tensors, dim)

    # Facts.

    def numel(self) -> Size:
        return self.size

    def element_size(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    def nbytes(self) -> Size:
        return self.size * self.dtype.itemsize

    def is_floating_point(self) -> bool:
        return self.dtype.is_float

    # Movement.

    @property
    def T(self) -> Self:  # noqa: N802 - numpy's name
        """Its axes in reverse order."""
        return self.permute(range(self.ndim)[::-1])

    def view(self, *shape: Any) -> Self:
        """See `reshape`; sizes one by one, or as a sequence."""
        return self.reshape(shape[0] if isinstance(shape[0], Sequence) else shape)

    def clone(self) -> Self:
        """Itself: a tensor never changes."""
        return self

    def contiguous(self) -> Self:
        """See `in_memory`."""
        return self.in_memory()

    def split(self, sizes: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Parts along an axis: of one size, of which the last may be less, or of given sizes."""
        axis = axes_of(dim, self.ndim)[0]
        length = fixed(self.shape[axis])
        if isinstance(sizes, int):
            if sizes < 1:
                raise ValueError(f"a split into parts of {sizes}")
            sizes = [min(sizes, length - start) for start in range(0, max(1, length), sizes)]
        if sum(sizes) != length:
            raise ValueError(f"a split of {length} into {list(sizes)}")
        ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
        pairs = zip(sizes, ends, strict=True)
        return tuple(self._cut(axis, end - size, end) for size, end in pairs)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """At most so many parts along an axis, all of one size but the last."""
        if chunks < 1:
            raise ValueError(f"{chunks} chunks")
        length = fixed(self.shape[axes_of(dim, self.ndim)[0]])
        return self.split(max(1, -(-length // chunks)), dim)

    def repeat(self, *repeats: int) -> Self:
        """The whole tensor so many times along each axis; leading axes are added. numpy's tile."""
        count = max(self.ndim, len(repeats))
        times = (1,) * (count - len(repeats)) + repeats
        sizes = (1,) * (count - self.ndim) + self.shape
        spread = self.reshape([part for size in sizes for part in (1, size)])
        pairs = zip(times, sizes, strict=True)
        wide = spread.expand([part for time, size in pairs for part in (time, size)])
        return wide.reshape([t * size for t, size in zip(times, sizes, strict=True)])

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Each element so many times, one after the other; dim None: of the flat tensor."""
        flat = self.flatten() if dim is None else self
        axis = 0 if dim is None else axes_of(dim, self.ndim)[0]
        wide = flat.unsqueeze(axis + 1)
        shape = [*flat.shape[: axis + 1], repeats, *flat.shape[axis + 1 :]]
        return wide.expand(shape).flatten(axis, axis + 2)

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
        """Elements moved along axes; those beyond an end come in at the other. None: flat."""
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        steps = (shifts,) if isinstance(shifts, int) else tuple(shifts)
        result = self
        for step, axis in zip(steps, axes_of(dims, self.ndim), strict=True):
            length = fixed(self.shape[axis])
            cut = -step % length if length else 0
            if cut:
                parts = [result._cut(axis, cut, length), result._cut(axis, 0, cut)]
                result = self.concat(parts, axis)
        return result

    def pad_to(self, *shape: Any, value: Scalar = 0) -> Self:
        """Elements added at the end of each axis up to a size, no less than its own; None: the axis
        stays. Raises ValueError.
        """
        pairs = list(zip(self._sizes_to(shape), self.shape, strict=True))
        if any(_is_less(target, size) for target, size in pairs):
            raise ValueError(f"pad_to {list(shape)} of {list(self.shape)}: an axis is longer")
        return self.pad([(0, target - size) for target, size in pairs], value)

    def shrink_to(self, *shape: Any) -> Self:
        """The first elements of each axis, of a size; None: the axis stays. Raises ValueError."""
        sizes = self._sizes_to(shape)
        if any(_is_less(size, 0) for size in sizes):
            raise ValueError(f"shrink_to {list(shape)}: no size is below 0")
        return self.shrink([(0, target) for target in sizes])

    def _sizes_to(self, shape: tuple[Any, ...]) -> list[Any]:
        """Sizes one by one, or as a sequence, of all axes. Raises ValueError."""
        sizes = unpacked(shape)
        if len(sizes) != self.ndim:
            raise ValueError(f"{len(sizes)} sizes for {list(self.shape)}")
        return [own if size is None else size for size, own in zip(sizes, self.shape, strict=True)]

    def unflatten(self, dim: int, sizes: Sequence[Size]) -> Self:
        """An axis as several."""
        axis = axes_of(dim, self.ndim)[0]
        return self.reshape((*self.shape[:axis], *sizes, *self.shape[axis + 1 :]))

    def unfold(self, dim: int, size: int, step: int) -> Self:
        """Windows along an axis, as a new last axis."""
        return self.window(dim, size, step)

    def diagonal(self) -> Self:
        """[*, N, M] to the elements of equal index, [*, min(N, M)]."""
        if self.ndim < 2:
            raise ValueError(f"the diagonal of {list(self.shape)}")
        length = min(fixed(self.shape[-2]), fixed(self.shape[-1]))
        square = self._cut(self.ndim - 2, 0, length)._cut(self.ndim - 1, 0, length)
        hit = self.eye(length, dtype=dt.bool_)
        return hit.where(square, 0).sum(-1)

    def diag(self) -> Self:
        """[N] as the diagonal of [N, N]."""
        if self.ndim != 1:
            raise ValueError(f"diag of {list(self.shape)}: it takes one axis")
        return self.eye(self.shape[0], dtype=dt.bool_).where(self.unsqueeze(1), 0)

    def tril(self, diagonal: int = 0) -> Self:
        """[*, N, M] with 0 above a diagonal."""
        return self._triangle(lambda row, column: column <= row + diagonal)

    def triu(self, diagonal: int = 0) -> Self:
        """[*, N, M] with 0 below a diagonal."""
        return self._triangle(lambda row, column: column >= row + diagonal)

    def _triangle(self, kept: Callable[[Self, Self], Self]) -> Self:
        row, column = self.arange(self.shape[-2]).unsqueeze(1), self.arange(self.shape[-1])
        return kept(row, column).where(self, 0)

    def meshgrid(self, *others: Self) -> tuple[Self, ...]:
        """Tensors of one axis as coordinates of a grid that has an axis for each."""
        tensors = (self, *(given(type(self), t, "meshgrid") for t in others))
        count = len(tensors)
        shapes = [[-1 if a == n else 1 for a in range(count)] for n in range(count)]
        return broadcast(*(t.reshape(s) for t, s in zip(tensors, shapes, strict=True)))

    # Reductions.

    def any(self, axis: Axes = None, keepdims: bool = False) -> Self:
        """Whether any element is not 0."""
        return self.cast(dt.bool_).max(axis, keepdims) if self.ndim else self.cast(dt.bool_)

    def all(self, axis: Axes = None, keepdims: bool = False) -> Self:
        """Whether no element is 0."""
        return ~((~self.cast(dt.bool_)).any(axis, keepdims))

    @computed
    def var(self, axis: Axes = None, keepdims: bool = False, correction: int = 1) -> Self:
        """The variance: the sum of squares of what is centered, by the count less `correction`."""
        chosen = axes_of(axis, self.ndim)
        difference = self - self.mean(chosen, keepdims=True)
        count = product(self.shape[axis] for axis in set(chosen))
        left = self.from_size(count, self.dtype) - float(correction)
        return (difference * difference).blocked_sum(chosen, keepdims) / left.maximum(0.0)

    def std(self, axis: Axes = None, keepdims: bool = False, correction: int = 1) -> Self:
        """The square root of `var`."""
        return self.var(axis, keepdims, correction).sqrt()

    def var_mean(
        self, axis: Axes = None, keepdims: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        return self.var(axis, keepdims, correction), self.mean(axis, keepdims)

    def std_mean(
        self, axis: Axes = None, keepdims: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        return self.std(axis, keepdims, correction), self.mean(axis, keepdims)

    @computed
    def normalize(self, p: float = 2.0, dim: int = 1) -> Self:
        """x by its norm along an axis; 0 where the norm is 0."""
        return normalization.normalized(self, dim, p)

    def cumsum(self, axis: int = 0) -> Self:
        """Sums of everything up to each element."""
        return cumulative_sum(self, axes_of(axis, self.ndim)[0])

    def cumprod(self, axis: int = 0) -> Self:
        """Products of everything up to each element."""
        return cumulative_product(self, axes_of(axis, self.ndim)[0])

    def cummax(self, axis: int = 0) -> tuple[Self, Self]:
        """The greatest of everything up to each element, and the last place where it is (int32)."""
        return cumulative_maximum(self, axes_of(axis, self.ndim)[0])

    def cummin(self, axis: int = 0) -> tuple[Self, Self]:
        """The least of everything up to each element, and the last place where it is (int32)."""
        values, places = cumulative_maximum(self._reversed(), axes_of(axis, self.ndim)[0])
        return values._reversed(), places

    def _reversed(self) -> Self:
        """The elements in the other order: integers from the other end of their type."""
        return -self if self.dtype.is_float else ~self

    def logcumsumexp(self, axis: int = 0) -> Self:
        """log of the sum of exp of everything up to each element."""
        return cumulative_log_sum_exp(self, axes_of(axis, self.ndim)[0])

    def rearrange(self, pattern: str, **sizes: int) -> Self:
        """Axes split, joined and moved by a pattern: "b (h w) c -> b c h w", h=4."""
        return rearranged(self, pattern, sizes)

    def nonzero(self, size: int | None = None, fill_value: Scalar = 0) -> Self:
        """int32 [n, rank]: the coordinates of what is not 0.

        size: n, with rows of fill_value after the last; None: as many as there are, for which it is
        computed. Raises TraceError in a traced function without a size.
        """
        return selection.nonzero(self.cast(dt.bool_), size, fill_value)

    def masked_select(self, mask: Self, size: int | None = None, fill_value: Scalar = 0) -> Self:
        """[n]: the elements where a mask of bools, which broadcasts, is true; see `nonzero`."""
        return selection.masked_select(self, mask, size, fill_value)

    # Order.

    def argsort(self, dim: int = -1, descending: bool = False) -> Self:
        """int32 places that sort an axis; equal elements stay in their order, NaN comes last."""
        axis = axes_of(dim, self.ndim)[0]
        order = order_of(self.transpose(axis, -1), descending=descending)
        return order.transpose(axis, -1)

    def sort(self, dim: int = -1, descending: bool = False) -> tuple[Self, Self]:
        """Sorted values, and their places."""
        return self.topk(self.shape[axes_of(dim, self.ndim)[0]], dim, descending)

    def topk(self, count: Size, dim: int = -1, largest: bool = True) -> tuple[Self, Self]:
        """The greatest (or least) values along an axis, in order, and their places."""
        axis = axes_of(dim, self.ndim)[0]
        last = self.transpose(axis, -1)
        length = self.shape[axis]
        if isinstance(count, int) and isinstance(length, int) and not 0 <= count <= length:
            raise ValueError(f"topk of {count} along an axis of {length}")
        places = order_of(last, count, descending=largest)
        values = last.gather_elements(last.ndim - 1, places)
        return values.transpose(axis, -1), places.transpose(axis, -1)

    def scatter_reduce(
        self, dim: int, index: Self, src: Self, reduce: str, include_self: bool = True
    ) -> Self:
        """A copy in which each element of src is combined with the one in its line along an axis
        that the index names, by "sum", "prod", "mean", "amax" or "amin".

        The index has as many axes as both, and is nowhere longer than src, nor than self but along
        `dim`; one outside of [0, size) has no effect. include_self=False: what was there counts
        only where nothing goes. Raises ValueError, TypeError.
        """
        return scattering.scatter_reduce(self, dim, index, src, reduce, include_self)

    # Products and losses.

    @classmethod
    def einsum(cls, equation: str, *operands: Self) -> Self:
        """A product over labels, summed; see core/tensor/contraction.py."""
        if not isinstance(equation, str):
            raise TypeError("einsum takes its equation first: Tensor.einsum('ij,jk->ik', a, b)")
        return contraction.einsum(equation, [given(cls, t, "einsum") for t in operands])

    def sequential(self, layers: Sequence[Callable[[Any], Any]]) -> Any:
        """What functions make of it, one after the other."""
        result: Any = self
        for layer in layers:
            result = layer(result)
        return result

    @computed
    def layernorm(self, axis: Axes = -1, eps: float = 1e-5) -> Self:
        """x normalized over axis."""
        return normalization.layer_norm(self, axes_of(axis, self.ndim), epsilon=eps)[0]

    def cross_entropy(self, target: Self, **options: Any) -> Self:
        """See `nn.cross_entropy`."""
        result: Self = losses.cross_entropy(self, target, **options)
        return result

    def sparse_categorical_crossentropy(
        self,
        target: Self,
        ignore_index: int = -1,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """`nn.cross_entropy` of logits [*, C], whose classes lie along the last axis, at integers
        [*]. A label of ignore_index counts nothing.
        """
        target = given(type(self), target, "sparse_categorical_crossentropy")
        rows = self.reshape((-1, self.shape[-1]))
        options: Any = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
        found = rows.cross_entropy(target.reshape((-1,)), reduction=reduction, **options)
        return found.reshape(target.shape) if reduction == "none" else found

    def nll_loss(self, target: Self, **options: Any) -> Self:
        """See `nn.nll_loss`."""
        result: Self = losses.nll_loss(self, target, **options)
        return result

    def binary_crossentropy(self, target: Self, **options: Any) -> Self:
        """See `nn.binary_cross_entropy`."""
        result: Self = losses.binary_cross_entropy(self, target, **options)
        return result

    def binary_crossentropy_logits(self, target: Self, **options: Any) -> Self:
        """See `nn.binary_cross_entropy_with_logits`."""
        result: Self = losses.binary_cross_entropy_with_logits(self, target, **options)
        return result


def _is_less(size: Size, least: Size) -> bool:
    """Whether a size is known to be below another one."""
    return isinstance(size, int) and isinstance(least, int) and size < least
