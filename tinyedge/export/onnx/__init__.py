"""The ONNX importer: from a model file to a graph of tensors. One file per family of operators."""

from tinyedge.export.onnx import (
    activation,
    convolution,
    elementwise,
    indexing,
    linear,
    movement,
    normalisation,
    pooling,
    reduce,
    resize,
    shapes,
)
from tinyedge.export.onnx.importer import (
    ImportedModel,
    ModelInput,
    OperatorReport,
    check_model,
    import_model,
)
from tinyedge.export.onnx.reader import Limits

FAMILIES = (
    activation,
    convolution,
    elementwise,
    indexing,
    linear,
    movement,
    normalisation,
    pooling,
    reduce,
    resize,
    shapes,
)

__all__ = [
    "FAMILIES",
    "ImportedModel",
    "Limits",
    "ModelInput",
    "OperatorReport",
    "check_model",
    "import_model",
]
