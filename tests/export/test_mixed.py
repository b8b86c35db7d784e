"""Training steps with fp16 in memory: gradients that it could not hold, by a scale of the loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tinyedge
from tests.export.hostile import info, model
from tests.export.hostile.build import node
from tinyedge import Tensor, optim, value_and_grad
from tinyedge.core import dtype as dt
from tinyedge.core.errors import InputError
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle.reading import read
from tinyedge.export.verify.verify import verify

RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(16, 64)).astype(np.float32)
SMALL = np.float32(1e-5)  # what the loss' gradients are made small by


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """Two products, whose result is small: gradients of what lies between are beyond fp16."""
    nodes = [
        node("MatMul", ["x", "first"], ["h"]),
        node("Tanh", ["h"], ["t"]),
        node("MatMul", ["t", "second"], ["z"]),
        node("Mul", ["z", "small"], ["y"]),
    ]
    arrays = {
        "first": RANDOM.normal(size=(64, 64)).astype(np.float32) * 0.1,
        "second": RANDOM.normal(size=(64, 4)).astype(np.float32) * 0.1,
        "small": np.array([SMALL]),
    }
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    proto = model(nodes, inputs=[info("x", [16, 64])], outputs=["y"], weights=weights)
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def _export(path: Path, target: str, precision: str, **more: Any) -> Path:
    return tinyedge.export_onnx(
        path,
        target=target,
        out=path.with_name(f"{precision}.{more.get('loss_scale')}"),
        train=["first", "second"],
        loss="mse_loss:y",
        optimizer="sgd:lr=1e6",
        precision=precision,
        warn=lambda text: None,
        **more,
    )


def _moved(bundle: Path, device: Device) -> Any:
    """How far one step moves the first weights."""
    with Replay(read(bundle).program, device) as loaded:
        before = loaded.get_state("first")
        assert before.dtype == np.float32
        step = {"x": X, "target": np.ones((16, 4), np.float32), "lr": np.float32(1e6)}
        loaded.run(step, "train")
        return loaded.get_state("first") - before


def test_a_scale_keeps_small_gradients(network: Path, webgpu_device: Device) -> None:
    """The same step in float32 is the measure: without a scale most of it is lost."""
    expected = _moved(_export(network, "webgpu", "fp32"), webgpu_device)
    with_scale = _moved(_export(network, "webgpu", "fp16", loss_scale=8192), webgpu_device)
    without = _moved(_export(network, "webgpu", "fp16", loss_scale=1), webgpu_device)
    size = np.abs(expected).max()
    assert np.abs(with_scale - expected).max() < 0.01 * size
    assert np.abs(without - expected).max() > 0.05 * size


def test_a_scaled_step_on_every_target(network: Path, target: str, device: Device) -> None:
    precision = "fp32" if target == "cpu" else "fp16"  # the cpu keeps no halves
    bundle = _export(network, target, precision, loss_scale=2048)
    assert verify(bundle, device).agrees


def test_a_scale_that_is_too_large_is_halved(network: Path, cpu_device: Device) -> None:
    """A gradient beyond fp16: the model and the optimizer stay, until the scale fits."""
    bundle = _export(network, "cpu", "fp32", loss_scale=65504)
    with Replay(read(bundle).program, cpu_device) as loaded:
        names = {state.name for state in loaded.program.states}
        assert names == {"first", "second", "sgd.step", "loss_scale", "loss_scale.steps"}
        before = loaded.get_state("second")
        target = np.full((16, 4), 1e7, np.float32)
        step = {"x": X, "target": target, "lr": np.float32(1)}
        scales = []
        while loaded.get_state("sgd.step") == 0:
            assert (loaded.get_state("second") == before).all()
            loss = loaded.run(step, "train")["loss"]
            scales.append(float(loaded.get_state("loss_scale")))
        assert loss == pytest.approx(1e14, rel=1e-3)
        assert scales == [65504 / 2**n for n in range(1, len(scales))] + [scales[-2]]
        assert len(scales) > 1
        assert (loaded.get_state("second") != before).any()


def test_the_scale_grows_again_up_to_the_first() -> None:
    weights = {"w": Tensor(np.array([1.0, 2.0], np.float16))}
    adam = optim.Adam(0.1)
    opt = optim.LossScale(adam, 512.0, every=3)
    state, plain_state = opt.init(weights), adam.init(weights)
    plain = weights
    found = []
    for slope in (1.0, 1e3, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0):

        def loss(model: Any, slope: float = slope, state: Any = state) -> Tensor:
            return opt.scaled((model["w"].cast(dt.float32) * slope).sum(), state)

        _, gradients = value_and_grad(loss)(weights)
        assert gradients["w"].dtype is dt.float16
        weights, state = opt.update(weights, gradients, state)
        found.append(float(state["scale"].numpy()))
        if slope == 1.0:
            gradients = {"w": Tensor(np.array([1.0, 1.0], np.float16))}
            plain, plain_state = adam.update(plain, gradients, plain_state)
        assert (weights["w"].numpy() == plain["w"].numpy()).all()
    assert found == [512, 256, 256, 256, 512, 512, 512, 512, 512]
    assert state["state"]["mean"]["w"].dtype is dt.float32


@pytest.mark.parametrize("scale", [0.5, -1.0, 1e6, float("nan")])
def test_scales_that_are_none(network: Path, scale: float) -> None:
    with pytest.raises(InputError, match="loss scale"):
        _export(network, "cpu", "fp32", loss_scale=scale)
