"""Every equation on values, proved by sampling: both sides by numpy, for values of every type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.rows import ELEMENTWISE, accepts, random_values, special
from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.rewrite import Bindings, Pattern, Rule, match
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import RULES, SIMPLIFY, simplify
from tinyedge.core.ir.uop import UOp, cast, const, elementwise, toposort

Array = np.ndarray[Any, Any]

SAMPLES = 64


def values(dtype: DType, generator: np.random.Generator) -> Array:
    """Special values of a type and random ones, in random order."""
    edges = special(dtype, subnormal=True)
    ordinary = random_values(dtype, SAMPLES - len(edges), generator)
    return generator.permutation(np.concatenate([edges, ordinary]))


def compute(root: UOp, given: dict[UOp, Array]) -> Array:
    """A node's values by the numpy meaning of each row."""
    done: dict[UOp, Array] = dict(given)
    for node in toposort((root,)):
        if node in done:
            continue
        src = [done[s] for s in node.src]
        if node.op is ops.CONST:
            done[node] = np.full(SAMPLES, node.arg, node.dtype.numpy)
        elif node.op is ops.CAST:
            done[node] = dt.cast_array(src[0], node.dtype)
        else:
            assert node.op.numpy is not None
            done[node] = np.asarray(node.op.numpy(*src)).astype(node.dtype.numpy)
    return done[root]


def assert_same(before: Array, after: Array) -> None:
    """Equal bit by bit, except that one NaN is as good as another."""
    assert before.dtype == after.dtype
    if before.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(before), np.isnan(after))
        kept = ~np.isnan(before)
        before, after = before[kept], after[kept]
        np.testing.assert_array_equal(np.signbit(before), np.signbit(after))
    np.testing.assert_array_equal(before, after)


def variable(name: str, dtype: DType) -> UOp:
    """A node that no rule looks into."""
    return UOp(ops.BUFFER, dtype, (), args.Buffer(ops.TensorSource("input", name), ()))


class Instances:
    """The nodes that a rule's left side stands for, with its variables of given types."""

    def __init__(self, rule: Rule, dtype: DType, types: dict[str, DType]) -> None:
        self.rule = rule
        self.dtype = dtype
        self.types = types
        self.variables: dict[str, UOp] = {}

    def build(self, pattern: Pattern, dtype: DType) -> UOp:
        if pattern.op is None:
            wanted = self.types.get(pattern.name, dtype)
            if pattern.name not in self.variables:
                self.variables[pattern.name] = variable(pattern.name, wanted)
            return self.variables[pattern.name]
        if pattern.op is ops.CONST:
            return const(pattern.value, dtype)
        if pattern.op is ops.CAST:
            (inner,) = pattern.src
            source = self.types["inner"] if inner.op is ops.CAST else self.types["x"]
            return UOp(ops.CAST, dtype, (self.build(inner, source),))
        if pattern.op is ops.WHERE:
            condition, yes, no = pattern.src
            src = (self.build(condition, dt.bool_), self.build(yes, dtype), self.build(no, dtype))
        else:
            src = tuple(self.build(s, dtype) for s in pattern.src)
        return elementwise(pattern.op, *src)


def operations(pattern: Pattern) -> set[ops.Primitive]:
    found = set().union(*(operations(s) for s in pattern.src)) if pattern.src else set()
    return found | ({pattern.op} if pattern.op and pattern.op is not ops.CONST else set())


def constants(pattern: Pattern) -> list[Any]:
    here = [pattern.value] if pattern.op is ops.CONST else []
    return here + [value for s in pattern.src for value in constants(s)]


def types_of(rule: Rule) -> list[tuple[DType, dict[str, DType]]]:
    """The types that a rule can meet: of its root, and of variables that differ from it."""
    if ops.CAST in operations(rule.before):
        double = rule.before.src[0].op is ops.CAST
        return [
            (root, {"x": x, "inner": inner})
            for root in dt.ALL
            for x in dt.ALL
            for inner in (dt.ALL if double else (x,))
        ]
    booleans = any(isinstance(value, bool) for value in constants(rule.before))
    candidates = (dt.bool_,) if booleans and rule.before.op is not ops.WHERE else dt.ALL
    found = []
    for dtype in candidates:
        used = operations(rule.before)
        if rule.before.op is ops.WHERE:
            used = {op for op in used if op not in (ops.NOT, ops.AND)}
        negative = any(not isinstance(v, bool) and v < 0 for v in constants(rule.before))
        if all(accepts(op, dtype) for op in used) and not (negative and dtype.kind == "u"):
            found.append((dtype, {"a": dt.bool_, "b": dt.bool_}))
    if rule.name == "where-bool":
        return [(dt.bool_, {"a": dt.bool_})]
    return found


