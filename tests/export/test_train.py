"""Bundles that predict and train: a step as an entry beside the model, sharing what it trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinyedge
from tinyedge.cli import execute
from tinyedge.cli.arguments import generated_inputs, ranges_of
from tinyedge.core.errors import InputError, RunError
from tinyedge.core.program.device import Device
from tinyedge.export.bundle.golden import generate
from tinyedge.export.bundle.reading import read
from tinyedge.export.train.spec import OPTIMIZERS
from tinyedge.export.verify.verify import verify

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(6, 2, 5, 5)).astype(np.float32)
CLASSES = np.array([0, 2, 1, 2, 0, 1], np.int32)


def _weight(name: str, *shape: int, scale: float = 0.4) -> Any:
    values = np.random.default_rng(len(name)).normal(size=shape) * scale
    return numpy_helper.from_array(values.astype(np.float32), name)


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """A convolution, a batch norm, a product: scores [N, 3], and the greatest of them."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "body.weight", "body.bias"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "norm.weight", "norm.bias", "mean", "variance"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("GlobalAveragePool", ["r"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "head.weight", "head.bias"], ["scores"], name="head"),
        node("ArgMax", ["scores"], ["best"], name="argmax", axis=1, keepdims=0),
        node("Cast", ["best"], ["chosen"], name="cast", to=TensorProto.FLOAT),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2, 5, 5])]
    outputs = [
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 3]),
        helper.make_tensor_value_info("chosen", TensorProto.FLOAT, ["N"]),
    ]
    weights = [
        _weight("body.weight", 4, 2, 3, 3),
        numpy_helper.from_array(np.zeros(4, np.float32), "body.bias"),
        _weight("norm.weight", 4),
        _weight("norm.bias", 4),
        _weight("mean", 4),
        numpy_helper.from_array(np.ones(4, np.float32), "variance"),
        _weight("head.weight", 4, 3),
        numpy_helper.from_array(np.zeros(3, np.float32), "head.bias"),
        numpy_helper.from_array(np.arange(3), "indices"),
    ]
    graph = helper.make_graph(nodes, "classifier", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path / "classifier.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def _export(path: Path, target: str = "cpu", train: str | Sequence[str] = "*", **more: Any) -> Path:
    options = {"loss": "cross_entropy:scores", "optimizer": "sgd:lr=0.5", "batch": 6, **more}
    out = path.with_suffix(".tinyedge")
    return tinyedge.export_onnx(path, target=target, out=out, train=train, **options)


def _step(x: Any = X, target: Any = CLASSES, lr: float = 0.5) -> dict[str, Any]:
    return {"x": x, "target": target, "lr": np.float32(lr)}


def test_a_step_of_generated_inputs(classifier: Path, tmp_path: Path) -> None:
    """Their targets are classes, or shares, and the rate is the optimizer's."""
    out = _export(classifier, train="head.*", batch=64)
    arguments = ["run", str(out), "--entry", "train", "--random", "--steps", "3"]
    assert execute([*arguments, "-o", str(tmp_path / "o")]) == 0
    assert np.isfinite(np.load(tmp_path / "o" / "loss.npy"))
    out = _export(classifier, train="head.*", loss="binary_cross_entropy_with_logits:scores")
    found = read(out)
    entry = next(entry for entry in found.program.entries if entry.name == "train")
    made = generated_inputs(found.program, entry, {}, ranges_of(found, entry, ()), seed=2)
    assert made["lr"] == np.float32(0.5) and 0 <= made["target"].min() < made["target"].max() < 1
    assert made["x"].min() < 0 and not ranges_of(found, entry, entry.inputs)


@pytest.mark.parametrize(
    "optimizer, because", [("sgd:lr=-1", "negative"), ("adam:eps=-1", "eps of -1")]
)
def test_negative_options_are_refused(classifier: Path, optimizer: str, because: str) -> None:
    with pytest.raises(InputError, match=rf"{optimizer.split(':')[0]}[\s\S]*{because}"):
        _export(classifier, optimizer=optimizer)


@pytest.mark.parametrize("optimizer", ["sgd:lr=0.5", "adam:lr=1e-2", "muon:lr=1e-2"])
def test_a_step_on_every_target(
    target: str, device: Device, classifier: Path, optimizer: str
) -> None:
    assert verify(_export(classifier, target, optimizer=optimizer), device).agrees


@pytest.mark.parametrize("target", ["webgpu", "qcom"])
@pytest.mark.parametrize(
    "optimizer", ["sgd:momentum=0.9", "rmsprop:centered=true", *sorted(OPTIMIZERS)]
)
def test_small_gradients_in_fp16(
    target: str, device: Device, tmp_path: Path, optimizer: str
) -> None:
    """Their squares are below 6e-8, which fp16 makes 0: states are nearly those of float32."""
    nodes = [
        helper.make_node("Gemm", ["x", "head.w", "head.b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "last.w", "last.b"], ["y"]),
    ]
    shapes = {"head.w": (3, 16), "head.b": (16,), "last.w": (16, 4), "last.b": (4,)}
    path = _small(tmp_path, nodes, [_weight(n, *s, scale=0.002) for n, s in shapes.items()])
    found = []
    for precision in ("fp32", "fp16"):
        options = {"optimizer": optimizer, "loss": "mse_loss:y", "precision": precision}
        out = _export(path, target, force=True, golden=False, **options)
        with tinyedge.load(out) as model:
            for _ in range(3):
                model.run(_step(X[:, 0, 0, :3], np.zeros((6, 4), np.float32), 1e-4), "train")
            found.append({state.name: model.get_state(state.name) for state in model.states})
    full, half = found
    assert half["loss_scale"] == 1024
    for name, value in full.items():
        room = 0.02 if name.count(".") > 1 else 0.1  # of what is kept, of weights
        assert np.abs(half[name] - value).max() <= room * np.abs(value).max(), name


def test_a_step_is_one_along_the_gradient(classifier: Path) -> None:
    """By central differences of the loss that entry itself gives, along the step's own update."""
    with tinyedge.load(_export(classifier)) as model:
        names = [state.name for state in model.states if not state.name.startswith("sgd.")]
        assert sorted(names) == [
            *("body.bias", "body.weight", "head.bias", "head.weight", "norm.bias", "norm.weight")
        ]
        before = {name: model.get_state(name) for name in names}
        loss = model.run(_step(), "train")["loss"].item()
        gradient = {name: (before[name] - model.get_state(name)) / 0.5 for name in names}

        def loss_at(part: float) -> float:
            for name in names:
                model.set_state(name, before[name] + np.float32(part) * gradient[name])
            return float(model.run(_step(), "train")["loss"])

        slope = (loss_at(0.05) - loss_at(-0.05)) / 0.1
        squares = sum(float((values.astype(np.float64) ** 2).sum()) for values in gradient.values())
        assert slope == pytest.approx(squares, rel=2e-3)
        assert loss == pytest.approx(loss_at(0.0), rel=1e-6)


def test_both_entries_share_what_is_trained(classifier: Path) -> None:
    with tinyedge.load(_export(classifier, train="head.*", optimizer="adam:lr=0.05")) as model:
        assert [entry.name for entry in model.entries] == ["main", "train"]
        first = model.run({"x": X[:1]}, "main")["scores"]
        losses = [model.run(_step(lr=0.05), "train")["loss"].item() for _ in range(20)]
        assert losses[-1] < 0.9 * losses[0]
        assert model.get_state("adam.step") == 20
        assert np.abs(model.run({"x": X[:1]}, "main")["scores"] - first).max() > 0.05
        model.reset()
        np.testing.assert_array_equal(model.run({"x": X[:1]}, "main")["scores"], first)
        assert model.run(_step(), "train")["loss"] == losses[0]


def test_what_is_not_named_stays(classifier: Path) -> None:
    with tinyedge.load(_export(classifier, train=["head.bias"])) as model:
        assert [state.name for state in model.states] == ["head.bias", "sgd.step"]


def test_several_losses_are_summed(classifier: Path) -> None:
    losses = ["cross_entropy:scores", "mse_loss:f"]
    out = _export(classifier, train=["head.*", "body.*"], loss=losses)
    with tinyedge.load(out) as model:
        given = {"x": X, "target_scores": CLASSES, "target_f": np.zeros((6, 4), np.float32)}
        both = model.run({**given, "lr": np.float32(0)}, "train")["loss"]
        scores = model.run({"x": X[:1]}, "main")["scores"]
        assert both > 0
        assert scores.shape == (1, 3)


@pytest.mark.parametrize(
    ("options", "id", "told"),
    [
        ({"train": "haed.*"}, "train.pattern", "'head.weight'"),
        ({"train": "indices"}, "train.integers", "int64"),
        ({"train": "mean"}, "train.pattern", "7 weights"),
        ({"loss": None}, "train.loss", "cross_entropy"),
        ({"loss": "cross_entropy:score"}, "train.output", "'scores'"),
        ({"loss": "cross_entropy"}, "train.output", "names no output"),
        ({"loss": "cross_entropie:scores"}, "train.loss", "'cross_entropy'"),
        ({"loss": "mse_loss:best"}, "train.output", "of int64"),
        ({"loss": "mse_loss:chosen"}, "train.derivative", "argmax"),
        ({"train": "head.*", "loss": "mse_loss:f"}, "train.unused", "'head.weight'"),
        ({"optimizer": "adm"}, "train.optimizer", "'adam'"),
        ({"optimizer": "adam:beta=1"}, "train.optimizer", "'betas'"),
        ({"optimizer": "adam:0.1"}, "train.optimizer", "adam:lr=1e-3"),
        ({"optimizer": "adam:learning_rate=1"}, "train.optimizer", "did you mean 'lr'?"),
        ({"optimizer": "adam:lr=fast"}, "train.optimizer", "'fast'"),
        ({"optimizer": "adam:betas=0.9"}, "train.optimizer", "0.9/0.999"),
        ({"optimizer": "sgd:nesterov=true"}, "train.optimizer", "momentum"),
        ({"optimizer": "sgd:lr=nan"}, "train.optimizer", "'nan'"),
        ({"optimizer": "muon:steps=1000"}, "train.optimizer", "1 to 64"),
        ({"batch": 0}, "train.batch", "at least one"),
        ({"batch": "6"}, "argument.type", "a whole number"),
        ({"train": 3}, "argument.type", "a pattern"),
        ({"train": None}, "train.pattern", "no weights are named"),
    ],
)
def test_what_is_refused(classifier: Path, options: dict[str, Any], id: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        _export(classifier, **{"train": "*", **options})
    assert error.value.id == id
    assert told in str(error.value)


@pytest.mark.parametrize(("name", "optimizer"), [("sgd.step", "sgd"), ("adam.mean.v", "adam")])
def test_a_weight_called_as_a_state_of_the_optimizer(
    tmp_path: Path, name: str, optimizer: str
) -> None:
    nodes = [
        helper.make_node("Mul", ["x", name], ["m"]),
        helper.make_node("Mul", ["m", "v"], ["y"]),
    ]
    path = _small(tmp_path, nodes, [_weight(name, 3), _weight("v", 3)])
    with pytest.raises(InputError, match=name) as error:
        _export(path, loss="mse_loss", optimizer=optimizer)
    assert error.value.id == "train.name"


@pytest.mark.parametrize("place", ["initializers", "Constant nodes"])
def test_weights_of_both_kinds(tmp_path: Path, place: str) -> None:
    """One step of the mean of (w x)**2; the scales of Resize are no weights."""
    scales = numpy_helper.from_array(np.array([1, 2], np.float32), "scales")
    weights = [_weight("w", 3), scales]
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["m"]),
        helper.make_node("Resize", ["m", "", "scales"], ["y"]),
    ]
    if place != "initializers":
        given = [helper.make_node("Constant", [], [w.name], value=w) for w in weights]
        nodes, weights = [*given, *nodes], []
    path = _small(tmp_path, nodes, weights)
    with tinyedge.load(_export(path, loss="mse_loss")) as model:
        assert [state.name for state in model.states] == ["w", "sgd.step"]
        w, x = model.get_state("w"), X[:, 0, 0, :3]
        feeds = {"x": x, "target": np.zeros((6, 6), np.float32), "lr": np.float32(0.5)}
        loss = model.run(feeds, "train")["loss"]
        np.testing.assert_allclose(loss, np.mean((w * x) ** 2), rtol=1e-5)
        expected = w - 0.5 * 2 * w * np.mean(x**2, 0) / 3
        np.testing.assert_allclose(model.get_state("w"), expected, rtol=1e-5)


def test_goldens_keep_away_from_kinks(tmp_path: Path, cpu_device: Device) -> None:
    """Of the first generated inputs two products are equal but for rounding: which of them is the
    greatest decides what a step trains.
    """
    x = generate("float32", (3,), seed=1)
    weights = np.stack([1 / x, 1 / x * [0, 2, 1]], 1).astype(np.float32)
    weight = numpy_helper.from_array(weights, "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("ReduceMax", ["m"], ["y"], axes=[1]),
    ]
    out = _export(_small(tmp_path, nodes, [weight]), loss="mse_loss", batch=1)
    seeds = {case.entry: case.seed for case in read(out).goldens()}
    assert seeds["main"] == 1 and seeds["train"] > 1
    assert verify(out, cpu_device).agrees


def test_a_model_of_float64(tmp_path: Path) -> None:
    """The target is float32 all the same, and so is the loss."""
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Mul", ["wide", "w"], ["y"]),
    ]
    weight = numpy_helper.from_array(np.array([1.0, 2.0, 4.0]), "w")
    path = _small(tmp_path, nodes, [weight], TensorProto.DOUBLE)
    with tinyedge.load(_export(path, loss="mse_loss")) as model:
        ones = np.ones((6, 3), np.float32)
        loss = model.run({"x": ones, "target": ones, "lr": np.float32(1.5)}, "train")["loss"]
        assert loss == np.float32(10 / 3)
        assert np.allclose(model.get_state("w"), [1.0, 1.0, 1.0], rtol=1e-6)


def _small(tmp_path: Path, nodes: list[Any], weights: list[Any], kind: int = 1) -> Path:
    """A model of x [N, 3] with an output y of an element type."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])]
    outputs = [helper.make_tensor_value_info("y", kind, None)]
    graph = helper.make_graph(nodes, "small", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_a_fixed_batch(classifier: Path) -> None:
    proto = onnx.load(classifier)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 6
    onnx.save(proto, classifier)
    with pytest.raises(InputError, match="fixed") as error:
        _export(classifier, batch=7)
    assert error.value.id == "train.batch"
    with tinyedge.load(_export(classifier, batch=None)) as model:
        assert model.run({"x": X}, "main")["scores"].shape == (6, 3)


def test_states_as_a_file(classifier: Path, tmp_path: Path) -> None:
    """What one bundle has learned another goes on from; a file that lacks a state changes none."""
    from tinyedge.nn import safetensors

    file = tmp_path / "trained.safetensors"
    out = _export(classifier, train="head.*", optimizer="adam:lr=0.05")
    with tinyedge.load(out) as model:
        for _ in range(3):
            model.run(_step(), "train")
        model.save_states(file)
        later = model.run(_step(), "train")["loss"]
    saved = safetensors.load(file)
    assert saved["adam.step"].numpy() == 3
    with tinyedge.load(out) as model:
        first = model.get_state("head.weight")
        del saved["head.bias"]
        safetensors.save(tmp_path / "part.safetensors", saved)
        with pytest.raises(InputError, match="lacks it") as error:
            model.load_states(tmp_path / "part.safetensors")
        assert error.value.id == "run.states"
        np.testing.assert_array_equal(model.get_state("head.weight"), first)
        model.load_states(file)
        np.testing.assert_array_equal(model.get_state("head.weight"), saved["head.weight"].numpy())
        assert model.run(_step(), "train")["loss"] == later


def test_a_step_takes_values_where_the_model_takes_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "tiny.onnx"
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["x"], ["f"]),
            helper.make_node("Gemm", ["f", "head.weight"], ["scores"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 4, 4])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 3])],
        [_weight("head.weight", 48, 3)],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    values = RANDOM.normal(size=(6, 3, 4, 4)).astype(np.float32)
    with tinyedge.load(_export(path, images={"x": "stretch,0..1"})) as model:
        scores = model.run({"x": np.full((9, 9, 3), 255, np.uint8)})["scores"]
        ones = np.ones((1, 48), np.float32) @ model.get_state("head.weight")
        np.testing.assert_allclose(scores, ones, rtol=1e-5)
        first = model.run(_step(values), "train")["loss"]
        assert model.run(_step(values), "train")["loss"] < first
        with pytest.raises(RunError, match=r"entry 'train' takes the values .* not a picture"):
            model.run(_step("cat.png"), "train")


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        ("cross_entropy:shares", "cross_entropy:scores"),
        ("nll_loss:shares", "cross_entropy:scores"),
        ("binary_cross_entropy_with_logits:chances", "_logits:scores"),
        ("cross_entropy:scores", ""),
        ("binary_cross_entropy:chances", ""),
    ],
)
def test_losses_of_another_kind_of_value_are_told(classifier: Path, loss: str, told: str) -> None:
    model = onnx.load(classifier)
    model.graph.node.append(helper.make_node("Softmax", ["scores"], ["s"]))
    model.graph.node.append(helper.make_node("Identity", ["s"], ["shares"]))
    model.graph.node.append(helper.make_node("Sigmoid", ["scores"], ["chances"]))
    onnx.save(model, classifier)
    warned: list[str] = []
    _export(classifier, train="head.*", loss=loss, warn=warned.append)
    about = [text for text in warned if loss.split(":")[1] in text]
    assert [told in text for text in about] == [True] * bool(told)
