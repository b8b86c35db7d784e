"""Float16 in memory: which ports and weights lie there as fp16, and which kernels can write
them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.decompose import joined, narrowed
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.ir import access
from tinyedge.core.ir.polynomial import divisor, terms
from tinyedge.core.ir.rewrite import replaced
from tinyedge.core.ir.uop import UOp, as_node, cast


def stored_halves(state: Compilation) -> tuple[str, ...]:
    """The kinds of source that lie in memory as fp16 if they are float16. Inputs, and with them
    outputs and states, only where fp16 values can be written one by one.
    """
    if state.options.fp64_reference:
        return ()
    return ("weight", "input") if state.caps.fp16_scalar_stores else ("weight",)


def narrow_ports(state: Compilation) -> None:
    """Outputs and new values of states that are float16 become fp16. What joins fp16 values of
    memory to others, such as a cache and what is new in it, is read as fp16 inside of the graph,
    too: else it would be made twice.
    """
    native = state.caps.types["float16"].casts
    tops = {top: None for _, _, node in _fp16_roots(state) if (top := joined(node)) is not None}
    read = {top: cast(narrowed(top, native), top.dtype) for top in tops}
    state.follow(replaced(state.roots, read))
    for nodes, name, node in list(_fp16_roots(state)):
        nodes[name] = narrowed(node, native)


def _fp16_roots(state: Compilation) -> Iterator[tuple[dict[str, UOp], str, UOp]]:
    """Outputs and updates whose ports are float16: where they are kept, their name, their node."""
    for entry in state.entries:
        for port in entry.graph.outputs:
            if port.dtype is dt.float16 and port.name in entry.outputs:
                yield entry.outputs, port.name, entry.outputs[port.name]
        for port in entry.graph.updates:
            if port.dtype is dt.float16 and port.name in entry.updates:
                yield entry.updates, port.name, entry.updates[port.name]


def packs_fp16(state: Compilation) -> bool:
    """Whether float32 tensors become fp16 that only whole vectors can be written of."""
    return state.options.precision == "fp16" and not state.caps.fp16_scalar_stores


def partly_written(state: Compilation) -> frozenset[UOp]:
    """Tensors that were made fp16, but that a kernel would not write in whole vectors."""
    if not packs_fp16(state):
        return frozenset()
    return frozenset(
        storage.node
        for launch in state.launches
        for slot, storage in enumerate(launch.written)
        if storage.dtype is dt.float16
        and storage.node is not None
        and not writes_vectors(state.kernels[launch.sink].moved, slot)
    )


def writes_vectors(sink: UOp, slot: int) -> bool:
    """Whether a kernel, after its moves, stores aligned vectors in a buffer."""
    for store in (s for s in sink.src if s.src[0].arg.slot == slot):
        (address,) = access.indices_of(store)
        lane = next((r for r in address.ranges if r.arg.kind == "vector"), None)
        if lane is None or terms(address).get((lane,), 0) != 1:
            return False
        size = int(lane.src[0].arg)
        rest = as_node(address - lane)
        if size % 2 or lane in rest.ranges or divisor(rest) % size:
            return False
        if lane in access.guard_of(store).ranges:
            return False
    return True
