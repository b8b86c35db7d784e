"""What only the cuda device has: compiled files for architectures, graphs, a driver to miss."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import re
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cuda.device import CompilingDevice
from tests.cuda.driver import CUresult, FakeDriver
from tests.cuda.shim import Shim
from tests.targets import programs
from tinyedge.core.errors import DeviceError, InputError, InternalError
from tinyedge.core.program.device import Range
from tinyedge.core.program.program import Launch, Program
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle.writing import kernel_file
from tinyedge.targets.cuda import compiler
from tinyedge.targets.cuda import device as cuda

ONES = np.ones((4, 64), np.float32)


class Counting(FakeDriver):
    """Writes down which functions are called."""

    def __init__(self, shim: Shim, **options: Any) -> None:
        super().__init__(shim, **options)
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name.startswith("cu") and name != "cuCtxSetCurrent":
            self.calls.append(name)
        return value


@pytest.fixture
def driver(kernel_cache: Path) -> Counting:
    return Counting(Shim(kernel_cache))


def binaries(program: Program, *names: str) -> Program:
    text = kernel_file(program).encode()
    return dataclasses.replace(program, binaries=dict.fromkeys(names, text))


def run(device: cuda.CudaDevice, program: Program) -> float:
    with Replay(program, device) as replay:
        return float(replay.run({"a": ONES, "b:0": ONES})["c"][0, 0])


# Which compiled file is loaded.


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((8, 7), ["00087.cubin", "00080.cubin", "00087.ptx", "00075.ptx"]),
        ((8, 9), ["00087.cubin", "00080.cubin", "00087.ptx", "00075.ptx"]),
        ((8, 6), ["00080.cubin", "00075.ptx"]),
        ((7, 5), ["00075.ptx"]),
        ((7, 0), []),
        ((9, 0), ["00090.cubin", "00087.ptx", "00075.ptx"]),
        ((12, 1), ["00120.cubin", "00087.ptx", "00075.ptx"]),
        ((10, 0), ["00087.ptx", "00075.ptx"]),
    ],
)
def test_candidates(capability: tuple[int, int], expected: list[str]) -> None:
    numbers = ("00080.cubin", "00087.cubin", "00090.cubin", "00120.cubin", "00075.ptx", "00087.ptx")
    held = {f"kernels-{number}": b"" for number in numbers} | {"kernels-1.ptx": b"", "x": b""}
    assert list(cuda.candidates(held, capability)) == [f"kernels-{each}" for each in expected]


def test_a_refused_file_leaves_the_next(driver: Counting) -> None:
    """A Jetson takes cubins of its own architecture only, though the major version is the same."""
    device = cuda.CudaDevice(driver, 0)
    program = binaries(programs.addition("cuda"), "kernels-00087.ptx")
    both = dataclasses.replace(
        program, binaries={**program.binaries, "kernels-00080.cubin": b"\xff"}
    )
    assert run(device, both) == 2
    assert driver.calls.count("cuModuleLoadData") == 2
    only = dataclasses.replace(program, binaries={"kernels-00080.cubin": b"\xff"})
    with pytest.raises(DeviceError, match=r"kernels-00080\.cubin: .*INVALID_IMAGE") as caught:
        Replay(only, device)
    assert caught.value.id == "device.arch" and "--arch sm_87" in caught.value.next


def test_a_bundle_for_other_architectures(kernel_cache: Path) -> None:
    device = cuda.CudaDevice(FakeDriver(Shim(kernel_cache), (8, 6)), 0)
    program = binaries(programs.addition("cuda"), "kernels-00087.cubin", "kernels-00087.ptx")
    with pytest.raises(DeviceError, match=r"it is sm_86, .* compiled for sm_87") as caught:
        Replay(program, device)
    assert (caught.value.id, caught.value.next) == (
        "device.arch",
        "export again with --arch sm_87,sm_86",
    )
    with pytest.raises(DeviceError, match="compiled for no architecture") as caught:
        Replay(programs.addition("cuda"), device)
    assert caught.value.next == "export again with --arch sm_86"


def test_what_is_advised_is_possible(kernel_cache: Path) -> None:
    """Whatever the device, the architecture that the error names compiles; else it names none."""
    for capability in ((7, 2), (7, 5), (8, 6), (8, 7), (9, 0), (12, 0)):
        device = cuda.CudaDevice(FakeDriver(Shim(kernel_cache), capability), 0)
        with pytest.raises(DeviceError) as caught:
            Replay(programs.addition("cuda"), device)
        own = "sm_{}{}".format(*capability)
        assert caught.value.id == "device.arch"
        if capability < (7, 5):
            assert "--arch" not in caught.value.next and "target cpu" in caught.value.next
            with pytest.raises(InputError):
                compiler.check([own])
        else:
            assert caught.value.next == f"export again with --arch {own}"
            assert compiler.check([own]) == (own,)


# No driver, no device.


def test_without_the_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(DeviceError, match=r"pip install '\.\[cuda\]'") as caught:
        cuda.open()
    assert caught.value.id == "device.missing"
    assert cuda.devices() == []


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver as bindings

    def missing(flags: int) -> None:
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    monkeypatch.setattr(bindings, "cuInit", missing)
    with pytest.raises(DeviceError, match=r"libcuda\.so\.1") as caught:
        cuda.open()
    assert caught.value.id == "device.missing" and "JetPack" in caught.value.next
    assert cuda.devices() == []
    status = bindings.CUresult.CUDA_ERROR_NO_DEVICE
    monkeypatch.setattr(bindings, "cuInit", lambda flags: (status,))
    with pytest.raises(DeviceError, match="CUDA_ERROR_NO_DEVICE"):
        cuda.open()


def test_a_device_by_name_or_index(driver: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_import", lambda: driver)
    (info,) = cuda.devices()
    assert (info.target, info.kind) == ("cuda", "integrated")
    assert info.details == "compute capability 8.7, CUDA 12.6"
    for wanted in (None, 0, "PROCESSOR"):
        device = cuda.open(wanted)
        assert device.name == "CUDA on the processor, CUDA 12.6"
        device.close()
    for wanted in (1, -1, "no such device"):
        with pytest.raises(DeviceError, match="there is no device called") as caught:
            cuda.open(wanted)
        assert caught.value.id == "device.adapter"
    with pytest.raises(DeviceError, match="the program needs 2048") as caught:
        cuda.open(requirements={"invocations": 2048})
    assert caught.value.id == "device.limits"
    monkeypatch.setattr(driver, "cuDeviceGetCount", lambda: (CUresult.CUDA_SUCCESS, 0))
    with pytest.raises(DeviceError, match="finds no device"):
        cuda.open()


# Graphs, memory, ends.


def test_a_run_is_one_graph_launch(driver: Counting) -> None:
    """Nothing is made after the first run; kernels are launched by the graph alone."""
    program = binaries(programs.addition("cuda"), "kernels-00087.ptx")
    device = cuda.CudaDevice(driver, 0)
    with Replay(program, device) as replay:
        replay.run({"a": ONES, "b:0": ONES})
        driver.calls.clear()
        replay.run({"a": ONES, "b:0": ONES})
    copies = ["cuMemcpyHtoDAsync", "cuStreamSynchronize"] * 2
    reads = ["cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync", "cuStreamSynchronize"]
    run = [*copies, "cuGraphLaunch", *reads]
    assert driver.calls[: len(run)] == run
    assert set(driver.calls[len(run) :]) == {"cuMemFree"}


def test_graphs_are_destroyed_later(driver: Counting) -> None:
    """Not where Python drops the last use of one: what a signal's handler raises there is lost."""
    program = binaries(programs.addition("cuda"), "kernels-00087.ptx")
    device = cuda.CudaDevice(driver, 0)
    with Replay(program, device) as replay:
        replay.run({"a": ONES, "b:0": ONES})
        driver.calls.clear()
        calls: list[str] = []
        sys.setprofile(
            lambda frame, event, _: event == "call" and calls.append(frame.f_code.co_name)
        )
        replay._recordings.clear()
        sys.setprofile(None)
        assert calls == [], "code of Python, in which a signal may be lost"
        assert driver.calls == []
    assert driver.calls.count("cuGraphExecDestroy") == 1
    device.close()
    assert driver.calls.count("cuGraphExecDestroy") == 1


