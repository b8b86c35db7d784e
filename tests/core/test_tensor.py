"""What tensors mean, by the reference evaluator, against numpy and naive loops."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.profile import examples
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.schedule.constants import fold_constants
from tinyedge.core.ir import ops
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.shapes import product, symbol
from tinyedge.core.tensor.movement import broadcast
from tinyedge.core.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@st.composite
def keys(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """A shape and a basic index of it."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    items: list[Any] = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        end = st.one_of(st.none(), st.integers(-size - 1, size + 1))
        step = st.sampled_from([None, 1, 2, 3, -1, -2])
        items.append(
            draw(st.one_of(st.integers(-size, size - 1), st.builds(slice, end, end, step)))
        )
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), None)
    if len([i for i in items if i is not None]) < len(shape) and draw(st.booleans()):
        items.append(Ellipsis)
    return shape, tuple(items)


@examples(300)
@given(keys())
def test_indexing_is_numpys(case: tuple[tuple[int, ...], tuple[Any, ...]]) -> None:
    shape, key = case
    array = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    np.testing.assert_array_equal(Tensor(array)[key].numpy(), array[key])


@examples(150)
@given(
    st.lists(st.sampled_from([1, 3, 4]), max_size=3),
    st.lists(st.sampled_from([1, 3, 4]), max_size=3),
)
def test_broadcasting_is_numpys(a: list[int], b: list[int]) -> None:
    left, right = floats(*a), floats(*b, seed=1)
    try:
        expected = left + right
    except ValueError:
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast(Tensor(left), Tensor(right))
        return
    np.testing.assert_array_equal((Tensor(left) + Tensor(right)).numpy(), expected)


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 1, 3, 4), (5, 4, 2))],
)
def test_matmul_is_numpys(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = floats(*left), floats(*right, seed=1)
    np.testing.assert_allclose((Tensor(a) @ Tensor(b)).numpy(), a @ b, rtol=1e-5)


def naive_conv(
    x: Array, w: Array, strides: tuple[int, int], pads: Any, dilations: Any, groups: int
) -> Array:
    x = np.pad(x, ((0, 0), (0, 0), *pads)).astype(np.float64)
    batch, _, height, width = x.shape
    filters, per_group, kh, kw = w.shape
    oh = (height - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    ow = (width - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    out = np.zeros((batch, filters, oh, ow))
    for n, m, i, j in np.ndindex(*out.shape):
        group = m // (filters // groups)
        for c, k, l in np.ndindex(per_group, kh, kw):  # noqa: E741 - as in the formula
            row, column = i * strides[0] + k * dilations[0], j * strides[1] + l * dilations[1]
            out[n, m, i, j] += x[n, group * per_group + c, row, column] * w[m, c, k, l]
    return out


@pytest.mark.parametrize(
    ("groups", "strides", "pads", "dilations"),
    [
        (1, (1, 1), ((0, 0), (0, 0)), (1, 1)),
        (2, (2, 1), ((1, 0), (2, 1)), (1, 2)),
        (4, (1, 3), ((1, 1), (1, 1)), (2, 1)),
    ],
)
def test_convolution(groups: int, strides: Any, pads: Any, dilations: Any) -> None:
    x, w = floats(2, 4, 7, 6), floats(4, 4 // groups, 3, 2, seed=1)
    given_options = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    result = Tensor(x).conv(Tensor(w), Tensor(floats(4, seed=2)), **given_options).numpy()
    expected = naive_conv(x, w, strides, pads, dilations, groups)
    expected += floats(4, seed=2).reshape(1, 4, 1, 1)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


TRANSPOSED = [
    (stride, before, after, extra, kernel, dilation)
    for stride in (1, 2, 3)
    for before, after, extra in ((0, 0, 0), (1, 0, 0), (1, 1, 1))
    for kernel, dilation in ((1, 1), (2, 1), (3, 2), (5, 1))
    if extra < max(stride, dilation) and before + after <= (kernel - 1) * dilation
]


@pytest.mark.parametrize(("stride", "before", "after", "extra", "kernel", "dilation"), TRANSPOSED)
def test_transposed_convolution(
    stride: int, before: int, after: int, extra: int, kernel: int, dilation: int
) -> None:
    """Each input element adds the scaled kernel to the output."""
    x, w = floats(2, 4, 5), floats(4, 3, kernel, seed=1)
    span = (kernel - 1) * dilation + 1
    full = np.zeros((2, 6, 4 * stride + span + extra))
    for n, c, i, m, k in itertools.product(range(2), range(4), range(5), range(3), range(kernel)):
        target = (c // 2) * 3 + m
        full[n, target, i * stride + k * dilation] += float(x[n, c, i]) * float(w[c, m, k])
    expected = full[:, :, before : full.shape[2] - after]
    result = Tensor(x).conv_transpose(
        Tensor(w),
        strides=(stride,),
        pads=((before, after),),
        dilations=(dilation,),
        output_padding=(extra,),
        groups=2,
    )
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_padding_and_joining() -> None:
    x = floats(3, 4)
    np.testing.assert_array_equal(
        Tensor(x).pad(((1, -1), (-2, 3)), 5.0).numpy(),
        np.pad(x[:2, 2:], ((1, 0), (0, 3)), constant_values=5.0),
    )
    padded = Tensor(x).pad(((0, 0), (1, 0)), -0.0).numpy()
    assert np.signbit(padded[:, 0]).all()
    np.testing.assert_array_equal(
        Tensor.concat([Tensor(x), Tensor(x[:, :0]), Tensor(x[:, 1:])], 1).numpy(),
        np.concatenate([x, x[:, 1:]], 1),
    )
    np.testing.assert_array_equal(Tensor.stack([Tensor(x)] * 2, 1).numpy(), np.stack([x, x], 1))
    changed = Tensor.concat([Tensor(x), Tensor(x)], 0).assign(((2, 4), (0, 2)), Tensor(x[:2, :2]))
    expected = np.concatenate([x, x])
    expected[2:4, :2] = x[:2, :2]
    np.testing.assert_array_equal(changed.numpy(), expected)


def test_reductions() -> None:
    x = floats(3, 4, 5)
    t = Tensor(x)
    for axes in (None, 0, (0, 2), (-1,), (1, -1)):
        where = None if axes is None else axes
        np.testing.assert_allclose(t.sum(axes).numpy(), x.sum(where), rtol=1e-5)
        np.testing.assert_array_equal(t.max(axes, True).numpy(), x.max(where, keepdims=True))
        np.testing.assert_allclose(t.mean(axes).numpy(), x.mean(where), rtol=1e-5, atol=1e-6)
    ties = Tensor(np.array([[1, 3, 3], [2, 2, 2], [5, 4, 5]], np.int32))
    assert ties.argmax(1).numpy().tolist() == [1, 0, 0]
    assert ties.argmax(1, last=True).numpy().tolist() == [2, 2, 2]
    assert ties.argmin(1).numpy().tolist() == [0, 0, 1]
    least = Tensor(np.array([0, 255, 3], np.uint8))
    assert least.argmin(0).numpy() == 0
    assert Tensor(np.array([1.0, np.nan, 3.0], np.float32)).argmax(0).numpy() == 1
    assert Tensor(np.zeros((0, 2), np.float32)).sum(0).numpy().tolist() == [0, 0]
    assert Tensor(np.zeros((0,), np.float32)).max().numpy() == -np.inf
    assert Tensor(np.zeros((0,), np.int8)).max().numpy() == -128
    with pytest.raises(ValueError, match="axis 3"):
        t.sum(3)


def test_gathering() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    at = np.array([[0, 2], [-1, 3]])
    taken = Tensor(x).gather(0, Tensor(at)).numpy()
    assert taken.shape == (2, 2, 4)
    np.testing.assert_array_equal(taken[0], x[[0, 2]])
    assert not taken[1].any(), "outside of the data is 0"
    positions = np.array([[3, 0], [1, 1], [2, 2]])
    np.testing.assert_array_equal(
        Tensor(x).gather_elements(1, Tensor(positions)).numpy(),
        np.take_along_axis(x, positions, 1),
    )
    with pytest.raises(TypeError, match="integer"):
        Tensor(x).gather(0, Tensor(x))


def test_numbers() -> None:
    a = np.array([7, -7, 7, -7, 6], np.int32)
    b = np.array([3, 3, -3, -3, 2], np.int32)
    np.testing.assert_array_equal((Tensor(a) / Tensor(b)).numpy(), np.trunc(a / b).astype(int))
    np.testing.assert_array_equal((Tensor(a) // Tensor(b)).numpy(), a // b)
    np.testing.assert_array_equal((Tensor(a) % Tensor(b)).numpy(), a % b)
    f, g = a / np.float32(2), b / np.float32(2)
    f, g = f.astype(np.float32), g.astype(np.float32)
    np.testing.assert_allclose((Tensor(f) % Tensor(g)).numpy(), f % g)
    np.testing.assert_allclose(Tensor(f).fmod(Tensor(g)).numpy(), np.fmod(f, g))
    x = np.array([-3, -0.5, 0, 0.5, 3, np.inf, -np.inf, np.nan], np.float32)
    expected = np.array([math.erf(v) for v in x[:5]])
    np.testing.assert_allclose(Tensor(x[:5]).erf().numpy(), expected, atol=3e-7)
    assert Tensor(x).sign().numpy()[:-1].tolist() == [-1, -1, 0, 1, 1, 1, -1]
    assert np.isnan(Tensor(x).sign().numpy()[-1])
    assert Tensor(x).clip(2.0, -1.0).numpy()[0] == -1, "crossed bounds give the upper one"
    np.testing.assert_array_equal(
        Tensor(x).cast(dt.int8).numpy(), np.array([-3, 0, 0, 0, 3, 127, -128, 0], np.int8)
    )
    assert Tensor(x).cast(dt.bool_).numpy().tolist() == [True, True, False] + [True] * 5
    for power in (2, 3, 1, 0.5, -1, -0.5, 1.7):
        base = np.array([0.5, 1, 3], np.float32)
        np.testing.assert_allclose((Tensor(base) ** power).numpy(), base**power, rtol=1e-6)


def test_wrong_uses_are_refused() -> None:
    x = Tensor(floats(2, 3))
    with pytest.raises(TypeError, match="cast one of them"):
        x + Tensor(np.zeros(3, np.int32))
    whole = Tensor(np.arange(3))
    for use in (lambda: whole * 0.5, lambda: 0.5 + whole, lambda: whole > 1.5):
        with pytest.raises(TypeError, match="with int64: cast one of them"):
            use()
    assert (whole * 2.0).numpy().tolist() == [0, 2, 4]
    for use in (whole.exp, whole.log, whole.sqrt, whole.sin, whole.cos, whole.tanh, whole.erf):
        with pytest.raises(TypeError, match="cast"):
            use()
    with pytest.raises(TypeError, match="no truth value"):
        bool(x)
    with pytest.raises(ValueError, match="counts differ"):
        x.reshape((4, 2))
    with pytest.raises(ValueError, match="permute"):
        x.permute((0, 0))
    with pytest.raises(ValueError, match="does not fit"):
        x.window(0, 3)
    with pytest.raises(ValueError, match="expand"):
        x.expand((2, 4))
    with pytest.raises(IndexError):
        x[2]
    with pytest.raises(TypeError, match="widths differ"):
        x.bitcast(dt.int16)
    with pytest.raises(ValueError, match="matmul"):
        x @ x


def test_symbolic_shapes() -> None:
    h, w = symbol("H", 2, 10, 2), symbol("W", 1, 5)
    x = Tensor.input("x", (h, w, 3), dt.float32)
    flat = x.reshape((-1, 3))
    assert flat.shape == (product((h, w)), 3)
    doubled = Tensor.concat([x, x], 0)[None].sum((1, 2))
    mean = x.mean((0, 1))
    for height, width in ((2, 1), (6, 5), (10, 3)):
        array = floats(height, width, 3)
        sizes = {"H": height, "W": width}
        nodes = [flat.node, doubled.node, mean.node]
        a, b, m = evaluate(nodes, {"x": array}, sizes)
        np.testing.assert_array_equal(a, array.reshape(-1, 3))
        np.testing.assert_allclose(b[0], 2 * array.sum((0, 1)), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(m, array.mean((0, 1)), rtol=1e-4, atol=1e-5)


def test_extremes_of_no_truths() -> None:
    nothing = Tensor(np.zeros((2, 0), bool))
    assert not nothing.max(1).numpy().any() and nothing.min(1).numpy().all()


def test_a_part_that_is_not_there() -> None:
    x = Tensor(floats(3, 4))
    for bounds in ([(0, 4), (0, 4)], [(0, 3), (-1, 2)]):
        with pytest.raises(ValueError, match="shrink"):
            x.shrink(bounds)


def test_parts_that_cannot_be_joined() -> None:
    x = Tensor(floats(3, 4))
    for other in (Tensor(floats(3, 5)), Tensor(floats(4))):
        with pytest.raises(ValueError, match="concat"):
            Tensor.concat([x, other], 0)
    with pytest.raises(TypeError, match="concat"):
        Tensor.concat([x, x.cast(dt.int32)], 0)


def test_folded_products_never_meet_a_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sums depend on the processor, and bundles do not."""
    einsum, asked = np.einsum, []

    def observed(*operands: Any, **options: Any) -> Any:
        asked.append(options["optimize"])
        return einsum(*operands, **options)

    monkeypatch.setattr(np, "einsum", observed)
    product = (Tensor(floats(40, 50)) @ Tensor(floats(50, 30, seed=1))).node
    folded = fold_constants((product,), 1 << 30, 2)[product]
    assert folded.op is ops.BUFFER and asked == [False]


def test_a_product_that_is_wanted_itself() -> None:
    """Sums of products are computed by einsum, without the product, unless the product is asked."""
    a, b = Tensor(floats(3, 1, 4)), Tensor(floats(1, 5, 4, seed=1))
    every = a * b
    total = every.sum(-1)
    both = evaluate([every.node, total.node], {})
    np.testing.assert_allclose(both[0].sum(-1), both[1], rtol=1e-5)
    np.testing.assert_allclose(evaluate([total.node], {})[0], both[1], rtol=1e-5)
    repeated = (a.expand((3, 6, 4)) * 2.0).sum(1)
    np.testing.assert_allclose(
        evaluate([repeated.node], {})[0], floats(3, 1, 4)[:, 0] * 12, rtol=1e-5
    )


def test_a_product_of_halves_is_summed_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves are held as float32, so a cast to that below the sum changes nothing."""
    einsum, asked = np.einsum, []

    def observed(*operands: Any, **options: Any) -> Any:
        asked.append(options["optimize"])
        return einsum(*operands, **options)

    monkeypatch.setattr(np, "einsum", observed)
    a, b = floats(3, 4).astype(np.float16), floats(4, 5, seed=1).astype(np.float16)
    terms = Tensor(a).unsqueeze(-1) * Tensor(b)
    want = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(terms.cast(dt.float32).sum(1).numpy(), want, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(terms.sum(1).numpy(), want, rtol=2.0**-10, atol=1e-6)
    assert asked == [True, True]


@pytest.mark.parametrize(
    ("shape", "options"),
    [((2, 3, 4), {}), ((2, 4, 3, 3), {"strides": (1,)}), ((2, 4, 3, 3), {"pads": [(1, 1)]})],
)
def test_a_convolution_of_other_ranks_says_what_of_what(shape: Any, options: Any) -> None:
    x, weight = Tensor.input("x", (1, 4, 8, 8), dt.float32), Tensor(np.ones(shape, np.float32))
    with pytest.raises(ValueError, match=r"conv of \[1, 4, 8, 8\] with"):
        x.conv(weight, **options)


@pytest.mark.eager
def test_padding_of_a_size_that_bounds_do_not_tell() -> None:
    """Interval arithmetic says that n - n // 2 may be negative."""
    n = symbol("N", 2, 13)
    padded = Tensor.input("x", (n,), dt.float32).shrink([(0, n - n // 2)]).pad([(0, 1)])
    for size in (2, 7, 13):
        (found,) = evaluate([padded.node], {"x": np.ones(size, np.float32)}, {"N": size})
        assert found.tolist() == [1.0] * (size - size // 2) + [0.0]


def test_padding_of_minus_zero() -> None:
    """A load that is 0 outside of a tensor is not -0 there."""
    padded = Tensor(np.ones(3, np.float32)).pad(((0, 2),), value=-0.0).reciprocal()
    assert padded.numpy().tolist() == [1, 1, 1, -np.inf, -np.inf]
