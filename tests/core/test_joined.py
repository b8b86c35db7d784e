"""Products of one tensor with several weights as one: which are, and that they mean the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, compiled, find_target, reference, run
from tinyedge.core.compiler.options import Options
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.bundle.schema import RANK

Outputs = dict[str, Tensor]
Build = Callable[[Inputs], Outputs]
THREADS = ("webgpu", "cuda", "qcom")


def _floats(*shape: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def _weights(*columns: int) -> list[Tensor]:
    return [Tensor.weight(f"w{n}", _floats(32, size)) for n, size in enumerate(columns)]


def _attention(inputs: Inputs) -> Outputs:
    """Keys and values of one head, queries of two; all with a bias."""
    x = inputs.new(_floats(20, 32))
    q, k, v = (
        x @ weight + Tensor.weight(f"b{n}", _floats(size))
        for n, (size, weight) in enumerate(zip((32, 16, 16), _weights(32, 16, 16), strict=True))
    )
    heads = q.reshape((20, 2, 16)).permute((1, 0, 2))
    scores = (heads @ k.transpose()).softmax(-1) @ v
    return {"y": scores.permute((1, 0, 2)).reshape((20, 32))}


def _convolutions(inputs: Inputs) -> Outputs:
    """Of one element, read by others of 3 x 3."""
    x = inputs.new(_floats(1, 8, 10, 10))
    return _read(*(x.conv(_constant(16, 8, 1, 1, seed=n), _constant(16, seed=n)) for n in range(2)))


def _transposed(inputs: Inputs) -> Outputs:
    """Of 3 x 3 elements, whose weights are views of more axes than a bundle holds."""
    x = inputs.new(_floats(1, 8, 7, 9))
    return _read(*(x.conv_transpose(_constant(8, 16, 3, 3, seed=n)) for n in range(2)))


def _read(*layers: Tensor) -> Outputs:
    pads = ((1, 1), (1, 1))
    return {
        f"y{n}": each.conv(_constant(4, 16, 3, 3, seed=n), pads=pads)
        for n, each in enumerate(layers)
    }


def _step(inputs: Inputs) -> Outputs:
    """A key behind those before, and a query of another rank."""
    x = inputs.new(_floats(1, 32))
    q, k = (x @ weight for weight in _weights(16, 16))
    keys = Tensor.concat([_constant(1, 5, 16), k.reshape((1, 1, 16))], 1)
    return {"y": q.reshape((1, 1, 1, 16)) @ _constant(1, 1, 16, 8), "keys": keys}


def _constant(*shape: int, seed: int = 0) -> Tensor:
    return Tensor.weight("c", _floats(*shape) + seed)


BUILDS = {_attention: 64, _convolutions: 32, _step: 32, _transposed: 32}


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__.strip("_"))
def test_products_of_one_tensor_are_one(build: Build, target: str, device: Device) -> None:
    inputs = Inputs()
    outputs = build(inputs)
    state = compiled(outputs, inputs, find_target(target), Options(winograd=0))
    (x,) = state.entries[0].schedule.inputs.values()
    first = [launch for launch in state.launches if x in launch.storages]
    wide = max(max(int(size) for size in s.shape) for launch in first for s in launch.written)  # type: ignore[arg-type]
    assert max(len(s.shape) for launch in state.launches for s in launch.storages) <= RANK
    if target in THREADS:
        assert len(first) == 1 and wide == BUILDS[build]
    else:
        assert wide < BUILDS[build]
    actual = run(outputs, inputs, target, device, Options(winograd=0))
    assert_agreement(actual, reference(outputs, inputs))


def _gated(inputs: Inputs) -> Outputs:
    """Both products are in one kernel already, which stores what is made of them."""
    x = inputs.new(_floats(20, 32))
    a, b = _weights(64, 64)
    return {"y": ((x @ a).tanh() * (x @ b)) @ _constant(64, 8)}


def _odd(inputs: Inputs) -> Outputs:
    """Parts of a row that do not begin at whole vectors."""
    x = inputs.new(_floats(20, 32))
    a, b = _weights(15, 17)
    return {"a": (x @ a) @ _constant(15, 8), "b": (x @ b) @ _constant(17, 8)}


def _tied(inputs: Inputs) -> Outputs:
    """A weight that is also read elsewhere would be stored twice."""
    x = inputs.new(_floats(20, 32))
    a, b = _weights(32, 16)
    return {"a": (x @ a) @ a.transpose(), "b": (x @ b) @ _constant(16, 8)}


@pytest.mark.parametrize("build", [_gated, _odd, _tied])
@pytest.mark.parametrize("target", THREADS)
def test_what_stays_as_it_is(build: Build, target: str) -> None:
    inputs = Inputs()
    state = compiled(build(inputs), inputs, find_target(target), Options())
    names = {s.name for launch in state.launches for s in launch.storages if s.role == "weight"}
    assert {"w0", "w1"} <= names


def test_the_gate_of_a_product_is_one_launch(target: str) -> None:
    inputs = Inputs()
    state = compiled(_gated(inputs), inputs, find_target(target), Options())
    assert len(state.launches) == 2
