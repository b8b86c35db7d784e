"""Learning rates that depend on the number of updates done, an int32 scalar."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tinyedge.core import dtype as dt
from tinyedge.core.tensor.tensor import Tensor

Schedule = Callable[[Tensor], Tensor]


def constant(rate: float) -> Schedule:
    """The same rate always."""
    return lambda step: Tensor(float(rate), dt.float32)


def linear(first: float, last: float, steps: int) -> Schedule:
    """From the first rate to the last one in so many updates, which stays."""
    return lambda step: first + (last - first) * _part(step, steps)


def cosine(first: float, steps: int, last: float = 0.0) -> Schedule:
    """From the first rate to the last one along half a wave of a cosine (I. Loshchilov, F. Hutter,
    SGDR: Stochastic Gradient Descent with Warm Restarts, 2017), which stays.
    """
    return lambda step: last + (first - last) * 0.5 * (1.0 + (_part(step, steps) * math.pi).cos())


def exponential(first: float, factor: float, every: int = 1) -> Schedule:
    """The first rate times a factor for every so many updates, and parts of them."""
    if factor <= 0 or every < 1:
        raise ValueError(f"a factor of {factor} every {every} updates: both must be above 0")
    return lambda step: first * (step.cast(dt.float32) * (math.log(factor) / every)).exp()


def piecewise(first: float, rates: Mapping[int, float]) -> Schedule:
    """The first rate; from update n on, counted from 0, the rate given for n."""

    def at(step: Tensor) -> Tensor:
        rate = Tensor(float(first), dt.float32)
        for start in sorted(rates):
            rate = (step < start).where(rate, Tensor(float(rates[start]), dt.float32))
        return rate

    return at


def warmup(steps: int, then: Schedule | float) -> Schedule:
    """A rate that grows to what `then` begins with in so many updates; `then` counts from there."""
    schedule = then if callable(then) else constant(then)

    def at(step: Tensor) -> Tensor:
        later = schedule((step - steps).maximum(0))
        return later * _part(step + 1, steps)

    return at


def _part(step: Tensor, steps: int) -> Tensor:
    """Which part of so many updates is done, at most 1."""
    if steps < 1:
        raise ValueError(f"a schedule of {steps} updates")
    return step.minimum(steps).cast(dt.float32) / float(steps)
