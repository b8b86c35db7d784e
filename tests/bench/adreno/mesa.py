"""Compiles OpenCL C by Mesa for an Adreno 630 that is not there, in a process of its own.

`python -m tests.bench.adreno.mesa` is that process.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.adreno import listing
from tests.bench.adreno.launches import Kernel
from tests.bench.worker import Worker, serve

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / ".cache" / "adreno"
MISSING = "Mesa's compiler for Adreno is not built: scripts/setup adreno"


def version() -> str | None:
    """Of Mesa, if it is built."""
    file = FOLDER / "version"
    return file.read_text(encoding="ascii").strip() if file.exists() else None


def environment() -> dict[str, str]:
    """In which the only OpenCL device is the one that is not there, and kernels are printed."""
    return {
        "PYTHONPATH": str(ROOT),
        "LD_PRELOAD": str(FOLDER / "shim.so"),
        "OCL_ICD_VENDORS": str(FOLDER / "vendors"),
        "FD_GPU_ID": "630",
        "IR3_SHADER_DEBUG": "cs",
        "MESA_SHADER_CACHE_DISABLE": "true",
        "RUSTICL_ENABLE": "freedreno",
        "RUSTICL_FEATURES": "fp16",
        "PYOPENCL_NO_CACHE": "1",
    }


def compile_all(kernels: Sequence[Kernel]) -> list[listing.Listing]:
    """The machine code of each. Raises SideError, ValueError."""
    if version() is None:
        raise ValueError(MISSING)
    worker = Worker([sys.executable, "-m", "tests.bench.adreno.mesa"], environment())
    try:
        printed = [worker.ask(kernel)["printed"] for kernel in kernels]
    finally:
        worker.close()
    found = []
    for kernel, text in zip(kernels, printed, strict=True):
        try:
            found.append(listing.read(text))
        except ValueError as error:
            raise ValueError(f"kernel {kernel.name}: {error}") from None
    return found


class _Compiler:
    """Answers a kernel with what the compiler printed."""

    def __init__(self) -> None:
        import pyopencl as cl

        warnings.simplefilter("ignore", cl.CompilerWarning)
        self._cl = cl
        self._context: Any = cl.Context([cl.get_platforms()[0].get_devices()[0]])

    def __call__(self, kernel: Kernel) -> dict[str, Any]:
        cl = self._cl
        before = os.dup(2)
        with tempfile.TemporaryFile() as said:
            os.dup2(said.fileno(), 2)
            try:
                built = cl.Program(self._context, kernel.source).build(kernel.options)
                cl.Kernel(built, kernel.name)
            finally:
                os.dup2(before, 2)
                os.close(before)
            said.seek(0)
            return {"printed": said.read().decode(errors="replace")}


if __name__ == "__main__":
    serve(_Compiler())
