"""Launches and copies called from Python, one after the other, for a cpu device of one thread.

Nothing is compiled for that but the kernels. For more threads there is threads.py.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tinyedge.targets.cpu.threads import Command

_KERNEL = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 2, *(ctypes.c_int32,) * 2)


class Recording:
    """The commands as calls; None where one does nothing. `kept`: the memory that they point to."""

    def __init__(self, commands: Sequence[Command], kept: object) -> None:
        self.commands = commands
        self.calls = [_call(command) for command in commands]
        self._kept = kept


class Caller:
    """The thread that calls `run`, in the place of a pool."""

    def __init__(self) -> None:
        self.process = os.getpid()

    def run(self, recording: Recording) -> None:
        """Run all commands of a recording."""
        for call in recording.calls:
            if call is not None:
                call()

    def run_one(self, recording: Recording, number: int) -> None:
        """Run one command by itself."""
        call = recording.calls[number]
        if call is not None:
            call()

    def close(self) -> None:
        """There is nothing to end."""


def _call(command: Command) -> Callable[[], Any] | None:
    if not command.amount:
        return None
    if not command.kernel:
        destination, source = command.buffers[:2]
        return partial(ctypes.memmove, destination, source, command.amount)
    buffers = ctypes.cast(command.buffers, ctypes.c_void_p).value
    kernel = _KERNEL(command.kernel.contents.function)
    return partial(kernel, buffers, command.symbols, 0, command.amount)
