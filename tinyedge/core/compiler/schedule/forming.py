"""Kernels over flat memory: how what they write lies in it, and which layouts their weights get.

Equal kernels are the same node, because buffers are named by slot and ranges by number:
deduplication needs no key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.schedule.canonical import (
    collapse,
    flatten,
    order_reductions,
    share_reductions,
    split_ranges,
)
from tinyedge.core.compiler.schedule.computed_filters import Filter, computed_filter, turned_data
from tinyedge.core.compiler.schedule.dynamic import bound_ranges, read_dynamic_sizes
from tinyedge.core.compiler.schedule.indexing import Indexer
from tinyedge.core.compiler.schedule.launches import Refusals, ScheduleOptions
from tinyedge.core.compiler.schedule.layout import (
    Contraction,
    alike,
    classify,
    contractions,
    image_rows,
    in_panels,
    joint_roles,
    output_layout,
    parts_columns,
    weight_layout,
)
from tinyedge.core.compiler.schedule.packing import unpack
from tinyedge.core.compiler.schedule.weight_axes import (
    Panels,
    Spans,
    in_overlapping_panels,
    overlapping_panels,
    part_axes,
    read_spans,
    split_axes,
    split_shape,
    split_values,
    sums_of_digits,
)
from tinyedge.core.compiler.schedule.within import compute_within
from tinyedge.core.ir import ops
from tinyedge.core.ir.buffers import Layout, Placement, TensorBuffer, row_major
from tinyedge.core.ir.dynamic_sizes import is_dynamic
from tinyedge.core.ir.movement import Indices
from tinyedge.core.ir.polynomial import divisor
from tinyedge.core.ir.rewrite import bottom_up, substitute
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Shape, Size, UOp, cast, const, elementwise, toposort

Array = np.ndarray[Any, Any]
LARGEST_FP16 = 65504.0
# numbers that a sum takes for each that it leaves, to leave little; and a greatest or least number
MANY_TO_ONE, EXTREME_OF = 8, 128
FP16_TOGETHER = 4  # fp16 values that one thread owns together

# From an indexer, which brings what a kernel reads, and the indices of an element to its store,
# guarded or not.
Write = Callable[[Indexer, Indices], UOp]


@dataclass(frozen=True)
class Undecided:
    """What a buffer's first kernel must know to decide how it lies in memory."""

    in_parts: bool  # several kernels write it, so nothing is rounded up
    parts: Sequence[UOp]  # the assignments that it is made of
    keep_fp32: bool  # it is never kept as fp16


@dataclass(frozen=True)
class Part:
    """What a kernel stores in one buffer."""

    write: Write
    shape: Shape  # the store is done for all indices of it
    output: TensorBuffer
    undecided: Undecided | None  # None: how the output lies is decided already


@dataclass(eq=False)
class Draft:
    """A kernel that is formed, and formed anew when what it reads or writes lies otherwise.

    parts: of equal shapes, so that all stores are over the same ranges; or some without the last
    axis, of what is known of a row.
    """

    parts: tuple[Part, ...]
    nodes: tuple[str, ...]  # the model's names of what it computes
    read: Mapping[UOp, Placement] = field(default_factory=dict)  # where what it reads lies
    held: tuple[Draft, ...] = ()  # kernels that are computed within it, see `schedule/held`
    # of what its product loads, in panels, see `schedule/filters`
    copies: dict[UOp, TensorBuffer] = field(default_factory=dict)
    # as it is formed, see `ScheduledLaunch`
    sink: UOp = field(init=False)
    storages: tuple[TensorBuffer, ...] = ()
    contraction: Mapping[str, tuple[int, ...]] | None = None
    filter: Filter | None = None
    data: Filter | None = None

    @property
    def outputs(self) -> list[TensorBuffer]:
        """The buffers that it writes, in the order of their slots."""
        return list(dict.fromkeys(part.output for part in self.parts))

    def decides(self, output: TensorBuffer) -> bool:
        """Whether it is the kernel that decides how a buffer lies in memory."""
        return any(p.output is output and p.undecided is not None for p in self.parts)


