"""The stage "assemble": buffers to memory, launches to steps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.counters import kernel_counters, program_counters, workgroup_bytes
from tinyedge.core.compiler.fp16 import stored_halves
from tinyedge.core.compiler.schedule.forming import LARGEST_FP16
from tinyedge.core.compiler.schedule.launches import (
    ScheduledLaunch,
    ScheduledLoop,
    ScheduledStep,
    all_launches,
)
from tinyedge.core.compiler.schedule.memory import Lifetime, plan
from tinyedge.core.compiler.schedule.packing import pack
from tinyedge.core.compiler.schedule.sharing import Signature, share
from tinyedge.core.compiler.state import Compilation, CompiledEntry, CompiledKernel
from tinyedge.core.compiler.target import LoweredArg
from tinyedge.core.dtype import DType
from tinyedge.core.ir.buffers import TensorBuffer, row_major
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.uop import UOp
from tinyedge.core.program import program
from tinyedge.core.tensor.expressions import declared, expression
from tinyedge.core.tensor.graph import Port, State

HELD_WEIGHT = 1 << 16  # bytes of a weight that are held; those of larger ones are made again

Array = Any


def assemble(state: Compilation) -> None:
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
        symbols = tuple(declared(node) for _, node in sorted(state.symbols.items()))
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
            suffix=state.target.suffix,
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
            prelude=_prelude(state),
            requirements={
                "workgroup_bytes": max((self._shared(k) for k in kernels), default=0),
            },
            options={
                "optimize": state.options.optimize,
                "precision": state.options.precision,
                "profile": state.options.profile,
                "counters": self._counters(kernels, entries),
                **({"winograd": len(state.winograd)} if state.winograd else {}),
                **({"build": state.target.build} if state.target.build else {}),
            },
        )

    def rounded(self) -> frozenset[int]:
        """The buffers of reference values that would be fp16."""
        launches = self.state.launches
        storages = {s for launch in launches for s in launch.storages if s.rounded}
        return frozenset(self.numbers[self.sharing.home(s)] for s in storages)

    def _counters(
        self, kernels: Sequence[CompiledKernel], entries: Sequence[program.Entry]
    ) -> dict[str, int]:
        """What the launches of all entries read and move."""
        each = [kernel_counters(k.text) for k in kernels if k.text is not None]
        launches = [launch for entry in entries for launch in program.launches(entry.steps)]
        return program_counters(launches, each, self.buffers)

    def _signature(self, entry: CompiledEntry) -> Signature:
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

    def _inputs(self, entry: CompiledEntry) -> dict[Hashable, Port]:
        """What a caller gives, in the entry's order, by key."""
        ports = (port for port in entry.graph.inputs if port.name not in self.states)
        return {entry.graph.key(port): port for port in ports}

    def _plain(self, role: str, port: Port | State) -> TensorBuffer:
        """A storage as inputs and states have it: row-major."""
        dtype = self._storage_type(port.dtype)
        return TensorBuffer(role, port.name, dtype, port.shape, row_major(port.shape))

    def _steps(
        self, launches: Sequence[ScheduledStep], numbers: Mapping[UOp, int]
    ) -> Iterator[program.Launch | program.Loop]:
        for launch in launches:
            if isinstance(launch, ScheduledLoop):
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
            words = source.layout.count(source.shape) * source.dtype.itemsize
            yield program.Copy(
                self.numbers[self.sharing.home(source)],
                self.numbers[destination],
                expression(ix.round_up(words, 4)),
            )

    def _images(self) -> Iterator[program.Image]:
        stored = {number: storage for storage, number in self.numbers.items()}
        for number, storage in sorted(stored.items()):
            layout = storage.layout
            if layout.rows is not None:
                width, height = layout.image(storage.shape)
                pitch = layout.pitch(storage.shape) * storage.dtype.itemsize
                yield program.Image(number, storage.dtype.name, width, height, pitch)

    def _distinct(self) -> tuple[list[CompiledKernel], dict[UOp, int]]:
        """Kernels of which the text differs in more than the name, and every kernel's number."""
        found: dict[Any, int] = {}
        kernels: list[CompiledKernel] = []
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
                ) in spans.values():  # what an iteration reads from before it is needed in the next
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
        self.state.alive = placed.live
        for storage, (arena, offset) in zip(scratch, placed.places, strict=True):
            self.numbers[storage] = len(self.buffers)
            self.buffers.append(program.Buffer(arena, offset, self._bytes(storage)))
        for storage in spans:
            if storage.role == "weight":
                self._weight(storage)
        return tuple(program.Arena(size) for size in placed.arenas)

    def _storage_type(self, dtype: DType) -> DType:
        if dtype is dt.float16 and "input" in stored_halves(self.state):
            return dtype
        return self.state.caps.stored_type(self.state.caps.computed_type(dtype))

    def _bytes(self, storage: TensorBuffer) -> int:
        count = maximum(storage.layout.count(storage.shape))
        return max(4, -(-count * storage.dtype.itemsize // 4) * 4)

    def _weight(self, storage: TensorBuffer) -> None:
        assert storage.node is not None
        shape = tuple(int(size) for size in storage.shape)  # type: ignore[arg-type]
        kept = dt.uint32 if storage.bits else storage.dtype
        make = partial(_memory_bytes, storage)
        weight = self._store(storage.name, storage.node.dtype, shape, kept, make, _order(storage))
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
        order: program.Order | None = None,
    ) -> int:
        """The number of a weight; those that are equal are one, whatever their names.

        make: its bytes. Many of them are not kept, but made again where they are read.
        """
        raw = make()
        key = (dtype, shape, storage, hashlib.sha256(raw.data).digest())
        if key not in self.stored:
            self.stored[key] = len(self.weights)
            content = make if len(raw) > HELD_WEIGHT else raw
            self.weights.append(
                program.Weight(name, dtype.name, shape, storage.name, content, len(raw), order)
            )
        return self.stored[key]

    def _counts(self, kernel: CompiledKernel) -> tuple[Any, Any, Any]:
        assert kernel.text is not None
        counts = [expression(size) for size in kernel.text.geometry.grid]
        while len(counts) < 3:
            counts.append(1)
        return counts[0], counts[1], counts[2]

    def _shared(self, kernel: CompiledKernel) -> int:
        """Bytes that the threads of a workgroup share; one that is alone has them for itself."""
        assert kernel.text is not None
        return workgroup_bytes(kernel.text) if self.state.caps.threads > 1 else 0

    def _kernel(self, kernel: CompiledKernel) -> program.Kernel:
        assert kernel.text is not None
        bindings = tuple(
            program.Binding(_access(a, self.state.caps), _element(a)) for a in kernel.text.arguments
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


def _outputs(entry: CompiledEntry) -> dict[Hashable, Port]:
    """What a caller gets, in the entry's order, by key."""
    return {entry.graph.key(port): port for port in entry.graph.outputs if port.node is not None}


def _loops(launches: Sequence[ScheduledStep], start: int) -> Iterator[tuple[int, int]]:
    """The first and the last launch of every loop, counted from `start`."""
    for item in launches:
        if isinstance(item, ScheduledLaunch):
            start += 1
            continue
        count = len(list(all_launches(item.launches)))
        yield start, start + count - 1
        yield from _loops(item.launches, start)
        start += count


def _access(argument: LoweredArg, caps: Caps) -> Literal["read", "read_write"]:
    """How a buffer is bound; an image is for reading or for writing on all devices."""
    in_arena = not argument.weight and not argument.param.arg.is_image
    writes = argument.written or (in_arena and caps.arenas_bound_for_writing)
    return "read_write" if writes else "read"


def _element(argument: LoweredArg) -> str:
    """What a buffer holds. Of `picture` a kernel has another entry point, which takes textures."""
    return "picture" if argument.picture else argument.param.dtype.name


def _order(storage: TensorBuffer) -> program.Order | None:
    """How a weight's elements lie in memory."""
    bits = storage.bits or storage.dtype.bits
    if bits % 8 or storage.layout.rows is not None:
        return None
    shape = tuple(int(size) for size in storage.shape)  # type: ignore[arg-type]
    dimensions = storage.layout.dimensions(shape)
    words = max(1, bits // 32)
    if words > 1:
        wide = [(places, used, step * words) for places, used, step in dimensions]
        dimensions = [*wide, (words, words, 1)]
    return program.Order(bits // 8 // words, tuple(dimensions))


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
        data = np.where(np.isinf(data), data, np.clip(data, -LARGEST_FP16, LARGEST_FP16))
    if not storage.bits:  # else they are packed as they are
        data = data.astype(storage.dtype.numpy, copy=False)
    layout = storage.layout
    ordered = data.transpose(layout.order) if data.ndim else data
    extra = [(0, -size % pad) for size, pad in zip(ordered.shape, layout.pads, strict=True)]
    padded = np.pad(ordered, extra) if any(after for _, after in extra) else ordered
    if layout.panel:
        panels = padded.reshape(*padded.shape[:-1], -1, layout.panel)
        padded = np.moveaxis(panels, -2, 0)
    if storage.bits:
        return pack(padded, storage.bits)
    if layout.rows is None:
        return padded
    rows = padded.reshape(layout.image(storage.shape)[1], -1)
    return np.pad(rows, [(0, 0), (0, layout.pitch(storage.shape) - rows.shape[1])])


def _prelude(state: Compilation) -> str:
    """The text before all kernels."""
    more = state.target.fp64_prelude if state.options.fp64_reference else ""
    return state.target.prelude + more
