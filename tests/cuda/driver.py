"""The part of `cuda.bindings.driver` that tinyedge calls, on the processor.

Memory is the host's, between guards; a module's image is the text of its kernels, which shim.py
compiles; a graph is a list of calls. Functions give a tuple that begins with a status.
"""

from __future__ import annotations

import ctypes
import enum
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.cuda.shim import Shim

GUARD_BYTES = 4096
GUARD_PATTERN = 0xA5
ALIGNMENT = 256


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_IMAGE = 200
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_FAILED = 719
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900


class CUdevice_attribute(enum.Enum):  # noqa: N801
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1024
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 49152
    CU_DEVICE_ATTRIBUTE_INTEGRATED = True
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = "major"
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = "minor"


class CUstream_flags(enum.IntEnum):  # noqa: N801
    CU_STREAM_DEFAULT = 0


class CUevent_flags(enum.IntEnum):  # noqa: N801
    CU_EVENT_DEFAULT = 0


class CUstreamCaptureMode(enum.IntEnum):
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1


Status = tuple[CUresult]
Call = Callable[[], Status]
OK: Status = (CUresult.CUDA_SUCCESS,)


class Handle:
    """Something of the driver's. content: what it stands for."""

    def __init__(self, kind: str, content: Any = None) -> None:
        self.kind = kind
        self.content = content


class Allocation:
    """Host memory between guards."""

    def __init__(self, bytes: int) -> None:
        self._whole = np.full(bytes + 2 * GUARD_BYTES + ALIGNMENT, GUARD_PATTERN, np.uint8)
        start = -self._whole.ctypes.data % ALIGNMENT + GUARD_BYTES
        self.address = self._whole.ctypes.data + start
        self.bytes = bytes
        self._guards = self._whole[:start], self._whole[start + bytes :]

    def holds(self, address: int, bytes: int) -> bool:
        return self.address <= address and address + bytes <= self.address + self.bytes

    def intact(self) -> bool:
        return all(bool((guard == GUARD_PATTERN).all()) for guard in self._guards)


