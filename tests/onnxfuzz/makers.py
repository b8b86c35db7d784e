"""The table of makers: functions that make a step of a builder's values.

@maker("Relu", "Abs")
def unary(g: Builder, op: str) -> Made:
    return g.node(op, [g.pick(FLOATS)])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Union

from onnx import NodeProto

from tests.onnxfuzz.builder import Builder

# A node; nodes of which the last one's outputs count; or nodes and the outputs that count.
Made = Union[NodeProto, list[NodeProto], tuple[Sequence[NodeProto], Sequence[str]]]
Make = Callable[[Builder, str], Made]


@dataclass(frozen=True)
class Maker:
    operator: str
    make: Make
    weight: float


MAKERS: dict[str, Maker] = {}


def maker(*operators: str, weight: float = 1.0) -> Callable[[Make], Make]:
    """Register how steps of the operators are made. weight: beside the others'."""

    def register(make: Make) -> Make:
        for operator in operators:
            MAKERS[operator] = Maker(operator, make, weight)
        return make

    return register