class Former:
    """Forms the kernels of an entry, those in its loops included."""

    def __init__(self, options: ScheduleOptions) -> None:
        self.options = options
        self.refusals = Refusals()
        self.innermost: dict[UOp, int] = {}  # the axis that a tensor's readers want innermost
        self.counts: dict[str, TensorBuffer] = {}  # where the values of dynamic symbols lie
        self.drafts: list[Draft] = []
        # a weight's layouts, each of which is stored once
        self.weights: dict[tuple[TensorBuffer, Layout], TensorBuffer] = {}
        # weights on other axes
        self.made: dict[tuple[TensorBuffer, Spans | Panels], TensorBuffer] = {}

    def add(self, draft: Draft, placed: Mapping[UOp, Placement]) -> None:
        """Form one more kernel. placed: where the nodes that it may read lie."""
        self.drafts.append(draft)
        draft.read = self._form(draft, placed)

    def read_copy(self, draft: Draft, load: UOp, copy: TensorBuffer) -> None:
        """Form a kernel anew that reads an operand of its product from a copy in panels."""
        draft.copies[load] = copy
        draft.read = self._form(draft, draft.read)

    def joined(self, one: Draft, two: Draft) -> Draft:
        """A kernel that does what two do, over the same ranges. What the second read of the first
        one is at hand; it is stored after what is made of it, as it may overwrite what it was
        made of.
        """
        read = {**one.read, **two.read}
        made = {node for node, place in read.items() if place.storage in one.outputs}
        parts = (*two.parts, *one.parts) if made else (*one.parts, *two.parts)
        draft = Draft(parts, tuple(dict.fromkeys((*one.nodes, *two.nodes))))
        left = {node: place for node, place in read.items() if node not in made}
        draft.read = self._form(draft, left)
        return draft

    def with_sum(self, inner: Draft, outer: Draft) -> Draft | None:
        """A kernel that computes what another one leaves for it alone, in the place of both; None
        if it would compute it more than once.
        """
        made = {n for n, place in outer.read.items() if place.storage in inner.outputs}
        left = {n: place for n, place in outer.read.items() if n not in made}
        draft = Draft(outer.parts, tuple(dict.fromkeys((*inner.nodes, *outer.nodes))))
        draft.read = self._form(draft, {**inner.read, **left})
        sums = [n for n in toposort((draft.sink,)) if n.op is ops.REDUCE_LOOP]
        fits = len(draft.storages) <= self.options.caps.bindings
        if len(sums) > 1 or not fits or (draft.contraction is None) != (inner.contraction is None):
            self._form(outer, outer.read)
            return None
        self.drafts[self.drafts.index(outer)] = draft
        self.drafts.remove(inner)
        return draft

    def take(self, draft: Draft, one: Draft, two: Draft) -> None:
        """Have a kernel in the place of the first of two that it is joined of."""
        self.drafts[self.drafts.index(one)] = draft
        self.drafts.remove(two)

    def held(self, inner: Draft, outer: Draft) -> Draft:
        """A kernel within which one more is computed, in the place of both."""
        (part,) = inner.parts
        assert part.undecided is not None
        inner.parts = (replace(part, undecided=replace(part.undecided, keep_fp32=True)),)
        self._reset(part.output)
        self._form(inner, inner.read)
        nodes = tuple(dict.fromkeys((*inner.nodes, *outer.nodes)))
        draft = Draft(outer.parts, nodes, {}, (*outer.held, inner))
        draft.read = self._form(draft, outer.read)
        self.drafts[self.drafts.index(outer)] = draft
        return draft

    def refuse(self, refusals: Refusals) -> None:
        """Form those kernels anew that read or write tensors that are refused now."""
        refused = refusals.nodes - self.refusals.nodes
        self.refusals = refusals
        self._form_again(refused)

    def settle(self) -> None:
        """Form those kernels anew that write tensors whose readers want another axis innermost, and
        those readers.
        """
        wanted: dict[TensorBuffer, set[int]] = {}
        for draft in self.drafts:
            if draft.filter is not None:
                wanted.setdefault(draft.filter.storage, set()).add(draft.filter.axis)
        parts = (part for draft in self.drafts for part in draft.parts)
        decided = {part.output for part in parts if part.undecided is not None}
        for storage, axes in wanted.items():
            if len(axes) > 1 or storage not in decided or storage.node is None:
                continue
            (axis,) = axes
            if isinstance(storage.shape[axis], int) and storage.layout.order[-1] != axis:
                self.innermost[storage.node] = axis
        self._form_again(frozenset(self.innermost))

    def read_again(self, storages: Collection[TensorBuffer]) -> None:
        """Form those kernels anew that read or write what lies otherwise than before."""
        self._form_again((), storages)

    def _form_again(self, nodes: Collection[UOp], storages: Collection[TensorBuffer] = ()) -> None:
        """Form those kernels anew that read or write these tensors."""
        changed = set(storages)
        for draft in self.drafts:  # what writes a buffer first comes before what reads it
            if not any(s.node in nodes or s in changed for s in draft.storages):
                continue
            before = [(output, output.dtype, output.layout) for output in draft.outputs]
            for output in filter(draft.decides, draft.outputs):
                self._reset(output)
            self._form(draft, draft.read)
            changed.update(s for s, *was in before if was != [s.dtype, s.layout])

    def _reset(self, output: TensorBuffer) -> None:
        """The buffer as it was before its first kernel."""
        assert output.node is not None
        output.dtype = self.options.caps.stored_type(output.node.dtype)
        output.layout = row_major(output.shape)
        output.rounded = False

    def _form(self, draft: Draft, placed: Mapping[UOp, Placement]) -> Mapping[UOp, Placement]:
        """Fill in the kernel; gives where the nodes that it read lie."""
        indexer = Indexer(placed, draft.outputs)
        longest = max((part.shape for part in draft.parts), key=len)
        indices = tuple(indexer.range(size, "loop") for size in longest)
        stores = [part.write(indexer, indices[: len(part.shape)]) for part in draft.parts]
        sink = UOp(ops.SINK, dt.index, tuple(stores))
        sink = _split(sink if contractions(sink) else share_reductions(sink))
        for store, part in zip(sink.src, draft.parts, strict=True):
            if part.undecided is not None:
                self._decide(part, store, indexer.storages)
        sink, storages = self._with_weights(sink, indexer.storages)
        draft.filter = computed_filter(sink, storages, self.options.caps)
        draft.data = turned_data(sink, storages, self.options.caps)
        operands = {each.load: each for each in (draft.filter, draft.data) if each is not None}
        for load, copy in draft.copies.items():
            sink = operands[load].from_copy(sink, len(storages), copy)
            storages = [*storages, copy]
        if draft.copies:
            sink, storages = _without_unused(sink, storages)
        sink, found = _formed(sink)
        sink = unpack(sink, storages)
        if self.counts:
            sink, storages = read_dynamic_sizes(
                bound_ranges(sink, self.counts), storages, self.counts
            )
            sink, storages = _without_unused(sink, storages)
        draft.contraction = joint_roles(found, sink) if alike(found) else None
        for inner in draft.held:
            sink, storages = compute_within((sink, storages), (inner.sink, inner.storages))
        draft.sink, draft.storages = sink, tuple(storages)
        return indexer.read

    def _decide(self, part: Part, store: UOp, storages: Sequence[TensorBuffer]) -> None:
        """Decide how what a kernel stores lies in memory."""
        output, undecided, caps = part.output, part.undecided, self.options.caps
        assert undecided is not None
        dynamic = any(is_dynamic(size, self.counts) for size in output.shape)
        if not dynamic:
            output.layout = output_layout(
                output.shape,
                store,
                caps,
                undecided.in_parts,
                None if output.node is None else self.innermost.get(output.node),
            )
        if self._as_fp16(output, undecided) and not _summarizes(store, storages):
            output.dtype = dt.float32 if self.options.fp64_reference else dt.float16
            output.rounded = self.options.fp64_reference
        if not dynamic:
            axes = max(1, len(output.shape) - 2)
            output.layout = self._as_image(output, output.layout, axes)

    def _with_weights(
        self, sink: UOp, storages: Sequence[TensorBuffer]
    ) -> tuple[UOp, list[TensorBuffer]]:
        """The kernel over its buffers as they lie, with its weights in the order it reads them."""
        sink = _ordered(self._with_storages(sink, storages))
        sink, chosen_storages = self._with_axes(sink, storages)
        layouts = self._weight_layouts(sink)
        uneven = overlapping_panels(sink, layouts, self.options.caps)
        if uneven:
            sink = in_overlapping_panels(sink, uneven)
        even = {slot: layout for slot, layout in layouts.items() if slot not in uneven}
        sink, layouts_in_panels = in_panels(sink, even, self.options.caps)
        layouts.update(layouts_in_panels)
        for slot, panels in uneven.items():
            layouts[slot] = panels.layout(layouts[slot].order)
            key = (chosen_storages[slot], panels)
            chosen_storages[slot] = self._made(key, partial(panels.of, chosen_storages[slot].data))
        for slot, chosen in layouts.items():
            image = self._as_image(chosen_storages[slot], chosen, None)
            chosen_storages[slot] = self._weight(chosen_storages[slot], image)
        return _without_unused(self._with_storages(sink, chosen_storages), chosen_storages)

    def _with_axes(
        self, sink: UOp, storages: Sequence[TensorBuffer]
    ) -> tuple[UOp, list[TensorBuffer]]:
        """The kernel with those weights' axes split, or parts of them taken, that then get another
        order: where vectors begin at any element. Elsewhere they are aligned, and an axis is split
        where columns that are a part of it are rounded up to whole vectors, or several ranges sum
        along the innermost one.
        """
        spans = read_spans(sink)
        if not self.options.caps.scalar_operands:
            uneven = parts_columns(sink, self.options.caps)
            uneven |= sums_of_digits(sink)
            spans = {slot: axes for slot, axes in spans.items() if slot in uneven}
        if self.options.caps.shares_weights:
            spans = {
                slot: axes
                for slot, axes in spans.items()
                if product(split_shape(axes)) == product(storages[slot].shape)
            }
        layouts = self._weight_layouts(split_axes(sink, spans)) if spans else {}
        plain = {slot: row_major(split_shape(axes)) for slot, axes in spans.items()}
        moved = {
            slot: axes
            for slot, axes in spans.items()
            if layouts.get(slot, plain[slot]) != plain[slot]
        }
        new = list(storages)
        for slot, axes in moved.items():
            make = partial(split_values, storages[slot].data, axes)
            new[slot] = self._made((storages[slot], axes), make)
        return split_axes(sink, moved) if moved else sink, new

    def _made(
        self, key: tuple[TensorBuffer, Spans | Panels], make: Callable[[], Array]
    ) -> TensorBuffer:
        """A weight with the values of another one on other axes; each is made once."""
        if key not in self.made:
            data = make()
            layout = row_major(data.shape)
            self.made[key] = replace(key[0], shape=data.shape, layout=layout, data=data)
        return self.made[key]

    def _weight_layouts(self, sink: UOp) -> dict[int, Layout]:
        """The layouts in which a kernel reads weights, by their slots; none of those that it reads
        in several ways.
        """
        wanted: dict[int, set[Layout | None]] = {}
        for store in sink.src:
            nodes = toposort((store,))
            order = tuple(r for n in nodes if n.op is ops.REDUCE_LOOP for r in n.src[1:])
            parts = part_axes(nodes)
            for node in nodes:
                if node.op is ops.LOAD and node.src[0].arg.weight:
                    axes = parts[node.src[0]]
                    layout = weight_layout(node, store, order, self.options.caps, axes)
                    wanted.setdefault(node.src[0].arg.slot, set()).add(layout)
        only = {slot: found.pop() for slot, found in wanted.items() if len(found) == 1}
        return {slot: layout for slot, layout in only.items() if layout is not None}

    def _with_storages(self, sink: UOp, storages: Sequence[TensorBuffer]) -> UOp:
        """The kernel with its arguments' layouts and types as the storages have them now."""

        def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if node.op is ops.PARAM:
                storage = storages[node.arg.slot]
                return UOp(ops.PARAM, storage.dtype, (), replace(node.arg, layout=storage.layout))
            if node.op is ops.STORE:
                return node.replace((src[0], self._stored(src[1], src[0].dtype), *src[2:]))
            return None

        return bottom_up((sink,), change)[sink]

    def _stored(self, value: UOp, dtype: dt.DType) -> UOp:
        """A value as it is kept. Floats kept as fp16 saturate, but for infinities; targets that
        do not compute in fp16 pack them so themselves.
        """
        if (
            value.dtype is dt.float32
            and dtype is dt.float16
            and self.options.caps.types["float16"].casts
        ):
            infinite = elementwise(ops.EQ, elementwise(ops.ABS, value), const(np.inf, dt.float32))
            low = elementwise(ops.MAX, value, const(-LARGEST_FP16, dt.float32))
            near = elementwise(ops.MIN, low, const(LARGEST_FP16, dt.float32))
            value = elementwise(ops.WHERE, infinite, value, near)
        return cast(value, dtype)

    def _as_fp16(self, storage: TensorBuffer, undecided: Undecided) -> bool:
        """Whether to keep a tensor as fp16: where they are written in vectors, these must be
        whole, so that no word is shared.
        """
        node = storage.node
        if (
            not self.options.fp16_storage
            or undecided.keep_fp32
            or node in self.refusals.fp16
            or storage.dtype is not dt.float32
        ):
            return False
        layout = storage.layout
        if self.options.caps.fp16_scalar_stores:
            return True
        if not layout.order:
            return False
        inner = layout.order[-1]
        if layout.pads[-1] % FP16_TOGETHER and not _whole(storage.shape[inner]):
            return False
        return all(
            _whole(part.arg[inner].start) and _whole(part.arg[inner].end)
            for part in undecided.parts
        )

    def _as_image(self, storage: TensorBuffer, layout: Layout, axes: int | None) -> Layout:
        """The layout as an image's, with `axes` outer axes as rows if possible, where there are
        images.

        A row of values that all threads read alike stays a buffer.
        """
        if storage.node in self.refusals.images or storage.dtype not in (dt.float16, dt.float32):
            return layout
        image = replace(layout, rows=image_rows(storage.shape, layout, self.options.caps, axes))
        if image.rows is not None and product(layout.stored(storage.shape)[:-1]) == 1:
            return layout
        return image

    def _weight(self, storage: TensorBuffer, layout: Layout) -> TensorBuffer:
        """The weight in another layout; each layout of a weight is stored once."""
        if layout == storage.layout:
            return storage
        key = (storage, layout)
        if key not in self.weights:
            self.weights[key] = replace(storage, layout=layout)
        return self.weights[key]