class FakeDriver:
    """A driver with one device.

    bounds: for the address of a launch's arguments, the ranges (address, bytes) it may touch; with
    sanitizers, it touches no other. most: bytes that can be allocated together. handles: what was
    made and not given back.
    """

    CUresult = CUresult
    CUdevice_attribute = CUdevice_attribute
    CUstream_flags = CUstream_flags
    CUevent_flags = CUevent_flags
    CUstreamCaptureMode = CUstreamCaptureMode

    def __init__(self, shim: Shim, capability: tuple[int, int] = (8, 7), most: int = 2**33) -> None:
        self.shim = shim
        self.capability = capability
        self.most = most
        self.bounds: dict[int, list[tuple[int, int]]] = {}
        self.handles: set[Handle] = set()
        self.memory: dict[int, Allocation] = {}
        self._capturing: list[Call] | None = None

    # The device and its handles.

    def cuInit(self, flags: int) -> Status:
        return OK

    def cuGetErrorString(self, status: CUresult) -> tuple[CUresult, bytes]:
        return *OK, status.name.lower().replace("_", " ").encode()

    def cuDriverGetVersion(self) -> tuple[CUresult, int]:
        return *OK, 12060

    def cuDeviceGetCount(self) -> tuple[CUresult, int]:
        return *OK, 1

    def cuDeviceGet(self, ordinal: int) -> tuple[CUresult, int]:
        return *OK, ordinal

    def cuDeviceGetName(self, length: int, device: int) -> tuple[CUresult, bytes]:
        return *OK, b"CUDA on the processor".ljust(length, b"\0")

    def cuDeviceGetAttribute(
        self, attribute: CUdevice_attribute, device: int
    ) -> tuple[CUresult, int]:
        named = {"major": self.capability[0], "minor": self.capability[1]}
        return *OK, int(named.get(attribute.value, attribute.value))  # type: ignore[call-overload]

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[CUresult, Handle]:
        return self._new("context")

    def cuDevicePrimaryCtxRelease(self, device: int) -> Status:
        return self._gone(next(iter(h for h in self.handles if h.kind == "context"), None))

    def cuCtxSetCurrent(self, context: Handle) -> Status:
        return OK if context in self.handles else (CUresult.CUDA_ERROR_INVALID_CONTEXT,)

    def cuStreamCreate(self, flags: CUstream_flags) -> tuple[CUresult, Handle]:
        return self._new("stream")

    def cuStreamDestroy(self, stream: Handle) -> Status:
        return self._gone(stream)

    def cuStreamSynchronize(self, stream: Handle) -> Status:
        return OK if self._capturing is None else _unsupported()

    def _new(self, kind: str, content: Any = None) -> tuple[CUresult, Handle]:
        handle = Handle(kind, content)
        self.handles.add(handle)
        return *OK, handle

    def _gone(self, handle: Handle | None) -> Status:
        if handle is None or handle not in self.handles:
            return (CUresult.CUDA_ERROR_INVALID_HANDLE,)
        self.handles.discard(handle)
        return OK

    # Memory.

    def cuMemAlloc(self, bytes: int) -> tuple[Any, ...]:
        if bytes + sum(each.bytes for each in self.memory.values()) > self.most:
            return (CUresult.CUDA_ERROR_OUT_OF_MEMORY,)
        memory = Allocation(bytes)
        self.memory[memory.address] = memory
        return *OK, memory.address

    def cuMemFree(self, address: int) -> Status:
        if self.memory.pop(address, None) is None:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        return OK

    def cuMemcpyHtoDAsync(self, to: int, origin: int, bytes: int, stream: Handle) -> Status:
        return self._copy(to, origin, bytes, (to,))

    def cuMemcpyDtoHAsync(self, to: int, origin: int, bytes: int, stream: Handle) -> Status:
        return self._copy(to, origin, bytes, (origin,))

    def cuMemcpyDtoDAsync(self, to: int, origin: int, bytes: int, stream: Handle) -> Status:
        return self._copy(to, origin, bytes, (to, origin))

    def _copy(self, to: int, origin: int, bytes: int, places: tuple[int, ...]) -> Status:
        for place in places:
            if not any(each.holds(place, bytes) for each in self.memory.values()):
                return (CUresult.CUDA_ERROR_INVALID_VALUE,)

        def call() -> Status:
            if not all(each.intact() for each in self.memory.values()):
                return (CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,)
            ctypes.memmove(to, origin, bytes)
            return OK

        return self._do(call)

    # Modules and launches.

    def cuModuleLoadData(self, image: int) -> tuple[Any, ...]:
        text = ctypes.string_at(image)
        if not text.isascii():
            return (CUresult.CUDA_ERROR_INVALID_IMAGE,)
        return self._new("module", self.shim.compile(text.decode()))

    def cuModuleUnload(self, module: Handle) -> Status:
        return self._gone(module)

    def cuModuleGetFunction(self, module: Handle, name: bytes) -> tuple[Any, ...]:
        try:
            return *OK, module.content[f"shim_{name.decode()}"]
        except AttributeError:
            return (CUresult.CUDA_ERROR_NOT_FOUND,)

    def cuLaunchKernel(self, function: Any, *more: Any) -> Status:
        grid, block, (shared, _, arguments, extra) = more[:3], more[3:6], more[6:]
        assert shared == extra == 0
        if not all(grid) or not all(block) or np.prod(block) > 1024:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        bounds = self.bounds.get(arguments, [])
        memory = [(each.address, each.bytes) for each in self.memory.values()]

        def call() -> Status:
            with self.shim.only(memory, bounds):
                met = self.shim.launch(function, grid, block, arguments)
            return OK if met else (CUresult.CUDA_ERROR_LAUNCH_FAILED,)

        return self._do(call)

    # Graphs and events.

    def cuStreamBeginCapture(self, stream: Handle, mode: CUstreamCaptureMode) -> Status:
        if self._capturing is not None:
            return _unsupported()
        self._capturing = []
        return OK

    def cuStreamEndCapture(self, stream: Handle) -> tuple[Any, ...]:
        calls, self._capturing = self._capturing, None
        return self._new("graph", calls)

    def cuGraphInstantiate(self, graph: Handle, flags: int) -> tuple[Any, ...]:
        return self._new("executable graph", graph.content)

    def cuGraphDestroy(self, graph: Handle) -> Status:
        return self._gone(graph)

    def cuGraphExecDestroy(self, graph: Handle) -> Status:
        return self._gone(graph)

    def cuGraphLaunch(self, graph: Handle, stream: Handle) -> Status:
        if graph not in self.handles:
            return (CUresult.CUDA_ERROR_INVALID_HANDLE,)
        for call in graph.content:
            status = self._do(call)
            if status != OK:
                return status
        return OK

    def cuEventCreate(self, flags: CUevent_flags) -> tuple[CUresult, Handle]:
        return self._new("event")

    def cuEventDestroy(self, event: Handle) -> Status:
        return self._gone(event)

    def cuEventRecord(self, event: Handle, stream: Handle) -> Status:
        event.content = time.perf_counter()
        return OK

    def cuEventElapsedTime(self, start: Handle, end: Handle) -> tuple[CUresult, float]:
        return *OK, (end.content - start.content) * 1e3

    def _do(self, call: Call) -> Status:
        """Run a call now, or keep it for the graph that is captured."""
        if self._capturing is None:
            return call()
        self._capturing.append(call)
        return OK


def _unsupported() -> Status:
    return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
