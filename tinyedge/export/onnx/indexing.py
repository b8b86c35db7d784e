"""Reading and writing at computed positions."""

from __future__ import annotations

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.rules import index as ix
from tinyedge.core.tensor import Tensor
from tinyedge.core.uop import Size, product
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.registry import Node, operator
from tinyedge.export.onnx.shapes import checked_shape
from tinyedge.export.onnx.sorting import order_of


def wrapped(node: Node, indices: Tensor, length: Size, what: str = "index") -> Tensor:
    """Indices counted from the end where they are negative; checked where they are known."""
    known = node.known(indices)
    if known is not None and isinstance(length, int):
        if known.size and (known.min() < -length or known.max() >= length):
            raise node.invalid(f"an {what} is out of range for an axis of {show(length)}")
        if known.size and known.min() < 0:
            return node.constant(np.where(known < 0, known + length, known))
        return indices
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
    if known is not None and known.ndim == 0:
        place = int(known)
        start = ix.size_add(length, place) if place < 0 else place
        if isinstance(length, int) and isinstance(start, int) and not 0 <= start < length:
            raise node.invalid(f"index {int(known)} of an axis of {show(length)}")
        bounds: list[tuple[Size, Size]] = [(0, size) for size in x.shape]
        bounds[axis] = (start, ix.size_add(start, 1))
        return x.shrink(bounds).reshape(x.shape[:axis] + x.shape[axis + 1 :])
    return x.gather(axis, wrapped(node, indices, length))


@operator("GatherElements")
def gather_elements(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    axis = node.axis(0, x.ndim)
    if indices.ndim != x.ndim:
        raise node.invalid(f"{indices.ndim} axes of indices for {x.ndim}")
    return take_at(x, along(node, x, wrapped(node, indices, x.shape[axis]), axis))


def along(node: Node, x: Tensor, indices: Tensor, axis: int) -> list[Tensor]:
    """For every axis of x, the coordinate that an element of `indices` addresses."""
    coordinates = []
    for other in range(x.ndim):
        if other == axis:
            coordinates.append(indices)
        else:
            place = Tensor.arange(indices.shape[other], indices.dtype)
            shape = [-1 if a == other else 1 for a in range(indices.ndim)]
            coordinates.append(place.reshape(shape))
    return coordinates


def take_at(x: Tensor, coordinates: list[Tensor]) -> Tensor:
    """The elements of x at coordinates, one tensor an axis, broadcast together."""
    flat = flat_index(x.shape, coordinates)
    return x.reshape((x.size,)).gather(0, flat)


def flat_index(shape: tuple[Size, ...], coordinates: list[Tensor]) -> Tensor:
    """Row-major position of coordinates in a shape."""
    total: Tensor | None = None
    for axis, place in enumerate(coordinates):
        step = product(shape[axis + 1 : len(coordinates)])
        part = place if step == 1 else place * Tensor.from_size(step, place.dtype)
        total = part if total is None else total + part
    assert total is not None
    return total


@operator("GatherND")
def gather_nd(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    batch = node.integer("batch_dims", 0)
    depth = indices.shape[-1]
    if not isinstance(depth, int) or not 0 <= batch < min(x.ndim, indices.ndim):
        raise node.unsupported("its index depth is symbolic", supported="a fixed depth")
    if not 1 <= depth <= x.ndim - batch:
        raise node.invalid(f"{depth} indices for {x.ndim - batch} axes")
    outer = indices.shape[:-1]
    coordinates = []
    for axis in range(batch):
        place = Tensor.arange(x.shape[axis], indices.dtype)
        shape = [-1 if a == axis else 1 for a in range(len(outer))]
        coordinates.append(place.reshape(shape))
    coordinates += columns_of(node, indices, x.shape[batch : batch + depth])
    rest = x.shape[batch + depth :]
    flat = flat_index(x.shape[: batch + depth], coordinates).broadcast_to(outer)
    return x.reshape((product(x.shape[: batch + depth]), *rest)).gather(0, flat)


def columns_of(node: Node, indices: Tensor, lengths: tuple[Size, ...]) -> list[Tensor]:
    """The last axis of `indices` taken apart, each column wrapped to its axis."""
    columns = []
    for position, length in enumerate(lengths):
        column = indices[..., position]
        columns.append(wrapped(node, node.folded(column), length))
    return columns


@operator("OneHot")
def one_hot(node: Node, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    (size,) = node.sizes(depth.cast(dt.int64), "depth")
    axis = node.axis(-1, indices.ndim + 1)
    checked_shape(node, [*indices.shape, size])
    kind = indices.dtype if indices.dtype.kind == "i" else dt.int64
    whole = indices.cast(kind)
    wrapped_index = (whole < 0).where(whole + Tensor.from_size(size, kind), whole)
    place = Tensor.arange(size, kind).reshape([-1] + [1] * (indices.ndim - axis))
    off, on = values[0], values[1]
    return wrapped_index.unsqueeze(axis).eq(place).where(on, off)


@operator("TopK")
def top_k(node: Node, x: Tensor, k: Tensor | None = None) -> list[Tensor]:
    """Equal elements by the lower index; a NaN is greater than every number, as in numpy's sort."""
    axis = node.axis(-1, x.ndim)
    if k is None:
        count: Size = node.integer("k", 0)
    else:
        (count,) = node.sizes(k, "K")
    length = x.shape[axis]
    if isinstance(count, int) and isinstance(length, int) and not 0 <= count <= length:
        raise node.invalid(f"K is {show(count)} for an axis of {show(length)}")
    values = x.transpose(axis, -1)
    places = order_of(values, count, descending=bool(node.integer("largest", 1)))
    picked = take_at(values, along(node, values, places, values.ndim - 1))
    return [picked.transpose(axis, -1), places.cast(dt.int64).transpose(axis, -1)]


# Results whose size depends on the data: only where the data is known.


@operator("NonZero")
def non_zero(node: Node, x: Tensor) -> Tensor:
    value = node.constant_input(x, "X")
    return node.constant(np.asarray(np.nonzero(value), np.int64))


@operator("Compress")
def compress(node: Node, x: Tensor, condition: Tensor) -> Tensor:
    chosen = np.flatnonzero(node.constant_input(condition, "condition")).astype(np.int32)
    if node.has("axis"):
        axis = node.axis(0, x.ndim)
        return x.gather(axis, node.constant(chosen))
    return x.reshape((x.size,)).gather(0, node.constant(chosen))


@operator("Unique")
def unique(node: Node, x: Tensor) -> list[Tensor]:
    value = node.constant_input(x, "X")
    axis = node.axis(0, x.ndim) if node.has("axis") else None
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
