"""Kernels to machine code (cubin) and to PTX, by NVRTC: a library, no driver and no GPU needed.

Which NVRTC matters: a driver loads PTX and cubins of its own CUDA version and of older ones. The
newest one found is used, but for Jetson Orin the newest one that JetPack 6 can load.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tinyedge.core.errors import DeviceError, InputError, InternalError

Warn = Callable[[str], None]
Version = tuple[int, int]

DEFAULT_ARCHITECTURES = ("sm_87",)
LEAST_ARCHITECTURE = 75

# Architectures of which the usual driver is older than the newest NVRTC: its CUDA version.
DRIVERS: dict[str, tuple[Version, str]] = {"sm_87": ((12, 6), "JetPack 6")}

OPTIONS = ("--std=c++17", "--disable-warnings")
FILE = "kernels.cu"
MESSAGE_LINES = 20

INSTALL = "pip install '.[cuda]' in a checkout of tinyedge"


@dataclass(frozen=True, eq=False)
class Nvrtc:
    """A loaded NVRTC: its CUDA version and the architectures that it compiles for."""

    library: ctypes.CDLL
    version: Version
    architectures: tuple[str, ...]

    def __str__(self) -> str:
        return "NVRTC {}.{}".format(*self.version)


def check(architectures: Sequence[str]) -> tuple[str, ...]:
    """The architectures as they are compiled for: sorted, each once; none: the default ones.

    Raises InputError for one that no installed NVRTC knows, DeviceError without any NVRTC.
    """
    found = _installed()
    known = sorted({name for nvrtc in found for name in nvrtc.architectures}, key=number)
    for name in architectures:
        if name not in known:
            raise InputError(
                f"architecture {name!r}",
                "no installed NVRTC compiles for it",
                id="option.arch",
                supported=", ".join(known),
                next="name the compute capability of the GPU: sm_87 for Jetson Orin (8.7)",
            )
    return tuple(sorted(set(architectures or DEFAULT_ARCHITECTURES), key=number))


def number(architecture: str) -> int:
    """The compute capability as in file names: 87 for sm_87."""
    return int(architecture.removeprefix("sm_"))


def build(text: str, architectures: Sequence[str], warn: Warn) -> dict[str, bytes]:
    """The kernel file compiled for each architecture: cubin and PTX by the name of their file.

    Equal text and versions give equal bytes. warn is told which driver will not load the result.
    Raises InternalError with the compiler's message if it refuses the text.
    """
    files: dict[str, bytes] = {}
    for name in check(architectures):
        nvrtc = _choose(name, warn)
        cubin, ptx = _compile(nvrtc, text, name)
        files[f"kernels-{number(name):05}.cubin"] = cubin
        files[f"kernels-{number(name):05}.ptx"] = ptx
    return files


def versions(architectures: Sequence[str]) -> list[str]:
    """What compiles for each architecture, for the bundle's record: "sm_87 by NVRTC 12.6"."""
    return [f"{name} by {_choose(name, lambda text: None)}" for name in check(architectures)]


def _choose(architecture: str, warn: Warn) -> Nvrtc:
    """The newest NVRTC for an architecture, but none that its usual driver cannot load."""
    usable = [nvrtc for nvrtc in _installed() if architecture in nvrtc.architectures]
    if architecture not in DRIVERS:
        return usable[0]
    version, system = DRIVERS[architecture]
    for nvrtc in usable:
        if nvrtc.version <= version:
            return nvrtc
    oldest = usable[-1]
    name = "{}.{}".format(*version)
    warn(
        f"{architecture} is compiled by {oldest}: {system}, with its driver of CUDA {name}, cannot "
        f"load that; pip install 'nvidia-cuda-nvrtc-cu12=={name}.*' and export again"
    )
    return oldest


