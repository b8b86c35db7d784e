"""Outputs of which only a run knows the size, against onnxruntime on every target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tinyedge.api import find_target
from tinyedge.core.compile import compile_graph
from tinyedge.core.device import Device
from tinyedge.core.errors import InputError, RunError, UnsupportedOp
from tinyedge.core.replay import Replay
from tinyedge.export.source import import_graph

RNG = np.random.default_rng(4)
Arrays = dict[str, Any]


def _save(
    folder: Path,
    nodes: list[Any],
    inputs: Arrays,
    outputs: list[str],
    constants: Arrays | None = None,
) -> Path:
    """A model of these nodes; inputs by example."""
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in inputs.items()
    ]
    stored = [numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "g", values, results, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    path = folder / "m.onnx"
    onnx.save(model, path)
    return path


def _compare(
    path: Path,
    target: str,
    device: Device,
    runs: list[Arrays],
    bounds: dict[str, int] | None = None,
) -> None:
    program = compile_graph(import_graph(path, bounds=bounds)[0], find_target(target)).program
    assert program is not None
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    with Replay(program, device, poison=True) as replay:
        for inputs in runs:
            found = replay.run(inputs)
            for name, expected in zip(names, session.run(names, inputs), strict=True):
                assert found[name].shape == expected.shape
                np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-5)


def _range(folder: Path, kind: Any) -> Path:
    inputs = {name: np.zeros((), kind) for name in ("start", "limit", "delta")}
    nodes = [
        helper.make_node("Range", ["start", "limit", "delta"], ["r"], "steps"),
        helper.make_node("Mul", ["r", "two"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["s"]),
    ]
    return _save(folder, nodes, inputs, ["y", "s"], {"two": np.array(2, kind)})


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.float32])
def test_range(kind: Any, target: str, device: Device, tmp_path: Path) -> None:
    """Up, down, none at all."""
    runs = [(1, 9, 2), (9, 1, -3), (3, 3, 1), (5, 1, 2), (0, 10, 1)]
    feeds = [
        {n: np.array(v, kind) for n, v in zip(("start", "limit", "delta"), run, strict=True)}
        for run in runs
    ]
    _compare(_range(tmp_path, kind), target, device, feeds, {"steps": 10})


def test_more_than_the_bound(target: str, device: Device, tmp_path: Path) -> None:
    graph = import_graph(_range(tmp_path, np.int64), bounds={"steps": 10})[0]
    program = compile_graph(graph, find_target(target)).program
    assert program is not None
    feed = {n: np.array(v) for n, v in (("start", 0), ("limit", 11), ("delta", 1))}
    with Replay(program, device) as replay, pytest.raises(RunError, match="11 entries") as caught:
        replay.run(feed)
    assert caught.value.id == "replay.count"


def test_a_bound_is_needed(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOp, match="steps") as caught:
        import_graph(_range(tmp_path, np.int64))
    assert "--bound steps=1000" in str(caught.value)


def test_scan_outputs(target: str, device: Device, tmp_path: Path) -> None:
    """A loop that collects a row each turn, until a sum is large."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "x"], ["w"]),
            helper.make_node("ReduceSum", ["w"], ["total"], keepdims=0),
            helper.make_node("Less", ["total", "hundred"], ["going"]),
            helper.make_node("Mul", ["w", "half"], ["row"]),
        ],
        "body",
        [
            value("i", TensorProto.INT64, ()),
            value("before", TensorProto.BOOL, ()),
            value("v", TensorProto.FLOAT, (3,)),
        ],
        [
            value("going", TensorProto.BOOL, ()),
            value("w", TensorProto.FLOAT, (3,)),
            value("row", TensorProto.FLOAT, (3,)),
        ],
    )
    nodes = [
        helper.make_node("Loop", ["", "yes", "x"], ["last", "rows"], "collect", body=body),
        helper.make_node("ReduceMax", ["rows", "zero"], ["most"], keepdims=0),
        helper.make_node("Transpose", ["rows"], ["columns"]),
    ]
    constants = {
        "yes": np.array(True),
        "hundred": np.array(100, np.float32),
        "half": np.array(0.5, np.float32),
        "zero": np.array([0]),
    }
    inputs = {"x": np.zeros(3, np.float32)}
    path = _save(tmp_path, nodes, inputs, ["last", "columns", "most"], constants)
    runs = [{"x": np.array(v, np.float32)} for v in ([1, 2, 3], [50, 60, 1], [10, 0.5, 9])]
    _compare(path, target, device, runs, {"collect": 40})


