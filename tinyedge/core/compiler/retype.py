"""From a caller's graphs to entries of element types that the target computes with."""

from __future__ import annotations

from tinyedge.core.compiler.decompose import retype
from tinyedge.core.compiler.fp16 import narrow_ports, stored_halves
from tinyedge.core.compiler.state import Compilation, CompiledEntry
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.tensor.graph import State
from tinyedge.core.tensor.tensor import Tensor


def retype_graphs(state: Compilation) -> None:
    """The stage "retype": element types that the target lacks become others."""
    states = {kept.name: kept for kept in state.source.states}
    for name, graph in state.source.entries.items():
        outputs = {port.name: port.node for port in graph.outputs if port.node is not None}
        updates = {port.name: port.node for port in graph.updates if port.node is not None}
        inputs = _inputs((*graph.counts.values(), *outputs.values(), *updates.values()))
        names = dict(graph.names)
        for kept, node in updates.items():
            if states[kept].update == "shift":
                updates[kept] = _shifted(states[kept], inputs.get(kept), node)
                names.setdefault(updates[kept], f"shift {kept}")
        marks = (n for n in toposort(updates.values()) if n.op is ops.IN_FULL)
        counts = dict(graph.counts)
        entry = CompiledEntry(name, graph, outputs, updates, names, counts, frozenset(marks))
        state.entries.append(entry)
    state.follow(retype(state.roots, state.caps.computed_as, stored_halves(state)))
    if "input" in stored_halves(state):
        narrow_ports(state)


def _inputs(roots: tuple[UOp, ...]) -> dict[str, UOp]:
    """The inputs of a graph by name."""
    sources = ((node.arg.source, node) for node in toposort(roots) if node.op is ops.BUFFER)
    return {source.name: node for source, node in sources if source.kind == "input"}


def _shifted(state: State, old: UOp | None, new: UOp) -> UOp:
    """A queue's whole new value: all but its first entries, then the new ones."""
    queue = Tensor.input(state.name, state.shape, state.dtype) if old is None else Tensor(old)
    count = new.shape[state.axis]
    left = queue[(slice(None),) * state.axis + (slice(count, None),)]
    return Tensor.concat([left, Tensor(new)], state.axis).node
