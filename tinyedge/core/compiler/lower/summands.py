"""The parts of a sum, and the conditions without which each of them is zero.

A part is what a sum adds: where it loads padding it is zero, as is its product with a number that
is finite. Of weights that is known, and integers always are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tinyedge.core import dtype as dt
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import UOp, toposort

Conditions = frozenset[UOp]
NONE: Conditions = frozenset()
Lanes = tuple["Conditions | None", ...]
Finite = Callable[[int], bool]

# What a number that an export knows, as a weight, may go through and is still finite.
EXACT = (ops.CONST, ops.VECTOR, ops.LANE, ops.CAST, ops.NEG, ops.ADD, ops.SUB, ops.MUL, ops.LOAD)


@dataclass
class Part:
    """A part of a sum of which each lane is zero unless its conditions hold. hoisted: whether these
    leave the innermost loop.
    """

    value: UOp
    lanes: tuple[Conditions, ...]
    hoisted: bool = False

    @property
    def conditions(self) -> Conditions:
        """Those of any lane."""
        return frozenset().union(*self.lanes)

    @property
    def gone(self) -> Conditions:
        """Those that leave the innermost loop."""
        return self.conditions if self.hoisted else NONE


def summands(body: UOp, kind: ops.Primitive) -> list[UOp]:
    """a + b + c as its parts, in order."""
    values: list[UOp] = []
    while body.op is kind and len(body.src) == 2:
        values.append(body.src[1])
        body = body.src[0]
    return [body, *values[::-1]]


def parts_of(body: UOp, kind: ops.Primitive, is_finite: Finite) -> list[Part]:
    """The parts of a sum but for those that change nothing."""
    found: dict[UOp, Lanes] = {}
    parts = []
    for value in summands(body, kind):
        for node in toposort((value,), found.__contains__):
            if node not in found:
                found[node] = _telling(node, kind, found, is_finite)
        if (common := _both(*found[value])) is not None:
            lanes = (common if lane is None else lane for lane in found[value])
            parts.append(Part(value, tuple(lanes)))
    return parts


def _telling(
    node: UOp, kind: ops.Primitive, found: Mapping[UOp, Lanes], is_finite: Finite
) -> Lanes:
    """The conditions without which each lane is neutral; None: it is so in any case. In a sum that
    is zero, and no factor that is finite makes zero another number.
    """
    op, count = node.op, node.dtype.lanes
    if op is ops.CONST:
        number = node.dtype.kind != "b" and node.dtype is not dt.index
        neutral = number and node.arg == ops.reduce_identity(kind, node.dtype)
        return (None if neutral else NONE,)
    if op is ops.LANE:
        return (found[node.src[0]][node.arg],)
    if op is ops.VECTOR:
        lanes = tuple(found[s][0] for s in node.src)
        return lanes if len(lanes) == count else lanes * count
    if op is ops.WHERE and not any(lane is not None for lane in found[node.src[2]]):
        return tuple(map(_either, tested_lanes(node), found[node.src[1]]))
    if kind is ops.ADD and op is ops.LOAD:
        return (frozenset(ix.conjuncts(access.guard_of(node))) if node.arg else NONE,) * count
    if kind is ops.ADD and op in (ops.CAST, ops.NEG):
        return found[node.src[0]]
    if kind is ops.ADD and op is ops.MUL:
        one, other = (
            found[a] if set(found[a]) != {NONE} and _is_finite(b, is_finite) else (NONE,) * count
            for a, b in (node.src, node.src[::-1])
        )
        alike = map(_both, *(found[s] for s in node.src))  # where both are zero, as of a square
        return tuple(map(_either, map(_either, one, other), alike))
    if kind is ops.ADD and op in (ops.ADD, ops.SUB):
        return tuple(map(_both, *(found[s] for s in node.src)))
    return (NONE,) * count


def _either(a: Conditions | None, b: Conditions | None) -> Conditions | None:
    return None if a is None or b is None else a | b


def _both(*each: Conditions | None) -> Conditions | None:
    known = [conditions for conditions in each if conditions is not None]
    return frozenset.intersection(*known) if known else None


def _is_finite(value: UOp, is_finite: Finite) -> bool:
    """Whether a number is made of weights alone, which are finite, and of integers."""
    for node in toposort((value,), stop=lambda n: n.op is ops.LOAD or not n.dtype.is_float):
        if not node.dtype.is_float:
            continue
        if node.op not in EXACT:
            return False  # what codes stand for may be no number
        if node.op is ops.CAST and not node.src[0].dtype.is_float and node.dtype.bits < 32:
            return False  # half precision has no numbers for some integers
        if node.op is ops.LOAD:
            memory = node.src[0]
            known = memory.op is ops.PARAM and memory.arg.weight
            if not known or not is_finite(memory.arg.slot):
                return False
    return True


def tested_lanes(choice: UOp) -> tuple[Conditions, ...]:
    """The conditions of each lane of a choice."""
    count = choice.dtype.lanes
    each: list[Conditions] = [NONE] * count
    for condition in ix.conjuncts(choice.src[0]):
        lanes = condition.src if condition.op is ops.VECTOR else (condition,)
        if condition.op is not ops.VECTOR and condition.dtype.lanes > 1:
            scalar = condition.dtype.scalar
            lanes = tuple(UOp(ops.LANE, scalar, (condition,), i) for i in range(count))
        lanes = lanes if len(lanes) == count else lanes * count
        each = [known.union(ix.conjuncts(lane)) for known, lane in zip(each, lanes, strict=True)]
    return tuple(each)
