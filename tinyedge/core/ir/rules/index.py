"""Integer arithmetic of shapes and addresses, kept in a canonical form.

An index expression is a polynomial: integer coefficients over products of *atoms* (ranges, symbols,
and whatever is not a sum or product: a floordiv, a minimum, a loaded value). Every constructor here
returns the canonical node of its polynomial, so equal expressions are the same node and most
divisions disappear when they are built. Index arithmetic is exact: values are assumed to fit the
device's integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Union

from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import Size, UOp, as_node, as_size, const

Monomial = tuple[UOp, ...]
Terms = dict[Monomial, int]
Bound = Union[int, float]

ZERO = const(0, dt.index)
ONE = const(1, dt.index)
TRUE = const(True, dt.bool_)
FALSE = const(False, dt.bool_)


# Canonical form.


def terms(node: UOp) -> Terms:
    """The polynomial of an index expression. Do not change the returned dict."""
    if node._terms is None:
        node._terms = _terms(node)
    return node._terms


def _terms(node: UOp) -> Terms:
    op = node.op
    if op is ops.CONST:
        return {(): node.arg} if node.arg else {}
    if op is ops.ADD:
        return _sum(terms(node.src[0]), terms(node.src[1]))
    if op is ops.SUB:
        return _sum(terms(node.src[0]), _scaled(terms(node.src[1]), -1))
    if op is ops.NEG:
        return _scaled(terms(node.src[0]), -1)
    if op is ops.MUL:
        return _multiplied(terms(node.src[0]), terms(node.src[1]))
    return {(node,): 1}


def _sum(a: Terms, b: Terms) -> Terms:
    total = dict(a)
    for monomial, coefficient in b.items():
        value = total.get(monomial, 0) + coefficient
        if value:
            total[monomial] = value
        else:
            del total[monomial]
    return total


def _scaled(a: Terms, factor: int) -> Terms:
    return {monomial: coefficient * factor for monomial, coefficient in a.items()} if factor else {}


def _multiplied(a: Terms, b: Terms) -> Terms:
    if len(b) == 1 and () in b:
        return _scaled(a, b[()])
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
        return ZERO
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


def bounds(node: UOp) -> tuple[Bound, Bound]:
    """Least and greatest value, by interval arithmetic; infinite where unknown."""
    if node._bounds is None:
        node._bounds = _bounds(node)
    return node._bounds


def _bounds(node: UOp) -> tuple[Bound, Bound]:
    op = node.op
    if op is ops.CONST:
        value = node.arg
        return (int(value), int(value)) if node.dtype.kind != "f" else (-math.inf, math.inf)
    if op is ops.RANGE:
        return 0, max(0, bounds(node.src[0])[1] - 1)
    if op is ops.SYMBOL:
        return node.arg.min, node.arg.max
    if op in (ops.ADD, ops.MUL, ops.SUB, ops.NEG) and node.dtype is dt.index:
        return _polynomial_bounds(terms(node))
    if op is ops.FLOORDIV:
        return _quotient_bounds(node)
    if op is ops.MOD:
        high = bounds(node.src[1])
        low = bounds(node.src[0])
        if high[0] >= 0:
            most = max(high[1] - 1, 0)
            return 0, min(most, low[1]) if low[0] >= 0 else most
        return -math.inf, math.inf
    if op in (ops.MIN, ops.MAX):
        a, b = bounds(node.src[0]), bounds(node.src[1])
        pick = min if op is ops.MIN else max
        return pick(a[0], b[0]), pick(a[1], b[1])
    if op is ops.WHERE:
        a, b = bounds(node.src[1]), bounds(node.src[2])
        return min(a[0], b[0]), max(a[1], b[1])
    if op is ops.CAST and node.dtype is dt.index and node.src[0].dtype.kind in "biu":
        return node.src[0].dtype.limits
    return -math.inf, math.inf


def _times(a: Bound, b: Bound) -> Bound:
    return 0 if a == 0 or b == 0 else a * b


def _interval_product(a: tuple[Bound, Bound], b: tuple[Bound, Bound]) -> tuple[Bound, Bound]:
    corners = [_times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _polynomial_bounds(polynomial: Terms) -> tuple[Bound, Bound]:
    low: Bound = 0
    high: Bound = 0
    for monomial, coefficient in polynomial.items():
        interval: tuple[Bound, Bound] = (coefficient, coefficient)
        for atom in monomial:
            interval = _interval_product(interval, bounds(atom))
        low += interval[0]
        high += interval[1]
    return low, high


def _quotient_bounds(node: UOp) -> tuple[Bound, Bound]:
    """Nothing is divided by a size of 0: what would be is an index into nothing."""
    low, high = bounds(node.src[0])
    least, greatest = bounds(node.src[1])
    if least < 0:
        return -math.inf, math.inf
    least, greatest = max(least, 1), max(greatest, 1)
    corners = [
        _floor(low, least),
        _floor(low, greatest),
        _floor(high, least),
        _floor(high, greatest),
    ]
    return min(corners), max(corners)


def _floor(a: Bound, b: Bound) -> Bound:
    if math.isinf(a):
        return a
    if math.isinf(b):
        return -1 if a < 0 else 0
    return a // b


def proves_nonnegative(polynomial: Terms) -> bool:
    """Whether the polynomial is >= 0 for every value of its ranges and symbols. False: not proved.

    Ranges that occur with one sign are moved to their worst end, whose size may be symbolic;
    symbols are then shifted by their minimum, after which nonnegative coefficients suffice.
    """
    if _polynomial_bounds(polynomial)[0] >= 0:
        return True
    for _ in range(8):
        target = _symbolic_range(polynomial)
        if target is None:
            break
        factor, rest = _split(polynomial, target)
        low, high = _polynomial_bounds(factor)
        if low >= 0:
            polynomial = rest
        elif high <= 0:
            last = _sum(terms(target.src[0]), {(): -1})
            polynomial = _sum(rest, _multiplied(factor, last))
        else:
            return False
    return _shifted_is_nonnegative(polynomial)


def _symbolic_range(polynomial: Terms) -> UOp | None:
    for monomial in polynomial:
        for atom in monomial:
            if atom.op is ops.RANGE:
                return atom
    return None


def _split(polynomial: Terms, atom: UOp) -> tuple[Terms, Terms]:
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
                value = _sum(value, {(): atom.arg.min} if atom.arg.min else {})
            elif bounds(atom)[0] < 0:
                return False
            part = _multiplied(part, value)
        shifted = _sum(shifted, part)
    return all(coefficient >= 0 for coefficient in shifted.values())


def divisor(node: UOp) -> int:
    """The greatest known integer that divides every value of the expression (0 for 0)."""
    total = 0
    for monomial, coefficient in terms(node).items():
        total = math.gcd(total, _monomial_divisor(monomial, coefficient))
    return total


def _monomial_divisor(monomial: Monomial, coefficient: int) -> int:
    for atom in monomial:
        coefficient *= _atom_divisor(atom)
    return coefficient


def _atom_divisor(atom: UOp) -> int:
    if atom.op in (ops.MIN, ops.MAX):
        return math.gcd(divisor(atom.src[0]), divisor(atom.src[1]))
    return 1


# Constructors.


def add(a: UOp, b: UOp) -> UOp:
    if a.op is ops.CONST and a.arg == 0:
        return b
    if b.op is ops.CONST and b.arg == 0:
        return a
    return build(_sum(terms(a), terms(b)))


def sub(a: UOp, b: UOp) -> UOp:
    if b.op is ops.CONST and b.arg == 0:
        return a
    return build(_sum(terms(a), _scaled(terms(b), -1)))


def mul(a: UOp, b: UOp) -> UOp:
    if b.op is ops.CONST and b.arg == 1:
        return a
    if a.op is ops.CONST and a.arg == 1:
        return b
    return build(_multiplied(terms(a), terms(b)))


def floordiv(a: UOp, n: UOp) -> UOp:
    """floor(a / n), for n > 0."""
    quotient, remainder = _divide(a, n)
    return build(_sum(quotient, terms(_quotient_atom(build(remainder), n))))


def mod(a: UOp, n: UOp) -> UOp:
    """a - n * floor(a / n), for n > 0."""
    _, remainder = _divide(a, n)
    if n.op is ops.CONST:  # H mod 32 is 0 for a symbol H that goes in steps of 32
        remainder = {m: x for m, x in remainder.items() if _monomial_divisor(m, x) % n.arg}
    node = build(remainder)
    if n.op is ops.CONST:
        split = _split_small(remainder, n.arg)
        if split is not None:
            big, small, g = split
            inner = mod(build(big), const(n.arg // g, dt.index))
            return build(_sum(_scaled(terms(inner), g), small))
    quotient = _quotient_atom(node, n)
    if quotient.op is ops.CONST:
        return sub(node, mul(quotient, n))
    return UOp(ops.MOD, dt.index, (node, n))


def joined(node: UOp) -> UOp:
    """The expression with x for every n * floor(x / n) + x mod n: what is taken apart and put
    together again, as an address that was computed for another shape.
    """
    polynomial = terms(node)
    for monomial, coefficient in polynomial.items():
        if len(monomial) != 1 or monomial[0].op is not ops.MOD:
            continue
        x, n = monomial[0].src
        whole = _scaled(terms(mul(floordiv(x, n), n)), coefficient)
        if all(polynomial.get(part) == factor for part, factor in whole.items()):
            rest = _sum(_sum(polynomial, {monomial: -coefficient}), _scaled(whole, -1))
            return joined(build(_sum(rest, _scaled(terms(x), coefficient))))
    return node


def _divide(a: UOp, n: UOp) -> tuple[Terms, Terms]:
    """quotient, remainder with a = quotient * n + remainder; the remainder as small as is easy."""
    if n.op is ops.CONST:
        if n.arg <= 0:
            raise ValueError(f"division of an index by {n.arg}")
        quotient: Terms = {}
        remainder: Terms = {}
        for monomial, coefficient in terms(a).items():
            if monomial:
                if coefficient % n.arg == 0:
                    quotient[monomial] = coefficient // n.arg
                else:
                    remainder[monomial] = coefficient
            else:
                whole, part = divmod(coefficient, n.arg)
                if whole:
                    quotient[()] = whole
                if part:
                    remainder[()] = part
        return quotient, remainder
    return _divide_symbolic(terms(a), terms(n))


def _divide_symbolic(polynomial: Terms, divisor_terms: Terms) -> tuple[Terms, Terms]:
    leading = max(divisor_terms, key=lambda m: (len(m), _monomial_key(m)))
    scale = divisor_terms[leading]
    quotient: Terms = {}
    remainder = dict(polynomial)
    for _ in range(8):
        step: Terms = {}
        for monomial, coefficient in remainder.items():
            rest = _monomial_quotient(monomial, leading)
            if rest is not None and coefficient % scale == 0:
                step[rest] = coefficient // scale
        if not step:
            break
        quotient = _sum(quotient, step)
        remainder = _sum(remainder, _scaled(_multiplied(step, divisor_terms), -1))
    return quotient, remainder


def _monomial_quotient(monomial: Monomial, by: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _split_small(polynomial: Terms, n: int) -> tuple[Terms, Terms, int] | None:
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
        low, high = _polynomial_bounds(small)
        if low >= 0 and high < g:
            return big, small, g
    return None


def _quotient_atom(node: UOp, n: UOp) -> UOp:
    """floor(node / n) where no multiple of n is left in node."""
    low, high = bounds(node)
    least = bounds(n)[0]
    if low >= 0 and high < least:
        return ZERO
    if n.op is ops.CONST:
        if n.arg == 1:
            return node
        whole, last = _floor(low, n.arg), _floor(high, n.arg)
        if whole == last and not math.isinf(whole):
            return const(int(whole), dt.index)
        split = _split_small(terms(node), n.arg)
        if split is not None:
            big, _, g = split
            return floordiv(build(big), const(n.arg // g, dt.index))
        if node.op is ops.FLOORDIV and node.src[1].op is ops.CONST:
            return floordiv(node.src[0], const(node.src[1].arg * n.arg, dt.index))
    elif proves_nonnegative(terms(node)):
        gap = _sum(_sum(terms(n), _scaled(terms(node), -1)), {(): -1})
        if proves_nonnegative(gap):
            return ZERO
    return UOp(ops.FLOORDIV, dt.index, (node, n))


def minimum(a: UOp, b: UOp) -> UOp:
    for one, other in ((a, b), (b, a)):
        if one.op is ops.MIN and other in one.src:
            return one
    if proves_nonnegative(_sum(terms(b), _scaled(terms(a), -1))):
        return a
    if proves_nonnegative(_sum(terms(a), _scaled(terms(b), -1))):
        return b
    return UOp(ops.MIN, dt.index, (a, b))


def maximum(a: UOp, b: UOp) -> UOp:
    if proves_nonnegative(_sum(terms(b), _scaled(terms(a), -1))):
        return b
    if proves_nonnegative(_sum(terms(a), _scaled(terms(b), -1))):
        return a
    return UOp(ops.MAX, dt.index, (a, b))


def less(a: UOp, b: UOp) -> UOp:
    """a < b, as a constant where it can be proved or refuted."""
    difference = _sum(terms(b), _scaled(terms(a), -1))
    if proves_nonnegative(_sum(difference, {(): -1})):
        return TRUE
    if proves_nonnegative(_scaled(difference, -1)):
        return FALSE
    return UOp(ops.LT, dt.bool_, (a, b))


def at_most(a: UOp, b: UOp) -> UOp:
    """a <= b, as a constant where it can be proved or refuted."""
    return less(a, add(b, ONE))


def equal(a: UOp, b: UOp) -> UOp:
    """a == b, as a constant where it can be proved or refuted."""
    if a is b:
        return TRUE
    low, high = _polynomial_bounds(_sum(terms(a), _scaled(terms(b), -1)))
    if low > 0 or high < 0:
        return FALSE
    return UOp(ops.EQ, dt.bool_, (a, b))


def both(a: UOp, b: UOp) -> UOp:
    """a and b, with constants folded."""
    if a is FALSE or b is FALSE:
        return FALSE
    if a is TRUE or a is b:
        return b
    return a if b is TRUE else UOp(ops.AND, dt.bool_, (a, b))


def every(conditions: Iterable[UOp]) -> UOp:
    """The conjunction of the conditions."""
    result = TRUE
    for condition in conditions:
        result = both(result, condition)
    return result


def rebuild(node: UOp) -> UOp:
    """The canonical form of an index (or index comparison) node whose operands are canonical."""
    make = _CONSTRUCTORS.get(node.op)
    if make is not None and node.src[0].dtype is dt.index:
        return make(*node.src)
    if node.op is ops.NEG and node.dtype is dt.index:
        return mul(node.src[0], const(-1, dt.index))
    return node


_CONSTRUCTORS = {
    ops.ADD: add,
    ops.SUB: sub,
    ops.MUL: mul,
    ops.FLOORDIV: floordiv,
    ops.MOD: mod,
    ops.MIN: minimum,
    ops.MAX: maximum,
    ops.LT: less,
    ops.LE: at_most,
    ops.EQ: equal,
}


# Sizes: an int or an expression of symbols.


def size_add(*sizes: Size) -> Size:
    if all(isinstance(size, int) for size in sizes):
        return sum(sizes)  # type: ignore[arg-type]
    node = ZERO
    for size in sizes:
        node = add(node, as_node(size))
    return as_size(_whole(node))


def size_sub(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    return as_size(_whole(sub(as_node(a), as_node(b))))


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
        if any(polynomial.get(part) != value for part, value in _scaled(terms(x), factor).items()):
            continue
        rest = _sum(_sum(polynomial, {monomial: -coefficient}), _scaled(terms(x), -factor))
        other = mod(x, n) if whole else mul(floordiv(x, n), n)
        return _whole(build(_sum(rest, _scaled(terms(other), factor))))
    return node


def size_mul(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return as_size(mul(as_node(a), as_node(b)))


def size_floordiv(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    return as_size(floordiv(as_node(a), as_node(b)))


def size_ceildiv(a: Size, b: Size) -> Size:
    return size_floordiv(size_add(a, b, -1), b)


def size_min(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return as_size(minimum(as_node(a), as_node(b)))


def size_max(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return as_size(maximum(as_node(a), as_node(b)))
