"""The canonical form of index arithmetic, and what is proved by it.

An index expression is a polynomial: integer coefficients over products of *atoms* (ranges, symbols,
and whatever is not a sum or product: a floordiv, a minimum, a loaded value). Equal expressions
have one polynomial, and one polynomial has one node.
"""

from __future__ import annotations

import math

from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.intervals import (
    INTERVALS,
    UNKNOWN,
    Bound,
    Interval,
    product,
    quotient,
    remainder,
)
from tinyedge.core.ir.uop import Size, UOp, as_node, const

Monomial = tuple[UOp, ...]
Terms = dict[Monomial, int]

PROOF_RANGES = 8  # that one proof moves to their ends: a size may bring new ranges with it


# Canonical form.


def terms(size: Size) -> Terms:
    """The polynomial of an index expression. Do not change the returned dict."""
    node = size if isinstance(size, UOp) else as_node(size)
    if node._terms is None:
        node._terms = _terms(node)
    return node._terms


def _terms(node: UOp) -> Terms:
    op = node.op
    if op is ops.CONST:
        return {(): node.arg} if node.arg else {}
    if op is ops.ADD:
        return added(terms(node.src[0]), terms(node.src[1]))
    if op is ops.SUB:
        return added(terms(node.src[0]), scaled(terms(node.src[1]), -1))
    if op is ops.NEG:
        return scaled(terms(node.src[0]), -1)
    if op is ops.MUL:
        return times(terms(node.src[0]), terms(node.src[1]))
    return {(node,): 1}


def added(a: Terms, b: Terms) -> Terms:
    total = dict(a)
    for monomial, coefficient in b.items():
        value = total.get(monomial, 0) + coefficient
        if value:
            total[monomial] = value
        else:
            del total[monomial]
    return total


def scaled(a: Terms, factor: int) -> Terms:
    return {monomial: coefficient * factor for monomial, coefficient in a.items()} if factor else {}


def times(a: Terms, b: Terms) -> Terms:
    if len(b) == 1 and () in b:
        return scaled(a, b[()])
    total: Terms = {}
    for left, x in a.items():
        for right, y in b.items():
            monomial = tuple(sorted(left + right, key=atom_key))
            value = total.get(monomial, 0) + x * y
            if value:
                total[monomial] = value
            else:
                total.pop(monomial, None)
    return total


def atom_key(atom: UOp) -> tuple[int, object]:
    """A deterministic order: ranges by number, symbols by name, the rest by structure."""
    if atom.op is ops.RANGE:
        return 0, atom.arg.number
    if atom.op is ops.SYMBOL:
        return 1, atom.arg.name
    return 2, atom.digest


def _monomial_key(monomial: Monomial) -> tuple[object, ...]:
    return (not monomial, tuple(atom_key(atom) for atom in monomial))


def build(polynomial: Terms) -> UOp:
    """The canonical node of a polynomial: terms in a fixed order, the constant last."""
    if not polynomial:
        return const(0, dt.index)
    node: UOp | None = None
    for monomial in sorted(polynomial, key=_monomial_key):
        coefficient = polynomial[monomial]
        if not monomial:
            term = const(coefficient, dt.index)
        else:
            term = monomial[0]
            for atom in monomial[1:]:
                term = UOp(ops.MUL, dt.index, (term, atom))
            if coefficient != 1:
                term = UOp(ops.MUL, dt.index, (term, const(coefficient, dt.index)))
        node = term if node is None else UOp(ops.ADD, dt.index, (node, term))
    assert node is not None
    if node._terms is None:
        node._terms = polynomial
    return node


# Bounds and proofs.


def bounds(size: Size) -> Interval:
    """Least and greatest value, by interval arithmetic; infinite where unknown."""
    if not isinstance(size, UOp):
        return size, size
    if size._bounds is None:
        size._bounds = _bounds(size)
    return size._bounds


