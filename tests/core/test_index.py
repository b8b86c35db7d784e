"""Index arithmetic: every constructor exact, every bound and proof sound, on random expressions.

An expression is grown twice: as a canonical node by the operators of index nodes, and as a
plain recipe that is evaluated with Python integers at points of its ranges and symbols.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.profile import examples
from tinyedge.core import dtype as dt
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.polynomial import bounds, build, divisor, proves_nonnegative, terms
from tinyedge.core.ir.reference import size_value
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules import spans
from tinyedge.core.ir.rules.algebra import SIMPLIFY, rewrite
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.ir.uop import Size, UOp, as_node, const, toposort

SYMBOLS = {
    "H": symbol("H", 32, 1280, 32),
    "W": symbol("W", 32, 1280, 32),
    "N": symbol("N", 1, 9),
    "Z": symbol("Z", 0, 12, 3),
}
POINTS = 60


def loop(number: int, size: int | UOp, kind: str = "loop") -> UOp:
    return UOp(ops.RANGE, dt.index, (as_node(size),), args.Range(number, kind))


Point = dict[UOp, int]
Recipe = Callable[[Point], "int | bool"]


@dataclass(frozen=True, eq=False)
class Expression:
    """A canonical node, the plain (never simplified) node, and the same value in Python."""

    node: UOp
    plain: UOp
    value: Recipe


def leaf(node: UOp) -> Expression:
    return Expression(node, node, lambda point: value_of(node, point))


def literal(value: int) -> Expression:
    node = const(value, dt.index)
    return Expression(node, node, lambda point: value)


BINARY: dict[str, tuple[ops.Primitive, Callable[[Size, Size], Size]]] = {
    "add": (ops.ADD, operator.add),
    "sub": (ops.SUB, operator.sub),
    "mul": (ops.MUL, operator.mul),
    "min": (ops.MIN, ix.minimum),
    "max": (ops.MAX, ix.maximum),
    "floordiv": (ops.FLOORDIV, operator.floordiv),
    "mod": (ops.MOD, operator.mod),
}  # each of Python's integers as well
COMPARE: dict[str, tuple[Callable[[Size, Size], UOp], Callable[[int, int], bool]]] = {
    "less": (ix.lt, lambda a, b: a < b),
    "at_most": (ix.le, lambda a, b: a <= b),
    "equal": (ix.eq, lambda a, b: a == b),
}


def combine(name: str, a: Expression, b: Expression) -> Expression:
    op, compute = BINARY[name]
    return Expression(
        as_node(compute(a.node, b.node)),
        UOp(op, dt.index, (a.plain, b.plain)),
        lambda point: int(compute(a.value(point), b.value(point))),
    )


@st.composite
def spaces(draw: st.DrawFn) -> list[Expression]:
    """The leaves of one expression: ranges of constant and symbolic size, and symbols."""
    leaves = [
        leaf(loop(number, draw(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 12, 16, 31]))))
        for number in range(draw(st.integers(1, 3)))
    ]
    if draw(st.booleans()):
        chosen = [SYMBOLS[name] for name in draw(st.sets(st.sampled_from("HWNZ"), max_size=2))]
        leaves += [leaf(s) for s in chosen]
        for s in chosen[:1]:
            leaves.append(leaf(loop(len(leaves), s)))
            if s is SYMBOLS["H"]:
                leaves.append(leaf(loop(len(leaves), as_node(s // 4))))
    return leaves


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    """A random expression of up to eight operations; divisors are positive."""
    leaves = draw(spaces())
    pool = list(leaves)
    positive = [leaf for leaf in leaves if bounds(leaf.node)[0] > 0]
    small = st.sampled_from([-7, -4, -1, 0, 1, 2, 3, 4, 5, 8, 12, 31, 64])
    for _ in range(draw(st.integers(1, 8))):
        name = draw(st.sampled_from(sorted(BINARY)))
        a = draw(st.sampled_from(pool))
        if name in ("floordiv", "mod"):
            if positive and draw(st.integers(0, 3)) == 0:
                b = draw(st.sampled_from(positive))
                if draw(st.booleans()):
                    b = combine("mul", b, draw(st.sampled_from(positive)))
            else:
                b = literal(draw(st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 31, 32, 64])))
        elif draw(st.booleans()):
            b = literal(draw(small))
        else:
            b = draw(st.sampled_from(pool))
        pool.append(combine(name, a, b))
    return pool[-1]


def leaves_of(*nodes: UOp) -> list[UOp]:
    return [n for n in toposort(nodes) if n.op in (ops.RANGE, ops.SYMBOL)]


def points(*nodes: UOp, seed: int = 0) -> Iterator[Point]:
    """Corners and random points of the ranges and symbols below the nodes; all if they are few."""
    found = leaves_of(*nodes)
    symbols = [n for n in found if n.op is ops.SYMBOL]
    ranges = [n for n in found if n.op is ops.RANGE]
    values = {s: range(s.arg.min, s.arg.max + 1) for s in symbols}  # counts of steps
    constant = all(r.src[0].op is ops.CONST for r in ranges)
    count = math.prod(len(v) for v in values.values())
    count *= math.prod(r.src[0].arg for r in ranges if constant)
    if constant and count <= POINTS:
        axes = [values[n] if n.op is ops.SYMBOL else range(n.src[0].arg) for n in found]
        for choice in itertools.product(*axes):
            yield dict(zip(found, choice, strict=True))
        return
    generator = random.Random(seed)
    for iteration in range(POINTS):
        point: Point = {}
        for s in symbols:
            options = values[s]
            ends = (options[0], options[-1])
            point[s] = ends[iteration % 2] if iteration < 6 else generator.choice(options)
        for r in ranges:
            size = value_of(r.src[0], point)
            if size <= 0:
                break
            ends = (0, size - 1)
            point[r] = ends[generator.randrange(2)] if iteration < 12 else generator.randrange(size)
        else:
            yield point


def value_of(node: UOp, point: Point) -> int | bool:
    """A node evaluated with Python's integers."""
    values: dict[UOp, int | bool] = {}
    for n in toposort((node,), stop=lambda n: n in point):
        a = [values.get(s, 0) for s in n.src]
        if n in point:
            values[n] = point[n]
        elif n.op is ops.CONST:
            values[n] = n.arg
        elif n.op is ops.LT:
            values[n] = a[0] < a[1]
        elif n.op is ops.EQ:
            values[n] = a[0] == a[1]
        elif n.op is ops.AND:
            values[n] = bool(a[0] and a[1])
        elif n.op is ops.NOT:
            values[n] = not a[0]
        elif n.op is ops.NEG:
            values[n] = -a[0]
        else:
            values[n] = BINARY[n.op.name][1](a[0], a[1])
    return values[node]


