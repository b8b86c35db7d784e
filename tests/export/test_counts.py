"""Outputs of which only a run knows the size, against onnxruntime on every target."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.agreement import Inputs, run
from tests.imported import import_graph, import_model
from tinyedge.choices import find_target
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.errors import InputError, ModelError, RunError, UnsupportedOp
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.export.onnx.operators.shapes import ENDLESS, range_length

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


@pytest.mark.parametrize("place", [2, -2, 9])
def test_one_place_of_as_many_as_a_run_finds(
    place: int, target: str, device: Device, tmp_path: Path
) -> None:
    """Where there are fewer, it is 0, as whatever is read from outside, and not what lies there."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["found"]),
        helper.make_node("Gather", ["found", "place"], ["y"], axis=1),
    ]
    inputs = {"x": np.zeros(4, np.float32)}
    path = _save(tmp_path, nodes, inputs, ["found", "y"], {"place": np.array(place)})
    program = compile_graph(import_graph(path)[0], find_target(target)).program
    assert program is not None
    with Replay(program, device, poison=True) as replay:
        for values in ([1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0], [0, 1, 1, 1]):
            x = np.array(values, np.float32)
            found = np.flatnonzero(x)
            inside = -len(found) <= place < len(found)
            assert replay.run({"x": x})["y"].tolist() == [found[place] if inside else 0]


# The length of a range. In floats: the difference rounded, its quotient by the step exact.


def _length(start: Any, limit: Any, delta: Any) -> int:
    with np.errstate(all="ignore"):
        span = limit - start
    if delta == 0 or (np.isinf(span) and np.isfinite(delta) and (span > 0) == (delta > 0)):
        return ENDLESS
    if not np.isfinite(span) or not np.isfinite(delta):
        return 0
    return min(ENDLESS, max(0, math.ceil(Fraction(float(span)) / Fraction(float(delta)))))


def _triples(count: int) -> Any:
    """Starts, limits and steps: limits at a multiple of the step or beside it, few and many."""
    steps = RNG.normal(0, 1, count) * 10.0 ** RNG.integers(-6, 7, count)
    numbers = np.floor(2.0 ** RNG.uniform(0, 30.5, count))
    starts = np.where(RNG.random(count) < 0.5, 0, RNG.normal(0, 3, count))
    starts, steps = starts.astype(np.float32), steps.astype(np.float32)
    limits = (starts + numbers * steps).astype(np.float32)
    beside = np.nextafter(limits, np.where(RNG.random(count) < 0.5, np.inf, -np.inf))
    limits = np.where(RNG.random(count) < 0.6, limits, beside).astype(np.float32)
    decimal = np.array([(0, 1, 0.1), (0.1, 1, 0.1), (0, 0.3, 0.1), (1, 0, -0.1), (-1, 1, 0.2)])
    nan, inf = np.nan, np.inf
    ends = [
        *[(0, 1, 0.0), (0, 1, -0.0), (1, 0, 0.0), (2, 2, 0.0), (2, 2, -0.0), (2, 2, 1)],
        *[(nan, 1, 1), (0, nan, 1), (0, 1, nan), (0, inf, 1), (0, -inf, 1), (0, 5, inf)],
        *[(inf, inf, 1), (-inf, inf, 1), (inf, 0, -1), (0, inf, inf), (-3e38, 3e38, 1e38)],
        *[(0, 3e38, 1e-30), (0, 1, 1e-7), (0, 2**30, 0.5), (0, 3e38, 2e38), (-2, 3e38, -1)],
    ]
    rows = np.stack([starts, limits, steps], 1)
    return np.concatenate([rows, decimal, np.array(ends)]).astype(np.float32)


