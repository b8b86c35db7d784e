"""Reductions of very many elements to a few, as two: one workgroup would do all of the work.

So do products of matrices and filters' gradients, with few results of long sums, where tiles of
them are too few to keep a device busy.

    y[i] = sum of x[i, r], r in 0..n  ->  p[i, j] = sum of x[i, m*j + r], r in 0..m    for j in 0..b
                                          y[i] = sum of p[i, j], j in 0..b

Those of a row beside its greatest score have blocks of their own, long_scores.py, and those of what
is summed by blocks anyway have these: beside_sums.py.

The partial results p lie in memory. Elements behind the last whole block are a third reduction. The
number of blocks depends on the sizes and on the device's facts alone, so that results do not depend
on how many threads a run has.
"""

from __future__ import annotations

from math import isqrt, prod

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.schedule.beside_sums import beside_sums, of_the_same_blocks
from tinyedge.core.compiler.schedule.long_scores import of_scores
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Size, UOp, consumers, elementwise, toposort
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.tensor import Tensor

WORKGROUP = 64  # threads that one workgroup has
BLOCK = 1024  # elements that a block has at least
VECTORS = 8  # of columns that one workgroup takes beside each other, where it is one thread
SUMS = 32  # of a product that one thread has
FEW_PARTS = 4  # with fewer a second launch of a product costs more than it saves
MOST_ADDED = 4  # parts that are added where they are read
STEPS = 512  # of a product's sum that a part of it has at least
WHOLE = 64  # of whose multiples a block's length is: vectors, unrolled
LINE = 8  # threads that share a block of neighbors: their vectors are a line of a cache
WHOLE_LINES = 32  # of whose multiples its length is
VECTORS_EACH = 16  # that a thread of them reads at least
BUSY = 4  # times the threads that keep memory busy


def split_long_reductions(
    roots: tuple[UOp, ...], caps: Caps, *, fp16_storage: bool = False
) -> dict[UOp, UOp]:
    """Every node of the graph, mapped to one whose long reductions are two; nothing where there is
    none. Reductions over open sizes stay as they are, and products of which the parts would be kept
    as fp16, which is too coarse for parts that cancel.
    """
    nodes = toposort(roots)
    users = consumers(nodes)
    reductions = [n for n in nodes if n.op is ops.REDUCE]
    if fp16_storage:
        reductions = [n for n in reductions if not _is_product(n)]
    found = {n: blocks for n in reductions if (blocks := _blocks(n, caps)) > 1}
    kept = () if fp16_storage else found  # as fp16 a block's greatest is not what its sum took
    scores = dict(pair for node in kept for pair in of_scores(node, users.get(node, []), caps))
    divided = {n: parts for n in reductions if (parts := _parts_of_product(n, caps))[1] > 1}
    others = [n for n in reductions if n not in scores and n not in divided]
    beside = beside_sums(others, users)
    if not found and not divided and not beside:
        return {}

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in scores:
            return scores[node](node.replace(src))
        if node in divided:
            return _in_parts(node.replace(src), *divided[node])
        if node in beside:
            return of_the_same_blocks(node.replace(src))
        return _in_two(node.replace(src), found[node], caps) if node in found else None

    return bottom_up(roots, change)


def _blocks(node: UOp, caps: Caps) -> int:
    """How many parts of a reduction are computed beside each other; 1: it stays as it is."""
    sizes = [node.src[0].shape[axis] for axis in node.arg.axes]
    if not all(isinstance(size, int) for size in sizes):
        return 1
    if caps.shared_tiles and _is_product(node):
        return _parts_of_tiles(node, caps)
    if prod(sizes) < caps.long_reduction:
        return 1
    results = max(1, maximum(product(node.shape)))
    together = _together(node, caps)
    return _beside(max(_runs(node)), together, caps) // -(-results // together)


def _is_product(node: UOp) -> bool:
    """Whether each operand of a sum of products serves several results."""
    terms = node.src[0]
    if node.arg.op is not ops.ADD or terms.op is not ops.MUL or not node.dtype.is_float:
        return False
    count = maximum(product(terms.shape))
    return all(2 * maximum(product(_moved(s).shape)) <= count for s in terms.src)


def _moved(node: UOp) -> UOp:
    """What lies below movements."""
    while node.op.group == "movement":
        node = node.src[0]
    return node


