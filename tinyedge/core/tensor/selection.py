"""What is true of a mask: how much only a run knows, so there is room for the most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.tensor.base import Scalar, given
from tinyedge.core.tensor.known import Known
from tinyedge.core.tensor.prefix import cumulative_sum

T = TypeVar("T", bound=Known)

WORD = 32  # elements of a mask of which the bits lie in one word


def true_places(mask: T, bound: int) -> tuple[T, T]:
    """Where a bool mask [n] is true: int32 [bound], in order, then -1; and how often."""
    if maximum(mask.shape[0]) == 0:
        return mask.full((bound,), -1, dt.int32), mask.full((), 0, dt.int32)
    flags = Flags.of(mask.unsqueeze(0))
    return flags.places(mask.arange(bound).unsqueeze(0)).squeeze(0), flags.count.reshape(())


@dataclass(frozen=True)
class Flags(Generic[T]):
    """Bool masks [L, n], by blocks."""

    words: T  # uint32 [L, blocks], a bit for every element
    running: T  # int32 [L, blocks], how many elements are true up to the end of a block

    @staticmethod
    def of(mask: T) -> Flags[T]:
        lines, length = mask.shape
        blocks = ix.ceildiv(length, WORD)
        rest = blocks * WORD - length
        each = mask.pad([(0, 0), (0, rest)]).reshape((lines, blocks, WORD))
        bits = type(mask)(1 << np.arange(WORD, dtype=np.uint64), dt.uint32)
        words = each.where(bits, 0).sum(-1).in_memory()
        return Flags(words, cumulative_sum(_ones(words), 1).in_memory())

    @property
    def count(self) -> T:
        """int32 [L]: how many elements are true."""
        last = self.words.from_size(self.words.shape[1], dt.int32) - 1
        return self.running.gather(1, last)

    def places(self, number: T) -> T:
        """int32, of the shape of `number` [L, K]: where the element is that so many true ones of
        its line come before; -1 where there is none.

        The block is found by bisection, then the bit in its word, likewise.
        """
        lines, blocks = self.words.shape
        total = number.from_size(blocks, dt.int32)
        start = number.arange(lines).unsqueeze(1) * total
        running, words = (t.reshape((t.size,)) for t in (self.running, self.words))
        block = number.full((), 0, dt.int32).broadcast_to(number.shape)
        for half in reversed(range(maximum(blocks).bit_length())):
            more = block + (1 << half)
            before = (more <= total) & (running.gather(0, start + more - 1) <= number)
            block = before.where(more, block)
        block = block.in_memory()
        there = (block < total) & (number >= 0)
        earlier = (block > 0).where(running.gather(0, start + block - 1), 0)
        left, word = number - earlier, words.gather(0, start + block)
        place = block * WORD
        half = WORD // 2
        while half:
            low = _ones(word & ((1 << half) - 1))
            beyond = low <= left
            left = beyond.where(left - low, left)
            word = beyond.where(word >> half, word)
            place = beyond.where(place + half, place)
            half //= 2
        return there.where(place, -1).in_memory()


def _ones(word: T) -> T:
    """int32: how many bits of uint32 numbers are set (Hacker's Delight, 5-1)."""
    x = word - ((word >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24).cast(dt.int32)


def true_coordinates(mask: T, bound: int) -> tuple[T, T]:
    """Where a bool mask is true, as coordinates int32 [rank, bound], then 0; and how often."""
    places, count = true_places(mask.reshape((mask.size,)), bound)
    if not mask.ndim:
        return mask.full((0, bound), 0, dt.int32), count
    rest = places.maximum(0)
    coordinates: list[T] = []
    for size in reversed(mask.shape):
        length = mask.from_size(size, dt.int32)
        coordinates.insert(0, rest % length)
        rest = rest // length
    return mask.stack(coordinates), count


def nonzero(mask: T, size: int | None, fill: Scalar) -> T:
    """See `Tensor.nonzero`."""
    room = _count(mask) if size is None else size
    coordinates, count = true_coordinates(mask, room)
    return _filled(coordinates.transpose(), count, fill) if size else coordinates.transpose()


def masked_select(x: T, mask: T, size: int | None, fill: Scalar) -> T:
    """See `Tensor.masked_select`."""
    mask = given(type(x), mask, "masked_select")
    if mask.dtype is not dt.bool_:
        raise TypeError(f"masked_select by {mask.dtype}: it takes a mask of bools")
    chosen = mask.broadcast_to(x.shape)
    room = _count(chosen) if size is None else size
    places, count = true_places(chosen.reshape((chosen.size,)), room)
    values = x.reshape((x.size,)).gather(0, places)
    return _filled(values, count, fill) if size else values


def _count(mask: T) -> int:
    """How often it is true, for which it is computed."""
    return int(mask.cast(dt.int32).sum().item())


def _filled(rows: T, count: T, fill: Scalar) -> T:
    """rows [n, *S] of which those after the count are filled."""
    there = rows.arange(rows.shape[0]) < count
    return there.reshape((-1, *(1,) * (rows.ndim - 1))).where(rows, fill)
