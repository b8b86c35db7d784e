"""Reductions in vectors along what they sum, and how many threads share one.

    sum of x[r], r in 0..n  ->  for v in 0..n/32: s[0..31] += x[32*v + 0..31]; the sum of s[0..31]

Several vectors of partial results hide how long an addition takes. Of what is left of n, the last
vector overlaps the one before.
"""

from __future__ import annotations

from math import prod

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.kinds import MOST_PARTIAL, To
from tinyedge.core.compiler.optimize.move import find, ranges
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.tiles import UNROLL, idle
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.polynomial import bounds, divisor, terms
from tinyedge.core.ir.uop import UOp, as_size, toposort

WORKGROUP = 64  # threads of a workgroup, where the device has workgroups
FEW_OUTPUTS = 512  # with fewer results than this a long reduction is dealt out to threads
COMBINED = 12  # steps of a sum that take as long as to leave a part of it and wait for the others
PARTS = 16  # threads that share a reduction that is not that long
KEPT = 16  # vectors of a row that a thread has in registers; or numbers, if it is no whole vectors
MANY_ROWS = 16384  # so many keep the device busy with a thread each
SHORT_ROW = 64  # elements
LINE = 8  # threads whose vectors are a line of a GPU's cache, 128 bytes
CHEAP = 4  # operations a step up to which its latency is that of the addition
BESIDE = (8, 4, 2)  # vectors of an output range that are computed beside each other
LONG = 64  # steps from which that pays
KEPT = 16  # vectors of a row that a thread has in registers; or numbers, if it is no whole vectors
LEAST = 4  # lanes, of a vector or of a part of one, that are worth it
PARTIAL = (8, 2)  # vectors of partial results, of cheap steps and of others


def sharing(outputs: int, steps: int) -> int:
    """How many threads share a reduction of so many steps: many where there are few results; few
    that read whole lines of a cache where there are many.
    """
    if outputs >= FEW_OUTPUTS:
        return LINE if steps >= 2 * LINE else 1
    if steps >= 2 * WORKGROUP:
        return WORKGROUP if steps >= 8 * WORKGROUP else PARTS
    return PARTS if outputs == 1 and steps >= PARTS else 1


def sharing_pays(kernel: MovedKernel, outputs: int, threads: int) -> bool:
    """Whether so many threads that share a tile's sums leave so much less of a device idle that it
    is worth putting their parts together, of each sum at a barrier. outputs: how many tiles there
    are.
    """
    steps = prod(map(kernel.extent, (*kernel.left("reduce"), *kernel.left("unroll"))))
    work = 1 + threads * COMBINED / steps
    return work * idle(outputs * threads, kernel.caps) < idle(outputs, kernel.caps)


