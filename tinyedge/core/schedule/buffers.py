"""Buffers of a schedule, and how a tensor's elements lie in one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tinyedge.core.dtype import DType
from tinyedge.core.rules import index as ix
from tinyedge.core.uop import Shape, Size, UOp, as_node, product


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory.

    order: the axes from outermost to innermost. pads: for each axis in that order, the multiple
    that its size is rounded up to in memory; what lies there reads as zero.
    """

    order: tuple[int, ...]
    pads: tuple[int, ...]

    def stored(self, shape: Shape) -> Shape:
        """Sizes in memory, in memory's order."""
        return tuple(
            _round_up(shape[axis], pad) for axis, pad in zip(self.order, self.pads, strict=True)
        )

    def count(self, shape: Shape) -> Size:
        """Elements in memory, padding included."""
        return product(self.stored(shape))

    def flatten(self, shape: Shape, indices: tuple[UOp, ...]) -> UOp:
        """The linear address of an element."""
        address = ix.ZERO
        stride: Size = 1
        for axis, size in zip(reversed(self.order), reversed(self.stored(shape)), strict=True):
            address = ix.add(address, ix.mul(indices[axis], as_node(stride)))
            stride = ix.size_mul(stride, size)
        return address

    def room(self, shape: Shape) -> int:
        """How far the innermost axis may be rounded up: its pad, or 1."""
        return self.pads[-1] if self.pads else 1


def _round_up(size: Size, multiple: int) -> Size:
    if multiple == 1:
        return size
    return ix.size_mul(ix.size_ceildiv(size, multiple), multiple)


def plain(shape: Shape) -> Layout:
    """Row-major order."""
    return Layout(tuple(range(len(shape))), (1,) * len(shape))


def innermost(shape: Shape, axis: int, pad: int) -> Layout:
    """Row-major order but for one axis, which is innermost and rounded up to a multiple of
    `pad`.
    """
    order = (*(a for a in range(len(shape)) if a != axis), axis)
    return Layout(order, (1,) * (len(shape) - 1) + (pad,))


@dataclass(eq=False)
class Storage:
    """One buffer of the program. role: input, output, weight, state or scratch.

    dtype is the element type in memory. node is the tensor it holds; data a weight's values.
    """

    role: str
    name: str
    dtype: DType
    shape: Shape
    layout: Layout
    node: UOp | None = None
    data: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Param:
    """A kernel's buffer argument: its slot, and the shape and layout of what it holds."""

    slot: int
    shape: Shape
    layout: Layout
    written: bool = False
    weight: bool = False


@dataclass(frozen=True)
class View:
    """A step from a tensor's indices to those of the tensor it is a part of, or a one-to-one view
    of.

    kind: "offset" (arg: added along each axis), "reshape" (arg: the two shapes) or "permute" (arg:
    the axes).
    """

    kind: str
    arg: Any


@dataclass(eq=False)
class Placement:
    """Where a realised tensor lies: in `storage`, at the indices that the views lead to."""

    storage: Storage
    views: tuple[View, ...] = ()
