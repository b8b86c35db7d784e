"""Real models: built by the bundle's own Makefile, equal to Python's replay to the bit."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.realmodels import cases
from tests.runtimes_c import build
from tests.runtimes_c.conftest import write
from tests.runtimes_c.test_resources import CODE_BYTES, code_bytes
from tests.runtimes_c.test_runtime import cases as golden_cases
from tests.runtimes_c.test_runtime import heavy
from tests.targets import programs
from tinyedge.core.errors import InputError
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle.reading import read
from tinyedge.export.package import c_bundle
from tinyedge.targets.cpu import compiler

ARM64 = "aarch64-linux-gnu-gcc"
EMULATOR = next(
    (name for name in ("qemu-aarch64", "qemu-aarch64-static") if shutil.which(name)), ""
)

needs_arm64 = pytest.mark.skipif(
    not (shutil.which(ARM64) and EMULATOR), reason="no arm64 compiler or emulator"
)


def build_bundle(folder: Path, *arguments: str) -> Path:
    build.run("make", "-s", "-C", folder, "CFLAGS=-O2 -Werror", *arguments)
    return folder / "build" / "run"


def run_files(program: Path, folder: Path, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs of build/run, by way of .npy files. Empty arrays of names are not given."""
    bundle = read(folder)
    options: list[object] = []
    for number, (name, array) in enumerate(inputs.items()):
        np.save(folder / f"in{number}.npy", array)
        options += ["--input", f"{name}={folder / f'in{number}.npy'}"]
    files = {}
    for number, port in enumerate(bundle.program.outputs):
        files[port.name] = folder / f"out{number}.npy"
        options += ["--output", f"{port.name}={files[port.name]}"]
    build.run(program, folder, "--threads", 2, *options)
    return {name: np.load(file) for name, file in files.items()}


def compare(program: Path, folder: Path, inputs: Mapping[str, Any], device: Device) -> None:
    with Replay(read(folder).program, device) as replay:
        expected = replay.run(inputs)
    for name, array in run_files(program, folder, inputs).items():
        assert array.dtype == expected[name].dtype
        assert array.shape == expected[name].shape
        assert array.tobytes() == expected[name].tobytes(), name


def slow(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow)


MODELS = [name if name == "pnet" else slow(name) for name in cases.CASES]


@pytest.mark.parametrize("model", MODELS)
def test_fixed_sizes(tmp_path: Path, cpu_device: Device, model: str) -> None:
    folder = cases.export(model, tmp_path / model, target="cpu", golden=True)
    program = build_bundle(folder)
    said = build.run(program, folder, "--self-test", "--threads", 2)
    assert re.search(r"^self-test: 1 cases, \d+ outputs: 0 wrong, 0 distinct", said)
    compare(program, folder, cases.feeds(model), cpu_device)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["pnet", "minilm"])
def test_symbolic_sizes(tmp_path: Path, cpu_device: Device, model: str) -> None:
    folder = cases.export(model, tmp_path / model, target="cpu", symbolic=True, golden=True)
    program = build_bundle(folder)
    assert "0 wrong, 0 distinct" in build.run(program, folder, "--self-test")
    for size in cases.SYMBOLIC[model].sizes:
        compare(program, folder, cases.feeds(model, size), cpu_device)


def small_bundle(tmp_path: Path, cpu_device: Device) -> Path:
    program = heavy(programs.addition("cpu"))
    with Replay(program, cpu_device) as replay:
        return write(program, tmp_path / "small", golden_cases(program, replay))


def test_the_program(tmp_path: Path, cpu_device: Device) -> None:
    """Its options, and its exit codes."""
    folder = small_bundle(tmp_path, cpu_device)
    program = build_bundle(folder)
    said = build.run(program, folder, "--loop", 20, "--hz", 1000, "--profile", "--memory")
    assert re.search(r"^memory: weights 1088, manifest \d+; each context: arenas 16448", said)
    assert re.search(r"^20 runs: p50 .* p99 .* max .* missed deadlines at 1000 Hz$", said, re.M)
    assert re.search(r"us .* add +Add_0$", said, re.M)
    assert re.search(r"^c float32 \[4, 64\] ", said, re.M)

    def code(*words: object, stdout: Any = subprocess.DEVNULL) -> int:
        command = [str(word) for word in (program, *words)]
        return subprocess.run(
            command, stdout=stdout, stderr=subprocess.DEVNULL, check=False
        ).returncode

    assert code(folder, "--bogus") == 2
    assert code(folder, "--input", "a=missing.npy") == 2
    np.save(tmp_path / "short.npy", np.zeros((4, 63), np.float32))
    assert code(folder, "--input", f"a={tmp_path / 'short.npy'}") == 2
    np.save(tmp_path / "double.npy", np.zeros((4, 64)))
    assert code(folder, "--input", f"a={tmp_path / 'double.npy'}") == 2
    assert code(folder, "--input", f"a={tmp_path}") == 2
    np.save(tmp_path / "fits.npy", np.zeros((4, 64), np.float32))
    for option, name in (("--input", "a "), ("--input", "c"), ("--output", "a"), ("--symbol", "a")):
        assert code(folder, option, f"{name}={tmp_path / 'fits.npy'}") == 2, name
    assert code(folder, "--hz", 20) == 2
    with open("/dev/full", "w") as full:
        for options in ([], ["--self-test"]):
            assert code(folder, *options, stdout=full) == 2
    assert code(folder, "--entry", "none") == 2
    assert code(tmp_path) == 3
    golden = next(folder.glob("golden*"))
    golden.write_bytes(golden.read_bytes()[:-4])
    assert code(folder, "--self-test") == 3


