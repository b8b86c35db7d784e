"""The default moves of a kernel, from the device's facts and arithmetic alone."""

from __future__ import annotations

from math import gcd, prod

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.attend import attentions, lay_attention
from tinyedge.core.compiler.optimize.distributing import distribute
from tinyedge.core.compiler.optimize.held import share_stages, stages
from tinyedge.core.compiler.optimize.keeping import Keep, shared_values
from tinyedge.core.compiler.optimize.kinds import MOST_PARTIAL, To
from tinyedge.core.compiler.optimize.move import Move, find, is_padded, numbers, ranges
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.moves import Fill, Overlap, PadTo
from tinyedge.core.compiler.optimize.partial_sums import VECTORS, are_alone, in_blocks, in_vectors
from tinyedge.core.compiler.optimize.pixels import row_of_pixels, windows_below
from tinyedge.core.compiler.optimize.pooled import lay_rows, pooled
from tinyedge.core.compiler.optimize.reductions import (
    FEW_OUTPUTS,
    KEPT,
    MANY_ROWS,
    PARTS,
    SHORT_ROW,
    WORKGROUP,
    copies_of_columns,
    has_lanes,
    lay_along_lanes,
    lay_beside,
    lies_along,
    prefers_lanes,
    reads_apart,
    reductions,
    runs_along,
    sharing,
    sharing_pays,
    sums_neighbors,
    threads_of_row,
)
from tinyedge.core.compiler.optimize.scalar_tiles import lay_copies
from tinyedge.core.compiler.optimize.selecting import select
from tinyedge.core.compiler.optimize.shared_tiles import share_tile
from tinyedge.core.compiler.optimize.tiles import UNROLL, Roles, filters_apart, tile, upcast
from tinyedge.core.compiler.optimize.together import share_rows, share_vectors
from tinyedge.core.compiler.optimize.unpacked import packed_filter, unpack_filter
from tinyedge.core.compiler.optimize.unrolling import MANY_SUMS, unroll, unroll_window
from tinyedge.core.compiler.schedule.long_rows import LONG_WORK
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import bounds, divisor, terms
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.uop import UOp, as_size, toposort

PLAIN_THREADS = 64

FEW_LOOKUPS = 2  # loads at loaded places: lanes do each by itself


def baseline(sink: UOp, caps: Caps, contraction: Roles | None = None) -> tuple[UOp, list[Move]]:
    """The least that a device needs: outputs to workgroups and threads, reductions serial."""
    kernel = MovedKernel(sink, caps)
    _fill(kernel, _contiguous(sink))
    distribute(kernel, PLAIN_THREADS)
    return kernel.sink, kernel.moves


def exact(
    sink: UOp, caps: Caps, contraction: Roles | None = None, launches: int = 1
) -> tuple[UOp, list[Move]]:
    """The plain moves, adjacent outputs as vectors, and in long products some rows in one loop.

    Every sum keeps its own order, so the results are those of the plain moves; what the outputs
    share is loaded once, and what they share of reductions is computed once. launches: how many
    the kernel has.
    """
    kernel = MovedKernel(sink, caps)
    along = _contiguous(sink)
    _fill(kernel, along)
    if contraction is not None:
        share_rows(kernel, contraction, along, launches)
    share_vectors(kernel, along)
    inside = _columns(kernel.sink) if reductions(kernel.sink) else ()
    distribute(kernel, PLAIN_THREADS, keep=inside)
    return kernel.sink, kernel.moves


def choose(sink: UOp, caps: Caps, contraction: Roles | None = None) -> tuple[UOp, list[Move]]:
    """Moves that make a kernel fast on a device with these facts.

    contraction: the kernel's ranges by role, where it holds a sum of products.
    """
    kernel = MovedKernel(sink, caps)
    _lay_out(kernel, contraction)
    product = contraction is not None and bool(contraction["rows"] or contraction["columns"])
    if are_alone(caps) and not (product or attentions(sink) or pooled(sink)):
        in_blocks(kernel)
    return kernel.sink, kernel.moves