def _bounds(node: UOp) -> Interval:
    op = node.op
    if op is ops.CONST:
        return (int(node.arg), int(node.arg)) if node.dtype.kind != "f" else UNKNOWN
    if op is ops.RANGE:
        return 0, max(0, bounds(node.src[0])[1] - 1)
    if op is ops.SYMBOL:
        return node.arg.min, node.arg.max
    if op in (ops.ADD, ops.MUL, ops.SUB, ops.NEG):
        return range_of(terms(node)) if node.dtype is dt.index else UNKNOWN
    if op is ops.CAST and node.dtype is dt.index and node.src[0].dtype.kind in "biu":
        return node.src[0].dtype.limits
    rule = _INTERVALS.get(op)
    return UNKNOWN if rule is None else rule(*map(bounds, node.src))


# Sums and products are polynomials, and divisors of indices are positive.
_INTERVALS = {
    **{row: INTERVALS[row] for row in (ops.MIN, ops.MAX, ops.WHERE)},
    ops.FLOORDIV: quotient,
    ops.MOD: remainder,
}


def range_of(polynomial: Terms) -> Interval:
    """Least and greatest value of a polynomial."""
    low: Bound = 0
    high: Bound = 0
    for monomial, coefficient in polynomial.items():
        interval: Interval = (coefficient, coefficient)
        for atom in monomial:
            interval = product(interval, bounds(atom))
        low += interval[0]
        high += interval[1]
    return low, high


def proves_nonnegative(polynomial: Terms) -> bool:
    """Whether the polynomial is >= 0 for every value of its ranges and symbols. False: not proved,
    which is a right answer of every proof here and costs an expression that is longer than it need
    be.

    Ranges that occur with one sign are moved to their worst end, whose size may be symbolic (at
    most PROOF_RANGES of them: the search for a proof ends there); symbols are then shifted by their
    minimum, after which nonnegative coefficients suffice.
    """
    if range_of(polynomial)[0] >= 0:
        return True
    for _ in range(PROOF_RANGES):
        target = _symbolic_range(polynomial)
        if target is None:
            break
        factor, rest = split_atom(polynomial, target)
        low, high = range_of(factor)
        if low >= 0:
            polynomial = rest
        elif high <= 0:
            last = added(terms(target.src[0]), {(): -1})
            polynomial = added(rest, times(factor, last))
        else:
            return False
    return _shifted_is_nonnegative(polynomial) or _lesser_proves(polynomial)


def _lesser_proves(polynomial: Terms) -> bool:
    """The proof with one of two in place of the lesser of them, of which something is taken."""
    for monomial, coefficient in polynomial.items():
        if len(monomial) == 1 and monomial[0].op is ops.MIN and coefficient < 0:
            rest = {m: c for m, c in polynomial.items() if m != monomial}
            each = (added(rest, scaled(terms(s), coefficient)) for s in monomial[0].src)
            return any(map(proves_nonnegative, each))
    return False


def _symbolic_range(polynomial: Terms) -> UOp | None:
    for monomial in polynomial:
        for atom in monomial:
            if atom.op is ops.RANGE:
                return atom
    return None


def split_atom(polynomial: Terms, atom: UOp) -> tuple[Terms, Terms]:
    """factor, rest with polynomial = factor * atom + rest (atom may remain in factor)."""
    factor: Terms = {}
    rest: Terms = {}
    for monomial, coefficient in polynomial.items():
        if atom in monomial:
            position = monomial.index(atom)
            factor[monomial[:position] + monomial[position + 1 :]] = coefficient
        else:
            rest[monomial] = coefficient
    return factor, rest


def _shifted_is_nonnegative(polynomial: Terms) -> bool:
    symbols = {a for monomial in polynomial for a in monomial if a.op is ops.SYMBOL}
    shifted: Terms = {}
    for monomial, coefficient in polynomial.items():
        part: Terms = {(): coefficient}
        for atom in monomial:
            value: Terms = {(atom,): 1}
            if atom in symbols:
                value = added(value, {(): atom.arg.min} if atom.arg.min else {})
            elif bounds(atom)[0] < 0:
                return False
            part = times(part, value)
        shifted = added(shifted, part)
    return all(coefficient >= 0 for coefficient in shifted.values())


