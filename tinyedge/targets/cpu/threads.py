"""Launches and copies run by the C runtime's own threads, for the cpu device.

What waits for what, who runs which part, and which instruction sets the processor has, is decided
by C files that bundles carry, too; here they are compiled as they are and called through ctypes.
"""

from __future__ import annotations

import ctypes
import os
import re
import weakref
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from tinyedge.core.errors import DeviceError
from tinyedge.targets.cpu.compiler import Compiler, Library, Unit, build, cache_folder

# Files of the C runtime, by path: this room imports nothing of export.
FOLDER = Path(__file__).resolve().parents[2] / "export" / "package" / "c"
FILES = ("tinyedge_cpu_threads.c", "tinyedge_cpu_tasks.c", "tinyedge_cpu_features.c")

# Without pthread there is one thread. What takes time are the kernels, so more optimization would
# only make the first run wait longer.
FLAGS = ("-O1", "-DTINYEDGE_NO_THREADS") if os.name == "nt" else ("-O1", "-pthread")


class KernelBuffer(ctypes.Structure):
    """te_kernel_buffer: the bytes that a kernel touches, and whether it writes them."""

    _fields_ = (("bytes", ctypes.c_int64), ("written", ctypes.c_bool))


class Kernel(ctypes.Structure):
    """te_kernel."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("buffers", ctypes.POINTER(KernelBuffer)),
        ("count", ctypes.c_size_t),
    )


class Command(ctypes.Structure):
    """te_command: a launch, or without a kernel a copy from the second buffer to the first."""

    _fields_ = (
        ("kernel", ctypes.POINTER(Kernel)),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("symbols", ctypes.c_void_p),
        ("amount", ctypes.c_int64),  # workgroups or bytes
        ("most", ctypes.c_int64),  # the same at the greatest sizes
        ("flops", ctypes.c_int64),  # at these, an estimate
    )


class Task(ctypes.Structure):
    """te_task: commands [first, end), which wait until `after` of the tasks are done."""

    _fields_ = tuple(
        (name, ctypes.c_uint32) for name in ("first", "end", "after", "parts", "ticket", "left")
    )


class Functions:
    """The C files, compiled."""

    def __init__(self, library: Library) -> None:
        self._library = library  # keeps it loaded
        self.plan = library["te_plan_tasks"]
        self.plan.restype = ctypes.c_uint32
        self.divide = library["te_divide_tasks"]
        self.divide.restype = ctypes.c_bool
        self.bytes = library["te_pool_bytes"]
        self.bytes.restype = ctypes.c_size_t
        self.start = library["te_pool_start"]
        self.start.restype = ctypes.c_bool
        self.run = library["te_pool_run"]
        self.stop = library["te_pool_stop"]
        self.run.restype = self.stop.restype = None
        self.has = library["te_processor_has"]
        self.has.restype, self.has.argtypes = ctypes.c_bool, [ctypes.c_char_p]


@lru_cache
def functions(compiler: Compiler, *, cached: bool) -> Functions:
    """The C files, compiled once in a process; cached: and kept in the user's cache folder.

    Raises DeviceError as `build` does.
    """
    included: list[str] = []
    unit = Unit("\n".join(_text(name, included) for name in FILES))
    return Functions(build([unit], compiler, FLAGS, cache_folder() if cached else None))


class Recording:
    """Commands, and the tasks that they are for threads. `kept`: the memory that they point to."""

    def __init__(self, functions: Functions, commands: Sequence[Command], kept: object) -> None:
        self.commands = (Command * len(commands))(*commands)
        self.tasks = (Task * len(commands))()
        self.count: int = functions.plan(self.commands, 0, len(commands), self.tasks)
        self._kept = kept


class Pool:
    """Threads in the process that made them: `threads`, with the one that calls `run`."""

    def __init__(self, functions: Functions, threads: int) -> None:
        self.process = os.getpid()
        self._run = functions.run
        self._memory = ctypes.create_string_buffer(functions.bytes(threads))
        started = functions.start(self._memory, threads)
        self._end = weakref.finalize(self, _stop, functions, self._memory, self.process)
        if not started:
            self.close()
            raise DeviceError(
                "the cpu device",
                f"not all of {threads} threads could be started",
                id="device.threads",
                next="open it with fewer threads",
            )

    def run(self, recording: Recording) -> None:
        """Run all commands of a recording, and wait for them."""
        end = len(recording.commands)
        if end:
            self._run(self._memory, recording.commands, recording.tasks, end)

    def run_one(self, recording: Recording, number: int) -> None:
        """Run one command by itself."""
        task = Task(first=number, end=number + 1, parts=1)
        self._run(self._memory, recording.commands, ctypes.byref(task), number + 1)

    def close(self) -> None:
        """End the threads. Closing twice is allowed."""
        self._end()


def _stop(functions: Functions, memory: ctypes.Array[ctypes.c_char], process: int) -> None:
    if process == os.getpid():  # a fork copies no threads
        functions.stop(memory)


def _text(name: str, included: list[str]) -> str:
    """A file's text with that of our headers in place, for the cache knows libraries by it."""
    included.append(name)

    def header(found: re.Match[str]) -> str:
        return "" if found[1] in included else _text(found[1], included)

    text = (FOLDER / name).read_text(encoding="ascii")
    return re.sub(r'^#include "(.+)"$', header, text, flags=re.MULTILINE)
