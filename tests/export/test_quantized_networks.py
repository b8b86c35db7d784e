"""Networks that onnxruntime quantized: QuantizeLinear and DequantizeLinear around each operator.

Random weights; the tools calibrate on a few random inputs. Right values are onnxruntime's without
optimization, which computes as the file says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinyedge
from tinyedge.export.verify.browser import Browser

runtime = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")
pytestmark = pytest.mark.filterwarnings("ignore")

SHAPE = (1, 3, 16, 16)
# Types of activations and of weights, and whether weights have a scale a channel.
KINDS = {
    "uint8 int8": ("QUInt8", "QInt8", False),
    "int8 per channel": ("QInt8", "QInt8", True),
    "uint8 uint8": ("QUInt8", "QUInt8", False),
    "uint16 int8": ("QUInt16", "QInt8", True),
}
KERNELS_GROW = 4.0  # at most, in bytes of text, by what quantizes and dequantizes


class _Network:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, values: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}{len(self.nodes)}".lower()
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def conv(self, x: str, channels: tuple[int, int], size: int, **attributes: Any) -> str:
        fan = channels[0] // attributes.get("group", 1)
        values = self.random.normal(size=(channels[1], fan, size, size)) * (2 / fan) ** 0.5 / size
        bias = self.random.normal(size=channels[1]) * 0.1
        pads = [size // 2] * 4
        return self.op("Conv", x, self.weight(values), self.weight(bias), pads=pads, **attributes)

    def clipped(self, x: str) -> str:
        return self.op("Clip", x, self.weight(0.0), self.weight(6.0))

    def model(self, x: str, channels: int) -> onnx.ModelProto:
        x = self.op("Flatten", self.op("GlobalAveragePool", x))
        last = self.weight(self.random.normal(size=(channels, 10)) * 0.3)
        y = self.op("Gemm", x, last, self.weight(self.random.normal(size=10)))
        ports = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", SHAPE), (y, (1, 10)))
        ]
        graph = helper.make_graph(self.nodes, "network", ports[:1], ports[1:], self.weights)
        opset = [helper.make_opsetid("", 21)]
        return helper.make_model(graph, opset_imports=opset, ir_version=10)


def plain() -> onnx.ModelProto:
    net, x = _Network(1), "x"
    for channels, stride in (((3, 16), 1), ((16, 24), 2), ((24, 40), 1)):
        x = net.op("Relu", net.conv(x, channels, 3, strides=[stride, stride]))
    return net.model(x, 40)


def residual() -> onnx.ModelProto:
    net = _Network(2)
    x = net.op("Relu", net.conv("x", (3, 32), 3, strides=[2, 2]))
    for _ in range(3):
        y = net.op("Relu", net.conv(x, (32, 32), 3))
        x = net.op("Relu", net.op("Add", x, net.conv(y, (32, 32), 3)))
    return net.model(x, 32)


def inverted() -> onnx.ModelProto:
    """Residuals of narrow ends, with a depthwise convolution between."""
    net = _Network(3)
    x = net.clipped(net.conv("x", (3, 16), 3, strides=[2, 2]))
    for _ in range(3):
        y = net.clipped(net.conv(x, (16, 64), 1))
        y = net.clipped(net.conv(y, (64, 64), 3, group=64))
        x = net.op("Add", x, net.conv(y, (64, 16), 1))
    return net.model(x, 16)


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    build.__name__: build for build in (plain, residual, inverted)
}


class _Calibration(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        generator = np.random.default_rng(4)
        self.inputs: Iterator[Any] = iter(
            [{"x": generator.normal(size=SHAPE).astype(np.float32)} for _ in range(3)]
        )

    def get_next(self) -> Any:
        return next(self.inputs, None)


@pytest.fixture(scope="module", params=[(n, k) for n in NETWORKS for k in KINDS], ids=" ".join)
def files(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A network as floats, and quantized."""
    name, kind = request.param
    folder = tmp_path_factory.mktemp("quantized")
    floats, quantized = folder / "floats.onnx", folder / "quantized.onnx"
    onnx.save(NETWORKS[name](), floats)
    activations, weights, per_channel = KINDS[kind]
    logging.disable()
    quantization.quantize_static(
        str(floats),
        str(quantized),
        _Calibration(),
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=getattr(quantization.QuantType, activations),
        weight_type=getattr(quantization.QuantType, weights),
        per_channel=per_channel,
    )
    logging.disable(logging.NOTSET)
    return floats, quantized


