"""Methods of tensors beside numpy's functions of the same arrays, odd values among them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tinyedge import Tensor, TraceError, random
from tinyedge.core import dtype as dt
from tinyedge.core.ir.reference import evaluate

ROOT = Path(__file__).resolve().parents[2]
TINYGRAD = ROOT / ".cache/bench/tinygrad-0.14.0/tinygrad"
RNG = np.random.default_rng(3)
X = RNG.normal(size=(4, 6)).astype(np.float32)
ODD = np.array(
    [[-0.0, 0.0, 1.0, -1.0, 2.5, -3.5], [np.inf, -np.inf, np.nan, 1e-30, 1e30, 88.0]], "f4"
)
UNIT = RNG.uniform(-0.99, 0.99, (3, 5)).astype(np.float32)
POSITIVE = np.array([[1.0, 1e-30, 3.5, 1e30], [0.0, np.inf, 2.0, 1.5]], np.float32)
INTS = np.array([[3, -7, 0, 5], [2, 2, -1, 9]], np.int32)
TIES = np.array([[2.0, 1.0, 2.0, np.nan, -1.0], [0.0, -0.0, 5.0, 5.0, -np.inf]], np.float32)


MANY = np.random.default_rng(4).normal(size=(3, 70)).astype(np.float32)
BYTES = np.array([[200, 7], [255, 0], [3, 9]], np.uint8)


def last_places(x: Any, extreme: Any) -> Any:
    """Of the extreme up to each element, NaN the greatest and the least; by hand."""
    found = np.zeros(x.shape, np.int32)
    for row, values in enumerate(x):
        for end in range(len(values)):
            most = extreme.reduce(values[: end + 1])
            hits = [
                n
                for n in range(end + 1)
                if values[n] == most or (most != most and values[n] != values[n])
            ]
            found[row, end] = hits[-1]
    return found


def known(x: Tensor) -> Any:
    return np.asarray(evaluate([x.node], {})[0])


def logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def repeated(x: Any) -> Any:
    return np.tile(x, (2, 1, 3))


# Of each method the arrays it is tried on, the call, and what numpy makes of them.
Case = tuple[str, tuple[Any, ...], Callable[..., Any], Callable[..., Any]]
CASES: list[Case] = [
    ("add", (ODD, X[:1]), lambda x, y: x.add(y), np.add),
    ("sub", (ODD, X[:1]), lambda x, y: x.sub(y), np.subtract),
    ("mul", (ODD, X[:1]), lambda x, y: x.mul(y), np.multiply),
    ("div", (ODD, X[:1]), lambda x, y: x.div(y), np.divide),
    ("div of integers", (INTS,), lambda x: x.div(2), lambda x: np.trunc(x / 2).astype(np.int32)),
    ("mod", (INTS,), lambda x: x.mod(-3), lambda x: np.mod(x, -3)),
    ("pow", (X,), lambda x: x.pow(2), np.square),
    ("neg", (ODD,), lambda x: x.neg(), np.negative),
    ("bitwise_and", (INTS,), lambda x: x.bitwise_and(6), lambda x: x & 6),
    ("bitwise_or", (INTS,), lambda x: x.bitwise_or(6), lambda x: x | 6),
    ("bitwise_xor", (INTS,), lambda x: x.bitwise_xor(6), lambda x: x ^ 6),
    ("bitwise_not", (INTS,), lambda x: x.bitwise_not(), np.invert),
    ("lshift", (INTS,), lambda x: x.lshift(3), lambda x: x << 3),
    ("rshift", (INTS,), lambda x: x.rshift(1), lambda x: x >> 1),
    ("clamp", (ODD,), lambda x: x.clamp(-1, 2), lambda x: np.clip(x, -1, 2)),
    ("logical_not", (ODD,), lambda x: x.logical_not(), np.logical_not),
    ("square", (ODD,), lambda x: x.square(), np.square),
    ("reciprocal", (ODD,), lambda x: x.reciprocal(), np.reciprocal),
    ("rsqrt", (POSITIVE,), lambda x: x.rsqrt(), lambda x: 1 / np.sqrt(x)),
    ("exp2", (X,), lambda x: x.exp2(), np.exp2),
    ("log2", (POSITIVE,), lambda x: x.log2(), np.log2),
    ("log10", (POSITIVE,), lambda x: x.log10(), np.log10),
    ("tan", (UNIT,), lambda x: x.tan(), np.tan),
    ("asin", (UNIT,), lambda x: x.asin(), np.arcsin),
    ("acos", (UNIT,), lambda x: x.acos(), np.arccos),
    ("atan", (ODD,), lambda x: x.atan(), np.arctan),
    ("sinh", (X,), lambda x: x.sinh(), np.sinh),
    ("cosh", (X,), lambda x: x.cosh(), np.cosh),
    ("asinh", (X,), lambda x: x.asinh(), np.arcsinh),
    ("acosh", (POSITIVE[:1, :1] + X * X,), lambda x: x.acosh(), np.arccosh),
    ("atanh", (UNIT,), lambda x: x.atanh(), np.arctanh),
    ("copysign", (ODD, ODD[0]), lambda x, y: x.copysign(y), np.copysign),
    ("logaddexp", (ODD[:, [0, 2, 3, 4]], POSITIVE), lambda x, y: x.logaddexp(y), np.logaddexp),
    (
        "logaddexp of infinities",
        (ODD[1, :3], ODD[1, :1]),
        lambda x, y: x.logaddexp(y),
        np.logaddexp,
    ),
    ("lerp", (X, X[::-1]), lambda x, y: x.lerp(y, 0.25), lambda x, y: x + (y - x) * 0.25),
    ("isfinite", (ODD,), lambda x: x.isfinite(), np.isfinite),
    ("isclose", (ODD, ODD * np.float32(1 + 1e-6)), lambda x, y: x.isclose(y), np.isclose),
    (
        "isclose of NaN",
        (ODD, ODD),
        lambda x, y: x.isclose(y, equal_nan=True),
        lambda x, y: np.isclose(x, y, equal_nan=True),
    ),
    (
        "masked_fill",
        (X, X > 0),
        lambda x, m: x.masked_fill(m, 7.0),
        lambda x, m: np.where(m, np.float32(7), x),
    ),
    ("half", (ODD,), lambda x: x.half(), lambda x: x.astype(np.float16)),
    ("double", (ODD,), lambda x: x.double(), lambda x: x.astype(np.float64)),
    ("float", (INTS,), lambda x: x.float(), lambda x: x.astype(np.float32)),
    ("int", (X * 10,), lambda x: x.int(), lambda x: x.astype(np.int32)),
    ("long", (X * 10,), lambda x: x.long(), lambda x: x.astype(np.int64)),
    ("short", (X * 10,), lambda x: x.short(), lambda x: x.astype(np.int16)),
    ("bool", (ODD,), lambda x: x.bool(), lambda x: x.astype(bool)),
    ("hardtanh", (ODD,), lambda x: x.hardtanh(), lambda x: np.clip(x, -1, 1)),
    ("relu6", (ODD,), lambda x: x.relu6(), lambda x: np.clip(x, 0, 6)),
    ("quick_gelu", (X,), lambda x: x.quick_gelu(), lambda x: x * logistic(1.702 * x)),
    ("swish", (X,), lambda x: x.swish(), lambda x: x * logistic(x)),
    ("logsigmoid", (X * 50,), lambda x: x.logsigmoid(), lambda x: -np.logaddexp(0, -x)),
    (
        "softmin",
        (X,),
        lambda x: x.softmin(),
        lambda x: np.exp(-x) / np.exp(-x).sum(-1, keepdims=True),
    ),
    ("zeros_like", (INTS,), lambda x: x.zeros_like(), np.zeros_like),
    ("ones_like", (X,), lambda x: x.ones_like(), np.ones_like),
    ("full_like", (X,), lambda x: x.full_like(2.5), lambda x: np.full_like(x, 2.5)),
    (
        "one_hot",
        (np.array([0, 2, 5]),),
        lambda x: x.one_hot(4),
        lambda x: x[:, None] == np.arange(4),
    ),
    ("cat", (X, X + 1), lambda x, y: Tensor.cat([x, y], 1), lambda x, y: np.concatenate([x, y], 1)),
    ("T", (X.reshape(2, 3, 4),), lambda x: x.T, np.transpose),
    ("view", (X,), lambda x: x.view(3, -1), lambda x: x.reshape(3, -1)),
    ("repeat", (X,), lambda x: x.repeat(2, 1, 3), repeated),
    ("repeat_interleave", (X,), lambda x: x.repeat_interleave(3, 1), lambda x: np.repeat(x, 3, 1)),
    ("repeat_interleave flat", (X,), lambda x: x.repeat_interleave(2), lambda x: np.repeat(x, 2)),
    ("roll", (X,), lambda x: x.roll((1, -2), (0, 1)), lambda x: np.roll(x, (1, -2), (0, 1))),
    ("roll flat", (X,), lambda x: x.roll(27), lambda x: np.roll(x, 27)),
    ("unflatten", (X,), lambda x: x.unflatten(1, (2, -1)), lambda x: x.reshape(4, 2, 3)),
    (
        "unfold",
        (X,),
        lambda x: x.unfold(1, 3, 2),
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2],
    ),
    ("diagonal", (np.stack([ODD, ODD]),), lambda x: x.diagonal(), lambda x: x.diagonal(0, -2, -1)),
    ("diag", (ODD[1],), lambda x: x.diag(), np.diag),
    ("tril", (X,), lambda x: x.tril(1), lambda x: np.tril(x, 1)),
    ("triu", (np.tile(ODD, (3, 1)),), lambda x: x.triu(-1), lambda x: np.triu(x, -1)),
    ("any", (np.zeros_like(ODD),), lambda x: x.any(1), lambda x: x.any(1)),
    ("any of all", (INTS,), lambda x: x.any(), np.any),
    ("all", (INTS,), lambda x: x.all(0, True), lambda x: x.all(0, keepdims=True)),
    ("all of one", (np.float32(2),), lambda x: x.all(), np.all),
    ("var", (X,), lambda x: x.var(1), lambda x: x.var(1, ddof=1)),
    ("var whole", (X + 1000,), lambda x: x.var(correction=0), lambda x: (x.astype("f8")).var()),
    ("std", (X,), lambda x: x.std(0, True), lambda x: x.std(0, ddof=1, keepdims=True)),
    (
        "normalize",
        (X,),
        lambda x: x.normalize(),
        lambda x: x / np.linalg.norm(x, axis=1, keepdims=True),
    ),
    ("cumsum", (X,), lambda x: x.cumsum(1), lambda x: x.cumsum(1)),
    ("cumprod", (X,), lambda x: x.cumprod(), lambda x: x.cumprod(0)),
    *(
        (f"{name} of {kind}", (array,), call, right)
        for kind, array in (("floats", TIES), ("integers", INTS), ("many", MANY))
        for name, call, right in (
            ("cummax", lambda x: x.cummax(1)[0], lambda x: np.maximum.accumulate(x, 1)),
            ("cummin", lambda x: x.cummin(1)[0], lambda x: np.minimum.accumulate(x, 1)),
            ("places of cummax", lambda x: x.cummax(1)[1], lambda x: last_places(x, np.maximum)),
            ("places of cummin", lambda x: x.cummin(1)[1], lambda x: last_places(x, np.minimum)),
        )
    ),
    ("least of bytes", (BYTES,), lambda x: x.cummin()[0], lambda x: np.minimum.accumulate(x, 0)),
    (
        "logcumsumexp",
        (MANY,),
        lambda x: (x * 30.0).logcumsumexp(1),
        lambda x: np.logaddexp.accumulate(x.astype(np.float64) * 30, 1),
    ),
    (
        "logcumsumexp of nothing",
        (np.array([-np.inf, -np.inf, 1.0, -np.inf, np.inf, 2.0], np.float32),),
        lambda x: x.logcumsumexp(),
        lambda x: np.logaddexp.accumulate(x),
    ),
    (
        "rearrange",
        (MANY,),
        lambda x: x.rearrange("a (b c) -> c 1 (a b)", c=5),
        lambda x: x.reshape(3, 14, 5).transpose(2, 0, 1).reshape(5, 1, 42),
    ),
    (
        "rearrange dots",
        (MANY,),
        lambda x: x.rearrange("a ... -> ... a ()"),
        lambda x: x.T[..., None],
    ),
    (
        "argsort",
        (TIES,),
        lambda x: x.argsort(),
        lambda x: np.argsort(x, kind="stable").astype("i4"),
    ),
    (
        "argsort of columns",
        (INTS,),
        lambda x: x.argsort(0),
        lambda x: np.argsort(x, 0, kind="stable").astype("i4"),
    ),
    ("sort", (TIES,), lambda x: x.sort()[0], np.sort),
    ("sort falling", (INTS,), lambda x: x.sort(1, True)[0], lambda x: -np.sort(-x)),
    ("topk", (X,), lambda x: x.topk(2)[0], lambda x: -np.sort(-x)[:, :2]),
    (
        "topk least places",
        (X,),
        lambda x: x.topk(3, 0, False)[1],
        lambda x: np.argsort(x, 0)[:3].astype("i4"),
    ),
    (
        "einsum",
        (X, X),
        lambda x, y: Tensor.einsum("ij,kj->ki", x, y),
        lambda x, y: np.einsum("ij,kj->ki", x, y),
    ),
    ("dot", (X, X.T), lambda x, y: x.dot(y), np.matmul),
    ("linear", (X, X.T, X[:, 0]), lambda x, y, z: x.linear(y, z), lambda x, y, z: x @ y + z),
    (
        "sequential",
        (X,),
        lambda x: x.sequential([Tensor.abs, Tensor.sqrt]),
        lambda x: np.sqrt(np.abs(x)),
    ),
    (
        "layernorm",
        (X,),
        lambda x: x.layernorm(),
        lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5),
    ),
    ("logsumexp", (X,), lambda x: x.logsumexp(1), lambda x: np.log(np.exp(x).sum(1))),
    ("detach", (ODD,), lambda x: x.detach(), np.copy),
]


@pytest.mark.parametrize("name, arrays, ours, theirs", CASES, ids=[case[0] for case in CASES])
def test_method(
    name: str, arrays: tuple[Any, ...], ours: Callable[..., Any], theirs: Callable[..., Any]
) -> None:
    found = known(ours(*map(Tensor, arrays)))
    with np.errstate(all="ignore"):
        expected = np.asarray(theirs(*arrays))
    assert found.shape == expected.shape
    if expected.dtype.kind != "f":
        assert found.tolist() == expected.tolist()
        assert found.dtype == expected.dtype
        return
    finite = np.isfinite(expected)
    assert np.array_equal(found[~finite], expected[~finite], equal_nan=True)
    assert np.allclose(found[finite], expected[finite], rtol=1e-5, atol=1e-6)
    zero = expected == 0
    if name in ("copysign", "neg", "detach"):
        assert (np.signbit(found[zero]) == np.signbit(expected[zero])).all()


def test_made() -> None:
    assert known(Tensor.eye(2, 3)).tolist() == np.eye(2, 3).tolist()
    assert known(Tensor.zeros((2,), dt.int8)).dtype == np.int8
    assert known(Tensor.ones((2, 1))).tolist() == [[1], [1]]
    assert np.allclose(known(Tensor.linspace(-1, 2, 7)), np.linspace(-1, 2, 7))
    assert known(Tensor.linspace(3, 9, 1)).tolist() == [3]
    a, b = Tensor(INTS[0]).meshgrid(Tensor(INTS[1, :3]))
    expected = np.meshgrid(INTS[0], INTS[1, :3], indexing="ij")
    assert (known(a) == expected[0]).all() and (known(b) == expected[1]).all()


def test_parts() -> None:
    x = Tensor(X)
    for ours, theirs in (
        (x.split(4, 1), np.split(X, [4], 1)),
        (x.split([1, 3, 2], -1), np.split(X, [1, 4], 1)),
        (x.chunk(4, 1), np.split(X, [2, 4], 1)),
    ):
        assert len(ours) == len(theirs)
        assert all((known(a) == b).all() for a, b in zip(ours, theirs, strict=True))
    with pytest.raises(ValueError, match=r"a split of 6 into \[1, 2\]"):
        x.split([1, 2], 1)


def test_facts() -> None:
    x = Tensor(X)
    assert (x.numel(), x.element_size(), x.nbytes(), x.is_floating_point()) == (24, 4, 96, True)
    assert x.allclose(X + 1e-9) and not x.allclose(X + 1)
    mean, spread = x.var_mean(1)[1], x.std_mean(1)[0]
    assert np.allclose(known(mean), X.mean(1)) and np.allclose(known(spread), X.std(1, ddof=1))
    assert math.isnan(float(known(Tensor(X[:1, :1]).var())))


@pytest.mark.parametrize(
    "pattern, sizes",
    [
        ("a b", {}),
        ("a b -> a", {}),
        ("a b -> a b c", {}),
        ("a a -> a a", {}),
        ("a b c -> c b a", {}),
        ("a (b c) -> a b c", {}),
        ("a (b c) -> a b c", {"b": 4}),
        ("a b -> b a", {"z": 2}),
        ("1 b -> b", {}),
        ("a [b] -> a b", {}),
    ],
)
def test_patterns_that_do_not_fit(pattern: str, sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="pattern"):
        Tensor(MANY).rearrange(pattern, **sizes)


KEY = random.key(5)
IMAGE = RNG.normal(size=(2, 3, 5, 6)).astype(np.float32)
FILTER = RNG.normal(size=(4, 3, 2, 3)).astype(np.float32)


def test_convolutions_and_pools_by_their_names_for_two_axes() -> None:
    x, w = Tensor(IMAGE), Tensor(FILTER)
    for padding, pads in ((1, [(1, 1), (1, 1)]), ((1, 2), [(1, 1), (2, 2)])):
        found = known(x.conv2d(w, stride=(2, 1), padding=padding, dilation=(1, 2)))
        expected = known(x.conv(w, strides=(2, 1), pads=pads, dilations=(1, 2)))
        assert (found == expected).all()
    uneven = known(x.conv2d(w, padding=(0, 1, 2, 3)))
    assert (uneven == known(x.conv(w, pads=[(2, 3), (0, 1)]))).all()
    back = known(x.conv_transpose2d(w.permute((1, 0, 2, 3)), stride=2, output_padding=(0, 1)))
    right = x.conv_transpose(w.permute((1, 0, 2, 3)), strides=(2, 2), output_padding=(0, 1))
    assert (back == known(right)).all()
    blocks = IMAGE[:, :, :4].reshape(2, 3, 2, 2, 3, 2)
    assert (known(x.max_pool2d()) == blocks.max((3, 5))).all()
    assert np.allclose(known(x.avg_pool2d()), blocks.mean((3, 5)), atol=1e-6)
    assert x.max_pool2d(2, ceil_mode=True).shape == (2, 3, 3, 3)
    with pytest.raises(ValueError, match=r"padding \(1, 2, 3\) for 2 spatial axes"):
        x.conv2d(w, padding=(1, 2, 3))


def test_attention_and_losses_by_tinygrads_names() -> None:
    q, k, v = (RNG.normal(size=(2, h, 5, 4)) for h in (4, 2, 2))
    scores = q @ np.repeat(k, 2, 1).swapaxes(-1, -2) / 2
    scores = np.where(np.tril(np.ones((5, 5), bool)), scores, -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    call = Tensor(q).scaled_dot_product_attention(
        Tensor(k), Tensor(v), is_causal=True, enable_gqa=True
    )
    assert np.allclose(known(call), weights @ np.repeat(v, 2, 1))
    labels = np.array([[1, -1], [0, 2]])
    logs = q[0, :2, :2] - np.log(np.exp(q[0, :2, :2]).sum(-1, keepdims=True))
    each = np.array([[-logs[0, 0, 1], 0], [-logs[1, 0, 0], -logs[1, 1, 2]]])
    x = Tensor(q[0, :2, :2])
    losses = x.sparse_categorical_crossentropy(Tensor(labels), reduction="none")
    assert np.allclose(known(losses), each)
    assert np.isclose(known(x.sparse_categorical_crossentropy(Tensor(labels))), each.sum() / 3)


def test_random_numbers_by_tinygrads_names() -> None:
    for found, expected in (
        (Tensor.rand(3, 4, key=KEY), random.uniform(KEY, (3, 4))),
        (Tensor.uniform((3, 4), low=-2, high=5, key=KEY), random.uniform(KEY, (3, 4), -2, 5)),
        (Tensor.randn(3, key=KEY, dtype=dt.float64), random.normal(KEY, (3,), dtype=dt.float64)),
        (Tensor.normal(3, mean=2, std=3, key=KEY), random.normal(KEY, (3,), 2, 3)),
        (Tensor.randint(9, low=-3, high=3, key=KEY), random.randint(KEY, (9,), -3, 3)),
        (Tensor.randperm(9, key=KEY), random.permutation(KEY, 9)),
        (Tensor(X).rand_like(key=KEY), random.uniform(KEY, X.shape)),
        (Tensor(X).randn_like(key=KEY), random.normal(KEY, X.shape)),
        (Tensor(X).dropout(0.25, key=KEY), random.dropout(Tensor(X), KEY, 0.25)),
    ):
        assert found.dtype is expected.dtype and (known(found) == known(expected)).all()
    unit = known(random.uniform(KEY, (4, 9), -1, 1))
    for name, bound in (
        ("scaled_uniform", 1 / 6),
        ("glorot_uniform", math.sqrt(6 / 13)),
        ("kaiming_uniform", math.sqrt(6 / 9 / 1.0001)),
    ):
        assert np.allclose(known(getattr(Tensor, name)(4, 9, key=KEY)), unit * bound, atol=1e-6)
    deviation = math.sqrt(2 / 9 / 1.0001)
    drawn = known(Tensor.kaiming_normal(4, 9, key=KEY))
    assert np.allclose(drawn, known(random.normal(KEY, (4, 9))) * deviation)
    weights = Tensor(np.array([[0.0, 1, 3, 0], [1, 1, 1, 1]], np.float32))
    many = known(weights.multinomial(4000, replacement=True, key=KEY))
    assert many.shape == (2, 4000) and set(many[0]) == {1, 2}
    assert abs((many[0] == 2).mean() - 0.75) < 0.03
    all_of_them = known(weights[1].multinomial(4, key=KEY))
    assert sorted(all_of_them) == [0, 1, 2, 3]
    with pytest.raises(TypeError, match=r"give key=tinyedge\.random\.key"):
        Tensor.randn(2, 3)
    with pytest.raises(ValueError, match="5 draws of 4 places"):
        weights.multinomial(5, key=KEY)


def test_what_is_true() -> None:
    x = np.array([[3, 0, 1], [0, 0, 7]], np.int32)
    assert known(Tensor(x).nonzero()).tolist() == np.argwhere(x).tolist()
    padded = [[0, 0], [0, 2], [1, 2], [-1, -1]]
    assert known(Tensor(x).nonzero(4, -1)).tolist() == padded
    assert known(Tensor(x).nonzero(2)).tolist() == padded[:2]
    assert Tensor(np.zeros((2, 0))).nonzero().shape == (0, 2)
    assert Tensor(np.float32(3)).nonzero().shape == (1, 0)
    mask = Tensor(np.array([True, False, True]))
    assert known(Tensor(x).masked_select(mask)).tolist() == [3, 1, 0, 7]
    assert known(Tensor(x).masked_select(mask, 6, 9)).tolist() == [3, 1, 0, 7, 9, 9]
    with pytest.raises(TypeError, match="a mask of bools"):
        Tensor(x).masked_select(Tensor(x))
    with pytest.raises(TraceError, match="no truth value or number here"):
        tinyedge.jit(lambda x: x.nonzero())(Tensor(x))


def test_sizes_places_and_bytes() -> None:
    x = Tensor(X)
    assert (
        known(x.pad_to(5, None, value=2)) == np.pad(X, [(0, 1), (0, 0)], constant_values=2)
    ).all()
    assert (known(x.shrink_to((2, None))) == X[:2]).all()
    with pytest.raises(ValueError, match="1 sizes for"):
        x.shrink_to(3)
    assert Tensor.empty((2,), dt.int8).shape == x.empty_like()[:2, 0].shape
    moved = x.to("cpu")
    assert moved.device == "cpu" and (moved.numpy() == X).all()
    assert bytes(x.data()) == X.tobytes() and x.data().shape == X.shape


def table() -> dict[str, str]:
    """The names that docs/tensor.md says tensors lack, each with its reason."""
    text = (ROOT / "docs/tensor.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|$", text, re.MULTILINE)
    return {name: reason for names, reason in rows for name in re.findall(r"`(\w+)`", names)}


def test_what_is_lacking_has_a_reason() -> None:
    lacking = table()
    text = (ROOT / "docs/tensor.md").read_text(encoding="utf-8")
    total, here = map(
        int, re.search(r"has (\d+) public names.*?(\d+) of them", text, re.S).groups()
    )  # type: ignore[union-attr]
    assert (total, total - len(lacking)) == (251, here) and here >= 200
    assert len(lacking) > 20 and all(reason.strip() for reason in lacking.values())
    there = [name for name in lacking if hasattr(Tensor, name)]
    assert not there, f"tensors have them: take them out of docs/tensor.md: {there}"


@pytest.mark.skipif(
    not TINYGRAD.exists(), reason="needs the tinygrad that tests.bench.opencl installs"
)
def test_the_table_has_all_that_tinygrad_has() -> None:
    import subprocess
    import sys

    script = "from tinygrad import Tensor; print(*(n for n in dir(Tensor) if n[0] != '_'))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=TINYGRAD.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = done.stdout.split()
    assert len(theirs) == 251
    assert {name for name in theirs if not hasattr(Tensor, name)} == set(table())


@pytest.mark.parametrize("join", [Tensor.cat, Tensor.concat, Tensor.stack])
def test_a_lone_tensor_is_not_joined(join: Any) -> None:
    with pytest.raises(TypeError, match="a sequence of tensors is joined"):
        join(Tensor.zeros((2, 3)), 0)
