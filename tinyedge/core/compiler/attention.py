"""Attention in one kernel: the softmax of scores and its product with values.

The sum over k of softmax(scores)[.., k] * values[.., k, ..] becomes one row of the graph, ATTEND,
wherever a graph has it: whatever views, masks and scales lie between, and however many heads share
their keys. The scores are not in memory then: a kernel computes those of a block of keys, and goes
on with what they make of the values (lower/attend.py). Nothing is known of operators: a softmax is
what divides exp(s - max(s)) by its sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.attend import (
    LEAST_ROWS,
    MOST_SCORES,
    SHARING_ROWS,
    Sizes,
    cost,
    plain_cost,
    weighed_rows,
)
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.rewrite import bottom_up, substitute, viewed
from tinyedge.core.ir.shapes import maximum, minimum, product
from tinyedge.core.ir.uop import Shape, UOp, consumers, toposort
from tinyedge.core.tensor.tensor import Tensor

# Without threads: scores of a head up to which they stay in a cache from one launch to the next.
MOST_CACHED = 2**18

Users = dict[UOp, list[UOp]]


@dataclass(frozen=True)
class _Weights:
    """A softmax as the factor of a product, along one of its axes.

    views: what lies between, from the factor down to the softmax. zeros: where it is NaN it is 0.
    rows: conditions that are the same for all keys, and whether the weights are 0 where they hold,
    or where they do not; each with the number of views above it.
    """

    scores: UOp
    views: tuple[UOp, ...]
    zeros: bool
    rows: tuple[tuple[UOp, bool, int], ...]


@dataclass(frozen=True)
class _Attention:
    """A sum of weighted values, by the axes of the product [.., keys] that is summed.

    batch: axes of both, row: of the scores, column: of the values; keys: the summed one.
    """

    weights: _Weights
    values: UOp
    shape: Shape
    keys: int
    row: int
    column: int

    @property
    def batch(self) -> tuple[int, ...]:
        own = (self.keys, self.row, self.column)
        return tuple(axis for axis in range(len(self.shape)) if axis not in own)


def with_attention(roots: tuple[UOp, ...], caps: Caps) -> tuple[dict[UOp, UOp], int]:
    """Every node, mapped to one in which attention is a row of its own where that pays, or nothing
    if it never is; and how many there are.
    """
    nodes = toposort(roots)
    if not any(node.op is ops.EXP for node in nodes):
        return {}, 0
    users = consumers(nodes)
    for root in roots:  # an output is read once more
        users.setdefault(root, []).append(root)
    found = {node for node in nodes if _match(node, users, caps) is not None}
    if not found:
        return {}, 0

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node not in found:
            return None
        matched = _match(node.replace(src), None, caps)
        assert matched is not None
        return _attended(matched, caps).node

    return bottom_up(roots, change), len(found)


# Recognition.


def _match(node: UOp, users: Users | None, caps: Caps) -> _Attention | None:
    """The attention that a sum is. users: None where it was found to be one before."""
    if node.op is not ops.REDUCE or node.arg.op is not ops.ADD or len(node.arg.axes) != 1:
        return None
    product_ = node.src[0]
    if product_.op is not ops.MUL or product_.dtype is not dt.float32:
        return None
    (keys,) = node.arg.axes
    for factor, other in (product_.src, product_.src[::-1]):
        weights = _weights(factor, keys, users)
        axes = None if weights is None else _roles(factor, other, keys)
        if weights is not None and axes is not None:
            found = _Attention(weights, other, product_.shape, keys, *axes)
            if users is None or _pays(found, users, caps):
                return found
    return None


def _weights(factor: UOp, axis: int, users: Users | None) -> _Weights | None:
    """The softmax along an axis of a factor, which nothing else uses."""
    views: list[UOp] = []
    rows: list[tuple[UOp, bool, int]] = []
    zeros = False
    node = factor
    while True:
        if users is not None and len(users[node]) > 1 and not _only_where_nan(node, users[node]):
            return None
        if (scores := scores_of(node, axis, users)) is not None:
            return _Weights(scores, tuple(views), zeros, tuple(rows))
        if node.op is ops.WHERE:
            condition, yes, no = node.src
            always = _constant(condition)
            if always is not None:
                node = yes if always else no
            elif condition.op is ops.ISNAN and condition.src[0] is no and _constant(yes) == 0:
                zeros, node = True, no
            elif _same_along(condition, axis) and 0 in (_constant(yes), _constant(no)):
                dropped = _constant(yes) == 0
                rows.append((condition, dropped, len(views)))
                node = no if dropped else yes
            else:
                return None
            continue
        below = _axis_below(node, axis)
        if below is None:
            return None
        if node.op.group == "movement":
            views.append(node)
        node, axis = node.src[0], below


def _only_where_nan(node: UOp, users: Sequence[UOp]) -> bool:
    """Whether what uses a node are a test whether it is NaN, and the choice that is made of it."""
    choices = {user for user in users if user.op is ops.WHERE and user.src[0].src == (node,)}
    return len(choices) == 1 and all(u.op is ops.ISNAN or u in choices for u in users)


def _same_along(node: UOp, axis: int) -> bool:
    """Whether all elements along an axis, of which there are some, are the same."""
    repeats = node.op is ops.EXPAND and node.src[0].shape[axis] == 1
    return repeats and minimum(node.shape[axis]) > 0


def _constant(node: UOp) -> float | None:
    """The one number that all elements are."""
    while node.op in (ops.RESHAPE, ops.PERMUTE, ops.EXPAND):
        node = node.src[0]
    return node.arg if node.op is ops.CONST else None


def _axis_below(node: UOp, axis: int) -> int | None:
    """The axis of a node's operand along which the node's axis runs; None: along no single one."""
    source = node.src[0] if node.src else node
    if node.op is ops.CAST:
        return axis if source.dtype.is_float else None
    if node.op is ops.PERMUTE:
        return int(node.arg[axis])
    if node.op is ops.EXPAND or node.op is ops.SHRINK:
        return axis if source.shape[axis] == node.shape[axis] else None
    if node.op is ops.RESHAPE:
        return _same_axis(source.shape, node.shape, axis)
    return None


def _same_axis(shape: Shape, other: Shape, axis: int) -> int | None:
    """The axis of a shape that is an axis of another shape of the same elements."""
    before = product(other[:axis])
    for place, size in enumerate(shape):
        if size == other[axis] and product(shape[:place]) == before:
            return place
    return None


def scores_of(node: UOp, axis: int, users: Users | None) -> UOp | None:
    """The scores of which a node is the softmax along an axis."""
    if node.op is not ops.DIV:
        return None
    above, below = node.src
    above, exp = _uncast(above), row_of(below, ops.ADD, axis)
    if exp is None or above is not _uncast(exp):
        return None
    scores = lowered_scores(above, axis)
    if scores is None:
        return None
    if users is not None and not {2} == {len(users[scores]), len(users[above])}:
        return None
    return scores


def lowered_scores(node: UOp, axis: int) -> UOp | None:
    """The scores s of exp(s - max(s)) along an axis."""
    if node.op is not ops.EXP or node.src[0].op is not ops.SUB:
        return None
    scores, most = node.src[0].src
    return scores if row_of(most, ops.MAX, axis) is scores else None


def _uncast(node: UOp) -> UOp:
    while node.op is ops.CAST and node.src[0].dtype.is_float and node.dtype.is_float:
        node = node.src[0]
    return node


def row_of(node: UOp, op: ops.Primitive, axis: int) -> UOp | None:
    """What is reduced along an axis to a row that comes back along it."""
    if node.op is not ops.EXPAND:
        return None
    kept = tuple(1 if place == axis else size for place, size in enumerate(node.shape))
    row = _uncast(node.src[0])
    if row.shape != kept or row.op is not ops.RESHAPE:
        return None
    reduced = _uncast(row.src[0])
    if reduced.op is not ops.REDUCE or reduced.arg != args.Reduce(op, (axis,)):
        return None
    source = reduced.src[0]
    return source if source.shape == node.shape else None


def _roles(factor: UOp, other: UOp, keys: int) -> tuple[int, int] | None:
    """The axes of rows and columns: of several of rows the last, as the others may repeat values,
    but one of columns, as all of them share their scores.
    """
    shape = factor.shape
    scores, values = _unrepeated(factor).shape, _unrepeated(other).shape
    axes = [axis for axis, size in enumerate(shape) if axis != keys and size != 1]
    columns = [axis for axis in axes if scores[axis] == 1]
    rows = [axis for axis in axes if values[axis] == 1]
    if any(axis in rows for axis in columns) or len(columns) > 1:
        return None
    if not columns:  # of one element
        columns = [axis for axis, size in enumerate(shape) if axis != keys and size == 1][-1:]
    return (rows[-1], columns[0]) if rows and columns else None


def _unrepeated(node: UOp) -> UOp:
    return node.src[0] if node.op is ops.EXPAND else node


# Whether it pays.


def _pays(found: _Attention, users: Users, caps: Caps) -> bool:
    """Whether the scores are computed for this alone, and one kernel costs less than three."""
    sums = _product_below(found.weights.scores)
    if sums is None or len(users[sums]) != (2 if sums is found.weights.scores else 1):
        return False
    rows = product(found.shape[axis] for axis in (*found.batch, found.row))
    (summed,) = sums.arg.axes if len(sums.arg.axes) == 1 else (-1,)
    shape, inner = found.shape, sums.src[0].shape[summed]
    counts = (rows, shape[found.keys], inner, shape[found.column], shape[found.row])
    sizes = Sizes(*map(maximum, counts))
    if caps.threads == 1:
        keys, row = shape[found.keys], sizes.together
        count = weighed_rows(row, keys, sizes.columns, caps)[0]
        if count >= SHARING_ROWS or (count and sizes.scores > MOST_SCORES):
            return True
        large = minimum(keys) >= caps.vector and row * sizes.keys > MOST_CACHED
        return large and _fits(sizes, caps)
    return cost(sizes, caps) < plain_cost(sizes, caps)


def _fits(sizes: Sizes, caps: Caps) -> bool:
    """Whether registers hold the summed values of some rows."""
    vectors = -(-sizes.columns // caps.vector)
    return LEAST_ROWS * (vectors + 1) + 3 <= caps.max_vector_registers


def _product_below(scores: UOp) -> UOp | None:
    """The one sum of products that scores are made of."""
    nodes = toposort((scores,), stop=lambda n: n.op in (ops.REDUCE, ops.REALIZE))
    sums = [n for n in nodes if n.op is ops.REDUCE]
    sums = [n for n in sums if maximum(product(n.shape)) == maximum(product(scores.shape))]
    if len(sums) != 1 or sums[0].arg.op is not ops.ADD or sums[0].src[0].op is not ops.MUL:
        return None
    return sums[0]


# What takes its place.


def _attended(found: _Attention, caps: Caps) -> Tensor:
    """The sum, by an ATTEND of scores [*batch, row, keys] and values [*batch, keys, column]."""
    order = (*found.batch, found.row, found.keys, found.column)
    scores = _seen(found, _scaled(found.weights.scores, caps), len(found.weights.views))
    left = _over(scores, found, found.column).permute(order)
    right = _over(Tensor(found.values), found, found.row)
    right = right.permute((*found.batch, found.keys, found.column, found.row))
    left, right = (t.reshape(t.shape[:-1]) for t in (left, right))
    attended = left.attend(right, zeros=found.weights.zeros)
    for condition, dropped, views in found.weights.rows:
        row = _over(_seen(found, condition, views), found, found.column).permute(order)
        lead = row.shape[:-2]
        row = row.shrink([*((0, size) for size in lead), (0, 1), (0, 1)]).reshape((*lead, 1))
        attended = row.where(0.0, attended) if dropped else row.where(attended, 0.0)
    made = [axis for axis in order if axis != found.keys]
    left_axes = [axis for axis in range(len(found.shape)) if axis != found.keys]
    return attended.permute([made.index(axis) for axis in left_axes])


def _seen(found: _Attention, node: UOp, count: int) -> Tensor:
    """A node of the shape of the softmax, or of one above it, through that many views above it."""
    for view in reversed(found.weights.views[:count]):
        node = UOp(view.op, node.dtype, (node,), view.arg)
    return Tensor(node)


def _over(factor: Tensor, found: _Attention, axis: int) -> Tensor:
    """A factor of the product with one element along an axis along which it repeats."""
    shape = tuple(1 if place == axis else size for place, size in enumerate(found.shape))
    return Tensor(_unrepeated(factor.node)).expand(shape)


def _scaled(scores: UOp, caps: Caps) -> UOp:
    """Scores of which the products' factors are plain: a number that one is multiplied by is a
    factor of the sum.
    """

    sums = _product_below(scores)
    assert sums is not None
    (left, a), (right, b) = map(_unscaled, sums.src[0].src)
    if caps.scalar_operands:
        right = _kept_below(_unrepeated(right), right.shape)
    plain = sums.replace((sums.src[0].replace((left, right)),))
    return substitute((scores,), {sums: (Tensor(plain) * (a * b)).node})[0]


def _kept_below(node: UOp, shape: Shape) -> UOp:
    """A factor that lies in memory in the shape in which it is made: so other products of the same
    tensor may be made beside it, in one launch.
    """
    views: list[UOp] = []
    while node.op in (ops.RESHAPE, ops.PERMUTE):
        views.append(node)
        node = node.src[0]
    return Tensor(viewed(Tensor(node).in_memory().node, views)).expand(shape).node


def _unscaled(node: UOp) -> tuple[UOp, float]:
    """A view of what lies in memory, and the number that it is multiplied by."""
    views: list[UOp] = []
    while node.op.group == "movement":
        views.append(node)
        node = node.src[0]
    factor = 1.0
    if node.op is ops.MUL:
        for number, other in (node.src, node.src[::-1]):
            if (value := _constant(number)) is not None and _in_memory(other) and value:
                node, factor = other, float(np.float32(value))
                break
    node = viewed(node, views)
    if factor != 1 and node.op.group == "movement":
        inner, more = _unscaled(node)
        return inner, factor * more
    return node, factor


def _in_memory(node: UOp) -> bool:
    while node.op.group == "movement":
        node = node.src[0]
    return node.op in (ops.BUFFER, ops.REALIZE, ops.LOOP_OUTPUT, ops.ASSIGN)
