"""The webgpu device: WGSL kernels run by wgpu, on any adapter of the machine, software too.

A kernel's buffers are storage bindings 0, 1, ... of group 0; after them, if it takes the symbols, a
uniform of one int32 per symbol. The device is opened with WebGPU's default limits, as a browser
would, raised only where the program requires it; for programs that are not known yet, with all that
the adapter has.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
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
    errors,
    load_driver,
    one_line,
    opening,
)
from tinyedge.core.program.program import Program

# A program's requirement, the limit that it needs, and what every WebGPU device has.
LIMITS = (
    ("bindings", "max-storage-buffers-per-shader-stage", 8),
    ("binding_bytes", "max-storage-buffer-binding-size", 128 * 2**20),
    ("buffer_bytes", "max-buffer-size", 256 * 2**20),
    ("invocations", "max-compute-invocations-per-workgroup", 256),
    ("invocations", "max-compute-workgroup-size-x", 256),
    ("invocations", "max-compute-workgroup-size-y", 256),
    ("workgroups", "max-compute-workgroups-per-dimension", 65535),
    ("workgroup_bytes", "max-compute-workgroup-storage-size", 16384),
)

# A query set holds at most 4096 timestamps, two for each timed pass.
TIMED_PASSES = 2048

# OpenGL is left out: it lacks what WebGPU promises, and its drivers are the less sound ones: some
# crash forked children at exit.
BACKENDS = ("Vulkan", "Metal", "DX12")

# Adapters in the order in which they are preferred.
KINDS = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown", "CPU")

MESSAGE_LINES = 20


@dataclass(frozen=True, eq=False)
class _Kernel:
    name: str
    pipeline: Any
    layout: Any
    bindings: int


@dataclass(frozen=True, eq=False)
class _Bound:
    kernel: _Kernel
    group: Any


@dataclass(frozen=True, eq=False)
class _Recording:
    """Commands, with a scratch buffer for copies inside one buffer, which WebGPU forbids."""

    commands: tuple[Command, ...]
    scratch: Any


class WebgpuDevice:
    """An open WebGPU device. See `open`."""

    def __init__(self, wgpu: Any, adapter: Any, device: Any) -> None:
        self.name = adapter.summary
        self.process: int | None = os.getpid()
        self._wgpu = wgpu
        self._device = device
        self._layouts: dict[tuple[tuple[str, ...], bool], tuple[Any, Any]] = {}
        self._staging: Any = None
        self._timed = "timestamp-query" in device.features
        self._tick = _tick(device)
        self._workgroups = device.limits["max-compute-workgroups-per-dimension"]
        self._binding = device.limits["max-storage-buffer-binding-size"]
        self._most = device.limits["max-buffer-size"]

    def alloc(self, bytes: int, *, uniform: bool = False) -> Any:
        """A buffer; `uniform` makes it one for the symbols."""
        usage = self._wgpu.BufferUsage
        kind = usage.UNIFORM if uniform else usage.STORAGE
        flags = kind | usage.COPY_SRC | usage.COPY_DST
        if bytes > self._most:
            raise DeviceError(
                f"the device {self.name}",
                f"a buffer of {bytes} bytes is above its limit of {self._most}",
                id="device.memory",
                next="compute it in parts, or on another device",
            )
        with self._errors(f"a buffer of {bytes} bytes"):
            return self._device.create_buffer(label="arena", size=bytes, usage=flags)

    def free(self, memory: Any) -> None:
        """Destroy a buffer."""
        memory.destroy()

    def upload(self, destination: Range, data: Bytes) -> None:
        """Queue a write of a buffer."""
        with self._errors("an upload"):
            self._device.queue.write_buffer(destination.memory, destination.offset, data)

    def copy(self, source: Range, destination: Range) -> None:
        """A recording of one copy, run at once."""
        self.replay(self.record([Transfer(source, destination)]))

    def compile(self, program: Program) -> list[_Kernel]:
        """One pipeline per kernel."""
        kernels = []
        for kernel in program.kernels:
            accesses = tuple(binding.access for binding in kernel.bindings)
            group, layout = self._layout(accesses, kernel.symbols)
            with self._compile_errors(kernel.name):
                module = self._device.create_shader_module(
                    label=kernel.name, code=program.prelude + kernel.source
                )
                pipeline = self._device.create_compute_pipeline(
                    label=kernel.name,
                    layout=layout,
                    compute={"module": module, "entry_point": kernel.name},
                )
            kernels.append(_Kernel(kernel.name, pipeline, group, len(accesses)))
        return kernels

    def _layout(self, accesses: tuple[str, ...], symbols: bool) -> tuple[Any, Any]:
        """Bind group layout and pipeline layout, shared by kernels of equal bindings."""
        key = (accesses, symbols)
        if key not in self._layouts:
            kinds = ["read-only-storage" if access == "read" else "storage" for access in accesses]
            if symbols:
                kinds.append("uniform")
            entries = [
                {
                    "binding": index,
                    "visibility": self._wgpu.ShaderStage.COMPUTE,
                    "buffer": {"type": kind},
                }
                for index, kind in enumerate(kinds)
            ]
            with self._errors(f"a layout of {len(accesses)} bindings"):
                group = self._device.create_bind_group_layout(entries=entries)
                layout = self._device.create_pipeline_layout(bind_group_layouts=[group])
            self._layouts[key] = group, layout
        return self._layouts[key]

    def bind(self, kernel: _Kernel, ranges: Sequence[Range], symbols: Range | None) -> _Bound:
        """A bind group, made once per launch. Raises DeviceError for a range beyond the limit."""
        largest = max(place.bytes for place in ranges)
        if largest > self._binding:
            raise DeviceError(
                f"kernel {kernel.name!r}",
                f"it needs a tensor of {largest} bytes bound; {self.name} binds up to "
                f"{self._binding}",
                id="device.limits",
                next="compute that tensor in parts along an axis, or on another device",
            )
        places = [*ranges, symbols] if symbols is not None else list(ranges)
        entries = [
            {
                "binding": index,
                "resource": {"buffer": place.memory, "offset": place.offset, "size": place.bytes},
            }
            for index, place in enumerate(places)
        ]
        with self._errors(f"kernel {kernel.name!r}"):
            group = self._device.create_bind_group(
                label=kernel.name, layout=kernel.layout, entries=entries
            )
        return _Bound(kernel, group)

    def record(self, commands: Sequence[Command]) -> _Recording:
        """Check the counts; WebGPU has no reusable recording, so a run encodes the list again."""
        inside = 0
        for command in commands:
            if isinstance(command, Dispatch):
                if max(command.grid) > self._workgroups:
                    raise InternalError(
                        f"kernel {command.bound.kernel.name!r}",
                        f"a launch of {command.grid} workgroups is above {self._workgroups}",
                        id="device.counts",
                    )
            elif command.source.memory is command.destination.memory:
                inside = max(inside, command.source.bytes)
        return _Recording(tuple(commands), self.alloc(inside) if inside else None)

    def replay(self, recording: _Recording) -> None:
        """One encoder, one pass between copies, one submit."""
        with self._errors("a run"):
            encoder = self._device.create_command_encoder()
            current = None
            pipeline = None
            for command in recording.commands:
                if isinstance(command, Dispatch):
                    if current is None:
                        current = encoder.begin_compute_pass()
                        pipeline = None
                    bound = command.bound
                    if bound.kernel.pipeline is not pipeline:
                        pipeline = bound.kernel.pipeline
                        current.set_pipeline(pipeline)
                    current.set_bind_group(0, bound.group)
                    current.dispatch_workgroups(*command.grid)
                else:
                    if current is not None:
                        current.end()
                        current = None
                    self._copy(encoder, command, recording.scratch)
            if current is not None:
                current.end()
            self._device.queue.submit([encoder.finish()])

    def _copy(self, encoder: Any, command: Transfer, scratch: Any) -> None:
        source, destination = command.source, command.destination
        origin, start = source.memory, source.offset
        if origin is destination.memory:
            encoder.copy_buffer_to_buffer(origin, start, scratch, 0, source.bytes)
            origin, start = scratch, 0
        encoder.copy_buffer_to_buffer(
            origin, start, destination.memory, destination.offset, source.bytes
        )

    def profile(self, recording: _Recording) -> list[float]:
        """Time each launch by timestamps where the device has them, else by waiting for it."""
        seconds: list[float] = []
        commands = recording.commands
        for first in range(0, len(commands), TIMED_PASSES):
            chunk = commands[first : first + TIMED_PASSES]
            if self._timed:
                seconds += self._profile_timestamps(chunk, recording.scratch)
            else:
                seconds += self._profile_waiting(chunk, recording.scratch)
        return seconds

    def _profile_timestamps(self, commands: Sequence[Command], scratch: Any) -> list[float]:
        count = 2 * len(commands)
        usage = self._wgpu.BufferUsage
        with self._errors("a timed run"):
            queries = self._device.create_query_set(type="timestamp", count=count)
            ticks = self._device.create_buffer(
                size=8 * count, usage=usage.QUERY_RESOLVE | usage.COPY_SRC
            )
            encoder = self._device.create_command_encoder()
            for index, command in enumerate(commands):
                writes = {
                    "query_set": queries,
                    "beginning_of_pass_write_index": 2 * index,
                    "end_of_pass_write_index": 2 * index + 1,
                }
                if not isinstance(command, Dispatch):
                    # An empty pass: a copy has no time of its own, but every query needs a value.
                    self._copy(encoder, command, scratch)
                current = encoder.begin_compute_pass(timestamp_writes=writes)
                if isinstance(command, Dispatch):
                    current.set_pipeline(command.bound.kernel.pipeline)
                    current.set_bind_group(0, command.bound.group)
                    current.dispatch_workgroups(*command.grid)
                current.end()
            encoder.resolve_query_set(queries, 0, count, ticks, 0)
            self._device.queue.submit([encoder.finish()])
            (content,) = self.read([Range(ticks, 0, 8 * count)])
            ticks.destroy()
        times = content.view("<u8").astype(np.int64).reshape(-1, 2)
        return [max(0.0, float(end - begin) * self._tick) for begin, end in times]

    def _profile_waiting(self, commands: Sequence[Command], scratch: Any) -> list[float]:
        seconds = []
        self._wait()
        for command in commands:
            start = time.perf_counter()
            self.replay(_Recording((command,), scratch))
            self._wait()
            seconds.append(time.perf_counter() - start)
        return seconds

    def _wait(self) -> None:
        """Wait for all that was submitted, by mapping a buffer that the queue touches last."""
        with self._errors("a run"):
            staging = self._staging_of(4)
            encoder = self._device.create_command_encoder()
            encoder.clear_buffer(staging, 0, 4)
            self._device.queue.submit([encoder.finish()])
            staging.map_sync(self._wgpu.MapMode.READ, 0, 4)
            staging.unmap()

    def read(self, ranges: Sequence[Range]) -> list[Bytes]:
        """All ranges through one staging buffer that is kept: one submit, one wait, but for more
        bytes than a buffer holds.
        """
        found: list[Bytes] = []
        first = room = 0
        for number, place in enumerate(ranges):
            if room + place.bytes > self._most:
                found += self._read(ranges[first:number])
                first, room = number, 0
            room += -(-place.bytes // 256) * 256
        return found + self._read(ranges[first:])

    def _read(self, ranges: Sequence[Range]) -> list[Bytes]:
        offsets = []
        total = end = 0
        for place in ranges:
            offsets.append(total)
            end = total + place.bytes
            total = -(-end // 256) * 256
        with self._errors("a read"):
            staging = self._staging_of(end)
            encoder = self._device.create_command_encoder()
            for place, offset in zip(ranges, offsets, strict=True):
                encoder.copy_buffer_to_buffer(
                    place.memory, place.offset, staging, offset, place.bytes
                )
            self._device.queue.submit([encoder.finish()])
            staging.map_sync(self._wgpu.MapMode.READ, 0, end)
            try:
                return [
                    np.frombuffer(staging.read_mapped(offset, place.bytes), np.uint8)
                    for place, offset in zip(ranges, offsets, strict=True)
                ]
            finally:
                staging.unmap()

    def _staging_of(self, bytes: int) -> Any:
        if self._staging is None or self._staging.size < bytes:
            if self._staging is not None:
                self._staging.destroy()
            usage = self._wgpu.BufferUsage
            self._staging = self._device.create_buffer(
                label="staging",
                size=max(bytes, min(self._most // 4 * 4, 1 << max(12, (bytes - 1).bit_length()))),
                usage=usage.MAP_READ | usage.COPY_DST,
            )
        return self._staging

    def close(self) -> None:
        """Destroy the device and everything on it."""
        self._layouts.clear()
        self._staging = None
        self._device.destroy()

    def _errors(self, subject: str) -> AbstractContextManager[None]:
        """wgpu's errors as ours."""
        wgpu = self._wgpu
        return errors(
            subject, self.name, wgpu.GPUOutOfMemoryError, wgpu.GPUValidationError, wgpu.GPUError
        )

    @contextmanager
    def _compile_errors(self, name: str) -> Iterator[None]:
        """A refused kernel as a DeviceError that carries the compiler's message."""
        try:
            yield
        except self._wgpu.GPUError as error:
            lines = str(error).strip().splitlines()[:MESSAGE_LINES]
            raise DeviceError(
                f"kernel {name!r}",
                f"{self.name} refused it:\n    " + "\n    ".join(lines),
                id="device.compile",
                next="report it with the model; another adapter may accept it",
            ) from None


