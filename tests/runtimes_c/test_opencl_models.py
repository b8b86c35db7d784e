"""Real models through the C runtime's OpenCL backend: against onnxruntime and Python's replay."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import opencl as engines
from tests.realmodels import cases
from tests.runtimes_c import build, opencl
from tests.runtimes_c.library import Context, OpenCl
from tests.runtimes_c.opencl import OpenclLibrary, Shim
from tests.runtimes_c.test_models import ARM64, build_bundle, needs_arm64, slow
from tests.runtimes_c.test_resources import Memory
from tests.runtimes_c.test_runtime import same
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle.reading import read

FAST = ("pnet", "magika")
TOLERANCES = {"fp16": cases.HALF_TOLERANCE, "fp32": cases.TOLERANCE}


def each(names: Any) -> list[Any]:
    return [name if name in FAST else slow(name) for name in names]


def check(
    folder: Path,
    runtime: Path,
    shim: Shim,
    device: Device,
    runs: list[tuple[Any, Any]],
    most: float,
) -> None:
    """Each run twice; runs: inputs, and what onnxruntime gives."""
    context = Context(OpenclLibrary(folder, runtime, shim.file))
    shim.start()
    with Replay(read(folder).program, device) as replay:
        for inputs, right in runs:
            first = context.run(inputs)
            same(context.run(inputs), first)
            same(first, replay.run(inputs))
            errors = cases.errors(first, right)
            assert all(error <= most for error in errors.values()), errors
    assert shim.called() <= opencl.IN_A_RUN
    context.close()


@pytest.mark.parametrize("profile", ["default", "buffers"])
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("model", each(cases.CASES))
def test_fixed_sizes(
    tmp_path: Path,
    opencl_runtime: Path,
    shim: Shim,
    qcom_device: Device,
    model: str,
    precision: str,
    profile: str,
) -> None:
    folder = cases.export(
        model, tmp_path / model, target="qcom", precision=precision, profile=profile
    )
    runs = [(cases.feeds(model), cases.expected(model))]
    check(folder, opencl_runtime, shim, qcom_device, runs, TOLERANCES[precision])


@pytest.mark.parametrize("model", each(cases.SYMBOLIC))
def test_symbolic_sizes(
    tmp_path: Path, opencl_runtime: Path, shim: Shim, qcom_device: Device, model: str
) -> None:
    folder = cases.export(model, tmp_path / model, target="qcom", symbolic=True)
    sizes = cases.SYMBOLIC[model].sizes
    runs = [(cases.feeds(model, size), cases.expected(model, size)) for size in sizes]
    check(folder, opencl_runtime, shim, qcom_device, runs, cases.TOLERANCE)


@pytest.mark.parametrize("model", each(("pnet", "opennsfw")))
def test_memory(tmp_path: Path, opencl_runtime: Path, shim: Shim, model: str) -> None:
    """Of the host and the device together, at its peak: weights, arenas and at most 1 MB."""
    out = tmp_path / model
    folder = cases.export(model, out, target="qcom", precision="fp16", profile="buffers")
    library = OpenclLibrary(folder, opencl_runtime, shim.file)
    options = library.create_options(opencl=OpenCl(cache_folder=str(tmp_path / "cache").encode()))
    planned = library.measure().device
    for cached in (False, True):
        shim.start()
        memory = Memory(beside=shim.bytes)
        opened = library.open(library.open_options(memory.allocator))
        context = library.create(opened, options)
        assert bool(shim.count("clCreateProgramWithSource")) != cached
        assert planned <= shim.bytes() < memory.peak <= planned + 2**20
        library.c.te_destroy(context)
        library.c.te_close(opened)


# --- the program --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pnet") / "pnet.tinyedge"
    return cases.export("pnet", folder, target="qcom", precision="fp16", golden=True)


@pytest.mark.parametrize("compiler", build.COMPILERS)
def test_the_program(pnet: Path, tmp_path: Path, compiler: str) -> None:
    """It builds without anything of OpenCL, and finds the driver when it runs."""
    folder = shutil.copytree(pnet, tmp_path / "pnet")
    program = build_bundle(folder, f"CC={compiler}", "all", "shared")
    for _ in range(2):
        said = build.run(program, folder, "--self-test", "--cache", tmp_path / "cache")
        assert re.search(r"^self-test: 1 cases, \d+ outputs: 0 wrong, 0 distinct", said)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    words = [str(program), str(folder), "--self-test", "--cache", str(program / "cache")]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    keeps_nothing = "the cache keeps nothing: the kernels will be compiled again next time"
    yours = "it must be yours, with room, and nobody else may write to it"
    assert told == f"note: {words[-1]}: {keeps_nothing}; {yours}\n"
    said = build.run(program, folder, "--loop", 3, "--hz", 1000, "--profile", "--memory")
    assert re.search(r"^memory: weights 0, .* arenas 0, .* of the device \d{5,} bytes$", said, re.M)
    assert re.search(r"^3 runs: p50 .* missed deadlines at 1000 Hz$", said, re.M)
    assert re.search(r"us .* GFLOP/s  \w+ +conv2d", said, re.M)
    assert "0 wrong" in build.run(program, folder, "--self-test", "--device", "0")
    refused = subprocess.run(
        [str(program), str(folder), "--device", "none"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 3 and "device.adapter" in refused.stderr


def test_on_intels_runtime(pnet: Path, tmp_path: Path) -> None:
    """Where images lie over buffers."""
    folder = shutil.copytree(pnet, tmp_path / "pnet")
    program = build_bundle(folder)
    (tmp_path / "drivers").mkdir()
    environment = engines.intel_environment(tmp_path / "drivers")
    words = (str(program), str(folder), "--self-test", "--cache", str(tmp_path / "cache"))
    for _ in range(2):
        said = engines.run((*words, "--device", "Intel"), environment)
        assert "0 wrong, 0 distinct" in said


def test_without_threads(pnet: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(pnet, tmp_path / "pnet")
    program = build_bundle(folder, "THREADS=0")
    assert "0 wrong" in build.run(program, folder, "--self-test")


@needs_arm64
def test_arm64_builds(pnet: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(pnet, tmp_path / "pnet")
    program = build_bundle(folder, f"CC={ARM64}")
    assert "AArch64" in build.run("readelf", "-h", program)


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_usable_from_cpp(pnet: Path, tmp_path: Path, opencl_runtime: Path) -> None:
    source = tmp_path / "use.cpp"
    source.write_text(
        '#include "model.h"\n'
        "int main(int count, char **words) {\n"
        "    te_open_options open = {};\n"
        "    open.size = sizeof open;\n"
        "    open.folder = words[count - 1];\n"
        "    te_context_options options = {};\n"
        "    options.size = sizeof options;\n"
        "    options.backend = MODEL_BACKEND;\n"
        "    options.kernels = MODEL_KERNELS;\n"
        "    te_model *model;\n"
        "    if (te_open(&open, &model, nullptr)) return 1;\n"
        "    const te_status status = te_self_test(model, &options, nullptr, nullptr);\n"
        "    te_close(model);\n"
        "    return status;\n"
        "}\n"
    )
    strict = ("-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    include = ("-I", pnet, "-I", build.c_bundle.FOLDER)
    files = (source, opencl_runtime, f"-Wl,-rpath,{opencl_runtime.parent}")
    build.run("g++", *strict, *include, "-o", tmp_path / "use", *files)
    build.run(tmp_path / "use", pnet)
