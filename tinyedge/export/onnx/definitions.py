"""What ONNX itself says of an operator: arity, attributes, and its body made of other operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from tinyedge.core.tensor import Tensor
from tinyedge.export.onnx.registry import Node

_SCHEMAS: dict[tuple[str, int, str], Any] = {}


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


def body_of(proto: Any, schema: Any, opset: int, inputs: Sequence[Any]) -> Any:
    """The operator's definition by other operators, where ONNX gives one."""
    if schema.has_function:
        return schema.function_body
    if not schema.has_context_dependent_function:
        return None
    types = []
    for value in inputs:
        kind = onnx.TypeProto()
        if isinstance(value, Tensor):
            kind = onnx.helper.make_tensor_type_proto(
                onnx.helper.np_dtype_to_tensor_dtype(value.dtype.numpy),
                [size if isinstance(size, int) else None for size in value.shape],
            )
        types.append(kind.SerializeToString())
    try:
        text = schema.get_context_dependent_function_with_opset_version(
            opset, proto.SerializeToString(), types
        )
    except Exception:  # the binding raises plain RuntimeErrors
        return None
    body = onnx.FunctionProto()
    body.ParseFromString(text)
    return body if body.node else None


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
