"""Stored element types: numbers of their codes, and codes of numbers, composed of primitives.

What a cast from or to them means is `core/stored.py`; `convert` is the arithmetic that a compiled
graph has in its place.
"""

from __future__ import annotations

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.stored import FORMATS, Format
from tinyedge.core.tensor.tensor import Tensor

INFINITY = 0x7F800000  # as bits of a float32
NAN = 0x7FC00000
LEAST_NORMAL = 0x00800000
FRACTION = 0x007FFFFF


def convert(x: Tensor, dtype: DType) -> Tensor:
    """A cast from or to a stored type, as arithmetic."""
    numbers = decode(x) if x.dtype.storage_type else x
    return _encoded(numbers, dtype) if dtype.storage_type else numbers.cast(dtype)


def decode(x: Tensor) -> Tensor:
    """The numbers of a stored type: float32, or the carrier where they are integers."""
    codes = x.bitcast(x.dtype.held)
    if x.dtype.is_int:
        return codes
    wide = codes.cast(dt.uint32)
    if x.dtype is dt.bfloat16:
        return (wide << 16).bitcast(dt.float32)
    if x.dtype is dt.float8_e8m0fnu:
        power = wide.eq(0).where(LEAST_NORMAL >> 1, wide << 23)
        return wide.eq(255).where(NAN, power).bitcast(dt.float32)
    return _numbers(wide, x.dtype.bits, FORMATS[x.dtype]).bitcast(dt.float32)


def _numbers(codes: Tensor, bits: int, of: Format) -> Tensor:
    """The bits of the float32 that each code means."""
    sign = 1 << (bits - 1)
    size = codes & (sign - 1)
    aligned = size << (23 - of.mantissa)
    normal = aligned + ((127 - of.bias) << 23)
    small = size.cast(dt.float32) * 2.0 ** (1 - of.bias - of.mantissa)
    number = (size < 1 << of.mantissa).where(small.bitcast(dt.uint32), normal)
    if of.largest < sign - 1:  # beyond it lie infinity and NaN, as beyond float32's
        number = (size > of.largest).where(aligned | INFINITY, number)
    number = number | ((codes & sign) << (32 - bits))
    return codes.eq(sign).where(NAN, number) if of.nan == sign else number


def encode(x: Tensor, dtype: DType, *, saturate: bool = True, rounding: str = "up") -> Tensor:
    """Numbers as the stored type `dtype`, as ONNX's Cast has it.

    Floats are rounded to the nearest, halves to even. saturate: what is too large for a format of 8
    bits becomes its largest number; otherwise infinity, or NaN where the format has none. rounding:
    "up", "down" or "nearest" to a power of two (float8_e8m0fnu, which ignores the sign). Integers
    keep their low bits.
    """
    plain = _is_cast(dtype, saturate, rounding)
    return x.cast(dtype) if plain else _encoded(x, dtype, saturate, rounding)


def _is_cast(dtype: DType, saturate: bool, rounding: str) -> bool:
    """Whether a cast to a stored type does what these options ask for."""
    if dtype is dt.float8_e8m0fnu:
        return saturate and rounding == "up"
    return saturate or dtype.is_int or dtype.bits > 8 or FORMATS[dtype].nan is None


def _encoded(x: Tensor, dtype: DType, saturate: bool = True, rounding: str = "up") -> Tensor:
    storage_type = dtype.held
    if dtype.is_int:
        whole = x.cast(dt.int32)
        unused = 32 - dtype.bits
        low = (whole << unused) >> unused if dtype.kind == "i" else whole & dtype.limits[1]
        return low.cast(storage_type).bitcast(dtype)
    bits = (_odd(x) if x.dtype is dt.float64 else x.cast(dt.float32)).bitcast(dt.uint32)
    if dtype is dt.bfloat16:
        codes = _bfloat16(bits)
    elif dtype is dt.float8_e8m0fnu:
        codes = _power(bits & (INFINITY | FRACTION), saturate, rounding)
    else:
        codes = _codes(bits, dtype.bits, FORMATS[dtype], saturate)
    return codes.cast(storage_type).bitcast(dtype)


def half_of(codes: Tensor) -> Tensor:
    """The float32 numbers of fp16 values that are given by their bits, in uint32."""
    return _numbers(codes, 16, FORMATS[dt.float16]).bitcast(dt.float32)


def bits_of_half(x: Tensor) -> Tensor:
    """The bits, in uint32, of the fp16 values that floats are rounded to, which may be infinite."""
    near = _odd(x) if x.dtype is dt.float64 else x.cast(dt.float32)
    return _codes(near.bitcast(dt.uint32), 16, FORMATS[dt.float16], saturate=False)


def as_half(x: Tensor) -> Tensor:
    """Numbers as float16, rounded: what computes with halves may do so in a wider type."""
    return half_of(bits_of_half(x)).cast(dt.float16)


def _bfloat16(bits: Tensor) -> Tensor:
    high = bits >> 16
    rounded = (bits + 0x7FFF + (high & 1)) >> 16
    is_nan = (bits & (INFINITY | FRACTION)) > INFINITY
    return is_nan.where(high | (FORMATS[dt.bfloat16].nan or 0), rounded)


def _codes(bits: Tensor, width: int, to: Format, saturate: bool) -> Tensor:
    """The codes of float32 numbers that are given by their bits."""
    sign = 1 << (width - 1)
    size = bits & (INFINITY | FRACTION)
    drop = 23 - to.mantissa
    rounded = (size + ((1 << (drop - 1)) - 1) + ((size >> drop) & 1)) >> drop
    normal = rounded - ((127 - to.bias) << to.mantissa)
    scaled = size.bitcast(dt.float32) * 2.0 ** (to.bias - 1 + to.mantissa)
    small = scaled.round().cast(dt.uint32)
    code = (size < (128 - to.bias) << 23).where(small, normal)
    beyond = to.largest
    if not saturate and to.nan is not None:
        beyond = to.nan if to.infinity is None else to.infinity
    code = (code > to.largest).where(beyond, code)
    code = (size > INFINITY).where(sign if to.nan is None else to.nan, code)
    signed = code | ((bits >> (32 - width)) & sign)
    return code.eq(0).where(code, signed) if to.nan == sign else signed


def _odd(x: Tensor) -> Tensor:
    """A float64 as a float32 that can be rounded again: what is inexact becomes odd."""
    near = x.cast(dt.float32)
    back = near.cast(dt.float64)
    bits = near.bitcast(dt.uint32)
    even = (bits & 1).eq(0)
    less = even & (back.abs() < x.abs())
    more = even & (back.abs() > x.abs())
    return (bits + less.cast(dt.uint32) - more.cast(dt.uint32)).bitcast(dt.float32)


def _power(size: Tensor, saturate: bool, rounding: str) -> Tensor:
    """Codes of powers of two: exponents, rounded, of absolute values given by their bits."""
    exponent, fraction = size >> 23, size & FRACTION
    below = exponent.eq(0)  # there the code 0 is the half of the least normal number
    half = LEAST_NORMAL >> 1
    if rounding == "up":
        more = below.where(fraction > half, fraction > 0)
    elif rounding == "nearest":
        more = below.where(fraction >= half + (half >> 1), fraction >= half)
    code = exponent if rounding == "down" else exponent + more.cast(dt.uint32)
    largest, nan = 254, 255
    if saturate:
        code = code.minimum(largest)
    else:
        code = ((code > largest) | (size < half)).where(nan, code)
    return (size > INFINITY).where(nan, code)
