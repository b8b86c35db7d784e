"""An axis of a weight that a kernel reads by several ranges becomes as many axes.

    w[r0 * 128 + r1]   of 256 elements   ->   w[r0, r1]   of 2 x 128

So do filters of groups, and those of a layer after pixels in a row: its layout may then have each
of these ranges where the kernel wants it. A part that a kernel reads, as of a direction of an LSTM,
is a weight of its own. An axis of which a kernel reads all parts at once, as of words of two
numbers, has its parts along an axis of their own.

    w[r0] and w[r0 + 64]   of 128 elements   ->   w[0, r0] and w[1, r0]   of 2 x 64

Columns that are no whole vectors become panels of which the last one overlaps the one before, where
a vector may begin at any element. The filter's elements that two panels have lie in both.

    w[r0]   of 34 elements   ->   w[r1, r2]   of 5 x 8, where r0 = min(r1 * 8, 34 - 8) + r2
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.tiles import overlapping_vectors, taps_of
from tinyedge.core.compiler.schedule.canonical import make_range, replace_ranges, steps_of
from tinyedge.core.compiler.schedule.layout import contractions
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.buffers import Layout, row_major
from tinyedge.core.ir.polynomial import divisor, terms
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import Shape, UOp, as_node, toposort

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Span:
    """The part of an axis that a kernel reads, and the sizes of the axes that it becomes: none
    where one element is read.
    """

    start: int
    sizes: tuple[int, ...]


Spans = tuple[Span, ...]  # of a weight's axes


def read_spans(sink: UOp) -> dict[int, Spans]:
    """The parts by a weight's slot, where a kernel reads one of its axes by several ranges or reads
    a part of it, and all loads of it alike, or all parts of one axis.
    """
    found: dict[int, set[Spans]] = {}
    for node in toposort((sink,)):
        if node.op is ops.LOAD and node.src[0].op is ops.PARAM and node.src[0].arg.weight:
            pairs = zip(access.indices_of(node), node.src[0].arg.shape, strict=True)
            spans = tuple(_span(index, size)[0] for index, size in pairs)
            found.setdefault(node.src[0].arg.slot, set()).add(spans)
    whole = {
        node.arg.slot: tuple(Span(0, (size,)) for size in node.arg.shape)
        for node in toposort((sink,))
        if node.op is ops.PARAM
    }
    same = {slot: _together(spans, whole[slot]) for slot, spans in found.items()}
    return {slot: spans for slot, spans in same.items() if spans not in (None, whole[slot])}


def _together(spans: Collection[Spans], whole: Spans) -> Spans | None:
    """What several loads read: the parts of one axis of it, which are all of that; None for others
    that are not alike.
    """
    first, *others = sorted(spans, key=lambda each: [span.start for span in each])
    if not others:
        return first
    axes = [a for a in range(len(first)) if any(each[a] != first[a] for each in others)]
    axis, *more = axes
    size, length = prod(whole[axis].sizes), prod(first[axis].sizes)
    parts = tuple(Span(start, first[axis].sizes) for start in range(0, size, length))
    if more or size % length or tuple(each[axis] for each in (first, *others)) != parts:
        return None
    return (*first[:axis], Span(0, (len(parts), *first[axis].sizes)), *first[axis + 1 :])


def sums_of_digits(sink: UOp) -> set[int]:
    """The slots of weights along whose innermost axis a kernel sums by several ranges, as channels
    and pixels of the layer before; along each other axis it has one range.
    """
    found: dict[int, set[bool]] = {}
    for node in toposort((sink,)):
        if node.op is ops.LOAD and node.src[0].op is ops.PARAM and node.src[0].arg.weight:
            *others, inner = access.indices_of(node)
            ranges = all(index.op is ops.RANGE for index in others)
            digits = ranges and _is_sum(inner, node.src[0].arg.shape[-1])
            found.setdefault(node.src[0].arg.slot, set()).add(digits)
    return {slot for slot, digits in found.items() if digits == {True}}


def _is_sum(index: UOp, size: int) -> bool:
    """Whether an index runs through a whole axis by several ranges that are summed."""
    span, digits = _span(index, size)
    summed = all(r.op is ops.RANGE and r.arg.kind == "reduce" for r in digits)
    return len(digits) > 1 and summed and span.start == 0 and prod(span.sizes) == size


def split_axes(sink: UOp, spans: Mapping[int, Spans]) -> UOp:
    """The kernel with the axes of these weights' parts, all of them row-major."""

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.PARAM and node.arg.slot in spans:
            shape = split_shape(spans[node.arg.slot])
            arg = replace(node.arg, shape=shape, layout=row_major(shape))
            return UOp(ops.PARAM, node.dtype, (), arg)
        if node.op is ops.LOAD and node.src[0].op is ops.PARAM and node.src[0].arg.slot in spans:
            given = spans[node.src[0].arg.slot]
            axes = zip(access.indices_of(node), node.src[0].arg.shape, given, strict=True)
            new = [digit for index, size, span in axes for digit in _digits(index, size, span)]
            return access.at(node.replace(src), new)
        return None

    return bottom_up((sink,), change)[sink]


