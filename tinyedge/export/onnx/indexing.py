"""Reading and writing at computed positions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.rules import index as ix
from tinyedge.core.tensor import Tensor
from tinyedge.core.uop import Size, UOp, product
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.registry import Node, operator
from tinyedge.export.onnx.shapes import checked_shape


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
    return _at(x, _along(node, x, wrapped(node, indices, x.shape[axis]), axis))


def _along(node: Node, x: Tensor, indices: Tensor, axis: int) -> list[Tensor]:
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


def _at(x: Tensor, coordinates: list[Tensor]) -> Tensor:
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
    coordinates += _columns(node, indices, x.shape[batch : batch + depth])
    rest = x.shape[batch + depth :]
    flat = flat_index(x.shape[: batch + depth], coordinates).broadcast_to(outer)
    return x.reshape((product(x.shape[: batch + depth]), *rest)).gather(0, flat)


def _columns(node: Node, indices: Tensor, lengths: tuple[Size, ...]) -> list[Tensor]:
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


# Scatter: for every element of the output, the updates that meet it, in order.


@operator("ScatterElements")
@operator("Scatter")
def scatter_elements(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis = node.axis(0, x.ndim)
    if indices.ndim != x.ndim or indices.shape != updates.shape:
        raise node.invalid(f"{show(indices)} and {show(updates)} for {show(x)}")
    if indices.size == 0:
        return x
    _fixed(node, x, indices)
    index = wrapped(node, indices, x.shape[axis])
    if node.known(index) is not None:
        flat = flat_index(x.shape, _along(node, x, index, axis))
        return _scattered(node, x, node.folded(flat.broadcast_to(index.shape)), updates)
    # Only updates in the same line can meet an element: compare along the axis alone.
    moved = [a for a in range(x.ndim) if a != axis] + [axis]
    data = x.permute(moved)
    lines = [(0, size) for size in indices.permute(moved).shape[:-1]]
    index, update = index.permute(moved), updates.permute(moved)
    region = data.shrink([*lines, (0, data.shape[-1])])
    place = Tensor.arange(data.shape[-1], index.dtype).unsqueeze(1)
    hit = index.unsqueeze(-2).eq(place)
    result = _combined(node, region, hit, update.unsqueeze(-2))
    if result.shape != data.shape:
        result = data.assign([*lines, (0, data.shape[-1])], result)
    return result.permute(np.argsort(moved).tolist())


@operator("ScatterND")
def scatter_nd(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    depth = indices.shape[-1]
    if not isinstance(depth, int) or not 1 <= depth <= x.ndim:
        raise node.invalid(f"{show(indices)} for {show(x)}")
    _fixed(node, x, indices)
    if indices.size == 0:
        return x
    lead, rest = x.shape[:depth], x.shape[depth:]
    flat = node.folded(flat_index(lead, _columns(node, indices, lead)))
    if updates.shape != indices.shape[:-1] + rest:
        raise node.invalid(f"{show(updates)} for {show(indices)}")
    rows = x.reshape((product(lead), *rest))
    many = flat.reshape((flat.size,))
    written = updates.reshape((flat.size, *rest))
    return _scattered_rows(node, rows, many, written).reshape(x.shape)


def _scattered(node: Node, x: Tensor, flat: Tensor, updates: Tensor) -> Tensor:
    rows = x.reshape((x.size,))
    many, written = flat.reshape((flat.size,)), updates.reshape((updates.size,))
    return _scattered_rows(node, rows, many, written).reshape(x.shape)


def _scattered_rows(node: Node, rows: Tensor, at: Tensor, updates: Tensor) -> Tensor:
    """rows [R, *rest] with updates [K, *rest] combined in at positions at [K]."""
    reduction = node.text("reduction", "none")
    known = node.known(node.folded(at))
    count = rows.shape[0]
    if known is not None and (reduction == "none" or len(np.unique(known)) == len(known)):
        source = np.full(count, -1, np.int32)  # type: ignore[arg-type]
        source[known] = np.arange(len(known), dtype=np.int32)
        written = node.constant((source >= 0).reshape((-1,) + (1,) * (rows.ndim - 1)))
        fresh = updates.gather(0, node.constant(source))
        if reduction != "none":
            fresh = _reducer(node, reduction)(rows, fresh)
        return written.where(fresh, rows)
    tail = (1,) * (rows.ndim - 1)
    place = Tensor.arange(count, at.dtype).unsqueeze(1)
    hit = at.unsqueeze(0).eq(place)  # [R, K]
    if reduction == "none":
        last = _last(hit)
        fresh = updates.gather(0, last)
        return (last >= 0).reshape((count, *tail)).where(fresh, rows)
    # [R, *rest, K]
    order = [*range(1, updates.ndim), 0]
    spread = updates.permute(order).unsqueeze(0)
    mask = hit.reshape((count, *tail, at.shape[0]))
    return _reduced(node, rows, mask, spread)


def _combined(node: Node, region: Tensor, hit: Tensor, update: Tensor) -> Tensor:
    """region [.., L]; hit [.., L, K]; update [.., 1, K]."""
    if node.text("reduction", "none") != "none":
        return _reduced(node, region, hit, update)
    last = _last(hit)
    picked = update.squeeze(-2)
    fresh = _at(picked, _along(node, picked, last.maximum(0), picked.ndim - 1))
    return (last >= 0).where(fresh, region)


def _last(hit: Tensor) -> Tensor:
    """Along the last axis the greatest place that is true, or -1."""
    place = Tensor.arange(hit.shape[-1])
    return hit.where(place, -1).max(-1)


def _reduced(node: Node, region: Tensor, hit: Tensor, update: Tensor) -> Tensor:
    name = node.text("reduction", "none")
    combine = _reducer(node, name)
    dtype = region.dtype
    if name == "add":
        return combine(region, hit.where(update, 0).sum(-1))
    if name == "mul":
        return combine(region, hit.where(update, 1).prod(-1))
    if dtype is dt.bool_:
        raise node.unsupported(f"reduction {name!r} of bool")
    if name == "max":
        least = -np.inf if dtype.is_float else dtype.limits[0]
        return combine(region, hit.where(update, least).max(-1))
    most = np.inf if dtype.is_float else dtype.limits[1]
    return combine(region, hit.where(update, most).min(-1))


def _reducer(node: Node, name: str) -> Callable[[Tensor, Tensor], Tensor]:
    reducers: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "add": Tensor.__add__,
        "mul": Tensor.__mul__,
        "max": Tensor.maximum,
        "min": Tensor.minimum,
    }
    if name not in reducers:
        raise node.invalid(f"reduction is {name!r}")
    return reducers[name]


def _fixed(node: Node, *tensors: Tensor) -> None:
    if any(isinstance(size, UOp) for tensor in tensors for size in tensor.shape):
        raise node.unsupported("a symbolic size", supported="fixed sizes", next="fix it with --dim")


@operator("MaxUnpool")
def max_unpool(node: Node, x: Tensor, indices: Tensor, shape: Tensor | None = None) -> Tensor:
    """Zeros, with the values at the places that MaxPool reported."""
    _fixed(node, x)
    spatial = x.ndim - 2
    kernel = node.integer_list("kernel_shape") or []
    strides = node.integer_list("strides") or [1] * spatial
    pads = node.integer_list("pads") or [0] * (2 * spatial)
    if len(kernel) != spatial or len(strides) != spatial or len(pads) != 2 * spatial:
        raise node.invalid(f"kernel_shape {kernel}, strides {strides}, pads {pads}")
    sizes: list[Size] = list(x.shape[:2])
    for axis in range(spatial):
        full = ix.size_add(
            ix.size_mul(ix.size_sub(x.shape[2 + axis], 1), strides[axis]), kernel[axis]
        )
        sizes.append(ix.size_sub(full, pads[axis] + pads[axis + spatial]))
    empty = Tensor.full(checked_shape(node, sizes), 0, x.dtype)
    rows = empty.reshape((empty.size,))
    many, written = indices.reshape((indices.size,)), x.reshape((x.size,))
    result = _scattered_rows(node, rows, many, written).reshape(sizes)
    if shape is None:
        return result
    target = node.sizes(shape, "output_shape")
    return result.pad([(0, ix.size_sub(a, b)) for a, b in zip(target, sizes, strict=True)])


@operator("TensorScatter")
def tensor_scatter(node: Node, past: Tensor, update: Tensor, start: Tensor | None = None) -> Tensor:
    """A run of updates written along one axis, from a place of its own in every batch."""
    axis = node.wrap(node.integer("axis", -2), past.ndim)
    mode = node.text("mode", "linear")
    if axis == 0 or mode not in ("linear", "circular"):
        raise node.invalid(f"axis {axis}, mode {mode!r}")
    length, count = past.shape[axis], update.shape[axis]
    place = Tensor.arange(length, dt.int64)
    first = Tensor.full((1,), 0, dt.int64) if start is None else start.cast(dt.int64)
    offset = place.unsqueeze(0) - first.unsqueeze(1)  # [B or 1, length]
    if mode == "circular":
        offset = offset % Tensor.from_size(length, dt.int64)
    written = (offset >= 0) & (offset < Tensor.from_size(count, dt.int64))
    shape: list[Size] = [1] * past.ndim
    shape[0], shape[axis] = -1, length
    index = written.where(offset, 0).reshape(shape).expand(past.shape)
    fresh = _at(update, _along(node, update, index, axis))
    return written.reshape(shape).where(fresh, past)


# Sorting by counting: the rank of an element is how many come before it.


@operator("TopK")
def top_k(node: Node, x: Tensor, k: Tensor | None = None) -> list[Tensor]:
    axis = node.axis(-1, x.ndim)
    if k is None:
        count: Size = node.integer("k", 0)
    else:
        (count,) = node.sizes(k, "K")
    length = x.shape[axis]
    if isinstance(count, int) and isinstance(length, int) and not 0 <= count <= length:
        raise node.invalid(f"K is {show(count)} for an axis of {show(length)}")
    order = [a for a in range(x.ndim) if a != axis] + [axis]
    values = x.permute(order)
    largest = bool(node.integer("largest", 1))
    a, b = values.unsqueeze(-1), values.unsqueeze(-2)  # element i, other j
    here = Tensor.arange(length).unsqueeze(1)
    there = Tensor.arange(length).unsqueeze(0)
    before = (b > a) if largest else (b < a)
    tie = b.eq(a)
    if x.dtype.is_float:  # a NaN counts as greater than every number, as in numpy's sort
        nan_a, nan_b = a.isnan(), b.isnan()
        before = before | (nan_b & ~nan_a if largest else nan_a & ~nan_b)
        tie = tie | (nan_a & nan_b)
    rank = (before | (tie & (there < here))).cast(dt.int32).sum(-1)
    wanted = Tensor.arange(count).unsqueeze(1)
    places = rank.unsqueeze(-2).eq(wanted).where(Tensor.arange(length), 0).sum(-1)
    picked = _at(values, _along(node, values, places, values.ndim - 1))
    back = np.argsort(order).tolist()
    return [picked.permute(back), places.cast(dt.int64).permute(back)]


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
    parts = [values, first, inverse, counts]
    return [node.constant(parts[0]), *(node.constant(p.astype(np.int64)) for p in parts[1:])]
