"""What ATTEND means: the sum of values by the softmax of their scores, as a memory primitive."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.memory import Element, Memory, NewRange, define, reduce_array, select
from tinyedge.core.ir.movement import Indices
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import maximum, minimum
from tinyedge.core.ir.uop import Shape, UOp, const, elementwise

Array = Any


def _attend_shape(node: UOp) -> Shape:
    scores, values = node.src
    return (*scores.shape[:-1], values.shape[-1])


def attend_arrays(
    attend: args.Attend, scores: Array, values: Array, axes: tuple[int, ...]
) -> Array:
    """The sum of values over axes, by the softmax of their scores there; the axes stay."""
    dtype = dt.from_numpy(values.dtype)
    with np.errstate(all="ignore"):
        most = reduce_array(ops.MAX, scores, axes, dtype, keepdims=True)
        weights = np.exp(scores - most)
        weights = weights / weights.sum(axis=axes, keepdims=True)
        if attend.zeros:
            weights = np.where(np.isnan(weights), 0, weights)
        total: Array = (weights * values).sum(axis=axes, keepdims=True)
        return total.astype(values.dtype)


def _attended(attend: args.Attend, scores: Array, values: Array) -> Array:
    rows = attend_arrays(attend, scores[..., None], values[..., None, :, :], (-2,))
    return rows.squeeze(-2)


def _attend_element(node: UOp, indices: Indices, valid: UOp, new_range: NewRange) -> Element:
    *batch, row, column = indices
    scores, values = node.src
    size = values.shape[-2]
    if maximum(size) == 0:
        return const(0, node.dtype)
    key = new_range(size, "reduce")
    score: UOp = yield (scores, (*batch, row, key), valid)
    value: UOp = yield (values, (*batch, key, column), valid)
    ranges = () if key is ix.ZERO else (key,)
    mean = UOp(ops.ATTEND_LOOP, node.dtype, (score, value, *ranges), node.arg)
    if minimum(size) > 0:
        return mean
    return select(ix.lt(0, size), mean, const(0, node.dtype))


def _attend_reads(node: UOp, operand: UOp) -> float | None:
    """A row's scores are computed once for all of its columns."""
    return None if operand is node.src[0] else float(maximum(node.shape[-2]))


def _attend_wrong(node: UOp) -> str:
    scores, values = (operand.shape for operand in node.src)
    if scores[:-2] != values[:-2] or scores[-1] != values[-2] or not node.dtype.is_float:
        return f"scores {scores} for values {values} of {node.dtype}"
    return "" if len({s.dtype for s in node.src}) == 1 else "scores and values of two types"


def divided(values: UOp, total: UOp, zeros: bool) -> UOp:
    """Summed values, scalars or vectors, by the sum of their weights."""
    lanes, zero = values.dtype.lanes, const(0, total.dtype)
    inverse = elementwise(ops.DIV, const(1, total.dtype), total)
    if not zeros:
        return elementwise(ops.MUL, values, repeated(inverse, lanes))
    inverse = elementwise(ops.WHERE, elementwise(ops.LT, zero, total), inverse, zero)
    mean = elementwise(ops.MUL, values, repeated(inverse, lanes))
    unknown = repeated(elementwise(ops.ISNAN, total), lanes)
    return elementwise(ops.WHERE, unknown, const(0, values.dtype), mean)


def repeated(value: UOp, lanes: int) -> UOp:
    """A value in all lanes of a vector, which are equal where it is one of other lanes."""
    if value.dtype.lanes == lanes:
        return value
    if value.dtype.lanes > 1:
        value = UOp(ops.LANE, value.dtype.scalar, (value,), 0)
        if lanes == 1:
            return value
    return UOp(ops.VECTOR, value.dtype.vector(lanes), (value,))


define(
    ops.ATTEND,
    Memory(
        *(_attend_shape, _attended, _attend_element),
        bounds=lambda node, operands: None,
        wrong=_attend_wrong,
        reads=_attend_reads,
        static=True,
    ),
)
