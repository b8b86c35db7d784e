"""A device of numpy arrays whose kernels are Python functions: tests the replay loop alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinyedge.core.program.device import Bytes, Command, Dispatch, Range
from tinyedge.core.program.program import Program

Function = Callable[..., None]


class FakeDevice:
    """Counts every call in `calls`. A kernel's function gets its buffers as float32 arrays."""

    name = "fake"

    def __init__(self, functions: Mapping[str, Function] | None = None) -> None:
        self.functions = dict(functions or {})
        self.calls: Counter[str] = Counter()
        self.live = 0

    def alloc(self, bytes: int, *, uniform: bool = False) -> Any:
        self.calls["alloc"] += 1
        self.live += 1
        return np.zeros(bytes, np.uint8)

    def free(self, memory: Any) -> None:
        self.live -= 1

    def upload(self, destination: Range, data: Bytes) -> None:
        self.calls["upload"] += 1
        assert data.nbytes == destination.bytes
        _view(destination)[:] = data

    def copy(self, source: Range, destination: Range) -> None:
        self.upload(destination, self.read([source])[0])

    def compile(self, program: Program) -> Sequence[Any]:
        self.calls["compile"] += 1
        return [self.functions.get(kernel.name) for kernel in program.kernels]

    def bind(self, kernel: Any, ranges: Sequence[Range], symbols: Range | None) -> Any:
        self.calls["bind"] += 1
        table = None if symbols is None else _view(symbols).view(np.int32)
        return kernel, [_view(place).view(np.float32) for place in ranges], table

    def record(self, commands: Sequence[Command]) -> Any:
        self.calls["record"] += 1
        return commands

    def replay(self, recording: Any) -> None:
        self.calls["replay"] += 1
        for command in recording:
            if isinstance(command, Dispatch):
                function, buffers, table = command.bound
                function(command.grid, *buffers, *([] if table is None else [table]))
            else:
                _view(command.destination)[:] = _view(command.source)

    def profile(self, recording: Any) -> list[float]:
        self.replay(recording)
        return [0.5] * len(recording)

    def read(self, ranges: Sequence[Range]) -> list[Bytes]:
        self.calls["read"] += 1
        return [_view(place).copy() for place in ranges]

    def close(self) -> None:
        pass


def _view(place: Range) -> Any:
    return place.memory[place.offset : place.offset + place.bytes]
