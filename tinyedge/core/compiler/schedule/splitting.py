"""Weights above what a kernel can bind, as several: every device runs them.

    w[a]  ->  a < n ? w0[a] : a < 2 * n ? w1[a - n] : ...        a: a row

The parts are chosen where they are read: memory never holds the whole. A sum of products has a sum
for each part in its place, which reads that part alone, in the order that suits it:

    sum of x[r] * w[r, a]  ->  sum of x[r] * w0[r, a] + sum of x[n + r] * w1[r, a] + ...
    sum of x[r] * w[a, r]  ->  sums of x[r] * w0[a, r], then of x[r] * w1[a, r], ... in one tensor
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.schedule.launches import ScheduleOptions
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.packed import packed_bits
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.tensor.tensor import Tensor

OTHERS = 3  # bindings that are left for what else a kernel reads and writes


@dataclass(frozen=True)
class _Part:
    """Rows of a weight, from `start` up to `end`. whole: as many rows as the weight has, the others
    zeros.
    """

    start: int
    end: int
    whole: UOp


@dataclass(frozen=True)
class _Split:
    """A weight in parts along an axis, all of which the tensor `whole` is chosen from."""

    axis: int
    parts: Sequence[_Part]
    whole: UOp


def split_weights(roots: tuple[UOp, ...], options: ScheduleOptions) -> dict[UOp, UOp]:
    """Every node of the graph, mapped to one that binds at most `caps.binding_bytes` of a weight;
    nothing where all weights are small enough.

    A weight of more parts than a kernel can bind stays whole.
    """
    split: dict[UOp, _Split] = {}
    for node in toposort(roots):
        if node.op is ops.BUFFER and node.arg.source.kind == "weight":
            room = options.caps.binding_bytes * 8 // _bits(node, options)
            if maximum(product(node.shape)) > room:
                found = _in_parts(node, room, options.caps.bindings - OTHERS)
                if found is not None:
                    split[node] = found
    if not split:
        return {}
    done = {node: found.whole for node, found in split.items()}

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.REDUCE and node.arg.op is ops.ADD:
            return _sum_of_parts(node, split, done)
        return None

    return bottom_up(roots, change, done)


def _sum_of_parts(node: UOp, split: Mapping[UOp, _Split], done: Mapping[UOp, UOp]) -> UOp | None:
    """A sum of what one weight in parts is in, by sums that read a part each. None where it is of
    none, or rows of the weight are not steps of an axis of what is summed.

    done: what is below the sum, with weights in parts.
    """
    nodes = toposort(node.src, stop=lambda n: n.op.group != "movement" and not n.op.elementwise)
    axes = _axes(nodes, split)
    axis = axes.get(node.src[0])
    weights = [n for n in nodes if n in split]
    if axis is None or len(weights) != 1 or not split[weights[0]].parts:
        return None
    sums = []
    for part in split[weights[0]].parts:
        new = {weights[0]: part.whole}
        for n in nodes:
            if n in axes and n not in new:
                new[n] = n.replace(tuple(new.get(s, done[s]) for s in n.src))
        bounds = [(0, size) for size in node.src[0].shape]
        bounds[axis] = (part.start, part.end)
        sums.append(Tensor(node.replace((Tensor(new[node.src[0]]).shrink(bounds).node,))))
    if axis in node.arg.axes:
        total = sums[0]
        for other in sums[1:]:
            total = total + other
        return total.node
    return Tensor.concat(sums, axis - sum(a < axis for a in node.arg.axes)).node


def _axes(nodes: Sequence[UOp], split: Mapping[UOp, _Split]) -> dict[UOp, int | None]:
    """The axes along which steps of what a weight is in are its rows, operands first; None: of no
    axis.
    """
    found: dict[UOp, int | None] = {}
    for node in nodes:
        if node in split:
            found[node] = split[node].axis
            continue
        below = {found[s] for s in node.src if s in found}
        if below:
            axis = below.pop()
            found[node] = None if below or axis is None else _axis_above(node, axis)
    return found


def _axis_above(node: UOp, axis: int) -> int | None:
    """The axis of a node whose steps are those of an operand's axis."""
    if node.op.elementwise or node.op is ops.EXPAND:
        return axis
    if node.op is ops.PERMUTE:
        return int(node.arg.index(axis))
    if node.op is not ops.RESHAPE:
        return None
    before, after = ([maximum(size) for size in n.shape] for n in (node.src[0], node))
    same = (a for a, size in enumerate(after) if size == before[axis])
    return next((a for a in same if prod(after[:a]) == prod(before[:axis])), None)


def _bits(node: UOp, options: ScheduleOptions) -> int:
    """Of an element in memory."""
    if node.dtype.is_int:
        packed = packed_bits(node.arg.source.data, node.dtype)
        if packed:
            return packed
    kept = options.caps.stored_type(node.dtype.held)
    return 16 if options.fp16_storage and kept is dt.float32 else kept.itemsize * 8


def _in_parts(node: UOp, room: int, most: int) -> _Split | None:
    """A weight as parts of up to `room` elements; None if these are more than `most`."""
    source, shape = node.arg.source, [maximum(size) for size in node.shape]
    axis = next(axis for axis, size in enumerate(shape) if size > 1)
    rows, inner = shape[axis], shape[axis + 1 :]
    flat = prod(inner) > room
    if flat:
        rows, inner = prod(shape), []
    each = room // prod(inner)
    if -(-rows // each) > most:
        return None
    data = source.data.reshape((rows, *inner))
    place = Tensor.arange(rows).reshape((rows, *[1] * len(inner)))
    whole: Tensor | None = None
    parts: list[_Part] = []
    for start in reversed(range(0, rows, each)):
        end = min(start + each, rows)
        part = ops.TensorSource("weight", f"{source.name}[{start}:{end}]", data[start:end])
        values = Tensor(UOp(ops.BUFFER, node.dtype, (), args.Buffer(part, (end - start, *inner))))
        values = values.pad([(start, rows - end), *[(0, 0)] * len(inner)])
        parts.insert(0, _Part(start, end, values.reshape(shape).node))
        whole = values if whole is None else (place < end).where(values, whole)
    assert whole is not None
    return _Split(axis, () if flat else parts, whole.reshape(shape).node)
