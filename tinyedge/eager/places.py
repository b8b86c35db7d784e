"""Devices that tensors are computed on, one of each name a process."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import Any

from tinyedge.core.errors import DeviceError, InputError
from tinyedge.core.program.device import Range, device_module, forked

REFERENCE = "reference"


class Place:
    """A device by its target's name; or `reference`, which computes with numpy, and slowly.

    As a context, tensors of constants are computed on it: `with tinyedge.device("webgpu"):`. It is
    opened when it is first used.
    """

    def __init__(self, name: str, device: str | None = None, cache: Path | None = None) -> None:
        self.name = name
        self.programs: OrderedDict[Any, Any] = OrderedDict()  # compiled graphs, the last used last
        self._wanted, self._cache = device, cache
        self._lock = threading.RLock()
        self._unused: list[weakref.ref[Any]] = []
        self._owned: dict[weakref.ref[Any], Callable[[], None]] = {}
        self._before: list[Any] = []
        _places.add(self)

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    @property
    def is_reference(self) -> bool:
        return self.name == REFERENCE

    @cached_property
    def target(self) -> Any:
        """What compiles for it."""
        return importlib.import_module(f"tinyedge.targets.{self.name}.target").TARGET

    @cached_property
    def device(self) -> Any:
        """The open device. Raises DeviceError."""
        try:
            return self._open()
        except DeviceError as error:
            if error.id != "device.compiler":
                raise
            raise DeviceError(
                error.subject,
                error.because,
                id=error.id,
                supported=error.supported,
                next=f"{error.next}; tinyedge.device({REFERENCE!r}) computes with numpy instead, "
                "slowly",
            ) from None

    def _open(self) -> Any:
        module = device_module(self.name)
        options = {"cache": self._cache} if self.name == "cpu" else {}
        return module.open(self._wanted, **options)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """The device for one thread."""
        process = self.device.process
        if process not in (None, os.getpid()):
            raise forked(f"the {self.name} device", process)
        with self._lock:
            yield

    def allocate(self, bytes: int) -> Range:
        """New memory, after what nothing refers to any more was given back."""
        while self._unused:
            self._owned.pop(self._unused.pop())()
        return Range(self.device.alloc(max(bytes, 4)), 0, bytes)

    def owns(self, thing: Any, release: Callable[[], None]) -> None:
        """Call `release` some time after the thing is gone, and before memory is asked for.

        Not at once: Python drops things anywhere, also in the middle of a call of the device.
        """
        self._owned[weakref.ref(thing, self._unused.append)] = release

    def __enter__(self) -> Place:
        self._before.append(_current.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._before.pop())


_places: weakref.WeakSet[Place] = weakref.WeakSet()
_open: dict[tuple[str, str | None, Path | None], Place] = {}
_current: ContextVar[Place | None] = ContextVar("tinyedge device", default=None)


def names() -> tuple[str, ...]:
    """The devices that there are: by targets, and numpy."""
    targets = importlib.import_module("tinyedge.targets").__path__
    return *sorted(each.name for each in pkgutil.iter_modules(targets)), REFERENCE


def device(name: str = "cpu", device: str | None = None, cache: str | Path | None = None) -> Place:
    """A device to compute tensors on.

    Args:
        name: A target's: "cpu", "webgpu", "cuda" or "qcom"; or "reference", numpy.
        device: A part of the device's own name, as `tinyedge devices` lists them; default: the
            first.
        cache: For "cpu", a folder of the user's alone, in which compiled kernels are kept for other
            processes; default: they are compiled in each.

    Raises:
        InputError: There is no such target. What cannot be opened raises DeviceError when it is
            first used.
    """
    key = name, device, None if cache is None else Path(cache)
    if key in _open:
        return _open[key]
    if name not in names():
        raise InputError(
            f"device {name!r:.80}",
            "there is no such target",
            id="target.name",
            supported=", ".join(names()),
        )
    return _open.setdefault(key, Place(*key))


def current() -> Place:
    """The device of the innermost `with`, else the cpu."""
    return _current.get() or device("cpu")


def _after_fork() -> None:
    """A child has one thread: no other will give back the locks that it held at the fork."""
    for place in _places:
        place._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
