"""The cuda device: compiled kernels run through the driver's API, one CUDA graph a recording.

A kernel's arguments are the addresses of its buffers and then, if it takes the symbols, of the
table of int32. A bundle brings its kernels compiled: nothing is compiled here, but the driver may
translate PTX.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tinyedge.core.errors import DeviceError, InternalError
from tinyedge.core.program.device import (
    Bytes,
    Command,
    DeviceInfo,
    Dispatch,
    Range,
    Transfer,
    choose,
    load_driver,
    opening,
)
from tinyedge.core.program.program import Program
from tinyedge.targets.cuda.compiler import LEAST_ARCHITECTURE

# Most workgroups along each dimension, of every compute capability.
GRID = (2**31 - 1, 65535, 65535)

# The driver's answers to a module that is for other devices or for newer drivers.
REFUSED = (
    "CUDA_ERROR_NO_BINARY_FOR_GPU",
    "CUDA_ERROR_INVALID_IMAGE",
    "CUDA_ERROR_INVALID_PTX",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
)

BINARY = re.compile(r"kernels-([0-9]{5})\.(cubin|ptx)")


class Driver:
    """The driver's functions by name: they give what they return, failures are DeviceErrors."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, name: str, *arguments: Any) -> Any:
        status, *values = getattr(self.module, name)(*arguments)
        if status != self.module.CUresult.CUDA_SUCCESS:
            raise self._failure(name, status)
        return values[0] if values else None

    def _failure(self, name: str, status: Any) -> DeviceError:
        _, text = self.module.cuGetErrorString(status)
        said = f"{status.name}: {text.decode() if text else 'unknown'}"
        if status.name == "CUDA_ERROR_OUT_OF_MEMORY":
            return DeviceError(
                "the cuda device",
                f"it is out of memory: {name} says {said}",
                id="device.memory",
                next="close what else uses the device, or choose smaller sizes",
            )
        if status.name in REFUSED:
            return DeviceError("the kernels", f"the driver says {said}", id="device.arch")
        return DeviceError(
            "the cuda device",
            f"it failed: {name} says {said}",
            id="device.lost",
            next="open the device again, in a new process after a failure of a kernel",
        )


@dataclass(frozen=True, eq=False)
class Memory:
    """An allocation of the device."""

    address: int
    bytes: int


@dataclass(frozen=True, eq=False)
class _Kernel:
    name: str
    function: Any
    workgroup: tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class _Bound:
    """A kernel and its arguments: their values, and the addresses of these."""

    kernel: _Kernel
    values: ctypes.Array[ctypes.c_uint64]
    pointers: ctypes.Array[ctypes.c_void_p]


@dataclass(frozen=True, eq=False)
class _Recording:
    """Commands, and the CUDA graph of them if there are any."""

    commands: tuple[Command, ...]
    graph: Any


