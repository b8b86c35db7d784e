"""What the comparison with tinygrad measures is right; it never asserts on a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tinyedge
from tests import opencl
from tests.bench import cases
from tests.bench.opencl import compare, kernels, peer, process, report

SHAPE = (8, 12)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = relu(x @ w) for qcom, buffers."""
    w = tinyedge.Tensor(np.linspace(-1, 1, 12 * 4, dtype=np.float32).reshape(12, 4))
    return tinyedge.export_function(
        lambda x: {"y": (x @ w).relu()},
        {"x": np.zeros(SHAPE, np.float32)},
        target="qcom",
        precision="fp32",
        profile="buffers",
        out=tmp_path_factory.mktemp("bench") / "f.tinyedge",
    )


@pytest.fixture(scope="module")
def pocl() -> dict[str, str]:
    try:
        return process.driver("pocl")
    except process.SideError as error:
        opencl.missing(str(error))
        raise


@pytest.mark.parametrize("runner", ["python", "c"])
def test_a_side(runner: str, bundle: Path, pocl: dict[str, str], tmp_path: Path) -> None:
    """Its outputs are right, and it says what runs took."""
    x = np.random.default_rng(0).normal(0, 1, SHAPE).astype(np.float32)
    w = np.linspace(-1, 1, 12 * 4, dtype=np.float32).reshape(12, 4)
    if runner == "c":
        compare._make(bundle)
    child = process.Child(runner, bundle, {"x": x}, pocl | process.caches(tmp_path))
    try:
        np.testing.assert_allclose(child.outputs["y"], np.maximum(x @ w, 0), atol=1e-5)
        assert child.first > 0
        few, many = (child.ask(("run", count)) for count in (1, 200))
        assert 0 < few["cpu"] < many["cpu"]
        assert child.ask(("facts", 1)).get("bytes", 1024) >= 4 * (x.size + w.size)
    finally:
        child.close()


def test_a_side_that_fails(pocl: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(process.SideError, match=r"bundle\.manifest\.missing"):
        process.Child("python", tmp_path, {}, pocl)


def test_the_program_of_a_bundle(bundle: Path, pocl: dict[str, str], tmp_path: Path) -> None:
    compare._make(bundle)
    x = np.zeros(SHAPE, np.float32)
    assert compare._program(bundle, {"x": x}, pocl, tmp_path) > 0
    with pytest.raises(process.SideError, match="shape"):
        compare._program(bundle, {"x": x[:1]}, pocl, tmp_path)


def test_launches(bundle: Path, pocl: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in pocl.items():
        monkeypatch.setenv(name, value)
    (launch,) = kernels.launches(bundle)
    assert launch["flops"] >= 2 * 8 * 12 * 4
    assert launch["cpu"] > 0


def test_constants_of_no_elements_are_left_out(tmp_path: Path) -> None:
    """The same values come out of what tinygrad is given."""
    none = helper.make_tensor("none", TensorProto.FLOAT, [0], [])
    sizes = helper.make_tensor("sizes", TensorProto.FLOAT, [4], [1, 1, 2, 2])
    nodes = [
        helper.make_node("Constant", [], ["none"], value=none),
        helper.make_node("Constant", [], ["scales"], value=sizes),
        helper.make_node("Resize", ["x", "none", "scales"], ["y"], mode="nearest"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 3, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 6, 4])
    graph = helper.make_graph(nodes, "g", [x], [y])
    opset = [helper.make_opsetid("", 17)]
    path, out = tmp_path / "model.onnx", tmp_path / "readable.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    assert peer.readable(path, out) == out
    assert peer.readable(out, path) == out
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(1, 1, 3, 2)}
    results = [cases.session(file).run(None, feeds)[0] for file in (path, out)]
    np.testing.assert_array_equal(*results)


def test_a_report_of_sides_that_failed() -> None:
    sides: dict[str, Any] = {
        "tinygrad": {"error": "no driver"},
        "tinyedge": {"cpu": {"median": 0.5}, "difference": 0.3, "right": False},
    }
    result = {
        "models": [{"model": "pnet", "size": "48x48", "sides": sides}],
        "peer": "0",
        "processors": 2,
        "left_out": ["swift_f0"],
    }
    text = report.text(result)
    assert "pnet, tinygrad: no driver" in text
    assert "swift_f0: left out unless it is named" in text
    assert "pnet, tinyedge: wrong, off by 3.0e-01" in text
    (row,) = (line for line in report.markdown(result).splitlines() if line.startswith("| pnet"))
    assert row.startswith("| pnet 48x48 | 500 / - | - |")
    assert report.plots(result) == {}
    sides["tinygrad"] = {"cpu": {"median": 2.0}, "replay": {"median": 1.0}}
    (plotted,) = report.plots(result).values()
    assert "a run: 0.25x" in plotted and "a run, of its replay: 0.50x" in plotted
