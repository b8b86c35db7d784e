"""Training by a compiled step: the losses of the same step without a jit, in memory that stays."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import tinyedge
from tinyedge import Tensor, jit, optim, value_and_grad
from tinyedge.core.gradient import trees
from tinyedge.core.program.replay import Replay

pytestmark = pytest.mark.eager

Model = dict[str, Tensor]


def weight(random: Any, *shape: int) -> Tensor:
    scale = 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0])
    return Tensor(random.normal(0, scale, shape).astype(np.float32))


def perceptron() -> Model:
    random = np.random.default_rng(0)
    zeros = Tensor(np.zeros(16, np.float32))
    return {"in": weight(random, 10, 16), "bias": zeros, "out": weight(random, 16, 4)}


def lenet() -> Model:
    random = np.random.default_rng(1)
    shapes = {"conv1": (6, 1, 5, 5), "conv2": (16, 6, 5, 5), "dense1": (256, 32), "dense2": (32, 4)}
    return {name: weight(random, *shape) for name, shape in shapes.items()}


def of_perceptron(model: Model, x: Tensor) -> Tensor:
    return (x @ model["in"] + model["bias"]).relu() @ model["out"]


def pooled(x: Tensor) -> Tensor:
    """The greatest of each square of two by two."""
    batch, channels, height, width = x.shape
    return x.reshape((batch, channels, height // 2, 2, width // 2, 2)).max((3, 5))


def of_lenet(model: Model, x: Tensor) -> Tensor:
    x = pooled(x.conv(model["conv1"]).relu())
    x = pooled(x.conv(model["conv2"]).relu())
    return (x.reshape((x.shape[0], 256)) @ model["dense1"]).relu() @ model["dense2"]


def loss_of(network: Any) -> Any:
    def loss(model: Model, x: Tensor, target: Tensor) -> Tensor:
        return -(network(model, x).log_softmax(-1) * target).sum(-1).mean()

    return loss


def batch(*shape: int) -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(2)
    x = random.normal(size=shape).astype(np.float32)
    return Tensor(x).realize(), Tensor(np.eye(4, dtype=np.float32)[random.integers(0, 4, shape[0])])


NETWORKS = {
    "perceptron": (perceptron, of_perceptron, (8, 10)),
    "lenet": (lenet, of_lenet, (8, 1, 28, 28)),
}


def trained(step: Any, model: Model, opt: Any, data: tuple[Tensor, Tensor], count: int) -> Any:
    state = opt.init(model)
    losses = []
    for _ in range(count):
        model, state, loss = step(model, state, *data)
        losses.append(loss.item())
    return model, state, losses


@pytest.mark.parametrize("name", NETWORKS)
def test_losses_are_those_of_the_step_itself(name: str) -> None:
    start, network, shape = NETWORKS[name]
    opt, data = optim.Adam(1e-2), batch(*shape)
    gradients = value_and_grad(loss_of(network))

    def step(model: Model, state: Any, x: Tensor, target: Tensor) -> Any:
        loss, found = gradients(model, x, target)
        return *opt.update(model, found, state), loss

    def realized(*given: Any) -> Any:
        model, state, loss = step(*given)
        loss.realize(*trees.leaves((model, state)))
        return model, state, loss

    compiled = jit(step, donate=("model", "state"))
    _, _, losses = trained(compiled, start(), opt, data, 20)
    _, _, expected = trained(realized, start(), opt, data, 20)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert losses[-1] < 0.5 * losses[0]
    assert len(compiled.variants) == 1


def test_memory_stays_as_it_is() -> None:
    opt, data = optim.SGD(1e-2, momentum=0.9), batch(8, 10)
    loss = loss_of(of_perceptron)

    @jit(donate=("model", "state"))
    def step(model: Model, state: Any, x: Tensor, target: Tensor) -> Any:
        value, found = value_and_grad(loss)(model, x, target)
        return *opt.update(model, found, state), value

    place = tinyedge.device("cpu")
    model, state, _ = trained(step, perceptron(), opt, data, 5)
    gc.collect()
    before = len(place.device._memory), len(gc.get_objects())
    for _ in range(1000):
        model, state, _ = step(model, state, *data)
    gc.collect()
    assert len(place.device._memory) <= before[0] + 2
    assert len(gc.get_objects()) < before[1] + 500


def test_donated_tensors_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    opt, data = optim.SGD(1e-2, momentum=0.9), batch(8, 10)
    loss = loss_of(of_perceptron)

    @jit(donate=("model", "state"))
    def step(model: Model, state: Any, x: Tensor, target: Tensor) -> Any:
        value, found = value_and_grad(loss)(model, x, target)
        return *opt.update(model, found, state), value

    model, state, _ = trained(step, perceptron(), opt, data, 3)
    device = tinyedge.device("cpu").device
    moved: list[int] = []
    copy, upload = device.copy, device.upload
    monkeypatch.setattr(device, "copy", lambda a, b: moved.append(b.bytes) or copy(a, b))
    monkeypatch.setattr(device, "upload", lambda a, b: moved.append(a.bytes) or upload(a, b))
    step(model, state, *data)
    assert sum(moved) <= 8  # of the loss, 4 bytes


@pytest.mark.parametrize("target", ["webgpu", "qcom"])
def test_a_step_on_another_device(target: str) -> None:
    start, network, shape = NETWORKS["perceptron"]
    opt, data = optim.Adam(1e-2), batch(*shape)
    gradients = value_and_grad(loss_of(network))

    def step(model: Model, state: Any, x: Tensor, target: Tensor) -> Any:
        loss, found = gradients(model, x, target)
        return *opt.update(model, found, state), loss

    place = tinyedge.device(target)
    compiled = jit(step, donate=("model", "state"), device=place)
    *_, losses = trained(compiled, start(), opt, data, 5)
    with tinyedge.device("reference"):
        data = batch(*shape)
        *_, expected = trained(jit(step), start(), opt, data, 5)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_a_step_runs_once_for_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    advance = Replay.advance
    monkeypatch.setattr(Replay, "advance", lambda *a, **k: runs.append(1) or advance(*a, **k))
    doubled = jit(lambda x: {"a": x * 2.0, "b": x + 1.0})
    x = Tensor([1.0, 2.0]).realize()
    count = len(runs)
    for _ in range(5):
        doubled(x)
    assert len(runs) - count == 5