def test_at_most_one(target: str, device: Device, tmp_path: Path) -> None:
    """Ranges of one turn are none."""
    runs = [{"start": 4, "limit": 9, "delta": 5}, {"start": 4, "limit": 4, "delta": 5}]
    feeds = [{name: np.array(value) for name, value in run.items()} for run in runs]
    _compare(_range(tmp_path, np.int64), target, device, feeds, {"steps": 1})


@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_slice(step: int, target: str, device: Device, tmp_path: Path) -> None:
    """Ends beyond the axis, from its end, crossed."""
    x = RNG.standard_normal((3, 7)).astype(np.float32)
    node = helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"], "part")
    inputs = {"x": x, "starts": np.zeros(1, np.int64), "ends": np.zeros(1, np.int64)}
    constants = {"axes": np.array([-1]), "steps": np.array([step])}
    path = _save(tmp_path, [node], inputs, ["y"], constants)
    places = [(0, 7), (1, 5), (-3, 100), (6, -8), (5, 2), (-100, -2), (3, 3)]
    runs = [{"x": x, "starts": np.array([a]), "ends": np.array([b])} for a, b in places]
    _compare(path, target, device, runs)


def test_shapes_that_are_computed(target: str, device: Device, tmp_path: Path) -> None:
    """Of a shape that is joined of a constant and a number, only the number needs a bound."""
    nodes = [
        helper.make_node("Concat", ["n", "four"], ["shape"], axis=0),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"], "fill"),
        helper.make_node("Add", ["zeros", "x"], ["y"]),
        helper.make_node("Expand", ["column", "shape"], ["e"], "spread"),
        helper.make_node("Transpose", ["e"], ["z"]),
    ]
    x = RNG.standard_normal(4).astype(np.float32)
    column = np.array([[2.5]], np.float32)
    path = _save(
        tmp_path,
        nodes,
        {"n": np.array([3])},
        ["y", "z"],
        {"four": np.array([4]), "x": x, "column": column},
    )
    runs = [{"n": np.array([n])} for n in (3, 0, 9)]
    _compare(path, target, device, runs, {"fill": 9, "spread": 9})


def _sparse(*shape: int) -> Any:
    return np.where(RNG.random(shape) < 0.4, RNG.integers(1, 9, shape), 0)


