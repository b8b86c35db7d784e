"""Tiles of contractions: which outputs one thread computes together, in registers.

A tile of a rows and b vectors of width w does a*b*w products and sums a step, for which it loads a
values of one operand and b vectors of the other; its sums, and what it loads, fill registers. Where
a scalar is an operand as a vector is, a step takes one value of each row at a time; elsewhere the
values of a row are loaded as vectors along the summed range, for UNROLL steps.

Steps of a sum that are copies, as the taps of a filter's row are, use a value of a row for several
results, and each vector of the filter for all rows. C compilers keep these vectors in registers:
where they do not fit beside the sums, some sums are stored and loaded at each step. What compiles
WebAssembly loads all that a step uses several times before its first product (`Caps.loads_first`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import gcd

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.move import find
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.moves import Overlap, PadTo, Reorder
from tinyedge.core.compiler.optimize.row_blocks import block_rows
from tinyedge.core.compiler.optimize.unpacked import most_vectors, packed_filter
from tinyedge.core.compiler.optimize.windows import vectors_of_windows
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import Terms, divisor, terms
from tinyedge.core.ir.uop import UOp, toposort

UNROLL = 4  # steps of a sum in one iteration of its loop
MOST_TAPS = 64  # products of a tile's taps that are copies, where somebody waits for a compiler
MOST_COPIES = 128  # of a product in the text of a kernel that is unrolled for reuse
NUMBER = 0.42  # of a vector's load: a number's, where rows share what they load
BORDERS = 0.1  # of a load, for each product of rows that have a border beside them
SUMS_IN_FLIGHT = 8  # of which a processor computes steps at once: with fewer it waits for them
SUMS_SPILLED = 14  # the same, where some of them are stored and loaded at each step
MOST_ROWS = 14
GAIN = 0.95  # of the cost, below which columns that are whole vectors have panels that overlap
MANY_ROWS = 5040  # of which no tile's last one is noticed
MOST_VECTORS = 8

Roles = Mapping[str, tuple[int, ...]]


def tile(
    kernel: MovedKernel, contraction: Roles, along: int | None, vector: int | None, products: int
) -> int:
    """Copies in registers along the rows or the columns, whichever the vectors do not lie along,
    and along the vectors. The copies share what the other operand loads.

    along: the range of which the vectors are a part, vector: the one over whole vectors that is
    left of it. products: contractions that the kernel has. Gives the number of sums in the tile of
    each.
    """
    vectors = vector is not None and bool(kernel.left("vector"))
    if along in contraction["batch"]:
        vectors = False  # each vector has a filter of its own
    columns = kernel.extent(vector) if vector is not None and vectors else 1
    total = 1
    for n in kernel.left("loop"):
        total *= kernel.extent(n)
    taps = taps_of(kernel.sink) if along in contraction["columns"] else 1
    packed = packed_filter(kernel) if vectors and along in contraction["columns"] else None
    if packed is not None:
        columns = most_vectors(kernel, packed, columns) or columns
    best = None
    for number in beside(kernel, contraction, along, vector):
        extent = kernel.extent(number)
        alone = along in contraction["batch"]
        shared = _shared_tap(kernel, number)
        copies, step, most = taps, 0, MOST_TAPS
        if shared is not None:
            most = MOST_TAPS // shared.src[0].arg
            largest = max(rows * across for rows, across in _tiles(kernel.caps, products))
            busy = total >= largest * kernel.caps.threads_to_saturate
            if busy and not alone and not _reads_whole_vectors(kernel):
                copies = shared.src[0].arg
                step = _values(kernel, number, 2, shared, copies) - copies
        sizes = (extent, columns, total)
        held = _held(kernel, number, shared) if alone and shared is not None else None
        cost, rows, across = _tile_size(
            *sizes, kernel.caps, products, copies, most, step, alone=alone, held=held
        )
        if kernel.caps.scalar_operands:
            if along in contraction["batch"]:
                cost += kernel.caps.load_cost * (_window_values(kernel, number, rows) - 1)
            elif taps > 1:
                read = _values(kernel, number, rows, _summed(kernel)[-1], taps)
                again = (read - (rows + taps - 1)) / (taps * rows * across)
                cost += kernel.caps.load_cost * again
            rank: tuple[float, ...] = (cost, -number)
        else:
            apart = rows >= extent or not _taps_overlap(kernel, number)
            rank = (apart, -extent, number)
        if best is None or rank < best[0]:
            best = rank, number, rows, across
    if best is None:
        return _one_row(kernel, vector, columns)
    _, number, rows, across = best
    upcast(kernel, number, rows)  # the outer copies: a row's value serves all vectors at once
    panels = vector
    if vector is not None and vectors:
        panels = upcast(kernel, vector, across)
    if kernel.caps.scalar_operands and along in contraction["columns"]:
        columns_left = {*contraction["columns"], panels}
        around = {*contraction["batch"], *columns_left}
        inside = [n for n in kernel.left("loop") if n not in around]
        if packed is None:
            inside = block_rows(kernel, inside, contraction["batch"])
        if set(kernel.left("loop")) - around - set(inside):  # a filter is used for a block of rows
            _inside(kernel, [n for n in kernel.left("loop") if n in columns_left])
        _inside(kernel, inside)
    return rows * across


def _held(kernel: MovedKernel, number: int, tap: UOp) -> Callable[[int], bool] | None:
    """Whether registers hold so many rows of windows whose steps of a tap are copies."""
    room = kernel.caps.window_registers
    if not room:
        return None
    return lambda rows: vectors_of_windows(kernel.sink, number, rows, tap) <= room


def _one_row(kernel: MovedKernel, vector: int | None, columns: int) -> int:
    """A product of one row: as many vectors as lie together, so that each is read once, in order.
    Gives the number of sums.
    """
    if vector is None or columns < 2 or not kernel.caps.scalar_operands:
        return 1
    _, _, across = _tile_size(1, columns, columns, kernel.caps)
    upcast(kernel, vector, across)
    return across


def beside(
    kernel: MovedKernel, contraction: Roles, along: int | None, vector: int | None
) -> Iterable[int]:
    """The ranges along which rows of a tile may lie."""
    if along in contraction["columns"]:
        sides = [contraction["rows"]]
    elif along in contraction["rows"]:
        sides = [contraction["columns"]]
    else:
        sides = [contraction["rows"], contraction["columns"]]
    return [n for n in kernel.left("loop") if n != vector and any(n in side for side in sides)]


def upcast(kernel: MovedKernel, number: int, count: int) -> int | None:
    """Copies of a range's steps in registers; where they do not divide it, the last ones overlap
    those before, or else the range is rounded up. Gives the number of the range over copies that is
    left, if one is.
    """
    if count < 2:
        return number
    if divisor(kernel.size(number)) % count and kernel.caps.scalar_operands:
        outer = kernel.unused()
        if kernel.attempt(Overlap(number, count, outer)):
            kernel.to(outer + 1, "upcast")
            return outer
    if divisor(kernel.size(number)) % count and not kernel.attempt(PadTo(number, count)):
        return number
    if kernel.is_exactly(number, count):
        kernel.to(_innermost(kernel, number), "upcast")
        return None
    outer, inner = kernel.split(number, count)
    kernel.to(inner, "upcast")
    return outer


def _inside(kernel: MovedKernel, loops: Sequence[int]) -> None:
    """Loops within all others, in their order: the filter of a tile's columns is used for all rows
    before that of the next.
    """
    for number in loops:
        _innermost(kernel, number)


def _innermost(kernel: MovedKernel, number: int) -> int:
    """Give a range the greatest number; gives that number."""
    if not kernel.caps.scalar_operands:
        return number
    new = kernel.unused()
    kernel.do(Reorder(number, new))
    return new


def taps_of(sink: UOp) -> int:
    """Steps of a kernel's first sum that are copies whatever its tile is."""
    inner = next(n for n in toposort((sink,)) if n.op is ops.REDUCE_LOOP).src[-1].src[0]
    return inner.arg if inner.op is ops.CONST and inner.arg <= UNROLL else 1