def after(rule: Rule, root: UOp) -> UOp | None:
    """The right side for a node; None where the rule does not apply to it."""
    bindings: Bindings = {}
    if not match(rule.before, root, bindings):
        return None
    bindings["root"] = root
    if rule.when is not None and not rule.when(bindings):
        return None
    return SIMPLIFY.instantiate(rule.after, bindings)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_both_sides_of_every_rule_are_equal(rule: Rule) -> None:
    generator = np.random.default_rng(11)
    applied = 0
    for dtype, types in types_of(rule):
        instances = Instances(rule, dtype, types)
        root = instances.build(rule.before, dtype)
        orders = [root]
        if root.op.commutative:
            orders.append(UOp(root.op, root.dtype, root.src[::-1], root.arg))
        for node in orders:
            # Constants of the pattern match -0.0 as well.
            for variant in zero_signs(node):
                new = after(rule, variant)
                if new is None:
                    continue
                applied += 1
                given = {v: values(v.dtype, generator) for v in instances.variables.values()}
                try:
                    assert_same(compute(variant, given), compute(new, given))
                except AssertionError as error:
                    raise AssertionError(f"{rule.name} for {dtype} {types}: {error}") from None
    assert applied, f"the rule {rule.name} was never applied"


def zero_signs(node: UOp) -> list[UOp]:
    """The node, and the node with every constant 0.0 negated."""
    flipped = tuple(
        const(-0.0, s.dtype) if s.op is ops.CONST and s.dtype.is_float and s.arg == 0 else s
        for s in node.src
    )
    return [node] if flipped == node.src else [node, node.replace(flipped)]


def test_rules_leave_the_canonical_form_of_indices_alone() -> None:
    r = UOp(ops.RANGE, dt.index, (const(7, dt.index),), args.Range(0, "loop"))
    s = UOp(ops.RANGE, dt.index, (const(5, dt.index),), args.Range(1, "loop"))
    for op in (ops.ADD, ops.SUB, ops.MUL, ops.MIN, ops.MAX, ops.FLOORDIV, ops.MOD):
        for a in (r, s - r):
            for value in (-2, -1, 0, 1, 2):
                if op not in (ops.FLOORDIV, ops.MOD) or value > 0:
                    node = simplify(UOp(op, dt.index, (a, const(value, dt.index))))
                    assert simplify(node) is node
    assert simplify(UOp(ops.NEG, dt.index, (r,))) is -r


def test_every_rule_has_its_own_name() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("row", ELEMENTWISE, ids=lambda row: row.name)
def test_constants_fold_to_the_meaning_of_their_row(row: ops.Primitive) -> None:
    generator = np.random.default_rng(5)
    for dtype in dt.ALL:
        if not accepts(row, dtype):
            continue
        types = [dt.bool_, dtype, dtype] if row is ops.WHERE else [dtype] * row.arity
        arrays = [values(t, generator)[:16] for t in types]
        for operands in zip(*arrays, strict=True):
            nodes = [const(v.item(), t) for v, t in zip(operands, types, strict=True)]
            folded = simplify(elementwise(row, *nodes))
            assert folded.op is ops.CONST
            assert row.numpy is not None
            expected = np.asarray(row.numpy(*operands)).astype(folded.dtype.numpy)
            assert_same(np.atleast_1d(folded.dtype.numpy.type(folded.arg)), np.atleast_1d(expected))


def test_folded_conversions_saturate() -> None:
    for value, dtype, expected in [
        (300.5, dt.int8, 127),
        (-1.5, dt.uint8, 0),
        (math.nan, dt.int32, 0),
        (math.inf, dt.int64, 2**63 - 1),
        (-math.inf, dt.int16, -(2**15)),
        (2.0**31, dt.int32, 2**31 - 1),
        (4294967296.0, dt.uint32, 2**32 - 1),
        (1e39, dt.float32, math.inf),
    ]:
        source = dt.float64
        assert simplify(cast(const(value, source), dtype)) is const(expected, dtype)
    assert simplify(cast(const(300, dt.int32), dt.uint8)) is const(44, dt.uint8)


def test_a_guarded_load_needs_no_select() -> None:
    from tinyedge.core.ir.uop import as_node

    r = UOp(ops.RANGE, dt.index, (as_node(8),), args.Range(0, "loop"))
    inside = ix.lt(r, 5)
    param = UOp(ops.PARAM, dt.float32, (), 0)
    load = UOp(ops.LOAD, dt.float32, (param, r, inside), True)
    zero = const(0.0, dt.float32)
    assert simplify(UOp(ops.WHERE, dt.float32, (inside, load, zero))) is load
    other = ix.lt(r, 4)
    both = ix.and_(other, inside)
    assert ix.and_(inside, both) is both and ix.and_(both, other) is both
    narrower = UOp(ops.LOAD, dt.float32, (param, r, both), True)
    assert simplify(UOp(ops.WHERE, dt.float32, (inside, narrower, zero))) is narrower
    kept = UOp(ops.WHERE, dt.float32, (other, load, zero))
    assert simplify(kept) is kept
    one = UOp(ops.WHERE, dt.float32, (inside, load, const(1.0, dt.float32)))
    assert simplify(one) is one
    known = UOp(ops.LOAD, dt.float32, (param, r, ix.TRUE), True)
    assert simplify(known) is UOp(ops.LOAD, dt.float32, (param, r), False)
    assert simplify(UOp(ops.LOAD, dt.float32, (param, r, ix.FALSE), True)) is zero