def test_non_zero(target: str, device: Device, tmp_path: Path) -> None:
    """The elements that it finds are gathered, and their places are an output."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Transpose", ["places"], ["pairs"]),
        helper.make_node("GatherND", ["x", "pairs"], ["found"]),
        helper.make_node("ReduceSum", ["found"], ["total"]),
        helper.make_node("Shape", ["found"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
    ]
    outputs = ["places", "found", "total", "shape", "zeros"]
    path = _save(tmp_path, nodes, {"x": _sparse(4, 5).astype(np.float32)}, outputs)
    masks = [_sparse(4, 5), np.zeros((4, 5)), np.ones((4, 5))]
    _compare(path, target, device, [{"x": mask.astype(np.float32)} for mask in masks])


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_compress(axis: int | None, target: str, device: Device, tmp_path: Path) -> None:
    """Conditions that are shorter than the axis."""
    attributes = {} if axis is None else {"axis": axis}
    node = helper.make_node("Compress", ["x", "mask"], ["y"], **attributes)
    x = RNG.standard_normal((4, 6)).astype(np.float32)
    length = {None: 11, 0: 4, 1: 5}[axis]
    path = _save(tmp_path, [node], {"x": x, "mask": np.zeros(length, bool)}, ["y"])
    masks = [RNG.random(length) < 0.5, np.zeros(length, bool), np.ones(length, bool)]
    _compare(path, target, device, [{"x": x, "mask": mask} for mask in masks])


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("ascending", [0, 1])
def test_unique(
    axis: int | None, ascending: int, target: str, device: Device, tmp_path: Path
) -> None:
    attributes = {"sorted": ascending, **({} if axis is None else {"axis": axis})}
    outputs = ["values", "first", "inverse", "counts"]
    node = helper.make_node("Unique", ["x"], outputs, **attributes)
    path = _save(tmp_path, [node], {"x": np.zeros((6, 3), np.int64)}, outputs)
    runs = [RNG.integers(-1, 2, (6, 3)), np.zeros((6, 3)), np.arange(18).reshape(6, 3)[::-1]]
    _compare(path, target, device, [{"x": run.astype(np.int64)} for run in runs])


def test_top_k(target: str, device: Device, tmp_path: Path) -> None:
    node = helper.make_node("TopK", ["x", "k"], ["values", "places"], axis=1)
    x = RNG.integers(0, 6, (3, 9)).astype(np.float32)
    path = _save(tmp_path, [node], {"x": x, "k": np.array([2])}, ["values", "places"])
    _compare(path, target, device, [{"x": x, "k": np.array([k])} for k in (1, 9, 4)])


@pytest.mark.parametrize("centred", [0, 1])
def test_non_max_suppression(centred: int, target: str, device: Device, tmp_path: Path) -> None:
    """A detection head: boxes are selected and gathered. Equal scores, empty and flipped boxes."""
    nodes = [
        helper.make_node(
            "NonMaxSuppression",
            ["boxes", "scores", "most", "overlap", "least"],
            ["selected"],
            center_point_box=centred,
        ),
        helper.make_node("Slice", ["selected", "two", "three", "one"], ["column"]),
        helper.make_node("Squeeze", ["column", "one"], ["places"]),
        helper.make_node("Gather", ["boxes", "places"], ["kept"], axis=1),
    ]
    places = RNG.random((2, 12, 2))
    boxes = np.concatenate([places, places + RNG.normal(0.3, 0.2, (2, 12, 2))], -1)
    boxes = np.abs(boxes).astype(np.float32)
    scores = (RNG.integers(0, 8, (2, 3, 12)) / 8).astype(np.float32)
    constants = {
        "overlap": np.array([0.3], np.float32),
        "two": np.array([2]),
        "three": np.array([3]),
        "one": np.array([1]),
    }
    inputs = {
        "boxes": boxes,
        "scores": scores,
        "most": np.array([3]),
        "least": np.zeros(1, np.float32),
    }
    path = _save(tmp_path, nodes, inputs, ["selected", "kept"], constants)
    runs = [
        {**inputs, "most": np.array([most]), "least": np.array([least], np.float32)}
        for most, least in ((3, 0.4), (100, 0.0), (1, 2.0), (0, 0.1))
    ]
    _compare(path, target, device, runs)


def test_a_bound_that_no_output_watches(tmp_path: Path) -> None:
    """Only a sum of what is counted is an output: too many elements would be left out silently."""
    inputs = {name: np.zeros((), np.int64) for name in ("start", "limit", "delta")}
    nodes = [
        helper.make_node("Range", ["start", "limit", "delta"], ["r"], "steps"),
        helper.make_node("ReduceSum", ["r"], ["s"]),
    ]
    path = _save(tmp_path, nodes, inputs, ["s"])
    with pytest.raises(UnsupportedOp, match="steps"):
        import_graph(path, bounds={"steps": 10})
    assert import_graph(path, bounds={"steps": 10}, outputs=["s", "r"])[0].counts


@pytest.mark.parametrize("bound", [0, -1, 2**31 - 1])
def test_what_is_no_bound(bound: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no bound") as caught:
        import_graph(_range(tmp_path, np.int64), bounds={"steps": bound})
    assert caught.value.id == "input.bound"
