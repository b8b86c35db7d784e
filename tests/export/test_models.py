"""Real models: the imported graph, by the reference evaluator, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.imported import import_model
from tests.models import path
from tests.realmodels import library
from tinyedge.core.ir import ops
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.export.onnx import ImportedModel

Feeds = dict[str, Any]


def _image(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def _page(height: int, width: int) -> Any:
    """Black bars on white: something that a text detector answers to."""
    page = np.ones((1, 3, height, width), np.float32)
    for row in range(8, height - 8, 24):
        for column in range(6, width - 8, 7):
            page[:, :, row : row + 12, column : column + 3] = -1
    return page


def _tokens(batch: int, length: int) -> Feeds:
    random = np.random.default_rng(2)
    mask = np.ones((batch, length), np.int64)
    mask[:, length - 3 :] = 0
    return {"input_ids": random.integers(0, 30000, (batch, length)), "attention_mask": mask}


FIXED: dict[str, tuple[dict[str, int | str], Feeds]] = {
    "pnet": ({"M1": 40, "input_1[2]": 36}, {"input_1": _image(1, 40, 36, 3)}),
    "rnet": ({}, {"input_2": _image(1, 24, 24, 3)}),
    "onet": ({}, {"input_3": _image(1, 48, 48, 3)}),
    "opennsfw": ({}, {"input:0": 50 * _image(1, 224, 224, 3)}),
    "common_det": ({}, {"images": 50 * _image(1, 3, 416, 416)}),
    "ocr_det": ({"x[2]": 160, "x[3]": 96}, {"x": _page(160, 96)}),
    "ocr_rec": ({"x[2]": 48, "x[3]": 160}, {"x": _image(1, 3, 48, 160)}),
    "minilm": ({"sequence_length": 17}, _tokens(1, 17)),
    "magika": (
        {},
        {"bytes": np.random.default_rng(3).integers(0, 257, (1, 2048)).astype(np.int32)},
    ),
    "swift_f0": (
        {"audio[1]": 16000},
        {
            "audio": _image(1, 16000),
            "fmin": np.array(46.875, np.float32),
            "fmax": np.array(2093.75, np.float32),
        },
    ),
}

SYMBOLIC: dict[str, tuple[dict[str, int | str], list[Feeds]]] = {
    "pnet": (
        {"M1": "12..200", "M2": "12..200"},
        [{"input_1": _image(1, 41, 36, 3)}, {"input_1": _image(1, 12, 12, 3)}],
    ),
    "ocr_det": (
        {"x[2]": "32..1280:32", "x[3]": "32..1280:32"},
        [{"x": _page(96, 160)}, {"x": _page(64, 64)}],
    ),
    "ocr_rec": (
        {"x[2]": 48, "x[3]": "32..1280:32"},
        [{"x": _image(1, 3, 48, 192)}, {"x": _image(1, 3, 48, 32)}],
    ),
    "minilm": (
        {"sequence_length": "1..128", "batch_size": "1..4"},
        [_tokens(2, 19), _tokens(1, 128)],
    ),
}


def _agrees(name: str, model: ImportedModel, feeds: Feeds) -> None:
    session = onnxruntime.InferenceSession(str(path(name)), providers=["CPUExecutionProvider"])
    symbols = {}
    for entry in model.inputs:
        for size, value in zip(entry.shape, feeds[entry.name].shape, strict=True):
            for node in toposort((size,)) if isinstance(size, UOp) else ():
                if node.op is ops.SYMBOL:
                    symbols[node.arg.name] = value
    assert set(symbols) == {symbol.arg.name for symbol in model.symbols}
    nodes = [tensor.node for tensor in model.outputs.values()]
    got = evaluate(nodes, feeds, symbols)
    want = session.run(list(model.outputs), feeds)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        error = np.abs(ours.astype(np.float64) - theirs).max()
        assert error <= 1e-4 * np.abs(theirs).max()


@pytest.mark.parametrize("name", FIXED)
def test_fixed_sizes(name: str) -> None:
    dims, feeds = FIXED[name]
    model = import_model(path(name), dims=dims)
    assert not model.symbols
    _agrees(name, model, feeds)


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name: str) -> None:
    dims, cases = SYMBOLIC[name]
    model = import_model(path(name), dims=dims)
    for feeds in cases:
        _agrees(name, model, feeds)


def test_import_is_deterministic() -> None:
    dims, _ = FIXED["rnet"]
    first, second = (import_model(path("rnet"), dims=dims) for _ in range(2))
    digests = [[t.node.digest for t in model.outputs.values()] for model in (first, second)]
    assert digests[0] == digests[1]


def test_scales_and_shifts_go_into_the_weights() -> None:
    model = import_model(path("ocr_det"), dims=FIXED["ocr_det"][0])
    folded = [name for name in model.names.values() if "+" in name]
    assert sum("BatchNormalization" in name for name in folded) == 3
    assert len(folded) > 30  # the Mul and Add of constants after a Conv


QUANTIZERS = ("QuantizeLinear", "DynamicQuantizeLinear", "DynamicQuantizeLSTM")


@pytest.mark.parametrize("name", ["common_old", "smart_turn"])
def test_quantized_models_part_by_part(name: str) -> None:
    """Each from the inputs of quantizers to those of the next, given what onnxruntime gives them.

    So no code differs where onnxruntime rounds another sum, and all else is within 1e-4.
    """
    model = onnx.load(path(name))
    graph = model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    nodes = [node for node in graph.node if node.op_type in QUANTIZERS]
    rounded = dict.fromkeys(n.input[0] for n in nodes if n.input[0] not in stored)
    feeds = library.feeds(name)[0]
    ends = [n for n in (*rounded, *(v.name for v in graph.output)) if n not in feeds]
    del graph.output[:]
    graph.output.extend(helper.make_empty_tensor_value_info(end) for end in ends)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    values = {**feeds, **dict(zip(ends, session.run(ends, feeds), strict=True))}
    for end in ends:
        part, given = _part(model, end, values)
        imported = import_model(part.SerializeToString())
        (got,) = evaluate([t.node for t in imported.outputs.values()], given)
        difference = np.abs(got.astype(np.float64) - values[end]).max()
        assert difference <= 1e-4 * np.abs(values[end]).max(), end


def _part(model: Any, end: str, values: Feeds) -> tuple[Any, Feeds]:
    """What makes one value of a model of others that are known, as a model, and those others."""
    made = {output: node for node in model.graph.node for output in node.output}
    used: dict[str, None] = {}
    waiting = [end]
    while waiting:
        name = waiting.pop()
        if name in used:
            continue
        used[name] = None
        if name in made and (name == end or name not in values):
            waiting += made[name].input
    given = {name: values[name] for name in used if name in values and name != end}
    nodes = [node for node in model.graph.node if set(node.output) & set(used) - set(given)]
    graph = helper.make_graph(
        nodes,
        "part",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in given.items()],
        [helper.make_empty_tensor_value_info(end)],
        [tensor for tensor in model.graph.initializer if tensor.name in used],
    )
    part = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return part, given
