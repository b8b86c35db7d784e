"""Sorting and cumulating, beside numpy; long rows on every target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, compiled, find_target, reference, run
from tinyedge.core import dtype as dt
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.prefix import cumulative_product, cumulative_sum
from tinyedge.core.tensor.sorting import order_of
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(7)


def given(array: Any, name: str = "x") -> Tensor:
    return Tensor.input(name, array.shape, dt.from_numpy(array.dtype))


def expected_order(x: Any, descending: bool) -> Any:
    """By value, NaN above everything, then by place."""
    missing = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    values = np.unique(np.where(missing, 0, x), return_inverse=True)[1].reshape(x.shape)
    rank = np.where(missing, x.size, values)
    return np.argsort(-rank if descending else rank, axis=-1, kind="stable")


def ordered(x: Any, count: int | None, descending: bool) -> Any:
    return evaluate([order_of(given(x), count, descending=descending).node], {"x": x})[0]


def samples(kind: str, shape: Sequence[int]) -> Any:
    """Few different values, so that many are equal; for floats also the special ones."""
    if kind[0] == "f":
        values = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3.5, -2, 7], kind)
    elif kind == "bool":
        values = np.array([False, True])
    else:
        limits = np.iinfo(kind)
        values = np.array([limits.min, limits.min + 1, 0, 5, limits.max - 1, limits.max], kind)
    return RNG.choice(values, shape)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "kind", ["float32", "float64", "float16", "int8", "uint8", "int64", "bool"]
)
def test_order(kind: str, descending: bool) -> None:
    for shape in ((9,), (3, 40), (2, 2, 257), (1, 700), (2, 1030)):
        x = samples(kind, shape)
        want = expected_order(x, descending)
        for count in (None, 1, shape[-1] // 3):
            got = ordered(x, count, descending)
            np.testing.assert_array_equal(got, want[..., :count])


def test_doubles_that_are_equal_as_floats() -> None:
    x = 1.0 + RNG.permutation(600) * 2.0**-50
    np.testing.assert_array_equal(ordered(x, None, False), np.argsort(x))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5), (2, 1)])
def test_order_of_little(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    assert ordered(x, None, False).shape == shape
    assert ordered(x, 0, True).shape == (*shape[:-1], 0)


@pytest.mark.parametrize("length", [1, 31, 256, 257, 900])
def test_order_along_an_open_size(length: int) -> None:
    n = symbol("n", 1, 900)
    x = samples("float32", (2, length))
    tensor = Tensor.input("x", (2, n), dt.float32)
    (got,) = evaluate([order_of(tensor, descending=True).node], {"x": x}, {"n": length})
    np.testing.assert_array_equal(got, expected_order(x, True))


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 1000, 40000])
def test_cumulative_sum_of_integers(length: int, exclusive: bool) -> None:
    x = RNG.integers(-(2**31), 2**31, (2, length, 3), dtype=np.int32)
    got = evaluate([cumulative_sum(given(x), 1, exclusive=exclusive).node], {"x": x})[0]
    want = np.cumsum(x, 1, dtype=np.int32)
    np.testing.assert_array_equal(got, want - x if exclusive else want)


def test_cumulative_product() -> None:
    x = RNG.integers(0, 2**31, (300,), dtype=np.int32) | 1
    got = evaluate([cumulative_product(given(x), 0).node], {"x": x})[0]
    np.testing.assert_array_equal(got, np.cumprod(x, dtype=np.int32))


@pytest.mark.parametrize("length", [1, 64, 65, 500])
def test_cumulative_sum_along_an_open_size(length: int) -> None:
    x = RNG.integers(-99, 99, (length, 2), dtype=np.int32)
    tensor = Tensor.input("x", (symbol("n", 1, 3000), 2), dt.int32)
    (got,) = evaluate([cumulative_sum(tensor, 0).node], {"x": x}, {"n": length})
    np.testing.assert_array_equal(got, np.cumsum(x, 0, dtype=np.int32))


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_cumulative_sums_are_no_worse_than_one_by_one(kind: str) -> None:
    x = RNG.standard_normal(50000).astype(kind)
    got = evaluate([cumulative_sum(given(x), 0).node], {"x": x})[0]
    exact = np.cumsum(x.astype(np.float64))
    assert np.abs(got - exact).max() <= np.abs(np.cumsum(x) - exact).max()


def test_what_is_not_finite_spoils_what_follows_only() -> None:
    x = np.ones(500, np.float32)
    x[200], x[300], x[400] = np.inf, 5, -np.inf
    got = evaluate([cumulative_sum(given(x), 0).node], {"x": x})[0]
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, np.cumsum(x))


CASES: dict[str, tuple[Callable[[Tensor], Tensor], Any]] = {
    "sorted": (lambda x: order_of(x, descending=True), samples("float32", (2, 600))),
    "first": (lambda x: order_of(x, 20), samples("float32", (1, 5000))),
    "sum": (lambda x: cumulative_sum(x, 0), RNG.integers(-9, 9, (3000, 2), dtype=np.int32)),
}


@pytest.mark.parametrize("case", CASES)
def test_on_every_target(case: str, target: str, device: Device) -> None:
    function, x = CASES[case]
    inputs = Inputs()
    outputs = {"y": function(inputs.new(x))}
    got = run(outputs, inputs, target, device)
    np.testing.assert_array_equal(got["y"], reference(outputs, inputs)["y"])


def test_how_many_launches() -> None:
    """A sort of 8400 is six merges; a sum of 100,000 goes over three levels of blocks."""
    scores, many = Inputs(), Inputs()
    order = order_of(scores.new(np.zeros((1, 8400), np.float32)))
    total = cumulative_sum(many.new(np.zeros(100_000, np.float32)), 0)
    for inputs, result, most in ((scores, order, 15), (many, total, 7)):
        assert len(compiled({"y": result}, inputs, find_target("cpu")).launches) <= most
