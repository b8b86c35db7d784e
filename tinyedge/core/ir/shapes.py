"""Shapes: the rule of each row whose nodes have one (others stand in `movement` and `memory`), and
what is asked of their sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tinyedge.core import dtype as dt
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.uop import SHAPES, Shape, Size, UOp, as_node

# Sizes.


def symbol(name: str, minimum: int, maximum: int, step: int = 1) -> UOp:
    """A size chosen at run time: minimum <= value <= maximum, value % step == minimum % step.

    The result is offset + step * t: the node of t counts steps, so divisions of the size are exact.
    """
    offset = minimum % step
    arg = args.Symbol(name, minimum // step, (maximum - offset) // step, step, offset)
    return as_node(UOp(ops.SYMBOL, dt.index, (), arg) * step + offset)


def symbol_value(node: UOp, sizes: Mapping[str, int]) -> int:
    """The value of a SYMBOL node, given the sizes by name."""
    return (sizes[node.arg.name] - int(node.arg.offset)) // int(node.arg.step)


def product(sizes: Iterable[Size]) -> Size:
    """The product of sizes."""
    total: Size = 1
    for size in sizes:
        total *= size
    return total


def minimum(size: Size) -> int | float:
    """The least value a size can take."""
    return bounds(size)[0]


def maximum(size: Size) -> int:
    """The greatest value a size can take."""
    if not isinstance(size, UOp):
        return size
    bound = bounds(size)[1]
    if math.isinf(bound):
        raise ValueError(f"size {size} has no upper bound")
    return int(bound)


# The rules.


def _elementwise(node: UOp) -> Shape:
    first = node.src[0].shape
    for source in node.src[1:]:
        if source.shape != first:
            raise ValueError(f"{node.op.name} of shapes {[s.shape for s in node.src]}")
    return first


def _given(node: UOp) -> Shape:
    return tuple(node.arg)


def _named(node: UOp) -> Shape:
    return tuple(node.arg.shape)


SHAPES.update(
    {
        **{row: _elementwise for row in ops.TABLE.values() if row.elementwise},
        ops.BUFFER: _named,
        ops.IOTA: _given,
        ops.EMPTY: _given,
        ops.LOOP_OUTPUT: _named,
    }
)
