"""Bundles for cuda: built by their Makefile, with sanitizers, of real models; what they declare."""

from __future__ import annotations

import ctypes as c
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from cuda.bindings import driver

import tinyedge
from tests import models
from tests.cuda.shim import Shim
from tests.examples.conftest import NARROW, make
from tests.examples.reference import EXAMPLE
from tests.realmodels import cases
from tests.runtimes_c import build, cuda
from tests.runtimes_c.cuda import CudaLibrary, FakeCuda
from tests.runtimes_c.library import Context
from tests.runtimes_c.runs import RUNS
from tests.runtimes_c.test_models import ARM64, EMULATOR, needs_arm64, slow
from tests.runtimes_c.test_runtime import cases as golden_cases
from tests.targets import programs
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle.golden import Golden
from tinyedge.export.package import c_bundle


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory, kernel_cache: Path) -> FakeCuda:
    folder = tmp_path_factory.mktemp("cuda")
    driver = cuda.built_driver(folder / "driver")
    return FakeCuda(driver, cuda.built_runtime(folder), Shim(kernel_cache))


def with_goldens(name: str, folder: Path, device: Device) -> Path:
    """A hand-written program's bundle, with cases that the cpu computed."""
    make = RUNS[name][0]
    with Replay(make("cpu"), device) as replay:
        made: tuple[Golden, ...] = golden_cases(make("cpu"), replay)
    return cuda.write(cuda.compiled(make("cuda")), folder, made)


def on(fake: FakeCuda, bundle: Path, **facts: int | str | None) -> dict[str, str]:
    """The environment of a program that finds the fake driver."""
    description = fake.describe(bundle, facts)
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(fake.driver.parent),
        "FAKE_CUDA": str(description),
    }


def said(environment: Mapping[str, str], *words: object) -> tuple[int, str]:
    """The exit code of a program, and all that it says."""
    command = [str(word) for word in words]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    return result.returncode, result.stdout + result.stderr


# --- the program --------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", build.COMPILERS)
def test_the_program(fake: FakeCuda, tmp_path: Path, cpu_device: Device, compiler: str) -> None:
    """It builds without anything of CUDA, and finds the driver when it runs."""
    folder = with_goldens("addition", tmp_path / "bundle", cpu_device)
    build.run("make", "-s", "-C", folder, f"CC={compiler}", "CFLAGS=-O2 -Werror", "all", "shared")
    program = folder / "build" / "run"
    for integrated in (0, 1):
        environment = on(fake, folder, integrated=integrated)
        code, text = said(environment, program, folder, "--self-test")
        assert (code, text) == (
            0,
            "self-test: 1 cases, 2 outputs: 0 wrong, 0 distinct between two runs, error 0\n",
        )
        code, text = said(
            environment, program, folder, "--loop", 5, "--profile", "--memory", "--device", "orin"
        )
        assert code == 0, text
        assert re.search(r"^memory: weights 0, .* of the device \d{5} bytes$", text, re.M)
        assert re.search(r"^5 runs: p50 ", text, re.M)
        assert re.search(r"us .* add +Add_0$", text, re.M)
    code, text = said(on(fake, folder, capability=75), program, folder)
    assert code == 3
    assert "device.arch: the device is sm_75" in text
    code, text = said(environment, program, folder, "--device", "none")
    assert code == 3
    assert "device.adapter: " in text


@pytest.mark.skipif(not cuda.missing_gpu(), reason="this machine has a driver")
def test_the_program_without_a_driver(tmp_path: Path, cpu_device: Device) -> None:
    folder = with_goldens("addition", tmp_path / "bundle", cpu_device)
    build.run("make", "-s", "-C", folder)
    code, text = said(os.environ, folder / "build" / "run", folder, "--self-test")
    assert code == 3
    assert "device.missing: there is no NVIDIA driver: libcuda.so.1 cannot be loaded" in text


@needs_arm64
def test_the_program_on_arm64(tmp_path: Path) -> None:
    """As on a Jetson, but for the driver that it looks for."""
    folder = cuda.write(cuda.compiled(programs.addition("cuda")), tmp_path / "bundle")
    build.run("make", "-s", "-C", folder, f"CC={ARM64}", "CFLAGS=-O2 -Werror", "LDFLAGS=-static")
    code, text = said(os.environ, EMULATOR, folder / "build" / "run", folder)
    assert code == 3
    assert "device.missing: there is no NVIDIA driver: libcuda.so.1 cannot be loaded" in text


def test_a_bundle_has_what_its_program_needs(tmp_path: Path) -> None:
    folder = cuda.write(cuda.compiled(programs.addition("cuda")), tmp_path / "bundle")
    names = {path.name for path in folder.iterdir()}
    assert {"kernels.cu", "kernels-00087.cubin", "kernels-00087.ptx", "main.c"} <= names
    assert "model.c" not in names
    assert (folder / "runtime" / "tinyedge_cuda.c").exists()
    assert not (folder / "runtime" / "tinyedge_cpu.c").exists()
    assert "#define MODEL_BACKEND te_cuda()" in (folder / "model.h").read_text()


