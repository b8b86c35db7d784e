"""From a graph to kernels: one store per kernel, its value an expression over loads and ranges.

Equal kernels are the same node, because buffers are named by slot and ranges by number: deduplication needs
no key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tinyedge.core import dtype as dt
from tinyedge.core import ops
from tinyedge.core.caps import Caps
from tinyedge.core.schedule.buffers import Layout, Param, Placement, Storage, plain
from tinyedge.core.schedule.canonical import collapse, flatten, order_folds, split_ranges
from tinyedge.core.schedule.fuse import decide, is_source
from tinyedge.core.schedule.indexing import Indexer
from tinyedge.core.schedule.layout import output_layout, weight_layout
from tinyedge.core.uop import Size, UOp, cast, consumers, substitute, toposort


@dataclass(eq=False)
class Launch:
    """One kernel with its buffers in slot order (slot 0 is written) and the model's nodes it computes."""

    sink: UOp
    storages: tuple[Storage, ...]
    nodes: tuple[str, ...] = ()


@dataclass
class Schedule:
    """Launches in order, and where each output lies."""

    launches: list[Launch] = field(default_factory=list)
    inputs: dict[str, Storage] = field(default_factory=dict)
    outputs: dict[str, Storage] = field(default_factory=dict)


def schedule(
    outputs: Mapping[str, UOp],
    caps: Caps,
    names: Mapping[UOp, str],
    storage_types: Mapping[str, str],
) -> Schedule:
    """Kernels that compute the named outputs.

    names: the model's name of a tensor's node. storage_types: element type in memory of types that the device
    cannot hold as they are.
    """
    return _Scheduler(outputs, caps, names, storage_types).run()


