"""Where numbers stand in a table that is known at export: binary search, a few steps an element."""

from __future__ import annotations

from typing import Any

from tinyedge.core import dtype as dt
from tinyedge.core.tensor import Tensor
from tinyedge.export.onnx.registry import Node


def place_in(node: Node, table: Any, values: Tensor) -> Tensor:
    """int32, of the shape of `values`: the place of each in `table`, or -1.

    table: a one-dimensional array of the type of `values`, ascending, each number once, no NaN.
    """
    place = Tensor.full(values.shape, 0, dt.int32)
    if not len(table):
        return place - 1
    kept = node.constant(table)
    step = 1 << (len(table).bit_length() - 1)
    while step:  # the last place of which the number is no greater, or 0
        further = place + step
        reached = (further < len(table)) & (kept.gather(0, further) <= values)
        place = reached.where(further, place)
        step //= 2
    return kept.gather(0, place).eq(values).where(place, -1)
