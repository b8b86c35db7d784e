"""Reading and writing at computed positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.sorting import order_of
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.masks import mask_of
from tinyedge.export.onnx.operators import dynamic
from tinyedge.export.onnx.operators.movement import cut
from tinyedge.export.onnx.operators.shapes import checked_shape
from tinyedge.export.onnx.registry import Node, operator


def wrapped(node: Node, indices: Tensor, length: Size) -> Tensor:
    """Indices counted from the end where they are negative; checked where they are known."""
    known = node.known(indices)
    if known is not None and isinstance(length, int):
        if known.size and (known.min() < -length or known.max() >= length):
            raise node.invalid(f"an index is out of range for an axis of {show(length)}")
        if known.size and known.min() < 0:
            return node.constant(np.where(known < 0, known + length, known))
        return indices
    if known is not None and known.size:
        node.needs(length, max(-int(known.min()), int(known.max()) + 1), lenient=True)
    if indices.dtype.kind == "u":
        return indices
    if known is not None and (not known.size or known.min() >= 0):
        return indices
    size = Tensor.from_size(length, indices.dtype)
    return (indices < 0).where(indices + size, indices)


@operator("Gather")
def gather(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    axis = node.axis(0, x.ndim)
    known = node.known(indices)
    length = x.shape[axis]
    if known is not None and known.ndim == 0 and not node.counts(length):
        place = int(known)
        start = length + place if place < 0 else place
        if isinstance(length, int) and isinstance(start, int) and not 0 <= start < length:
            raise node.invalid(f"index {int(known)} of an axis of {show(length)}")
        node.needs(length, max(-place, place + 1))
        bounds: list[tuple[Size, Size]] = [(0, size) for size in x.shape]
        bounds[axis] = (start, start + 1)
        return x.shrink(bounds).reshape(x.shape[:axis] + x.shape[axis + 1 :])
    return x.gather(axis, wrapped(node, indices, length))


@operator("GatherElements")
def gather_elements(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    axis = node.axis(0, x.ndim)
    if indices.ndim != x.ndim:
        raise node.invalid(f"{indices.ndim} axes of indices for {x.ndim}")
    index = wrapped(node, indices, x.shape[axis])
    flat = flat_index(x.shape, along(x, index, axis))
    if x.ndim > 1:
        flat = within(node, flat, [index], x.shape[axis : axis + 1])
    return x.reshape((x.size,)).gather(0, flat)


def along(x: Tensor, indices: Tensor, axis: int) -> list[Tensor]:
    """For every axis of x, the coordinate that an element of `indices` addresses.

    Raises ValueError where there are more indices along another axis than elements.
    """
    coordinates = []
    for other, size in enumerate(x.shape):
        if other == axis:
            coordinates.append(indices)
        else:
            count = indices.shape[other]
            if isinstance(count, int) and isinstance(size, int) and count > size:
                raise ValueError(f"{show(indices)} is out of range along axis {other} of {show(x)}")
            place = Tensor.arange(count, indices.dtype)
            shape = [-1 if a == other else 1 for a in range(indices.ndim)]
            coordinates.append(place.reshape(shape))
    return coordinates


def flat_index(shape: tuple[Size, ...], coordinates: list[Tensor]) -> Tensor:
    """Row-major position of coordinates in a shape."""
    total: Tensor | None = None
    for axis, place in enumerate(coordinates):
        step = product(shape[axis + 1 : len(coordinates)])
        part = place if step == 1 else place * Tensor.from_size(step, place.dtype)
        total = part if total is None else total + part
    assert total is not None
    return total


@operator("GatherND", limits="a fixed index depth")
def gather_nd(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    batch = node.integer("batch_dims", 0)
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise node.unsupported(
            f"its index depth is {show(depth)}",
            supported="a fixed depth",
            next=node.remedy(depth),
        )
    if not 0 <= batch < min(x.ndim, indices.ndim):
        raise node.invalid(f"batch_dims is {batch} for {x.ndim} and {indices.ndim} axes")
    if not 1 <= depth <= x.ndim - batch:
        raise node.invalid(f"{depth} indices for {x.ndim - batch} axes")
    outer = indices.shape[:-1]
    coordinates = []
    for axis in range(batch):
        place = Tensor.arange(x.shape[axis], indices.dtype)
        shape = [-1 if a == axis else 1 for a in range(len(outer))]
        coordinates.append(place.reshape(shape))
    lengths = x.shape[batch : batch + depth]
    columns = columns_of(node, indices, lengths)
    rest = x.shape[batch + depth :]
    flat = flat_index(x.shape[: batch + depth], [*coordinates, *columns]).broadcast_to(outer)
    if batch + depth > 1:
        flat = within(node, flat, columns, lengths)
    return x.reshape((product(x.shape[: batch + depth]), *rest)).gather(0, flat)


def columns_of(node: Node, indices: Tensor, lengths: tuple[Size, ...]) -> list[Tensor]:
    """The last axis of `indices` taken apart, each column wrapped to its axis."""
    columns = []
    for position, length in enumerate(lengths):
        column = indices[..., position]
        columns.append(wrapped(node, node.folded(column), length))
    return columns


def within(node: Node, flat: Tensor, columns: Sequence[Tensor], lengths: Sequence[Size]) -> Tensor:
    """Flat places; -1 where one of the columns is beyond its axis, not a place in another row."""
    for column, length in zip(columns, lengths, strict=True):
        if node.known(column) is None or node.counts(length):
            inside = (column >= 0) & (column < Tensor.from_size(length, column.dtype))
            flat = inside.where(flat, -1)
    return flat


@operator("OneHot", limits="a depth from constants and shapes")
def one_hot(node: Node, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    (size,) = node.sizes(depth.cast(dt.int64), "depth")
    axis = node.axis(-1, indices.ndim + 1)
    checked_shape(node, [*indices.shape, size])
    kind = dt.int32 if indices.dtype is dt.int32 else dt.int64  # narrower ones may not hold depth
    whole = indices.cast(kind)
    wrapped_index = (whole < 0).where(whole + Tensor.from_size(size, kind), whole)
    place = Tensor.arange(size, kind).reshape([-1] + [1] * (indices.ndim - axis))
    off, on = values[0], values[1]
    return wrapped_index.unsqueeze(axis).eq(place).where(on, off)


@operator("TopK", limits="a computed K: below a bound")
def top_k(node: Node, x: Tensor, k: Tensor | None = None) -> list[Tensor]:
    """Equal elements by the lower index; a NaN is greater than every number, as in numpy's sort.

    Where K or the length is known only to a run, there are at most as many as the length.
    """
    axis = node.axis(-1, x.ndim)
    length = x.shape[axis]
    if k is None:
        count: Size = node.integer("k", -1)
    elif node.unknown_sizes(k):
        wanted = k.reshape(()).cast(dt.int64)
        most = node.bound(maximum(length))
        count = node.dynamic_size(wanted.minimum(Tensor.from_size(length, dt.int64)), most)
    else:
        (count,) = node.sizes(k, "K")
    least = count if isinstance(count, int) else 0
    if not 0 <= least <= maximum(length):
        raise node.invalid(f"K is {show(count)} for an axis of {show(length)}")
    count = ix.minimum(count, length)
    values = x.transpose(axis, -1)
    places = order_of(values, count, descending=bool(node.integer("largest", 1)))
    picked = values.gather_elements(-1, places)
    return [picked.transpose(axis, -1), places.cast(dt.int64).transpose(axis, -1)]


# Results whose size depends on the data: where that is not known, as many as a run finds.


@operator("NonZero", limits="dynamic: as many elements as a run finds")
def non_zero(node: Node, x: Tensor) -> Tensor:
    value = node.known(x)
    if value is not None:
        return node.constant(np.argwhere(value).T.astype(np.int64))
    bound = node.bound(maximum(x.size))
    found, count = dynamic.non_zero(x, max(1, bound))
    return cut(found, 1, 0, node.dynamic_size(count, bound, mask_of(x.cast(dt.bool_).node)))


@operator("Compress", limits="dynamic: as many elements as a run finds")
def compress(node: Node, x: Tensor, condition: Tensor) -> Tensor:
    axis = node.axis(0, x.ndim) if node.has("axis") else None
    known = node.known(condition)
    if known is None:
        bound = node.bound(min(maximum(condition.size), maximum(_length(x, axis))))
        found, count = dynamic.compress(x, condition, axis, max(1, bound))
        return cut(found, axis or 0, 0, node.dynamic_size(count, bound, mask_of(condition.node)))
    chosen = node.constant(np.flatnonzero(known).astype(np.int32))
    if axis is not None:
        return x.gather(axis, chosen)
    return x.reshape((x.size,)).gather(0, chosen)


def _length(x: Tensor, axis: int | None) -> Size:
    """The size of an axis, or of the whole."""
    return x.size if axis is None else x.shape[axis]


@operator("Unique", limits="dynamic: as many elements as a run finds")
def unique(node: Node, x: Tensor) -> list[Tensor]:
    axis = node.axis(0, x.ndim) if node.has("axis") else None
    value = node.known(x)
    if value is None:
        bound = node.bound(maximum(_length(x, axis)))
        ascending = bool(node.integer("sorted", 1))
        found = dynamic.unique(x, axis, max(1, bound), ascending=ascending)
        n = node.dynamic_size(found.count, bound)
        places = [cut(part, 0, 0, n) for part in (found.first, found.counts)]
        return [cut(found.values, axis or 0, 0, n), places[0], found.inverse, places[1]]
    values, first, inverse, counts = np.unique(
        value, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not node.integer("sorted", 1):
        order = np.argsort(first, kind="stable")
        values = np.take(values, order, axis=axis or 0)
        first, counts = first[order], counts[order]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        inverse = back[inverse]
    places = [node.constant(part.astype(np.int64)) for part in (first, inverse, counts)]
    return [node.constant(values).cast(x.dtype), *places]


@operator("NonMaxSuppression", limits="dynamic: as many elements as a run finds")
def non_max_suppression(
    node: Node,
    boxes: Tensor,
    scores: Tensor,
    most: Tensor | None = None,
    overlap: Tensor | None = None,
    least: Tensor | None = None,
) -> Tensor:
    number, classes, count = scores.shape
    known = node.known(most)
    each = maximum(count)
    if most is None or known is not None:
        each = min(each, max(0, 0 if known is None else int(known.reshape(-1)[0])))
    bound = node.bound(each * maximum(number * classes))
    found, kept = dynamic.non_max_suppression(
        boxes,
        scores,
        each if most is None or known is not None else most,
        max(1, bound),
        overlap=0.0 if overlap is None else overlap.reshape(()),
        least=None if least is None else least.reshape(()),
        centered=bool(node.integer("center_point_box", 0)),
    )
    return cut(found, 0, 0, node.dynamic_size(kept, bound))
