"""Where numbers stand in a table that is known at export: binary search, a few steps an element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyedge.core import dtype as dt
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.registry import Node


def place_in(node: Node, table: Any, values: Tensor) -> Tensor:
    """int32, of the shape of `values`: the place of each in `table`, or -1.

    table: a one-dimensional array of the type of `values`, ascending, each number once, no NaN.
    """
    return row_in(node, [table], [values])


def row_in(node: Node, columns: Sequence[Any], values: Sequence[Tensor]) -> Tensor:
    """int32, of the shape of the values: the place of each row of them in a table, or -1.

    columns: of the table, of the types of the values, its rows ascending, each row once, no NaN.
    """
    count = len(columns[0])
    place = Tensor.full(values[0].shape, 0, dt.int32)
    if not count:
        return place - 1
    kept = [node.constant(column) for column in columns]
    step = 1 << (count.bit_length() - 1)
    while step:  # the last place of which the row is no greater, or 0
        further = place + step
        reached = (further < count) & _at_most([c.gather(0, further) for c in kept], values)
        place = reached.where(further, place)
        step //= 2
    equal = kept[0].gather(0, place).eq(values[0])
    for column, value in zip(kept[1:], values[1:], strict=True):
        equal = equal & column.gather(0, place).eq(value)
    return equal.where(place, -1)


def _at_most(row: Sequence[Tensor], other: Sequence[Tensor]) -> Tensor:
    """Whether rows are equal or come before others."""
    result = row[-1] <= other[-1]
    for a, b in zip(row[-2::-1], other[-2::-1], strict=True):
        result = (a < b) | (a.eq(b) & result)
    return result