def test_the_length_of_a_range_of_floats(target: str, device: Device) -> None:
    rows = _triples(3000)
    inputs = Inputs()
    count = range_length(*(inputs.new(column) for column in rows.T.copy()))
    got = run({"n": count}, inputs, target, device)["n"]
    expected = np.array([_length(*row) for row in rows])
    wrong = got != expected
    assert not wrong.any(), [*zip(rows[wrong][:9], got[wrong], expected[wrong], strict=True)]


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_the_length_of_a_range_of_integers(kind: Any, target: str, device: Device) -> None:
    least, most = -(2**31), 2**31 - 1  # further apart than an int32 says
    rows = [
        *[(0, 9, 2), (0, 9, 0), (3, 3, 0), (9, 0, -2), (0, 9, -2), (0, 2**30, 1), (5, -5, -1)],
        *[(least, most, 2**30), (most, least, -(2**30)), (least, most, -5), (most, least, 5)],
        *[(0, least, -(2**30)), (0, least, least), (0, least, -1), (least, most, 1)],
    ]
    inputs = Inputs()
    columns = (inputs.new(np.array(column, kind)) for column in zip(*rows, strict=True))
    got = run({"n": range_length(*columns)}, inputs, target, device)["n"]
    ends = [4, 4, 0, 0, 2, 1, ENDLESS, ENDLESS]
    assert got.tolist() == [5, ENDLESS, ENDLESS, 5, 0, 2**30, 10, *ends]


def test_a_range_over_all_of_int64() -> None:
    least, most = -(2**63), 2**63 - 1
    rows = [(least, most, 2**62), (most, least, 1), (0, least, -(2**62)), (least, most, 1)]
    inputs = Inputs()
    columns = (inputs.new(np.array(column)) for column in zip(*rows, strict=True))
    (got,) = evaluate([range_length(*columns).node], inputs.arrays)
    assert got.tolist() == [4, 0, 2, ENDLESS]


def test_a_range_of_floats_as_long_as_in_onnxruntime(cpu_device: Device, tmp_path: Path) -> None:
    cases = [(0, 1, 0.1), (0.1, 1, 0.1), (0, 0.3, 0.1), (-1, 1, 0.2), (0.3, 0.9, 0.2), (0, 49, 7)]
    names = ("start", "limit", "delta")
    numbers = [[np.array(number, np.float32) for number in case] for case in cases]
    runs = [dict(zip(names, case, strict=True)) for case in numbers]
    _compare(_range(tmp_path, np.float32), "cpu", cpu_device, runs, {"steps": 10})
    for values in runs:
        node = helper.make_node("Range", names, ["r"])
        path = _save(tmp_path, [node], {}, ["r"], values)
        _compare(path, "cpu", cpu_device, [{}])


def test_a_range_of_halves_is_computed_in_floats(cpu_device: Device, tmp_path: Path) -> None:
    """Above 2048 a half counts in twos; `stash_type` is 1 where it is not given."""
    values = {"start": 0, "limit": 3000, "delta": 0.5}
    inputs = {name: np.array(value, np.float16) for name, value in values.items()}
    path = _save(tmp_path, [helper.make_node("Range", [*inputs], ["r"], "steps")], inputs, ["r"])
    model = onnx.load(path)
    model.opset_import[0].version = 27
    model.ir_version = 13
    onnx.save(model, path)
    graph = import_graph(path, bounds={"steps": 6000})[0]
    program = compile_graph(graph, find_target("cpu")).program
    assert program is not None
    with Replay(program, cpu_device) as replay:
        got = replay.run(inputs)["r"]
    np.testing.assert_array_equal(got, (np.arange(6000) / 2).astype(np.float16))


@pytest.mark.parametrize("delta", [0.0, -0.0])
def test_a_range_that_never_ends(delta: float, target: str, device: Device, tmp_path: Path) -> None:
    graph = import_graph(_range(tmp_path, np.float32), bounds={"steps": 10})[0]
    program = compile_graph(graph, find_target(target)).program
    assert program is not None
    feed = {"start": np.float32(0), "limit": np.float32(3), "delta": np.float32(delta)}
    with Replay(program, device) as replay, pytest.raises(RunError, match="room for 10") as caught:
        replay.run(feed)
    assert caught.value.id == "replay.count"


def test_a_bound_is_needed(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOp, match="steps") as caught:
        import_graph(_range(tmp_path, np.int64))
    assert "--bound steps=1000" in str(caught.value)


