"""Counts: sizes that a kernel computes, so that only a run knows them.

A count is a SYMBOL whose value lies in a buffer. Everything is laid out by it as by any other
symbolic size: rows of `n` elements follow each other without gaps. But the host does not know it
when it launches, so no loop and no workgroup may depend on it: a range of a counted size runs to
the most that the size can be, and what is beyond it is neither stored nor folded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tinyedge.core import dtype as dt
from tinyedge.core import ops
from tinyedge.core.rules import index as ix
from tinyedge.core.rules.algebra import SIMPLIFY
from tinyedge.core.schedule.buffers import Param, Storage, plain
from tinyedge.core.schedule.canonical import guard, make_range, mask_folds
from tinyedge.core.spec import FOLD_KINDS
from tinyedge.core.uop import Size, UOp, as_node, maximum, replaced, toposort


def is_counted(size: Size, counts: Collection[str]) -> bool:
    """Whether only a run knows the size."""
    return isinstance(size, UOp) and any(
        node.op is ops.SYMBOL and node.arg[0] in counts for node in toposort((size,))
    )


def most(size: UOp, counts: Collection[str]) -> UOp:
    """The most that a size can be, whatever its counts are; the other symbols stay in it.

    A size that falls or rises with each count is greatest where every count is at an end.
    """
    ends: list[UOp] = [size]
    for symbol in (n for n in toposort((size,)) if n.op is ops.SYMBOL and n.arg[0] in counts):
        ends = [
            SIMPLIFY.rewrite((end,), {symbol: as_node(value)})[0]
            for end in ends
            for value in symbol.arg[1:3]
        ]
    greatest = ends[0]
    for end in ends[1:]:
        greatest = ix.maximum(greatest, end)
    return greatest


def bound_ranges(sink: UOp, counts: Collection[str]) -> UOp:
    """The kernel with ranges of known size: those of a counted one run to the most it can be."""
    ranges = [n for n in toposort((sink,)) if n.op is ops.RANGE]
    for target in sorted(ranges, key=lambda r: int(r.arg[0])):
        size = target.src[0]
        if not is_counted(size, counts):
            continue
        number, kind = target.arg
        longer = make_range(most(size, counts), number, kind)
        inside = ix.less(longer, size)
        clamped = longer
        if not all(
            _has_room(node, target, longer) for node in toposort((sink,)) if node.op is ops.LOAD
        ):
            clamped = ix.minimum(longer, ix.maximum(ix.sub(size, ix.ONE), ix.ZERO))
        if kind in FOLD_KINDS:
            sink = mask_folds(sink, target, longer, clamped, inside)
        else:
            stores = [SIMPLIFY.rewrite((store,), {target: clamped})[0] for store in sink.src]
            sink = UOp(ops.SINK, dt.index, tuple(guard(inside, store) for store in stores))
    return sink


def _has_room(load: UOp, target: UOp, longer: UOp) -> bool:
    """Whether a load stays in its buffer while a range runs on: memory is there for the most."""
    if target not in load.ranges:
        return True
    param = load.src[0].arg
    (address,) = SIMPLIFY.rewrite((load.src[1],), {target: longer})
    low, high = ix.bounds(address)
    return not param.is_image and low >= 0 and high < maximum(param.layout.count(param.shape))


def read_counts(
    sink: UOp, storages: Sequence[Storage], counts: Mapping[str, Storage]
) -> tuple[UOp, list[Storage]]:
    """The kernel with its counts as arguments: their buffers come after the others."""
    mapping: dict[UOp, UOp] = {}
    arguments = list(storages)
    for node in sorted(
        (n for n in toposort((sink,)) if n.op is ops.SYMBOL and n.arg[0] in counts),
        key=lambda n: str(n.arg[0]),
    ):
        param = UOp(ops.PARAM, dt.int32, (), Param(len(arguments), (), plain(())))
        mapping[node] = UOp(ops.SYMBOL, node.dtype, (param,), node.arg)
        arguments.append(counts[node.arg[0]])
    return replaced((sink,), mapping)[sink], arguments
