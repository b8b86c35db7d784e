"""Initializers that a graph reads as inputs: what training changes is no constant."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tinyedge.core.dtype import DType
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx import reader
from tinyedge.export.onnx.bodies import Initializer
from tinyedge.export.onnx.reader import Model

# Inputs that are no weights: running statistics, which are measured, and what decides a size.
NOT_TRAINED = {
    "BatchNormalization": slice(3, 5),
    "Resize": slice(1, None),
    "Upsample": slice(1, None),
}


def left_open(
    stored: Mapping[str, Initializer], model: Model, names: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a graph's names stand for, of initializers inputs where they are named; the values of
    these. Raises ModelError.
    """
    values, variables = dict[str, Any](stored), dict[str, Any]()
    for name in names:
        if name in stored:
            subject = f"initializer {name!r}"
            proto = stored[name].proto
            variables[name] = array = reader.array(proto, model, subject)
            dtype = reader.element_type(proto.data_type, subject)
            values[name] = Tensor.input(name, array.shape, dtype)
    return values, variables


def types_of(model: Model) -> dict[str, tuple[DType, int]]:
    """The type and the number of axes of each initializer that may be left open: of no sparse one,
    of none inside a subgraph, and of none in `NOT_TRAINED`.
    """
    graph = model.proto.graph
    fixed = {
        name
        for node in graph.node
        if node.op_type in NOT_TRAINED
        for name in node.input[NOT_TRAINED[node.op_type]]
    }
    return {
        tensor.name: (reader.element_type(tensor.data_type, tensor.name), len(tensor.dims))
        for tensor in graph.initializer
        if tensor.data_type in reader.DTYPES and tensor.name not in fixed
    }
