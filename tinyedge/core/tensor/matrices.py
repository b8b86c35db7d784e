"""Factors of matrices, for all matrices of a batch at once.

One iteration stands in a program for all of them (`Tensor.loop`), so that what is compiled does not
grow with a matrix, but its columns, and pairs of columns, are taken one after the other: this is
for matrices of up to some hundred rows. Gradients flow through the iterations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.tensor import nn
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.reductions import Reductions
from tinyedge.core.tensor.sorting import order_of

T = TypeVar("T", bound=Reductions)

MOST_STEPS = 64  # of Newton-Schulz, which are written out one after the other
SWEEPS = 40  # over all pairs of columns, at most: doubles take ten


def _sizes(x: T, what: str) -> tuple[int, int]:
    if x.ndim < 2 or not x.dtype.is_float:
        raise TypeError(f"{what} of {x.dtype} {list(x.shape)}: it takes matrices of floats")
    return fixed(x.shape[-2]), fixed(x.shape[-1])


def _wide(x: T) -> T:
    """In a type that these algorithms can reckon in."""
    return x if x.dtype is dt.float64 else x.cast(dt.float32)


def _identity(x: T, size: int) -> T:
    """Of a size, one for each matrix of x."""
    row = x.arange(size)
    one = row.unsqueeze(1).eq(row).cast(x.dtype)
    return one.broadcast_to((*x.shape[:-2], size, size))


def _signs(x: T) -> T:
    return (x < 0).where(x.full((), -1, x.dtype), 1)


def qr(x: T, mode: str = "reduced") -> tuple[T, T]:
    """x [*, M, N] = Q @ R: Q has orthonormal columns, R is 0 below its diagonal.

    With K = min(M, N), Q is [*, M, K] and R [*, K, N]; mode "complete": [*, M, M] and [*, M, N]. By
    A. Householder, Unitary Triangularization of a Nonsymmetric Matrix, 1958: K reflections of all
    rows, of a cost of K * M * (M + N). Signs are those of LAPACK, and so of numpy.
    """
    rows, columns = _sizes(x, "qr")
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr in mode {mode!r}: it is 'reduced' or 'complete'")
    q, r = _reflected(_wide(x), rows, columns)
    below = x.arange(rows).unsqueeze(1) > x.arange(columns)
    r = below.where(0.0, r)
    if mode == "reduced":
        kept = min(rows, columns)
        q, r = q[..., :kept], r[..., :kept, :]
    return q.cast(x.dtype), r.cast(x.dtype)


def _reflected(x: T, rows: int, columns: int) -> tuple[T, T]:
    """Q and R of all rows; R is not yet cleared of what rounding leaves below its diagonal.

    Of a column that is 0 below the diagonal, LAPACK leaves the sign: the reflection, which changes
    it, is taken all the same, as it has a derivative, and then both factors change their sign.
    """
    q = _identity(x, rows)
    if 0 in x.shape:
        return q, x
    row, column = x.arange(rows), x.arange(columns)

    def reflect(number: T, q: T, r: T) -> Sequence[T]:
        here = row.eq(number)
        values = (column.eq(number) & (row >= number).unsqueeze(1)).where(r, 0.0).sum(-1)
        most = values.abs().max(-1, keepdims=True).detach()
        zero = most.eq(0.0)
        values = values / zero.where(1.0, most)
        length = (values * values).sum(-1, keepdims=True).sqrt()
        first = here.where(values, 0.0)
        v = here.where(values + _signs(first) * length, values)
        factor = zero.where(0.0, 2.0 / zero.where(1.0, (v * v).sum(-1, keepdims=True)))
        alone = (values - first).abs().max(-1, keepdims=True).eq(0.0) & ~zero
        sign = (alone & here).where(x.full((), -1, x.dtype), 1)
        along = v.unsqueeze(-2)
        scaled = (v * factor).unsqueeze(-1)
        r = (r - scaled * nn.matmul(along, r)) * sign.unsqueeze(-1)
        q = (q - nn.matmul(q, scaled) * along) * sign.unsqueeze(-2)
        return number + 1, q, r

    first = [type(x)(0, dt.int32), q, x]
    _, q, r = x.loop(first, reflect, trips=min(rows, columns))
    return q, r


def svd(x: T, full_matrices: bool = True) -> tuple[T, T, T]:
    """x [*, M, N] = U[..., :K] * S @ V[..., :K, :]: U [*, M, M] and V [*, N, N] are orthogonal, S
    [*, K] are the singular values, the greatest first; K = min(M, N).

    full_matrices=False: U is [*, M, K], V is [*, K, N]. V is what is multiplied with: it stands
    transposed. By M. Hestenes, Inversion of Matrices by Biorthogonalization and Related Results,
    1958, on the factor R of `qr`: columns are rotated in pairs, K / 2 pairs at a time, until all
    are orthogonal to rounding. A sweep over all pairs takes K - 1 rounds of a cost of K^2 each, and
    there are some 5 to 10 sweeps, at most 40. A singular value is accurate to rounding of the
    greatest. Signs of vectors, and vectors of equal values, may differ from those of numpy; there
    the gradients of the vectors are not finite, or differ too.
    """
    rows, columns = _sizes(x, "svd")
    if rows < columns:
        v, s, u = svd(x.transpose(), full_matrices)
        return u.transpose(), s, v.transpose()
    wide = _wide(x)
    if 0 in x.shape:
        u, v = _identity(wide, rows), _identity(wide, columns)
        s = wide.full((*x.shape[:-2], columns), 0, wide.dtype)
    else:
        u, s, v = _of_tall(wide, rows, columns)
    if not full_matrices:
        u = u[..., :columns]
    return u.cast(x.dtype), s.cast(x.dtype), v.transpose().cast(x.dtype)


def _of_tall(x: T, rows: int, columns: int) -> tuple[T, T, T]:
    """U, S and V, which is not transposed, of no fewer rows than columns."""
    most = x.abs().max((-2, -1), keepdims=True).detach()
    scale = (most.eq(0.0) | most.isinf()).where(1.0, most)
    q, r = qr(x / scale, "complete")
    turned, v = _orthogonal(r[..., :columns, :], columns)
    lengths = _root((turned * turned).sum(-2))
    keys = lengths.detach()
    if columns % 2:  # one column is none of the matrix
        keys = v[..., columns, :].ne(0.0).where(-1.0, keys)
    order = order_of(keys, columns, descending=True)
    places = order.unsqueeze(-2).broadcast_to((*x.shape[:-2], columns, columns))
    last = x.ndim - 1
    s = lengths.gather_elements(last - 1, order)
    turned = turned.gather_elements(last, places)
    v = v[..., :columns, :].gather_elements(last, places)
    # R of orthogonal columns is diagonal, and Q has a direction for those that are 0, too.
    left, diagonal = qr(turned, "complete")
    signs = _signs((diagonal * _identity(x, columns)).sum(-2, keepdims=True)).detach()
    u = nn.matmul(q[..., :columns], left * signs)
    if rows != columns:
        u = x.concat([u, q[..., columns:]], last)
    return u, s * scale.squeeze((last - 1, last)).unsqueeze(-1), v


def _root(x: T) -> T:
    """The square root, with a gradient of 0 at 0."""
    zero = x.eq(0.0)
    return zero.where(0.0, zero.where(1.0, x).sqrt())


def _orthogonal(x: T, columns: int) -> tuple[T, T]:
    """x @ V with orthogonal columns, and the orthogonal V, of an even number of columns: an odd one
    gets a column of zeros, which no rotation touches.

    Pairs lie `half` apart; from round to round all columns but the first move on by one place, as
    players do in a tournament of everyone against everyone.
    """
    size = columns + columns % 2
    half = size // 2
    ends = [*range(half + 1, size), half - 1]
    moved = [0, half, *range(1, half - 1), *ends] if half > 1 else [0, 1]
    following = type(x)(np.array(moved, np.int32))
    close = 4 * np.finfo(x.dtype.numpy).eps * math.sqrt(columns)

    def rotate(_: T, quiet: T, w: T, v: T) -> Sequence[T]:
        left, right = w[..., :half], w[..., half:]
        a, b = ((part * part).sum(-2, keepdims=True) for part in (left, right))
        across = (left * right).sum(-2, keepdims=True)
        tangent = _tangent(b - a, across * 2.0)
        cosine = 1.0 / (tangent * tangent + 1.0).sqrt()
        sine = cosine * tangent
        apart = across.abs() > a.sqrt() * b.sqrt() * close
        quiet = apart.cast(dt.int32).max().eq(0).where(quiet + 1, 0)

        def turned(both: T) -> T:
            one, two = both[..., :half], both[..., half:]
            parts = [one * cosine - two * sine, one * sine + two * cosine]
            return x.concat(parts, x.ndim - 1).gather(x.ndim - 1, following)

        return quiet < size - 1, quiet, turned(w), turned(v)

    w = x.pad([*((0, 0),) * (x.ndim - 1), (0, size - columns)])
    first = [type(x)(True), type(x)(0, dt.int32), w, _identity(x, size)]
    _, _, w, v = x.loop(first, rotate, bound=SWEEPS * (size - 1))
    return w, v


def _tangent(apart: T, double: T) -> T:
    """tan(t) for the smaller angle t of tan(2 t) = double / apart; 0 if both are 0."""
    flat = apart.abs() >= double.abs()
    bottom = flat.where(apart, double)
    ratio = flat.where(double, apart) / bottom.eq(0.0).where(1.0, bottom)
    root = (ratio * ratio + 1.0).sqrt()
    return flat.where(ratio / (root + 1.0), _signs(ratio) / (ratio.abs() + root))


def newton_schulz(x: T, steps: int, params: Sequence[float], eps: float = 1e-7) -> T:
    """x [*, M, N] by its norm, then `steps` times an odd polynomial of its singular values by
    products of matrices: params[0] * s + params[1] * s^3 + params[2] * s^5 + ...

    With (1.5, -0.5) it goes to the nearest orthogonal matrix: G. Schulz, Iterative Berechnung der
    reziproken Matrix, 1933. The norm is at least eps. Raises ValueError.
    """
    rows, columns = _sizes(x, "newton_schulz")
    if not 0 <= steps <= MOST_STEPS or not params:
        raise ValueError(
            f"newton_schulz of {steps} steps by {len(params)} parameters: it takes up to "
            f"{MOST_STEPS} steps, and a parameter"
        )
    if rows > columns:
        return newton_schulz(x.transpose(), steps, params, eps).transpose()
    norm = (x * x).blocked_sum((-2, -1), keepdims=True).sqrt()
    x = x / norm.maximum(eps)
    for _ in range(steps):
        result = x * params[0]
        if len(params) > 1:
            gram = power = nn.matmul(x, x.transpose())
            total = gram * params[1]
            for factor in params[2:]:
                power = nn.matmul(power, gram)
                total = total + power * factor
            result = result + nn.matmul(total, x)
        x = result
    return x
