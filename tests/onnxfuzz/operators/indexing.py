"""Gathers, scatters and sorting."""

from __future__ import annotations

import numpy as np

from tests.onnxfuzz.builder import ALL, INDEX, NUMBERS, Builder, Unsuitable
from tests.onnxfuzz.makers import Made, maker


def places(g: Builder, shape: tuple[int, ...], size: int, kind: str = "") -> str:
    """Indices into an axis, some from its end."""
    if size == 0:
        raise Unsuitable
    chosen = kind or g.choice(INDEX)
    return g.filled(shape, lambda rng, s: rng.integers(-size, size, s).astype(chosen))


@maker("Gather", weight=2)
def gather(g: Builder, op: str) -> Made:
    x = g.pick(ALL, 1)
    axis = g.axis(x)
    shape = g.shape(0, 2)
    return g.node(op, [x, places(g, shape, g.least(x, axis))], axis=axis)


@maker("GatherElements")
def gather_elements(g: Builder, op: str) -> Made:
    x = g.pick(ALL, 1, least=1)
    axis = g.axis(x)
    shape = [g.integer(1, g.least(x, a)) for a in range(g.array(x).ndim)]
    shape[axis] = g.size(1)
    return g.node(op, [x, places(g, tuple(shape), g.least(x, axis))], axis=axis)


def _tuples(g: Builder, x: str, batch: int, depth: int, shape: tuple[int, ...]) -> str:
    sizes = np.array([g.least(x, batch + a) for a in range(depth)])
    if (sizes == 0).any():
        raise Unsuitable
    return g.filled((*shape, depth), lambda rng, s: rng.integers(-sizes, sizes, s))


@maker("GatherND")
def gather_nd(g: Builder, op: str) -> Made:
    x = g.pick(ALL, 1, least=1)
    rank = g.array(x).ndim
    batch = g.integer(0, min(1, rank - 1))
    depth = g.integer(1, rank - batch)
    shape = (*g.shape_of(x)[:batch], *g.shape(0, 2))
    return g.node(op, [x, _tuples(g, x, batch, depth, shape)], batch_dims=batch or None)


def _reduction(g: Builder, kind: str) -> str | None:
    if kind == "bool":
        return None
    choices = [None, "none", "add", "mul"] if g.opset >= 16 else [None]
    return g.choice([*choices, "max", "min"] if g.opset >= 18 else choices)


@maker("ScatterElements", weight=1.5)
def scatter_elements(g: Builder, op: str) -> Made:
    """Without a reduction, no place twice: which of the updates stays is not defined."""
    x = g.pick(ALL, 1, 3, least=1)
    kind = g.kind_of(x)
    axis = g.axis(x)
    size = g.least(x, axis)
    reduction = _reduction(g, kind)
    shape = [g.integer(1, g.least(x, a)) for a in range(g.array(x).ndim)]
    if reduction in (None, "none"):
        wanted = g.integer(1, size)
        wanted -= wanted == g.open  # which would be another number in the second world
        shape[axis] = wanted

        def distinct(rng, s):
            order = np.argsort(rng.random((*s, size)), -1)[..., 0]
            rows = np.argsort(
                rng.random([*(1 if a == axis % len(s) else n for a, n in enumerate(s)), size]), -1
            )
            rows = np.moveaxis(rows, -1, axis % len(s))
            rows = rows.reshape([n if a != axis % len(s) else size for a, n in enumerate(s)])
            rows = np.take(rows, range(wanted), axis % len(s))
            return np.where(order % 2 == 0, rows, rows - size)

        index = g.filled(tuple(shape), distinct)
    else:
        shape[axis] = g.size(1)
        index = places(g, tuple(shape), size, "int64")
    updates = g.leaf(kind, tuple(shape))
    return g.node(op, [x, index, updates], axis=axis, reduction=reduction)


@maker("ScatterND", weight=1.5)
def scatter_nd(g: Builder, op: str) -> Made:
    x = g.pick(ALL, 1, 3, least=1)
    kind = g.kind_of(x)
    rank = g.array(x).ndim
    depth = g.integer(1, rank)
    reduction = _reduction(g, kind)
    inner = tuple(g.shape_of(x)[depth:])
    if reduction in (None, "none"):
        sizes = [g.least(x, a) for a in range(depth)]
        count = g.integer(1, int(np.prod(sizes)))
        count -= count == g.open  # as above

        def distinct(rng, s):
            chosen = rng.permutation(int(np.prod(sizes)))[:count]
            return np.stack(np.unravel_index(chosen, sizes), -1)

        index = g.filled((count, depth), distinct)
        shape: tuple[int, ...] = (count,)
    else:
        shape = g.shape(1, 2)
        index = _tuples(g, x, 0, depth, shape)
    return g.node(op, [x, index, g.leaf(kind, (*shape, *inner))], reduction=reduction)


@maker("OneHot")
def one_hot(g: Builder, op: str) -> Made:
    depth = g.choice((1, 2, 5))
    shape = g.shape(0, 3)
    index = g.filled(shape, lambda rng, s: rng.integers(-depth - 1, depth + 2, s))
    kind = g.choice(("float32", "int64", "int32"))
    values = g.constant([0, 1] if g.chance(0.7) else [3, -2], kind)
    axis = g.choice((None, -1, g.integer(0, len(shape))))
    return g.node(op, [index, g.constant(g.choice((depth, [depth]))), values], axis=axis)


@maker("TopK", weight=1.5)
def top_k(g: Builder, op: str) -> Made:
    x = g.pick(("float32", "float64", "int64", "int32"), 1, least=1, when=_ordered)
    axis = g.axis(x)
    k = g.constant([g.integer(0 if g.chance(0.1) else 1, g.least(x, axis))])
    return g.node(op, [x, k], 2, axis=axis, largest=g.choice((None, 0, 1)), sorted=1)


def _ordered(array) -> bool:
    return array.dtype.kind != "f" or not np.isnan(array).any()


@maker("Compress")
def compress(g: Builder, op: str) -> Made:
    x = g.pick(("float32", "int64", "bool", "float64", "int8"), 1)
    axis = g.axis(x) if g.chance(0.7) else None
    size = g.least(x, axis) if axis is not None else min(v.array.size for v in g.values[x])
    length = g.integer(0, size)
    if length == g.open:  # which would grow with the symbol
        raise Unsuitable
    return g.node(op, [x, g.leaf("bool", (length,))], axis=axis)


@maker("NonZero")
def non_zero(g: Builder, op: str) -> Made:
    return g.node(op, [g.pick(("float32", "int64", "bool", "int32"), 1, 4)])


@maker("Unique")
def unique(g: Builder, op: str) -> Made:
    x = g.pick(("float32", "int64", "float64"), 1, 3, style="small", when=_ordered, least=1)
    axis = g.axis(x) if g.chance(0.5) else None
    return g.node(op, [x], g.integer(1, 4), axis=axis, sorted=g.choice((None, 0, 1)))


@maker("TensorScatter")
def tensor_scatter(g: Builder, op: str) -> Made:
    if g.opset < 24:
        raise Unsuitable
    x = g.pick(NUMBERS, 3, 4, least=2)
    shape = list(g.shape_of(x))
    shape[-2] = g.integer(1, g.least(x, -2))
    room = g.least(x, -2) - shape[-2]
    update = g.leaf(g.kind_of(x), tuple(shape))
    start = g.filled(tuple(shape[:1]), lambda rng, s: rng.integers(0, room + 1, s))
    return g.node(op, [x, update, start], mode="linear")
