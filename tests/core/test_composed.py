"""Factors of matrices, resizing and scattering, beside numpy in doubles, and numbers of torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyedge
from tinyedge import Tensor
from tinyedge.core.ir.reference import evaluate

RNG = np.random.default_rng(11)


def known(*tensors: Tensor) -> list[Any]:
    return [np.asarray(value) for value in evaluate([tensor.node for tensor in tensors], {})]


def turned(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def orthonormal(q: Any) -> bool:
    return np.allclose(turned(q) @ q, np.eye(q.shape[-1]), atol=1e-13)


MATRICES = {
    "square": RNG.normal(size=(5, 5)),
    "tall batch": RNG.normal(size=(2, 3, 4, 3)),
    "wide": RNG.normal(size=(3, 6)) * 1e150,
    "one": np.array([[-3.0]]),
    "column": RNG.normal(size=(4, 1)) * 1e-160,
    "of rank 1": np.outer(RNG.normal(size=6), RNG.normal(size=4)),
    "a column of zeros": np.diag([2.0, 0.0, -1.0]),
    "equal values": np.eye(4)[[2, 0, 3, 1]] * 7,
    **{f"empty {s}": np.zeros(s) for s in ((0, 3), (3, 0), (2, 0, 4), (0, 3, 2))},
}


@pytest.mark.parametrize("name", MATRICES)
def test_factors(name: str) -> None:
    x = MATRICES[name]
    size = max(1e-300, np.abs(x).max(initial=0.0))
    for mode in ("reduced", "complete"):
        q, r = known(*Tensor(x).qr(mode))
        expected = np.linalg.qr(x, mode)
        assert (q.shape, r.shape) == tuple(e.shape for e in expected)
        assert np.allclose(q @ (r / size), x / size, atol=1e-13) and orthonormal(q)
        assert (np.tril(r, -1) == 0).all()
        if "rank" not in name:  # of numpy's signs; where columns depend on each other, Q is free
            assert np.allclose(r / size, expected[1] / size, atol=1e-13)
    for full in (True, False):
        u, s, v = known(*Tensor(x).svd(full))
        expected = np.linalg.svd(x, full)
        assert (u.shape, s.shape, v.shape) == tuple(e.shape for e in expected)
        k = s.shape[-1]
        assert np.allclose(s / size, expected[1] / size, atol=1e-13)
        back = (u[..., :k] * (s / size)[..., None, :]) @ v[..., :k, :]
        assert np.allclose(back, x / size, atol=1e-13)
        assert orthonormal(u) and orthonormal(turned(v))


def test_factors_on_a_device() -> None:
    x = RNG.normal(size=(2, 5, 4)).astype(np.float32)
    u, s, v = (part.numpy() for part in Tensor(x).svd(full_matrices=False))
    assert np.allclose((u * s[:, None]) @ v, x, atol=1e-5)
    assert np.isnan(Tensor(np.full((2, 2), np.nan, np.float32)).svd()[1].numpy()).all()
    assert Tensor(x).bfloat16().qr()[1].dtype.name == "bfloat16"


def test_gradients_of_factors() -> None:
    by_q, by_r = (Tensor(RNG.normal(size=(3, 3))) for _ in range(2))

    def of_qr(x: Tensor) -> Tensor:
        """Without the signs, which jump where a column is 0 below the diagonal."""
        q, r = x.qr()
        signs = r.diagonal().sign().detach()
        return (q * signs * by_q).sum() + (r * signs.unsqueeze(1) * by_r).sum()

    def of_svd(x: Tensor) -> Tensor:
        u, s, v = x.svd()
        return ((u * s * by_q[0]) @ v * by_r).sum() + (s * by_q[1]).sum()

    for function, x in (
        (of_qr, RNG.normal(size=(3, 3))),
        (of_qr, np.triu(RNG.normal(size=(3, 3)))),
        (of_svd, RNG.normal(size=(3, 3))),
        (of_svd, np.diag([3.0, 1.0, 2.0])),
    ):
        along, step = RNG.normal(size=x.shape), 1e-6
        (slope,) = known((tinyedge.grad(function)(Tensor(x)) * Tensor(along)).sum())
        high, low = known(*(function(Tensor(x + s * along)) for s in (step, -step)))
        assert np.isclose(slope, (high - low) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize("params", [(1.5, -0.5), (3.4445, -4.775, 2.0315), (2.0,)])
def test_newton_schulz(params: tuple[float, ...]) -> None:
    x = RNG.normal(size=(2, 5, 3))
    u, s, v = np.linalg.svd(x, full_matrices=False)
    s = s / np.linalg.norm(s, axis=-1, keepdims=True)
    for _ in range(3):
        s = sum(p * s ** (2 * n + 1) for n, p in enumerate(params))
    (found,) = known(Tensor(x).newton_schulz(3, params))
    assert np.allclose(found, u * s[:, None] @ v, atol=1e-12)
    assert np.allclose(known(Tensor(turned(x)).newton_schulz(3, params))[0], turned(found))


LINE = np.array([0.0, 3, 1, -2, 5, 5, 4])
# What torch 2.13 gives for it in doubles.
RESIZED: dict[tuple[int, str, bool], list[float]] = {
    (10, "bilinear", False): [0.0, 1.65, 2.5, 1.1, -0.95, 0.45, 5.0, 5.0, 4.55, 4.0],
    (10, "bicubic", False): [
        *(-0.24384375, 1.87275, 2.96875, 1.1855, -1.89696875),
        *(-0.00215625, 5.2386875, 5.3515625, 4.5561875, 3.91871875),
    ],
    (4, "linear", True): [1.33333333333, 0.56, 3.04, 4.47619047619],
    (4, "cubic", True): [1.4818039741, 0.337433374334, 2.93767937679, 4.71667782987],
    (9, "cubic", True): [
        *(-0.14201183432, 2.17857142857, 2.50891632373, 0.208504801097, -2.0),
        *(3.72290809328, 5.45267489712, 4.67857142857, 3.95266272189),
    ],
}


@pytest.mark.parametrize("size, mode, antialias", RESIZED)
def test_interpolate_as_torch(size: int, mode: str, antialias: bool) -> None:
    (found,) = known(Tensor(LINE).interpolate(size, mode, antialias=antialias))
    assert np.allclose(found, RESIZED[size, mode, antialias], atol=1e-10)


def test_interpolate_along_several_axes() -> None:
    x = RNG.normal(size=(2, 5, 7))
    rows, columns = np.linspace(0, 4, 3), np.linspace(0, 6, 11)
    expected = np.stack(
        [[[np.interp(r, range(5), line) for line in part.T] for r in rows] for part in x]
    )
    expected = np.stack([[np.interp(columns, range(7), row) for row in part] for part in expected])
    (found,) = known(Tensor(x).interpolate((3, 11), align_corners=True))
    assert np.allclose(found, expected)
    for length, size in ((7, 5), (49, 61), (100, 93), (3, 1), (1, 4), (2, 0)):
        line, place = RNG.integers(0, 99, length), np.arange(size)
        down, exact = known(*(Tensor(line).interpolate((size,), m) for m in MODES))
        assert down.tolist() == line[place * length // max(1, size)].tolist()
        assert exact.tolist() == line[(2 * place + 1) * length // max(1, 2 * size)].tolist()
        assert down.dtype == line.dtype


MODES = ("nearest", "nearest-exact")


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("kind", [np.float64, np.int32])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(reduce: str, kind: Any, include_self: bool) -> None:
    x = (RNG.normal(size=(3, 4)) * 9).astype(kind)
    index, src = RNG.integers(0, 3, (5, 3)), (RNG.normal(size=(6, 4)) * 9).astype(kind)
    expected = x.copy()
    for row in range(3):
        for column in range(3):
            terms = src[:5, column][index[:, column] == row]
            if len(terms):
                terms = np.append(terms, x[row, column]) if include_self else terms
                value = {"amax": np.max, "amin": np.min, "prod": np.prod}.get(reduce, np.sum)(terms)
                if reduce == "mean":
                    value = value // len(terms) if kind is np.int32 else value / len(terms)
                expected[row, column] = value
    call = Tensor(x).scatter_reduce(0, Tensor(index), Tensor(src), reduce, include_self)
    (found,) = known(call)
    assert found.dtype == x.dtype and np.allclose(found, expected, rtol=1e-12)
    if kind is np.float64:  # what goes nowhere, and an index of nothing
        beyond = Tensor(x).scatter_reduce(0, Tensor(index + 7), Tensor(src), reduce, include_self)
        assert (known(beyond)[0] == x).all()
        none = Tensor(x).scatter_reduce(1, Tensor(index[:0]), Tensor(src), reduce, include_self)
        assert (known(none)[0] == x).all()


SQUARE = Tensor(np.eye(3))
PLACES = Tensor(np.zeros((2, 2), np.int32))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: SQUARE[0].qr(), r"qr of float64 \[3\]: it takes matrices of floats"),
        (lambda: SQUARE.int().svd(), "svd of int32"),
        (lambda: SQUARE.qr("full"), "it is 'reduced' or 'complete'"),
        (lambda: SQUARE.newton_schulz(99, (1.0,)), "up to 64 steps"),
        (lambda: SQUARE.newton_schulz(3, ()), "0 parameters"),
        (lambda: SQUARE.interpolate((2, 2), "area"), "mode 'area': it is one of"),
        (lambda: SQUARE.interpolate((1, 2, 3)), r"of \[3, 3\] to size \[1, 2, 3\]"),
        (lambda: SQUARE.interpolate(-1), r"to size \[-1\]"),
        (lambda: SQUARE.interpolate(2, "nearest", True), "has neither align_corners"),
        (lambda: SQUARE.interpolate(2, "cubic", True, antialias=True), "exclude each other"),
        (lambda: SQUARE[:, :0].interpolate(2), r"\[3, 0\] is resized to \[3, 2\]"),
        (lambda: SQUARE.scatter_reduce(0, PLACES, SQUARE, "max"), "it is one of"),
        (lambda: SQUARE.scatter_reduce(2, PLACES, SQUARE, "sum"), "axis 2 of a tensor"),
        (lambda: SQUARE.scatter_reduce(0, SQUARE, SQUARE, "sum"), "integer indices, not float64"),
        (lambda: SQUARE.scatter_reduce(0, PLACES, SQUARE.float(), "sum"), "float32 into float64"),
        (lambda: SQUARE.scatter_reduce(0, PLACES[0], SQUARE, "sum"), "must be as many"),
        (lambda: SQUARE[:, :1].scatter_reduce(0, PLACES, SQUARE, "sum"), "too large for axis 1"),
    ],
)
def test_what_does_not_fit(call: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()
