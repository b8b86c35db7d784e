"""What runs CUDA kernels on the processor finds the faults that it is there for."""

from __future__ import annotations

import ctypes
import dataclasses
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.cuda import sanitized
from tests.cuda.device import CompilingDevice
from tests.cuda.driver import FakeDriver
from tests.cuda.shim import HEADER, ORDERS, Shim
from tests.targets import programs
from tinyedge.core.errors import DeviceError
from tinyedge.core.program.program import Entry, Kernel, Launch, Port, Program
from tinyedge.core.program.replay import Replay

X = np.arange(64, dtype=np.float32)


def program(body: str) -> Program:
    """y from x, both of 64 floats, by one workgroup of 64 threads that run the body."""
    head = (
        'extern "C" __global__ void k(float *y, const float *x) {\n  const int i = threadIdx.x;\n'
    )
    made = programs.kernel("cuda", "k", "wr", "")
    kernel = Kernel("k", f"{head}{body}\n}}", made.workgroup, made.bindings)
    return programs.program(
        "cuda",
        inputs=(Port("x", "float32", (64,), "float32", 0),),
        outputs=(Port("y", "float32", (64,), "float32", 1),),
        buffers=(programs.place(0, 256), programs.place(1, 256)),
        kernels=(kernel,),
        entries=(Entry("main", ("x",), ("y",), (Launch(0, (1, 0), (1, 1, 1)),)),),
    )


def run(body: str, shim: Shim) -> np.ndarray:
    device = CompilingDevice(FakeDriver(shim), 0, lambda text: {"kernels-00087.ptx": text.encode()})
    with Replay(program(body), device, poison=True) as replay:
        return replay.run({"x": X})["y"]


# Two steps through shared memory, each of which needs its barrier.
STEPS = """
  __shared__ float a[64], b[64];
  a[i] = x[i];
  {first}
  b[i] = a[63 - i] * 2;
  {second}
  y[i] = b[(i + 32) % 64] + 1;
"""
BARRIER = "__syncthreads();"


@pytest.mark.parametrize("order", ORDERS)
def test_barriers_hold_in_every_order(order: str, tmp_path: Path) -> None:
    result = run(STEPS.format(first=BARRIER, second=BARRIER), Shim(tmp_path, order, seed=3))
    np.testing.assert_array_equal(result, np.roll(X[::-1] * 2, 32) + 1)


@pytest.mark.parametrize("left", ["first", "second"])
def test_a_missing_barrier_shows_in_two_orders_at_least(left: str, tmp_path: Path) -> None:
    text = STEPS.format(**{"first": BARRIER, "second": BARRIER, left: ""})
    wrong = [np.isnan(run(text, Shim(tmp_path, order, seed=3))).any() for order in ORDERS]
    assert sum(wrong) >= 2, dict(zip(ORDERS, wrong, strict=True))


def test_a_barrier_that_not_all_threads_meet(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="LAUNCH_FAILED"):
        run("if (i < 32) __syncthreads();\n  y[i] = x[i];", Shim(tmp_path))


def test_a_write_outside_the_arena(tmp_path: Path) -> None:
    outside = programs.ARENA // 4 - 256
    with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS"):
        run(f"y[i] = x[i];\n  y[{outside} + i] = 0;", Shim(tmp_path))


