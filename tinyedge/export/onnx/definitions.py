"""What ONNX itself says of an operator: arity, attributes, and its body made of other operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.tensor import Tensor
from tinyedge.export.onnx.reader import CODES
from tinyedge.export.onnx.registry import Node

_SCHEMAS: dict[tuple[str, int, str], Any] = {}

# Operators that take stored types as they are, and those that compute although they take strings.
CONVERSIONS = ("QuantizeLinear", "DequantizeLinear", "BitCast")
INTERPOLATIONS = ("Resize", "Upsample", "GridSample", "Col2Im")


def schema_of(op: str, opset: int, domain: str) -> Any:
    key = (op, opset, domain)
    if key not in _SCHEMAS:
        try:
            schema = onnx.defs.get_schema(op, opset, domain)
        except onnx.defs.SchemaError:
            schema = None
        if schema is not None and schema.deprecated:
            schema = None
        _SCHEMAS[key] = schema
    return _SCHEMAS[key]


def check(node: Node, schema: Any, inputs: Sequence[Any]) -> None:
    if not schema.min_input <= len(inputs) <= schema.max_input:
        raise node.invalid(f"it has {len(inputs)} inputs")
    if not schema.min_output <= len(node.outputs) <= schema.max_output:
        raise node.invalid(f"it has {len(node.outputs)} outputs")
    optional = onnx.defs.OpSchema.FormalParameterOption.Single
    for position, formal in enumerate(schema.inputs):
        if formal.option == optional and inputs[position] is None:
            raise node.invalid(f"its input {formal.name!r} is missing")
    known = schema.attributes
    for name, attribute in node.attributes.items():
        if name not in known:
            raise node.invalid(f"the operator has no attribute {name!r}")
        if attribute.type != known[name].type.value and not attribute.ref_attr_name:
            raise node.invalid(f"attribute {name!r} has the wrong type")
    for name, formal in known.items():
        if formal.required and name not in node.attributes:
            raise node.invalid(f"its attribute {name!r} is missing")
    check_types(node, schema.inputs, inputs)


def check_types(node: Node, formals: Sequence[Any], values: Sequence[Any]) -> None:
    """Operands or results of stored types are of those that the operator set allows there."""
    for formal, value in zip(_one_each(formals, len(values)), values, strict=False):
        if isinstance(value, Tensor) and value.dtype.carrier:
            if _type_text(value.dtype) not in formal.types:
                because = f"{formal.name!r} is {value.dtype}: not allowed in opset {node.opset}"
                raise node.invalid(because)


def check_foreign(node: Node, inputs: Sequence[Any]) -> None:
    """Of operators that ONNX does not define, only conversions take stored types."""
    for value in inputs:
        if isinstance(value, Tensor) and value.dtype.carrier and node.op not in CONVERSIONS:
            raise node.unsupported(f"an operand is {value.dtype}", supported="the other types")


def _one_each(formals: Sequence[Any], count: int) -> list[Any]:
    """The formal parameter of each operand: the last one may stand for any number of them."""
    return [formals[min(i, len(formals) - 1)] for i in range(count)]


def _type_text(dtype: DType) -> str:
    return f"tensor({onnx.TensorProto.DataType.Name(CODES[dtype]).lower()})"


def widened(node: Node, schema: Any, inputs: Sequence[Any]) -> set[str]:
    """The type variables of operands that are bfloat16, where the operator computes with them.

    It then computes in float32, and rounds its results of these types. What can be done to strings
    is done to any element as it is.
    """
    if schema is None or node.op in CONVERSIONS:
        return set()
    if node.op not in INTERPOLATIONS:
        if any("tensor(string)" in kind for formal in schema.inputs for kind in formal.types):
            return set()
    return {
        formal.type_str
        for formal, value in zip(_one_each(schema.inputs, len(inputs)), inputs, strict=True)
        if isinstance(value, Tensor) and value.dtype is dt.bfloat16
    }


def rounded(schema: Any, variables: set[str], results: Sequence[Any]) -> list[Any]:
    """The results of an operator that computed in float32, those of the type variables rounded."""
    return [
        value.cast(dt.bfloat16)
        if formal.type_str in variables and isinstance(value, Tensor) and value.dtype is dt.float32
        else value
        for formal, value in zip(_one_each(schema.outputs, len(results)), results, strict=True)
    ]


def has_body(schema: Any) -> bool:
    """Whether ONNX may define the operator by others."""
    return bool(schema.has_function or schema.has_context_dependent_function)


def body_of(proto: Any, schema: Any, opset: int, inputs: Sequence[Any]) -> Any:
    """The operator's definition by other operators, where ONNX gives one."""
    if schema.has_function:
        return schema.function_body
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not versions:
        return None
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    types = []
    for formal, value in zip(_one_each(schema.inputs, len(inputs)), inputs, strict=True):
        kind = _type_proto(value)
        if not kind.WhichOneof("value") and not (value is None and formal.option == optional):
            return None  # the binding takes the type of every operand as given, and crashes else
        types.append(kind.SerializeToString())
    try:
        text = schema.get_context_dependent_function_with_opset_version(
            max(versions), proto.SerializeToString(), types
        )
    except Exception:  # the binding raises plain RuntimeErrors
        return None
    body = onnx.FunctionProto()
    body.ParseFromString(text)
    return body if body.node else None


def _type_proto(value: Any) -> Any:
    """What ONNX calls the type of a tensor or a sequence; of anything else an empty one."""
    if isinstance(value, Tensor):
        return onnx.helper.make_tensor_type_proto(
            CODES[value.dtype],
            [size if isinstance(size, int) else None for size in value.shape],
        )
    if isinstance(value, list) and value and isinstance(value[0], Tensor):
        element = onnx.helper.make_tensor_type_proto(CODES[value[0].dtype], None)
        return onnx.helper.make_sequence_type_proto(element)
    return onnx.TypeProto()


def with_attributes(node: Any, given: Mapping[str, Any]) -> Any:
    """A node of a function with its references to the caller's attributes replaced."""
    if not any(a.ref_attr_name or a.HasField("g") for a in node.attribute):
        return node
    result = onnx.NodeProto()
    result.CopyFrom(node)
    stack = [result]
    while stack:
        current = stack.pop()
        kept = []
        for attribute in current.attribute:
            if attribute.ref_attr_name:
                value = given.get(attribute.ref_attr_name)
                if value is None:
                    continue
                replacement = onnx.AttributeProto()
                replacement.CopyFrom(value)
                replacement.name = attribute.name
                kept.append(replacement)
            else:
                if attribute.HasField("g"):
                    stack.extend(attribute.g.node)
                kept.append(attribute)
        copies = []
        for attribute in kept:
            copy = onnx.AttributeProto()
            copy.CopyFrom(attribute)
            copies.append(copy)
        del current.attribute[:]
        current.attribute.extend(copies)
    return result
