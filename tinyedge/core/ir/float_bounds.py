"""Between which values the floats of a kernel lie, as far as its operations say."""

from __future__ import annotations

import math
from collections.abc import MutableMapping

import numpy as np

from tinyedge.core.ir import ops
from tinyedge.core.ir.intervals import INTERVALS, UNKNOWN, Interval, union
from tinyedge.core.ir.uop import UOp, toposort

FP16_MAX = 65504.0

_RESULTS: dict[ops.Primitive, Interval] = {
    ops.EXP: (0.0, math.inf),
    ops.TANH: (-1.0, 1.0),
    ops.SIN: (-1.0, 1.0),
    ops.COS: (-1.0, 1.0),
}
_SAME = (ops.VECTOR, ops.LANE)  # of their operands' values


def bounds(root: UOp, known: MutableMapping[UOp, Interval]) -> Interval:
    """Least and greatest value of a float node where it is neither NaN nor, if memory or arithmetic
    gave an infinity, infinite; infinite where nothing is known.

    known: bounds of nodes seen before, to which those seen now are added. Rounding moves no value
    over a bound that is a float, and sums and products are bounded in double precision.
    """
    for node in toposort((root,), known.__contains__):
        if node not in known:
            known[node] = _of(node, known)
    return known[root]


def _of(node: UOp, known: MutableMapping[UOp, Interval]) -> Interval:
    if not node.dtype.is_float:
        return UNKNOWN
    if node.op is ops.CONST:
        return (float(node.arg), float(node.arg)) if math.isfinite(node.arg) else UNKNOWN
    if node.op is ops.LOAD:
        holds_fp16 = node.src[0].dtype.is_float and node.src[0].dtype.bits == 16
        return (-FP16_MAX, FP16_MAX) if holds_fp16 else UNKNOWN
    if node.op in _RESULTS:
        return _RESULTS[node.op]
    operands = [known.get(s, UNKNOWN) for s in node.src]
    if node.op in _SAME:
        return union(*operands)
    if node.op is ops.CAST:
        return _converted(node, known)
    if node.op is ops.WHERE and node.src[0].op is ops.LT:
        return _chosen(node, known)
    if node.op is ops.DIV:
        return _quotient(*operands)
    rule = INTERVALS.get(node.op)
    return UNKNOWN if rule is None else rule(*operands)


def _converted(node: UOp, known: MutableMapping[UOp, Interval]) -> Interval:
    """Of a cast, which a kernel may leave out where it makes a float narrower."""
    source = node.src[0]
    if source.dtype.kind in "iu":
        return source.dtype.limits
    if not source.dtype.is_float:
        return UNKNOWN
    low, high = known[source]
    if node.dtype.bits == 16 and -FP16_MAX <= low and high <= FP16_MAX:
        return min(low, float(np.float16(low))), max(high, float(np.float16(high)))
    return low, high


def _chosen(node: UOp, known: MutableMapping[UOp, Interval]) -> Interval:
    """Of a < b ? yes : no, where yes or no may be a or b themselves."""
    condition, yes, no = node.src
    a, b = (known.get(s, UNKNOWN) for s in condition.src)
    below = {condition.src[0]: (a[0], min(a[1], b[1])), condition.src[1]: (max(a[0], b[0]), b[1])}
    above = {condition.src[0]: (max(a[0], b[0]), a[1]), condition.src[1]: (b[0], min(a[1], b[1]))}
    return union(below.get(yes, known.get(yes, UNKNOWN)), above.get(no, known.get(no, UNKNOWN)))


def _quotient(a: Interval, b: Interval) -> Interval:
    """Of a / b where b is positive, away from 0."""
    if b[0] <= 0 or math.isinf(a[0]) or math.isinf(a[1]):
        return UNKNOWN
    corners = [x / y for x in a for y in b]
    return min(corners), max(corners)
