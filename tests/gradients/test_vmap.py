"""A function of a batch gives what the function gives for each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.gradients.cases import CASES
from tinyedge import Tensor, grad, vmap
from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort

COUNT = 3


def of_each(function: Callable[..., Tensor], arrays: list[Any], axes: list[int | None]) -> Any:
    """What the function gives for each element of the batch, stacked."""
    results = []
    for number in range(COUNT):
        parts = (
            array if axis is None else np.take(array, number, axis)
            for array, axis in zip(arrays, axes, strict=True)
        )
        results.append(function(*(Tensor.weight("a", part) for part in parts)).numpy())
    return np.stack(results)


def agree(function: Callable[..., Tensor], arrays: list[Any], axes: list[int | None]) -> None:
    batch = vmap(function, axes)(*(Tensor.weight("a", array) for array in arrays))
    expected = of_each(function, arrays, axes)
    assert batch.shape == expected.shape
    assert np.allclose(batch.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_each_argument_alone_and_all(name: str) -> None:
    case = CASES[name]
    factors = 1 + np.arange(COUNT) / 8
    count = len(case.arrays)
    for chosen in {*map(frozenset, ([n] for n in range(count))), frozenset(range(count))}:
        arrays = [
            np.stack([array * f for f in factors], min(n, array.ndim)) if n in chosen else array
            for n, array in enumerate(case.arrays)
        ]
        axes = [min(n, case.arrays[n].ndim) if n in chosen else None for n in range(count)]
        agree(case.function, arrays, axes)


@pytest.mark.parametrize("name", ["matmul", "conv", "loop", "loop while", "scatter None", "put"])
def test_gradients(name: str) -> None:
    case = CASES[name]
    numbers = tuple(range(len(case.arrays)))

    def function(*values: Tensor) -> Tensor:
        return grad(lambda *v: (case.function(*v) ** 2.0).sum(), numbers)(*values)[-1]

    for axes in ([0, None], [0, 0]) if len(numbers) == 2 else ([0, None, None], [None, 0, 0]):
        arrays = [
            array if axis is None else np.stack([array * f for f in (1, 1.5, 0.5)])
            for array, axis in zip(case.arrays, axes, strict=True)
        ]
        agree(function, arrays, axes)


INDICES = np.array([[0, 3], [2, -1], [1, 1]], np.int32)


def test_positions_of_each() -> None:
    data = np.arange(24.0).reshape(2, 4, 3)
    several = np.stack([data, data * 2, data - 5])
    agree(lambda d, i: d.gather(1, i), [data, INDICES], [None, 0])
    agree(lambda d, i: d.gather(1, i), [several, INDICES], [0, 0])
    agree(lambda d, i: d.gather(1, i), [several, INDICES[0]], [0, None])
    base, rows = np.arange(24.0).reshape(COUNT, 4, 2), np.full((COUNT, 2), 7.0)
    places = np.array([3, -2, 9], np.int32)
    agree(lambda b, r, p: b.put(p, r), [base, rows, places], [0, 0, 0])
    agree(lambda b, r, p: b.put(p, r), [base[0], rows[0], places], [None, None, 0])
    agree(lambda b, i, u: b.scatter(0, i, u, ops.ADD), [base, INDICES, rows[:2]], [0, 0, None])


def test_each_loop_ends_for_itself() -> None:
    def function(x: Tensor, limit: Tensor) -> Tensor:
        first = [Tensor(True), Tensor(0, dt.int32), x]
        return Tensor.loop(first, lambda go, i, v: [i < limit, i + 1, v * 2.0], bound=9)[2]

    agree(function, [np.array([1.0, 1, 1]), np.array([0, 5, 2], np.int32)], [0, 0])
    agree(grad(function), [np.array([1.0, 1, 1]), np.array([0, 5, 2], np.int32)], [0, 0])


def test_axes() -> None:
    a, b = Tensor.weight("a", np.ones((2, 3))), Tensor.weight("b", np.ones((4, 3)))
    pairs = vmap(vmap(lambda x, y: (x * y).sum(), (None, 0)), (0, None))(a, b)
    assert pairs.shape == (2, 4) and (pairs.numpy() == 3).all()
    first, second = vmap(lambda x: (x * 2.0, x.sum()), 1, out_axes=(-1, 0))(a)
    assert first.shape == (2, 3) and second.numpy().tolist() == [2, 2, 2]
    assert vmap(lambda x: Tensor(5.0), out_axes=0)(a).numpy().tolist() == [5, 5]
    assert vmap(lambda x: Tensor(5.0), out_axes=None)(a).numpy() == 5


def test_nothing_runs_once_for_each() -> None:
    a = Tensor.input("a", (64, 3), dt.float32)
    nodes = toposort([vmap(lambda x: x.exp().sum())(a).node])
    assert sum(node.op is ops.EXP for node in nodes) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, b: vmap(lambda x, y: x)(a, b), "batches of 2 and 4"),
        (lambda a, b: vmap(lambda x: x, None)(a), "no argument has a batch"),
        (lambda a, b: vmap(lambda x, y: x, (0,))(a, b), "1 axes for 2 arguments"),
        (lambda a, b: vmap(lambda x: x, 2)(a), "axis 2 of a tensor with 2 axes"),
        (lambda a, b: vmap(lambda x: x, out_axes=None)(a), "depends on the batch"),
    ],
)
def test_refused(call: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(Tensor.weight("a", np.ones((2, 3))), Tensor.weight("b", np.ones((4, 3))))
