"""Stored types against ml_dtypes and ONNX's own helpers: every code, and roundings of all kinds."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from tests.conformance.cases import all_codes, roundings
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.decompose import retype
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.uop import toposort
from tinyedge.core.stored import convert, numbers
from tinyedge.core.tensor import formats
from tinyedge.core.tensor.tensor import Tensor

ml = pytest.importorskip("ml_dtypes")
FLOATS = [d for d in dt.STORED if d.is_float and d is not dt.float8_e8m0fnu]
INTEGERS = [d for d in dt.STORED if d.is_int]


def package_type(dtype: DType) -> Any:
    return np.dtype(getattr(ml, dtype.name))


def every(dtype: DType) -> Any:
    """All values of a stored type, as ml_dtypes has them."""
    return dt.named(all_codes(dtype), dtype)


def same_codes(got: Any, want: Any) -> None:
    """The same codes; a NaN may be any."""
    a, b = got.astype(np.float32), want.astype(np.float32)
    numbers = ~np.isnan(b)
    np.testing.assert_array_equal(np.isnan(a), ~numbers)
    np.testing.assert_array_equal(dt.codes(got)[numbers], dt.codes(want)[numbers])


@pytest.mark.parametrize("dtype", dt.STORED, ids=repr)
def test_numbers_of_all_codes(dtype: DType) -> None:
    values = every(dtype)
    assert Tensor(values).dtype is dtype
    got = Tensor(values).cast(dt.float32).numpy()
    want = values.astype(np.float32)
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))
    same_codes(formats.encode(Tensor(got), dtype, saturate=False).numpy(), values)  # and back


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_codes_of_floats(dtype: DType) -> None:
    values = roundings(dtype)
    got = formats.encode(Tensor(values), dtype, saturate=False).numpy()
    with np.errstate(all="ignore"):
        same_codes(got, values.astype(package_type(dtype)))
        if dtype.bits == 8:
            wanted = numpy_helper.saturate_cast(values, package_type(dtype))
            same_codes(Tensor(values).cast(dtype).numpy(), wanted)


def same_bits(got: Any, want: Any) -> None:
    assert got.dtype == want.dtype
    raw = f"u{got.itemsize}"
    np.testing.assert_array_equal(got.view(raw), want.view(raw))


def arithmetic(x: Tensor, dtype: DType) -> Any:
    """What a compiled graph computes for a cast."""
    return dt.codes(formats.convert(x, dtype).numpy())


@pytest.mark.parametrize("source", dt.STORED, ids=repr)
def test_arithmetic_of_all_codes_is_their_cast(source: DType) -> None:
    """Bit by bit, NaNs and what they hold among them, to every type."""
    codes = all_codes(source)
    x = Tensor(codes).bitcast(source)
    for target in (*dt.ALL, *dt.STORED):
        if target is not source:
            same_bits(arithmetic(x, target), convert(codes, source, target))


@pytest.mark.parametrize("target", dt.STORED, ids=repr)
def test_arithmetic_of_all_types_is_their_cast(target: DType) -> None:
    """Of random bits of every type, and of float64 beside what rounds up or down."""
    words = np.random.default_rng(0).integers(0, 2**64, 20_000, dtype=np.uint64)
    arrays = [words.view(dtype.numpy) for dtype in dt.ALL if dtype.bits > 8]
    arrays += [words.view(np.int8), words.view(np.uint8), words.view(np.int8) < 0]
    if target in FLOATS:
        arrays += [roundings(target), roundings(target).astype(np.float64)]
    else:
        arrays += [2.0 ** np.arange(-150, 128) * factor for factor in (1, 1.01, 1.5, -0.5)]
    arrays += [np.nextafter(arrays[-1], side * np.inf) for side in (-1, 1)]
    for values in arrays:
        if values.dtype != np.float16:  # held as a float32 where graphs are evaluated
            given = dt.from_numpy(values.dtype)
            same_bits(arithmetic(Tensor(values), target), convert(values, given, target))


def test_bits_of_halves_are_numpys() -> None:
    """A half is computed as a float32; its bits are those of the half that it is rounded to."""
    codes = np.arange(2**16, dtype=np.uint16)
    halves = codes.view(np.float16)
    same_bits(
        Tensor(codes).bitcast(dt.float16).cast(dt.float32).numpy(), numbers(codes, dt.float16)
    )
    finite = ~np.isnan(halves)
    same_bits(numbers(codes, dt.float16)[finite], halves.astype(np.float32)[finite])
    values = np.random.default_rng(0).integers(0, 2**32, 10_000, dtype=np.uint32).view(np.float32)
    values = np.concatenate([values, roundings(dt.bfloat16)])
    got = Tensor(values).cast(dt.float16).bitcast(dt.uint16).numpy()
    with np.errstate(over="ignore"):
        want = values.astype(np.float16).view(np.uint16)
    missing = np.isnan(values)
    assert (got[missing] & 0x7FFF == 0x7E00).all()
    same_bits(got[~missing], want[~missing])
    same_bits(formats.bits_of_half(Tensor(values)).numpy(), got.astype(np.uint32))


def test_a_cast_of_a_stored_type_stays_one_until_it_is_retyped() -> None:
    x = Tensor.input("x", (3,), dt.bfloat16)
    node = (x * 2.0).cast(dt.int4).node
    assert [n.dtype for n in toposort((node,)) if n.op is ops.CAST] == [
        *(dt.float32, dt.bfloat16, dt.int4)
    ]
    done = retype((node,), {})
    assert not any(n.dtype.storage_type for n in toposort((done[node],)))
    codes = np.array([0x3F80, 0x4040, 0xC000], np.uint16)  # 1, 3, -2
    assert evaluate([node], {"x": codes})[0].tolist() == [2, 6, -4]
    assert evaluate([done[node]], {"x": codes})[0].tolist() == [2, 6, -4]


def test_bfloat16_of_random_bits() -> None:
    """Of float32 in every binade, subnormal ones and NaN among them."""
    bits = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint64)
    values = bits.astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        same_codes(Tensor(values).cast(dt.bfloat16).numpy(), values.astype(ml.bfloat16))


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d.bits <= 8], ids=repr)
def test_doubles_are_rounded_once(dtype: DType) -> None:
    """Beside each midpoint by less than a float32 could tell: the nearer of the two."""
    kept = np.unique(every(dtype).astype(np.float64))
    kept = kept[np.isfinite(kept)]
    middle = (kept[1:] + kept[:-1]) / 2
    for values in (np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)):
        got = Tensor(values).cast(dtype).cast(dt.float64).numpy()
        for value, number, low, high in zip(values, got, kept, kept[1:], strict=False):
            off = [abs(Fraction(end) - Fraction(value)) for end in (low, high)]
            assert number == (low if off[0] < off[1] else high)


def test_powers_of_two() -> None:
    """E8M0 in ONNX's three roundings; where its helper says otherwise, its table of Cast holds."""
    powers = 2.0 ** np.arange(-126, 128)
    values = np.concatenate([powers * factor for factor in (1, 1.01, 1.5, 1.75)])
    values = values[values < 2.0**127].astype(np.float32)
    for rounding in ("up", "down", "nearest"):
        for saturate in (True, False):
            got = formats.encode(
                Tensor(values), dt.float8_e8m0fnu, saturate=saturate, rounding=rounding
            )
            want = numpy_helper.to_float8e8m0(values, saturate, rounding)
            np.testing.assert_array_equal(dt.codes(got.numpy()), dt.codes(want))
    special = np.array([0.0, np.nan, np.inf, 3.4e38, 1e-40], np.float32)
    saturated = formats.encode(Tensor(special), dt.float8_e8m0fnu)
    assert dt.codes(saturated.numpy()).tolist() == [0, 255, 254, 254, 0]
    beyond = formats.encode(Tensor(special), dt.float8_e8m0fnu, saturate=False, rounding="nearest")
    assert dt.codes(beyond.numpy()).tolist() == [255, 255, 255, 255, 255]
    tiny = np.array([2.0**-127, 2.0**-127 * 1.25, 2.0**-127 * 1.75], np.float32)
    codes = {
        rounding: dt.codes(
            formats.encode(Tensor(tiny), dt.float8_e8m0fnu, rounding=rounding).numpy()
        ).tolist()
        for rounding in ("up", "down", "nearest")
    }
    assert codes == {"up": [0, 1, 1], "down": [0, 0, 0], "nearest": [0, 0, 1]}


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
def test_integers_keep_their_low_bits(dtype: DType) -> None:
    values = np.arange(-300, 300)
    want = values.astype(package_type(dtype)).astype(int)
    for given in (np.int64, np.int16, np.float32, np.float64):
        got = Tensor(values.astype(given)).cast(dtype).numpy()
        np.testing.assert_array_equal(got.astype(int), want)
    halves = Tensor(np.array([1.9, -1.9, np.nan], np.float32)).cast(dtype).numpy()
    low = -1 if dtype.kind == "i" else dtype.limits[1]
    assert halves.astype(int).tolist() == [1, low, 0]


