"""The cpu device: C kernels compiled by the system compiler, called through ctypes.

A kernel is

    void NAME(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end)

and runs the workgroups begin..end of a one-dimensional grid. Workgroups are independent, so a large
launch is divided among threads without changing its result; see threads.py. One thread calls them
as they come; see sequence.py.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np

from tinyedge.core.errors import DeviceError, InternalError
from tinyedge.core.program.device import Bytes, Command, DeviceInfo, Dispatch, Range, Transfer
from tinyedge.core.program.program import Kernel, Launch, Loop, Program, Step
from tinyedge.targets.cpu import compiler as compilers
from tinyedge.targets.cpu import sequence
from tinyedge.targets.cpu import threads as pools
from tinyedge.targets.cpu.compiler import Compiler, Library, Unit

ALIGNMENT = 64

# From this many kernels on, they are compiled as two files at the same time.
PARALLEL_KERNELS = 8

# So many characters of kernels of little work are worth a file of their own, in which the compiler
# reads the prelude again.
TEXT_APART = 1 << 14

GUARD_BYTES = 4096
GUARD_PATTERN = 0xA5


class Memory:
    """Aligned host memory, with a guard before and behind it if asked for."""

    def __init__(self, bytes: int, guard: bool) -> None:
        margin = GUARD_BYTES if guard else 0
        self._whole = np.empty(bytes + 2 * margin + ALIGNMENT, np.uint8)
        first = self._whole.ctypes.data
        start = -first % ALIGNMENT + margin
        self.array: Bytes = self._whole[start : start + bytes]
        self.address = first + start
        self._guards = [self._whole[:start], self._whole[start + bytes :]] if guard else []
        for part in self._guards:
            part.fill(GUARD_PATTERN)

    def check(self) -> None:
        """Raise InternalError if something wrote into a guard."""
        for side, part in zip(("before", "behind"), self._guards, strict=False):
            if (part != GUARD_PATTERN).any():
                raise InternalError("a kernel", f"it wrote {side} its arena", id="device.guard")


@dataclass(frozen=True, eq=False)
class _Kernel:
    """A compiled kernel; keeps its library loaded."""

    name: str
    address: int | None
    written: tuple[bool, ...]  # of its buffers
    library: Library


@dataclass(frozen=True, eq=False)
class _Bound:
    """A kernel and its arguments as C sees them. `memory` keeps them alive."""

    kernel: _Kernel
    called: pools.Kernel
    buffers: ctypes.Array[ctypes.c_void_p]
    symbols: int | None
    memory: tuple[Memory, ...]


_Use = tuple["ctypes.Array[ctypes.c_void_p]", int]  # the addresses of a launch, and which of them


class CpuDevice:
    """The machine's own processor. See `open` for the options."""

    def __init__(
        self,
        compiler: Compiler,
        optimization: Sequence[str],
        threads: int,
        cache: Path | None,
        guard: bool,
        little_work: int,
    ) -> None:
        self.name = f"{_processor()}, {compiler.version}"
        self.process: int | None = None
        self.in_place = not guard  # what a caller gives has no guards
        self._compiler = compiler
        self._optimization = tuple(optimization)
        self._threads = min(threads, os.cpu_count() or 1)
        self._cache = cache
        self._guard = guard
        self._little_work = little_work
        self._memory: set[Memory] = set()
        self._runner: pools.Pool | sequence.Caller | None = None
        # of each range, where launches have its address
        self._uses: WeakKeyDictionary[Range, list[_Use]] = WeakKeyDictionary()
        self._moved: Mapping[Range, Bytes] = {}

    def alloc(self, bytes: int, *, uniform: bool = False) -> Memory:
        """Host memory aligned to a cache line."""
        try:
            memory = Memory(bytes, self._guard)
        except (MemoryError, ValueError):
            raise DeviceError(
                "the cpu device", f"it cannot allocate {bytes} bytes", id="device.memory"
            ) from None
        self._memory.add(memory)
        return memory

    def free(self, memory: Memory) -> None:
        """Forget memory; it goes when the last binding to it does."""
        self._memory.discard(memory)

    def upload(self, destination: Range, data: Bytes) -> None:
        """Copy bytes into memory."""
        start = destination.offset
        destination.memory.array[start : start + destination.bytes] = data

    def copy(self, source: Range, destination: Range) -> None:
        """Copy bytes from memory to memory."""
        start, end = source.offset, source.offset + source.bytes
        self.upload(destination, source.memory.array[start:end])

    def compile(self, program: Program) -> list[_Kernel]:
        """Compile all kernels of a program into one library and look them up."""
        kernels = program.kernels
        if not kernels:
            return []
        library = compilers.build(
            self._units(program), self._compiler, self._optimization, self._cache
        )
        compiled = []
        for kernel in kernels:
            try:
                function = library[kernel.name]
            except AttributeError:
                raise InternalError(
                    f"kernel {kernel.name!r}",
                    "its source defines no such function",
                    id="device.kernel",
                ) from None
            address = ctypes.cast(function, ctypes.c_void_p).value
            written = tuple(binding.access == "read_write" for binding in kernel.bindings)
            compiled.append(_Kernel(kernel.name, address, written, library))
        return compiled

    def _units(self, program: Program) -> list[Unit]:
        """The kernels in one or two files: those of little work apart from the others."""
        kernels = program.kernels
        done = work(program)
        little = [kernel for n, kernel in enumerate(kernels) if done[n] < self._little_work]
        much = [kernel for n, kernel in enumerate(kernels) if done[n] >= self._little_work]
        apart = sum(len(kernel.source) for kernel in little) >= TEXT_APART
        if little and much and apart:
            return [_unit(program, much), _unit(program, little, ("-O0",))]
        flags = () if much else ("-O0",)
        several = len(kernels) >= PARALLEL_KERNELS and (apart or not little)
        parts = 2 if several and (os.cpu_count() or 1) > 1 else 1
        return [_unit(program, group, flags) for group in _divide(kernels, parts)]

    def bind(self, kernel: _Kernel, ranges: Sequence[Range], symbols: Range | None) -> _Bound:
        """The argument arrays of a launch, made once."""
        addresses = [place.memory.address + place.offset for place in ranges]
        buffers = (ctypes.c_void_p * len(addresses))(*addresses)
        for number, place in enumerate(ranges):
            self._uses.setdefault(place, []).append((buffers, number))
        touched = [
            pools.KernelBuffer(place.bytes, written)
            for place, written in zip(ranges, kernel.written, strict=True)
        ]
        called = pools.Kernel(
            kernel.name.encode(),
            kernel.address,
            (pools.KernelBuffer * len(touched))(*touched),
            len(touched),
        )
        memory = tuple(place.memory for place in ranges)
        if symbols is None:
            return _Bound(kernel, called, buffers, None, memory)
        table = symbols.memory.address + symbols.offset
        return _Bound(kernel, called, buffers, table, (*memory, symbols.memory))

    def place(self, moved: Mapping[Range, Bytes]) -> None:
        """Give launches the addresses of other memory than they were bound to."""
        for place in self._moved:
            self._give(place, place.memory.address + place.offset)
        for place, content in moved.items():
            self._give(place, content.ctypes.data)
        self._moved = dict(moved)

    def _give(self, place: Range, address: int) -> None:
        for buffers, number in self._uses.get(place, ()):
            buffers[number] = address

    def record(self, commands: Sequence[Command]) -> Any:
        """The commands as C sees them, for threads with which of them wait for which."""
        made = [
            self._launch(command) if isinstance(command, Dispatch) else self._copy(command)
            for command in commands
        ]
        if self._threads == 1:
            return sequence.Recording(made, commands)
        return pools.Recording(self._functions(), made, commands)

    def _functions(self) -> pools.Functions:
        return pools.functions(self._compiler, cached=self._cache is not None)

    def _launch(self, command: Dispatch) -> pools.Command:
        x, y, z = command.grid
        bound: _Bound = command.bound
        if (y, z) != (1, 1) or not 0 <= x < 2**31:
            raise InternalError(
                f"kernel {bound.kernel.name!r}",
                f"a launch of {(x, y, z)} workgroups; the cpu target has one dimension",
                id="device.counts",
            )
        return pools.Command(
            ctypes.pointer(bound.called),
            ctypes.cast(bound.buffers, ctypes.POINTER(ctypes.c_void_p)),
            bound.symbols,
            amount=x,
            most=command.most or x,
            flops=command.flops,
        )

    def _copy(self, command: Transfer) -> pools.Command:
        ends = (command.destination, command.source)
        addresses = (ctypes.c_void_p * 2)(*(end.memory.address + end.offset for end in ends))
        bytes = command.source.bytes
        return pools.Command(None, addresses, None, bytes, bytes)

    def _running(self) -> Any:
        """The threads of this process."""
        if self._runner is None or self._runner.process != os.getpid():
            if self._threads == 1:
                self._runner = sequence.Caller()
            else:
                self._runner = pools.Pool(self._functions(), self._threads)
        return self._runner

    def replay(self, recording: Any) -> None:
        """Run a recording to its end."""
        self._running().run(recording)

    def profile(self, recording: Any) -> list[float]:
        """Run a recording, timing each command by the host's clock."""
        runner = self._running()
        seconds = []
        for number in range(len(recording.commands)):
            start = time.perf_counter()
            runner.run_one(recording, number)
            seconds.append(time.perf_counter() - start)
        return seconds

    def read(self, ranges: Sequence[Range]) -> list[Bytes]:
        """Copies of the ranges; checks the guards."""
        if self._guard:
            for memory in self._memory:
                memory.check()
        return [
            place.memory.array[place.offset : place.offset + place.bytes].copy() for place in ranges
        ]

    def close(self) -> None:
        """End the threads, forget the memory."""
        if self._runner is not None:
            self._runner.close()
        self._runner = None
        self._memory.clear()


