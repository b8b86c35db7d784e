"""Between which values integers lie, for what a device computes in fewer bits than the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.intervals import INTERVALS, UNKNOWN, Interval
from tinyedge.core.ir.memory import MEMORY
from tinyedge.core.ir.movement import fills
from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.uop import UOp, toposort

FARTHEST = 2**64  # bounds farther from 0 say nothing more: no type holds such values


def beyond(roots: Sequence[UOp], named: Collection[UOp], narrow: Mapping[str, str]) -> list[UOp]:
    """The named nodes whose values are not proved to fit the type that they are computed in.

    narrow: what a type is computed as. Inputs fit: a run refuses others. What a node is found to
    exceed counts once: the nodes after it take its values as they are kept. A sum without a name
    counts for the first named node that uses it.
    """
    known: dict[UOp, Interval] = {}
    found = []
    sums: set[UOp] = set()  # those that exceed and have no name yet, and what uses them
    for node in toposort(tuple(roots)):
        if node.dtype is dt.index or node.dtype.kind not in "biu":
            continue
        kept = dt.by_name(narrow.get(node.dtype.held.name, node.dtype.held.name))
        low, high = _rounded(_interval(node, kept, known))
        least, greatest = kept.limits
        if low < least or high > greatest:
            if node.op is ops.REDUCE and kept.bits < node.dtype.bits:
                sums.add(node)
            if node in named and kept.bits < node.dtype.bits:
                sums.discard(node)
                found.append(node)
                low, high = max(low, least), min(high, greatest)
            elif kept is node.dtype.held:
                low, high = least, greatest  # it wraps as the model says
        if not sums.isdisjoint(node.src) and node not in found[-1:]:
            if node in named:
                found.append(node)
            else:
                sums.add(node)
        known[node] = low, high
    return found


def interval(node: UOp, stop: Callable[[UOp], bool]) -> Interval:
    """Between which values the integers of a node lie, by what they are made of up to the nodes for
    which `stop` holds, of which their types say all that is known.
    """
    known: dict[UOp, Interval] = {}
    for each in toposort((node,), stop):
        if each.dtype is not dt.index and each.dtype.kind in "biu":
            least, greatest = each.dtype.limits
            known[each] = least, greatest
            if not stop(each):
                low, high = _interval(each, each.dtype, known)
                if least <= low and high <= greatest:
                    known[each] = low, high
    return known[node]


def _interval(node: UOp, kept: DType, known: Mapping[UOp, Interval]) -> Interval:
    """Of a node's values, by those of its operands; of what is not followed, all that fit."""
    op, arg = node.op, node.arg
    if op is ops.CONST:
        return int(arg), int(arg)
    if op is ops.BUFFER:
        data = arg.source.data
        return kept.limits if data is None or not data.size else (int(data.min()), int(data.max()))
    if op is ops.IOTA:
        return 0, maximum(node.shape[0]) - 1
    if op is ops.CAST:
        return _converted(node, known)
    operands = [known[source] for source in node.src if source in known]
    if op.group == "movement":
        low, high = operands[0]
        return (min(low, 0), max(high, 0)) if fills(op) else (low, high)
    if op in MEMORY:
        return MEMORY[op].bounds(node, operands) or kept.limits
    if op in INTERVALS:
        return INTERVALS[op](*operands)
    if op in (ops.SHL, ops.POW):
        return UNKNOWN
    return kept.limits


def _converted(node: UOp, known: Mapping[UOp, Interval]) -> Interval:
    """Of what a cast makes of the values of its operand. A stored type keeps the low bits."""
    source, (least, most) = node.src[0], node.dtype.limits
    if source.dtype.is_float:
        return least, most
    low, high = bounds(source) if source.dtype is dt.index else known[source]
    wraps = node.dtype.storage_type and not (least <= low and high <= most)
    return (least, most) if wraps else (low, high)


def _rounded(interval: Interval) -> Interval:
    """The interval made wider where its bounds are far from 0: exact products of products would
    have more digits with each step. No lower bound is infinity, no upper one minus infinity.
    """
    low, high = interval
    low = -math.inf if low < -FARTHEST else min(low, FARTHEST)
    high = math.inf if high > FARTHEST else max(high, -FARTHEST)
    return low, high
