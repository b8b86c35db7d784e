"""From a graph to kernels: one store per kernel, its value an expression over loads and ranges.

Equal kernels are the same node, because buffers are named by slot and ranges by number:
deduplication needs no key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.schedule.canonical import (
    collapse,
    flatten,
    order_reductions,
    split_ranges,
)
from tinyedge.core.compiler.schedule.dynamic import bound_ranges, is_dynamic, read_dynamic_sizes
from tinyedge.core.compiler.schedule.fuse import decide, is_source
from tinyedge.core.compiler.schedule.indexing import Indexer, placed_indices, position_of, put_index
from tinyedge.core.compiler.schedule.layout import (
    Contraction,
    classify,
    image_rows,
    output_layout,
    weight_layout,
)
from tinyedge.core.compiler.schedule.packing import packed_bits, unpack
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.buffers import Layout, Placement, TensorBuffer, View, row_major
from tinyedge.core.ir.loops import outline
from tinyedge.core.ir.polynomial import divisor
from tinyedge.core.ir.rewrite import bottom_up, substitute
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Size, UOp, as_node, cast, const, consumers, elementwise, toposort

SMALL_WEIGHT = 8192  # biases, scales, first and depthwise filters are worth their full precision
LARGEST_FP16 = 65504.0
MANY_TO_ONE = 8  # numbers that a sum takes for each that it leaves, to leave little
FP16_TOGETHER = 4  # fp16 values that one thread owns together
SHARES = 512  # threads among which the places of a scatter are shared out
UPDATES = 32768  # that a thread takes in one launch


@dataclass(eq=False)
class Launch:
    """One kernel with its buffers in slot order (slot 0 is written) and the model's nodes it
    computes.
    """

    sink: UOp
    storages: tuple[TensorBuffer, ...]
    nodes: tuple[str, ...] = ()
    # numbers of the ranges that are batch, rows, columns, summed and window positions
    contraction: Mapping[str, tuple[int, ...]] | None = None


@dataclass(eq=False)
class LoopStep:
    """Launches that are repeated while the bool in `condition` is true, at most `bound` times."""

    condition: TensorBuffer
    bound: int
    launches: list[Launch | LoopStep]


def all_launches(launches: Iterable[Launch | LoopStep]) -> Iterator[Launch]:
    """The launches in order, those of a loop once."""
    for item in launches:
        if isinstance(item, Launch):
            yield item
        else:
            yield from all_launches(item.launches)


@dataclass
class Schedule:
    """Launches in order, and where each output lies."""

    launches: list[Launch | LoopStep] = field(default_factory=list)
    inputs: dict[str, TensorBuffer] = field(default_factory=dict)
    outputs: dict[str, TensorBuffer] = field(default_factory=dict)


def schedule(
    outputs: Mapping[str, UOp],
    caps: Caps,
    names: Mapping[UOp, str],
    storage_types: Mapping[str, str],
    fp16_storage: bool = False,
    keep_fp32: frozenset[UOp] = frozenset(),
    no_image: frozenset[UOp] = frozenset(),
    counts: Mapping[str, str] | None = None,
    fp64_reference: bool = False,
) -> Schedule:
    """Kernels that compute the named outputs.

    names: the model's name of a tensor's node. storage_types: element type in memory of types that
    the device cannot hold as they are. fp16_storage: keep float32 tensors and weights as fp16, but
    for the nodes in `keep_fp32`. The nodes in `no_image` do not become images. counts: symbols of
    which the values are outputs, by their names; these come first, each after those that it depends
    on. fp64_reference: for reference values; halves are only marked as `rounded`.
    """
    scheduler = _Scheduler(
        outputs,
        caps,
        names,
        storage_types,
        fp16_storage,
        keep_fp32,
        no_image,
        {},
        {},
        (),
        {},
        fp64_reference,
    )
    return scheduler.run(counts or {})


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


class _Scheduler:
    def __init__(
        self,
        outputs: Mapping[str, UOp],
        caps: Caps,
        names: Mapping[UOp, str],
        storage_types: Mapping[str, str],
        fp16_storage: bool,
        keep_fp32: frozenset[UOp],
        no_image: frozenset[UOp],
        given: Mapping[UOp, Placement],
        weights: dict[tuple[TensorBuffer, Layout], TensorBuffer],
        carried: Sequence[UOp],
        counts: dict[str, TensorBuffer],
        fp64_reference: bool,
    ) -> None:
        """given: buffers that lie somewhere already: what a loop's body is given from outside.

        weights: the layouts in which a weight is stored; all bodies share them. carried: of a
        loop's body, those of the given buffers whose next values the outputs are, in order.
        counts: where the values of dynamic symbols lie; all bodies share them.
        """
        self.fp16_storage = fp16_storage
        self.fp64_reference = fp64_reference
        self.no_image = no_image
        self.given = given
        outlined = outline(tuple(outputs.values()))
        self.outputs = {name: outlined[node] for name, node in outputs.items()}
        self.nexts = set(zip(self.outputs.values(), carried, strict=False))
        self.names = {outlined[n]: name for n, name in names.items() if n in outlined}
        self.inner_names = names
        self.types = storage_types
        self.roots = list(dict.fromkeys(self.outputs.values()))
        self.decision = decide(self.roots, caps)
        self.order = toposort(self.roots)
        self.keep_fp32 = keep_fp32 | _places(self.order) if fp16_storage else keep_fp32
        self.users = consumers(self.order)
        self.placed: dict[UOp, Placement] = {}
        self.caps = caps
        self.aliased: set[UOp] = set()
        self.undecided: set[TensorBuffer] = set()
        self.in_parts: set[TensorBuffer] = set()
        self.weights = weights
        self.counts = counts
        self.results: dict[UOp, list[TensorBuffer]] = {}
        self.output_storages: dict[UOp, TensorBuffer] = {}
        self.schedule = Schedule()

    def run(self, counts: Mapping[str, str] | None = None) -> Schedule:
        """counts: names of the outputs that are values of symbols."""
        for node in self.order:
            if node in self.given:
                self.placed[node] = self.given[node]
            elif node.op is ops.BUFFER:
                self._place_source(node)
        self._place_outputs()
        for symbol, name in (counts or {}).items():
            self.counts[symbol] = self.output_storages[self.outputs[name]]
        for top, parts in reversed(self._ordered_parts()):
            self._place_parts(top, parts)
        part_tops = {part: top for top, parts in self.decision.parts.items() for part in parts}
        for node in self.order:
            if node in part_tops:
                self._part(node, part_tops[node])
            elif node.op is ops.LOOP_CALL:
                self._loop(node)
            elif node.op is ops.LOOP_OUTPUT:
                self.placed[node] = Placement(self.results[node.src[0]][node.arg.number])
            elif node in self.decision.realized:
                self._realize(node)
        for root in self.roots:
            if is_source(root):
                self._copy_source(root)
        for name, root in self.outputs.items():
            self.schedule.outputs[name] = self.output_storages[root]
        return self.schedule

    def _ordered_parts(self) -> list[tuple[UOp, list[UOp]]]:
        """The chains of assignments, inner ones first."""
        return [(n, self.decision.parts[n]) for n in self.order if n in self.decision.parts]

    def _stored_type(self, dtype: dt.DType) -> dt.DType:
        return dt.by_name(self.types.get(dtype.name, dtype.name))

    def _place_source(self, node: UOp) -> None:
        source, shape = node.arg.source, node.shape
        dtype = self._stored_type(node.dtype)
        large = maximum(product(shape)) > SMALL_WEIGHT
        fp16_storage = self.fp16_storage and large and node not in self.keep_fp32
        rounded = fp16_storage and source.kind == "weight" and dtype is dt.float32
        dtype = dt.float16 if rounded and not self.fp64_reference else dtype
        storage = TensorBuffer(
            source.kind,
            source.name,
            dtype,
            shape,
            row_major(shape),
            node,
            source.data,
            packed_bits(source.data, dtype),
            rounded and self.fp64_reference,
        )
        self.placed[node] = Placement(storage)
        if source.kind == "input":
            self.schedule.inputs[source.name] = storage

    def _new_storage(self, node: UOp) -> TensorBuffer:
        role = "output" if node in self.roots else "scratch"
        dtype = self._stored_type(node.dtype)
        storage = TensorBuffer(role, "", dtype, node.shape, row_major(node.shape), node)
        if role == "output":
            self.output_storages[node] = storage
        else:
            self.undecided.add(storage)
        return storage

    def _place_outputs(self) -> None:
        """An output that is a one-to-one view of a realized tensor is that tensor's memory."""
        for root in self.roots:
            if is_source(root):
                continue
            if self._puts_in_place(root):
                self.placed[root] = self.given[root.src[0]]
                self.output_storages[root] = self.given[root.src[0]].storage
                continue
            storage = self._new_storage(root)
            base, views = self._viewed(root)
            if base is not root and self._can_live(base):
                self.placed[base] = Placement(storage, views)
                self.aliased.add(root)
            self.placed[root] = Placement(storage)

    def _place_parts(self, top: UOp, parts: Sequence[UOp]) -> None:
        """A chain of assignments is one buffer; a value realized for its own sake lies in its
        region.
        """
        if top not in self.placed:
            self.placed[top] = Placement(self._new_storage(top))
        home = self.placed[top]
        self.in_parts.add(home.storage)
        for part in parts:
            base, views = self._viewed(part.src[1])
            if self._can_live(base):
                offset = View("offset", tuple(span.start for span in part.arg))
                self.placed[base] = Placement(home.storage, (*views, offset, *home.views))

    def _viewed(self, node: UOp) -> tuple[UOp, tuple[View, ...]]:
        """The tensor of which a node is a one-to-one view, and the views that lead from it to
        the node.
        """
        views: list[View] = []
        while node.op in (ops.RESHAPE, ops.PERMUTE) and len(self.users.get(node, ())) <= 1:
            source = node.src[0]
            if node.op is ops.RESHAPE:
                views.append(View("reshape", (source.shape, node.shape)))
            else:
                views.append(View("permute", node.arg))
            node = source
        return node, tuple(reversed(views))

    def _can_live(self, node: UOp) -> bool:
        """Whether a node is realized and has no place yet."""
        free = node not in self.placed and node not in self.roots and node.op is not ops.SCATTER
        return node in self.decision.realized and free

    def _part(self, part: UOp, top: UOp) -> None:
        base, views = self._viewed(part.src[1])
        home = self.placed[top]
        offset = View("offset", tuple(span.start for span in part.arg))
        place = self.placed.get(base)
        if place is not None and place.storage is home.storage:
            if place.views == (*views, offset, *home.views):
                return
        self._kernel(part.src[1], Placement(home.storage, (offset, *home.views)), root=False)

    def _realize(self, node: UOp) -> None:
        if node in self.aliased:
            return
        place = self.placed.get(node)
        if place is None:
            place = Placement(self._new_storage(node))
            self._kernel(node, place, root=True)
            self.placed[node] = place
        else:
            self._kernel(node, place, root=True)

    def _puts_in_place(self, root: UOp) -> bool:
        """Whether a carried tensor gets a row, and nothing else in the iteration looks at it."""
        if root.op is not ops.UPDATE_ROW:
            return False
        base = root.src[0]
        seen = base in self.roots or self.users[base] != [root]
        return (root, base) in self.nexts and not seen

    def _loop(self, node: UOp) -> None:
        """A loop: its first values, then its iterations, one after the other or as a loop of
        steps.
        """
        body = node.arg
        homes = []
        for value, first in zip(body.repeat.carried, node.src, strict=False):
            dtype = self._stored_type(value.dtype)
            shape = value.shape
            homes.append(
                TensorBuffer(
                    "scratch", value.arg.source.name, dtype, shape, row_major(shape), value
                )
            )
            self._kernel(first, Placement(homes[-1]), root=False)
        given = dict(zip(body.repeat.carried, map(Placement, homes), strict=True))
        outer = node.src[len(homes) :]
        given |= {hole: self.placed[n] for hole, n in zip(body.captured, outer, strict=True)}
        names = self.inner_names
        inner = _Scheduler(
            {str(number): result for number, result in enumerate(body.results)},
            self.caps,
            {new: names[old] for new, old in body.origins.items() if old in names},
            self.types,
            self.fp16_storage,
            self.keep_fp32,
            self.no_image,
            given,
            self.weights,
            body.repeat.carried,
            self.counts,
            self.fp64_reference,
        )
        iteration = inner.run()
        nexts = [iteration.outputs[str(number)] for number in range(len(homes))]
        swaps: dict[TensorBuffer, TensorBuffer] = {}
        for number, (home, new) in enumerate(zip(homes, nexts, strict=True)):
            if new is home:
                continue
            if body.repeat.trips is not None and nexts.count(new) == 1:
                swaps |= {home: new, new: home}
            else:
                result = inner.outputs[str(number)]
                inner.placed[result] = Placement(new)  # not another home, which has its next value
                inner._kernel(result, Placement(home), root=False)
        trips = body.repeat.trips
        if trips is None:
            self.schedule.launches.append(LoopStep(homes[0], body.repeat.bound, iteration.launches))
        for number in range(trips or 0):
            self.schedule.launches.extend(
                _moved(item, swaps if number % 2 else {}) for item in iteration.launches
            )
        odd = trips is not None and trips % 2
        self.results[node] = [swaps.get(home, home) if odd else home for home in homes]

    def _put(self, node: UOp, place: Placement) -> None:
        """One row of a tensor is written where the tensor lies."""
        base, row, position = node.src
        indexer = Indexer(self.placed, place.storage)
        indices = tuple(indexer.range(size, "loop") for size in row.shape)
        param = indexer.param(place.storage)
        value = indexer.value(row, indices)
        at = put_index(base, indexer.value(position, ()))
        address = placed_indices(place, (at, *indices))
        self._add_kernel(node, indexer, access.store(param, value, address))

    def _scatter(self, node: UOp, place: Placement) -> None:
        """First the base, then the updates, one after the other: of a device with threads so many
        a launch that none runs for long.
        """
        base, positions, _ = node.src
        count = positions.shape[-1]
        self.undecided.discard(place.storage)  # it is read while it is written: as it is, in full
        self._kernel(base, place, root=False)
        if maximum(product(base.shape)) == 0:
            return
        step = UPDATES if self.caps.threads > 1 else max(1, maximum(count))
        for first in range(0, maximum(count), step):
            left = ix.maximum(count - first, 0)
            self._updates(node, place, first, ix.minimum(left, step))

    def _updates(self, node: UOp, place: Placement, first: int, count: Size) -> None:
        """A loop over some of a scatter's updates for each of the columns that they have. Where
        these are too few to keep a device busy, its threads share the places out among them: each
        goes through all updates and takes those for its own places.
        """
        base, positions, updates = node.src
        axis, combine = node.arg.axis, node.arg.op
        size = base.shape[axis]
        indexer = Indexer(self.placed, place.storage)
        others = (*base.shape[:axis], *base.shape[axis + 1 :])
        wanted = SHARES // maximum(product(others)) if self.caps.threads > 1 else 1
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
            own = ix.both(ix.at_most(start, at), ix.less(at, start + each))
            inside = ix.both(own, inside)
        self._add_kernel(node, indexer, access.store(param, value, address, inside))

    def _copy_source(self, node: UOp) -> None:
        self._kernel(node, Placement(self._new_storage(node)), root=False)

    def _kernel(self, node: UOp, place: Placement, *, root: bool) -> None:
        storage = place.storage
        if any(maximum(size) == 0 for size in node.shape):
            return
        if root and self._puts_in_place(node):
            self._put(node, place)
            return
        if root and node.op is ops.SCATTER:
            self._scatter(node, place)
            return
        indexer = Indexer(self.placed, storage)
        indices = tuple(indexer.range(size, "loop") for size in node.shape)
        param = indexer.param(storage)
        value = indexer.value(node, indices, root=root)
        address = placed_indices(place, indices)
        self._add_kernel(node, indexer, access.store(param, value, address))

    def _add_kernel(self, node: UOp, indexer: Indexer, store: UOp) -> None:
        sink = _split(UOp(ops.SINK, dt.index, (store,)))
        sink, storages = self._laid_out(sink, indexer.storages)
        sink, contraction = _formed(sink)
        sink = unpack(sink, storages)
        if self.counts:
            sink, storages = read_dynamic_sizes(
                bound_ranges(sink, self.counts), storages, self.counts
            )
            sink, storages = _without_unused(sink, storages)
        roles = contraction.roles(sink) if contraction is not None else None
        self.schedule.launches.append(Launch(sink, tuple(storages), self._names_of(node), roles))

    def _laid_out(self, sink: UOp, storages: list[TensorBuffer]) -> tuple[UOp, list[TensorBuffer]]:
        """Decide how what the kernel writes lies in memory, where it is the first to, and its
        weights.
        """
        output = storages[0]
        if output in self.undecided:
            self.undecided.discard(output)
            exact = output in self.in_parts
            counted = any(is_dynamic(size, self.counts) for size in output.shape)
            if not counted:
                output.layout = output_layout(output.shape, sink.src[0], self.caps.vector, exact)
            if self._as_fp16(output) and not _summarizes(sink, storages):
                output.dtype = dt.float32 if self.fp64_reference else dt.float16
                output.rounded = self.fp64_reference
            if not counted:
                axes = max(1, len(output.shape) - 2)
                output.layout = self._as_image(output, output.layout, axes)
        sink = _ordered(self._with_storages(sink, storages))
        store = sink.src[0]
        reductions = [n for n in toposort((sink,)) if n.op is ops.REDUCE_LOOP]
        order = tuple(r for reduction in reductions for r in reduction.src[1:])
        wanted: dict[int, set[Layout | None]] = {}
        for node in toposort((sink,)):
            if node.op is ops.LOAD and node.src[0].arg.weight:
                layout = weight_layout(node, store, order, self.caps.vector)
                wanted.setdefault(node.src[0].arg.slot, set()).add(layout)
        storages = list(storages)
        for slot, layouts in wanted.items():
            chosen = layouts.pop() if len(layouts) == 1 else None
            if chosen is not None:
                chosen = self._as_image(storages[slot], chosen, None)
                storages[slot] = self._weight(storages[slot], chosen)
        return _without_unused(self._with_storages(sink, storages), storages)

    def _with_storages(self, sink: UOp, storages: Sequence[TensorBuffer]) -> UOp:
        """The kernel with its arguments' layouts and types as the storages have them now."""

        def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if node.op is ops.PARAM:
                storage = storages[node.arg.slot]
                return UOp(ops.PARAM, storage.dtype, (), replace(node.arg, layout=storage.layout))
            if node.op is ops.STORE:
                return node.replace((src[0], self._stored(src[1], src[0].dtype), *src[2:]))
            return None

        return bottom_up((sink,), change)[sink]

    def _stored(self, value: UOp, dtype: dt.DType) -> UOp:
        """A value as it is kept. Floats kept as fp16 saturate, but for infinities; targets that
        do not compute in fp16 pack them so themselves.
        """
        if value.dtype is dt.float32 and dtype is dt.float16 and "float16" in self.caps.dtypes:
            infinite = elementwise(ops.EQ, elementwise(ops.ABS, value), const(np.inf, dt.float32))
            low = elementwise(ops.MAX, value, const(-LARGEST_FP16, dt.float32))
            near = elementwise(ops.MIN, low, const(LARGEST_FP16, dt.float32))
            value = elementwise(ops.WHERE, infinite, value, near)
        return cast(value, dtype)

    def _as_fp16(self, storage: TensorBuffer) -> bool:
        """Whether to keep a tensor as fp16: where they are written in vectors, these must be
        whole, so that no word is shared.
        """
        node = storage.node
        if not self.fp16_storage or node in self.keep_fp32 or storage.dtype is not dt.float32:
            return False
        layout = storage.layout
        if self.caps.fp16_scalar_stores:
            return True
        if not layout.order:
            return False
        inner = layout.order[-1]
        if layout.pads[-1] % FP16_TOGETHER and not _whole(storage.shape[inner]):
            return False
        return all(
            _whole(part.arg[inner].start) and _whole(part.arg[inner].end)
            for part in self.decision.parts.get(node, ())  # type: ignore[arg-type]
        )

    def _as_image(self, storage: TensorBuffer, layout: Layout, axes: int | None) -> Layout:
        """The layout as an image's, with `axes` outer axes as rows if possible, where there are
        images.

        A row of values that all threads read alike stays a buffer.
        """
        if storage.node in self.no_image or storage.dtype not in (dt.float16, dt.float32):
            return layout
        image = replace(layout, rows=image_rows(storage.shape, layout, self.caps, axes))
        if image.rows is not None and product(layout.stored(storage.shape)[:-1]) == 1:
            return layout
        return image

    def _weight(self, storage: TensorBuffer, layout: Layout) -> TensorBuffer:
        """The weight in another layout; each layout of a weight is stored once."""
        if layout == storage.layout:
            return storage
        key = (storage, layout)
        if key not in self.weights:
            self.weights[key] = replace(storage, layout=layout)
        return self.weights[key]

    def _names_of(self, root: UOp) -> tuple[str, ...]:
        """Names of the model's nodes that a kernel computes: those below its root, up to realized
        ones. A kernel inside of one of the model's nodes has the name of that node.
        """
        found = []
        for node in toposort((root,), stop=lambda n: n is not root and n in self.placed):
            if node in self.names and (node is root or node not in self.placed):
                found.append(self.names[node])
        while not found and root in self.users:
            root = self.users[root][0]
            if root in self.names:
                found.append(self.names[root])
        return tuple(found)


