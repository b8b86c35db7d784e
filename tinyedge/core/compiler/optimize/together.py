"""Outputs of an exact kernel that share a loop: what is common to them is loaded once, and each
keeps its own sum, in its own order.
"""

from __future__ import annotations

from math import prod

from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.move import ranges
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.tiles import Roles, beside, upcast
from tinyedge.core.ir.polynomial import divisor

LANES = 4  # of a vector
# Rows of a product, by the steps of all its launches from which these save more than a C compiler
# takes for their longer text.
ROWS = {1 << 26: 8, 1 << 24: 2}


def share_rows(kernel: MovedKernel, contraction: Roles, along: int | None, launches: int) -> None:
    """Rows of a long product in one loop: as few as make as many groups as the most would. along:
    the range of the vectors.
    """
    steps = launches * prod(kernel.extent(r.arg.number) for r in ranges(kernel.sink))
    most = next((rows for least, rows in ROWS.items() if steps >= least), 1)
    sides = beside(kernel, contraction, along, along) if most > 1 else ()
    if sides:
        side = max(sides, key=lambda n: (kernel.extent(n), -n))
        groups = -(-kernel.extent(side) // most)
        upcast(kernel, side, -(-kernel.extent(side) // groups))


def share_vectors(kernel: MovedKernel, along: int | None) -> None:
    """Adjacent outputs as vectors."""
    if along is None or divisor(kernel.size(along)) % LANES:
        return
    before = kernel.sink, list(kernel.moves)
    _, inner = kernel.split(along, LANES)
    if not kernel.attempt(To(inner, "vector")):
        kernel.sink, kernel.moves = before
