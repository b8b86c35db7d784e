"""Reading a model file: parsing, limits, and tensors with their data, inside or beside the file."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

import onnx
from onnx import TensorProto, numpy_helper
from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InputError, ModelError, UnsupportedOp

OLDEST_OPSET = 6
OLDEST_IR = 3


@dataclass(frozen=True)
class Limits:
    """What a model may ask of the importer; beyond it the model is refused.

    file_bytes: of the .onnx file, and of the external data of one tensor.
    nodes: of the graph, after functions are inlined and loops unrolled.
    elements: of any one tensor, at the largest sizes of the symbols.
    axes: of any one tensor.
    terms: of any one size, written out as an expression of the symbols.
    nesting: subgraphs and functions inside each other.
    table: elements of any one constant that an operator makes (indices, weights of a transform).
    folded_bytes: a constant result up to this size (or up to the size of the weights it is made
    of) is computed at import; a greater one is left to the compiled graph.
    """

    file_bytes: int = 8 << 30
    nodes: int = 200_000
    elements: int = (1 << 31) - 1
    axes: int = 16
    terms: int = 200
    nesting: int = 64
    table: int = 1 << 24
    folded_bytes: int = 1 << 20


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
    """A parsed model. folder: where external data may lie; None for a model given as bytes."""

    proto: Any
    label: str
    folder: Path | None
    opsets: dict[str, int]
    limits: Limits


def read(source: str | os.PathLike[str] | bytes, limits: Limits) -> Model:
    """Parse a model and check what does not depend on its nodes.

    Raises InputError for a file that cannot be read, ModelError for one that is no usable model.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        data, label, folder = bytes(source), "model.onnx", None
    else:
        path = Path(source)
        label, folder = str(path), path.parent
        data = _file_bytes(path, limits)
    proto = _parse(data, label)
    _check_text(proto, label)
    opsets = _opsets(proto, label)
    return Model(proto, label, folder, opsets, limits)


def _file_bytes(path: Path, limits: Limits) -> bytes:
    try:
        size = path.stat().st_size
        if size > limits.file_bytes:
            raise ModelError(
                str(path),
                f"the file has {size} bytes",
                id="model.limit",
                supported=f"up to {limits.file_bytes} bytes",
            )
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            str(path),
            error.strerror or str(error),
            id="input.file",
            next="give the path of an .onnx file",
        ) from error


