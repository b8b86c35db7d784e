"""Optimizers beside their formulas in numpy, and beside torch."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, disagreement, reference, run
from tests.optim.problem import OPTIMIZERS, RATE, STEPS, data, values
from tinyedge import Tensor, nn, optim, value_and_grad
from tinyedge.core import dtype as dt
from tinyedge.core.gradient import trees

Model = dict[str, Any]


def loss(model: Model) -> Tensor:
    x, y = (Tensor.weight("data", array) for array in data())
    hidden = (x @ model["weight"].transpose() + model["bias"]).tanh()
    error = hidden @ model["head"].transpose() - y
    return (error * error).mean()


def held(tree: Any) -> Any:
    """The tree with the values that its tensors have."""
    return trees.mapped(
        lambda leaf: (
            Tensor.weight("w", leaf.numpy()) if leaf.ndim else Tensor(leaf.numpy(), leaf.dtype)
        ),
        tree,
    )


def trajectory(optimizer: Any, steps: int = STEPS) -> Iterator[Model]:
    model: Model = {name: Tensor.weight(name, array) for name, array in values().items()}
    state = optimizer.init(model)
    for _ in range(steps):
        _, gradients = value_and_grad(loss)(model)
        model, state = held(optimizer.update(model, gradients, state))
        yield {name: leaf.numpy() for name, leaf in model.items()}


def slopes(model: dict[str, Any]) -> dict[str, Any]:
    """The gradients, by hand."""
    x, y = data()
    hidden = np.tanh(x @ model["weight"].T + model["bias"])
    error = 2 * (hidden @ model["head"].T - y) / y.size
    inner = (error @ model["head"]) * (1 - hidden * hidden)
    return {"weight": inner.T @ x, "bias": inner.sum(0), "head": error.T @ hidden}


def by_formula(name: str) -> Iterator[dict[str, Any]]:
    """The papers' formulas, a parameter at a time."""
    kind, _, options = OPTIMIZERS[name]
    model, memory = values(), {key: {} for key in values()}
    for step in range(1, STEPS + 1):
        gradients = slopes(model)
        model = {
            key: FORMULAS[kind](w, gradients[key], memory[key], step, **options)
            for key, w in model.items()
        }
        yield model