# Models repeat their layers: what depends on a kernel alone is found once.
_split = lru_cache(128)(split_ranges)
_ordered = lru_cache(128)(order_reductions)


@lru_cache(128)
def _formed(sink: UOp) -> tuple[UOp, list[Contraction]]:
    """The kernel over flat memory, and which sums of products it was."""
    return collapse(flatten(sink)), contractions(sink)


def _summarizes(store: UOp, storages: Sequence[TensorBuffer]) -> bool:
    """Whether what is stored are few numbers made of many by sums: means, variances, norms. They
    take little memory as they are, and are soon too large for fp16 although what is made of them is
    not. Or very few that are greatest or least: as sums of the same, which they are made with.
    """
    nodes = toposort((store,))
    reduced = {n.arg for n in nodes if n.op is ops.REDUCE_LOOP}
    if not reduced:
        return False
    many = MANY_TO_ONE if reduced & {ops.ADD, ops.MUL} else EXTREME_OF
    sizes = [maximum(product(storage.shape)) for storage in storages]
    read = [sizes[n.src[0].arg.slot] for n in nodes if n.op is ops.LOAD]
    made = sizes[store.src[0].arg.slot]
    of_two = len({n.src[0] for n in nodes if n.op is ops.LOAD}) > 1 and classify(store) is not None
    return many * made <= max(read, default=0) and not of_two


def _whole(size: Size) -> bool:
    """Whether a size is a whole number of vectors of fp16 values."""
    return divisor(size) % FP16_TOGETHER == 0


def _without_unused(sink: UOp, storages: list[TensorBuffer]) -> tuple[UOp, list[TensorBuffer]]:
    """The kernel without arguments whose loads were simplified away."""
    nodes = toposort((sink,))
    used = sorted({n.arg.slot for n in nodes if n.op is ops.PARAM})
    if len(used) == len(storages):
        return sink, storages
    mapping: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op is ops.PARAM:
            arg = replace(node.arg, slot=used.index(node.arg.slot))
            mapping[node] = UOp(ops.PARAM, node.dtype, (), arg)
    return substitute((sink,), mapping)[0], [storages[slot] for slot in used]
