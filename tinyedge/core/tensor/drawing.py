"""Random numbers by counter: pure functions of a key, with the same bits on every target.

A key is a uint32 [2]; the number at place i is Threefry-2x32-20 of the key and (0, i) (J. Salmon
and others, Parallel random numbers: as easy as 1, 2, 3, 2011). One key gives one set of numbers,
however often it is asked: `split` and `fold_in` make others of it; `split(key, n)[i]` is
`fold_in(key, i)`. Keys, bits and uniform numbers are those of JAX 0.5 and later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar, Union

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor import sorting
from tinyedge.core.tensor.arrays import Arrays
from tinyedge.core.tensor.base import Lazy, given, sizes_of

T = TypeVar("T", bound=Arrays)

Shape = Union[Size, Sequence[Size]]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA  # of the key's words, for its third word
DIGITS = {dt.float16: 11, dt.bfloat16: 8}  # of numbers in [0, 1) that these hold
ROUND = 2**32 - 1  # permutations of up to its cube root are sorted once by 32 bits


def threefry(key: T, high: T, low: T) -> tuple[T, T]:
    """Threefry-2x32-20 of a key and counters, uint32 of one shape: two words for each."""
    key = _checked(key)
    words = (key[0], key[1], key[0] ^ key[1] ^ PARITY)
    a, b = high + words[0], low + words[1]
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            a = a + b
            b = (b << distance | b >> (32 - distance)) ^ a
        a = a + words[(group + 1) % 3]
        b = b + words[(group + 2) % 3] + (group + 1)
    return a, b


def _words(key: T, shape: Shape) -> tuple[T, T]:
    """Two words for each element."""
    sizes = sizes_of(shape)
    key = _checked(key)
    places = key.arange(product(sizes), dt.uint32)
    high, low = threefry(key, key.full(places.shape, 0, dt.uint32), places)
    return high.reshape(sizes), low.reshape(sizes)


def _checked(key: Any) -> Any:
    """A key. Raises TypeError for anything else, as for a seed."""
    if not isinstance(key, Lazy):
        kind = type(key).__name__
        raise TypeError(f"{kind} {key!r} is no key: tinyedge.random.key(seed) makes one")
    if key.dtype is not dt.uint32 or key.shape != (2,):
        raise TypeError(f"a key is uint32 [2], not {key.dtype} {list(key.shape)}")
    return key


def split(key: T, count: int = 2) -> list[T]:
    """Keys that are independent of each other and of this one."""
    key = _checked(key)
    high, low = _words(key, (count,))
    return [key.stack([high[number], low[number]]) for number in range(count)]


def fold_in(key: T, number: int | T) -> T:
    """The key for a number from 0 to 2^32 - 1, such as that of a step or of a layer."""
    key = _checked(key)
    low = number if isinstance(number, Lazy) else type(key)(np.array(number, np.uint32))
    if low.shape != ():
        raise ValueError(f"fold_in of {list(low.shape)}: the number must be a scalar")
    low = low.cast(dt.uint32)
    return key.stack(threefry(key, key.full((), 0, dt.uint32), low))


def bits(key: T, shape: Shape) -> T:
    """uint32: all values are equally likely."""
    high, low = _words(key, shape)
    return high ^ low


def uniform(
    key: T,
    shape: Shape,
    low: float | T = 0.0,
    high: float | T = 1.0,
    dtype: DType = dt.float32,
) -> T:
    """Floats in [low, high): multiples of 2^-23 in [0, 1) (float64: 2^-53, float16: 2^-11,
    bfloat16: 2^-8), scaled.
    """
    unit = _unit(key, shape, dtype)
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return unit
    return (unit * (high - low) + low).maximum(low)


def _unit(key: T, shape: Shape, dtype: DType) -> T:
    if not dtype.is_float:
        raise TypeError(f"uniform numbers of {dtype}: floats, or randint")
    if dtype is dt.float64:
        high, low = _words(key, shape)
        return (high.cast(dtype) * 2.0**21 + (low >> 11).cast(dtype)) * 2.0**-53
    drawn = bits(key, shape)
    if dtype is dt.float32:
        return (drawn >> 9 | 0x3F800000).bitcast(dtype) - 1.0
    digits = DIGITS.get(dtype)
    if digits is None:
        raise TypeError(f"uniform numbers of {dtype}: cast those of float32")
    return ((drawn >> (32 - digits)).cast(dt.float32) * 2.0**-digits).cast(dtype)


def normal(
    key: T,
    shape: Shape,
    mean: float | T = 0.0,
    std: float | T = 1.0,
    dtype: DType = dt.float32,
) -> T:
    """Normally distributed floats, none further than 5.8 (float64: 6.7) deviations from the mean.

    By G. Box and M. Muller, A note on the generation of random normal deviates, 1958. Bits are
    equal where logarithm and cosine are.
    """
    if not dtype.is_float:
        raise TypeError(f"normal numbers of {dtype}: cast them")
    wide = dt.float64 if dtype is dt.float64 else dt.float32
    cut = 0 if wide is dt.float64 else 8  # what float32 does not hold
    step = 2.0 ** (cut - 32)
    first, second = ((word >> cut).cast(wide) * step for word in _words(key, shape))
    radius = (-2.0 * (first + step).log()).sqrt()
    drawn = (radius * (second * (2.0 * math.pi)).cos()).cast(dtype)
    plain = isinstance(mean, (int, float)) and isinstance(std, (int, float))
    return drawn if plain and (mean, std) == (0, 1) else drawn * std + mean


def randint(key: T, shape: Shape, low: int, high: int, dtype: DType = dt.int32) -> T:
    """Integers low <= i < high, of a span of up to 2^32 - 1: the product of the span and of a
    fraction of 64 bits, rounded down, so that none is more likely than others by 2^-32 of it.
    """
    if not dtype.is_int:
        raise TypeError(f"randint of {dtype}: integers")
    first, last = dtype.limits
    if not first <= low < high <= last + 1 or high - low > 2**32 - 1:
        raise ValueError(f"randint of {dtype} from {low} to {high}")
    span = high - low
    upper, lower = _words(key, shape)
    whole, part = _product(upper, span)
    carried = part + _product(lower, span)[0]
    drawn = whole + (carried < part).cast(dt.uint32)
    if dtype in (dt.int64, dt.uint64):
        return drawn.cast(dtype) + low
    # A sum of 32 bits wraps to what fits.
    return (drawn + low % 2**32).bitcast(dt.int32 if dtype.kind == "i" else dt.uint32).cast(dtype)


def _product(x: T, factor: int) -> tuple[T, T]:
    """The upper and the lower word of uint32 x times a factor of 32 bits."""
    top, bottom = factor >> 16, factor & 0xFFFF
    high, low = x >> 16, x & 0xFFFF
    middle = low * top + (low * bottom >> 16)
    crossed = high * bottom + (middle & 0xFFFF)
    return high * top + (middle >> 16) + (crossed >> 16), x * factor


def bernoulli(key: T, shape: Shape, chance: float | T = 0.5) -> T:
    """bool: true with a chance, a number or a tensor that broadcasts to the shape."""
    dtype = chance.dtype if isinstance(chance, Lazy) else dt.float32
    return uniform(key, shape, dtype=dtype) < chance


def dropout(x: T, key: T, rate: float) -> T:
    """x with elements set to 0, each with a chance of `rate`; others are divided by 1 - rate."""
    if not 0 <= rate <= 1:
        raise ValueError(f"a dropout rate of {rate}: it must be from 0 to 1")
    if rate == 0:
        return x
    if rate == 1:
        return x.full(x.shape, 0, x.dtype)
    kept = bernoulli(key, x.shape, 1.0 - rate)
    return kept.where(x * (1.0 / (1.0 - rate)), 0)


def permutation(key: T, x: int | T) -> T:
    """0 to x - 1 (int32) in a random order; or a tensor's entries along its first axis."""
    key = _checked(key)
    x = x if isinstance(x, int) else given(type(key), x, "permutation")
    length = x if isinstance(x, int) else x.shape[0]
    order = key.arange(length)
    rounds = math.ceil(3 * math.log(max(2, maximum(length))) / math.log(ROUND))
    for each in split(key, rounds) if rounds > 1 else [key]:
        order = order.gather(0, sorting.order_of(bits(each, (length,))))
    return order if isinstance(x, int) else x.gather(0, order)


def categorical(key: T, logits: T, axis: int = -1, shape: Shape = ()) -> T:
    """int32: places along an axis, each with a chance in proportion to exp(logit).

    shape: of the draws for each row, which come first: [*shape, *rows]. By the greatest of the
    logits plus Gumbel noise.
    """
    logits = given(type(_checked(key)), logits, "categorical")
    return _noisy(key, logits, shape).argmax(axis % logits.ndim - logits.ndim)


def without_replacement(key: T, logits: T, count: int) -> T:
    """int32 [*, count]: different places along the last axis, drawn one after the other from those
    that are left, each with a chance in proportion to exp(logit).

    By the greatest of the logits plus Gumbel noise, as many as are wanted: W. Kool and others,
    Stochastic Beams and Where to Find Them, 2019.
    """
    return _noisy(key, logits, ()).topk(count)[1]


def _noisy(key: T, logits: T, shape: Shape) -> T:
    dtype = dt.float64 if logits.dtype is dt.float64 else dt.float32
    noise = uniform(key, (*sizes_of(shape), *logits.shape), dtype=dtype)
    least = 2.0**-54 if dtype is dt.float64 else 2.0**-24
    return logits.cast(dtype) - (-(noise + least).log()).log()
