"""The pipeline: tensor graphs to a Program, as one visible list of stages."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.counters import kernel_counters, program_counters, workgroup_bytes
from tinyedge.core.compiler.decompose import joined, narrowed, retype
from tinyedge.core.compiler.lower.expand import expand, one_type_per_buffer
from tinyedge.core.compiler.lower.geometry import geometry
from tinyedge.core.compiler.lower.images import free_guards, not_pixels, to_coordinates
from tinyedge.core.compiler.lower.linear import linearize
from tinyedge.core.compiler.optimize.choose import baseline, choose, exact
from tinyedge.core.compiler.optimize.moves import IllegalMove, Move
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.schedule.constants import fold_constants
from tinyedge.core.compiler.schedule.kernels import (
    LARGEST_HALF,
    Launch,
    LoopStep,
    Schedule,
    all_launches,
    schedule,
)
from tinyedge.core.compiler.schedule.memory import Lifetime, plan
from tinyedge.core.compiler.schedule.numbers import share_numbers
from tinyedge.core.compiler.schedule.packing import pack
from tinyedge.core.compiler.schedule.sharing import Signature, share
from tinyedge.core.compiler.schedule.splitting import split_weights
from tinyedge.core.compiler.target import LoweredArg, LoweredKernel, Target
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InternalError
from tinyedge.core.ir import ops
from tinyedge.core.ir.buffers import TensorBuffer
from tinyedge.core.ir.buffers import row_major as plain_layout
from tinyedge.core.ir.rewrite import replaced
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.spec import check_kernel, check_lowered, check_tensor
from tinyedge.core.ir.uop import Size, UOp, as_size, cast, maximum, toposort
from tinyedge.core.program import program
from tinyedge.core.tensor.graph import Graph, Graphs, Port, State
from tinyedge.core.tensor.tensor import Tensor

HELD_WEIGHT = 1 << 16  # bytes of a weight that are held; those of larger ones are made again

WIDE_TYPES = {"float32": "float64", "float16": "float64"}
WIDE_STORAGE = {"float64": "float32"}


@dataclass
class Entry:
    """One graph on its way to steps."""

    name: str
    graph: Graph
    outputs: dict[str, UOp]
    updates: dict[str, UOp]
    names: dict[UOp, str]
    counts: dict[str, UOp]
    schedule: Schedule = field(default_factory=Schedule)

    @property
    def roots(self) -> tuple[UOp, ...]:
        """All that is computed: counts, then outputs, then updates."""
        return (*self.counts.values(), *self.outputs.values(), *self.updates.values())

    def follow(self, done: Mapping[UOp, UOp]) -> None:
        """Take what every node has become."""
        self.counts = {name: done[node] for name, node in self.counts.items()}
        self.outputs = {name: done[node] for name, node in self.outputs.items()}
        self.updates = {name: done[node] for name, node in self.updates.items()}
        self.names = {done[n]: name for n, name in self.names.items() if n in done}


@dataclass
class Compilation:
    """Everything between graphs and their program; stages fill it in, `explain` prints it."""

    source: Graphs
    target: Target
    options: Options
    caps: Caps
    entries: list[Entry] = field(default_factory=list)
    full: set[UOp] = field(default_factory=set)
    flat: set[UOp] = field(default_factory=set)
    kernels: dict[UOp, Kernel] = field(default_factory=dict)
    program: program.Program | None = None
    # of reference values in "fp16", the buffers that hold in full what would be halves
    rounded: frozenset[int] = frozenset()
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def roots(self) -> tuple[UOp, ...]:
        """All that the entries compute."""
        return tuple(root for entry in self.entries for root in entry.roots)

    @property
    def launches(self) -> list[Launch]:
        """The launches of all entries, in order."""
        return [step for e in self.entries for step in all_launches(e.schedule.launches)]


@dataclass
class Kernel:
    """One distinct kernel on its way: meaning, moves, and what was printed."""

    name: str
    sink: UOp
    moved: UOp
    moves: list[Move]
    contraction: Mapping[str, tuple[int, ...]] | None = None
    expanded: UOp | None = None  # after its moves, without ranges of copies and vectors
    # slots of images that it would not take in whole pixels
    non_contiguous: set[int] = field(default_factory=set)
    text: LoweredKernel | None = None
    source: str = ""
    flops: int = 0


def compile_graph(
    source: Graph | Graphs,
    target: Target,
    options: Options | None = None,
    *,
    stop_after: str = "",
    progress: Callable[[str], None] | None = None,
) -> Compilation:
    """Run the stages in order; with `stop_after`, only up to the named one.

    A single graph becomes the entry `main`.
    """
    chosen = options or Options()
    graphs = source if isinstance(source, Graphs) else Graphs({"main": source})
    state = Compilation(graphs, target, chosen, target.caps(chosen.profile))
    for name, stage in STAGES:
        if progress is not None:
            progress(name)
        start = time.perf_counter()
        stage(state)
        state.seconds[name] = time.perf_counter() - start
        if name == stop_after:
            break
    return state


def _types(state: Compilation) -> tuple[dict[str, str], dict[str, str]]:
    narrow, storage = dict(state.target.narrow), dict(state.target.storage)
    if state.options.wide:
        narrow.update(WIDE_TYPES)
        storage.update(WIDE_STORAGE)
    return narrow, storage


def _retype(state: Compilation) -> None:
    """Element types that the target lacks become others."""
    states = {kept.name: kept for kept in state.source.states}
    for name, graph in state.source.entries.items():
        outputs = {port.name: port.node for port in graph.outputs if port.node is not None}
        updates = {port.name: port.node for port in graph.updates if port.node is not None}
        inputs = _inputs((*graph.counts.values(), *outputs.values(), *updates.values()))
        names = dict(graph.names)
        for kept, node in updates.items():
            if states[kept].update == "shift":
                updates[kept] = _shifted(states[kept], inputs.get(kept), node)
                names.setdefault(updates[kept], f"shift {kept}")
        state.entries.append(Entry(name, graph, outputs, updates, names, dict(graph.counts)))
    done = retype(state.roots, _types(state)[0], _halves(state))
    for entry in state.entries:
        entry.follow(done)
    if "input" in _halves(state):
        _narrow(state)


def _halves(state: Compilation) -> tuple[str, ...]:
    """The kinds of source that lie in memory as halves if they are float16. Inputs, and with them
    outputs and states, only where halves can be written one by one.
    """
    if state.options.wide:
        return ()
    return ("weight", "input") if state.caps.half_stores else ("weight",)


def _narrow(state: Compilation) -> None:
    """Outputs and new values of states that are float16 become halves. What joins halves of memory
    to others, such as a cache and what is new in it, is read as halves inside of the graph, too:
    else it would be made twice.
    """
    native = "float16" in state.caps.dtypes
    tops = {top: None for _, _, node in _half_roots(state) if (top := joined(node)) is not None}
    read = {top: cast(narrowed(top, native), top.dtype) for top in tops}
    done = replaced(state.roots, read)
    for entry in state.entries:
        entry.follow(done)
    for nodes, name, node in list(_half_roots(state)):
        nodes[name] = narrowed(node, native)


def _half_roots(state: Compilation) -> Iterator[tuple[dict[str, UOp], str, UOp]]:
    """Outputs and updates whose ports are float16: where they are kept, their name, their node."""
    for entry in state.entries:
        for port in entry.graph.outputs:
            if port.dtype is dt.float16 and port.name in entry.outputs:
                yield entry.outputs, port.name, entry.outputs[port.name]
        for port in entry.graph.updates:
            if port.dtype is dt.float16 and port.name in entry.updates:
                yield entry.updates, port.name, entry.updates[port.name]


def _inputs(roots: tuple[UOp, ...]) -> dict[str, UOp]:
    """The inputs of a graph by name."""
    sources = ((node.arg.source, node) for node in toposort(roots) if node.op is ops.BUFFER)
    return {source.name: node for source, node in sources if source.kind == "input"}


def _shifted(state: State, old: UOp | None, new: UOp) -> UOp:
    """A queue's whole new value: all but its first entries, then the new ones."""
    queue = Tensor.input(state.name, state.shape, state.dtype) if old is None else Tensor(old)
    count = new.shape[state.axis]
    left = queue[(slice(None),) * state.axis + (slice(count, None),)]
    return Tensor.concat([left, Tensor(new)], state.axis).node


