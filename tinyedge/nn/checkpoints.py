"""Tensors in files of torch.save: a zip of a pickle and of the storages that its tensors lie in.

Nothing in a file is run: the pickle's reader knows containers, numbers and tensors alone, and what
else a file holds is refused by name. Files may come from anyone: see safetensors.py.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InputError
from tinyedge.nn import pickles
from tinyedge.nn.pickles import Name, Other

MAGIC = b"PK\x03\x04"  # of a zip that is not empty
OLD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # how torch before 1.6 began
TYPES: dict[str, DType] = {
    "float64": dt.float64,
    "float32": dt.float32,
    "float16": dt.float16,
    "bfloat16": dt.bfloat16,
    "float8_e4m3fn": dt.float8_e4m3fn,
    "float8_e5m2": dt.float8_e5m2,
    "int64": dt.int64,
    "int32": dt.int32,
    "int16": dt.int16,
    "int8": dt.int8,
    "uint64": dt.uint64,
    "uint32": dt.uint32,
    "uint16": dt.uint16,
    "uint8": dt.uint8,
    "bool": dt.bool_,
}
STORAGES = {
    "DoubleStorage": dt.float64,
    "FloatStorage": dt.float32,
    "HalfStorage": dt.float16,
    "BFloat16Storage": dt.bfloat16,
    "LongStorage": dt.int64,
    "IntStorage": dt.int32,
    "ShortStorage": dt.int16,
    "CharStorage": dt.int8,
    "ByteStorage": dt.uint8,
    "BoolStorage": dt.bool_,
}
AXES = 32
SHARED = 16  # times the file's size that the elements of all tensors may have, of shared storages
DEPTH = 64  # containers in each other
VISITS = 2_000_000  # of values in containers, counted wherever they occur
CHARACTERS = 1 << 26  # of all ways to tensors and containers
NAME = 4096  # characters of a tensor's name

TENSORS = "tensors in dicts, lists and tuples"
REPEATED = "save it whole, as tensor.contiguous()"
NEXT = "save the state alone, torch.save(model.state_dict(), path), or write safetensors"


class _Repeated(ValueError):
    """A tensor whose elements lie in its storage, but fewer of them than it has."""


class _Storage(Other):
    """Elements in a file of the zip. dtype: None where a tensor says it."""

    def __init__(self, raw: bytes, dtype: DType | None) -> None:
        self.raw, self.dtype = raw, dtype


class _Stored(Other):
    """A tensor: where its elements lie in a storage."""

    def __init__(
        self,
        storage: _Storage,
        dtype: DType,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> None:
        self.storage, self.dtype, self.offset = storage, dtype, offset
        self.shape, self.strides = shape, strides

    @property
    def place(self) -> tuple[Any, ...]:
        return id(self.storage), self.dtype, self.offset, self.shape, self.strides


def read(source: Path, raw: bytes) -> dict[str, tuple[DType, Any]]:
    """The tensors of a file's bytes by the way to each, as `model.0.weight`, as types and arrays,
    of stored types their codes. What is no tensor is left out. Raises InputError.
    """
    try:
        files = _files(raw)
        order = files.get("byteorder", b"little")
        if order not in (b"little", b"big") or "data.pkl" not in files:
            raise ValueError("it has no data.pkl, or a byte order that is unknown")
        storages: dict[tuple[Any, ...], _Storage] = {}
        tree = pickles.read(
            files["data.pkl"], _calls(), lambda said: _storage(files, storages, said)
        )
        found = dict[str, _Stored]()
        for name, tensor in _named(tree):
            if name in found:
                raise ValueError(f"two of its tensors are called {name!r:.200}")
            found[name] = tensor
        return _arrays(found, len(raw), big=order == b"big")
    except (ValueError, TypeError, OverflowError) as error:
        fix = REPEATED if isinstance(error, _Repeated) else NEXT
        raise wrong(source, str(error), fix) from error


def _files(raw: bytes) -> dict[str, bytes]:
    """The zip's files by their names without the folder around them. Raises ValueError."""
    found: dict[str, bytes] = {}
    total = 0
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            for info in archive.infolist():
                if info.flag_bits & 1 or info.compress_type != zipfile.ZIP_STORED:
                    raise ValueError("a file in it is compressed or encrypted")
                if info.file_size != info.compress_size:
                    raise ValueError("a file in it has two sizes")
                name = info.filename.partition("/")[2]
                if name in found:
                    raise ValueError("two files in it have one name")
                total += info.file_size
                if total > len(raw):
                    raise ValueError("its files overlap")
                found[name] = archive.read(info)
    except (
        *(zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError),
        *(struct.error, KeyError, IndexError, UnicodeError),
    ) as error:
        raise ValueError(f"its zip is damaged: {error}") from error
    return found


