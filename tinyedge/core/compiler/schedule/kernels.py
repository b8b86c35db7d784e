"""From a graph's nodes to drafts of kernels: one store each, its value an expression over loads and
ranges. Which of them are joined is decided later (schedule/siblings.py).
"""

from __future__ import annotations

from functools import partial

from tinyedge.core.compiler.schedule.forming import Draft, Former, Part, Undecided, Write
from tinyedge.core.compiler.schedule.indexing import Indexer, placed_indices
from tinyedge.core.compiler.schedule.loops import DraftLaunch, Step
from tinyedge.core.compiler.schedule.placement import BodyGraph, Placer
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.buffers import Offset, Placement
from tinyedge.core.ir.memory import position_of, row_index
from tinyedge.core.ir.movement import Indices
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Shape, Size, UOp, as_node, cast, elementwise, toposort

SHARES = 512  # threads among which the places of a scatter are shared out
UPDATES = 32768  # that a thread takes in one launch


class KernelWriter:
    """Drafts the kernels of one graph, in order."""

    def __init__(self, graph: BodyGraph, placer: Placer, former: Former) -> None:
        self.graph = graph
        self.placer = placer
        self.placed = placer.placed
        self.former = former
        self.steps: list[Step] = []

    def part(self, part: UOp, top: UOp) -> None:
        """One assignment of a chain; nothing where its value lies in its region already."""
        base, views = self.placer.viewed(part.src[1])
        home = self.placed[top]
        offset = Offset(tuple(span.start for span in part.arg))
        place = self.placed.get(base)
        if place is not None and place.storage is home.storage:
            if place.views == (*views, offset, *home.views):
                return
        self.kernel(part.src[1], Placement(home.storage, (offset, *home.views)), root=False)

    def realize(self, node: UOp) -> None:
        """A node with a buffer of its own, unless it is a view of what lies there."""
        if node in self.placer.aliased:
            return
        place = self.placed.get(node)
        if place is None:
            place = Placement(self.placer.new_storage(node))
            self.kernel(node, place, root=True)
            self.placed[node] = place
        else:
            self.kernel(node, place, root=True)

    def copy_source(self, node: UOp) -> None:
        """An output that is an input, a weight or a constant."""
        self.kernel(node, Placement(self.placer.new_storage(node)), root=False)

    def kernel(self, node: UOp, place: Placement, *, root: bool) -> None:
        """A node's elements, written to its place. root: computed although they lie in memory."""
        if any(maximum(size) == 0 for size in node.shape):
            return
        if root and self.placer.puts_in_place(node):
            self._add(node, place, node.src[1].shape, partial(_put_row, node, place))
        elif root and node.op is ops.SCATTER:
            self._scatter(node, place)
        else:
            self._add(node, place, node.shape, partial(elements, node, place, root))

    def _scatter(self, node: UOp, place: Placement) -> None:
        """First the base, then the updates, one after the other: of a device with threads so many
        a launch that none runs for long.
        """
        base, positions, _ = node.src
        count = positions.shape[-1]
        self.placer.undecided.discard(
            place.storage
        )  # it is read while it is written: as it is, in full
        self.kernel(base, place, root=False)
        if maximum(product(base.shape)) == 0:
            return
        threads = self.former.options.caps.threads > 1
        step = UPDATES if threads else max(1, maximum(count))
        for first in range(0, maximum(count), step):
            left = ix.maximum(count - first, 0)
            taken = ix.minimum(left, step)
            self._add(node, place, (), partial(_updates, node, place, first, taken, threads))

    def _add(self, node: UOp, place: Placement, shape: Shape, write: Write) -> None:
        output, undecided = place.storage, None
        if output in self.placer.undecided:
            self.placer.undecided.discard(output)
            assert output.node is not None
            undecided = Undecided(
                output in self.placer.in_parts,
                self.graph.decision.parts.get(output.node, ()),
                output.node in self.graph.keep_fp32,
            )
        draft = Draft((Part(write, shape, output, undecided),), self._names_of(node))
        self.former.add(draft, self.placed)
        self.steps.append(DraftLaunch(draft))

    def _names_of(self, root: UOp) -> tuple[str, ...]:
        """Names of the model's nodes that a kernel computes: those below its root, up to realized
        ones. A kernel inside of one of the model's nodes has the name of that node.
        """
        found = []
        for node in toposort((root,), stop=lambda n: n is not root and n in self.placed):
            if node in self.graph.names and (node is root or node not in self.placed):
                found.append(self.graph.names[node])
        while not found and root in self.graph.users:
            root = self.graph.users[root][0]
            if root in self.graph.names:
                found.append(self.graph.names[root])
        return tuple(found)


def elements(node: UOp, place: Placement, root: bool, indexer: Indexer, indices: Indices) -> UOp:
    """An element of a node, stored where it lies."""
    param = indexer.param(place.storage)
    value = indexer.value(node, indices, root=root)
    return access.store(param, value, placed_indices(place, indices))


def _put_row(node: UOp, place: Placement, indexer: Indexer, indices: Indices) -> UOp:
    """An element of a row of a tensor, written where the tensor lies."""
    base, row, position = node.src
    param = indexer.param(place.storage)
    value = indexer.value(row, indices)
    at = row_index(base, indexer.value(position, ()))
    return access.store(param, value, placed_indices(place, (at, *indices)))


def _updates(
    node: UOp,
    place: Placement,
    first: int,
    count: Size,
    threads: bool,
    indexer: Indexer,
    _: Indices,
) -> UOp:
    """A loop over some of a scatter's updates for each of the columns that they have. Where
    these are too few to keep a device busy, its threads share the places out among them: each
    goes through all updates and takes those for its own places.
    """
    base, positions, updates = node.src
    axis, combine = node.arg.axis, node.arg.op
    size = base.shape[axis]
    others = (*base.shape[:axis], *base.shape[axis + 1 :])
    wanted = SHARES // maximum(product(others)) if threads else 1
    shares = max(1, min(maximum(size), wanted))
    share = indexer.range(shares, "loop")  # first: neighbors among threads are columns
    columns = tuple(indexer.range(each, "loop") for each in others)
    lead, rest = columns[:axis], columns[axis:]
    iteration = as_node(indexer.range(count, "serial") + first)
    at, inside = position_of(indexer.value(positions, (*lead, iteration)), size)
    param = indexer.param(place.storage)
    value = indexer.value(updates, (*lead, iteration, *rest))
    address = placed_indices(place, (*lead, at, *rest))
    if combine is not None:
        old = cast(access.load(param, address, inside), node.dtype)
        value = elementwise(combine, old, value)
    if share is not ix.ZERO:
        each = ix.ceildiv(size, shares)
        start = share * each
        own = ix.and_(ix.le(start, at), ix.lt(at, start + each))
        inside = ix.and_(own, inside)
    return access.store(param, value, address, inside)