def _fold(state: Compilation) -> None:
    """What depends on weights alone is computed."""
    done = fold_constants(state.roots, state.options.folded_work, state.options.folded_growth)
    for entry in state.entries:
        entry.follow(done)
    check_tensor(state.roots)


def _schedule(state: Compilation) -> None:
    """Tensors to kernels and buffers."""
    halves = state.options.precision == "fp16"
    storage = _types(state)[1]
    if done := split_weights(state.roots, state.caps, storage, halves):
        for entry in state.entries:
            entry.follow(done)
    for entry in state.entries:
        entry.schedule = schedule(
            {str(number): root for number, root in enumerate(entry.roots)},
            state.caps,
            entry.names,
            storage,
            halves,
            frozenset(state.full),
            frozenset(state.flat),
            {name: str(number) for number, name in enumerate(entry.counts)},
            state.options.wide,
        )
    share_numbers(state.launches, state.caps)
    for sink in {launch.sink: None for launch in state.launches}:
        check_kernel(sink)


def _optimize(state: Compilation) -> None:
    """Schedule moves for every distinct kernel.

    A tensor of halves that a kernel would not write in whole vectors is kept in full instead, and
    an image that one would not read and write in whole pixels becomes a buffer.
    """
    _choose_all(state)
    while True:
        split, non_contiguous = _split_halves(state), _scattered_images(state)
        if not split and not non_contiguous:
            return
        state.full.update(split)
        state.flat.update(non_contiguous)
        _schedule(state)
        _choose_all(state)


