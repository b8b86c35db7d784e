"""What the importer makes of a model without stopping at what it refuses."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tinyedge.core.errors import InputError
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.tensor.graph import Graph, Graphs
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx import dims as sizes_of
from tinyedge.export.onnx.imported import ImportedModel
from tinyedge.export.onnx.importer import Importer
from tinyedge.export.onnx.ordering import Reads
from tinyedge.export.onnx.reader import Model
from tinyedge.export.onnx.registry import REFUSED
from tinyedge.export.onnx.selection import stored_in
from tinyedge.export.options import ImportOptions
from tinyedge.export.ports import check_ports


@dataclass(frozen=True)
class OperatorReport:
    """How often an operator occurs, and why some of its nodes are refused (node -> reason)."""

    domain: str
    op: str
    count: int
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.domain}.{self.op}" if self.domain else self.op

    @property
    def supported(self) -> bool:
        return not self.refused


@dataclass(frozen=True)
class Inspection:
    """A model as far as it can be imported."""

    model: Model
    inputs: tuple[Any, ...]  # ValueInfoProtos
    operators: tuple[OperatorReport, ...]  # of the nodes that the outputs need
    # all that stands against an export, by the node or port, and why
    refused: Mapping[str, InputError]
    # sizes that an export needs to be told; here they are taken as 32..1024:32
    open: tuple[str, ...]
    imported: ImportedModel  # the graph with those of its outputs that need no refused node
    # the other outputs, each with the last values before the refused nodes on its way; these could
    # be outputs instead
    blocked: Mapping[str, tuple[str, ...]]
    remaining: ImportedModel  # the graph of all values that are left
    results: Sequence[tuple[UOp, ...]]  # results, stored, merged: as the importer has them
    stored: frozenset[str]
    merged: int


def inspect_model(
    source: str | os.PathLike[str] | bytes, options: ImportOptions | None = None
) -> Inspection:
    """Import as much of a model as can be.

    Raises InputError for wrong options, ModelError where the file itself cannot be read.
    """
    importer = Importer(source, options or ImportOptions())
    graph = importer.model.proto.graph
    whole = importer.run(sizes_of.ASSUMED)
    refused: dict[str, InputError] = {}
    for operator, name, error in importer.refusals:
        subject = f"{_dotted(*operator)}, node {name!r}" if operator else error.subject
        refused.setdefault(subject, error)
    imported, beyond = _without_refused(whole)
    refused |= {error.subject: error for error in beyond}
    if not refused:
        importer.check_bounds()
    stored = stored_in(graph)
    values = importer.scope.values
    names = {output.name: None for output in graph.output if values[output.name] is REFUSED}
    ports = [name for operator, name, _ in importer.refusals if operator is None]
    names |= dict.fromkeys(output.name for output in graph.output if output.name in ports)
    names |= dict.fromkeys(name for name in whole.outputs if name not in imported.outputs)
    varying: dict[UOp, bool] = {}
    blocked = {n: tuple(_last_values(importer, imported, n, varying)) for n in names}
    left = {name: values[name] for names in blocked.values() for name in names}
    return Inspection(
        importer.model,
        tuple(value for value in graph.input if value.name not in stored),
        _operators(importer),
        refused,
        importer.open,
        imported,
        blocked,
        replace(imported, outputs={**imported.outputs, **left}),
        importer.results,
        frozenset(importer.stored),
        importer.merged,
    )


def _dotted(domain: str, op: str) -> str:
    return f"{domain}.{op}" if domain else op


def _operators(importer: Importer) -> tuple[OperatorReport, ...]:
    refused: dict[Any, dict[str, str]] = {}
    for operator, name, error in importer.refusals:
        refused.setdefault(operator, {}).setdefault(name, error.because)
    return tuple(
        OperatorReport(domain, op, count, refused.get((domain, op), {}))
        for (domain, op), count in sorted(Counter(importer.seen).items())
    )


def _without_refused(imported: ImportedModel) -> tuple[ImportedModel, list[InputError]]:
    """The model without the outputs that no bundle can hold, and what stands against its ports."""
    outputs, errors = {}, []
    for name, value in imported.outputs.items():
        error = _refusal(imported, name, value)
        if error is None:
            outputs[name] = value
        else:
            errors.append(error)
    left = replace(imported, outputs=outputs)
    try:
        check_ports(Graphs({"main": left.graph()}))
    except InputError as error:
        errors.append(error)
    return left, errors


def _refusal(imported: ImportedModel, name: str, value: Tensor) -> InputError | None:
    """Why a value can be no output, if it cannot."""
    ports = imported.counts.ports
    try:
        check_ports(Graphs({"main": Graph((), tuple(ports(name, value, set())))}))
    except InputError as error:
        return error
    return None


def _last_values(
    importer: Importer, imported: ImportedModel, output: str, varying: dict[UOp, bool]
) -> list[str]:
    """The values from which on an output cannot be computed, as far as they can be outputs.

    In the order of their uses, backwards from the output. varying: see `_depends_on_input`.
    """
    graph, values = importer.model.proto.graph, importer.scope.values
    made = {name: node for node in graph.node for name in node.output if name}
    last: dict[str, None] = {}
    reads = Reads()
    seen, pending = {output}, [output] if output in made else []
    for name in pending:
        for used in reads.of(made[name]):
            if used in seen or used not in made:
                continue
            seen.add(used)
            value = values.get(used, REFUSED)
            if not isinstance(value, Tensor):
                pending.append(used)
            elif _depends_on_input(value, varying):
                if _refusal(imported, used, value) is None:
                    last[used] = None
                else:
                    pending.append(used)
    return list(last)


def _depends_on_input(value: Tensor, known: dict[UOp, bool]) -> bool:
    """Whether values are computed from those of an input, not only from its sizes.

    known: the answer for each node so far.
    """
    for node in toposort((value.node,), stop=lambda each: each in known):
        is_input = node.op is ops.BUFFER and node.arg.source.kind == "input"
        known.setdefault(node, is_input or any(known[source] for source in node.src))
    return known[value.node]
