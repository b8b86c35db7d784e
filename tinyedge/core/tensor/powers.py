"""Floats as a number near 1 times a power of two: products of the numbers do not leave their type.

    x = m * 2^e, 1 <= |m| < 2

0, infinities and NaN are their own m. What is below the least normal number has an m below 1: a
product of more than five of the least ones may be 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.tensor.memory import Memory

T = TypeVar("T", bound=Memory)

BLOCK = 64  # numbers m whose product is finite


@dataclass(frozen=True)
class _Format:
    """The bits of a float: of its fraction and of its exponent, and the integer that holds it."""

    fraction: int
    exponent: int
    held: DType

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def greatest(self) -> int:
        """What the exponent's bits are of infinities and NaN."""
        return (1 << self.exponent) - 1


FORMATS = {dt.float32: _Format(23, 8, dt.int32), dt.float64: _Format(52, 11, dt.int64)}


def parts(x: T) -> tuple[T, T]:
    """m, and e as int32, of floats of a type that `FORMATS` has: constants, as bits are."""
    of = FORMATS[x.dtype]
    bits = x.bitcast(of.held)
    field = (bits >> of.fraction) & of.greatest
    small, special = field.eq(0), field.eq(of.greatest)
    one = (bits & ~(of.greatest << of.fraction)) | (of.bias << of.fraction)
    m = small.where(x * 2.0 ** (of.bias - 1), special.where(x, one.bitcast(x.dtype)))
    e = small.where(1 - of.bias, special.where(0, field - of.bias))
    return m, e.cast(dt.int32)


def kept(x: T) -> T:
    """In memory as its bits, which no precision of memory rounds."""
    return x.bitcast(FORMATS[x.dtype].held).in_memory().bitcast(x.dtype)


def power_of_two(e: T, dtype: DType) -> T:
    """2^e, of exponents that normal numbers have."""
    of = FORMATS[dtype]
    return ((e + of.bias) << of.fraction).bitcast(dtype)


def times_power(m: T, e: T) -> T:
    """m * 2^e, of numbers as `parts` gives them, where the power may be none that the type has: by
    two factors.
    """
    of = FORMATS[m.dtype]
    most = 2 * of.bias
    bounded = e.clip(2 - most, most).cast(of.held)
    first = bounded >> 1
    for each in (first, bounded - first):
        m = m * power_of_two(each, m.dtype)
    return m
