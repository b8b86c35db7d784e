"""Equations on values, and the one `simplify` that every pass builds its nodes with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.rewrite import (
    Bindings,
    Operand,
    Pattern,
    Rule,
    RuleSet,
    any_,
    bottom_up,
    of,
)
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules import spans
from tinyedge.core.ir.uop import UOp, const

X, Y, Z, A, B = any_("x"), any_("y"), any_("z"), any_("a"), any_("b")


def _select(condition: Operand, yes: Operand, no: Operand) -> Pattern:
    return of(ops.WHERE, condition, yes, no)


def _integer(bindings: Bindings) -> bool:
    return bindings["x"].dtype.kind in "iu"


def _not_index(bindings: Bindings) -> bool:
    """Index arithmetic has a canonical form of its own, in which -x is x * -1."""
    return bindings["x"].dtype is not dt.index


def _keeps_zero(sign: float) -> Callable[[Bindings], bool]:
    """x + -0.0 and x - 0.0 are x; with the other zero the result for x = -0.0 would be 0.0."""

    def holds(bindings: Bindings) -> bool:
        zero = next(s for s in reversed(bindings["root"].src) if s.op is ops.CONST and s.arg == 0)
        return not zero.dtype.is_float or math.copysign(1.0, zero.arg) == sign

    return holds


def _fold(node: UOp) -> UOp:
    """An operation on constants, computed."""
    if not node.op.elementwise or not node.src or any(s.op is not ops.CONST for s in node.src):
        return node
    if node.op is ops.BITCAST:
        value = np.asarray(node.src[0].arg, node.src[0].dtype.numpy).view(node.dtype.numpy)
        return const(value.item(), node.dtype)
    if node.op is ops.CAST:
        value = dt.cast_array(np.asarray(node.src[0].arg, node.src[0].dtype.numpy), node.dtype)
        return const(value.item(), node.dtype)
    assert node.op.numpy is not None
    operands = [np.asarray(s.arg, s.dtype.numpy) for s in node.src]
    result = np.asarray(node.op.numpy(*operands)).astype(node.dtype.numpy)
    return const(result.item(), node.dtype)


def _index_or_constant(node: UOp) -> UOp:
    if node.src and node.src[0].dtype is dt.index and node.dtype.lanes == 1:
        new = ix.rebuild(node)
        if new is not node:
            return new
    if node.op is ops.WHERE and node.src[0].op is not ops.CONST:
        return _where(node)
    if node.op in (ops.LOAD, ops.STORE) and node.arg and node.src[-1].op is ops.CONST:
        if node.src[-1].arg:
            return UOp(node.op, node.dtype, node.src[:-1], False)
        return const(0, node.dtype) if node.op is ops.LOAD else node
    return _fold(node)


def _where(node: UOp) -> UOp:
    """A guarded load is 0 where its guard is false: a select of it or 0 under it is the load. -0 is
    another number.
    """
    condition, yes, no = node.src
    if no.op is ops.CONST and not no.arg and math.copysign(1, no.arg) > 0:
        load = yes
        while load.op is ops.CAST:
            load = load.src[0]
        if load.op is ops.LOAD and load.arg and ix.implies(load.src[-1], condition):
            return yes
    if yes.op is ops.CAST and no.op is ops.CAST:
        one, other = yes.src[0], no.src[0]
    else:
        one, other = yes, no
    if one.op is ops.LOAD and other.op is ops.LOAD:
        joined = _one_load(condition, one, other)
        if joined is not None:
            return joined if one is yes else yes.replace((joined,))
    return node


def _one_load(condition: UOp, yes: UOp, no: UOp) -> UOp | None:
    """Loads of one place, where one condition tells which: as of parts that lie beside each other
    and are put together again.
    """
    (place, one), (other, guard) = _place(yes), _place(no)
    if place != other or yes.dtype is not no.dtype:
        return None
    held = spans.either(condition, one, guard)
    if held is None or held is ix.TRUE:
        return held and UOp(ops.LOAD, yes.dtype, place, False)
    return simplify(UOp(ops.LOAD, yes.dtype, (*place, held), True))


def _place(load: UOp) -> tuple[tuple[UOp, ...], UOp]:
    """What it loads from and where, and its condition."""
    return (load.src[:-1], load.src[-1]) if load.arg else (load.src, ix.TRUE)


def _conjunction(bindings: Bindings) -> UOp:
    condition = ix.and_(bindings["a"], bindings["b"])
    return simplify(UOp(ops.WHERE, bindings["x"].dtype, (condition, bindings["x"], bindings["y"])))


def _cast_chain(bindings: Bindings) -> UOp | None:
    """cast(cast(x)) where the inner cast loses nothing the outer would keep."""
    x, root = bindings["x"], bindings["root"]
    inner = root.src[0].dtype
    keeps = x.dtype.kind == inner.kind and inner.bits >= x.dtype.bits
    if x.dtype.kind == "b" or (keeps and root.dtype.kind == inner.kind) or _is_code(x, inner):
        return simplify(UOp(ops.CAST, root.dtype, (x,))) if root.dtype is not x.dtype else x
    return None


def _is_code(node: UOp, dtype: DType) -> bool:
    """Whether an integer is a level and a constant, of which the type holds all that there are."""
    level, zero = node.src if node.op is ops.ADD else (node, const(0, node.dtype))
    if level.op is not ops.LEVEL or zero.op is not ops.CONST or level.src[2].op is not ops.CONST:
        return False
    least, most = dtype.limits if dtype.is_int else (1, 0)
    low = int(level.src[2].arg) + int(zero.arg)
    return least <= low and low + 255 <= most


def _over_zero(bindings: Bindings) -> UOp:
    """x / 0 as x * infinity, which compilers that divide by constants as they like leave alone."""
    x, zero = bindings["x"], bindings["root"].src[1]
    return UOp(ops.MUL, x.dtype, (x, const(math.copysign(math.inf, zero.arg), zero.dtype)))


RULES = [
    Rule("add-zero", X + 0, X, _keeps_zero(-1.0)),
    Rule("sub-zero", X - 0, X, _keeps_zero(1.0)),
    Rule("sub-self", X - X, 0, _integer),
    Rule("mul-one", X * 1, X),
    Rule("mul-zero", X * 0, 0, _integer),
    Rule("mul-minus-one", X * -1, -X, _not_index),
    Rule("div-one", X / 1, X),
    Rule("div-zero", X / 0, _over_zero),
    Rule("floordiv-one", X // 1, X),
    Rule("truncdiv-one", of(ops.TRUNCDIV, X, 1), X),
    Rule("neg-neg", -(-X), X),  # noqa: B002
    Rule("add-neg", X + -Y, X - Y),
    Rule("sub-neg", X - -Y, X + Y),
    Rule("not-not", ~~X, X),
    Rule("and-true", X & True, X),
    Rule("and-false", X & False, False),
    Rule("and-self", X & X, X),
    Rule("or-true", X | True, True),
    Rule("or-false", X | False, X),
    Rule("or-self", X | X, X),
    Rule("max-self", of(ops.MAX, X, X), X),
    Rule("min-self", of(ops.MIN, X, X), X),
    Rule("where-true", _select(True, X, Y), X),
    Rule("where-false", _select(False, X, Y), Y),
    Rule("where-bool", _select(X, True, False), X),
    Rule("where-same", _select(A, X, X), X),
    Rule("where-not", _select(~A, X, Y), _select(A, Y, X)),
    Rule("where-known-true", _select(A, _select(A, X, Y), Z), _select(A, X, Z)),
    Rule("where-known-false", _select(A, X, _select(A, Y, Z)), _select(A, X, Z)),
    Rule("where-and", _select(A, _select(B, X, Y), Y), _conjunction),
    Rule("cast-cast", of(ops.CAST, of(ops.CAST, X)), _cast_chain),
    Rule("cast-same", of(ops.CAST, X), X, lambda b: b["root"].dtype is b["x"].dtype),
]

SIMPLIFY = RuleSet("simplify", RULES, _index_or_constant)
simplify = SIMPLIFY.apply


def operands(node: UOp) -> tuple[UOp, ...]:
    """What a node is simplified from: the atoms of an index, as it is simplified as a whole."""
    return ix.atoms(node) if ix.is_sum(node) else node.src


def simplified(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """The change that simplifies each node of which `operands` changed."""
    if ix.is_sum(node):
        return node if src == ix.atoms(node) else ix.composed(node, src)
    return node if src == node.src else simplify(node.replace(src))


def rewrite(roots: tuple[UOp, ...], mapping: Mapping[UOp, UOp]) -> tuple[UOp, ...]:
    """The roots with nodes replaced, and every changed node simplified, operands first. Of a sum of
    indices only the atoms, or all of it, are replaced.
    """
    done = bottom_up(roots, simplified, dict(mapping), operands=operands)
    return tuple(done[root] for root in roots)