@examples(250)
@given(expressions())
def test_constructors_are_exact(e: Expression) -> None:
    for point in points(e.plain):
        assert value_of(e.node, point) == e.value(point), e.node


@examples(150)
@given(expressions())
def test_bounds_are_sound(e: Expression) -> None:
    low, high = bounds(e.node)
    for node in (n for n in toposort((e.node,)) if n.dtype is dt.index):
        low, high = bounds(node)
        for point in points(e.plain):
            assert low <= value_of(node, point) <= high, node


@examples(150)
@given(expressions(), st.integers(-20, 20))
def test_proofs_of_a_sign_are_sound(e: Expression, shift: int) -> None:
    node = as_node(e.node + shift)
    proved = proves_nonnegative(terms(node))
    refuted = proves_nonnegative(terms(-1 - node))
    for point in points(e.plain):
        value = value_of(node, point)
        assert value >= 0 or not proved
        assert value < 0 or not refuted


@examples(150)
@given(expressions())
def test_divisors_are_sound(e: Expression) -> None:
    d = divisor(e.node)
    for point in points(e.plain):
        value = value_of(e.node, point)
        assert value == 0 if d == 0 else value % d == 0


@examples(150)
@given(expressions(), expressions(), st.sampled_from(sorted(COMPARE)))
def test_comparisons_are_exact(a: Expression, b: Expression, name: str) -> None:
    make, python = COMPARE[name]
    # The two expressions may use one range number for different ranges; keep one of each number.
    ranges = {r.arg.number: r for r in leaves_of(a.plain) if r.op is ops.RANGE}
    if any(ranges.get(r.arg.number, r) is not r for r in leaves_of(b.plain) if r.op is ops.RANGE):
        b = literal(3)
    node = make(a.node, b.node)
    for point in points(a.plain, b.plain):
        assert value_of(node, point) == python(int(a.value(point)), int(b.value(point)))


