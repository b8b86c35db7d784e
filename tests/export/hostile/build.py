"""Small models in few words, also such that no exporter would write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Union

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

# What is imported: a model, the bytes of a file, or a file in the folder that is given.
Source = Union[ModelProto, bytes, Path]
Build = Callable[[Path], Source]
# name -> (what is imported, ids of the errors that answer it; "imported" for none)
Cases = dict[str, tuple[Build, Union[str, tuple[str, ...]]]]

HUGE = 1 << 40
FAR = (1 << 63) - 1


def model(
    nodes: list[NodeProto],
    *,
    inputs: list[Any] | None = None,
    outputs: Sequence[str] = ("y",),
    weights: list[TensorProto] | None = None,
    opset: int = 17,
    domains: Sequence[str] = (),
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
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, **{"ir_version": 8, **fields})


def info(name: str, shape: list[Any] | None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def ints(name: str, values: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values, np.int64), name)


def floats(name: str, values: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values, np.float32), name)


def flag(name: str, value: bool) -> TensorProto:
    return numpy_helper.from_array(np.array(value), name)


def node(
    op: str, inputs: Sequence[str], outputs: Sequence[str] | None = None, **attributes: Any
) -> NodeProto:
    return helper.make_node(op, inputs, outputs or ["y"], **attributes)


RELU = node("Relu", ["x"])


def tensor(name: str, dims: list[int], raw: bytes, kind: int = TensorProto.FLOAT) -> TensorProto:
    result = TensorProto(name=name, data_type=kind, raw_data=raw)
    result.dims.extend(dims)
    return result


def body(
    nodes: list[NodeProto],
    inputs: list[Any],
    outputs: Sequence[str],
    weights: list[TensorProto] | None = None,
) -> GraphProto:
    """A subgraph."""
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    return helper.make_graph(nodes, "body", inputs, results, weights or [])


def iteration(
    nodes: list[NodeProto], outputs: Sequence[str], weights: list[TensorProto] | None = None
) -> GraphProto:
    """The body of a Loop that carries one tensor s [2, 3]: iteration i, condition c."""
    inputs = [
        info("i", [], TensorProto.INT64),
        info("c", [], TensorProto.BOOL),
        info("s", [2, 3]),
    ]
    return body(nodes, inputs, outputs, weights)


def function(name: str, nodes: list[NodeProto], **fields: Any) -> FunctionProto:
    """A function of the domain `local` from a to b."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["a"], ["b"], nodes, imports, **fields)


def call(name: str, inputs: Sequence[str] = ("a",), outputs: Sequence[str] = ("b",)) -> NodeProto:
    return helper.make_node(name, inputs, outputs, domain="local")


def calling(functions: list[FunctionProto], name: str = "f0") -> ModelProto:
    """A model that calls a function of the domain `local` on its input."""
    return model([call(name, ["x"], ["y"])], functions=functions, domains=["local"])


def field(number: int, payload: bytes) -> bytes:
    """A message or text as one field of a protocol buffer."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def varint(value: int) -> bytes:
    result = b""
    while value >= 128:
        result += bytes([value & 127 | 128])
        value >>= 7
    return result + bytes([value])
