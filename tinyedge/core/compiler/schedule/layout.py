"""How each tensor lies in memory: decided when the kernel that writes it is formed.

An activation keeps the axis innermost along which its kernel computes vectors: the output channel
of a contraction with weights, otherwise the axis that is innermost in what the kernel reads. That
axis is rounded up to whole vectors. A weight is stored in the order in which its kernel reads it.
Inputs and outputs are row-major.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.tiles import (
    columns_pay,
    filters_apart,
    panel_vectors,
    taps_of,
)
from tinyedge.core.compiler.schedule.canonical import make_range, replace_ranges
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.buffers import PIXEL, Layout, Rows, innermost, row_major
from tinyedge.core.ir.polynomial import divisor, terms
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Shape, Size, UOp, as_node, as_size, toposort

MOST_WASTE = 2.0  # memory of an image against what is in it
SMALL_AXIS = 3  # an innermost axis below this size is not rounded up


OF_OUTPUTS = ("batch", "rows", "columns")
OF_SUMS = ("summed", "window")


@dataclass(frozen=True)
class Contraction:
    """A sum of products, classified: which ranges are batch, rows, columns, summed, and window
    positions.
    """

    reduction: UOp
    # data, filter: the two loads; `filter` is the one that holds the columns (a weight, if one is)
    data: UOp
    filter: UOp
    batch: tuple[UOp, ...]
    rows: tuple[UOp, ...]
    columns: tuple[UOp, ...]
    summed: tuple[UOp, ...]
    window: tuple[UOp, ...]

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the ranges by role."""
        roles = (*OF_OUTPUTS, *OF_SUMS)
        return {role: tuple(r.arg.number for r in getattr(self, role)) for role in roles}


def contractions(sink: UOp) -> list[Contraction]:
    """Those of a kernel; none if a store has none, or other reductions."""
    found = [_contractions(store) for store in sink.src]
    each = dict.fromkeys(each for several in found for each in several)
    return list(each) if all(found) else []


def _contractions(root: UOp) -> list[Contraction]:
    """Those that a store's value is made of, beside each other."""
    reductions = [n for n in toposort((root,)) if n.op is ops.REDUCE_LOOP]
    found = [each for each in map(contraction_of, reductions) if each is not None]
    if len(found) < len(reductions):
        return []
    apart = all(each.rows or each.columns for each in found)
    return found if len(found) == 1 or apart else []


def alike(found: Sequence[Contraction]) -> bool:
    """Whether the ranges of outputs have the same roles in all contractions."""
    each = [contraction.roles() for contraction in found]
    return all(each[0][role] == other[role] for other in each[1:] for role in OF_OUTPUTS)


def joint_roles(found: Sequence[Contraction], sink: UOp) -> dict[str, tuple[int, ...]] | None:
    """Numbers of a kernel's ranges by their role in its contractions, as far as it still has them;
    those of outputs as in the first one.
    """
    if not found:
        return None
    each = [contraction.roles() for contraction in found]
    left = {n.arg.number for n in toposort((sink,)) if n.op is ops.RANGE}
    roles = {role: each[0][role] for role in OF_OUTPUTS}
    roles |= {role: tuple(n for one in each for n in one[role]) for role in OF_SUMS}
    return {role: tuple(n for n in numbers if n in left) for role, numbers in roles.items()}


def classify(root: UOp) -> Contraction | None:
    """The contraction of a store, or the first of several: its sums are over products of two sides
    with loads.
    """
    found = _contractions(root)
    return found[0] if found else None


def contraction_of(reduction: UOp) -> Contraction | None:
    """A reduction, if it is a sum over products of two sides with loads."""
    body = reduction.src[0]
    if reduction.arg is not ops.ADD or body.op not in (ops.MUL, ops.PAIRS, ops.QUADS):
        return None
    if any(n.op is ops.REDUCE_LOOP for n in toposort((body,))):
        return None
    left, right = body.src
    data, weights = _main_load(left), _main_load(right)
    if data is None or weights is None:
        return None
    if data.src[0].arg.weight and not weights.src[0].arg.weight:
        data, weights, left, right = weights, data, right, left
    outer = sorted(reduction.ranges, key=lambda r: r.arg.number)
    reduced = reduction.src[1:]
    window = tuple(r for r in reduced if _shares_axis(data, r))
    return Contraction(
        reduction,
        data,
        weights,
        tuple(r for r in outer if r in left.ranges and r in right.ranges),
        tuple(r for r in outer if r in left.ranges and r not in right.ranges),
        tuple(r for r in outer if r not in left.ranges and r in right.ranges),
        tuple(r for r in reduced if r not in window),
        window,
    )


