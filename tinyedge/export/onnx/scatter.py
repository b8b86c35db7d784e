"""Writing at computed positions: for every element of the output, the updates that meet it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.rules import index as ix
from tinyedge.core.tensor import Tensor
from tinyedge.core.uop import Size, maximum, product
from tinyedge.export.onnx.convolution import given_pads
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.indexing import along, columns_of, flat_index, within, wrapped
from tinyedge.export.onnx.registry import Node, operator
from tinyedge.export.onnx.shapes import checked_shape
from tinyedge.export.onnx.sorting import order_of

COMPARED = 1 << 22  # places with indices, each with each; more indices are sorted


@operator("ScatterElements")
@operator("Scatter")
def scatter_elements(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis = node.axis(0, x.ndim)
    if indices.ndim != x.ndim or indices.shape != updates.shape:
        raise node.invalid(f"{show(indices)} and {show(updates)} for {show(x)}")
    if indices.size == 0:
        return x
    index = wrapped(node, indices, x.shape[axis])
    if node.known(index) is not None and isinstance(x.size, int):
        flat = flat_index(x.shape, along(x, index, axis))
        return _scattered(node, x, node.folded(flat.broadcast_to(index.shape)), updates)
    # Only updates in the same line can meet an element: compare along the axis alone.
    moved = [a for a in range(x.ndim) if a != axis] + [axis]
    data = x.permute(moved)
    lines = [(0, size) for size in indices.permute(moved).shape[:-1]]
    index, update = index.permute(moved), updates.permute(moved)
    region = data.shrink([*lines, (0, data.shape[-1])])
    result = _combined(node, region, index, update)
    if result.shape != data.shape:
        result = data.assign([*lines, (0, data.shape[-1])], result)
    return result.permute(np.argsort(moved).tolist())


@operator("ScatterND", limits="a fixed index depth")
def scatter_nd(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    depth = indices.shape[-1]
    if not isinstance(depth, int) or not 1 <= depth <= x.ndim:
        raise node.invalid(f"{show(indices)} for {show(x)}")
    if indices.size == 0:
        return x
    lead, rest = x.shape[:depth], x.shape[depth:]
    columns = columns_of(node, indices, lead)
    flat = flat_index(lead, columns)
    flat = node.folded(within(node, flat, columns, lead) if depth > 1 else flat)
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
    count = rows.shape[0]
    known = node.known(node.folded(at)) if isinstance(count, int) else None
    if known is not None and (reduction == "none" or len(np.unique(known)) == len(known)):
        node.check_table(count)  # type: ignore[arg-type]
        source = np.full(count, -1, np.int32)  # type: ignore[arg-type]
        source[known] = np.arange(len(known), dtype=np.int32)
        written = node.constant((source >= 0).reshape((-1,) + (1,) * (rows.ndim - 1)))
        fresh = updates.gather(0, node.constant(source))
        if reduction != "none":
            fresh = _reducer(node, reduction)(rows, fresh)
        return written.where(fresh, rows)
    tail = (1,) * (rows.ndim - 1)
    if reduction == "none":
        last = _last(at, count)
        fresh = updates.gather(0, last)
        return (last >= 0).reshape((count, *tail)).where(fresh, rows)
    # [R, *rest, K]
    order = [*range(1, updates.ndim), 0]
    spread = updates.permute(order).unsqueeze(0)
    mask = _hits(at, count).reshape((count, *tail, at.shape[0]))
    return _reduced(node, rows, mask, spread)


def _combined(node: Node, region: Tensor, index: Tensor, update: Tensor) -> Tensor:
    """region [.., L]; index and update [.., K]."""
    if node.text("reduction", "none") != "none":
        return _reduced(node, region, _hits(index, region.shape[-1]), update.unsqueeze(-2))
    last = _last(index, region.shape[-1])
    fresh = update.gather_elements(-1, last.maximum(0))
    return (last >= 0).where(fresh, region)


def _hits(index: Tensor, length: Size) -> Tensor:
    """[.., length, K]: whether a place is one of index [.., K]."""
    return index.unsqueeze(-2).eq(Tensor.arange(length, index.dtype).unsqueeze(1))


def _last(index: Tensor, length: Size) -> Tensor:
    """int32 [.., length]: for every place where it is last in index [.., K]; -1 where it is not."""
    count = index.shape[-1]
    if maximum(length) * maximum(count) <= COMPARED:
        return _hits(index, length).where(Tensor.arange(count), -1).max(-1)
    order = order_of(index).realise()
    ordered = index.gather_elements(-1, order).realise()
    place = Tensor.arange(length, index.dtype)
    before = Tensor.full((*index.shape[:-1], length), 0, dt.int32)

    def at(table: Tensor, position: Tensor) -> Tensor:
        return table.gather_elements(-1, position.maximum(0))

    total = Tensor.from_size(count, dt.int32)
    for half in reversed(range(maximum(count).bit_length())):
        more = before + (1 << half)
        up_to = (more <= total) & (at(ordered, more.minimum(total) - 1) <= place)
        before = up_to.where(more, before)
    found = (before > 0) & at(ordered, before - 1).eq(place)
    return found.where(at(order, before - 1), -1)


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


@operator("MaxUnpool")
def max_unpool(node: Node, x: Tensor, indices: Tensor, shape: Tensor | None = None) -> Tensor:
    """Zeros, with the values at the places that MaxPool reported."""
    spatial = x.ndim - 2
    kernel = node.integer_list("kernel_shape") or []
    strides = node.integer_list("strides") or [1] * spatial
    pads = given_pads(node, spatial)
    if len(kernel) != spatial or len(strides) != spatial:
        raise node.invalid(f"kernel_shape {kernel}, strides {strides}")
    sizes: list[Size] = list(x.shape[:2])
    for axis in range(spatial):
        full = ix.size_add(
            ix.size_mul(ix.size_sub(x.shape[2 + axis], 1), strides[axis]), kernel[axis]
        )
        sizes.append(ix.size_sub(full, sum(pads[axis])))
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
    fresh = update.gather_elements(axis, index)
    return written.reshape(shape).where(fresh, past)
