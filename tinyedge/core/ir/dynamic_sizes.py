"""Sizes that only a run knows: which they are, and the most that they can be."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import rewrite
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.uop import Size, UOp, as_node, const, toposort

MONOTONIC = frozenset({ops.ADD, ops.SUB, ops.NEG, ops.MUL, ops.FLOORDIV, ops.MIN, ops.MAX})
TRIED = 1 << 16  # values of counts


def is_dynamic(size: Size, counts: Collection[str]) -> bool:
    """Whether only a run knows the size."""
    return isinstance(size, UOp) and any(
        node.op is ops.SYMBOL and node.arg.name in counts for node in toposort((size,))
    )


def most(size: UOp, counts: Collection[str]) -> UOp:
    """At least the most that a size can be, whatever its counts are.

    Where every count is met once, by operations that only rise or only fall, the size is greatest
    where each is at an end, and the other symbols stay in it. Else all counts are tried, or, of too
    many or beside other symbols, intervals say what the size cannot exceed.
    """
    order = toposort((size,))
    symbols = [node for node in order if node.op is ops.SYMBOL and node.arg.name in counts]
    if not all(_is_monotonic(order, symbol) for symbol in symbols):
        return const(_tried(order, symbols) or maximum(size), dt.index)
    ends: list[UOp] = [size]
    for symbol in symbols:
        ends = [
            rewrite((end,), {symbol: as_node(value)})[0]
            for end in ends
            for value in (symbol.arg.min, symbol.arg.max)
        ]
    greatest = ends[0]
    for end in ends[1:]:
        greatest = as_node(ix.maximum(greatest, end))
    return greatest


def _is_monotonic(order: Sequence[UOp], symbol: UOp) -> bool:
    """Whether the last of the nodes rises, or falls, with a symbol that is met once. Sizes are at
    least 0, and what they are divided by too.
    """
    uses: Counter[UOp] = Counter()
    reached = {symbol}
    for node in order:
        through = [source for source in node.src if source in reached]
        if through:
            reached.add(node)
            uses.update(through)
            if node.op not in MONOTONIC or (node.op is ops.FLOORDIV and node.src[1] in reached):
                return False
    return all(count == 1 for count in uses.values())


def _tried(order: Sequence[UOp], symbols: Sequence[UOp]) -> int:
    """The greatest value of the last of the nodes; 0 if there are other symbols or many values."""
    spans = [np.arange(symbol.arg.min, symbol.arg.max + 1) for symbol in symbols]
    others = [node for node in order if node.op is ops.SYMBOL and node not in symbols]
    if others or math.prod(len(span) for span in spans) > TRIED:
        return 0
    values: dict[UOp, Any] = dict(zip(symbols, np.ix_(*spans), strict=True))
    for node in order:
        if node.op is ops.CONST:
            values[node] = np.int64(node.arg)
        elif node not in values:
            assert node.op.numpy is not None
            values[node] = node.op.numpy(*(values[source] for source in node.src))
    return max(0, int(np.max(values[order[-1]])))