def threads_of_row(width: int, rows: int, caps: Caps) -> int:
    """Threads a row: one for the shortest, or where nothing is shared. As threads wait for each
    other at every reduction, they are as few as have all of the row in registers and are enough for
    the device.
    """
    if not caps.shared or width < 32:
        return 1
    steps = -(-width // caps.vector) if width % caps.vector == 0 else width
    choices = [n for n in (8, 16, 32, 64) if n == 8 or n <= steps]
    if steps > KEPT * choices[-1]:
        return min(choices, key=lambda n: (-(-steps // n) * n, -n))
    enough = [n for n in choices if steps <= KEPT * n and rows * n >= caps.threads_to_saturate]
    return max(enough[0], min(choices[-1], PARTS)) if enough else choices[-1]


def has_row_in_registers(width: int, rows: int, caps: Caps) -> bool:
    """Whether the threads that share a row of elements beside each other load each of them once,
    whatever is computed of it, and have as many registers again for what it is made of.
    """
    if rows >= MANY_ROWS and width <= SHORT_ROW:
        return False  # one thread has it
    threads = threads_of_row(width, rows, caps)
    most = KEPT // 2 * threads * caps.vector
    return threads > 1 and width % caps.vector == 0 and width <= most


def reductions(sink: UOp) -> list[UOp]:
    """The reductions of a kernel outside of its stages, inner ones first."""
    nodes = toposort((sink,), stop=lambda n: n.op is ops.STAGE)
    return [n for n in nodes if n.op is ops.REDUCE_LOOP]


def prefers_lanes(kernel: MovedKernel, vector: int | None) -> bool:
    """Whether vectors lie better along what a kernel sums than along its output range `vector`:
    nothing that is summed lies in memory along that.
    """
    if not _has_vectors_alone(kernel):
        return False
    bodies = [node.src[0] for node in reductions(kernel.sink)]
    if vector is not None and _runs(bodies, find(kernel.sink, vector))[0]:
        return False
    return any(lies_along(kernel, r) for r in _innermost(kernel))


def sums_neighbors(kernel: MovedKernel, vector: int | None) -> bool:
    """Whether a kernel for threads sums what lies along its innermost range, in whole vectors where
    threads share sums, and nothing along its output range `vector`.
    """
    if kernel.caps.threads == 1 or kernel.caps.vector == 1:
        return False
    (node,) = reductions(kernel.sink)
    inner = node.src[-1]
    if vector is not None and _runs([node.src[0]], find(kernel.sink, vector))[0]:
        return False
    whole = divisor(inner.src[0]) % kernel.caps.vector == 0 or not kernel.caps.shared
    return whole and node.dtype is dt.float32 and lies_along(kernel, inner)


def runs_along(kernel: MovedKernel, vector: int) -> bool:
    """Whether all reductions read consecutive elements along an output range."""
    if not _has_vectors_alone(kernel):
        return False
    bodies = [node.src[0] for node in reductions(kernel.sink)]
    consecutive, others = _runs(bodies, find(kernel.sink, vector))
    return consecutive > 0 and others == 0


def reads_apart(kernel: MovedKernel) -> bool:
    """Whether threads that share a reduction would read elements that lie apart."""
    found = ((n.src[0], n.src[-1]) for n in reductions(kernel.sink))
    return any(_runs([body], inner)[1] for body, inner in found)


def lay_beside(kernel: MovedKernel, vector: int | None) -> int:
    """Some vectors of an output range beside each other, in registers: a long reduction in strides
    takes whole cache lines at each, and waits for no addition. vector: the range over vectors.
    Gives how many.
    """
    if vector is None or not _has_vectors_alone(kernel):
        return 1
    steps = min(
        prod(kernel.extent(r.arg.number) for r in f.src[1:]) for f in reductions(kernel.sink)
    )
    count = next((c for c in BESIDE if divisor(kernel.size(vector)) % c == 0), 1)
    if count == 1 or steps < LONG or not kernel.left("vector"):
        return 1
    if kernel.is_exactly(vector, count):
        kernel.to(vector, "upcast")
    else:
        _, inner = kernel.split(vector, count)
        kernel.to(inner, "upcast")
    return count


def lay_along_lanes(kernel: MovedKernel, whole: int | None = None) -> bool:
    """The innermost range of every reduction in vectors, where all that it reads along it are
    consecutive elements, but for the range `whole`. Gives whether there is one.
    """
    if not _has_vectors_alone(kernel):
        return False
    for r in _innermost(kernel):
        if r.arg.number != whole and r in ranges(kernel.sink) and lies_along(kernel, r):
            before = kernel.sink, list(kernel.moves)
            if not _in_vectors(kernel, r.arg.number):
                kernel.sink, kernel.moves = before
    return bool(kernel.left("lanes"))


def copies_of_columns(kernel: MovedKernel) -> int:
    """How many vectors of a row's columns may be copies in registers: all that a short row has,
    where its reductions have them too.
    """
    return MOST_PARTIAL if kernel.left("lanes") else UNROLL


def has_lanes(reduction: UOp) -> bool:
    return any(r.arg.kind == "lanes" for r in reduction.src[1:])


def _has_vectors_alone(kernel: MovedKernel) -> bool:
    return kernel.caps.threads == 1 and kernel.caps.vector > 1


def _innermost(kernel: MovedKernel) -> list[UOp]:
    found = (n for n in reductions(kernel.sink) if not has_lanes(n))
    return list(dict.fromkeys(node.src[-1] for node in found))


def lies_along(kernel: MovedKernel, r: UOp) -> bool:
    """Whether all that reductions over a range load along it are consecutive elements."""
    bodies = [n.src[0] for n in reductions(kernel.sink) if r in n.src[1:]]
    consecutive, others = _runs(bodies, r)
    return consecutive > 0 and others == 0


def _runs(roots: list[UOp], r: UOp) -> tuple[int, int]:
    """How many loads take consecutive elements along a range, and how many others depend on it."""
    loads = [n for n in toposort(roots) if n.op is ops.LOAD and r in n.ranges]
    runs = [terms(n.src[1]).get((r,), 0) == 1 and r not in access.guard_of(n).ranges for n in loads]
    return sum(runs), len(runs) - sum(runs)


def _in_vectors(kernel: MovedKernel, number: int) -> bool:
    """Whether the whole range was laid along lanes; what an open size leaves over is not."""
    size = as_size(kernel.size(number))
    least, greatest = bounds(size)
    width = kernel.caps.vector
    while width > max(LEAST, greatest):
        width //= 2
    if greatest < width:
        return False
    rest = []
    if divisor(size) % width:
        overlap = least >= width
        last = kernel.peel(number, width, overlap=overlap)
        rest += [last] if overlap else []
    count = width * _partial(kernel, number, int(greatest) // width)
    if divisor(kernel.size(number)) % count:
        rest.append(kernel.peel(number, count))
    return all(_to_lanes(kernel, n, count if n == number else width) for n in (number, *rest))


def _partial(kernel: MovedKernel, number: int, vectors: int) -> int:
    """How many vectors of partial results, of a range of so many vectors. A short row's are all in
    registers, with what is computed of them.
    """
    if vectors <= MOST_PARTIAL and kernel.size(number).op is ops.CONST:
        return vectors
    r = find(kernel.sink, number)
    bodies = [n.src[0] for n in reductions(kernel.sink) if r in n.src[1:]]
    cost = sum(n.op.cost for n in toposort(bodies) if n.op.elementwise and r in n.ranges)
    most = PARTIAL[0] if cost <= CHEAP else PARTIAL[1]
    while most > 1 and vectors < 2 * most:
        most //= 2
    return most


def _to_lanes(kernel: MovedKernel, number: int, count: int) -> bool:
    if kernel.is_exactly(number, count):
        return kernel.attempt(To(number, "lanes"))
    _, inner = kernel.split(number, count)
    return kernel.attempt(To(inner, "lanes"))
