"""What goes through memory: tensors that are joined, indexed, kept, or carried by a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tinyedge.core import dtype as dt
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.loops import LoopInfo
from tinyedge.core.ir.memory import MEMORY
from tinyedge.core.ir.ops import Primitive
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Shape, Size, UOp
from tinyedge.core.tensor.base import (
    NUMBERS,
    Scalar,
    UnequalSizes,
    axes_of,
    given,
    pairs_of,
    places,
)
from tinyedge.core.tensor.elementwise import Elementwise

if TYPE_CHECKING:
    from typing_extensions import Self

MANY_ITERATIONS = 2048  # of a loop: beyond it the program holds one iteration and counts


class Memory(Elementwise):
    """Operations that read or write at places of their own."""

    __slots__ = ()

    @classmethod
    def concat(cls, tensors: Sequence[Self], axis: int) -> Self:
        """Tensors one after the other along an axis, each written into its part of one buffer.

        Raises ValueError or TypeError unless they are alike but for their sizes along the axis.
        """
        if not isinstance(tensors, Sequence):
            raise TypeError("a sequence of tensors is joined: Tensor.concat([a, b], axis)")
        if not tensors or not all(isinstance(part, cls) for part in tensors):
            raise TypeError("tensors are joined, at least one: Tensor(array) makes one of an array")
        first = tensors[0]
        (axis,) = axes_of(axis, first.ndim)
        for part in tensors:
            if part.dtype is not first.dtype:
                raise TypeError(f"concat of {first.dtype} and {part.dtype}")
            if part.ndim != first.ndim:
                raise ValueError(f"concat of {first.ndim} and {part.ndim} axes")
            for other, (a, b) in enumerate(zip(first.shape, part.shape, strict=True)):
                if a != b and other != axis:
                    message = f"concat of {list(first.shape)} and {list(part.shape)} along {axis}"
                    raise UnequalSizes(message, (a, b))
        parts = [t for t in tensors if t.shape[axis] != 0] or [first]
        if len(parts) == 1:
            return parts[0]
        total: Size = 0
        for part in parts:
            total += part.shape[axis]
        shape = first.shape[:axis] + (total,) + first.shape[axis + 1 :]
        node = UOp(ops.EMPTY, first.dtype, (), shape)
        start: Size = 0
        for part in parts:
            end = start + part.shape[axis]
            region = [args.Span(0, size) for size in shape]
            region[axis] = args.Span(start, end)
            node = UOp(ops.ASSIGN, first.dtype, (node, part.node), tuple(region))
            start = end
        return cls(node)

    @classmethod
    def stack(cls, tensors: Sequence[Self], axis: int = 0) -> Self:
        """Tensors of one shape along a new axis. Raises as `concat` does."""
        if not isinstance(tensors, Sequence):
            raise TypeError("a sequence of tensors is joined: Tensor.stack([a, b], axis)")
        return cls.concat([given(cls, t, "stack").unsqueeze(axis) for t in tensors], axis)

    def assign(self, region: Sequence[tuple[Size, Size]], value: Self | Scalar) -> Self:
        """A copy with elements [start, end) of each axis replaced by `value`, of the same type and
        of the region's shape, or a number. Raises ValueError, TypeError.
        """
        spans = tuple(args.Span(start, end) for start, end in pairs_of(region, self.ndim, "assign"))
        if isinstance(value, NUMBERS):
            value = self._operand(value)
        value = given(type(self), value, "assign")
        if value.dtype is not self.dtype:
            raise TypeError(f"assign of {value.dtype} into {self.dtype}: cast one of them")
        if not all(map(_lies_in, spans, self.shape)):
            raise ValueError(f"assign to {list(region)} of {list(self.shape)}")
        if self.ndim and not value.ndim:
            value = value.broadcast_to([span.end - span.start for span in spans])
        base = self.node
        while base.op is ops.ASSIGN:
            base = base.src[0]
        if base.op is ops.EMPTY:  # a concatenation's elements have one writer each
            base = self.in_memory().node
        else:
            base = self.node
        return self._checked(UOp(ops.ASSIGN, self.dtype, (base, value.node), spans))

    def attend(self, values: Self, *, zeros: bool = False) -> Self:
        """self.softmax(-1) @ values, scores [*B, R, K] for values [*B, K, C], in one kernel that
        keeps no weights. zeros: rows whose weights are NaN give 0.
        """
        values = given(type(self), values, "attend")
        return type(self)(UOp(ops.ATTEND, self.dtype, (self.node, values.node), args.Attend(zeros)))

    def _checked(self, node: UOp) -> Self:
        """Of a node that reads or writes memory. Raises ValueError where it cannot."""
        if wrong := MEMORY[node.op].wrong(node):
            raise ValueError(f"{node.op.name} of {list(self.shape)}: {wrong}")
        return type(self)(node)

    def gather(self, axis: int, indices: Self) -> Self:
        """self taken along an axis at integer indices; outside [0, size) the result is 0.

        Shape: self.shape[:axis] + indices.shape + self.shape[axis+1:].
        """
        indices = places(type(self), indices, "gather")
        (axis,) = axes_of(axis, self.ndim)
        node = UOp(ops.GATHER, self.dtype, (self.node, indices.node), axis)
        return type(self)(node)

    def gather_elements(self, axis: int, indices: Self) -> Self:
        """out[i, j, ..] = self[.., indices[i, j, ..] in place of the axis' index, ..]."""
        (axis,) = axes_of(axis, self.ndim)
        indices = places(type(self), indices, "gather_elements")
        flat = indices.cast(dt.int32) * self._factor(_stride(self.shape, axis))
        for other in range(self.ndim):
            if other != axis:
                position = (
                    type(self)
                    .arange(indices.shape[other])
                    .reshape([-1 if a == other else 1 for a in range(self.ndim)])
                )
                flat = flat + position * self._factor(_stride(self.shape, other))
        return self.reshape((self.size,)).gather(0, flat)

    def put(self, position: Self, row: Self) -> Self:
        """A copy in which self[position] is `row`; position: an integer scalar in range."""
        position = places(type(self), position, "put")
        row = given(type(self), row, "put")
        return self._checked(UOp(ops.UPDATE_ROW, self.dtype, (self.node, row.node, position.node)))

    def scatter(
        self, axis: int, indices: Self, updates: Self, combine: Primitive | None = None
    ) -> Self:
        """A copy in which the elements at integer indices [*lead, K] along an axis get the updates
        [*lead, K, *rest], where self is [*lead, size, *rest], axis = len(lead).

        The updates are taken one after the other: each replaces what is there, or is combined with
        it (ADD, MUL, MAX, MIN; halves as float32, bools as 0 and 1). An index outside of [0, size)
        has no effect.
        """
        (axis,) = axes_of(axis, self.ndim)
        indices = places(type(self), indices, "scatter")
        updates = given(type(self), updates, "scatter")
        dtype = self.dtype
        wide = dtype.computed
        if dtype is dt.bool_ and combine is not None:
            wide = dt.int32
            combine = {ops.ADD: ops.MAX, ops.MUL: ops.MIN}.get(combine, combine)
        src = (self.cast(wide).node, indices.node, updates.cast(wide).node)
        node = UOp(ops.SCATTER, wide, src, args.Scatter(axis, combine))
        return self._checked(node).cast(dtype)

    @classmethod
    def loop(
        cls,
        first: Sequence[Self],
        iteration: Callable[..., Sequence[Self]],
        *,
        trips: Size | None = None,
        bound: int = 0,
    ) -> list[Self]:
        """Carry values through iterations: values = iteration(*values), beginning with `first`.

        trips: how many iterations; None: as long as the first value, a bool scalar, is true, at
        most `bound` iterations. Shapes and types stay the same from iteration to iteration.
        """
        carried = cls.carried(first)
        return cls.repeated(first, carried, iteration(*carried), trips=trips, bound=bound)

    @classmethod
    def carried(cls, first: Sequence[Self], before: int = 0) -> list[Self]:
        """What stands for the values that a loop carries, in an expression for one iteration.

        before: how many of the loop's values have been asked for already.
        """
        numbers = range(before, before + len(first))
        sources = [ops.TensorSource("carried", f"carried {n}") for n in numbers]
        return [
            cls(UOp(ops.BUFFER, value.dtype, (), args.Buffer(source, value.shape)))
            for source, value in zip(sources, first, strict=True)
        ]

    @classmethod
    def repeated(
        cls,
        first: Sequence[Self],
        carried: Sequence[Self],
        nexts: Sequence[Self],
        *,
        trips: Size | None = None,
        bound: int = 0,
    ) -> list[Self]:
        """The last values of a loop whose iteration makes `nexts` of `carried`. See `loop`."""
        for old, new in zip(first, nexts, strict=True):
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                raise ValueError(
                    f"an iteration makes {new.dtype} {list(new.shape)} of {old.dtype} "
                    f"{list(old.shape)}"
                )
        if trips is None and (first[0].dtype is not dt.bool_ or first[0].shape != ()):
            raise ValueError(
                "the first value of a loop without a number of iterations is a bool scalar"
            )
        if trips is not None and not (isinstance(trips, int) and trips <= MANY_ITERATIONS):
            count = cls.from_size(trips, dt.int32)
            counter = [count > 0, cls(0, dt.int32)]
            _, number = extra = cls.carried(counter, len(first))
            counted = [number + 1 < count, number + 1, *nexts]
            whole = [*extra, *carried]
            return cls.repeated([*counter, *first], whole, counted, bound=maximum(trips))[2:]
        arg = LoopInfo(tuple(c.node for c in carried), trips, bound if trips is None else trips)
        src = (*(value.node for value in first), *(value.node for value in nexts))
        node = UOp(ops.LOOP, dt.index, src, arg)
        return [
            cls(UOp(ops.LOOP_OUTPUT, value.dtype, (node,), args.LoopOutput(number, value.shape)))
            for number, value in enumerate(first)
        ]

    def transform(self, matrix: Sequence[Sequence[float]]) -> Self:
        """matrix @ self @ matrix^T over the first two axes, for each element of the others.

        self [n, n, *S] of floats, matrix of m rows of n constants, no row of zeros: [m, m, *S].
        Raises ValueError for anything else.
        Elements that have a factor of 0 are not read: a NaN there has no effect.
        """
        rows = tuple(tuple(float(factor) for factor in row) for row in matrix)
        node = UOp(ops.TRANSFORM, self.dtype, (self.node,), args.Transform(rows))
        if wrong := MEMORY[ops.TRANSFORM].wrong(node):
            raise ValueError(f"transform by {rows}: {wrong}")
        return type(self)(node)

    def in_memory(self) -> Self:
        """The same values, kept in memory: a boundary for fusion."""
        return type(self)(UOp(ops.REALIZE, self.dtype, (self.node,)))

    def _factor(self, size: Size) -> Self | int:
        """What an int32 tensor can be multiplied by."""
        return self.from_size(size, dt.int32) if isinstance(size, UOp) else size


def _stride(shape: Shape, axis: int) -> Size:
    return product(shape[axis + 1 :])


def _lies_in(span: args.Span, size: Size) -> bool:
    """Whether a span is one of an axis, as far as that is known."""
    known = [n for n in (0, span.start, span.end, size) if isinstance(n, int)]
    return sorted(known) == known
