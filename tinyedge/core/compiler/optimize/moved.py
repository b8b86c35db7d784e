"""A kernel under moves, and what a chooser asks of it."""

from __future__ import annotations

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.move import IllegalMove, Move, find_among, in_order, ranges
from tinyedge.core.compiler.optimize.moves import Peel, Split
from tinyedge.core.compiler.schedule.canonical import Changes, in_turn, replace_ranges
from tinyedge.core.ir import ops
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.spec import STAGE_KIND
from tinyedge.core.ir.uop import UOp, as_size


class MovedKernel:
    """A kernel under moves: applies them and keeps the list.

    What moves do to ranges alone is done together, once somebody looks at the rest of the kernel.
    """

    _sink: UOp
    _waiting: Changes  # of the ranges of `_sink`: those of the last moves
    ranges: tuple[UOp, ...]

    def __init__(self, sink: UOp, caps: Caps) -> None:
        self.sink = sink
        self.caps = caps
        self.moves: list[Move] = []

    @property
    def sink(self) -> UOp:
        """The kernel after the moves so far."""
        if self._waiting:
            self._sink, self._waiting = replace_ranges(self._sink, self._waiting), {}
        return self._sink

    @sink.setter
    def sink(self, sink: UOp) -> None:
        self._sink = sink
        self._waiting = {}
        self.ranges = ranges(sink)

    def do(self, move: Move, *, allowed: bool = False) -> None:
        """allowed: the move was found to be legal before."""
        alone = all(r.arg.kind != STAGE_KIND and not r.src[0].ranges for r in self.ranges)
        changes = move.renames(self.ranges, self.caps, allowed=allowed) if alone else None
        if changes is None:
            self.sink = move.apply(self.sink, self.caps)
        else:
            left = [r for r in self.ranges if r not in changes]
            new = [piece for _, pieces in changes.values() for piece in pieces]
            self.ranges = in_order((*left, *new))
            self._waiting = in_turn(self._waiting, changes)
        self.moves.append(move)

    def attempt(self, move: Move) -> bool:
        try:
            self.do(move)
        except IllegalMove:
            return False
        return True

    def split(self, number: int, factor: int) -> tuple[int, int]:
        """Split a range; gives the numbers of the outer and the inner one."""
        first = self.unused()
        self.do(Split(number, factor, first))
        return first, first + 1

    def peel(self, number: int, multiple: int, *, overlap: bool = False) -> int:
        """Peel off what is no multiple; gives its number."""
        rest = self.unused()
        self.do(Peel(number, multiple, rest, overlap))
        return rest

    def unused(self) -> int:
        """The least number that is greater than those of all ranges."""
        return max((r.arg.number for r in self.ranges), default=-1) + 1

    def to(self, number: int, kind: str) -> None:
        self.do(To(number, kind))

    def size(self, number: int) -> UOp:
        return find_among(self.ranges, number).src[0]

    def extent(self, number: int) -> int:
        """The size at the symbols' maxima; 1 for a range that a move used up."""
        if not any(r.arg.number == number for r in self.ranges):
            return 1
        return maximum(as_size(self.size(number)))

    def is_exactly(self, number: int, count: int) -> bool:
        """Whether a range has that many steps whatever the symbols are."""
        size = self.size(number)
        return size.op is ops.CONST and size.arg == count

    def left(self, kind: str) -> list[int]:
        """Numbers of the ranges of a kind."""
        return [r.arg.number for r in self.ranges if r.arg.kind == kind]
