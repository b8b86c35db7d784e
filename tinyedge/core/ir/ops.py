"""The table of primitive operations: one row each; printers, evaluator and tests derive from it.

A node of the graph (`uop.UOp`) refers to its row. Rows are compared by identity. Where a node holds
more than its operands, the row says what: a record of `args`, or a single value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinyedge.core.dtype import DType

Array = Any


@dataclass(frozen=True, eq=False)
class Primitive:
    """One primitive operation."""

    name: str
    # source, unary, binary, ternary, cast, movement, reduce, memory, loop, kernel or statement
    group: str
    arity: int
    numpy: Callable[..., Array] | None = None  # its meaning on arrays, for elementwise rows
    c: str = ""  # default spelling in a C-like language, `{0}` is the first operand
    result: str = "same"  # "same" as the operands, "bool" or "int32"
    commutative: bool = False
    identity: float | None = None  # the neutral element where the row can combine a reduction
    cost: int = 1

    def __repr__(self) -> str:
        return self.name

    @property
    def elementwise(self) -> bool:
        return self.group in _ELEMENTWISE


_ELEMENTWISE = frozenset(("unary", "binary", "ternary", "cast"))
TABLE: dict[str, Primitive] = {}


def _row(name: str, group: str, arity: int, **facts: Any) -> Primitive:
    row = TABLE[name] = Primitive(name, group, arity, **facts)
    return row


def _quiet(function: Callable[..., Array]) -> Callable[..., Array]:
    def call(*operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return function(*operands)

    return call


def _power(a: Array, b: Array) -> Array:
    """numpy takes a square root for an exponent that repeats 0.5, which differs for -inf."""
    shape = np.broadcast_shapes(np.shape(a), np.shape(b))
    return np.power(a, np.array(np.broadcast_to(b, shape), ndmin=1)).reshape(shape)


def _truncated_quotient(a: Array, b: Array) -> Array:
    safe = np.where(b == 0, 1, b)
    quotient = np.floor_divide(a, safe)
    inexact = quotient * safe != a
    return quotient + np.where(inexact & ((a < 0) != (safe < 0)), 1, 0).astype(quotient.dtype)


def _pair_products(a: Array, b: Array) -> Array:
    low, high = (x.astype(np.int16).astype(x.dtype) for x in (a, b)), (x >> 16 for x in (a, b))
    return np.multiply(*low) + np.multiply(*high)


def _word(*parts: Array) -> Array:
    bytes = [part.astype(np.uint32) & 0xFF for part in parts]
    return sum(byte << np.uint32(8 * n) for n, byte in enumerate(bytes)).astype(np.int32)


def _quad_products(a: Array, b: Array) -> Array:
    shifts = range(24, -8, -8)
    parts = ((a << (24 - n) >> 24 & 0xFF, b << (24 - n) >> 24) for n in shifts)
    return sum(np.multiply(*part) for part in parts)


def _level(x: Array, step: Array, low: Array) -> Array:
    levels = np.clip(np.rint(x / step), low, low + 255)
    return np.where(np.isnan(levels), low, levels).astype(np.int32)


def _floored(function: Callable[..., Array]) -> Callable[..., Array]:
    def call(a: Array, b: Array) -> Array:
        return function(a, np.where(b == 0, np.ones_like(b), b))

    return _quiet(call)


# Sources.
CONST = _row("const", "source", 0)  # arg: the value
BUFFER = _row("buffer", "source", 0)  # arg: Buffer
SYMBOL = _row("symbol", "source", 0)  # arg: Symbol; counts the steps of a size
IOTA = _row("iota", "source", 0)  # arg: its shape; 0, 1, 2, ...
EMPTY = _row("empty", "source", 0)  # arg: shape; contents undefined until assigned

# Elementwise, one operand.
NEG = _row("neg", "unary", 1, numpy=_quiet(np.negative), c="(-{0})")
NOT = _row("not", "unary", 1, numpy=np.invert, c="(~{0})")
# arg: True where the operand is known to be at most 0; what is less than any normal number may be 0
EXP = _row("exp", "unary", 1, numpy=_quiet(np.exp), c="exp({0})", cost=8)
LOG = _row("log", "unary", 1, numpy=_quiet(np.log), c="log({0})", cost=8)
SQRT = _row("sqrt", "unary", 1, numpy=_quiet(np.sqrt), c="sqrt({0})", cost=4)
SIN = _row("sin", "unary", 1, numpy=_quiet(np.sin), c="sin({0})", cost=12)
COS = _row("cos", "unary", 1, numpy=_quiet(np.cos), c="cos({0})", cost=12)
TANH = _row("tanh", "unary", 1, numpy=_quiet(np.tanh), c="tanh({0})", cost=12)
FLOOR = _row("floor", "unary", 1, numpy=np.floor, c="floor({0})")
TRUNC = _row("trunc", "unary", 1, numpy=np.trunc, c="trunc({0})")
ROUND = _row("round", "unary", 1, numpy=np.rint, c="rint({0})")  # half to even
ABS = _row("abs", "unary", 1, numpy=_quiet(np.abs), c="abs({0})")
ISNAN = _row("isnan", "unary", 1, numpy=np.isnan, c="isnan({0})", result="bool")
STOP_GRADIENT = _row("stop_gradient", "unary", 1, numpy=np.array, c="{0}", cost=0)  # same values
# The same values; what states' new values are made of from here on is kept in full, see `full`.
IN_FULL = _row("in_full", "unary", 1, numpy=np.array, c="{0}", cost=0)

# Elementwise, two operands.
ADD = _row("add", "binary", 2, numpy=_quiet(np.add), c="({0} + {1})", commutative=True, identity=0)
SUB = _row("sub", "binary", 2, numpy=_quiet(np.subtract), c="({0} - {1})")
MUL = _row(
    "mul", "binary", 2, numpy=_quiet(np.multiply), c="({0} * {1})", commutative=True, identity=1
)
DIV = _row("div", "binary", 2, numpy=_quiet(np.true_divide), c="({0} / {1})", cost=3)  # floats
FLOORDIV = _row("floordiv", "binary", 2, numpy=_floored(np.floor_divide), cost=4)  # integers
MOD = _row("mod", "binary", 2, numpy=_floored(np.mod), cost=4)  # integers, sign of the divisor
TRUNCDIV = _row("truncdiv", "binary", 2, numpy=_quiet(_truncated_quotient), c="({0} / {1})", cost=4)
FMOD = _row("fmod", "binary", 2, numpy=_quiet(np.fmod), c="fmod({0}, {1})", cost=16)  # exact
POW = _row("pow", "binary", 2, numpy=_quiet(_power), c="pow({0}, {1})", cost=16)
MAX = _row(  # a NaN in either operand gives NaN
    "max",
    "binary",
    2,
    numpy=_quiet(np.maximum),
    c="max({0}, {1})",
    commutative=True,
    identity=-np.inf,
)
MIN = _row(
    "min",
    "binary",
    2,
    numpy=_quiet(np.minimum),
    c="min({0}, {1})",
    commutative=True,
    identity=np.inf,
)
LT = _row("lt", "binary", 2, numpy=_quiet(np.less), c="({0} < {1})", result="bool")
LE = _row("le", "binary", 2, numpy=_quiet(np.less_equal), c="({0} <= {1})", result="bool")
EQ = _row(
    "eq", "binary", 2, numpy=_quiet(np.equal), c="({0} == {1})", result="bool", commutative=True
)
AND = _row("and", "binary", 2, numpy=np.bitwise_and, c="({0} & {1})", commutative=True)
OR = _row("or", "binary", 2, numpy=np.bitwise_or, c="({0} | {1})", commutative=True)
XOR = _row("xor", "binary", 2, numpy=np.bitwise_xor, c="({0} ^ {1})", commutative=True)
# Of words of two signed 16-bit integers: the products of the low ones and of the high ones, added.
PAIRS = _row("pairs", "binary", 2, numpy=_quiet(_pair_products), commutative=True)
# Of words of four 8-bit integers, unsigned ones and signed ones: the products, added.
QUADS = _row("quads", "binary", 2, numpy=_quiet(_quad_products))
SHL = _row("shl", "binary", 2, numpy=np.left_shift, c="({0} << {1})")
SHR = _row("shr", "binary", 2, numpy=np.right_shift, c="({0} >> {1})")

# Elementwise, three operands; conversions.
WHERE = _row("where", "ternary", 3, numpy=np.where, c="({0} ? {1} : {2})")
# Of four int32: a word of their low bytes, the lowest of the first.
WORD = _row("word", "ternary", 4, numpy=_quiet(_word))
# Of float32 x, a step and the least level, a whole number: x / step rounded half to even, at least
# the least level, as also for NaN, and at most 255 more. The step is one that `levels` proved.
LEVEL = _row("level", "ternary", 3, numpy=_quiet(_level), result="int32", cost=4)
CAST = _row("cast", "cast", 1)  # numpy's conversion; out-of-range floats saturate, NaN gives 0
BITCAST = _row("bitcast", "cast", 1)  # same bits, same width

# Movement: free, index arithmetic only.
RESHAPE = _row("reshape", "movement", 1)  # arg: shape
PERMUTE = _row("permute", "movement", 1)  # arg: axes
EXPAND = _row("expand", "movement", 1)  # arg: shape; axes of size 1 repeat
PAD = _row("pad", "movement", 1)  # arg: a Margin for each axis; zeros
SHRINK = _row("shrink", "movement", 1)  # arg: a Span for each axis
FLIP = _row("flip", "movement", 1)  # arg: axes
# arg: Window; a new last axis j:
# out[.., i, .., j] = in[.., i*stride + j*dilation, ..]
WINDOW = _row("window", "movement", 1)
# The first operand, computed anew, and not before the others are there: what is made of it is made
# by kernels that come after theirs.
AFTER = _row("after", "movement", -1)

# Reduce, indexed access, assignment, materialization.
REDUCE = _row("reduce", "reduce", 1)  # arg: Reduce; its axes disappear
GATHER = _row("gather", "memory", 2)  # arg: axis; in numpy: take(data, indices, axis); 0 outside
ASSIGN = _row(
    "assign", "memory", 2
)  # arg: a Span for each axis; the base with that region replaced
# arg: Transform; m @ in @ m^T over the first two axes, for each element of the others
TRANSFORM = _row("transform", "memory", 1)
# arg: Attend; scores [*B, R, K], values [*B, K, C]: softmax(scores over K) @ values
ATTEND = _row("attend", "memory", 2)
REALIZE = _row("realize", "memory", 1)  # the same values, in memory
UPDATE_ROW = _row(
    "update_row", "memory", 3
)  # base, value, position: the base with base[position] = value
# arg: Scatter; base [*lead, R, *rest], indices [*lead, K], updates
# [*lead, K, *rest]: for k = 0, 1, .. in this order, base[.., indices[.., k], ..] is combined with
# updates[.., k, ..], or replaced by it (None); nothing happens at an index outside of [0, R).
SCATTER = _row("scatter", "memory", 3)
# arg: Checkpoint; src: what a function gives, then its arguments: one of these results. Only a
# gradient sees it; the stage "retype" leaves the result.
CHECKPOINT = _row("checkpoint", "memory", -1)

# Loops: see schedule/loops.py.
LOOP = _row(
    "loop", "loop", -1
)  # arg: a LoopInfo; src: first values, then what one iteration makes of them
LOOP_CALL = _row(
    "loop_call", "loop", -1
)  # arg: a LoopBody; src: first values, then what it reads besides
LOOP_OUTPUT = _row(
    "loop_output", "source", 1
)  # arg: LoopOutput; the last value of what a loop carries

# Kernels: scalars (or short vectors) over ranges.
# arg: Range; src: size. A loop variable 0 <= r < size. Of a lowered loop src may be size, first and
# stop: it runs from one of these steps to before another.
RANGE = _row("range", "kernel", -1)
SPECIAL = _row("special", "kernel", 0)  # arg: Special: a thread's position
PARAM = _row("param", "kernel", 0)  # arg: a KernelArg
LOAD = _row("load", "kernel", -1)  # see access.py
REDUCE_LOOP = _row(
    "reduce_loop", "kernel", -1
)  # arg: Primitive; src: value, ranges...: the reduction over the ranges
ATTEND_LOOP = _row(
    "attend_loop", "kernel", -1
)  # arg: Attend; src: score, value, ranges...: the sum of values by the softmax of their scores
# src: value, factor, ranges...: a sum of which, at each step, what is there is multiplied by the
# factor before the value is added
RESCALED_LOOP = _row("rescaled_loop", "kernel", -1)
RUNNING = _row("running", "kernel", 1)  # src: a REDUCE_LOOP: what it was before a step of its loop
STORE = _row("store", "kernel", -1)  # see access.py
SINK = _row("sink", "kernel", -1)  # src: stores
# a * b + c of a sum of products whose loops are gone, rounded once or twice
FMA = _row("fma", "kernel", 3, numpy=_quiet(lambda a, b, c: a * b + c), c="({0} * {1} + {2})")
VECTOR = _row("vector", "kernel", -1)  # src: one scalar (to repeat) or one per lane
LANE = _row("lane", "kernel", 1)  # arg: which lane of a vector
ACCUMULATOR = _row("accumulator", "kernel", 0)  # arg: Accumulator
SHARED = _row("shared", "kernel", 0)  # arg: Shared; loads and stores take it as a PARAM
# arg: Region; src: param, start, guard: elements from the start on; zeros where the guard is false.
# Loads take it as a PARAM.
REGION = _row("region", "kernel", 3)
# src: value, ranges..: an array of the value at all steps of ranges of its own, the last one
# fastest. Loads take it as a PARAM, at one place.
STAGE = _row("stage", "kernel", -1)
# arg: whether threads share it; src: SHARED, stores.., loops..: the memory after the stores, in the
# loops around them. Loads take it as a PARAM.
FILLED = _row("filled", "kernel", -1)
# arg: bits; src: value: what the thread of the subgroup has whose number differs in these bits.
SHUFFLE = _row("shuffle", "kernel", 1)
# Matrices that subgroups hold: see fragments.py. src: buffer, place of the first element, stride
# from row to row; arg: whether rows and columns are exchanged.
FRAGMENT_LOAD = _row("fragment_load", "kernel", 3)
FRAGMENT_MULTIPLY = _row("fragment_multiply", "kernel", 3)  # src: a, b, c: the matrix c + a @ b
REDUCE_LANES = _row(
    "reduce_lanes", "kernel", 1
)  # arg: Primitive; src: a vector: its lanes, halves with halves, until one is left
GROUP_REDUCE = _row(
    "group_reduce", "kernel", -1
)  # arg: Primitive; src: value, thread range: reduce over threads

# Statements of a lowered kernel.
BEGIN = _row("begin", "statement", 1)  # src: range
END = _row("end", "statement", 1)
SET = _row("set", "statement", 2)  # src: accumulator, value
# All threads of a workgroup wait for each other; what one has stored before, all can load after.
BARRIER = _row("barrier", "statement", 0)
# src: buffer, a fragment, place of the first element, stride from row to row
FRAGMENT_STORE = _row("fragment_store", "statement", 4)


def reduce_identity(op: Primitive, dtype: DType) -> int | float:
    """The neutral element of a reduction in a scalar type."""
    if op in (MAX, MIN) and dtype.kind != "f":
        return dtype.limits[0 if op is MAX else 1]
    assert op.identity is not None
    return op.identity


@dataclass(frozen=True, eq=False)
class TensorSource:
    """Where a BUFFER's values come from."""

    kind: str  # input, weight or state; carried by a loop, or captured by its body
    name: str
    # a weight's array, which may have another element type than the BUFFER: it is converted where
    # it is read
    data: Array = field(default=None, repr=False)
