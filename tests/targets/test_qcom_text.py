"""The text of qcom's kernels has what costs an Adreno little."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, compiled, find_target
from tinyedge.core.compiler.options import Options
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(5)
Layer = Callable[[Tensor], Tensor]


def texts(layer: Layer, channels: int, side: int) -> list[str]:
    """The kernels of a layer between two pointwise convolutions, so that it reads and writes images
    of fp16 values.
    """
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, channels, side, side)).astype(np.float32))
    y = layer(x.conv(_weight("first", channels, channels, 1)))
    filters = y.shape[1]
    assert isinstance(filters, int)
    outputs = {"y": y.conv(_weight("last", 32, filters, 1))}
    target = find_target("qcom")
    state = compiled(outputs, inputs, target, Options(precision="fp16"))
    return [target.render(kernel.text) for kernel in state.kernels.values() if kernel.text]


def _weight(name: str, filters: int, channels: int, side: int) -> Tensor:
    return Tensor.weight(name, RNG.normal(size=(filters, channels, side, side)).astype(np.float32))


def pointwise(filters: int, channels: int) -> Layer:
    return lambda x: x.conv(_weight("w", filters, channels, 1))


def padded(channels: int, groups: int = 1) -> Layer:
    weight = _weight("w", channels, channels // groups, 3)
    return lambda x: x.conv(weight, pads=((1, 1), (1, 1)), groups=groups)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (lambda y: y, "te_half_f32x4("),
        (lambda y: y.relu(), "te_half_above_f32x4("),
        (lambda y: y.clip(0.0, 6.0), None),
        (lambda y: y.clip(-1.0, 1.0), None),
        (lambda y: y.clip(0.0, 1e6), "te_half_above_f32x4("),
    ],
)
def test_what_is_stored_as_fp16(after: Layer, expected: str | None) -> None:
    """Only what may be beyond fp16's range is limited to it."""
    layer = pointwise(32, 32)
    text = texts(lambda x: after(layer(x)), 32, 14)[1]
    assert "write_imagef(b0" in text
    found = set(re.findall(r"te_half\w*\(", text))
    assert found == ({expected} if expected else set())


def test_choices_of_vectors() -> None:
    """By the function: of the operator compilers make bitwise operations of masks."""
    layer = pointwise(32, 32)
    text = texts(lambda x: layer(x).relu(), 32, 14)[1]
    assert "select(" in text and "?" not in text


def test_a_sampler_only_where_outside_is_read() -> None:
    inside, around = texts(pointwise(32, 32), 32, 14)[1], texts(padded(32), 32, 14)[1]
    assert len(re.findall(r"read_imagef\(b\d, \(int2\)", inside)) == inside.count("read_imagef") > 0
    assert "read_imagef(b1, te_sampler," in around  # the padded input
    assert "read_imagef(b2, (int2)" in around  # the filters


def test_guarded_elements_without_branches() -> None:
    """Padding of an input that is no image, beside a filter that may be infinite, is read at a
    place that is inside.
    """
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, 3, 32, 32)).astype(np.float32))
    w = inputs.new(RNG.normal(size=(16, 3, 3, 3)).astype(np.float32))
    y = x.conv(w, pads=((1, 1), (1, 1)), strides=(2, 2))
    target = find_target("qcom")
    *_, kernel = compiled({"y": y}, inputs, target, Options(precision="fp16")).kernels.values()
    assert kernel.text is not None
    text = target.render(kernel.text)
    assert "te_load_f32(b1, " in text
    assert not re.search(r"\? b1\[", text)


@pytest.mark.parametrize(
    ("layer", "channels", "side", "rows", "vectors"),
    [
        (pointwise(64, 64), 64, 56, 8, 2),
        (pointwise(96, 96), 96, 14, 7, 1),
        (pointwise(576, 96), 96, 14, 7, 2),
        (pointwise(384, 384), 384, 7, 7, 1),
        (padded(64), 64, 56, 8, 2),
        (padded(64, groups=64), 64, 56, 8, 1),  # vectors share no windows
    ],
)
def test_tiles(layer: Any, channels: int, side: int, rows: int, vectors: int) -> None:
    """How many vectors of sums a thread holds, by layers of MobileNet and ResNet."""
    text = texts(layer, channels, side)[1]
    assert len(re.findall(r"float4 acc\d+ =", text)) == rows * vectors


def test_tiles_of_buffers() -> None:
    """A late layer's threads have enough sums that a processor waits for none, if few results."""
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(1, 384, 14, 14)).astype(np.float32))
    text = plain(x.conv(_weight("w", 64, 384, 1)), inputs)
    assert len(re.findall(r"float4 acc\d+ =", text)) == 6


def test_attention_in_vectors() -> None:
    """The scores of eight keys are two vectors, whose exponentials are computed together."""
    inputs = Inputs()
    q, k, v = (inputs.new(RNG.normal(size=(3, 37, 16)).astype(np.float32)) for _ in range(3))
    text = plain((q @ k.transpose(1, 2)).softmax(-1) @ v, inputs)
    assert re.findall(r"float(\d*) \w+ = exp\(", text) == ["4", "8"]  # of what is lowered, of both


def plain(y: Tensor, inputs: Inputs) -> str:
    """The only kernel of a result, with buffers of float32."""
    target = find_target("qcom")
    state = compiled({"y": y}, inputs, target, Options(profile="buffers"))
    (text,) = [target.render(kernel.text) for kernel in state.kernels.values() if kernel.text]
    return text


def test_a_tile_of_two_products() -> None:
    """The sums of both are kept at once: a tile is smaller, so that they fit the registers."""
    first, inner, last = (_weight(name, 64, 64, 1) for name in ("v", "w", "u"))
    written = texts(lambda x: x.conv(first).relu().conv(inner) + x.conv(last), 64, 56)
    sums = [len(re.findall(r"float4 acc\d+ =", text)) for text in written]
    assert 24 in sums  # two of 6 rows and 2 vectors
    assert max(sums) + 6 + 2 <= find_target("qcom").profiles["default"].max_vector_registers


def test_functions_of_longer_vectors() -> None:
    """Exponentials of a row's vectors are one of sixteen numbers, of whole vectors and quarters."""
    inputs = Inputs()
    x = inputs.new(RNG.normal(size=(8, 1024)).astype(np.float32))
    target = find_target("qcom")
    (kernel,) = compiled({"y": x.softmax(-1)}, inputs, target).kernels.values()
    assert kernel.text is not None
    text = target.render(kernel.text)
    found = re.findall(r"float16 (v\d+) = exp\(\(float16\)\(v\d+, v\d+, v\d+, v\d+\)\);", text)
    assert len(found) == text.count("exp(") == 2  # for the sum and for the result
    for name in found:
        assert re.findall(rf"{name}\.(\w+)", text) == ["s0123", "s4567", "s89ab", "scdef"]
