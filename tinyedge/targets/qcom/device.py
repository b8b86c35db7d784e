"""The qcom device: OpenCL C kernels through pyopencl, on any full-profile OpenCL 1.2 device.

A kernel's arguments are its buffers in order and then, if it takes the symbols, the table of int32.
They are set once, when a launch is bound, on a kernel object of its own: a run only enqueues.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tinyedge.core.dtype import by_name
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
from tinyedge.core.program.program import Image, Kernel, Program
from tinyedge.targets.qcom.render import BUILD

# A program's requirement, the limit that it needs, and how OpenCL calls it.
LIMITS = (
    ("binding_bytes", "max_mem_alloc_size"),
    ("buffer_bytes", "max_mem_alloc_size"),
    ("invocations", "max_work_group_size"),
    ("workgroup_bytes", "local_mem_size"),
    ("image_width", "image2d_max_width"),
    ("image_height", "image2d_max_height"),
)

# What a bundle may ask of the device's compiler.
BUILD_OPTIONS = frozenset((*BUILD.split(), "-cl-fast-relaxed-math"))

ALIGNMENT = 256  # of buffers in an arena, bytes
PIXEL = 4  # channels
IMAGE_FROM_BUFFER = "cl_khr_image2d_from_buffer"  # part of OpenCL 2

# Queries that pyopencl does not have, in pixels: CL_DEVICE_IMAGE_PITCH_ALIGNMENT and
# CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT.
IMAGE_ALIGNMENTS = (0x104A, 0x104B)

MESSAGE_LINES = 20


@dataclass(eq=False)
class Memory:
    """A buffer, and the parts and images of it that launches are bound to."""

    buffer: Any
    bytes: int
    parts: dict[tuple[int, int], Any] = field(default_factory=dict)
    images: dict[Image, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Kernel:
    name: str
    program: Any
    workgroup: tuple[int, int, int]
    images: tuple[bool, ...]  # of its arguments, as its source says


@dataclass(frozen=True, eq=False)
class _Bound:
    """A kernel object with its arguments. `memory` keeps them alive."""

    kernel: _Kernel
    object: Any
    memory: tuple[Any, ...]


Call = Callable[[Any], Any]  # enqueues one command to the queue that it is given


class OpenclDevice:
    """An open OpenCL device. See `open`."""

    def __init__(self, cl: Any, device: Any) -> None:
        self.name = _name(device)
        self.process: int | None = os.getpid()
        self._cl = cl
        self._device = device
        self._context = cl.Context([device])
        self._queue = cl.CommandQueue(self._context)
        self._timed: Any = None
        self._image_alignments = _image_alignments(cl, device)

    def alloc(self, bytes: int, *, uniform: bool = False) -> Memory:
        """A buffer."""
        limit = self._device.max_mem_alloc_size
        if bytes > limit:
            raise DeviceError(
                f"the device {self.name}",
                f"a buffer of {bytes} bytes is above its limit of {limit}",
                id="device.memory",
            )
        with self._errors(f"a buffer of {bytes} bytes"):
            flags = self._cl.mem_flags.READ_WRITE
            return Memory(self._cl.Buffer(self._context, flags, bytes), bytes)

    def free(self, memory: Memory) -> None:
        """Release a buffer and what was made of it; it goes when no command uses it any more."""
        for made in (*memory.images.values(), *memory.parts.values(), memory.buffer):
            made.release()
        memory.images.clear()
        memory.parts.clear()

    def upload(self, destination: Range, data: Bytes) -> None:
        """Write a buffer."""
        with self._errors("an upload"):
            self._cl.enqueue_copy(
                self._queue,
                destination.memory.buffer,
                np.ascontiguousarray(data),
                dst_offset=destination.offset,
            )

    def copy(self, source: Range, destination: Range) -> None:
        """A recording of one copy, run at once."""
        self.replay(self.record([Transfer(source, destination)]))

    def compile(self, program: Program) -> list[_Kernel]:
        """All kernels as one OpenCL program."""
        kernels = program.kernels
        if not kernels:
            return []
        source = "\n".join((program.prelude, *(kernel.source for kernel in kernels)))
        options = _build_options(program)
        # Without pyopencl's own cache: it loads what it finds unchecked; drivers have theirs.
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", self._cl.CompilerWarning)
                built = self._cl.Program(self._context, source).build(options, cache_dir=False)
        except self._cl.Error as error:
            lines = str(error).strip().splitlines()[:MESSAGE_LINES]
            raise DeviceError(
                "the kernels",
                f"{self.name} refused them:\n    " + "\n    ".join(lines),
                id="device.compile",
                next="report it with the model; another device may accept them",
            ) from None
        return [_Kernel(k.name, built, k.workgroup, _image_arguments(k)) for k in kernels]

    def bind(self, kernel: _Kernel, ranges: Sequence[Range], symbols: Range | None) -> _Bound:
        """A kernel object with its arguments, made once per launch."""
        places = [*ranges, symbols] if symbols is not None else list(ranges)
        given = tuple(place.image is not None for place in places)
        if given != kernel.images:  # not every driver notices: some crash
            raise DeviceError(
                f"kernel {kernel.name!r}",
                "the bundle gives it a buffer for an image, an image for a buffer, or too few",
                id="device.image",
                next="export the model again",
            )
        with self._errors(f"kernel {kernel.name!r}"):
            made = self._cl.Kernel(kernel.program, kernel.name)
            limit = made.get_work_group_info(
                self._cl.kernel_work_group_info.WORK_GROUP_SIZE, self._device
            )
            threads = int(np.prod(kernel.workgroup))
            if threads > limit:
                raise DeviceError(
                    f"kernel {kernel.name!r}",
                    f"it needs {threads} threads a workgroup, {self.name} runs it with {limit}",
                    id="device.limits",
                    next="choose another device (tinyedge devices)",
                )
            arguments = tuple(
                self._part(place) if place.image is None else self._image(place, place.image)
                for place in places
            )
            made.set_args(*arguments)
        return _Bound(kernel, made, arguments)

    def _part(self, place: Range) -> Any:
        """A range of a buffer as a buffer of its own."""
        memory: Memory = place.memory
        if place.offset == 0 and place.bytes == memory.bytes:
            return memory.buffer
        key = (place.offset, place.bytes)
        if key not in memory.parts:
            memory.parts[key] = memory.buffer.get_sub_region(*key)
        return memory.parts[key]

    def _image(self, place: Range, image: Image) -> Any:
        """A range of a buffer as an image: a view of it where the device can, else a copy."""
        memory: Memory = place.memory
        if image not in memory.images:
            pixel = by_name(image.dtype).itemsize * PIXEL
            positions = (image.pitch // pixel, place.offset // pixel)
            fits = [
                alignment > 0 and position % alignment == 0
                for position, alignment in zip(positions, self._image_alignments, strict=True)
            ]
            make = self._image_view if all(fits) else self._image_copy
            memory.images[image] = make(place, image)
        return memory.images[image]

    def _image_view(self, place: Range, image: Image) -> Any:
        cl = self._cl
        desc = _description(cl, image)
        desc.pitches = (image.pitch, 0)
        desc.buffer = self._part(place)
        flags = cl.mem_flags.READ_WRITE
        made = cl.Image(self._context, flags, _format(cl, image), desc=desc)
        pitch = made.get_image_info(cl.image_info.ROW_PITCH)
        if pitch != image.pitch:
            raise DeviceError(
                f"the device {self.name}",
                f"it makes an image with rows of {pitch} bytes of one with rows of {image.pitch}",
                id="device.image",
                next="report it with the device's name; export without images",
            )
        return made

    def _image_copy(self, place: Range, image: Image) -> Any:
        cl = self._cl
        flags = cl.mem_flags.READ_WRITE
        made = cl.Image(self._context, flags, _format(cl, image), desc=_description(cl, image))
        (content,) = self.read([place])
        region, pitches = (image.width, image.height), (image.pitch,)
        cl.enqueue_copy(self._queue, made, content, origin=(0, 0), region=region, pitches=pitches)
        return made

    def record(self, commands: Sequence[Command]) -> list[Call]:
        """The commands as calls that take a queue."""
        return [self._call(command) for command in commands]

    def _call(self, command: Command) -> Call:
        if not isinstance(command, Dispatch):
            return self._copy(command)
        bound: _Bound = command.bound
        counts, workgroup = command.grid, bound.kernel.workgroup
        threads = tuple(count * size for count, size in zip(counts, workgroup, strict=True))
        if max(threads) >= 2**31:
            raise InternalError(
                f"kernel {bound.kernel.name!r}",
                f"a launch of {counts} workgroups has 2^31 threads or more along one dimension",
                id="device.counts",
            )
        return partial(_enqueue, self._cl.enqueue_nd_range_kernel, bound.object, threads, workgroup)

    def _copy(self, command: Transfer) -> Call:
        source, destination = command.source, command.destination
        return partial(
            self._cl.enqueue_copy,
            dest=destination.memory.buffer,
            src=source.memory.buffer,
            src_offset=source.offset,
            dst_offset=destination.offset,
            byte_count=source.bytes,
        )

    def replay(self, recording: Sequence[Call]) -> None:
        """Enqueue a recording."""
        with self._errors("a run"):
            for call in recording:
                call(self._queue)
            self._queue.flush()

    def profile(self, recording: Sequence[Call]) -> list[float]:
        """Time each command by its events, on a queue of its own."""
        cl = self._cl
        with self._errors("a timed run"):
            self._queue.finish()
            if self._timed is None:
                properties = cl.command_queue_properties.PROFILING_ENABLE
                self._timed = cl.CommandQueue(self._context, properties=properties)
            events = [call(self._timed) for call in recording]
            self._timed.finish()
            return [(event.profile.end - event.profile.start) * 1e-9 for event in events]

    def read(self, ranges: Sequence[Range]) -> list[Bytes]:
        """Copies of the ranges: all enqueued, one wait."""
        contents = [np.empty(place.bytes, np.uint8) for place in ranges]
        with self._errors("a read"):
            events = [
                self._cl.enqueue_copy(
                    self._queue,
                    content,
                    place.memory.buffer,
                    src_offset=place.offset,
                    is_blocking=False,
                )
                for place, content in zip(ranges, contents, strict=True)
            ]
            self._queue.finish()
            del events
        return contents

    def close(self) -> None:
        """Wait for what was enqueued; OpenCL's objects go with the last reference."""
        with self._errors("the last run"):
            self._queue.finish()

    def _errors(self, subject: str) -> AbstractContextManager[None]:
        """OpenCL's errors as ours."""
        cl = self._cl
        return errors(subject, self.name, cl.MemoryError, cl.LogicError, cl.Error)


