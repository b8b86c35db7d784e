"""Means of an image computed with the product that makes it: where, and that they are right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.agreement import (
    HALF_TOLERANCE,
    Inputs,
    Tolerance,
    assert_agreement,
    compiled,
    find_target,
    reference,
    replay,
)
from tests.core.test_moves import floats
from tinyedge.core.compiler.optimize.pooled import pooled
from tinyedge.core.compiler.options import Options
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor


def _image(
    inputs: Inputs, side: int, channels: int = 24, columns: int = 40, batch: int = 1, taps: int = 1
) -> Tensor:
    """A convolution with bias and its activation: [batch, columns, side, side]."""
    x = inputs.new(floats(batch, channels, side, side))
    w = Tensor.weight("", floats(columns, channels, taps, taps) / channels**0.5)
    pad = taps // 2
    made = x.conv(w, pads=((pad, pad), (pad, pad)))
    return (made + Tensor.weight("", floats(columns, 1, 1))).maximum(0).minimum(2)


def _means(side: int, columns: int = 40) -> Callable[[Inputs], Tensor]:
    return lambda inputs: _image(inputs, side, columns=columns).mean((2, 3))


def _residual(inputs: Inputs) -> Tensor:
    other = inputs.new(floats(1, 40, 7, 7))
    return (_image(inputs, 7) + other).mean((2, 3))


def _tokens(inputs: Inputs) -> Tensor:
    """The greatest of 17 tokens."""
    x, w = inputs.new(floats(1, 17, 24)), Tensor.weight("", floats(24, 64))
    return (x @ w).tanh().max(1)


def _attended(inputs: Inputs) -> Tensor:
    """The mean of 7 tokens that attention makes."""
    q, k, v = (inputs.new(floats(1, 7, 8)) for _ in range(3))
    return ((q @ k.transpose()).softmax(-1) @ v).mean(1)


JOINED: dict[str, Callable[[Inputs], Tensor]] = {
    **{f"{side} x {side}": _means(side) for side in (2, 3, 5, 7, 8)},
    "of 1280": _means(7, 1280),
    "odd columns": _means(7, 21),
    "residual": _residual,
    "tokens": _tokens,
}
APART: dict[str, Callable[[Inputs], Tensor]] = {
    "large image": _means(9),
    "two images": lambda inputs: _image(inputs, 7, batch=2).mean((2, 3)),
    "rows": lambda inputs: _image(inputs, 7).mean(2),
    "attention": _attended,
    "3 x 3": lambda inputs: _image(inputs, 7, taps=3).mean((2, 3)),
}


def _nested(build: Callable[[Inputs], Tensor], target: str) -> list[bool]:
    """Of each launch, whether it has a product and reduces its rows."""
    inputs = Inputs()
    state = compiled({"y": build(inputs)}, inputs, find_target(target), Options(winograd=0))
    return [pooled(launch.sink) is not None for launch in state.launches]


@pytest.mark.parametrize("name", JOINED)
@pytest.mark.parametrize("target", ["webgpu", "cuda"])
def test_one_launch(name: str, target: str) -> None:
    assert _nested(JOINED[name], target) == [True]


@pytest.mark.parametrize("name", APART)
@pytest.mark.parametrize("target", ["webgpu", "cuda"])
def test_what_stays_apart(name: str, target: str) -> None:
    """More rows than a thread or a few may have; rows that several results are made of; sums that
    have tiles of their own.
    """
    assert not any(_nested(APART[name], target))


@pytest.mark.parametrize("target", ["qcom", "cpu"])
def test_threads_must_share_the_rows(target: str) -> None:
    """Where they cannot, the columns are too few for a device with threads; a thread that is alone
    has better tiles for the product by itself.
    """
    assert _nested(JOINED["7 x 7"], target) == [False, False]


def test_what_others_read_is_stored() -> None:
    inputs = Inputs()
    image = _image(inputs, 7)
    outputs = {"y": image.mean((2, 3)), "z": image}
    state = compiled(outputs, inputs, find_target("webgpu"))
    assert not any(pooled(launch.sink) for launch in state.launches)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", JOINED)
def test_they_agree(name: str, precision: str, target: str, device: Device) -> None:
    inputs = Inputs()
    outputs = {"y": JOINED[name](inputs)}
    state = compiled(outputs, inputs, find_target(target), Options(precision=precision))
    assert state.program is not None
    given = {"y": Tolerance(greatest=HALF_TOLERANCE)} if precision == "fp16" else None
    found = replay(state.program, device, inputs.arrays)
    assert_agreement(found, reference(outputs, inputs), given)


@pytest.mark.parametrize("target", ["cpu", "webgpu"])
def test_plain_kernels_agree(target: str, request: pytest.FixtureRequest) -> None:
    inputs = Inputs()
    outputs = {"y": _means(7)(inputs)}
    state = compiled(outputs, inputs, find_target(target), Options(optimize=False))
    assert state.program is not None
    device = request.getfixturevalue(f"{target}_device")
    found = replay(state.program, device, inputs.arrays)
    assert_agreement(found, reference(outputs, inputs))


def test_rows_lie_beside_each_other() -> None:
    """7 x 7 pixels: a thread has seven of them for each element of a filter that it loads."""
    inputs = Inputs()
    state = compiled({"y": _means(7, 1280)(inputs)}, inputs, find_target("webgpu"))
    (kernel,) = state.kernels.values()
    nested = pooled(kernel.moved)
    assert nested is not None
    found = {r.arg.kind: r.src[0].arg for r in nested[1].src[1:]}
    assert found == {"threads": 8, "unroll": 7}
