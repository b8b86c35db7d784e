"""Sums of products of small integers, two or four products at a time.

    y[p, m] = sum(k: (a[p, k] * s) * (b[k, m] * t[m]))
        ->  y[p, m] = sum(j: pairs(u[p, j], v[j, m])) * (s * t[m])
            u[p, j] = a[p, j] & 0xffff | a[p, j + K / 2] << 16, and v of b alike

So quantized models have them: a and b were rounded to 8 bits, from which a zero point is taken away
and which are scaled. Where one instruction multiplies pairs of 16 bits and adds both products
(`Caps.pairs`), it does twice what one does of floats, and the sum is exact. What is rounded lies in
memory as the integers that it is; words of two are made of data once, before the product, and of
weights where they are used, as these are stored in as few bits as they take.

Where one instruction does that with bytes, unsigned ones and signed ones (`Caps.quads`), words are
of four integers that lie beside each other: what a kernel rounded is read as it lies in memory, and
words of weights take no more room than these, so that they are made at export. A zero point is
taken away from the sum, times the sum of the weights.

It is done where all integers are proved to fit 16 bits and all sums of them 32, and where each word
serves many products.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import mul

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.merged import MOVES, source_axis
from tinyedge.core.compiler.schedule.products import repeated_axes
from tinyedge.core.ir import args, ops, rewrite
from tinyedge.core.ir.overflow import interval
from tinyedge.core.ir.packed import packed_bits
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.tensor import Tensor

EXACT = 2**24  # up to which all whole numbers are floats
LEAST = 16  # products for which a word is used, and integers of a sum


@dataclass(frozen=True)
class _Side:
    """A factor: views, the outermost first, of integers, which may be made floats and scaled."""

    views: tuple[UOp, ...]
    whole: UOp
    scale: UOp | None
    floats: tuple[UOp, ...]  # of the integers, and scaled

    def axes(self, axis: int) -> list[int] | None:
        """An axis of the factor in what each view is of; None: it is taken apart on the way."""
        found: list[int] = []
        for view in self.views:
            below = source_axis(view, axis)
            if below is None or view.src[0].shape[below] != view.shape[axis]:
                return None
            found.append(axis := below)
        return found

    def words(self, axis: int) -> UOp:
        """The factor with words of two of its integers along an axis of them."""
        x = _joined(Tensor(self.whole), self.last(axis))
        return self.view(x if is_constant(self.whole) else x.in_memory(), axis)

    def last(self, axis: int) -> int:
        """An axis of the factor in the integers."""
        below = self.axes(axis)
        assert below is not None
        return [axis, *below][-1]

    def view(self, x: Tensor, axis: int) -> UOp:
        """The factor of words in place of its integers, which are fewer along an axis."""
        below = self.axes(axis)
        assert below is not None
        *places, last = axis, *below
        half = x.shape[last]
        for view, place in zip(reversed(self.views), reversed(places), strict=True):
            shape = tuple(half if a == place else size for a, size in enumerate(view.shape))
            if view.op in (ops.RESHAPE, ops.EXPAND):
                x = Tensor(UOp(view.op, x.dtype, (x.node,), shape))
            elif view.op is ops.SHRINK:
                spans = [(span.start, span.end) for span in view.arg]
                spans[place] = (0, half)
                x = x.shrink(spans)
            else:
                x = Tensor(UOp(view.op, x.dtype, (x.node,), view.arg))
        return x.node

    def factor(self, axes: tuple[int, ...]) -> Tensor | None:
        """What the integers are scaled by, for each result of a sum over some axes; None where it
        is not proved to be the same all along these.
        """
        assert self.scale is not None
        single = self.scale
        while single.op in MOVES and product(single.shape) != 1:
            single = single.src[0]
        if product(single.shape) == 1 and not _has_zeros(self.scale, single):
            return Tensor(single).reshape(())
        views = [*self.views]
        below = self.scale
        while below.op in MOVES:
            views.append(below)
            below = below.src[0]
        if any(view.op is ops.PAD for view in views):
            return None
        top = rewrite.viewed(self.scale, self.views)
        if not all(_is_repeated(views, axis) for axis in axes if top.shape[axis] != 1):
            return None
        ends = [(0, 1 if a in axes else size) for a, size in enumerate(top.shape)]
        kept = [size for a, size in enumerate(top.shape) if a not in axes]
        return Tensor(top).shrink(ends).reshape(kept)


def with_paired_products(roots: tuple[UOp, ...], *, quads: bool = False) -> dict[UOp, UOp]:
    """Every node, mapped to one in which products of small integers are computed in pairs; nothing
    where there are none. quads: by four, where they are of bytes.
    """
    order = toposort(roots)
    found = {node: axis for node in order if (axis := _paired_axis(node, quads)) is not None}
    apart = {node for node in order if node not in found and _is_apart(node)}
    if not found and not apart:
        return {}
    sides = [side for node in (*found, *apart) for side in _sides(node) or ()]
    rounded = {n for side in sides for n in _integers(side.whole) if _is_rounded(n)}

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in rounded:
            return Tensor(node.replace(src)).in_memory().node
        if node in apart:
            return _apart(node.replace(src))
        if node not in found:
            return None
        sides = _by_four(node, found[node]) if quads else None
        if sides is not None:
            return _quads(node.replace(src), found[node], sides)
        return _paired(node.replace(src), found[node])

    return rewrite.bottom_up(roots, change)


def integer_weights(roots: tuple[UOp, ...], *, quads: bool = False) -> set[UOp]:
    """What weights of integers are made of in products that `with_paired_products` computes of
    these, the last of it of floats: it stays as it is.
    """
    return {
        n
        for node in toposort(roots)
        if _paired_axis(node, quads) is not None or _is_apart(node)
        for side in _sides(node) or ()
        if is_constant(side.whole)
        for n in side.floats
    }


def _paired_axis(node: UOp, quads: bool) -> int | None:
    """The axis along which a sum's products are paired: the longest that both factors have as it
    is; None where the sum is not one of many small integers, or cannot be proved to be.
    """
    sides = _sides(node)
    if sides is None or _greatest(node, sides) > dt.int32.limits[1]:
        return None
    axes, shape = node.arg.axes, node.src[0].shape
    whole = [a for a in axes if all(side.axes(a) is not None for side in sides)]
    axis = max(whole, key=lambda a: fixed(shape[a]), default=None)
    if axis is None or fixed(shape[axis]) < LEAST:
        return None
    order = _by_four(node, axis) if quads else None
    made = node.src[0].src if order is None else (node.src[0].src[order[0]],)
    return axis if _are_shared(node, made) else None


def _greatest(node: UOp, sides: tuple[_Side, _Side]) -> float:
    """What no sum of products of integers exceeds; infinity where their scales are not the same
    for all of a sum, where all are weights, or some do not fit 16 bits.
    """
    axes = node.arg.axes
    steps = product(node.src[0].shape[a] for a in axes)
    if not isinstance(steps, int) or all(is_constant(side.whole) for side in sides):
        return math.inf
    most = float(steps)
    for low, high in (interval(side.whole, _is_rounded) for side in sides):
        least, greatest = dt.int16.limits
        if low < least or high > greatest:
            return math.inf
        most *= max(-low, high)
    scaled = [side for side in sides if side.scale is not None]
    return most if all(side.factor(axes) is not None for side in scaled) else math.inf


def _is_apart(node: UOp) -> bool:
    """Whether a sum of floats is one of few integers, each with a weight of its own, as those of
    depthwise layers: of floats that are whole numbers it is exact, too.
    """
    sides = _sides(node)
    if sides is None or node.dtype is not dt.float32:
        return False
    constant = [is_constant(side.whole) for side in sides]
    if constant.count(True) != 1:
        return False
    data = node.src[0].src[constant.index(False)]
    kept = {a for a in range(len(data.shape)) if a not in node.arg.axes and data.shape[a] != 1}
    if not kept.isdisjoint(repeated_axes(data)):
        return False
    return _greatest(node, sides) <= EXACT


def _are_shared(node: UOp, factors: tuple[UOp, ...]) -> bool:
    """Whether each element of factors is used in many results of a sum of products."""
    kept = [a for a in range(len(node.src[0].shape)) if a not in node.arg.axes]
    for side in factors:
        own = repeated_axes(side)
        if maximum(product(node.src[0].shape[a] for a in kept if a in own)) < LEAST:
            return False
    return True


def _sides(node: UOp) -> tuple[_Side, _Side] | None:
    """The factors of a sum of products, if both are made of integers."""
    if node.op is not ops.REDUCE or node.arg.op is not ops.ADD or node.src[0].op is not ops.MUL:
        return None
    if node.dtype not in (dt.float32, dt.int32):
        return None
    one, other = map(_side, node.src[0].src)
    return None if one is None or other is None else (one, other)


def _side(node: UOp) -> _Side | None:
    views = []
    while node.op in MOVES:
        views.append(node)
        node = node.src[0]
    scale, floats = None, []
    if node.op is ops.MUL and node.dtype is dt.float32:
        floats.append(node)
        one, other = node.src
        node, scale = (one, other) if _made_of_integers(one) else (other, one)
    if node.dtype is dt.float32:
        if not _made_of_integers(node):
            return None
        floats.append(node)
        node = node.src[0]
    if node.dtype is not dt.int32:
        return None
    return _Side(tuple(views), node, scale, tuple(floats))


def _made_of_integers(node: UOp) -> bool:
    return node.op is ops.CAST and node.src[0].dtype is dt.int32


def _is_rounded(node: UOp) -> bool:
    return node.op is ops.CAST and node.src[0].dtype.is_float


def _integers(node: UOp) -> list[UOp]:
    """The integers that a node is made of."""
    return toposort((node,), stop=_is_rounded)


def is_constant(node: UOp) -> bool:
    """Whether integers are made of weights alone."""
    return not any(
        _is_rounded(n)
        or n.op is ops.LOOP_OUTPUT
        or (n.op is ops.BUFFER and n.arg.source.data is None)
        for n in _integers(node)
    )


def _has_zeros(node: UOp, below: UOp) -> bool:
    """Whether views of one number have zeros beside it."""
    while node is not below:
        if node.op is ops.PAD:
            return True
        node = node.src[0]
    return False


def _is_repeated(views: list[UOp], axis: int) -> bool:
    """Whether a tensor that views are of is the same all along an axis of them."""
    for view in views:
        if axis in repeated_axes(view):
            return True
        below = source_axis(view, axis)
        if below is None:
            return False
        axis = below
    return False


def _joined(whole: Tensor, axis: int) -> Tensor:
    """Words of two integers each: of both halves of an axis, the second of which may be followed by
    a zero.
    """
    size = whole.shape[axis]
    half = (fixed(size) + 1) // 2
    ends = [(0, n) for n in whole.shape]
    low, high = list(ends), list(ends)
    low[axis], high[axis] = (0, half), (half, size)
    first, second = (whole.shrink(part).cast(dt.uint32) for part in (low, high))
    if 2 * half > fixed(size):
        second = second.pad([(0, int(a == axis)) for a in range(whole.ndim)])
    return ((first & 0xFFFF) | (second << 16)).cast(dt.int32)


def _paired(node: UOp, axis: int) -> UOp:
    """The sum by pairs along an axis."""
    sides = _sides(node)
    assert sides is not None
    axes = node.arg.axes
    words = tuple(side.words(axis) for side in sides)
    pairs = UOp(ops.PAIRS, dt.int32, words)
    total = Tensor(UOp(ops.REDUCE, dt.int32, (pairs,), args.Reduce(ops.ADD, axes)))
    return _scaled(total.cast(node.dtype), [*_factors(sides, axes)]).node


def _by_four(node: UOp, axis: int) -> tuple[int, int] | None:
    """Which factor of a sum is of unsigned bytes that a kernel rounded, and which of weights of
    signed ones; None where they are not, or where zeros around the bytes are no bytes.
    """
    sides = _sides(node)
    assert sides is not None
    weights = next((n for n, side in enumerate(sides) if is_constant(side.whole)), None)
    if weights is None or fixed(node.src[0].shape[axis]) % 4:
        return None
    found = _bytes(sides[1 - weights].whole)
    least, greatest = interval(sides[weights].whole, _is_rounded)
    if found is None or least < -128 or greatest > 127 or _is_packed(sides[weights].whole):
        return None
    padded = any(view.op is ops.PAD for view in sides[1 - weights].views)
    return None if found[1] and padded else (1 - weights, weights)


def _bytes(whole: UOp) -> tuple[UOp, int] | None:
    """What was rounded to unsigned bytes, and the zero point that is taken away from it."""
    zero = 0
    if whole.op is ops.SUB:
        whole, number = whole.src
        while number.op in (ops.EXPAND, ops.RESHAPE, ops.CAST):
            number = number.src[0]
        if number.op is not ops.CONST:
            return None
        zero = int(number.arg)
    if whole.op is not ops.CAST:
        return None
    rounded = whole.src[0]
    below = rounded.src[0] if rounded.op is ops.REALIZE else rounded
    return (rounded, zero) if below.dtype is dt.uint8 and _is_rounded(below) else None


def _is_packed(whole: UOp) -> bool:
    """Whether weights are stored in fewer bits than a byte."""
    sources = (n.arg.source.data for n in toposort((whole,)) if n.op is ops.BUFFER)
    return any(0 < packed_bits(data, dt.from_numpy(data.dtype)) < 8 for data in sources)


def _quads(node: UOp, axis: int, order: tuple[int, int]) -> UOp:
    """The sum by four products along an axis. What is taken away from all bytes is taken away from
    the sum, multiplied by the sum of the weights.
    """
    found = _sides(node)
    assert found is not None
    data, weights = found[order[0]], found[order[1]]
    bytes = _bytes(data.whole)
    assert bytes is not None
    axes = node.arg.axes
    words = data.view(_word(Tensor(bytes[0]).cast(dt.int32), data.last(axis)), axis)
    constant = _word(Tensor(weights.whole), weights.last(axis))
    (stored,) = evaluate([constant.node], {})
    filters = weights.view(Tensor.weight(f"{_name(weights.whole)}|quads", stored), axis)
    quads = UOp(ops.QUADS, dt.int32, (words, filters))
    total = Tensor(UOp(ops.REDUCE, dt.int32, (quads,), args.Reduce(ops.ADD, axes)))
    if bytes[1]:
        top = Tensor(rewrite.viewed(weights.whole, weights.views))
        alike = repeated_axes(top.node)
        once = top.shrink([(0, 1 if a in alike else size) for a, size in enumerate(top.shape)])
        # of open sizes there are repeats alone, of which one is left
        open_sizes = toposort([size for size in top.shape if isinstance(size, UOp)])
        sizes = {n.arg.name: n.arg.max for n in open_sizes if n.op is ops.SYMBOL}
        (sums,) = evaluate([once.sum(axes).node], {}, sizes)
        times = bytes[1] * product(top.shape[a] for a in alike if a in axes)
        total = total - Tensor.weight(f"{_name(weights.whole)}|sums", times * sums)
    return _scaled(total.cast(node.dtype), [*_factors(found, axes)]).node


def _word(whole: Tensor, axis: int) -> Tensor:
    """Words of four bytes each that lie beside each other along an axis."""
    shape = [*whole.shape]
    shape[axis : axis + 1] = [fixed(shape[axis]) // 4, 4]
    fours = whole.reshape(shape)
    ends = [(0, n) for n in shape]
    parts = []
    for place in range(4):
        ends[axis + 1] = (place, place + 1)
        parts.append(fours.shrink(ends).reshape([*shape[: axis + 1], *shape[axis + 2 :]]).node)
    return Tensor(UOp(ops.WORD, dt.int32, tuple(parts)))


def _name(whole: UOp) -> str:
    """That of the weights that integers are made of."""
    return str(next(n.arg.source.name for n in toposort((whole,)) if n.op is ops.BUFFER))


def _apart(node: UOp) -> UOp:
    """The sum of the integers' products, scaled."""
    sides = _sides(node)
    assert sides is not None
    floats = (Tensor(side.whole).cast(dt.float32).node for side in sides)
    factors = map(rewrite.viewed, floats, (side.views for side in sides))
    products = UOp(ops.MUL, dt.float32, tuple(factors))
    total = Tensor(node.replace((products,)))
    return _scaled(total, [*_factors(sides, node.arg.axes)]).node


def _factors(sides: tuple[_Side, _Side], axes: tuple[int, ...]) -> Iterator[Tensor]:
    for side in sides:
        if side.scale is not None:
            factor = side.factor(axes)
            assert factor is not None
            yield factor


def _scaled(total: Tensor, factors: list[Tensor]) -> Tensor:
    """A sum by what both of its factors are scaled by, which is multiplied first: there are fewer
    of these.
    """
    if not factors:
        return total
    return total * reduce(mul, factors)
