"""Reading a model file: parsing, and tensors with their data, inside or beside the file."""

from __future__ import annotations

import errno
import math
import mmap
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

import onnx
from onnx import TensorProto
from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InputError, ModelError, UnsupportedOp
from tinyedge.core.files import NOT_REGULAR, regular_file
from tinyedge.export.limits import Limits

Buffer = Union[bytes, memoryview]

OLDEST_OPSET = 6
OLDEST_IR = 3
CHUNK = 1 << 20  # packed elements that are read at a time; a multiple of 8


_STORED = {
    "BFLOAT16": dt.bfloat16,
    "FLOAT8E4M3FN": dt.float8_e4m3fn,
    "FLOAT8E4M3FNUZ": dt.float8_e4m3fnuz,
    "FLOAT8E5M2": dt.float8_e5m2,
    "FLOAT8E5M2FNUZ": dt.float8_e5m2fnuz,
    "FLOAT8E8M0": dt.float8_e8m0fnu,
    "FLOAT6E2M3": dt.float6_e2m3fn,
    "FLOAT6E3M2": dt.float6_e3m2fn,
    "FLOAT4E2M1": dt.float4_e2m1fn,
    "INT4": dt.int4,
    "UINT4": dt.uint4,
    "INT2": dt.int2,
    "UINT2": dt.uint2,
}
DTYPES: dict[int, DType] = {
    TensorProto.BOOL: dt.bool_,
    TensorProto.INT8: dt.int8,
    TensorProto.INT16: dt.int16,
    TensorProto.INT32: dt.int32,
    TensorProto.INT64: dt.int64,
    TensorProto.UINT8: dt.uint8,
    TensorProto.UINT16: dt.uint16,
    TensorProto.UINT32: dt.uint32,
    TensorProto.UINT64: dt.uint64,
    TensorProto.FLOAT16: dt.float16,
    TensorProto.FLOAT: dt.float32,
    TensorProto.DOUBLE: dt.float64,
    # The installed onnx may be older than some of these.
    **{getattr(TensorProto, name): d for name, d in _STORED.items() if hasattr(TensorProto, name)},
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
SUPPORTED_DTYPES = ", ".join(dtype.name for dtype in DTYPES.values())


@dataclass(frozen=True)
class Model:
    """A parsed model."""

    proto: Any
    label: str
    folder: Path | None  # where external data may lie; None for a model given as bytes
    opsets: dict[str, int]
    limits: Limits
    # the external data that was opened, by its path
    files: dict[Path, Buffer] = field(default_factory=dict, repr=False)
    # what the system said of it then
    stamps: dict[Path, os.stat_result] = field(default_factory=dict, repr=False)
    size: int = 0  # bytes of the model itself

    @property
    def bytes(self) -> int:
        """Of the model and of the external data that was opened."""
        return self.size + sum(len(data) for data in self.files.values())


def read(source: str | os.PathLike[str] | bytes, limits: Limits) -> Model:
    """Parse a model and check what does not depend on its nodes.

    Raises InputError for a file that cannot be read, ModelError for one that is no usable model.
    """
    data: Buffer
    if isinstance(source, (bytes, bytearray, memoryview)):
        data, label, folder = memoryview(source), "model.onnx", None
    else:
        path = Path(source)
        label, folder = str(path), path.parent
        data = _model_file(path, limits)
    proto = _parse(data, label)
    graphs = [proto.graph, *proto.functions]
    _check_nodes(graphs, limits, label)
    _check_text(proto, graphs, label)
    opsets = _opsets(proto, label)
    return Model(proto, label, folder, opsets, limits, size=len(data))


def _model_file(path: Path, limits: Limits) -> Buffer:
    try:
        size = path.stat().st_size
        if size > limits.file_bytes:
            raise limits.exceeded("file_bytes", str(path), f"it has {size} bytes", "bytes")
        return _mapped(path)
    except OSError as error:
        raise InputError(
            str(path),
            error.strerror or str(error),
            id="input.file",
            next="give the path of an .onnx file",
        ) from error


def _mapped(path: Path, *, own: bool = False) -> Buffer:
    """A regular file's bytes, read when they are looked at.

    own: it is no link, and has no other name. Raises OSError.
    """
    with regular_file(path, links=not own) as (file, status):
        if own and status.st_nlink > 1:
            raise OSError(errno.EINVAL, NOT_REGULAR, str(path))
        if not status.st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _parse(data: Buffer, label: str) -> Any:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ModelError(
            label,
            "the file is not an ONNX model, is damaged or cut short, or nests too many graphs",
            id="model.parse",
            next="check that the download is complete; `tinyedge inspect` reads .onnx files",
        ) from error
    if not proto.HasField("graph") or not proto.graph.output:
        raise ModelError(
            label,
            "there is no graph with outputs in the file" if data else "the file is empty",
            id="model.parse",
            supported="an ONNX ModelProto",
        )
    if proto.ir_version < OLDEST_IR:
        raise ModelError(
            label,
            f"ir_version is {proto.ir_version}",
            id="model.ir-version",
            supported=f"ir_version {OLDEST_IR} or newer",
            next="export the model again with a newer exporter",
        )
    return proto


def graphs_of(attribute: Any) -> list[Any]:
    """The graphs that an attribute holds."""
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def subgraphs(node: Any) -> list[Any]:
    """The graphs that a node's attributes hold."""
    return [graph for attribute in node.attribute for graph in graphs_of(attribute)]


def _check_nodes(graphs: Sequence[Any], limits: Limits, label: str) -> None:
    """Refuse a file with too many nodes, before any of them is looked at."""
    count, stack = 0, list(graphs)
    while stack:
        graph = stack.pop()
        count += len(graph.node)
        if count > limits.nodes:
            raise limits.exceeded("nodes", label, f"it has {count} nodes or more")
        for node in graph.node:
            stack.extend(subgraphs(node))


def _check_text(proto: Any, graphs: Sequence[Any], label: str) -> None:
    """Strings that are no UTF-8 reach Python as bytes: refuse them."""
    texts: list[Any] = [entry.domain for entry in proto.opset_import]
    for function in proto.functions:
        texts += [function.name, function.domain, *function.input, *function.output]
    values = [*proto.graph.input, *proto.graph.output]
    stack = list(graphs)
    while stack:
        graph = stack.pop()
        if isinstance(graph, onnx.GraphProto):
            values += [*graph.input, *graph.output]
            texts += [tensor.name for tensor in graph.initializer]
            texts += [sparse.values.name for sparse in graph.sparse_initializer]
        for node in graph.node:
            texts += [node.name, node.op_type, node.domain, *node.input, *node.output]
            for attribute in node.attribute:
                texts += [attribute.name, attribute.ref_attr_name]
            stack.extend(subgraphs(node))
    for value in values:
        texts.append(value.name)
        for kind in (value.type, value.type.optional_type.elem_type):
            texts += [dim.dim_param for dim in kind.tensor_type.shape.dim]
    for text in texts:
        if not isinstance(text, str):
            raise ModelError(label, f"the name {text!r} in the file is not UTF-8", id="model.parse")


def _opsets(proto: Any, label: str) -> dict[str, int]:
    opsets: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = canonical_domain(entry.domain)
        if domain in opsets and opsets[domain] != entry.version:
            raise ModelError(
                label,
                f"the operator set {entry.domain or 'ai.onnx'!r} is imported in two versions",
                id="model.opset",
            )
        opsets[domain] = entry.version
    newest = onnx.defs.onnx_opset_version()
    version = opsets.get("")
    if version is not None and not OLDEST_OPSET <= version <= newest:
        raise ModelError(
            label,
            f"the model uses opset {version}",
            id="model.opset",
            supported=f"opset {OLDEST_OPSET} to {newest}",
            next="convert it with onnx.version_converter, or export it again",
        )
    if not opsets:
        raise ModelError(label, "no operator set is imported", id="model.opset")
    return opsets


def canonical_domain(domain: str) -> str:
    """ONNX writes its own domain both as "" and as "ai.onnx"."""
    return "" if domain == "ai.onnx" else domain


def element_type(code: int, subject: str) -> DType:
    """The dtype of an ONNX element type. Raises UnsupportedOp."""
    dtype = DTYPES.get(code)
    if dtype is None:
        known = TensorProto.DataType.DESCRIPTOR.values_by_number.get(code)
        name = known.name.lower() if known is not None else f"number {code}"
        raise UnsupportedOp(
            subject,
            f"its element type is {name}",
            id="model.dtype",
            supported=SUPPORTED_DTYPES,
            next="convert the model to one of these types",
        )
    return dtype


def array(tensor: Any, model: Model, subject: str) -> Any:
    """The values of a TensorProto; of a stored type, its codes. They may lie in a mapped file.

    Raises ModelError where its data does not match its shape.
    """
    dtype = element_type(tensor.data_type, subject)
    shape = tuple(tensor.dims)
    count = count_of(shape, model.limits, subject)
    if tensor.data_location == TensorProto.EXTERNAL:
        raw = _external(tensor, model, subject, _packed(count, dtype))
    else:
        given = tensor.raw_data if tensor.HasField("raw_data") else None
        _check_length(tensor, given, dtype, count, subject)
        raw = _typed(tensor, dtype) if given is None else given
    if dtype.storage_type:
        return _codes(raw, dtype, count).reshape(shape)
    values = np.frombuffer(raw, dtype.numpy.newbyteorder("<"))
    return values.astype(dtype.numpy, copy=False).reshape(shape)


def _typed(tensor: Any, dtype: DType) -> Any:
    """The bytes of values that lie in a field of their own type, or of one that holds it."""
    values = np.asarray(getattr(tensor, _field_of(dtype)))
    if dtype.storage_type:  # one code a value, or a byte of packed ones
        return values.astype("<i4").astype(f"<i{dtype.itemsize}").tobytes()
    if dtype is dt.float16:  # bits
        return values.astype("<i4").astype("<u2").tobytes()
    return values.astype(dtype.numpy.newbyteorder("<")).tobytes()


def _packed(count: int, dtype: DType) -> int:
    """Bytes of so many elements; those below 8 bits lie next to each other."""
    return -(-count * dtype.bits // 8) if dtype.storage_type else count * dtype.itemsize


def _codes(raw: Buffer, dtype: DType, count: int) -> Any:
    """The codes of a stored type; in packed bytes the first is in the low bits."""
    packed = np.frombuffer(raw, np.uint8)
    if dtype.bits >= 8:
        return packed.view(dtype.numpy.newbyteorder("<")).astype(dtype.numpy)
    codes = np.empty(count, dtype.numpy)
    for start in range(0, count, CHUNK):
        end = min(start + CHUNK, count)
        part = packed[start * dtype.bits // 8 : -(-end * dtype.bits // 8)]
        raw = _unpacked(part, dtype.bits, end - start).view(dtype.numpy)
        codes[start:end] = dt.low_bits(raw, dtype)
    return codes


def _unpacked(packed: Any, size: int, count: int) -> Any:
    """The first so many codes of `size` bits, each in the low bits of a byte; others may follow."""
    if 8 % size:
        bits = np.unpackbits(packed, bitorder="little")[: count * size]
        return np.packbits(bits.reshape(count, size), axis=1, bitorder="little")[:, 0]
    parts = [packed >> np.uint8(shift) for shift in range(0, 8, size)]
    return np.stack(parts, -1).reshape(-1)[:count]


def sparse_array(sparse: Any, model: Model, subject: str) -> Any:
    """The values of a SparseTensorProto, as a dense array."""
    shape = tuple(sparse.dims)
    count = count_of(shape, model.limits, subject)
    values = array(sparse.values, model, subject)
    indices = array(sparse.indices, model, subject)
    if values.ndim != 1 or indices.dtype != np.int64:
        raise ModelError(
            subject, "a sparse tensor needs 1-D values, int64 indices", id="model.tensor"
        )
    sizes, places = ((count,), indices[:, None]) if indices.ndim == 1 else (shape, indices)
    fits = places.shape == (len(values), len(sizes))
    if not fits or not np.all((places >= 0) & (places < np.asarray(sizes, np.int64))):
        raise ModelError(subject, "sparse indices do not match the shape", id="model.tensor")
    steps = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    dense = np.zeros(count, values.dtype)
    dense[places @ np.array(steps, np.int64)] = values
    return dense.reshape(shape)


def count_of(dims: Sequence[int], limits: Limits, subject: str) -> int:
    """The number of elements. Raises ModelError for a shape that no tensor can have."""
    if len(dims) > limits.axes:
        raise limits.exceeded("axes", subject, f"it has {len(dims)} axes")
    if any(size < 0 for size in dims):
        raise ModelError(subject, f"its shape {list(dims)} has a negative size", id="model.tensor")
    count = math.prod(dims)
    if count > limits.elements:
        because = f"its shape {list(dims)} has {count} elements"
        raise limits.exceeded("elements", subject, because)
    return count


_FIELDS = {
    dt.float32: "float_data",
    dt.float64: "double_data",
    dt.int64: "int64_data",
    dt.uint64: "uint64_data",
    dt.uint32: "uint64_data",
}


def _field_of(dtype: DType) -> str:
    return _FIELDS.get(dtype, "int32_data")


def _check_length(tensor: Any, raw: bytes | None, dtype: DType, count: int, subject: str) -> None:
    if tensor.HasField("segment"):
        raise ModelError(subject, "segmented tensors are not supported", id="model.tensor")
    if raw is not None:
        have, want, unit = len(raw), _packed(count, dtype), "bytes"
    else:
        have, want, unit = len(getattr(tensor, _field_of(dtype))), count, "values"
        want = _packed(count, dtype) if dtype.bits < 8 else want
    if have != want:
        raise ModelError(
            subject,
            f"its shape {list(tensor.dims)} of {dtype} needs {want} {unit}, the file has {have}",
            id="model.tensor",
        )


def _external(tensor: Any, model: Model, subject: str, size: int) -> Buffer:
    """External data, only from a plain file inside the model's own folder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    offset = _place(entries.get("offset", "0"), subject)
    length = _place(entries.get("length", str(size)), subject)
    if length != size:
        raise ModelError(
            subject,
            f"its shape needs {size} bytes, the file says {length} at offset {offset}",
            id="model.external-data",
        )
    if model.folder is None:
        raise ModelError(
            subject,
            "its data lies in another file, but the model was given as bytes",
            id="model.external-data",
            next="give the model's path",
        )
    data = _data_file(model, location, subject)
    if offset + size > len(data):
        raise ModelError(
            subject,
            f"its data ends at byte {offset + size}, but {location!r} has {len(data)}",
            id="model.external-data",
            next="check that the download is complete, and that both files are of one export",
        )
    return data[offset : offset + size]


def _place(text: Any, subject: str) -> int:
    """A number of bytes as external data gives it."""
    if not re.fullmatch(r"[0-9]{1,18}", str(text), re.ASCII):
        raise ModelError(
            subject,
            f"its offset or length is {text!r}",
            id="model.external-data",
            supported="a number of up to 18 digits",
        )
    return int(text)


def _data_file(model: Model, location: str | bytes, subject: str) -> Buffer:
    assert model.folder is not None
    try:
        path, linked = _confined(model.folder, location, subject)
        if linked:
            model.stamps[path] = path.stat()
            path = _target(path, model, location, subject)
        if path not in model.files:
            model.stamps[path] = path.stat()
            model.files[path] = _mapped(path, own=not model.limits.links)
        return model.files[path]
    except OSError as error:
        if error.strerror == NOT_REGULAR:
            raise _outside(subject, location) from error
        raise ModelError(
            subject,
            f"its data file {location!r} cannot be read: {error.strerror}",
            id="model.external-data",
            next="keep the data file beside the model",
        ) from error


def _confined(folder: Path, location: str | bytes, subject: str) -> tuple[Path, bool]:
    """The path of a file in the folder or below it, and whether there are links on the way."""
    if isinstance(location, bytes):  # as texts are that are no UTF-8
        raise _outside(subject, location)
    parts = location.replace("\\", "/").split("/")
    if not location or "\0" in location or location.startswith(("/", "\\")) or ":" in parts[0]:
        raise _outside(subject, location)
    path, linked = folder, False
    for part in parts:
        if part in ("", "."):
            continue
        if part == "..":
            raise _outside(subject, location)
        path = path / part
        linked = linked or path.is_symlink()
    return path, linked


def _target(path: Path, model: Model, location: str | bytes, subject: str) -> Path:
    """Where links lead, if they may be followed: into the cache of downloads that the model lies in
    itself, or anywhere by the caller's wish. Raises ModelError, OSError.
    """
    assert model.folder is not None
    target = path.resolve(strict=True)
    stored = _cache_files(model.folder.resolve())
    if model.limits.links or (stored is not None and target.is_relative_to(stored)):
        return target
    raise _outside(subject, location)


def _cache_files(folder: Path) -> Path | None:
    """The folder with the files of a cache of downloads, if a folder is one of its snapshots.

    Such a cache, as Hugging Face's tools make it, holds `blobs/HASH` and, for each revision of a
    repository, `snapshots/REVISION/NAME` with links to them.
    """
    for above in folder.parents:
        if folder.is_relative_to(above / "snapshots") and (above / "blobs").is_dir():
            return above / "blobs"
    return None


def _outside(subject: str, location: str | bytes) -> ModelError:
    return ModelError(
        subject,
        f"its data file {location!r} is not a plain file inside the model's folder",
        id="model.external-data",
        supported="a relative path to a regular file: no '..', no hard links; links only from a "
        "snapshot to a blob of one cache of downloads",
        next="copy the data file next to the model; if its links can be trusted, --allow-links "
        '(in Python limits={"links": 1})',
    )