def open(
    device: int | str | None = None,
    *,
    requirements: Mapping[str, Any] | None = None,
    features: Sequence[str] = (),
) -> WebgpuDevice:
    """Open a WebGPU device.

    device: an index into `devices()`, or a part of a name; default: the most capable one.
    requirements: a program's; limits above WebGPU's defaults are asked for only as it needs them.
    Without, of programs to come, the adapter's own limits are.
    features: WebGPU features to ask for, such as "shader-f16".
    Raises DeviceError if wgpu is not installed, there is no adapter, or it is too small.
    """
    wgpu = _import()
    with opening("webgpu"):
        return _open(wgpu, _usable(_adapters(wgpu)), device, requirements, features)


def _open(
    wgpu: Any,
    adapters: Sequence[Any],
    device: int | str | None,
    requirements: Mapping[str, Any] | None,
    features: Sequence[str],
) -> WebgpuDevice:
    driver = "install a Vulkan driver (a software one: apt-get install mesa-vulkan-drivers)"
    adapter = adapters[choose("webgpu", [a.summary for a in adapters], device, driver)]
    limits = {}
    for requirement, limit, default in LIMITS:
        available = adapter.limits[limit]
        needed = max(default, int((requirements or {}).get(requirement, 0)))
        if requirements is None:
            needed = max(needed, available)
        if needed > available:
            raise DeviceError(
                f"the adapter {adapter.summary}",
                f"its {limit} is {available}, the program needs {needed}",
                id="device.limits",
                next="choose another adapter (tinyedge devices), or export with smaller limits",
            )
        limits[limit] = needed
    missing = sorted(set(features) - set(adapter.features))
    if missing:
        raise DeviceError(
            f"the adapter {adapter.summary}",
            f"it does not have {', '.join(missing)}",
            id="device.limits",
            next="choose another adapter (tinyedge devices)",
        )
    wanted = [*features]
    if "timestamp-query" in adapter.features:
        wanted.append("timestamp-query")
    try:
        opened = adapter.request_device_sync(
            label="tinyedge", required_limits=limits, required_features=wanted
        )
    except (RuntimeError, wgpu.GPUError) as error:
        raise DeviceError(
            f"the adapter {adapter.summary}",
            f"it gives no device: {one_line(error)}",
            id="device.request",
            next="choose another adapter (tinyedge devices)",
        ) from None
    return WebgpuDevice(wgpu, adapter, opened)


