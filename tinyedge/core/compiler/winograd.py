"""Convolutions of 3 x 3 by Winograd's minimal filtering: fewer products, more sums.

A tile of m x m outputs is A^T [(G g G^T) * (B^T d B)] A, for a filter g of 3 x 3 and n x n elements
d of the input, n = m + 2: n*n products where the sum has 9*m*m. Summed over the channels, the
products are n*n matrix products; the filters are transformed here, once. Source: Lavin and Gray,
Fast Algorithms for Convolutional Neural Networks, 2016.

The results differ from those of the plain sum in the last digits. How much depends on the filters:
each convolution is tried on random data, and only transformed if no output is off by more than
MOST_ERROR of the greatest. A NaN or an infinity reaches all outputs of its tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.uop import Size, UOp, toposort
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.tensor import Tensor

TAPS = 3
# What a transform costs, in products of the sums: of an element, with its store and load; and to
# load an element of the transformed filters.
TRANSFORM = 12.0
FILTER = 8.0
LEAST_GAIN = 1.25
MOST_ERROR = 1e-5  # the greatest difference from the plain sum, of the greatest output
TRIED = 32  # tiles of random data, and filters, that the difference is measured on

Array = Any
Matrix = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Transform:
    """The matrices of a tile of `side` outputs: of the data, the filter and the products."""

    side: int
    data: Matrix  # B^T
    filter: Matrix  # G
    products: Matrix  # A^T

    @property
    def elements(self) -> int:
        """Along a side of the input's tile."""
        return self.side + TAPS - 1


TRANSFORMS = (
    Transform(
        4,
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ],
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ],
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    ),
    Transform(
        2,
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
        [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, -1]],
    ),
)


@dataclass(frozen=True)
class _Convolution:
    """A convolution of 3 x 3 by steps of 1: x [N, C, H + 2, W + 2], already padded, with filters
    [M, C, 3, 3], of the shape [N, 1, M, H, W].
    """

    x: UOp
    weight: UOp
    batch: int
    channels: int
    filters: int
    height: int
    width: int


@dataclass(frozen=True)
class _Choice:
    """A convolution's transform: the filters, their difference, and what it gains for its bytes."""

    node: UOp
    transform: Transform
    filters: Array  # [n, n, M, C]
    error: float
    saved: float  # products and sums
    added: int  # bytes


def with_winograd(roots: tuple[UOp, ...], growth: float) -> tuple[dict[UOp, UOp], list[float]]:
    """Every node, mapped to one in which convolutions are transformed where that pays, or nothing
    if none is; and of each that is, the difference that was measured, of the greatest output.

    growth: how many times the bytes of all weights the transformed filters may add. Those that save
    most for their bytes come first.
    """
    chosen = _chosen(toposort(roots), growth) if growth else {}
    if not chosen:
        return {}, []

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        found = _match(node.replace(src)) if node in chosen else None
        return None if found is None else _transformed(found, chosen[node]).node

    return bottom_up(roots, change), [choice.error for choice in chosen.values()]


def _chosen(nodes: Sequence[UOp], growth: float) -> dict[UOp, _Choice]:
    """The convolutions that are transformed."""
    weights = (n for n in nodes if n.op is ops.BUFFER and n.arg.source.kind == "weight")
    room = growth * sum(w.arg.source.data.nbytes for w in weights if w.arg.source.data is not None)
    choices = [choice for node in nodes if node.op is ops.REDUCE for choice in _choices(node)]
    taken: dict[UOp, _Choice] = {}
    for choice in sorted(choices, key=lambda c: -c.saved / max(1, c.added)):
        before = taken.get(choice.node)
        added = choice.added - (before.added if before is not None else 0)
        better = before is None or choice.saved > before.saved
        if better and added <= room:
            taken[choice.node] = choice
            room -= added
    return {node: taken[node] for node in nodes if node in taken}


def _choices(node: UOp) -> Iterator[_Choice]:
    """The transforms of a convolution that cost less than its plain sum, and are exact enough."""
    found = _match(node)
    for transform, saved in () if found is None else _worthwhile(found):
        assert found is not None
        data = found.weight.arg.source.data
        filters, error = _filter_tiles(data, transform), difference(data, transform)
        if error <= MOST_ERROR and np.isfinite(filters).all():
            added = filters.nbytes - data.nbytes
            yield _Choice(node, transform, filters, error, saved, added)


