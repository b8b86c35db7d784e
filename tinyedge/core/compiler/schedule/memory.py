"""Lifetimes to offsets: buffers that are never alive together share memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

NEAR = 1.01  # of the bytes alive at once, which are small enough
PLACED = 3 * 2**13  # buffers that are placed in search of a better order


@dataclass(frozen=True)
class Lifetime:
    """A buffer of `bytes`, alive in `spans`: from a step to another, both included; increasing."""

    bytes: int
    spans: tuple[tuple[int, int], ...]

    @property
    def first(self) -> int:
        return self.spans[0][0]

    @property
    def last(self) -> int:
        return self.spans[-1][1]


@dataclass(frozen=True)
class Plan:
    """places: arena and offset of each buffer. arenas: bytes of each. live: the largest sum
    alive at once.
    """

    places: tuple[tuple[int, int], ...]
    arenas: tuple[int, ...]
    live: int


def plan(lifetimes: Sequence[Lifetime], alignment: int, limit: int) -> Plan:
    """Offsets in as few arenas as the limit (bytes an arena) allows.

    Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference",
    2020): one buffer after the other, each at the lowest offset where it meets no buffer alive at
    the same time. Several orders are tried, as none is best for all graphs; the smallest plan is
    taken, and the first of equals. Where it is still larger than it need be, each order changes:
    the buffer that ends last is placed sooner, again and again.
    """
    live = _live(lifetimes, alignment)
    made: list[tuple[Plan, list[int]]] = []
    for key in ORDERS:
        order = sorted(range(len(lifetimes)), key=lambda i: (*key(lifetimes[i]), i))
        found = _greedy(lifetimes, order, alignment, limit, live)
        made.append((found, order))
        if sum(found.arenas) == live:
            break
    made.sort(key=lambda each: sum(each[0].arenas))
    best = made[0][0]
    for found, order in made:
        if sum(best.arenas) <= NEAR * live:
            break
        found = _improved(found, order, lifetimes, alignment, limit)
        if sum(found.arenas) < sum(best.arenas):
            best = found
    return best


def _improved(
    best: Plan, order: list[int], lifetimes: Sequence[Lifetime], alignment: int, limit: int
) -> Plan:
    """The smallest of the plans of this order, of which `best` is one, and of those made of it."""
    found, tried = best, {tuple(order)}

    def end(i: int) -> tuple[int, int]:
        arena, offset = found.places[i]
        return arena, offset + _rounded(lifetimes[i].bytes, alignment)

    for _ in range(PLACED // len(ORDERS) // max(1, len(order))):
        if sum(best.arenas) <= NEAR * best.live:
            break
        last = max(order, key=end)
        at = order.index(last)
        order = [*order[: at // 2], last, *order[at // 2 : at], *order[at + 1 :]]
        if tuple(order) in tried:
            break
        tried.add(tuple(order))
        found = _greedy(lifetimes, order, alignment, limit, best.live)
        if sum(found.arenas) < sum(best.arenas):
            best = found
    return best


ORDERS: tuple[Callable[[Lifetime], tuple[int, ...]], ...] = (
    lambda x: (-x.bytes, x.first),
    lambda x: (-x.bytes, x.last),
    lambda x: (-x.bytes * (x.last - x.first + 1), x.first),
    lambda x: (x.first - x.last, -x.bytes, x.first),
    lambda x: (x.first, -x.bytes),
    lambda x: (-x.last, -x.bytes),
)


def _greedy(
    lifetimes: Sequence[Lifetime], order: Sequence[int], alignment: int, limit: int, live: int
) -> Plan:
    arenas: list[_Arena] = []
    places: list[tuple[int, int]] = [(0, 0)] * len(lifetimes)
    for i in order:
        item = lifetimes[i]
        size = _rounded(item.bytes, alignment)
        for number in range(len(arenas) + 1):
            if number == len(arenas):
                arenas.append(_Arena())
            offset = arenas[number].lowest(item, size)
            if offset + size <= limit or not arenas[number].bytes:
                arenas[number].place(item, offset, size)
                places[i] = (number, offset)
                break
    return Plan(tuple(places), tuple(arena.bytes for arena in arenas), live)


def _rounded(size: int, alignment: int) -> int:
    return max(alignment, -(-size // alignment) * alignment)


class _Arena:
    """What lies in an arena: a column (start, end, first step, last step) for every span of every
    buffer, by increasing start.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._columns = np.empty((4, 16), np.int64)
        self._count = 0

    def lowest(self, item: Lifetime, size: int) -> int:
        """The lowest offset at which a buffer meets none that is alive at the same time."""
        starts, ends, first, last = self._columns[:, : self._count]
        met = np.zeros(self._count, bool)
        for begin, end in item.spans:
            met |= (first <= end) & (last >= begin)
        starts, ends = starts[met], np.maximum.accumulate(ends[met])
        before = np.concatenate(([0], ends))  # where the buffers below each one end
        gaps = np.flatnonzero(starts - before[:-1] >= size)
        return int(before[gaps[0]] if len(gaps) else before[-1])

    def place(self, item: Lifetime, offset: int, size: int) -> None:
        count, more = self._count, len(item.spans)
        if count + more > self._columns.shape[1]:
            room = np.empty((4, count + more), np.int64)
            self._columns = np.concatenate([self._columns, room], axis=1)
        columns = self._columns
        at = int(np.searchsorted(columns[0, :count], offset, "right"))
        columns[:, at + more : count + more] = columns[:, at:count]
        for column, (begin, end) in enumerate(item.spans, at):
            columns[:, column] = offset, offset + size, begin, end
        self._count += more
        self.bytes = max(self.bytes, offset + size)


def _live(lifetimes: Sequence[Lifetime], alignment: int) -> int:
    changes: dict[int, int] = {}
    for item in lifetimes:
        size = _rounded(item.bytes, alignment)
        for first, last in item.spans:
            changes[first] = changes.get(first, 0) + size
            changes[last + 1] = changes.get(last + 1, 0) - size
    live = most = 0
    for step in sorted(changes):
        live += changes[step]
        most = max(most, live)
    return most
