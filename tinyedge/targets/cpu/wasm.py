"""Kernels of C to WebAssembly, at export.

The `ziglang` package compiles them, which brings clang and a C library for WebAssembly: once for
every engine that has SIMD, and once with relaxed SIMD, where a product and a sum are one
instruction.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from tinyedge.core.errors import DeviceError, InternalError
from tinyedge.targets.cpu.compiler import ziglang, ziglang_environment

TARGET_FLAGS = ("-target", "wasm32-wasi", "-O3")
FLAGS = (*TARGET_FLAGS, "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-w", "-msimd128")
# The module takes its memory from the page, which keeps its buffers from 1 MiB on: below lie the
# stack and what the kernels' text declares.
STACK_BYTES = 2**18
MEMORY_BYTES = 2**20
LINK = (
    *("-Wl", "--no-entry", "--import-memory", "--strip-all", "-z", f"stack-size={STACK_BYTES}"),
    f"--initial-memory={MEMORY_BYTES}",
)
# The modules that a bundle holds, and what each of them is compiled with beside.
MODULES = {"kernels-00001.wasm": (), "kernels-00002.wasm": ("-mrelaxed-simd",)}

KERNEL = re.compile(r"^void (\w+)\(void \*const \*buffers,", re.MULTILINE)
MESSAGE_LINES = 20


def check(architectures: Sequence[str]) -> tuple[str, ...]:
    """No architectures: there is one of WebAssembly. Raises DeviceError without a compiler."""
    _zig()
    return ()


def build(text: str, architectures: Sequence[str], warn: Callable[[str], None]) -> dict[str, bytes]:
    """The kernels' file compiled: modules by the names of the bundle's files.

    Equal text and versions give equal bytes. Raises InternalError with the compiler's message if
    it refuses the text.
    """
    with tempfile.TemporaryDirectory(prefix="tinyedge-") as name:
        folder = Path(name)
        (folder / "kernels.c").write_text(text, encoding="ascii")
        arguments = "void *const *, const int32_t *, int32_t, int32_t"
        declared = (
            f'__attribute__((export_name("{kernel}"))) void {kernel}({arguments});'
            for kernel in KERNEL.findall(text)
        )
        lines = ["#include <stdint.h>", *declared, '#include "kernels.c"', ""]
        (folder / "module.c").write_text("\n".join(lines), encoding="ascii")
        return {file: _compile(folder, file, flags) for file, flags in MODULES.items()}


def versions(architectures: Sequence[str]) -> list[str]:
    """What compiles, for the bundle's record."""
    return [f"wasm by ziglang {metadata.version('ziglang')}"]


def _zig() -> Path:
    """The program that compiles. Raises DeviceError."""
    program = ziglang()
    if program is None:
        raise DeviceError(
            "compiling for WebAssembly",
            "it needs the package ziglang, and it is not there",
            id="device.compiler",
            next="pip install 'tinyedge[cpu]'",
        )
    return program


def _compile(folder: Path, file: str, flags: Sequence[str]) -> bytes:
    """A module. It is linked without its flags, so that all have one C library, which ziglang
    compiles when it is first needed and keeps.
    """
    _run(folder, *FLAGS, *flags, "-c", "module.c", "-o", "module.o")
    linked = (*TARGET_FLAGS, "-mexec-model=reactor", ",".join(LINK))
    _run(folder, *linked, "module.o", "-o", file)
    return (folder / file).read_bytes()


def _run(folder: Path, *arguments: str) -> None:
    result = subprocess.run(
        [_zig(), "cc", *arguments],
        cwd=folder,
        env=ziglang_environment(folder / "cache"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"it ended with {result.returncode}"]
        raise InternalError(
            "the kernels",
            "ziglang refused them:\n    " + "\n    ".join(lines[:MESSAGE_LINES]),
            id="device.compile",
            next="report it with the model and the command",
        )
