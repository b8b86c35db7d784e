"""A program on a device with its inputs, as one recording; and the device of each target."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.bench.worker import measure
from tests.study.device import programs
from tests.study.device.programs import Array, Hand
from tinyedge.core.program.device import (
    Command,
    Device,
    Dispatch,
    Range,
    Transfer,
    device_module,
)
from tinyedge.core.program.ports import decode, encode, pad, padded, raw
from tinyedge.core.program.program import Copy, Launch, Program, Step, evaluate

PROFILED = 5  # runs between the device's time stamps
QUEUED = 32  # runs before the queue is waited for


def fresh(target: str) -> tuple[Device, str]:
    """The target's first device, opened, and which clock tells: "cpu" where it is this processor,
    whose seconds depend least on what else runs, "device" where it is another one. Raises
    DeviceError.
    """
    module = device_module(target)
    device: Device = module.open()
    (info, *_) = module.devices()
    software = "cpu" in info.kind.lower() or "processor" in info.kind.lower()
    return device, "cpu" if software else "device"


opened = cache(fresh)  # to the end of the process


def built(program: Program, device: Any) -> Program:
    """With what a device of CUDA loads: its own compiled kernels."""
    if program.target != "cuda" or not hasattr(device, "capability"):
        return program
    from tinyedge.export.bundle.writing import kernel_file
    from tinyedge.targets.cuda import compiler

    architecture = "sm_{}{}".format(*device.capability)
    return replace(program, binaries=compiler.build(kernel_file(program), [architecture], print))


class Replayed:
    """A program of one straight entry without symbols or images, its inputs uploaded once."""

    def __init__(self, device: Device, program: Program, arrays: Mapping[str, Array]) -> None:
        if program.symbols or program.images:
            raise ValueError("a program with symbols or images is replayed by the runtime alone")
        self._device, self._program = device, program
        self._memory: list[Any] = []
        arenas = [self._alloc(arena.bytes) for arena in program.arenas]
        weights = [self._alloc(padded(weight.bytes)) for weight in program.weights]
        for place, weight in zip(weights, program.weights, strict=True):
            assert weight.data is not None
            device.upload(place, pad(raw(weight.data), place.bytes))
        self._places = [
            Range(arenas[b.arena].memory, b.offset, b.bytes) if b.weight < 0 else weights[b.weight]
            for b in program.buffers
        ]
        for port in program.inputs:
            place = self._places[port.buffer]
            content = encode(arrays[port.name], port.storage, f"input {port.name!r}")
            device.upload(Range(place.memory, place.offset, content.size), content)
        self._kernels = device.compile(program)
        self._recording = self.record()

    def record(self) -> Any:
        """Bind the buffers of all launches."""
        steps = self._program.entries[0].steps
        commands = [self._command(step, self._kernels) for step in steps]
        self.launches = sum(isinstance(command, Dispatch) for command in commands)
        return self._device.record(commands)

    def _command(self, step: Step, kernels: Sequence[Any]) -> Command:
        if isinstance(step, Launch):
            ranges = [self._places[buffer] for buffer in step.buffers]
            x, y, z = (evaluate(count, {}) for count in step.grid)
            return Dispatch(self._device.bind(kernels[step.kernel], ranges, None), (x, y, z))
        if not isinstance(step, Copy):
            raise ValueError("a program with loops is replayed by the runtime alone")
        bytes = evaluate(step.bytes, {})
        source, destination = self._places[step.source], self._places[step.destination]
        return Transfer(
            Range(source.memory, source.offset + step.source_offset, bytes),
            Range(destination.memory, destination.offset + step.destination_offset, bytes),
        )

    def _alloc(self, bytes: int) -> Range:
        memory = self._device.alloc(bytes)
        self._memory.append(memory)
        return Range(memory, 0, bytes)

    def run(self) -> None:
        self.repeat(1)

    def repeat(self, times: int) -> None:
        """So many runs, to their end."""
        for number in range(times):
            self.submit()
            if number % QUEUED == QUEUED - 1:
                self.wait()
        self.wait()

    def submit(self) -> None:
        self._device.replay(self._recording)

    def wait(self) -> None:
        """Until all that was submitted is done: a number of the output is read."""
        end = self._places[self._program.outputs[0].buffer]
        self._device.read([Range(end.memory, end.offset, 4)])

    def device_seconds(self) -> float:
        """Of a run, without what is between its launches: the median by the device's clock."""
        samples = [sum(self._device.profile(self._recording)) for _ in range(PROFILED)]
        return statistics.median(samples)

    def outputs(self) -> dict[str, Array]:
        places = [self._places[port.buffer] for port in self._program.outputs]
        found = {}
        contents = self._device.read(places)
        for port, content in zip(self._program.outputs, contents, strict=True):
            shape = tuple(evaluate(size, {}) for size in port.shape)
            found[port.name] = decode(content, port, shape)
        return found

    def close(self) -> None:
        for memory in self._memory:
            self._device.free(memory)


def by_hand(device: Device, target: str, hand: Hand) -> tuple[Replayed, Array]:
    """A variant, run once, and its result."""
    program = built(hand.program(target), device)
    replayed = Replayed(device, program, hand.arrays)
    replayed.run()
    return replayed, hand.result(replayed.outputs()["y"])


class Fastest:
    """An operation by hand in the fastest of its variants."""

    def __init__(
        self,
        device: Device,
        clock: str,
        target: str,
        kind: str,
        arrays: list[Array],
        weights: list[Array],
        numbers: Mapping[str, int],
    ) -> None:
        self.seconds: dict[str, float] = {}
        best: tuple[float, Replayed, Array] | None = None
        for hand in programs.variants(target, kind, arrays, weights, numbers):
            replayed, result = by_hand(device, target, hand)
            taken = seconds(replayed, clock)
            self.seconds[hand.name] = taken
            if best is None or taken < best[0]:
                best, replayed = (taken, replayed, result), best[1] if best else None
            if replayed is not None:
                replayed.close()
        assert best is not None
        _, self.replayed, self.result = best


def seconds(replayed: Replayed, clock: str) -> float:
    """The least of a few runs."""
    if clock == "device":
        return replayed.device_seconds()
    count = max(1, min(50, round(0.01 / max(1e-6, measure(replayed.run, 1)["cpu"]))))
    tries = [measure(lambda: replayed.repeat(count), 1)["cpu"] / count for _ in range(3)]
    return min(tries)


def fma_limit(device: Device, target: str, clock: str) -> float:
    """Operations a second of multiplies and adds in registers."""
    groups, turns = (4096, 4096) if clock == "device" else (64, 4096)
    hand = programs.fma_loop(target, groups, turns)
    replayed, _ = by_hand(device, target, hand)
    taken = min(seconds(replayed, clock) for _ in range(3))
    replayed.close()
    return hand.flops / taken


def bundle_program(path: Path) -> Program:
    """A bundle's, with its weights."""
    from tinyedge.export.bundle.reading import read

    program: Program = read(path).program
    return program