def open(
    device: str | None = None,
    *,
    requirements: Mapping[str, Any] | None = None,
    compiler: str | Sequence[str] | None = None,
    optimization: Sequence[str] = compilers.DEFAULT_OPTIMIZATION,
    threads: int | None = None,
    cache: Path | Literal["default"] | None = "default",
    guard: bool = False,
    little_work: int = 0,
) -> CpuDevice:
    """Open the cpu device.

    device: its name; there is one. requirements: a program's; memory is all that it can lack.
    compiler: a command line such as "clang"; default: what the machine has, else the ziglang wheel.
    optimization: compiler flags before the fixed ones.
    threads: default: the usable processors; more than there are processors are not started. For one
    nothing but the kernels is compiled.
    cache: folder for compiled kernels; default: in the user's cache folder; None: no cache.
    guard: surround memory by a pattern and check it at every read.
    little_work: what a kernel does in a run, operations and numbers written, below which it is
    compiled without optimization: for a program that runs once.
    Raises DeviceError if there is no C compiler.
    """
    if device not in (None, "cpu"):
        raise DeviceError(
            f"device {device!r}",
            "the cpu target has one device",
            id="device.adapter",
            supported="cpu",
        )
    folder = compilers.cache_folder() if cache == "default" else cache
    count = max(1, _usable_processors() if threads is None else threads)
    return CpuDevice(compilers.find(compiler), optimization, count, folder, guard, little_work)


