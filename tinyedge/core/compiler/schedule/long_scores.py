"""What is reduced of a long row beside its greatest score, in blocks that are read but once.

A softmax's sum of exponentials is made of those of blocks, each less the block's greatest score:

    m = max of x[r];  s = sum of exp(x[r] - m)    ->    m[j] = max of x[l*j + r]
                                                        s[j] = sum of exp(x[l*j + r] - m[j])
                                                        m = max of m[j]
                                                        s = sum of s[j] * exp(m[j] - m)

The logarithm of such a sum counts the scores that are the greatest, n[j], apart from the rest
s[j] of the sum; of a block with a lesser m[j] both are of the rest. Where a row is greatest, in an
argmax, the places p[j] of the greatest blocks say.

    s = sum of (x[r] = m ? 0 : exp(x[r] - m))     ->    s = sum of (m[j] = m ? s[j]
                                                                   : (s[j] + n[j]) * exp(m[j] - m))
    n = sum of (x[r] = m ? 1 : 0)                 ->    n = sum of (m[j] = m ? n[j] : 0)
    p = min of (x[r] = m ? r : n)                 ->    p = min of (m[j] = m ? p[j] : n)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isqrt

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.attention import row_of
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import Shape, UOp
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.tensor import Tensor

ROW = 1024  # elements of a block, which few threads have in registers


Change = Callable[[UOp], UOp]


def of_scores(node: UOp, users: Sequence[UOp], caps: Caps) -> Iterator[tuple[UOp, Change]]:
    """A reduction of scores and of their greatest, and what lies below it of the latter, each with
    what makes it of blocks whose length leaves nothing over.
    """
    if caps.threads == 1 or len(node.arg.axes) != 1:
        return
    (axis,) = node.arg.axes
    compared = _compared(node.src[0])
    if compared is None or not _is_known(node, compared):
        return
    if node.arg.op is not ops.ADD and not caps.shared:  # a thread would read its block twice
        return
    scores, most = compared.src
    row = most.src[0] if most.op is ops.EXPAND else most
    within = row.op is ops.WHERE and _within(Tensor(row.src[2])).node is row
    if row_of(most.replace((row.src[2],)) if within else most, ops.MAX, axis) is not scores:
        return
    count = fixed(scores.shape[axis])
    wanted = ROW if caps.shared else isqrt(count)
    lengths = range(wanted // 2, 2 * wanted)
    whole = [n for n in lengths if n % caps.vector == 0 and count % n == 0]
    if whole:
        length = min(whole, key=lambda n: abs(n - wanted))
        greatest = UOp(ops.REDUCE, scores.dtype, (scores,), args.Reduce(ops.MAX, (axis,)))
        # with the shape that the result has, so that one kernel makes both
        keeps = node.arg.op is ops.ADD or {user.shape for user in users} == {row.shape}
        kept = row.shape if keeps else node.shape
        yield node, partial(_of_blocks, length, within)
        yield greatest, partial(_greatest_of_blocks, length, None if within else kept)
        if within:
            yield row, _in_memory


def _is_known(node: UOp, compared: UOp) -> bool:
    """Whether a reduction has one of the forms, as far as its operation and types tell."""
    terms = node.src[0]
    if node.arg.op is ops.ADD:
        known = terms.op is not ops.WHERE or _is_rest(terms, compared)
        return known and node.dtype is dt.float32
    exact = compared.src[0].dtype is dt.float32 or compared.src[0].dtype.is_int
    known = node.arg.op in (ops.MIN, ops.MAX) and terms.op is ops.WHERE
    return known and exact and _same(terms.src[2]) is not None


def _compared(terms: UOp) -> UOp | None:
    """The node whose operands are the scores and their greatest: of terms that are exponentials
    their difference, of others a test whether they are equal, in an argmax beside one for NaN.
    """
    node = terms.src[0] if terms.src else terms
    if terms.op is ops.EXP:
        return node if node.op is ops.SUB else None
    if terms.op not in (ops.CAST, ops.WHERE):
        return None
    if terms.op is ops.WHERE and node.op is ops.OR:
        node, other = node.src
        nan = other.op is ops.ISNAN and other.src == node.src[:1]
        if not nan and not _is_false(other):
            return None
    return node if node.op is ops.EQ else None


def _is_rest(terms: UOp, compared: UOp) -> bool:
    """Whether terms are exponentials of scores, less those that are 1."""
    _, nothing, each = terms.src
    less = nothing.op is ops.SUB and nothing.src == compared.src
    return less and each.op is ops.EXP and each.src == (nothing,)


def _is_false(node: UOp) -> bool:
    value = _same(node)
    return value is not None and value.op is ops.CONST and value.arg is False


def _same(node: UOp) -> UOp | None:
    """The one element that a node is everywhere, without axes; None where elements differ."""
    while node.op in (ops.EXPAND, ops.RESHAPE):
        node = node.src[0]
    return None if node.shape else node


def _within(most: Tensor) -> Tensor:
    """What is taken from scores whose greatest may be infinite: then nothing."""
    return most.isinf().where(0.0, most)


def _in_memory(node: UOp) -> UOp:
    return Tensor(node).in_memory().node


def _greatest_of_blocks(length: int, kept: Shape | None, node: UOp) -> UOp:
    """The greatest score; kept: in memory, of that shape."""
    greatest = _tops(_parts(node.src[0], node.arg.axes[0], length)).max(1)
    if kept is not None:
        greatest = greatest.reshape(kept).in_memory()
    return greatest.reshape(node.shape).node


def _tops(parts: Tensor) -> Tensor:
    """What is greatest of the blocks [rows, blocks, columns]."""
    return parts.max(2).in_memory()


def _parts(node: UOp, axis: int, length: int) -> Tensor:
    """As blocks: [rows, blocks, length, columns]."""
    rows, columns = product(node.shape[:axis]), product(node.shape[axis + 1 :])
    return Tensor(node).reshape((rows, fixed(node.shape[axis]) // length, length, columns))


def _of_blocks(length: int, within: bool, node: UOp) -> UOp:
    """A reduction that `of_scores` found, of those of blocks."""
    (axis,) = node.arg.axes
    terms = node.src[0]
    compared = _compared(terms)
    assert compared is not None
    scores, row = compared.src
    parts = _parts(scores, axis, length)
    tops = _tops(parts)
    most = Tensor(row.src[0]).reshape((parts.shape[0], 1, parts.shape[3]))
    if node.arg.op is ops.ADD:
        found = _sum(terms, parts, tops, most, within)
        if terms.op is ops.CAST:
            found = found.reshape(row.src[0].shape).in_memory()
    else:
        places = _parts(terms.src[1], axis, length)
        # a test for NaN stands beside the comparison
        alone = terms.src[0] is compared
        found = _place(node.arg.op, parts, tops, most, places, terms.src[2], nan=not alone)
    return found.reshape(node.shape).node


def _sum(terms: UOp, parts: Tensor, tops: Tensor, most: Tensor, within: bool) -> Tensor:
    """The sum of rows, of sums of blocks. most: what is taken from a row's scores; within: it is
    0 where the greatest is infinite.
    """
    # a block of -inf alone adds nothing
    none = tops.isinf() if within else tops.eq(float("-inf"))
    factors = (tops - most).exp()
    if terms.op is ops.EXP:
        lowered = none.where(0.0, tops).unsqueeze(2)
        return ((parts - lowered).exp().sum(2).in_memory() * factors).sum(1)
    ones = parts.eq(tops.unsqueeze(2))
    count = ones.cast(dt.float32).sum(2).in_memory()
    if terms.op is ops.CAST:
        return tops.eq(most).where(count, 0.0).sum(1)
    shifted = parts - tops.unsqueeze(2)
    rest = none.where(0.0, ones.where(shifted, shifted.exp()).sum(2).in_memory())
    return tops.eq(most).where(rest, (rest + count) * factors).sum(1)


def _place(
    op: ops.Primitive,
    parts: Tensor,
    tops: Tensor,
    most: Tensor,
    places: Tensor,
    beyond: UOp,
    *,
    nan: bool,
) -> Tensor:
    """The least or greatest place of a row's greatest score, of those in blocks. nan: NaN is the
    greatest; else it is equal to none.
    """
    none = Tensor(_same(beyond))

    def first(scores: Tensor, most: Tensor, places: Tensor, axis: int) -> Tensor:
        is_most = scores.eq(most) | scores.isnan() if nan else scores.eq(most)
        found = is_most.where(places, none)
        return found.min(axis) if op is ops.MIN else found.max(axis)

    own = first(parts, tops.unsqueeze(2), places, 2).in_memory()
    return first(tops, most, own, 1)
