"""Conditions on one index, as the spans of values that they leave it: when two loads of one place,
each under its own condition, are one load.
"""

from __future__ import annotations

import math

from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.intervals import UNKNOWN, Interval
from tinyedge.core.ir.polynomial import added, bounds, build, scaled, terms
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import UOp

Spans = list[Interval]  # ascending, with a gap between any two


def either(condition: UOp, yes: UOp, no: UOp) -> UOp | None:
    """The conjunction that holds where `yes` does, under the condition, and where `no` does,
    elsewhere; None where it would not be a single span of the index that the condition is on.
    """
    found = _spans(condition)
    if found is None:
        return None
    index, inside = found
    one, rest = _along(index, yes)
    other, others = _along(index, no)
    if set(rest) != set(others):
        return None
    union = _union(_both(inside, one), _both(_complement(inside), other))
    if len(union) != 1:
        return ix.FALSE if not union else None
    low, high = union[0]
    held = [] if math.isinf(low) else [ix.le(int(low), index)]
    held += [] if math.isinf(high) else [ix.le(index, int(high))]
    return ix.all_of([*held, *rest])


def _along(index: UOp, guard: UOp) -> tuple[Spans, list[UOp]]:
    """What a conjunction leaves an index, and its other conditions."""
    spans, rest = [bounds(index)], []
    for condition in [] if guard is ix.TRUE else ix.conjuncts(guard):
        found = _spans(condition)
        if found is None or found[0] is not index:
            rest.append(condition)
        else:
            spans = _both(spans, found[1])
    return spans, rest


def _spans(condition: UOp) -> tuple[UOp, Spans] | None:
    """The index that a condition is on, without its constant, and what it leaves it; None of a
    condition on several or on none.
    """
    if condition.op is ops.NOT:
        found = _spans(condition.src[0])
        return found and (found[0], _complement(found[1]))
    if condition.op is ops.AND:
        one, other = map(_spans, condition.src)
        if one is None or other is None or one[0] is not other[0]:
            return None
        return one[0], _both(one[1], other[1])
    if condition.op is not ops.LT or condition.src[0].dtype is not dt.index:
        return None
    less, more = condition.src
    rest = dict(added(terms(more), scaled(terms(less), -1)))
    constant = rest.pop((), 0)
    index, opposite = build(rest), build(scaled(rest, -1))
    total = sum(rest.values())
    if (total, index.digest) > (-total, opposite.digest):  # one of the two stands for both
        return index, [(1 - constant, math.inf)]
    return opposite, [(-math.inf, constant - 1)]


def _both(a: Spans, b: Spans) -> Spans:
    pairs = [(max(x[0], y[0]), min(x[1], y[1])) for x in a for y in b]
    return sorted(pair for pair in pairs if pair[0] <= pair[1])


def _union(a: Spans, b: Spans) -> Spans:
    joined: Spans = []
    for low, high in sorted([*a, *b]):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return joined


def _complement(spans: Spans) -> Spans:
    left: Spans = [UNKNOWN]
    for low, high in spans:
        left = _both(left, [(-math.inf, low - 1), (high + 1, math.inf)])
    return left