def _main_load(side: UOp) -> UOp | None:
    """The load of a side that depends on most ranges: a prologue may bring others."""
    loads = [n for n in toposort((side,)) if n.op is ops.LOAD]
    return max(loads, key=lambda n: len(n.ranges), default=None)


def _shares_axis(load: UOp, r: UOp) -> bool:
    """Whether one of the load's indices depends on the range and on an outer one."""
    for index in load.src[1:]:
        if index.dtype is dt.index and r in index.ranges:
            if any(other.arg.kind == "loop" for other in index.ranges):
                return True
    return False


def output_layout(
    shape: Shape, store: UOp, caps: Caps, exact: bool, axis: int | None = None
) -> Layout:
    """The layout of what a kernel writes. exact: it is written in parts, so nothing is rounded up.
    axis: the one that is innermost; None: the one along which the kernel computes vectors.
    """
    default = row_major(shape)
    if len(shape) < 2:
        return default
    if axis is None:
        axis = _vector_axis(shape, store, caps)
    if axis is None:
        return default
    size = shape[axis]
    whole = store.src[2 + axis].op is ops.RANGE
    if exact or not whole or not isinstance(size, int) or size < SMALL_AXIS:
        return innermost(shape, axis, 1)
    return innermost(shape, axis, caps.vector)


def _vector_axis(shape: Shape, store: UOp, caps: Caps) -> int | None:
    """The axis along which the kernel should compute vectors."""
    indices = access.indices_of(store)
    for node in toposort((store.src[1],)):
        if node.op is ops.ATTEND_LOOP:  # along columns, all of which share a row's scores
            score, value, *_ = node.src
            own = sorted(value.ranges - score.ranges, key=lambda r: int(r.arg.number))
            axis = _axis_of(indices, _longest(tuple(own)))
            if axis is not None:
                return axis
    axis = _axis_of(indices, _widest_column(store, caps))
    if axis is not None:
        return axis
    loads = [n for n in toposort((store.src[1],)) if n.op is ops.LOAD and not n.src[0].arg.weight]
    loads.sort(key=lambda n: -maximum(product(n.src[0].arg.shape)))
    for load in loads:
        param = load.src[0].arg
        if not param.layout.order:
            continue
        inner = load.src[1 + param.layout.order[-1]]
        along = terms(inner)
        for r in sorted(inner.ranges, key=lambda r: (along.get((r,), 0) != 1, r.arg.number)):
            axis = _axis_of(indices, r)
            if axis is not None:
                return axis
    return None


def _widest_column(store: UOp, caps: Caps) -> UOp | None:
    """The longest range of a contraction's columns, or batch, where its filter is a weight or may
    be laid out for it.
    """
    contraction = classify(store)
    if contraction is None:
        return None
    if not contraction.filter.src[0].arg.weight:
        return _longest(contraction.columns) if caps.scalar_operands else None
    return _longest(contraction.columns or contraction.batch)


def _filter_column(store: UOp, caps: Caps) -> UOp | None:
    """The range along which a kernel computes vectors wherever its results lie; None where these
    decide: where they lie in whole vectors along columns, or along rows of which the data is read
    in vectors.
    """
    if caps.scalar_operands:
        return _widest_column(store, caps)
    contraction = classify(store)
    if contraction is None or not contraction.filter.src[0].arg.weight:
        return None
    own = (*contraction.batch, *contraction.rows, *contraction.columns)
    along = next((r for r in own if _innermost_terms(store).get((r,), 0) == 1), None)
    number = None if along is None else along.arg.number
    if not filters_apart(store, contraction.roles(), number, caps):
        return None
    if along in contraction.columns:
        room = store.src[0].arg.layout.room
        if divisor(as_size(along.src[0])) % caps.vector == 0 or room % caps.vector == 0:
            return None
    read = _innermost_terms(contraction.data)
    taps = (*contraction.summed, *contraction.window)
    # where filters are images, one read brings four steps for all vectors of a row's pixels
    shifted = not caps.image and any(read.get((tap,), 0) % caps.vector for tap in taps)
    both = (contraction.data, store)
    if not shifted and all(_run(n, contraction.rows) % caps.vector == 0 for n in both):
        return None
    return _longest(
        tuple(r for r in contraction.columns if columns_pay(r.src[0], caps, contiguous=r is along))
    )


