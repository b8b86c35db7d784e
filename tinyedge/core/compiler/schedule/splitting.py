"""Weights above what a kernel can bind, as several: every device runs them.

    w[a]  ->  a < n ? w0[a] : a < 2 * n ? w1[a - n] : ...        a: a row

The parts are chosen where they are read: memory never holds the whole.
"""

from __future__ import annotations

from math import prod

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.schedule.launches import ScheduleOptions
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.packed import packed_bits
from tinyedge.core.ir.rewrite import replaced
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.tensor.tensor import Tensor

OTHERS = 3  # bindings that are left for what else a kernel reads and writes


def split_weights(roots: tuple[UOp, ...], options: ScheduleOptions) -> dict[UOp, UOp]:
    """Every node of the graph, mapped to one that binds at most `caps.binding_bytes` of a weight;
    nothing where all weights are small enough.

    A weight of more parts than a kernel can bind stays whole.
    """
    done: dict[UOp, UOp] = {}
    for node in toposort(roots):
        if node.op is ops.BUFFER and node.arg.source.kind == "weight":
            room = options.caps.binding_bytes * 8 // _bits(node, options)
            if maximum(product(node.shape)) > room:
                parts = _in_parts(node, room, options.caps.bindings - OTHERS)
                if parts is not None:
                    done[node] = parts
    return replaced(roots, done) if done else {}


def _bits(node: UOp, options: ScheduleOptions) -> int:
    """Of an element in memory."""
    if node.dtype.is_int:
        packed = packed_bits(node.arg.source.data, node.dtype)
        if packed:
            return packed
    kept = options.caps.stored_type(node.dtype.held)
    return 16 if options.fp16_storage and kept is dt.float32 else kept.itemsize * 8


def _in_parts(node: UOp, room: int, most: int) -> UOp | None:
    """A weight as parts of up to `room` elements; None if these are more than `most`."""
    source, shape = node.arg.source, [maximum(size) for size in node.shape]
    axis = next(axis for axis, size in enumerate(shape) if size > 1)
    rows, inner = shape[axis], shape[axis + 1 :]
    if prod(inner) > room:
        rows, inner = prod(shape), []
    each = room // prod(inner)
    if -(-rows // each) > most:
        return None
    data = source.data.reshape((rows, *inner))
    place = Tensor.arange(rows).reshape((rows, *[1] * len(inner)))
    whole: Tensor | None = None
    for start in reversed(range(0, rows, each)):
        end = min(start + each, rows)
        part = ops.TensorSource("weight", f"{source.name}[{start}:{end}]", data[start:end])
        values = Tensor(UOp(ops.BUFFER, node.dtype, (), args.Buffer(part, (end - start, *inner))))
        values = values.pad([(start, rows - end), *[(0, 0)] * len(inner)])
        whole = values if whole is None else (place < end).where(values, whole)
    assert whole is not None
    return whole.reshape(shape).node