@examples(120)
@given(expressions())
def test_rebuilding_changes_nothing(e: Expression) -> None:
    """A canonical node is a fixed point, and the plain node rewrites to a node of equal value."""
    assert build(terms(e.node)) is e.node
    changed: list[UOp] = []

    def rebuild(node: UOp) -> UOp:
        new = ix.rebuild(node)
        if new is not node:
            changed.append(node)
        return new

    done: dict[UOp, UOp] = {}
    for node in toposort((e.node,)):
        if not node.src or node.op is ops.RANGE:
            done[node] = node
            continue
        src = tuple(done[s] for s in node.src)
        done[node] = rebuild(UOp(node.op, node.dtype, src, node.arg))
    assert done[e.node] is e.node, changed
    ranges = [n for n in toposort((e.plain,)) if n.op is ops.RANGE]
    others = [UOp(n.op, n.dtype, n.src, replace(n.arg, number=n.arg.number + 50)) for n in ranges]
    there, back = dict(zip(ranges, others, strict=True)), dict(zip(others, ranges, strict=True))
    (again,) = rewrite(rewrite((e.plain,), there), back)
    for point in points(e.plain):
        assert value_of(again, point) == e.value(point)


@examples(120)
@given(st.data())
def test_equal_polynomials_are_one_node(data: st.DataObject) -> None:
    """Sums of products, added and distributed in any order."""
    leaves = [e.node for e in data.draw(spaces())]
    factors = st.lists(st.sampled_from(leaves), min_size=0, max_size=3)
    monomials = data.draw(st.lists(st.tuples(st.integers(-6, 6), factors), max_size=5))
    nodes = []
    for coefficient, parts in monomials:
        term = const(coefficient, dt.index)
        for part in data.draw(st.permutations(parts)):
            term = as_node(term * part)
        nodes.append(term)

    def total(order: list[UOp]) -> UOp:
        result = ix.ZERO
        for node in order:
            result = as_node(result + node)
        return result

    expected = total(nodes)
    assert total(data.draw(st.permutations(nodes))) is expected
    factor = data.draw(st.sampled_from(leaves))
    assert as_node(expected * factor) is total([as_node(factor * node) for node in nodes])
    assert expected - expected == 0
    assert as_node(expected - factor + factor) is expected


H, W, N = SYMBOLS["H"], SYMBOLS["W"], SYMBOLS["N"]


def test_what_must_simplify() -> None:
    """Kernels rely on these; losing one costs divisions in every loop."""
    i, j, k = loop(0, 4), loop(1, 8), loop(2, 3)
    flat = (i * 8 + j) * 3 + k
    assert flat % 3 is k
    assert flat // 3 % 8 is j
    assert flat // 24 is i
    assert ix.lt(flat, 96) is ix.TRUE
    assert ix.lt(flat, 0) is ix.FALSE
    assert loop(0, 100) // 3 // 5 is loop(0, 100) // 15
    assert (i * 6 + k) % 6 is k
    assert (i * 6 + 17) // 6 is i + 2


@examples(120)
@given(expressions(), expressions(), st.sampled_from([2, 3, 5, 8, 31]), st.integers(-3, 3))
def test_joined_is_exact(e: Expression, other: Expression, n: int, factor: int) -> None:
    """What is taken apart and put together is whole again, whatever else is added."""
    apart = e.node // n * n + e.node % n
    whole = apart * factor + other.node
    joined = ix.joined(whole)
    for point in points(UOp(ops.ADD, dt.index, (e.plain, other.plain))):
        assert value_of(joined, point) == factor * e.value(point) + other.value(point)


def test_what_must_join() -> None:
    """An address that was computed from loaded values, through a reshape."""
    loaded, row = symbol("p", -(2**31), 2**31 - 1), loop(0, 4)
    apart = loaded // 7 * 7 + loaded % 7
    assert ix.joined(apart) is loaded
    assert ix.joined(apart * 2 + row) is loaded * 2 + row
    other = loaded // 7 * 8 + loaded % 7
    assert ix.joined(other) is other


def test_what_must_simplify_with_symbols() -> None:
    """Reshapes that merge and split symbolic axes leave no division."""
    row, column = loop(0, H), loop(1, W)
    flat = row * W + column
    assert flat // W is row
    assert flat % W is column
    assert ix.lt(flat, H * W) is ix.TRUE
    assert divisor(H * W) == 1024
    assert divisor(H - 16) == 16
    assert H % 32 == 0
    assert (row * H + 3) % 16 == 3
    assert ix.maximum(H, 32) is H
    assert ix.minimum(row - 1, row) is row - 1
    assert ix.lt(ix.minimum(row * 7, H - 1), H) is ix.TRUE
    assert ix.lt(ix.minimum(row * 7, H - 1) + 1, H) is not ix.TRUE


