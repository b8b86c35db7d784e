"""Models that no exporter would write: damaged, contradictory or made to do harm."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

Build = Callable[[Path], Any]
HUGE = 1 << 40


def model(
    nodes: list[NodeProto],
    *,
    inputs: list[Any] | None = None,
    outputs: tuple[str, ...] = ("y",),
    weights: list[TensorProto] | None = None,
    opset: int = 17,
    **fields: Any,
) -> ModelProto:
    """A model with one float input x [2, 3] unless other inputs are given."""
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", [2, 3])] if inputs is None else inputs,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        weights or [],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **fields
    )


def info(name: str, shape: list[Any] | None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def ints(name: str, values: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values, np.int64), name)


def node(
    op: str, inputs: list[str], outputs: list[str] | None = None, **attributes: Any
) -> NodeProto:
    return helper.make_node(op, inputs, outputs or ["y"], **attributes)


RELU = node("Relu", ["x"])


def tensor(name: str, dims: list[int], raw: bytes, kind: int = TensorProto.FLOAT) -> TensorProto:
    result = TensorProto(name=name, data_type=kind, raw_data=raw)
    result.dims.extend(dims)
    return result


def external(location: str, *, offset: str = "0", length: str = "24") -> TensorProto:
    result = TensorProto(name="w", data_type=TensorProto.FLOAT)
    result.dims.extend([2, 3])
    result.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        entry = result.external_data.add()
        entry.key, entry.value = key, value
    return result


def _external_model(make: Callable[[Path], TensorProto]) -> Build:
    def build(folder: Path) -> Path:
        inside = folder / "model"
        inside.mkdir()
        (folder / "secret.bin").write_bytes(bytes(24))
        (inside / "short.bin").write_bytes(bytes(20))
        weight = make(inside)
        path = inside / "m.onnx"
        path.write_bytes(model([node("Add", ["x", "w"])], weights=[weight]).SerializeToString())
        return path

    return build


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


def _nested_graphs(depth: int) -> ModelProto:
    graph: GraphProto | None = None
    for level in range(depth):
        nodes = [node("Identity", ["x"], [f"o{level}"])]
        if graph is not None:
            nodes = [
                helper.make_node("If", ["c"], [f"o{level}"], then_branch=graph, else_branch=graph)
            ]
        graph = helper.make_graph(
            nodes, f"g{level}", [], [helper.make_empty_tensor_value_info(f"o{level}")]
        )
        if level > 4:
            break
    top = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
    return model([top], weights=[numpy_helper.from_array(np.array(True), "c")])


def _deep(depth: int) -> bytes:
    """Subgraphs inside subgraphs, written by hand: the Python protobuf cannot build them."""

    def field(number: int, payload: bytes) -> bytes:
        size, length = len(payload), b""
        while size >= 128:
            length += bytes([size & 127 | 128])
            size >>= 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + payload

    graph = field(2, b"g")
    for _ in range(depth):
        attribute = field(1, b"then_branch") + field(6, graph) + bytes([20 << 3 & 255 | 0, 1, 5])
        one = field(1, b"c") + field(2, b"y") + field(4, b"If") + field(5, attribute)
        graph = field(1, one) + field(2, b"g")
    return bytes([1 << 3, 8]) + field(7, graph)


def _recursive_function() -> ModelProto:
    inner = helper.make_function(
        "local",
        "f",
        ["a"],
        ["b"],
        [helper.make_node("f", ["a"], ["b"], domain="local")],
        [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
    )
    result = model([helper.make_node("f", ["x"], ["y"], domain="local")], functions=[inner])
    result.opset_import.append(helper.make_opsetid("local", 1))
    return result


def _doubling_functions(levels: int) -> ModelProto:
    """Every function calls the next twice: 2 ** levels nodes when inlined."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = []
    for level in range(levels):
        inner = f"f{level + 1}" if level + 1 < levels else "Relu"
        domain = "local" if level + 1 < levels else ""
        nodes = [
            helper.make_node(inner, ["a"], ["t"], domain=domain),
            helper.make_node(inner, ["t"], ["b"], domain=domain),
        ]
        functions.append(helper.make_function("local", f"f{level}", ["a"], ["b"], nodes, imports))
    result = model([helper.make_node("f0", ["x"], ["y"], domain="local")], functions=functions)
    result.opset_import.append(helper.make_opsetid("local", 1))
    return result