def difference(filters: Array, transform: Transform) -> float:
    """How far transformed results in float32 are from plain sums in float64, of the greatest, on
    tiles of normally distributed data with some of the filters [M, C, 3, 3].
    """
    side, n = transform.side, transform.elements
    some = np.asarray(filters)[:: max(1, len(filters) // TRIED)][:TRIED]
    chosen = some.astype(np.float64)
    data = np.random.default_rng(0).normal(size=(n, n, TRIED, chosen.shape[1])).astype(np.float32)
    right = np.zeros((side, side, TRIED, len(chosen)))
    before, after = (np.asarray(m, np.float32) for m in (transform.data, transform.products))
    with np.errstate(all="ignore"):
        for i in range(TAPS):
            for j in range(TAPS):
                right += data[i : i + side, j : j + side].astype(np.float64) @ chosen[:, :, i, j].T
        products = _on_both_sides(before, data) @ _filter_tiles(some, transform).swapaxes(-1, -2)
        off = np.abs(_on_both_sides(after, products) - right).max(initial=0)
        greatest = np.abs(right).max(initial=0)
        return float(off / greatest) if greatest else float(off > 0)


def _on_both_sides(matrix: Array, array: Array) -> Array:
    """matrix @ array @ matrix^T over the first two axes."""
    left = np.einsum("ai,ijtc->ajtc", matrix, array)
    return np.einsum("bj,ajtc->abtc", matrix, left)


def _filter_tiles(filters: Array, transform: Transform) -> Array:
    """[n, n, M, C] of filters [M, C, 3, 3], computed in double precision."""
    data = np.ascontiguousarray(np.transpose(filters, (2, 3, 0, 1)), np.float64)
    with np.errstate(all="ignore"):
        return _on_both_sides(np.asarray(transform.filter), data).astype(np.float32)


def _match(node: UOp) -> _Convolution | None:
    """The convolution that a sum is, as `nn.conv` composes it."""
    product = node.src[0]
    if node.arg != args.Reduce(ops.ADD, (3, 6, 7)) or product.op is not ops.MUL:
        return None
    if node.dtype is not dt.float32 or not all(isinstance(size, int) for size in product.shape):
        return None
    batch, groups, filters, channels, height, width, rows, columns = map(fixed, product.shape)
    if groups != 1 or (rows, columns) != (TAPS, TAPS):
        return None
    data, weight = map(_viewed, product.src)
    shape = (filters, channels, TAPS, TAPS)
    if weight.op is not ops.BUFFER or weight.arg.source.kind != "weight" or weight.shape != shape:
        return None
    if weight.arg.source.data is None or data.op is not ops.WINDOW:
        return None
    inner = data.src[0]
    windows = [node.arg for node in (inner, data) if node.op is ops.WINDOW]
    if windows != [args.Window(axis, TAPS, 1, 1) for axis in (2, 3)]:
        return None
    x = inner.src[0]
    if x.shape != (batch, channels, height + TAPS - 1, width + TAPS - 1):
        return None
    return _Convolution(x, weight, batch, channels, filters, height, width)


def _viewed(node: UOp) -> UOp:
    """Below what adds axes of one element, or repeats them."""
    while node.op is ops.EXPAND or (node.op is ops.RESHAPE and _sizes(node) == _sizes(node.src[0])):
        node = node.src[0]
    return node


def _sizes(node: UOp) -> list[Size]:
    """Those of axes of more than one element."""
    return [size for size in node.shape if size != 1]


def _worthwhile(found: _Convolution) -> Iterator[tuple[Transform, float]]:
    """The transforms that cost less than the plain sum, and by how much."""
    plain = _cost(found, TAPS * TAPS, found.height * found.width, 0)
    for transform in TRANSFORMS:
        side = transform.side
        if found.height % side == 0 and found.width % side == 0:
            tiles = (found.height // side) * (found.width // side)
            elements = transform.elements**2
            moved = elements * tiles * (found.channels + found.filters)
            cost = _cost(found, elements, tiles, moved)
            if cost * LEAST_GAIN < plain:
                yield transform, plain - cost


def _cost(found: _Convolution, products: int, places: int, moved: int) -> float:
    """In products and sums: those of a matrix product, elements that are transformed, filters."""
    filters = products * found.channels * found.filters
    return found.batch * (filters * places + TRANSFORM * moved) + FILTER * filters


def _transformed(found: _Convolution, choice: _Choice) -> Tensor:
    """[N, 1, M, H, W]."""
    transform = choice.transform
    side, n = transform.side, transform.elements
    down, across = found.height // side, found.width // side
    tiles = Tensor(found.x).window(2, n, side).window(3, n, side)  # [N, C, down, across, n, n]
    data = tiles.permute((4, 5, 0, 1, 2, 3)).transform(transform.data).in_memory()
    left = data.reshape((n, n, found.batch, 1, found.channels, down, across))
    name = f"{found.weight.arg.source.name}.winograd{side}"
    filters = choice.filters.reshape((n, n, 1, found.filters, found.channels, 1, 1))
    right = Tensor.weight(name, filters)
    right = right.expand((n, n, found.batch, *right.shape[3:]))
    products = (left * right).sum(4).in_memory()  # [n, n, N, M, down, across]
    sums = products.transform(transform.products)
    shape = (found.batch, 1, found.filters, found.height, found.width)
    return sums.permute((2, 3, 4, 0, 5, 1)).reshape(shape)
