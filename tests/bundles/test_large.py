"""Checking the largest manifests takes seconds, and finds what comparing all pairs finds."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from tests.bundles import large
from tinyedge.export.bundle.check import _Order, _Span, check
from tinyedge.export.bundle.manifest import decode

SECONDS = 2.0  # of the processor, for the quarter of a manifest; all pairs took 8


@pytest.mark.parametrize("name", large.MAKERS)
def test_large_manifests(name: str) -> None:
    text = large.text(name, 0.25)
    start = time.process_time()
    check(decode(text))
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize("equal", [False, True])
def test_overlaps_in_a_launch(equal: bool) -> None:
    """Against all pairs, over few places, so that each case is met many times."""
    chance = random.Random(3)
    found = []
    for _ in range(3000):
        spans = []
        for _ in range(8):
            start = chance.randrange(12)
            spans.append(_Span(chance.choice((0, 0, 0, -1)), start, start + chance.randrange(1, 5)))
        buffers = [chance.randrange(len(spans)) for _ in range(chance.randrange(1, 6))]
        accesses = [chance.choice(("read", "read", "read_write")) for _ in buffers]
        expected = any(
            "read_write" in (a, b)
            and spans[one].overlaps(spans[two])
            and not (equal and spans[one] == spans[two])
            for (one, a), (two, b) in itertools.combinations(
                list(zip(buffers, accesses, strict=True)), 2
            )
        )
        assert _Order(spans).overlap(buffers, accesses, equal) == expected
        found.append(expected)
    assert 500 < sum(found) < 2500
