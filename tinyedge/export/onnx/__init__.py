"""The ONNX importer: from a model file to a graph of tensors. One file per family of operators."""

from tinyedge.export.limits import Limits
from tinyedge.export.onnx.imported import ImportedModel, ModelInput
from tinyedge.export.onnx.importer import import_model
from tinyedge.export.onnx.inspection import Inspection, OperatorReport, inspect_model
from tinyedge.export.onnx.operators import FAMILIES

__all__ = [
    "FAMILIES",
    "ImportedModel",
    "Inspection",
    "Limits",
    "ModelInput",
    "OperatorReport",
    "import_model",
    "inspect_model",
]