def test_everything_is_given_back(driver: Counting) -> None:
    device = cuda.CudaDevice(driver, 0)
    symbolic = binaries(programs.symbolic("cuda"), "kernels-00087.ptx")
    with Replay(symbolic, device) as replay:
        for rows in range(1, 9):
            x = np.ones((rows, 4), np.float32)
            replay.run({"x": x, "bias": x[0]})
            replay.profile({"x": x, "bias": x[0]})
        kinds = [handle.kind for handle in driver.handles]
        assert kinds.count("executable graph") == 8 and "event" not in kinds
    assert not driver.memory
    gc.collect()
    left = Replay(symbolic, device)  # graphs go with the next call of the device
    kinds = sorted(handle.kind for handle in driver.handles)
    assert kinds == ["context", "module", "module", "stream"]
    left.run({"x": x, "bias": x[0]})
    device.close()
    assert not driver.handles and not driver.memory
    device.close()
    with pytest.raises(DeviceError, match="was closed"):
        device.alloc(256)


def test_too_little_memory(kernel_cache: Path) -> None:
    driver = FakeDriver(Shim(kernel_cache), most=8192)
    device = cuda.CudaDevice(driver, 0)
    with pytest.raises(DeviceError, match="out of memory") as caught:
        Replay(binaries(programs.addition("cuda"), "kernels-00087.ptx"), device)
    assert caught.value.id == "device.memory"
    assert not driver.memory


