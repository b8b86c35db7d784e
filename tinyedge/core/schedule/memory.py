"""Lifetimes to offsets: buffers that are never alive together share memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


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

    def meets(self, other: Lifetime) -> bool:
        """Whether both are alive at once."""
        return any(
            first <= end and start <= last
            for first, last in self.spans
            for start, end in other.spans
        )


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
    taken, and the first of equals.
    """
    live = _live(lifetimes, alignment)
    best: Plan | None = None
    for key in ORDERS:
        order = sorted(range(len(lifetimes)), key=lambda i: (*key(lifetimes[i]), i))
        found = _greedy(lifetimes, order, alignment, limit, live)
        if best is None or sum(found.arenas) < sum(best.arenas):
            best = found
    assert best is not None
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
    arenas: list[list[tuple[int, int, Lifetime]]] = []
    places: list[tuple[int, int]] = [(0, 0)] * len(lifetimes)
    for i in order:
        item = lifetimes[i]
        size = _rounded(item.bytes, alignment)
        for number in range(len(arenas) + 1):
            if number == len(arenas):
                arenas.append([])
            offset = _lowest(arenas[number], item, size)
            if offset + size <= limit or not arenas[number]:
                arenas[number].append((offset, size, item))
                places[i] = (number, offset)
                break
    sizes = tuple(max(offset + size for offset, size, _ in arena) for arena in arenas)
    return Plan(tuple(places), sizes, live)


def _rounded(size: int, alignment: int) -> int:
    return max(alignment, -(-size // alignment) * alignment)


def _lowest(arena: list[tuple[int, int, Lifetime]], item: Lifetime, size: int) -> int:
    taken = sorted(
        (offset, offset + length) for offset, length, other in arena if other.meets(item)
    )
    position = 0
    for start, end in taken:
        if start - position >= size:
            break
        position = max(position, end)
    return position


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