def test_a_kernel_that_does_not_compile(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no_such"):
        run("y[i] = no_such(i);", Shim(tmp_path))


def test_shared_memory_is_new_in_every_block(tmp_path: Path) -> None:
    """Nothing is left in it by the block before."""
    body = "__shared__ float a[64];\n  __syncthreads();\n  y[i] = a[i];\n  a[i] = 1;"
    twice = program(body)
    entry = dataclasses.replace(twice.entries[0], steps=(Launch(0, (1, 0), (2, 1, 1)),))
    device = CompilingDevice(
        FakeDriver(Shim(tmp_path)), 0, lambda text: {"kernels-00087.ptx": text.encode()}
    )
    with Replay(dataclasses.replace(twice, entries=(entry,)), device) as replay:
        assert np.isnan(replay.run({"x": X})["y"]).all()


def test_halves(tmp_path: Path) -> None:
    """All of them, and what lies between neighbors, as numpy converts them."""
    source = tmp_path / "halves.cpp"
    source.write_text(
        f'#include "{HEADER}"\n'
        'extern "C" void values(const unsigned short *bits, float *x, int count) {\n'
        "    for (int i = 0; i < count; i++) x[i] = te_half_value(bits[i]);\n}\n"
        'extern "C" void halves(const double *x, unsigned short *bits, int count) {\n'
        "    for (int i = 0; i < count; i++) bits[i] = te_half_bits(x[i]);\n}\n"
    )
    library = source.with_suffix(".so")
    command = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", str(source), "-o"]
    subprocess.run([*command, str(library)], check=True)
    functions = ctypes.CDLL(str(library))

    bits = np.arange(65536, dtype=np.uint16)
    values = np.empty(65536, np.float32)
    functions.values(bits.ctypes, values.ctypes, 65536)
    np.testing.assert_array_equal(values, bits.view(np.float16).astype(np.float32))
    assert (np.signbit(values) == (bits >= 0x8000)).all()

    finite = np.sort(values[np.isfinite(values)].astype(np.float64))
    middle = (finite[1:] + finite[:-1]) / 2
    more = np.array([65519.99, 65520, 1e300, np.inf, 5e-324, np.nan])
    x = np.concatenate([finite, middle, np.nextafter(middle, 0), np.nextafter(middle, 9e4), more])
    found = np.empty(len(x), np.uint16)
    functions.halves(x.ctypes, found.ctypes, len(x))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found.view(np.float16), x.astype(np.float16))


# What the sanitizers must stop, and a word of what they say.
FAULTS = {
    "read_past_its_buffer": ("y[i] = x[i + 1];", "AddressSanitizer: use-after-poison"),
    "read_past_shared_memory": (
        "__shared__ float a[64];\n  a[i] = x[i];\n  __syncthreads();\n  y[i] = a[i + 1];",
        "out of bounds for type 'float [64]'",
    ),
    "misaligned_vector": (
        "if (i < 8) *reinterpret_cast<float4 *>(y + i) = float4{1, 2, 3, 4};",
        "misaligned address",
    ),
    "integer_overflow": ("int n = i << 25;\n  y[i] = n * 64;", "signed integer overflow"),
}


def sanitized_run(body: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return sanitized.run(
        [
            "-c",
            "from pathlib import Path\n"
            "from tests.cuda.shim import Shim\n"
            "from tests.cuda.test_shim import run\n"
            f"print(run({body!r}, Shim(Path({str(folder)!r}), sanitize=True))[63])\n",
        ]
    )


@pytest.mark.parametrize("name", FAULTS)
def test_sanitizers_stop_a_fault(name: str, tmp_path: Path) -> None:
    body, said = FAULTS[name]
    result = sanitized_run(body, tmp_path)
    assert result.returncode != 0
    assert said in result.stderr


def test_sanitizers_let_a_right_kernel_run(tmp_path: Path) -> None:
    result = sanitized_run(STEPS.format(first=BARRIER, second=BARRIER), tmp_path)
    assert (result.returncode, result.stdout) == (0, "65.0\n"), result.stderr


FEW = "cuda and optimized and (rows or conversions)"


@pytest.mark.parametrize(
    ("order", "chosen"),
    [
        pytest.param("random", FEW, id="a-few"),
        pytest.param("reverse", "cuda", id="all-reverse", marks=pytest.mark.slow),
        pytest.param("random", "cuda", id="all-random", marks=pytest.mark.slow),
    ],
)
def test_conformance_under_sanitizers(order: str, chosen: str) -> None:
    """Each launch may touch its own buffers only, whatever the order of its threads."""
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/conformance", "-k", chosen]
    result = sanitized.run([*command, "--cuda-sanitize", f"--cuda-order={order}"])
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    assert " passed" in result.stdout