def test_a_failure_while_recording_leaves_the_stream_usable(driver: Counting) -> None:
    device = cuda.CudaDevice(driver, 0)
    program = binaries(programs.addition("cuda"), "kernels-00087.ptx")
    launch = Launch(0, (0, 1, 3, 2), (4, 65536, 1))
    entry = dataclasses.replace(program.entries[0], steps=(launch,))
    with (
        Replay(dataclasses.replace(program, entries=(entry,)), device) as replay,
        pytest.raises(InternalError, match="65536"),
    ):
        replay.run({"a": ONES, "b:0": ONES})
    kernel = dataclasses.replace(program.kernels[0], workgroup=(2048, 1, 1))
    with (
        Replay(dataclasses.replace(program, kernels=(kernel,)), device) as replay,
        pytest.raises(DeviceError, match="INVALID_VALUE"),
    ):
        replay.run({"a": ONES, "b:0": ONES})
    assert run(device, program) == 2


def test_a_kernel_that_the_module_lacks(driver: Counting) -> None:
    program = binaries(programs.addition("cuda"), "kernels-00087.ptx")
    kernel = dataclasses.replace(program.kernels[0], name="absent")
    with pytest.raises(InternalError, match="CUDA_ERROR_NOT_FOUND") as caught:
        Replay(dataclasses.replace(program, kernels=(kernel,)), cuda.CudaDevice(driver, 0))
    assert caught.value.id == "device.kernel"


def test_from_another_thread(kernel_cache: Path) -> None:
    """The context is made current by each call."""
    driver = FakeDriver(Shim(kernel_cache))
    current: set[int] = set()
    inherited = driver.cuCtxSetCurrent

    def set_current(context: Any) -> Any:
        current.add(threading.get_ident())
        return inherited(context)

    driver.cuCtxSetCurrent = set_current  # type: ignore[method-assign]
    device = cuda.CudaDevice(driver, 0)
    found: list[float] = []
    program = binaries(programs.addition("cuda"), "kernels-00087.ptx")
    thread = threading.Thread(target=lambda: found.append(run(device, program)))
    thread.start()
    thread.join()
    assert found == [2] and len(current) == 2


def test_the_tests_device_is_the_real_one(cuda_device: CompilingDevice) -> None:
    """Whatever device runs the suites, it is the product's class."""
    assert isinstance(cuda_device, cuda.CudaDevice)
    memory = cuda_device.alloc(1024)
    cuda_device.upload(Range(memory, 256, 4), np.arange(4, dtype=np.uint8))
    (content,) = cuda_device.read([Range(memory, 256, 4)])
    assert content.tolist() == [0, 1, 2, 3]
    assert memory.address % 256 == 0
    cuda_device.free(memory)
    cuda_device.free(memory)


def test_the_stand_in_for_the_driver_is_like_it() -> None:
    """Every function and constant of it is one of the bindings', with as many arguments."""
    from cuda.bindings import driver as bindings

    for name, function in vars(FakeDriver).items():
        if name.startswith("cu"):
            signature = re.match(rf"{name}\((.*?)\)\n", getattr(bindings, name).__doc__)
            assert signature is not None, name
            expected = [part for part in signature[1].split(",") if part.strip()]
            given = list(inspect.signature(function).parameters.values())[1:]
            if given and given[-1].kind is not inspect.Parameter.VAR_POSITIONAL:
                assert len(given) == len(expected), (name, signature[1])
        elif name.startswith("CU"):
            for member in function:
                assert hasattr(getattr(bindings, name), member.name), (name, member.name)
    text = inspect.getsource(cuda)
    used = set(re.findall(r'"(cu[A-Z]\w+)"|\.(cu[A-Z]\w+)\(', text))
    assert {a or b for a, b in used} <= set(vars(FakeDriver))
    assert all(hasattr(bindings.CUresult, status) for status in cuda.REFUSED)
