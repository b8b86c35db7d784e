"""Loops over whole kernels: what one iteration computes, taken out of the graph around it.

In a tensor graph a LOOP's operands are the first values of what it carries and then what one
iteration makes of them, an expression over the carried values (BUFFER nodes that its LoopInfo
lists) and over anything else in the graph. Before scheduling, that expression becomes a graph of
its own, the Body of an LOOP_CALL node: the values from outside that it reads are buffers there.
What does not depend on a carried value stays outside and is computed once.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tinyedge.core.ir import args, ops
from tinyedge.core.ir.rewrite import bottom_up, replaced
from tinyedge.core.ir.uop import UOp, toposort


@dataclass(frozen=True)
class LoopInfo:
    """carried: the BUFFER nodes that stand for what is carried.

    trips: how many iterations; None: as long as the first carried value, a bool, is true, but at
    most `bound` iterations.
    """

    carried: tuple[UOp, ...]
    trips: int | None
    bound: int


@dataclass(frozen=True)
class LoopBody:
    """One iteration: `results`, the next carried values, over carried and `captured` buffers."""

    repeat: LoopInfo
    captured: tuple[UOp, ...]
    results: tuple[UOp, ...]
    # of the body's nodes in the graph that it was taken from
    origins: Mapping[UOp, UOp] = field(compare=False, repr=False)


def outline(roots: Sequence[UOp]) -> dict[UOp, UOp]:
    """Every node of the graph outside of loops, mapped to one in which the loops are outlined."""
    order = toposort(roots)
    if not any(node.op is ops.LOOP for node in order):
        return {node: node for node in order}
    captured: dict[UOp, list[UOp]] = {}

    def operands(node: UOp) -> tuple[UOp, ...]:
        if node.op is not ops.LOOP:
            return node.src
        if node not in captured:
            captured[node] = _captured(node)
        return (*_firsts(node), *captured[node])

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.LOOP:
            return None
        return UOp(ops.LOOP_CALL, node.dtype, src, _body(node, captured[node]))

    return bottom_up(roots, change, operands=operands)


def _firsts(node: UOp) -> tuple[UOp, ...]:
    return node.src[: len(node.arg.carried)]


def _body(node: UOp, captured: Sequence[UOp]) -> LoopBody:
    nexts = node.src[len(node.arg.carried) :]
    holes = {
        value: UOp(ops.BUFFER, value.dtype, (), args.Buffer(_hole(number), value.shape))
        for number, value in enumerate(captured)
    }
    inner = replaced(nexts, holes)
    origins = {new: old for old, new in inner.items()}
    return LoopBody(node.arg, tuple(holes.values()), tuple(inner[n] for n in nexts), origins)


@functools.cache
def _hole(number: int) -> ops.TensorSource:
    """The same for every loop: equal bodies are one node."""
    return ops.TensorSource("captured", f"captured {number}")


def inside(nexts: Sequence[UOp], carried: tuple[UOp, ...]) -> set[UOp]:
    """The nodes that depend on what is carried, by this loop or by one of those inside it."""
    order = toposort(nexts)
    bound: set[UOp] = set()
    found = set(carried)
    within: set[UOp] = set()
    while not found <= bound:
        bound |= found
        for node in order:
            if node in bound or any(s in within for s in node.src):
                within.add(node)
        found = {v for node in within if node.op is ops.LOOP for v in node.arg.carried}
    return within


def _captured(node: UOp) -> list[UOp]:
    """What a loop's body reads from outside: below movements, which are free, but for constants."""
    carried = node.arg.carried
    nexts = node.src[len(carried) :]
    within = inside(nexts, carried)
    found: dict[UOp, None] = {}
    seen: set[UOp] = set()
    waiting = [n for n in nexts if n not in within]
    waiting += [s for step in toposort(nexts) if step in within for s in step.src]
    while waiting:
        value = waiting.pop()
        if value in within or value in seen:
            continue
        seen.add(value)
        if value.op.group == "movement":
            waiting.append(value.src[0])
        elif value.op.group != "source" or value.op in (ops.BUFFER, ops.LOOP_OUTPUT):
            found[value] = None
    return list(found)
