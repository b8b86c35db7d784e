"""Networks of known shapes with random weights, as ONNX files: what a plain export would write.

Batch norms are folded into the convolutions, as exporters do. Layers have the published sizes; what
a network is called says whose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import helper

from tests.exporters.networks import INT64, Network

OPSET = 17


def _relu6(n: Network, x: str) -> str:
    return n.node("Clip", x, n.scalar(0.0), n.scalar(6.0))


def _swish(n: Network, x: str) -> str:
    return n.node("Mul", x, n.node("Sigmoid", x))


def _depthwise(n: Network, x: str, channels: int, k: int, stride: int) -> str:
    return n.conv(x, channels, channels, k, stride, group=channels)


def _classified(n: Network, x: str, channels: int, classes: int = 1000) -> Any:
    """Global pooling and a dense layer end it."""
    pooled = n.node("Flatten", n.node("GlobalAveragePool", x))
    return n.model({n.gemm(pooled, channels, classes): [1, classes]})


def _image(n: Network, size: int) -> str:
    return n.input("image", [1, 3, size, size])


def mobilenet_v2(size: int = 224) -> Any:
    n = Network("mobilenet_v2", OPSET)
    x = _relu6(n, n.conv(_image(n, size), 3, 32, 3, 2))
    channels = 32
    for widen, filters, times, stride in (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    ):
        for number in range(times):
            step, wide = (stride if number == 0 else 1), channels * widen
            inner = _relu6(n, n.conv(x, channels, wide, 1)) if widen > 1 else x
            inner = n.conv(_relu6(n, _depthwise(n, inner, wide, 3, step)), wide, filters, 1)
            x = n.node("Add", x, inner) if step == 1 and channels == filters else inner
            channels = filters
    return _classified(n, _relu6(n, n.conv(x, 320, 1280, 1)), 1280)


def _resnet(name: str, times: tuple[int, ...], bottleneck: bool, size: int) -> Any:
    n = Network(name, OPSET)
    x = n.node("Relu", n.conv(_image(n, size), 3, 64, 7, 2))
    x = n.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, count in enumerate(times):
        width = 64 << stage
        filters = 4 * width if bottleneck else width
        for number in range(count):
            stride = 2 if stage and not number else 1
            if bottleneck:
                inner = n.node("Relu", n.conv(x, channels, width, 1))
                inner = n.node("Relu", n.conv(inner, width, width, 3, stride))
                inner = n.conv(inner, width, filters, 1)
            else:
                inner = n.node("Relu", n.conv(x, channels, filters, 3, stride))
                inner = n.conv(inner, filters, filters, 3)
            same = stride == 1 and channels == filters
            skip = x if same else n.conv(x, channels, filters, 1, stride)
            x, channels = n.node("Relu", n.node("Add", inner, skip)), filters
    return _classified(n, x, channels)


def resnet18(size: int = 224) -> Any:
    return _resnet("resnet18", (2, 2, 2, 2), False, size)


def resnet50(size: int = 224) -> Any:
    return _resnet("resnet50", (3, 4, 6, 3), True, size)


def efficientnet_b0(size: int = 224) -> Any:
    """Inverted residuals with squeeze and excite; swish is Mul and Sigmoid, as torch writes it."""
    n = Network("efficientnet_b0", OPSET)
    x = _swish(n, n.conv(_image(n, size), 3, 32, 3, 2))
    channels = 32
    for widen, k, stride, filters, times in (
        *((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3)),
        *((6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)),
    ):
        for number in range(times):
            step, wide = (stride if number == 0 else 1), channels * widen
            inner = _swish(n, n.conv(x, channels, wide, 1)) if widen > 1 else x
            inner = _swish(n, _depthwise(n, inner, wide, k, step))
            squeezed = n.conv(n.node("GlobalAveragePool", inner), wide, channels // 4, 1)
            gate = n.node("Sigmoid", n.conv(_swish(n, squeezed), channels // 4, wide, 1))
            inner = n.conv(n.node("Mul", inner, gate), wide, filters, 1)
            x = n.node("Add", x, inner) if step == 1 and channels == filters else inner
            channels = filters
    return _classified(n, _swish(n, n.conv(x, 320, 1280, 1)), 1280)


def yolo_like(size: int = 320) -> Any:
    """A detector as YOLOv8n is built: split blocks, pyramid pooling, two scales up and back."""
    n = Network("yolo_like", OPSET)

    def conv(x: str, inputs: int, filters: int, k: int = 3, stride: int = 1) -> str:
        return _swish(n, n.conv(x, inputs, filters, k, stride))

    def split_block(x: str, inputs: int, filters: int, times: int, add: bool) -> str:
        half = filters // 2
        x = conv(x, inputs, filters, 1)
        parts = n.node("Split", x, n.whole(half, half), outputs=2, axis=1)
        for _ in range(times):
            inner = conv(conv(parts[-1], half, half), half, half)
            parts = [*parts, n.node("Add", parts[-1], inner) if add else inner]
        return conv(n.node("Concat", *parts, axis=1), half * (2 + times), filters, 1)

    def up(x: str) -> str:
        scales = n.weight(np.array([1, 1, 2, 2], np.float32))
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return n.node("Resize", x, "", scales, mode="nearest", **how)

    x = conv(_image(n, size), 3, 16, 3, 2)
    x = split_block(conv(x, 16, 32, 3, 2), 32, 32, 1, True)
    fine = split_block(conv(x, 32, 64, 3, 2), 64, 64, 2, True)
    middle = split_block(conv(fine, 64, 128, 3, 2), 128, 128, 2, True)
    x = split_block(conv(middle, 128, 256, 3, 2), 256, 256, 1, True)
    x = conv(x, 256, 128, 1)
    pools = [x]
    for _ in range(3):
        sizes = {"kernel_shape": [5, 5], "strides": [1, 1], "pads": [2, 2, 2, 2]}
        pools.append(n.node("MaxPool", pools[-1], **sizes))
    coarse = conv(n.node("Concat", *pools, axis=1), 512, 256, 1)
    middle = split_block(n.node("Concat", up(coarse), middle, axis=1), 384, 128, 1, False)
    fine = split_block(n.node("Concat", up(middle), fine, axis=1), 192, 64, 1, False)
    down = conv(fine, 64, 64, 3, 2)
    middle = split_block(n.node("Concat", down, middle, axis=1), 192, 128, 1, False)
    down = conv(middle, 128, 128, 3, 2)
    coarse = split_block(n.node("Concat", down, coarse, axis=1), 384, 256, 1, False)
    rows = []
    for x, channels in ((fine, 64), (middle, 128), (coarse, 256)):
        boxes = n.conv(conv(conv(x, channels, 64), 64, 64), 64, 64, 1)
        classes = n.conv(conv(conv(x, channels, 80), 80, 80), 80, 80, 1)
        both = n.node("Concat", boxes, n.node("Sigmoid", classes), axis=1)
        rows.append(n.node("Reshape", both, n.whole(1, 144, -1)))
    count = sum((size // step) ** 2 for step in (8, 16, 32))
    return n.model({n.node("Concat", *rows, axis=2): [1, 144, count]})


def unet(size: int = 128) -> Any:
    """A mask of an image: four levels of two convolutions, up by transposed convolutions."""
    n = Network("unet", OPSET)

    def twice(x: str, inputs: int, filters: int) -> str:
        x = n.node("Relu", n.conv(x, inputs, filters, 3))
        return n.node("Relu", n.conv(x, filters, filters, 3))

    x, channels, kept = _image(n, size), 3, []
    for filters in (32, 64, 128):
        x, channels = twice(x, channels, filters), filters
        kept.append((x, filters))
        x = n.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x, channels = twice(x, channels, 256), 256
    for skip, filters in reversed(kept):
        weight, bias = n.drawn(channels, filters, 2, 2, scale=channels**-0.5), n.drawn(filters)
        x = n.node("ConvTranspose", x, weight, bias, kernel_shape=[2, 2], strides=[2, 2])
        x, channels = twice(n.node("Concat", skip, x, axis=1), 2 * filters, filters), filters
    mask = n.node("Sigmoid", n.conv(x, channels, 1, 1))
    return n.model({mask: [1, 1, size, size]})


def _heads(n: Network, x: str, length: int, heads: int, order: tuple[int, ...]) -> str:
    return n.node("Transpose", n.node("Reshape", x, n.whole(1, length, heads, -1)), perm=order)


def _attention(n: Network, x: str, length: int, width: int, heads: int) -> str:
    query = _heads(n, n.linear(x, width, width), length, heads, (0, 2, 1, 3))
    key = _heads(n, n.linear(x, width, width), length, heads, (0, 2, 3, 1))
    value = _heads(n, n.linear(x, width, width), length, heads, (0, 2, 1, 3))
    scores = n.node("Mul", n.node("MatMul", query, key), n.scalar((width // heads) ** -0.5))
    mixed = n.node("MatMul", n.node("Softmax", scores, axis=-1), value)
    mixed = n.node("Transpose", mixed, perm=(0, 2, 1, 3))
    return n.linear(n.node("Reshape", mixed, n.whole(1, length, width)), width, width)


def _perceptron(n: Network, x: str, width: int) -> str:
    return n.linear(n.gelu(n.linear(x, width, 4 * width)), 4 * width, width)


def vit_tiny(size: int = 224) -> Any:
    """Patches of 16 pixels, 12 layers of 192, norms before."""
    n = Network("vit_tiny", OPSET)
    width, heads, patches = 192, 3, (size // 16) ** 2
    weight, bias = n.drawn(width, 3, 16, 16), n.drawn(width, scale=0.1)
    x = n.node("Conv", _image(n, size), weight, bias, kernel_shape=[16, 16], strides=[16, 16])
    x = n.node("Reshape", x, n.whole(1, width, patches))
    x = n.node("Transpose", x, perm=(0, 2, 1))
    x = n.node("Concat", n.drawn(1, 1, width, scale=0.1), x, axis=1)
    x = n.node("Add", x, n.drawn(1, patches + 1, width, scale=0.1))
    for _ in range(12):
        inner = _attention(n, n.layer_norm(x, width), patches + 1, width, heads)
        x = n.node("Add", x, inner)
        x = n.node("Add", x, _perceptron(n, n.layer_norm(x, width), width))
    first = n.node("Gather", n.layer_norm(x, width), n.weight(np.array(0, np.int64)), axis=1)
    return n.model({n.gemm(first, width, 1000): [1, 1000]})


def bert(length: int = 128, layers: int = 4, width: int = 384) -> Any:
    """Encoder layers with norms behind, on rows that are embedded already."""
    n = Network("bert", OPSET)
    x = n.input("rows", [1, length, width])
    for _ in range(layers):
        x = n.layer_norm(n.node("Add", x, _attention(n, x, length, width, width // 64)), width)
        x = n.layer_norm(n.node("Add", x, _perceptron(n, x, width)), width)
    return n.model({x: [1, length, width]})


def gpt_step(past: int = 128, layers: int = 4, width: int = 256) -> Any:
    """One token after `past` others, whose keys and values are given and handed on; 4 heads."""
    n = Network("gpt_step", OPSET)
    heads, words = width // 64, 8000
    x = n.node("Gather", n.drawn(words, width, scale=0.5), n.input("token", [1, 1], INT64))
    outputs: dict[str, list[int]] = {}
    for layer in range(layers):
        normal = n.layer_norm(x, width)
        query, key, value = (
            _heads(n, n.linear(normal, width, width), 1, heads, (0, 2, 1, 3)) for _ in range(3)
        )
        shape = [1, heads, past, width // heads]
        keys = n.node("Concat", n.input(f"keys_{layer}", shape), key, axis=2)
        values = n.node("Concat", n.input(f"values_{layer}", shape), value, axis=2)
        outputs |= {name: [1, heads, past + 1, width // heads] for name in (keys, values)}
        scores = n.node("MatMul", query, n.node("Transpose", keys, perm=(0, 1, 3, 2)))
        scores = n.node("Mul", scores, n.scalar((width // heads) ** -0.5))
        mixed = n.node("MatMul", n.node("Softmax", scores, axis=-1), values)
        mixed = n.node("Reshape", mixed, n.whole(1, 1, width))
        x = n.node("Add", x, n.linear(mixed, width, width))
        inner = n.gelu_tanh(n.linear(n.layer_norm(x, width), width, 4 * width))
        x = n.node("Add", x, n.linear(inner, 4 * width, width))
    logits = n.linear(n.layer_norm(x, width), width, words)
    return n.model({logits: [1, 1, words], **outputs})


def plain(layers: int = 8, size: int = 32, channels: int = 32) -> Any:
    """Convolutions of 3x3, one like the other: what grows with their number and with the image."""
    n = Network("plain", OPSET)
    x = n.node("Relu", n.conv(_image(n, size), 3, channels, 3))
    for _ in range(layers - 1):
        x = n.node("Relu", n.conv(x, channels, channels, 3))
    return n.model({x: [1, channels, size, size]})


def feeds(model: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs of fixed sizes: normal numbers, pixels, tokens. Raises ValueError for an open size."""
    random = np.random.default_rng(5)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for port in model.graph.input:
        tensor = port.type.tensor_type
        shape = [d.dim_value for d in tensor.shape.dim]
        if not math.prod(shape):
            raise ValueError(f"input {port.name!r} has an open size")
        kind = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if kind.kind == "f":
            arrays[port.name] = random.standard_normal(shape, np.float32).astype(kind)
        else:
            high = 256 if kind == np.uint8 else 1000
            arrays[port.name] = random.integers(0, high, shape).astype(kind)
    return arrays


NETWORKS: Mapping[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        *(mobilenet_v2, resnet18, resnet50, efficientnet_b0, yolo_like, unet),
        *(vit_tiny, bert, gpt_step),
    )
}
