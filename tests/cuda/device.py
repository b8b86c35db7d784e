"""The cuda device of the tests: a real one where there is one, else the same over the shim.

Either compiles a program's kernels when it is loaded, for itself; a bundle's are not used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.cuda.driver import FakeDriver
from tests.cuda.shim import Shim
from tinyedge.core.program.device import Range
from tinyedge.core.program.program import Program
from tinyedge.export.bundle.writing import kernel_file
from tinyedge.targets.cuda import compiler
from tinyedge.targets.cuda import device as cuda

Compile = Callable[[str], Mapping[str, bytes]]


class CompilingDevice(cuda.CudaDevice):
    """compile_text: the compiled files of a kernel file, for this device."""

    def __init__(self, module: Any, ordinal: int, compile_text: Compile) -> None:
        super().__init__(module, ordinal)
        self._compile_text = compile_text
        self._bounds: dict[int, list[tuple[int, int]]] = getattr(module, "bounds", {})

    def compile(self, program: Program) -> Any:
        binaries = self._compile_text(kernel_file(program)) if program.kernels else {}
        return super().compile(replace(program, binaries=binaries))

    def bind(self, kernel: Any, ranges: Sequence[Range], symbols: Range | None) -> Any:
        bound = super().bind(kernel, ranges, symbols)
        places = [*ranges, symbols] if symbols is not None else ranges
        found = [(place.memory.address + place.offset, place.bytes) for place in places]
        self._bounds[ctypes.addressof(bound.pointers)] = found
        return bound


def open(shim: Shim) -> CompilingDevice:
    """The machine's first CUDA device, else, and for sanitizers, one over the shim."""
    if cuda.devices() and not shim.sanitize:
        real = cuda.open()
        architecture = "sm_{}{}".format(*real.capability)
        module = real._driver.module
        real.close()
        return CompilingDevice(module, 0, lambda text: compiler.build(text, [architecture], print))
    return CompilingDevice(FakeDriver(shim), 0, lambda text: {"kernels-00087.ptx": text.encode()})
