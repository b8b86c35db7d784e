"""Tensors by name in a file: the safetensors format.

A file is the size of a header (8 bytes, least first), the header (JSON: of each name the type, the
shape, and where its elements lie in what follows), and the elements, row-major, least byte first.
See huggingface.co/docs/safetensors. Files may come from anyone: whatever is wrong with one is an
InputError, and nothing in it is run.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InputError
from tinyedge.core.files import next_place, read_regular_file, write_whole
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.nn import checkpoints

TYPES: dict[str, DType] = {
    "BOOL": dt.bool_,
    "U8": dt.uint8,
    "I8": dt.int8,
    "U16": dt.uint16,
    "I16": dt.int16,
    "U32": dt.uint32,
    "I32": dt.int32,
    "U64": dt.uint64,
    "I64": dt.int64,
    "F16": dt.float16,
    "BF16": dt.bfloat16,
    "F32": dt.float32,
    "F64": dt.float64,
    "F8_E4M3": dt.float8_e4m3fn,
    "F8_E5M2": dt.float8_e5m2,
}
NAMES = {dtype: name for name, dtype in TYPES.items()}
METADATA = "__metadata__"
HEADER = 100_000_000  # bytes of a header, as the format's own reader has it
LONGEST = 2**63 - 1  # bytes that numpy can count, of an empty array too, but for its axes of 0
ALIGNMENT = 8  # where the elements begin


class _Entry(NamedTuple):
    name: str
    dtype: DType
    shape: tuple[int, ...]
    start: int
    end: int


def save(path: str | os.PathLike[str], state: Any) -> None:
    """Write a mapping of tensors or arrays by name, such as `nn.state_dict(model)`. The file
    appears whole.

    Raises InputError for a type that the format lacks, or a path where nothing can be written.
    """
    if not isinstance(state, Mapping):
        kind = type(state).__name__
        raise TypeError(
            f"save of {kind}: it takes tensors by name, as nn.state_dict(model) has them"
        )
    values = {}
    for name, value in state.items():
        array = None if isinstance(value, Tensor) else np.asarray(value)
        if array is not None and array.dtype.kind not in "biuf":
            because = f"{name!r} of numpy's {array.dtype} has no place in it"
            raise _wrong(
                _path(path),
                because,
                ", ".join(TYPES),
                "save its real and imaginary parts" if array.dtype.kind == "c" else "leave it out",
            )
        tensor = value if array is None else Tensor(array)
        values[name] = tensor.dtype, np.asarray(tensor.bitcast(tensor.dtype.held).numpy())
    write(path, values)


def write(path: str | os.PathLike[str], arrays: Mapping[str, tuple[DType, Any]]) -> None:
    """`save` for types and arrays, of stored types their codes."""
    target = _path(path)
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    end = 0
    for name, (dtype, array) in sorted(arrays.items()):
        if dtype not in NAMES or name == METADATA:
            raise _wrong(target, f"{name!r} of {dtype} has no place in it", ", ".join(TYPES))
        parts.append(array.astype(array.dtype.newbyteorder("<")).tobytes())
        start, end = end, end + len(parts[-1])
        shape = list(array.shape)
        header[name] = {"dtype": NAMES[dtype], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    try:
        write_whole(target, struct.pack("<Q", len(text)), text, *parts)
    except OSError as error:
        because = f"it cannot be written: {error.strerror or error}"
        elsewhere = "give the path of a file in a folder that exists and can be written to"
        fix = next_place(error, elsewhere)
        raise _wrong(target, because, "a path of a file", fix) from error


def load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a file by name: of a file that `save` wrote, in the form safetensors, or
    torch.save.

    Of what torch.save wrote, containers may lie in each other: a tensor's name is the way to it, as
    `model.0.weight`, and numbers and texts are left out. Raises InputError for a file that is
    damaged, hostile, or holds other things of Python.
    """
    source = _path(path)
    if source.suffix == ".onnx":
        raise checkpoints.wrong(
            source,
            "its name is that of an ONNX model, which is no file of tensors",
            "tinyedge.export_onnx makes a bundle of it; save its tensors as safetensors for this",
        )
    raw = _bytes(source)
    if raw.startswith(checkpoints.OLD):
        raise checkpoints.wrong(
            source, "it is of torch before 1.6", "save it again with a newer version of torch"
        )
    of_torch = raw.startswith(checkpoints.MAGIC)
    found = checkpoints.read(source, raw) if of_torch else _read(source, raw)
    return {
        name: Tensor.weight(name, array).bitcast(dtype) for name, (dtype, array) in found.items()
    }


