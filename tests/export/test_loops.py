"""Loops whose number of iterations only a run knows, and scans, against onnxruntime on every
target.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from tests.imported import import_graph, import_model
from tinyedge.choices import find_target
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.errors import InputError, UnsupportedOp
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)


def _value(name: str, kind: int, shape: tuple[int, ...]) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _save(folder: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Path:
    constants = [
        numpy_helper.from_array(np.array(50, np.float32), "fifty"),
        numpy_helper.from_array(np.array(1.5, np.float32), "factor"),
        numpy_helper.from_array(np.array(True), "yes"),
        numpy_helper.from_array(np.array(40, np.int64), "forty"),
        numpy_helper.from_array(np.array(0, np.int64), "zero"),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    path = folder / "m.onnx"
    onnx.save(model, path)
    return path


def _loop(folder: Path, trips: str, inputs: list[Any], begin: str = "yes") -> Path:
    """While the greatest of v is below 50, and at most `trips` iterations: v *= 1.5."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["v", "factor"], ["w"]),
            helper.make_node("ReduceMax", ["w"], ["most"], keepdims=0),
            helper.make_node("Less", ["most", "fifty"], ["going"]),
        ],
        "body",
        [
            _value("i", TensorProto.INT64, ()),
            _value("before", TensorProto.BOOL, ()),
            _value("v", TensorProto.FLOAT, (3, 4)),
        ],
        [_value("going", TensorProto.BOOL, ()), _value("w", TensorProto.FLOAT, (3, 4))],
    )
    node = helper.make_node("Loop", [trips, begin, "x"], ["y"], "grow", body=body)
    return _save(folder, [node], inputs, [_value("y", TensorProto.FLOAT, (3, 4))])


INPUTS = [_value("x", TensorProto.FLOAT, (3, 4))]
COUNTED = [*INPUTS, _value("m", TensorProto.INT64, ())]


def _compare(
    path: Path, target: str, device: Device, inputs: dict[str, Any], bound: int | None = None
) -> None:
    graph = import_graph(path, bounds={"grow": bound} if bound is not None else {})[0]
    compiled = compile_graph(graph, find_target(target)).program
    assert compiled is not None
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    with Replay(compiled, device) as replay:
        for _ in range(2):
            found = replay.run(inputs)
        for name, expected in zip(found, session.run(list(found), inputs), strict=True):
            np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-5)


def test_a_condition_of_the_run(tmp_path: Path, target: str, device: Device) -> None:
    _compare(_loop(tmp_path, "forty", INPUTS), target, device, {"x": X})


@pytest.mark.parametrize("iterations", [0, 1, 5, 30])
def test_turns_of_the_run(iterations: int, tmp_path: Path, target: str, device: Device) -> None:
    inputs = {"x": X, "m": np.array(iterations, np.int64)}
    _compare(_loop(tmp_path, "m", COUNTED), target, device, inputs, bound=64)


def test_no_turns_at_all(tmp_path: Path, target: str, device: Device) -> None:
    """Of a loop that would begin, but whose number of iterations is 0."""
    inputs = [*INPUTS, _value("begin", TensorProto.BOOL, ())]
    graph = import_graph(_loop(tmp_path, "zero", inputs, "begin"))[0]
    compiled = compile_graph(graph, find_target(target)).program
    assert compiled is not None
    with Replay(compiled, device) as replay:
        found = replay.run({"x": X, "begin": np.array(True)})
    np.testing.assert_array_equal(found["y"], X)


def test_a_loop_needs_a_bound(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOp, match=r"--bound grow=1000"):
        import_model(_loop(tmp_path, "m", COUNTED))
    with pytest.raises(InputError, match=r"grew[\s\S]*grow") as refused:
        import_model(_loop(tmp_path, "m", COUNTED), bounds={"grow": 9, "grew": 9})
    assert refused.value.id == "input.bound"


@pytest.mark.parametrize("back", [0, 1])
def test_scan(back: int, tmp_path: Path, target: str, device: Device) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "row"], ["t"]),
            helper.make_node("Mul", ["t", "row"], ["out"]),
        ],
        "body",
        [_value("s", TensorProto.FLOAT, (4,)), _value("row", TensorProto.FLOAT, (4,))],
        [_value("t", TensorProto.FLOAT, (4,)), _value("out", TensorProto.FLOAT, (4,))],
    )
    node = helper.make_node(
        "Scan",
        ["first", "x"],
        ["last", "rows"],
        num_scan_inputs=1,
        scan_input_directions=[back],
        scan_output_directions=[1 - back],
        scan_output_axes=[1],
        body=body,
    )
    path = _save(
        tmp_path,
        [node],
        [_value("first", TensorProto.FLOAT, (4,)), *INPUTS],
        [_value("last", TensorProto.FLOAT, (4,)), _value("rows", TensorProto.FLOAT, (4, 3))],
    )
    inputs = {"first": np.ones(4, np.float32), "x": X}
    _compare(path, target, device, inputs)


