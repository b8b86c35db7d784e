"""Counts: sizes that a kernel computes, so that only a run knows them.

A count is a SYMBOL whose value lies in a buffer. Everything is laid out by it as by any other
symbolic size: rows of `n` elements follow each other without gaps. But the host does not know it
when it launches, so no loop and no workgroup may depend on it: a range of a dynamic size runs to
the most that the size can be, and what is beyond it is neither stored nor reduced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.schedule.canonical import make_range, mask_reductions
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.buffers import KernelArg, TensorBuffer, row_major
from tinyedge.core.ir.dynamic_sizes import is_dynamic, most
from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.rewrite import replaced
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import rewrite
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.spec import REDUCE_KINDS
from tinyedge.core.ir.uop import UOp, as_node, own_ranges, toposort


# Operations that rise, or fall, with each operand (of a product: that is at least 0).
def bound_ranges(sink: UOp, counts: Collection[str]) -> UOp:
    """The kernel with ranges of known size: those of a counted one run to the most it can be."""
    ranges = [n for n in toposort((sink,)) if n.op is ops.RANGE]
    for target in sorted(ranges, key=lambda r: int(r.arg.number)):
        size = target.src[0]
        if not is_dynamic(size, counts):
            continue
        number, kind = target.arg.number, target.arg.kind
        longer = make_range(most(size, counts), number, kind)
        inside = ix.lt(longer, size)
        clamped = longer
        if not all(_has_room(node, target, longer) for node in toposort((sink,))):
            clamped = as_node(ix.minimum(longer, ix.maximum(size - 1, 0)))
        if kind in REDUCE_KINDS:
            sink = mask_reductions(sink, target, (clamped, (longer,)), inside)
        else:
            stores = [rewrite((store,), {target: clamped})[0] for store in sink.src]
            sink = sink.replace(tuple(access.also_under(inside, store) for store in stores))
    return sink


def _has_room(load: UOp, target: UOp, longer: UOp) -> bool:
    """Whether a load stays in its buffer while a range runs on: memory is there for the most. What
    lies there may be NaN, which no weight of 0 removes.
    """
    if load.op is ops.ATTEND_LOOP:
        return target not in own_ranges(load)
    if load.op is not ops.LOAD or target not in load.ranges:
        return True
    param = load.src[0].arg
    (address,) = rewrite((load.src[1],), {target: longer})
    low, high = bounds(address)
    return not param.is_image and low >= 0 and high < maximum(param.layout.count(param.shape))


def read_dynamic_sizes(
    sink: UOp, storages: Sequence[TensorBuffer], counts: Mapping[str, TensorBuffer]
) -> tuple[UOp, list[TensorBuffer]]:
    """The kernel with its counts as arguments: their buffers come after the others."""
    mapping: dict[UOp, UOp] = {}
    arguments = list(storages)
    for node in sorted(
        (n for n in toposort((sink,)) if n.op is ops.SYMBOL and n.arg.name in counts),
        key=lambda n: str(n.arg.name),
    ):
        param = UOp(ops.PARAM, dt.int32, (), KernelArg(len(arguments), (), row_major(())))
        mapping[node] = UOp(ops.SYMBOL, node.dtype, (param,), node.arg)
        arguments.append(counts[node.arg.name])
    return replaced((sink,), mapping)[sink], arguments
