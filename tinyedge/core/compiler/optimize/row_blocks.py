"""Blocks of a product's rows that stay in a processor's caches.

    for columns: for rows: tile    ->    for blocks: for columns: for rows of the block: tile

All rows go by for each tile's columns. Rows that are more than a core's part of the last cache come
from memory each time, and every tile waits for the first of them. A block's rows stay there, and
the filter comes from memory once a block instead.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from tinyedge.core.compiler.optimize.move import numbers
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.moves import Overlap
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import divisor
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.uop import UOp, toposort

# A tile whose rows come from memory waits as long as so many bytes of a filter take from there.
WAIT = 8192


def block_rows(kernel: MovedKernel, rows: Sequence[int], batch: Collection[int]) -> list[int]:
    """Take the longest loop over a product's rows apart into blocks, where that pays. Gives the
    loops over rows that belong within those over columns, in their order.

    rows: numbers of the loops over tiles of rows, batch: of those around the product. All other
    loops go over columns.
    """
    inside = list(rows)
    if not kernel.caps.cache or not rows:
        return inside
    columns = [n for n in kernel.left("loop") if n not in rows and n not in batch]
    panels, tiles = (prod(map(kernel.extent, each)) for each in (columns, rows))
    read, filters = (
        sum(_bytes(kernel, load, batch) for load in _operands(kernel) if _uses(load, each))
        for each in (rows, columns)
    )
    blocks = -(-read // kernel.caps.cache)
    if blocks < 2 or (blocks - 1) * filters >= tiles * (panels - 1) * WAIT:
        return inside
    longest = max(rows, key=kernel.extent)
    steps = -(-kernel.extent(longest) // blocks)
    if steps > 1 and _split(kernel, longest, steps):
        inside[inside.index(longest)] = max(numbers(kernel.sink))
    return inside


def _split(kernel: MovedKernel, number: int, steps: int) -> bool:
    """Blocks of so many steps, of which the last may overlap the one before."""
    if kernel.size(number).op is not ops.CONST:
        return False
    if divisor(kernel.size(number)) % steps == 0:
        kernel.split(number, steps)
        return True
    return kernel.attempt(Overlap(number, steps, kernel.unused()))


def _operands(kernel: MovedKernel) -> list[UOp]:
    """What the kernel's sums read."""
    sums = [n for n in toposort((kernel.sink,)) if n.op is ops.REDUCE_LOOP]
    return [n for n in toposort(sums) if n.op is ops.LOAD and n.src[0].op is ops.PARAM]


def _uses(load: UOp, loops: Collection[int]) -> bool:
    return any(r.arg.number in loops for r in load.ranges)


def _bytes(kernel: MovedKernel, load: UOp, batch: Collection[int]) -> int:
    """What is read of an operand for one product of the batch: at most all of it."""
    own = [r.arg.number for r in load.ranges]
    count = prod(kernel.extent(n) for n in own if n not in batch)
    most = prod(maximum(size) for size in load.src[0].arg.shape)
    most //= prod(kernel.extent(n) for n in own if n in batch)
    return min(count, most) * load.dtype.itemsize
