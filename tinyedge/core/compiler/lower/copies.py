"""Expressions at single places: what stands for each step of a range that becomes copies."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.rules.algebra import operands, simplified
from tinyedge.core.ir.uop import UOp, as_node, toposort


def at(root: UOp, place: Mapping[UOp, UOp]) -> UOp:
    """An expression at a place, simplified; what is the same everywhere is not looked at."""

    def below(node: UOp) -> tuple[UOp, ...]:
        return () if node.ranges.isdisjoint(place) else operands(node)

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp:
        return simplified(node, src) if src else node

    return bottom_up((root,), change, dict(place), operands=below)[root]


def at_each(root: UOp, ranges: Iterable[UOp]) -> Iterator[UOp]:
    """An expression at every place in some ranges, in order, simplified. What depends on some of
    the ranges is made once for each step of these.
    """
    chosen = list(ranges)
    depends = [node for node in toposort((root,), operands=operands) if node not in chosen]
    parts = []
    for node in depends:
        if not node.ranges.isdisjoint(chosen):
            along = [number for number, r in enumerate(chosen) if r in node.ranges]
            known: dict[tuple[int, ...], UOp] = {}
            parts.append((node, operands(node), along, known))
    for steps in itertools.product(*(range(r.src[0].arg) for r in chosen)):
        there: dict[UOp, UOp] = {r: as_node(step) for r, step in zip(chosen, steps, strict=True)}
        for node, below, along, known in parts:
            key = tuple([steps[number] for number in along])
            new = known.get(key)
            if new is None:
                new = known[key] = simplified(node, tuple([there.get(s, s) for s in below]))
            there[node] = new
        yield there.get(root, root)
