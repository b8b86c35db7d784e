"""The C runtime called from Python by ctypes, as tests need it: a bundle as a shared library."""

from __future__ import annotations

import ctypes as c
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

DTYPES = (
    *("", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
INPUTS, OUTPUTS, STATES = range(3)

ALLOCATE = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_size_t)
RELEASE = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)
LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("text", c.c_char * 248)]


class Allocator(c.Structure):
    _fields_ = [("allocate", ALLOCATE), ("release", RELEASE), ("user", c.c_void_p)]


class Logger(c.Structure):
    _fields_ = [("log", LOG), ("user", c.c_void_p)]


class Reader(c.Structure):
    _fields_ = [("size", c.c_void_p), ("read", c.c_void_p), ("user", c.c_void_p)]


SIZE = c.CFUNCTYPE(c.c_int64, c.c_void_p, c.c_char_p)
READ = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p, c.c_int64, c.c_void_p, c.c_size_t)


class File(c.Structure):
    _fields_ = [("name", c.c_char_p), ("data", c.c_char_p), ("bytes", c.c_size_t)]


class Open(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("folder", c.c_char_p),
        ("files", c.c_void_p),
        ("file_count", c.c_size_t),
        ("reader", Reader),
        ("allocator", Allocator),
        ("logger", Logger),
        ("any_target", c.c_bool),
        ("plan", c.c_char_p),
        ("manifest", c.c_char_p),
    ]


class Cache(c.Structure):
    _fields_ = [("read", c.c_void_p), ("write", c.c_void_p), ("user", c.c_void_p)]


class OpenCl(c.Structure):
    _fields_ = [
        ("device", c.c_char_p),
        ("library", c.c_char_p),
        ("context", c.c_void_p),
        ("queue", c.c_void_p),
        ("cache", Cache),
        ("cache_folder", c.c_char_p),
    ]


class Cuda(c.Structure):
    _fields_ = [
        ("device", c.c_char_p),
        ("library", c.c_char_p),
        ("context", c.c_void_p),
        ("stream", c.c_void_p),
    ]


class Create(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("backend", c.c_void_p),
        ("profile", c.c_bool),
        ("kernels", c.c_void_p),
        ("threads", c.c_int),
        ("opencl", OpenCl),
        ("cuda", Cuda),
    ]


class Tensor(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("data", c.c_void_p),
        ("device", c.c_uint64),
        ("offset", c.c_uint64),
        ("bytes", c.c_size_t),
        ("dtype", c.c_int),
        ("rank", c.c_int),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
    ]


class PortInfo(c.Structure):
    _fields_ = [
        ("name", c.c_char_p),
        ("dtype", c.c_int),
        ("storage", c.c_int),
        ("rank", c.c_int),
        ("shape", c.c_int64 * 8),
        ("symbol", c.c_int * 8),
        ("slices", c.c_int),
        ("counted", c.c_bool),
        ("codes", c.c_char_p),
    ]


class ProfileInfo(c.Structure):
    _fields_ = [
        ("kernel", c.c_char_p),
        ("nodes", c.c_char_p),
        ("runs", c.c_uint64),
        ("nanoseconds", c.c_uint64),
        ("flops", c.c_uint64),
    ]


class Memory(c.Structure):
    _fields_ = [
        (name, c.c_uint64) for name in ("manifest", "weights", "arenas", "context", "device")
    ]


class Report(c.Structure):
    _fields_ = [
        *((name, c.c_int) for name in ("cases", "outputs", "wrong", "distinct")),
        ("error", c.c_double),
    ]


class RuntimeFailure(Exception):
    """A status other than 0; `id` is its stable id."""

    def __init__(self, id: str, text: str) -> None:
        super().__init__(text)
        self.id = id


class Library:
    """The runtime for a bundle: by default its `build/libtinyedge.so`, which has its kernels."""

    backend = "te_cpu"

    def __init__(self, bundle: Path, file: Path | None = None) -> None:
        self.bundle = bundle
        self.c = c.CDLL(str(file or bundle / "build" / "libtinyedge.so"))
        self.c.te_status_id.restype = c.c_char_p
        getattr(self.c, self.backend).restype = c.c_void_p
        self.c.te_last_error.restype = c.POINTER(Error)
        self.c.te_port.restype = self.c.te_profile.restype = c.c_bool
        self.kernels: int | None = None
        if self.backend == "te_cpu":
            named = re.search(r"const te_kernels (\w+)", (bundle / "model.c").read_text("ascii"))
            assert named is not None
            self.kernels = c.addressof(c.c_char.in_dll(self.c, named[1]))

    def id(self, status: int) -> str:
        name: bytes = self.c.te_status_id(status)
        return name.decode()

    def check(self, status: int, error: Error) -> None:
        if status:
            assert status == error.status
            raise RuntimeFailure(self.id(status), error.text.decode())

    def open_options(self, allocator: Allocator | None = None, **fields: Any) -> Open:
        options = Open(size=c.sizeof(Open), folder=str(self.bundle).encode(), **fields)
        if allocator is not None:
            options.allocator = allocator
        return options

    def create_options(self, **fields: Any) -> Create:
        return Create(
            **{
                "size": c.sizeof(Create),
                "backend": getattr(self.c, self.backend)(),
                "kernels": self.kernels,
                **fields,
            }
        )

    def open(self, options: Open | None = None) -> c.c_void_p:
        model, error = c.c_void_p(), Error()
        status = self.c.te_open(
            c.byref(options or self.open_options()), c.byref(model), c.byref(error)
        )
        self.check(status, error)
        return model

    def create(self, model: c.c_void_p, options: Create | None = None) -> c.c_void_p:
        context, error = c.c_void_p(), Error()
        options = options or self.create_options()
        status = self.c.te_create(model, c.byref(options), c.byref(context), c.byref(error))
        self.check(status, error)
        return context

    def self_test(self, model: c.c_void_p, options: Create | None = None) -> Report:
        report, error = Report(), Error()
        options = options or self.create_options()
        status = self.c.te_self_test(model, c.byref(options), c.byref(report), c.byref(error))
        self.check(status, error)
        return report

    def measure(self) -> Memory:
        memory, error = Memory(), Error()
        status = self.c.te_measure(
            c.byref(self.open_options()),
            c.byref(self.create_options()),
            c.byref(memory),
            c.byref(error),
        )
        self.check(status, error)
        return memory