def test_under_sanitizers(fake: FakeCuda, tmp_path: Path, cpu_device: Device) -> None:
    """States, branches, loops, counts, symbols: the runtime's own accesses stay inside."""
    compiler, sanitize = build.sanitized()
    objects = build.objects(compiler, sanitize, "cuda")
    program = tmp_path / "run"
    for name in RUNS:
        folder = with_goldens(name, tmp_path / name, cpu_device)
        main = (*build.STRICT, *sanitize, f"-I{folder}", c_bundle.FOLDER / "main.c")
        build.run(compiler, *main, "-o", program, *objects, "-pthread", "-lm", "-ldl")
        for integrated in (0, 1):
            environment = on(fake, folder, integrated=integrated)
            code, text = said(environment, program, folder, "--self-test")
            assert code == 0, text
            assert "0 wrong, 0 distinct" in text
            code, text = said(environment, program, folder, "--loop", 3, "--profile")
            assert code == 0, text


@pytest.mark.parametrize("name", ["addition", "counter"])
def test_after_creation_no_allocation_and_no_file(
    fake: FakeCuda, tmp_path: Path, name: str
) -> None:
    folder = cuda.write(cuda.compiled(RUNS[name][0]("cuda")), tmp_path / "bundle")
    out = tmp_path / "quiet"
    flags = (*build.STRICT, "-O1", f"-I{folder}", build.HERE / "quiet.c")
    build.run(
        build.CC,
        *flags,
        "-o",
        out,
        *build.sources("cuda"),
        *build.OPTIONAL,
        "-pthread",
        "-lm",
        "-ldl",
    )
    code, text = said(on(fake, folder), out, folder, 1000)
    # without times, and with them
    assert (code, text) == (0, 2 * "0 allocations, 0 file accesses\n")


# --- real models --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [name if name in ("pnet", "rnet") else slow(name) for name in cases.CASES]
)
def test_real_models(fake: FakeCuda, tmp_path: Path, model: str) -> None:
    """Equal to onnxruntime within the tolerance, on both kinds of devices."""
    folder = cases.export(model, tmp_path / model, target="cuda", golden=True)
    for integrated in (False, True):
        library = replace(fake, integrated=integrated).open(folder)
        check_model(library, model)
        fake.check()


def check_model(library: CudaLibrary, model: str) -> None:
    opened = library.open()
    report = library.self_test(opened)
    assert (report.wrong, report.distinct) == (0, 0)
    library.c.te_close(opened)
    context = Context(library)
    for _ in range(2):
        errors = cases.errors(context.run(cases.feeds(model)), cases.expected(model))
        assert all(error <= cases.TOLERANCE for error in errors.values()), errors
    context.close()


@pytest.mark.slow
def test_real_models_symbolic(fake: FakeCuda, tmp_path: Path) -> None:
    folder = cases.export("pnet", tmp_path / "pnet", target="cuda", symbolic=True)
    context = Context(fake.open(folder))
    made = fake.calls("cuGraphInstantiateWithFlags")
    for size in cases.SYMBOLIC["pnet"].sizes:
        errors = cases.errors(context.run(cases.feeds("pnet", size)), cases.expected("pnet", size))
        assert all(error <= cases.TOLERANCE for error in errors.values()), errors
    assert fake.calls("cuGraphInstantiateWithFlags") == made == 1
    context.close()
    fake.check()


@pytest.mark.slow
@pytest.mark.parametrize("integrated", [0, 1], ids=["discrete", "integrated"])
def test_the_driving_example(fake: FakeCuda, tmp_path: Path, integrated: int) -> None:
    """Entries, queues and slices: golden steps, and a program that feeds frames."""
    made = tmp_path / "models"
    build.run(sys.executable, EXAMPLE / "model.py", made, *NARROW.split())
    bundle = make(made, tmp_path / "drive", "bundle", "host", target="cuda", size=NARROW)
    build.run("make", "-s", "-C", bundle)
    environment = on(fake, bundle, integrated=integrated)
    code, text = said(environment, bundle / "build" / "run", bundle, "--self-test")
    assert code == 0, text
    assert re.search(r"^self-test: 3 cases, \d+ outputs: 0 wrong, 0 distinct", text)
    code, text = said(environment, bundle / "build" / "host", bundle, "--frames", 5, "--hz", 1000)
    assert code == 0, text


@pytest.mark.skipif(bool(cuda.missing_gpu()), reason=cuda.missing_gpu())
@pytest.mark.parametrize("model", ["pnet", "rnet", "onet", "magika", "opennsfw"])
def test_real_models_on_a_gpu(fake: FakeCuda, tmp_path: Path, model: str) -> None:
    folder = tinyedge.export_onnx(
        models.path(model),
        target="cuda",
        out=tmp_path / model,
        dims=dict(cases.CASES[model].dims),
        arch=cuda.gpu_architecture(),
    )
    check_model(CudaLibrary(folder, fake.runtime, None), model)


