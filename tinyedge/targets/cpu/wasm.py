"""Kernels of C to WebAssembly, at export.

The `ziglang` package compiles them, which brings clang and a C library for WebAssembly: once for
every engine that has SIMD, and once with relaxed SIMD, where a product and a sum are one
instruction.
"""

from __future__ import annotations

import logging
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from tinyedge.core.errors import DeviceError
from tinyedge.targets.cpu.compiler import full_disk_told, run, ziglang, ziglang_environment

TARGET_FLAGS = ("-target", "wasm32-wasi", "-O3")
FLAGS = (*TARGET_FLAGS, "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-w", "-msimd128")
# The module takes its memory from the page, which keeps its buffers from 1 MiB on: below lie the
# stack and what the kernels' text declares.
STACK_BYTES = 2**18
MEMORY_BYTES = 2**20
LINK = (
    *("-Wl", "--no-entry", "--import-memory", "--strip-all", "-z", f"stack-size={STACK_BYTES}"),
    f"--initial-memory={MEMORY_BYTES}",
    # A most that the page may say is shared by threads, of which each sets its own stack.
    *(f"--max-memory={2**32 - 2**16}", "--export=__stack_pointer"),
)
# The modules that a bundle holds, and what each of them is compiled with beside.
MODULES = {"kernels-00001.wasm": (), "kernels-00002.wasm": ("-mrelaxed-simd",)}

_log = logging.getLogger("tinyedge")

# Where ziglang keeps what it makes once, as it says it (in JSON, or in its own notation).
_KEPT_IN = re.compile(r'global_cache_dir"?\s*[:=]\s*"([^"]+)"')

KERNEL = re.compile(r"^void (\w+)\(void \*const \*buffers,", re.MULTILINE)


def check(architectures: Sequence[str]) -> tuple[str, ...]:
    """No architectures: there is one of WebAssembly. Raises DeviceError without a compiler."""
    _zig()
    return ()


def build(text: str, architectures: Sequence[str], warn: Callable[[str], None]) -> dict[str, bytes]:
    """The kernels' file compiled: modules by the names of the bundle's files.

    Equal text and versions give equal bytes. Raises DeviceError with the compiler's message if it
    refuses the text, and where a disk is full.
    """
    with full_disk_told(), tempfile.TemporaryDirectory(prefix="tinyedge-") as name:
        folder = Path(name)
        (folder / "kernels.c").write_text(text, encoding="ascii")
        arguments = "void *const *, const int32_t *, int32_t, int32_t"
        declared = (
            f'__attribute__((export_name("{kernel}"))) void {kernel}({arguments});'
            for kernel in KERNEL.findall(text)
        )
        lines = ["#include <stdint.h>", *declared, '#include "kernels.c"', ""]
        (folder / "module.c").write_text("\n".join(lines), encoding="ascii")
        _compile(folder)
        return {file: (folder / file).read_bytes() for file in MODULES}


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
            next="pip install '.[cpu]' in a checkout of tinyedge",
        )
    return program


def _compile(folder: Path) -> None:
    """The modules. They are linked without their flags, so that all have one C library, which
    ziglang compiles when it is first needed and keeps.
    """
    compiling = [
        [*FLAGS, *flags, "-c", "module.c", "-o", f"{file}.o"] for file, flags in MODULES.items()
    ]
    linked = (*TARGET_FLAGS, "-mexec-model=reactor", ",".join(LINK))
    linking = [[*linked, f"{file}.o", "-o", file] for file in MODULES]
    environment = ziglang_environment(folder / "cache")
    _say_what_takes_long(environment)
    for commands in (compiling, linking):
        run([[str(_zig()), "cc", *each] for each in commands], folder, environment)


def _say_what_takes_long(environment: Mapping[str, str]) -> None:
    """Warn where ziglang has kept no C library yet."""
    asked = subprocess.run(
        [str(_zig()), "env"], env=environment, capture_output=True, text=True, check=False
    )
    found = _KEPT_IN.search(asked.stdout)
    if found is None:
        return
    place = found[1].replace(r"\\", "\\")
    if not any(Path(place).glob("o/*/libc.a")):
        _log.warning(
            "compiling for WebAssembly: ziglang first makes its C library, which takes about a "
            f"minute, and keeps it in {place}"
        )
