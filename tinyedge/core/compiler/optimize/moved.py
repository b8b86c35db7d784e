"""A kernel under moves, and what a chooser asks of it."""

from __future__ import annotations

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.move import IllegalMove, Move, find, numbers, ranges
from tinyedge.core.compiler.optimize.moves import Peel, Split, To
from tinyedge.core.ir import ops
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.uop import UOp, as_size


class MovedKernel:
    """A kernel under moves: applies them and keeps the list."""

    def __init__(self, sink: UOp, caps: Caps) -> None:
        self.sink = sink
        self.caps = caps
        self.moves: list[Move] = []

    def do(self, move: Move) -> None:
        self.sink = move.apply(self.sink, self.caps)
        self.moves.append(move)

    def attempt(self, move: Move) -> bool:
        try:
            self.do(move)
        except IllegalMove:
            return False
        return True

    def split(self, number: int, factor: int) -> tuple[int, int]:
        """Split a range; gives the numbers of the outer and the inner one."""
        first = max(numbers(self.sink)) + 1
        self.do(Split(number, factor, first))
        return first, first + 1

    def peel(self, number: int, multiple: int, *, overlap: bool = False) -> int:
        """Peel off what is no multiple; gives its number."""
        rest = max(numbers(self.sink)) + 1
        self.do(Peel(number, multiple, rest, overlap))
        return rest

    def to(self, number: int, kind: str) -> None:
        self.do(To(number, kind))

    def size(self, number: int) -> UOp:
        return find(self.sink, number).src[0]

    def extent(self, number: int) -> int:
        """The size at the symbols' maxima; 1 for a range that a move used up."""
        if not any(r.arg.number == number for r in ranges(self.sink)):
            return 1
        return maximum(as_size(self.size(number)))

    def is_exactly(self, number: int, count: int) -> bool:
        """Whether a range has that many steps whatever the symbols are."""
        size = self.size(number)
        return size.op is ops.CONST and size.arg == count

    def left(self, kind: str) -> list[int]:
        """Numbers of the ranges of a kind."""
        return [r.arg.number for r in ranges(self.sink) if r.arg.kind == kind]