@pytest.mark.parametrize("lengths", [None, [5, 5], [3, 5], [1, 2]])
def test_scan_of_batches(lengths: list[int] | None) -> None:
    """Of opset 8: an element of the batch at a time; what is beyond its length is 0."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "row"], ["t"]),
            helper.make_node("Mul", ["t", "other"], ["out"]),
        ],
        "body",
        [_value(name, TensorProto.FLOAT, (3,)) for name in ("s", "row", "other")],
        [_value(name, TensorProto.FLOAT, (3,)) for name in ("t", "out")],
    )
    node = helper.make_node(
        "Scan",
        ["" if lengths is None else "lengths", "first", "x", "z"],
        ["last", "rows"],
        num_scan_inputs=2,
        directions=[0, 1],
        body=body,
    )
    rows = [_value(name, TensorProto.FLOAT, (2, 5, 3)) for name in ("x", "z", "rows")]
    states = [_value(name, TensorProto.FLOAT, (2, 3)) for name in ("first", "last")]
    weights = [] if lengths is None else [numpy_helper.from_array(np.array(lengths), "lengths")]
    graph = helper.make_graph([node], "g", [states[0], *rows[:2]], [states[1], rows[2]], weights)
    opsets = [helper.make_opsetid("", 8)]
    source = helper.make_model(graph, opset_imports=opsets, ir_version=3).SerializeToString()
    feeds = {
        "first": np.ones((2, 3), np.float32),
        "x": np.arange(30, dtype=np.float32).reshape(2, 5, 3),
        "z": np.linspace(-1, 1, 30, dtype=np.float32).reshape(2, 5, 3),
    }
    outputs = import_model(source).outputs.values()
    got = evaluate([tensor.node for tensor in outputs], feeds)
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    for ours, theirs in zip(got, session.run(None, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def _counting(trips: int, begin: str, *, collects: bool) -> Any:
    """w = v + 1, `trips` times; its iterations compute whether all w < 4."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "one"], ["w"]),
            helper.make_node("ReduceMax", ["w"], ["most"], keepdims=0),
            helper.make_node("Less", ["most", "four"], ["going"]),
            helper.make_node("Identity", ["w"], ["made"]),
        ],
        "body",
        [
            _value("i", TensorProto.INT64, ()),
            _value("before", TensorProto.BOOL, ()),
            _value("v", TensorProto.FLOAT, (2,)),
        ],
        [
            _value("going", TensorProto.BOOL, ()),
            _value("w", TensorProto.FLOAT, (2,)),
            *([_value("made", TensorProto.FLOAT, (2,))] if collects else []),
        ],
    )
    names = ["y", "all"] if collects else ["y"]
    node = helper.make_node("Loop", ["m", begin, "x"], names, body=body)
    weights = {"m": np.array(trips), "yes": np.array(True), "one": np.ones(2, np.float32)}
    weights["four"] = np.array(4, np.float32)
    graph = helper.make_graph(
        [node],
        "g",
        [_value("x", TensorProto.FLOAT, (2,))],
        [_value(name, TensorProto.FLOAT, None) for name in names],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    outputs = import_model(model.SerializeToString()).outputs.values()
    return evaluate([tensor.node for tensor in outputs], {"x": np.zeros(2, np.float32)})


def test_a_condition_that_a_loop_does_not_begin_with_is_ignored() -> None:
    """So says the specification; onnxruntime stops at 4, ONNX's evaluator at once."""
    assert _counting(10, "", collects=False)[0].tolist() == [10, 10]


def test_a_loop_that_collects_nothing() -> None:
    last, collected = _counting(0, "", collects=True)
    assert last.tolist() == [0, 0] and collected.shape == (0, 2)


NAMESAKES = {
    "the node's result": """y = If(c)
        <then_branch = t () => (float[2] y) { y = Neg(x) },
         else_branch = e () => (float[2] y) { y = Abs(x) }>""",
    "a later result": """w = If(c)
        <then_branch = t () => (float[2] z) { k = Neg(x) z = Abs(k) },
         else_branch = e () => (float[2] z) { z = Exp(x) }>
        k = Exp(w) y = Sub(k, w)""",
    "a result of a body in a body": """y = If(c)
        <then_branch = t () => (float[2] z) { z = If(c)
            <then_branch = a () => (float[2] y) { y = Neg(x) },
             else_branch = b () => (float[2] y) { y = Abs(x) }> },
         else_branch = e () => (float[2] y) { y = Exp(x) }>""",
    "inputs of a body": """n = Constant<value = int64 {2}>() k = Exp(x) y = Loop(n, c, k)
        <body = b (int64 i, bool c, float[2] k) => (bool go, float[2] y) {
            go = Identity(c) y = Mul(k, x) }>""",
}


@pytest.mark.parametrize("name", NAMESAKES)
def test_bodies_have_names_of_their_own(name: str) -> None:
    """A value of a subgraph may be called like one that the subgraph cannot see."""
    proto = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x, bool c) => (float[2] y)'
        f"{{ {NAMESAKES[name]} }}"
    )
    onnx.checker.check_model(proto, full_check=True)
    source = proto.SerializeToString()
    imported = import_model(source)
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    for chosen in (True, False):
        feeds = {"x": np.array([-1, 2], np.float32), "c": np.array(chosen)}
        (found,) = evaluate([imported.outputs["y"].node], feeds, counts=imported.counts.nodes)
        np.testing.assert_allclose(found, session.run(["y"], feeds)[0], rtol=1e-6)
