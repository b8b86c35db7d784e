"""A compiled step as a bundle: donated trees are its states, which its runs update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tests.jit.test_training import batch, loss_of, of_perceptron, perceptron
from tinyedge import Dim, Tensor, jit, nn, optim, value_and_grad
from tinyedge.core.errors import InputError
from tinyedge.core.program.device import Device
from tinyedge.export.verify.verify import verify

pytestmark = pytest.mark.eager

OPTIMIZER = optim.Adam(1e-2)


@jit(donate=("model", "state"))
def step(model: Any, state: Any, x: Tensor, target: Tensor) -> Any:
    loss, gradients = value_and_grad(loss_of(of_perceptron))(model, x, target)
    return *OPTIMIZER.update(model, gradients, state), loss


@pytest.mark.parametrize("target", ["cpu", "webgpu", "qcom"])
def test_a_step_trains_in_its_bundle(target: str, tmp_path: Path) -> None:
    model, (x, labels) = perceptron(), batch(8, 10)
    state = OPTIMIZER.init(model)
    example = (model, state, x, labels)
    out = step.export(tmp_path / "step.tinyedge", target=target, example=example, outputs=["loss"])
    expected = []
    for _ in range(5):
        model, state, loss = step(model, state, x, labels)
        expected.append(loss.item())
    with tinyedge.load(out) as bundle:
        names = [port.name for port in bundle.states]
        assert names[:4] == ["model.in", "model.bias", "model.out", "state.step"]
        assert [port.name for port in bundle.inputs] == ["x", "target"]
        losses = [bundle.run({"x": x, "target": labels})["loss"].item() for _ in range(5)]
        np.testing.assert_allclose(losses, expected, rtol=1e-4)
        assert bundle.get_state("state.step") == 5
        trained = bundle.get_state("model.in")
        np.testing.assert_allclose(trained, model["in"].numpy(), rtol=1e-3, atol=1e-5)
        bundle.reset()
        np.testing.assert_allclose(bundle.run({"x": x, "target": labels})["loss"], losses[0])


def test_another_entry_reads_the_states(tmp_path: Path, cpu_device: Device) -> None:
    model, (x, labels) = perceptron(), batch(8, 10)
    state = OPTIMIZER.init(model)

    def predict(model: Any, one: Any) -> Any:
        return {"scores": of_perceptron(model, one)}

    out = step.export(
        tmp_path / "step.tinyedge",
        target="cpu",
        example=(model, state, x, labels),
        outputs=["loss"],
        entry="train",
        entries={"main": (predict, (model, x[:1]))},
    )
    with tinyedge.load(out) as bundle:
        for _ in range(2):
            scores = bundle.run({"one": x[:1]})["scores"]
            np.testing.assert_allclose(scores, of_perceptron(model, x[:1]).numpy(), rtol=1e-4)
            bundle.run({"x": x, "target": labels}, entry="train")
            model, state, _ = step(model, state, x, labels)
    assert verify(out, cpu_device).agrees


def test_what_a_bundle_trained_is_loaded_into_the_model(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm(2)), np.ones((4, 3), np.float32)

    @jit(donate=("model",))
    def moved(model: Any, x: Any) -> Any:
        with nn.training() as run:
            y = model(x)
        return run.updated(model), y.sum()

    out = moved.export(tmp_path / "moved.tinyedge", target="cpu", example=(model, x))
    with tinyedge.load(out) as bundle:
        bundle.run({"x": x})
        bundle.save_states(tmp_path / "states.safetensors")
    found = nn.load_state_dict(model, nn.load(tmp_path / "states.safetensors"), "model.")
    expected, _ = moved(model, x)
    for name, value in nn.state_dict(expected).items():
        np.testing.assert_allclose(nn.state_dict(found)[name].numpy(), value.numpy(), err_msg=name)


def test_entries_that_cannot_be_exported(tmp_path: Path) -> None:
    model, (x, labels) = perceptron(), batch(8, 10)
    example = (model, OPTIMIZER.init(model), x, labels)
    same: Any = {"main": (of_perceptron, (model, x))}
    with pytest.raises(InputError, match="two of this name"):
        step.export(tmp_path / "a", target="cpu", example=example, entries=same)
    model_and_x = (model, x)
    for wrong, said in (
        ([of_perceptron], "entries"),
        ({"main": of_perceptron}, "entry 'main'"),
        ({"main": ("model.onnx", model_and_x)}, "entry 'main'"),
        ({"main": (of_perceptron, (model,))}, "entry 'main'"),
    ):
        with pytest.raises(InputError) as error:
            step.export(tmp_path / "c", target="cpu", example=example, entry="t", entries=wrong)
        assert error.value.subject == said and error.value.id == "jit.export"
    again: Any = {"again": (step, (perceptron(), *example[1:]))}
    with pytest.raises(InputError, match="only one function of a bundle may"):
        step.export(tmp_path / "b", target="cpu", example=example, entries=again)


def test_its_golden_case_is_one_step(tmp_path: Path, cpu_device: Device) -> None:
    model, data = perceptron(), batch(8, 10)
    out = step.export(
        tmp_path / "step.tinyedge", target="cpu", example=(model, OPTIMIZER.init(model), *data)
    )
    assert verify(out, cpu_device).agrees


def test_a_function_without_states(tmp_path: Path) -> None:
    scale = (Tensor(np.array([2, 3], np.float32)) + 0.0).realize()

    @jit(sizes={"x": (Dim("N", 1, 8), None)})
    def scaled(x: Tensor, more: Any) -> Any:
        return {"scaled": x * scale, "total": (x + more["by"]).sum()}

    x = np.ones((2, 2), np.float32)
    out = scaled.export(
        tmp_path / "f.tinyedge", target="cpu", example=(x, {"by": np.ones(2, np.float32)})
    )
    with tinyedge.load(out) as bundle:
        assert [port.name for port in bundle.inputs] == ["x", "more.by"]
        found = bundle.run({"x": np.ones((5, 2), np.float32), "more.by": np.zeros(2, "f4")})
        np.testing.assert_array_equal(found["scaled"], [[2, 3]] * 5)
        assert found["total"] == 10


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    @jit(donate=("model",))
    def split(model: Any) -> Any:
        return {"a": model["a"] + 1.0, "b": model["b"] + 2.0}

    shared = Tensor([1.0])
    with pytest.raises(InputError, match="several new values") as error:
        split.export(tmp_path / "a.tinyedge", example=({"a": shared, "b": shared},))
    assert error.value.id == "jit.export"
    with pytest.raises(InputError, match="returns 1 tensors"):
        jit(lambda x: x + 1.0).export(tmp_path / "b", example=(shared,), outputs=["a", "b"])
