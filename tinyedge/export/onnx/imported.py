"""A model as the importer gives it: a graph of tensors with its inputs and outputs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tinyedge.core.dtype import DType
from tinyedge.core.errors import InputError
from tinyedge.core.ir.uop import Shape, UOp
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx import dims as sizes_of
from tinyedge.export.onnx.dynamic import DynamicSizes


@dataclass(frozen=True)
class ModelInput:
    """A model input."""

    name: str
    dtype: DType
    shape: Shape  # sizes are ints, or expressions of symbols


@dataclass(frozen=True)
class ImportedModel:
    """A model as a graph of tensors."""

    inputs: tuple[ModelInput, ...]
    outputs: dict[str, Tensor]  # in the order of the graph
    symbols: tuple[UOp, ...]  # the sizes that stay open, as SYMBOL nodes
    names: dict[UOp, str]  # result nodes with the ONNX nodes that made them
    warnings: tuple[str, ...]  # what was assumed
    # given dims that name no size of the model, and constants that name no input
    unknown: tuple[str, ...] = ()
    counts: DynamicSizes = field(default_factory=DynamicSizes)  # the sizes that only a run knows
    # the bounds of every size that the model leaves open
    sizes: Mapping[str, sizes_of.Bounds] = field(default_factory=dict)
    # the external data that is mapped, and what the system said of it when it was opened
    files: Mapping[Path, os.stat_result] = field(default_factory=dict)
    bytes: int = 0  # of the model and of that data
    # the initializers that were left open, with their values
    variables: Mapping[str, Any] = field(default_factory=dict, repr=False)
    draws: Port | None = None  # the state of its random numbers, with the next value

    def graph(self) -> Graph:
        """The graph to compile. Raises UnsupportedOp for an output that no port can be."""
        ports = self.counts.all_ports(self.outputs)
        updates = () if self.draws is None else (self.draws,)
        return Graph(self.ports, tuple(ports), self.names, updates, self.counts.nodes)

    @property
    def ports(self) -> tuple[Port, ...]:
        """What the graph reads, of states too. Raises InputError for an input called as one is."""
        ports = tuple(Port(each.name, each.dtype, each.shape) for each in self.inputs)
        if self.draws is None:
            return ports
        if self.draws.name in (port.name for port in ports):
            raise InputError(
                f"input {self.draws.name!r}",
                "the state of the model's random numbers has that name",
                id="input.name",
                next="rename the input in the model's file",
            )
        return (*ports, replace(self.draws, node=None))


def element_names(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """The elements of a sequence by the names of the outputs that they become."""
    return {f"{name}_{number}": value for number, value in enumerate(values)}
