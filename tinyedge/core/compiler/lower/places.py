"""A store's place without the limits that its condition sets anyway.

    if m < n: y[min(m, n - 1) * k] = v    ->    if m < n: y[m * k] = v

Rows of a tile that is rounded up then lie a constant apart, and share one address in registers.
What is loaded, without a condition, keeps its limits.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyedge.core import dtype as dt
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.polynomial import Terms, added, proves_nonnegative, scaled, terms
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import rewrite
from tinyedge.core.ir.uop import UOp, toposort


def free_places(sink: UOp) -> UOp:
    """A kernel with tiles in workgroup memory whose stores are at such places. Where there are no
    tiles, what is loaded ahead decides how many registers a kernel takes, and may then be more.
    """
    if not any(node.op is ops.FILLED for node in toposort((sink,))):
        return sink
    return sink.replace(tuple(_free(store) if store.arg else store for store in sink.src))


def _free(store: UOp) -> UOp:
    places = access.indices_of(store)
    known = [_inside(c) for c in ix.conjuncts(access.guard_of(store)) if _compares_places(c)]
    mapping = {
        node: within
        for node in toposort(places)
        if node.op is ops.MIN and node.dtype is dt.index
        for within in node.src
        if _is_least(within, node, known)
    }
    return access.at(store, rewrite(places, mapping)) if mapping else store


def _compares_places(condition: UOp) -> bool:
    return condition.op is ops.LT and condition.src[0].dtype is dt.index


def _inside(condition: UOp) -> Terms:
    """What is at least 0 where a comparison of places holds."""
    a, b = condition.src
    return terms(b - a - 1)


def _is_least(operand: UOp, node: UOp, known: Sequence[Terms]) -> bool:
    """Whether an operand of a minimum is the minimum wherever what is known is at least 0."""
    others = [other for other in node.src if other is not operand]
    return all(
        any(proves_nonnegative(added(terms(other - operand), scaled(each, -1))) for each in known)
        for other in others
    )
