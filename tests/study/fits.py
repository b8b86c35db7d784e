"""Straight lines through measurements: t = a + b*n, slopes of growth, and where two lines meet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Line:
    """t = a + b * n. a: what a call takes, b: what each of n takes, in seconds."""

    a: float
    b: float

    def meets(self, other: Line) -> float | None:
        """The n > 0 at which both take the same time; None where there is none."""
        if self.b == other.b:
            return None
        n = (other.a - self.a) / (self.b - other.b)
        return n if n > 0 else None


def line(points: Mapping[int, float]) -> Line:
    """The line with the least sum of squared relative differences, so that small n count as much
    as large ones; a is 0 where it would be less. Raises ValueError for fewer than two points.
    """
    if len(points) < 2:
        raise ValueError("a line needs two sizes")
    n, t = (np.array(values, np.float64) for values in (list(points), list(points.values())))
    columns = np.stack([1 / t, n / t], 1)
    (a, b), *_ = np.linalg.lstsq(columns, np.ones(len(n)), rcond=None)
    if a < 0:
        weights = n / t
        a, b = 0.0, weights.sum() / (weights**2).sum()
    return Line(float(a), float(b))


def power(points: Mapping[float, float]) -> float:
    """The exponent p of t = c * n^p, fitted to logarithms: 1 where t grows as n does."""
    n, t = (np.log(np.array(values)) for values in (list(points), list(points.values())))
    return float(np.polyfit(n, t, 1)[0])


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