# --- what the backend declares ------------------------------------------------------------------


FIELDS = {
    "launch_node": {
        "function": "func",
        **{f"grid[{i}]": f"gridDim{'XYZ'[i]}" for i in range(3)},
        **{f"block[{i}]": f"blockDim{'XYZ'[i]}" for i in range(3)},
        "shared_bytes": "sharedMemBytes",
    },
    "copy_node": {
        "width": "WidthInBytes",
        "height": "Height",
        "depth": "Depth",
        **{
            f"{ours}.{field}": theirs + name
            for ours, theirs in (("source", "src"), ("destination", "dst"))
            for field, name in (
                *(("x", "XInBytes"), ("y", "Y"), ("z", "Z"), ("level", "LOD")),
                *(("device", "Device"), ("pitch", "Pitch"), ("height", "Height")),
            )
        },
    },
}
NUMBERS = {
    "OUT_OF_MEMORY": ("CUresult", "CUDA_ERROR_OUT_OF_MEMORY"),
    "NO_BINARY_FOR_GPU": ("CUresult", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    "INVALID_IMAGE": ("CUresult", "CUDA_ERROR_INVALID_IMAGE"),
    "INVALID_PTX": ("CUresult", "CUDA_ERROR_INVALID_PTX"),
    "JIT_COMPILER_NOT_FOUND": ("CUresult", "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"),
    "UNSUPPORTED_PTX_VERSION": ("CUresult", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
    "NOT_READY": ("CUresult", "CUDA_ERROR_NOT_READY"),
    **{
        name: ("CUdevice_attribute", f"CU_DEVICE_ATTRIBUTE_{name}")
        for name in (
            *("MAX_THREADS_PER_BLOCK", "MAX_SHARED_MEMORY_PER_BLOCK", "INTEGRATED"),
            "CAN_MAP_HOST_MEMORY",
        )
    },
    "CAPABILITY_MAJOR": ("CUdevice_attribute", "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR"),
    "CAPABILITY_MINOR": ("CUdevice_attribute", "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR"),
    "EVENT_BLOCKING": ("CUevent_flags", "CU_EVENT_BLOCKING_SYNC"),
    "EVENT_NO_TIME": ("CUevent_flags", "CU_EVENT_DISABLE_TIMING"),
    "ERROR_LOG": ("CUjit_option", "CU_JIT_ERROR_LOG_BUFFER"),
    "ERROR_LOG_BYTES": ("CUjit_option", "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES"),
    "MEMORY_BY_ADDRESS": ("CUmemorytype", "CU_MEMORYTYPE_UNIFIED"),
}


def test_declarations_are_the_drivers(tmp_path: Path) -> None:
    """Numbers and structs are those of NVIDIA's own bindings."""
    lines = [f'printf("{name} %lld\\n", (long long){name});' for name in NUMBERS]
    lines += [
        f'printf("{struct}.{field} %zu\\n", offsetof({struct}, {field}));'
        for struct, fields in FIELDS.items()
        for field in fields
    ]
    source = tmp_path / "print.c"
    include = '#include <stdio.h>\n#include "tinyedge_cuda.h"\n'
    source.write_text(f"{include}int main(void) {{\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
    out = tmp_path / "print"
    build.run(build.CC, *build.STRICT, "-o", out, source)
    ours = dict(line.split() for line in build.run(out).splitlines())
    for name, (enum, member) in NUMBERS.items():
        assert int(ours[name]) == getattr(getattr(driver, enum), member).value, name
    structs = {"launch_node": "CUDA_KERNEL_NODE_PARAMS", "copy_node": "CUDA_MEMCPY3D"}
    for struct, fields in FIELDS.items():
        for number, (field, member) in enumerate(fields.items(), 1):
            params = getattr(driver, structs[struct])()
            pattern = 0x1000 + number
            value = driver.CUfunction(pattern) if member == "func" else pattern
            setattr(params, member, value)
            place = params.getPtr() + int(ours[f"{struct}.{field}"])
            assert c.c_uint32.from_address(place).value == pattern, f"{struct}.{field}"


def test_functions_are_the_drivers() -> None:
    """Each one that the backend looks for is known to NVIDIA's bindings, but for its version."""
    text = (c_bundle.FOLDER / "tinyedge_cuda.h").read_text("ascii")
    names = re.findall(r"^    X\((cu\w+), ", text, re.MULTILINE)
    assert len(names) > 40
    renamed = {"cuGraphInstantiateWithFlags": "cuGraphInstantiate"}
    assert [name for name in names if not hasattr(driver, renamed.get(name, name))] == []
