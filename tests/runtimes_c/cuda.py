"""The C runtime on CUDA devices: a real one, or fake_cuda.c with kernels by tests/cuda/shim.py."""

from __future__ import annotations

import ctypes as c
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.cuda.shim import Shim
from tests.runtimes_c import build
from tests.runtimes_c.library import Create, Cuda, Library
from tinyedge.core.program.program import Program
from tinyedge.export.bundle.golden import Golden
from tinyedge.export.bundle.reading import read
from tinyedge.export.bundle.writing import kernel_file
from tinyedge.export.package.c_bundle import runtime_files
from tinyedge.export.package.package import write_bundle
from tinyedge.targets.cuda import compiler

COMPILED = re.compile(r"kernels-(\d{5})\.(cubin|ptx)")

Fact = int | str


class CudaLibrary(Library):
    """The runtime for a bundle of cuda. driver: the file of libcuda, None for the machine's own."""

    backend = "te_cuda"

    def __init__(self, bundle: Path, runtime: Path, driver: Path | None) -> None:
        super().__init__(bundle, runtime)
        self.driver = driver

    def create_options(self, **fields: Any) -> Create:
        cuda = fields.pop("cuda", None) or Cuda()
        if self.driver is not None and not cuda.library:
            cuda.library = str(self.driver).encode()
        return super().create_options(cuda=cuda, **fields)


@dataclass(frozen=True)
class FakeCuda:
    """The fake driver, and what a library needs to run on it."""

    driver: Path
    runtime: Path
    shim: Shim
    integrated: bool = False

    @cached_property
    def c(self) -> c.CDLL:
        """Its functions; it is the one that the runtime loads."""
        library = c.CDLL(str(self.driver))
        library.fake_faults.restype = c.c_char_p
        library.fake_calls.restype = c.c_long
        library.fake_hash.restype = c.c_uint64
        return library

    def describe(self, bundle: Path, facts: Mapping[str, Fact | None] | None = None) -> Path:
        """A file that says what the device is, with what each compiled file of a bundle does.

        facts: more of fake_cuda.c's, None for none. Written beside the bundle.
        """
        all_facts: dict[str, Fact | None] = {"device": "a fake Orin", "capability": 87}
        all_facts |= {"integrated": int(self.integrated), **(facts or {})}
        lines = [f"{name} {value}" for name, value in all_facts.items() if value is not None]
        program = read(bundle).program
        if program.kernels:
            library = self.shim.compile((bundle / "kernels.cu").read_text("ascii"))._name
        for file in sorted(bundle.iterdir()):
            if found := COMPILED.fullmatch(file.name):
                image = file.read_bytes()
                number = self.c.fake_hash(image, c.c_size_t(len(image)))
                lines.append(f"module {number:x} {found[2]} {int(found[1])} {library}")
        for kernel in program.kernels:
            count = len(kernel.bindings) + kernel.symbols
            lines.append(f"kernel {kernel.name} {count} {' '.join(map(str, kernel.workgroup))}")
        out = bundle.with_name(f"{bundle.name}.device")
        out.write_text("\n".join([*lines, ""]))
        return out

    def open(self, bundle: Path, **facts: Fact | None) -> CudaLibrary:
        """The runtime for a bundle, on a new device."""
        self.start(self.describe(bundle, facts))
        return CudaLibrary(bundle, self.runtime, self.driver)

    def start(self, description: Path, *facts: str) -> None:
        """A new device: all that was with another one is forgotten."""
        self.c.fake_start(str(description).encode())
        for fact in facts:
            self.c.fake_fact(fact.encode())

    def taken(self) -> int:
        """Bytes of all memory that is allocated."""
        self.c.fake_bytes.restype = c.c_uint64
        count: int = self.c.fake_bytes()
        return count

    def calls(self, name: str | None = None) -> int:
        """How often a function of the driver was called; None: any."""
        count: int = self.c.fake_calls(name.encode() if name else None)
        return count

    def check(self) -> None:
        """Nothing was used in a wrong way, and all was given back."""
        faults: bytes = self.c.fake_faults()
        assert not faults, faults.decode()
        alive: int = self.c.fake_alive()
        assert not alive, f"{alive} things were not given back"


def built_driver(folder: Path) -> Path:
    """fake_cuda.c as libcuda.so.1, alone in a folder."""
    folder.mkdir()
    out = folder / "libcuda.so.1"
    flags = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-fPIC", "-shared")
    build.run(build.CC, *flags, "-o", out, build.HERE / "fake_cuda.c", "-ldl")
    return out


def built_runtime(folder: Path) -> Path:
    """The runtime with its backend for cuda, as a library."""
    out = folder / "libtinyedge.so"
    objects = build.objects(build.CC, ("-O1", "-fPIC"), "cuda")
    build.run(build.CC, "-shared", "-o", out, *objects, "-pthread", "-lm", "-ldl")
    return out


def compiled(program: Program, architectures: tuple[int, ...] = (87,)) -> Program:
    """A hand-written program with files that stand for compiled ones: only the fake takes them."""
    digest = hashlib.sha256(kernel_file(program).encode()).hexdigest()
    binaries = {
        f"kernels-{number:05}.{kind}": f"{kind} {number} {digest}".encode()
        for number in architectures
        for kind in ("cubin", "ptx")
    }
    return replace(program, binaries=binaries if program.kernels else {})


def really_compiled(program: Program, architecture: str) -> Program:
    """A hand-written program with its kernels compiled for a GPU."""
    if not program.kernels:
        return program
    return replace(program, binaries=compiler.build(kernel_file(program), [architecture], print))


def write(program: Program, folder: Path, goldens: tuple[Golden, ...] = ()) -> Path:
    """A bundle with all its files, not built."""
    return write_bundle(program, folder, goldens=goldens, extras=runtime_files(program))


def gpu_architecture() -> str:
    """The first GPU's: "sm_87"."""
    driver, device = c.CDLL("libcuda.so.1"), c.c_int()
    assert driver.cuInit(0) == 0
    assert driver.cuDeviceGet(c.byref(device), 0) == 0
    parts = c.c_int(), c.c_int()
    for part, attribute in zip(parts, (75, 76), strict=True):
        assert driver.cuDeviceGetAttribute(c.byref(part), attribute, device) == 0
    return f"sm_{parts[0].value}{parts[1].value}"


def missing_gpu() -> str:
    """Why there is no GPU to test on; empty where there is one."""
    nodes = [Path("/dev/nvidia0"), Path("/dev/nvhost-gpu")]
    if not any(node.exists() for node in nodes):
        return "no NVIDIA GPU: " + " and ".join(map(str, nodes)) + " are missing"
    try:
        c.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no NVIDIA driver: {error}"
    return ""
