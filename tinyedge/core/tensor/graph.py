"""What a caller asks to be compiled: graphs of tensors with named inputs, outputs and states."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import Shape, UOp, toposort
from tinyedge.core.program.program import Slice


@dataclass(frozen=True)
class Port:
    """A named input or output of a graph with the element type that callers see."""

    name: str
    dtype: DType
    shape: Shape
    node: UOp | None = None  # of an output
    # the name of the output that says how many entries along `axis`, of which the size is the most
    # there can be, a run computed
    count: str = ""
    axis: int = 0
    slices: tuple[Slice, ...] = ()  # named parts of an output
    picture: bool = False  # of an input: pictures, as bytes [.., height, width, channels]


def node_name(text: str) -> str:
    """A text as a graph calls a node by it: of printable characters, and not too many."""
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= 400 else f"{shown[:400]}..."


@dataclass(frozen=True)
class Graph:
    """What one entry computes."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    names: Mapping[UOp, str] = field(default_factory=dict)  # the model's name of a node's tensor
    updates: tuple[Port, ...] = ()  # new values of states, by the state's name
    # int32 scalars, the values of symbols that only a run knows, each after those that it depends
    # on
    counts: Mapping[str, UOp] = field(default_factory=dict)

    def key(self, port: Port) -> Hashable:
        """What an input, or an output, of this graph has in common with those of other graphs that
        are the same port: its name, type and shape, and the output that counts it.
        """
        counted = next((self.key(p) for p in self.outputs if port.count == p.name), None)
        return port.name, port.dtype, port.shape, counted, port.axis, port.slices


@dataclass(frozen=True)
class State:
    """A value that stays on the device between runs; graphs read it as the input of its name.

    An update is the whole new value ("replace"), or the entries that come last when the others move
    towards 0 along `axis` ("shift").
    """

    name: str
    dtype: DType
    shape: Shape
    update: Literal["replace", "shift"] = "replace"
    axis: int = 0
    initial: Any = field(default=None, repr=False)  # the value after a reset, None for zeros


@dataclass(frozen=True)
class Graphs:
    """What is compiled: graphs by the entry's name, and the states they share.

    Inputs, or outputs, that have one name, type and shape in several graphs are one port.
    """

    entries: Mapping[str, Graph]
    states: tuple[State, ...] = ()

    @property
    def trains(self) -> bool:
        """Whether a state's new value is made of gradients (`Tensor.in_full`)."""
        updates = [port.node for graph in self.entries.values() for port in graph.updates]
        new = [node for node in updates if node is not None]
        return any(node.op is ops.IN_FULL for node in toposort(new))
