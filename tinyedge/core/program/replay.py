"""The one replay loop: run a Program on a Device, for every target, whoever made the Program.

A Replay owns the memory of one program on one device: arenas, weights, states. It checks what the
caller gives, finds the symbolic sizes in the input shapes, and keeps one recording per straight
piece of steps and set of sizes, so that a run with sizes seen before creates nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

import numpy as np

from tinyedge.core.errors import InternalError, RunError
from tinyedge.core.program.device import Bytes, Command, Device, Dispatch, Range, Transfer
from tinyedge.core.program.inputs import Inputs, Sizes
from tinyedge.core.program.placing import POISON, Placing
from tinyedge.core.program.ports import (
    Array,
    as_array,
    bytes_of,
    decode,
    elements_of,
    encode,
    pad,
    padded,
    quote,
    raw,
    shape_of,
    sizes_error,
)
from tinyedge.core.program.program import (
    Copy,
    Entry,
    Launch,
    Port,
    Program,
    State,
    Step,
    evaluate,
)

# Recordings kept for this many sets of sizes; then the least recently used is dropped.
RECORDED_SIZES = 64
EMPTY = np.empty(0, np.uint8)


@dataclass(frozen=True, eq=False)
class _Straight:
    """Steps without a loop: recorded together."""

    steps: tuple[Launch | Copy, ...]


@dataclass(frozen=True, eq=False)
class _Repeat:
    condition: Range
    bound: int
    body: tuple[_Block, ...]


_Block = Union[_Straight, _Repeat]


class Replay:
    """A program ready to run on a device. Close it, or use it as a context, to free its memory.

    `program` is the given one without its weights' data, which is on the device then.
    poison: fill the arenas with NaN first, which shows reads of memory that nothing wrote.
    """

    def __init__(self, program: Program, device: Device, *, poison: bool = False) -> None:
        self.program = program
        self.device = device
        inputs = {e.name: _by_name(program.inputs_of(e)) for e in program.entries}
        self._poison = poison
        self._given = Inputs(program.symbols, inputs)
        self._outputs = {e.name: _by_name(program.outputs_of(e)) for e in program.entries}
        self._states = {state.name: state for state in program.states}
        self._entries = {entry.name: entry for entry in program.entries}
        self._initial: dict[str, Bytes] = {}
        self._memory: list[Any] = []
        self._bound: dict[int, Any] = {}
        self._blocks: dict[str, tuple[_Block, ...]] = {}
        self._recordings: dict[Sizes, dict[_Straight, Any]] = {}
        self._sizes: Sizes | None = None
        self._greatest = {symbol.name: symbol.max for symbol in program.symbols}
        self._symbols: Range | None = None
        self._kernels: Sequence[Any] = ()
        self._ranges: list[Range] = []
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        program = self.program
        self._kernels = self.device.compile(program)
        arenas = [self._alloc(arena.bytes) for arena in program.arenas]
        if self._poison:
            for arena in arenas:
                self.device.upload(arena, np.full(arena.bytes, POISON, np.uint8))
        weights = [self._alloc(padded(weight.bytes)) for weight in program.weights]
        for weight, memory in zip(program.weights, weights, strict=True):
            content = weight.data
            if content is None:
                raise InternalError(
                    f"weight {weight.name!r}", "its data was not read", id="replay.weight"
                )
            self.device.upload(memory, pad(raw(content), memory.bytes))
        for state in program.states:
            data = program.weights[state.initial].data if state.initial >= 0 else None
            if data is not None:  # a copy: what it lies in is the caller's
                self._initial[state.name] = raw(data).copy()
        stripped = tuple(replace(weight, content=None) for weight in program.weights)
        self.program = replace(program, weights=stripped)
        images = {image.buffer: image for image in program.images}
        for number, buffer in enumerate(program.buffers):
            image = images.get(number)
            if buffer.weight >= 0:
                whole = weights[buffer.weight]
                self._ranges.append(Range(whole.memory, 0, whole.bytes, image))
            else:
                memory = arenas[buffer.arena].memory
                self._ranges.append(Range(memory, buffer.offset, buffer.bytes, image))
        if program.symbols:
            bytes = -(-len(program.symbols) * 4 // 16) * 16
            table = self.device.alloc(bytes, uniform=True)
            self._memory.append(table)
            self._symbols = Range(table, 0, bytes)
        for entry in program.entries:
            self._blocks[entry.name] = self._block(entry.steps)
        self._placing = Placing(program, self.device, self._ranges, self._poison)
        self.reset()

    def _alloc(self, bytes: int) -> Range:
        memory = self.device.alloc(bytes)
        self._memory.append(memory)
        return Range(memory, 0, bytes)

    def _block(self, steps: tuple[Step, ...]) -> tuple[_Block, ...]:
        """Steps as blocks, with every launch bound to its buffers."""
        blocks: list[_Block] = []
        straight: list[Launch | Copy] = []
        for step in steps:
            if isinstance(step, (Launch, Copy)):
                if isinstance(step, Launch):
                    self._bind(step)
                straight.append(step)
                continue
            if straight:
                blocks.append(_Straight(tuple(straight)))
                straight = []
            condition = self._ranges[step.condition]
            condition = Range(condition.memory, condition.offset, 4)
            blocks.append(_Repeat(condition, step.bound, self._block(step.body)))
        if straight:
            blocks.append(_Straight(tuple(straight)))
        return tuple(blocks)

    def _bind(self, launch: Launch) -> None:
        if id(launch) not in self._bound:
            kernel = self.program.kernels[launch.kernel]
            ranges = [self._ranges[buffer] for buffer in launch.buffers]
            symbols = self._symbols if kernel.symbols else None
            bound = self.device.bind(self._kernels[launch.kernel], ranges, symbols)
            self._bound[id(launch)] = bound

    # Running.

    def run(
        self,
        inputs: Mapping[str, Any],
        entry: str | None = None,
        symbols: Mapping[str, int] | None = None,
    ) -> dict[str, Array]:
        """Run an entry (default: the first) and return its outputs by name, named slices included.

        inputs: one array per input of the entry, of exactly the declared dtype and shape; Python
        numbers and lists are converted. symbols: sizes that no input shape determines (default:
        their maxima). An output with a count is cut to its valid leading entries.
        On the host's own processor, whole inputs are read where they lie and results are not
        copied. Raises RunError for a wrong input, DeviceError when the device fails.
        """
        chosen = self._entry(entry)
        with self._placing.during(chosen):
            sizes = self._begin(chosen, inputs, symbols)
            self._place(chosen, sizes)
            self._run(self._blocks[chosen.name], sizes)
            return self._collect(chosen, sizes)

    def advance(self, symbols: Mapping[str, int] | None = None) -> dict[str, int]:
        """Run the first entry, which takes no inputs, on the states as they lie on the device.

        Its outputs stay there. symbols: sizes by name, of which it takes those that it has. Returns
        the value of each.
        """
        chosen = self._entry(None)
        if not self.program.symbols:
            self._run(self._blocks[chosen.name], ())
            return {}
        known = {symbol.name for symbol in self.program.symbols}
        taken = {name: size for name, size in (symbols or {}).items() if name in known}
        sizes = self._begin(chosen, {}, taken)
        self._run(self._blocks[chosen.name], sizes)
        return self._named(sizes)

    def profile(
        self,
        inputs: Mapping[str, Any],
        entry: str | None = None,
        symbols: Mapping[str, int] | None = None,
    ) -> list[tuple[Launch | Copy, float]]:
        """Run an entry and return every launch and copy that ran, in order, with its seconds."""
        chosen = self._entry(entry)
        sizes = self._begin(chosen, inputs, symbols)
        timings: list[tuple[Launch | Copy, float]] = []
        self._run(self._blocks[chosen.name], sizes, timings)
        return timings

    def observe(
        self,
        inputs: Mapping[str, Any],
        entry: str | None,
        symbols: Mapping[str, int] | None,
        after: Callable[[Launch], None],
    ) -> dict[str, Array]:
        """`run`, with `after` called when each launch has run."""
        chosen = self._entry(entry)
        sizes = self._begin(chosen, inputs, symbols)
        self._run(self._blocks[chosen.name], sizes, after=after)
        return self._collect(chosen, sizes)

    @property
    def ranges(self) -> Sequence[Range]:
        """Where the program's buffers lie on the device."""
        return self._ranges

    def time(
        self,
        inputs: Mapping[str, Any],
        entry: str | None = None,
        symbols: Mapping[str, int] | None = None,
    ) -> float:
        """Run an entry and return the seconds from uploaded inputs to outputs on the host."""
        chosen = self._entry(entry)
        sizes = self._begin(chosen, inputs, symbols)
        start = time.perf_counter()
        self._run(self._blocks[chosen.name], sizes)
        self._collect(chosen, sizes)
        return time.perf_counter() - start

    def _entry(self, name: str | None) -> Entry:
        if name is None:
            return self.program.entries[0]
        if name not in self._entries:
            raise RunError(
                f"entry {name!r}",
                "the program has no such entry",
                id="run.entry",
                supported=quote(self._entries),
            )
        return self._entries[name]

    def _begin(
        self, entry: Entry, inputs: Mapping[str, Any], symbols: Mapping[str, int] | None
    ) -> Sizes:
        """Check everything, then upload sizes and the inputs that cannot stay where they are."""
        arrays = self._given.arrays(entry, inputs)
        ports = self._given.ports[entry.name]
        sizes = self._given.solve(ports, arrays, symbols or {})
        encoded = [(ports[name], array) for name, array in arrays.items()]
        contents = [encode(array, port.storage, f"input {port.name!r}") for port, array in encoded]
        for (port, _), content in zip(encoded, contents, strict=True):
            if content.nbytes and not self._placing.take(port, content):
                self.device.upload(self._part(port, content.nbytes), content)
        if self._symbols is not None and sizes != self._sizes:
            table = np.zeros(self._symbols.bytes // 4, "<i4")
            table[: len(sizes)] = sizes
            self.device.upload(self._symbols, table.view(np.uint8))
        self._sizes = sizes
        return sizes

    def _place(self, entry: Entry, sizes: Sizes) -> None:
        self._placing.make_room(self._outputs[entry.name].values(), self._named(sizes))
        if self._placing.moved:
            self._record_all(self._blocks[entry.name], sizes)
            self._placing.place()

    def _record_all(self, blocks: tuple[_Block, ...], sizes: Sizes) -> None:
        for block in blocks:
            if isinstance(block, _Straight):
                self._record(block, sizes)
            else:
                self._record_all(block.body, sizes)

    def _run(
        self,
        blocks: tuple[_Block, ...],
        sizes: Sizes,
        timings: list[tuple[Launch | Copy, float]] | None = None,
        after: Callable[[Launch], None] | None = None,
    ) -> None:
        for block in blocks:
            if isinstance(block, _Straight) and after is not None:
                for step in self._active(block, sizes):
                    self.device.replay(
                        self.device.record([self._command(step, self._named(sizes))])
                    )
                    if isinstance(step, Launch):
                        after(step)
            elif isinstance(block, _Straight):
                recording = self._record(block, sizes)
                if timings is None:
                    self.device.replay(recording)
                else:
                    seconds = self.device.profile(recording)
                    timings.extend(zip(self._active(block, sizes), seconds, strict=True))
            else:
                for _ in range(block.bound):
                    if not self._holds(block.condition):
                        break
                    self._run(block.body, sizes, timings, after)

    def _holds(self, condition: Range) -> bool:
        (content,) = self.device.read([condition])
        return bool(content.view("<i4")[0])

    def _record(self, block: _Straight, sizes: Sizes) -> Any:
        recordings = self._recordings.pop(sizes, None)
        if recordings is None:
            recordings = {}
            if len(self._recordings) >= RECORDED_SIZES:
                del self._recordings[next(iter(self._recordings))]
        self._recordings[sizes] = recordings
        if block not in recordings:
            steps = self._active(block, sizes)
            commands = [self._command(step, self._named(sizes)) for step in steps]
            recordings[block] = self.device.record(commands)
        return recordings[block]

    def _active(self, block: _Straight, sizes: Sizes) -> list[Launch | Copy]:
        """The steps that do something at these sizes: no empty launch, no empty copy."""
        named = self._named(sizes)
        amounts = [_amount(step, named) for step in block.steps]
        if min(amounts, default=0) < 0:
            because = "something in the model has fewer than 0 elements"
            raise sizes_error("the sizes of this run", because, named)
        return [step for step, amount in zip(block.steps, amounts, strict=True) if amount]

    def _command(self, step: Launch | Copy, named: Mapping[str, int]) -> Command:
        if isinstance(step, Launch):
            x, y, z = (evaluate(count, named) for count in step.grid)
            most = math.prod(evaluate(count, self._greatest) for count in step.grid)
            return Dispatch(self._bound[id(step)], (x, y, z), step.flops, most)
        bytes = evaluate(step.bytes, named)
        source, destination = self._ranges[step.source], self._ranges[step.destination]
        return Transfer(
            Range(source.memory, source.offset + step.source_offset, bytes),
            Range(destination.memory, destination.offset + step.destination_offset, bytes),
        )

    def _collect(self, entry: Entry, sizes: Sizes) -> dict[str, Array]:
        """Read the outputs, cut those with a count, add the named slices."""
        named = self._named(sizes)
        ports = self._outputs[entry.name]
        arrays = self._download(list(ports.values()), named)
        results: dict[str, Array] = {}
        for name, port in ports.items():
            array = arrays[name]
            if port.count:
                valid = int(arrays[port.count].reshape(-1)[0])
                most = array.shape[port.count_axis]
                if not 0 <= valid <= most:
                    because = f", but room for {most}"
                    step = "check what computes that number, or export with a greater --bound"
                    if valid < 0:
                        because = ": sizes that must be equal differ, or it counts below 0"
                        step = "check the inputs that these sizes are computed from"
                    raise RunError(
                        f"output {name!r}",
                        f"it has {valid} entries{because}",
                        id="replay.count",
                        next=step,
                    )
                shape = list(array.shape)
                shape[port.count_axis] = valid
                array = array.reshape(-1)[: elements_of(tuple(shape))].reshape(shape)
            results[name] = array
            for part in port.slices:
                place = [slice(None)] * array.ndim
                place[part.axis] = slice(part.start, part.start + part.size)
                results.setdefault(part.name, array[tuple(place)])
        return results

    def _download(
        self, ports: Sequence[Port | State], named: Mapping[str, int]
    ) -> dict[str, Array]:
        known: dict[str, Bytes] = {}
        ranges: dict[str, Range] = {}
        for port in ports:
            known[port.name] = self._placing.moved.get(self._ranges[port.buffer], EMPTY)
            bytes = bytes_of(port, named)
            if bytes and not known[port.name].size:
                ranges[port.name] = self._part(port, bytes)
        if ranges:
            known.update(zip(ranges, self.device.read(list(ranges.values())), strict=True))
        shapes = {port.name: shape_of(port.shape, named) for port in ports}
        return {port.name: decode(known[port.name], port, shapes[port.name]) for port in ports}

    def _part(self, port: Port | State, bytes: int) -> Range:
        """The first bytes of a port's buffer."""
        whole = self._ranges[port.buffer]
        if bytes > whole.bytes:
            raise InternalError(
                f"port {port.name!r}",
                f"it needs {bytes} bytes, its buffer has {whole.bytes}",
                id="replay.buffer",
            )
        return Range(whole.memory, whole.offset, bytes)

    # State.

    def get_state(self, name: str) -> Array:
        """A copy of a state's value, at the sizes of the last run (before any: the maxima)."""
        state = self._state(name)
        return self._download([state], self._named(self._current()))[name]

    def set_state(self, name: str, value: Any) -> None:
        """Give a state a value of its dtype and of its shape at the sizes of the last run."""
        state = self._state(name)
        array = as_array(value, state.dtype, f"state {name!r}")
        shape = shape_of(state.shape, self._named(self._current()))
        if array.shape != shape:
            raise RunError(
                f"state {name!r}",
                f"its shape is {shape}, not {array.shape}",
                id="run.shape",
            )
        content = encode(array, state.storage, f"state {name!r}")
        if content.nbytes:
            self.device.upload(self._part(state, content.nbytes), content)

    def reset(self) -> None:
        """Give every state its initial value."""
        for state in self.program.states:
            whole = self._ranges[state.buffer]
            first = self._initial.get(state.name, np.empty(0, np.uint8))
            self.device.upload(whole, pad(first, whole.bytes))

    def _state(self, name: str) -> State:
        if name not in self._states:
            raise RunError(
                f"state {name!r}",
                "the program has no such state",
                id="run.state",
                supported=quote(self._states),
            )
        return self._states[name]

    def _current(self) -> Sizes:
        if self._sizes is None:
            return tuple(symbol.max for symbol in self.program.symbols)
        return self._sizes

    def _named(self, sizes: Sizes) -> dict[str, int]:
        symbols = self.program.symbols
        return {symbol.name: size for symbol, size in zip(symbols, sizes, strict=True)}

    # The end.

    def close(self) -> None:
        """Free the program's memory; the device stays open."""
        for memory in self._memory:
            self.device.free(memory)
        self._memory.clear()
        self._recordings.clear()
        self._bound.clear()

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _by_name(ports: Mapping[int, Port]) -> dict[str, Port]:
    return {port.name: port for port in ports.values()}


def _amount(step: Launch | Copy, named: Mapping[str, int]) -> int:
    if isinstance(step, Copy):
        return evaluate(step.bytes, named)
    return min(evaluate(count, named) for count in step.grid)
