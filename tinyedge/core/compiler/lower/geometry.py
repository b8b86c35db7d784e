"""Which workgroup and thread computes what: grid and local ranges as functions of a thread's
position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.move import ranges as kernel_ranges
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.lowered import FLAT, Geometry
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Size, UOp, as_node, as_size


def geometry(sink: UOp, caps: Caps) -> Geometry:
    """Map the ranges of a kernel to the device's dimensions; the last range varies fastest,
    along x.
    """
    ranges = kernel_ranges(sink)
    grid = [r for r in ranges if r.arg.kind == "grid"]
    local = [r for r in ranges if r.arg.kind == "local"]
    if flat := [r for r in ranges if r.arg.kind == "flat"]:
        return _flat(flat, caps)
    positions: list[tuple[UOp, UOp]] = []
    counts: list[Size] = []
    for dimension, members in enumerate(_dimensions(grid, caps)):
        counts.append(product(as_size(r.src[0]) for r in members))
        positions.extend(
            _decode(members, UOp(ops.SPECIAL, dt.index, (), args.Special("group", dimension)))
        )
    while len(counts) < len(caps.grid):
        counts.append(1)
    threads = [int(r.src[0].arg) for r in local]
    position = UOp(ops.SPECIAL, dt.index, (), args.Special("thread", 0))
    shared = [r for r in ranges if r.arg.kind in ("lane", "threads")]
    if shared:
        lanes = shared[0].src[0]
        threads.append(int(lanes.arg))
        alone = not local
        positions.extend(
            (r, position if alone else UOp(ops.MOD, dt.index, (position, lanes))) for r in shared
        )
        position = UOp(ops.FLOORDIV, dt.index, (position, lanes))
    positions.extend(_decode(local, position))
    positions.extend(
        (r, UOp(ops.SPECIAL, dt.index, (), args.Special("thread", 0)))
        for r in ranges
        if r.arg.kind == "fill"
    )
    return Geometry(tuple(counts), (math.prod(threads), 1, 1), tuple(positions))


def _flat(ranges: Sequence[UOp], caps: Caps) -> Geometry:
    """Ranges dealt out to threads one after the other, whatever their sizes. Threads beyond them do
    the last one's work again.
    """
    total = product(as_size(r.src[0]) for r in ranges)
    last = UOp(ops.MIN, dt.index, (_thread(), as_node(total - 1)))
    groups = (total + FLAT - 1) // FLAT
    return Geometry(
        (groups, *(1 for _ in caps.grid[1:])), (FLAT, 1, 1), tuple(_decode(ranges, last))
    )


def _thread() -> UOp:
    """A thread's number among those of all workgroups."""
    group = UOp(ops.SPECIAL, dt.index, (), args.Special("group", 0))
    return as_node(group * FLAT + UOp(ops.SPECIAL, dt.index, (), args.Special("thread", 0)))


def without_surplus(sink: UOp, shape: Geometry) -> UOp:
    """A kernel whose threads are flat stores nothing in those beyond its work."""
    flat = [r for r, _ in shape.positions if r.arg.kind == "flat"]
    if not flat:
        return sink
    works = ix.lt(_thread(), as_node(product(as_size(r.src[0]) for r in flat)))
    return sink.replace(tuple(access.also_under(works, store) for store in sink.src))


def _dimensions(grid: Sequence[UOp], caps: Caps) -> list[list[UOp]]:
    """The grid ranges, innermost first, packed into the device's dimensions."""
    dimensions: list[list[UOp]] = [[] for _ in caps.grid]
    sizes = [1] * len(caps.grid)
    current = 0
    remaining = len(grid)
    for r in reversed(grid):
        size = maximum(as_size(r.src[0]))
        free = len(caps.grid) - current - 1
        if (
            sizes[current] > 1
            and free
            and (remaining <= free or sizes[current] * size > caps.grid[current])
        ):
            current += 1
        if (
            sizes[current] * size > caps.grid[current]
            and sizes[current] > 1
            and current + 1 < len(caps.grid)
        ):
            current += 1
        sizes[current] *= size
        dimensions[current].insert(0, r)
        remaining -= 1
    return dimensions


def _decode(members: Sequence[UOp], position: UOp) -> list[tuple[UOp, UOp]]:
    result = []
    rest = position
    for i, r in enumerate(reversed(members)):
        size = r.src[0]
        if i == len(members) - 1:
            result.append((r, rest))
        else:
            result.append((r, UOp(ops.MOD, dt.index, (rest, size))))
            rest = UOp(ops.FLOORDIV, dt.index, (rest, size))
    return result[::-1]
