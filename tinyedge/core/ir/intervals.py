"""Interval arithmetic: between which values the results of a row lie, by those of its operands.

Bounds of index nodes (`polynomial.bounds`) and of integer tensors (`overflow`) rest on it;
what they know of sources, and of rows that only one of them meets, they know themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product as pairs
from typing import Union

from tinyedge.core.ir import ops
from tinyedge.core.ir.ops import Primitive

Bound = Union[int, float]  # infinite where nothing is known
Interval = tuple[Bound, Bound]

UNKNOWN: Interval = (-math.inf, math.inf)


def times(a: Bound, b: Bound) -> Bound:
    """A product of bounds, of which infinity times 0 is 0."""
    return a * b if a and b else 0


def floor_quotient(a: Bound, b: Bound) -> Bound:
    """floor(a / b) of bounds, for b > 0."""
    if math.isinf(a):
        return a
    if math.isinf(b):
        return -1 if a < 0 else 0
    return a // b


def union(*intervals: Interval) -> Interval:
    """The least interval that holds all."""
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def product(a: Interval, b: Interval) -> Interval:
    """Of the products of values in both."""
    corners = [times(x, y) for x, y in pairs(a, b)]
    return min(corners), max(corners)


def quotient(a: Interval, n: Interval) -> Interval:
    """Of floor(a / n), for n > 0: what would be divided by 0 is an index into nothing."""
    if n[0] < 0:
        return UNKNOWN
    corners = [floor_quotient(x, max(y, 1)) for x, y in pairs(a, n)]
    return min(corners), max(corners)


def remainder(a: Interval, n: Interval) -> Interval:
    """Of a - n * floor(a / n), for n > 0."""
    if n[0] < 0:
        return UNKNOWN
    most = max(n[1] - 1, 0)
    return 0, min(most, a[1]) if a[0] >= 0 else most


# By row, where it holds for all integers.
INTERVALS: dict[Primitive, Callable[..., Interval]] = {
    ops.ADD: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    ops.SUB: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    ops.NEG: lambda a: (-a[1], -a[0]),
    ops.ABS: lambda a: (max(0, a[0], -a[1]), max(-a[0], a[1])),
    ops.MUL: product,
    ops.MIN: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    ops.MAX: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    ops.WHERE: lambda condition, yes, no: union(yes, no),
}