def _parse(data: bytes, label: str) -> Any:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ModelError(
            label,
            "the file is not an ONNX model, or it is damaged or cut short",
            id="model.parse",
            next="check that the download is complete; `tinyedge inspect` reads .onnx files",
        ) from error
    if not proto.HasField("graph") or not proto.graph.output:
        raise ModelError(
            label,
            "there is no graph with outputs in the file",
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


def _check_text(proto: Any, label: str) -> None:
    """Strings that are no UTF-8 reach Python as bytes: refuse them."""
    texts: list[Any] = [entry.domain for entry in proto.opset_import]
    graphs = [proto.graph]
    nodes = []
    for function in proto.functions:
        texts += [function.name, function.domain, *function.input, *function.output]
        nodes.extend(function.node)
    while graphs or nodes:
        if not nodes:
            graph = graphs.pop()
            texts += [value.name for value in (*graph.input, *graph.output, *graph.initializer)]
            for value in graph.input:
                texts += [dim.dim_param for dim in value.type.tensor_type.shape.dim]
            nodes.extend(graph.node)
            continue
        node = nodes.pop()
        texts += [node.name, node.op_type, node.domain, *node.input, *node.output]
        for attribute in node.attribute:
            texts += [attribute.name, attribute.ref_attr_name]
            if attribute.HasField("g"):
                graphs.append(attribute.g)
            graphs.extend(attribute.graphs)
    if not all(isinstance(text, str) for text in texts):
        raise ModelError(label, "a name in the file is not UTF-8", id="model.parse")


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
    """The values of a TensorProto; of a stored type, its codes.

    Raises ModelError where its data does not match its shape.
    """
    dtype = element_type(tensor.data_type, subject)
    count = _count(tensor.dims, model.limits, subject)
    if tensor.data_location == TensorProto.EXTERNAL:
        raw = _external(tensor, model, subject, _packed(count, dtype))
        if dtype.carrier:
            return _codes(raw, dtype, count).reshape(tuple(tensor.dims))
        return (
            np.frombuffer(raw, dtype.numpy.newbyteorder("<"))
            .astype(dtype.numpy, copy=False)
            .reshape(tuple(tensor.dims))
        )
    _check_length(tensor, dtype, count, subject)
    if dtype.carrier:
        raw = tensor.raw_data
        if not tensor.HasField("raw_data"):  # one code a value, or a byte of packed ones
            raw = np.asarray(tensor.int32_data, "<i4").astype(f"<i{dtype.itemsize}").tobytes()
        return _codes(raw, dtype, count).reshape(tuple(tensor.dims))
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise ModelError(subject, str(error), id="model.tensor") from error


def _packed(count: int, dtype: DType) -> int:
    """Bytes of so many elements; those below 8 bits lie next to each other."""
    return -(-count * dtype.bits // 8) if dtype.carrier else count * dtype.itemsize


def _codes(raw: bytes, dtype: DType, count: int) -> Any:
    """The codes of a stored type; in packed bytes the first is in the low bits."""
    packed = np.frombuffer(raw, np.uint8)
    if dtype.bits >= 8:
        return packed.view(dtype.numpy.newbyteorder("<")).astype(dtype.numpy)
    if 8 % dtype.bits:
        bits = np.unpackbits(packed, bitorder="little")[: count * dtype.bits]
        codes = np.packbits(bits.reshape(count, dtype.bits), axis=1, bitorder="little")[:, 0]
    else:
        parts = [packed >> np.uint8(shift) for shift in range(0, 8, dtype.bits)]
        codes = np.stack(parts, -1).reshape(-1)[:count]
    return dt.low_bits(codes.view(dtype.numpy), dtype)


def sparse_array(sparse: Any, model: Model, subject: str) -> Any:
    """The values of a SparseTensorProto, as a dense array."""
    count = _count(sparse.dims, model.limits, subject)
    if count > model.limits.table:
        raise ModelError(
            subject,
            f"it has {count} elements when it is made dense",
            id="model.limit",
            supported=f"up to {model.limits.table} elements",
        )
    values = array(sparse.values, model, subject)
    indices = array(sparse.indices, model, subject)
    dense = np.zeros(count, values.dtype)
    shape = tuple(sparse.dims)
    if values.ndim != 1 or indices.dtype != np.int64:
        raise ModelError(
            subject, "a sparse tensor needs 1-D values, int64 indices", id="model.tensor"
        )
    if indices.ndim == 2:
        inside = indices.shape[1] == len(shape) and bool(
            np.all((indices >= 0) & (indices < np.asarray(shape, np.int64)))
        )
        flat = (
            np.ravel_multi_index(tuple(indices.T), shape)
            if inside and len(indices)
            else indices[:, 0]
        )
    else:
        flat = indices
        inside = bool(np.all((flat >= 0) & (flat < count)))
    if not inside or len(flat) != len(values):
        raise ModelError(subject, "sparse indices do not match the shape", id="model.tensor")
    dense[flat] = values
    return dense.reshape(shape)


def _count(dims: Sequence[int], limits: Limits, subject: str) -> int:
    if len(dims) > limits.axes:
        raise ModelError(
            subject,
            f"it has {len(dims)} axes",
            id="model.limit",
            supported=f"up to {limits.axes} axes",
        )
    if any(size < 0 for size in dims):
        raise ModelError(subject, f"its shape {list(dims)} has a negative size", id="model.tensor")
    count = math.prod(dims)
    if count > limits.elements:
        raise ModelError(
            subject,
            f"its shape {list(dims)} has {count} elements",
            id="model.limit",
            supported=f"up to {limits.elements} elements",
        )
    return count


_FIELDS = {
    dt.float32: "float_data",
    dt.float64: "double_data",
    dt.int64: "int64_data",
    dt.uint64: "uint64_data",
    dt.uint32: "uint64_data",
}


def _check_length(tensor: Any, dtype: DType, count: int, subject: str) -> None:
    if tensor.HasField("segment"):
        raise ModelError(subject, "segmented tensors are not supported", id="model.tensor")
    if tensor.HasField("raw_data"):
        have, want, unit = len(tensor.raw_data), _packed(count, dtype), "bytes"
    else:
        have, want, unit = len(getattr(tensor, _FIELDS.get(dtype, "int32_data"))), count, "values"
        want = _packed(count, dtype) if dtype.bits < 8 else want
    if have != want:
        raise ModelError(
            subject,
            f"its shape {list(tensor.dims)} of {dtype} needs {want} {unit}, the file has {have}",
            id="model.tensor",
        )


def _external(tensor: Any, model: Model, subject: str, size: int) -> bytes:
    """External data, only from a plain file inside the model's own folder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", str(size)))
    except ValueError as error:
        raise ModelError(subject, "bad offset or length", id="model.external-data") from error
    if length != size or offset < 0 or size > model.limits.file_bytes:
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
    path = _confined(model.folder, location, subject)
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise ModelError(
            subject,
            f"its data file {location!r} cannot be read: {error.strerror}",
            id="model.external-data",
            next="keep the data file beside the model",
        ) from error
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise _outside(subject, location)
        if offset + size > status.st_size:
            raise ModelError(
                subject,
                f"its data ends at byte {offset + size}, but {location!r} has {status.st_size}",
                id="model.external-data",
            )
        stream.seek(offset)
        return stream.read(size)


def _confined(folder: Path, location: str, subject: str) -> Path:
    parts = location.replace("\\", "/").split("/")
    if not location or "\0" in location or location.startswith(("/", "\\")) or ":" in parts[0]:
        raise _outside(subject, location)
    path = folder
    for part in parts:
        if part in ("", "."):
            continue
        if part == "..":
            raise _outside(subject, location)
        path = path / part
        if path.is_symlink():
            raise _outside(subject, location)
    return path


def _outside(subject: str, location: str) -> ModelError:
    return ModelError(
        subject,
        f"its data file {location!r} is not a plain file inside the model's folder",
        id="model.external-data",
        supported="a relative path to a regular file: no '..', no links, no hard links",
        next="copy the data file next to the model",
    )