def _expected(path: Path, x: Any) -> tuple[Any, float]:
    """onnxruntime's output, and one step of its quantization."""
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (output,) = runtime.InferenceSession(str(path), options).run(None, {"x": x})
    model = onnx.load(path)
    scales = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    made = {node.output[0]: node for node in model.graph.node}
    last = made[model.graph.output[0].name]
    assert last.op_type == "DequantizeLinear"
    return output, float(scales[last.input[1]])


def _text(bundle: Path) -> int:
    (kernels,) = (path for path in bundle.iterdir() if path.stem == "kernels")
    return kernels.stat().st_size


def _right(actual: Any, expected: Any, step: float) -> None:
    """Sums in another order may round to the next step, here and there."""
    off = np.abs(actual - expected)
    sums = 1e-4 * np.abs(expected).max()  # of 16 bits, a step is less than what sums are off
    assert off.max() <= max(1.01 * step, sums), (actual, expected)
    assert (off > max(0.01 * step, sums)).mean() <= 0.2, (actual, expected)


@pytest.mark.parametrize("target", ["cpu", "webgpu"])
def test_on_a_device(files: tuple[Path, Path], target: str, tmp_path: Path) -> None:
    quantized = files[1]
    twin, ours = (
        tinyedge.export_onnx(path, target=target, out=tmp_path / path.stem, golden=False)
        for path in files
    )
    assert _text(ours) <= KERNELS_GROW * _text(twin)
    x = np.random.default_rng(5).normal(size=SHAPE).astype(np.float32)
    expected, step = _expected(quantized, x)
    with tinyedge.load(ours) as model:
        (actual,) = model.run({"x": x}).values()
    _right(actual, expected, step)


@pytest.mark.browser
def test_in_chromium(files: tuple[Path, Path], tmp_path: Path, browser: Browser) -> None:
    _, quantized = files
    bundle = tinyedge.export_onnx(quantized, out=tmp_path / "b", golden=False)
    x = np.random.default_rng(5).normal(size=SHAPE).astype(np.float32)
    expected, step = _expected(quantized, x)
    outputs, _ = browser.run_in_page(bundle, {"x": x})
    _right(*outputs.values(), expected, step)


@pytest.mark.browser
def test_clips_one_after_the_other(tmp_path: Path, browser: Browser) -> None:
    """x = Clip(x * 1.1, -1, 1), eight times and 64 times: small kernels, which a page takes."""
    values = np.linspace(-2, 2, 256, dtype=np.float32).reshape(1, 4, 8, 8)
    for times in (8, 64):
        bundle = _clips(times, tmp_path)
        assert _text(bundle) <= 600 + 200 * times
        outputs, _ = browser.run_in_page(bundle, {"x": values})
        expected = values.astype(np.float64)
        for _ in range(times):
            expected = np.clip(expected * np.float32(1.1), -1, 1)
        (actual,) = outputs.values()
        assert np.allclose(actual, expected, rtol=1e-5, atol=1e-6)


def _clips(times: int, folder: Path) -> Path:
    net, x = _Network(0), "x"
    for _ in range(times):
        product = net.op("Mul", x, net.weight(1.1))
        x = net.op("Clip", product, net.weight(-1.0), net.weight(1.0))
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4, 8, 8)) for name in ("x", x)
    ]
    graph = helper.make_graph(net.nodes, "clips", ports[:1], ports[1:], net.weights)
    path = folder / f"clips{times}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    return tinyedge.export_onnx(path, out=folder / f"clips{times}", golden=False)
