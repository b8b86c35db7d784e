"""The one rewriter of graphs; patterns, rules and the engine that applies them.

A rule reads as an equation: `Rule("mul-one", X * 1, X)`. Its sides are patterns, which have the
operators of the operations they stand for; the right one may be a function of the bindings instead,
and a condition on them may follow. A rule set applies the first rule that fits, again and again, to
one node whose operands are already simple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from tinyedge.core.errors import InternalError
from tinyedge.core.ir import ops
from tinyedge.core.ir.ops import Primitive
from tinyedge.core.ir.uop import UOp, const, elementwise

STEPS = 64  # rules that one node may need, one after the other

# What a node becomes, given what its operands became; None: the same operation on those.
Change = Callable[[UOp, tuple[UOp, ...]], "UOp | None"]


def bottom_up(
    roots: Iterable[UOp],
    change: Change,
    done: dict[UOp, UOp] | None = None,
    *,
    operands: Callable[[UOp], tuple[UOp, ...]] | None = None,
) -> dict[UOp, UOp]:
    """Every node below the roots, mapped to what it becomes.

    Each node is changed once, after its operands; a deep graph takes no deep stack. done: what is
    decided already: such a node is not changed, nor is what lies below it alone. It grows, so that
    expressions that share nodes may come one by one. operands: what lies below a node; its `src` by
    default.
    """
    if done is None:
        done = {}
    stack = [*roots]
    stack.reverse()
    while stack:
        node = stack.pop()
        if node in done:
            continue
        below = node.src if operands is None else operands(node)
        missing = [s for s in below if s not in done]
        if missing:
            stack.append(node)
            missing.reverse()
            stack += missing
            continue
        src = tuple([done[s] for s in below])
        new = change(node, src)
        done[node] = node.replace(src) if new is None else new
    return done


def kept(node: UOp, src: tuple[UOp, ...]) -> None:
    """The change that is none: what is not decided stays as it is, on other operands."""


def replaced(roots: Iterable[UOp], mapping: Mapping[UOp, UOp]) -> dict[UOp, UOp]:
    """Every node below the roots, mapped to what it becomes where `mapping` replaces some."""
    return bottom_up(roots, kept, dict(mapping))


def viewed(node: UOp, views: Sequence[UOp]) -> UOp:
    """What views, the outermost first, are of another node in place of the one below them."""
    for view in reversed(views):
        node = view.replace((node,))
    return node


def substitute(roots: tuple[UOp, ...], mapping: Mapping[UOp, UOp]) -> tuple[UOp, ...]:
    """The roots with nodes replaced, and nothing simplified."""
    done = replaced(roots, mapping)
    return tuple(done[root] for root in roots)


Bindings = dict[str, UOp]


@dataclass(frozen=True, eq=False)
class Pattern:
    """Matches a node. op None: any node."""

    op: Primitive | None = None
    src: tuple[Pattern, ...] = ()
    name: str = ""  # binds the node
    value: Any = None  # a constant equal to it

    def __add__(self, other: Operand) -> Pattern:
        return of(ops.ADD, self, other)

    def __sub__(self, other: Operand) -> Pattern:
        return of(ops.SUB, self, other)

    def __mul__(self, other: Operand) -> Pattern:
        return of(ops.MUL, self, other)

    def __truediv__(self, other: Operand) -> Pattern:
        return of(ops.DIV, self, other)

    def __floordiv__(self, other: Operand) -> Pattern:
        return of(ops.FLOORDIV, self, other)

    def __lshift__(self, other: Operand) -> Pattern:
        return of(ops.SHL, self, other)

    def __and__(self, other: Operand) -> Pattern:
        return of(ops.AND, self, other)

    def __or__(self, other: Operand) -> Pattern:
        return of(ops.OR, self, other)

    def __neg__(self) -> Pattern:
        return of(ops.NEG, self)

    def __invert__(self) -> Pattern:
        return of(ops.NOT, self)

    def __repr__(self) -> str:
        if self.value is not None:
            return repr(self.value)
        if self.op is None:
            return self.name
        return f"{self.op.name}({', '.join(map(repr, self.src))})"


Number = Union[bool, int, float]  # in a pattern: the constant equal to it
Operand = Union[Pattern, Number]
After = Union[Operand, Callable[[Bindings], "UOp | None"]]


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


def _pattern(value: Operand) -> Pattern:
    return value if isinstance(value, Pattern) else Pattern(op=ops.CONST, value=value)


def of(op: Primitive, *src: Operand) -> Pattern:
    """An operation on patterns: of one that has no operator here."""
    return Pattern(op=op, src=tuple(map(_pattern, src)))


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


def _may_match(pattern: Pattern, key: Sequence[Primitive]) -> bool:
    """Whether a pattern can fit a node by operations: its own, then those of its operands."""
    op, *operands = key
    orders = [operands, operands[::-1]] if op.commutative else [operands]
    return not pattern.src or any(
        all(p.op in (None, found) for p, found in zip(pattern.src, order, strict=True))
        for order in orders
    )


class RuleSet:
    """Rules indexed by the operation at their root, and a fallback for what no equation says."""

    def __init__(
        self, name: str, rules: Sequence[Rule], fallback: Callable[[UOp], UOp] | None = None
    ) -> None:
        self.name = name
        self.rules = tuple(rules)
        self.fallback = fallback
        self.by_op: dict[Primitive, list[Rule]] = {}
        for rule in rules:
            assert rule.before.op is not None, f"rule {rule.name} has no operation at its root"
            self.by_op.setdefault(rule.before.op, []).append(rule)
        self.by_operands: dict[tuple[Primitive, ...], list[Rule]] = {}

    def apply(self, node: UOp) -> UOp:
        """The node simplified at its root; its operands must be simple already."""
        for _ in range(STEPS):
            new = self._once(node)
            if new is node:
                return node
            node = new
        raise InternalError(
            f"rule set {self.name!r}, at {node!r}",
            f"{STEPS} rules fit one after the other",
            id="rewrite.endless",
            next="report this with the model",
        )

    def _once(self, node: UOp) -> UOp:
        if self.fallback is not None:
            new = self.fallback(node)
            if new is not node:
                return new
        for rule in self._candidates(node):
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

    def _candidates(self, node: UOp) -> Sequence[Rule]:
        """The rules that fit an operation on results of such operations."""
        if node.op not in self.by_op:
            return ()
        key = (node.op, *[s.op for s in node.src])
        found = self.by_operands.get(key)
        if found is None:
            found = [rule for rule in self.by_op[node.op] if _may_match(rule.before, key)]
            self.by_operands[key] = found
        return found

    def instantiate(self, after: After, bindings: Bindings) -> UOp | None:
        """The right side of a rule; what it builds is simplified as well."""
        if callable(after):
            return after(bindings)
        if not isinstance(after, Pattern):
            return const(after, bindings["root"].dtype)
        if after.op is None:
            return bindings[after.name]
        if after.op is ops.CONST:
            return const(after.value, bindings["root"].dtype)
        src = []
        for pattern in after.src:
            node = self.instantiate(pattern, bindings)
            assert node is not None
            src.append(node)
        return self.apply(elementwise(after.op, *src))
