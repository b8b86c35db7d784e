"""Expressions at single places: what stands for each step of a range that becomes copies."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from tinyedge.core.compiler.lower.vectors import simplified
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.uop import UOp, as_node


def coordinates(ranges: Iterable[UOp]) -> Iterator[dict[UOp, UOp]]:
    """Every place in some ranges, in order."""
    chosen = list(ranges)
    for values in itertools.product(*(range(r.src[0].arg) for r in chosen)):
        yield {r: as_node(v) for r, v in zip(chosen, values, strict=True)}


def at(root: UOp, place: dict[UOp, UOp]) -> UOp:
    """An expression at a place, simplified; what is the same everywhere is not looked at."""

    def operands(node: UOp) -> tuple[UOp, ...]:
        return () if node.ranges.isdisjoint(place) else node.src

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp:
        return simplified(node, src) if src else node

    return bottom_up((root,), change, dict(place), operands=operands)[root]