def part_axes(nodes: Iterable[UOp]) -> dict[UOp, set[int]]:
    """By a kernel's arguments the axes of which its loads read every place, each of them one."""
    found: dict[UOp, dict[int, set[UOp]]] = {}
    for node in nodes:
        if node.op is ops.LOAD:
            axes = found.setdefault(node.src[0], {})
            for axis, index in enumerate(access.indices_of(node)):
                axes.setdefault(axis, set()).add(index)
    return {
        param: {
            axis
            for axis, places in axes.items()
            if all(place.op is ops.CONST for place in places)
            and len(places) == param.arg.shape[axis]
        }
        for param, axes in found.items()
    }


def _digits(index: UOp, size: int, whole: Span) -> tuple[UOp, ...]:
    """The indices along the axes that an axis becomes."""
    span, ranges = _span(index, size)
    parts = whole.sizes[: len(whole.sizes) - len(ranges)]  # of which the index is in one
    return (*(as_node(span.start // prod(span.sizes)) for _ in parts), *ranges)


def split_shape(spans: Spans) -> Shape:
    """The shape of a weight's part."""
    return tuple(size for span in spans for size in span.sizes)


def split_values(data: Array, spans: Spans) -> Array:
    """The values of a weight's part."""
    part = tuple(slice(span.start, span.start + prod(span.sizes)) for span in spans)
    return data[part].reshape(split_shape(spans))


def _span(index: UOp, size: int) -> tuple[Span, tuple[UOp, ...]]:
    """Which part of an axis an index runs through, and its ranges: it is a number of several
    digits, the highest one first, each of which counts to a range's size. The whole axis and the
    index itself where it is none.
    """
    whole = Span(0, (size,)), (index,)
    polynomial = dict(terms(index))
    start = polynomial.pop((), 0)
    found: list[UOp] = []
    reached = 1
    for monomial, coefficient in sorted(polynomial.items(), key=lambda item: item[1]):
        if coefficient != reached or len(monomial) != 1 or monomial[0].op is not ops.RANGE:
            return whole
        (r,) = monomial
        if r.src[0].op is not ops.CONST:
            return whole
        found.insert(0, r)
        reached *= r.src[0].arg
    if start < 0 or start + reached > size or size == 1:
        return whole
    return Span(start, tuple(r.src[0].arg for r in found)), tuple(found)


@dataclass(frozen=True)
class Panels:
    """An axis of a weight in panels of `width` elements, of which the last one overlaps."""

    axis: int
    width: int
    columns: UOp = field(compare=False)  # the range along it

    @property
    def size(self) -> int:
        """Of the axis."""
        return int(self.columns.src[0].arg)

    @property
    def count(self) -> int:
        """How many panels there are."""
        return -(-self.size // self.width)

    def ranges(self, number: int) -> tuple[UOp, UOp]:
        """Over panels, and over the columns of one. number: that of the first range."""
        kind = self.columns.arg.kind
        return make_range(self.count, number, kind), make_range(self.width, number + 1, kind)

    def place(self, outer: UOp, inner: UOp) -> UOp:
        """Where a column of a panel is along the axis."""
        last = as_node(self.size - self.width)
        return as_node(ix.minimum(as_node(outer * self.width), last) + inner)

    def shape(self, shape: Shape) -> Shape:
        """Of a tensor with the two axes in place of one."""
        return (*shape[: self.axis], self.count, self.width, *shape[self.axis + 1 :])

    def of(self, data: Array) -> Array:
        """The weight's values in panels, which are two axes in place of one."""
        starts = np.minimum(np.arange(self.count) * self.width, self.size - self.width)
        return np.take(data, starts[:, None] + np.arange(self.width), self.axis)

    def layout(self, order: Sequence[int]) -> Layout:
        """One panel before the next, each with its columns innermost. order: the axes."""
        others = [axis + (axis > self.axis) for axis in order if axis != self.axis]
        order = (self.axis, *others, self.axis + 1)
        return Layout(order, (1,) * len(order))


def overlapping_panels(sink: UOp, layouts: Mapping[int, Layout], caps: Caps) -> dict[int, Panels]:
    """The panels by the slots of contractions' filters that are to be in such; none where what is
    stored twice is read, or has its columns rounded up in memory.
    """
    if not may_overlap(sink, caps) or caps.shares_weights:
        return {}
    found: dict[int, Panels] = {}
    for contraction in contractions(sink):
        slot = contraction.filter.src[0].arg.slot
        if slot in layouts:
            axis = layouts[slot].order[-1]
            columns = contraction.filter.src[1 + axis]
            if columns in contraction.columns and not rounded_up(sink, columns):
                rows = steps_of(contraction.rows)
                vectors = overlapping_vectors(columns.src[0], taps_of(sink), caps, rows)
                if vectors:
                    found[slot] = Panels(axis, vectors * caps.vector, columns)
    return found if len({panels.columns for panels in found.values()}) == 1 else {}


def may_overlap(sink: UOp, caps: Caps) -> bool:
    """Whether a kernel may compute some results twice: not where it reads what it stores."""
    if not caps.scalar_operands or not caps.unaligned or caps.threads > 1:
        return False
    written = {store.src[0].arg.slot for store in sink.src}
    loads = [n for n in toposort((sink,)) if n.op is ops.LOAD and n.src[0].op is ops.PARAM]
    return not any(load.src[0].arg.slot in written for load in loads)


def rounded_up(sink: UOp, columns: UOp) -> bool:
    """Whether a store's tensor is rounded up in memory along these columns."""
    args = [(store, store.src[0].arg) for store in sink.src]
    return any(
        divisor(arg.shape[arg.layout.order[-1]]) % arg.layout.room
        and columns in store.src[2 + arg.layout.order[-1]].ranges
        for store, arg in args
        if arg.layout.room > 1
    )


def in_overlapping_panels(sink: UOp, found: Mapping[int, Panels]) -> UOp:
    """The kernel over the panels of these weights."""
    panels = next(iter(found.values()))
    number = max(n.arg.number for n in toposort((sink,)) if n.op is ops.RANGE) + 1
    outer, inner = panels.ranges(number)
    sink = replace_ranges(sink, {panels.columns: (panels.place(outer, inner), (outer, inner))})

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.PARAM and node.arg.slot in found:
            axis, shape = found[node.arg.slot].axis, node.arg.shape
            shape = panels.shape(shape)
            arg = replace(node.arg, shape=shape, layout=row_major(shape))
            return UOp(ops.PARAM, node.dtype, (), arg)
        if node.op is ops.LOAD and node.src[0].op is ops.PARAM and node.src[0].arg.slot in found:
            axis, indices = found[node.src[0].arg.slot].axis, access.indices_of(node)
            new = (*indices[:axis], outer, inner, *indices[axis + 1 :])
            return access.at(node.replace(src), new)
        return None

    return bottom_up((sink,), change)[sink]
