"""What ONNX itself says of an operator: arity, attributes, and its body made of other operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from inspect import signature
from typing import Any

import onnx
from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.reader import CODES, graphs_of
from tinyedge.export.onnx.registry import Function, Node

# Operators that take stored types as they are, and those that compute although they take strings.
CONVERSIONS = ("QuantizeLinear", "DequantizeLinear", "BitCast", "GatherBlockQuantized")
INTERPOLATIONS = ("Resize", "Upsample", "GridSample", "Col2Im")


@dataclass(frozen=True)
class Formal:
    """A formal parameter."""

    name: str
    types: frozenset[str]  # what it may be, as ONNX writes it
    variable: str  # its type's name
    optional: bool


@dataclass(frozen=True)
class Schema:
    """What ONNX says of an operator, asked once: `raw` answers slowly."""

    raw: Any
    inputs: tuple[int, int]  # inputs, outputs: how many there may be, least and most
    outputs: tuple[int, int]
    operands: tuple[Formal, ...]
    results: tuple[Formal, ...]
    attributes: Mapping[str, tuple[int, bool]]  # type, and whether needed
    text: bool

    def operand(self, position: int) -> Formal:
        """The parameter of an operand: the last one may stand for any number of them."""
        return self.operands[min(position, len(self.operands) - 1)]

    def result(self, position: int) -> Formal:
        return self.results[min(position, len(self.results) - 1)]

    @cached_property
    def has_body(self) -> bool:
        """Whether ONNX may define the operator by others."""
        return bool(self.raw.has_function or self.raw.has_context_dependent_function)

    @cached_property
    def body(self) -> Any:
        """The operator by others, where that depends on nothing."""
        return self.raw.function_body if self.raw.has_function else None

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """Attributes that have a value where none is given."""
        values = {name: a.default_value for name, a in self.raw.attributes.items()}
        return {name: value for name, value in values.items() if value.type}


def _formal(raw: Any) -> Formal:
    optional = raw.option == onnx.defs.OpSchema.FormalParameterOption.Optional
    return Formal(raw.name, frozenset(raw.types), raw.type_str, optional)


def _attribute(raw: Any) -> tuple[int, bool]:
    return raw.type.value, raw.required


@lru_cache(None)
def schema_of(op: str, opset: int, domain: str) -> Schema | None:
    """The operator in an operator set, None if there is none or no longer."""
    try:
        raw = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return None
    if raw.deprecated:
        return None
    operands = tuple(map(_formal, raw.inputs))
    return Schema(
        raw,
        (raw.min_input, raw.max_input),
        (raw.min_output, raw.max_output),
        operands,
        tuple(map(_formal, raw.outputs)),
        {name: _attribute(each) for name, each in raw.attributes.items()},
        any("tensor(string)" in kind for formal in operands for kind in formal.types),
    )


def check(node: Node, schema: Schema, inputs: Sequence[Any]) -> None:
    """Raise ModelError unless the node is one of its operator: operands, types, attributes."""
    least, most = schema.inputs
    if not least <= len(inputs) <= most:
        raise node.invalid(f"it has {len(inputs)} inputs")
    least, most = schema.outputs
    if not least <= len(node.outputs) <= most:
        raise node.invalid(f"it has {len(node.outputs)} outputs")
    for position, value in enumerate(inputs):
        formal = schema.operand(position)
        if value is None and not formal.optional:
            raise node.invalid(f"its input {formal.name!r} is missing")
    for name, attribute in node.attributes.items():
        if name not in schema.attributes:
            raise node.invalid(f"the operator has no attribute {name!r}")
        if attribute.type != schema.attributes[name][0]:
            raise node.invalid(f"attribute {name!r} has the wrong type")
    for name, (_, needed) in schema.attributes.items():
        if needed and name not in node.attributes:
            raise node.invalid(f"its attribute {name!r} is missing")
    for position, value in enumerate(inputs):
        check_type(node, schema.operand(position), value)


def check_results(node: Node, schema: Schema, results: Sequence[Any]) -> None:
    """Raise ModelError for a result of a type that the operator set does not allow there."""
    for position, value in enumerate(results):
        check_type(node, schema.result(position), value)


def check_type(node: Node, formal: Formal, value: Any) -> None:
    if isinstance(value, list) and not any("seq(" in kind for kind in formal.types):
        raise node.invalid(f"{formal.name!r} is a sequence: not allowed")
    if not isinstance(value, Tensor):
        return
    text = _type_text(value.dtype)
    if all("map(" in kind for kind in formal.types):  # a tensor in place of maps
        return
    if text not in formal.types and f"optional({text})" not in formal.types:
        because = f"{formal.name!r} is {value.dtype}: not allowed in opset {node.opset}"
        raise node.invalid(because)


def check_foreign(node: Node, function: Function | None, inputs: Sequence[Any]) -> None:
    """Of operators that ONNX does not define: they need the operands that our function does not
    allow to be None, take no sequences, and only conversions take stored types.
    """
    formals = list(signature(function).parameters.values())[1:] if function is not None else []
    for position, value in enumerate(inputs if formals else ()):
        formal = formals[min(position, len(formals) - 1)]
        if value is None and "None" not in formal.annotation:
            raise node.invalid(f"its input {formal.name!r} is missing")
    for value in inputs:
        if isinstance(value, list):
            raise node.invalid("an input is a sequence: not allowed")
        if isinstance(value, Tensor) and value.dtype.storage_type and node.op not in CONVERSIONS:
            raise node.unsupported(f"an operand is {value.dtype}", supported="the other types")


@lru_cache(None)
def _type_text(dtype: DType) -> str:
    return f"tensor({onnx.TensorProto.DataType.Name(CODES[dtype]).lower()})"


def widened(node: Node, schema: Schema | None, inputs: Sequence[Any]) -> set[str]:
    """The type variables of operands that are bfloat16, where the operator computes with them.

    It then computes in float32, and rounds its results of these types. What can be done to strings
    is done to any element as it is.
    """
    if schema is None or node.op in CONVERSIONS:
        return set()
    if schema.text and node.op not in INTERPOLATIONS:
        return set()
    return {
        schema.operand(position).variable
        for position, value in enumerate(inputs)
        if isinstance(value, Tensor) and value.dtype is dt.bfloat16
    }


def rounded(schema: Schema, variables: set[str], results: Sequence[Any]) -> Sequence[Any]:
    """The results of an operator that computed in float32, those of the type variables rounded."""
    if not variables:
        return results
    return [
        value.cast(dt.bfloat16)
        if schema.result(position).variable in variables
        and isinstance(value, Tensor)
        and value.dtype is dt.float32
        else value
        for position, value in enumerate(results)
    ]


def body_of(proto: Any, schema: Schema, opset: int, inputs: Sequence[Any]) -> Any:
    """The operator's definition by other operators, where ONNX gives one."""
    if schema.body is not None:
        return schema.body
    versions = [v for v in schema.raw.context_dependent_function_opset_versions if v <= opset]
    if not versions:
        return None
    types = []
    for position, value in enumerate(inputs):
        kind = _type_proto(value)
        left_out = value is None and schema.operand(position).optional
        if not kind.WhichOneof("value") and not left_out:
            return None  # the binding takes the type of every operand as given, and crashes else
        types.append(kind.SerializeToString())
    try:
        text = schema.raw.get_context_dependent_function_with_opset_version(
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


def refers(node: Any) -> bool:
    """Whether a node of a function refers to the caller's attributes, perhaps in a subgraph."""
    stack = [node]
    while stack:
        for attribute in stack.pop().attribute:
            if attribute.ref_attr_name:
                return True
            stack.extend(inner for graph in graphs_of(attribute) for inner in graph.node)
    return False


def with_attributes(node: Any, given: Mapping[str, Any]) -> Any:
    """A copy of a function's node with its references to the caller's attributes replaced."""
    result = onnx.NodeProto()
    result.CopyFrom(node)
    stack = [result]
    while stack:
        current = stack.pop()
        for place in reversed(range(len(current.attribute))):
            attribute = current.attribute[place]
            name = attribute.name
            if not attribute.ref_attr_name:
                stack.extend(inner for graph in graphs_of(attribute) for inner in graph.node)
            elif attribute.ref_attr_name in given:
                attribute.CopyFrom(given[attribute.ref_attr_name])
                attribute.name = name
            else:
                del current.attribute[place]
    return result
