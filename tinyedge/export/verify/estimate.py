"""What a bundle will take, from the compiler's own stages before any kernel is written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.assemble import placed
from tinyedge.core.compiler.schedule.launches import ScheduledLoop, ScheduledStep
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.ir import ops
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import BINDING, UOp, as_size, own_ranges, toposort
from tinyedge.core.program.program import Weight
from tinyedge.export.limits import FREE_BYTES, Limits

if TYPE_CHECKING:
    from tinyedge.export.onnx import Inspection

GROUP_REDUCE = ("grid", "local")  # kinds of ranges of which each position is one thread
SHOWN = 4  # parts of a bundle that an error lists
GENERATED = 32  # bytes that generating an element of an input takes, at most


@dataclass(frozen=True)
class Estimate:
    """The figures of a compilation whose kernels have their moves; sizes are the greatest."""

    kernels: int  # at most; those of equal text will be one
    launches: int  # in the bundle, a loop's once
    flops: int  # arithmetic operations of a run, loops with all their iterations
    weight_bytes: int  # weight_bytes, arena_bytes: as the bundle will have them
    arena_bytes: int
    largest: int  # bytes of the largest buffer

    @property
    def peak_bytes(self) -> int:
        return self.weight_bytes + self.arena_bytes


@dataclass(frozen=True)
class Folded:
    """What is computed at export."""

    nodes: int  # of `of`, those whose results become constants
    merged: int  # those that change the weights of a node before them, and are gone
    of: int
    weights: int  # weights, bytes: what is kept that the file does not hold as it is
    bytes: int


def estimate(state: Compilation, model_bytes: int, limits: Limits) -> Estimate:
    """The figures of a model's compilation that has been through "optimize". Raises ModelError
    where its bundle would take more than the limits allow.
    """
    arenas, buffers, weights = placed(state)
    check_growth(weights, 0, model_bytes, limits)
    return Estimate(
        kernels=len(state.kernels),
        launches=len(state.launches),
        flops=sum(_flops(state, entry.schedule.launches) for entry in state.entries),
        weight_bytes=sum(weight.bytes for weight in weights),
        arena_bytes=sum(arena.bytes for arena in arenas),
        largest=max((buffer.bytes for buffer in buffers), default=0),
    )


def check_growth(
    weights: Iterable[Weight], kernel_bytes: int, model_bytes: int, limits: Limits
) -> None:
    """Raise ModelError where weights and kernels take much more than the model they are made of."""
    taken = Counter({"the kernels": kernel_bytes})
    for weight in weights:
        taken[f"weight {weight.name!r}"] += weight.bytes
    total = taken.total()
    if total <= max(FREE_BYTES, limits.bundle_growth * model_bytes):
        return
    most = ", ".join(f"{what} {count}" for what, count in taken.most_common(SHOWN))
    raise limits.exceeded(
        "bundle_growth",
        "the bundle",
        f"its weights and kernels would take {total} bytes, "
        f"{math.ceil(total / model_bytes)} times the {model_bytes} of the model; most of them: "
        f"{most}",
        "times the model's bytes",
    )


def _flops(state: Compilation, launches: Iterable[ScheduledStep]) -> int:
    total = 0
    for item in launches:
        if isinstance(item, ScheduledLoop):
            total += item.bound * _flops(state, item.launches)
        else:
            total += state.kernels[item.sink].flops
    return total


def beyond(state: Compilation, entry: str, steps: int, limits: Limits) -> str:
    """Why an entry has no golden case of so many steps, if it takes more than the limits allow.

    state: a whole compilation, of the program that makes the case.
    """
    assert state.program is not None
    (chosen,) = (each for each in state.entries if each.name == entry)
    ports = (*chosen.graph.inputs, *chosen.graph.outputs)
    held = sum(arena.bytes for arena in state.program.arenas)
    held += sum(weight.bytes for weight in state.program.weights)
    held += GENERATED * sum(maximum(product(port.shape)) for port in ports)
    taken = {
        "golden_work": (steps * _work(state, chosen.schedule.launches), "operations"),
        "golden_bytes": (held, "bytes of memory"),
    }
    for name, (count, unit) in taken.items():
        if count > getattr(limits, name):
            return (
                f"no golden case checks entry {entry!r}: it would take {count} {unit}; allow that "
                f"by --limit {name}={count}, or compare with the model by verify --against"
            )
    return ""


def _work(state: Compilation, launches: Iterable[ScheduledStep]) -> int:
    """What plain kernels do at the greatest sizes, in all iterations of loops."""
    total = 0
    for item in launches:
        if isinstance(item, ScheduledLoop):
            total += item.bound * _work(state, item.launches)
        else:
            total += _work_of(state.kernels[item.sink].moved)
    return total


def _work_of(sink: UOp) -> int:
    """Of one kernel after its moves: stores, folds and the operations on values between.

    Each is done in every thread, and there in every iteration of the loops that it depends on.
    """
    nodes = toposort((sink,))
    threads = {node for node in nodes if node.op is ops.RANGE and node.arg.kind in GROUP_REDUCE}
    total = 0
    for node in nodes:
        if node.op in BINDING:
            inside = node.src[0].ranges | {*own_ranges(node)}
        elif node.op is ops.STORE or (node.op.elementwise and node.dtype is not dt.index):
            inside = node.ranges
        else:
            continue
        iterations = math.prod(maximum(as_size(each.src[0])) for each in inside | threads)
        total += node.op.cost * iterations
    return total


def folded(model: Inspection, state: Compilation) -> Folded:
    """What an export computes, given the model's graph after "fold"."""
    order = toposort(state.roots)
    computed = {node for node in order if node.op.group not in ("source", "movement")}
    at_run = {n for e in state.entries for node, n in e.names.items() if node in computed}
    names = {node: name for e in state.entries for node, name in e.graph.names.items()}
    varying = _varying(node for made in model.results for node in made)
    constant = [made for made in model.results if made and varying.isdisjoint(made)]
    nodes = [made for made in constant if at_run.isdisjoint(names.get(node, "") for node in made)]
    stored = model.stored
    weights = [
        node.arg.source
        for node in order
        if node.op is ops.BUFFER
        and node.arg.source.data is not None
        and node.arg.source.name not in stored
    ]
    size = sum(weight.data.nbytes for weight in weights)
    return Folded(len(nodes), model.merged, len(model.results), len(weights), size)


def _varying(nodes: Iterable[UOp]) -> set[UOp]:
    """What depends on an input's values or its sizes."""
    found: set[UOp] = set()
    for node in toposort(nodes):
        is_input = node.op is ops.BUFFER and node.arg.source.data is None
        if is_input or node.op is ops.SYMBOL or not found.isdisjoint(node.src):
            found.add(node)
    return found