def _parts_of_product(node: UOp, caps: Caps) -> tuple[int, int]:
    """An axis that is summed, and in how many parts: so many that the device has the threads it
    needs, each with as much work as a reduction that is worth a second launch; 1: it stays as it
    is.
    """
    if caps.threads == 1 or caps.shared_tiles or not _is_product(node):
        return 0, 1
    sizes = {axis: node.src[0].shape[axis] for axis in node.arg.axes}
    if not all(isinstance(size, int) for size in sizes.values()):
        return 0, 1
    threads = _tiles(node)
    work = prod(map(fixed, sizes.values())) * SUMS
    most = min(caps.threads_to_saturate // threads, work // caps.long_reduction)
    ways = [(n, -axis) for axis, size in sizes.items() for n in _divisors(fixed(size), most)]
    parts, axis = max(ways, default=(1, 0))
    return -axis, parts if parts >= FEW_PARTS else 1


def _tiles(node: UOp) -> int:
    """How many threads have the results of a product, each some; one where there are none."""
    return max(1, -(-maximum(product(node.shape)) // SUMS))


def _divisors(size: int, most: int) -> list[int]:
    return [n for n in range(1, min(size, most) + 1) if size % n == 0]


def _parts_of_tiles(node: UOp, caps: Caps) -> int:
    """So many that the device has the threads it needs, each with a long enough sum; of equal
    lengths, or it stays one.
    """
    longest = max(_runs(node))
    steps = prod(fixed(node.src[0].shape[axis]) for axis in node.arg.axes)
    parts = min(caps.streams // _tiles(node), steps // STEPS)
    while parts > 1 and longest % (parts * WHOLE):
        parts -= 1
    return parts


def _together(node: UOp, caps: Caps) -> int:
    """How many results one workgroup has where they lie beside each other, as columns do whose rows
    are added up: in the lanes of vectors, by threads or in several vectors.
    """
    columns = node.src[0].shape[max(node.arg.axes) + 1 :]
    most = caps.vector * (WORKGROUP if caps.threads > 1 else VECTORS)
    return min(max(1, maximum(product(columns))), most)


def _beside(count: int, together: int, caps: Caps) -> int:
    """Into how many blocks a device cuts the elements of one result. Where threads do not share a
    reduction, one takes each block, and one all of their results: both are equally long. Where they
    do, a few read a block's elements, which lie beside each other, or a workgroup the rows of a
    block of columns.
    """
    if caps.threads > 1 and not caps.shared:
        return isqrt(count)
    if caps.threads > 1 and together == 1:
        return min(BUSY * caps.streams // LINE, count // (LINE * caps.vector * VECTORS_EACH))
    each = caps.vector if caps.threads > 1 else 1  # blocks of a workgroup, in the lanes of vectors
    return min(caps.streams // WORKGROUP * each, count // BLOCK)


def _runs(node: UOp) -> list[int]:
    """The lengths of the runs of neighboring axes that are reduced."""
    lengths: list[int] = []
    for axis in sorted(node.arg.axes):
        size = node.src[0].shape[axis]
        if axis - 1 in node.arg.axes:
            lengths[-1] *= size
        else:
            lengths.append(size)
    return lengths


def _in_two(node: UOp, blocks: int, caps: Caps) -> UOp:
    """The reduction with its longest run of axes in blocks."""
    whole, axes = _with_runs(node)
    axis = max(axes, key=lambda a: maximum(whole.shape[a]))
    count = maximum(whole.shape[axis])
    whole_lines = _together(node, caps) == 1 and caps.threads > 1
    length = _length(count, blocks, WHOLE_LINES if whole_lines else WHOLE)
    blocks = count // length
    lead, tail = whole.shape[:axis], whole.shape[axis + 1 :]
    parts = _between(whole, axis, 0, blocks * length).reshape((*lead, blocks, length, *tail))
    inner = [a + (a >= axis) for a in axes]
    partial = Tensor(_reduce(parts, node, inner)).in_memory()
    left = axis - sum(a < axis for a in axes)  # where the blocks are among what is not reduced
    result = _of_parts(partial, node, left)
    if blocks * length < count:
        rest = _reduce(_between(whole, axis, blocks * length, count), node, axes)
        result = elementwise(node.arg.op, result, rest)
    return result


def _of_parts(partial: Tensor, node: UOp, axis: int) -> UOp:
    """The results of parts as one. Few are added where they are read, beside whatever the kernel
    there reduces: a row's norm, the next sum.
    """
    count = partial.shape[axis]
    if not isinstance(count, int) or count > MOST_ADDED:
        return _reduce(partial, node, [axis])
    kept = (*partial.shape[:axis], *partial.shape[axis + 1 :])
    result, *rest = (_between(partial, axis, n, n + 1).reshape(kept).node for n in range(count))
    for part in rest:
        result = elementwise(node.arg.op, result, part)
    return result


def _in_parts(node: UOp, axis: int, parts: int) -> UOp:
    """A sum of products with one of its axes in parts, of which the results lie together."""
    terms, axes = Tensor(node.src[0]), node.arg.axes
    lead, size, tail = terms.shape[:axis], fixed(terms.shape[axis]), terms.shape[axis + 1 :]
    inner = [a + (a >= axis) for a in axes]
    whole = terms.reshape((*lead, parts, size // parts, *tail))
    results = Tensor(_reduce(whole, node, inner))
    partial = results.reshape((-1,)).in_memory().reshape(results.shape)
    return _reduce(partial, node, [axis - sum(a < axis for a in axes)])


def _length(count: int, blocks: int, whole: int) -> int:
    """Of a block: one that leaves nothing over, of a few more blocks or less; else as long."""
    for parts in sorted(range(blocks // 2, 2 * blocks), key=lambda parts: abs(parts - blocks)):
        if parts > 1 and count % (parts * whole) == 0:
            return count // parts
    return count // blocks // whole * whole


def _with_runs(node: UOp) -> tuple[Tensor, list[int]]:
    """What is reduced, with each run of neighboring reduced axes as one, and which these are."""
    shape: list[Size] = []
    axes: list[int] = []
    for axis, size in enumerate(node.src[0].shape):
        if axis in node.arg.axes and axis - 1 in node.arg.axes:
            shape[-1] *= size
            continue
        if axis in node.arg.axes:
            axes.append(len(shape))
        shape.append(size)
    return Tensor(node.src[0]).reshape(shape), axes


def _between(whole: Tensor, axis: int, start: int, end: int) -> Tensor:
    """The part along an axis."""
    key = (*(slice(None) for _ in range(axis)), slice(start, end))
    return whole[key]


def _reduce(x: Tensor, like: UOp, axes: list[int]) -> UOp:
    """A reduction by the operation of another one."""
    return UOp(ops.REDUCE, x.dtype, (x.node,), args.Reduce(like.arg.op, tuple(axes)))
