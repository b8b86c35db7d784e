"""Minimum cuts of networks with capacities."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def sink_side(capacities: Mapping[tuple[Node, Node], int], source: Node, sink: Node) -> set[Node]:
    """The nodes on the sink's side of a minimum cut; of several the one nearest to the sink.

    capacities: of edges from one node to another. By shortest augmenting paths (J. Edmonds and
    R. Karp, "Theoretical Improvements in Algorithmic Efficiency for Network Flow Problems", 1972).
    """
    left: dict[Node, dict[Node, int]] = {source: {}, sink: {}}
    for (start, end), capacity in capacities.items():
        left.setdefault(start, {})[end] = left.setdefault(start, {}).get(end, 0) + capacity
        left.setdefault(end, {}).setdefault(start, 0)
    while path := _path(left, source, sink):
        flow = min(left[start][end] for start, end in path)
        for start, end in path:
            left[start][end] -= flow
            left[end][start] += flow
    found, waiting = {sink}, [sink]
    while waiting:
        end = waiting.pop()
        for start in left[end]:
            if start not in found and left[start][end]:
                found.add(start)
                waiting.append(start)
    return found


def _path(
    left: Mapping[Node, Mapping[Node, int]], source: Node, sink: Node
) -> list[tuple[Node, Node]]:
    """The edges of a shortest path on which something more can flow; none if there is no path."""
    before: dict[Node, Node] = {source: source}
    waiting = deque([source])
    while waiting and sink not in before:
        start = waiting.popleft()
        for end, capacity in left[start].items():
            if capacity and end not in before:
                before[end] = start
                waiting.append(end)
    if sink not in before:
        return []
    path = []
    node = sink
    while node is not source:
        path.append((before[node], node))
        node = before[node]
    return path
