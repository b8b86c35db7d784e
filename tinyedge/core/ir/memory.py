"""What reductions and the primitives of memory mean: one row each, from which every stage takes
what it needs.

They read elements that no movement of indices alone leads to. To add one: a row in `ops`, its rules
here, and a method of Tensor that makes its node. One without an element rule is always in memory
and also needs the kernels that write it there (schedule/kernels.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.intervals import UNKNOWN, Interval, times, union
from tinyedge.core.ir.movement import Indices, slices
from tinyedge.core.ir.ops import Primitive
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import simplify
from tinyedge.core.ir.shapes import maximum, minimum, product
from tinyedge.core.ir.uop import SHAPES, Shape, Size, UOp, as_node, const

Array = Any

# An element that a rule asks for: of which tensor node, where, and under which condition it is
# needed. A rule is given the element's value for each of its requests, as a scalar expression.
Request = tuple[UOp, Indices, UOp]
Element = Generator[Request, Any, UOp]
NewRange = Callable[[Size, str], UOp]  # a loop variable of a size and kind; 0 where the size is 1

GATHER_REPEATS = 4.0  # how often a gathered element is assumed to be read
SCATTER_REPEATS = 2.0  # how often a scattered one: a loop that looks for its place repeats it


def _once(node: UOp, operand: UOp) -> float:
    return 1.0


def _right(node: UOp) -> str:
    return ""


def _nothing(node: UOp) -> tuple[UOp, ...]:
    return ()


@dataclass(frozen=True)
class Memory:
    """The rules of one primitive."""

    shape: Callable[[UOp], Shape]  # of a node
    numpy: Callable[..., Array]  # its meaning: of arg, sizes being ints, and the operands
    # The element of a node at indices, under a condition; None: kernels of its own write it.
    element: Callable[[UOp, Indices, UOp, NewRange], Element] | None
    # Between which integers the values lie, by those of the operands; None: all of the type.
    bounds: Callable[[UOp, Sequence[Interval]], Interval | None]
    wrong: Callable[[UOp], str] = _right  # what is wrong with a node, "" if nothing is
    # How often an element of the result reads an operand's; None: each reads its own.
    reads: Callable[[UOp, UOp], Union[float, None]] = _once
    static: bool = False  # where it reads follows from arg alone
    loads: int = 0  # elements that it loads besides those of its operands
    moves: Callable[[UOp], tuple[UOp, ...]] = _nothing  # operands of which it only moves values


MEMORY: dict[Primitive, Memory] = {}


def define(row: Primitive, rules: Memory) -> None:
    """Give a row of the groups "reduce" and "memory" its meaning."""
    MEMORY[row] = rules
    SHAPES[row] = rules.shape


def kernels_write(row: Primitive) -> bool:
    """Whether the row's nodes are always in memory, written by kernels of their own."""
    return row in MEMORY and MEMORY[row].element is None


def _of_first(node: UOp) -> Shape:
    return node.src[0].shape


def select(condition: UOp, yes: UOp, no: UOp) -> UOp:
    return simplify(UOp(ops.WHERE, yes.dtype, (condition, yes, no)))


def _not(condition: UOp) -> UOp:
    return simplify(UOp(ops.NOT, dt.bool_, (condition,)))


# REDUCE.

REDUCERS = {ops.ADD: np.add, ops.MUL: np.multiply, ops.MAX: np.maximum, ops.MIN: np.minimum}


def _reduce_shape(node: UOp) -> Shape:
    shape = node.src[0].shape
    return tuple(size for axis, size in enumerate(shape) if axis not in node.arg.axes)


def reduce_array(
    op: Primitive, array: Array, axes: tuple[int, ...], dtype: DType, keepdims: bool = False
) -> Array:
    """A reduction over axes, in the array's own type."""
    identity = dtype.numpy.type(ops.reduce_identity(op, dtype))
    with np.errstate(all="ignore"):
        reduced: Array = REDUCERS[op].reduce(array, axis=axes, dtype=array.dtype, initial=identity)
    return np.expand_dims(reduced, axes) if keepdims else reduced


def _reduced(reduce: args.Reduce, array: Array) -> Array:
    if reduce.op is ops.MUL and array.dtype.kind == "f":
        return _multiplied(array, reduce.axes)
    return reduce_array(reduce.op, array, reduce.axes, dt.from_numpy(array.dtype))