def sgd(w, g, m, t, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
    g = g + weight_decay * w
    m["v"] = g if t == 1 else momentum * m["v"] + (1 - dampening) * g
    return w - RATE * (g + momentum * m["v"] if nesterov else m["v"])


def adaptive(g, m, t, betas, eps):
    m["m"] = betas[0] * m.get("m", 0) + (1 - betas[0]) * g
    m["v"] = betas[1] * m.get("v", 0) + (1 - betas[1]) * g * g
    return m["m"] / (1 - betas[0] ** t) / (np.sqrt(m["v"] / (1 - betas[1] ** t)) + eps)


def adam(w, g, m, t, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    return w - RATE * adaptive(g + weight_decay * w, m, t, betas, eps)


def adamw(w, g, m, t, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    return w - RATE * (adaptive(g, m, t, betas, eps) + weight_decay * w)


def lamb(w, g, m, t, weight_decay):
    u = adaptive(g, m, t, (0.9, 0.999), 1e-6) + weight_decay * w
    return w - RATE * np.linalg.norm(w) / np.linalg.norm(u) * u


def lars(w, g, m, t, weight_decay):
    size, slope = np.linalg.norm(w), np.linalg.norm(g)
    local = RATE * 1e-3 * size / (slope + weight_decay * size)
    m["v"] = 0.9 * m.get("v", 0) + local * (g + weight_decay * w)
    return w - m["v"]


def rmsprop(w, g, m, t, alpha=0.99, weight_decay=0.0, momentum=0.0, centered=False):
    g = g + weight_decay * w
    m["s"] = alpha * m.get("s", 0) + (1 - alpha) * g * g
    m["a"] = alpha * m.get("a", 0) + (1 - alpha) * g
    size = np.sqrt(m["s"] - (m["a"] ** 2 if centered else 0)) + 1e-8
    m["b"] = momentum * m.get("b", 0) + g / size
    return w - RATE * m["b"]


def adagrad(w, g, m, t):
    m["s"] = m.get("s", 0) + g * g
    return w - RATE * g / (np.sqrt(m["s"]) + 1e-10)


def muon(w, g, m, t):
    if w.ndim < 2:
        return w - RATE * 0.1 * w - RATE * adaptive(g, m, t, (0.9, 0.999), 1e-8)
    m["v"] = 0.95 * m.get("v", 0) + 0.05 * g
    x = 0.05 * g + 0.95 * m["v"]
    x = x / np.linalg.norm(x)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return w - RATE * 0.1 * w - RATE * math.sqrt(max(1, w.shape[0] / w.shape[1])) * x


FORMULAS = {
    **{"SGD": sgd, "Adam": adam, "AdamW": adamw, "LAMB": lamb, "LARS": lars},
    **{"RMSprop": rmsprop, "Adagrad": adagrad, "Muon": muon},
}


def ours(name: str) -> Any:
    kind, _, options = OPTIMIZERS[name]
    if kind == "Muon":
        options = {**options, "other_lr": RATE}
    return getattr(optim, kind)(RATE, **options)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_formula(name: str) -> None:
    for found, expected in zip(trajectory(ours(name)), by_formula(name), strict=True):
        for key, array in expected.items():
            assert np.allclose(found[key], array, rtol=1e-8, atol=1e-10), (name, key)


@pytest.mark.slow
def test_torch(torch_python: Path) -> None:
    script = Path(__file__).with_name("with_torch.py")
    done = subprocess.run([torch_python, script], capture_output=True, text=True, check=True)
    for name, trace in json.loads(done.stdout).items():
        for found, expected in zip(trajectory(ours(name)), trace, strict=True):
            for array, flat in zip(found.values(), expected, strict=True):
                assert np.allclose(array.reshape(-1), flat, rtol=1e-6, atol=1e-8), name


@pytest.mark.parametrize("name", ["SGD Nesterov", "AdamW", "Muon", "LAMB"])
def test_every_target_agrees(name: str, target: str, device: Any) -> None:
    """Two updates in a row."""
    inputs = Inputs()
    model = {key: inputs.new(array.astype(np.float32), key) for key, array in values().items()}
    gradients = {
        key: inputs.new(np.full(leaf.shape, 0.25, np.float32)) for key, leaf in model.items()
    }
    optimizer = ours(name)
    state = optimizer.init(model)
    for _ in range(2):
        model, state = optimizer.update(model, gradients, state)
    outputs = {str(n): leaf for n, leaf in enumerate(trees.leaves((model, state)))}
    outputs = {key: leaf for key, leaf in outputs.items() if 0 not in leaf.shape}
    expected = reference(outputs, inputs, fp64_reference=True)
    actual = run(outputs, inputs, target, device)
    assert not any(disagreement(actual[key], expected[key]) for key in outputs)


def rates(schedule: Any, steps: int) -> list[float]:
    return [float(schedule(Tensor(step, dt.int32)).numpy()) for step in range(steps)]


def test_schedules() -> None:
    assert rates(optim.constant(0.5), 2) == [0.5, 0.5]
    assert np.allclose(rates(optim.linear(1, 0.5, 2), 4), [1, 0.75, 0.5, 0.5])
    assert np.allclose(rates(optim.cosine(1, 4), 6), [1, 0.853553, 0.5, 0.146447, 0, 0], atol=1e-6)
    assert np.allclose(rates(optim.cosine(1, 2, 0.5), 3), [1, 0.75, 0.5], atol=1e-6)
    assert np.allclose(rates(optim.exponential(1, 0.25, 2), 3), [1, 0.5, 0.25])
    assert rates(optim.piecewise(1, {3: 0.25, 1: 0.5}), 4) == [1, 0.5, 0.5, 0.25]
    assert np.allclose(
        rates(optim.warmup(4, optim.linear(1, 0, 2)), 7), [0.25, 0.5, 0.75, 1, 1, 0.5, 0]
    )


def test_a_schedule_is_followed() -> None:
    model = {"w": Tensor.weight("w", np.array([0.0]))}
    gradients = {"w": Tensor.weight("g", np.array([1.0]))}
    optimizer = optim.SGD(optim.piecewise(1.0, {1: 0.5}))
    state = optimizer.init(model)
    for _ in range(2):
        model, state = optimizer.update(model, gradients, state)
    assert model["w"].numpy().tolist() == [-1.5] and state["step"].numpy() == 2


def test_accumulated() -> None:
    """Three gradients are one update by their mean."""
    start = {"w": Tensor.weight("w", np.array([1.0, 2.0])), "n": Tensor.weight("n", np.arange(2))}
    several = optim.Accumulate(optim.Adam(0.1), 3)
    model, state = start, several.init(start)
    for value in (1.0, 2.0, 6.0):
        assert model["w"].numpy().tolist() == [1, 2]
        gradients = {"w": Tensor.weight("g", np.full(2, value)), "n": None}
        model, state = several.update(model, gradients, state)
    plain = optim.Adam(0.1)
    mean = {"w": Tensor.weight("g", np.full(2, 3.0)), "n": None}
    expected, inner = plain.update(start, mean, plain.init(start))
    assert np.allclose(model["w"].numpy(), expected["w"].numpy(), rtol=1e-12)
    assert state["count"].numpy() == 0 and state["sums"]["w"].numpy().tolist() == [0, 0]
    assert state["state"]["step"].numpy() == inner["step"].numpy() == 1


def test_clipped() -> None:
    gradients = [Tensor.weight("a", np.array([3.0])), (Tensor.weight("b", np.array([[4.0]])), None)]
    assert optim.global_norm(gradients).numpy() == 5
    first, (second, nothing) = optim.clip_by_norm(gradients, 1.0)
    assert np.allclose([first.numpy()[0], second.numpy()[0, 0]], [0.6, 0.8]) and nothing is None
    assert optim.clip_by_norm(gradients, 10.0)[0].numpy().tolist() == [3]
    assert optim.clip_by_value(gradients, 3.5)[1][0].numpy().tolist() == [[3.5]]


def test_average() -> None:
    old, new = (
        {"w": Tensor.weight("w", np.array([v])), "n": Tensor(i, dt.int32)}
        for v, i in ((1.0, 1), (2.0, 2))
    )
    mixed = optim.average(old, new, 0.75)
    assert mixed["w"].numpy().tolist() == [1.25] and mixed["n"].numpy() == 2


def test_halves_are_updated_in_float32() -> None:
    """A step that is too small for fp16 is not lost in the slots."""
    model = [Tensor.weight("w", np.array([1.0], np.float16))]
    gradients = [Tensor.weight("g", np.array([1e-4], np.float16))]
    optimizer = optim.Adam(1e-3)
    model, state = optimizer.update(model, gradients, optimizer.init(model))
    assert model[0].dtype is dt.float16 and state["square"][0].dtype is dt.float32
    assert state["square"][0].numpy()[0] > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: optim.SGD(-1.0), "rate of -1.0"),
        (lambda: optim.SGD(0.1, nesterov=True), "nesterov needs a momentum"),
        (lambda: optim.Adam(0.1, betas=(0.9, 1.0)), "beta of 1.0"),
        (lambda: optim.Accumulate(optim.SGD(0.1), 0), "every 0 gradients"),
        (lambda: optim.clip_by_norm([], -1.0), "norm of at most -1.0"),
        (lambda: optim.linear(1, 0, 0)(Tensor(0, dt.int32)), "schedule of 0 updates"),
    ],
)
def test_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_wrong_trees_are_refused() -> None:
    model = {"w": Tensor.weight("w", np.ones(3))}
    optimizer = optim.Adam(0.1)
    state = optimizer.init(model)
    with pytest.raises(ValueError, match=r"gradients: float64 \[2\] for float64 \[3\] at 'w'"):
        optimizer.update(model, {"w": Tensor.weight("g", np.ones(2))}, state)
    other = optimizer.init({"w": Tensor.weight("w", np.ones(2))})
    with pytest.raises(ValueError, match="'mean' is that of another model"):
        optimizer.update(model, model, other)
    with pytest.raises(ValueError, match="gradients: missing: w; not wanted: v"):
        optimizer.update(model, {"v": model["w"]}, state)
    with pytest.raises(ValueError, match="gradients: int64 for float64 at 'w'"):
        optimizer.update(model, {"w": np.ones(3, np.int64)}, state)