@pytest.mark.parametrize("source", dt.STORED, ids=repr)
def test_bitcasts(source: DType) -> None:
    values = every(source)
    native = {16: (dt.uint16, dt.int16, dt.float16), 8: (dt.uint8, dt.int8)}
    for target in (*dt.STORED, *native.get(source.bits, ())):
        if target.bits == source.bits:
            got = Tensor(values).bitcast(target).numpy()
            want = values.view(package_type(target) if target.storage_type else target.numpy)
            np.testing.assert_array_equal(
                dt.codes(got).view(f"u{source.itemsize}"),
                dt.codes(want).view(f"u{source.itemsize}"),
            )
        elif target is not source.held:
            with pytest.raises(TypeError, match="the widths differ"):
                Tensor(values).bitcast(target)


def test_arithmetic_is_rounded_once() -> None:
    """Each operation computes in float32; a product of matrices rounds its sums, not its terms."""
    a = np.random.default_rng(1).standard_normal((7, 64)).astype(ml.bfloat16)
    b = np.random.default_rng(2).standard_normal((64, 5)).astype(ml.bfloat16)
    x, y = Tensor(a), Tensor(b)
    wide, other = a.astype(np.float32), b.astype(np.float32)
    exact = wide.astype(np.float64) @ other.astype(np.float64)
    unit = 2.0**-8 * np.abs(exact)
    assert np.all(np.abs((x @ y).numpy().astype(np.float64) - exact) <= unit + 1e-5)
    np.testing.assert_array_equal(
        (x * 3.0 + 0.1).numpy(),
        ((wide * 3).astype(ml.bfloat16) + ml.bfloat16(0))
        .astype(np.float32)
        .__add__(np.float32(0.1))
        .astype(ml.bfloat16),
    )
    total = x.sum(1).numpy().astype(np.float64)
    assert np.allclose(total, wide.sum(1), rtol=2.0**-8)
    np.testing.assert_array_equal((x < 0.5).numpy(), wide < 0.5)
    np.testing.assert_array_equal(x.argmax(1).numpy(), wide.argmax(1))
    assert (x > 0).where(x, -1.0).dtype is dt.bfloat16
    with pytest.raises(TypeError, match="cast one of them"):
        x + Tensor(wide)


def test_codes_without_the_package() -> None:
    """What ml_dtypes leaves undefined is not seen; numbers and codes are told apart."""
    nibbles = np.array([0x0F, 0xF7, 0x78], np.uint8)
    assert dt.codes(nibbles.view(ml.int4)).tolist() == [-1, 7, -8]
    assert dt.codes(nibbles.view(ml.uint4)).tolist() == [15, 7, 8]
    assert Tensor([1.0, 1.0009765625, 2.5], dt.bfloat16).numpy().tolist() == [1.0, 1.0, 2.5]
    assert evaluate([Tensor([0.5, -8, 9], dt.float4_e2m1fn).node], {})[0].tolist() == [1, 15, 7]
