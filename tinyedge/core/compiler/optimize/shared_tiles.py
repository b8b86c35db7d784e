"""Tiles of contractions that a workgroup computes from its memory.

    for each step of the sum:                  t[m, k], u[k, n] = a tile of each operand, once
      acc[m, n] += a[m, k] * b[k, n]   ->      for k in the tile: acc[m, n] += t[m, k] * u[k, n]

A workgroup has m rows and n columns, of which a thread has some copies in registers. What it loads
from memory for a step of the sum grows with m + n, what it computes with m * n. Neighboring threads
have neighboring vectors of columns, also where a thread has several: they load from different banks
of the workgroup's memory, and store whole lines. Of the rows, several ranges are merged: a tile of
a convolution is of any neighboring pixels. Products over sums of their own follow each other, each
with tiles of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.extend import Extend
from tinyedge.core.compiler.optimize.move import IllegalMove, find
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.moves import Merge, PadTo
from tinyedge.core.compiler.optimize.reductions import reductions
from tinyedge.core.compiler.optimize.staging import Stage
from tinyedge.core.compiler.optimize.tiles import UNROLL, Roles
from tinyedge.core.compiler.schedule.canonical import coefficient_of
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import divisor, terms
from tinyedge.core.ir.uop import UOp, toposort

STEPS = 16  # of a sum for which a tile is filled
LEAST_STEPS = 8
MOST_STEPS = 32
PADDED = 1 / 8  # more steps, at most, where none of these divides a sum's
LEAST_SUMMED = 16  # steps of a sum, and rows and columns, from which sharing pays
LEAST_SIDE = 8
MANY_COLUMNS = 16  # along which a kernel writes: others are not merged with them
COPIES = (2, 4, 6, 8)  # rows of a thread
VECTORS = (1, 2)  # of columns
ROW_THREADS = (4, 8, 16, 32)
COLUMN_THREADS = (4, 8, 16)
THREADS = (64, 256)  # of a workgroup, at least and at most
SHARED_COST = 0.5  # of a vector from the workgroup's memory, against a vector's product and sum
MEMORY_COST = 16.0  # of an element from memory, against a product and sum
# of the threads that keep a device busy: each has many sums, and waits for few of them
BUSY = 0.5
REGISTERS = 30  # vectors of a thread: more are 128 registers, or are spilled
# Vectors of a result of which functions are computed, whose steps a compiler mixes with those of
# all others: with 16 of them 140 to 151 registers, with 12 at most 119.
EVALUATED = 2.25
FUNCTION_COST = 8  # from which an operation is such a function, as the exponential is
# Vectors of sums and of what is loaded under conditions, whose places and conditions are as many:
# with 28 up to 130 registers, with 26 at most 128.
TESTED = 26
MOST_HELD = 6144  # elements of tiles: two workgroups and more share a multiprocessor's memory
# Tiles of which one half is filled while the other is used: elements of a half, and vectors of a
# thread. Larger ones have work enough in a step for what is loaded to arrive, and no registers;
# what is loaded under conditions, as padding is, has its addresses in too many (125 to 136).
MOST_AHEAD = 4096
REGISTERS_AHEAD = 20
GROUPS = 64  # workgroups that keep a device busy


@dataclass(frozen=True)
class Work:
    """What a contraction asks of a tile."""

    rows: int
    columns: int
    others: int = 1  # such products beside each other
    steps: int = STEPS  # of a sum, for which a tile is filled
    sums: int = 1  # of each result
    tested: bool = False  # whether what fills tiles is loaded under conditions, as padding is
    evaluated: bool = False  # whether functions as the exponential are computed of the results


@dataclass(frozen=True)
class Tile:
    """Rows of a thread, vectors of its columns, and threads along both."""

    copies: int
    vectors: int
    row_threads: int
    column_threads: int
    lanes: int

    @property
    def rows(self) -> int:
        return self.copies * self.row_threads

    @property
    def columns(self) -> int:
        return self.lanes * self.vectors * self.column_threads

    @property
    def results(self) -> int:
        """Vectors that a thread computes."""
        return self.copies * self.vectors

    def filled(self, steps: int) -> int:
        """Vectors that a thread loads to fill a tile."""
        elements = (self.rows + self.columns) * steps
        return -(-elements // (self.lanes * self.row_threads * self.column_threads))

    def registers(self, steps: int, sums: int) -> int:
        """Vectors that a thread has at most: its sums, what it loads for UNROLL steps, and what it
        has loaded to fill the next tile.
        """
        loaded = self.copies + self.vectors * sums + self.filled(steps)
        return self.results * sums + loaded

    def fits(self, work: Work) -> bool:
        """Whether a thread has registers enough, in its loops and behind them."""
        steps, sums = work.steps, work.sums
        evaluated = EVALUATED * self.results if work.evaluated else 0
        tested = self.results * sums + 2 * self.filled(steps) if work.tested else 0
        most = max(self.registers(steps, sums), evaluated)
        return most <= REGISTERS and tested <= TESTED


def share_tile(kernel: MovedKernel, contraction: Roles, along: int | None) -> bool:
    """Give a contraction a tile in its workgroup's memory, where that pays; what is left of its
    output are loops over tiles. along: the range along which it writes.
    """
    if not kernel.caps.shared_tiles or along is None:
        return False
    sides = next((pair for pair in _SIDES if along in contraction[pair[0]]), None)
    if sides is None:
        return False
    columns, rows = ([n for n in contraction[side] if n in kernel.left("loop")] for side in sides)
    if kernel.extent(along) >= MANY_COLUMNS:
        columns = [along]
    before = kernel.sink, list(kernel.moves)
    try:
        return _tiled(kernel, rows, columns)
    except IllegalMove:
        kernel.sink, kernel.moves = before
        return False


_SIDES = (("columns", "rows"), ("rows", "columns"))


def _tiled(kernel: MovedKernel, rows: list[int], columns: list[int]) -> bool:
    row_count, column_count = (prod(map(kernel.extent, part)) for part in (rows, columns))
    sums = reductions(kernel.sink)
    apart = list({found.src[1:]: position for position, found in enumerate(sums)}.values())
    summed = min(prod(kernel.extent(int(r.arg.number)) for r in f.src[1:]) for f in sums)
    if summed < LEAST_SUMMED or min(row_count, column_count) < LEAST_SIDE:
        return False
    others = prod(kernel.extent(n) for n in kernel.left("loop") if n not in (*rows, *columns))
    steps = [_steps(kernel, reductions(kernel.sink)[position]) for position in apart]
    held = sum(prod(kernel.extent(n) for n in part) for part in steps)
    guarded = any(n.op is ops.LOAD and n.arg for n in toposort((kernel.sink,)))
    evaluated = evaluates(kernel.sink)
    work = Work(row_count, column_count, others, held, len(sums), guarded, evaluated)
    tile = choose_tile(work, kernel.caps)
    row_part = _divide_rows(kernel, _merged(kernel, rows), tile)
    column_part = _divide_columns(kernel, _merged(kernel, columns), tile)
    fits = len(steps) == 1 and tile.registers(held, len(sums)) <= REGISTERS_AHEAD
    ahead = fits and not guarded and (tile.rows + tile.columns) * held <= MOST_AHEAD
    operands = [o for part in steps for o in _operands(kernel, row_part, column_part, part)]
    for slot, staged in operands:
        kernel.do(Stage(kernel.unused(), slot, staged, ahead))
    return True


def evaluates(sink: UOp) -> bool:
    """Whether functions that take many instructions are computed of what a kernel has summed."""
    after = toposort(sink.src, stop=lambda node: node.op is ops.REDUCE_LOOP)
    return any(n.op.cost >= FUNCTION_COST and _is_summed(n) for n in after)


def _is_summed(value: UOp) -> bool:
    return any(node.op is ops.REDUCE_LOOP for node in toposort((value,)))


def choose_tile(work: Work, caps: Caps) -> Tile:
    """The tile of least cost. Raises IllegalMove where registers hold none."""
    tiles = [
        Tile(a, b, r, c, caps.vector)
        for a in COPIES
        for b in VECTORS
        for r in ROW_THREADS
        for c in COLUMN_THREADS
        if THREADS[0] <= r * c <= min(THREADS[1], caps.threads)
    ]
    tiles = [tile for tile in tiles if tile.fits(work)]
    tiles = [tile for tile in tiles if (tile.rows + tile.columns) * work.steps <= MOST_HELD]
    if not tiles:
        raise IllegalMove(f"no tile of {work.sums} sums and {work.steps} steps fits in registers")
    return min(tiles, key=lambda tile: _cost(tile, work, caps))


def _cost(tile: Tile, work: Work, caps: Caps) -> float:
    across, down = -(-work.columns // tile.columns), -(-work.rows // tile.rows)
    waste = across * tile.columns * down * tile.rows / (work.rows * work.columns)
    loads = (tile.copies / UNROLL + tile.vectors) / (tile.copies * tile.vectors)
    brought = 1 / tile.rows + 1 / tile.columns
    groups = work.others * across * down
    threads = groups * tile.row_threads * tile.column_threads
    idle = max(1.0, BUSY * caps.threads_to_saturate / threads, math.sqrt(GROUPS / groups))
    return waste * (1 + SHARED_COST * loads + MEMORY_COST * brought) * idle


def _steps(kernel: MovedKernel, reduction: UOp) -> list[int]:
    """The innermost ranges of a sum that a tile is filled for, outermost first."""
    found: list[int] = []
    for r in reversed(reduction.src[1:]):
        number, size = int(r.arg.number), divisor(r.src[0])
        count = prod(kernel.extent(n) for n in found)
        if kernel.is_exactly(number, size) and size * count <= MOST_STEPS:
            found.insert(0, number)
            continue
        if not found:
            found.append(kernel.split(number, _block(kernel, number, size))[1])
        break
    last = found.pop()
    if kernel.extent(last) > UNROLL and kernel.extent(last) % UNROLL == 0:
        outer, last = kernel.split(last, UNROLL)
        found.append(outer)
    if kernel.extent(last) <= UNROLL:
        kernel.to(last, "unroll")
    return [*found, last]


def _block(kernel: MovedKernel, number: int, size: int) -> int:
    """Steps of a range that a tile is filled for: they divide it, padded by zeros if need be."""
    for steps in itertools.chain((STEPS,), range(MOST_STEPS, LEAST_STEPS - 1, -1)):
        if size % steps == 0:
            return steps
    most = kernel.extent(number) * (1 + PADDED)
    choices = (n for n in (STEPS, LEAST_STEPS) if -(-kernel.extent(number) // n) * n <= most)
    padded = next(choices, LEAST_STEPS)
    kernel.do(Extend(number, padded))
    return padded


def _merged(kernel: MovedKernel, found: list[int]) -> int:
    """Several ranges as one, in the order in which their results lie in memory."""
    address = kernel.sink.src[0].src[2]
    strides = {n: coefficient_of(address, find(kernel.sink, n)) for n in found}
    number, *rest = sorted(found, key=lambda n: (-strides[n], n))
    for inner in rest:
        merged = kernel.unused()
        kernel.do(Merge(number, inner, merged))
        number = merged
    return number


def _divide_rows(kernel: MovedKernel, number: int, tile: Tile) -> list[int]:
    _pad(kernel, number, tile.rows)
    outer, copies = kernel.split(number, tile.copies)
    _, threads = kernel.split(outer, tile.row_threads)
    kernel.to(threads, "local")
    kernel.to(copies, "upcast")
    return [threads, copies]


def _divide_columns(kernel: MovedKernel, number: int, tile: Tile) -> list[int]:
    """Neighboring threads have neighboring vectors; of several, each has one in every round."""
    whole = divisor(kernel.size(number)) % tile.lanes == 0
    if not whole:
        _pad(kernel, number, tile.columns)
    number, lanes = kernel.split(number, tile.lanes)
    kernel.to(lanes, "vector")
    if whole:
        _pad(kernel, number, tile.columns // tile.lanes)
    number, threads = kernel.split(number, tile.column_threads)
    found = [threads, lanes]
    if tile.vectors > 1:
        found.insert(0, kernel.split(number, tile.vectors)[1])
        kernel.to(found[0], "upcast")
    kernel.to(threads, "local")
    return found


def _pad(kernel: MovedKernel, number: int, multiple: int) -> None:
    if divisor(kernel.size(number)) % multiple:
        kernel.do(PadTo(number, multiple))


def _operands(
    kernel: MovedKernel, rows: Sequence[int], columns: Sequence[int], steps: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """What the sum reads of rows and of columns: the argument, and along which ranges. A row's
    steps lie together where they do so in memory, in whole vectors.
    """
    found: dict[tuple[int, tuple[int, ...]], None] = {}
    for load in toposort((kernel.sink,)):
        if load.op is not ops.LOAD:
            continue
        along = {int(r.arg.number) for r in load.ranges}
        of_rows, of_columns, of_steps = (
            [n for n in part if n in along] for part in (rows, columns, steps)
        )
        if not of_steps or not (of_rows or of_columns):
            continue
        if of_rows and of_columns:
            raise IllegalMove("an operand is of rows and columns")
        last = find(kernel.sink, of_steps[-1])
        vectors = prod(kernel.extent(n) for n in of_steps) % kernel.caps.vector == 0
        together = of_rows and vectors and terms(load.src[1]).get((last,), 0) == 1
        part = (*of_rows, *of_steps) if together else (*of_steps, *of_rows, *of_columns)
        found[load.src[0].arg.slot, part] = None
    if not found:
        raise IllegalMove("no operand is of rows or columns")
    return iter(found)