def _image_arguments(kernel: Kernel) -> tuple[bool, ...]:
    """Which arguments of a kernel are images."""
    found = re.search(rf"\b{re.escape(kernel.name)}\s*\(([^)]*)\)", kernel.source)
    return tuple("image2d_t" in part for part in found[1].split(",")) if found else ()


def _enqueue(
    function: Callable[..., Any],
    kernel: Any,
    threads: tuple[int, ...],
    workgroup: tuple[int, ...],
    queue: Any,
) -> Any:
    return function(queue, kernel, threads, workgroup)


def open(
    device: int | str | None = None, *, requirements: Mapping[str, Any] | None = None
) -> OpenclDevice:
    """Open an OpenCL device.

    device: an index into `devices()`, or a part of a name; default: a GPU before a processor.
    requirements: a program's; the device's limits are checked.
    Raises DeviceError if pyopencl is not installed, there is no device, or it is too small.
    """
    cl = _import()
    with opening("qcom"):
        found = _devices(cl)
        driver = "install an OpenCL driver (a software one: apt-get install pocl-opencl-icd)"
        chosen = found[choose("qcom", [_name(d) for d in found], device, driver)]
        _check(chosen, requirements or {})
        try:
            return OpenclDevice(cl, chosen)
        except cl.Error as error:
            raise DeviceError(
                f"the device {_name(chosen)}",
                f"it gives no context: {one_line(error)}",
                id="device.request",
                next="choose another device (tinyedge devices)",
            ) from None


