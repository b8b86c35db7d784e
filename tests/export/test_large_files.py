"""Models above 2 GB: weights in a file beside the model, here one that is mostly holes."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.measured import processor_seconds, within
from tinyedge import load
from tinyedge.export.bundle.reading import read

GIB = 1 << 30
ROW = 1024  # floats
ROWS = 3 * GIB // 2 // (4 * ROW)  # of each of two tables
TABLES = (0, 3 * GIB // 2)  # where in the file they begin
SMALL = {"across 2^31": 2**31 - 8, "across 2^32": 2**32 - 8, "at 5 GiB": 5 * GIB}
VALUES = np.array([1, -2, 3, 4], np.float32)

EXPORT = """
import sys
from tinyedge import export_onnx
model, out, *outputs = sys.argv[1:]
export_onnx(model, out=out, target="cpu", outputs=outputs or None, golden=bool(outputs))
"""
IMPORT = """
import sys
from tinyedge.export.onnx import import_model
assert len(import_model(sys.argv[1]).outputs) == 5
"""


def _outside(name: str, dims: list[int], offset: int) -> Any:
    proto = TensorProto(name=name, data_type=TensorProto.FLOAT)
    proto.dims.extend(dims)
    proto.data_location = TensorProto.EXTERNAL
    places = {"location": "weights.bin", "offset": offset, "length": 4 * prod(dims)}
    for key, value in places.items():
        entry = proto.external_data.add()
        entry.key, entry.value = key, str(value)
    return proto


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables of 1.5 GiB, of which rows are looked up, and small weights beyond 2^31 bytes."""
    folder = tmp_path_factory.mktemp("large")
    tables = [_outside(f"table {n}", [ROWS, ROW], start) for n, start in enumerate(TABLES)]
    small = [_outside(name, [4], offset) for name, offset in SMALL.items()]
    nodes = [helper.make_node("Gather", [t.name, "places"], [f"rows of {t.name}"]) for t in tables]
    nodes += [helper.make_node("Mul", ["x", name], [f"x {name}"]) for name in SMALL]
    value = helper.make_tensor_value_info
    inputs = [value("places", TensorProto.INT64, [2]), value("x", TensorProto.FLOAT, [4])]
    outputs = [value(node.output[0], TensorProto.FLOAT, None) for node in nodes]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [*tables, *small])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "m.onnx")
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(5 * GIB + VALUES.nbytes)
        for number, offset in enumerate(SMALL.values()):
            file.seek(offset)
            file.write((VALUES + number).tobytes())
        for number, start in enumerate(TABLES):
            file.seek(start + (ROWS - 1) * 4 * ROW)
            file.write(np.full(ROW, 7 + number, np.float32).tobytes())
    return folder / "m.onnx"


def test_the_whole_is_imported(model: Path) -> None:
    """No weight is read."""
    assert within(processor_seconds(IMPORT, model, seconds=10, memory=GIB // 2), 3)


def test_a_part_is_exported(model: Path, tmp_path: Path) -> None:
    names = [f"x {name}" for name in SMALL]
    seconds = processor_seconds(EXPORT, model, tmp_path / "b", *names, seconds=20, memory=GIB // 2)
    assert within(seconds, 6)
    assert sum(file.stat().st_size for file in (tmp_path / "b").iterdir()) < 10**6
    with load(tmp_path / "b") as loaded:
        found = loaded.run({"x": np.ones(4, np.float32)})
    for number, name in enumerate(names):
        np.testing.assert_array_equal(found[name], VALUES + number)


@pytest.mark.slow
def test_the_whole_is_exported(model: Path, tmp_path: Path) -> None:
    """3 GiB of weights pass through: they are mapped, never held."""
    assert within(processor_seconds(EXPORT, model, tmp_path / "b", seconds=60, memory=GIB), 40)
    weights = [w.data.view(np.float32) for w in read(tmp_path / "b").program.weights]
    tables = [weight for weight in weights if weight.size == ROWS * ROW]
    assert sorted(table[-1] for table in tables) == [7, 8]
    assert not any(table[:ROW].any() for table in tables)
    for number in range(len(SMALL)):
        assert any((weight[:4] == VALUES + number).all() for weight in weights)
