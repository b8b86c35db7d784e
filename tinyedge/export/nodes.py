"""Values of a model's nodes as outputs: beside each entry another one, by which a fault is found.

Each of these outputs is called as the node that makes it. Their golden cases hold what they should
be, so the first that differs names the node at which a device, or a kernel, goes wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tinyedge.core.errors import InputError
from tinyedge.core.ir import ops
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import UOp, as_node, toposort
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.export.ports import AXES, ENTRIES, PORTS

PREFIX = "nodes."  # of these entries' names


def with_nodes(
    graphs: Mapping[str, Graph], most_bytes: int
) -> tuple[dict[str, Graph], list[str], list[str]]:
    """The graphs and, for each that has nodes, another entry whose outputs their values are; the
    names of these entries; what there is to say of nodes that were left out.

    most_bytes: what the values of all together may take. Where it is less than they are, every
    second node is left out, or two of three, and so on. Raises InputError.
    """
    if most_bytes < 1:
        raise InputError(
            f"debug goldens of {most_bytes} bytes",
            "nothing fits",
            id="debug.bytes",
            supported="1 or more",
        )
    found = {PREFIX + name: (graph, _ports(graph)) for name, graph in graphs.items()}
    ports = [port for _, each in found.values() for port in each]
    most = PORTS - sum(len(graph.outputs) for graph in graphs.values())
    step = 1
    while _bytes(ports[step - 1 :: step]) > most_bytes or len(ports[step - 1 :: step]) > most:
        step += 1
    chosen = set(map(id, ports[step - 1 :: step]))
    made: dict[str, Graph] = {}
    for name, (graph, each) in found.items():
        outputs = tuple(port for port in each if id(port) in chosen)
        if outputs and name not in graphs and len(graphs) + len(made) < ENTRIES:
            made[name] = replace(graph, outputs=outputs, updates=(), counts={})
    left = len(ports) - sum(len(graph.outputs) for graph in made.values())
    because = f"all take {_bytes(ports):,} bytes, and a bundle has up to {PORTS} outputs"
    warnings = [f"--debug-goldens leaves out {left} of {len(ports)} nodes: {because}"] * bool(left)
    return {**graphs, **made}, list(made), warnings


def _ports(graph: Graph) -> list[Port]:
    """An output for each node that a run computes, in an order in which these can be computed."""
    roots = [p.node for p in (*graph.outputs, *graph.updates) if p.node is not None]
    inputs = {port.name for port in graph.inputs}
    computed: dict[UOp, bool] = {}
    unknown: dict[UOp, bool] = {}  # a size of it only a run knows
    ports: dict[str, Port] = {}
    for node in toposort(tuple(roots)):
        sizes = [as_node(size) for size in node.shape or () if isinstance(size, UOp)]
        computed[node] = _reads(node, inputs) or any(computed[each] for each in node.src)
        unknown[node] = any(unknown[each] for each in node.src) or any(
            each.op is ops.SYMBOL and each.arg.name in graph.counts for each in toposort(sizes)
        )
        if node not in graph.names or not computed[node] or unknown[node]:
            continue
        codes = node.dtype.is_int and node.dtype.itemsize == 1  # rounding may give the next one
        if len(node.shape) <= AXES and not codes:
            name = _free(graph.names[node], ports)
            ports[name] = Port(name, node.dtype, node.shape, node)
    return list(ports.values())


def _reads(node: UOp, inputs: set[str]) -> bool:
    """Whether a node is one of the inputs."""
    return node.op is ops.BUFFER and (
        node.arg.source.kind == "input" and node.arg.source.name in inputs
    )


def _free(name: str, taken: Mapping[str, Port]) -> str:
    """The name, or with a number where another value of the node has it."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}#{number}"
    return free


def _bytes(ports: list[Port]) -> int:
    return sum(fixed(product(map(maximum, port.shape))) * port.dtype.itemsize for port in ports)
