"""The move that gives a range another kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.move import (
    REDUCED_BYTES,
    IllegalMove,
    Move,
    find_among,
    ranges,
    vector_width,
)
from tinyedge.core.compiler.schedule.canonical import Changes, replace_ranges
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.spec import OUTPUT_KINDS, REDUCE_KINDS, REDUCTIONS, same_lanes, same_threads
from tinyedge.core.ir.uop import UOp, own_ranges, toposort

MOST_PARTIAL = 16  # vectors of partial results that one reduction keeps
_TOGETHER = ("vector", "lanes", "lane", "threads")  # kinds that say how values are held


@dataclass(frozen=True)
class To(Move):
    """for r in 0..n: f(r)  ->  "grid", "local", "lane", "threads": workgroup or thread r: f(r)
                                "upcast", "unroll": f(0); f(1); .. f(n - 1)
                                "vector", "lanes": f of (0, 1, .. n - 1) in lanes

    Give a range another kind, as the text of `moves` lists them.
    """

    kind: str

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        changes = self._changes(ranges(sink), caps)
        (target,) = changes
        if self.kind == "vector" and not all(vector_width(n, caps) for n in toposort((sink,))):
            raise IllegalMove(f"cannot vectorize range {self.range}: elements of another width")
        if self.kind == "lanes":
            self._check_lanes(target, sink, caps)
        moved = replace_ranges(sink, changes)
        if self.kind in _TOGETHER:
            self._check_reductions([n for n in toposort((moved,)) if n.op in REDUCTIONS])
        return moved

    def renames(self, found: Sequence[UOp], caps: Caps, *, allowed: bool = False) -> Changes | None:
        return self._changes(found, caps) if allowed or self.kind not in _TOGETHER else None

    def _changes(self, found: Sequence[UOp], caps: Caps) -> Changes:
        target = find_among(found, self.range)
        number, old = target.arg.number, target.arg.kind
        family = OUTPUT_KINDS if old in OUTPUT_KINDS else REDUCE_KINDS
        if self.kind not in family or old not in ("loop", "reduce"):
            raise IllegalMove(f"cannot make range {self.range} {self.kind}: it is {old}")
        self._check(target, found, caps)
        new = UOp(ops.RANGE, dt.index, target.src, args.Range(number, self.kind))
        return {target: (new, (new,))}

    def _check_reductions(self, reductions: Sequence[UOp]) -> None:
        """What threads or lanes hold together depends on no others of them."""
        if self.kind in ("lane", "threads") and any(len(same_threads(n)) > 1 for n in reductions):
            why = "a reduction over threads depends on another range of the same threads"
            raise IllegalMove(f"cannot make range {self.range} {self.kind}: {why}")
        if self.kind in ("lanes", "vector") and any(len(same_lanes(n)) > 1 for n in reductions):
            why = "a reduction along lanes depends on other lanes"
            raise IllegalMove(f"cannot make range {self.range} {self.kind}: {why}")

    def _check(self, target: UOp, found: Sequence[UOp], caps: Caps) -> None:
        size = target.src[0]
        if self.kind in ("upcast", "vector", "unroll", "local", "lane", "threads", "lanes"):
            if size.op is not ops.CONST:
                raise IllegalMove(
                    f"cannot make range {self.range} {self.kind}: its size is symbolic"
                )
        if size.op is ops.CONST and size.arg == 0:
            raise IllegalMove(f"cannot make range {self.range} {self.kind}: it is empty")
        if self.kind in ("upcast", "unroll") and size.arg > 64:
            raise IllegalMove(f"cannot unroll range {self.range}: {size.arg} copies")
        if self.kind == "vector":
            if size.arg not in (2, 4, 8, 16) or size.arg > caps.vector:
                raise IllegalMove(f"cannot vectorize range {self.range}: {size.arg} lanes")
            if any(r.arg.kind == "vector" for r in found):
                raise IllegalMove(f"cannot vectorize range {self.range}: one is vectorized already")
        if self.kind in ("local", "lane", "threads"):
            self._check_threads(target, found, caps)

    def _check_lanes(self, target: UOp, sink: UOp, caps: Caps) -> None:
        """A part of a vector, or a few whole ones, of what is computed in vectors."""
        size = target.src[0].arg
        whole = size % caps.vector == 0 and size <= MOST_PARTIAL * caps.vector
        if caps.vector < 2 or not (whole or (size in (2, 4, 8, 16) and size < caps.vector)):
            raise IllegalMove(f"cannot lay range {self.range} along lanes: {size} of them")
        for node in toposort((sink,)):
            reduced = node.op in REDUCTIONS and target in own_ranges(node)
            if reduced and node.op is ops.ATTEND_LOOP and target is not node.src[-1]:
                why = "it is not the innermost of those that share weights"
                raise IllegalMove(f"cannot lay range {self.range} along lanes: {why}")
            if (reduced and node.dtype is dt.bool_) or (
                (reduced or target in node.ranges) and not vector_width(node, caps)
            ):
                raise IllegalMove(
                    f"cannot lay range {self.range} along lanes: elements of another width"
                )

    def _check_threads(self, target: UOp, found: Sequence[UOp], caps: Caps) -> None:
        """All lanes and reduction threads are the same threads; local ranges multiply them."""
        shared = {r.src[0].arg for r in found if r.arg.kind in ("lane", "threads")}
        total = 1
        for other in found:
            if other.arg.kind == "local":
                total *= other.src[0].arg
        size = target.src[0].arg
        if self.kind != "local":
            if shared - {size}:
                raise IllegalMove(
                    f"cannot make range {self.range} {self.kind}: {shared} threads share"
                )
            if self.kind == "lane" and any(r.arg.kind == "lane" for r in found):
                raise IllegalMove(f"cannot make range {self.range} a lane: there is one")
            shared = set()
        total *= size
        for other_size in shared:
            total *= other_size
        if total > caps.threads:
            raise IllegalMove(f"cannot make range {self.range} {self.kind}: {total} threads")
        if self.kind == "threads" and total * REDUCED_BYTES > caps.shared:
            raise IllegalMove(
                f"cannot make range {self.range} threads: workgroup memory is too small"
            )
