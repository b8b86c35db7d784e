"""Operators that move elements without computing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import maximum, minimum
from tinyedge.core.ir.uop import Size, UOp
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.known import element
from tinyedge.export.onnx.operators.shapes import checked_shape
from tinyedge.export.onnx.registry import Node, operator

FAR = dt.int32.limits[1]  # beyond every size


@operator("Transpose")
def transpose(node: Node, x: Tensor) -> Tensor:
    order = node.integer_list("perm")
    return x.permute(range(x.ndim - 1, -1, -1) if order is None else order)


@operator("Concat")
def concat(node: Node, *parts: Tensor) -> Tensor:
    return Tensor.concat(parts, node.axis(0, parts[0].ndim))


def _open(*sizes: Size) -> bool:
    return any(isinstance(size, UOp) for size in sizes)


@operator("Split", limits="parts from constants and shapes")
def split(node: Node, x: Tensor, sizes: Tensor | None = None) -> list[Tensor]:
    axis = node.axis(0, x.ndim)
    length = x.shape[axis]
    given: Sequence[Size] | None = (
        node.integer_list("split") if sizes is None else node.sizes(sizes, "split")
    )
    if given is None:
        count = node.integer("num_outputs", len(node.outputs))
        if count != len(node.outputs):
            raise node.invalid(f"num_outputs is {count}")
        edges = _even_edges(length, count)
    else:
        edges = [0]
        for size in given:
            edges.append(edges[-1] + size)
        negative = any(isinstance(size, int) and size < 0 for size in given)
        if not negative and edges[-1] != length and _open(edges[-1], length):
            raise node.unequal(length, edges[-1], what="whose parts are the whole")
        if negative or edges[-1] != length or len(given) != len(node.outputs):
            raise node.invalid(
                f"an axis of {show(length)} cannot be split into {len(node.outputs)} outputs"
            )
    return [cut(x, axis, *pair) for pair in pairwise(edges)]


def _even_edges(length: Size, count: int) -> list[Size]:
    """Where so many parts begin and end that are equal, except for the last ones."""
    chunk = ix.ceildiv(length, count)
    edges = [chunk * number for number in range(count)]
    if minimum(length) < (count - 1) ** 2:  # some parts may be shorter, or empty
        edges = [ix.minimum(edge, length) for edge in edges]
    return [*edges, length]


def cut(x: Tensor, axis: int, start: Size, end: Size) -> Tensor:
    """Elements [start, end) of one axis."""
    bounds: list[tuple[Size, Size]] = [(0, size) for size in x.shape]
    bounds[axis] = (start, end)
    return x.shrink(bounds)


@operator("Slice", limits="constant axes and steps")
def slice_(
    node: Node,
    x: Tensor,
    starts: Tensor | None = None,
    ends: Tensor | None = None,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    if node.opset < 10:
        first: list[Size] = list(node.integer_list("starts") or [])
        last: list[Size] = list(node.integer_list("ends") or [])
        chosen = node.integer_list("axes")
    else:
        assert starts is not None and ends is not None
        chosen = None if axes is None else node.integers(axes, "axes")
        if node.unknown_sizes(starts) or node.unknown_sizes(ends):
            return _dynamic_slice(node, x, starts, ends, chosen, steps)
        first, last = node.sizes(starts, "starts"), node.sizes(ends, "ends")
    by = [1] * len(first) if steps is None else node.integers(steps, "steps")
    places = list(range(len(first))) if chosen is None else [node.wrap(a, x.ndim) for a in chosen]
    if not len(first) == len(last) == len(by) == len(places) or len(set(places)) != len(places):
        raise node.invalid("starts, ends, axes and steps do not match")
    for axis, start, end, step in zip(places, first, last, by, strict=True):
        if step == 0:
            raise node.invalid("a step is 0")
        x = _sliced(x, axis, start, end, _step(step, x.shape[axis]))
    return x


def _dynamic_slice(
    node: Node,
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Sequence[int] | None,
    steps: Tensor | None,
) -> Tensor:
    """A slice of which only the run knows the ends: as many elements as lie between them."""
    chosen = range(node.length(starts, "starts")) if axes is None else axes
    places = [node.wrap(axis, x.ndim) for axis in chosen]
    by = [1] * len(places) if steps is None else node.integers(steps, "steps")
    same = starts.shape == ends.shape == (len(places),) and len(by) == len(places)
    if not same or len(set(places)) != len(places) or 0 in by:
        raise node.invalid("starts, ends, axes and steps do not match")
    for position, (axis, given) in enumerate(zip(places, by, strict=True)):
        step = _step(given, x.shape[axis])
        length = Tensor.from_size(x.shape[axis])
        start, end = (element(t, position).cast(dt.int64) for t in (starts, ends))
        start, end = ((p < 0).where(p + length, p) for p in (start, end))
        if step > 0:
            start, end = (p.maximum(0).minimum(length) for p in (start, end))
            span = end - start
        else:
            start = start.maximum(0).minimum(length - 1)
            end = end.maximum(-1).minimum(length - 1)
            span = start - end
        most = ix.ceildiv(x.shape[axis], abs(step))
        n = node.dynamic_size((span + (abs(step) - 1)).maximum(0) // abs(step), most)
        place = start + Tensor.arange(n, dt.int64) * step
        x = x.gather(axis, place.cast(dt.int32))
    return x


def _step(step: int, length: Size) -> int:
    """A step that does the same and is no longer than the axis."""
    most = max(1, maximum(length))
    return max(-most, min(step, most))


def _sliced(x: Tensor, axis: int, start: Size, end: Size, step: int) -> Tensor:
    length = x.shape[axis]
    if isinstance(start, int) and isinstance(end, int) and isinstance(length, int):
        low = start + length if start < 0 else start
        high = end + length if end < 0 else end
        if step > 0:
            low, high = min(max(low, 0), length), min(max(high, 0), length)
            return cut(x, axis, low, max(low, high)).stride(axis, step)
        low, high = min(max(low, 0), length - 1), min(max(high, -1), length - 1)
        count = max(0, -((high - low) // -step)) if low > high else 0
        if count == 0:
            return cut(x, axis, 0, 0)
        last = low + (count - 1) * step
        return cut(x, axis, last, low + 1).flip(axis).stride(axis, -step)
    first, beyond = _from_start(start, length), _from_start(end, length)
    if step > 0:
        first, beyond = (_limited(place, 0, length) for place in (first, beyond))
        return cut(x, axis, first, ix.maximum(first, beyond)).stride(axis, step)
    most = length - 1
    first = ix.minimum(_limited(first, 0, most) + 1, length)
    beyond = _limited(beyond, -1, most) + 1
    return cut(x, axis, ix.minimum(beyond, first), first).flip(axis).stride(axis, -step)


def _from_start(place: Size, length: Size) -> Size:
    """A place counted from the end where it is negative."""
    if isinstance(place, int):
        return place if place >= 0 else length + max(place, -FAR)
    low, high = bounds(place)
    if low >= 0:
        return place
    if high < 0:
        return length + place
    negative = ix.maximum(ix.minimum(-place, 1), 0)  # 1 or 0
    return place + length * negative


def _limited(place: Size, low: int, high: Size) -> Size:
    if isinstance(place, int) and place >= FAR:
        return high
    return ix.maximum(ix.minimum(place, high), low)


@operator("Pad", limits="pads from constants and shapes")
def pad(
    node: Node,
    x: Tensor,
    pads: Tensor | None = None,
    value: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:
    mode = node.text("mode", "constant")
    amounts: Sequence[Size]
    if node.opset < 11:
        amounts = node.integer_list("pads") or []
    else:
        assert pads is not None
        amounts = node.sizes(pads, "pads")
    places = list(range(x.ndim))
    if axes is not None:
        places = [node.wrap(axis, x.ndim) for axis in node.integers(axes, "axes")]
    if len(amounts) != 2 * len(places) or len(set(places)) != len(places):
        raise node.invalid(f"{len(amounts)} pads for {len(places)} axes")
    pairs: list[tuple[Size, Size]] = [(0, 0)] * x.ndim
    for position, axis in enumerate(places):
        pairs[axis] = (amounts[position], amounts[position + len(places)])
    checked_shape(node, [s + lo + hi for s, (lo, hi) in zip(x.shape, pairs, strict=True)])
    if mode == "constant":
        return _constant_pad(node, x, pairs, value)
    if mode not in ("reflect", "edge", "wrap"):
        raise node.invalid(f"mode is {mode!r}")
    for axis, (before, after) in enumerate(pairs):
        if (before, after) != (0, 0):
            x = _border(node, x, axis, before, after, mode)
    return x


def _constant_pad(
    node: Node, x: Tensor, pairs: list[tuple[Size, Size]], value: Tensor | None
) -> Tensor:
    if value is None:
        filler = node.number("value", 0.0)
        return x.pad(pairs, filler if x.dtype.is_float else int(filler))
    known = node.known(value)
    if known is not None:
        return x.pad(pairs, known.reshape(-1)[0].item())
    inside = Tensor.full(x.shape, True, dt.bool_).pad(pairs)
    return inside.where(x.pad(pairs), value.reshape(()).cast(x.dtype))


def _border(node: Node, x: Tensor, axis: int, before: Size, after: Size, mode: str) -> Tensor:
    """Values outside the axis taken from inside it."""
    length = x.shape[axis]
    if not isinstance(length, int) or not isinstance(before, int) or not isinstance(after, int):
        return _open_border(x, axis, before, after, mode)
    node.check_table(before + length + after)
    if length == 0:
        raise node.invalid(f"mode {mode!r} needs a non-empty axis")
    place = np.arange(-before, length + after)
    if mode == "edge":
        place = np.clip(place, 0, length - 1)
    elif mode == "wrap":
        place = place % length
    elif length == 1:
        place = np.zeros_like(place)
    else:
        period = 2 * (length - 1)
        place = np.abs((place + length - 1) % period - (length - 1))
    return x.gather(axis, node.constant(place.astype(np.int32)))


def _open_border(x: Tensor, axis: int, before: Size, after: Size, mode: str) -> Tensor:
    """The same where a size is open: the places are computed in a run."""
    total = before + x.shape[axis] + after
    place = Tensor.arange(total) - Tensor.from_size(before, dt.int32)
    length = Tensor.from_size(x.shape[axis], dt.int32)
    last = length - 1
    if mode == "edge":
        place = place.clip(0, last)
    elif mode == "wrap":
        place = place % length
    elif minimum(x.shape[axis]) > max(maximum(before), maximum(after)):
        place = last - (last - place.abs()).abs()
    else:
        place = ((place + last) % (last * 2).maximum(1) - last).abs()
    return x.gather(axis, place)


@operator("Tile", limits="repeats from constants and shapes")
def tile(node: Node, x: Tensor, repeats: Tensor) -> Tensor:
    counts = node.sizes(repeats, "repeats")
    if len(counts) != x.ndim:
        raise node.invalid(f"{len(counts)} repeats for {x.ndim} axes")
    target = checked_shape(node, [s * c for s, c in zip(x.shape, counts, strict=True)])
    apart = [size for s in x.shape for size in (1, s)]
    wide = [size for s, c in zip(x.shape, counts, strict=True) for size in (c, s)]
    return x.reshape(apart).expand(wide).reshape(target)


@operator("DepthToSpace")
def depth_to_space(node: Node, x: Tensor) -> Tensor:
    block = _block(node, x)
    n, c, h, w = x.shape
    depth = c // (block * block)
    if node.text("mode", "DCR") == "DCR":
        y = x.reshape((n, block, block, depth, h, w)).permute((0, 3, 4, 1, 5, 2))
    else:
        y = x.reshape((n, depth, block, block, h, w)).permute((0, 1, 4, 2, 5, 3))
    return y.reshape((n, depth, h * block, w * block))


@operator("SpaceToDepth")
def space_to_depth(node: Node, x: Tensor) -> Tensor:
    block = _block(node, x)
    n, c, h, w = x.shape
    rows, columns = h // block, w // block
    order = (0, 1, 3, 5, 2, 4) if node.text("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    y = x.reshape((n, c, rows, block, columns, block)).permute(order)
    return y.reshape((n, c * (block * block), rows, columns))


def _block(node: Node, x: Tensor) -> int:
    block = node.integer("blocksize", 0)
    if block < 1 or x.ndim != 4:
        raise node.invalid(f"blocksize {block} of {show(x)}")
    return block


@operator("Trilu")
def trilu(node: Node, x: Tensor, k: Tensor | None = None) -> Tensor:
    rows = Tensor.arange(x.shape[-2]).unsqueeze(1)
    columns = Tensor.arange(x.shape[-1]).unsqueeze(0)
    diagonal: Tensor | int = 0
    if k is not None:
        known = node.known(k)
        if known is None:
            diagonal = k.reshape(()).clip(-FAR, FAR).cast(dt.int32)
        else:
            diagonal = int(np.clip(known.reshape(-1)[0], -FAR, FAR))
    offset = columns - rows
    keep = offset >= diagonal if node.integer("upper", 1) else offset <= diagonal
    return keep.where(x, False if x.dtype is dt.bool_ else 0)


@operator("EyeLike")
def eye_like(node: Node, x: Tensor) -> Tensor:
    rows = Tensor.arange(x.shape[0]).unsqueeze(1)
    columns = Tensor.arange(x.shape[1]).unsqueeze(0)
    low, high = rows.dtype.limits  # no diagonal is as far away
    diagonal = max(low, min(node.integer("k", 0), high))
    return (columns - rows).eq(diagonal).cast(node.dtype("dtype", x.dtype))


@operator("ReverseSequence")
def reverse_sequence(node: Node, x: Tensor, lengths: Tensor) -> Tensor:
    batch, time = node.integer("batch_axis", 1), node.integer("time_axis", 0)
    if sorted((batch, time)) != [0, 1]:
        raise node.invalid(f"batch_axis {batch} and time_axis {time}")
    place = Tensor.arange(x.shape[time], lengths.dtype).unsqueeze(1 - time)
    count = lengths.unsqueeze(1 - batch)
    source = (place < count).where(count - 1 - place, place)
    wide = source.reshape(source.shape + (1,) * (x.ndim - 2)).expand(x.shape)
    return x.gather_elements(time, wide)


@operator("CenterCropPad", limits="sizes from constants and shapes")
def center_crop_pad(node: Node, x: Tensor, target: Tensor) -> Tensor:
    sizes = node.sizes(target, "shape")
    axes = node.integer_list("axes")
    places = list(range(x.ndim)) if axes is None else [node.wrap(a, x.ndim) for a in axes]
    if len(places) != len(sizes):
        raise node.invalid(f"{len(sizes)} sizes for {len(places)} axes")
    for axis, want in zip(places, sizes, strict=True):
        more = want - x.shape[axis]
        room = ix.maximum(more, 0)
        before = room // 2
        start = (room - more) // 2
        pads: list[tuple[Size, Size]] = [(0, 0)] * x.ndim
        pads[axis] = (before, room - before)
        x = cut(x.pad(pads), axis, start, start + want)
    return x