def _run(node: UOp, ranges: Collection[UOp]) -> int:
    """A divisor of how many elements lie one after the other in what a node loads from or stores
    to, as some ranges go through them.
    """
    param = node.src[0].arg
    reached: Size = 1
    place = param.layout.flatten(param.shape, access.indices_of(node))
    for monomial, step in sorted(terms(place).items(), key=lambda item: item[1]):
        if step == reached and len(monomial) == 1 and monomial[0] in ranges:
            reached = reached * as_size(monomial[0].src[0])
    return divisor(reached)


def _innermost_terms(node: UOp) -> Mapping[tuple[UOp, ...], int]:
    """Of the index along the axis that is innermost in what a node loads from or stores to."""
    order = node.src[0].arg.layout.order
    return terms(access.indices_of(node)[order[-1] if order else -1])


def _longest(ranges: tuple[UOp, ...]) -> UOp | None:
    return max(ranges, key=lambda r: maximum(as_size(r.src[0])), default=None)


def column_axis(contraction: Contraction) -> int | None:
    """The axis of a contraction's filter along which its longest range of columns runs."""
    column = _longest(contraction.columns)
    for axis, index in enumerate(access.indices_of(contraction.filter)):
        if column is not None and terms(index).get((column,), 0) == 1:
            return axis
    return None


def reading_order(contraction: Contraction, load: UOp, inner: int) -> tuple[int, ...]:
    """The axes of a contraction's operand as its loops go through them, but for one axis, which is
    innermost.
    """
    loops = contraction.reduction.src[1:]

    def depth(axis: int) -> tuple[bool, int, int]:
        own = access.indices_of(load)[axis].ranges
        return axis == inner, max((n for n, r in enumerate(loops) if r in own), default=-1), axis

    return tuple(sorted(range(len(load.src[0].arg.shape)), key=depth))


def _axis_of(indices: tuple[UOp, ...], r: UOp | None) -> int | None:
    if r is None:
        return None
    for axis, index in enumerate(indices):
        if r in index.ranges:
            return axis
    return None


def image_rows(shape: Shape, layout: Layout, caps: Caps, axes: int | None) -> Rows | None:
    """How a tensor of this layout becomes an image; None where it must stay a buffer.

    axes: how many outer axes should number the rows, which makes reading beyond the others read
    zeros; None: whatever wastes the least memory. Another number is taken where that one is beyond
    the device's limits or rows that are rounded up would waste more than half of the memory.
    """
    stored = layout.stored(shape)
    sizes = [size for size in stored if isinstance(size, int)]
    if not caps.image or len(sizes) < len(stored) or len(sizes) < 2 or sizes[-1] % PIXEL:
        return None
    candidates = []
    for outer in range(len(sizes)):
        rows = Rows(outer, caps.image_pitch)
        image = replace(layout, rows=rows)
        width, height = image.image(shape)
        if max(width, height) > caps.image or not width or not height:
            continue
        waste = image.pitch(shape) / (width * PIXEL)
        wanted = outer == axes and waste <= MOST_WASTE
        candidates.append((not wanted, waste, abs(width - height), outer, rows))
    best = min(candidates, default=None, key=lambda c: c[:4])
    if best is None or best[1] > MOST_WASTE:
        return None
    return best[-1]


def weight_layout(
    load: UOp,
    store: UOp,
    reduce_order: tuple[UOp, ...],
    caps: Caps,
    parts: Collection[int] = (),
) -> Layout | None:
    """The order in which a kernel reads a weight; None where it is not read axis by axis. parts:
    axes of which other loads read the other places, at the same time; they are outermost.

    Reduced ranges lie outside in the order of their loops, then output ranges; the one along which
    the output's vectors lie is innermost. It is rounded up, and so is the innermost reduced one
    where vectors are loaded along it.
    """
    param = load.src[0].arg
    shape = param.shape
    indices = load.src[1 : 1 + len(shape)]
    column = _filter_column(store, caps)
    axes: dict[UOp, int] = {}
    for axis, index in enumerate(indices):
        if index.op is ops.RANGE and index not in axes and as_size(index.src[0]) == shape[axis]:
            axes[index] = axis
        elif shape[axis] != 1 and not (caps.scalar_operands and axis in parts):
            return None if caps.scalar_operands else _columns_last(load, column, caps)
    vector, rounded = _stored_along(store, caps), store.src[0].arg.layout.room > 1
    if column in axes:
        vector, rounded = column, True
    reduced = [r for r in reduce_order if r in axes]
    outputs = [r for r in sorted(axes, key=lambda r: r.arg.number) if r not in reduced]
    if vector in axes and vector in outputs:
        outputs.remove(vector)
        ranges = [*outputs, *reduced, vector]
    else:
        ranges = [*outputs, *reduced]
    singles = [axis for axis in range(len(shape)) if axis not in axes.values()]
    order = (*singles, *(axes[r] for r in ranges))
    pads = [1] * len(order)
    if ranges and ranges[-1] is vector and rounded:
        pads[-1] = caps.vector
        if reduced and not caps.scalar_operands and not _is_tap(reduced[-1], column, store):
            pads[-2] = caps.vector
    return Layout(tuple(order), tuple(pads))