@pytest.mark.parametrize("compiler", build.COMPILERS)
def test_builds_without_threads_and_as_a_library(
    tmp_path: Path, cpu_device: Device, compiler: str
) -> None:
    folder = small_bundle(tmp_path, cpu_device)
    program = build_bundle(folder, f"CC={compiler}", "THREADS=0", "all", "shared")
    assert "0 wrong" in build.run(program, folder, "--self-test")
    assert "pthread_create" not in build.run("nm", "-D", folder / "build" / "libtinyedge.so")


def test_kernels_are_compiled_as_by_the_cpu_device() -> None:
    makefile = (c_bundle.FOLDER / "Makefile").read_text("ascii")
    line = next(line for line in makefile.splitlines() if line.startswith("KERNEL_FLAGS"))
    meaning = {flag for flag in compiler.FLAGS if flag.startswith(("-std", "-f"))}
    assert meaning - {"-fvisibility=default"} <= set(line.split())


def test_every_id_is_told() -> None:
    """The page's table of ids is the runtime's, and the header's."""
    header = (c_bundle.FOLDER / "tinyedge.h").read_text("ascii")
    source = (c_bundle.FOLDER / "tinyedge.c").read_text("ascii")
    page = Path(__file__).parents[2].joinpath("docs", "c.md").read_text("utf-8")
    ids = re.findall(r'^ +"([a-z.]+)\\0";?$', source, re.MULTILINE)
    assert len(ids) > 30
    assert re.findall(r"^    TE_[A-Z_]+, +/\* ([a-z]+\.[a-z.]+)", header, re.MULTILINE) == ids
    own = {id for id in ids if not id.startswith("bundle.")}
    assert set(re.findall(r"`((?:device|run|replay|verify|api)\.[a-z]+)`", page)) == own


@needs_arm64
@pytest.mark.parametrize("target", c_bundle.BACKENDS)
def test_code_size_on_arm64(tmp_path: Path, target: str) -> None:
    assert code_bytes(tmp_path, target, ARM64, "aarch64-linux-gnu-") <= CODE_BYTES


@needs_arm64
@pytest.mark.parametrize("model", MODELS)
def test_arm64(tmp_path: Path, model: str) -> None:
    folder = cases.export(model, tmp_path / model, target="cpu", golden=True)
    program = build_bundle(folder, f"CC={ARM64}", "LDFLAGS=-static")
    said = build.run(EMULATOR, program, folder, "--self-test", "--threads", 2)
    assert "0 wrong, 0 distinct" in said


@pytest.mark.slow
@pytest.mark.skipif(not EMULATOR, reason="no arm64 emulator")
def test_arm64_by_zig(tmp_path: Path, cpu_device: Device) -> None:
    pytest.importorskip("ziglang")
    folder = small_bundle(tmp_path, cpu_device)
    zig = f"{sys.executable} -m ziglang cc -target aarch64-linux-musl"
    program = build_bundle(folder, f"CC={zig}")
    assert "0 wrong" in build.run(EMULATOR, program, folder, "--self-test")


def test_another_compiler_builds_all_again(tmp_path: Path, cpu_device: Device) -> None:
    folder = small_bundle(tmp_path, cpu_device)
    program = build_bundle(folder)
    first = program.stat().st_mtime_ns
    build_bundle(folder)
    assert program.stat().st_mtime_ns == first
    build_bundle(folder, "THREADS=0")
    assert "pthread_create" not in build.run("nm", program)
    assert "0 wrong" in build.run(program, folder, "--self-test")


def test_exported_again_over_a_built_bundle(tmp_path: Path, cpu_device: Device) -> None:
    folder = small_bundle(tmp_path, cpu_device)
    build_bundle(folder, "all", "shared")
    assert (folder / "build" / "run").exists() and (folder / "build" / "libtinyedge.so").exists()
    small_bundle(tmp_path, cpu_device)
    assert not (folder / "build").exists()
    build_bundle(folder)
    (folder / "build" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"build/notes\.txt"):
        small_bundle(tmp_path, cpu_device)
    (folder / "build" / "notes.txt").unlink()
    (folder / "build" / "flags").unlink()  # then it is somebody else's
    with pytest.raises(InputError, match=r"build/libtinyedge\.a"):
        small_bundle(tmp_path, cpu_device)


@needs_arm64
def test_arm64_small(tmp_path: Path, cpu_device: Device) -> None:
    folder = small_bundle(tmp_path, cpu_device)
    program = build_bundle(folder, f"CC={ARM64}", "LDFLAGS=-static")
    assert "0 wrong" in build.run(EMULATOR, program, folder, "--self-test", "--threads", 3)