def _multiplied(array: Array, axes: tuple[int, ...]) -> Array:
    """The product of floats over axes, of which no part is infinite or 0 before the whole is."""
    left = array.ndim - len(axes)
    moved = np.moveaxis(array, axes, range(left, array.ndim))
    kept, count = moved.shape[:left], math.prod(moved.shape[left:])
    if not count:
        return np.ones(kept, array.dtype)
    fraction, exponent = np.frexp(moved.reshape(*kept, count).astype(np.float64))
    power = exponent.sum(-1, dtype=np.int64)
    with np.errstate(all="ignore"):
        while fraction.shape[-1] > 1:
            starts = np.arange(0, fraction.shape[-1], 512)  # so many from 1/2 to 1 have a product
            fraction, exponent = np.frexp(np.multiply.reduceat(fraction, starts, axis=-1))
            power += exponent.sum(-1)
        whole = np.ldexp(fraction[..., 0], power.clip(-10_000, 10_000))
        return np.asarray(whole).astype(array.dtype)


def _reduce_element(node: UOp, indices: Indices, valid: UOp, new_range: NewRange) -> Element:
    op, axes = node.arg.op, node.arg.axes
    source = node.src[0]
    remaining = iter(indices)
    inner: list[UOp] = []
    ranges: list[UOp] = []
    for axis, size in enumerate(source.shape):
        if axis not in axes:
            inner.append(next(remaining))
            continue
        new = new_range(size, "reduce")
        inner.append(new)
        if new is not ix.ZERO:
            ranges.append(new)
    if any(maximum(size) == 0 for size in source.shape):
        return const(ops.reduce_identity(op, node.dtype), node.dtype)
    value: UOp = yield (source, tuple(inner), valid)
    return UOp(ops.REDUCE_LOOP, node.dtype, (value, *ranges), op) if ranges else value


def _reduce_bounds(node: UOp, operands: Sequence[Interval]) -> Interval | None:
    sizes = [node.src[0].shape[axis] for axis in node.arg.axes]
    low, high = operands[0]
    if node.arg.op is ops.MUL:
        return UNKNOWN
    if node.arg.op is ops.ADD:
        terms = maximum(product(sizes))
        return min(0, times(low, terms)), max(0, times(high, terms))
    if all(minimum(size) > 0 for size in sizes):
        return low, high
    of_nothing = node.dtype.limits[0 if node.arg.op is ops.MAX else 1]
    return union((low, high), (of_nothing, of_nothing))


# GATHER.


def _gather_shape(node: UOp) -> Shape:
    data, positions = node.src
    axis = node.arg
    return data.shape[:axis] + positions.shape + data.shape[axis + 1 :]


def _gathered(axis: int, data: Array, indices: Array) -> Array:
    size = data.shape[axis]
    inside = (indices >= 0) & (indices < size)
    if size == 0:
        shape = data.shape[:axis] + indices.shape + data.shape[axis + 1 :]
        return np.zeros(shape, data.dtype)
    taken = np.take(data, np.where(inside, indices, 0), axis=axis)
    mask = inside.reshape((1,) * axis + indices.shape + (1,) * (data.ndim - axis - 1))
    return np.where(mask, taken, np.zeros((), data.dtype))


def _gather_element(node: UOp, indices: Indices, valid: UOp, new_range: NewRange) -> Element:
    data, positions = node.src
    axis = node.arg
    rank = len(positions.shape)
    position = yield (positions, indices[axis : axis + rank], valid)
    at, inside = position_of(position, data.shape[axis])
    inner = (*indices[:axis], at, *indices[axis + rank :])
    value = yield (data, inner, ix.and_(valid, inside))
    return select(inside, value, const(0, node.dtype))


def _gather_bounds(node: UOp, operands: Sequence[Interval]) -> Interval:
    return min(operands[0][0], 0), max(operands[0][1], 0)


def _gather_reads(node: UOp, operand: UOp) -> float | None:
    data, positions = node.src
    if operand is data:
        return GATHER_REPEATS
    if len(data.shape) == 1:
        return None  # an element of the result reads one of the positions, its own
    return maximum(product(node.shape)) / max(1, maximum(product(positions.shape)))


def position_of(position: UOp, size: Size) -> tuple[UOp, UOp]:
    """A computed position as an index, and whether it is one of an axis of this size."""
    limit = as_node(size)
    at = simplify(UOp(ops.CAST, dt.index, (position,)))
    if position.dtype.bits < 64:
        return at, ix.and_(ix.le(0, at), ix.lt(at, limit))
    end = simplify(UOp(ops.CAST, position.dtype, (limit,)))
    return at, ix.and_(  # compared as it is: the cast to an index may wrap
        simplify(UOp(ops.LE, dt.bool_, (const(0, position.dtype), position))),
        simplify(UOp(ops.LT, dt.bool_, (position, end))),
    )


# ASSIGN.


def _assigned(spans: tuple[args.Span, ...], base: Array, value: Array) -> Array:
    result = np.array(base)
    result[slices(spans)] = value
    return result


