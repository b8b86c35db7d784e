"""Layers and losses beside torch: results, gradients, buffers, names."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.nn.cases import LAYERS, LOSSES, Call, above, arrays, cotangents, last
from tinyedge import Tensor, nn, vjp
from tinyedge.core.gradient import trees
from tinyedge.core.ir.reference import evaluate

pytestmark = pytest.mark.slow
NAMES = {
    "nn": nn,
    "Call": Call,
    "above": lambda size: Tensor(above(size)),
    "last": lambda rows, size: Tensor(last(rows, size)),
}


def made(number: int, name: str) -> Any:
    """The layer, with parameters and buffers that are no special numbers."""
    layer = eval(LAYERS[name][0], NAMES)
    module = layer.module if isinstance(layer, Call) else layer
    rng = np.random.default_rng(number)
    state = {
        key: np.asarray(
            np.abs(rng.normal(size=leaf.shape)) + 0.5
            if key == "running_var"
            else rng.normal(size=leaf.shape),
            np.float32,
        )
        for key, leaf in trees.named(module)
    }
    loaded = nn.load_state_dict(module, state)
    return (Call(loaded, layer.function) if isinstance(layer, Call) else loaded), loaded, state


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory, torch_python: Path) -> Path:
    folder = tmp_path_factory.mktemp("torch")
    for number, name in enumerate(LAYERS):
        np.savez(folder / f"{number}.npz", **made(number, name)[2])
    script = Path(__file__).with_name("with_torch.py")
    command = [torch_python, script, folder]
    subprocess.run(command, capture_output=True, text=True, check=True)
    return folder


def values(tensors: Any) -> list[Any]:
    return [np.asarray(v) for v in evaluate([t.node for t in tensors], {})]


def close(found: Any, expected: Any) -> bool:
    scale = max(1e-3, np.abs(expected).max(initial=0))
    return found.shape == expected.shape and bool(np.abs(found - expected).max() <= 2e-5 * scale)


@pytest.mark.parametrize("training", (False, True))
@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str, training: bool, theirs: Path) -> None:
    number = list(LAYERS).index(name)
    layer, module, _ = made(number, name)
    inputs = [Tensor.weight(f"x{n}", a) for n, a in enumerate(arrays(name, LAYERS[name][2]))]
    floats = [x for x in inputs if x.dtype.is_float]
    run = nn.training()

    def call(module: Any, given: Any) -> Any:
        rest = iter(given)
        operands = [next(rest) if x.dtype.is_float else x for x in inputs]
        whole = Call(module, layer.function) if isinstance(layer, Call) else module
        if not training:
            return whole(*operands), module
        with run:
            results = whole(*operands)
        return results, run.updated(module)

    (results, after), pull = vjp(call, module, floats)
    flat = trees.leaves(results)
    weights = [Tensor(w) for w in cotangents([r.shape for r in flat])]
    none = trees.mapped(lambda leaf: Tensor.full(leaf.shape, 0, leaf.dtype), after)
    by_module, by_inputs = pull((trees.rebuilt(results, weights), none))
    variables = len(trees.variables(module))
    names = [key for key, _ in trees.named(module)]
    gradients = dict(trees.named(by_module))
    tensors: dict[str, Tensor] = {f"result {n}": r for n, r in enumerate(flat)}
    places = [n for n, x in enumerate(inputs) if x.dtype.is_float]
    tensors |= {f"input {n}": g for n, g in zip(places, by_inputs, strict=True)}
    buffers = {key for key in names if key.startswith("running")}
    tensors |= {f"gradient {key}": gradients[key] for key in names if key not in buffers}
    tensors |= {f"buffer {key}": t for key, t in trees.named(after) if key in buffers}
    assert variables == len(names) - len(buffers)
    found = dict(zip(tensors, values(tensors.values()), strict=True))
    expected = dict(np.load(theirs / f"{number}.{int(training)}.npz"))
    expected.pop("buffer num_batches_tracked", None)
    assert found.keys() == expected.keys()
    wrong = {key for key in found if not close(found[key], expected[key])}
    assert not wrong, {key: (found[key], expected[key]) for key in wrong}


@pytest.mark.parametrize("name", LOSSES)
def test_loss(name: str, theirs: Path) -> None:
    x, *others = (
        Tensor.weight("x", a) if a.ndim else Tensor(a) for a in arrays(name, LOSSES[name][2])
    )
    given = dict(zip("yw", others, strict=False))
    result, pull = vjp(lambda x: eval(f"nn.{LOSSES[name][0]}", {"nn": nn, "x": x, **given}), x)
    (weight,) = cotangents([result.shape])
    (gradient,) = pull(Tensor(weight))
    found = values([result, gradient])
    expected = np.load(theirs / f"loss {list(LOSSES).index(name)}.npz")
    for value, key in zip(found, ("result", "gradient"), strict=True):
        assert close(value, expected[key]), (value, expected[key])
