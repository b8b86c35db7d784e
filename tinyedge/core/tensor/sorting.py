"""Sorting: short rows by counting, long ones by merging.

The rank of an element is how many come before it: that takes the square of the length. A longer row
is cut into blocks, which are ranked, and merged in pairs. Every element of a merged run finds by
bisection how many come from the first of the two (the merge path of Odeh, Green, Mwassi, Shmueli
and Birk, Merge Path - Parallel Merging Made Simple, 2012), so that a level is one kernel or two.
Runs are cut to what is wanted of the whole row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tinyedge.core import dtype as dt
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.reductions import Reductions

T = TypeVar("T", bound=Reductions)

BLOCK = 256  # the longest that is ranked
LANES = 8  # blocks are multiples of this
STEPS = 8  # of a bisection that one kernel takes

InOrder = Callable[[T, T], T]  # whether the first may come before the second


def order_of(x: T, count: Size | None = None, *, descending: bool = False) -> T:
    """int32 [..., count]: where along the last axis the least elements are, the least first.

    descending: the greatest. Equal elements stay in their order; a NaN is greater than every number
    and equal to NaN. count: None for all.
    """
    length = x.shape[-1]
    wanted = length if count is None else count
    if 0 in (*x.shape, wanted):
        return x.full((*x.shape[:-1], wanted), 0, dt.int32)
    levels = 0
    while BLOCK << levels < maximum(length):
        levels += 1
    span = -(-maximum(length) // (LANES << levels)) * LANES
    width = span << levels
    keys = _keys(x).reshape((product(x.shape[:-1]), length))
    keys = stored(keys.pad([(0, 0), (0, width - length)]))
    keep = min(span, maximum(wanted))
    in_order = _falling if descending else _rising
    runs = _ranked(keys, length, span, keep, in_order)
    for level in range(levels):
        keep = min(2 * keep, maximum(wanted))
        runs = _merged(keys, runs, length, span << level, keep, in_order)
    start = x.arange(keys.shape[0]).unsqueeze(1) * width
    places = (runs.squeeze(1) - start).shrink([(0, keys.shape[0]), (0, wanted)])
    return places.reshape((*x.shape[:-1], wanted))


def _keys(x: T) -> T:
    """Integers in the order of the elements. Doubles stay what they are: no integer is as wide on
    every target.
    """
    if x.dtype is dt.bool_:
        return x.cast(dt.int32)
    if not x.dtype.is_float or x.dtype is dt.float64:
        return x
    bits = x.cast(dt.float32).bitcast(dt.int32)
    size = bits & 0x7FFFFFFF
    signed = (bits < 0).where(-size, size)  # both zeros are 0
    return (size > 0x7F800000).where(0x7FFFFFFF, signed)


def _rising(a: T, b: T) -> T:
    """Whether a is at most b; no comparison with a NaN counts."""
    if not a.dtype.is_float:
        return a <= b
    return b.isnan() | (~a.isnan() & (a <= b))


def same(a: T, b: T) -> T:
    """Whether neither comes before the other: a NaN is equal to a NaN."""
    return _rising(a, b) & _rising(b, a)


def _falling(a: T, b: T) -> T:
    return _rising(b, a)


def stored(x: T) -> T:
    """In memory, in row-major order."""
    return x.reshape((x.size,)).in_memory().reshape(x.shape)


def _ranked(keys: T, length: Size, span: int, keep: int, in_order: InOrder[T]) -> T:
    """keys [R, W] in blocks of `span`, each sorted: int32 [R, W / span, keep], places in flat keys.

    length: how many of the W keys are there.
    """
    number, width = keys.shape
    assert isinstance(width, int)
    blocks = keys.reshape((number, width // span, span))
    place = keys.arange(width).reshape((width // span, span))
    here, there = blocks.unsqueeze(-1), blocks.unsqueeze(-2)
    first = keys.arange(span) < keys.arange(span).unsqueeze(-1)
    real = place < keys.from_size(length, dt.int32)
    ahead = first.where(in_order(there, here), ~in_order(here, there))
    rank = (ahead & real.unsqueeze(-2)).cast(dt.int32).sum(-1)
    rank = stored(real.where(rank, span))
    start = keys.arange(number).reshape((-1, 1, 1)) * width
    chosen = rank.unsqueeze(-2).eq(keys.arange(keep).unsqueeze(-1))
    return stored(chosen.where(place.unsqueeze(-2), 0).sum(-1) + start)


def _merged(keys: T, runs: T, length: Size, span: int, keep: int, in_order: InOrder[T]) -> T:
    """Pairs of sorted runs [R, 2P, L] of places in flat keys as runs [R, P, keep].

    span: how many keys of a row a run stands for; those beyond the length are missing.
    """
    number, count, size = runs.shape
    assert isinstance(count, int) and isinstance(size, int)
    values, places = keys.reshape((keys.size,)), runs.reshape((runs.size,))
    pair = keys.arange(count // 2).unsqueeze(1)
    left = keys.from_size(length, dt.int32) - pair * (2 * span)
    lengths = left.clip(0, size), (left - span).clip(0, size)
    begin = keys.arange(number).reshape((-1, 1, 1)) * (count * size) + pair * (2 * size)
    at = keys.arange(keep)
    taken = (at - lengths[1]).maximum(0).broadcast_to((number, count // 2, keep))
    most = at.minimum(lengths[0])
    before, end = begin - 1, begin + size + at  # the rest is from the second run

    def value(place: T) -> T:
        return values.gather(0, places.gather(0, place))

    for half in reversed(range(size.bit_length())):
        more = taken + (1 << half)
        fits = in_order(value(before + more), value(end - more))
        taken = ((more <= most) & fits).where(more, taken)
        if half and half % STEPS == 0:
            taken = stored(taken)
    here, there = begin + taken, end - taken
    over = at - taken >= lengths[1]
    from_first = (taken < lengths[0]) & (over | in_order(value(here), value(there)))
    return stored(places.gather(0, from_first.where(here, there)))