def lacking(requires: Sequence[str]) -> list[str]:
    """Those of some instruction sets that this processor lacks. Raises DeviceError if there is no C
    compiler.
    """
    has = pools.functions(compilers.find(), cached=True).has if requires else None
    return [word for word in requires if has is not None and not has(word.encode("ascii"))]


def devices() -> list[DeviceInfo]:
    """The processor, if there is a C compiler."""
    try:
        version = compilers.find().version
    except DeviceError:
        return []
    return [DeviceInfo("cpu", _processor(), f"{_usable_processors()} threads", version)]


def _usable_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    return platform.processor() or platform.machine() or "cpu"


def _unit(program: Program, kernels: Sequence[Kernel], flags: tuple[str, ...] = ()) -> Unit:
    return Unit("\n".join((program.prelude, *(kernel.source for kernel in kernels))), flags)


def work(program: Program) -> Counter[int]:
    """By a kernel's number, its operations and the numbers that it writes, in a run of each entry
    and in all iterations of loops.
    """
    done: Counter[int] = Counter()

    def add(steps: Sequence[Step], times: int) -> None:
        for step in steps:
            if isinstance(step, Launch):
                places = program.kernels[step.kernel].written
                written = sum(program.buffers[step.buffers[place]].bytes // 4 for place in places)
                done[step.kernel] += times * (step.flops + written)
            elif isinstance(step, Loop):
                add(step.body, times * step.bound)

    for entry in program.entries:
        add(entry.steps, 1)
    return done


def _divide(kernels: Sequence[Kernel], parts: int) -> list[list[Kernel]]:
    """Kernels in `parts` groups of about equal source length, in order within each."""
    groups: list[list[Kernel]] = [[] for _ in range(parts)]
    lengths = [0] * parts
    for kernel in kernels:
        least = lengths.index(min(lengths))
        groups[least].append(kernel)
        lengths[least] += len(kernel.source)
    return groups
