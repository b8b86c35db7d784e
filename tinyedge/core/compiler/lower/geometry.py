"""Which workgroup and thread computes what: grid and local ranges as functions of a thread's
position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.move import ranges as kernel_ranges
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.lowered import Geometry
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Size, UOp, as_size


def geometry(sink: UOp, caps: Caps) -> Geometry:
    """Map the ranges of a kernel to the device's dimensions; the last range varies fastest,
    along x.
    """
    ranges = kernel_ranges(sink)
    grid = [r for r in ranges if r.arg.kind == "grid"]
    local = [r for r in ranges if r.arg.kind == "local"]
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