def devices() -> list[DeviceInfo]:
    """The machine's adapters, best first; none if wgpu is not installed."""
    if importlib.util.find_spec("wgpu") is None:
        return []
    wgpu = _import()
    with opening("webgpu"):
        return [
            DeviceInfo(
                "webgpu",
                adapter.info["device"],
                adapter.info["adapter_type"],
                f"{adapter.info['backend_type']}, {adapter.info['description']}",
            )
            for adapter in _usable(_adapters(wgpu))
        ]


def _import() -> Any:
    """The wgpu package, imported only when a device is wanted."""
    return load_driver("webgpu", "wgpu", "wgpu", id="device.webgpu")


# All adapters, to the end of the process: dropping one of OpenGL while another thread uses OpenGL
# aborts the process (wgpu-hal unwraps EGL's BadAccess), and every enumeration makes and drops some.
_found: list[Any] = []


def _adapters(wgpu: Any) -> list[Any]:
    """All adapters, enumerated once. Called by one thread at a time."""
    if _found:
        return _found
    from wgpu.backends.wgpu_native.extras import set_instance_extras

    with suppress(RuntimeError):  # the program made wgpu's instance itself, with OpenGL
        set_instance_extras(backends=BACKENDS)
    try:
        _found.extend(wgpu.gpu.enumerate_adapters_sync())
    except (RuntimeError, wgpu.GPUError):
        return []
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_leave_to_parent)
    return _found


def _leave_to_parent() -> None:
    """In a forked child, keep wgpu from releasing what it holds, as it does not at exit either.

    Releasing a device waits for threads that only the parent has, be it the last thing that a
    child does.
    """
    from wgpu.backends.wgpu_native import _api

    _api.libf = None


def _usable(adapters: Sequence[Any]) -> list[Any]:
    """The best first; without those of OpenGL, which a program that uses wgpu itself may have."""
    usable = [adapter for adapter in adapters if adapter.info["backend_type"] != "OpenGL"]
    return sorted(usable, key=lambda adapter: _preference(adapter.info["adapter_type"]))


def _preference(kind: str) -> int:
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def _tick(device: Any) -> float:
    """Seconds per timestamp tick: wgpu gives the hardware's ticks and has no public name for it."""
    try:
        from wgpu.backends.wgpu_native import lib

        return float(lib.wgpuQueueGetTimestampPeriod(device.queue._internal)) * 1e-9
    except (ImportError, AttributeError):
        return 1e-9
