"""From a parsed model to a graph of tensors: a walk over its nodes, without recursion."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import onnx
from tinyedge.core.dtype import DType, bfloat16, codes, float32, from_numpy
from tinyedge.core.errors import InputError, ModelError, TinyedgeError, UnsupportedOp
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Shape, Size, UOp, toposort
from tinyedge.core.tensor.base import UnequalSizes
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.limits import Limits
from tinyedge.export.onnx import definitions, reader
from tinyedge.export.onnx import dims as sizes_of
from tinyedge.export.onnx.affine import Affine
from tinyedge.export.onnx.causes import Causes, next_step
from tinyedge.export.onnx.context import Call, Scope
from tinyedge.export.onnx.dynamic import DynamicSizes
from tinyedge.export.onnx.equality import mismatch, show, too_small
from tinyedge.export.onnx.known import ConstantPropagation, constant
from tinyedge.export.onnx.ordering import Reads, duplicate, name_of, ordered, uses_of
from tinyedge.export.onnx.reader import Model, canonical_domain
from tinyedge.export.onnx.registry import REFUSED, Function, Node, lookup, nested
from tinyedge.export.onnx.selection import Left, select

NEXT = {  # for an operator that is not there, by its domain
    "com.microsoft": "export the model again without onnxruntime's optimizer, or open an issue",
}


@dataclass(frozen=True)
class ModelInput:
    """A model input."""

    name: str
    dtype: DType
    shape: Shape  # sizes are ints, or expressions of symbols


@dataclass(frozen=True)
class ImportedModel:
    """A model as a graph of tensors."""

    inputs: tuple[ModelInput, ...]
    outputs: dict[str, Tensor]  # in the order of the graph
    symbols: tuple[UOp, ...]  # the sizes that stay open, as SYMBOL nodes
    names: dict[UOp, str]  # result nodes with the ONNX nodes that made them
    warnings: tuple[str, ...]  # what was assumed
    # given dims that name no size of the model, and constants that name no input
    unknown: tuple[str, ...] = ()
    counts: DynamicSizes = field(default_factory=DynamicSizes)  # the sizes that only a run knows
    # the bounds of every size that the model leaves open
    sizes: Mapping[str, sizes_of.Bounds] = field(default_factory=dict)
    # the external data that is mapped, and what the system said of it when it was opened
    files: Mapping[Path, os.stat_result] = field(default_factory=dict)
    bytes: int = 0  # of the model and of that data

    def graph(self) -> Graph:
        """The graph to compile. Raises UnsupportedOp for an output that no port can be."""
        inputs = tuple(Port(each.name, each.dtype, each.shape) for each in self.inputs)
        ports = self.counts.all_ports(self.outputs)
        return Graph(inputs, tuple(ports), self.names, counts=self.counts.nodes)


def import_model(
    source: str | os.PathLike[str] | bytes,
    *,
    dims: Mapping[str, int | str] | None = None,
    constants: Mapping[str, Any] | None = None,
    bounds: Mapping[str, int] | None = None,
    outputs: str | Sequence[str] | None = None,
    limits: Limits | None = None,
    allow_unused: bool = False,
) -> ImportedModel:
    """Import a model from its path or its bytes.

    dims: sizes of symbolic input axes, `SYMBOL` or `INPUT[AXIS]` -> `n`, `lo..hi`, `lo..hi:step`.
    constants: values of inputs that shall be fixed, arrays or numbers; these are inputs no more.
    bounds: by a node's name, the most iterations or elements that only a run will know.
    outputs: names of values; only what these need is imported. Default: the model's outputs.
    allow_unused: dims, bounds and constants may name what the model lacks.
    Raises InputError for sizes left open, UnsupportedOp naming every node that cannot be imported,
    ModelError for a model that is damaged, hostile or inconsistent.
    """
    for name, most in (bounds or {}).items():
        if not 1 <= most < 2**31 - 1:
            raise InputError(
                f"--bound {name!r}",
                f"{most} is no bound",
                id="input.bound",
                supported=f"1 to {2**31 - 2}",
            )
    model = reader.read(source, limits or Limits())
    importer = Importer(model, bounds, outputs)
    imported = importer.run(dims or {}, None, constants or {}, allow_unused)
    importer.raise_refusals()
    if not allow_unused:
        importer.check_bounds()
    return imported


UNDECIDED = (
    "if no run takes this branch, fix what its condition depends on: --constant INPUT=NUMBER"
)

Walk = Generator[Call, list[Any], Any]


class Importer:
    """One import: knowledge, names, warnings and refusals.

    refusals: operator (none for inputs and outputs), name of the node or port, and the error.
    seen: the operator of every node. results: of every imported node. scope: the graph's own
    values. stored: names of the constants that the file holds. open: sizes that were assumed.
    merged: how many nodes went into the weights of a node before them. texts: tensors of numbers
    that stand for texts.
    """

    def __init__(
        self,
        model: Model,
        bounds: Mapping[str, int] | None = None,
        outputs: str | Sequence[str] | None = None,
    ) -> None:
        self.model = model
        self.left = Left() if outputs is None else select(model.proto.graph, outputs)
        self.bounds = dict(bounds or {})
        self.bounded: set[str] = set()
        self.knowledge = ConstantPropagation(model.limits)
        self.affine: dict[UOp, Affine] = {}
        self.names: dict[UOp, str] = {}
        self.texts: set[UOp] = set()
        self.warnings: dict[str, None] = {}
        self.refusals: list[tuple[tuple[str, str] | None, str, InputError]] = []
        self.open: tuple[str, ...] = ()
        self.seen: list[tuple[str, str]] = []
        self.results: list[tuple[UOp, ...]] = []
        self.stored: set[str] = set()
        self.merged = 0
        self.scope = Scope()
        self.uses: Counter[str] = Counter()
        self.functions = _functions(model)
        self.counts = DynamicSizes()
        self.causes = Causes(self.counts.labels)
        self._count = 0
        self._made = 0
        self._bodies: dict[int, _Body] = {}
        self._reads = Reads()
        self._decoded: dict[int, tuple[Any, Tensor]] = {}
        self._written: dict[UOp, int] = {}
        self._once: dict[Hashable, Tensor] = {}

    # Services for nodes.

    def warn(self, text: str) -> None:
        self.warnings[text] = None

    def constant(self, array: Any, name: str) -> Tensor:
        return constant(array, name)

    def decode(self, proto: Any, sparse: bool, subject: str, name: str) -> Tensor:
        """A TensorProto or SparseTensorProto of this model as a constant."""
        self.stored.add(name)
        if id(proto) not in self._decoded:
            if sparse:
                self.make(reader.count_of(proto.dims, self.model.limits, subject), subject)
            read = reader.sparse_array if sparse else reader.array
            code = proto.values.data_type if sparse else proto.data_type
            array = read(proto, self.model, subject)
            made = constant(array, name, reader.element_type(code, subject))
            self._decoded[id(proto)] = proto, made
        return self._decoded[id(proto)][1]

    def once(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """What was made for the key, by this node or by one before."""
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]

    def spend(self, steps: int, subject: str) -> None:
        """Count nodes that are imported in the place of another one. Raises ModelError."""
        self._count += steps
        if self._count > self.model.limits.unrolled:
            raise self.model.limits.exceeded(
                "unrolled",
                subject,
                "too many nodes of subgraphs and functions, counted once for each iteration and "
                "call, "
                "steps that operators unroll, or operands and results of one node",
                "nodes",
            )

    def make(self, elements: int, subject: str) -> None:
        """Count elements of constants that are no weights of the file. Raises ModelError."""
        self._made += elements
        if self._made > self.model.limits.made:
            raise self.model.limits.exceeded(
                "made", subject, f"it needs a constant of {elements} elements", "elements in all"
            )

    # Refusals.

    def check_bounds(self) -> None:
        """Raise InputError for a bound that nothing needed."""
        unused = sorted(self.bounds.keys() - self.bounded)
        unused = [name for name in unused if not self.left.has_node(name)]
        if unused:
            raise InputError(
                f"--bound {unused[0]!r}",
                "no node of that name has a number of iterations or elements that only a run will "
                "know",
                id="input.bound",
                supported=", ".join(sorted(self.bounded)) or "none: the model needs no bound",
            )

    def raise_refusals(self) -> None:
        """One error for everything that was refused."""
        errors = [error for _, _, error in self.refusals]
        if not errors:
            return
        damaged = [error for error in errors if not isinstance(error, UnsupportedOp)]
        if damaged:
            raise damaged[0]
        if len(errors) == 1:
            raise errors[0]
        lines = [f"{error.subject}: {error.because}" for error in errors]
        shown = lines[:50]
        if len(lines) > 50:
            shown.append(f"and {len(lines) - 50} more")
        supported = sorted({error.supported for error in errors if error.supported})
        steps = sorted({error.next for error in errors if error.next})
        raise UnsupportedOp(
            f"{self.model.label}: {len(errors)} nodes cannot be imported",
            "\n             ".join(shown),
            id="model.unsupported",
            supported="; ".join(supported[:5]),
            next="; ".join(steps[:5]),
        )

    # The walk.

    def run(
        self,
        dims: Mapping[str, int | str],
        open_bounds: sizes_of.Bounds | None,
        constants: Mapping[str, Any] | None = None,
        allow_unused: bool = False,
    ) -> ImportedModel:
        graph = self.model.proto.graph
        stored = self._stored(graph)
        constants = constants or {}
        known = {value.name for value in (*graph.input, *self.left.inputs)}
        strange = [name for name in constants if name not in known]
        if strange and not allow_unused:
            raise no_constant(strange[0], known)
        stored.update(self._fixed(graph, {n: v for n, v in constants.items() if n in known}))
        shapes, dims = sizes_of.split_shapes(dims)
        declared, dtypes, given = self._declared(graph, stored, shapes)
        unknown = [name for name in shapes if name not in {entry.name for entry in declared}]
        left_out = {value.name for value in self.left.inputs}
        if not allow_unused and not left_out.issuperset(unknown):
            raise sizes_of.no_input(unknown[0], [entry.name for entry in declared])
        dims = sizes_of.joined(dims, given)
        if None in dtypes:  # which is what the caller is told, not that sizes are open
            without = [e.name for e, dtype in zip(declared, dtypes, strict=True) if dtype is None]
            dims = {k: v for k, v in dims.items() if k.rpartition("[")[0] not in without}
            open_bounds = open_bounds or sizes_of.ASSUMED
        resolved = sizes_of.resolve(
            declared,
            self._dims_of(declared, dims),
            self.model.label,
            open_bounds=open_bounds,
            allow_unused=allow_unused,
        )
        for text in resolved.warnings:
            self.warn(text)
        self.open = resolved.open
        self.counts.taken.update(node.arg.name for node in resolved.symbols)
        scope = self.scope
        inputs = []
        for entry, dtype, shape in zip(declared, dtypes, resolved.shapes, strict=True):
            if dtype is None:
                scope.values[entry.name] = REFUSED
                continue
            self._check_size(shape, f"input {entry.name!r}")
            tensor = Tensor.input(entry.name, shape, dtype)
            scope.values[entry.name] = tensor
            inputs.append(ModelInput(entry.name, dtype, shape))
        scope.values.update(stored)
        results = [output.name for output in graph.output]
        if len(set(results)) != len(results):
            raise ModelError(
                self.model.label, "two outputs have one name", id="model.duplicate-name"
            )
        self.uses = uses_of(graph)
        call = Call(
            ordered(graph.node, scope, "", self._reads), scope, results, self.model.opsets, ""
        )
        self._count = -1 - len(call.nodes)
        values = self._execute(call)
        outputs = self._outputs(results, values)
        self._check_types(graph.output, outputs)
        return ImportedModel(
            tuple(inputs),
            outputs,
            resolved.symbols,
            self.names,
            tuple(self.warnings),
            (*resolved.unknown, *unknown, *strange),
            self.counts,
            resolved.bounds,
            self.model.stamps,
            self.model.bytes,
        )

    def _outputs(self, names: Sequence[str], values: Sequence[Any]) -> dict[str, Tensor]:
        """The graph's outputs; of a sequence each tensor, under its name and a number."""
        outputs: dict[str, Tensor] = {}
        for name, value in zip(names, values, strict=True):
            if value is REFUSED:
                continue
            parts = value if isinstance(value, list) else [value]
            several = {name: value} if isinstance(value, Tensor) else element_names(name, parts)
            taken = [n for n in several if n in outputs or (n != name and n in names)]
            if taken or not all(isinstance(part, Tensor) for part in parts):
                error = UnsupportedOp(
                    f"output {name!r}",
                    f"it is a sequence, and its tensors would be called {taken}, as others are"
                    if taken
                    else "it is an absent optional, or a sequence of what is no tensor",
                    id="model.unsupported",
                    supported="tensors, and sequences of a number of them known at import",
                )
                self.refusals.append((None, name, error))
                continue
            if value is parts:
                listed = ", ".join(map(repr, several)) or "none"
                self.warn(f"output {name!r} is a sequence: its tensors are outputs: {listed}")
            outputs.update(several)
        return outputs

    def _check_types(self, declared: Iterable[Any], outputs: Mapping[str, Tensor]) -> None:
        """Outputs have the types that the model says, where it says any."""
        for value in declared:
            code = _type(value).tensor_type.elem_type
            made = outputs.get(value.name)
            if code == onnx.TensorProto.STRING and made is not None and self._is_text(made.node):
                continue
            if code and made is not None and made.dtype is not reader.DTYPES.get(code):
                wanted = reader.element_type(code, f"output {value.name!r}")
                raise ModelError(
                    f"output {value.name!r}",
                    f"the model says it is {wanted}, its nodes make {made.dtype}",
                    id="model.dtype",
                    next="declare the type that the nodes make, or add a Cast",
                )

    def _is_text(self, node: UOp) -> bool:
        """Whether a tensor is of `texts`, moved or not."""
        while node not in self.texts and node.op.group == "movement":
            node = node.src[0]
        return node in self.texts

    def _dims_of(
        self, declared: Sequence[sizes_of.Declared], dims: Mapping[str, int | str]
    ) -> Mapping[str, int | str]:
        """The given dims without those of inputs that are left out, which are noted."""
        if not self.left.inputs:
            return dims
        names = ", ".join(repr(value.name) for value in self.left.inputs)
        self.warn(f"the chosen outputs need no input {names}: left out")
        left = [
            sizes_of.Declared(value.name, _dims(_type(value).tensor_type.shape))
            for value in self.left.inputs
        ]
        unknown = set(sizes_of.unknown_sizes(declared, dims))
        allow_unused = unknown.difference(sizes_of.unknown_sizes(left, dims))
        return {key: value for key, value in dims.items() if key not in allow_unused}

    def subgraph(self, graph: Any, scope: Scope, site: Call, prefix: str) -> Call:
        """A run of a subgraph in a scope that already holds its inputs."""
        body = self._bodies.get(id(graph))
        if body is None:
            stored = self._stored(graph)
            for name, value in stored.items():
                scope.values.setdefault(name, value)
            nodes = ordered(graph.node, scope, f" in {prefix!r}", self._reads)
            body = self._bodies[id(graph)] = _Body(graph, nodes, stored)
        self.spend(len(body.stored), f"the subgraph {prefix!r}")
        for name, value in body.stored.items():
            scope.values.setdefault(name, value)
        results = [output.name for output in graph.output]
        return replace(site, nodes=body.nodes, scope=scope, results=results, prefix=prefix)

    def _stored(self, graph: Any) -> dict[str, Any]:
        """The initializers, decoded when they are first used."""
        stored: dict[str, Any] = {}
        for tensor in graph.initializer:
            if tensor.name in stored:
                raise duplicate("initializer", tensor.name)
            stored[tensor.name] = _Initializer(tensor, False)
        for sparse in graph.sparse_initializer:
            if sparse.values.name in stored:
                raise duplicate("initializer", sparse.values.name)
            stored[sparse.values.name] = _Initializer(sparse, True)
        return stored

    def _fixed(self, graph: Any, constants: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs with values that the caller gives: arrays, lists of them for sequences, None."""
        inputs = {value.name: value for value in (*graph.input, *self.left.inputs)}
        fixed = {}
        for name, value in constants.items():
            if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
                value = _filled(value, inputs[name])
            fixed[name] = _fixed_value(value, name)
        return fixed

    def _declared(
        self, graph: Any, stored: Mapping[str, Any], shapes: Mapping[str, Sequence[str]]
    ) -> tuple[list[sizes_of.Declared], list[DType | None], dict[str, int | str]]:
        """The inputs; their element types, None for those that are refused; what `shapes`, which
        the caller gives, say of their sizes.
        """
        declared: list[sizes_of.Declared] = []
        dtypes: list[DType | None] = []
        sizes: dict[str, int | str] = {}
        names = set()
        for value in graph.input:
            if value.name in names or not value.name:
                raise duplicate("input", value.name)
            names.add(value.name)
            if value.name in stored:
                continue
            kind = _type(value).tensor_type
            entry = sizes_of.Declared(value.name, _dims(kind.shape))
            if value.name in shapes:
                dims = entry.dims if kind.HasField("shape") else None
                entry, more = sizes_of.with_shape(value.name, dims, shapes[value.name])
                sizes.update(more)
            declared.append(entry)
            if value.type.HasField("optional_type"):
                self.warn(f"input {value.name!r} is optional: it has to be given")
            try:
                dtypes.append(_input_type(value, value.name in shapes))
            except UnsupportedOp as error:
                self.refusals.append((None, value.name, error))
                dtypes.append(None)
        return declared, dtypes, sizes

    def _execute(self, call: Call) -> list[Any]:
        """Run a call, and the calls that its nodes make, on an explicit stack."""
        stack: list[Walk] = [self._frame(call)]
        answer: Any = None
        while stack:
            try:
                inner = stack[-1].send(answer)
            except StopIteration as finished:
                stack.pop()
                answer = finished.value
                continue
            if len(stack) > self.model.limits.nesting:
                raise self.model.limits.exceeded(
                    "nesting",
                    f"the subgraph or function {inner.prefix!r}",
                    "subgraphs and functions lie too deep inside each other",
                    "inside each other",
                )
            stack.append(self._frame(inner))
            answer = None
        return answer  # type: ignore[no-any-return]

    def _frame(self, call: Call) -> Walk:
        self.spend(1, self.model.label)
        for position, proto in enumerate(call.nodes):
            domain = canonical_domain(proto.domain)
            name = call.prefix + name_of(proto, position)
            self.knowledge.subject = subject = f"ONNX node {name!r} ({proto.op_type})"
            self.spend(max(1, len(proto.input) + len(proto.output) - FREE), subject)
            key = (domain, proto.op_type)
            try:
                values = yield from self._node(proto, domain, name, call)
            except InputError as error:
                if self._count > self.model.limits.unrolled:
                    raise
                if call.conditional and error.next == error.usual_next:
                    error = error.with_next(UNDECIDED)
                self.refusals.append((key, name, error))
                values = None
            if values is None:
                for output in proto.output:
                    if output:
                        call.scope.values[output] = REFUSED
        return [self._find(call.scope, name, "the graph's outputs") for name in call.results]

    def _find(self, scope: Scope, name: str, user: str) -> Any:
        try:
            holder = scope.holder(name)
        except KeyError:
            raise ModelError(
                user,
                f"the value {name!r} is used, but no node, input or initializer makes it",
                id="model.undefined-value",
            ) from None
        value = holder.values[name]
        if isinstance(value, _Initializer):
            value = self.decode(value.proto, value.sparse, f"initializer {name!r}", name)
            holder.values[name] = value
        return value

    def _node(self, proto: Any, domain: str, name: str, call: Call) -> Walk:
        subject = f"ONNX node {name!r} ({proto.op_type})"
        inputs = [
            self._find(call.scope, entry, subject) if entry else None for entry in proto.input
        ]
        attributes = {attribute.name: attribute for attribute in proto.attribute}
        if len(attributes) < len(proto.attribute):
            raise ModelError(subject, "it has an attribute twice", id="model.node")
        for attribute in proto.attribute:
            if attribute.ref_attr_name:
                because = f"attribute {attribute.name!r} is one of a function, but it is in none"
                raise ModelError(subject, because, id="model.node")
        local = self.functions.get((domain, proto.op_type, proto.overload))
        opset = call.opsets.get(domain, 0)
        self.seen.append((domain, proto.op_type))
        if local is not None:
            if REFUSED in inputs:
                return None
            yield from self._inline(local, attributes, inputs, proto, name, call)
            return True
        if domain not in call.opsets:
            raise ModelError(
                subject,
                f"the operator set {domain or 'ai.onnx'!r} is not imported",
                id="model.opset",
            )
        node = Node(proto, domain, opset, name, attributes, self, call)
        registered = lookup(domain, proto.op_type, opset)
        function = None if registered is None else registered.function
        schema = definitions.schema_of(proto.op_type, opset, domain)
        if schema is not None:
            definitions.check(node, schema, inputs)
        elif domain == "" and not (registered and registered.foreign):
            raise UnsupportedOp(
                f"{node.label} cannot be imported",
                f"opset {opset} has no operator of this name",
                id="model.unsupported",
            )
        else:
            definitions.check_foreign(node, function, inputs)
        if function is None and schema is not None:
            if REFUSED in inputs and schema.has_body:
                return None
            body = definitions.body_of(proto, schema, opset, inputs)
            if body is not None:
                yield from self._inline(body, attributes, inputs, proto, name, call, schema)
                return True
        if function is None:
            raise UnsupportedOp(
                f"{node.label} cannot be imported",
                f"tinyedge has no {domain + '.' if domain else ''}{proto.op_type}",
                id="model.unsupported",
                supported="the operators listed by `tinyedge inspect`",
                next=NEXT.get(domain, "replace the operator in the model, or open an issue"),
            )
        if any(value is REFUSED for value in inputs):
            return None
        yield from self._apply(node, function, inputs, proto, call, schema)
        return True

    def _apply(
        self,
        node: Node,
        function: Function,
        inputs: Sequence[Any],
        proto: Any,
        call: Call,
        schema: Any,
    ) -> Walk:
        variables = definitions.widened(node, schema, inputs)
        if variables:
            inputs = [
                x.cast(float32) if isinstance(x, Tensor) and x.dtype is bfloat16 else x
                for x in inputs
            ]
        results = yield from self._results(node, function, inputs)
        if schema is None and node.unread:
            raise node.unsupported(f"its attributes {', '.join(node.unread)} are not supported")
        if isinstance(results, Tensor) or results is None:
            results = [results]
        if any(proto.output[len(results) :]):
            raise node.unsupported(f"only its first {len(results)} outputs are supported")
        if schema is not None:
            results = definitions.rounded(schema, variables, results)
            definitions.check_results(node, schema, results)
        made: list[UOp] = []
        for position, (output, result) in enumerate(zip(proto.output, results, strict=False)):
            if not output:
                continue
            if isinstance(result, (list, tuple)):
                result = list(result)
            elif isinstance(result, Tensor):
                self._check_size(result.shape, node.label)
                result = self.knowledge.fold(
                    result, f"{node.name}/{position}" if position else node.name
                )
                self._record(result.node, node.name)
                made.append(result.node)
            call.scope.values[output] = result
        self.results.append(tuple(made))

    def _results(self, node: Node, function: Function, inputs: Sequence[Any]) -> Walk:
        """What an operator makes; where that needs sizes to be equal of which only a run could show
        it, of operands of one size, and the run checks it.
        """
        replaced: set[Size] = set()
        while True:
            try:
                return (yield from self._tried(node, function, inputs))
            except InputError:
                equal = self._made_equal(node, inputs, replaced)
                if equal is None:
                    raise
                inputs = equal

    def _made_equal(
        self, node: Node, inputs: Sequence[Any], replaced: set[Size]
    ) -> list[Any] | None:
        """The operands with one of two dynamic sizes in place of the other, where a node found them
        different; None where that is not why it failed. replaced: those of before; one is added.

        Not in a branch or an iteration that a run may leave out: what is not computed need not be
        equal.
        """
        pair, node.different = node.different, None
        site = node.call_site
        if pair is None or site.conditional or site.in_loop_body or not all(map(node.counts, pair)):
            return None
        axes = {size for x in inputs if isinstance(x, Tensor) for size in x.shape}
        kept, other = pair if pair[1] in axes else pair[::-1]
        if other not in axes or kept in replaced:
            return None
        replaced.add(other)
        self.counts.equal[(kept, other)] = node.label
        return [_resized(x, other, kept) if isinstance(x, Tensor) else x for x in inputs]

    def _tried(self, node: Node, function: Function, inputs: Sequence[Any]) -> Walk:
        try:
            results = function(node, *inputs)
            if isinstance(results, Generator):
                results = yield from results
            return results
        except TinyedgeError:
            raise
        except (ValueError, TypeError, IndexError, ArithmeticError) as error:
            shapes = [value.shape for value in inputs if isinstance(value, Tensor)]
            sizes = error.sizes if isinstance(error, UnequalSizes) else None
            if isinstance(error, ValueError) and sizes is None:
                sizes = mismatch(shapes)
            if sizes is not None and any(isinstance(size, UOp) for size in sizes):
                raise node.unequal(*sizes) from error
            raise ModelError(
                node.label, f"{error or type(error).__name__}", id="model.node"
            ) from error

    def _record(self, node: UOp, name: str) -> None:
        if node not in self.names:
            text = name if name.isprintable() else ascii(name)[1:-1]
            self.names[node] = text if len(text) <= 400 else f"{text[:400]}..."

    def _check_size(self, shape: Shape, subject: str) -> None:
        limits = self.model.limits
        if any(isinstance(size, int) and size < 0 for size in shape):
            because = f"its shape {show(shape)} has a negative size"
            raise ModelError(subject, because, id="model.node")
        for size in shape:
            if isinstance(size, UOp) and self._terms_of(size) > limits.terms:
                raise ModelError(
                    subject,
                    "a size of its result is too complicated an expression of the open sizes",
                    id="model.limit",
                    supported=f"expressions of up to {limits.terms} terms",
                    next=next_step(
                        self.causes.of((size,)),
                        "fix a size with --dim, or give it a step that keeps halves whole",
                    ),
                )
            error = too_small(subject, size, 0, self.causes)
            if error is not None:
                raise error
        count = product(size for size in shape if size != 0)  # what is empty may be reshaped
        try:
            most = maximum(count)
        except ValueError:
            return
        if len(shape) > limits.axes:
            raise limits.exceeded("axes", subject, f"its result has {len(shape)} axes")
        if most > limits.elements:
            because = f"its shape {show(shape)} has up to {most} elements"
            error = limits.exceeded("elements", subject, because)
            smaller = self.causes.smaller(shape)
            raise error.with_next(smaller) if smaller else error

    def _terms_of(self, size: UOp) -> int:
        """How long a size is when written out."""
        for node in toposort((size,), stop=lambda n: n in self._written):
            if node not in self._written:
                self._written[node] = 1 + sum(self._written[source] for source in node.src)
        return self._written[size]

    # Functions.

    def _inline(
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
            reads = self._reads if again else Reads()
            nodes = ordered(function.node, scope, f" in {name!r}", reads)
            body = _Body(function, nodes, refers=[definitions.refers(node) for node in nodes])
            if again:
                self._bodies[id(function)] = body
        nodes = []
        for node, refers_to in zip(body.nodes, body.refers, strict=True):
            if refers_to:
                node = definitions.with_attributes(node, given)
                self.spend(node.ByteSize() // COPIED, f"the function called by {name!r}")
            nodes.append(node)
        return nodes


def _resized(x: Tensor, old: Size, new: Size) -> Tensor:
    """A tensor with a new size wherever it has the old one, which is the same in a right run."""
    for axis, size in enumerate(x.shape):
        if size == old:
            x = x.gather(axis, Tensor.arange(new))
    return x


FREE = 64  # operands and results of a node that count as one
COPIED = 4096  # bytes of a function's node that count as much as a node


@dataclass(frozen=True)
class _Initializer:
    proto: Any
    sparse: bool


def no_constant(name: str, inputs: Iterable[str]) -> InputError:
    """The error for a constant in the place of an input that is not there."""
    return InputError(
        f"constant {name!r}",
        "the model has no such input",
        id="input.constant",
        supported=", ".join(map(repr, inputs)),
    )


def _filled(number: bool | int | float, value: Any) -> Any:
    """An input of one number, as an array. Raises InputError where it cannot be that."""
    dtype, dims = _input_type(value), _dims(_type(value).tensor_type.shape)
    kind = np.dtype(dtype.numpy)
    with np.errstate(all="ignore"):
        array = np.asarray(number).astype(kind)
    if dtype.storage_type or (dtype.is_int and array != number):
        raise InputError(
            f"constant {value.name!r}",
            f"{number!r} is no number of type {dtype.name}",
            id="input.constant",
        )
    if not all(isinstance(dim, int) for dim in dims):
        raise InputError(
            f"constant {value.name!r}",
            "the input has open sizes",
            id="input.constant",
            supported="inputs of fixed shape",
        )
    return np.full(dims, array)


@dataclass(frozen=True)
class _Body:
    """What is the same in every call of a subgraph or a function: its nodes in order,
    its weights.
    """

    proto: Any
    nodes: list[Any]
    stored: Mapping[str, _Initializer] = field(default_factory=dict)
    refers: Sequence[bool] = ()  # of a function, which nodes refer to attributes of its caller


def _functions(model: Model) -> dict[tuple[str, str, str], Any]:
    """The model's own functions by domain, name and overload."""
    functions: dict[tuple[str, str, str], Any] = {}
    for function in model.proto.functions:
        key = canonical_domain(function.domain), function.name, function.overload
        if key in functions:
            raise duplicate("function", function.name)
        functions[key] = function
    return functions


def _fixed_value(value: Any, name: str) -> Any:
    """A value for an input as constants. Raises UnsupportedOp."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_fixed_value(part, label) for label, part in element_names(name, value).items()]
    try:
        dtype = from_numpy(np.asarray(value).dtype)
    except TypeError as error:
        raise UnsupportedOp(
            f"constant {name!r}",
            f"its type is {np.asarray(value).dtype}",
            id="model.dtype",
            supported=reader.SUPPORTED_DTYPES,
        ) from error
    return constant(codes(value), name, dtype)


def element_names(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """The elements of a sequence by the names of the outputs that they become."""
    return {f"{name}_{number}": value for number, value in enumerate(values)}


def _type(value: Any) -> Any:
    """The type of an input, also of one that may be absent."""
    kind = value.type
    return kind.optional_type.elem_type if kind.HasField("optional_type") else kind


def _input_type(value: Any, has_shape: bool = False) -> DType:
    """The element type of an input. Raises UnsupportedOp for what cannot be one.

    has_shape: the caller says which shape it has, so that the model need not.
    """
    subject = f"input {value.name!r}"
    if not _type(value).HasField("tensor_type"):
        raise UnsupportedOp(
            subject,
            "it is no tensor: of a sequence it is not known how many tensors it holds",
            id="model.unsupported",
            supported="tensors",
            next="make each tensor an input, and a sequence of them by SequenceConstruct",
        )
    kind = _type(value).tensor_type
    if not has_shape and not kind.HasField("shape"):
        raise UnsupportedOp(
            subject,
            "the model does not say how many axes it has",
            id="model.unsupported",
            supported="inputs of known rank",
            next=f"say its shape: --dim {shlex.quote(f'{value.name}=[1,3,?,?]')}, with as many "
            "sizes as it has axes, ? for an open one",
        )
    return reader.element_type(kind.elem_type, subject)


def _dims(shape: Any) -> tuple[sizes_of.Dim, ...]:
    result: list[sizes_of.Dim] = []
    for dim in shape.dim:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            result.append(int(dim.dim_value))
        elif dim.HasField("dim_param") and dim.dim_param not in ("", "?"):
            result.append(dim.dim_param)
        else:
            result.append(None)
    return tuple(result)
