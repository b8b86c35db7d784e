"""How stages are filled: what each thread of a workgroup stores of them, and in which loops.

Threads take neighboring vectors of a stage, along the range along which its value lies in memory.
Few of them a thread are copies, so that all their loads are on the way at once. A thread that is
alone has a loop for each range of a stage.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.lower.vectors import Vectorizer
from tinyedge.core.compiler.optimize.move import numbers, threads_of, vector_width
from tinyedge.core.compiler.schedule.canonical import make_range
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.polynomial import terms
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import rewrite
from tinyedge.core.ir.spec import stage_length, stages_over
from tinyedge.core.ir.uop import Size, UOp, as_node, toposort

MOST_COPIED = 14  # steps of a range that are copies where a thread is alone
COPIES = 8  # vectors of a stage that a thread fills without a loop


def fill_stages(sink: UOp, caps: Caps) -> UOp:
    """The kernel with memory and stores in the place of stages. Only serial loops, workgroups and
    threads are around them.
    """
    if not any(node.op is ops.STAGE for node in toposort((sink,))):
        return sink
    over = stages_over(sink, caps.vector) if caps.threads == 1 else {}
    filling = _Filling(caps, threads_of(sink), max(numbers(sink)) + 1, over)
    return bottom_up((sink,), filling.change)[sink]


@dataclass(frozen=True)
class _Part:
    """What one thread stores of a stage in one step: the steps of the stage's own ranges, the loops
    around it, and under which condition.
    """

    places: dict[UOp, UOp]
    loops: tuple[UOp, ...] = ()
    inside: UOp = ix.TRUE


class _Filling:
    """The stages of a kernel, one after the other. number: the first range number that is free.
    over: stages that lie in the memory of others, and these.
    """

    def __init__(self, caps: Caps, threads: int, number: int, over: Mapping[UOp, UOp]) -> None:
        self.caps = caps
        self.threads = threads
        self.number = number
        self.over = over
        self.memories: dict[UOp, UOp] = {}  # by the stage, as it was
        self.thread = make_range(threads, self._next(), "fill")

    def _next(self) -> int:
        self.number += 1
        return self.number - 1

    def change(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.STAGE:
            return None
        memory = self.memories.get(self.over.get(node, node))
        if memory is None:
            arg = args.Shared(len(self.memories), stage_length(node), bool(node.arg))
            memory = UOp(ops.SHARED, node.dtype, (), arg)
        self.memories[node] = memory
        return self._fill(node.replace(src), memory)

    def _fill(self, stage: UOp, memory: UOp) -> UOp:
        value, *own = stage.src
        along = _contiguous(value, own)
        width = self._width(value, own, along)
        lane = make_range(width, self._next(), "vector")
        # the range of which vectors are a part is the last one to be dealt out
        order = [*(r for r in own if r is not along), along]
        counts = {r: -(-int(r.src[0].arg) // (width if r is along else 1)) for r in order}
        last = int(along.src[0].arg) - width
        if self.threads > 1:
            parts = self._dealt(counts)
        else:
            parts = self._looped(counts, self._tile(value, counts))
        stores: list[UOp] = []
        loops: dict[UOp, None] = {}
        for part in parts:
            places = {
                r: as_node(ix.minimum(place * width, last) + lane if r is along else place)
                for r, place in part.places.items()
            }
            held, *indices = rewrite((value, *own), places)
            place: Size = 0
            for r, index in zip(own, indices, strict=True):
                place = place * r.src[0].arg + index
            store = access.store(memory, held, (as_node(place),), part.inside)
            stores += Vectorizer(lane, self.caps).run((store,)) if width > 1 else (store,)
            loops.update(dict.fromkeys(part.loops))
        return UOp(ops.FILLED, stage.dtype, (memory, *stores, *loops), self.threads > 1)

    def _width(self, value: UOp, own: list[UOp], along: UOp) -> int:
        """Lanes of the vectors that are stored."""
        width = self.caps.vector
        wide = (node for node in toposort((value,)) if along in node.ranges)
        if not all(vector_width(node, self.caps) for node in wide):
            return 1
        count = int(along.src[0].arg)
        while width > count:
            width //= 2
        even = gcd(count, width)
        if self._overlaps(even, width):
            return width
        if _is_summed(value, own):  # work for every thread before vectors
            total = prod(int(r.src[0].arg) for r in own)
            while even > 1 and total < even * self.threads:
                even //= 2
        return even

    def _overlaps(self, even: int, width: int) -> bool:
        """Whether the last vector overlaps the one before, which makes at most half as many."""
        return self.threads == 1 and self.caps.unaligned and width >= 2 * even

    def _dealt(self, counts: dict[UOp, int]) -> list[_Part]:
        """Steps dealt out to threads, neighbors to neighbors."""
        total = prod(counts.values())
        rounds = -(-total // self.threads)
        turns: Sequence[Size] = range(rounds)
        loops: tuple[UOp, ...] = ()
        if rounds > COPIES:
            r = make_range(rounds, self._next(), "reduce")
            turns, loops = [r], (r,)
        parts = []
        for turn in turns:
            step = turn * self.threads + self.thread
            inside = ix.lt(step, total) if rounds * self.threads > total else ix.TRUE
            step = step if inside is ix.TRUE else ix.minimum(step, total - 1)
            places: dict[UOp, UOp] = {}
            for r, count in reversed(counts.items()):
                places[r] = as_node(step % count)
                step //= count
            parts.append(_Part(places, loops, inside))
        return parts

    def _tile(self, value: UOp, counts: dict[UOp, int]) -> dict[UOp, int]:
        """How many steps of ranges are copies, so that reductions share what they load: all of the
        outermost one and as many of the others as registers hold.
        """
        tile = dict.fromkeys(counts, 1)
        if _is_summed(value, counts):
            room = self.caps.max_vector_registers
            for r, count in counts.items():
                held = prod(tile.values())
                fits = [d for d in range(1, MOST_COPIED + 1) if d * held + d < room]
                tile[r] = max((d for d in fits if count % d == 0), default=1)
        return tile

    def _looped(self, counts: dict[UOp, int], tile: dict[UOp, int]) -> list[_Part]:
        """A thread that is alone takes all steps in order, those of a tile together."""
        loops = {r: make_range(n // tile[r], self._next(), "reduce") for r, n in counts.items()}
        around = tuple(r for r in loops.values() if r.op is ops.RANGE)
        parts = []
        for steps in itertools.product(*(range(tile[r]) for r in counts)):
            places = {
                r: as_node(loops[r] * tile[r] + step) for r, step in zip(counts, steps, strict=True)
            }
            parts.append(_Part(places, around))
        return parts


def _is_summed(value: UOp, own: Iterable[UOp]) -> bool:
    """Whether there is a reduction for each of a stage's elements."""
    reductions = (n for n in toposort((value,)) if n.op is ops.REDUCE_LOOP)
    return any(not n.ranges.isdisjoint(own) for n in reductions)


def _contiguous(value: UOp, own: list[UOp]) -> UOp:
    """The stage's own range along which its value lies in memory: the last one if it does."""
    loads = [n for n in toposort((value,)) if n.op is ops.LOAD]
    for r in reversed(own):
        if any(terms(load.src[1]).get((r,), 0) == 1 for load in loads):
            return r
    return own[-1]
