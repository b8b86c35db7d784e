"""Chains of many nodes: refused at once, or exported in time that grows with their length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.measured import processor_seconds, within
from tinyedge import load
from tinyedge.model import TARGETS

SECONDS = 60  # for 20,000 nodes
LAYER = ("MatMul", "Add", "Relu", "Softmax")

EXPORT = """
import sys
from tinyedge import export_onnx
export_onnx(sys.argv[1], out=sys.argv[2], target=sys.argv[3])
"""
IMPORT = """
import sys
from tinyedge.core.errors import ModelError
from tinyedge.export.onnx import import_model, inspect_model
for read in (import_model, inspect_model):
    try:
        read(sys.argv[1])
    except ModelError as error:
        assert error.id == "model.limit" and "--limit nodes=N" in error.next
    else:
        raise AssertionError("it was read")
"""
INSPECT = """
import sys
from tinyedge.cli import main
main(["inspect", sys.argv[1], "--limit", "nodes=100000"])
"""


def _chain(folder: Path, length: int, layer: tuple[str, ...]) -> Path:
    nodes = []
    for number in range(length):
        op = layer[number % len(layer)]
        second = ["w"] if op in ("MatMul", "Add") else []
        nodes.append(helper.make_node(op, [f"v{number}", *second], [f"v{number + 1}"]))
    weight = numpy_helper.from_array(np.eye(4, k=1, dtype=np.float32) * 0.5, "w")
    ends = [helper.make_tensor_value_info(f"v{n}", 1, [4, 4]) for n in (0, length)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    path = folder / "m.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def test_100_000_nodes_are_refused(tmp_path: Path) -> None:
    """Twice, by import and inspection; the interpreter's start and its imports count too."""
    path = _chain(tmp_path, 100_000, ("Neg",))
    assert within(processor_seconds(IMPORT, path, seconds=20, memory=1 << 29), 6)


@pytest.mark.slow
def test_100_000_nodes_are_inspected_if_that_is_allowed(tmp_path: Path) -> None:
    path = _chain(tmp_path, 100_000, ("Neg",))
    assert within(processor_seconds(INSPECT, path, seconds=240, memory=2 << 30), 60)


def _expected(length: int) -> Any:
    x, w = np.ones((4, 4)), np.eye(4, k=1) * 0.5
    for number in range(length):
        op = LAYER[number % len(LAYER)]
        if op == "Softmax":
            x = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        else:
            x = {"MatMul": x @ w, "Add": x + w, "Relu": np.maximum(x, 0)}[op]
    return x


def _exported(folder: Path, length: int, target: str) -> None:
    path = _chain(folder, length, LAYER)
    allowed = SECONDS * length / 20_000 + 5  # the start, and what a compiler takes for the first
    assert within(processor_seconds(EXPORT, path, folder / "b", target, seconds=200), allowed)
    if target == "cpu":
        with load(folder / "b") as loaded:
            y = loaded.run({"v0": np.ones((4, 4), np.float32)})[f"v{length}"]
        np.testing.assert_allclose(y, _expected(length), atol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "webgpu"])
def test_a_chain_is_exported(target: str, tmp_path: Path) -> None:
    _exported(tmp_path, 2000, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_20_000_nodes_are_exported(target: str, tmp_path: Path) -> None:
    _exported(tmp_path, 20_000, target)
