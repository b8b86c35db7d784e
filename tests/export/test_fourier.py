"""Long transforms of fixed length, beside numpy's in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.imported import import_model
from tinyedge.core.errors import ModelError
from tinyedge.core.ir.reference import evaluate


def _imported(shape: tuple[int, ...], length: int = 0, **attributes: Any) -> Any:
    names = ["x", "length" if length else "", "axis"]
    node = helper.make_node("DFT", names, ["y"], **attributes)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    given = {"axis": 1, "length": length}
    weights = [numpy_helper.from_array(np.array(v), n) for n, v in given.items()]
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return import_model(model.SerializeToString())


@pytest.mark.parametrize("length", [1025, 1536, 2053, 2048, 2187, 4106, 16384])
@pytest.mark.parametrize("way", ["real", "complex", "inverse", "onesided"])
def test_long_transforms(length: int, way: str) -> None:
    """Of lengths with two near factors, with two far ones, with none."""
    parts = 1 if way in ("real", "onesided") else 2
    x = np.random.default_rng(length).normal(size=(2, length, parts)).astype(np.float32)
    attributes = {"inverse": {"inverse": 1}, "onesided": {"onesided": 1}}.get(way, {})
    numbers = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    right = np.fft.ifft(numbers) if way == "inverse" else np.fft.fft(numbers)
    if way == "onesided":
        right = right[:, : length // 2 + 1]
    imported = _imported(x.shape, **attributes)
    (found,) = evaluate([imported.outputs["y"].node], {"x": x})
    assert found.shape == (*right.shape, 2)
    error = np.abs(found[..., 0] + 1j * found[..., 1] - right).max()
    assert error <= 2e-6 * np.abs(right).max() * np.log2(length)


@pytest.mark.parametrize("length", [1536, 2187, 16384])
@pytest.mark.parametrize("parts", [1, 2])
def test_long_signals_of_their_bins(length: int, parts: int) -> None:
    """Of half of the bins; the imaginary parts of the first and the middle one do not count."""
    bins = length // 2 + 1
    x = np.random.default_rng(length).normal(size=(2, bins, parts)).astype(np.float32)
    numbers = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    imported = _imported(x.shape, length, inverse=1, onesided=1)
    (found,) = evaluate([imported.outputs["y"].node], {"x": x})
    right = np.fft.irfft(numbers, length)
    assert found.shape == (2, length, 1)
    assert np.abs(found[..., 0] - right).max() <= 2e-5 * np.abs(right).max()


def test_a_long_prime_is_refused() -> None:
    """It is one product with a matrix, which has more elements than may be made."""
    with pytest.raises(ModelError, match="--limit made=N"):
        _imported((2, 4099, 2))