def test_a_long_division_ends() -> None:
    """Each step of it divides what the one before left: as many as the degree says."""
    power: Size = 1
    for _ in range(12):
        power *= W + 1
    assert (power - 1) // W * W + 1 == power
    assert power // (W + 1) * (W + 1) == power and (power - 1) % W == 0


def test_an_index_is_not_divided_by_nothing() -> None:
    for n in (0, -3):
        with pytest.raises(ValueError, match="division of an index"):
            loop(0, 4) // n
        with pytest.raises(ValueError, match="division of an index"):
            loop(0, 4) % n


def test_conditions_that_leave_an_index_one_span() -> None:
    """Where a condition chooses between two others, one conjunction may say what holds."""
    generator = random.Random(3)
    r, other = loop(0, 20), ix.lt(loop(1, 7), 4)
    index = as_node(loop(1, 7) - r * 2)

    def drawn() -> UOp:
        bound, step = generator.randint(-4, 24), generator.choice((r, r, r, as_node(r * -1), index))
        found = generator.choice((ix.lt(step, bound), ix.le(bound, step)))
        if generator.random() < 0.4:
            found = ix.and_(found, generator.choice((ix.lt(r, 15), ix.le(4, r), other)))
        denied = generator.random() < 0.3
        return SIMPLIFY.apply(UOp(ops.NOT, dt.bool_, (found,))) if denied else found

    known = 0
    for _ in range(1000):
        common = generator.choice((ix.TRUE, other, ix.lt(index, 2)))
        condition, yes, no = drawn(), ix.and_(drawn(), common), ix.and_(drawn(), common)
        if ops.CONST in (condition.op, yes.op, no.op):
            continue
        held = spans.either(condition, yes, no)
        known += held is not None
        for a, b in itertools.product(range(20), range(7)) if held is not None else ():
            point = {r: a, loop(1, 7): b}
            chosen = yes if value_of(condition, point) else no
            assert value_of(held, point) == value_of(chosen, point), (condition, yes, no)
    assert known > 100


def test_only_index_nodes_have_operators() -> None:
    """What would lose a value or a type raises; what is constant is an int, not a node."""
    assert H - (H - 5) == 5 and type(H - H) is int
    assert -H is H * -1 and 7 - H is 7 + -H and np.int64(3) + H is H + np.int64(3)
    assert 1300 // H * 0 == 0 and 31 % H == 31
    for other in (2.5, "2", None, const(1.0, dt.float32), const(1, dt.int32)):
        for operation in (operator.add, operator.mul, operator.floordiv):
            with pytest.raises(TypeError):
                operation(H, other)
            with pytest.raises(TypeError):
                operation(other, H)
    with pytest.raises(TypeError):
        bool(H < 5)


def test_sizes_are_ints_or_expressions() -> None:
    assert H - H == 0
    assert H * 0 == 0
    assert H * W // W is H
    assert ix.ceildiv(7, 4) == 2
    eighth = ix.ceildiv(H + 1, 8)
    for h in range(32, 1281, 32):
        assert size_value(eighth, {"H": h}) == -(-(h + 1) // 8)


@examples(120)
@given(expressions(), expressions(), st.sampled_from([2, 3, 8, 32]), st.sampled_from([-2, 1, 3]))
def test_sizes_that_are_rounded_are_exact(
    e: Expression, other: Expression, n: int, factor: int
) -> None:
    """A remainder, what is missing to a multiple, and both with what they came from."""
    lower = e.node // n * n
    rest = e.node % n
    cases: list[tuple[Size, Callable[[int], int]]] = [
        (e.node - lower, lambda v: v % n),
        (rest - e.node, lambda v: -(v // n * n)),
        (lower + rest, lambda v: v),
    ]
    for size, python in cases:
        total = other.node + size * factor
        for point in points(UOp(ops.ADD, dt.index, (e.plain, other.plain))):
            expected = other.value(point) + factor * python(e.value(point))
            assert value_of(as_node(total), point) == expected


def test_sizes_that_are_rounded() -> None:
    height = symbol("Height", 1, 99)
    missing = -height % 32
    padded = height + missing
    assert padded // 32 * 32 == padded
    assert padded - missing == height
    half = height // 2 * 2
    odd = height - half
    assert bounds(odd) == (0, 1) and half + odd == height
