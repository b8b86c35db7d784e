"""The device protocol: what a target provides so that a Program can be replayed on it.

Everything a run needs is made beforehand, in this order:

    device = open(...)                          once; a function of each target's `device` module
    memory = device.alloc(bytes)                per arena, weight and symbol table
    kernels = device.compile(program)           per program, all its kernels together
    bound = device.bind(kernel, ranges, table)  per launch
    recording = device.record(commands)         per straight piece of steps and set of sizes

A run is then `upload`, `replay`, `read`: it creates no memory, kernel or binding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Union

import numpy as np

from tinyedge.core.program import Image, Program

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class DeviceInfo:
    """One device that a target can open: its name, and key facts for a listing."""

    target: str
    name: str
    kind: str
    details: str = ""


@dataclass(frozen=True, eq=False)
class Range:
    """A range of a device's memory, as `alloc` returned it. Offset and size in bytes.

    image: how kernels see it, if as an image; the object is the same for each use of a buffer.
    """

    memory: Any
    offset: int
    bytes: int
    image: Image | None = None


@dataclass(frozen=True, eq=False)
class Dispatch:
    """Run a bound kernel over `counts` workgroups. `flops` is an estimate of its work."""

    bound: Any
    counts: tuple[int, int, int]
    flops: int = 0


@dataclass(frozen=True, eq=False)
class Transfer:
    """Copy `source` to `destination`: two ranges of equal size that do not overlap."""

    source: Range
    destination: Range


Command = Union[Dispatch, Transfer]


class Device(Protocol):
    """One open device. Its methods raise DeviceError; it is used from one thread at a time."""

    name: str

    def alloc(self, bytes: int, *, uniform: bool = False) -> Any:
        """New memory of undefined contents, aligned for any kernel. `uniform`: a symbol table."""
        ...

    def free(self, memory: Any) -> None:
        """Give memory back. Bindings and recordings that use it must not be used any more."""
        ...

    def upload(self, destination: Range, data: Bytes) -> None:
        """Write `data`, of the range's size, before everything replayed later."""
        ...

    def compile(self, program: Program) -> Sequence[Any]:
        """The program's kernels, in order, ready to be bound."""
        ...

    def bind(self, kernel: Any, ranges: Sequence[Range], symbols: Range | None) -> Any:
        """A kernel with its buffers; `symbols` is the table of int32 sizes if it takes them."""
        ...

    def record(self, commands: Sequence[Command]) -> Any:
        """A list of commands prepared to be replayed many times."""
        ...

    def replay(self, recording: Any) -> None:
        """Run a recording, in order after all that went before. May return before it is done."""
        ...

    def profile(self, recording: Any) -> list[float]:
        """Run a recording and wait: the seconds that each command took."""
        ...

    def read(self, ranges: Sequence[Range]) -> list[Bytes]:
        """Copies of the ranges' contents after all that was replayed."""
        ...

    def close(self) -> None:
        """Release everything. Closing twice is allowed."""
        ...
