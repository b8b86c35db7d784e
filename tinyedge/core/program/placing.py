"""Which ports of an entry kernels may find in the caller's memory, instead of in an arena.

A port's buffer is its own: what overlaps it in the arena is for other times. So its kernels can be
given other memory, if all that touch it are kernels, and if none of them writes an input.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tinyedge.core.dtype import by_name
from tinyedge.core.program.device import Bytes, Device, HostDevice, Range
from tinyedge.core.program.ports import aligned, bytes_of
from tinyedge.core.program.program import Copy, Entry, Launch, Loop, Port, Program, Step

LEAST_BYTES = 4096  # fewer are copied sooner than kernels are given other memory


POISON = 0xFF  # a byte: NaN as floats


@dataclass(frozen=True)
class Movable:
    """The buffers of an entry's ports that may lie in the caller's memory."""

    inputs: frozenset[int]
    outputs: frozenset[int]


NOTHING = Movable(frozenset(), frozenset())


class Placing:
    """What one program's kernels find in the caller's memory, on a device that can do that.

    ranges: of the program's buffers. poison: new memory is filled with NaN. moved: during a run,
    the memory that ranges are in.
    """

    def __init__(
        self, program: Program, device: Device, ranges: Sequence[Range], poison: bool
    ) -> None:
        self._device = device if isinstance(device, HostDevice) and device.in_place else None
        self._ranges = ranges
        self._poison = poison
        entries = program.entries if self._device else ()
        self._movable = {entry.name: movable(program, entry) for entry in entries}
        self._allowed = NOTHING
        self.moved: dict[Range, Bytes] = {}

    @contextlib.contextmanager
    def during(self, entry: Entry) -> Iterator[None]:
        """A run of an entry, in which ports may be moved."""
        self._allowed = self._movable.get(entry.name, NOTHING)
        try:
            yield
        finally:
            if self.moved and self._device is not None:
                self._device.place({})
            self._allowed, self.moved = NOTHING, {}

    def take(self, port: Port, content: Bytes) -> bool:
        """Let kernels read an input's bytes where they are; whether they can."""
        whole = self._ranges[port.buffer]
        if port.buffer not in self._allowed.inputs or content.nbytes != whole.bytes:
            return False
        if content.ctypes.data % by_name(port.storage).itemsize:
            return False
        self.moved[whole] = content
        return True

    def make_room(self, ports: Iterable[Port], named: Mapping[str, int]) -> None:
        """New memory for those outputs that kernels can write there."""
        for port in ports:
            whole = self._ranges[port.buffer]
            if port.buffer in self._allowed.outputs and bytes_of(port, named) == whole.bytes:
                self.moved[whole] = aligned(whole.bytes)
                if self._poison:
                    self.moved[whole].fill(POISON)

    def place(self) -> None:
        """Tell the device. Recordings are made before."""
        if self.moved and self._device is not None:
            self._device.place(self.moved)


def movable(program: Program, entry: Entry) -> Movable:
    """The buffers of an entry's ports that kernels may find elsewhere."""
    fixed = set(_fixed(program))
    states = {_place(program, state.buffer) for state in program.states}
    written = set(_written(program))
    inputs, outputs = program.inputs_of(entry).values(), program.outputs_of(entry).values()
    given = Counter(_place(program, port.buffer) for port in {p.buffer: p for p in inputs}.values())
    made = Counter(_place(program, port.buffer) for port in outputs)

    def is_free(port: Port) -> bool:
        buffer = program.buffers[port.buffer]
        own = port.buffer not in fixed and _place(program, port.buffer) not in states
        return own and buffer.weight < 0 and buffer.bytes >= LEAST_BYTES

    return Movable(
        frozenset(
            port.buffer
            for port in inputs
            if is_free(port)
            and port.buffer not in written
            and given[_place(program, port.buffer)] == 1
            and port.buffer not in {output.buffer for output in outputs}
        ),
        frozenset(
            port.buffer
            for port in outputs
            if is_free(port)
            and port.buffer in written
            and not port.count
            and made[_place(program, port.buffer)] == 1
        ),
    )


def _place(program: Program, buffer: int) -> tuple[int, int]:
    return program.buffers[buffer].arena, program.buffers[buffer].offset


def _fixed(program: Program) -> Iterator[int]:
    """The buffers that something else than a kernel touches."""
    for entry in program.entries:
        outputs = program.outputs_of(entry).values()
        counts = {port.count for port in outputs if port.count}
        yield from (port.buffer for port in outputs if port.name in counts)
        for step in _all(entry.steps):
            if isinstance(step, Copy):
                yield from (step.source, step.destination)
            elif isinstance(step, Loop):
                yield step.condition


def _written(program: Program) -> Iterator[int]:
    for entry in program.entries:
        for step in _all(entry.steps):
            if isinstance(step, Launch):
                yield from (step.buffers[i] for i in program.kernels[step.kernel].written)


def _all(steps: Sequence[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        if isinstance(step, Loop):
            yield from _all(step.body)