def _scattered_images(state: Compilation) -> set[UOp]:
    """Tensors that were made images, but that a kernel would not take in whole pixels."""
    return {
        storage.node
        for launch in state.launches
        for slot, storage in enumerate(launch.storages)
        if slot in state.kernels[launch.sink].non_contiguous and storage.node is not None
    }


def _split_halves(state: Compilation) -> set[UOp]:
    """Tensors that were made halves, but that a kernel would not write in whole vectors."""
    if state.options.precision != "fp16" or state.caps.half_stores:
        return set()
    return {
        launch.storages[0].node
        for launch in state.launches
        if launch.storages[0].dtype is dt.float16
        and launch.storages[0].node is not None
        and not writes_vectors(state.kernels[launch.sink].moved)
    }


def writes_vectors(sink: UOp) -> bool:
    """Whether a kernel, after its moves, stores aligned vectors."""
    for store in sink.src:
        address = (store.src[1] if store.op is ops.GUARD else store).src[2]
        lane = next((r for r in address.ranges if r.arg.kind == "vector"), None)
        if lane is None or ix.terms(address).get((lane,), 0) != 1:
            return False
        size = int(lane.src[0].arg)
        rest = ix.sub(address, lane)
        if size % 2 or lane in rest.ranges or ix.divisor(rest) % size:
            return False
        if store.op is ops.GUARD and lane in store.src[0].ranges:
            return False
    return True


def _choose_all(state: Compilation) -> None:
    """Moves for the launches' kernels; those that were chosen before are kept."""
    before, state.kernels = state.kernels, {}
    for launch in state.launches:
        if launch.sink in state.kernels:
            continue
        name = _kernel_name(len(state.kernels), launch)
        known = before.get(launch.sink)
        kernel = _chosen(state, launch, name) if known is None else replace(known, name=name)
        state.kernels[launch.sink] = kernel


def _chosen(state: Compilation, launch: Launch, name: str) -> Kernel:
    chooser = choose if state.options.optimize else exact if state.options.wide else baseline
    try:
        moved, moves = chooser(launch.sink, state.caps, launch.contraction)
    except IllegalMove as illegal:
        raise InternalError(
            f"kernel {name}", str(illegal), id="compile.move", next="report this"
        ) from illegal
    check_kernel(moved)
    flops = operations(launch.sink)
    kernel = Kernel(name, launch.sink, moved, moves, launch.contraction, flops=flops)
    if state.caps.image:
        kernel.non_contiguous = not_pixels(_expanded(kernel, state.caps))
    return kernel


def _expanded(kernel: Kernel, caps: Caps) -> UOp:
    """The kernel's expanded form, made once."""
    if kernel.expanded is None:
        moved = free_guards(kernel.moved) if caps.image else kernel.moved
        kernel.expanded = expand(moved, caps)
    return kernel.expanded