def _lay_out(kernel: MovedKernel, contraction: Roles | None) -> None:
    sink, caps = kernel.sink, kernel.caps
    found = reductions(sink)
    vector = _contiguous(sink)
    _fill(kernel, vector)
    attended = attentions(sink)
    if len(attended) > 1:  # each thread has a row of all of them
        distribute(kernel, PLAIN_THREADS)
        return
    if attended:
        keep = lay_attention(kernel, vector)
        lanes = 1
        for number in kernel.left("threads"):
            lanes = kernel.extent(number)
        distribute(kernel, WORKGROUP // lanes, keep, tiles=True)
        return
    held = bool(stages(sink))
    if held and caps.threads > 1:
        if vector is not None:
            _vectorize(kernel, vector)
        threads = share_stages(kernel)
        unroll(kernel, 0, 1)
        distribute(kernel, threads)
        return
    if (nested := pooled(sink)) is not None:
        _pool(kernel, nested, vector)
        return
    if contraction is not None and filters_apart(sink.src[0], contraction, vector, caps):
        vector = _filter_columns(kernel.sink, contraction, vector, caps)
        if vector is not None and _lies_rounded_up(kernel.sink, vector, caps):
            kernel.do(PadTo(vector, caps.vector))
    columns = _columns(kernel.sink) if found else []
    if columns or (len(found) > 1 and contraction is None):
        _rows(kernel, columns, vector)
        return
    if contraction is not None and share_tile(kernel, contraction, vector):
        distribute(kernel, 1)
        return
    lanes_pay = not _is_matrix(contraction) and prefers_lanes(kernel, vector)
    if lanes_pay and lay_along_lanes(kernel):
        distribute(kernel, WORKGROUP)
        return
    if contraction is None and len(found) == 1 and sums_neighbors(kernel, vector):
        if _sum_along(kernel, found[0].src[-1].arg.number):
            return
    if not found:
        vector = _along_loads(kernel, vector)
    width = caps.vector if found else select(kernel, vector)
    along, sums = vector, 1
    inside: list[int] = []  # loops in which a filter is used that is unpacked before
    beside = found and contraction is None and along is not None and runs_along(kernel, along)
    row = row_of_pixels(kernel, contraction, along) if contraction is not None else 0
    vector = None if row else vector
    if vector is not None and _lookups(sink) <= FEW_LOOKUPS:
        apart = contraction is None or not contraction["columns"]
        over = _overlapping(kernel, vector) if apart else None
        vector = _vectorize(kernel, vector, width) if over is None else over
    if beside:
        sums = lay_beside(kernel, vector)
    copied = len(found) == 1 and _is_matrix(contraction) and _has_scalars_alone(kernel)
    if contraction is not None and copied:
        sums = lay_copies(kernel, contraction)
    elif row:
        sums = row
    elif contraction is not None and (below := windows_below(kernel, contraction, along)):
        copied, sums = True, below
    elif contraction is not None:
        sums = tile(kernel, contraction, along, vector, len(found))
        if along in contraction["columns"] and (packed := packed_filter(kernel)) is not None:
            inside = unpack_filter(kernel, packed)
    for i in range(0 if copied else len(found)):
        unroll(kernel, i, sums)
        if contraction is not None and along in contraction["batch"]:
            unroll_window(kernel, sums)
    if len(found) == 1:
        _share_long_reduction(kernel, sums)
    lanes = 1
    for number in kernel.left("threads"):
        lanes = kernel.extent(number)
    keep = kernel.left("loop") if held else inside  # a stage is filled once
    distribute(kernel, WORKGROUP // lanes, keep, tiles=sums >= MANY_SUMS)


def _pool(kernel: MovedKernel, nested: tuple[UOp, UOp], vector: int | None) -> None:
    """Rows of a product that are reduced at once."""
    if vector is not None:
        _vectorize(kernel, vector)
    left = lay_rows(kernel, nested)
    lanes = 1
    if kernel.caps.shared and left >= 0 and kernel.extent(left) > 1:
        lanes = min(PARTS, 1 << (kernel.extent(left) - 1).bit_length())
        _share(kernel, left, lanes, "threads")
    distribute(kernel, WORKGROUP // lanes)


def _is_matrix(contraction: Roles | None) -> bool:
    """Whether a kernel is a product of matrices: both operands serve several results."""
    return contraction is not None and bool(contraction["rows"] and contraction["columns"])


def _has_scalars_alone(kernel: MovedKernel) -> bool:
    """Whether no vectors lie along the results of a kernel for threads."""
    return kernel.caps.threads > 1 and not kernel.left("vector")


def _along_loads(kernel: MovedKernel, vector: int | None) -> int | None:
    """The range to lay vectors along, where the contiguous one of the output only chooses among
    values that do not lie along it: one along which all loads run, in whole vectors. Each value is
    loaded and computed for all lanes at once, and stored for each lane by itself.
    """
    if vector is None or not kernel.caps.scalar_operands:
        return vector
    nodes = toposort((kernel.sink,))
    loads = [n for n in nodes if n.op is ops.LOAD]
    many = [n for n in loads if find(kernel.sink, vector) in n.ranges]
    if many or len(loads) <= kernel.extent(vector):
        return vector
    for number in kernel.left("loop"):
        r = find(kernel.sink, number)
        runs = all(terms(n.src[1]).get((r,), 0) == 1 and not n.arg for n in loads)
        if runs and _is_whole(r, kernel.caps):
            return number
    return vector


def _lookups(sink: UOp) -> int:
    """How many loads are at places that other loads bring."""
    depends: set[UOp] = set()
    found = 0
    for node in toposort((sink,)):
        brought = any(s in depends for s in node.src)
        found += node.op is ops.LOAD and brought
        if node.op is ops.LOAD or brought:
            depends.add(node)
    return found


def _sum_along(kernel: MovedKernel, number: int) -> bool:
    """A sum of elements that lie beside each other, in vectors: by a thread, which adds to several,
    or by threads that share it. Gives whether it is one.
    """
    threads = 1
    if kernel.caps.shared:
        threads = sharing(_outputs(kernel), kernel.extent(number) // kernel.caps.vector)
    left = in_vectors(kernel, number, 1 if threads > 1 else VECTORS[0])
    if left is None:
        return False
    if threads > 1:
        number = _share(kernel, left, threads, "threads")
        if number in kernel.left("reduce") and divisor(kernel.size(number)) % UNROLL == 0:
            _, copies = kernel.split(number, UNROLL)
            kernel.to(copies, "unroll")
    distribute(kernel, WORKGROUP // threads)
    return True


def _outputs(kernel: MovedKernel) -> int:
    return prod(kernel.extent(number) for number in kernel.left("loop"))


def _share_long_reduction(kernel: MovedKernel, sums: int) -> None:
    """A long reduction with few results is dealt out to threads. sums: of each thread alone."""
    outputs, serial = _outputs(kernel), kernel.left("reduce")
    if not kernel.caps.shared or not serial or outputs >= FEW_OUTPUTS:
        return
    number = max(serial, key=lambda n: (kernel.extent(n), -n))
    threads = sharing(outputs, kernel.extent(number))
    if threads > 1 and (sums == 1 or sharing_pays(kernel, outputs, threads)):
        _share(kernel, number, threads, "threads")


def _columns(sink: UOp) -> list[int]:
    """Output ranges on which no reduction depends: along them each reduction's result is shared."""
    used = frozenset().union(*(f.ranges for f in reductions(sink)))
    return [r.arg.number for r in ranges(sink) if r.arg.kind == "loop" and r not in used]


def _rows(kernel: MovedKernel, columns: list[int], vector: int | None) -> None:
    """Reductions that share their rows, and what is written along the columns: a few threads a
    row.
    """
    if vector is not None and vector in columns:
        _keep(kernel, vector)
    column = vector if vector in columns else (columns[-1] if columns else None)
    width = max(
        kernel.extent(column) if column is not None else 1,
        max(_steps(f) for f in reductions(kernel.sink)),
    )
    rows = prod(kernel.extent(n) for n in kernel.left("loop") if n not in columns)
    alone = rows >= MANY_ROWS and (width <= SHORT_ROW or reads_apart(kernel))
    lanes = 1 if alone else threads_of_row(width, rows, kernel.caps)
    if column is not None and column == vector and lanes * 2 <= width:
        over = _overlapping(kernel, column) if kernel.caps.threads == 1 else None
        column = vector = _vectorize(kernel, column) if over is None else over
    lay_along_lanes(kernel)
    if vector is not None and vector not in columns and runs_along(kernel, vector):
        _vectorize(kernel, vector)
    for reduction in reductions(kernel.sink):
        if not has_lanes(reduction):
            _share_reduction(kernel, int(reduction.src[-1].arg.number), lanes)
    if column is not None and any(r.arg.number == column for r in ranges(kernel.sink)):
        copies = copies_of_columns(kernel)
        if kernel.extent(column) <= copies and kernel.size(column).op is ops.CONST:
            kernel.to(column, "upcast")
        elif lanes > 1:
            _share(kernel, column, lanes, "lane", KEPT)
        elif are_alone(kernel.caps):
            size = divisor(kernel.size(column))
            copies = next((n for n in VECTORS if size % n == 0 and n < kernel.extent(column)), 1)
            upcast(kernel, column, copies)
    used = lanes if kernel.left("lane") or kernel.left("threads") else 1
    columns = _columns(kernel.sink)
    keep = [n for n in kernel.left("loop") if n in columns]
    distribute(kernel, WORKGROUP // used, keep=keep)


def _keep(kernel: MovedKernel, column: int) -> None:
    """What takes longer to compute of a row than to store and load, where a thread is alone with a
    row that is too long for registers.
    """
    short = kernel.extent(column) <= MOST_PARTIAL * kernel.caps.vector
    if kernel.caps.threads > 1 or short:
        return
    for number in sorted({r.arg.number for f in reductions(kernel.sink) for r in f.src[1:]}):
        if number in numbers(kernel.sink):
            r = find(kernel.sink, number)
            shared = shared_values(kernel.sink, r, find(kernel.sink, column))
            work = toposort([value for value, _ in shared])
            if sum(n.op.cost for n in work if n.op.elementwise and r in n.ranges) >= LONG_WORK:
                lay_along_lanes(kernel, number)  # what is kept is made of other reductions
                kernel.attempt(Keep(kernel.unused(), number, column))


def _steps(reduction: UOp) -> int:
    return prod(maximum(as_size(r.src[0])) for r in reduction.src[1:])


def _share_reduction(kernel: MovedKernel, number: int, lanes: int) -> None:
    """A reduction's innermost range: a vector's worth in one iteration, the iterations dealt out to
    threads.
    """
    if number not in kernel.left("reduce"):
        return  # another reduction along the same range dealt it out
    inner, copies = find(kernel.sink, number), KEPT
    size = inner.src[0]
    if size.op is ops.CONST and size.arg <= UNROLL:
        kernel.attempt(To(number, "unroll"))
        return
    if lanes == 1 and are_alone(kernel.caps) and lies_along(kernel, inner):
        if in_vectors(kernel, number) is not None:
            return
    if divisor(size) % UNROLL == 0:
        along = lies_along(kernel, inner)
        number, last = kernel.split(number, UNROLL)
        if not (along and kernel.attempt(To(last, "lanes"))):
            kernel.attempt(To(last, "unroll"))
            copies = KEPT // UNROLL
    if lanes > 1 and any(r.arg.number == number for r in ranges(kernel.sink)):
        _share(kernel, number, lanes, "threads", copies)


def _share(kernel: MovedKernel, number: int, lanes: int, kind: str, copies: int = 1) -> int:
    """Deal a range out to `lanes` threads, neighbors to neighbors. copies: up to so many steps of a
    thread are copies in registers. Gives the number of the range over a thread's steps.
    """
    if divisor(kernel.size(number)) % lanes:
        kernel.do(PadTo(number, lanes))
    if kernel.is_exactly(number, lanes):
        kernel.to(number, kind)
        return number
    outer, inner = kernel.split(number, lanes)
    kernel.to(inner, kind)
    if kernel.size(outer).op is ops.CONST and kernel.extent(outer) <= copies:
        kernel.to(outer, "unroll" if kind == "threads" else "upcast")
    return outer


def _contiguous(sink: UOp) -> int | None:
    """The output range along which all of the kernel's stores write consecutive elements, but for
    those of what is known of a row.
    """
    longest = max((store.src[2].ranges for store in sink.src), key=len)
    whole = [store for store in sink.src if store.src[2].ranges == longest]
    for r in ranges(sink):
        runs = (terms(store.src[2]).get((r,), 0) == 1 for store in whole)
        if r.arg.kind == "loop" and all(runs):
            return int(r.arg.number)
    return None


def _filter_columns(
    sink: UOp, contraction: Roles, contiguous: int | None, caps: Caps
) -> int | None:
    """The range along which to compute vectors: the columns along which a filter is contiguous,
    even if their results are not, as each is stored once but loaded for every step of the sum.
    Where the results are not in whole vectors, and a scalar is an operand as a vector is, the
    columns or rows along which any operand is.
    """
    if contiguous in contraction["columns"] and _is_whole(find(sink, contiguous), caps):
        return contiguous
    loads = [n for n in toposort((sink,)) if n.op is ops.LOAD and n.src[0].op is ops.PARAM]
    summed = frozenset(r for f in reductions(sink) for r in f.src[1:])
    weights = [load for load in loads if load.src[0].arg.weight and load.ranges & summed]
    columns = [r for r in ranges(sink) if r.arg.number in contraction["columns"]]
    for r in columns:
        lie_along = any(terms(load.src[1]).get((r,), 0) == 1 for load in weights)
        whole = caps.scalar_operands or _is_whole(r, caps)
        if lie_along and (whole or _lies_rounded_up(sink, r.arg.number, caps)):
            return int(r.arg.number)
    if not caps.scalar_operands:
        return contiguous
    if contiguous is not None and _is_whole(find(sink, contiguous), caps):
        return contiguous
    rows = [r for r in ranges(sink) if r.arg.number in contraction["rows"]]
    for r in (*columns, *rows):
        runs = any(terms(n.src[1]).get((r,), 0) == 1 and n.ranges & summed for n in loads)
        if runs and _is_whole(r, caps):
            return int(r.arg.number)
    return contiguous


def _lies_rounded_up(sink: UOp, number: int, caps: Caps) -> bool:
    """Whether a filter's columns are no whole vectors, but are rounded up in memory to such."""
    r = find(sink, number)
    if caps.scalar_operands or _is_whole(r, caps):
        return False
    return any(
        n.op is ops.LOAD and is_padded(n.src[0], n.src[1], r, caps.vector) and n.src[0].arg.weight
        for f in reductions(sink)
        for n in toposort((f,))
    )


def _is_whole(r: UOp, caps: Caps) -> bool:
    """Whether a range's steps are whole vectors."""
    return divisor(r.src[0]) % caps.vector == 0


def _fill(kernel: MovedKernel, vector: int | None) -> None:
    """Whatever is rounded up in memory is written in whole: readers rely on the zeros."""
    if vector is None:
        return
    room = max(store.src[0].arg.layout.room for store in kernel.sink.src)
    size = kernel.size(vector)
    if room > 1 and size.op is ops.CONST and size.arg % room:
        kernel.do(Fill(vector, room))


def _overlapping(kernel: MovedKernel, vector: int) -> int | None:
    """The contiguous range in vectors of which the last overlaps the one before, where that makes
    at most half as many; gives the number of the range over vectors.
    """
    size, width = kernel.size(vector), kernel.caps.vector
    even = gcd(divisor(size), width)
    least = max(1, bounds(size)[0])  # an open size may be known as little as that
    while width > least:
        width //= 2
    if width < 2 * even:
        return None
    before = kernel.sink, list(kernel.moves)
    outer = kernel.unused()
    if kernel.attempt(Overlap(vector, width, outer)) and kernel.attempt(To(outer + 1, "vector")):
        return outer
    kernel.sink, kernel.moves = before
    return None


def _vectorize(kernel: MovedKernel, vector: int, width: int | None = None) -> int | None:
    """Split the contiguous range into vectors of at most so many lanes (default: the device's);
    gives the number of the range over vectors.
    """
    width = width or kernel.caps.vector
    while width > 1:
        if divisor(kernel.size(vector)) % width == 0:
            before = kernel.sink, list(kernel.moves)
            if kernel.is_exactly(vector, width):
                if kernel.attempt(To(vector, "vector")):
                    return None
            else:
                outer, inner = kernel.split(vector, width)
                if kernel.attempt(To(inner, "vector")):
                    return outer
            kernel.sink, kernel.moves = before
        width //= 2
    return vector
