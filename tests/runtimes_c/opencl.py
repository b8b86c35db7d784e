"""The C runtime on OpenCL devices, by way of opencl_shim.c, which counts and changes answers."""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.runtimes_c import build
from tests.runtimes_c.library import Create, Library, OpenCl

# What the shim can be asked to say otherwise, see clGetDeviceInfo and clGetImageInfo.
TYPE, MAX_WORK_GROUP_SIZE, ADDRESS_BITS, MAX_MEM_ALLOC_SIZE = 0x1000, 0x1004, 0x100D, 0x1010
IMAGE2D_MAX_WIDTH, IMAGE2D_MAX_HEIGHT, IMAGE_SUPPORT = 0x1011, 0x1012, 0x1016
MAX_PARAMETER_SIZE, MEM_BASE_ADDR_ALIGN, GLOBAL_MEM_SIZE = 0x1017, 0x1019, 0x101F
LOCAL_MEM_SIZE, ENDIAN_LITTLE, PROFILE, UNIFIED_MEMORY = 0x1023, 0x1026, 0x102E, 0x1035
IMAGE_PITCH_ALIGNMENT, IMAGE_ROW_PITCH = 0x104A, 0x1112

NO_MEMORY, OUT_OF_RESOURCES, INVALID_VALUE = -4, -5, -30

# All that may be called between creation and destruction.
IN_A_RUN = {
    *("clEnqueueNDRangeKernel", "clEnqueueCopyBuffer", "clEnqueueFillBuffer", "clFlush"),
    *("clEnqueueMapBuffer", "clEnqueueUnmapMemObject", "clEnqueueMarkerWithWaitList"),
    *("clEnqueueWriteBuffer", "clFinish", "clWaitForEvents", "clReleaseEvent"),
}


class OpenclLibrary(Library):
    """The runtime for a bundle of qcom. driver: the OpenCL library, None for the machine's own."""

    backend = "te_opencl"

    def __init__(self, bundle: Path, runtime: Path, driver: Path | None = None) -> None:
        super().__init__(bundle, runtime)
        self.driver = driver

    def create_options(self, **fields: Any) -> Create:
        opencl = fields.pop("opencl", None) or OpenCl()
        if self.driver is not None and not opencl.library:
            opencl.library = str(self.driver).encode()
        return super().create_options(opencl=opencl, **fields)


@dataclass(frozen=True)
class Shim:
    """The library between the runtime and the driver."""

    file: Path

    @cached_property
    def c(self) -> c.CDLL:
        library = c.CDLL(str(self.file))
        for name in ("shim_count", "shim_calls", "shim_alive", "shim_mapped", "shim_bytes"):
            getattr(library, name).restype = c.c_long
        library.shim_called.restype = c.c_char_p
        library.shim_fail.argtypes = [c.c_long, c.c_int]
        library.shim_answer.argtypes = [c.c_uint32, c.c_uint64]
        return library

    def start(self, *answers: tuple[int, int]) -> None:
        """Count from zero; the device's answers are changed to these."""
        self.c.shim_start()
        for what, value in answers:
            self.c.shim_answer(what, value)

    def fail(self, number: int, code: int) -> None:
        """The call of that number, 1 for the next, fails."""
        self.c.shim_fail(number, code)

    def count(self, *names: str) -> int:
        return sum(int(self.c.shim_count(name.encode())) for name in names)

    def calls(self) -> int:
        """Since the start, or the last fail."""
        return int(self.c.shim_calls())

    def bytes(self) -> int:
        """Of all buffers made since the start."""
        return int(self.c.shim_bytes())

    def called(self) -> set[str]:
        names: bytes = self.c.shim_called()
        return set(names.decode().split())

    def check(self) -> None:
        """All objects were given back, nothing is mapped."""
        assert (self.c.shim_alive(), self.c.shim_mapped()) == (0, 0)


def built_shim(folder: Path) -> Shim:
    out = folder / "libshim.so"
    flags = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared")
    build.run(build.CC, *flags, "-o", out, build.HERE / "opencl_shim.c", "-ldl")
    return Shim(out)


def built_runtime(folder: Path) -> Path:
    """The runtime with its backend for OpenCL, as a library."""
    out = folder / "libtinyedge.so"
    flags = (*build.STRICT, "-O1", "-g", "-fPIC", "-shared")
    build.run(build.CC, *flags, "-o", out, *build.sources("qcom"), "-pthread", "-lm", "-ldl")
    return out