def _endless_loop() -> ModelProto:
    body = helper.make_graph(
        [node("Identity", ["c0"], ["c1"]), node("Identity", ["s0"], ["s1"])],
        "body",
        [info("i", [], TensorProto.INT64), info("c0", [], TensorProto.BOOL), info("s0", [2, 3])],
        [helper.make_empty_tensor_value_info(name) for name in ("c1", "s1")],
    )
    return model(
        [helper.make_node("Loop", ["", "c", "x"], ["y"], body=body)],
        weights=[numpy_helper.from_array(np.array(True), "c")],
    )


def _empty_loop() -> ModelProto:
    body = helper.make_graph(
        [],
        "body",
        [info("i", [], TensorProto.INT64), info("c0", [], TensorProto.BOOL), info("s0", [2, 3])],
        [helper.make_empty_tensor_value_info(name) for name in ("c0", "s0")],
    )
    return model(
        [helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)], weights=[ints("m", HUGE)]
    )


def _long_recurrence() -> ModelProto:
    weights = [
        numpy_helper.from_array(np.ones(shape, np.float32), name)
        for name, shape in (("w", (1, 1, 1)), ("r", (1, 1, 1)))
    ]
    one = node("RNN", ["x", "w", "r"], hidden_size=1)
    return model([one], inputs=[info("x", [1 << 30, 1, 1])], weights=weights)


def _sparse(size: int, index: int) -> ModelProto:
    result = model([node("Add", ["x", "w"])])
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    places = numpy_helper.from_array(np.array([index], np.int64), "i")
    sparse = helper.make_sparse_tensor(values, places, [size])
    result.graph.sparse_initializer.append(sparse)
    return result


def _bytes_cut(count: int) -> bytes:
    data: bytes = model([RELU], weights=[ints("w", range(50))]).SerializeToString()
    return data[: len(data) - count]


def _many_imports() -> ModelProto:
    result = model([RELU])
    for number in range(1000):
        result.opset_import.append(helper.make_opsetid("", 7 + number % 10))
    return result


