"""Counts: sizes that a kernel computes, so that only a run knows them.

A count is a SYMBOL whose value lies in a buffer. Everything is laid out by it as by any other
symbolic size: rows of `n` elements follow each other without gaps. But the host does not know it
when it launches, so no loop and no workgroup may depend on it: a range of a dynamic size runs to
the most that the size can be, and what is beyond it is neither stored nor reduced.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.schedule.canonical import make_range, mask_reductions
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.buffers import KernelArg, TensorBuffer, row_major
from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.rewrite import replaced
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import SIMPLIFY
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.spec import REDUCE_KINDS
from tinyedge.core.ir.uop import Size, UOp, as_node, const, toposort

# Operations that rise, or fall, with each operand (of a product: that is at least 0).
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
            SIMPLIFY.rewrite((end,), {symbol: as_node(value)})[0]
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


def bound_ranges(sink: UOp, counts: Collection[str]) -> UOp:
    """The kernel with ranges of known size: those of a counted one run to the most it can be."""
    ranges = [n for n in toposort((sink,)) if n.op is ops.RANGE]
    for target in sorted(ranges, key=lambda r: int(r.arg.number)):
        size = target.src[0]
        if not is_dynamic(size, counts):
            continue
        number, kind = target.arg.number, target.arg.kind
        longer = make_range(most(size, counts), number, kind)
        inside = ix.less(longer, size)
        clamped = longer
        if not all(
            _has_room(node, target, longer) for node in toposort((sink,)) if node.op is ops.LOAD
        ):
            clamped = as_node(ix.minimum(longer, ix.maximum(size - 1, 0)))
        if kind in REDUCE_KINDS:
            sink = mask_reductions(sink, target, longer, clamped, inside)
        else:
            stores = [SIMPLIFY.rewrite((store,), {target: clamped})[0] for store in sink.src]
            sink = sink.replace(tuple(access.also_under(inside, store) for store in stores))
    return sink


def _has_room(load: UOp, target: UOp, longer: UOp) -> bool:
    """Whether a load stays in its buffer while a range runs on: memory is there for the most."""
    if target not in load.ranges:
        return True
    param = load.src[0].arg
    (address,) = SIMPLIFY.rewrite((load.src[1],), {target: longer})
    low, high = bounds(address)
    return not param.is_image and low >= 0 and high < maximum(param.layout.count(param.shape))


def read_dynamic_sizes(
    sink: UOp, storages: Sequence[TensorBuffer], counts: Mapping[str, TensorBuffer]
) -> tuple[UOp, list[TensorBuffer]]:
    """The kernel with its counts as arguments: their buffers come after the others."""
    mapping: dict[UOp, UOp] = {}
    arguments = list(storages)
    for node in sorted(
        (n for n in toposort((sink,)) if n.op is ops.SYMBOL and n.arg.name in counts),
        key=lambda n: str(n.arg.name),
    ):
        param = UOp(ops.PARAM, dt.int32, (), KernelArg(len(arguments), (), row_major(())))
        mapping[node] = UOp(ops.SYMBOL, node.dtype, (param,), node.arg)
        arguments.append(counts[node.arg.name])
    return replaced((sink,), mapping)[sink], arguments