def operations(sink: UOp) -> int:
    """Arithmetic operations on values (not on indices) that a kernel does, at the symbols' maxima.

    Each operation is done once for every step of the ranges it depends on; a fold's once more for
    every step.
    """
    total = 0
    for node in toposort((sink,)):
        if node.op is ops.REDUCE_LOOP:
            ranges = node.src[0].ranges | set(node.src[1:])
        elif node.op.group in ("unary", "binary") and node.dtype not in (dt.index, dt.bool_):
            ranges = node.ranges
        else:
            continue
        count = 1
        for r in ranges:
            count *= maximum(as_size(r.src[0]))
        total += count
    return total


def _lower(state: Compilation) -> None:
    """Ranges to loops, expressions to statements."""
    for kernel in state.kernels.values():
        kernel.text = _lowered(kernel, state.caps)


def _lowered(kernel: Kernel, caps: Caps) -> LoweredKernel:
    """A kernel after its moves, as statements."""
    sink = _expanded(kernel, caps)
    if caps.image:
        sink = to_coordinates(sink)
    if not caps.unaligned:
        sink = one_type_per_buffer(sink, caps)
    nodes = toposort((sink,))
    params = {n.arg.slot: n for n in nodes if n.op is ops.PARAM}
    arguments = tuple(
        LoweredArg(param, param.arg.written, param.arg.weight)
        for _, param in sorted(params.items())
    )
    shape = geometry(sink, caps)
    used = {n.arg.name for n in nodes if n.op is ops.SYMBOL and not n.src}
    linear = linearize(sink)
    check_lowered(linear.statements, linear.values)
    return LoweredKernel(kernel.name, linear, shape, arguments, tuple(sorted(used)))


def _render(state: Compilation) -> None:
    """Statements to text."""
    symbols = tuple(sorted(_symbols(state)))
    for kernel in state.kernels.values():
        assert kernel.text is not None
        text = kernel.text
        if text.symbols:
            text = LoweredKernel(text.name, text.linear, text.geometry, text.arguments, symbols)
        kernel.text = text
        kernel.source = state.target.render(text)


def _symbols(state: Compilation) -> dict[str, UOp]:
    """The sizes that a caller gives."""
    counts = {name for entry in state.entries for name in entry.counts}
    found: dict[str, UOp] = {}
    graphs = [entry.graph for entry in state.entries]
    shapes = [port.shape for graph in graphs for port in (*graph.inputs, *graph.outputs)]
    shapes += [s.shape for launch in state.launches for s in launch.storages]
    shapes += [kept.shape for kept in state.source.states]
    sizes = [size for shape in shapes for size in shape if isinstance(size, UOp)]
    roots = [launch.sink for launch in state.launches]
    for node in toposort((*sizes, *roots)):
        if node.op is ops.SYMBOL and node.arg.name not in counts:
            found[node.arg.name] = node
    return found


def _assemble(state: Compilation) -> None:
    """Buffers to memory, launches to steps: the Program."""
    assembler = _Assembler(state)
    state.program = assembler.assemble()
    state.rounded = assembler.rounded()


def placed(
    state: Compilation,
) -> tuple[tuple[program.Arena, ...], list[program.Buffer], list[program.Weight]]:
    """The memory of kernels that have their moves, as "assemble" will have it without states:
    arenas, buffers, weights.
    """
    assembler = _Assembler(state)
    return assembler._place(), assembler.buffers, assembler.weights


STAGES: list[tuple[str, Callable[[Compilation], None]]] = [
    ("retype", _retype),
    ("fold", _fold),
    ("fuse", _schedule),
    ("optimize", _optimize),
    ("lower", _lower),
    ("render", _render),
    ("assemble", _assemble),
]


def _kernel_name(number: int, launch: Launch) -> str:
    label = launch.nodes[-1] if launch.nodes else ""
    words = re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")[:32]
    return f"k{number}_{words}" if words else f"k{number}"


