"""What a thread has in registers of windows with a filter for each channel, borders among it."""

from __future__ import annotations

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.optimize.move import find, numbers
from tinyedge.core.compiler.schedule.canonical import make_range
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import rewrite
from tinyedge.core.ir.uop import UOp, as_node, as_size, const, toposort


def vectors_of_windows(sink: UOp, number: int, rows: int, tap: UOp) -> int:
    """Vectors of a tile of so many rows along a range, with all steps of a tap as copies: its sums,
    what they load, and the filter's taps. What is under conditions of a tile, as at the picture's
    border, has sums of its own (lower/borders.py); where rows do not divide the range, that is so
    for each row that may be the last.
    """
    row = find(sink, number)
    tiles = make_range(ix.ceildiv(as_size(row.src[0]), rows), max(numbers(sink)) + 1, "loop")
    last = row.src[0] - 1
    found = [n for n in toposort((sink,)) if n.op is ops.LOAD and {row, tap} <= n.ranges]
    places, sums = set(), 0
    for copy in range(rows):
        place = as_node(ix.minimum(tiles * rows + copy, last))
        apart = set()
        for step in range(int(tap.src[0].arg)):
            at = {row: place, tap: const(step, dt.index)}
            for load in rewrite(tuple(found), at):
                if load.op is ops.LOAD:
                    apart.add(_conditions(load, tiles))
                    places.add(load.src[:2])
        sums += len(apart)
    return sums + len(places) + int(tap.src[0].arg)


def _conditions(load: UOp, tiles: UOp) -> frozenset[UOp]:
    """Those of a load that depend on the tile."""
    conditions = ix.conjuncts(access.guard_of(load))
    return frozenset(ix.whole(each) for each in conditions if tiles in each.ranges)
