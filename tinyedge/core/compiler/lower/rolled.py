"""The results of a tile, finished and stored in a loop.

Registers have no index, so that the sums of a tile are copies. What is made of them is the same for
each but for its number: where that is much, it is one text in a loop, which chooses by number among
what is first made of the sums. Kernels that are compiled as a page loads have less text so, and a
run has one such loop after the many steps of its sums.

    y0 = exp(b + sum0); y1 = exp(b + sum1); ..  ->  v0 = b + sum0; v1 = b + sum1; ..
                                                    for r in 0..n: y[r] = exp((v0, v1, ..)[r])
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyedge.core.compiler.lower.copies import at_each
from tinyedge.core.compiler.optimize.move import numbers, ranges
from tinyedge.core.compiler.schedule.canonical import make_range
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.polynomial import terms
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import operands, simplified
from tinyedge.core.ir.uop import UOp, toposort

SUMS = (ops.REDUCE_LOOP, ops.ATTEND_LOOP)
LEAST = 3  # copies of which a loop is shorter
WORK = 8  # on a sum, as an exponential takes, from which a loop saves more than it costs


def roll(sink: UOp) -> UOp:
    """A kernel after its moves, with a loop around its stores in place of its longest range over
    copies that allows it. More such loops, or one over two ranges, make a run longer than the text
    that they save is worth.
    """
    found = [r for r in ranges(sink) if r.arg.kind == "upcast" and r.src[0].arg >= LEAST]
    for r in sorted(found, key=lambda r: (-r.src[0].arg, r.arg.number)):
        kept = _kept(sink, r)
        if kept is not None:
            loop = make_range(r.src[0].arg, max(numbers(sink)) + 1, "loop")
            chosen = {node: _chosen(list(at_each(node, [r])), loop) for node in kept}
            chosen[r] = loop
            return bottom_up((sink,), simplified, chosen, operands=operands)[sink]
    return sink


def _kept(sink: UOp, r: UOp) -> list[UOp] | None:
    """What is computed for all steps of a range before any is stored: what is first made of sums,
    and what sums load as well. None: what else is loaded for one step is loaded for others, or lies
    in vectors along it; or what is made of a sum is little text.
    """

    def is_sum(node: UOp) -> bool:
        return node.op in SUMS and r in node.ranges

    outside = toposort((sink,), stop=is_sum)
    sums = [node for node in outside if is_sum(node)]
    inside = {n.src[0] for n in toposort(sums) if n.op is ops.LOAD}
    loads = [n for n in outside if n.op is ops.LOAD and r in n.ranges]
    others = [node for node in outside if node.op in SUMS and node not in sums]
    held = {n.src[0] for n in toposort(others) if n.op is ops.LOAD}
    if any(load.src[0] in held for load in loads):
        return None  # in registers since the sums of its row
    again = [load for load in loads if load.src[0] in inside]
    alone = [load.src[0] for load in loads if load.src[0] not in inside]
    if len(set(alone)) < len(alone):
        return None
    stores = [store for store in sink.src if r in store.ranges]
    places = (place for n in (*loads, *stores) for place in access.indices_of(n))
    if any(terms(place).get((r,), 0) == 1 for place in places):
        return None  # side by side
    guards = (access.guard_of(copy) for store in stores for copy in at_each(store, [r]))
    if any(guard is ix.FALSE for guard in guards):
        return None
    numbered = (n for n in outside if n.op.elementwise and n.dtype.is_float and r in n.ranges)
    attends = any(n.op is ops.ATTEND_LOOP for n in sums)
    if sums and not attends and sum(n.op.cost for n in numbered) < WORK:
        return None
    first = _first_made(outside, sums, r)
    return None if first is None else [*first, *again]


def _first_made(nodes: Sequence[UOp], sums: Sequence[UOp], r: UOp) -> list[UOp] | None:
    """What is made of sums before anything is loaded for a step. A sum itself is not kept: for as
    long it would take a register from the loop that sums. None: there is no such thing.
    """
    plain = [n for n in sums if n.op is ops.REDUCE_LOOP]
    made: dict[UOp, None] = {}
    for node in nodes:
        if node not in sums and any(source in plain for source in node.src):
            below = toposort((node,), stop=lambda n: n in sums)
            loads = any(n.op is ops.LOAD and r in n.ranges for n in below)
            if loads or not node.op.elementwise or any(n in made for n in below):
                return None
            made[node] = None
    return [*made, *(n for n in sums if n not in plain)]


def _chosen(values: Sequence[UOp], number: UOp, first: int = 0) -> UOp:
    """The value of that number, found in halves."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    low, high = _chosen(values[:half], number, first), _chosen(values[half:], number, first + half)
    if low is high:
        return low
    return UOp(ops.WHERE, low.dtype, (ix.lt(number, first + half), low, high))