def devices() -> list[DeviceInfo]:
    """The machine's OpenCL devices, best first; none if pyopencl is not installed."""
    if importlib.util.find_spec("pyopencl") is None:
        return []
    cl = _import()
    with opening("qcom"):
        return [
            DeviceInfo("qcom", device.name.strip(), _kind(cl, device), device.version.strip())
            for device in _devices(cl)
        ]


def _import() -> Any:
    """The pyopencl package, imported only when a device is wanted."""
    return load_driver("qcom", "pyopencl", "pyopencl", id="device.qcom")


def _devices(cl: Any) -> list[Any]:
    """All devices of all platforms, GPUs first."""
    found = []
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # what the loader says when there is no driver
        return []
    for platform in platforms:
        try:
            found.extend(platform.get_devices())
        except cl.Error:  # a platform without a device
            continue
    return sorted(found, key=lambda device: not device.type & cl.device_type.GPU)


def _check(device: Any, requirements: Mapping[str, Any]) -> None:
    """Raise DeviceError unless the device can run a program with these requirements."""
    for requirement, limit in LIMITS:
        needed, available = int(requirements.get(requirement, 0)), getattr(device, limit)
        if needed > available:
            raise _too_small(device, f"its {limit} is {available}, the program needs {needed}")
    pointers = int(requirements.get("bindings", 0)) + 1  # and the symbols
    available = device.max_parameter_size // (device.address_bits // 8)
    if pointers > available:
        raise _too_small(device, f"its kernels take {available} buffers, not {pointers}")
    if ALIGNMENT * 8 % device.mem_base_addr_align:
        raise _too_small(
            device, f"its buffers begin at multiples of {device.mem_base_addr_align} bits"
        )
    if device.profile != "FULL_PROFILE" or not device.endian_little:
        raise _too_small(device, "it is no little-endian device of OpenCL's full profile")
    if "image_width" in requirements and not device.image_support:
        raise _too_small(device, "it has no images")


