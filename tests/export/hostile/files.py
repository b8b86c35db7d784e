"""Files that are damaged, too large or nested, and tensors whose data is not what they say."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from tests.export.hostile.build import (
    HUGE,
    RELU,
    Build,
    Cases,
    field,
    floats,
    function,
    info,
    ints,
    model,
    node,
    tensor,
    varint,
)


def _with(proto: ModelProto, **fields: Any) -> ModelProto:
    for name, value in fields.items():
        setattr(proto, name, value)
    return proto


def _cut(count: int) -> bytes:
    data: bytes = model([RELU], weights=[ints("w", range(50))]).SerializeToString()
    return data[: len(data) - count]


def _zeros(folder: Path, size: int) -> Path:
    """A file that takes no space on the disk."""
    path = folder / "zeros.onnx"
    with open(path, "wb") as file:
        file.truncate(size)
    return path


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.onnx")
    return folder / "pipe.onnx"


def _deep(depth: int) -> bytes:
    """Subgraphs inside subgraphs, written by hand: the Python protobuf cannot build them."""
    output = field(12, field(1, b"y"))
    graph = field(2, b"g") + output
    for _ in range(depth):
        kind = varint(20 << 3) + varint(AttributeProto.GRAPH)
        attribute = field(1, b"then_branch") + field(6, graph) + kind
        one = field(1, b"c") + field(2, b"y") + field(4, b"If") + field(5, attribute)
        graph = field(1, one) + field(2, b"g") + output
    return varint(1 << 3) + varint(8) + field(7, graph)


def _imports(versions: Any, domains: Any) -> ModelProto:
    result = model([RELU])
    for domain, version in zip(domains, versions, strict=True):
        result.opset_import.append(helper.make_opsetid(domain, version))
    return result


def _bad_utf8(place: Callable[[ModelProto], None]) -> bytes:
    """A model in which one text is no UTF-8; `place` puts the text NAMENAME."""
    result = model([node("Relu", ["x"], ["y"], name="n")], weights=[floats("w", [1])])
    place(result)
    return result.SerializeToString().replace(b"NAMENAME", b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe")


def _name_of_function(proto: ModelProto) -> None:
    proto.functions.append(function("NAMENAME", [node("Relu", ["a"], ["b"])]))


def _text_attribute(proto: ModelProto) -> None:
    proto.graph.node[0].op_type = "Gelu"
    proto.opset_import[0].version = 20
    proto.graph.node[0].attribute.append(helper.make_attribute("approximate", "NAMENAME"))


def _set(path: str) -> Callable[[ModelProto], None]:
    """Put the text into the named field of the graph: `node.op_type` of the first node, say."""

    def place(proto: ModelProto) -> None:
        target = proto.graph
        *names, last = path.split(".")
        for name in names:
            target = getattr(target, name)[0]
        if isinstance(getattr(target, last), str):
            setattr(target, last, "NAMENAME")
        else:
            getattr(target, last)[0] = "NAMENAME"

    return place


def _name_of_size(proto: ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "NAMENAME"


def _size_of_optional(proto: ModelProto) -> None:
    _name_of_size(proto)
    kind = helper.make_optional_type_proto(proto.graph.input[0].type)
    proto.graph.input[0].type.CopyFrom(kind)


def _without_opset() -> ModelProto:
    result = model([RELU])
    del result.opset_import[:]
    return result


def _weight(proto: TensorProto) -> ModelProto:
    return model([node("Add", ["x", "w"])], weights=[proto])


def _segmented() -> ModelProto:
    proto = tensor("w", [2, 3], bytes(24))
    proto.segment.begin, proto.segment.end = 0, 1
    return _weight(proto)


def _values(kind: int, dims: list[int], count: int, where: str) -> ModelProto:
    """A weight with `count` values in one of the fields that hold values."""
    proto = TensorProto(name="w", data_type=kind)
    proto.dims.extend(dims)
    getattr(proto, where).extend([0] * count)
    return _weight(proto)


def sparse(size: int, index: int, name: str = "w") -> Any:
    values = numpy_helper.from_array(np.ones(1, np.float32), name)
    places = numpy_helper.from_array(np.array([index], np.int64), "i")
    return helper.make_sparse_tensor(values, places, [size])


def _sparse(size: int, index: int) -> ModelProto:
    result = model([node("Add", ["x", "w"])])
    result.graph.sparse_initializer.append(sparse(size, index))
    return result


def _sparse_places(dims: list[int], shape: list[int]) -> ModelProto:
    """A sparse weight of one value, and places of any shape."""
    result = model([node("Sum", ["x", "w"])])
    given = sparse(1, 0)
    given.dims[:] = dims
    given.indices.CopyFrom(tensor("i", shape, bytes(8 * math.prod(shape)), TensorProto.INT64))
    result.graph.sparse_initializer.append(given)
    return result


def _many_sparse(count: int, size: int) -> ModelProto:
    """Files of a few bytes a weight, each of which is large when it is made dense."""
    names = [f"w{i}" for i in range(count)]
    nodes = [node("ReduceSum", [name], [f"s{i}"], keepdims=0) for i, name in enumerate(names)]
    result = model([*nodes, node("Sum", [f"s{i}" for i in range(count)])])
    result.graph.sparse_initializer.extend(sparse(size, 0, name) for name in names)
    return result


def external(location: str, *, offset: str = "0", length: str = "24") -> TensorProto:
    result = TensorProto(name="w", data_type=TensorProto.FLOAT)
    result.dims.extend([2, 3])
    result.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        entry = result.external_data.add()
        entry.key, entry.value = key, value
    return result


def _external(make: Callable[[Path], TensorProto]) -> Build:
    def build(folder: Path) -> Path:
        inside = folder / "model"
        inside.mkdir()
        (folder / "secret.bin").write_bytes(bytes(24))
        (inside / "short.bin").write_bytes(bytes(20))
        path = inside / "m.onnx"
        path.write_bytes(_weight(make(inside)).SerializeToString())
        return path

    return build


def _bad_place(folder: Path) -> Path:
    path = _external(lambda _: external("NAMENAME"))(folder)
    assert isinstance(path, Path)
    path.write_bytes(path.read_bytes().replace(b"NAMENAME", b"\xff\xfe" * 4))
    return path


def _symlink(inside: Path) -> TensorProto:
    (inside / "link.bin").symlink_to(inside.parent / "secret.bin")
    return external("link.bin")


def _folder_link(inside: Path) -> TensorProto:
    (inside / "sub").symlink_to(inside.parent)
    return external("sub/secret.bin")


def _hardlink(inside: Path) -> TensorProto:
    os.link(inside.parent / "secret.bin", inside / "hard.bin")
    return external("hard.bin")


def _fifo(inside: Path) -> TensorProto:
    os.mkfifo(inside / "pipe.bin")
    return external("pipe.bin")


def _folder(inside: Path) -> TensorProto:
    (inside / "folder.bin").mkdir()
    return external("folder.bin")


def _sparse_file(folder: Path) -> Path:
    """A weight of 4 GB of zeros that take no space on the disk."""
    with open(folder / "zeros.bin", "wb") as file:
        file.truncate(1 << 32)
    proto = external("zeros.bin", length=str(1 << 32))
    proto.dims[:] = [1 << 30]
    nodes = [node("Slice", ["w", "a", "b"], ["s"]), node("Add", ["x", "s"])]
    weights = [proto, ints("a", [5]), ints("b", [8])]
    path = folder / "m.onnx"
    path.write_bytes(model(nodes, weights=weights).SerializeToString())
    return path


CASES: Cases = {
    "empty": (lambda _: b"", "model.parse"),
    "text": (lambda _: b"not a model, just words\n" * 20, "model.parse"),
    "png": (lambda _: b"\x89PNG\r\n\x1a\n" + bytes(100), "model.parse"),
    "2 GB of zeros": (lambda folder: _zeros(folder, (2 << 30) - 2), "model.parse"),
    "64 GB of zeros": (lambda folder: _zeros(folder, 64 << 30), "model.limit"),
    "cut by 1": (lambda _: _cut(1), "model.parse"),
    "cut by 200": (lambda _: _cut(200), "model.parse"),
    "no graph": (lambda _: ModelProto(ir_version=8), "model.parse"),
    "no outputs": (lambda _: model([RELU], outputs=()), "model.parse"),
    "no file": (lambda folder: folder / "missing.onnx", "input.file"),
    "a folder": (lambda folder: folder, "input.file"),
    "a pipe": (_pipe, "input.file"),
    "old ir": (lambda _: _with(model([RELU]), ir_version=2), "model.ir-version"),
    "opset 5": (lambda _: model([RELU], opset=5), "model.opset"),
    "opset 9999": (lambda _: model([RELU], opset=9999), "model.opset"),
    "opset -1": (lambda _: model([RELU], opset=-1), "model.opset"),
    "no opset": (lambda _: _without_opset(), "model.opset"),
    "1000 imports of one domain": (
        lambda _: _imports((7 + i % 10 for i in range(1000)), [""] * 1000),
        "model.opset",
    ),
    "1000 imports of one version": (lambda _: _imports([17] * 1000, [""] * 1000), "imported"),
    "1000 imports of other domains": (
        lambda _: _imports([1] * 1000, (f"d{i}" for i in range(1000))),
        "imported",
    ),
    "bad UTF-8 in a node's name": (lambda _: _bad_utf8(_set("node.name")), "model.parse"),
    "bad UTF-8 in an operator": (lambda _: _bad_utf8(_set("node.op_type")), "model.parse"),
    "bad UTF-8 in a domain": (lambda _: _bad_utf8(_set("node.domain")), "model.parse"),
    "bad UTF-8 in an input": (lambda _: _bad_utf8(_set("node.input")), "model.parse"),
    "bad UTF-8 in an output": (lambda _: _bad_utf8(_set("output.name")), "model.parse"),
    "bad UTF-8 in a weight": (lambda _: _bad_utf8(_set("initializer.name")), "model.parse"),
    "bad UTF-8 in a size": (lambda _: _bad_utf8(_name_of_size), "model.parse"),
    "bad UTF-8 in a size of an optional": (lambda _: _bad_utf8(_size_of_optional), "model.parse"),
    "bad UTF-8 in a function": (lambda _: _bad_utf8(_name_of_function), "model.parse"),
    "bad UTF-8 in an attribute": (lambda _: _bad_utf8(_text_attribute), "model.node"),
    "bad UTF-8 in a comment": (lambda _: _bad_utf8(_set("doc_string")), "imported"),
    "10,000 graphs deep": (lambda _: _deep(10_000), "model.parse"),
    "30 graphs deep": (lambda _: _deep(30), ("model.opset", "model.undefined-value")),
    "raw data too short": (lambda _: _weight(tensor("w", [2, 3], bytes(23))), "model.tensor"),
    "raw data too long": (lambda _: _weight(tensor("w", [2, 3], bytes(28))), "model.tensor"),
    "raw data of int4": (
        lambda _: _weight(tensor("w", [3], bytes(3), TensorProto.INT4)),
        "model.tensor",
    ),
    "no data": (lambda _: _weight(tensor("w", [1 << 15, 1 << 15], b"")), "model.tensor"),
    "too few values": (
        lambda _: _values(TensorProto.FLOAT, [2, 3], 5, "float_data"),
        "model.tensor",
    ),
    "values of another type": (
        lambda _: _values(TensorProto.FLOAT, [2, 3], 6, "int32_data"),
        "model.tensor",
    ),
    "too many values": (
        lambda _: _values(TensorProto.INT64, [1], 100_000, "int64_data"),
        "model.tensor",
    ),
    "segments": (lambda _: _segmented(), "model.tensor"),
    "negative size": (lambda _: _weight(tensor("w", [-1, 3], b"")), "model.tensor"),
    "sizes that multiply to 0": (
        lambda _: _weight(tensor("w", [1 << 32, 1 << 32], bytes(4))),
        "model.limit",
    ),
    "weight of 2^80": (lambda _: _weight(tensor("w", [HUGE, HUGE], b"")), "model.limit"),
    "weight of 100 axes": (lambda _: _weight(tensor("w", [1] * 100, bytes(4))), "model.limit"),
    "sparse weight of 2^30": (lambda _: _sparse(1 << 30, 0), "model.limit"),
    "100 sparse weights of 2^22": (lambda _: _many_sparse(100, 1 << 22), "model.limit"),
    "sparse index": (lambda _: _sparse(3, 7), "model.tensor"),
    "sparse places of no axis": (lambda _: _sparse_places([2, 3], [1, 0]), "model.tensor"),
    "sparse places of three axes": (lambda _: _sparse_places([3], [1, 1, 1]), "model.tensor"),
    "a single sparse place": (lambda _: _sparse_places([3], []), "model.tensor"),
    "a sparse number": (lambda _: _sparse_places([], [1, 0]), "imported"),
    "negative sparse index": (lambda _: _sparse(3, -1), "model.tensor"),
    "string weight": (
        lambda _: _weight(helper.make_tensor("w", TensorProto.STRING, [1], [b"a"])),
        "model.dtype",
    ),
    "complex weight": (
        lambda _: _weight(numpy_helper.from_array(np.ones(3, np.complex64), "w")),
        "model.dtype",
    ),
    "string input": (
        lambda _: model([RELU], inputs=[info("x", [1], TensorProto.STRING)]),
        "model.dtype",
    ),
    "type 0": (lambda _: _weight(tensor("w", [1], bytes(4), 0)), "model.dtype"),
    "type 77": (lambda _: _weight(tensor("w", [1], bytes(4), 77)), "model.dtype"),
    "external ..": (_external(lambda _: external("../secret.bin")), "model.external-data"),
    "external . and ..": (
        _external(lambda _: external("./sub/../../secret.bin")),
        "model.external-data",
    ),
    "external .. of Windows": (
        _external(lambda _: external("..\\secret.bin")),
        "model.external-data",
    ),
    "external drive": (_external(lambda _: external("C:secret.bin")), "model.external-data"),
    "external absolute": (
        _external(lambda inside: external(str(inside.parent / "secret.bin"))),
        "model.external-data",
    ),
    "external device": (_external(lambda _: external("/dev/zero")), "model.external-data"),
    "external symlink": (_external(_symlink), "model.external-data"),
    "external folder link": (_external(_folder_link), "model.external-data"),
    "external hard link": (_external(_hardlink), "model.external-data"),
    "external pipe": (_external(_fifo), "model.external-data"),
    "external folder": (_external(_folder), "model.external-data"),
    "external with bad UTF-8": (_bad_place, "model.external-data"),
    "external without a place": (_external(lambda _: external("")), "model.external-data"),
    "external with NUL": (_external(lambda _: external("a\0b")), "model.external-data"),
    "external missing": (_external(lambda _: external("no.bin")), "model.external-data"),
    "external name of 10,000": (
        _external(lambda _: external("a" * 10_000)),
        "model.external-data",
    ),
    "external short": (_external(lambda _: external("short.bin")), "model.external-data"),
    "external length": (
        _external(lambda _: external("short.bin", length="20")),
        "model.external-data",
    ),
    "external offset": (
        _external(lambda _: external("short.bin", offset="-4")),
        "model.external-data",
    ),
    "external offset of 2^63": (
        _external(lambda _: external("short.bin", offset=str(1 << 63))),
        "model.external-data",
    ),
    "external offset of 10,000 digits": (
        _external(lambda _: external("short.bin", offset="9" * 10_000)),
        "model.external-data",
    ),
    "external words": (
        _external(lambda _: external("short.bin", offset="four")),
        "model.external-data",
    ),
    "external in bytes": (lambda _: _weight(external("w.bin")), "model.external-data"),
    "external of 4 GB": (_sparse_file, "imported"),
}
