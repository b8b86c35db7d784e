"""How index nodes are computed: the rules behind the operators of `uop.UOp`, and comparisons.

Every rule here returns the canonical node of its polynomial (`ir.polynomial`), so equal expressions
are the same node and most divisions disappear when they are built. Index arithmetic is exact:
values are assumed to fit the device's integers.

Operands are sizes, an int or an index node each, as those of `r * step + i` are. A comparison is a
function, not an operator: equal nodes are one object, which `==` tells, and what `<` gives would be
true wherever it is not known yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.intervals import floor_quotient
from tinyedge.core.ir.polynomial import (
    Terms,
    added,
    bounds,
    build,
    divided,
    divisor,
    divisor_of,
    proves_nonnegative,
    range_of,
    scaled,
    split_small,
    terms,
    times,
)
from tinyedge.core.ir.uop import ARITHMETIC, Size, UOp, as_node, as_size, const

ZERO = const(0, dt.index)
TRUE = const(True, dt.bool_)
FALSE = const(False, dt.bool_)


# Sums and products.


def _add(a: UOp, b: UOp) -> UOp:
    if a.op is ops.CONST and a.arg == 0:
        return b
    if b.op is ops.CONST and b.arg == 0:
        return a
    return _whole(build(added(terms(a), terms(b))))


def _sub(a: UOp, b: UOp) -> UOp:
    if b.op is ops.CONST and b.arg == 0:
        return a
    return _whole(build(added(terms(a), scaled(terms(b), -1))))


def _mul(a: UOp, b: UOp) -> UOp:
    if b.op is ops.CONST and b.arg == 1:
        return a
    if a.op is ops.CONST and a.arg == 1:
        return b
    return build(times(terms(a), terms(b)))


def _neg(a: UOp) -> UOp:
    return build(scaled(terms(a), -1))


def is_sum(node: UOp) -> bool:
    """Whether an index is made of others by sums and products alone."""
    return node.dtype is dt.index and node.op in _SUMS


_SUMS = frozenset((ops.ADD, ops.SUB, ops.NEG, ops.MUL))


def atoms(node: UOp) -> tuple[UOp, ...]:
    """What the polynomial of an index is made of."""
    if node._atoms is None:
        node._atoms = tuple(dict.fromkeys([atom for m in terms(node) for atom in m]))
    return node._atoms


def composed(node: UOp, values: Iterable[UOp]) -> UOp:
    """An index with other values of its `atoms`: all of the sum at once, not term by term."""
    places = dict(zip(atoms(node), values, strict=True))
    total: Terms = {}
    for monomial, coefficient in terms(node).items():
        part: Terms = {(): coefficient}
        for atom in monomial:
            part = times(terms(places[atom]), part)
        total = added(total, part)
    return _whole(build(total))


def joined(size: Size) -> UOp:
    """The expression with x for every n * floor(x / n) + x mod n: what is taken apart and put
    together again, as an address that was computed for another shape.
    """
    node = as_node(size)
    polynomial = terms(node)
    for monomial, coefficient in polynomial.items():
        if len(monomial) != 1 or monomial[0].op is not ops.MOD:
            continue
        x, n = monomial[0].src
        whole = scaled(terms(x // n * n), coefficient)
        if all(polynomial.get(part) == factor for part, factor in whole.items()):
            rest = added(added(polynomial, {monomial: -coefficient}), scaled(whole, -1))
            return joined(build(added(rest, scaled(terms(x), coefficient))))
    return node


def _whole(node: UOp) -> UOp:
    """The size with x mod n for x - n * floor(x / n), n * floor(x / n) for x - x mod n, and x for
    both together: as where sizes are rounded to a multiple, and filled up to what they were.
    """
    node = joined(node)
    polynomial = terms(node)
    for monomial, coefficient in polynomial.items():
        if len(monomial) != 1 or monomial[0].op not in (ops.FLOORDIV, ops.MOD):
            continue
        atom = monomial[0]
        x, n = atom.src
        if n.op is not ops.CONST or (atom.op is ops.FLOORDIV and coefficient % n.arg):
            continue
        whole = atom.op is ops.FLOORDIV
        factor = -coefficient // n.arg if whole else -coefficient
        if any(polynomial.get(part) != value for part, value in scaled(terms(x), factor).items()):
            continue
        rest = added(added(polynomial, {monomial: -coefficient}), scaled(terms(x), -factor))
        other = x % n if whole else x // n * n
        return _whole(build(added(rest, scaled(terms(other), factor))))
    return node


# Quotients.


def _floordiv(a: UOp, n: UOp) -> UOp:
    """floor(a / n), for n > 0."""
    quotient, remainder = divided(a, n)
    return build(added(quotient, terms(_quotient_atom(build(remainder), n))))


def _mod(a: UOp, n: UOp) -> UOp:
    """a - n * floor(a / n), for n > 0."""
    _, remainder = divided(a, n)
    if n.op is ops.CONST:  # H mod 32 is 0 for a symbol H that goes in steps of 32
        remainder = {m: x for m, x in remainder.items() if divisor_of(m, x) % n.arg}
    node = build(remainder)
    if n.op is ops.CONST:
        split = split_small(remainder, n.arg)
        if split is not None:
            big, small, g = split
            inner = build(big) % (n.arg // g)
            return build(added(scaled(terms(inner), g), small))
    quotient = _quotient_atom(node, n)
    if quotient.op is ops.CONST:
        return build(added(terms(node), scaled(terms(n), -quotient.arg)))
    return UOp(ops.MOD, dt.index, (node, n))


def _quotient_atom(node: UOp, n: UOp) -> UOp:
    """floor(node / n) where no multiple of n is left in node."""
    low, high = bounds(node)
    least = bounds(n)[0]
    if low >= 0 and high < least:
        return ZERO
    if n.op is ops.CONST:
        if n.arg == 1:
            return node
        whole, last = floor_quotient(low, n.arg), floor_quotient(high, n.arg)
        if whole == last and not math.isinf(whole):
            return const(int(whole), dt.index)
        split = split_small(terms(node), n.arg)
        if split is not None:
            big, _, g = split
            return as_node(build(big) // (n.arg // g))
        if node.op is ops.FLOORDIV and node.src[1].op is ops.CONST:
            return as_node(node.src[0] // (node.src[1].arg * n.arg))
    elif proves_nonnegative(terms(node)):
        gap = added(added(terms(n), scaled(terms(node), -1)), {(): -1})
        if proves_nonnegative(gap):
            return ZERO
    return UOp(ops.FLOORDIV, dt.index, (node, n))


def ceildiv(a: Size, b: Size) -> Size:
    """ceil(a / b), for b > 0."""
    return (a + b - 1) // b


def round_up(size: Size, multiple: int) -> Size:
    """The least multiple that is not below the size."""
    return size if multiple == 1 else ceildiv(size, multiple) * multiple


# The lesser and the greater.


def minimum(a: Size, b: Size) -> Size:
    """The lesser of two."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return as_size(_minimum(as_node(a), as_node(b)))


