"""Buffers of a schedule, and how a tensor's elements lie in one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Union

from tinyedge.core.dtype import DType
from tinyedge.core.ir.movement import Indices, reshape_indices
from tinyedge.core.ir.polynomial import Terms, build, terms
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import Shape, Size, UOp, as_node

IMAGE_ROW = 2**20  # from one row of an image to the next in an address, more than any row has
PIXEL = 4  # elements


@dataclass(frozen=True)
class Rows:
    """A tensor as a two-dimensional image: the outer `axes` in memory number its rows."""

    axes: int
    pitch: int  # the pixels of a row are rounded up to a multiple of it


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory.

    rows: how the tensor is an image; None: it is a plain buffer. The address of an element of an
    image is row * IMAGE_ROW + place in the row, so that both can be read off it whatever was made
    of it, and so that a place outside of the row, which reads as zero, stays outside.
    """

    order: tuple[int, ...]  # the axes from outermost to innermost
    # for each axis in that order, the multiple that its size is rounded up to in memory; what lies
    # there reads as zero
    pads: tuple[int, ...]
    rows: Rows | None = None
    # elements of a panel, of which the innermost axis has a whole number: a panel holds so many of
    # that axis for all places along the others, and lies before the next panel; 0: there are none
    panel: int = 0

    def stored(self, shape: Shape) -> Shape:
        """Sizes in memory, in memory's order."""
        return tuple(
            ix.round_up(shape[axis], pad) for axis, pad in zip(self.order, self.pads, strict=True)
        )

    def count(self, shape: Shape) -> Size:
        """Elements in memory, padding included."""
        if self.rows is not None:
            return self.pitch(shape) * self.image(shape)[1]
        return product(self.stored(shape))

    def image(self, shape: Shape) -> tuple[int, int]:
        """Width and height of an image in pixels."""
        assert self.rows is not None
        stored = self.stored(shape)
        height, width = product(stored[: self.rows.axes]), product(stored[self.rows.axes :])
        assert isinstance(height, int) and isinstance(width, int)
        return width // PIXEL, height

    def pitch(self, shape: Shape) -> int:
        """Elements from one row of an image to the next."""
        assert self.rows is not None
        return -(-self.image(shape)[0] // self.rows.pitch) * self.rows.pitch * PIXEL

    def flatten(self, shape: Shape, indices: tuple[UOp, ...]) -> UOp:
        """The linear address of an element."""
        address: Size = 0
        stride: Size = 1
        sizes = self.stored(shape)
        if self.panel:
            inner = indices[self.order[-1]]
            address = inner // self.panel * (product(sizes[:-1]) * self.panel)
            indices = tuple(
                as_node(inner % self.panel) if axis == self.order[-1] else index
                for axis, index in enumerate(indices)
            )
            sizes = (*sizes[:-1], self.panel)
        for place in range(len(sizes) - 1, -1, -1):
            if self.rows is not None and place == self.rows.axes - 1:
                stride = IMAGE_ROW
            address += indices[self.order[place]] * stride
            stride *= sizes[place]
        return ix.joined(address)

    def dimensions(self, shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
        """A plain buffer as a row-major array of these dimensions: how many places each has, how
        many of them hold elements, and how far these are apart in the tensor's row-major order.
        """
        steps = [int(product(shape[axis + 1 :])) for axis in range(len(shape))]  # type: ignore[arg-type]
        places = [int(size) for size in self.stored(shape)]  # type: ignore[arg-type]
        found = [(p, shape[a], steps[a]) for p, a in zip(places, self.order, strict=True)]
        if self.panel:
            _, size, step = found.pop()
            panels = size // self.panel
            found = [(panels, panels, step * self.panel), *found, (self.panel, self.panel, step)]
        return found

    @property
    def room(self) -> int:
        """How far the innermost axis may be rounded up: its pad, or 1."""
        return self.pads[-1] if self.pads else 1


def coordinates(address: UOp) -> tuple[UOp, UOp]:
    """The place in the row, in elements, and the row of an address in an image."""
    places: Terms = {}
    rows: Terms = {}
    for monomial, coefficient in terms(address).items():
        row = (coefficient + IMAGE_ROW // 2) // IMAGE_ROW
        if row:
            rows[monomial] = row
        if coefficient != row * IMAGE_ROW:
            places[monomial] = coefficient - row * IMAGE_ROW
    return build(places), build(rows)


def row_major(shape: Shape) -> Layout:
    """Row-major order."""
    return Layout(tuple(range(len(shape))), (1,) * len(shape))


def innermost(shape: Shape, axis: int, pad: int) -> Layout:
    """Row-major order but for one axis, which is innermost and rounded up to a multiple of
    `pad`.
    """
    order = (*(a for a in range(len(shape)) if a != axis), axis)
    return Layout(order, (1,) * (len(shape) - 1) + (pad,))


@dataclass(eq=False)
class TensorBuffer:
    """One buffer of the program.

    dtype is the element type in memory. node is the tensor it holds; data a weight's values.
    """

    role: str  # input, output, weight, state or scratch
    name: str
    dtype: DType
    shape: Shape
    layout: Layout
    node: UOp | None = None
    data: Any = field(default=None, repr=False)
    bits: int = 0  # of each, where they are packed into words
    rounded: bool = False  # of reference values, kept in full in place of halves


@dataclass(frozen=True)
class KernelArg:
    """A kernel's buffer argument: its slot, and the shape and layout of what it holds."""

    slot: int
    shape: Shape
    layout: Layout
    written: bool = False
    weight: bool = False

    @property
    def is_image(self) -> bool:
        """Whether kernels take it as an image, not as a buffer."""
        return self.layout.rows is not None


# Views: steps from a tensor's indices to those of a tensor that it is a part of, or a one-to-one
# view of.


@dataclass(frozen=True)
class Offset:
    """A part that begins at `starts`."""

    starts: tuple[Size, ...]

    def indices(self, indices: Indices) -> Indices:
        """Those of the other tensor."""
        return tuple(as_node(i + start) for i, start in zip(indices, self.starts, strict=True))


@dataclass(frozen=True)
class Reshaped:
    """A tensor of one shape that lies as one of another."""

    shape: Shape
    other: Shape

    def indices(self, indices: Indices) -> Indices:
        """Those of the other tensor."""
        return reshape_indices(self.shape, self.other, indices)


@dataclass(frozen=True)
class Permuted:
    """A tensor whose axes lie in another order: axis `axes[n]` of it is axis n of the other."""

    axes: tuple[int, ...]

    def indices(self, indices: Indices) -> Indices:
        """Those of the other tensor."""
        return tuple(indices[axis] for axis in self.axes)


View = Union[Offset, Reshaped, Permuted]


@dataclass(eq=False)
class Placement:
    """Where a realized tensor lies: in `storage`, at the indices that the views lead to."""

    storage: TensorBuffer
    views: tuple[View, ...] = ()