def tensor(array: Array) -> Tensor:
    """A binding of an array's memory, with its shape and strides."""
    shape = (c.c_int64 * 8)(*array.shape)
    strides = (c.c_int64 * 8)(*array.strides)
    end = sum((size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True))
    result = Tensor(
        size=c.sizeof(Tensor),
        data=array.ctypes.data,
        bytes=end + array.itemsize if array.size else 0,
        dtype=DTYPES.index(array.dtype.name),
        rank=array.ndim,
        shape=shape,
        strides=strides,
    )
    return result


class Context:
    """A context that runs as `Replay.run` does."""

    def __init__(self, library: Library, **options: Any) -> None:
        self.library = library
        self.model = library.open()
        self.context = library.create(self.model, library.create_options(**options))
        self.bound: dict[str, Array] = {}  # keeps the memory that the context knows

    def close(self) -> None:
        self.library.c.te_destroy(self.context)
        self.library.c.te_close(self.model)

    def check(self, status: int) -> None:
        if status:
            error = self.library.c.te_last_error(self.context).contents
            self.library.check(status, error)

    def info(self, group: int, index: int) -> PortInfo:
        info = PortInfo()
        assert self.library.c.te_port(self.model, group, index, c.byref(info))
        return info

    def find(self, group: int, name: str) -> int:
        index: int = self.library.c.te_find_port(self.model, group, name.encode())
        return index

    def find_in(self, entry: int, group: int, name: str) -> int:
        """The index of a port of an entry: those of others may have its name."""
        port = self.library.c.te_entry_port
        indices = (port(self.model, entry, group, position) for position in range(1024))
        return next(
            index
            for index in takewhile(lambda index: index >= 0, indices)
            if self.info(group, index).name.decode() == name
        )

    def bind(self, inputs: Mapping[str, Array], entry: int = 0) -> None:
        for name, array in inputs.items():
            binding = tensor(array)
            self.bound[name] = array
            index = self.find_in(entry, INPUTS, name)
            self.check(self.library.c.te_bind_input(self.context, index, c.byref(binding)))

    def shape(self, group: int, index: int) -> tuple[int, ...]:
        rank, shape = c.c_int(), (c.c_int64 * 8)()
        status = self.library.c.te_shape(self.context, group, index, c.byref(rank), shape)
        self.check(status)
        return tuple(shape[: rank.value])

    def new(self, group: int, index: int) -> Array:
        dtype = DTYPES[self.info(group, index).dtype]
        return np.zeros(self.shape(group, index), dtype)

    def run(self, inputs: Mapping[str, Array], entry: str = "") -> dict[str, Array]:
        """Outputs by name, without slices."""
        number = self.library.c.te_find_entry(self.model, entry.encode()) if entry else 0
        self.bind(inputs, number)
        self.check(self.library.c.te_run(self.context, number))
        results = {}
        for position in range(1024):
            index = self.library.c.te_entry_port(self.model, number, OUTPUTS, position)
            if index < 0:
                break
            array = self.new(OUTPUTS, index)
            binding = tensor(array)
            self.check(self.library.c.te_read_output(self.context, index, c.byref(binding)))
            results[self.info(OUTPUTS, index).name.decode()] = array
        return results

    def read_slice(self, output: int, slice: int, shape: Sequence[int]) -> Array:
        array = np.zeros(tuple(shape), DTYPES[self.info(OUTPUTS, output).dtype])
        binding = tensor(array)
        status = self.library.c.te_read_slice(self.context, output, slice, c.byref(binding))
        self.check(status)
        return array

    def get_state(self, index: int) -> Array:
        array = self.new(STATES, index)
        binding = tensor(array)
        self.check(self.library.c.te_get_state(self.context, index, c.byref(binding)))
        return array

    def set_state(self, index: int, array: Array) -> None:
        binding = tensor(array)
        self.check(self.library.c.te_set_state(self.context, index, c.byref(binding)))
