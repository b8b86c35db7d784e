"""Which node of a graph lies in which buffer, before any kernel is formed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.schedule.fuse import decide, is_source
from tinyedge.core.compiler.schedule.launches import ScheduleOptions
from tinyedge.core.ir import ops
from tinyedge.core.ir.buffers import (
    Offset,
    Permuted,
    Placement,
    Reshaped,
    TensorBuffer,
    View,
    row_major,
)
from tinyedge.core.ir.loops import outline
from tinyedge.core.ir.memory import kernels_write
from tinyedge.core.ir.packed import packed_bits
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import UOp, consumers, toposort

SMALL_WEIGHT = 8192  # biases, scales, first and depthwise filters are worth their full precision


class BodyGraph:
    """What is scheduled at once: an entry's graph, or that of an iteration of a loop."""

    def __init__(
        self,
        outputs: Mapping[str, UOp],
        names: Mapping[UOp, str],
        options: ScheduleOptions,
        given: Mapping[UOp, Placement] | None = None,
        carried: Sequence[UOp] = (),
        keep_fp32: frozenset[UOp] = frozenset(),
    ) -> None:
        """names: the model's names of nodes, those in loops included.

        given: of a loop's body, the buffers that lie somewhere already. carried: those of them
        whose next values the outputs are, in order. keep_fp32: nodes that stay in full, those
        in loops included.
        """
        outlined = outline(tuple(outputs.values()))
        self.outputs = {name: outlined[node] for name, node in outputs.items()}
        self.nexts = set(zip(self.outputs.values(), carried, strict=False))
        self.names = {outlined[n]: name for n, name in names.items() if n in outlined}
        self.inner_names = names
        self.inner_exact = keep_fp32
        self.given = given or {}
        self.roots = list(dict.fromkeys(self.outputs.values()))
        self.decision = decide(self.roots, options.caps, again=options.recompute)
        self.order = toposort(self.roots)
        self.users = consumers(self.order)
        exact = _places(self.order) if options.fp16_storage else frozenset()
        self.keep_fp32 = frozenset(outlined.get(n, n) for n in keep_fp32) | exact


def _places(order: Iterable[UOp]) -> frozenset[UOp]:
    """What indices are computed from, up to sums: a half would miss the element it means."""
    found: set[UOp] = set()
    waiting = [node.src[1] for node in order if node.op in (ops.GATHER, ops.SCATTER)]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            if node.op is not ops.REDUCE:
                waiting.extend(node.src)
    return frozenset(found)


class Placer:
    """The buffers of a graph's nodes, as far as they are known before kernels are formed."""

    def __init__(self, graph: BodyGraph, options: ScheduleOptions) -> None:
        self.graph = graph
        self.options = options
        self.placed: dict[UOp, Placement] = {}
        self.inputs: dict[str, TensorBuffer] = {}
        self.outputs: dict[UOp, TensorBuffer] = {}  # by the root
        self.aliased: set[UOp] = set()  # roots that are views of a node that lies in their buffer
        self.undecided: set[TensorBuffer] = set()  # of which no kernel has decided the layout
        self.in_parts: set[TensorBuffer] = set()  # which several kernels write
        for node in graph.order:
            if node in graph.given:
                self.placed[node] = graph.given[node]
            elif node.op is ops.BUFFER:
                self._place_source(node)
        self._place_outputs()
        for top, parts in reversed(self._ordered_parts()):
            self._place_parts(top, parts)

    def _ordered_parts(self) -> list[tuple[UOp, list[UOp]]]:
        """The chains of assignments, inner ones first."""
        return [
            (n, self.graph.decision.parts[n])
            for n in self.graph.order
            if n in self.graph.decision.parts
        ]

    def _place_source(self, node: UOp) -> None:
        source, shape = node.arg.source, node.shape
        dtype = self.options.caps.stored_type(node.dtype)
        large = maximum(product(shape)) > SMALL_WEIGHT
        fp16_storage = self.options.fp16_storage and large and node not in self.graph.keep_fp32
        rounded = fp16_storage and source.kind == "weight" and dtype is dt.float32
        dtype = dt.float16 if rounded and not self.options.fp64_reference else dtype
        storage = TensorBuffer(
            source.kind,
            source.name,
            dtype,
            shape,
            row_major(shape),
            node,
            source.data,
            packed_bits(source.data, dtype),
            rounded and self.options.fp64_reference,
        )
        self.placed[node] = Placement(storage)
        if source.kind == "input":
            self.inputs[source.name] = storage

    def new_storage(self, node: UOp) -> TensorBuffer:
        """A buffer for a realized node; the first kernel to write it decides how it lies."""
        role = "output" if node in self.graph.roots else "scratch"
        dtype = self.options.caps.stored_type(node.dtype)
        storage = TensorBuffer(role, "", dtype, node.shape, row_major(node.shape), node)
        if role == "output":
            self.outputs[node] = storage
        else:
            self.undecided.add(storage)
        return storage

    def _place_outputs(self) -> None:
        """An output that is a one-to-one view of a realized tensor is that tensor's memory."""
        for root in self.graph.roots:
            if is_source(root):
                continue
            if self.puts_in_place(root):
                self.placed[root] = self.graph.given[root.src[0]]
                self.outputs[root] = self.graph.given[root.src[0]].storage
                continue
            storage = self.new_storage(root)
            base, views = self.viewed(root)
            if base is not root and self._can_live(base):
                self.placed[base] = Placement(storage, views)
                self.aliased.add(root)
            self.placed[root] = Placement(storage)

    def _place_parts(self, top: UOp, parts: Sequence[UOp]) -> None:
        """A chain of assignments is one buffer; a value realized for its own sake lies in its
        region.
        """
        if top not in self.placed:
            self.placed[top] = Placement(self.new_storage(top))
        home = self.placed[top]
        self.in_parts.add(home.storage)
        for part in parts:
            base, views = self.viewed(part.src[1])
            if self._can_live(base):
                offset = Offset(tuple(span.start for span in part.arg))
                self.placed[base] = Placement(home.storage, (*views, offset, *home.views))

    def viewed(self, node: UOp) -> tuple[UOp, tuple[View, ...]]:
        """The tensor of which a node is a one-to-one view, and the views that lead from it to
        the node.
        """
        views: list[View] = []
        while node.op in (ops.RESHAPE, ops.PERMUTE) and len(self.graph.users.get(node, ())) <= 1:
            source = node.src[0]
            if node.op is ops.RESHAPE:
                views.append(Reshaped(source.shape, node.shape))
            else:
                views.append(Permuted(node.arg))
            node = source
        return node, tuple(reversed(views))

    def _can_live(self, node: UOp) -> bool:
        """Whether a node is realized and has no place yet."""
        free = (
            node not in self.placed and node not in self.graph.roots and not kernels_write(node.op)
        )
        return node in self.graph.decision.realized and free

    def puts_in_place(self, root: UOp) -> bool:
        """Whether a carried tensor gets a row, and nothing else in the iteration looks at it."""
        if root.op is not ops.UPDATE_ROW:
            return False
        base = root.src[0]
        seen = base in self.graph.roots or self.graph.users[base] != [root]
        return (root, base) in self.graph.nexts and not seen