def _stored_along(store: UOp, caps: Caps) -> UOp | None:
    """The range along which a store writes neighbors; in a part of what it writes to, as a
    concatenation's, one of whole vectors.
    """
    order = store.src[0].arg.layout.order
    index = access.indices_of(store)[order[-1]] if order else None
    if index is None or index.op is ops.RANGE:
        return index
    along = _innermost_terms(store)
    runs = (r for r in index.ranges if along.get((r,), 0) == 1)
    return next((r for r in runs if divisor(as_size(r.src[0])) % caps.vector == 0), None)


def _is_tap(reduced: UOp, column: UOp | None, store: UOp) -> bool:
    """Whether a range is a window's, where vectors lie along a column for the weight's sake."""
    contraction = classify(store) if column is not None else None
    return contraction is not None and reduced in contraction.window


def _columns_last(load: UOp, column: UOp | None, caps: Caps) -> Layout | None:
    """The axis of a kernel's columns innermost and the others in order, where along one of these
    the steps of a window run backwards, as those of transposed convolutions do.
    """
    shape = load.src[0].arg.shape
    for axis, index in enumerate(load.src[1 : 1 + len(shape)]):
        steps = dict(terms(index))
        if column is not None and steps.pop((column,), 0) == 1:
            aligned = all(step % caps.vector == 0 for step in steps.values())
            return innermost(shape, axis, caps.vector) if aligned else None
    return None


def parts_columns(sink: UOp, caps: Caps) -> set[int]:
    """The slots of weights that are read by vectors of columns, of which the last one is rounded
    up, and by other ranges along the same axis: it must become several to be rounded up.
    """
    found = set()
    for store in sink.src:
        column = _filter_column(store, caps)
        if column is None or divisor(as_size(column.src[0])) % caps.vector == 0:
            continue
        for node in toposort((store,)):
            if node.op is ops.LOAD and node.src[0].arg.weight:
                others = [index for index in access.indices_of(node) if index is not column]
                if any(column in index.ranges for index in others):
                    found.add(node.src[0].arg.slot)
    return found


def in_panels(
    sink: UOp, layouts: Mapping[int, Layout], caps: Caps
) -> tuple[UOp, dict[int, Layout]]:
    """A kernel, and its weights' layouts by their slots: those of contractions' filters with the
    columns in panels as wide as a tile where they have more. The tile reads one panel from its
    first element to its last.
    """
    panels = {
        slot: column
        for contraction in contractions(sink)
        if (slot := contraction.filter.src[0].arg.slot) in layouts
        and (column := _panel_column(contraction, layouts[slot], taps_of(sink), caps)) is not None
    }
    if len(set(panels.values())) != 1:
        return sink, dict(layouts)
    ((columns, panel),) = set(panels.values())
    number = max(n.arg.number for n in toposort((sink,)) if n.op is ops.RANGE) + 1
    outer = make_range(as_size(columns.src[0]) // panel, number, columns.arg.kind)
    inner = make_range(panel, number + 1, columns.arg.kind)
    whole = as_node(outer * panel + inner)
    split = replace_ranges(sink, {columns: (whole, (outer, inner))})
    in_two = {slot: replace(layouts[slot], panel=panel) for slot in panels}
    return split, {**layouts, **in_two}


def _panel_column(
    contraction: Contraction, layout: Layout, taps: int, caps: Caps
) -> tuple[UOp, int] | None:
    """The range of a filter's columns and how many of them a panel has, if they are in panels."""
    if not caps.scalar_operands or layout.room != caps.vector:
        return None
    columns = contraction.filter.src[1 + layout.order[-1]]
    size = as_size(columns.src[0]) if columns in contraction.columns else 0
    if not isinstance(size, int) or not size or size % caps.vector:
        return None
    panel = panel_vectors(size // caps.vector, caps, taps) * caps.vector
    return None if panel == size else (columns, panel)