def divisor(size: Size) -> int:
    """The greatest known integer that divides every value of the expression (0 for 0)."""
    total = 0
    for monomial, coefficient in terms(size).items():
        total = math.gcd(total, divisor_of(monomial, coefficient))
    return total


def divisor_of(monomial: Monomial, coefficient: int) -> int:
    for atom in monomial:
        coefficient *= _atom_divisor(atom)
    return coefficient


def _atom_divisor(atom: UOp) -> int:
    if atom.op in (ops.MIN, ops.MAX):
        return math.gcd(divisor(atom.src[0]), divisor(atom.src[1]))
    return 1


# Division.


def divided(a: UOp, n: UOp) -> tuple[Terms, Terms]:
    """quotient, remainder with a = quotient * n + remainder; the remainder as small as is easy."""
    if n.op is not ops.CONST:
        return _divide_symbolic(terms(a), terms(n))
    if n.arg <= 0:
        raise ValueError(f"division of an index by {n.arg}")
    if any(monomial and c > n.arg and c % n.arg for monomial, c in terms(a).items()):
        quotient, remainder = _divide_terms(terms(a), n.arg, parts=True)
        low, high = bounds(build(remainder))
        if 0 <= low and high < n.arg:
            return quotient, remainder
    return _divide_terms(terms(a), n.arg, parts=False)


def _divide_terms(polynomial: Terms, n: int, *, parts: bool) -> tuple[Terms, Terms]:
    """Each term by itself. parts: also of coefficients above n that n does not divide, as of
    6*r = r*5 + r; else these are left.
    """
    quotient: Terms = {}
    remainder: Terms = {}
    for monomial, coefficient in polynomial.items():
        whole, part = divmod(coefficient, n)
        if monomial and part and (coefficient < n or not parts):
            whole, part = 0, coefficient
        if whole:
            quotient[monomial] = whole
        if part:
            remainder[monomial] = part
    return quotient, remainder


def _divide_symbolic(polynomial: Terms, divisor_terms: Terms) -> tuple[Terms, Terms]:
    """Division of polynomials of several variables by the leading term of the divisor.

    It ends: monomials are compared by degree and then from their least atom on, an order that
    products keep (graded reverse lexicographic), so that each step puts smaller monomials, of
    which there are finitely many, in the place of those it divides.
    """
    leading = max(divisor_terms, key=lambda m: (len(m), _monomial_key(m)))
    scale = divisor_terms[leading]
    quotient: Terms = {}
    remainder = dict(polynomial)
    while True:
        step: Terms = {}
        for monomial, coefficient in remainder.items():
            rest = _monomial_quotient(monomial, leading)
            if rest is not None and coefficient % scale == 0:
                step[rest] = coefficient // scale
        if not step:
            return quotient, remainder
        quotient = added(quotient, step)
        remainder = added(remainder, scaled(times(step, divisor_terms), -1))


def _monomial_quotient(monomial: Monomial, by: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def split_small(polynomial: Terms, n: int) -> tuple[Terms, Terms, int] | None:
    """big, small, g with polynomial = g * big + small, g | n, g > 1 and 0 <= small < g proved."""
    candidates = set()
    running = n
    for coefficient in sorted((abs(c) for m, c in polynomial.items() if m), reverse=True):
        running = math.gcd(running, coefficient)
        if running == 1:
            break
        candidates.add(running)
    for g in sorted(candidates, reverse=True):
        small: Terms = {}
        big: Terms = {}
        for monomial, coefficient in polynomial.items():
            if monomial and coefficient % g:
                small[monomial] = coefficient
            elif monomial:
                big[monomial] = coefficient // g
            else:
                whole, part = divmod(coefficient, g)
                if whole:
                    big[monomial] = whole
                if part:
                    small[monomial] = part
        low, high = range_of(small)
        if low >= 0 and high < g:
            return big, small, g
    return None
