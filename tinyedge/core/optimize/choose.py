"""The default moves of a kernel, from the device's facts and arithmetic alone."""

from __future__ import annotations

from tinyedge.core import ops
from tinyedge.core.caps import Caps
from tinyedge.core.optimize.moves import IllegalMove, Move, PadTo, Split, To, find, numbers, ranges
from tinyedge.core.rules import index as ix
from tinyedge.core.uop import UOp

PLAIN_THREADS = 64


class Schedule:
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

    def to(self, number: int, kind: str) -> None:
        self.do(To(number, kind))


def plain(sink: UOp, caps: Caps) -> tuple[UOp, list[Move]]:
    """The least that a device needs: outputs to workgroups and threads, folds serial."""
    schedule = Schedule(sink, caps)
    outer = [r.arg[0] for r in ranges(sink) if r.arg[1] == "loop"]
    if not outer:
        return schedule.sink, schedule.moves
    if caps.threads > 1:
        outer = _to_threads(schedule, outer)
    elif len(outer) > 1:
        outer = outer[:-1]
    for number in outer:
        schedule.to(number, "grid")
    return schedule.sink, schedule.moves


def _to_threads(schedule: Schedule, outer: list[int]) -> list[int]:
    """The innermost output ranges, up to a workgroup's worth, become threads."""
    threads = 1
    grid = list(outer)
    for number in reversed(outer):
        size = find(schedule.sink, number).src[0]
        room = PLAIN_THREADS // threads
        if room < 2:
            break
        if size.op is ops.CONST and size.arg <= room:
            schedule.to(number, "local")
            grid.remove(number)
            threads *= size.arg
            continue
        if ix.divisor(size) % room:
            schedule.do(PadTo(number, room))
        first, second = schedule.split(number, room)
        schedule.to(second, "local")
        grid[grid.index(number)] = first
        break
    return [n for n in grid if any(r.arg[0] == n for r in ranges(schedule.sink))]
