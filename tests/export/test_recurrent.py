"""Layers and loops over a symbolic number of steps, and LSTMs of integers, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.agreement import find_target
from tests.imported import import_graph, import_model
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay

Arrays = dict[str, Any]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
STEPS = "1..12"


def _floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _model(
    nodes: list[Any],
    inputs: Mapping[str, tuple[int, Any]],
    outputs: list[str],
    weights: Mapping[str, Any],
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    source: bytes = helper.make_model(graph, opset_imports=sets, ir_version=8).SerializeToString()
    return source


def _expected(source: bytes, feeds: Arrays) -> Arrays:
    """By one thread: several quantize each their own part of a batch."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def _agree(got: Arrays, want: Arrays) -> None:
    assert set(got) == set(want)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5)


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _layer(op: str, batch: int, **attributes: Any) -> bytes:
    """A layer of 4 neurons in two directions over rows of 3, with lengths, over T steps."""
    gates = GATES[op]
    weights = {
        "w": _floats(2, 4 * gates, 3, seed=1),
        "r": _floats(2, 4 * gates, 4, seed=2),
        "b": _floats(2, 8 * gates, seed=3),
    }
    outputs = ["y", "h", "c"] if op == "LSTM" else ["y", "h"]
    node = helper.make_node(
        op,
        ["x", "w", "r", "b", "lengths"],
        outputs,
        hidden_size=4,
        direction="bidirectional",
        **attributes,
    )
    inputs = {
        "x": (FLOAT, ["T", batch, 3]),
        "lengths": (TensorProto.INT32, [batch]),
    }
    return _model([node], inputs, outputs, weights)


@pytest.mark.parametrize("op", GATES)
def test_a_layer_of_symbolic_length(op: str, target: str, device: Device) -> None:
    source = _layer(op, 2)
    graph, _ = import_graph(source, dims={"T": STEPS})
    program = compile_graph(graph, find_target(target)).program
    assert program is not None
    with Replay(program, device, poison=True) as replay:
        for steps in (5, 1, 12, 2):
            lengths = np.array([steps, max(1, steps - 2)], np.int32)
            feeds = {"x": _floats(steps, 2, 3), "lengths": lengths}
            _agree(replay.run(feeds), _expected(source, feeds))


def _sums(node: Any) -> bytes:
    return _model([node], {"x": (FLOAT, ["T", 3])}, ["last", "rows"], {"zero": _floats(3) * 0})


def _scan(back: int) -> bytes:
    """Running sums of rows, which are collected the other way around."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "row"], ["t"]),
            helper.make_node("Identity", ["t"], ["out"]),
        ],
        "body",
        [helper.make_tensor_value_info(n, FLOAT, [3]) for n in ("s", "row")],
        [helper.make_tensor_value_info(n, FLOAT, [3]) for n in ("t", "out")],
    )
    return _sums(
        helper.make_node(
            "Scan",
            ["zero", "x"],
            ["last", "rows"],
            num_scan_inputs=1,
            scan_input_directions=[back],
            scan_output_directions=[1 - back],
            body=body,
        )
    )


def _loop() -> bytes:
    """Running sums of rows by a loop with as many iterations as there are rows."""
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "i"], ["row"]),
            helper.make_node("Add", ["s", "row"], ["t"]),
            helper.make_node("Identity", ["t"], ["out"]),
            helper.make_node("Identity", ["before"], ["going"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("before", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", FLOAT, [3]),
        ],
        [
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(n, FLOAT, [3]) for n in ("t", "out")),
        ],
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], start=0, end=1),
        helper.make_node("Squeeze", ["shape"], ["count"]),
        helper.make_node("Loop", ["count", "", "zero"], ["last", "rows"], body=body),
    ]
    return _model(nodes, {"x": (FLOAT, ["T", 3])}, ["last", "rows"], {"zero": _floats(3) * 0})


@pytest.mark.parametrize("source", [_scan(0), _scan(1), _loop()], ids=["scan", "back", "loop"])
def test_as_many_turns_as_rows(source: bytes, target: str, device: Device) -> None:
    """No bound is asked for, and the results have as many rows: they need no count."""
    graph, _ = import_graph(source, dims={"T": STEPS})
    program = compile_graph(graph, find_target(target)).program
    assert program is not None
    with Replay(program, device, poison=True) as replay:
        for steps in (5, 1, 12):
            feeds = {"x": _floats(steps, 3)}
            _agree(replay.run(feeds), _expected(source, feeds))


def _quantized(
    steps: int, batch: int, directions: int, each: bool, kind: str, given: frozenset[str]
) -> tuple[bytes, Arrays]:
    """A DynamicQuantizeLSTM of 8 neurons over rows of 5. each: a scale for every column."""
    random = np.random.default_rng(steps)
    low, high = (-128, 128) if kind == "int8" else (0, 256)
    scales = (directions, 32) if each else (directions,)
    weights: Arrays = {"b": _floats(directions, 64) / 8}
    for name, rows in (("w", 5), ("r", 8)):
        weights[name] = random.integers(low, high, (directions, rows, 32)).astype(kind)
        weights[f"{name}_scale"] = (random.random(scales) / 100 + 0.005).astype(np.float32)
        weights[f"{name}_zero"] = np.zeros(scales, kind)
        if not each:
            middle = (low + high) // 2
            zeros = random.integers(middle - 9, middle + 9, scales)
            weights[f"{name}_zero"] = zeros.astype(kind)
    optional: Arrays = {
        "lengths": np.full(batch, max(1, steps - 3), np.int32),
        "h": _floats(directions, batch, 8) / 2,
        "c": _floats(directions, batch, 8, seed=1) / 2,
        "peepholes": _floats(directions, 24) / 2,
    }
    weights.update({name: optional[name] for name in given})
    names = ["x", "w", "r", "b", *(name if name in given else "" for name in optional)]
    names += ["w_scale", "w_zero", "r_scale", "r_zero"]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        names,
        ["y", "y_h", "y_c"],
        domain="com.microsoft",
        hidden_size=8,
        direction="bidirectional" if directions == 2 else "reverse",
    )
    feeds = {"x": _floats(steps, batch, 5)}
    inputs = {"x": (FLOAT, feeds["x"].shape)}
    return _model([node], inputs, ["y", "y_h", "y_c"], weights), feeds


@pytest.mark.parametrize(
    ("steps", "batch", "directions", "each", "kind", "given"),
    [
        (1, 1, 1, False, "int8", frozenset()),
        (6, 1, 2, True, "int8", frozenset()),
        (6, 3, 1, False, "uint8", frozenset({"h", "c"})),
        (5, 2, 2, False, "int8", frozenset({"h", "c", "peepholes"})),
        (8, 1, 2, False, "int8", frozenset({"lengths"})),
    ],
)
def test_an_lstm_of_integers(
    steps: int, batch: int, directions: int, each: bool, kind: str, given: frozenset[str]
) -> None:
    source, feeds = _quantized(steps, batch, directions, each, kind, given)
    imported = import_model(source)
    nodes = [tensor.node for tensor in imported.outputs.values()]
    got = dict(zip(imported.outputs, evaluate(nodes, feeds), strict=True))
    _agree(got, _expected(source, feeds))
