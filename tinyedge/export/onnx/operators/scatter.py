"""Writing at computed positions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.ops import Primitive
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor import scattering
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.convolution import given_pads
from tinyedge.export.onnx.operators.indexing import along, columns_of, flat_index, within, wrapped
from tinyedge.export.onnx.operators.shapes import checked_shape
from tinyedge.export.onnx.registry import Node, operator


@operator("ScatterElements")
@operator("Scatter")
def scatter_elements(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis = node.axis(0, x.ndim)
    if indices.ndim != x.ndim:
        raise node.invalid(f"{show(indices)} for {show(x)}")
    node.same_shape(updates.shape, indices.shape, "updates")
    if indices.size == 0:
        return x
    for other, size in enumerate(x.shape):  # no index lies beside the elements
        if other != axis and isinstance(count := indices.shape[other], int):
            node.needs(size, count, lenient=True)
    index = wrapped(node, indices, x.shape[axis])
    if node.known(index) is not None and isinstance(x.size, int):
        flat = flat_index(x.shape, along(x, index, axis)).broadcast_to(index.shape)
        rows, at = x.reshape((x.size,)), flat.reshape((index.size,))
        placed = _placed_rows(node, rows, at, updates.reshape((updates.size,)))
        if placed is not None:
            return placed.reshape(x.shape)
    return scattering.scatter_elements(x, axis, index, updates, _reduction(node)[0])


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
    node.same_shape(updates.shape, indices.shape[:-1] + rest, "updates")
    rows = x.reshape((product(lead), *rest))
    many = flat.reshape((flat.size,))
    written = updates.reshape((flat.size, *rest))
    return _scattered_rows(node, rows, many, written).reshape(x.shape)


def _scattered_rows(node: Node, rows: Tensor, at: Tensor, updates: Tensor) -> Tensor:
    """rows [R, *rest] with updates [K, *rest] combined in at positions at [K]."""
    combine, _ = _reduction(node)
    placed = _placed_rows(node, rows, at, updates)
    return rows.scatter(0, at, updates, combine) if placed is None else placed


def _placed_rows(node: Node, rows: Tensor, at: Tensor, updates: Tensor) -> Tensor | None:
    """As `_scattered_rows`, where it is known which update each row gets: a table says it."""
    combine, combined = _reduction(node)
    count = rows.shape[0]
    known = node.known(node.folded(at)) if isinstance(count, int) else None
    if known is None or (combine is not None and len(np.unique(known)) < len(known)):
        return None
    node.check_table(count)  # type: ignore[arg-type]
    source = np.full(count, -1, np.int32)  # type: ignore[arg-type]
    source[known] = np.arange(len(known), dtype=np.int32)
    written = node.constant((source >= 0).reshape((-1,) + (1,) * (rows.ndim - 1)))
    return written.where(combined(rows, updates.gather(0, node.constant(source))), rows)


def _replaced(_: Tensor, update: Tensor) -> Tensor:
    return update


REDUCTIONS: dict[str, tuple[Primitive | None, Callable[[Tensor, Tensor], Tensor]]] = {
    "none": (None, _replaced),
    "add": (ops.ADD, Tensor.__add__),
    "mul": (ops.MUL, Tensor.__mul__),
    "max": (ops.MAX, Tensor.maximum),
    "min": (ops.MIN, Tensor.minimum),
}


def _reduction(node: Node) -> tuple[Primitive | None, Callable[[Tensor, Tensor], Tensor]]:
    """How an update is combined with what is there: as a primitive (None: it replaces it), and as
    a function of the two.
    """
    name = node.text("reduction", "none")
    if name not in REDUCTIONS:
        raise node.invalid(f"reduction is {name!r}")
    return REDUCTIONS[name]


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
        full = (x.shape[2 + axis] - 1) * strides[axis] + kernel[axis]
        sizes.append(full - sum(pads[axis]))
    empty = Tensor.full(checked_shape(node, sizes), 0, x.dtype)
    rows = empty.reshape((empty.size,))
    many, written = indices.reshape((indices.size,)), x.reshape((x.size,))
    result = _scattered_rows(node, rows, many, written).reshape(sizes)
    if shape is None:
        return result
    target = node.sizes(shape, "output_shape")
    return result.pad([(0, a - b) for a, b in zip(target, sizes, strict=True)])


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
