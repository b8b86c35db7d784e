"""A part of a model: what some of its values need, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from tinyedge.core.errors import InputError
from tinyedge.export.near import did_you_mean
from tinyedge.export.onnx.context import Scope
from tinyedge.export.onnx.ordering import Reads, name_of, ordered


@dataclass(frozen=True)
class Left:
    """What a selection leaves out: inputs of the graph (ValueInfoProto), names of its nodes."""

    inputs: tuple[Any, ...] = ()
    nodes: frozenset[str] = frozenset()

    def has_node(self, name: str) -> bool:
        """Whether a node is left out, or the one whose subgraph holds it."""
        parts = name.split("/")
        return any("/".join(parts[:end]) in self.nodes for end in range(1, len(parts) + 1))


def select(graph: Any, outputs: str | Sequence[str]) -> Left:
    """Reduce a GraphProto, in place, to what `outputs` need; these become its outputs.

    outputs: names of any values of the graph; a text that is none may be several, with commas
    between them. Nodes keep the names by which messages call them. Raises InputError for a name
    that no value has, ModelError for a cycle.
    """
    reads = Reads()
    nodes = ordered(graph.node, Scope(), "", reads)
    made = {name: position for position, node in enumerate(nodes) for name in node.output if name}
    wanted = _names(outputs, values_of(graph))
    needed, pending = set(wanted), [made[name] for name in wanted if name in made]
    kept: set[int] = set()
    while pending:
        position = pending.pop()
        if position in kept:
            continue
        kept.add(position)
        for name in reads.of(nodes[position]):
            needed.add(name)
            if name in made:
                pending.append(made[name])
    part = onnx.GraphProto()
    for position in sorted(kept):
        part.node.append(nodes[position])
        part.node[-1].name = name_of(nodes[position], position)
    described = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    for name in wanted:
        part.output.append(described.get(name, onnx.ValueInfoProto(name=name)))
    left = [value for value in graph.input if value.name not in needed]
    part.input.extend(value for value in graph.input if value.name in needed)
    for field in ("node", "input", "output"):
        graph.ClearField(field)
    graph.MergeFrom(part)
    names = (name_of(node, n) for n, node in enumerate(nodes) if n not in kept)
    stored = stored_in(graph)
    return Left(tuple(value for value in left if value.name not in stored), frozenset(names))


def stored_in(graph: Any) -> set[str]:
    """The names of a GraphProto's initializers."""
    stored = {tensor.name for tensor in graph.initializer}
    return stored | {sparse.values.name for sparse in graph.sparse_initializer}


def values_of(graph: Any) -> set[str]:
    """The names of all values of a GraphProto, without those inside subgraphs."""
    made = {name for node in graph.node for name in node.output if name}
    return made | stored_in(graph) | {value.name for value in graph.input}


def _names(texts: str | Sequence[str], values: set[str]) -> list[str]:
    """The names that texts give, each once. Raises InputError."""
    names: dict[str, None] = {}
    for text in [texts] if isinstance(texts, str) else texts:
        for name in [text] if text in values else text.split(","):
            if name not in values:
                raise _no_value(name, values)
            names[name] = None
    if not names:
        raise InputError("--outputs", "no value is named", id="input.outputs")
    return list(names)


def _no_value(name: str, values: set[str]) -> InputError:
    return InputError(
        f"--outputs {name!r:.200}",
        "the model has no value of that name outside its subgraphs",
        id="input.outputs",
        supported="outputs of the model, and outputs of any of its nodes",
        next=did_you_mean(name, values),
    )