def _too_small(device: Any, because: str) -> DeviceError:
    return DeviceError(
        f"the device {_name(device)}",
        because,
        id="device.limits",
        next="choose another device (tinyedge devices), or export with smaller limits",
    )


def _build_options(program: Program) -> str:
    """The compiler options of a program. Raises DeviceError for one that is not among ours."""
    options = str(program.options.get("build", BUILD))
    unknown = sorted(set(options.split()) - BUILD_OPTIONS)
    if unknown:
        raise DeviceError(
            "the bundle",
            f"it wants its kernels compiled with {' '.join(unknown)}",
            id="device.compile",
            supported=" ".join(sorted(BUILD_OPTIONS)),
        )
    return options


def _image_alignments(cl: Any, device: Any) -> tuple[int, int]:
    """Of an image over a buffer, in pixels: what its rows' and its own place are multiples of.

    Zeros where the device has no such images, or where it cannot be asked.
    """
    known = IMAGE_FROM_BUFFER in device.extensions.split()
    if not device.image_support or not (known or device.version.startswith("OpenCL 2.")):
        return 0, 0
    try:
        query = ctypes.CDLL(cl._cl.__file__).clGetDeviceInfo  # of the loader that it uses
    except (AttributeError, OSError):
        return 0, 0
    values = (ctypes.c_uint32(), ctypes.c_uint32())
    for name, value in zip(IMAGE_ALIGNMENTS, values, strict=True):
        pointer = ctypes.c_void_p(device.int_ptr)
        size = ctypes.c_size_t(ctypes.sizeof(value))
        if query(pointer, ctypes.c_uint32(name), size, ctypes.byref(value), None) != 0:
            return 0, 0
    return values[0].value, max(1, values[1].value)


def _format(cl: Any, image: Image) -> Any:
    half = image.dtype == "float16"
    channel = cl.channel_type.HALF_FLOAT if half else cl.channel_type.FLOAT
    return cl.ImageFormat(cl.channel_order.RGBA, channel)


def _description(cl: Any, image: Image) -> Any:
    desc = cl.ImageDescriptor()
    desc.image_type = cl.mem_object_type.IMAGE2D
    desc.shape = (image.width, image.height, 1)
    desc.array_size = 0
    return desc


def _kind(cl: Any, device: Any) -> str:
    names = {cl.device_type.GPU: "GPU", cl.device_type.CPU: "CPU"}
    return next((name for kind, name in names.items() if device.type & kind), "other")


def _name(device: Any) -> str:
    return f"{device.name.strip()} ({device.platform.name.strip()})"