def _assign_element(node: UOp, indices: Indices, valid: UOp, new_range: NewRange) -> Element:
    base, value = node.src
    conditions = []
    inner = []
    for index, span, size in zip(indices, node.arg, base.shape, strict=True):
        if span.start != 0:
            conditions.append(ix.le(span.start, index))
        if span.end != size:
            conditions.append(ix.lt(index, span.end))
        inner.append(as_node(index - span.start))
    inside = ix.all_of(conditions)
    new = yield (value, tuple(inner), ix.and_(valid, inside))
    old = yield (base, indices, ix.and_(valid, _not(inside)))
    return select(inside, new, old)


def _base_and_value(node: UOp, operands: Sequence[Interval]) -> Interval:
    return union(*operands[:2])


def _assign_wrong(node: UOp) -> str:
    sizes = [
        span.end - span.start
        for span in node.arg
        if isinstance(span.start, int) and isinstance(span.end, int)
    ]
    if len(sizes) == len(node.arg) and tuple(sizes) != node.src[1].shape:
        return f"a value of {node.src[1].shape} for {tuple(sizes)}"
    below = node.src[0]
    if below.op is not ops.ASSIGN or not _overlap(node.arg, below.arg):
        return ""
    while below.op is ops.ASSIGN:
        below = below.src[0]
    return "an element is written twice" if below.op is ops.EMPTY else ""


def _overlap(a: Sequence[args.Span], b: Sequence[args.Span]) -> bool:
    return all(
        _meet(one.start, one.end, other.start, other.end) for one, other in zip(a, b, strict=True)
    )


def _meet(start: Size, end: Size, other: Size, other_end: Size) -> bool:
    """Whether two spans are known to share an element."""
    return (
        isinstance(start, int)
        and isinstance(end, int)
        and isinstance(other, int)
        and isinstance(other_end, int)
        and start < other_end
        and other < end
    )


# UPDATE_ROW.


def _updated(arg: None, base: Array, row: Array, position: Array) -> Array:
    result = np.array(base)
    if len(result):
        result[np.clip(int(position), 0, len(result) - 1)] = row
    return result


def _update_row_element(node: UOp, indices: Indices, valid: UOp, new_range: NewRange) -> Element:
    base, row, position = node.src
    here = ix.eq(indices[0], row_index(base, (yield (position, (), valid))))
    new = yield (row, indices[1:], ix.and_(valid, here))
    old = yield (base, indices, ix.and_(valid, _not(here)))
    return select(here, new, old)


def row_index(base: UOp, position: UOp) -> UOp:
    """Which row is updated: for a position that does not exist the nearest one that does."""
    at = simplify(UOp(ops.CAST, dt.index, (position,)))
    return as_node(ix.maximum(0, ix.minimum(at, base.shape[0] - 1)))


def _update_row_wrong(node: UOp) -> str:
    base, row, _ = node.src
    return "" if row.shape == base.shape[1:] else f"a row of {row.shape} in {base.shape}"


# SCATTER.


def _scattered(scatter: args.Scatter, base: Array, indices: Array, updates: Array) -> Array:
    """The updates one after the other, as numpy's unbuffered `ufunc.at` takes them."""
    axis, op = scatter.axis, scatter.op
    result = np.array(base)
    inside = (indices >= 0) & (indices < base.shape[axis])
    at = (*np.nonzero(inside)[:axis], indices[inside])
    with np.errstate(all="ignore"):
        if op is None:
            result[at] = updates[inside]
        else:
            REDUCERS[op].at(result, at, updates[inside])
    return result


def _scatter_bounds(node: UOp, operands: Sequence[Interval]) -> Interval | None:
    (low, high), _, (least, most) = operands
    if node.arg.op is ops.MUL:
        return UNKNOWN
    if node.arg.op is ops.ADD:
        count = maximum(node.src[1].shape[-1])
        return low + min(0, least * count), high + max(0, most * count)
    return union((low, high), (least, most))


def _scatter_wrong(node: UOp) -> str:
    """Every index has an update of the base's type, of the shape of what it addresses."""
    base, indices, updates = node.src
    axis, combine = node.arg.axis, node.arg.op
    lead, rest = base.shape[:axis], base.shape[axis + 1 :]
    if indices.shape[:-1] != lead or updates.shape != (*indices.shape, *rest):
        return f"{updates.shape} at {indices.shape} in {base.shape}"
    if not indices.dtype.is_int or updates.dtype is not base.dtype:
        return f"{updates.dtype} at {indices.dtype} in {base.dtype}"
    if combine is not None and combine.identity is None:
        return f"{combine} combines nothing"
    return ""


def _scatter_reads(node: UOp, operand: UOp) -> float:
    return 1.0 if operand is node.src[0] else SCATTER_REPEATS


def _scatter_moves(node: UOp) -> tuple[UOp, ...]:
    return (node.src[0], node.src[2]) if node.arg.op is None else ()


# TRANSFORM.


def _transform_shape(node: UOp) -> Shape:
    rows = len(node.arg.matrix)
    return (rows, rows, *node.src[0].shape[2:])


