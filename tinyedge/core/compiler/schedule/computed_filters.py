"""A product's operand that is no weight: how it could lie, and the product over a copy of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.tiles import overlapping_vectors, panel_vectors, taps_of
from tinyedge.core.compiler.schedule.canonical import replace_ranges, steps_of
from tinyedge.core.compiler.schedule.layout import (
    Contraction,
    column_axis,
    contractions,
    reading_order,
)
from tinyedge.core.compiler.schedule.weight_axes import Panels, may_overlap, rounded_up
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.buffers import KernelArg, TensorBuffer
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.uop import UOp, as_size, toposort

ROWS_TOGETHER = 12  # of a panel of data: tiles of 2, 3, 4, 6 and 12 rows divide it


@dataclass(frozen=True)
class Filter:
    """The filter of a kernel's only product, where it is an activation, a state or an input.

    axis: the one along which its columns lie. order: its axes as the product goes through them,
    outermost first, the columns last. rows: how many of the product's rows use each element.
    elements: how many of it are read, products: for how many of a batch. panels: those that the
    product could read, if its results lie along the columns.

    data: it is the product's other operand, of which the rows lie together where a step of the sum
    is far from the next. What is said of columns and rows is then of rows and columns.
    """

    storage: TensorBuffer
    load: UOp
    axis: int
    order: tuple[int, ...]
    rows: int
    elements: int
    products: int
    panels: Panels | None
    data: bool = False

    def from_copy(self, sink: UOp, slot: int, copy: TensorBuffer) -> UOp:
        """The kernel that reads this filter from a copy in panels, which is in a new slot."""
        assert self.panels is not None
        panels, axis = self.panels, self.panels.axis
        number = max(n.arg.number for n in toposort((sink,)) if n.op is ops.RANGE) + 1
        outer, inner = panels.ranges(number)
        param = UOp(ops.PARAM, copy.dtype, (), KernelArg(slot, copy.shape, copy.layout))
        indices = access.indices_of(self.load)
        there = (*indices[:axis], outer, inner, *indices[axis + 1 :])
        load = access.load(param, there, access.guard_of(self.load))
        columns = panels.columns
        changes = {columns: (panels.place(outer, inner), (outer, inner))}
        return replace_ranges(substitute((sink,), {self.load: load})[0], changes)


def computed_filter(sink: UOp, storages: Sequence[TensorBuffer], caps: Caps) -> Filter | None:
    """The filter of a product of two tensors that are no weights, where vectors lie along it."""
    contraction = _alone(sink) if caps.scalar_operands else None
    if contraction is None or contraction.filter.src[0].arg.weight:
        return None
    axis = column_axis(contraction)
    if axis is None:
        return None
    panels = _panels(sink, contraction, axis, caps)
    return _read(storages, contraction, contraction.filter, axis, contraction.rows, panels)


def turned_data(sink: UOp, storages: Sequence[TensorBuffer], caps: Caps) -> Filter | None:
    """The data of a matrix product that is no weight, where its rows lie beside each other and the
    results do not.
    """
    contraction = _alone(sink) if caps.scalar_operands and may_overlap(sink, caps) else None
    if contraction is None or contraction.window or not contraction.columns:
        return None
    param = contraction.data.src[0].arg
    if param.weight or contraction.data.arg or not param.layout.order or param.layout.room > 1:
        return None
    axis, shape = param.layout.order[-1], param.shape
    rows = access.indices_of(contraction.data)[axis]
    whole = rows in contraction.rows and shape[axis] == as_size(rows.src[0])
    if not whole or not isinstance(shape[axis], int) or shape[axis] <= ROWS_TOGETHER:
        return None
    if any(rows in access.indices_of(s)[s.src[0].arg.layout.order[-1]].ranges for s in sink.src):
        return None
    panels = Panels(axis, ROWS_TOGETHER, rows)
    found = _read(storages, contraction, contraction.data, axis, contraction.columns, panels)
    return replace(found, data=True)


def _read(
    storages: Sequence[TensorBuffer],
    contraction: Contraction,
    load: UOp,
    axis: int,
    users: Iterable[UOp],
    panels: Panels | None,
) -> Filter:
    """An operand of a contraction, each element of which serves all steps of `users`."""
    return Filter(
        storages[load.src[0].arg.slot],
        load,
        axis,
        reading_order(contraction, load, axis),
        steps_of(users),
        steps_of(load.ranges),
        steps_of(r for r in contraction.batch if r in load.ranges),
        panels,
    )


def _alone(sink: UOp) -> Contraction | None:
    """The kernel's contraction, if it has one only."""
    found = contractions(sink)
    return found[0] if len(found) == 1 else None


def _panels(sink: UOp, contraction: Contraction, axis: int, caps: Caps) -> Panels | None:
    """The panels in which a filter could lie whose columns are along an axis."""
    columns = access.indices_of(contraction.filter)[axis]
    size = contraction.filter.src[0].arg.shape[axis]
    whole = columns.op is ops.RANGE and size == as_size(columns.src[0])
    if not whole or not isinstance(size, int):
        return None
    if not all(_runs_along(store, columns) for store in sink.src):
        return None
    vectors, taps = 0, taps_of(sink)
    if may_overlap(sink, caps) and not rounded_up(sink, columns):
        rows = steps_of(contraction.rows)
        vectors = overlapping_vectors(columns.src[0], taps, caps, rows)
    if not vectors and size % caps.vector == 0:
        vectors = panel_vectors(size // caps.vector, caps, taps)
    return Panels(axis, vectors * caps.vector, columns) if vectors else None


def _runs_along(store: UOp, column: UOp) -> bool:
    """Whether what a kernel stores lies along a range."""
    order = store.src[0].arg.layout.order
    return bool(order) and access.indices_of(store)[order[-1]] is column