def test_scan_outputs(target: str, device: Device, tmp_path: Path) -> None:
    """A loop that collects a row each iteration, until a sum is large."""
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
    """Ranges of one iteration are none."""
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


@pytest.mark.parametrize("ends", [(-5, 3), (-2, 6), (3, -1)])
def test_most_in_the_middle(
    ends: tuple[int, int], target: str, device: Device, tmp_path: Path
) -> None:
    """[-5:3] of at most 8 elements: 3 of 3, of fewer and of more there are fewer."""
    limits = {n: np.array([v]) for n, v in (("start", ends[0]), ("end", ends[1]))}
    nodes = [
        helper.make_node("Compress", ["x", "chosen"], ["found"], axis=0),
        helper.make_node("Slice", ["found", "start", "end"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["total"], keepdims=0),
    ]
    inputs = {"x": RNG.normal(size=8).astype(np.float32), "chosen": np.ones(8, bool)}
    path = _save(tmp_path, nodes, inputs, ["y", "total"], limits)
    runs = [{**inputs, "chosen": np.arange(8) < count} for count in range(9)]
    _compare(path, target, device, runs)


def test_what_can_only_be_nothing(target: str, device: Device, tmp_path: Path) -> None:
    """Of at most 3 elements, those behind the third, backwards: the size is open, but always 0."""
    limits = {n: np.array([v]) for n, v in (("last", -1), ("far", 2), ("axis", 0))}
    nodes = [
        helper.make_node("Unique", ["x"], ["found"], axis=0),
        helper.make_node("Slice", ["found", "last", "far", "axis", "last"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["total"], keepdims=0),
    ]
    x = np.array([1, 2, 3], np.float32)
    path = _save(tmp_path, nodes, {"x": x}, ["y", "total"], limits)
    _compare(path, target, device, [{"x": x}, {"x": np.ones_like(x)}])


def test_what_was_found_backwards(target: str, device: Device, tmp_path: Path) -> None:
    """Also of nothing: then nothing is before its end."""
    limits = {n: np.array([v]) for n, v in (("last", -1), ("far", -(2**63)), ("axis", 0))}
    nodes = [
        helper.make_node("Compress", ["x", "chosen"], ["found"], axis=0),
        helper.make_node("Slice", ["found", "last", "far", "axis", "last"], ["y"]),
    ]
    chosen = np.array([True, False, True, True])
    inputs = {"x": RNG.normal(size=(4, 3)).astype(np.float32), "chosen": chosen}
    path = _save(tmp_path, nodes, inputs, ["y"], limits)
    runs = [
        {**inputs, "chosen": chosen & keep} for keep in (True, [False, False, True, True], False)
    ]
    _compare(path, target, device, runs)


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


@pytest.mark.parametrize("known", [True, False], ids=["known", "computed"])
def test_non_zero_of_a_scalar(known: bool, target: str, device: Device, tmp_path: Path) -> None:
    """It has no axes: 0 rows, and as many columns as there are elements that are not 0."""
    for value in (0, 5):
        x = {"x": np.array(value, np.float32)}
        inputs: Arrays = {} if known else x
        nodes = [
            helper.make_node("NonZero", ["x"], ["y"]),
            helper.make_node("Shape", ["y"], ["shape"]),
        ]
        path = _save(tmp_path, nodes, inputs, ["y", "shape"], x if known else None)
        program = compile_graph(import_graph(path)[0], find_target(target)).program
        assert program is not None
        with Replay(program, device, poison=True) as replay:
            found = replay.run(inputs)
        assert found["y"].shape == (0, int(value != 0)) and found["y"].dtype == np.int64
        assert found["shape"].tolist() == [0, int(value != 0)]


def test_top_k(target: str, device: Device, tmp_path: Path) -> None:
    node = helper.make_node("TopK", ["x", "k"], ["values", "places"], axis=1)
    x = RNG.integers(0, 6, (3, 9)).astype(np.float32)
    path = _save(tmp_path, [node], {"x": x, "k": np.array([2])}, ["values", "places"])
    _compare(path, target, device, [{"x": x, "k": np.array([k])} for k in (1, 9, 4)])


def test_top_k_of_fewer(target: str, device: Device, tmp_path: Path) -> None:
    """A K above the length, which onnxruntime refuses, gives all elements; below 0 is refused."""
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["best", "places"]),
        helper.make_node("NonZero", ["x"], ["found"]),
        helper.make_node("GatherND", ["x", "line"], ["there"]),
        helper.make_node("Transpose", ["found"], ["line"]),
        helper.make_node("TopK", ["there", "k"], ["some", "somewhere"]),
        helper.make_node("TopK", ["there", "three"], ["three best", "three places"]),
        helper.make_node("ReduceSum", ["three best"], ["sum"], keepdims=0),
    ]
    x = np.array([0, 2, 0, 5, 0], np.float32)
    inputs = {"x": x, "k": np.array([2])}
    names = ["best", "places", "some", "somewhere", "three best", "three places", "sum"]
    path = _save(tmp_path, nodes, inputs, names, {"three": np.array([3])})
    program = compile_graph(import_graph(path)[0], find_target(target)).program
    assert program is not None
    orders = {
        (0, 2, 0, 5, 0): [3, 1, 0, 2, 4],
        (0, 0, 7, 0, 0): [2, 0, 1, 3, 4],
        (0, 0, 0, 0, 0): [0, 1, 2, 3, 4],
    }
    with Replay(program, device, poison=True) as replay:
        for values, order in orders.items():
            row = np.array(values, np.float32)
            there = row[row != 0]
            within = np.argsort(-there, kind="stable")
            for k in (0, 1, 3, 5, 6, 2**30):
                found = replay.run({"x": row, "k": np.array([k])})
                assert found["places"].tolist() == order[:k]
                assert found["best"].tolist() == row[order[:k]].tolist()
                assert found["somewhere"].tolist() == within[:k].tolist()
                assert found["some"].tolist() == there[within[:k]].tolist()
                assert found["three places"].tolist() == within[:3].tolist()
                assert found["three best"].tolist() == there[within[:3]].tolist()
                assert found["sum"] == there.sum()
        with pytest.raises(RunError, match="it has -1 entries: sizes that must") as caught:
            replay.run({"x": x, "k": np.array([-1])})
        assert caught.value.id == "replay.count"


