"""The cases of the conformance suite: small graphs by family, most of them derived from the rows.

A family yields (name, tensor, tolerance) and names its inputs as it goes; all its cases are outputs
of one graph. What a target declares it cannot do (`LIMITATIONS` of its caps) shapes the values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tests.agreement import Inputs, Tolerance, tolerance_of
from tests.rows import ELEMENTWISE, accepts, pairs, random_values, special
from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import elementwise
from tinyedge.core.tensor import formats
from tinyedge.core.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
Case = tuple[str, Tensor, Tolerance]
Limits = Mapping[str, str]
Family = Callable[[Inputs, Limits], Iterator[Case]]

EXACT = Tolerance(each=0.0, greatest=0.0)
CLOSE = Tolerance(each=1e-6, greatest=0.0)
WEIGHTED = Tolerance(each=1e-6, greatest=1e-5)  # sums by weights that are sums themselves

# How far a row may be off, for each value and absolutely; rows that are not named are close.
ROW_TOLERANCE = {
    ops.EXP: Tolerance(each=3e-5, greatest=0.0),
    ops.LOG: Tolerance(each=1e-5, greatest=0.0, absolute=1e-6),
    ops.SIN: Tolerance(greatest=0.0, absolute=3e-6),
    ops.COS: Tolerance(greatest=0.0, absolute=3e-6),
    ops.TANH: Tolerance(each=1e-5, greatest=0.0, absolute=1e-6),
    ops.POW: Tolerance(each=1e-4, greatest=0.0),
}
HALF = Tolerance(each=2e-3, greatest=0.0, absolute=1e-6)

FAMILIES: dict[str, Family] = {}


def family(function: Family) -> Family:
    FAMILIES[function.__name__] = function
    return function


def limited(dtype: DType, values: Array, limits: Limits) -> Array:
    """Values that the target promises to compute with: 64-bit integers may be narrower there."""
    if dtype.name in ("int64", "uint64") and dtype.name in limits:
        return values[np.abs(values.astype(np.float64)) <= 1000]
    if dtype is dt.float64 and dtype.name in limits:
        return (
            values[~np.isfinite(values) | (np.abs(values) < 1e9)].astype(np.float32).astype(float)
        )
    return values


def tried(dtype: DType, limits: Limits, count: int, seed: int) -> Array:
    """Special and ordinary values of a type."""
    generator = np.random.default_rng(seed)
    edges = special(dtype, subnormal="subnormal" not in limits)
    values = np.concatenate([edges, random_values(dtype, count, generator)])
    return limited(dtype, values, limits)


def row_values(row: ops.Primitive, dtype: DType, limits: Limits) -> list[Array]:
    """An array for each operand of a row."""
    if row.arity == 1:
        values = tried(dtype, limits, 40, 1)
        if row in (ops.SIN, ops.COS):
            angles = np.concatenate([np.linspace(-1e5, 1e5, 301), np.linspace(-7, 7, 200)])
            angles = angles[np.abs(angles) < 6e4] if dtype is dt.float16 else angles
            finite = values[np.isfinite(values) & (np.abs(values.astype(np.float64)) < 1e6)]
            values = np.concatenate([finite, angles.astype(dtype.numpy)])
        elif row in (ops.EXP, ops.TANH):
            more = np.array([88.7, 88.8, 89.0, -87.0, -104.0, 1e4, -1e4, 9.0, 0.1], np.float64)
            values = np.concatenate([values, more.astype(dtype.numpy)])
        elif row in (ops.ROUND, ops.FLOOR, ops.TRUNC):
            halves = np.arange(-4.5, 5.0, 0.5).astype(dtype.numpy)
            values = np.concatenate([values, halves])
        return [values]
    if row is ops.WHERE:
        condition, yes, no = pairs([special(dt.bool_), tried(dtype, limits, 0, 2)[:6]] * 2)[:3]
        return [condition, yes, yes[::-1].copy() if no.dtype == bool else no]
    left = tried(dtype, limits, 6, 3)
    right = tried(dtype, limits, 4, 4)
    if row in (ops.SHL, ops.SHR):
        right = np.array([0, 1, 3, dtype.bits - 1, dtype.bits, dtype.bits + 1], dtype.numpy)
        if "int64" in limits and dtype.bits == 64:
            right = np.array([0, 1, 3], dtype.numpy)
    if row is ops.POW:
        right = np.array([0, 1, 2, 3, -1, 0.5, -2.5, 5, np.inf, -np.inf, np.nan], dtype.numpy)
        left = left[(np.abs(left.astype(np.float64)) < 2.0**24) | ~np.isfinite(left)]
    return pairs([left, right])


def fitting(row: ops.Primitive, dtype: DType, operands: list[Array]) -> list[Array]:
    """The operands, and of them those for which a 64-bit result fits 32 bits."""
    assert row.numpy is not None
    if dtype.is_float:
        operands = [
            a.astype(np.float32).astype(a.dtype) if a.dtype != bool else a for a in operands
        ]
    results = np.asarray(row.numpy(*operands))
    if results.dtype.kind == "b":
        return operands
    if dtype.is_float:
        return [operand[~np.isfinite(results) | (np.abs(results) < 1e38)] for operand in operands]
    narrow = {"i": dt.int32, "u": dt.uint32}[dtype.kind]
    kept = [narrow.limits[0] <= int(result) <= narrow.limits[1] for result in results]
    return [operand[kept] for operand in operands]


def row_family(row: ops.Primitive) -> Family:
    def cases(inputs: Inputs, limits: Limits) -> Iterator[Case]:
        for dtype in dt.ALL:
            if not accepts(row, dtype):
                continue
            given = row_values(row, dtype, limits)
            if dtype.bits == 64 and dtype.name in limits:
                given = fitting(row, dtype, given)
                if not given[0].size:
                    continue
            operands = [inputs.new(v) for v in given]
            result = Tensor(elementwise(row, *(t.node for t in operands)))
            tolerance = ROW_TOLERANCE.get(row, CLOSE)
            if dtype is dt.float16:
                tolerance = HALF
                whole = [t[: t.shape[0] // 8 * 8] for t in operands]  # a whole number of vectors
                vectors = Tensor(elementwise(row, *(t.node for t in whole)))
                yield f"{row.name}_{dtype}_vectors", vectors, tolerance
            yield f"{row.name}_{dtype}", result, tolerance

    return cases


def _group(name: str, rows: list[ops.Primitive]) -> None:
    members = [row_family(row) for row in rows]

    def cases(inputs: Inputs, limits: Limits) -> Iterator[Case]:
        for member in members:
            yield from member(inputs, limits)

    FAMILIES[name] = cases


for _name in ("unary", "binary", "ternary"):
    _group(_name, [row for row in ELEMENTWISE if row.group == _name])


@family
def conversions(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    """Every type to every type; floats saturate, integers wrap, NaN gives 0."""
    for source in dt.ALL:
        values = tried(source, limits, 10, 5)
        x = inputs.new(values)
        for target in dt.ALL:
            if target is source:
                continue
            if target.name in limits and target.bits == 64:
                kept = np.isfinite(values) & (np.abs(values.astype(np.float64)) < 2.0**31)
                given = inputs.new(values[kept & (values >= 0 if target.kind == "u" else True)])
            else:
                given = x
            half = dt.float16 in (source, target)
            if half and 16 in (source.bits, target.bits) and given.shape[0] > 8:
                vectors = given[:8]  # a whole number of vectors
                yield f"{source}_to_{target}_vectors", vectors.cast(target), HALF
            yield f"{source}_to_{target}", given.cast(target), HALF if half else CLOSE


@family
def bitcasts(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    for source, target in itertools.permutations(dt.ALL, 2):
        same = source.bits == target.bits and "b" not in (source.kind, target.kind)
        small = source.is_int and target.is_int and source.bits < 32
        if same and (small or not {source.name, target.name} & set(limits)):
            x = inputs.new(tried(source, limits, 10, 6))
            if target.is_float:  # a NaN's payload is nobody's business
                x = inputs.new(special(target, subnormal=True).view(source.numpy))
            yield f"{source}_as_{target}", x.bitcast(target), EXACT


def all_codes(dtype: DType) -> Array:
    """Every code of a stored type."""
    low, high = dtype.code_limits
    return np.arange(low, high + 1).astype(dtype.numpy)


def roundings(dtype: DType) -> Array:
    """Float32 numbers that a float format keeps, that lie halfway, or beside that; and others."""
    kept = Tensor(all_codes(dtype)).bitcast(dtype).cast(dt.float32).numpy()
    kept = np.unique(kept[np.isfinite(kept)].astype(np.float64))[:: max(1, 2**dtype.bits // 4096)]
    halfway = ((kept[1:] + kept[:-1]) / 2).astype(np.float32)
    beside = [np.nextafter(halfway, np.float32(side)) for side in (-np.inf, np.inf)]
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, kept[-1] * 1.5, kept[0] * 1.5]
    random = np.random.default_rng(3).standard_normal(500) * min(kept[-1], 1e6)
    parts = (kept, halfway, *beside, ends, random)
    with np.errstate(over="ignore"):
        return np.concatenate([np.asarray(part, np.float32) for part in parts])


@family
def stored_types(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    """Numbers of all codes, codes of numbers, and movement, which leaves codes alone."""
    for dtype in dt.STORED:
        codes = all_codes(dtype)
        x = inputs.new(dt.named(codes, dtype))
        number = x.cast(dt.float32)
        if "subnormal" in limits and dtype in (dt.bfloat16, dt.float8_e8m0fnu):
            least = np.finfo(np.float32).tiny
            number = (number.abs() < least).where(0.0, number)  # flushed, or not
        yield f"{dtype}_to_float32", number, EXACT
        yield f"{dtype}_to_int32", x.cast(dt.int32), EXACT
        if dtype.is_float and dtype is not dt.float8_e8m0fnu:
            values = roundings(dtype)
            if "subnormal" in limits:
                values = values[(np.abs(values) >= np.finfo(np.float32).tiny) | ~(values != 0)]
            y = inputs.new(values)
            yield f"float32_to_{dtype}", y.cast(dtype), EXACT
            yield f"float32_to_{dtype}_beyond", formats.encode(y, dtype, saturate=False), EXACT
        elif dtype.is_int:
            values = np.arange(-40, 40, dtype=np.int32)
            yield f"int32_to_{dtype}", inputs.new(values).cast(dtype), EXACT
            y = inputs.new((values / 2).astype(np.float32))
            yield f"float32_to_{dtype}", y.cast(dtype), EXACT
        else:
            least = np.finfo(np.float32).tiny
            values = np.array([0, least, 1, 1.4, 1.5, 1.6, 2, 3e38, np.inf, np.nan], np.float32)
            for rounding in ("up", "down", "nearest"):
                for saturate in (True, False):
                    given = inputs.new(values)
                    y = formats.encode(given, dtype, saturate=saturate, rounding=rounding)
                    yield f"{dtype}_{rounding}_{saturate}", y, EXACT
        sample = x[:: max(1, len(codes) // 64)][-24:]
        square = sample.pad([(0, 24 - int(sample.size))]).reshape((4, 6))
        yield f"{dtype}_pad_permute", square.permute((1, 0)).pad([(1, 2), (0, 3)]), EXACT
        rows = Tensor(np.array([3, 0, 0, 2], np.int32))
        yield f"{dtype}_gather_flip", square.gather(0, rows).flip(1), EXACT
        yield f"{dtype}_concat", Tensor.concat([square, square[:, 1:4]], 1), EXACT
        mask = inputs.new(np.arange(24).reshape(4, 6) % 3 == 0)
        yield f"{dtype}_where", mask.where(square, square.flip(0)), EXACT
        yield f"{dtype}_scalar", Tensor.full((3,), 1, dtype), EXACT


@family
def stored_bitcasts(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    types = (dt.int8, dt.uint8, dt.int16, *dt.STORED)
    for source, target in itertools.permutations(types, 2):
        if source.bits == target.bits:
            if source.storage_type:
                codes = all_codes(source)[:: max(1, 2**source.bits // 64)]
                x = inputs.new(dt.named(codes, source))
            else:
                x = inputs.new(tried(source, limits, 9, 2))
            yield f"{source}_as_{target}", x.bitcast(target), EXACT


@family
def stored_arithmetic(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    """Products and sums of bfloat16, rounded once; weights of few bits in products."""
    a, b = floats(5, 16), floats(16, 8)
    x = inputs.new(a).cast(dt.bfloat16)
    w = Tensor(b, dt.bfloat16)
    near = Tolerance(each=2.0**-7, greatest=2.0**-9)  # one unit of the last place
    yield "bfloat16_matmul", x @ w, near
    yield "bfloat16_softmax", x.softmax(), near
    yield "bfloat16_chain", (x * 3.0 + x).relu() - 1.0, near
    yield "bfloat16_compare", x < w[:5].flip(1).pad([(0, 0), (0, 8)]), EXACT
    for dtype in (dt.float8_e4m3fn, dt.float4_e2m1fn, dt.int4, dt.uint2):
        weight = Tensor(np.resize(all_codes(dtype)[:120], (16, 8))).bitcast(dtype)
        scale = Tensor(np.linspace(0.1, 0.3, 8, dtype=np.float32))
        y = inputs.new(a) @ (weight.cast(dt.float32) * scale)
        yield f"{dtype}_weights", y, Tolerance(greatest=1e-4)


def floats(*shape: int, seed: int = 7) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@family
def movement(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    x = inputs.new(floats(3, 5, 7))
    y = inputs.new(np.arange(24, dtype=np.int32).reshape(2, 3, 4))
    results = {
        "reshape": x.reshape((7, 15)),
        "reshape_split": x.reshape((3, 5, 7, 1)).reshape((1, 105)),
        "reshape_merge": y.reshape((6, 4)).reshape((8, 3)),
        "permute": x.permute((2, 0, 1)),
        "permute_reshape": x.permute((1, 2, 0)).reshape((5, 21)),
        "reshape_of_permute_int": y.permute((2, 0, 1)).reshape((4, 6)).permute((1, 0)),
        "expand": x[:, :1].expand((3, 4, 7)),
        "expand_scalar": x[0, 0, 0].reshape((1, 1)).expand((3, 5)),
        "pad": x.pad(((1, 2), (0, 0), (3, 1))),
        "pad_value": x.pad(((0, 0), (1, 0), (0, 2)), 1.5),
        "pad_infinity": x.pad(((0, 0), (1, 0), (0, 2)), -np.inf),
        "pad_negative": x.pad(((-1, 1), (0, 0), (1, -2))),
        "shrink": x.shrink(((1, 3), (0, 4), (2, 3))),
        "flip": x.flip((0, 2)),
        "slice_steps": x[::2, ::-1, 1::3],
        "slice_back": x[:, 4:0:-2],
        "window": x.window(2, 3, 2),
        "window_dilated": x.window(1, 2, 1, 3),
        "window_twice": x.window(1, 3).window(2, 2, 2, 2),
        "window_of_pad": x.pad(((0, 0), (1, 1), (1, 1))).window(2, 3, 2).max(3),
        "flip_of_pad": x.pad(((0, 0), (2, 0), (0, 1)), 4.0).flip(1),
        "pad_of_pad": x.pad(((0, 0), (1, 0), (0, 0)), 2.0).pad(((0, 1), (0, 1), (0, 1)), 3.0),
        "transpose_add": x.permute((0, 2, 1)) + x[:, :1, :5].reshape((3, 1, 5)),
    }
    for name, tensor in results.items():
        yield name, tensor, EXACT


@family
def broadcasting(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    shapes = [(3, 5, 7), (5, 7), (7,), (), (3, 1, 7), (1, 5, 1), (1,), (3, 1, 1)]
    tensors = [inputs.new(floats(*shape, seed=i)) for i, shape in enumerate(shapes)]
    for (i, a), (j, b) in itertools.combinations(enumerate(tensors), 2):
        yield f"add_{i}_{j}", a + b, CLOSE
        yield f"sub_{j}_{i}", b * 2.0 - a, CLOSE


REDUCERS = ("sum", "max", "min", "prod")


@family
def reductions(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    x = inputs.new(floats(3, 5, 7, seed=9))
    for name in REDUCERS:
        for count in range(1, 4):
            for axes in itertools.combinations(range(3), count):
                label = f"{name}_{''.join(map(str, axes))}"
                yield label, getattr(x, name)(axes), Tolerance(greatest=1e-5)
    for length in (1, 2, 31, 64, 65, 1000):
        row = inputs.new(floats(2, length, seed=length))
        for name in REDUCERS[:2]:
            yield f"{name}_of_{length}", getattr(row, name)(1), Tolerance(greatest=1e-5)
            column = row.permute((1, 0))
            yield f"{name}_of_column_{length}", getattr(column, name)(0), Tolerance(greatest=1e-5)


@family
def reduction_types(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    for dtype in dt.ALL:
        values = random_values(dtype, 33, np.random.default_rng(12))
        if dtype is dt.bool_:
            x = inputs.new(values.reshape(3, 11))
            for name in ("max", "min"):
                yield f"{name}_bool", getattr(x, name)(1), EXACT
            continue
        if dtype.bits == 64 and dtype.is_int and dtype.name in limits:
            values = (values % 3).astype(dtype.numpy)
        x = inputs.new(values.reshape(3, 11))
        for name in REDUCERS:
            tolerance = tolerance_of(dtype) if dtype.is_float else EXACT
            yield f"{name}_{dtype}", getattr(x, name)(1), tolerance
        whole = inputs.new((np.arange(48) % 5).astype(dtype.numpy).reshape(3, 16))
        yield f"sum_of_sixteen_{dtype}", whole.sum(1), tolerance
    tricky = np.array(
        [[1, np.nan, 3], [np.inf, -np.inf, 0], [-np.inf, -np.inf, -np.inf], [-0.0, 0.0, 5]],
        np.float32,
    )
    x = inputs.new(tricky)
    for name in REDUCERS:
        yield f"{name}_special", getattr(x, name)(1), CLOSE
    yield "argmax", x.argmax(1), EXACT
    yield "argmin", x.argmin(1), EXACT
    yield "argmax_last", inputs.new(np.array([[1, 3, 3, 2]], np.int32)).argmax(1, last=True), EXACT
    yield "mean", inputs.new(floats(4, 9)).mean(1), CLOSE
    # Halves: a total beyond their range, and beyond 2048, where adding 1 to a half changes nothing.
    ones = inputs.new(np.full((2, 50_000), 1.5, np.float16))
    yield "mean_of_many_halves", ones.mean(1), HALF
    yield "sum_of_halves", ones[:, :9999].sum(1), HALF
    row = inputs.new(np.ones((1, 9999), np.float16))
    yield "matmul_of_halves", row @ row.permute((1, 0)), HALF
    yield "softmax_of_halves", ones[:, :9999].softmax(1) * 9999.0, HALF


@family
def many_places(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    """More computed places than a kernel has letters for: some names are those of types."""
    data = inputs.new(floats(50, seed=21))
    places = inputs.new((np.arange(120, dtype=np.int32) * 7 % 49).reshape(40, 3))
    total = Tensor.full((3,), 0.0, dt.float32)
    for place in (places[number] for number in range(40)):
        near, next_ = data.gather(0, place + 0), data.gather(0, place + 1)
        total = total + near * ((next_ > 0.1).cast(dt.int32) * 3).cast(dt.float32)
    yield "many_places", total, CLOSE


@family
def zero_divisors(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    """What a compiler may see to be 0, and divide by as it likes."""
    x = inputs.new(np.array([1, -2.5, 0, -0.0, np.inf, np.nan], np.float32))
    yield "by_zero", x / 0.0, EXACT
    yield "by_minus_zero", x / -0.0, EXACT
    for count in (2, 40):
        zeros = Tensor.full((count,), 0.0, dt.float32)
        yield f"by_{count}_zeros", x / zeros.sum(), EXACT
        yield f"{count}_zeros", zeros.sum() + x * 0.5, EXACT


@family
def indexing(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    data = inputs.new(floats(6, 5, seed=13))
    whole = inputs.new(np.arange(12, dtype=np.int32).reshape(4, 3))
    for dtype in (np.int32, np.int64, np.uint8):
        name = np.dtype(dtype).name
        at = inputs.new(np.array([[0, 5], [3, 3], [1, 2]], dtype))
        yield f"gather_0_{name}", data.gather(0, at), EXACT
    at = inputs.new(np.array([4, -1, 0, 5, 7, 2], np.int32))
    yield "gather_1_outside", data.gather(1, at), EXACT
    yield "gather_computed", data.gather(1, at * 2 - 3), EXACT
    yield "gather_of_computed", (data * 2.0).exp().gather(0, at), CLOSE
    tiles = inputs.new(floats(3, 3, 4, 5, seed=14))
    matrix = [[1.0, 0.0, -1.0], [0.5, 2.0, 0.0]]
    yield "transform", tiles.transform(matrix), CLOSE
    yield "transform_fused", (tiles.exp().transform(matrix) * 2.0).sum(3), CLOSE
    yield "gather_then_sum", data.gather(0, at).sum(0), CLOSE
    yield "gather_scalar", whole.gather(0, inputs.new(np.array(2, np.int32))), EXACT
    positions = inputs.new(np.array([[2, 0, 1], [1, 1, 1], [0, 2, 2], [2, 2, 0]], np.int32))
    yield "gather_elements", whole.gather_elements(1, positions), EXACT
    yield "arange", Tensor.arange(17) * 3 + inputs.new(np.array([1], np.int32)), EXACT


@family
def attention(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    """The softmax of scores and its product with values, in one kernel or put together."""
    sizes = {"few": (2, 3, 5, 4, 6), "wide": (1, 4, 19, 12, 70), "many": (3, 33, 70, 16, 16)}
    for name, (heads, rows, keys, summed, columns) in sizes.items():
        q, k = inputs.new(floats(heads, rows, summed)), inputs.new(floats(heads, keys, summed))
        v = inputs.new(floats(heads, keys, columns, seed=3))
        scores = q @ k.transpose()
        yield f"{name}_keys", scores.attend(v), WEIGHTED
        causal = Tensor.arange(keys).reshape((1, -1)) <= Tensor.arange(rows).reshape((-1, 1))
        lowest = Tensor.full((), -np.inf, dt.float32)
        yield f"{name}_causal", causal.where(scores * 0.5, lowest).softmax(-1) @ v, WEIGHTED
        mask = np.where(floats(rows, keys, seed=4) > 0, 0, -np.inf).astype(np.float32)
        mask[0], mask[1, 1:] = -np.inf, -np.inf
        yield f"{name}_masked", (scores + inputs.new(mask)).attend(v), WEIGHTED
        zeros = (scores + inputs.new(mask)).softmax(-1)
        zeros = zeros.isnan().where(0.0, zeros)
        yield f"{name}_masked_zeros", zeros @ v, WEIGHTED
    q, k = inputs.new(floats(2, 6, 5, 8)), inputs.new(floats(2, 2, 9, 8))
    shared = k.unsqueeze(2).expand((2, 2, 3, 9, 8)).reshape((2, 6, 9, 8))
    yield "shared_heads", (q @ shared.transpose()).softmax(-1) @ shared, WEIGHTED
    special = np.array([[np.nan, 0, 1], [np.inf, 1, 0], [-np.inf, 2, 1], [3e38, -3e38, 1]])
    values = inputs.new(floats(3, 4, seed=5))
    yield "special", inputs.new(special.astype(np.float32)).attend(values), WEIGHTED
    yield "one_key", inputs.new(floats(4, 1)).attend(inputs.new(floats(1, 5))), WEIGHTED


@family
def joining(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    a, b = inputs.new(floats(2, 3, 4, seed=1)), inputs.new(floats(2, 5, 4, seed=2))
    flags = inputs.new(np.array([[True], [False]]))
    bytes_ = inputs.new(np.arange(6, dtype=np.uint8).reshape(2, 3))
    yield "concat", Tensor.concat([a, b], 1), EXACT
    yield "concat_of_computed", Tensor.concat([a.exp(), b * 2.0, a], 1), CLOSE
    yield "concat_begun_alike", Tensor.concat([a.exp(), b, a * 3.0], 1), CLOSE
    yield "concat_begun_so_too", Tensor.concat([a.exp(), b, a], 1), CLOSE
    yield "concat_last", Tensor.concat([a, b[:, :3], a], 2), EXACT
    yield "concat_then_sum", Tensor.concat([a, b], 1).sum(1), CLOSE
    yield "concat_twice_the_same", Tensor.concat([a, a], 0), EXACT
    yield "concat_of_concats", Tensor.concat([Tensor.concat([a, b], 1), b + 1.0], 1), CLOSE
    yield "concat_bool", Tensor.concat([flags, ~flags], 1), EXACT
    yield "concat_bytes", Tensor.concat([bytes_, bytes_ + 250], 0), EXACT
    yield "stack", Tensor.stack([a, a * 2.0, -a], 1), CLOSE
    yield "assign", a.assign(((0, 2), (1, 2), (1, 3)), b[:, :1, :2]), EXACT
    yield (
        "assign_twice",
        a.assign(((0, 1), (0, 3), (0, 4)), a[1:]).assign(((0, 2), (0, 1), (0, 4)), b[:, :1]),
        EXACT,
    )
    joined = Tensor.concat([a, b], 1)
    yield "assign_into_concat", joined.assign(((0, 1), (2, 5), (0, 2)), a[:1, :, :2]), EXACT
    yield "sums_joined", Tensor.concat([a.sum(2), b.max(2)], 1), CLOSE


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((1, 3, 8, 8), (4, 3, 3, 3), {}),
    "batch": ((2, 3, 7, 9), (5, 3, 3, 2), {"pads": ((1, 1), (0, 1))}),
    "point": ((2, 5, 6, 7), (7, 5, 1, 1), {}),
    "point_fours": ((1, 8, 4, 4), (16, 8, 1, 1), {}),
    "fours": ((1, 8, 9, 9), (8, 8, 3, 3), {"pads": ((1, 1), (1, 1)), "strides": (2, 2)}),
    "one_pixel": ((1, 4, 1, 1), (3, 4, 1, 1), {}),
    "depthwise": ((2, 6, 7, 7), (6, 1, 3, 3), {"pads": ((1, 1), (1, 1)), "groups": 6}),
    "depthwise_odd": ((1, 5, 7, 6), (5, 1, 5, 3), {"groups": 5, "strides": (2, 1)}),
    "multiplier": ((1, 4, 6, 6), (8, 1, 3, 3), {"groups": 4}),
    "groups": ((1, 6, 5, 5), (9, 2, 3, 3), {"groups": 3, "pads": ((2, 0), (0, 2))}),
    "dilated": ((1, 2, 11, 11), (3, 2, 3, 3), {"dilations": (3, 2), "strides": (1, 2)}),
    "line": ((2, 3, 17), (4, 3, 5), {"pads": ((2, 2),), "strides": (3,)}),
    "volume": ((1, 2, 5, 5, 4), (3, 2, 2, 3, 2), {"strides": (1, 2, 1)}),
}


@family
def convolutions(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    for name, (data, kernel, options) in CONVOLUTIONS.items():
        x = inputs.new(floats(*data, seed=20))
        weight = Tensor.weight(name, floats(*kernel, seed=21))
        bias = Tensor.weight("", floats(kernel[0], seed=22))
        yield name, x.conv(weight, bias, **options).relu(), Tolerance(greatest=1e-5)
    x, weight = inputs.new(floats(1, 4, 6, 6)), inputs.new(floats(3, 4, 3, 3, seed=8))
    yield "two_inputs", x.conv(weight), Tolerance(greatest=1e-5)
    two = x.conv(Tensor.weight("a", floats(8, 4, 3, 3, seed=3)), pads=((1, 1), (1, 1))).relu()
    two = two.conv(Tensor.weight("b", floats(5, 8, 3, 3, seed=4))) + 1.0
    yield "two_in_a_row", two, Tolerance(greatest=1e-5)


@family
def transposed_convolutions(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    given: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
        "plain": ((1, 3, 4, 5), (3, 2, 3, 3), {}),
        "stride": ((2, 4, 3, 4), (4, 3, 2, 2), {"strides": (2, 2)}),
        "pads": ((1, 2, 5, 5), (2, 3, 4, 3), {"strides": (2, 3), "pads": ((1, 1), (0, 1))}),
        "output": ((1, 2, 4, 4), (2, 2, 3, 3), {"strides": (2, 2), "output_padding": (1, 1)}),
        "groups": ((1, 4, 3, 3), (4, 2, 3, 3), {"groups": 2, "strides": (2, 1)}),
        "dilated": ((1, 2, 4), (2, 3, 3), {"dilations": (2,)}),
    }
    for name, (data, kernel, options) in given.items():
        x = inputs.new(floats(*data, seed=23))
        result = x.conv_transpose(Tensor.weight(name, floats(*kernel, seed=24)), **options)
        yield name, result, Tolerance(greatest=1e-5)


@family
def pooling(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    x = inputs.new(floats(2, 3, 9, 8, seed=25))
    for size, stride in ((2, 2), (3, 2), (3, 1)):
        windows = x.window(2, size, stride).window(3, size, stride)
        yield f"max_{size}_{stride}", windows.max((4, 5)), EXACT
        yield f"mean_{size}_{stride}", windows.mean((4, 5)), Tolerance(greatest=1e-6)
    padded = x.pad(((0, 0), (0, 0), (1, 1), (1, 1)), -np.inf)
    yield "max_padded", padded.window(2, 3, 2).window(3, 3, 2).max((4, 5)), EXACT
    yield "global", x.mean((2, 3), keepdims=True), Tolerance(greatest=1e-5)


MATMULS = [
    ((1, 1), (1, 1)),
    ((4, 8), (8, 16)),
    ((5, 7), (7, 3)),
    ((33, 17), (17, 31)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 8), (5, 8, 4)),
    ((7,), (7, 3)),
    ((3, 7), (7,)),
    ((9,), (9,)),
    ((1, 64), (64, 64)),
    ((64, 1), (1, 5)),
]


@family
def matmuls(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    for i, (left, right) in enumerate(MATMULS):
        a = inputs.new(floats(*left, seed=30 + i))
        b = floats(*right, seed=60 + i)
        close = Tolerance(greatest=1e-5)
        yield f"weight_{i}", a @ Tensor.weight("", b), close
        yield f"input_{i}", a @ inputs.new(b), close
    a = inputs.new(floats(6, 10, seed=1))
    weight = Tensor.weight("", floats(12, 10, seed=2))
    bias = Tensor.weight("", floats(12, seed=3))
    yield "linear_relu", (a @ weight.transpose() + bias).relu(), Tolerance(greatest=1e-5)
    yield (
        "int",
        inputs.new(np.arange(12, dtype=np.int32).reshape(3, 4))
        @ inputs.new(np.arange(8, dtype=np.int32).reshape(4, 2)),
        EXACT,
    )
    q, k, v = (inputs.new(floats(2, 5, 8, seed=4 + i)) for i in range(3))
    scores = (q @ k.transpose() * 0.35).softmax(-1)
    yield "attention", scores @ v, Tolerance(greatest=1e-5)


@family
def rows(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    """Softmax and normalization over rows of odd lengths: several reductions, one kernel."""
    for length in (1, 3, 7, 31, 65, 256):
        x = inputs.new(floats(3, length, seed=length) * np.float32(4))
        yield f"softmax_{length}", x.softmax(-1), Tolerance(greatest=1e-5)
        yield f"log_softmax_{length}", x.log_softmax(-1), Tolerance(greatest=1e-5)
        mean = x.mean(-1, keepdims=True)
        centered = x - mean
        variance = (centered * centered).mean(-1, keepdims=True)
        scale = Tensor.weight("", floats(length, seed=3))
        normal = centered / (variance + 1e-5).sqrt() * scale
        yield f"layer_norm_{length}", normal, Tolerance(greatest=1e-4)
    big = inputs.new(np.array([[1e4, -1e4, 0], [-np.inf, 0, 1], [88, 89, 90]], np.float32))
    yield "softmax_large", big.softmax(-1), Tolerance(greatest=1e-5)
    wide = inputs.new(floats(2, 3, 5, seed=5))
    yield "softmax_middle", wide.softmax(1), Tolerance(greatest=1e-5)
    yield "erf", (wide * 2.0).erf(), Tolerance(greatest=0, absolute=1e-6)
    yield "sigmoid", inputs.new(special(dt.float32)).sigmoid(), Tolerance(each=1e-5, greatest=0)
    yield "softplus", wide.softplus(), Tolerance(greatest=1e-5)


@family
def outputs(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    """Outputs that are scalars, inputs, constants, shared, or one inside another."""
    x = inputs.new(floats(4, 6, seed=40), "x")
    flag = inputs.new(np.array(True), "flag")
    shared = x.exp()
    yield "total", x.sum(), Tolerance(greatest=1e-5)
    yield "input_itself", x, EXACT
    yield "input_flag", flag, EXACT
    yield "weight_itself", Tensor.weight("w", floats(3)), EXACT
    yield "constant", Tensor.full((2, 3), 1.5, dt.float32), EXACT
    yield "constant_scalar", Tensor.full((), -0.0, dt.float32), EXACT
    yield "shared", shared, CLOSE
    yield "of_shared", shared.sum(1), Tolerance(greatest=1e-5)
    yield "again", shared, CLOSE
    yield "view_of_shared", shared.permute((1, 0)), CLOSE
    yield "not_flag", ~flag, EXACT
    yield "chosen", flag.where(x, -x), EXACT
    yield "bool_sum", (x > 0).cast(dt.int32).sum(0), EXACT
    apart = inputs.new(floats(3, 4, 5, seed=41))
    inside = apart.sum((0, 2)).sum()  # a sum of sums, computed beside another one
    yield "sum_of_sums", inputs.new(floats(4, 6, seed=42)).sum(1) + inside, Tolerance(greatest=1e-5)
    yield "any_positive", (x > 0).max(1), EXACT


@family
def several_outputs(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    """Tensors that one kernel computes beside each other, of odd sizes and types of all widths."""
    sums = Tolerance(greatest=1e-5)
    a, b = inputs.new(floats(5, 7, 9, seed=51)), inputs.new(floats(5, 7, 9, seed=52))
    yield "sum_beside", a + b, CLOSE
    yield "difference_beside", a - b, CLOSE
    yield "less_beside", a < b, EXACT
    yield "half_beside", (a * b).cast(dt.float16), HALF
    for axis in range(3):
        yield f"mean_{axis}", a.mean(axis), sums
        yield f"most_{axis}", a.max(axis), EXACT
        yield f"squares_{axis}", (a * a).sum(axis), sums
    image = inputs.new(floats(1, 5, 9, 9, seed=53))
    wide, narrow = (Tensor.weight("w", floats(6, 5, n, n, seed=n)) for n in (3, 1))
    yield "wide", image.conv(wide, pads=((1, 1), (1, 1))).relu(), sums
    yield "narrow", image.conv(narrow).tanh(), sums
    late = inputs.new(floats(1, 5, 18, 18, seed=54)).conv(narrow, strides=(2, 2))
    yield "two_products", image.exp().conv(wide, pads=((1, 1), (1, 1))) + late, sums
    rows, state = inputs.new(floats(3, 20, seed=55)), inputs.new(floats(3, 13, seed=56))
    right, below = Tensor.weight("r", floats(20, 11)), Tensor.weight("b", floats(13, 11))
    yield "gate", (rows @ right + state @ below).tanh(), sums


@family
def empty(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    """Tensors without elements, and sums over nothing."""
    x = inputs.new(np.zeros((0, 3), np.float32))
    y = inputs.new(floats(2, 3))
    yield "copy", x * 2.0, EXACT
    yield "sum_of_nothing", x.sum(0), EXACT
    yield "sum_to_nothing", x.sum(1), EXACT
    yield "matmul_of_nothing", x.permute((1, 0)) @ x, EXACT
    yield "concat", Tensor.concat([x, y], 0), EXACT
    yield "slice", y[:, 3:], EXACT


@family
def scatter(inputs: Inputs, limits: Limits) -> Iterator[Case]:
    """Places that are met often, once, never and that are not there; several lines and columns."""
    generator = np.random.default_rng(14)
    at = inputs.new(np.array([3, 0, 3, -1, 6, 7, 3, 0, 100, -100], np.int32))
    ways = {"none": None, "add": ops.ADD, "mul": ops.MUL, "max": ops.MAX, "min": ops.MIN}
    for dtype in (dt.float32, dt.float16, dt.int32, dt.int8, dt.uint8, dt.int64, dt.bool_):
        for tail in ((), (8,), (2, 3)):
            base, new = (
                random_values(dtype, count * math.prod(tail), generator).reshape((count, *tail))
                for count in (7, 10)
            )
            if dtype.bits == 64:
                base, new = base % 100, new % 100  # their products stay below 32 bits
            rows, updates = inputs.new(base), inputs.new(new)
            for name, way in ways.items():
                tolerance = HALF if dtype is dt.float16 else CLOSE
                result = rows.scatter(0, at, updates, way)
                yield f"scatter_{name}_{dtype}_{len(tail)}", result, tolerance
    table, fresh = inputs.new(floats(4, 7, seed=15)), inputs.new(floats(4, 12, seed=16))
    lines = inputs.new(generator.integers(-2, 9, (4, 12)))
    yield "scatter_lines", table.scatter(1, lines, fresh, ops.ADD), CLOSE
    yield "scatter_twice", table.scatter(1, lines, fresh).scatter(1, lines, fresh, ops.ADD), CLOSE
    one = inputs.new(np.array([2], np.int32)).expand((5,))
    yield "scatter_one_place", table.scatter(0, one, fresh[:1, :7].expand((5, 7)), ops.ADD), CLOSE
    sums = inputs.new(floats(4, 12, 3, seed=17)).sum(2)
    yield "scatter_of_sums", table.exp().scatter(1, lines * 2 - 1, sums, ops.ADD).abs(), CLOSE
    yield "scatter_joined", Tensor.concat([table.scatter(1, lines, fresh), table], 0).relu(), EXACT
