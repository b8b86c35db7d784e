"""Bundles of small hand-written programs with the C runtime, built as libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.runtimes_c import build, opencl
from tests.runtimes_c.library import Library
from tinyedge.core.program.program import Program
from tinyedge.export.bundle.golden import Golden
from tinyedge.export.package.c_bundle import runtime_files
from tinyedge.export.package.package import write_bundle
from tinyedge.targets.cpu.compiler import FLAGS as KERNEL_FLAGS

Build = Callable[..., Library]


def write(program: Program, folder: Path, goldens: tuple[Golden, ...] = ()) -> Path:
    """A bundle with all its files, not built."""
    extras = runtime_files(program, folder.stem)
    return write_bundle(program, folder, goldens=goldens, extras=extras)


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime without kernels, as one object file."""
    folder = tmp_path_factory.mktemp("runtime")
    objects = build.objects(build.CC, ("-O1", "-fPIC"))
    build.run("ld", "-r", "-o", folder / "runtime.o", *objects)
    return folder / "runtime.o"


@pytest.fixture
def library(tmp_path: Path, runtime: Path) -> Build:
    """Writes a program's bundle, compiles its kernels and loads the library."""

    def make(program: Program, goldens: tuple[Golden, ...] = ()) -> Library:
        folder = write(program, tmp_path / f"bundle{len(list(tmp_path.iterdir()))}", goldens)
        (folder / "build").mkdir()
        out = folder / "build" / "libtinyedge.so"
        flags = ("-I", folder / "runtime", "-pthread", "-lm")
        # As Python's device compiles them: a fused product and sum is rounded once.
        kernels = ("-O1", "-march=native", *KERNEL_FLAGS)
        build.run(build.CC, *kernels, "-o", out, folder / "model.c", runtime, *flags)
        return Library(folder)

    return make


@pytest.fixture(scope="session")
def opencl_runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime for OpenCL, as a library."""
    return opencl.built_runtime(tmp_path_factory.mktemp("opencl"))


@pytest.fixture(scope="session")
def built_shim(tmp_path_factory: pytest.TempPathFactory) -> opencl.Shim:
    return opencl.built_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def shim(built_shim: opencl.Shim) -> Iterator[opencl.Shim]:
    """The library before OpenCL's: without failures, and at the end without anything alive."""
    built_shim.c.shim_forget()
    built_shim.start()
    yield built_shim
    built_shim.check()