def read(path: str | os.PathLike[str]) -> dict[str, tuple[DType, Any]]:
    """The tensors of a file in the form safetensors, as types and arrays, of stored types their
    codes.
    """
    source = _path(path)
    return _read(source, _bytes(source))


def _path(path: Any) -> Path:
    """Raises InputError for what is no path."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(
            f"the path {path!r:.80}",
            f"it is a {type(path).__name__}",
            id="input.safetensors",
            supported="the path of a file",
        )
    return Path(path)


def _bytes(source: Path) -> bytes:
    try:
        return read_regular_file(source, source.stat().st_size)
    except OSError as error:
        raise _wrong(
            source, error.strerror or str(error), next="give the path of a file that can be read"
        ) from error


def _read(source: Path, raw: bytes) -> dict[str, tuple[DType, Any]]:
    if len(raw) < 8:
        raise _wrong(source, f"it has {len(raw)} bytes, fewer than the size of its header")
    (size,) = struct.unpack("<Q", raw[:8])
    if size > min(HEADER, len(raw) - 8):
        raise _wrong(source, f"its header has {size} bytes, the file {len(raw)}")
    body = memoryview(raw)[8 + size :]
    entries = _entries(source, raw[8 : 8 + size], len(body))
    return {entry.name: (entry.dtype, _array(entry, body)) for entry in entries}


def _array(entry: _Entry, body: memoryview) -> Any:
    held = entry.dtype.held
    kind = np.dtype(held.numpy).newbyteorder("<")
    array = np.frombuffer(body[entry.start : entry.end], kind).reshape(entry.shape)
    return array.astype(held.numpy)


def _entries(source: Path, text: bytes, size: int) -> list[_Entry]:
    """What the header says, checked: the elements lie one after the other and fill the rest."""
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise _wrong(source, f"its header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise _wrong(source, "its header is no object")
    header.pop(METADATA, None)
    found = sorted((_entry(source, *item) for item in header.items()), key=lambda e: e[3:])
    edges = [(0, 0), *((entry.start, entry.end) for entry in found), (size, size)]
    for (_, end), (start, _) in pairwise(edges):
        if end != start:
            raise _wrong(source, f"its elements have a gap or overlap at byte {min(start, end)}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _entry(source: Path, name: str, entry: Any) -> _Entry:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _wrong(source, f"{name!r} is not of dtype, shape and data_offsets")
    dtype = TYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None:
        raise _wrong(source, f"{name!r} has the type {entry['dtype']!r}", ", ".join(TYPES))
    shape, places = _sizes(entry["shape"]), _sizes(entry["data_offsets"])
    if shape is None or places is None or len(places) != 2 or len(shape) > 32:
        raise _wrong(source, f"the shape or the place of {name!r} is no list of sizes")
    if prod(size or 1 for size in shape) * dtype.itemsize > LONGEST:
        raise _wrong(source, f"{name!r} has the shape {list(shape)}")
    start, end = places
    if end - start != prod(shape) * dtype.itemsize:
        raise _wrong(source, f"{name!r} has {end - start} bytes for {dtype} {list(shape)}")
    return _Entry(name, dtype, shape, start, end)


def _sizes(value: Any) -> tuple[int, ...] | None:
    """A list of integers from 0 on, below 2^63; None for anything else."""
    if not isinstance(value, list) or not all(type(n) is int and 0 <= n < 2**63 for n in value):
        return None
    return tuple(value)


def _wrong(
    source: Path,
    because: str,
    supported: str = "a whole safetensors file",
    next: str = "write it again, by nn.save or the safetensors package",
) -> InputError:
    return InputError(
        f"the file {str(source)!r}",
        because,
        id="input.safetensors",
        supported=supported,
        next=next,
    )
