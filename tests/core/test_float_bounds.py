"""Bounds of a kernel's floats hold for the values that its operations give."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.float_bounds import FP16_MAX, bounds
from tinyedge.core.ir.intervals import UNKNOWN, Interval
from tinyedge.core.ir.uop import UOp

X = UOp(ops.SPECIAL, dt.float32, (), None)  # a float of which nothing is known


def const(value: float) -> UOp:
    return UOp(ops.CONST, dt.float32, (), value)


def of(op: ops.Primitive, *src: UOp) -> UOp:
    return UOp(op, dt.float32, src)


def sigmoid() -> UOp:
    return of(ops.DIV, const(1.0), of(ops.ADD, const(1.0), of(ops.EXP, of(ops.NEG, X))))


CASES: dict[str, tuple[UOp, Interval]] = {
    "relu": (of(ops.MAX, X, const(0.0)), (0.0, math.inf)),
    "relu6": (of(ops.MIN, of(ops.MAX, X, const(0.0)), const(6.0)), (0.0, 6.0)),
    "sigmoid": (sigmoid(), (0.0, 1.0)),
    "twice tanh": (of(ops.MUL, const(2.0), of(ops.TANH, X)), (-2.0, 2.0)),
    "chosen": (
        of(ops.WHERE, UOp(ops.LT, dt.bool_, (X, const(2.0))), const(2.0), X),
        (2.0, math.inf),
    ),
    "chosen, the other way": (
        of(ops.WHERE, UOp(ops.LT, dt.bool_, (const(2.0), X)), const(2.0), X),
        (-math.inf, 2.0),
    ),
    "chosen, neither": (
        of(ops.WHERE, UOp(ops.LT, dt.bool_, (X, const(2.0))), const(5.0), const(1.0)),
        (1.0, 5.0),
    ),
    "rounded up, or left as it is": (
        UOp(ops.CAST, dt.float16, (of(ops.MIN, of(ops.TANH, X), const(0.3)),)),
        (-1.0, 0.300048828125),
    ),
    "a byte": (UOp(ops.CAST, dt.float32, (UOp(ops.SPECIAL, dt.uint8, (), None),)), (0, 255)),
    "a sum": (of(ops.ADD, X, const(1.0)), UNKNOWN),
    "an infinity": (of(ops.ADD, const(math.inf), X), UNKNOWN),
    "NaN": (const(math.nan), UNKNOWN),
    "by what may be 0": (of(ops.DIV, const(1.0), of(ops.MAX, X, const(0.0))), UNKNOWN),
    "lanes": (
        UOp(ops.VECTOR, dt.float32.vector(2), (const(3.0), of(ops.TANH, X))),
        (-1.0, 3.0),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bounds(case: str) -> None:
    node, expected = CASES[case]
    assert bounds(node, {}) == expected


def test_fp16_in_memory() -> None:
    """What fp16 memory holds is within its range; a float32 may be anything."""
    for dtype, expected in ((dt.float16, (-FP16_MAX, FP16_MAX)), (dt.float32, UNKNOWN)):
        param = UOp(ops.PARAM, dtype, ())
        load = UOp(ops.LOAD, dt.float32, (param, UOp(ops.CONST, dt.index, (), 0)))
        assert bounds(load, {}) == expected
    assert float(np.finfo(np.float16).max) == FP16_MAX


def test_a_long_chain_is_visited_once() -> None:
    """A value used twice at every step: known ones are not entered again."""
    known: dict[UOp, Interval] = {}
    node = of(ops.TANH, X)
    for _ in range(2000):
        node = of(ops.MIN, node, of(ops.NEG, node))
        assert bounds(node, known) == (-1.0, 1.0)
    assert len(known) == 2 + 2 * 2000
