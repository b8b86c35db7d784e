"""Stored element types in numpy: the numbers that codes mean, and the codes of numbers.

The float formats of 8 bits are those of the paper "FP8 formats for deep learning" (Micikevicius and
others, 2022) and, with the suffix uz, of "8-bit numerical formats for deep neural networks" (Noune
and others, 2022); those of 4 and 6 bits and the scale E8M0 are OCP's Microscaling Formats 1.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType, cast_array, low_bits


@dataclass(frozen=True)
class Format:
    """A float format of fewer bits than float32: a sign, an exponent, a mantissa."""

    mantissa: int
    bias: int
    # largest, infinity: codes of the largest finite number and of infinity, without the sign; an
    # infinity of None does not exist
    largest: int
    infinity: int | None
    # a code; None: there is none, NaN becomes -0 (as in ONNX's tests), and what is too large always
    # becomes the largest number
    nan: int | None


FORMATS = {
    dt.float16: Format(10, 15, 0x7BFF, 0x7C00, 0x7E00),
    dt.bfloat16: Format(7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    dt.float8_e4m3fn: Format(3, 7, 0x7E, None, 0x7F),
    dt.float8_e4m3fnuz: Format(3, 8, 0x7F, None, 0x80),
    dt.float8_e5m2: Format(2, 15, 0x7B, 0x7C, 0x7E),
    dt.float8_e5m2fnuz: Format(2, 16, 0x7F, None, 0x80),
    dt.float6_e2m3fn: Format(3, 1, 0x1F, None, None),
    dt.float6_e3m2fn: Format(2, 3, 0x1F, None, None),
    dt.float4_e2m1fn: Format(1, 1, 0x7, None, None),
}


def convert(array: Any, source: DType, dtype: DType) -> Any:
    """What a CAST means: an array of `source` as one of `dtype`; arrays of stored types hold codes.

    To a stored type of floats: rounded to the nearest, halves to even; what is too large for one of
    at most 8 bits becomes its largest number, and a float8_e8m0fnu is rounded up. To a stored type
    of integers: the low bits of an int32. Other types: see `cast_array`.
    """
    if source.storage_type and source.is_float:
        array, source = numbers(array, source), dt.float32
    if not dtype.storage_type:
        return cast_array(array, dtype)
    if dtype.is_int:
        return low_bits(cast_array(array, dt.int32).astype(dtype.numpy), dtype)
    values = array if source is dt.float64 else cast_array(array, dt.float32)
    return nearest(values, dtype)


def numbers(codes: Any, dtype: DType) -> Any:
    """The float32 numbers of codes, unsigned integers, of a format of floats."""
    return np.asarray(_numbers(dtype)[codes])


@lru_cache(None)
def _numbers(dtype: DType) -> Any:
    """The float32 number of each code."""
    codes = np.arange(2**dtype.bits, dtype=np.uint32)
    if dtype is dt.float8_e8m0fnu:
        powers = np.ldexp(np.float32(1), codes[:-1].astype(np.int32) - 127)
        return np.append(powers, np.float32(np.nan))
    form = FORMATS[dtype]
    sign = 1 << (dtype.bits - 1)
    size = codes & (sign - 1)
    exponent = (size >> form.mantissa).astype(np.int32)
    fraction = size & ((1 << form.mantissa) - 1)
    digits = np.where(exponent > 0, fraction | 1 << form.mantissa, fraction).astype(np.float64)
    with np.errstate(over="ignore"):
        values = np.ldexp(digits, np.maximum(exponent, 1) - form.bias - form.mantissa)
        values = values.astype(np.float32)
    beyond = size > form.largest  # infinity and NaN, whose fraction is kept
    values[beyond] = (size[beyond] << (23 - form.mantissa) | 0x7F800000).view(np.float32)
    values = np.where(codes & sign, -values, values)
    if form.nan == sign:
        values[sign] = np.nan
    return values


@lru_cache(None)
def _midpoints(dtype: DType) -> Any:
    """Between each number of a format of floats, from 0 on, and the next: the last is where the
    numbers would go on.
    """
    form = FORMATS[dtype]
    finite = _numbers(dtype)[: form.largest + 1].astype(np.float64)
    step = finite[-1] - finite[-2]
    return finite + np.diff(finite, append=finite[-1] + step) / 2


def nearest(values: Any, dtype: DType) -> Any:
    """The codes of a format that floats, an array of float32 or float64, are rounded to. What is
    too large for 16 bits becomes infinity. See `convert`.
    """
    if dtype is dt.float8_e8m0fnu:
        return _powers(values)
    form = FORMATS[dtype]
    missing = np.isnan(values)
    middle, size = _midpoints(dtype), np.where(missing, 0, np.abs(values))
    codes = np.searchsorted(middle, size).astype(np.uint32)  # of equal distances, the lower
    on_middle = size == middle[np.minimum(codes, form.largest)]
    codes += on_middle & (codes % 2 == 1)
    beyond = form.largest if form.infinity is None or dtype.bits <= 8 else form.infinity
    codes = np.where(codes > form.largest, np.uint32(beyond), codes)
    sign = np.uint32(1 << (dtype.bits - 1))
    codes = np.where(missing, sign if form.nan is None else np.uint32(form.nan), codes)
    if dtype is dt.bfloat16:  # the upper half of a float32, which tells NaNs apart
        codes |= np.where(missing, cast_array(values, dt.float32).view(np.uint32) >> 16, 0)
    signed = codes | np.where(np.signbit(values), sign, np.uint32(0))
    codes = np.where(codes == 0, codes, signed) if form.nan == sign else signed
    return codes.astype(f"u{dtype.itemsize}")


def _powers(values: Any) -> Any:
    """The codes of the least powers of two that are not below absolute values."""
    largest, nan = 254, 255
    codes = np.searchsorted(_numbers(dt.float8_e8m0fnu)[:nan], np.abs(values))
    return np.where(np.isnan(values), nan, np.minimum(codes, largest)).astype(np.uint8)
