"""What each primitive gives back to its operands: one rule a row.

A rule takes a node and the gradient of a scalar by the node, a tensor of its shape, and gives that
by each operand: None where it is zero everywhere, or the operand is no number of a continuum. Rules
are linear in the gradient. Where a primitive has no derivative (a corner, a tie), the rule says
which of the values beside it is meant.

A gradient of zero beats a factor that is infinite, or no number: what was not chosen has no part in
the result. Products with a factor that the rule itself makes, and that can be infinite, go through
`_scaled`. `reverse` keeps the choices of a WHERE outside of what elementwise rows make of it.

Sources: A. Griewank, A. Walther, Evaluating Derivatives, 2nd edition, 2008, chapters 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.ops import Primitive
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import Shape, UOp
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.overlapping import overlapped
from tinyedge.core.tensor.tensor import Tensor

Gradients = Sequence[Tensor | None]
RULES: dict[Primitive, Callable[[UOp, Tensor], Gradients]] = {}

# Rows through which nothing flows back, and why.
CONSTANT: dict[Primitive, str] = {}
# Rows that no tensor graph has when it is differentiated: the compiler makes them.
MADE = (ops.ATTEND,)
LATER = ("kernel", "statement")
# Rows whose insides `reverse` goes through.
ENCLOSING = (ops.LOOP, ops.LOOP_CALL, ops.LOOP_OUTPUT, ops.CHECKPOINT)


def _rule(*rows: Primitive) -> Callable[[Callable[..., Gradients]], Callable[..., Gradients]]:
    def record(function: Callable[..., Gradients]) -> Callable[..., Gradients]:
        for row in rows:
            RULES[row] = function
        return function

    return record


def _constant(reason: str, *rows: Primitive) -> None:
    for row in rows:
        CONSTANT[row] = reason


_constant("it has no operands", ops.CONST, ops.BUFFER, ops.SYMBOL, ops.IOTA, ops.EMPTY)
_constant("it is constant between its steps", ops.FLOOR, ops.TRUNC, ops.ROUND, ops.LEVEL)
_constant("its result is a truth value", ops.ISNAN, ops.LT, ops.LE, ops.EQ)
_constant("it is of integers", ops.FLOORDIV, ops.MOD, ops.TRUNCDIV, ops.SHL, ops.SHR)
_constant("it is of integers", ops.PAIRS, ops.QUADS)
_constant("it is of bits", ops.WORD, ops.NOT, ops.AND, ops.OR, ops.XOR, ops.BITCAST)
_constant("it says that its operand is taken as a constant", ops.STOP_GRADIENT)


def operands(node: UOp) -> list[Tensor]:
    """What a node is computed from, as tensors."""
    return [Tensor(source) for source in node.src]


def zeros(like: UOp) -> Tensor:
    return Tensor.full(like.shape, 0, like.dtype)


def _scaled(g: Tensor, factor: Tensor) -> Tensor:
    """g * factor; 0 where g is 0 and the factor not finite.

    Where the factor is finite, this is a plain product to second derivatives, too.
    """
    finite = factor.abs() < math.inf
    return g * (g.eq(0) & ~finite).where(0.0, factor)


# Elementwise.


@_rule(ops.NEG)
def _neg(node: UOp, g: Tensor) -> Gradients:
    return (-g,)


@_rule(ops.EXP)
def _exp(node: UOp, g: Tensor) -> Gradients:
    return (_scaled(g, Tensor(node)),)


@_rule(ops.LOG)
def _log(node: UOp, g: Tensor) -> Gradients:
    (x,) = operands(node)
    return (_scaled(g, 1.0 / x),)


@_rule(ops.SQRT)
def _sqrt(node: UOp, g: Tensor) -> Gradients:
    return (_scaled(g, 0.5 / Tensor(node)),)


@_rule(ops.SIN)
def _sin(node: UOp, g: Tensor) -> Gradients:
    (x,) = operands(node)
    return (_scaled(g, x.cos()),)


@_rule(ops.COS)
def _cos(node: UOp, g: Tensor) -> Gradients:
    (x,) = operands(node)
    return (_scaled(g, -x.sin()),)


@_rule(ops.TANH)
def _tanh(node: UOp, g: Tensor) -> Gradients:
    y = Tensor(node)
    return (_scaled(g, 1.0 - y * y),)


@_rule(ops.ABS)
def _abs(node: UOp, g: Tensor) -> Gradients:
    """At 0 it is 0, the middle of what is beside it."""
    (x,) = operands(node)
    if not x.dtype.is_float:
        return (None,)
    return ((x > 0).where(g, (x < 0).where(-g, 0.0)),)


@_rule(ops.ADD)
def _add(node: UOp, g: Tensor) -> Gradients:
    return g, g


@_rule(ops.SUB)
def _sub(node: UOp, g: Tensor) -> Gradients:
    return g, -g


@_rule(ops.MUL)
def _mul(node: UOp, g: Tensor) -> Gradients:
    a, b = operands(node)
    return g * b, g * a


@_rule(ops.DIV)
def _div(node: UOp, g: Tensor) -> Gradients:
    _, b = operands(node)
    return _scaled(g, 1.0 / b), _scaled(g, -(Tensor(node) / b))


@_rule(ops.FMOD)
def _fmod(node: UOp, g: Tensor) -> Gradients:
    a, b = operands(node)
    return g, _scaled(g, -(a / b).trunc())


@_rule(ops.POW)
def _pow(node: UOp, g: Tensor) -> Gradients:
    """a^b. By b it is 0 where a is 0: the power is constant beside it, or infinite."""
    a, b = operands(node)
    by_base = b.eq(0).where(0.0, b * a ** (b - 1.0))
    positive = a.eq(0).where(1.0, a)
    by_exponent = a.eq(0).where(0.0, Tensor(node) * positive.log())
    return _scaled(g, by_base), _scaled(g, by_exponent)


@_rule(ops.MAX, ops.MIN)
def _extreme(node: UOp, g: Tensor) -> Gradients:
    """Equal operands have a half each."""
    a, b = operands(node)
    first = a > b if node.op is ops.MAX else a < b
    tie = a.eq(b)
    shared = tie.where(g * 0.5, 0.0)
    return first.where(g, shared), (first | tie).where(shared, g)


@_rule(ops.WHERE)
def _where(node: UOp, g: Tensor) -> Gradients:
    """Of `x < c ? c : x` by x (relu), where it is c, 0: it is told from the result alone, so that x
    need not be kept.
    """
    condition = Tensor(node.src[0])
    if _is_floor(node):
        lowest = Tensor(node) <= Tensor(node.src[1])
        return None, None, lowest.where(zeros(node), g)
    return None, condition.where(g, 0.0), condition.where(zeros(node), g)


def _is_floor(node: UOp) -> bool:
    """Whether a choice is `x < c ? c : x` for a constant c."""
    condition, low, x = node.src
    return condition.op is ops.LT and condition.src == (x, low) and _is_constant(low)


def _is_constant(node: UOp) -> bool:
    while node.op in (ops.RESHAPE, ops.EXPAND):
        node = node.src[0]
    return node.op is ops.CONST


@_rule(ops.CAST)
def _cast(node: UOp, g: Tensor) -> Gradients:
    return (g.cast(node.src[0].dtype),)


# Movement.


@_rule(ops.RESHAPE)
def _reshape(node: UOp, g: Tensor) -> Gradients:
    return (g.reshape(node.src[0].shape),)


@_rule(ops.PERMUTE)
def _permute(node: UOp, g: Tensor) -> Gradients:
    back = [node.arg.index(axis) for axis in range(len(node.arg))]
    return (g.permute(back),)


@_rule(ops.EXPAND)
def _expand(node: UOp, g: Tensor) -> Gradients:
    before = node.src[0].shape
    axes = [axis for axis, size in enumerate(before) if size != node.shape[axis]]
    return (g.sum(axes, keepdims=True),)


@_rule(ops.PAD)
def _pad(node: UOp, g: Tensor) -> Gradients:
    sizes = zip(node.arg, node.src[0].shape, strict=True)
    return (g.shrink([(m.before, m.before + size) for m, size in sizes]),)


@_rule(ops.SHRINK)
def _shrink(node: UOp, g: Tensor) -> Gradients:
    sizes = zip(node.arg, node.src[0].shape, strict=True)
    return (g.pad([(span.start, size - span.end) for span, size in sizes]),)


@_rule(ops.FLIP)
def _flip(node: UOp, g: Tensor) -> Gradients:
    return (g.flip(node.arg),)


@_rule(ops.WINDOW)
def _window(node: UOp, g: Tensor) -> Gradients:
    window, length = node.arg, node.src[0].shape[node.arg.axis]
    return (overlapped(g, window.axis, window.stride, window.dilation, length),)


@_rule(ops.AFTER)
def _after(node: UOp, g: Tensor) -> Gradients:
    return g, *(None for _ in node.src[1:])


# Reductions.


@_rule(ops.REDUCE)
def _reduce(node: UOp, g: Tensor) -> Gradients:
    (x,) = operands(node)
    op, axes = node.arg.op, node.arg.axes
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    wide = g.reshape(kept).expand(x.shape)
    if op is ops.ADD:
        return (wide,)
    if op is ops.MUL:
        return (_product(x, g, axes),)
    hit = x.eq(Tensor(node).reshape(kept).expand(x.shape))
    share = g.reshape(kept) / hit.cast(g.dtype).sum(axes, keepdims=True)
    return (hit.where(share.expand(x.shape), 0.0),)


def _product(x: Tensor, g: Tensor, axes: Sequence[int]) -> Tensor:
    """The gradient by the factors of a product over axes, whatever factors are 0.

    The product of a fixed number of factors is taken as one of products of pairs.
    """
    left = [axis for axis in range(x.ndim) if axis not in axes]
    order = [*axes, *left]
    lines = x.permute(order).flatten(0, len(axes))
    count = lines.shape[0]
    if isinstance(count, int):
        by_line = _product_of_pairs(lines, g)
    else:
        power, rest = (part.prod(0, keepdims=True).expand(lines.shape) for part in _parts(lines))
        by_line = _by_factor(lines, g.unsqueeze(0).expand(lines.shape), power, rest)
    back = by_line.reshape([x.shape[axis] for axis in order])
    return back.permute([order.index(axis) for axis in range(x.ndim)])


def _product_of_pairs(x: Tensor, g: Tensor) -> Tensor:
    """x [n, *S], g [*S]: the gradient by x of its product over n, which may be 0."""
    halves: list[tuple[Tensor, Tensor, int]] = []
    while (count := fixed(x.shape[0])) > 1:
        rest = [(0, 0)] * (x.ndim - 1)
        x = x.pad([(0, count % 2), *rest], 1)
        first, second = x[: (count + 1) // 2], x[(count + 1) // 2 :]
        halves.append((first, second, count))
        x = first * second
    by_x = g.unsqueeze(0)[: fixed(x.shape[0])]
    for first, second, count in reversed(halves):
        by_x = Tensor.concat([by_x * second, by_x * first], 0)[:count]
    return by_x


def _parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """2 for each 0, and everything else: a product of each says which factors are 0."""
    return x.eq(0).where(2.0, zeros(x.node) + 1.0), x.eq(0).where(1.0, x)


def _by_factor(x: Tensor, g: Tensor, zeros_power: Tensor, rest: Tensor) -> Tensor:
    """g times the product of all factors but this one, which may be the only 0.

    zeros_power: 2 to the number of zeros. rest: the product of what is not 0. Both are taken as
    constants where a factor is 0, so second derivatives there are not those of the product.
    """
    alone = (x.eq(0) & zeros_power.eq(2)).where(rest, 0.0)
    others = zeros_power.eq(1).where(rest / x.eq(0).where(1.0, x), alone)
    return g * others


# Memory.


@_rule(ops.GATHER)
def _gather(node: UOp, g: Tensor) -> Gradients:
    """Each element is added to where it came from, in the order of the elements."""
    data, positions = operands(node)
    axis, rank = node.arg, positions.ndim
    lead, rest = data.shape[:axis], data.shape[axis + 1 :]
    count = product(positions.shape)
    updates = g.permute(
        [*range(axis, axis + rank), *range(axis), *range(axis + rank, g.ndim)]
    ).reshape((count, *lead, *rest))
    base = Tensor.full((data.shape[axis], *lead, *rest), 0, g.dtype)
    added = base.scatter(0, positions.reshape((count,)), updates, ops.ADD)
    back = [*range(1, axis + 1), 0, *range(axis + 1, added.ndim)]
    return added.permute(back), None


@_rule(ops.ASSIGN)
def _assign(node: UOp, g: Tensor) -> Gradients:
    region = [(span.start, span.end) for span in node.arg]
    base = node.src[0]
    while base.op is ops.ASSIGN:
        base = base.src[0]
    by_value = g.shrink(region)
    if base.op is ops.EMPTY:  # a concatenation: no element is written twice
        return (None if node.src[0].op is ops.EMPTY else g), by_value
    return g.assign(region, zeros(node.src[1])), by_value


@_rule(ops.UPDATE_ROW)
def _update_row(node: UOp, g: Tensor) -> Gradients:
    """A position outside of the base is the nearest one inside."""
    _, row, position = operands(node)
    most = Tensor.from_size(g.shape[0], dt.int32) - 1
    at = position.cast(dt.int32).maximum(0).minimum(most)
    by_row = g.gather(0, at).reshape(row.shape)
    return g.put(position, zeros(row.node)), by_row, None


@_rule(ops.SCATTER)
def _scatter(node: UOp, g: Tensor) -> Gradients:
    base, indices, updates = operands(node)
    axis, op = node.arg.axis, node.arg.op
    here = _Places(axis, base.shape, indices)
    if op is ops.ADD:
        return g, None, here.read(g)
    if op is None:
        return _replaced(g, here)
    if op is ops.MUL:
        return _multiplied(base, updates, g, here)
    result = Tensor(node)
    reached = here.read(Tensor.full(base.shape, 1, g.dtype)).ne(0)
    by_update = updates.eq(here.read(result)) & reached
    hits = base.eq(result).cast(g.dtype).scatter(axis, indices, by_update.cast(g.dtype), ops.ADD)
    share = g / hits
    return base.eq(result).where(share, 0.0), None, by_update.where(here.read(share), 0.0)


class _Places:
    """Where the updates [*lead, K, *rest] of a SCATTER go in its base [*lead, R, *rest]."""

    def __init__(self, axis: int, shape: Shape, indices: Tensor) -> None:
        self.axis, self.shape, self.indices = axis, shape, indices
        rows, size = product(shape[:axis]), shape[axis]
        limit = Tensor.from_size(size, indices.dtype)
        inside = (indices >= 0) & (indices < limit)
        row = Tensor.arange(rows).reshape((*shape[:axis], 1))
        place = indices.cast(dt.int32) + row * Tensor.from_size(size, dt.int32)
        self.flat = inside.where(place, -1)

    def read(self, values: Tensor) -> Tensor:
        """values [*lead, R, *rest] where the updates go: [*lead, K, *rest]; 0 for those that go
        nowhere.
        """
        rest = values.shape[self.axis + 1 :]
        rows = product(self.shape[: self.axis + 1])
        return values.reshape((rows, *rest)).gather(0, self.flat)


def _replaced(g: Tensor, here: _Places) -> Gradients:
    """Of the updates of one place the last one is what is there."""
    axis, indices = here.axis, here.indices
    count = indices.shape[-1]
    number = Tensor.arange(count).reshape((*(1,) * axis, count)).broadcast_to(indices.shape)
    nobody = Tensor.full(here.shape[: axis + 1], -1, dt.int32)
    last = nobody.scatter(axis, indices, number)
    is_last = here.read(last + 1).eq(number + 1)
    rest = g.ndim - axis - 1
    by_base = last.eq(-1).reshape((*last.shape, *(1,) * rest)).where(g, 0.0)
    by_update = is_last.reshape((*indices.shape, *(1,) * rest)).where(here.read(g), 0.0)
    return by_base, None, by_update


def _multiplied(base: Tensor, updates: Tensor, g: Tensor, here: _Places) -> Gradients:
    def all_of(of_base: Tensor, of_updates: Tensor) -> Tensor:
        return of_base.scatter(here.axis, here.indices, of_updates, ops.MUL)

    power, rest = (all_of(*parts) for parts in zip(_parts(base), _parts(updates), strict=True))
    by_update = _by_factor(updates, here.read(g), here.read(power), here.read(rest))
    return _by_factor(base, g, power, rest), None, by_update


@_rule(ops.TRANSFORM)
def _transform(node: UOp, g: Tensor) -> Gradients:
    """m^T @ g @ m: of a matrix with a column of zeros, what that column takes is not read."""
    matrix = node.arg.matrix
    columns = list(zip(*matrix, strict=True))
    read = [number for number, column in enumerate(columns) if any(column)]
    part = g.transform([columns[number] for number in read])
    if len(read) == len(columns):
        return (part,)
    for axis in (0, 1):
        chosen = [read.index(n) if n in read else -1 for n in range(len(columns))]
        part = part.gather(axis, Tensor(chosen, dt.int32))
    return (part,)


@_rule(ops.REALIZE)
@_rule(ops.IN_FULL)
def _realize(node: UOp, g: Tensor) -> Gradients:
    return (g,)
