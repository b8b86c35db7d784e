"""What an operator may ask of the import it is part of: values by name, runs of nodes, services.

Operators see a `Context`, not the importer that walks the model and implements it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tinyedge.core.ir.uop import UOp
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.affine import Affine
from tinyedge.export.onnx.causes import Causes
from tinyedge.export.onnx.draws import Draws
from tinyedge.export.onnx.dynamic import DynamicSizes
from tinyedge.export.onnx.known import ConstantPropagation
from tinyedge.export.onnx.reader import Model

LONG = 800  # characters


def nested(name: str) -> str:
    """What the names of nodes inside a node begin with; of a very long name its ends."""
    return f"{name if len(name) <= LONG else name[: LONG // 2] + '...' + name[-LONG // 2 :]}/"


class Scope:
    """The values of a graph by name; a subgraph also sees those around it."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.values: dict[str, Any] = {}
        self.outer = outer

    def holder(self, name: str) -> Scope:
        """The scope that holds `name`. Raises KeyError."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope
            scope = scope.outer
        raise KeyError(name)


@dataclass
class Call:
    """Nodes to run in a scope: what a function that contains other nodes yields to the walk.

    The walk answers with the values of `results`.
    """

    nodes: Sequence[Any]
    scope: Scope
    results: Sequence[str]
    opsets: Mapping[str, int]
    prefix: str
    functions: frozenset[str] = frozenset()  # those being inlined around it
    in_loop_body: bool = False  # whether it is one iteration of a loop that is not unrolled
    conditional: bool = False  # whether it is a branch that only a run chooses
    iterations: int = 0  # loops around it of which only a run knows the number of iterations


class Context(Protocol):
    """The services of an import that its nodes use."""

    model: Model
    knowledge: ConstantPropagation  # values known at import
    bounds: Mapping[str, int]  # what the caller said numbers are at most, by node
    bounded: set[str]  # the nodes that asked for one
    counts: DynamicSizes  # sizes that only a run knows
    draws: Draws  # keys of random numbers
    causes: Causes
    affine: dict[UOp, Affine]  # results that are linear in constant weights
    names: dict[UOp, str]  # of the nodes that made results
    uses: Counter[str]  # how many times each value of the model is used
    texts: set[UOp]  # tensors of numbers that stand for texts
    merged: int  # how many nodes went into the weights of a node before them

    def warn(self, text: str) -> None:
        """Tell the caller something once."""

    def constant(self, array: Any, name: str) -> Tensor:
        """An array as a constant."""

    def decode(self, proto: Any, sparse: bool, subject: str, name: str) -> Tensor:
        """A TensorProto or SparseTensorProto of the model as a constant."""

    def once(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """What was made for the key, by this node or by one before."""

    def spend(self, steps: int, subject: str) -> None:
        """Count nodes that are imported in the place of another one. Raises ModelError."""

    def make(self, elements: int, subject: str) -> None:
        """Count elements of constants that are no weights of the file. Raises ModelError."""

    def subgraph(self, graph: Any, scope: Scope, site: Call, prefix: str) -> Call:
        """A run of a subgraph in a scope that already holds its inputs."""
