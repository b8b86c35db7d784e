"""The moves of a kernel that sums values by the softmax of their scores, and what it costs.

With threads, one has a few rows: what it loads of keys and values serves all of them, and the
summed values stay in its registers from the first key to the last. Where rows are few, threads of a
workgroup share the keys of a row. Where none can, as without threads, blocks are vectors along the
keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, prod

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.moves import Overlap, PadTo
from tinyedge.core.compiler.optimize.tiles import UNROLL, tile_size, upcast
from tinyedge.core.compiler.optimize.weighing import Weigh
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import bounds, divisor
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.spec import LEAST_OVER
from tinyedge.core.ir.uop import Size, UOp, as_size, own_ranges, toposort

MOST_ROWS = 4  # of a thread
MOST_THREADS = 16  # that share a row's keys
# The same where each has more vectors of sums than threads of several rows may have: of 16 vectors
# 4 and 8 threads take 153 to 159 registers of 128, one 155, two 104.
WIDE_THREADS = 2
LEAST_ROWS = 4  # without threads: that use what is loaded of a key
# Rows of a tile, by which all keys and values pass together. 4 rows of 3 vectors, a product's best
# tile, take 1.0 to 1.12 times as long as 6 rows of 2. Heads of 4 rows take 1.1 to 3.6 times as long
# as scores in memory, as their keys are copied first; where there is room for no more than 4, up to
# 1.4 times: 4,096 keys, which lie in the last cache.
SHARING_ROWS = 6
MOST_WASTE = 1.2  # keys in whole vectors, of those that there are
BLOCK = 2  # vectors of keys in a block, where no threads share a row's keys
# What costs how much, in products and sums of vectors.
EXP = 2.0  # of a score's exponential
LOAD = 3.0  # a vector, from one plan to another: of 4 rows, each took 0.6 of the time of 2
MOVED = 5.0  # a vector that one launch leaves to another, in loads
SCORE_MOVES = 1.25  # vectors of scores that a softmax by itself stores and loads, for each score
TILE_LOADS = 0.25  # that a product's tile makes for each product
SCALARS = 2.0  # times as long, where keys are no whole vectors: measured, 197 keys
PARTED = 2.0  # what threads leave to each other and combine, in loads
LAUNCH = 1.25 * 2**20
# For each part that a thread combines, where kernels are compiled on the device: a part takes 12 ms
# of a software adapter's compiler, which is paid once for about 1,000 runs.
COMPILED = 2.0**15
FEW_THREADS = 128  # fewer of them take longer by as much
MOST_SCORES = 2**24  # that a device has memory for, beside all else


@dataclass(frozen=True)
class Sizes:
    """Of an attention, at the symbols' maxima. rows: of all heads; summed: elements of a query;
    together: rows of a head, which read the same keys.
    """

    rows: int
    keys: int
    summed: int
    columns: int
    together: int

    @property
    def scores(self) -> int:
        return self.rows * self.keys


@dataclass(frozen=True)
class Plan:
    """How threads share an attention: rows and columns (in vectors) of each, threads for a row.
    work: what all threads do; cost: with what a device is idle.
    """

    rows: int
    columns: int
    threads: int
    work: float
    cost: float


def plan(sizes: Sizes, caps: Caps) -> Plan:
    """The plan that costs least."""
    return min(_plans(sizes, caps), key=lambda each: each.cost)


def cost(sizes: Sizes, caps: Caps) -> float:
    """The work of one launch."""
    return plan(sizes, caps).work


def plain_cost(sizes: Sizes, caps: Caps) -> float:
    """The work of three launches: scores, their softmax, the product with values."""
    if sizes.scores > MOST_SCORES:
        return inf
    load = _load(caps)
    products = (sizes.summed + sizes.columns) / caps.vector * (1 + TILE_LOADS * load)
    softmax = 2 * EXP + SCORE_MOVES * MOVED * load
    if not caps.shared:  # a thread has a row for itself, whose scores it takes one by one
        softmax *= caps.vector
    each = products + softmax
    whole = 1.0 if sizes.keys % caps.vector == 0 else SCALARS
    return sizes.scores * each * whole + 2 * LAUNCH


def _load(caps: Caps) -> float:
    """What a vector's load costs. More rows for fewer loads take registers, of which kernels with
    tiles in workgroup memory have no more to give.
    """
    return 1.0 if caps.shared_tiles else LOAD * caps.load_cost


def _plans(sizes: Sizes, caps: Caps) -> Iterable[Plan]:
    vectors = max(1, sizes.columns // caps.vector)
    divisors = [d for d in range(1, vectors + 1) if vectors % d == 0]
    if not caps.shared:
        # a block's keys lie in vectors: a row takes as many for their scores and their weights
        # beside its sums, and pixels take registers until they are unpacked
        room = caps.max_vector_registers + (0 if caps.image else UNROLL * BLOCK)
        for rows in range(1, min(MOST_ROWS, sizes.together) + 1):
            columns = max([d for d in divisors if rows * (d + 2 * BLOCK) <= room], default=1)
            yield _plan(sizes, caps, rows, columns, 1)
        return
    room = caps.max_vector_registers // 2  # the rest is for what is loaded
    columns = max(d for d in divisors if d <= room)
    # with more sums of several rows a thread takes more than 128 registers
    several = room // 4 if caps.shared_tiles else room
    most = MOST_THREADS if columns <= several else WIDE_THREADS
    for rows in range(1, MOST_ROWS + 1):
        threads = 1
        while rows == 1 or (rows * columns <= several and rows <= sizes.together):
            yield _plan(sizes, caps, rows, columns, threads)
            threads *= 2
            if threads > most or threads * UNROLL * 2 > sizes.keys:
                break


def _plan(sizes: Sizes, caps: Caps, rows: int, columns: int, threads: int) -> Plan:
    """A query's vector is loaded for each block of keys, a key's and a value's for each row."""
    load = _load(caps)
    parts = max(1, sizes.columns // caps.vector // columns)
    block = UNROLL if caps.shared else BLOCK * caps.vector
    scores = sizes.summed / caps.vector * (1 + load * (rows + block) / (rows * block)) + EXP
    values = columns * (1 + load / rows)
    parted, compiled = 0.0, 0.0
    if threads > 1:
        parted = PARTED * (columns + 2) * (threads + 2) * threads / sizes.keys
        compiled = COMPILED * rows * columns * threads if caps.shares_sizes else 0.0
    busy = sizes.rows / rows * threads * parts
    work = sizes.scores * parts * (scores + values + load * parted)
    return Plan(rows, columns, threads, work, work * _idle(busy, caps) + compiled)


def _idle(threads: float, caps: Caps) -> float:
    some = max(1.0, caps.threads_to_saturate / max(1.0, threads)) ** 0.25
    return float(some * max(1.0, FEW_THREADS / max(1.0, threads)))


def attentions(sink: UOp) -> list[UOp]:
    """The sums of values by the softmax of their scores in a kernel."""
    return [node for node in toposort((sink,)) if node.op is ops.ATTEND_LOOP]


def lay_attention(kernel: MovedKernel, vector: int | None) -> list[int]:
    """Rows, columns and blocks of keys. vector: the range along which consecutive elements are
    stored. Gives the ranges that must not be shared out: without threads, those of columns, as each
    part of them would compute all scores anew.
    """
    (node,) = attentions(kernel.sink)
    score, value, *keys = node.src
    outer = sorted(node.ranges, key=lambda r: int(r.arg.number))
    outer = [r for r in outer if r.arg.kind == "loop"]
    rows = [r.arg.number for r in outer if r not in value.ranges]
    columns = [r.arg.number for r in outer if r not in score.ranges]
    sums = [n for n in toposort((score,)) if n.op is ops.REDUCE_LOOP]
    outputs = [kernel.extent(r.arg.number) for r in score.ranges if r.arg.kind == "loop"]
    sizes = Sizes(
        prod(outputs),
        prod(maximum(as_size(r.src[0])) for r in keys),
        prod(maximum(as_size(r.src[0])) for f in sums[-1:] for r in own_ranges(f)),
        prod(kernel.extent(number) for number in columns),
        kernel.extent(rows[-1]) if rows else 1,
    )
    parts: list[int] = []
    if kernel.caps.threads > 1:
        chosen = plan(sizes, kernel.caps)
        _lay_keys(kernel, node, chosen.threads)
        _lay_columns(kernel, columns, vector, chosen.columns)
        count = chosen.rows
    elif rows and (weighed := _weigh(kernel, rows[-1], keys, columns, vector)) is not None:
        return weighed
    else:
        parts = _lay_columns(kernel, columns, vector, kernel.caps.max_vector_registers)
        held = prod(kernel.extent(number) for number in kernel.left("upcast"))
        count = (kernel.caps.max_vector_registers - 3) // (held + 1)
        _lay_along_keys(kernel, keys)
    for number in rows[-1:]:
        upcast(kernel, number, min(count, kernel.extent(number)))
    return parts


def weighed_rows(rows: int, keys: Size, columns: int, caps: Caps) -> tuple[int, int]:
    """Of how many rows scores and weights are kept, and vectors of columns that are summed at once:
    a product's tile, as far as there is room; none where that are few.
    """
    if not isinstance(keys, int) or keys < caps.vector or rows < LEAST_ROWS:
        return 0, 0
    vectors = max(1, columns // caps.vector)
    least = min(rows, SHARING_ROWS)
    count, across = tile_size(rows, vectors, rows * vectors, caps, least)
    whole = -(-keys // caps.vector) * caps.vector
    if whole > MOST_WASTE * keys:
        return 0, 0
    held = 4 if whole >= LEAST_OVER else 8  # bytes of a key: weights may lie where scores were
    count = min(count, caps.room // (held * whole))
    return (count, across) if count >= LEAST_ROWS else (0, 0)


def _weigh(
    kernel: MovedKernel, row: int, keys: list[UOp], columns: list[int], vector: int | None
) -> list[int] | None:
    """Scores and weights of a tile's rows in stages, if there is room for them: what is left of the
    columns, or None.
    """
    before = kernel.sink, list(kernel.moves)
    extent, width = kernel.extent(row), prod(kernel.extent(number) for number in columns)
    length = as_size(keys[-1].src[0]) if keys else 1
    count, across = weighed_rows(extent, length, width, kernel.caps)
    for r in keys[-1:] if count else ():
        block = _blocked(kernel, r.arg.number, kernel.caps.vector)
        if divisor(kernel.size(row)) % count and not kernel.attempt(PadTo(row, count)):
            break
        own = row if kernel.is_exactly(row, count) else kernel.split(row, count)[1]
        first = kernel.unused()
        if block is None or not kernel.attempt(Weigh(first, own)):
            break
        parts = _lay_columns(kernel, columns, vector, across)
        kernel.to(own, "upcast")
        for reduction in [n for n in toposort((kernel.sink,)) if n.op is ops.REDUCE_LOOP]:
            inner = reduction.src[-1]
            if inner.arg.number >= first and inner.arg.kind == "reduce":
                kernel.attempt(To(inner.arg.number, "lanes"))
        return parts
    kernel.sink, kernel.moves = before
    return None


def _lay_keys(kernel: MovedKernel, node: UOp, threads: int) -> None:
    """Some keys at once: what is loaded of a query serves all of them."""
    keys = own_ranges(node)[-1:]
    if not kernel.caps.shared and _lay_along_keys(kernel, keys):
        keys = ()
    for r in keys:
        block = _blocked(kernel, r.arg.number, UNROLL * threads)
        if block is not None and threads > 1:
            block, inner = kernel.split(block, threads)
            kernel.to(inner, "threads")
        if block is not None:
            kernel.attempt(To(block, "unroll"))
    for reduction in [n for n in toposort((kernel.sink,)) if n.op is ops.REDUCE_LOOP]:
        number, size = reduction.src[-1].arg.number, reduction.src[-1].src[0]
        if size.op is not ops.CONST or size.arg > UNROLL:
            if divisor(size) % UNROLL:
                continue
            _, number = kernel.split(number, UNROLL)
        kernel.attempt(To(number, "unroll"))


def _lay_along_keys(kernel: MovedKernel, keys: Sequence[UOp]) -> bool:
    """Vectors along the keys, as far as there are always so many; gives whether there are some."""
    before = kernel.sink, list(kernel.moves)
    for r in keys[-1:]:
        for vectors in range(BLOCK, 0, -1):
            if bounds(r.src[0])[0] >= vectors * kernel.caps.vector:
                block = _blocked(kernel, r.arg.number, vectors * kernel.caps.vector)
                if block is not None and kernel.attempt(To(block, "lanes")):
                    return True
                kernel.sink, kernel.moves = before[0], list(before[1])
    return False


def _blocked(kernel: MovedKernel, number: int, count: int) -> int | None:
    """A range in blocks of so many steps; the number of the range over a block's."""
    size = kernel.size(number)
    if divisor(size) % count and bounds(size)[0] > count:
        outer = kernel.unused()
        kernel.do(Overlap(number, count, outer))
        return outer + 1
    if divisor(size) % count and not kernel.attempt(PadTo(number, count)):
        return None
    return number if kernel.is_exactly(number, count) else kernel.split(number, count)[1]


def _lay_columns(
    kernel: MovedKernel, columns: list[int], vector: int | None, most: int
) -> list[int]:
    """Vectors along a column range, and copies of them, as many as `most` if they divide it; gives
    the ranges over what is left.
    """
    width = kernel.caps.vector
    others = set(kernel.left("loop")) - set(columns)
    for number in columns:
        left = number
        if number == vector and divisor(kernel.size(number)) % width == 0:
            if kernel.is_exactly(number, width):
                kernel.attempt(To(number, "vector"))
                continue
            left, inner = kernel.split(number, width)
            kernel.attempt(To(inner, "vector"))
        size = as_size(kernel.size(left))
        if isinstance(size, int):
            upcast(kernel, left, max(d for d in range(1, most + 1) if size % d == 0))
    return [number for number in kernel.left("loop") if number not in others]