# What the pickle may call.


def _calls() -> Mapping[Name, pickles.Call]:
    return {
        Name("collections", "OrderedDict"): _ordered,
        Name("torch", "Size"): _size,
        Name("torch", "device"): lambda *parts: None,
        Name("torch._utils", "_rebuild_tensor_v2"): _tensor,
        Name("torch._utils", "_rebuild_tensor_v3"): _typed_tensor,
        Name("torch._utils", "_rebuild_parameter"): _parameter,
        Name("torch.storage", "UntypedStorage"): _no_call,
        **{Name("torch", name): _no_call for name in (*STORAGES, *TYPES)},
    }


def _no_call(*parts: Any) -> Any:
    raise ValueError("it calls what is a type of elements")


def _ordered(*parts: Any) -> Any:
    if parts:
        raise ValueError("it fills an OrderedDict as it makes it")
    return {}


def _size(sizes: Any) -> Any:
    return _sizes(sizes)


def _parameter(tensor: Any, *rest: Any) -> Any:
    if not isinstance(tensor, _Stored):
        raise ValueError("a parameter in it is no tensor")
    return tensor


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> _Stored:
    """rest: whether it needs a gradient, hooks, and notes, all of which are left aside."""
    if not isinstance(storage, _Storage) or storage.dtype is None:
        raise ValueError("a tensor in it has no storage")
    return _placed(storage, storage.dtype, offset, shape, strides)


def _typed_tensor(
    storage: Any,
    offset: Any,
    shape: Any,
    strides: Any,
    grad: Any,
    hooks: Any,
    dtype: Any,
    *rest: Any,
) -> _Stored:
    known = TYPES.get(dtype.name) if type(dtype) is Name and dtype.module == "torch" else None
    if known is None or not isinstance(storage, _Storage):
        raise ValueError("a tensor in it has no storage, or a type that is not known")
    return _placed(storage, known, offset, shape, strides)


def _placed(storage: _Storage, dtype: DType, offset: Any, shape: Any, strides: Any) -> _Stored:
    sizes, steps = _sizes(shape), _sizes(strides)
    (start,) = _sizes((offset,))
    if len(sizes) != len(steps) or len(sizes) > AXES:
        raise ValueError("a tensor in it has no shape")
    elements = len(storage.raw) // dtype.itemsize
    last = start + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
    count: int = prod(sizes)
    if count > elements > last:
        raise _Repeated(f"a tensor of {list(sizes)} in it repeats elements, as expand makes it")
    if count > elements or (count and last >= elements):
        raise ValueError(f"a tensor of {list(sizes)} in it does not lie in its storage")
    most: int = prod(size or 1 for size in sizes)
    if most * dtype.itemsize >= 2**63:
        raise ValueError(f"a tensor in it has the shape {list(sizes)}")
    return _Stored(storage, dtype, start, sizes, steps)


def _sizes(value: Any) -> tuple[int, ...]:
    if type(value) is not tuple or not all(type(n) is int and 0 <= n < 2**63 for n in value):
        raise ValueError("a size, stride or offset in it is none")
    return value


