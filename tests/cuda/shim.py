"""Kernels of CUDA C compiled by g++ through shim.h, and launched on the processor."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HEADER = Path(__file__).parent / "shim.h"
# The headers of C alone: those of C++ are most of what a short file has.
FLAGS = (
    *("-std=c++20", "-fPIC", "-shared", "-w", "-fno-gnu-unique"),
    *("-ffp-contract=off", "-fno-strict-aliasing", "-nostdinc++"),
)
OPTIMIZATION = "-O1"  # of long tests: see tests/conftest.py
SANITIZERS = (
    *("-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "-fsanitize-sections=shared",
)
ORDERS = ("forward", "reverse", "random")
KERNEL = re.compile(r'^extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(', re.M)

# From this many kernels on, they are compiled as two files at the same time.
PARALLEL_KERNELS = 12

Places = Sequence[tuple[int, int]]  # addresses and sizes in bytes


class Launch(ctypes.Structure):
    """As in shim.h."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("order", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
    )


@dataclass(frozen=True)
class Shim:
    """How kernels are compiled and run."""

    cache: Path  # a folder
    order: str = "forward"  # of threads and of blocks
    seed: int = 0
    # stop the process at a wrong address or undefined behavior; it must have been started with the
    # address sanitizer's library loaded
    sanitize: bool = False

    def compile(self, text: str) -> ctypes.CDLL:
        """The library of a kernel file; `shim_NAME` in it launches a kernel."""
        flags = (*FLAGS, OPTIMIZATION, *(SANITIZERS if self.sanitize else ()))
        key = hashlib.sha256("\0".join((*flags, HEADER.read_text(), text)).encode()).hexdigest()
        folder = self.cache / "cuda"  # the cpu device deletes libraries of the cache itself
        folder.mkdir(parents=True, exist_ok=True)
        library = folder / f"{key}.so"
        if not library.exists():
            _compile(text, library, flags)
        return ctypes.CDLL(str(library))

    def launch(
        self,
        function: ctypes._NamedFuncPointer,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: int,
    ) -> bool:
        """Run a kernel; whether all its threads met wherever they waited."""
        launch = Launch(grid, block, ORDERS.index(self.order), self.seed)
        return bool(function(ctypes.byref(launch), ctypes.c_void_p(arguments)))

    @contextmanager
    def only(self, memory: Places, bounds: Places) -> Iterator[None]:
        """Let sanitized code touch nothing of `memory` but `bounds`."""
        if not self.sanitize:
            yield
            return
        process = ctypes.CDLL(None)
        poison = process["__asan_poison_memory_region"]
        free = process["__asan_unpoison_memory_region"]
        for function, places in ((poison, memory), (free, bounds)):
            for address, bytes in places:
                function(ctypes.c_void_p(address), ctypes.c_size_t(bytes))
        yield
        for address, bytes in memory:
            free(ctypes.c_void_p(address), ctypes.c_size_t(bytes))


def _compile(text: str, library: Path, flags: tuple[str, ...]) -> None:
    """Compile a kernel file, as two files at the same time if it is long."""
    starts = [match.start() for match in KERNEL.finditer(text)]
    prelude = text[: starts[0]]
    kernels = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    parts = 2 if len(kernels) >= PARALLEL_KERNELS else 1
    stem = f"{library.stem}-{os.getpid()}"  # another process may compile the same
    objects = [library.with_name(f"{stem}-{part}.o") for part in range(parts)]
    running = []
    for part, made in enumerate(objects):
        mine = kernels[part::parts]
        source = made.with_suffix(".cpp")
        source.write_text("\n".join((f'#include "{HEADER}"', prelude, *mine, *map(_entry, mine))))
        command = ["g++", *flags, "-c", str(source), "-o", str(made)]
        running.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    errors = "".join(process.communicate()[1] for process in running)
    assert not any(process.returncode for process in running), errors[:4000]
    linked = library.with_name(f"{stem}.so")
    subprocess.run(["g++", *flags, *map(str, objects), "-o", str(linked)], check=True)
    linked.replace(library)


def _entry(kernel: str) -> str:
    """What launches a kernel: its text says whether its threads wait for each other."""
    found = KERNEL.match(kernel)
    assert found is not None
    waits = "__syncthreads" in kernel or "shuffle" in kernel or "__shfl" in kernel
    return f"SHIM_KERNEL({found[1]}, {int(waits)})\n"
