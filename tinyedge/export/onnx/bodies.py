"""Subgraphs and functions: their nodes in order, read once for all calls."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tinyedge.core.errors import ModelError
from tinyedge.export.onnx import definitions
from tinyedge.export.onnx.context import Call, Scope, nested
from tinyedge.export.onnx.ordering import Reads, duplicate, ordered
from tinyedge.export.onnx.reader import Model, canonical_domain

COPIED = 4096  # bytes of a function's node that count as much as a node

Walk = Generator[Call, list[Any], Any]


@dataclass(frozen=True)
class Initializer:
    """A constant of the file that nothing used yet: a TensorProto or SparseTensorProto."""

    proto: Any
    sparse: bool


@dataclass(frozen=True)
class _Body:
    """What is the same in every call of a subgraph or a function: its nodes in order,
    its weights.
    """

    proto: Any
    nodes: list[Any]
    stored: Mapping[str, Initializer] = field(default_factory=dict)
    refers: Sequence[bool] = ()  # of a function, which nodes refer to attributes of its caller


class Bodies:
    """The subgraphs and functions of one import. spend: counts nodes against the limits."""

    def __init__(self, spend: Callable[[int, str], None]) -> None:
        self.reads = Reads()
        self._spend = spend
        self._bodies: dict[int, _Body] = {}

    def subgraph(self, graph: Any, scope: Scope, site: Call, prefix: str) -> Call:
        """A run of a subgraph in a scope that already holds its inputs."""
        body = self._bodies.get(id(graph))
        if body is None:
            stored = stored_in(graph)
            for name, value in stored.items():
                scope.values.setdefault(name, value)
            nodes = ordered(graph.node, scope, f" in {prefix!r}", self.reads)
            body = self._bodies[id(graph)] = _Body(graph, nodes, stored)
        self._spend(len(body.stored), f"the subgraph {prefix!r}")
        for name, value in body.stored.items():
            scope.values.setdefault(name, value)
        results = [output.name for output in graph.output]
        return replace(site, nodes=body.nodes, scope=scope, results=results, prefix=prefix)

    def inline(
        self,
        function: Any,
        attributes: Mapping[str, Any],
        inputs: Sequence[Any],
        proto: Any,
        name: str,
        call: Call,
        schema: Any = None,
    ) -> Walk:
        """The nodes of a function in place of the node that calls it."""
        identity = f"{function.domain}.{function.name}.{function.overload}"
        if identity in call.functions:
            raise ModelError(
                f"ONNX node {name!r} ({proto.op_type})",
                "the function calls itself",
                id="model.cycle",
            )
        if len(inputs) > len(function.input) or len(proto.output) > len(function.output):
            raise ModelError(
                f"ONNX node {name!r} ({proto.op_type})",
                "it has more inputs or outputs than the function",
                id="model.node",
            )
        scope = Scope()
        for position, parameter in enumerate(function.input):
            scope.values[parameter] = inputs[position] if position < len(inputs) else None
        given = dict(attributes)
        for default in function.attribute_proto:
            given.setdefault(default.name, default)
        if schema is not None:
            given = {**schema.defaults, **given}
        opsets = {canonical_domain(e.domain): e.version for e in function.opset_import}
        wanted = [
            (output, made)
            for output, made in zip(proto.output, function.output, strict=False)
            if output
        ]
        results = yield Call(
            self._nodes_of(function, given, scope, name, schema is None or function is schema.body),
            scope,
            [made for _, made in wanted],
            {**call.opsets, **opsets},
            nested(name),
            call.functions | {identity},
            call.in_loop_body,
            call.conditional,
            call.iterations,
        )
        for (output, _), result in zip(wanted, results, strict=True):
            call.scope.values[output] = result

    def _nodes_of(
        self, function: Any, given: Mapping[str, Any], scope: Scope, name: str, again: bool
    ) -> list[Any]:
        """The nodes of a function for one call of it. again: there may be others."""
        body = self._bodies.get(id(function)) if again else None
        if body is None:
            reads = self.reads if again else Reads()
            nodes = ordered(function.node, scope, f" in {name!r}", reads)
            body = _Body(function, nodes, refers=[definitions.refers(node) for node in nodes])
            if again:
                self._bodies[id(function)] = body
        nodes = []
        for node, refers_to in zip(body.nodes, body.refers, strict=True):
            if refers_to:
                node = definitions.with_attributes(node, given)
                self._spend(node.ByteSize() // COPIED, f"the function called by {name!r}")
            nodes.append(node)
        return nodes


def stored_in(graph: Any) -> dict[str, Any]:
    """The initializers, decoded when they are first used."""
    stored: dict[str, Any] = {}
    for tensor in graph.initializer:
        if tensor.name in stored:
            raise duplicate("initializer", tensor.name)
        stored[tensor.name] = Initializer(tensor, False)
    for sparse in graph.sparse_initializer:
        if sparse.values.name in stored:
            raise duplicate("initializer", sparse.values.name)
        stored[sparse.values.name] = Initializer(sparse, True)
    return stored


def functions_of(model: Model) -> dict[tuple[str, str, str], Any]:
    """The model's own functions by domain, name and overload."""
    functions: dict[tuple[str, str, str], Any] = {}
    for function in model.proto.functions:
        key = canonical_domain(function.domain), function.name, function.overload
        if key in functions:
            raise duplicate("function", function.name)
        functions[key] = function
    return functions
