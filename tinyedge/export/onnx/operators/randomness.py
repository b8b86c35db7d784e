"""Operators that draw random numbers: refused, as no two runtimes draw the same ones."""

from __future__ import annotations

from typing import Any

from tinyedge.export.onnx.registry import Node, operator

DRAWING = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)


def _refused(node: Node, *operands: Any) -> Any:
    raise node.unsupported(
        "it draws random numbers in every run"
        + (", and ONNX does not say which ones a seed gives" if node.has("seed") else ""),
        supported="what its inputs determine",
        next="make its result an input of the model, or take it out as for evaluation",
    )


for _name in DRAWING:
    operator(_name, refused="draws random numbers")(_refused)
