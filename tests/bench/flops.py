"""Counts the arithmetic of a model's contractions: Conv, ConvTranspose, MatMul, Gemm.

Sizes come from one real run on the CPU, so that no shape inference has to be believed. A multiply
and an add count as two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from tests.bench import cases

CONTRACTIONS = ("Conv", "ConvTranspose", "MatMul", "Gemm")


def count(path: Path, arrays: Mapping[str, cases.Array]) -> dict[str, int]:
    """FLOPs by the node's name; a node without one is called by its operator and place: Conv_3."""
    model = onnx.load(path)
    named = {
        node.name or f"{node.op_type}_{index}": node
        for index, node in enumerate(model.graph.node)
        if node.op_type in CONTRACTIONS
    }
    shapes = _shapes(model, list(named.values()), arrays)
    return {name: _flops(node, shapes) for name, node in named.items()}


def contracts(launch: Mapping[str, Any], counted: Mapping[str, int]) -> bool:
    """Whether a profiled launch computes a contraction, or an essential part of one.

    By its nodes, which may be joined as `conv+batchnorm`. A part of a contraction that is split
    along its sum has no nodes, and rewriting can replace a node: those are known by their work.
    """
    parts = {part for node in launch["nodes"] for part in node.split("+")}
    if not parts.isdisjoint(counted):
        return True
    return bool(launch["flops"]) and (not parts or launch["flops"] >= 0.005 * sum(counted.values()))


def _flops(node: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:
    first, second = shapes[node.input[0]], shapes[node.input[1]]
    out = math.prod(shapes[node.output[0]])
    if node.op_type == "Conv":
        return 2 * out * math.prod(second[1:])
    if node.op_type == "ConvTranspose":
        return 2 * math.prod(first) * math.prod(second[1:])
    if node.op_type == "Gemm":
        transposed = any(a.name == "transA" and a.i for a in node.attribute)
        return 2 * out * (first[0] if transposed else first[1])
    return 2 * out * first[-1]


def _shapes(model: Any, nodes: list[Any], arrays: Mapping[str, cases.Array]) -> dict[str, Any]:
    """The shapes of every operand and result of `nodes`."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    shapes[node.output[0]] = tuple(attribute.t.dims)
    shapes |= {name: array.shape for name, array in arrays.items()}
    names = {name for node in nodes for name in [*node.input[:2], *node.output]} - set(shapes)
    present = {port.name for port in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names - present))
    runner = cases.session(model.SerializeToString())
    return shapes | {name: out.shape for name, out in cases.expected(runner, arrays).items()}
