"""Models without their weights, and weights for them: drawn, the same each time.

    python -m tests.realmodels.weights FOLDER    # of torch's exports, into tests/realmodels/exports

Real graphs are small and random weights are not: the graphs are stored, the weights drawn. So are
those of the topologies inside the onnx wheel, which have constants in their place.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

EXPORTS = Path(__file__).parent / "exports"
TOPOLOGIES = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
LARGE = 1024  # bytes of a weight that is not stored


def without(model: Any) -> Any:
    """The model with its large float weights replaced by their mean and deviation.

    Where it was made is dropped too.
    """
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.value_info, *graph.input, *graph.output):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and len(tensor.raw_data) > LARGE:
            values = numpy_helper.to_array(tensor)
            tensor.doc_string = f"{values.mean():.3g} {values.std():.3g}"
            tensor.ClearField("raw_data")
    return model


def filled(model: Any) -> Any:
    """A model `without` its weights, with others of the same mean and deviation."""
    random = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.doc_string and not tensor.raw_data:
            mean, deviation = map(float, tensor.doc_string.split())
            values = mean + deviation * random.standard_normal(tuple(tensor.dims))
            tensor.raw_data = values.astype("<f4").tobytes()
            tensor.ClearField("doc_string")
    return model


def topology(name: str) -> Any:
    """A model of the onnx wheel with weights for constants: resnet50, vgg19, ..

    Filters keep the size of what they see; vectors lie in 0.5..1.5, as some are variances. What the
    last Softmax gets is an output too: its result alone may be ones and zeros.
    """
    model = onnx.load(TOPOLOGIES / f"light_{name}.onnx")
    graph = model.graph
    random = np.random.default_rng(0)
    shapes = {t.name: tuple(numpy_helper.to_array(t)) for t in graph.initializer}
    made = [n for n in graph.node if n.op_type == "ConstantOfShape" and n.input[0] in shapes]
    for node in made:
        shape = shapes[node.input[0]]
        if len(shape) > 1:
            values = random.standard_normal(shape, np.float32) * math.sqrt(2 / math.prod(shape[1:]))
        else:
            values = random.random(shape, np.float32) + 0.5
        graph.initializer.append(numpy_helper.from_array(values.astype("<f4"), node.output[0]))
        graph.node.remove(node)
    for node in graph.node:
        if node.op_type == "Softmax":
            graph.output.append(helper.make_empty_tensor_value_info(node.input[0]))
    return model


def names() -> list[str]:
    """The topologies that the installed onnx brings."""
    return sorted(path.stem.removeprefix("light_") for path in TOPOLOGIES.glob("light_*.onnx"))


if __name__ == "__main__":
    for path in sorted(Path(sys.argv[1]).glob("*.onnx")):
        onnx.save(without(onnx.load(path)), EXPORTS / path.name)
