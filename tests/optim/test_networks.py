"""Networks that learn as torch's do: the loss of each step, by each optimizer."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.optim.networks import NETWORKS, OPTIMIZERS, STEPS, batch
from tinyedge import Tensor, jit, nn, optim, value_and_grad


class Call(nn.Module):
    """A module that is called in its own way."""

    def __init__(self, module: Any, function: Any) -> None:
        self.module, self.function = module, function

    def __call__(self, x: Tensor) -> Any:
        return self.function(self.module, x)


NAMES = {
    **{name: getattr(nn, name) for name in dir(nn) if name[0].isupper()},
    **{"Call": Call, "chain": nn.Sequential, "tanh": Tensor.tanh, "relu": nn.relu},
    **{"gelu": nn.gelu, "pooled": nn.max_pool(2), "flat": nn.flatten},
    "mixed": lambda result: result,
}


def network(name: str) -> Any:
    nn.seed(list(NETWORKS).index(name))
    return eval(NETWORKS[name][0], NAMES)


def losses(name: str, optimizer: str) -> list[float]:
    rate, options = OPTIMIZERS[optimizer]
    opt = getattr(optim, optimizer)(rate, **options)

    @jit(donate=("model", "state"))
    def step(model: Any, state: Any, x: Tensor, y: Tensor) -> Any:
        def loss(model: Any) -> Any:
            with nn.training() as run:
                value = nn.cross_entropy(model(x), y)
            return value, run.updated(model)

        (value, model), gradients = value_and_grad(loss, has_aux=True)(model)
        return *opt.update(model, gradients, state), value

    model = network(name)
    state, found = opt.init(model), []
    for _ in range(STEPS):
        model, state, value = step(model, state, *batch(name))
        found.append(value.item())
    return found


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory, torch_python: Path) -> Any:
    folder = tmp_path_factory.mktemp("networks")
    for name in NETWORKS:
        state = nn.state_dict(network(name))
        np.savez(folder / f"{name}.npz", **{key: value.numpy() for key, value in state.items()})
    script = Path(__file__).with_name("networks_with_torch.py")
    command = [torch_python, script, folder]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow
@pytest.mark.eager  # by the cpu's kernels
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_twenty_steps(name: str, optimizer: str, theirs: Any) -> None:
    """Losses that fall, each within 1e-4 of torch's."""
    found, expected = np.array(losses(name, optimizer)), np.array(theirs[name][optimizer])
    assert found[-1] < found[0] * 0.9
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