def maximum(a: Size, b: Size) -> Size:
    """The greater of two."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return as_size(_maximum(as_node(a), as_node(b)))


def _minimum(a: UOp, b: UOp) -> UOp:
    for one, other in ((a, b), (b, a)):
        if one.op is ops.MIN and other in one.src:
            return one
    if proves_nonnegative(added(terms(b), scaled(terms(a), -1))):
        return a
    if proves_nonnegative(added(terms(a), scaled(terms(b), -1))):
        return b
    return UOp(ops.MIN, dt.index, (a, b))


def _maximum(a: UOp, b: UOp) -> UOp:
    if proves_nonnegative(added(terms(b), scaled(terms(a), -1))):
        return b
    if proves_nonnegative(added(terms(a), scaled(terms(b), -1))):
        return a
    return UOp(ops.MAX, dt.index, (a, b))


# Comparisons and conditions.


def lt(a: Size, b: Size) -> UOp:
    """a < b, as a constant where it can be proved or refuted."""
    difference = added(terms(b), scaled(terms(a), -1))
    if proves_nonnegative(added(difference, {(): -1})):
        return TRUE
    if proves_nonnegative(scaled(difference, -1)):
        return FALSE
    return UOp(ops.LT, dt.bool_, (as_node(a), as_node(b)))


def le(a: Size, b: Size) -> UOp:
    """a <= b, as a constant where it can be proved or refuted."""
    return lt(a, b + 1)


def eq(a: Size, b: Size) -> UOp:
    """a == b, as a constant where it can be proved or refuted."""
    one, other = as_node(a), as_node(b)
    if one is other:
        return TRUE
    low, high = range_of(added(terms(one), scaled(terms(other), -1)))
    if low > 0 or high < 0:
        return FALSE
    return UOp(ops.EQ, dt.bool_, (one, other))


def whole(condition: UOp) -> UOp:
    """A comparison of places divided by what divides their terms: some are then the same, as
    4 < 8 * r and 0 < 8 * r. Other conditions as they are.
    """
    if condition.op is not ops.LT or condition.src[0].dtype is not dt.index:
        return condition
    a, b = condition.src
    rest = dict(terms(b - a - 1))
    constant, common = rest.pop((), 0), divisor(build(rest))
    if common < 2:
        return condition
    return le(0, as_node(build(rest)) // common + constant // common)


def and_(a: UOp, b: UOp) -> UOp:
    """a and b, with constants folded; one of them where it holds all conditions of the other."""
    if a is FALSE or b is FALSE:
        return FALSE
    if a is TRUE or implies(b, a):
        return b
    return a if b is TRUE or implies(a, b) else UOp(ops.AND, dt.bool_, (a, b))


def implies(a: UOp, b: UOp) -> bool:
    """Whether every condition of the conjunction b is one of a."""
    return set(conjuncts(b)) <= set(conjuncts(a))


def conjuncts(condition: UOp) -> list[UOp]:
    """The conditions that a conjunction is made of, in order."""
    if condition.op is ops.AND:
        return [*conjuncts(condition.src[0]), *conjuncts(condition.src[1])]
    return [condition]


def all_of(conditions: Iterable[UOp]) -> UOp:
    """The conjunction of the conditions."""
    result = TRUE
    for condition in conditions:
        result = and_(result, condition)
    return result


def rebuild(node: UOp) -> UOp:
    """The canonical form of an index (or index comparison) node whose operands are canonical."""
    rule = _RULES.get(node.op)
    return node if rule is None or node.src[0].dtype is not dt.index else rule(*node.src)


ARITHMETIC.update(
    {
        ops.ADD: _add,
        ops.SUB: _sub,
        ops.MUL: _mul,
        ops.NEG: _neg,
        ops.FLOORDIV: _floordiv,
        ops.MOD: _mod,
    }
)
_RULES = {
    **ARITHMETIC,
    ops.MIN: _minimum,
    ops.MAX: _maximum,
    ops.LT: lt,
    ops.LE: le,
    ops.EQ: eq,
}
