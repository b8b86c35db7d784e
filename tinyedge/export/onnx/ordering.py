"""The nodes of a graph in an order that can be computed, and what uses what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tinyedge.core.errors import ModelError
from tinyedge.export.onnx.registry import Scope


def uses_of(graph: Any) -> Counter[str]:
    """How many times every name is used, subgraphs included."""
    uses: Counter[str] = Counter()
    stack = [graph]
    while stack:
        current = stack.pop()
        for output in current.output:
            uses[output.name] += 1
        for node in current.node:
            uses.update(node.input)
            stack.extend(_graphs(node))
    return uses


def ordered(nodes: Iterable[Any], scope: Scope, where: str) -> list[Any]:
    """The nodes, each after those whose results it uses. Raises ModelError for a cycle."""
    nodes = list(nodes)
    made: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for name in node.output:
            if not name:
                continue
            if name in made or name in scope.values:
                raise duplicate("value", name)
            made[name] = position
    needs = [{made[name] for name in used_names(node) if name in made} for node in nodes]
    if all(all(n < position for n in need) for position, need in enumerate(needs)):
        return nodes
    users: dict[int, list[int]] = {}
    for position, need in enumerate(needs):
        for earlier in need:
            users.setdefault(earlier, []).append(position)
    waiting = [len(need) for need in needs]
    ready = [position for position, count in enumerate(waiting) if not count]
    order = []
    for position in ready:
        order.append(position)
        for user in users.get(position, ()):
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    if len(order) < len(nodes):
        stuck = next(p for p, count in enumerate(waiting) if count)
        raise ModelError(
            f"ONNX node {name_of(nodes[stuck], stuck)!r} ({nodes[stuck].op_type}){where}",
            "it takes part in a cycle",
            id="model.cycle",
        )
    return [nodes[position] for position in order]


def used_names(node: Any) -> Iterable[str]:
    """The names a node uses, also from inside its subgraphs, without those that are made there."""
    used = [name for name in node.input if name]
    stack = [(graph, frozenset[str]()) for graph in _graphs(node)]
    while stack:
        graph, outside = stack.pop()
        made = outside | _made(graph)
        used.extend(output.name for output in graph.output if output.name not in made)
        for inner in graph.node:
            used.extend(name for name in inner.input if name not in made)
            stack.extend((below, made) for below in _graphs(inner))
    return used


def _graphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _made(graph: Any) -> frozenset[str]:
    values = [*graph.input, *graph.initializer, *(s.values for s in graph.sparse_initializer)]
    results = (name for node in graph.node for name in node.output)
    return frozenset(value.name for value in values).union(results)


def name_of(proto: Any, position: int) -> str:
    return proto.name or f"{proto.op_type}_{position}"


def duplicate(what: str, name: str) -> ModelError:
    return ModelError(
        f"{what} {name!r}", "the name is empty or made twice", id="model.duplicate-name"
    )