def _bad_utf8() -> bytes:
    data: bytes = model([node("Relu", ["x"], ["y"], name="NAMENAME")]).SerializeToString()
    return data.replace(b"NAMENAME", b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe")


def _attribute_type() -> ModelProto:
    one = node("Softmax", ["x"], axis=1)
    one.attribute[0].type = AttributeProto.FLOAT
    return model([one])


def _conv(**attributes: Any) -> ModelProto:
    return model(
        [node("Conv", ["x", "w"], **attributes)],
        inputs=[info("x", [1, 4, 5, 5])],
        weights=[numpy_helper.from_array(np.ones((4, 4, 3, 3), np.float32), "w")],
    )


def _pool(**attributes: Any) -> ModelProto:
    return model(
        [node("MaxPool", ["x"], **attributes)],
        inputs=[info("x", [1, 4, 5, 5])],
    )


# name -> (what is imported, the error's id or ids)
CASES: dict[str, tuple[Build, str | tuple[str, ...]]] = {
    "empty": (lambda _: b"", "model.parse"),
    "text": (lambda _: b"not a model, just words\n" * 20, "model.parse"),
    "png": (lambda _: b"\x89PNG\r\n\x1a\n" + bytes(100), "model.parse"),
    "cut by 1": (lambda _: _bytes_cut(1), "model.parse"),
    "cut by 200": (lambda _: _bytes_cut(200), "model.parse"),
    "no graph": (lambda _: ModelProto(ir_version=8), "model.parse"),
    "no outputs": (lambda _: model([RELU], outputs=()), "model.parse"),
    "no file": (lambda folder: folder / "missing.onnx", "input.file"),
    "a folder": (lambda folder: folder, "input.file"),
    "old ir": (lambda _: _with(model([RELU]), ir_version=2), "model.ir-version"),
    "opset 5": (lambda _: model([RELU], opset=5), "model.opset"),
    "opset 9999": (lambda _: model([RELU], opset=9999), "model.opset"),
    "opset -1": (lambda _: model([RELU], opset=-1), "model.opset"),
    "no opset": (lambda _: _without_opset(), "model.opset"),
    "1000 imports": (lambda _: _many_imports(), "model.opset"),
    "bad utf-8": (lambda _: _bad_utf8(), "model.parse"),
    "deep nesting": (lambda _: _deep(10_000), "model.parse"),
    "unknown operator": (lambda _: model([node("Frobnicate", ["x"])]), "model.unsupported"),
    "unknown domain": (
        lambda _: model([helper.make_node("Relu", ["x"], ["y"], domain="evil")]),
        ("model.unsupported", "model.opset"),
    ),
    "undefined input": (lambda _: model([node("Add", ["x", "z"])]), "model.undefined-value"),
    "undefined output": (lambda _: model([RELU], outputs=("z",)), "model.undefined-value"),
    "cycle": (
        lambda _: model(
            [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])], outputs=("b",)
        ),
        "model.cycle",
    ),
    "own input": (lambda _: model([node("Add", ["x", "y"])]), "model.cycle"),
    "made twice": (lambda _: model([RELU, RELU]), "model.duplicate-name"),
    "output twice": (lambda _: model([RELU], outputs=("y", "y")), "model.duplicate-name"),
    "input made again": (lambda _: model([node("Relu", ["x"], ["x"])]), "model.duplicate-name"),
    "input twice": (
        lambda _: model([RELU], inputs=[info("x", [1]), info("x", [1])]),
        "model.duplicate-name",
    ),
    "weight twice": (
        lambda _: model([RELU], weights=[ints("w", [1]), ints("w", [2])]),
        "model.duplicate-name",
    ),
    "recursive function": (lambda _: _recursive_function(), "model.cycle"),
    "doubling functions": (lambda _: _doubling_functions(40), "model.limit"),
    "endless loop": (lambda _: _endless_loop(), "model.limit"),
    "loop over nothing": (lambda _: _empty_loop(), "model.limit"),
    "recurrence of 2^30 steps": (lambda _: _long_recurrence(), "model.limit"),
    "split in 2^40": (
        lambda _: model([node("Split", ["x"], num_outputs=HUGE)], opset=18),
        "model.node",
    ),
    "reflect 2^30": (
        lambda _: model(
            [node("Pad", ["x", "p"], mode="reflect")],
            inputs=[info("x", [1, 2])],
            weights=[ints("p", [0, 1 << 30, 0, 0])],
        ),
        "model.limit",
    ),
    "resize to 2^30": (
        lambda _: model(
            [node("Resize", ["x", "", "", "s"], mode="linear")],
            inputs=[info("x", [1, 2])],
            weights=[ints("s", [1, 1 << 30])],
        ),
        "model.limit",
    ),
    "transform of 2^30": (
        lambda _: model(
            [node("DFT", ["x", "n"], axis=0)],
            inputs=[info("x", [4, 1])],
            weights=[ints("n", 1 << 30)],
        ),
        "model.limit",
    ),
    "raw data too short": (
        lambda _: model([node("Add", ["x", "w"])], weights=[tensor("w", [2, 3], bytes(23))]),
        "model.tensor",
    ),
    "raw data too long": (
        lambda _: model([node("Add", ["x", "w"])], weights=[tensor("w", [2, 3], bytes(28))]),
        "model.tensor",
    ),
    "no data": (
        lambda _: model([node("Add", ["x", "w"])], weights=[tensor("w", [1 << 15, 1 << 15], b"")]),
        "model.tensor",
    ),
    "negative size": (
        lambda _: model([node("Add", ["x", "w"])], weights=[tensor("w", [-1, 3], b"")]),
        "model.tensor",
    ),
    "weight of 2^80": (
        lambda _: model([node("Add", ["x", "w"])], weights=[tensor("w", [HUGE, HUGE], b"")]),
        "model.limit",
    ),
    "input of 2^80": (
        lambda _: model([RELU], inputs=[info("x", [HUGE, HUGE])]),
        "model.limit",
    ),
    "weight of 100 axes": (
        lambda _: model([node("Add", ["x", "w"])], weights=[tensor("w", [1] * 100, bytes(4))]),
        "model.limit",
    ),
    "sparse weight of 2^30": (lambda _: _sparse(1 << 30, 0), "model.limit"),
    "sparse index": (lambda _: _sparse(3, 7), "model.tensor"),
    "string weight": (
        lambda _: model(
            [node("Add", ["x", "w"])],
            weights=[helper.make_tensor("w", TensorProto.STRING, [1], [b"a"])],
        ),
        "model.dtype",
    ),
    "string input": (
        lambda _: model([RELU], inputs=[info("x", [1], TensorProto.STRING)]),
        "model.dtype",
    ),
    "type 77": (
        lambda _: model([node("Add", ["x", "w"])], weights=[tensor("w", [1], bytes(4), 77)]),
        "model.dtype",
    ),
    "external ..": (
        _external_model(lambda _: external("../secret.bin")),
        "model.external-data",
    ),
    "external absolute": (
        _external_model(lambda inside: external(str(inside.parent / "secret.bin"))),
        "model.external-data",
    ),
    "external symlink": (_external_model(_symlink), "model.external-data"),
    "external folder link": (_external_model(_folder_link), "model.external-data"),
    "external hard link": (_external_model(_hardlink), "model.external-data"),
    "external pipe": (_external_model(_fifo), "model.external-data"),
    "external missing": (_external_model(lambda _: external("no.bin")), "model.external-data"),
    "external short": (_external_model(lambda _: external("short.bin")), "model.external-data"),
    "external length": (
        _external_model(lambda _: external("short.bin", length="20")),
        "model.external-data",
    ),
    "external offset": (
        _external_model(lambda _: external("short.bin", offset="-4")),
        "model.external-data",
    ),
    "external words": (
        _external_model(lambda _: external("short.bin", offset="four")),
        "model.external-data",
    ),
    "external in bytes": (
        lambda _: model([node("Add", ["x", "w"])], weights=[external("w.bin")]),
        "model.external-data",
    ),
    "attribute of another type": (lambda _: _attribute_type(), "model.node"),
    "unknown attribute": (lambda _: model([node("Relu", ["x"], beta=1.0)]), "model.node"),
    "missing attribute": (lambda _: model([node("DepthToSpace", ["x"])]), "model.node"),
    "too many inputs": (lambda _: model([node("Relu", ["x", "x"])]), "model.node"),
    "missing input": (lambda _: model([node("MatMul", ["x", ""])]), "model.node"),
    "too many outputs": (lambda _: model([node("Relu", ["x"], ["y", "z"])]), "model.node"),
    "axis 99": (lambda _: model([node("Softmax", ["x"], axis=99)]), "model.node"),
    "shapes that differ": (
        lambda _: model([node("Add", ["x", "w"])], weights=[tensor("w", [4], bytes(16))]),
        "model.node",
    ),
    "types that differ": (
        lambda _: model([node("Add", ["x", "w"])], weights=[ints("w", [1, 2, 3])]),
        "model.node",
    ),
    "stride 0": (lambda _: _conv(strides=[0, 1]), "model.node"),
    "dilation 0": (lambda _: _conv(dilations=[0, 1]), "model.node"),
    "group 0": (lambda _: _conv(group=0), "model.node"),
    "group 3": (lambda _: _conv(group=3), "model.node"),
    "negative pad": (lambda _: _conv(pads=[-1, 0, 0, 0]), "model.node"),
    "pad 2^40": (lambda _: _conv(pads=[HUGE, 0, 0, 0]), ("model.node", "model.limit")),
    "dilation 2^40": (lambda _: _conv(dilations=[HUGE, 1]), "model.node"),
    "kernel 0": (lambda _: _pool(kernel_shape=[0, 1]), "model.node"),
    "kernel 2^40": (lambda _: _pool(kernel_shape=[HUGE, 1]), "model.node"),
    "auto_pad": (lambda _: _pool(kernel_shape=[1, 1], auto_pad="EVIL"), "model.node"),
    "reshape": (
        lambda _: model([node("Reshape", ["x", "s"])], weights=[ints("s", [4, 4])]),
        "model.node",
    ),
    "reshape -1 -1": (
        lambda _: model([node("Reshape", ["x", "s"])], weights=[ints("s", [-1, -1])]),
        "model.node",
    ),
    "expand 2^40": (
        lambda _: model([node("Expand", ["x", "s"])], weights=[ints("s", [HUGE, 2, 3])]),
        ("model.node", "model.limit"),
    ),
    "tile 2^40": (
        lambda _: model([node("Tile", ["x", "s"])], weights=[ints("s", [HUGE, 1])]),
        ("model.node", "model.limit"),
    ),
    "tile -1": (
        lambda _: model([node("Tile", ["x", "s"])], weights=[ints("s", [-1, 1])]),
        "model.node",
    ),
    "fill 2^40": (
        lambda _: model([node("ConstantOfShape", ["s"])], weights=[ints("s", [HUGE])]),
        ("model.node", "model.limit"),
    ),
    "range 2^40": (
        lambda _: model(
            [node("Range", ["a", "b", "c"])],
            weights=[ints("a", 0), ints("b", HUGE), ints("c", 1)],
        ),
        ("model.node", "model.limit"),
    ),
    "range by 0": (
        lambda _: model(
            [node("Range", ["a", "b", "c"])], weights=[ints("a", 0), ints("b", 9), ints("c", 0)]
        ),
        "model.node",
    ),
    "pad of 2^40": (
        lambda _: model([node("Pad", ["x", "p"])], weights=[ints("p", [HUGE, 0, 0, 0])]),
        ("model.node", "model.limit"),
    ),
    "resize 2^40": (
        lambda _: model(
            [node("Resize", ["x", "", "", "s"], mode="nearest")],
            weights=[ints("s", [HUGE, 3])],
        ),
        ("model.node", "model.limit"),
    ),
    "resize by inf": (
        lambda _: model(
            [node("Resize", ["x", "", "s"], mode="nearest")],
            weights=[numpy_helper.from_array(np.array([np.inf, 1], np.float32), "s")],
        ),
        "model.node",
    ),
    "one-hot 2^40": (
        lambda _: model(
            [node("OneHot", ["i", "d", "v"])],
            weights=[ints("i", [1]), ints("d", HUGE), ints("v", [0, 1])],
        ),
        ("model.node", "model.limit"),
    ),
    "slice step 0": (
        lambda _: model(
            [node("Slice", ["x", "a", "b", "c", "d"])],
            weights=[ints("a", [0]), ints("b", [1]), ints("c", [0]), ints("d", [0])],
        ),
        "model.node",
    ),
    "gather out of range": (
        lambda _: model([node("Gather", ["x", "i"])], weights=[ints("i", [7])]),
        "model.node",
    ),
    "split": (
        lambda _: model([node("Split", ["x", "s"], ["y"])], weights=[ints("s", [5])]),
        "model.node",
    ),
    "transpose": (lambda _: model([node("Transpose", ["x"], perm=[0, 0])]), "model.node"),
    "squeeze": (
        lambda _: model([node("Squeeze", ["x", "a"])], weights=[ints("a", [0])]),
        "model.node",
    ),
    "cast to nothing": (lambda _: model([node("Cast", ["x"], to=99)]), "model.dtype"),
    "data-dependent shape": (
        lambda _: model(
            [node("Reshape", ["x", "s"])],
            inputs=[info("x", [6]), info("s", [2], TensorProto.INT64)],
        ),
        "model.unsupported",
    ),
    "input without shape": (lambda _: model([RELU], inputs=[info("x", None)]), "model.unsupported"),
    "open size": (lambda _: model([RELU], inputs=[info("x", [1, "n"])]), "input.open-dims"),
}


def _with(proto: ModelProto, **fields: Any) -> ModelProto:
    for name, value in fields.items():
        setattr(proto, name, value)
    return proto


def _without_opset() -> ModelProto:
    result = model([RELU])
    del result.opset_import[:]
    return result


NAMES = (
    "</script><script>alert(1)</script>",
    "__proto__",
    "var<storage>",
    "int main(){}",
    "../../etc/passwd",
    "a\nb",
    "x" * 10_000,
    "名前",
)
