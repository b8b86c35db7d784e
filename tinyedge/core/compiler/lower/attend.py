"""The sum of values by the softmax of their scores, in one pass over blocks of keys.

What is kept of the keys so far is the greatest score m, the sum of the weights exp(score - m), and
the sum of the values by these weights. A block with a greater score lowers what was summed before
by exp(m before - m after):

    m' = max(m, scores);  f = exp(m - m');  w = exp(scores - m')
    sum = sum * f + w;    values = values * f + w * value;    m = m'

At the end the values are divided by the sum of the weights. Sources: Milakov and Gimelshein, Online
normalizer calculation for softmax, 2018; Rabe and Staats, Self-attention does not need O(n^2)
memory, 2021; Dao et al., FlashAttention, 2022.

m starts at the least finite number: a block whose scores are all -infinity has weights of 0, and a
row of such blocks alone has 0 / 0, the NaN that the plain softmax gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from tinyedge.core.compiler.lower.copies import at, at_each
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.attend import divided, repeated
from tinyedge.core.ir.rules.algebra import simplify
from tinyedge.core.ir.uop import UOp, as_node, const, decay, elementwise

# An expression in vectors along a range.
Wide = Callable[[UOp, UOp], UOp]


def attended(node: UOp) -> UOp:
    """An ATTEND_LOOP whose blocks are copies of unrolled ranges."""
    score, value, *ranges = node.src
    copied = [r for r in ranges if r.arg.kind == "unroll"]
    scores = list(at_each(score, copied))
    serial = tuple(r for r in ranges if r.arg.kind == "reduce")
    state = _State(node.dtype.scalar, reduce(_maximum, scores), serial)
    weights = [state.weight(score) for score in scores]
    values = list(at_each(value, copied))
    total = state.summed(reduce(_sum, weights))
    values_ = state.summed(_dot(weights, values))
    threads = tuple(r for r in ranges if r.arg.kind == "threads")
    if threads:
        values_, total = state.shared((values_, total), threads)
    return divided(values_, total, node.arg.zeros)


def attended_in_lanes(node: UOp, width: int, wide: Wide) -> UOp:
    """An ATTEND_LOOP whose blocks are vectors along its last range, of `width` lanes: scores and
    weights are computed in vectors, values are taken lane by lane.
    """
    score, value, *serial, along = node.src
    lane = along.replace((as_node(width),))
    firsts = range(0, along.src[0].arg, width)
    scores = [wide(at(score, {along: as_node(lane + first)}), lane) for first in firsts]
    scores = [score if score.dtype.lanes > 1 else repeated(score, width) for score in scores]
    greatest = UOp(ops.REDUCE_LANES, node.dtype.scalar, (reduce(_maximum, scores),), ops.MAX)
    state = _State(node.dtype.scalar, greatest, tuple(serial), width)
    vectors = [state.weight(score) for score in scores]
    weights = [
        UOp(ops.LANE, node.dtype.scalar, (vector,), i) for vector in vectors for i in range(width)
    ]
    values = [at(value, {along: as_node(i)}) for i in range(len(weights))]
    total = state.summed(reduce(_sum, vectors))
    total = UOp(ops.REDUCE_LANES, node.dtype.scalar, (total,), ops.ADD)
    return divided(state.summed(_dot(weights, values)), total, node.arg.zeros)


class _State:
    """The greatest score so far: before and after a block, whose own is `greatest`. lanes: of the
    vector in which the factor of what is summed is computed, as weights are.
    """

    def __init__(
        self, dtype: DType, greatest: UOp, serial: tuple[UOp, ...], lanes: int = 1
    ) -> None:
        least = const(np.finfo(dtype.numpy).min, dtype)
        block = self.most = _maximum(greatest, least)
        self.last = block  # of all keys of this thread
        self.serial = serial
        if serial:
            self.last = UOp(ops.REDUCE_LOOP, dtype, (block, *serial), ops.MAX)
            before = UOp(ops.RUNNING, dtype, (self.last,))
            self.most = _maximum(before, block)
            lowered = elementwise(ops.SUB, before, self.most)
            self.factor = decay(repeated(lowered, lanes))

    def weight(self, score: UOp) -> UOp:
        """Of one score, or of a vector of them."""
        shifted = elementwise(ops.SUB, score, repeated(self.most, score.dtype.lanes))
        return simplify(decay(shifted))

    def summed(self, part: UOp) -> UOp:
        """The sum over all blocks of what is part of each."""
        if not self.serial:
            return part
        factor = repeated(self.factor, part.dtype.lanes)
        return UOp(ops.RESCALED_LOOP, part.dtype, (part, factor, *self.serial))

    def shared(self, sums: Sequence[UOp], threads: tuple[UOp, ...]) -> list[UOp]:
        """Sums over the keys of all threads, of those over the keys of each."""
        dtype = self.last.dtype
        most = UOp(ops.GROUP_REDUCE, dtype, (self.last, *threads), ops.MAX)
        factor = decay(elementwise(ops.SUB, self.last, most))
        parts = [elementwise(ops.MUL, s, repeated(factor, s.dtype.lanes)) for s in sums]
        return [UOp(ops.GROUP_REDUCE, p.dtype, (p, *threads), ops.ADD) for p in parts]


def _dot(weights: Sequence[UOp], values: Sequence[UOp]) -> UOp:
    products = [
        elementwise(ops.MUL, repeated(weight, value.dtype.lanes), value)
        for weight, value in zip(weights, values, strict=True)
    ]
    return reduce(_sum, products)


def _maximum(a: UOp, b: UOp) -> UOp:
    return elementwise(ops.MAX, a, b)


def _sum(a: UOp, b: UOp) -> UOp:
    return elementwise(ops.ADD, a, b)
