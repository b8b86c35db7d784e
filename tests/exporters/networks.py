"""Small networks with random weights, as ONNX files that quantizers and optimizers are given.

They need numpy and onnx, nothing of this repository. The convolutional ones have layers of 16 and
32 channels, because onnxruntime blocks channels by 8 or 16. The nodes of the transformers are what
PyTorch's exporter writes for the library `transformers`, because fusions look for exactly those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Network:
    """A graph that grows node by node; weights are drawn from one stream of numbers."""

    def __init__(self, name: str, opset: int) -> None:
        self.name, self.opset = name, opset
        self.random = np.random.default_rng(sum(name.encode()))
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs: list[Any] = []

    def input(self, name: str, shape: Sequence[int | str], kind: int = FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def weight(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def drawn(self, *shape: int, scale: float | None = None) -> str:
        """Normal numbers, of a deviation that keeps the size of what a layer sums."""
        spread = 1.0 / np.sqrt(np.prod(shape[1:])) if scale is None else scale
        return self.weight((self.random.normal(size=shape) * spread).astype(np.float32))

    def whole(self, *values: int) -> str:
        return self.weight(np.array(values, np.int64))

    def scalar(self, value: float) -> str:
        return self.weight(np.array(value, np.float32))

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """The name of the result, or the names of several."""
        inputs, attributes = self._as_then(op, inputs, attributes)
        number = len(self.nodes)
        names = [f"{op.lower()}_{number}" + (f"_{k}" if k else "") for k in range(outputs)]
        made = helper.make_node(op, inputs, names, name=f"{op}_{number}", **attributes)
        self.nodes.append(made)
        return names[0] if outputs == 1 else names

    def _as_then(self, op: str, inputs: Any, attributes: Any) -> tuple[Any, Any]:
        """Before opset 13 axes and parts are attributes, and Resize has an operand more."""
        attribute = {"Unsqueeze": "axes", "Squeeze": "axes", "Split": "split"}.get(op)
        if self.opset < 13 and attribute is not None:
            (held,) = (w for w in self.weights if w.name == inputs[1])
            return inputs[:1], {**attributes, attribute: numpy_helper.to_array(held).tolist()}
        if self.opset < 13 and op == "Resize":
            return (inputs[0], self.weight(np.zeros(0, np.float32)), *inputs[2:]), attributes
        return inputs, attributes

    def model(self, outputs: Mapping[str, Sequence[int | str]]) -> Any:
        infos = [helper.make_tensor_value_info(n, FLOAT, shape) for n, shape in outputs.items()]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, infos, self.weights)
        made = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8
        )
        onnx.checker.check_model(made)
        return made

    # Layers.

    def conv(self, x: str, inputs: int, filters: int, k: int, stride: int = 1, **more: Any) -> str:
        """A convolution with a bias, of the same size where the stride is 1."""
        weight = self.drawn(filters, inputs // more.get("group", 1), k, k)
        bias = self.drawn(filters, scale=0.1)
        pads = [k // 2] * 4
        return self.node(
            "Conv", x, weight, bias, kernel_shape=[k, k], strides=[stride] * 2, pads=pads, **more
        )

    def normed(
        self, x: str, inputs: int, filters: int, k: int, stride: int = 1, **more: Any
    ) -> str:
        """A convolution without a bias, then a batch norm."""
        weight = self.drawn(filters, inputs // more.get("group", 1), k, k)
        pads = [k // 2] * 4
        x = self.node(
            "Conv", x, weight, kernel_shape=[k, k], strides=[stride] * 2, pads=pads, **more
        )
        scale = self.weight(self.random.uniform(0.5, 1.5, filters).astype(np.float32))
        shift, mean = self.drawn(filters, scale=0.2), self.drawn(filters, scale=0.2)
        variance = self.weight(self.random.uniform(0.5, 1.5, filters).astype(np.float32))
        return self.node("BatchNormalization", x, scale, shift, mean, variance, epsilon=1e-5)

    def linear(self, x: str, inputs: int, outputs: int, *, bias_first: bool = True) -> str:
        """MatMul, then Add."""
        weight = self.weight(
            (self.random.normal(size=(inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
        )
        bias = self.drawn(outputs, scale=0.1)
        product = self.node("MatMul", x, weight)
        return self.node("Add", *((bias, product) if bias_first else (product, bias)))

    def gemm(self, x: str, inputs: int, outputs: int) -> str:
        weight, bias = self.drawn(outputs, inputs), self.drawn(outputs, scale=0.1)
        return self.node("Gemm", x, weight, bias, transB=1)

    def layer_norm(self, x: str, width: int) -> str:
        """In parts, as exporters write it below opset 17; one node from there on."""
        scale = self.weight(self.random.uniform(0.5, 1.5, width).astype(np.float32))
        shift = self.drawn(width, scale=0.1)
        if self.opset >= 17:
            return self.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-12)
        mean = self.node("ReduceMean", x, axes=[-1])
        difference = self.node("Sub", x, mean)
        square = self.node("Pow", difference, self.scalar(2.0))
        variance = self.node("ReduceMean", square, axes=[-1])
        deviation = self.node("Sqrt", self.node("Add", variance, self.scalar(1e-12)))
        normal = self.node("Div", difference, deviation)
        return self.node("Add", self.node("Mul", normal, scale), shift)

    def rms_norm(self, x: str, width: int) -> str:
        scale = self.weight(self.random.uniform(0.5, 1.5, width).astype(np.float32))
        square = self.node("Pow", x, self.scalar(2.0))
        if self.opset >= 18:
            mean = self.node("ReduceMean", square, self.whole(-1))
        else:
            mean = self.node("ReduceMean", square, axes=[-1])
        root = self.node("Sqrt", self.node("Add", mean, self.scalar(1e-6)))
        inverse = self.node("Div", self.scalar(1.0), root)
        return self.node("Mul", scale, self.node("Mul", x, inverse))

    def gelu(self, x: str) -> str:
        inner = self.node("Erf", self.node("Div", x, self.scalar(np.sqrt(2.0))))
        outer = self.node("Mul", x, self.node("Add", inner, self.scalar(1.0)))
        return self.node("Mul", outer, self.scalar(0.5))

    def gelu_tanh(self, x: str) -> str:
        cube = self.node("Mul", self.node("Pow", x, self.scalar(3.0)), self.scalar(0.044715))
        inner = self.node("Mul", self.node("Add", x, cube), self.scalar(np.sqrt(2 / np.pi)))
        outer = self.node("Add", self.node("Tanh", inner), self.scalar(1.0))
        return self.node("Mul", self.node("Mul", x, self.scalar(0.5)), outer)


def plain(opset: int = 13) -> Any:
    """Convolutions, pools of each kind, activations, products: [1, 3, 32, 32] -> [1, 10]."""
    n = Network("plain", opset)
    x = n.input("image", [1, 3, 32, 32])
    x = n.node("Relu", n.conv(x, 3, 16, 3))
    x = n.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = n.node("LeakyRelu", n.conv(x, 16, 32, 3), alpha=0.1)
    x = n.node("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 0])
    left = n.node("Sigmoid", n.conv(x, 32, 16, 1))
    right = n.node("Tanh", n.conv(x, 32, 16, 3))
    x = n.node("Concat", left, right, axis=1)
    x = n.node(
        "MaxPool",
        n.node("Clip", x, n.scalar(-0.5), n.scalar(0.9)),
        kernel_shape=[2, 2],
        strides=[2, 2],
    )
    x = n.node("Flatten", x)
    x = n.node("Relu", n.gemm(x, 32 * 4 * 4, 24))
    x = n.node("Softmax", n.gemm(x, 24, 10), axis=1)
    return n.model({x: [1, 10]})


def residual(opset: int = 13) -> Any:
    """Residual blocks with batch norms and a decoder: [1, 3, 32, 32] -> [1, 10], [1, 4, 16, 16]."""
    n = Network("residual", opset)
    x = n.input("image", [1, 3, 32, 32])
    x = n.node("Relu", n.normed(x, 3, 16, 5, stride=2))
    for inputs, filters, stride in ((16, 16, 1), (16, 32, 2), (32, 32, 1)):
        inner = n.node("Relu", n.normed(x, inputs, filters, 3, stride))
        inner = n.normed(inner, filters, filters, 3)
        skip = x if inputs == filters else n.normed(x, inputs, filters, 1, stride)
        x = n.node("Relu", n.node("Add", inner, skip))
    pooled = n.node("Flatten", n.node("GlobalAveragePool", x))
    classes = n.gemm(pooled, 32, 10)
    scales = n.weight(np.array([1, 1, 2, 2], np.float32))
    up = n.node(
        "Resize",
        x,
        "",
        scales,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    weight = n.drawn(32, 16, 3, 3)
    more = n.node("ConvTranspose", up, weight, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])
    padded = n.node("Pad", more, n.whole(0, 0, 1, 1, 0, 0, 1, 1), n.scalar(0.0))
    first, second = n.node("Split", padded, n.whole(8, 8), outputs=2, axis=1)
    mixed = n.node("Where", n.node("Less", first, second), first, second)
    filters, bias = n.drawn(4, 8, 3, 3), n.drawn(4, scale=0.1)
    mask = n.node("Conv", mixed, filters, bias, kernel_shape=[3, 3])
    return n.model({classes: [1, 10], mask: [1, 4, 16, 16]})


def inverted(opset: int = 14) -> Any:
    """Inverted residuals, depthwise, hard swish, squeeze and excite: [1, 3, 32, 32] -> [1, 10]."""
    n = Network("inverted", opset)

    def swish(x: str) -> str:
        if opset >= 14:
            return n.node("HardSwish", x)
        gate = n.node("Clip", n.node("Add", x, n.scalar(3.0)), n.scalar(0.0), n.scalar(6.0))
        return n.node("Div", n.node("Mul", x, gate), n.scalar(6.0))

    x = n.input("image", [1, 3, 32, 32])
    x = swish(n.normed(x, 3, 16, 3, stride=2))
    for inputs, wide, filters, k, stride in ((16, 32, 16, 3, 1), (16, 48, 32, 5, 2)):
        inner = swish(n.normed(x, inputs, wide, 1))
        inner = n.normed(inner, wide, wide, k, stride, group=wide)
        inner = n.node("Clip", inner, n.scalar(0.0), n.scalar(6.0))
        squeezed = n.node("GlobalAveragePool", inner)
        squeezed = n.node("Relu", n.conv(squeezed, wide, 8, 1))
        gate = n.node("HardSigmoid", n.conv(squeezed, 8, wide, 1), alpha=1 / 6, beta=0.5)
        inner = n.normed(n.node("Mul", inner, gate), wide, filters, 1)
        x = n.node("Add", x, inner) if stride == 1 and inputs == filters else inner
    if opset >= 18:
        x = n.node("ReduceMean", x, n.whole(2, 3), keepdims=0)
    else:
        x = n.node("ReduceMean", x, axes=[2, 3], keepdims=0)
    return n.model({n.gemm(x, 32, 10): [1, 10]})


WIDTH, HEADS, LENGTH = 64, 4, 12
HEAD = WIDTH // HEADS


def _heads(n: Network, x: str, order: Sequence[int]) -> str:
    """[B, T, C] as heads; the sizes are computed from the input, as exporters do."""
    return n.node("Transpose", n.node("Reshape", x, n.whole(0, 0, HEADS, HEAD)), perm=order)


def bert(opset: int = 13) -> Any:
    """An encoder with embeddings and a mask: [B, T] three times -> [B, T, 64], [B, 64]."""
    n = Network("bert", opset)
    tokens = n.input("input_ids", ["batch", "length"], INT64)
    segments = n.input("token_type_ids", ["batch", "length"], INT64)
    mask = n.input("attention_mask", ["batch", "length"], INT64)
    wide = n.node("Unsqueeze", n.node("Unsqueeze", mask, n.whole(1)), n.whole(2))
    wide = n.node("Cast", wide, to=FLOAT)
    added = n.node("Mul", n.node("Sub", n.scalar(1.0), wide), n.scalar(-10000.0))
    length = n.node("Gather", n.node("Shape", tokens), n.weight(np.array(1, np.int64)), axis=0)
    ends = n.node("Unsqueeze", length, n.whole(0))
    table = n.weight(np.arange(32, dtype=np.int64)[None])
    places = n.node("Slice", table, n.whole(0), ends, n.whole(1), n.whole(1))
    words = n.node("Gather", n.drawn(50, WIDTH, scale=0.5), tokens)
    kinds = n.node("Gather", n.drawn(2, WIDTH, scale=0.5), segments)
    at = n.node("Gather", n.drawn(32, WIDTH, scale=0.5), places)
    x = n.layer_norm(n.node("Add", n.node("Add", words, kinds), at), WIDTH)
    for _ in range(2):
        query = _heads(n, n.linear(x, WIDTH, WIDTH), (0, 2, 1, 3))
        key = _heads(n, n.linear(x, WIDTH, WIDTH), (0, 2, 3, 1))
        value = _heads(n, n.linear(x, WIDTH, WIDTH), (0, 2, 1, 3))
        scores = n.node("Div", n.node("MatMul", query, key), n.scalar(np.sqrt(HEAD)))
        weights = n.node("Softmax", n.node("Add", scores, added), axis=-1 if opset >= 13 else 3)
        mixed = n.node("Transpose", n.node("MatMul", weights, value), perm=(0, 2, 1, 3))
        mixed = n.node("Reshape", mixed, n.whole(0, 0, WIDTH))
        x = n.layer_norm(n.node("Add", n.linear(mixed, WIDTH, WIDTH), x), WIDTH)
        inner = n.gelu(n.linear(x, WIDTH, 4 * WIDTH))
        x = n.layer_norm(n.node("Add", n.linear(inner, 4 * WIDTH, WIDTH), x), WIDTH)
    first = n.node("Gather", x, n.weight(np.array(0, np.int64)), axis=1)
    pooled = n.node("Tanh", n.gemm(first, WIDTH, WIDTH))
    return n.model({x: ["batch", "length", WIDTH], pooled: ["batch", WIDTH]})


def gpt(opset: int = 13) -> Any:
    """A decoder as of GPT-2 without a past: tokens [B, T] -> [B, T, 50]."""
    n = Network("gpt", opset)
    tokens = n.input("input_ids", ["batch", "length"], INT64)

    def size_of(x: str, axis: int) -> str:
        return n.node("Gather", n.node("Shape", x), n.weight(np.array(axis, np.int64)), axis=0)

    def cut_size_of(x: str, axis: int) -> str:
        """As `size_of`; the fusion of the attention of GPT-2 looks for these nodes."""
        cut = n.node("Slice", n.node("Shape", x), n.whole(axis), n.whole(axis + 1), n.whole(0))
        return n.node("Squeeze", cut, n.whole(0))

    def by_gemm(x: str, inputs: int, outputs: int) -> str:
        """Conv1D of `transformers`: rows are flattened around a product."""
        batch, length = (n.node("Unsqueeze", size_of(x, a), n.whole(0)) for a in (0, 1))
        flat = n.node("Reshape", x, n.whole(-1, inputs))
        weight = (n.random.normal(size=(inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
        flat = n.node("Gemm", flat, n.weight(weight), n.drawn(outputs, scale=0.1))
        shape = n.node("Concat", batch, length, n.whole(outputs), axis=0)
        return n.node("Reshape", flat, shape)

    length = n.node("Unsqueeze", size_of(tokens, 1), n.whole(0))
    table = n.weight(np.arange(32, dtype=np.int64)[None])
    places = n.node("Slice", table, n.whole(0), length, n.whole(1), n.whole(1))
    words = n.node("Gather", n.drawn(50, WIDTH, scale=0.5), tokens)
    x = n.node("Add", words, n.node("Gather", n.drawn(32, WIDTH, scale=0.5), places))
    causal = np.tril(np.ones((1, 1, 32, 32), bool))
    for _ in range(2):
        qkv = by_gemm(n.layer_norm(x, WIDTH), WIDTH, 3 * WIDTH)
        parts = n.node("Split", qkv, n.whole(WIDTH, WIDTH, WIDTH), outputs=3, axis=2)
        query, value = (_heads(n, parts[i], (0, 2, 1, 3)) for i in (0, 2))
        key = _heads(n, parts[1], (0, 2, 3, 1))
        scores = n.node("Div", n.node("MatMul", query, key), n.scalar(np.sqrt(HEAD)))
        ends, begins = cut_size_of(scores, 3), cut_size_of(scores, 2)
        begin = n.node("Unsqueeze", n.node("Sub", ends, begins), n.whole(0))
        end = n.node("Unsqueeze", ends, n.whole(0))
        mask = n.node("Slice", n.weight(causal), begin, end, n.whole(2), n.whole(1))
        mask = n.node("Slice", mask, n.whole(0), end, n.whole(3), n.whole(1))
        masked = n.node("Where", mask, scores, n.scalar(-10000.0))
        weights = n.node("Softmax", masked, axis=-1 if opset >= 13 else 3)
        mixed = n.node("Transpose", n.node("MatMul", weights, value), perm=(0, 2, 1, 3))
        mixed = n.node("Reshape", mixed, n.whole(0, 0, WIDTH))
        x = n.node("Add", x, by_gemm(mixed, WIDTH, WIDTH))
        inner = n.gelu_tanh(by_gemm(n.layer_norm(x, WIDTH), WIDTH, 4 * WIDTH))
        x = n.node("Add", x, by_gemm(inner, 4 * WIDTH, WIDTH))
    head = (n.random.normal(size=(WIDTH, 50)) / np.sqrt(WIDTH)).astype(np.float32)
    logits = n.node("MatMul", n.layer_norm(x, WIDTH), n.weight(head))
    return n.model({logits: ["batch", "length", 50]})


def llama(opset: int = 17) -> Any:
    """A decoder with RMS norms, rotary places, gates and grouped heads: [B, T] -> [B, T, 50]."""
    n = Network("llama", opset)
    tokens = n.input("input_ids", ["batch", "length"], INT64)
    x = n.node("Gather", n.drawn(50, WIDTH, scale=0.5), tokens)
    one = n.weight(np.array(1, np.int64))
    length = n.node("Unsqueeze", n.node("Gather", n.node("Shape", tokens), one, axis=0), n.whole(0))
    angles = np.arange(32)[:, None] * 10000.0 ** (-np.arange(0, HEAD, 2) / HEAD)
    angles = np.concatenate([angles, angles], 1).astype(np.float32)

    def rows(values: Any) -> str:
        table = n.weight(values)
        return n.node("Slice", table, n.whole(0), length, n.whole(0), n.whole(1))

    cosine, sine = rows(np.cos(angles)), rows(np.sin(angles))
    mask = n.weight(np.triu(np.full((32, 32), -1e9, np.float32), 1))
    mask = n.node("Slice", mask, n.whole(0), length, n.whole(0), n.whole(1))
    mask = n.node("Slice", mask, n.whole(0), length, n.whole(1), n.whole(1))

    def turned(v: str) -> str:
        half = n.whole(HEAD // 2)
        first = n.node("Slice", v, n.whole(0), half, n.whole(3), n.whole(1))
        second = n.node("Slice", v, half, n.whole(2**62), n.whole(3), n.whole(1))
        swapped = n.node("Concat", n.node("Neg", second), first, axis=-1)
        return n.node("Add", n.node("Mul", v, cosine), n.node("Mul", swapped, sine))

    def product(v: str, inputs: int, outputs: int) -> str:
        weight = (n.random.normal(size=(inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
        return n.node("MatMul", v, n.weight(weight))

    def split(v: str, heads: int) -> str:
        return n.node(
            "Transpose", n.node("Reshape", v, n.whole(0, 0, heads, HEAD)), perm=(0, 2, 1, 3)
        )

    def repeated(v: str) -> str:
        wide = n.node("Unsqueeze", v, n.whole(2))
        wide = n.node("Expand", wide, n.whole(1, 1, 2, 1, 1))
        batch = n.node("Shape", tokens)
        batch = n.node("Slice", batch, n.whole(0), n.whole(1), n.whole(0), n.whole(1))
        shape = n.node("Concat", batch, n.whole(HEADS), length, n.whole(HEAD), axis=0)
        return n.node("Reshape", wide, shape)

    for _ in range(2):
        normal = n.rms_norm(x, WIDTH)
        query = turned(split(product(normal, WIDTH, WIDTH), HEADS))
        key = repeated(turned(split(product(normal, WIDTH, WIDTH // 2), HEADS // 2)))
        value = repeated(split(product(normal, WIDTH, WIDTH // 2), HEADS // 2))
        scores = n.node("MatMul", query, n.node("Transpose", key, perm=(0, 1, 3, 2)))
        scores = n.node("Add", n.node("Mul", scores, n.scalar(HEAD**-0.5)), mask)
        mixed = n.node("MatMul", n.node("Softmax", scores, axis=-1), value)
        mixed = n.node("Transpose", mixed, perm=(0, 2, 1, 3))
        mixed = n.node("Reshape", mixed, n.whole(0, 0, WIDTH))
        x = n.node("Add", x, product(mixed, WIDTH, WIDTH))
        normal = n.rms_norm(x, WIDTH)
        gate = product(normal, WIDTH, 2 * WIDTH)
        gate = n.node("Mul", gate, n.node("Sigmoid", gate))
        inner = n.node("Mul", gate, product(normal, WIDTH, 2 * WIDTH))
        x = n.node("Add", x, product(inner, 2 * WIDTH, WIDTH))
    logits = product(n.rms_norm(x, WIDTH), WIDTH, 50)
    return n.model({logits: ["batch", "length", 50]})


def recurrent(opset: int = 14) -> Any:
    """An LSTM of two directions inside a branch: rows [5, 2, 16] -> [5, 2, 4]."""
    n = Network("recurrent", opset)
    x = n.input("rows", [5, 2, 16])
    weights = [n.drawn(2, 48, 16, scale=0.25), n.drawn(2, 48, 12, scale=0.25), n.drawn(2, 96)]
    rows = n.node("LSTM", x, *weights, hidden_size=12, direction="bidirectional")
    rows = n.node("Reshape", n.node("Transpose", rows, perm=(0, 2, 1, 3)), n.whole(5, 2, 24))
    last = n.linear(rows, 24, 4)

    def branch(name: str, scale: float) -> Any:
        weight = (n.random.normal(size=(4, 4)) * scale).astype(np.float32)
        product = helper.make_node("MatMul", [last, f"{name}_w"], [f"{name}_y"], name=name)
        info = helper.make_tensor_value_info(f"{name}_y", FLOAT, [5, 2, 4])
        held = [numpy_helper.from_array(weight, f"{name}_w")]
        return helper.make_graph([product], name, [], [info], held)

    total = n.node("ReduceSum", x, keepdims=0)
    positive = n.node("Greater", total, n.scalar(0.0))
    made = n.node("If", positive, then_branch=branch("then", 0.5), else_branch=branch("other", 1.0))
    return n.model({made: [5, 2, 4]})


NETWORKS: Mapping[str, Callable[..., Any]] = {
    each.__name__: each for each in (plain, residual, inverted, bert, gpt, llama, recurrent)
}


def feeds(model: Any, seed: int = 0, *, batch: int = 2) -> dict[str, Array]:
    """Inputs for a network: numbers around 0, tokens, a mask of rows that end early."""
    random = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for port in model.graph.input:
        kind = port.type.tensor_type
        shape = [d.dim_value or (batch if i == 0 else LENGTH) for i, d in enumerate(kind.shape.dim)]
        if kind.elem_type == FLOAT:
            made[port.name] = random.normal(size=shape).astype(np.float32)
        elif kind.elem_type == TensorProto.FLOAT16:
            made[port.name] = random.normal(size=shape).astype(np.float16)
        elif "mask" in port.name:
            mask = np.ones(shape, np.int64)
            mask[-1, LENGTH - 3 :] = 0
            made[port.name] = mask
        else:
            made[port.name] = random.integers(0, 2 if "type" in port.name else 50, shape)
        if kind.elem_type == TensorProto.INT32:
            made[port.name] = made[port.name].astype(np.int32)
    return made