def expression(size: Size) -> program.Expression:
    """A size as the Program writes it."""
    if isinstance(size, int):
        return size
    texts: dict[UOp, program.Expression] = {}
    for node in toposort((size,)):
        if node.op is ops.CONST:
            texts[node] = int(node.arg)
        elif node.op is ops.SYMBOL:
            texts[node] = _steps(node)
        elif node.op in (ops.ADD, ops.MUL):
            texts[node] = _polynomial(ix.terms(node), texts)
        elif node.op in (ops.FLOORDIV, ops.MOD) and ix.bounds(node.src[1])[0] < 1:
            dividend, divisor = (texts[s] for s in node.src)  # a size of 0 divides nothing
            texts[node] = (node.op.name, dividend, ("max", divisor, 1))
        else:
            texts[node] = (node.op.name, *(texts[s] for s in node.src))
    return texts[size]


def _declared(node: UOp) -> program.Symbol:
    size = node.arg
    least, greatest = (size.offset + steps * size.step for steps in (size.min, size.max))
    return program.Symbol(size.name, least, greatest, size.step)


def _steps(node: UOp) -> program.Expression:
    name, step, offset = node.arg.name, node.arg.step, node.arg.offset
    above: program.Expression = ("sub", name, offset) if offset else name
    return ("floordiv", above, step) if step != 1 else above


def _polynomial(
    terms: Mapping[tuple[UOp, ...], int], texts: Mapping[UOp, program.Expression]
) -> program.Expression:
    """A sum of products; whole steps of a symbol are written as the size that the caller knows."""
    total: program.Expression | None = None
    constant = terms.get((), 0)
    for monomial, coefficient in sorted(
        terms.items(), key=lambda item: [ix.atom_key(a) for a in item[0]]
    ):
        if not monomial:
            continue
        factors: list[program.Expression] = []
        for atom in monomial:
            step, offset = (atom.arg.step, atom.arg.offset) if atom.op is ops.SYMBOL else (0, 0)
            if step and coefficient % step == 0 and (not offset or len(monomial) == 1):
                coefficient //= step
                constant -= coefficient * offset
                factors.append(atom.arg.name)
            else:
                factors.append(texts[atom])
        term = factors[0]
        for factor in factors[1:]:
            term = ("mul", term, factor)
        term = ("mul", term, coefficient) if coefficient != 1 else term
        total = term if total is None else ("add", total, term)
    if total is None:
        return constant
    if constant:
        return ("add", total, constant) if constant > 0 else ("sub", total, -constant)
    return total


Array = Any


