"""From a graph to kernels: one store per kernel, its value an expression over loads and ranges.

Equal kernels are the same node, because buffers are named by slot and ranges by number: deduplication needs
no key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tinyedge.core import dtype as dt
from tinyedge.core import ops
from tinyedge.core.caps import Caps
from tinyedge.core.rules import index as ix
from tinyedge.core.rules.algebra import SIMPLIFY
from tinyedge.core.schedule.buffers import Placement, Storage, plain
from tinyedge.core.schedule.fuse import decide, is_source
from tinyedge.core.schedule.indexing import Indexer
from tinyedge.core.uop import Size, UOp, as_node, cast, consumers, const, toposort


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
    outputs: Mapping[str, UOp], caps: Caps, names: Mapping[UOp, str], storage_types: Mapping[str, str]
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
        return storage

    def _place_parts(self, top: UOp, parts: Sequence[UOp]) -> None:
        """A chain of assignments is one buffer; a value realised for its own sake lies in its region."""
        storage = self._new_storage(top)
        self.placed[top] = Placement(storage)
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
        self.schedule.launches.append(
            Launch(sink, tuple(indexer.storages), self._names_of(node))
        )

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


def split_ranges(sink: UOp) -> UOp:
    """Ranges that are only used divided and modulo become several ranges, so that no division is left."""
    for _ in range(8):
        mapping = _splits(sink)
        if not mapping:
            return sink
        (sink,) = SIMPLIFY.rewrite((_with_ranges(sink, mapping),), mapping)
    return sink


def _splits(sink: UOp) -> dict[UOp, UOp]:
    nodes = toposort((sink,))
    divisors: dict[UOp, set[int]] = {}
    for node in nodes:
        if node.op in (ops.FLOORDIV, ops.MOD) and node.src[1].op is ops.CONST:
            inner = node.src[0]
            if inner.op is ops.RANGE:
                divisors.setdefault(inner, set()).add(node.src[1].arg)
    highest = max((n.arg[0] for n in nodes if n.op is ops.RANGE), default=0)
    mapping: dict[UOp, UOp] = {}
    for target, found in sorted(divisors.items(), key=lambda item: item[0].arg[0]):
        size = target.src[0]
        if size.op is not ops.CONST:
            continue
        steps = _chain(found, size.arg)
        if not steps:
            continue
        whole = ix.ZERO
        bounds = [size.arg, *steps, 1]
        for outer, inner in zip(bounds, bounds[1:], strict=False):
            highest += 1
            piece = UOp(
                ops.RANGE, dt.index, (as_node(outer // inner),), (highest, target.arg[1])
            )
            whole = ix.add(whole, ix.mul(piece, const(inner, dt.index)))
        mapping[target] = whole
    return mapping


def _chain(divisors: set[int], size: int) -> list[int]:
    """The divisors, greatest first, where each divides the next and the size; else nothing."""
    steps = sorted((d for d in divisors if 1 < d < size), reverse=True)
    previous = size
    for step in steps:
        if previous % step:
            return []
        previous = step
    return steps


def _with_ranges(sink: UOp, mapping: Mapping[UOp, UOp]) -> UOp:
    """Folds over a range that will be split, made to fold over its pieces."""
    replaced: dict[UOp, UOp] = {}
    for node in toposort((sink,)):
        src = tuple(replaced.get(s, s) for s in node.src)
        if node.op is ops.FOLD and any(r in mapping for r in node.src[1:]):
            pieces: list[UOp] = []
            for r in node.src[1:]:
                pieces.extend(_pieces(mapping[r]) if r in mapping else (r,))
            src = (src[0], *pieces)
        if src != node.src:
            replaced[node] = UOp(node.op, node.dtype, src, node.arg)
    return replaced.get(sink, sink)


def _pieces(whole: UOp) -> list[UOp]:
    return sorted((a for m in ix.terms(whole) for a in m), key=lambda a: a.arg[0])  # type: ignore[no-any-return]
