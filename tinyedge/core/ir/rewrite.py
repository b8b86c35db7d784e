"""Patterns, rules and the one engine that applies them.

A rule reads as an equation: `Rule(name, before, after, when)`. `before` and `after` are patterns;
`after` may be a function of the bindings instead, and `when` a condition on them. A rule set
applies the first rule that fits, again and again, to one node whose operands are already simple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from tinyedge.core.ir.ops import CONST, Primitive
from tinyedge.core.ir.uop import UOp, const, elementwise, substitute

Bindings = dict[str, UOp]


@dataclass(frozen=True, eq=False)
class Pattern:
    """Matches a node. op None: any node. value: a constant equal to it. name: binds the node."""

    op: Primitive | None = None
    src: tuple[Pattern, ...] = ()
    name: str = ""
    value: Any = None

    def __repr__(self) -> str:
        if self.value is not None:
            return repr(self.value)
        if self.op is None:
            return self.name
        return f"{self.op.name}({', '.join(map(repr, self.src))})"


After = Union[Pattern, Callable[[Bindings], "UOp | None"]]


@dataclass(frozen=True, eq=False)
class Rule:
    """before = after, when the condition holds (of the bindings, to which "root" is added)."""

    name: str
    before: Pattern
    after: After
    when: Callable[[Bindings], bool] | None = None


def any_(name: str) -> Pattern:
    """Any node; the same name twice means the same node."""
    return Pattern(name=name)


def constant(name: str) -> Pattern:
    """Any constant."""
    return Pattern(op=CONST, name=name)


def number(value: bool | int | float) -> Pattern:
    """The constant equal to `value`."""
    return Pattern(op=CONST, value=value)


def of(op: Primitive, *src: Pattern) -> Pattern:
    """An operation on patterns."""
    return Pattern(op=op, src=src)


def match(pattern: Pattern, node: UOp, bindings: Bindings) -> bool:
    """Whether the node fits; extends the bindings as it goes (commutative rows try both orders)."""
    if pattern.op is not None:
        if node.op is not pattern.op:
            return False
        if pattern.value is not None and not (
            node.arg == pattern.value
            and isinstance(node.arg, bool) == isinstance(pattern.value, bool)
        ):
            return False
    if pattern.name:
        bound = bindings.get(pattern.name)
        if bound is not None and bound is not node:
            return False
        bindings[pattern.name] = node
    if not pattern.src:
        return True
    if _match_all(pattern.src, node.src, bindings):
        return True
    if node.op.commutative and len(node.src) == 2:
        return _match_all(pattern.src, (node.src[1], node.src[0]), bindings)
    return False


def _match_all(patterns: Sequence[Pattern], nodes: Sequence[UOp], bindings: Bindings) -> bool:
    saved = dict(bindings)
    if all(match(p, n, bindings) for p, n in zip(patterns, nodes, strict=True)):
        return True
    bindings.clear()
    bindings.update(saved)
    return False


class RuleSet:
    """Rules indexed by the operation at their root, and a fallback for what no equation says."""

    def __init__(self, rules: Sequence[Rule], fallback: Callable[[UOp], UOp] | None = None) -> None:
        self.rules = tuple(rules)
        self.fallback = fallback
        self.by_op: dict[Primitive, list[Rule]] = {}
        for rule in rules:
            assert rule.before.op is not None, f"rule {rule.name} has no operation at its root"
            self.by_op.setdefault(rule.before.op, []).append(rule)

    def apply(self, node: UOp) -> UOp:
        """The node simplified at its root; its operands must be simple already."""
        for _ in range(64):
            new = self._once(node)
            if new is node:
                return node
            node = new
        return node

    def _once(self, node: UOp) -> UOp:
        if self.fallback is not None:
            new = self.fallback(node)
            if new is not node:
                return new
        for rule in self.by_op.get(node.op, ()):
            bindings: Bindings = {}
            if not match(rule.before, node, bindings):
                continue
            bindings["root"] = node
            if rule.when is not None and not rule.when(bindings):
                continue
            result = self.instantiate(rule.after, bindings)
            if result is not None and result is not node:
                return result
        return node

    def instantiate(self, after: After, bindings: Bindings) -> UOp | None:
        """The right side of a rule; what it builds is simplified as well."""
        if not isinstance(after, Pattern):
            return after(bindings)
        if after.op is None:
            return bindings[after.name]
        if after.op is CONST:
            return const(after.value, bindings["root"].dtype)
        src = []
        for pattern in after.src:
            node = self.instantiate(pattern, bindings)
            assert node is not None
            src.append(node)
        return self.apply(elementwise(after.op, *src))

    def rewrite(
        self, roots: tuple[UOp, ...], mapping: Mapping[UOp, UOp] | None = None
    ) -> tuple[UOp, ...]:
        """The roots with `mapping` applied and every changed node simplified, operands first."""
        return substitute(roots, mapping or {}, self.apply)
