"""What the rows of the table of primitives accept, and values worth trying for every type."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.ops import Primitive

Array = np.ndarray[Any, Any]

INTEGERS_ONLY = (ops.FLOORDIV, ops.MOD, ops.TRUNCDIV, ops.SHL, ops.SHR)
FLOATS_ONLY = (
    *(ops.DIV, ops.EXP, ops.LOG, ops.SQRT, ops.SIN, ops.COS, ops.TANH, ops.ISNAN, ops.POW),
    *(ops.FLOOR, ops.TRUNC, ops.ROUND, ops.FMOD),
)
BITS = (ops.AND, ops.OR, ops.XOR, ops.NOT)
ANY = (ops.WHERE, ops.CAST, ops.EQ)

# But for what the compiler makes where `Caps` says so.
MADE = (ops.PAIRS, ops.QUADS, ops.WORD, ops.LEVEL)
ELEMENTWISE = tuple(
    row
    for row in ops.TABLE.values()
    if row.elementwise and row.numpy is not None and row not in MADE
)

SUBNORMAL = 1e-40
SPECIAL = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-30, 3e38, 2.0**24),
    *(math.inf, -math.inf, math.nan),
)


def accepts(op: Primitive, dtype: DType) -> bool:
    """Whether a row takes operands of a type (of a select: as its branches)."""
    if op in BITS:
        return not dtype.is_float
    if op in INTEGERS_ONLY:
        return dtype.is_int
    if op in FLOATS_ONLY:
        return dtype.is_float
    if op is ops.ABS:
        return dtype.kind in "if"
    return dtype.kind != "b" or op in ANY


def special(dtype: DType, *, subnormal: bool = False) -> Array:
    """Values of a type at which operations go wrong, and a few ordinary ones."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.is_float:
        with np.errstate(over="ignore"):
            tiny = (SUBNORMAL, -SUBNORMAL) if subnormal and dtype is not dt.float16 else ()
            return np.array([*SPECIAL, *tiny], np.float64).astype(dtype.numpy)
    low, high = dtype.limits
    edges = {low, low + 1, max(low, -7), max(low, -1), 0, 1, 2, 7, high}
    return np.array(sorted(edges), dtype.numpy)


def random_values(dtype: DType, count: int, generator: np.random.Generator) -> Array:
    """Ordinary values of a type: small integers half of the time, floats around 0."""
    if dtype.kind == "b":
        return generator.integers(0, 2, count).astype(bool)
    if dtype.is_float:
        return generator.normal(0, 3, count).astype(dtype.numpy)
    low, high = dtype.limits
    wide = generator.integers(low, high, count, dtype.numpy, endpoint=True)
    small = generator.integers(max(low, -9), 10, count).astype(dtype.numpy)
    return np.where(generator.integers(0, 2, count) == 0, wide, small)


def pairs(arrays: Sequence[Array]) -> list[Array]:
    """Every combination of the arrays' elements, as one array per operand."""
    columns = list(zip(*itertools.product(*arrays), strict=True))
    return [np.array(c, a.dtype) for c, a in zip(columns, arrays, strict=True)]
