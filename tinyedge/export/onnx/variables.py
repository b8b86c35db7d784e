"""Weights that a graph reads as inputs: what training changes is no constant."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tinyedge.core.dtype import DType
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx import reader
from tinyedge.export.onnx.bodies import Initializer
from tinyedge.export.onnx.reader import Model, canonical_domain

# Inputs that are no weights: running statistics, which are measured, and what decides a size.
NOT_TRAINED = {
    "BatchNormalization": slice(3, 5),
    "Resize": slice(1, None),
    "Upsample": slice(1, None),
}


def left_open(
    stored: Mapping[str, Initializer], model: Model, names: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """What a graph's names stand for, inputs where weights are named; the values of these; the
    nodes without the constants among them. Raises ModelError.
    """
    values, variables = dict[str, Any](stored), dict[str, Any]()
    nodes = list(model.proto.graph.node)
    constants = _constants(nodes)
    gone = set()
    for name in names:
        if name in stored:
            proto = stored[name].proto
        elif name in constants:
            position, proto = constants[name]
            gone.add(position)
        else:
            continue
        subject = f"weight {name!r}"
        variables[name] = array = reader.array(proto, model, subject)
        dtype = reader.element_type(proto.data_type, subject)
        values[name] = Tensor.input(name, array.shape, dtype)
    return values, variables, [node for at, node in enumerate(nodes) if at not in gone]


def _constants(nodes: Sequence[Any]) -> dict[str, tuple[int, Any]]:
    """By the names of what they give, the places of `Constant` nodes and their tensors."""
    return {
        node.output[0]: (position, attribute.t)
        for position, node in enumerate(nodes)
        if node.op_type == "Constant" and not canonical_domain(node.domain) and node.output
        for attribute in node.attribute
        if attribute.name == "value"
    }


def types_of(model: Model) -> dict[str, tuple[DType, int]]:
    """The type and the number of axes of each weight that may be left open: of the initializers, or
    where a model has none, of what `Constant` nodes give (beside initializers these are masks and
    scales). Of no sparse one, of none inside a subgraph or in `NOT_TRAINED`.
    """
    graph = model.proto.graph
    fixed = {
        name
        for node in graph.node
        if node.op_type in NOT_TRAINED
        for name in node.input[NOT_TRAINED[node.op_type]]
    }
    stored = {tensor.name: tensor for tensor in graph.initializer}
    if not stored:
        stored = {name: tensor for name, (_, tensor) in _constants(graph.node).items()}
    return {
        name: (reader.element_type(tensor.data_type, name), len(tensor.dims))
        for name, tensor in stored.items()
        if tensor.data_type in reader.DTYPES and name not in fixed
    }