def _storage(
    files: Mapping[str, bytes], made: dict[tuple[Any, ...], _Storage], said: Any
) -> _Storage:
    """By ("storage", type, name, device, elements); the one that was made before, if one was."""
    if type(said) is not tuple or len(said) != 5 or said[0] != "storage":
        raise ValueError("a storage in it is none")
    _, kind, name, _, count = said
    raw = files.get(f"data/{name}") if type(name) is str else None
    if type(kind) is not Name or raw is None:
        raise ValueError("a storage in it is missing")
    dtype = STORAGES.get(kind.name) if kind.module == "torch" else None
    if dtype is None and kind.name != "UntypedStorage":
        raise ValueError(f"a storage in it is of {kind.module}.{kind.name}")
    (elements,) = _sizes((count,))
    if elements * (dtype.itemsize if dtype else 1) != len(raw):
        raise ValueError(f"storage {name!r:.80} has {len(raw)} bytes, not {elements} elements")
    return made.setdefault((name, dtype), _Storage(raw, dtype))


# From what the pickle holds to tensors by name.


def _named(tree: Any) -> Iterator[tuple[str, _Stored]]:
    """The tensors of containers by the way to each."""
    if not isinstance(tree, (dict, list, tuple)):
        raise ValueError("it holds no container of tensors")
    pending: list[tuple[str, int, Any]] = [("", 0, tree)]
    visits = characters = 0
    while pending:
        name, depth, value = pending.pop()
        if len(name) > NAME:
            raise ValueError(f"the way to a tensor in it has {len(name)} characters")
        if isinstance(value, _Stored):
            yield name, value
        else:
            visits += len(value)
            if visits > VISITS or depth > DEPTH:
                raise ValueError("its containers lie too deep in each other, or in themselves")
            items = value.items() if isinstance(value, dict) else enumerate(value)
            start = f"{name}." if depth else ""
            inner = []
            for key, part in items:
                if _holds(part):
                    inner.append((f"{start}{key}", depth + 1, part))
                    characters += len(inner[-1][0])
                    if characters > CHARACTERS:
                        raise ValueError("the ways to what it holds are too long")
            pending += inner[::-1]


def _holds(value: Any) -> bool:
    return isinstance(value, (dict, list, tuple, _Stored))


def _arrays(found: Mapping[str, _Stored], size: int, big: bool) -> dict[str, tuple[DType, Any]]:
    """Types and arrays; tensors at one place share one."""
    distinct = {tensor.place: tensor for tensor in found.values()}
    total = sum(prod(t.shape) * t.dtype.itemsize for t in distinct.values())
    if total > SHARED * size:
        raise ValueError(f"its tensors have {total} bytes, and share storages of {size}")
    made = {place: _array(tensor, big) for place, tensor in distinct.items()}
    return {name: (tensor.dtype, made[tensor.place]) for name, tensor in found.items()}


def _array(tensor: _Stored, big: bool) -> Any:
    """The elements in their order, row-major."""
    held = tensor.dtype.held
    kind = np.dtype(np.uint8 if held is dt.bool_ else held.numpy).newbyteorder(">" if big else "<")
    whole = np.frombuffer(tensor.storage.raw, kind, len(tensor.storage.raw) // kind.itemsize)
    if 0 in tensor.shape:
        return np.zeros(tensor.shape, held.numpy)
    axes = zip(tensor.shape, tensor.strides, strict=True)
    strides = [step * kind.itemsize if size > 1 else 0 for size, step in axes]
    view = np.lib.stride_tricks.as_strided(whole[tensor.offset :], tensor.shape, strides)
    return np.array(view != 0 if held is dt.bool_ else view, held.numpy, order="C")


def wrong(source: Path, because: str, next: str = NEXT) -> InputError:
    return InputError(
        f"the file {str(source)!r}", because, id="input.checkpoint", supported=TENSORS, next=next
    )
