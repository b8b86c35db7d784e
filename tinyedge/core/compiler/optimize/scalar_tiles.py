"""Tiles of contractions in which no vectors lie along the results, as those of a filter's gradient.

    y[i, j] = sum over r of a[i, r] * b[j + r]  ->  y[i..i+4, j..j+5], of which a step in r loads
                                                    4 of a and 5 of b for 20 products, and 2 steps
                                                    load 8 and 6 for 40

A tile is copies of some rows and of some columns, and of steps of the sum at which a copy loads
what another one has loaded at another step: those that cost least by what a product loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from tinyedge.core.compiler.optimize.move import find
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.tiles import Roles, idle, upcast
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.polynomial import Terms, terms
from tinyedge.core.ir.uop import UOp, toposort

MOST_SIDE = 8  # copies along a range
MOST_PRODUCTS = 40  # in the text of a kernel, which a page downloads and compiles
MOST_STORES = 20  # the same

# The numbers of ranges, and how many copies along each.
Copies = tuple[tuple[int, int], ...]


def lay_copies(kernel: MovedKernel, contraction: Roles) -> int:
    """Copies along a range of rows, one of columns and one that is summed, where these are left;
    gives the number of sums of a tile.
    """
    loads = [n for n in toposort((kernel.sink,)) if n.op is ops.LOAD]
    inside = [n for n in loads if any(r.arg.kind == "reduce" for r in n.ranges)]
    tiles = list(_tiles(kernel, contraction))
    if not tiles:
        return 1
    row, column, step = min(tiles, key=lambda tile: _cost(kernel, inside, tile))
    for number, count in (row, column):
        upcast(kernel, number, count)
    number, count = step
    if kernel.is_exactly(number, count):
        kernel.to(number, "unroll")
    elif count > 1:
        kernel.to(kernel.split(number, count)[1], "unroll")
    return row[1] * column[1]


def _tiles(kernel: MovedKernel, contraction: Roles) -> Iterator[Copies]:
    """Those that fit a device's registers, and a kernel's text."""
    loops = kernel.left("loop")
    rows = [n for n in loops if n in contraction["rows"]]
    columns = [n for n in loops if n in contraction["columns"]]
    steps = kernel.left("reduce")
    counts = range(1, MOST_SIDE + 1)
    for row, column, a, b in product(rows, columns, counts, counts):
        fits = a * b + a + b <= kernel.caps.max_vector_registers
        if not fits or a * b > max(1, MOST_STORES // len(kernel.sink.src)):
            continue
        if a > kernel.extent(row) or b > kernel.extent(column):
            continue
        for step, count in product(steps, counts):
            even = kernel.size(step).op is ops.CONST and kernel.extent(step) % count == 0
            if (even or count == 1) and a * b * count <= MOST_PRODUCTS:
                yield (row, a), (column, b), (step, count)


def _cost(kernel: MovedKernel, loads: list[UOp], tile: Copies) -> tuple[float, int]:
    """What a tile costs, for each result; of equal ones that of the shorter text."""
    outputs, waste = 1.0, 1.0
    for number in kernel.left("loop"):
        extent, count = kernel.extent(number), dict(tile).get(number, 1)
        outputs *= -(-extent // count)
        waste *= -(-extent // count) * count / extent
    copies = prod(count for _, count in tile)
    loaded = sum(_places(kernel, load, tile) for load in loads)
    cost = waste * (1 + kernel.caps.load_cost * loaded / copies)
    return cost * idle(outputs, kernel.caps), copies


def _places(kernel: MovedKernel, load: UOp, tile: Copies) -> int:
    """At how many places copies of a load are, of vectors where these are whole."""
    ranges = {find(kernel.sink, number): count for number, count in tile}
    own = {r: count for r, count in ranges.items() if r in load.ranges and count > 1}
    indices = access.indices_of(load)
    index = terms(indices[0])
    if len(indices) > 1 or not all(_is_linear(index, r) for r in own):
        return prod(own.values())
    places = {0}
    for r, count in own.items():
        places = {place + index[(r,)] * i for place in places for i in range(count)}
    vectors = {place // kernel.caps.vector for place in places}
    apart = (c for monomial, c in index.items() if monomial not in {(r,) for r in own})
    whole = len(places) == len(vectors) * kernel.caps.vector
    return len(vectors if whole and not any(c % kernel.caps.vector for c in apart) else places)


def _is_linear(index: Terms, r: UOp) -> bool:
    """Whether a range is a term of an index, and in no other one."""
    return (r,) in index and all(
        monomial == (r,) or not any(r in atom.ranges for atom in monomial) for monomial in index
    )
