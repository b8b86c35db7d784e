"""Quotients rounded to integers of 8 bits, as quantized models make them of floats.

    uint8(round(x / s) + z)   ->   uint8(LEVEL(x, s, -z) + z)

The row LEVEL leaves out what a quotient, a rounding and a cast do for all numbers: x is limited
before it is divided, so that nothing is too great for an integer, and rounding is an addition. A
division takes as long as ten products. Where products and sums are rounded once, x * (r + e), with
r = 1 / s and e what r lacks of it, rounded to floats each, is the rounded quotient for nearly all s
(Brisebarre, Muller and Raina: "Accelerating correctly rounded floating-point division when the
divisor is known in advance", 2004). Both are monotonic in x, so that what they are rounded to is
the same for all x if it is for those beside the 255 numbers where one level ends: it is proved so
for each step, and other steps are left as they are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.tensor.tensor import Tensor

LEVELS = 256
FLOATS = 8  # beside the end of a level that are tried
LIMITS = (1e-30, 1e30)  # of steps: no product with a level or a quotient leaves the normal numbers

Array = np.ndarray[Any, Any]


def with_levels(roots: tuple[UOp, ...]) -> dict[UOp, UOp]:
    """Every node, mapped to one in which quotients are rounded to levels; nothing where none is."""
    found = {node: match for node in toposort(roots) if (match := _match(node)) is not None}
    if not found:
        return {}

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node not in found:
            return None
        step, zero = found[node]
        quotient, _ = _quotient(src[0])
        assert quotient is not None
        return _levels(Tensor(quotient.src[0]), step, zero, node.dtype).node

    return bottom_up(roots, change)


def _match(node: UOp) -> tuple[float, int] | None:
    """The step and the zero point, if a node is a quotient rounded to 8 bits."""
    if node.op is not ops.CAST or node.dtype not in (dt.int8, dt.uint8):
        return None
    quotient, zero = _quotient(node.src[0])
    if quotient is None:
        return None
    step = _single(quotient.src[1])
    least, most = node.dtype.limits
    if quotient.dtype is not dt.float32 or step is None or zero not in range(least, most + 1):
        return None
    return (step, int(zero)) if is_proved(step, least - int(zero)) else None


def _quotient(rounded: UOp) -> tuple[UOp | None, float]:
    """The division of which a tensor is the rounded result, if it is one, and the zero point that
    is added to it: there may be an addition of 0.
    """
    zero = 0.0
    if rounded.op is ops.ADD:
        numbers = [_single(s) for s in rounded.src]
        if numbers.count(None) != 1:
            return None, zero
        place = numbers.index(None)
        rounded, zero = rounded.src[place], numbers[1 - place] or 0.0
    if rounded.op is not ops.ROUND or rounded.src[0].op is not ops.DIV:
        return None, zero
    return rounded.src[0], zero


def _single(node: UOp) -> float | None:
    """The number that a tensor has in all places, if it is a constant."""
    while node.op in (ops.EXPAND, ops.RESHAPE, ops.CAST):
        node = node.src[0]
    return float(node.arg) if node.op is ops.CONST else None


def _levels(x: Tensor, step: float, zero: int, dtype: DType) -> Tensor:
    """The codes of x."""
    least, _ = dtype.limits
    if least:  # NaN gives 0
        x = x.isnan().where(float(np.float32(step) * np.float32(-zero)), x)
    numbers = (Tensor.full(x.shape, n, dt.float32).node for n in (step, float(least - zero)))
    level = Tensor(UOp(ops.LEVEL, dt.int32, (x.node, *numbers)))
    return (level + zero if zero else level).cast(dtype)


@lru_cache(maxsize=4096)
def is_proved(step: float, low: int) -> bool:
    """Whether floats are rounded to the same levels by quotients and by products."""
    s = np.float32(step)
    if not LIMITS[0] <= s <= LIMITS[1]:
        return False
    levels = np.arange(low, low + LEVELS, dtype=np.float32)
    x = _beside((levels[:-1] + 0.5) * s)
    exact = np.rint(x / s)
    apart = np.array_equal(exact[:, 0], levels[:-1]) and np.array_equal(exact[:, -1], levels[1:])
    limits = np.array_equal(np.rint(levels * s / s), levels)
    same = all(np.array_equal(exact, np.rint(found)) for found in _products(x, s))
    return apart and limits and same


def _beside(numbers: Array) -> Array:
    """The floats beside numbers, in rising order."""
    found = [numbers]
    for _ in range(FLOATS):
        found.insert(0, np.nextafter(found[0], np.float32(-np.inf)))
        found.append(np.nextafter(found[-1], np.float32(np.inf)))
    return np.stack(found, axis=1)


def _products(x: Array, s: Any) -> list[Array]:
    """x * (r + e) rounded to floats, for the least and the greatest number that it may be: of a sum
    in double precision, the last bit is not known.
    """
    r = np.float32(1) / s
    rest = np.float64(1) - np.float64(s) * np.float64(r)  # exact
    e = np.float32(np.float32(rest) / s)
    total = x.astype(np.float64) * np.float64(r) + (x * e).astype(np.float64)
    return [(total * (1 + sign * 2.0**-51)).astype(np.float32) for sign in (-1, 1)]