def _compile(nvrtc: Nvrtc, text: str, architecture: str) -> tuple[bytes, bytes]:
    library = nvrtc.library
    program = ctypes.c_void_p()
    source, name = text.encode("ascii"), FILE.encode()
    _check(nvrtc, library.nvrtcCreateProgram(ctypes.byref(program), source, name, 0, None, None))
    try:
        options = [f"--gpu-architecture={architecture}".encode(), *(o.encode() for o in OPTIONS)]
        array = (ctypes.c_char_p * len(options))(*options)
        if library.nvrtcCompileProgram(program, len(options), array):
            log = _part(nvrtc, program, "ProgramLog").rstrip(b"\0").decode("utf-8", "replace")
            raise _refusal(nvrtc, text, architecture, log)
        ptx = _part(nvrtc, program, "PTX").rstrip(b"\0")
        return _part(nvrtc, program, "CUBIN"), ptx
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _part(nvrtc: Nvrtc, program: ctypes.c_void_p, name: str) -> bytes:
    """What a compiled program holds: its log, PTX or cubin."""
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc.library, f"nvrtcGet{name}Size")(program, ctypes.byref(size)))
    content = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc.library, f"nvrtcGet{name}")(program, content))
    return content.raw


def _check(nvrtc: Nvrtc, result: int) -> None:
    if result:
        because = nvrtc.library.nvrtcGetErrorString(result).decode()
        raise InternalError(str(nvrtc), because, id="device.compile", next="report it")


def _refusal(nvrtc: Nvrtc, text: str, architecture: str, log: str) -> InternalError:
    """The compiler's message, with the name of the first kernel that it is about."""
    lines = [line for line in log.splitlines() if line.strip()]
    named = re.search(rf"^{re.escape(FILE)}\((\d+)\): error", log, re.MULTILINE)
    before = text.split("\n")[: int(named[1])] if named else []
    kernels = re.findall(
        r"__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(", "\n".join(before)
    )
    if len(lines) > MESSAGE_LINES:
        lines = [*lines[:MESSAGE_LINES], "..."]
    return InternalError(
        f"kernel {kernels[-1]!r}" if kernels else "the kernels",
        f"{nvrtc} for {architecture} refused it:\n    " + "\n    ".join(lines),
        id="device.compile",
        next="report it with the model and the command",
    )


# Finding NVRTC.


def _installed() -> tuple[Nvrtc, ...]:
    """Every NVRTC of the machine, the newest first. Raises DeviceError if there is none."""
    found = _search()
    if not found:
        raise DeviceError(
            "compiling for cuda",
            "it needs NVRTC, and there is none",
            id="device.compiler",
            supported="packages nvidia-cuda-nvrtc and nvidia-cuda-nvrtc-cu12, or a CUDA toolkit",
            next=INSTALL,
        )
    return found


@lru_cache
def _search() -> tuple[Nvrtc, ...]:
    by_version: dict[Version, Nvrtc] = {}
    for place in _places():
        nvrtc = _load(place)
        if nvrtc is not None:
            by_version.setdefault(nvrtc.version, nvrtc)
    return tuple(by_version[version] for version in sorted(by_version, reverse=True))


def _places() -> Iterator[str]:
    """Where NVRTC may lie: in its packages, then where the system looks for libraries."""
    pattern = "nvrtc64_*_0.dll" if os.name == "nt" else "libnvrtc.so.*"
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations or () if found is not None else ():
        yield from (str(file) for file in sorted(Path(folder).glob(f"*/*/{pattern}")))
    if os.name != "nt":
        yield from ("libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so")


def _load(place: str) -> Nvrtc | None:
    """The NVRTC of a file, or nothing if that does not load or is too old."""
    try:
        library = ctypes.CDLL(place)
        functions = library.nvrtcVersion, library.nvrtcGetSupportedArchs, library.nvrtcGetCUBIN
    except (OSError, AttributeError):
        return None
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    functions[0](ctypes.byref(major), ctypes.byref(minor))
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    functions[1](numbers)
    known = tuple(f"sm_{each}" for each in numbers if each >= LEAST_ARCHITECTURE)
    return Nvrtc(library, (major.value, minor.value), known)
