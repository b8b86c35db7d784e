"""Where buffers lie in memory: none over another that is alive, and little more than is alive at
once.
"""

from __future__ import annotations

import itertools
import random

import pytest

from tinyedge.core.compiler.schedule import memory
from tinyedge.core.compiler.schedule.memory import Lifetime, plan

KIBIBYTE = 1024
WITHOUT_LIMIT = 2**40

# A ResNet's, with convolutions by Winograd's transforms: KiB, first step, last step.
RESIDUAL = [(588, 0, 0), (3136, 0, 1)]
for _start, _size, _tiles in ((1, 784, 1764), (7, 784, 1764), (13, 784, 882), (17, 392, 882)):
    RESIDUAL += [(_size, _start, _start + 6), (_size, _start + 3, _start + 4)]
    RESIDUAL += [(_tiles, _start + at, _start + at + 1) for at in (1, 2, 4, 5)]


def _lifetimes(rows: list[tuple[int, int, int]]) -> list[Lifetime]:
    return [Lifetime(kib * KIBIBYTE, ((first, last),)) for kib, first, last in rows]


def _drawn(seed: int, count: int) -> list[Lifetime]:
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        first = draw.randrange(count)
        rows.append((draw.randint(1, 300), first, first + draw.choice([1, 1, 2, 3, 10])))
    return _lifetimes(rows)


def _check(lifetimes: list[Lifetime], alignment: int = 256) -> float:
    """No two that are alive at once overlap; gives the plan's size against what is alive."""
    found = plan(lifetimes, alignment, WITHOUT_LIMIT)
    assert len(found.arenas) == 1
    pairs = itertools.combinations(zip(lifetimes, found.places, strict=True), 2)
    for (one, (_, at)), (two, (_, start)) in pairs:
        if one.first <= two.last and two.first <= one.last:
            assert at + one.bytes <= start or start + two.bytes <= at
    assert all(
        at % alignment == 0 and at + each.bytes <= found.arenas[0]
        for each, (_, at) in zip(lifetimes, found.places, strict=True)
    )
    return found.arenas[0] / found.live


def test_transformed_tiles_cost_no_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """No order by size or time is good enough for these; one that is made of it is."""
    assert _check(_lifetimes(RESIDUAL)) <= memory.NEAR
    monkeypatch.setattr(memory, "PLACED", 0)
    assert _check(_lifetimes(RESIDUAL)) > 1.05


@pytest.mark.parametrize("count", [1, 20, 60, 150, 400])
def test_little_more_than_what_is_alive(count: int) -> None:
    assert 1 <= _check(_drawn(count, count)) <= 1.05


@pytest.mark.parametrize(("seed", "count"), [(9, 12), (75, 20), (98, 30)])
def test_every_order_is_made_better(seed: int, count: int) -> None:
    """What is made of the best order alone is 1.06 to 1.13 of what is alive."""
    assert _check(_drawn(seed, count)) == 1


def test_a_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many buffers are placed, however many there are."""
    placed = 0
    lowest = memory._Arena.lowest

    def counted(arena: memory._Arena, item: Lifetime, size: int) -> int:
        nonlocal placed
        placed += 1
        return lowest(arena, item, size)

    monkeypatch.setattr(memory._Arena, "lowest", counted)
    monkeypatch.setattr(memory, "NEAR", 0.0)
    for count in (30, 3000):
        placed = 0
        plan(_drawn(count, count), 256, WITHOUT_LIMIT)
        assert placed <= len(memory.ORDERS) * count + memory.PLACED
