"""The node and the rewrite engine: one object per structure, deterministic orders, no recursion."""

from __future__ import annotations

import gc
import math
import subprocess
import sys

import pytest

from tinyedge.core import dtype as dt
from tinyedge.core.errors import InternalError
from tinyedge.core.ir import args, ops, uop
from tinyedge.core.ir.rewrite import Rule, RuleSet, any_, bottom_up, match, substitute
from tinyedge.core.ir.rules.algebra import rewrite
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.ir.uop import UOp, as_node, const, toposort
from tinyedge.core.tensor.tensor import Tensor

X, Y = any_("x"), any_("y")


def variable(name: str) -> UOp:
    return symbol(name, 0, 9)


def test_equal_nodes_are_one_object() -> None:
    a, b = variable("a"), variable("b")
    assert UOp(ops.ADD, dt.index, (a, b)) is UOp(ops.ADD, dt.index, (a, b))
    assert UOp(ops.ADD, dt.index, (a, b)) is not UOp(ops.ADD, dt.index, (b, a))
    assert const(0.0, dt.float32) is not const(-0.0, dt.float32)
    assert const(math.nan, dt.float32) is const(math.nan, dt.float32)
    assert const(1, dt.int32) is not const(1, dt.int64)
    assert const(True, dt.bool_) is not const(1, dt.int32)
    assert const(1.7, dt.int32) is const(1, dt.int32)


def test_nodes_that_nobody_holds_are_forgotten() -> None:
    gc.collect()
    before = len(uop._interned)
    node = variable("forgotten")
    for _ in range(50):
        node = UOp(ops.NEG, dt.index, (node,))
    assert len(uop._interned) >= before + 50
    del node
    gc.collect()
    assert len(uop._interned) <= before


def test_operands_come_first_and_once() -> None:
    a, b = variable("a"), variable("b")
    total = UOp(ops.ADD, dt.index, (a, b))
    root = UOp(ops.MUL, dt.index, (total, UOp(ops.ADD, dt.index, (total, a))))
    order = toposort((root, total))
    assert len(order) == len(set(order)) == 5
    for node in order:
        assert all(order.index(s) < order.index(node) for s in node.src)
    assert toposort((root,), stop=lambda n: n is total) == [total, a, root.src[1], root]


def test_deep_graphs_need_no_recursion() -> None:
    """20,000 nodes in a chain, with Python's limit of about 1,000 frames."""
    x = Tensor.input("x", (4,), dt.float32)
    node = x.node
    for _ in range(20_000):
        node = UOp(ops.EXP, dt.float32, (node,))
    assert len(toposort((node,))) == 20_001
    assert len(node.digest) == 12
    assert node.ranges == frozenset()
    y = Tensor.input("y", (4,), dt.float32)
    (other,) = rewrite((node,), {x.node: y.node})
    assert other is not node and toposort((other,))[0] is y.node


def test_a_digest_is_the_same_in_every_process() -> None:
    script = (
        "from tinyedge.core.tensor.tensor import Tensor; from tinyedge.core import dtype as dt\n"
        "x = Tensor.input('x', (4, 5), dt.float32)\n"
        "print((x.exp().sum(1) * 2.0).node.digest.hex())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1 and len(digests.pop().strip()) == 24


def test_reductions_bind_their_ranges() -> None:
    r = UOp(ops.RANGE, dt.index, (as_node(5),), args.Range(0, "loop"))
    s = UOp(ops.RANGE, dt.index, (as_node(7),), args.Range(1, "reduce"))
    body = UOp(ops.CAST, dt.float32, (UOp(ops.MUL, dt.index, (r, s)),))
    reduction = UOp(ops.REDUCE_LOOP, dt.float32, (body, s), ops.ADD)
    assert body.ranges == {r, s}
    assert reduction.ranges == {r}


def test_shapes_are_checked() -> None:
    x, y = (Tensor.input(n, s, dt.float32).node for n, s in (("x", (2, 3)), ("y", (3, 2))))
    with pytest.raises(ValueError, match="add of shapes"):
        UOp(ops.ADD, dt.float32, (x, y))


def test_matching_binds_names_once() -> None:
    a, b = variable("a"), variable("b")
    same = X - X
    assert match(same, UOp(ops.SUB, dt.index, (a, a)), {})
    assert not match(same, UOp(ops.SUB, dt.index, (a, b)), {})
    bindings: dict[str, UOp] = {}
    pattern = X + X * Y
    product = UOp(ops.MUL, dt.index, (b, a))
    assert match(pattern, UOp(ops.ADD, dt.index, (product, b)), bindings)
    assert bindings == {"x": b, "y": a}
    one = X * 1
    assert not match(one.src[1], const(True, dt.bool_), {})
    assert match(one.src[1], const(1.0, dt.float32), {})


def test_rules_apply_until_none_fits() -> None:
    twice = Rule("double", X + X, X * 2)
    shift = Rule("shift", X * 2, X << 1)
    rules = RuleSet("twice", [twice, shift])
    a = Tensor.input("a", (), dt.int32).node
    result = rules.apply(UOp(ops.ADD, dt.int32, (a, a)))
    assert result is UOp(ops.SHL, dt.int32, (a, const(1, dt.int32)))
    guarded = RuleSet("never", [Rule("never", X + X, X, lambda bindings: False)])
    node = UOp(ops.ADD, dt.int32, (a, a))
    assert guarded.apply(node) is node


def test_the_rewriter_changes_each_node_once_after_its_operands() -> None:
    a, b, c = variable("a"), variable("b"), variable("c")
    total = UOp(ops.ADD, dt.index, (a, b))
    root = UOp(ops.MUL, dt.index, (total, UOp(ops.ADD, dt.index, (total, c))))
    seen: list[UOp] = []

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        seen.append(node)
        return UOp(ops.SUB, dt.index, src) if node.op is ops.ADD else None

    done = bottom_up((root,), change, {c: b})
    assert seen == [a, b, total, root.src[1], root]  # c is decided, so nothing is asked of it
    less = UOp(ops.SUB, dt.index, (a, b))
    assert done[root] is UOp(ops.MUL, dt.index, (less, UOp(ops.SUB, dt.index, (less, b))))
    other = UOp(ops.NEG, dt.index, (total,))
    seen.clear()
    assert bottom_up((other,), change, done)[other] is UOp(ops.NEG, dt.index, (less,))
    assert seen == [other]  # the rest was done before


def test_rules_without_an_end_are_an_error() -> None:
    swap = Rule("swap", X - Y, lambda found: found["root"].replace((found["y"], found["x"])))
    node = UOp(ops.SUB, dt.index, (variable("a"), variable("b")))
    with pytest.raises(InternalError, match=r"(?s)rule set 'swap', at <sub index.*64 rules fit"):
        RuleSet("swap", [swap]).apply(node)


def test_substitution_shares_what_does_not_change() -> None:
    a, b, c = variable("a"), variable("b"), variable("c")
    left = UOp(ops.ADD, dt.index, (a, b))
    right = UOp(ops.ADD, dt.index, (b, b))
    root = UOp(ops.MUL, dt.index, (left, right))
    (new,) = substitute((root,), {a: c})
    assert new.src[0] is UOp(ops.ADD, dt.index, (c, b))
    assert new.src[1] is right
    assert substitute((root,), {}) == (root,)