def _transformed(transform: args.Transform, array: Array) -> Array:
    matrix = np.asarray(transform.matrix, array.dtype)
    with np.errstate(all="ignore"):
        columns = _combinations(matrix, array)
        return np.swapaxes(_combinations(matrix, np.swapaxes(columns, 0, 1)), 0, 1)


def _combinations(matrix: Array, array: Array) -> Array:
    """Each a sum of elements of the first axis, by the factors of a row that are not 0."""
    sums = [sum(f * array[i] for i, f in enumerate(row) if f) for row in matrix]
    return np.stack(sums).astype(array.dtype)


def _transform_element(node: UOp, indices: Indices, valid: UOp, new_range: NewRange) -> Element:
    """Which element it is chooses among the sums, which share theirs: copies in registers of all
    elements compute each once.
    """
    matrix, (row, column, *rest) = node.arg.matrix, indices
    places = range(len(matrix[0]))
    data: list[list[UOp]] = [[] for _ in places]
    for i in places:
        for j in places:
            data[i].append((yield (node.src[0], (as_node(i), as_node(j), *rest), valid)))
    rows = [[_combination(factors, c) for c in zip(*data, strict=True)] for factors in matrix]
    sums = [[_combination(factors, values) for factors in matrix] for values in rows]
    return _numbered(row, [_numbered(column, values) for values in sums])


def _combination(factors: Sequence[float], values: Sequence[UOp]) -> UOp:
    total: UOp | None = None
    for factor, value in zip(factors, values, strict=True):
        if factor:
            scaled = UOp(ops.MUL, value.dtype, (value, const(float(factor), value.dtype)))
            term = value if factor == 1 else simplify(scaled)
            total = term if total is None else simplify(UOp(ops.ADD, term.dtype, (total, term)))
    assert total is not None
    return total


def _numbered(number: UOp, values: Sequence[UOp]) -> UOp:
    """The value of that number."""
    *others, result = values
    for position, value in enumerate(others):
        result = select(ix.eq(number, position), value, result)
    return result


def _transform_wrong(node: UOp) -> str:
    matrix, shape = node.arg.matrix, node.src[0].shape
    if len({len(row) for row in matrix}) != 1 or not all(any(row) for row in matrix):
        return "no matrix, or one with a row of zeros"
    if not node.dtype.is_float or shape[:2] != (len(matrix[0]), len(matrix[0])):
        return f"a matrix of {len(matrix[0])} columns for {node.dtype} of {shape}"
    return ""


# REALIZE.


def _realize_element(node: UOp, indices: Indices, valid: UOp, new_range: NewRange) -> Element:
    same: UOp = yield (node.src[0], indices, valid)
    return same


# CHECKPOINT.


def _result(node: UOp) -> UOp:
    number: int = node.arg.number
    return node.src[number]


def _result_element(node: UOp, indices: Indices, valid: UOp, new_range: NewRange) -> Element:
    same: UOp = yield (_result(node), indices, valid)
    return same


def _checkpoint_wrong(node: UOp) -> str:
    return "" if node.dtype is _result(node).dtype else f"{node.dtype} of {_result(node).dtype}"


define(ops.REDUCE, Memory(_reduce_shape, _reduced, _reduce_element, _reduce_bounds))
define(
    ops.GATHER,
    Memory(_gather_shape, _gathered, _gather_element, _gather_bounds, reads=_gather_reads, loads=1),
)
define(
    ops.ASSIGN,
    Memory(
        *(_of_first, _assigned, _assign_element, _base_and_value),
        wrong=_assign_wrong,
        static=True,
        moves=lambda node: node.src,
    ),
)
define(
    ops.UPDATE_ROW,
    Memory(
        *(_of_first, _updated, _update_row_element, _base_and_value),
        wrong=_update_row_wrong,
        static=True,  # where the row is does not change which of its elements are read
    ),
)
define(
    ops.SCATTER,
    Memory(
        *(_of_first, _scattered, None, _scatter_bounds),
        wrong=_scatter_wrong,
        reads=_scatter_reads,
        moves=_scatter_moves,
    ),
)
define(
    ops.TRANSFORM,
    Memory(
        *(_transform_shape, _transformed, _transform_element),
        bounds=lambda node, operands: None,
        wrong=_transform_wrong,
        static=True,
        loads=4,  # more than is computed again where it is used
    ),
)
define(
    ops.REALIZE,
    Memory(
        *(_of_first, lambda arg, array: array, _realize_element),
        bounds=lambda node, operands: operands[0],
        reads=lambda node, operand: None,
    ),
)
define(
    ops.CHECKPOINT,
    Memory(
        *(lambda node: _result(node).shape, lambda arg, *src: src[arg.number], _result_element),
        bounds=lambda node, operands: None,
        wrong=_checkpoint_wrong,
    ),
)
