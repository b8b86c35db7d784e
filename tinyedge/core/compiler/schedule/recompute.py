"""Save or recompute: which tensors lie in memory until they are wanted again much later.

    a = f(x)   ...   b = g(a)        the first time x, the mean of x and a are at hand;
    kept: a                          later a is computed again where it is read, from x and
    or:   x, its mean                its mean, if x is kept anyway

A network has an edge through each tensor with the bytes that keeping it takes: nothing where it is
kept as long anyway. What is cheap to compute has edges from its operands; what is not, as sums of
many elements, has one from the source of the network. What is wanted late has an edge to the sink.
A minimum cut are the tensors to keep, of the least bytes; the others become part of the kernels
that read them. (T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, keep what is
costly; the cut is that of PyTorch's functorch.)

What is compared for equality is not computed again: it may differ in its last bit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tinyedge.core.compiler.schedule.flow import sink_side
from tinyedge.core.compiler.schedule.products import viewed
from tinyedge.core.ir import ops
from tinyedge.core.ir.movement import needed
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import UOp

LONG = 4  # kernels over which a tensor is kept for it to be thought of
# times as small is a sum beside what is made of it and of its operands, to be kept instead
SMALL = 8
MOST_WORK = 64  # operations for an element that is computed again
MOST_LOADS = 4  # tensors that it is computed from
MANY = 1 << 60  # more bytes than there are

Place = tuple[UOp, str]
SOURCE, SINK = "source", "sink"


@dataclass(frozen=True)
class Kept:
    """What is decided about a graph.

    order: its nodes. realized: those with a buffer. readers: of each realized node the kernels that
    read it. free: nodes that may as well be computed where they are read, once for each element
    that is computed there. sums: the reductions that a realized node's kernel computes.
    """

    order: Sequence[UOp]
    realized: Collection[UOp]
    readers: Mapping[UOp, Collection[UOp]]
    free: Collection[UOp]
    sums: Mapping[UOp, Sequence[UOp]]


@dataclass(frozen=True)
class Choice:
    """recomputed: nodes without buffers; kept: nodes that get some."""

    recomputed: frozenset[UOp]
    kept: frozenset[UOp]


def choose(kept: Kept) -> Choice:
    """What to compute again, and what to keep for it."""
    network = _Network(kept)
    if not network.candidates:
        return Choice(frozenset(), frozenset())
    return network.cut()


class _Network:
    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        at = {node: n for n, node in enumerate(n for n in kept.order if n in kept.realized)}
        self.last = {
            node: max((at[r] for r in kept.readers.get(node, ()) if r in at), default=at[node])
            for node in at
        }
        compared = {
            viewed(s) for n in kept.order if n.op is ops.EQ for s in n.src if s.dtype.is_float
        }
        found = [n for n in at if n in kept.free and n not in compared and self._is_large(n)]
        self.candidates = dict.fromkeys(sorted(found, key=lambda n: -self.last[n]))
        self.nodes: dict[UOp, None] = {}  # those of the network
        self.inner: dict[UOp, None] = {}  # what is not kept, but lies between what may be
        self.edges: dict[tuple[Place | str, Place | str], int] = {}
        for node in self.candidates:
            self.edges[(node, "out"), SINK] = MANY
            self._below(node, self.last[node])

    def _is_large(self, node: UOp) -> bool:
        """Whether a node has many times the size of each sum that its kernel computes."""
        return all(SMALL * _bytes(r) <= _bytes(node) for r in self.kept.sums.get(node, ()))

    def _below(self, node: UOp, until: int) -> None:
        """The edges to a node from what it is computed from. until: the last kernel that reads it;
        those that are read later have had theirs before.
        """
        waiting = [node]
        while waiting:
            node = waiting.pop()
            if node in self.nodes or node.op.group == "source":
                continue
            self.nodes[node] = None
            self.edges[(node, "in"), (node, "out")] = self._price(node, until)
            if not self._cheap(node):
                self.edges[SOURCE, (node, "in")] = MANY
                continue
            if node not in self.kept.realized:
                self.inner[node] = None
            for source in needed(node):
                if source.op.group != "source":
                    self.edges[(source, "out"), (node, "in")] = MANY
                    waiting.append(source)

    def _price(self, node: UOp, until: int) -> int:
        """The bytes that keeping a node until then takes besides."""
        if node in self.candidates or (node.op is ops.REDUCE and node not in self.kept.realized):
            return _bytes(node)
        if node in self.kept.realized:
            return 0 if self.last[node] >= until else _bytes(node)
        return MANY

    def _cheap(self, node: UOp) -> bool:
        """Whether a node can be computed again where it is read."""
        if node in self.kept.realized and node not in self.candidates:
            return False
        if not _computes(node):
            return False
        work, loads = self._work(node)
        return work <= MOST_WORK and loads <= MOST_LOADS

    def _work(self, node: UOp) -> tuple[int, int]:
        """Operations for an element of a node, and the large tensors that it is computed from."""
        work = loads = 0
        seen, waiting = {node}, [node]
        while waiting and work <= MOST_WORK:
            below = waiting.pop()
            fixed = below in self.kept.realized and below not in self.candidates
            if below.op.group == "source" or fixed or not _computes(below):
                loads += SMALL * _bytes(below) > _bytes(node)
                continue
            work += below.op.cost if below.op.elementwise else 0
            waiting += [source for source in needed(below) if source not in seen]
            seen.update(needed(below))
        return work, loads

    def cut(self) -> Choice:
        side = sink_side(self.edges, SOURCE, SINK)
        inside = [n for n in (*self.candidates, *self.inner) if (n, "in") in side]
        bounds = [n for n in self.nodes if (n, "in") not in side and (n, "out") in side]
        return Choice(frozenset(inside), frozenset(bounds))


def _computes(node: UOp) -> bool:
    return node.op.elementwise or node.op.group == "movement"


def _bytes(node: UOp) -> int:
    return maximum(product(node.shape)) * node.dtype.itemsize