class CudaDevice:
    """An open CUDA device. See `open`."""

    def __init__(self, module: Any, ordinal: int) -> None:
        self.process: int | None = os.getpid()
        self._driver = Driver(module)
        self._handle = self._driver("cuDeviceGet", ordinal)
        self.capability = _capability(self._driver, self._handle)
        self.name = f"{_name(self._driver, self._handle)}, CUDA {_version(self._driver)}"
        self._context = self._driver("cuDevicePrimaryCtxRetain", self._handle)
        self._call("cuCtxSetCurrent", self._context)
        self._stream = self._call("cuStreamCreate", module.CUstream_flags.CU_STREAM_DEFAULT)
        self._memory: set[Memory] = set()
        self._modules: list[Any] = []
        # The graphs of recordings, and which of these nothing refers to any more. Python drops them
        # anywhere, and an exception raised there is lost: also the KeyboardInterrupt of a Ctrl-C,
        # for which any code of Python is enough, as that of a `__del__`. So none runs then; Python
        # itself appends to the list, and the graphs are destroyed later.
        self._graphs: dict[weakref.ref[_Recording], Any] = {}
        self._unused: list[weakref.ref[_Recording]] = []

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._driver(name, *arguments)

    def _enter(self) -> None:
        """Make the context current: callers may come from another thread than the last one.

        Destroys the graphs of recordings that nothing refers to any more.
        """
        if self._context is None:
            raise DeviceError("the cuda device", "it was closed", id="device.lost")
        self._call("cuCtxSetCurrent", self._context)
        while self._unused:
            self._call("cuGraphExecDestroy", self._graphs.pop(self._unused.pop()))

    def alloc(self, bytes: int, *, uniform: bool = False) -> Memory:
        """Device memory, aligned to at least 256 bytes."""
        self._enter()
        memory = Memory(int(self._call("cuMemAlloc", bytes)), bytes)
        self._memory.add(memory)
        return memory

    def free(self, memory: Memory) -> None:
        """Give memory back, once nothing uses it any more."""
        if memory in self._memory:
            self._enter()
            self._memory.discard(memory)
            self._call("cuMemFree", memory.address)

    def upload(self, destination: Range, data: Bytes) -> None:
        """Write memory, after all that was replayed before."""
        self._enter()
        content = np.ascontiguousarray(data)
        address = destination.memory.address + destination.offset
        source = content.ctypes.data
        self._call("cuMemcpyHtoDAsync", address, source, destination.bytes, self._stream)
        self._call("cuStreamSynchronize", self._stream)

    def copy(self, source: Range, destination: Range) -> None:
        """A recording of one copy, run at once."""
        self.replay(self.record([Transfer(source, destination)]))

    def compile(self, program: Program) -> list[_Kernel]:
        """Load the program's compiled kernels: one module, a function a kernel."""
        if not program.kernels:
            return []
        self._enter()
        module = self._load(program.binaries)
        self._modules.append(module)
        kernels = []
        for kernel in program.kernels:
            try:
                function = self._call("cuModuleGetFunction", module, kernel.name.encode())
            except DeviceError as error:
                because = f"its compiled file does not give it: {error.because}"
                raise InternalError(
                    f"kernel {kernel.name!r}", because, id="device.kernel"
                ) from None
            kernels.append(_Kernel(kernel.name, function, kernel.workgroup))
        return kernels

    def _load(self, binaries: Mapping[str, bytes]) -> Any:
        """The module of the first compiled file that suits the device and that the driver takes."""
        refused = []
        for name in candidates(binaries, self.capability):
            image = np.frombuffer(binaries[name] + b"\0", np.uint8)  # PTX is a C string
            try:
                return self._call("cuModuleLoadData", image.ctypes.data)
            except DeviceError as error:
                if error.id != "device.arch":
                    raise
                refused.append(f"{name}: {error.because}")
        own = "sm_{}{}".format(*self.capability)
        if refused:
            raise DeviceError(
                f"the device {self.name}",
                "it loads none of the bundle's compiled kernels: " + "; ".join(refused),
                id="device.arch",
                next=f"update the driver, or export with --arch {own} by an NVRTC that is no newer",
            )
        numbers = sorted({int(found[1]) for found in map(BINARY.fullmatch, binaries) if found})
        held = ", ".join(f"sm_{number}" for number in numbers)
        raise DeviceError(
            f"the device {self.name}",
            f"it is {own}, and the bundle's kernels are compiled for {held or 'no architecture'}",
            id="device.arch",
            next=self._advice([f"sm_{number}" for number in numbers]),
        )

    def _advice(self, held: Sequence[str]) -> str:
        """What to do about a bundle whose kernels are compiled for other architectures."""
        major, minor = self.capability
        if 10 * major + minor < LEAST_ARCHITECTURE:
            least = f"sm_{LEAST_ARCHITECTURE}"
            return f"{least} is the oldest GPU there is code for: export for the target cpu"
        return f"export again with --arch {','.join((*held, f'sm_{major}{minor}'))}"

    def bind(self, kernel: _Kernel, ranges: Sequence[Range], symbols: Range | None) -> _Bound:
        """The arguments of a launch, made once."""
        places = [*ranges, symbols] if symbols is not None else list(ranges)
        values = (ctypes.c_uint64 * len(places))(
            *(place.memory.address + place.offset for place in places)
        )
        first, size = ctypes.addressof(values), ctypes.sizeof(ctypes.c_uint64)
        pointers = (ctypes.c_void_p * len(places))(*(first + i * size for i in range(len(places))))
        return _Bound(kernel, values, pointers)

    def record(self, commands: Sequence[Command]) -> _Recording:
        """The commands as a graph, captured from the stream."""
        self._enter()
        for command in commands:
            _check_counts(command)
        graph = self._graph(commands) if commands else None
        recording = _Recording(tuple(commands), graph)
        if graph is not None:
            self._graphs[weakref.ref(recording, self._unused.append)] = graph
        return recording

    def _graph(self, commands: Sequence[Command]) -> Any:
        modes = self._driver.module.CUstreamCaptureMode
        mode = modes.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", self._stream, mode)
        try:
            for command in commands:
                self._enqueue(command)
        except BaseException:
            with suppress(DeviceError):
                self._call("cuStreamEndCapture", self._stream)
            raise
        captured = self._call("cuStreamEndCapture", self._stream)
        try:
            return self._call("cuGraphInstantiate", captured, 0)
        finally:
            self._call("cuGraphDestroy", captured)

    def _enqueue(self, command: Command) -> None:
        if isinstance(command, Dispatch):
            bound: _Bound = command.bound
            kernel = bound.kernel
            arguments = ctypes.addressof(bound.pointers)
            shape = (*command.grid, *kernel.workgroup)
            shared = 0
            self._call(
                "cuLaunchKernel", kernel.function, *shape, shared, self._stream, arguments, 0
            )
            return
        source, destination = command.source, command.destination
        to = destination.memory.address + destination.offset
        origin = source.memory.address + source.offset
        self._call("cuMemcpyDtoDAsync", to, origin, source.bytes, self._stream)

    def replay(self, recording: _Recording) -> None:
        """One launch of the graph."""
        self._enter()
        if recording.graph is not None:
            self._call("cuGraphLaunch", recording.graph, self._stream)

    def profile(self, recording: _Recording) -> list[float]:
        """Run the commands one by one, each between two events of the device's clock."""
        self._enter()
        flags = self._driver.module.CUevent_flags.CU_EVENT_DEFAULT
        events = [self._call("cuEventCreate", flags) for _ in range(len(recording.commands) + 1)]
        try:
            self._call("cuEventRecord", events[0], self._stream)
            for command, event in zip(recording.commands, events[1:], strict=True):
                self._enqueue(command)
                self._call("cuEventRecord", event, self._stream)
            self._call("cuStreamSynchronize", self._stream)
            return [self._call("cuEventElapsedTime", *pair) * 1e-3 for pair in pairwise(events)]
        finally:
            for event in events:
                self._call("cuEventDestroy", event)

    def read(self, ranges: Sequence[Range]) -> list[Bytes]:
        """Copies of the ranges, after all that was replayed."""
        self._enter()
        contents = [np.empty(place.bytes, np.uint8) for place in ranges]
        for place, content in zip(ranges, contents, strict=True):
            address = place.memory.address + place.offset
            self._call("cuMemcpyDtoHAsync", content.ctypes.data, address, place.bytes, self._stream)
        self._call("cuStreamSynchronize", self._stream)
        return contents

    def close(self) -> None:
        """Give back graphs, modules, memory and the context."""
        if self._context is None:
            return
        with suppress(DeviceError):
            self._enter()
        ends = [("cuGraphExecDestroy", graph) for graph in self._graphs.values()]
        ends += [("cuMemFree", memory.address) for memory in self._memory]
        ends += [("cuModuleUnload", module) for module in self._modules]
        ends += [("cuStreamDestroy", self._stream), ("cuDevicePrimaryCtxRelease", self._handle)]
        for name, handle in ends:
            with suppress(DeviceError):
                self._call(name, handle)
        self._memory.clear()
        self._modules.clear()
        self._context = None


