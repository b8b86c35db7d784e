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

import importlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Union, runtime_checkable

import numpy as np

from tinyedge.core.errors import DeviceError, InternalError
from tinyedge.core.program.program import Image, Program

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
    """A range of a device's memory, as `alloc` returned it. Offset and size in bytes."""

    memory: Any
    offset: int
    bytes: int
    # how kernels see it, if as an image; the object is the same for each use of a buffer
    image: Image | None = None


@dataclass(frozen=True, eq=False)
class Dispatch:
    """Run a bound kernel over a `grid` of workgroups. `flops` is an estimate of its work."""

    bound: Any
    grid: tuple[int, int, int]
    flops: int = 0
    # the workgroups for which `flops` is; 0: those of grid
    most: int = 0


@dataclass(frozen=True, eq=False)
class Transfer:
    """Copy `source` to `destination`: two ranges of equal size that do not overlap."""

    source: Range
    destination: Range


Command = Union[Dispatch, Transfer]


class Device(Protocol):
    """One open device. Its methods raise DeviceError; it is used from one thread at a time.

    process: the only process that may use it, as a driver's threads and its connection to the
    device do not survive a fork; None: forked children may, on their copy of its memory.
    """

    name: str
    process: int | None

    def alloc(self, bytes: int, *, uniform: bool = False) -> Any:
        """New memory of undefined contents, aligned for any kernel. `uniform`: a symbol table."""
        ...

    def free(self, memory: Any) -> None:
        """Give memory back. Bindings and recordings that use it must not be used any more."""
        ...

    def upload(self, destination: Range, data: Bytes) -> None:
        """Write `data`, of the range's size, before everything replayed later."""
        ...

    def copy(self, source: Range, destination: Range) -> None:
        """Copy between ranges of one size, after everything replayed before."""
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


@runtime_checkable
class HostDevice(Device, Protocol):
    """A device whose kernels work in the host's memory. in_place: in the caller's, too."""

    in_place: bool

    def place(self, moved: Mapping[Range, Bytes]) -> None:
        """Let the kernels that were bound to these ranges use the given bytes instead, as many and
        aligned to their elements, until the next call; those of other ranges are where they were.
        Recordings are made before. Copies do not follow.
        """
        ...


def device_module(target: str) -> Any:
    """The module with a target's `open` and `devices`, which load its driver when called."""
    return importlib.import_module(f"tinyedge.targets.{target}.device")


def load_driver(target: str, module: str, package: str, *, id: str) -> Any:
    """The module of a package through which a target's driver is called.

    Raises DeviceError where the package is missing, or fails in any way of its own.
    """
    try:
        return importlib.import_module(module)
    except Exception as error:
        cause, next = f"{type(error).__name__}: {one_line(error)}", _again(package)
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            cause, next = one_line(error), f"pip install '.[{target}]' in a checkout of tinyedge"
        raise DeviceError(
            f"the {target} device",
            f"the package {package} cannot be imported: {cause}",
            id=id,
            next=next,
        ) from None


def _again(package: str) -> str:
    return f"install it again (pip install --force-reinstall {package}), or the driver it loads"


# Which process first called the driver of a target, and the lock that lets one thread at a time
# look for devices and open them.
_driver_processes: dict[str, int] = {}
_driver_lock = threading.Lock()


@contextmanager
def opening(target: str) -> Iterator[None]:
    """Look for a target's devices, or open one, while no other thread does.

    Raises DeviceError in a process that was forked from one that called the driver before: there
    the driver would wait for threads that the fork did not copy.
    """
    process = _driver_processes.setdefault(target, os.getpid())
    if process != os.getpid():  # before the lock: another thread may have held it at the fork
        raise forked(f"the {target} device", process)
    with _driver_lock:
        yield


def forked(subject: str, process: int) -> DeviceError:
    """The error of using in a child what the parent, `process`, set up before the fork."""
    return DeviceError(
        subject,
        f"process {process} called its driver, then forked this one, {os.getpid()}: a driver's "
        "threads and its connection to the device do not survive a fork",
        id="device.fork",
        next="fork first and load the bundle in each child, or start processes by the method "
        "'spawn' (multiprocessing.get_context('spawn'))",
    )


def choose(target: str, names: Sequence[str], device: int | str | None, driver: str) -> int:
    """The place of a device among those of these names.

    device: its place, or a part of its name; default: the first. driver: what to do where there is
    none. Raises DeviceError.
    """
    if device is None and names:
        return 0
    if isinstance(device, int) and 0 <= device < len(names):
        return device
    if isinstance(device, str):
        for place, name in enumerate(names):
            if device.lower() in name.lower():
                return place
    wanted = "" if device is None else f" called {device!r}"
    raise DeviceError(
        f"the {target} device",
        f"there is no device{wanted}",
        id="device.adapter",
        supported="; ".join(names) or "none found",
        next="name a part of one of these (tinyedge devices), or leave the device out"
        if names
        else driver,
    )


def one_line(error: BaseException) -> str:
    """An error's text on one line."""
    return " ".join(str(error).split())


@contextmanager
def errors(
    subject: str,
    name: str,
    memory: type[Exception],
    misuse: type[Exception],
    other: type[Exception],
) -> Iterator[None]:
    """A driver's errors as ours: `memory` and `other` are the device's, `misuse` is our mistake.

    subject: what was done; name: the device's.
    """
    try:
        yield
    except memory as error:
        raise DeviceError(
            subject,
            f"{name} is out of memory: {one_line(error)}",
            id="device.memory",
            next="close what else uses the device, or choose smaller sizes",
        ) from None
    except misuse as error:
        raise InternalError(subject, one_line(error), id="device.validation") from None
    except other as error:
        raise DeviceError(
            subject,
            f"{name} failed: {one_line(error)}",
            id="device.lost",
            next="open the device again",
        ) from None
