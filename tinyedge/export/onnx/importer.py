"""From a parsed model to a graph of tensors: a walk over its nodes, without recursion."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import Any

from tinyedge.core.dtype import bfloat16, float32
from tinyedge.core.errors import InputError, ModelError, TinyedgeError, UnsupportedOp
from tinyedge.core.ir.uop import Size, UOp
from tinyedge.core.tensor.base import UnequalSizes
from tinyedge.core.tensor.graph import node_name
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx import definitions, reader
from tinyedge.export.onnx import dims as sizes_of
from tinyedge.export.onnx.affine import Affine
from tinyedge.export.onnx.bodies import Bodies, Initializer, Walk, functions_of, stored_in
from tinyedge.export.onnx.causes import Causes
from tinyedge.export.onnx.context import Call, Scope
from tinyedge.export.onnx.draws import Draws
from tinyedge.export.onnx.dynamic import DynamicSizes
from tinyedge.export.onnx.imported import ImportedModel, ModelInput
from tinyedge.export.onnx.inputs import declared, dims_of, fixed, no_constant, type_of
from tinyedge.export.onnx.known import ConstantPropagation, constant
from tinyedge.export.onnx.ordering import name_of, ordered, uses_of
from tinyedge.export.onnx.outputs import check_types, named
from tinyedge.export.onnx.reader import canonical_domain
from tinyedge.export.onnx.refusals import raise_refusals
from tinyedge.export.onnx.registry import REFUSED, Function, Node, lookup
from tinyedge.export.onnx.selection import Left, select
from tinyedge.export.onnx.size_limits import SizeLimits
from tinyedge.export.onnx.variables import left_open
from tinyedge.export.options import ImportOptions

# For an operator that is not there, by its domain: its optimizer, and its builder of language
# models, whose attention no plain export has.
NEXT = {
    "com.microsoft": "export the model again as plain ONNX: without onnxruntime's optimizer, or, "
    "where a builder of language models wrote it, by torch.onnx.export"
}


def import_model(
    source: str | os.PathLike[str] | bytes, options: ImportOptions | None = None
) -> ImportedModel:
    """Import a model from its path or its bytes.

    Raises InputError for sizes left open, UnsupportedOp naming every node that cannot be imported,
    ModelError for a model that is damaged, hostile or inconsistent.
    """
    importer = Importer(source, options or ImportOptions())
    imported = importer.run()
    raise_refusals(importer.model.label, [error for _, _, error in importer.refusals])
    if not importer.options.allow_unused:
        importer.check_bounds()
    return imported


UNDECIDED = (
    "if no run takes this branch, fix what its condition depends on: --constant INPUT=NUMBER"
)


class Importer:
    """One import: knowledge, names, warnings and refusals.

    refusals: operator (none for inputs and outputs), name of the node or port, and the error.
    seen: the operator of every node. results: of every imported node. scope: the graph's own
    values. stored: names of the constants that the file holds. open: sizes that were assumed.
    merged: how many nodes went into the weights of a node before them. texts: tensors of numbers
    that stand for texts.
    """

    def __init__(self, source: str | os.PathLike[str] | bytes, options: ImportOptions) -> None:
        self.options = options
        self.model = model = reader.read(source, options.limits)
        chosen = options.outputs
        self.left = Left() if chosen is None else select(model.proto.graph, chosen)
        self.bounds = options.bounds
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
        self.functions = functions_of(model)
        self.counts, self.draws = DynamicSizes(), Draws()
        self.causes = Causes(self.counts.labels)
        self._spent = self._made = 0
        self._bodies = Bodies(self.spend)
        self._sizes = SizeLimits(model.limits, self.causes)
        self._decoded: dict[int, tuple[Any, Tensor]] = {}
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
        self._spent += steps
        if self._spent > self.model.limits.unrolled:
            raise self.model.limits.exceeded(
                "unrolled",
                subject,
                "too many nodes of subgraphs and functions, counted once for each iteration and "
                "call, steps that operators unroll, or operands and results of one node",
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

    def _refuse(self, name: str, error: InputError) -> None:
        """Of an input or an output."""
        self.refusals.append((None, name, error))

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

    # The walk.

    def run(self, open_bounds: sizes_of.Bounds | None = None) -> ImportedModel:
        """The graph, with `refusals`. open_bounds: of sizes left open; None: they are errors."""
        graph = self.model.proto.graph
        names = self.options.variables
        stored, variables, nodes = left_open(stored_in(graph), self.model, names)
        unknown = self._fix(stored)
        inputs, resolved, strange = self._place_inputs(stored, open_bounds)
        self.scope.values.update(stored)
        results = [output.name for output in graph.output]
        if len(set(results)) != len(results):
            raise ModelError(
                self.model.label, "two outputs have one name", id="model.duplicate-name"
            )
        self.uses = uses_of(graph)
        nodes = ordered(nodes, self.scope, "", self._bodies.reads)
        self._spent = -1 - len(nodes)
        values = self._execute(Call(nodes, self.scope, results, self.model.opsets, ""))
        outputs = named(results, values, self.warn, self._refuse)
        check_types(graph.output, outputs, self.texts)
        return ImportedModel(
            tuple(inputs),
            outputs,
            resolved.symbols,
            self.names,
            tuple(self.warnings),
            (*resolved.unknown, *strange, *unknown),
            self.counts,
            resolved.bounds,
            self.model.stamps,
            self.model.bytes,
            variables,
            self.draws.port,
        )

    def _fix(self, stored: dict[str, Any]) -> list[str]:
        """Store the inputs that the caller gives values; the names that no input has."""
        constants = self.options.constants
        inputs = (*self.model.proto.graph.input, *self.left.inputs)
        known = dict.fromkeys(value.name for value in inputs)  # in the model's order
        unknown = [name for name in constants if name not in known]
        if unknown and not self.options.allow_unused:
            raise no_constant(unknown[0], known)
        stored.update(fixed(inputs, {n: v for n, v in constants.items() if n in known}))
        return unknown

    def _place_inputs(
        self, stored: Mapping[str, Any], open_bounds: sizes_of.Bounds | None
    ) -> tuple[list[ModelInput], sizes_of.Resolved, list[str]]:
        """The inputs, in the scope; their sizes; given shapes of what is no input."""
        shapes, dims = sizes_of.split_shapes(self.options.dims)
        entries, dtypes, given = declared(
            self.model.proto.graph, stored, shapes, self.warn, self._refuse
        )
        unknown = [name for name in shapes if name not in {entry.name for entry in entries}]
        left_out = {value.name for value in self.left.inputs}
        if not self.options.allow_unused and not left_out.issuperset(unknown):
            raise sizes_of.no_input(unknown[0], [entry.name for entry in entries])
        dims = sizes_of.joined(dims, given)
        if None in dtypes:  # which is what the caller is told, not that sizes are open
            without = [e.name for e, dtype in zip(entries, dtypes, strict=True) if dtype is None]
            dims = {k: v for k, v in dims.items() if k.rpartition("[")[0] not in without}
            open_bounds = open_bounds or sizes_of.ASSUMED
        resolved = sizes_of.resolve(
            entries,
            self._dims_of(entries, dims),
            self.model.label,
            open_bounds=open_bounds,
            allow_unused=self.options.allow_unused,
        )
        for text in resolved.warnings:
            self.warn(text)
        self.open = resolved.open
        self.counts.taken.update(node.arg.name for node in resolved.symbols)
        inputs = []
        for entry, dtype, shape in zip(entries, dtypes, resolved.shapes, strict=True):
            if dtype is None:
                self.scope.values[entry.name] = REFUSED
                continue
            self._sizes.check(shape, f"input {entry.name!r}")
            self.scope.values[entry.name] = Tensor.input(entry.name, shape, dtype)
            inputs.append(ModelInput(entry.name, dtype, shape))
        return inputs, resolved, unknown

    def _dims_of(
        self, declared: Sequence[sizes_of.Declared], dims: Mapping[str, int | str]
    ) -> Mapping[str, int | str]:
        """The given dims without those of inputs that are left out, which are noted."""
        if not self.left.inputs:
            return dims
        names = ", ".join(repr(value.name) for value in self.left.inputs)
        self.warn(f"the chosen outputs need no input {names}: left out")
        left = [
            sizes_of.Declared(value.name, dims_of(type_of(value).tensor_type.shape))
            for value in self.left.inputs
        ]
        unknown = set(sizes_of.unknown_sizes(declared, dims))
        allow_unused = unknown.difference(sizes_of.unknown_sizes(left, dims))
        return {key: value for key, value in dims.items() if key not in allow_unused}

    def subgraph(self, graph: Any, scope: Scope, site: Call, prefix: str) -> Call:
        """A run of a subgraph in a scope that already holds its inputs."""
        return self._bodies.subgraph(graph, scope, site, prefix)

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
                if self._spent > self.model.limits.unrolled:
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
        if isinstance(value, Initializer):
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
            yield from self._bodies.inline(local, attributes, inputs, proto, name, call)
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
                yield from self._bodies.inline(body, attributes, inputs, proto, name, call, schema)
                return True
        if function is None:
            raise UnsupportedOp(
                f"{node.label} cannot be imported",
                f"tinyedge has no {domain + '.' if domain else ''}{proto.op_type}",
                id="model.unsupported",
                supported="the operators that docs/operators.md lists",
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
                self._sizes.check(result.shape, node.label)
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
            sizes = error.sizes if isinstance(error, UnequalSizes) else ()
            if any(isinstance(size, UOp) for size in sizes):
                raise node.unequal(*sizes) from error
            raise ModelError(
                node.label, f"{error or type(error).__name__}", id="model.node"
            ) from error

    def _record(self, node: UOp, name: str) -> None:
        if node not in self.names:
            self.names[node] = node_name(name)


def _resized(x: Tensor, old: Size, new: Size) -> Tensor:
    """A tensor with a new size wherever it has the old one, which is the same in a right run."""
    for axis, size in enumerate(x.shape):
        if size == old:
            x = x.gather(axis, Tensor.arange(new))
    return x


FREE = 64  # operands and results of a node that count as one