def candidates(binaries: Mapping[str, bytes], capability: tuple[int, int]) -> Iterator[str]:
    """Compiled files that suit a device, the best first: cubins of its major version, then PTX."""
    major, minor = capability
    own = 10 * major + minor
    found = [match for match in map(BINARY.fullmatch, sorted(binaries, reverse=True)) if match]
    suiting = [(match, int(match[1])) for match in found if int(match[1]) <= own]
    yield from (match[0] for match, n in suiting if match[2] == "cubin" and n // 10 == major)
    yield from (match[0] for match, _ in suiting if match[2] == "ptx")


def open(
    device: int | str | None = None, *, requirements: Mapping[str, Any] | None = None
) -> CudaDevice:
    """Open a CUDA device.

    device: an index into `devices()`, or a part of a name; default: the first. requirements: a
    program's. Raises DeviceError if there is no driver or no such device, or it is too small.
    """
    with opening("cuda"):
        return _open(Driver(_import()), device, requirements or {})


def _open(driver: Driver, device: int | str | None, requirements: Mapping[str, Any]) -> CudaDevice:
    names = _names(driver)
    ordinal = choose("cuda", names, device, "install an NVIDIA driver")
    threads = int(requirements.get("invocations", 0))
    shared = int(requirements.get("workgroup_bytes", 0))
    attributes = driver.module.CUdevice_attribute
    for needed, limit, attribute in (
        (threads, "threads a workgroup", attributes.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        (
            shared,
            "bytes of shared memory",
            attributes.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
        ),
    ):
        available = driver("cuDeviceGetAttribute", attribute, driver("cuDeviceGet", ordinal))
        if needed > available:
            raise DeviceError(
                f"the device {names[ordinal]}",
                f"it has {available} {limit}, the program needs {needed}",
                id="device.limits",
                next="choose another device (tinyedge devices)",
            )
    return CudaDevice(driver.module, ordinal)


def devices() -> list[DeviceInfo]:
    """The machine's CUDA devices in the driver's order; none without a driver."""
    if importlib.util.find_spec("cuda") is None:
        return []
    with opening("cuda"):
        try:
            driver = Driver(_import())
            names = _names(driver)
        except DeviceError:
            return []
        return [_describe(driver, *found) for found in enumerate(names)]


def _describe(driver: Driver, ordinal: int, name: str) -> DeviceInfo:
    handle = driver("cuDeviceGet", ordinal)
    attribute = driver.module.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_INTEGRATED
    kind = "integrated" if driver("cuDeviceGetAttribute", attribute, handle) else "discrete"
    capability = "compute capability {}.{}".format(*_capability(driver, handle))
    return DeviceInfo("cuda", name, kind, f"{capability}, CUDA {_version(driver)}")


def _import() -> Any:
    """The bindings of the driver's API, ready to be called."""
    driver = load_driver("cuda", "cuda.bindings.driver", "cuda-bindings", id="device.missing")
    try:
        status = driver.cuInit(0)[0]
    except (RuntimeError, OSError) as error:
        raise _missing(f"NVIDIA's driver does not load: {' '.join(str(error).split())}") from None
    if status != driver.CUresult.CUDA_SUCCESS:
        raise _missing(f"the driver says {status.name}")
    return driver


def _missing(because: str) -> DeviceError:
    return DeviceError(
        "the cuda device",
        because,
        id="device.missing",
        supported="NVIDIA GPUs of compute capability 7.5 and above",
        next="install NVIDIA's driver (on a Jetson: JetPack); exporting needs neither",
    )


def _names(driver: Driver) -> list[str]:
    """The devices' names by ordinal. Raises DeviceError if there is none."""
    count = driver("cuDeviceGetCount")
    if not count:
        raise _missing("the driver finds no device")
    return [_name(driver, driver("cuDeviceGet", ordinal)) for ordinal in range(count)]


def _name(driver: Driver, handle: Any) -> str:
    name: bytes = driver("cuDeviceGetName", 256, handle)
    return name.split(b"\0")[0].decode("utf-8", "replace")


def _version(driver: Driver) -> str:
    """The CUDA version that the driver supports."""
    version = driver("cuDriverGetVersion")
    return f"{version // 1000}.{version % 1000 // 10}"


def _capability(driver: Driver, handle: Any) -> tuple[int, int]:
    attributes = driver.module.CUdevice_attribute
    major = attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    minor = attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
    return (
        driver("cuDeviceGetAttribute", major, handle),
        driver("cuDeviceGetAttribute", minor, handle),
    )


def _check_counts(command: Command) -> None:
    if isinstance(command, Dispatch):
        if any(count > most for count, most in zip(command.grid, GRID, strict=True)):
            raise InternalError(
                f"kernel {command.bound.kernel.name!r}",
                f"a launch of {command.grid} workgroups is above {GRID}",
                id="device.counts",
            )
