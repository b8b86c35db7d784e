"""What a user of a model on a target should know."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import isqrt
from typing import Any

from tinyedge.core import dtype as dtypes
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.target import Target
from tinyedge.core.ir import ops
from tinyedge.core.ir.overflow import beyond
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.tensor.graph import Graph, Graphs

NAMES = 8  # that a warning lists


def remarks(
    source: Graphs,
    target: Target,
    largest: int,
    caps: Caps,
    pictures: Sequence[Mapping[str, Any]] = (),
) -> Iterator[str]:
    """What a user of graphs on a target should know. largest: bytes of the largest buffer.
    pictures: what the manifest records of them.
    """
    yield from _narrowed(source, target, caps)
    yield from _beyond_bits(source, target, caps)
    large = list(_large_pictures(source, caps, pictures))
    for name, bytes, side, fits in large:
        yield (
            f"a picture {name!r} of up to {side} x {side} pixels takes {bytes} bytes; not every "
            f"{target.name} device binds more than {caps.binding_bytes}, and those that do not "
            "will refuse the bundle: say a smaller greatest side, "
            f"up to --image {name}=..,max:{fits}"
        )
    if largest > max(caps.binding_bytes, *(bytes for _, bytes, *_ in large), 0):
        yield _beyond(source, target, largest, caps)
    if target.runtime == "web":
        yield from _read_together(source, target, caps)


def _roots(graph: Graph) -> list[UOp]:
    """What a graph gives and keeps."""
    return [p.node for p in (*graph.outputs, *graph.updates) if p.node is not None]


def _narrowed(source: Graphs, target: Target, caps: Caps) -> Iterator[str]:
    """What is computed in float32 because the target has no doubles, by name."""
    if caps.computed_as.get("float64") != "float32":
        return
    names: dict[str, None] = {}
    for graph in source.entries.values():
        for port in (*graph.inputs, *graph.outputs):
            if port.dtype is dtypes.float64:
                names[port.name] = None
        for node in toposort(_roots(graph)):
            if dtypes.float64 in (node.dtype, *(s.dtype for s in node.src)) and node in graph.names:
                names[graph.names[node]] = None
    if names:
        yield (
            f"{target.name} has no doubles: {_shown(names)} computed in float32; "
            "`tinyedge verify` says how far from double precision the results are"
        )


def _beyond_bits(source: Graphs, target: Target, caps: Caps) -> Iterator[str]:
    """What might need more bits than the target's integers have, by name."""
    names: dict[str, None] = {}
    for graph in source.entries.values():
        for node in beyond(_roots(graph), graph.names, caps.computed_as):
            names[graph.names[node]] = None
    if names:
        yield (
            f"{target.name} has no 64-bit integers: {_shown(names)} computed in 32 bits, beyond "
            "which values are wrong"
        )


def _large_pictures(
    source: Graphs, caps: Caps, pictures: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, int, int, int]]:
    """Pictures that take more than a device binds: name, bytes, greatest side, one that fits."""
    sides = {each["input"]: each["max"] for each in pictures}
    ports = {port.name: port for graph in source.entries.values() for port in graph.inputs}
    kept = caps.stored_type(caps.computed_type(dtypes.uint8)).itemsize
    for name, port in ports.items():
        side = sides.get(ascii(name)[1:-1])
        bytes = maximum(product(port.shape)) * kept
        if side is not None and bytes > caps.binding_bytes:
            yield name, bytes, side, isqrt(caps.binding_bytes * side * side // bytes)


def _beyond(source: Graphs, target: Target, largest: int, caps: Caps) -> str:
    """What buffers need beyond what every device of their kind guarantees. largest: of them all."""
    large: dict[str, None] = {}
    for graph in source.entries.values():
        for node in toposort(_roots(graph)):
            if node.op is ops.BUFFER and node.arg.source.kind == "weight":
                kept = caps.stored_type(caps.computed_type(node.dtype))
                if maximum(product(node.shape)) * kept.itemsize == largest:
                    large[node.arg.source.name] = None
    what = f"{_shown(large)}: a weight" if large else "a tensor"
    return (
        f"{what} takes {largest} bytes; not every {target.name} device binds more than "
        f"{caps.binding_bytes}, and those that do not will refuse the bundle"
    )


def _read_together(source: Graphs, target: Target, caps: Caps) -> Iterator[str]:
    """Entries whose outputs a page cannot read by way of one buffer on every device."""
    for name, graph in source.entries.items():
        bytes = sum(
            maximum(product(port.shape)) * caps.stored_type(caps.computed_type(port.dtype)).itemsize
            for port in graph.outputs
        )
        if len(graph.outputs) > 1 and bytes > caps.buffer_bytes:
            yield (
                f"{_shown([port.name for port in graph.outputs])}: outputs of {name!r} that take "
                f"{bytes} bytes together; not every {target.name} device has buffers of more than "
                f"{caps.buffer_bytes}, and those that do not will refuse the bundle"
            )


def _shown(names: Collection[str]) -> str:
    """Names for a warning, of many only some."""
    shown = ", ".join(repr(name) for name in list(names)[:NAMES])
    return shown + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")