def test_top_k_of_an_open_size(tmp_path: Path) -> None:
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"])
    path = _save(tmp_path, [node], {"x": np.zeros(3, np.float32)}, ["y"], {"k": np.array([3])})
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    model = import_model(model.SerializeToString(), dims={"n": "1..9"})
    for length, expected in ((1, [0]), (2, [1, 0]), (3, [2, 1, 0]), (9, [8, 7, 6])):
        x = np.arange(length, dtype=np.float32)
        (got,) = evaluate([model.outputs["y"].node], {"x": x}, {"n": length})
        assert got.tolist() == expected


@pytest.mark.parametrize(("k", "size"), [(-1, 5), (6, 5), (-1, "1..9"), (10, "1..9")])
def test_a_k_that_is_none(k: int, size: Any, tmp_path: Path) -> None:
    """Known at export it is refused, except that a K within an open size may be above it."""
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], "top")
    path = _save(tmp_path, [node], {"x": np.zeros(3, np.float32)}, ["y"], {"k": np.array([k])})
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(ModelError, match=f"K is {k} for an axis of {'n' if size == '1..9' else 5}"):
        import_model(model.SerializeToString(), dims={"n": size})


@pytest.mark.parametrize("centered", [0, 1])
def test_non_max_suppression(centered: int, target: str, device: Device, tmp_path: Path) -> None:
    """A detection head: boxes are selected and gathered. Equal scores, empty and flipped boxes."""
    nodes = [
        helper.make_node(
            "NonMaxSuppression",
            ["boxes", "scores", "most", "overlap", "least"],
            ["selected"],
            center_point_box=centered,
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
