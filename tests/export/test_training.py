"""Operators of training: Gradient, and BatchNormalization by the batch's own statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.export.hostile import info, model
from tests.imported import import_model
from tinyedge.core.errors import InputError
from tinyedge.core.ir.reference import evaluate

DOMAIN = "ai.onnx.preview.training"
W = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)
X = np.array([[0.5, -1.0], [2.0, 1.5]], np.float32)
NORMAL = {"scale": [2.0, 0.5], "bias": [1.0, -1.0], "mean": [0.25, 4.0], "variance": [1.0, 9.0]}


def _gradient(inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node("Gradient", inputs, outputs, domain=DOMAIN, **attributes)


def _run(nodes: list[Any], outputs: list[str], weights: dict[str, Any], **inputs: Any) -> list[Any]:
    """Outputs of a model of these nodes."""
    proto = model(
        nodes,
        inputs=[info(name, list(value.shape)) for name, value in inputs.items()],
        outputs=outputs,
        weights=[numpy_helper.from_array(value, name) for name, value in weights.items()],
        domains=[DOMAIN],
    )
    imported = import_model(proto.SerializeToString())
    return list(evaluate([imported.outputs[name].node for name in outputs], inputs))


def _product() -> list[Any]:
    """y = sum(tanh(x @ w))"""
    node = helper.make_node
    return [
        node("MatMul", ["x", "w"], ["h"]),
        node("Tanh", ["h"], ["t"]),
        node("ReduceSum", ["t"], ["y"], keepdims=0),
    ]


def _expected(x: Any, w: Any) -> tuple[Any, Any, Any]:
    by_h = 1 - np.tanh(x @ w) ** 2
    return by_h @ w.T, x.T @ by_h, by_h


def test_by_inputs_and_weights() -> None:
    """A weight that is known at import is a variable all the same."""
    nodes = [*_product(), _gradient(["x", "w"], ["dx", "dw"], xs=["x", "w"], y="y")]
    found = _run(nodes, ["dx", "dw"], {"w": W}, x=X)
    for one, other in zip(found, _expected(X, W), strict=False):
        assert np.allclose(one, other, rtol=1e-5)


def test_by_what_lies_between() -> None:
    nodes = [*_product(), _gradient(["h", "x"], ["dh"], xs=["h"], zs=["x"], y="y")]
    (found,) = _run(nodes, ["dh"], {"w": W}, x=X)
    assert np.allclose(found, _expected(X, W)[2], rtol=1e-5)


def test_at_other_values() -> None:
    """The operands say where; the names, of what."""
    nodes = [*_product(), _gradient(["z", "w"], ["dx"], xs=["x"], zs=["w"], y="y")]
    (found,) = _run(nodes, ["dx"], {"w": W}, x=X, z=X + 1)
    assert np.allclose(found, _expected(X + 1, W)[0], rtol=1e-5)


def test_of_a_gradient() -> None:
    """d/dx of the sum of 3 x^2 is 6 x."""
    node = helper.make_node
    nodes = [
        node("Mul", ["x", "x"], ["square"]),
        node("Mul", ["square", "x"], ["y"]),
        _gradient(["x"], ["dx"], xs=["x"], y="y"),
        _gradient(["x"], ["ddx"], xs=["x"], y="dx"),
    ]
    first, second = _run(nodes, ["dx", "ddx"], {}, x=X)
    assert np.allclose(first, 3 * X**2) and np.allclose(second, 6 * X)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        (["x"], {"xs": ["x", "w"], "y": "y"}, "do not name its 1 inputs"),
        (["x"], {"xs": ["x"], "y": "nothing"}, "no node beside it makes y, 'nothing'"),
    ],
)
def test_names_that_are_wrong(inputs: list[str], attributes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _run([*_product(), _gradient(inputs, ["d"], **attributes)], ["d"], {"w": W}, x=X)


def test_normalized_by_the_batch() -> None:
    x = np.random.default_rng(0).normal(3, 2, (4, 2, 3, 5)).astype(np.float32)
    weights = {name: np.array(value, np.float32) for name, value in NORMAL.items()}
    node = helper.make_node(
        "BatchNormalization",
        ["x", *weights],
        ["y", "running_mean", "running_variance"],
        training_mode=1,
        momentum=0.75,
        epsilon=0.01,
    )
    y, mean, variance = _run([node], list(node.output), weights, x=x)
    now, spread = x.mean((0, 2, 3)), x.var((0, 2, 3))
    shape = (1, 2, 1, 1)
    normal = (x - now.reshape(shape)) / np.sqrt(spread.reshape(shape) + 0.01)
    assert np.allclose(y, normal * [[[2.0]], [[0.5]]] + [[[1.0]], [[-1.0]]], atol=1e-5)
    assert np.allclose(mean, 0.75 * weights["mean"] + 0.25 * now, rtol=1e-5)
    assert np.allclose(variance, 0.75 * weights["variance"] + 0.25 * spread, rtol=1e-5)


def test_a_gradient_through_the_batch() -> None:
    """Moving or scaling all of a channel changes nothing: the gradient is orthogonal to both."""
    x = np.random.default_rng(1).normal(1, 2, (6, 2, 4)).astype(np.float32)
    weights = {name: np.array(value, np.float32) for name, value in NORMAL.items()}
    node = helper.make_node
    nodes = [
        node("BatchNormalization", ["x", *weights], ["n"], training_mode=1, epsilon=0.0),
        node("Tanh", ["n"], ["y"]),
        _gradient(["x"], ["dx"], xs=["x"], y="y"),
    ]
    (found,) = _run(nodes, ["dx"], weights, x=x)
    assert np.abs(found).max() > 0.01
    assert np.allclose(found.sum((0, 2)), 0, atol=1e-4)
    assert np.allclose((found * x).sum((0, 2)), 0, atol=1e-4)
