"""Values that 32 bits cannot hold are found: random integer graphs beside what they compute."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.agreement import find_target
from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.intervals import INTERVALS, UNKNOWN, quotient, remainder
from tinyedge.core.ir.overflow import beyond
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.ir.uop import toposort
from tinyedge.core.tensor.tensor import Tensor

NARROW = find_target("webgpu").caps().computed_as
LEAST, MOST = dt.int32.limits


def _ordered(rng: random.Random) -> tuple[int, int]:
    low, high = sorted(rng.randint(-9, 9) for _ in range(2))
    return low, high


@pytest.mark.parametrize("row", INTERVALS, ids=str)
def test_a_row_stays_in_its_interval_and_reaches_its_ends(row: ops.Primitive) -> None:
    """Of all values of random operands, by the row's meaning in numpy."""
    rng = random.Random(7)
    for _ in range(200):
        operands = [_ordered(rng) for _ in range(row.arity)]
        if row is ops.WHERE:
            operands[0] = (0, 1)
        assert row.numpy is not None
        axes = np.ix_(*(np.arange(low, high + 1) for low, high in operands))
        values = row.numpy(axes[0] > 0, *axes[1:]) if row is ops.WHERE else row.numpy(*axes)
        assert INTERVALS[row](*operands) == (values.min(), values.max()), operands


def test_quotients_and_remainders_stay_in_their_intervals() -> None:
    """By positive divisors; by others nothing is known."""
    rng = random.Random(8)
    for _ in range(200):
        a, n = _ordered(rng), sorted(rng.randint(1, 9) for _ in range(2))
        x, y = np.ix_(np.arange(a[0], a[1] + 1), np.arange(n[0], n[1] + 1))
        assert quotient(a, (n[0], n[1])) == ((x // y).min(), (x // y).max())
        low, high = remainder(a, (n[0], n[1]))
        assert low <= (x % y).min() and (x % y).max() <= high
    assert quotient((0, 9), (-1, 3)) == remainder((0, 9), (-1, 3)) == UNKNOWN


def _beyond(*tensors: Tensor) -> list[Any]:
    roots = [tensor.node for tensor in tensors]
    return beyond(roots, set(toposort(tuple(roots))), NARROW)


def _weight(rng: random.Random) -> Tensor:
    most = rng.choice([1, 9, 1000, 2**20, MOST])
    return Tensor(np.array([[rng.randint(-most, most) for _ in range(3)] for _ in range(2)]))


def _grown(rng: random.Random, depth: int) -> Tensor:
    if depth == 0:
        return _weight(rng)
    x, y = _grown(rng, depth - 1), _grown(rng, rng.randrange(depth))
    place = Tensor(np.array([1, 0, 5], np.int64))
    forms = (
        lambda: x + y,
        lambda: x - y,
        lambda: x * y,
        lambda: -x,
        lambda: x.abs(),
        lambda: x.maximum(y),
        lambda: x.minimum(y),
        lambda: (x < y).where(x, y),
        lambda: x.sum(1, keepdims=True) + y,
        lambda: x.gather(1, place),
        lambda: x.pad(((1, 0), (0, 0)))[1:],
        lambda: (x < y).cast(dt.int64),
        lambda: x.cast(dt.int8).cast(dt.int64),
        lambda: x.cast(dt.float32).cast(dt.int64),
        lambda: x.prod(0, keepdims=True) + y,
        lambda: x << (y & 7),
    )
    return rng.choice(forms)()


def test_what_is_beyond_is_found() -> None:
    """No value is beyond 32 bits where none is named; and often that is proved."""
    proved = 0
    for seed in range(400):
        root = _grown(random.Random(seed), 4)
        if _beyond(root):
            continue
        proved += 1
        nodes = [n for n in toposort((root.node,)) if n.dtype is dt.int64]
        for value in evaluate(nodes, {}):
            assert not value.size or (value.min() >= LEAST and value.max() <= MOST), seed
    assert proved >= 40


def test_a_stored_integer_keeps_the_low_bits() -> None:
    """Of 0..8 an int4 makes -8 too, of 0..7 it makes the same."""
    for count, found in ((9, True), (8, False)):
        low = Tensor(np.arange(count)).cast(dt.int4).cast(dt.int64)
        assert bool(_beyond(low * 2**27 - 3 * 2**29)) is found


I64 = Tensor.input("x", (1000,), dt.int64)
U64 = Tensor.input("u", (4,), dt.uint64)
I32 = Tensor.input("i", (4,), dt.int32).cast(dt.int64)
FLAGS = Tensor.input("b", (1000,), dt.bool_)
FLOATS = Tensor.input("f", (4,), dt.float32)


def _squared(x: Tensor, times: int) -> Tensor:
    for _ in range(times):
        x = x * x
    return x


def test_products_of_products() -> None:
    """Their bounds are no longer exact, so each takes no longer than the one before; what is done
    with infinite ones is still followed.
    """
    given = Tensor.input("p", (2,), dt.int64)
    x, y = _squared(given, 64), _squared(given - 1, 64)
    assert _beyond(x) and _beyond(y * 0 + x)
    bits = Tensor(np.array([0, 1], np.int64))
    for fits in (
        _squared(bits, 64),
        (x - y).minimum(7).maximum(-7),
        bits * 0 * x,
        (x < y).cast(dt.int64) + bits,
    ):
        assert not beyond([fits.node], {fits.node}, NARROW)
    for exceeds in (x - y, -x, x.abs(), x * bits, x.minimum(7) - y):
        assert beyond([exceeds.node], {exceeds.node}, NARROW) == [exceeds.node]


def test_a_sum_inside_of_an_operator() -> None:
    """Its name is that of what the operator makes of it, which fits again: a mean."""
    total = I64.sum(0, keepdims=True)
    mean = total // 1000
    assert beyond([mean.node], [mean.node], NARROW) == [mean.node]
    assert beyond([mean.node], [total.node, mean.node], NARROW) == [total.node]
    assert not beyond([mean.node], [mean.node], {})


@pytest.mark.parametrize(
    ("tensor", "fits"),
    [
        (I64, True),
        (I64.maximum(I64), True),
        (FLAGS.cast(dt.int64).sum(), True),
        (FLAGS.cast(dt.int64) * 7 - 3, True),
        (I64.clip(0, 40) * 1000, True),
        (I64 * I64, False),
        (I64 + 1, False),
        (I64.sum(), False),
        (I32 + I32, False),
        (U64 - 1, False),
        (U64.minimum(5) + 1, True),
        (FLOATS.cast(dt.int64), False),
        (FLOATS.cast(dt.int32) + 1, True),  # 32 bits are what the model asks for
    ],
)
def test_what_is_proved(tensor: Tensor, fits: bool) -> None:
    assert not _beyond(tensor) == fits
    assert not beyond([tensor.node], [tensor.node], {})


def test_the_least_of_nothing_needs_all_bits() -> None:
    """Of an empty axis the minimum is the greatest integer, which 32 bits do not hold."""
    for least, found in ((0, True), (1, False)):
        x = Tensor.input("x", (symbol("n", least, 4), 2), dt.int64)
        small = x.clip(0, 9).min(0)
        assert bool(_beyond(small)) is found