class _Scheduler:
    def __init__(
        self,
        outputs: Mapping[str, UOp],
        caps: Caps,
        names: Mapping[UOp, str],
        storage_types: Mapping[str, str],
    ) -> None:
        self.outputs = outputs
        self.names = names
        self.types = storage_types
        self.roots = list(dict.fromkeys(outputs.values()))
        self.decision = decide(self.roots, caps)
        self.order = toposort(self.roots)
        self.users = consumers(self.order)
        self.placed: dict[UOp, Placement] = {}
        self.caps = caps
        self.undecided: set[Storage] = set()
        self.in_parts: set[Storage] = set()
        self.weights: dict[tuple[Storage, Layout], Storage] = {}
        self.output_storages: dict[UOp, Storage] = {}
        self.schedule = Schedule()

    def run(self) -> Schedule:
        for node in self.order:
            if node.op is ops.BUFFER:
                self._place_source(node)
        for top, parts in self.decision.parts.items():
            self._place_parts(top, parts)
        part_tops = {part: top for top, parts in self.decision.parts.items() for part in parts}
        for node in self.order:
            if node in part_tops:
                self._part(node, part_tops[node])
            elif node in self.decision.realised:
                self._realise(node)
        for root in self.roots:
            if is_source(root):
                self._copy_source(root)
        for name, root in self.outputs.items():
            self.schedule.outputs[name] = self.output_storages[root]
        return self.schedule

    def _stored_type(self, dtype: dt.DType) -> dt.DType:
        return dt.by_name(self.types.get(dtype.name, dtype.name))

    def _place_source(self, node: UOp) -> None:
        source, shape = node.arg
        storage = Storage(
            source.kind,
            source.name,
            self._stored_type(node.dtype),
            shape,
            plain(shape),
            node,
            source.data,
        )
        self.placed[node] = Placement(storage)
        if source.kind == "input":
            self.schedule.inputs[source.name] = storage

    def _new_storage(self, node: UOp) -> Storage:
        role = "output" if node in self.roots else "scratch"
        dtype = self._stored_type(node.dtype)
        storage = Storage(role, "", dtype, node.shape, plain(node.shape), node)
        if role == "output":
            self.output_storages[node] = storage
        else:
            self.undecided.add(storage)
        return storage

    def _place_parts(self, top: UOp, parts: Sequence[UOp]) -> None:
        """A chain of assignments is one buffer; a value realised for its own sake lies in its region."""
        storage = self._new_storage(top)
        self.placed[top] = Placement(storage)
        self.in_parts.add(storage)
        for part in parts:
            value = part.src[1]
            if (
                value in self.decision.realised
                and value not in self.roots
                and value not in self.placed
                and value not in self.decision.parts
                and not _is_fused_reader(value, parts)
            ):
                offset = tuple(start for start, _ in part.arg)
                self.placed[value] = Placement(storage, offset)

    def _part(self, part: UOp, top: UOp) -> None:
        value = part.src[1]
        place = self.placed.get(value)
        storage = self.placed[top].storage
        offset = tuple(start for start, _ in part.arg)
        if place is not None and place.storage is storage and place.offset == offset:
            return
        self._kernel(value, storage, offset, root=False)

    def _realise(self, node: UOp) -> None:
        place = self.placed.get(node)
        if place is None:
            place = Placement(self._new_storage(node))
            self._kernel(node, place.storage, None, root=True)
            self.placed[node] = place
        else:
            self._kernel(node, place.storage, place.offset, root=True)

    def _copy_source(self, node: UOp) -> None:
        storage = self._new_storage(node)
        self._kernel(node, storage, None, root=False)

    def _kernel(
        self, node: UOp, storage: Storage, offset: tuple[Size, ...] | None, *, root: bool
    ) -> None:
        indexer = Indexer(self.placed, storage)
        indices = tuple(indexer.range(size, "loop") for size in node.shape)
        param = indexer.param(storage)
        value = indexer.value(node, indices, root=root)
        value = _stored(value, node.dtype, storage.dtype)
        address = Placement(storage, offset).indices(indices)
        store = UOp(ops.STORE, dt.index, (param, value, *address))
        sink = split_ranges(UOp(ops.SINK, dt.index, (store,)))
        sink, storages = self._laid_out(sink, indexer.storages)
        sink = collapse(flatten(sink))
        self.schedule.launches.append(Launch(sink, tuple(storages), self._names_of(node)))

    def _laid_out(self, sink: UOp, storages: list[Storage]) -> tuple[UOp, list[Storage]]:
        """Decide the layouts of what the kernel writes, where it is the first to, and of its weights."""
        output = storages[0]
        if output in self.undecided:
            self.undecided.discard(output)
            exact = output in self.in_parts
            output.layout = output_layout(output.shape, sink.src[0], self.caps.vector, exact)
            sink = _with_params(sink, storages)
        sink = order_folds(sink)
        store = sink.src[0]
        folds = [n for n in toposort((sink,)) if n.op is ops.FOLD]
        order = tuple(r for fold in folds for r in fold.src[1:])
        wanted: dict[int, set[Layout | None]] = {}
        for node in toposort((sink,)):
            if node.op is ops.LOAD and node.src[0].arg.weight:
                layout = weight_layout(node, store, order, self.caps.vector)
                wanted.setdefault(node.src[0].arg.slot, set()).add(layout)
        storages = list(storages)
        for slot, layouts in wanted.items():
            chosen = layouts.pop() if len(layouts) == 1 else None
            if chosen is not None:
                storages[slot] = self._weight(storages[slot], chosen)
        return _with_params(sink, storages), storages

    def _weight(self, storage: Storage, layout: Layout) -> Storage:
        """The weight in another layout; each layout of a weight is stored once."""
        if layout == storage.layout:
            return storage
        key = (storage, layout)
        if key not in self.weights:
            self.weights[key] = replace(storage, layout=layout)
        return self.weights[key]

    def _names_of(self, root: UOp) -> tuple[str, ...]:
        """Names of the model's nodes that a kernel computes: those below its root, up to realised ones."""
        found = []
        for node in toposort((root,), stop=lambda n: n is not root and n in self.placed):
            if node in self.names and (node is root or node not in self.placed):
                found.append(self.names[node])
        return tuple(found)


def _is_fused_reader(value: UOp, parts: Sequence[UOp]) -> bool:
    """Whether the value is assigned more than once (then only the first region is its home)."""
    return sum(part.src[1] is value for part in parts) > 1


def _stored(value: UOp, dtype: dt.DType, storage: dt.DType) -> UOp:
    return cast(value, storage) if storage is not dtype else value


def _with_params(sink: UOp, storages: Sequence[Storage]) -> UOp:
    """The kernel with its arguments' layouts as the storages have them now."""
    mapping = {}
    for node in toposort((sink,)):
        if node.op is ops.PARAM:
            old = node.arg
            layout = storages[old.slot].layout
            if layout != old.layout:
                arg = Param(old.slot, old.shape, layout, old.written, old.weight)
                mapping[node] = UOp(ops.PARAM, node.dtype, (), arg)
    return substitute((sink,), mapping)[0] if mapping else sink
