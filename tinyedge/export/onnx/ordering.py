"""The nodes of a graph in an order that can be computed, and what uses what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tinyedge.core.errors import ModelError
from tinyedge.export.onnx.context import Scope
from tinyedge.export.onnx.reader import subgraphs


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
            stack.extend(subgraphs(node))
    return uses


def ordered(nodes: Iterable[Any], scope: Scope, where: str, reads: Reads) -> list[Any]:
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
    needs = [{made[name] for name in reads.of(node) if name in made} for node in nodes]
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


class Reads:
    """The names that nodes use, also from inside their subgraphs, without those made there.

    A subgraph is read once, whichever of the nodes around it are asked for.
    """

    def __init__(self) -> None:
        self._of_graph: dict[int, tuple[Any, dict[str, None]]] = {}  # keeps the graphs, so ids last

    def of(self, node: Any) -> dict[str, None]:
        """The names, each once, in the order of their first uses."""
        graphs = subgraphs(node)
        stack = [*graphs]
        while stack:
            graph = stack[-1]
            inside = [g for inner in graph.node for g in subgraphs(inner)]
            unread = [g for g in inside if id(g) not in self._of_graph]
            if unread:
                stack += unread
                continue
            stack.pop()
            made = _made(graph)
            used = dict.fromkeys(name for inner in graph.node for name in inner.input)
            used |= self._of(inside)
            used |= dict.fromkeys(output.name for output in graph.output)
            self._of_graph[id(graph)] = graph, {n: None for n in used if n not in made}
        return dict.fromkeys(name for name in node.input if name) | self._of(graphs)

    def _of(self, graphs: Iterable[Any]) -> dict[str, None]:
        return {name: None for graph in graphs for name in self._of_graph[id(graph)][1] if name}


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