# Models repeat their layers: what depends on a kernel alone is found once.
_split = lru_cache(128)(split_ranges)
_ordered = lru_cache(128)(order_reductions)


@lru_cache(128)
def _formed(sink: UOp) -> tuple[UOp, Contraction | None]:
    """The kernel over flat memory, and which sum of products it was."""
    return collapse(flatten(sink)), classify(sink)


def _moved(
    item: Launch | LoopStep, homes: Mapping[TensorBuffer, TensorBuffer]
) -> Launch | LoopStep:
    """A launch, or a loop, with other buffers in the place of some."""
    if isinstance(item, Launch):
        return replace(item, storages=tuple(homes.get(s, s) for s in item.storages))
    return LoopStep(
        homes.get(item.condition, item.condition),
        item.bound,
        [_moved(inner, homes) for inner in item.launches],
    )


def _summarizes(sink: UOp, storages: Sequence[TensorBuffer]) -> bool:
    """Whether a kernel makes few numbers of many by sums: means, variances, norms. They take little
    memory as they are, and are soon too large for fp16 although what is made of them is not.
    """
    if not any(n.op is ops.REDUCE_LOOP and n.arg in (ops.ADD, ops.MUL) for n in toposort((sink,))):
        return False
    made, *read = (maximum(product(storage.shape)) for storage in storages)
    return MANY_TO_ONE * made <= max(read, default=0) and classify(sink) is None


def _whole(size: Size) -> bool:
    """Whether a size is a whole number of vectors of fp16 values."""
    return divisor(size) % FP16_TOGETHER == 0


def _without_unused(sink: UOp, storages: list[TensorBuffer]) -> tuple[UOp, list[TensorBuffer]]:
    """The kernel without arguments whose loads were simplified away."""
    nodes = toposort((sink,))
    used = sorted({n.arg.slot for n in nodes if n.op is ops.PARAM})
    if len(used) == len(storages):
        return sink, storages
    mapping: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op is ops.PARAM:
            arg = replace(node.arg, slot=used.index(node.arg.slot))
            mapping[node] = UOp(ops.PARAM, node.dtype, (), arg)
    return substitute((sink,), mapping)[0], [storages[slot] for slot in used]
