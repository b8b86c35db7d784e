"""An innermost loop around stores becomes runs, in each of which all steps have the same borders.

Where the taps of a window are copies, what is left is the loop over the tiles of a row, of which
the first and the last one have padding beside them. Each tile would test for it:

    for t in 0..8:                          for s in 0..3:
      y[t] = (0 < t ? x[14 t - 1] : 0) + ..   i = 14 * (0, 1, 7)[s]
                                              p = 0 < s ? x + i - 1 : zeros
                                              for t in 0..(1, 6, 1)[s]:
                                                y[..] = p[14 t] + ..

What a condition on runs guards is a region, which is chosen before the loop over the steps of a run
(`regions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.lower.linear import APART, LOOPS
from tinyedge.core.compiler.optimize.move import numbers
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.polynomial import build, terms
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import UOp, as_node, const, toposort


def cut_into_runs(sink: UOp, caps: Caps) -> UOp:
    """An expanded kernel of flat accesses whose innermost loop around stores, if it is of a known
    length and what it loads is under conditions on its steps, is two: over runs, and over the steps
    of one. On devices with zeros to read in place of a buffer.
    """
    loop = innermost_loop(sink) if caps.zeros else None
    if loop is None or loop.src[0].op is not ops.CONST:
        return sink
    places = _places(sink, loop)
    found = {c: cut for load in loads_of(sink) for c, cut in _cuts(load, loop, places)}
    if not found:
        return sink
    ends = (place.end for place in places if place.end)
    cuts = sorted({*(cut.step for cut in found.values()), *ends})
    new = max(numbers(sink)) + 1
    size = const(len(cuts) + 1, dt.index)
    run = UOp(ops.RANGE, dt.index, (size,), args.Range(loop.arg.number, loop.arg.kind))
    starts = [0, *cuts]
    lengths = [end - start for start, end in pairwise([*starts, int(loop.src[0].arg)])]
    longest = const(max(lengths), dt.index)
    limits = (const(0, dt.index), _of_run(lengths, run)) if len(set(lengths)) > 1 else ()
    step = UOp(ops.RANGE, dt.index, (longest, *limits), args.Range(new, loop.arg.kind))
    mapping = {c: cut.holds(run, cuts.index(cut.step) + 1) for c, cut in found.items()}
    for place in places:
        first = _of_run([place.at(start) for start in starts], run)
        mapping[place.node] = as_node(first + step * place.factor)
    return substitute((sink,), mapping)[0]


def innermost_loop(sink: UOp) -> UOp | None:
    """The range of the innermost loop around stores; None where a sum or what fills memory is a
    loop within it, or there is none.
    """
    nodes = toposort((sink,))
    loops = [n for n in nodes if n.op is ops.RANGE and n.arg.kind in LOOPS]
    loop = max(loops, key=lambda r: int(r.arg.number), default=None)
    if loop is None or any(loop in n.ranges for n in nodes if n.op in APART):
        return None
    return loop


def loads_of(sink: UOp) -> Iterator[UOp]:
    """The loads of arguments under a condition, outside of sums."""
    for node in toposort((sink,), stop=lambda n: n.op in APART):
        if node.op is ops.LOAD and node.arg and node.src[0].op is ops.PARAM:
            yield node


def stride(load: UOp, loop: UOp) -> int:
    """How far apart the places of two steps of a loop are; 0: it is not known, or not the same."""
    return max(0, _moves(load.src[1], loop, loop))


@dataclass(frozen=True)
class _Place:
    """Where a step of a loop is: the loop's range, or where a tile begins of which the last one
    overlaps the one before.
    """

    node: UOp
    factor: int = 1  # how far apart they are
    most: int | None = None
    end: int = 0  # the step that is at the most, which is the last one; 0: there is none

    def at(self, step: int) -> int:
        place = step * self.factor
        return place if self.most is None else min(place, self.most)


def _places(sink: UOp, loop: UOp) -> list[_Place]:
    """The places that are a loop's steps, the longer expressions first."""
    found = []
    for node in toposort((sink,)):
        if node.op is not ops.MIN or loop not in node.ranges or node.src[1].op is not ops.CONST:
            continue
        most, factor = int(node.src[1].arg), terms(node.src[0]).get((loop,), 0)
        if factor > 0 and terms(node.src[0]) == {(loop,): factor}:
            end = -(-most // factor)
            if 0 < end == loop.src[0].arg - 1:
                found.append(_Place(node, factor, most, end))
    return [*found, _Place(loop)]


@dataclass(frozen=True)
class _Cut:
    """The first step of a loop from which on a condition holds, or no longer does."""

    step: int
    begins: bool

    def holds(self, run: UOp, number: int) -> UOp:
        """The condition as one on runs, of which the one of this number begins here."""
        return ix.lt(number - 1, run) if self.begins else ix.lt(run, number)


def _cuts(load: UOp, loop: UOp, places: Sequence[_Place]) -> list[tuple[UOp, _Cut]]:
    """The conditions of a load on a loop's steps, each with where it begins or ends; none where it
    could not read a region in the loop after that.
    """
    if not any(_moves(load.src[1], place.node, loop) > 0 for place in places):
        return []
    conditions = [c for c in ix.conjuncts(access.guard_of(load)) if loop in c.ranges]
    found = [(c, cut) for c in conditions if (cut := _cut(c, loop, places)) is not None]
    return found if len(found) == len(conditions) else []


def _cut(condition: UOp, loop: UOp, places: Sequence[_Place]) -> _Cut | None:
    if condition.op is not ops.LT or condition.src[0].dtype is not dt.index:
        return None
    a, b = condition.src
    inside = as_node(b - a - 1)  # at least 0 where the condition holds
    for place in places:
        factor = _moves(inside, place.node, loop)
        rest = dict(terms(inside))
        rest.pop((place.node,), None)
        constant = rest.pop((), 0)
        if not factor or rest:
            continue
        if factor > 0:
            step = -(constant // factor // place.factor)
        else:
            step = constant // -factor // place.factor + 1
        holds = factor * place.at(step) + constant >= 0
        known = 0 < step < loop.src[0].arg and holds is (factor > 0)
        return _Cut(step, factor > 0) if known else None
    return None


def _moves(value: UOp, node: UOp, loop: UOp) -> int:
    """By how much a value grows with a place; 0: with none of these, or in another way."""
    rest = dict(terms(value))
    factor = rest.pop((node,), 0)
    return 0 if loop in as_node(build(rest)).ranges else factor


def _of_run(values: Sequence[int], run: UOp) -> UOp:
    """The value of each run."""
    first, *others = values
    by = others[0] - first
    if all(value == first + by * i for i, value in enumerate(values)):
        return as_node(run * by + first)
    result = as_node(values[-1])
    for i, value in reversed(list(enumerate(values[:-1]))):
        result = UOp(ops.WHERE, dt.index, (ix.lt(run, i + 1), as_node(value), result))
    return result