def test_gradients_are_found_by_their_names() -> None:
    """In whatever order; arrays and numbers are tensors."""
    model = {"w": np.zeros(2), "b": 0.0}
    reordered = {"b": np.float32(2), "w": np.array([3.0, 4.0])}
    for optimizer in (optim.SGD(1.0, momentum=0.5), optim.Accumulate(optim.SGD(1.0), 1)):
        state = optimizer.init(model)
        after, state = optimizer.update(model, reordered, state)
        assert after["w"].numpy().tolist() == [-3, -4] and after["b"].numpy() == -2
    mean = optim.average({"b": 2.0, "w": np.ones(2)}, after, 0.5)
    assert mean["w"].numpy().tolist() == [-1, -1.5] and mean["b"].numpy() == 0


@pytest.mark.parametrize(
    "kind, option",
    [
        *((kind, "eps") for kind in (optim.Adam, optim.LAMB, optim.Adagrad, optim.Muon)),
        *((kind, "weight_decay") for kind in (optim.SGD, optim.AdamW, optim.RMSprop, optim.LARS)),
        (optim.SGD, "dampening"),
        (optim.LARS, "trust"),
        (optim.Adagrad, "decay"),
        (optim.Adagrad, "initial"),
    ],
)
def test_negative_options_are_refused(kind: Any, option: str) -> None:
    for value in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=option):
            kind(0.1, **{option: value})


def test_what_is_no_learning_rate_is_refused() -> None:
    """As in libraries whose optimizers take the parameters first."""
    for wrong in (nn.Linear(2, 2), [Tensor([1.0])], None, "0.1"):
        with pytest.raises(TypeError, match=r"a learning rate is a number.*`init` and `update`"):
            optim.Adam(lr=wrong)  # type: ignore[arg-type]
    assert optim.SGD(lr=np.float32(0.5)).lr == 0.5
