"""A random model with what it must give: leaves, steps and the values of all that they compute.

A model is valid at one size of its symbolic dimensions or at two; each is a world, with arrays of
its own for every value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, helper, numpy_helper, printer

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Value:
    """One value in one world."""

    array: Array
    # how far another implementation may be, per element; None where every implementation must give
    # the same
    error: Array | None = None


@dataclass(frozen=True)
class Step:
    """Nodes that are one choice of the generator; `outputs` is what later steps may use of them."""

    nodes: tuple[NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    # between its nodes float16 is float32, as tinyedge has it; only results are rounded
    wide: bool = False

    @property
    def operator(self) -> str:
        return "+".join(node.op_type for node in self.nodes)


@dataclass
class Case:
    """values: of leaves and steps, per world. constants: leaves that are initializers."""

    name: str
    opset: int
    steps: list[Step]
    values: dict[str, list[Value]]
    constants: set[str]
    outputs: list[str]
    bounds: dict[str, int] = field(default_factory=dict)

    @property
    def worlds(self) -> int:
        return min((len(values) for values in self.values.values()), default=1)

    @property
    def leaves(self) -> list[str]:
        """The names of values that no step makes, in order of use."""
        made = {name for step in self.steps for name in step.outputs}
        used = [name for step in self.steps for name in step.inputs]
        return list(dict.fromkeys(n for n in [*used, *self.outputs] if n and n not in made))

    @property
    def inputs(self) -> list[str]:
        return [name for name in self.leaves if name not in self.constants]

    def feeds(self, world: int) -> dict[str, Array]:
        return {name: self.values[name][world].array for name in self.inputs}

    def dims(self) -> dict[str, int | str]:
        """The bounds of its symbols: all sizes between those of the worlds."""
        found: dict[str, int | str] = {}
        for name in self.inputs:
            for dim in self._dims(name):
                if isinstance(dim, str):
                    sizes = [int(size) for size in dim.rsplit("_", 2)[1:]]
                    found[dim] = f"{min(sizes)}..{max(sizes)}"
        return found

    def _dims(self, name: str) -> list[int | str]:
        shapes = [value.array.shape for value in self.values[name]]
        return [
            sizes[0] if len(set(sizes)) == 1 else f"{self.name}_{sizes[0]}_{sizes[1]}"
            for sizes in zip(*shapes, strict=True)
        ]

    def model(self) -> ModelProto:
        """The case as a model."""
        inputs = [
            helper.make_tensor_value_info(
                name, element_type(self.values[name][0].array), self._dims(name)
            )
            for name in self.inputs
        ]
        weights = [
            numpy_helper.from_array(self.values[name][0].array, name)
            for name in self.leaves
            if name in self.constants
        ]
        results = [
            helper.make_tensor_value_info(name, element_type(array), [None] * array.ndim)
            for name, array in ((name, self.values[name][0].array) for name in self.outputs)
        ]
        nodes = [node for step in self.steps for node in step.nodes]
        return model_of(nodes, self.opset, inputs, results, weights)

    def text(self) -> str:
        """The model in onnx's own text, and the inputs' values."""
        lines = [printer.to_text(self.model())]
        for world in range(self.worlds):
            for name, array in self.feeds(world).items():
                shown = np.array2string(array, threshold=60, separator=", ", precision=9)
                lines.append(f"{name} = {array.dtype}{list(array.shape)} {shown}")
        return "\n".join(lines)


def model_of(
    nodes: list[NodeProto], opset: int, inputs: list[Any], results: list[Any], weights: list[Any]
) -> ModelProto:
    """A model of these nodes, with the operator sets that they are of."""
    graph = helper.make_graph(nodes, "fuzz", inputs, results, weights)
    others = sorted({node.domain for node in nodes if node.domain})
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in others)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def element_type(array: Array) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def free_names(nodes: Iterator[NodeProto] | tuple[NodeProto, ...]) -> list[str]:
    """What nodes use, themselves or in subgraphs, and do not make."""
    made: set[str] = set()
    found: dict[str, None] = {}
    for node in nodes:
        used = [*node.input]
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                inner = {value.name for value in attribute.g.input}
                inner |= {tensor.name for tensor in attribute.g.initializer}
                own = {name for n in attribute.g.node for name in n.output}
                used += [n for n in free_names(tuple(attribute.g.node)) if n not in inner]
                used += [o.name for o in attribute.g.output if o.name not in own | inner]
        found.update((name, None) for name in used if name and name not in made)
        made.update(node.output)
    return list(found)