def filters_apart(store: UOp, contraction: Roles, contiguous: int | None, caps: Caps) -> bool:
    """Whether vectors may lie along a filter's columns where the results do not, which are stored
    number by number.

    contiguous: the number of the range along which the results lie.
    """
    if caps.scalar_operands:
        return True
    if caps.shared_tiles or store.src[0].arg.is_image or contiguous in contraction["batch"]:
        return False  # shared tiles have vectors of their own; images have whole pixels
    return store.src[0].dtype is not dt.float16 or caps.fp16_scalar_stores


def columns_pay(size: UOp, caps: Caps, *, contiguous: bool = False) -> bool:
    """Whether vectors along so many of a filter's columns, of which the last one is rounded up and
    not stored in whole, cost less than sums of numbers, for which the filter is loaded by numbers.
    contiguous: the results lie along these columns, so that these may be vectors of fewer lanes.
    """
    if divisor(size) % caps.vector == 0:
        return True
    if size.op is not ops.CONST:
        return False
    waste = -(-size.arg // caps.vector) * caps.vector / size.arg
    lanes = gcd(size.arg, caps.vector) if contiguous else 1
    rows = [rows for rows, across in _tiles(caps, 1) if across == 1]
    narrow = min(1 + caps.load_cost * (n + UNROLL) / (n * lanes) for n in rows)
    return min(tile_cost((n, 1), waste, MANY_ROWS, caps) for n in rows) < narrow


def reads_again(place: Terms, by: int, tap: UOp, taps: int) -> bool:
    """Whether what lies `by` elements further is read from there at another one of so many taps."""
    step = place.get((tap,), 0)
    return step != 0 and by % step == 0 and 0 < by // step < taps


def _taps_overlap(kernel: MovedKernel, number: int) -> bool:
    """Whether steps of a row of tiles read what others read at another tap that is a copy."""
    return _rows_read_again(kernel, number, _summed(kernel)[-1], taps_of(kernel.sink))


def _shared_tap(kernel: MovedKernel, number: int) -> UOp | None:
    """The range of a sum at whose steps rows of a tile read what others read at another one. These
    are copies, if the tile is small enough.
    """
    if kernel.caps.scalar_operands:
        return None
    fixed = [r for r in _summed(kernel) if r.src[0].op is ops.CONST and r.src[0].arg <= MOST_TAPS]
    found = [r for r in fixed if _rows_read_again(kernel, number, r, r.src[0].arg)]
    return max(found, key=lambda r: r.src[0].arg, default=None)


def rows_share(kernel: MovedKernel, number: int) -> bool:
    """Whether steps of a range of outputs read what others do at another step of the sum."""
    return _shared_tap(kernel, number) is not None


def _reads_whole_vectors(kernel: MovedKernel) -> bool:
    first = next(n for n in toposort((kernel.sink,)) if n.op is ops.REDUCE_LOOP)
    return reads_whole_vectors(first, kernel.caps)


def reads_whole_vectors(reduction: UOp, caps: Caps) -> bool:
    """Whether something lies along the innermost range in whole vectors."""
    inner = reduction.src[-1]
    places = [terms(n.src[1]) for n in toposort((reduction,)) if n.op is ops.LOAD]
    whole = divisor(inner.src[0]) % caps.vector == 0
    return whole and any(place.get((inner,), 0) == 1 for place in places)


def _window_values(kernel: MovedKernel, number: int, rows: int) -> float:
    """Values that a window with a filter for each channel loads for a product, in a tile of rows:
    fewer than one where its taps that will be copies read what others do. Rows that do so at other
    taps than the innermost have a border beside each of them, not only at the ends.
    """
    taps, copies = _summed(kernel), rows
    for tap in reversed(taps):
        steps: int = tap.src[0].arg if tap.src[0].op is ops.CONST else MOST_COPIES + 1
        copies *= steps
        if copies > MOST_COPIES:
            break
        read = _values(kernel, number, rows, tap, steps)
        if read < rows * steps:
            return read / (rows * steps) + BORDERS * (tap is not taps[-1])
    return 1.0


def _values(kernel: MovedKernel, number: int, rows: int, tap: UOp, taps: int) -> int:
    """Values that rows of a tile read in all steps of a tap."""
    row = find(kernel.sink, number)
    for place in _places(kernel):
        by = place.get((row,), 0)
        if reads_again(place, by, tap, taps):
            return taps + (rows - 1) * by // place[(tap,)]
    return rows * taps


def _summed(kernel: MovedKernel) -> tuple[UOp, ...]:
    """The ranges of a kernel's first sum."""
    return next(n for n in toposort((kernel.sink,)) if n.op is ops.REDUCE_LOOP).src[1:]


def _rows_read_again(kernel: MovedKernel, number: int, tap: UOp, taps: int) -> bool:
    row = find(kernel.sink, number)
    return any(reads_again(place, place.get((row,), 0), tap, taps) for place in _places(kernel))


def _places(kernel: MovedKernel) -> list[Terms]:
    """Where a kernel loads."""
    return [terms(n.src[1]) for n in toposort((kernel.sink,)) if n.op is ops.LOAD]


def _tile_size(
    extent: int,
    columns: int,
    total: int,
    caps: Caps,
    products: int = 1,
    taps: int = 1,
    most: int = MOST_TAPS,
    step: int = 0,
    *,
    alone: bool = False,
    least: int = 1,
    held: Callable[[int], bool] | None = None,
) -> tuple[float, int, int]:
    """The cost, rows and vectors of a tile: a larger one shares more loads, but must not leave the
    device idle. products: contractions whose sums are kept at once. most: sums of a tile of several
    vectors. taps: steps of a sum that are copies. step: numbers of them that each row of a tile has
    and none before does; a row beyond the last repeats that, but loads all of its own. alone: each
    sum is computed by itself, so that registers hold but one. least: rows of a tile. held: whether
    registers hold so many rows; None: they do.
    """
    best, best_cost = (1, 1), float("inf")
    for rows, across in _tiles(caps, products, alone=alone):
        if rows < least or columns % across or (caps.scalar_operands and rows > extent):
            continue  # or it would wait for sums that nobody wants
        if (across > 1 and rows * across > most) or (rows > 1 and held and not held(rows)):
            continue
        beyond = -extent % rows
        waste = (extent + beyond) / extent
        threads = total * waste / (rows * across)
        values = taps + (rows - beyond - 1) * step + beyond * taps if step else 0
        cost = tile_cost((rows, across), waste, threads, caps, taps, values)
        if cost < best_cost:
            best, best_cost = (rows, across), cost
    return best_cost, *best


def tile_cost(
    size: tuple[int, int],
    waste: float,
    threads: float,
    caps: Caps,
    taps: int = 1,
    values: int = 0,
) -> float:
    """What a tile of rows and vectors costs, for each result. waste: results that are computed, for
    each one that there is. threads: how many compute a tile each. taps: steps of a sum that are
    copies. values: numbers that the rows load in these; 0: vectors along the sum.
    """
    rows, across = size
    if caps.scalar_operands:
        loads = (rows + taps - 1 + taps * across) / (taps * rows * across)
        spilled = taps > 1 and (rows + taps) * across + 1 > caps.max_vector_registers
        waits = max(1.0, (SUMS_SPILLED if spilled else SUMS_IN_FLIGHT) / (rows * across))
        return waste * (1 + caps.load_cost * loads) * waits
    if values:  # of a busy device loads are all that counts
        loads = (NUMBER * values + taps * across) / (taps * rows * across)
        return waste * loads * idle(threads, caps)
    loads = (rows + UNROLL * across) / (UNROLL * rows * across)
    return waste * (1 + caps.load_cost * loads) * idle(threads, caps)


def idle(threads: float, caps: Caps) -> float:
    """By how much work costs more where so many threads leave a device idle."""
    if caps.threads == 1:
        return 1.0
    return float(max(1.0, caps.threads_to_saturate / max(1, threads)) ** 0.25)


def tile_size(extent: int, columns: int, total: int, caps: Caps, least: int = 1) -> tuple[int, int]:
    """The rows and vectors of the tile that costs least. least: rows that it has."""
    return _tile_size(extent, columns, total, caps, least=least)[1:]


def panel_vectors(columns: int, caps: Caps, taps: int = 1) -> int:
    """How many vectors of a filter's columns lie together, where it has `columns` of them: as many
    as tiles of many rows are wide.
    """
    return _tile_size(MANY_ROWS, columns, MANY_ROWS * columns, caps, 1, taps)[2]


def overlapping_vectors(columns: UOp, taps: int, caps: Caps, rows: int = MANY_ROWS) -> int:
    """How many vectors of a filter's columns lie together where the last ones overlap those before;
    0: none do, as the columns are fewer than a vector, their number is open, or a number of vectors
    that divides theirs costs no more. rows: of the product.
    """
    if columns.op is not ops.CONST:
        return 0
    whole = columns.arg % caps.vector == 0
    if whole and rows < MOST_ROWS:
        return 0  # which read the filter in order, and wait for sums
    costs: dict[int, float] = {}
    for height, across in _tiles(caps, 1):
        width = across * caps.vector
        if width <= columns.arg:
            waste = -(-columns.arg // width) * width / columns.arg
            cost = tile_cost((height, across), waste, MANY_ROWS, caps, taps)
            costs[across] = min(cost, costs.get(across, cost))
    if whole:
        even = panel_vectors(columns.arg // caps.vector, caps, taps)
        costs = {n: cost for n, cost in costs.items() if cost < GAIN * costs[even]} or {0: 0.0}
    return min(costs, key=lambda across: costs[across], default=0)


def _tiles(caps: Caps, products: int, *, alone: bool = False) -> Iterable[tuple[int, int]]:
    """Rows and vectors of the tiles that fit a device's registers. alone: as for `_tile_size`."""
    most = caps.max_vector_registers
    if not caps.scalar_operands:
        return [(a, b) for a, b in caps.tiles if products * a * b + a + b <= most]
    sizes = ((a, b) for b in range(1, MOST_VECTORS + 1) for a in range(1, MOST_ROWS + 1))
    # a row's value is a product's only operand that waits where there is one vector
    scalars = [(a, b, a if caps.loads_first and b > 1 else 1) for a, b in sizes]
    if alone:
        most = max(most, MOST_ROWS + 2)
    return [(a, b) for a, b, loaded in scalars if a * b + b + loaded <= most]