class _Assembler:
    def __init__(self, state: Compilation) -> None:
        self.state = state
        self.states = {kept.name: self._plain("state", kept) for kept in state.source.states}
        self.sharing = share([self._signature(entry) for entry in state.entries], self.states)
        self.weights: list[program.Weight] = []
        self.buffers: list[program.Buffer] = []
        self.numbers: dict[TensorBuffer, int] = {}
        self.stored: dict[Any, int] = {}

    def assemble(self) -> program.Program:
        state = self.state
        arenas = self._place()
        kernels, numbers = self._distinct()
        symbols = tuple(_declared(node) for _, node in sorted(_symbols(state).items()))
        inputs: dict[Hashable, Port] = {}
        outputs: dict[Hashable, Port] = {}
        for entry in state.entries:
            inputs.update(self._inputs(entry))
            outputs.update(_outputs(entry))
        input_numbers = {key: number for number, key in enumerate(inputs)}
        output_numbers = {key: number for number, key in enumerate(outputs)}
        entries = tuple(
            program.Entry(
                entry.name,
                tuple(port.name for port in self._inputs(entry).values()),
                tuple(entry.outputs),
                (*self._steps(entry.schedule.launches, numbers), *self._copies(copies)),
                tuple(input_numbers[key] for key in self._inputs(entry)),
                tuple(output_numbers[key] for key in _outputs(entry)),
            )
            for entry, copies in zip(state.entries, self.sharing.copies, strict=True)
        )
        return program.Program(
            target=state.target.name,
            symbols=symbols,
            inputs=tuple(
                self._port(port, self.sharing.inputs[key]) for key, port in inputs.items()
            ),
            outputs=tuple(
                self._port(port, self.sharing.outputs[key]) for key, port in outputs.items()
            ),
            states=tuple(self._state(kept) for kept in state.source.states),
            arenas=arenas,
            buffers=tuple(self.buffers),
            weights=tuple(self.weights),
            kernels=tuple(self._kernel(kernel) for kernel in kernels),
            entries=entries,
            images=tuple(self._images()),
            prelude=state.target.prelude,
            requirements={
                "workgroup_bytes": max(
                    (workgroup_bytes(k.text) for k in kernels if k.text), default=0
                )
            },
            options={
                "optimize": state.options.optimize,
                "precision": state.options.precision,
                "profile": state.options.profile,
                "counters": self._counters(kernels, entries),
                **({"build": state.target.build} if state.target.build else {}),
            },
        )

    def rounded(self) -> frozenset[int]:
        """The buffers of reference values that would be halves."""
        launches = self.state.launches
        storages = {s for launch in launches for s in launch.storages if s.rounded}
        return frozenset(self.numbers[self.sharing.home(s)] for s in storages)

    def _counters(
        self, kernels: Sequence[Kernel], entries: Sequence[program.Entry]
    ) -> dict[str, int]:
        """What the launches of all entries read and move."""
        barrier = self.state.target.barrier
        each = [kernel_counters(k.text, k.source, barrier) for k in kernels if k.text is not None]
        launches = [launch for entry in entries for launch in program.launches(entry.steps)]
        return program_counters(launches, each, self.buffers)

    def _signature(self, entry: Entry) -> Signature:
        read = entry.schedule.inputs  # an update may read a state that its graph does not
        inputs: dict[Hashable, TensorBuffer] = {
            key: read.get(port.name) or self._plain("input", port)
            for key, port in self._inputs(entry).items()
        }
        inputs |= {name: read[name] for name in self.states if name in read}
        computed = list(entry.schedule.outputs.values())[len(entry.counts) :]
        outputs = dict(zip(_outputs(entry), computed, strict=False))
        updates = dict(zip(entry.updates, computed[len(outputs) :], strict=True))
        launches = list(all_launches(entry.schedule.launches))
        return Signature(launches, inputs, outputs, updates)

    def _inputs(self, entry: Entry) -> dict[Hashable, Port]:
        """What a caller gives, in the entry's order, by key."""
        ports = (port for port in entry.graph.inputs if port.name not in self.states)
        return {entry.graph.key(port): port for port in ports}

    def _plain(self, role: str, port: Port | State) -> TensorBuffer:
        """A storage as inputs and states have it: row-major."""
        dtype = self._storage_type(port.dtype)
        return TensorBuffer(role, port.name, dtype, port.shape, plain_layout(port.shape))

    def _steps(
        self, launches: Sequence[Launch | LoopStep], numbers: Mapping[UOp, int]
    ) -> Iterator[program.Launch | program.Loop]:
        for launch in launches:
            if isinstance(launch, LoopStep):
                condition = self.numbers[self.sharing.home(launch.condition)]
                body = tuple(self._steps(launch.launches, numbers))
                yield program.Loop(condition, launch.bound, body)
                continue
            kernel = self.state.kernels[launch.sink]
            yield program.Launch(
                numbers[launch.sink],
                tuple(self.numbers[self.sharing.home(s)] for s in launch.storages),
                self._counts(kernel),
                launch.nodes,
                kernel.flops,
            )

    def _copies(
        self, copies: Sequence[tuple[TensorBuffer, TensorBuffer]]
    ) -> Iterator[program.Copy]:
        for source, destination in copies:
            assert source.dtype is destination.dtype and source.layout == destination.layout
            words = ix.size_mul(source.layout.count(source.shape), source.dtype.itemsize)
            yield program.Copy(
                self.numbers[self.sharing.home(source)],
                self.numbers[destination],
                expression(ix.size_mul(ix.size_ceildiv(words, 4), 4)),
            )

    def _images(self) -> Iterator[program.Image]:
        stored = {number: storage for storage, number in self.numbers.items()}
        for number, storage in sorted(stored.items()):
            layout = storage.layout
            if layout.rows is not None:
                width, height = layout.image(storage.shape)
                pitch = layout.pitch(storage.shape) * storage.dtype.itemsize
                yield program.Image(number, storage.dtype.name, width, height, pitch)

    def _distinct(self) -> tuple[list[Kernel], dict[UOp, int]]:
        """Kernels of which the text differs in more than the name, and every kernel's number."""
        found: dict[Any, int] = {}
        kernels: list[Kernel] = []
        numbers: dict[UOp, int] = {}
        for sink, kernel in self.state.kernels.items():
            assert kernel.text is not None
            text = kernel.source.replace(f"{kernel.name}(", "(", 1)
            arguments = tuple((a.param.dtype, a.written, a.weight) for a in kernel.text.arguments)
            key = (text, kernel.text.geometry.workgroup, arguments)
            if key not in found:
                found[key] = len(kernels)
                kernels.append(kernel)
            numbers[sink] = found[key]
        return kernels, numbers

    def _place(self) -> tuple[program.Arena, ...]:
        """Give every storage a buffer: weights their own, the rest a range of an arena.

        Entries come one after the other: what lives in one of them shares memory with the others.
        """
        spans: dict[TensorBuffer, list[tuple[int, int]]] = {}
        start = end = 0

        def use(storage: TensorBuffer, step: int) -> None:
            of = spans.setdefault(self.sharing.home(storage), [])
            if of and of[-1][0] >= start:
                of[-1] = (of[-1][0], max(step, of[-1][1]))
            else:
                of.append((step, step))

        for storage in self.states.values():
            use(storage, 0)
        for entry, copies in zip(self.state.entries, self.sharing.copies, strict=True):
            launches = list(all_launches(entry.schedule.launches))
            start, end = end, end + len(launches)
            for key in self._inputs(entry):
                use(self.sharing.inputs[key], start)
            for step, launch in enumerate(launches, start):
                for storage in launch.storages:
                    use(storage, step)
            for first, last in _loops(entry.schedule.launches, start):
                for (
                    of
                ) in spans.values():  # what a iteration reads from before it is needed in the next
                    if start <= of[-1][0] < first <= of[-1][1] < last:
                        of[-1] = (of[-1][0], last)
            for key in _outputs(entry):
                use(self.sharing.outputs[key], end)
            for source, destination in copies:
                use(source, end)
                use(destination, end)
            end += 1
        for storage in self.states.values():
            spans[storage] = [(0, end)]
        scratch = [s for s in spans if s.role != "weight"]
        assert all(s.role != "input" or s in self.sharing.inputs.values() for s in scratch)
        lifetimes = [Lifetime(self._bytes(storage), tuple(spans[storage])) for storage in scratch]
        caps = self.state.caps
        placed = plan(lifetimes, caps.alignment, min(caps.buffer_bytes, caps.binding_bytes))
        for storage, (arena, offset) in zip(scratch, placed.places, strict=True):
            self.numbers[storage] = len(self.buffers)
            self.buffers.append(program.Buffer(arena, offset, self._bytes(storage)))
        for storage in spans:
            if storage.role == "weight":
                self._weight(storage)
        return tuple(program.Arena(size) for size in placed.arenas)

    def _storage_type(self, dtype: DType) -> DType:
        if dtype is dt.float16 and "input" in _halves(self.state):
            return dtype
        narrow, storage = _types(self.state)
        computed = narrow.get(dtype.held.name, dtype.held.name)
        return dt.by_name(storage.get(computed, computed))

    def _bytes(self, storage: TensorBuffer) -> int:
        count = maximum(storage.layout.count(storage.shape))
        return max(4, -(-count * storage.dtype.itemsize // 4) * 4)

    def _weight(self, storage: TensorBuffer) -> None:
        assert storage.node is not None
        shape = tuple(int(size) for size in storage.shape)  # type: ignore[arg-type]
        kept = dt.uint32 if storage.bits else storage.dtype
        make = partial(_memory_bytes, storage)
        weight = self._store(storage.name, storage.node.dtype, shape, kept, make)
        layout = storage.layout
        key = (weight, None if layout.rows is None else (storage.shape, layout))
        if key not in self.stored:
            self.stored[key] = len(self.buffers)
            self.buffers.append(program.Buffer(-1, 0, self.weights[weight].bytes, weight))
        self.numbers[storage] = self.stored[key]

    def _store(
        self,
        name: str,
        dtype: DType,
        shape: tuple[int, ...],
        storage: DType,
        make: Callable[[], Array],
    ) -> int:
        """The number of a weight; those that are equal are one, whatever their names.

        make: its bytes. Many of them are not kept, but made again where they are read.
        """
        raw = make()
        key = (dtype, shape, storage, hashlib.sha256(raw.data).digest())
        if key not in self.stored:
            self.stored[key] = len(self.weights)
            content = make if len(raw) > HELD_WEIGHT else raw
            weight = program.Weight(name, dtype.name, shape, storage.name, content, len(raw))
            self.weights.append(weight)
        return self.stored[key]

    def _counts(self, kernel: Kernel) -> tuple[Any, Any, Any]:
        assert kernel.text is not None
        counts = [expression(size) for size in kernel.text.geometry.counts]
        while len(counts) < 3:
            counts.append(1)
        return counts[0], counts[1], counts[2]

    def _kernel(self, kernel: Kernel) -> program.Kernel:
        assert kernel.text is not None
        bindings = tuple(
            program.Binding(_access(a), a.param.dtype.name) for a in kernel.text.arguments
        )
        return program.Kernel(
            kernel.name,
            kernel.source,
            kernel.text.geometry.workgroup,
            bindings,
            tuple(move.record() for move in kernel.moves),
            bool(kernel.text.symbols),
        )

    def _port(self, port: Port, storage: TensorBuffer) -> program.Port:
        return program.Port(
            port.name,
            port.dtype.name,
            tuple(expression(size) for size in port.shape),
            storage.dtype.name,
            self.numbers[storage],
            port.slices,
            port.count,
            port.axis,
        )

    def _state(self, kept: State) -> program.State:
        storage = self.states[kept.name]
        initial = -1
        if kept.initial is not None:
            values = dt.codes(kept.initial).astype(storage.dtype.numpy)
            make = partial(_padded, values)
            initial = self._store(kept.name, kept.dtype, values.shape, storage.dtype, make)
        return program.State(
            kept.name,
            kept.dtype.name,
            tuple(expression(size) for size in kept.shape),
            storage.dtype.name,
            self.numbers[storage],
            initial,
            kept.update,
            kept.axis,
        )


def _outputs(entry: Entry) -> dict[Hashable, Port]:
    """What a caller gets, in the entry's order, by key."""
    return {entry.graph.key(port): port for port in entry.graph.outputs if port.node is not None}


def _loops(launches: Sequence[Launch | LoopStep], start: int) -> Iterator[tuple[int, int]]:
    """The first and the last launch of every loop, counted from `start`."""
    for item in launches:
        if isinstance(item, Launch):
            start += 1
            continue
        count = len(list(all_launches(item.launches)))
        yield start, start + count - 1
        yield from _loops(item.launches, start)
        start += count


def _access(argument: LoweredArg) -> Literal["read", "read_write"]:
    """A buffer of an arena may be bound for both; an image is for one of them."""
    reads = argument.weight or (argument.param.arg.is_image and not argument.written)
    return "read" if reads else "read_write"


def _memory_bytes(storage: TensorBuffer) -> Array:
    """A weight's bytes as they lie in memory."""
    return _padded(stored_array(storage))


def _padded(values: Array) -> Array:
    """An array's bytes, as whole words and at least one of them."""
    raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    padding = -len(raw) % 4
    if padding or not len(raw):
        raw = np.concatenate([raw, np.zeros(padding or 4, np.uint8)])
    return raw


def stored_array(storage: TensorBuffer) -> Array:
    """A weight's values as they lie in memory: converted, in its layout's order, padded with
    zeros.
    """
    data = np.asarray(storage.data)
    if storage.dtype is dt.float16 and data.dtype != np.float16:
        data = np.where(np.isinf(data), data, np.clip(data, -LARGEST_HALF, LARGEST_HALF))
    if not storage.bits:  # else they are packed as they are
        data = data.astype(storage.dtype.numpy, copy=False)
    layout = storage.layout
    ordered = data.transpose(layout.order) if data.ndim else data
    extra = [(0, -size % pad) for size, pad in zip(ordered.shape, layout.pads, strict=True)]
    padded = np.pad(ordered, extra) if any(after for _, after in extra) else ordered
    if storage.bits:
        return pack(padded, storage.bits)
    if layout.rows is None:
        return padded
    rows = padded.reshape(layout.image(storage.shape)[1], -1)
    return np.pad(rows, [(0, 0), (0, layout.pitch(storage.shape) - rows.shape[1])])
