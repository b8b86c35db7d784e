"""An ONNX graph in eager torch: node by node, in inference mode. For the networks of this study.

Runs in torch's own environment, see sides.py. Weights are tensors from the start; what is computed
from weights alone is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional as F  # noqa: N812  as everyone calls it

Values = dict[str, Any]


def _padded(x: Any, pads: list[int], fill: float = 0.0) -> tuple[Any, list[int]]:
    """What torch takes as padding; padded here where the two ends differ."""
    half = len(pads) // 2
    if pads[:half] == pads[half:]:
        return x, pads[:half]
    ends = [size for pair in zip(pads[:half], pads[half:], strict=True) for size in pair[::-1]]
    return F.pad(x, ends[::-1], value=fill), [0] * half


def _conv(x: Any, w: Any, b: Any = None, **a: Any) -> Any:
    rank = w.dim() - 2
    x, pads = _padded(x, a.get("pads", [0] * 2 * rank))
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]
    more = (a.get("strides", 1), pads, a.get("dilations", 1), a.get("group", 1))
    return function(x, w, b, *more)


def _conv_transpose(x: Any, w: Any, b: Any = None, **a: Any) -> Any:
    pads = a.get("pads", [0, 0, 0, 0])
    if pads[:2] != pads[2:]:
        raise NotImplementedError("ConvTranspose with different pads at the two ends")
    return F.conv_transpose2d(x, w, b, a.get("strides", 1), pads[:2], groups=a.get("group", 1))


def _gemm(a: Any, b: Any, c: Any = None, **o: Any) -> Any:
    if (o.get("alpha", 1.0), o.get("beta", 1.0), o.get("transA", 0)) != (1.0, 1.0, 0):
        raise NotImplementedError("Gemm with alpha, beta or transA")
    return F.linear(a, b if o.get("transB") else b.T, c)


def _pool(function: Callable[..., Any], fill: float) -> Callable[..., Any]:
    def pool(x: Any, **a: Any) -> Any:
        x, pads = _padded(x, a.get("pads", [0, 0, 0, 0]), fill)
        return function(x, a["kernel_shape"], a.get("strides", 1), pads)

    return pool


def _resize(x: Any, *sizes: Any, **a: Any) -> Any:
    if a.get("mode", "nearest") != "nearest" or sizes[1].numel() != x.dim():
        raise NotImplementedError("Resize of another mode than nearest, or by sizes")
    return F.interpolate(x, scale_factor=sizes[1].tolist()[2:], mode="nearest")


def _reshape(x: Any, shape: Any) -> Any:
    sizes = shape.tolist()
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(sizes)])


def _slice(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        axis = number if axes is None else int(axes[number])
        step = 1 if steps is None else int(steps[number])
        if step < 1:
            raise NotImplementedError("Slice backwards")
        x = x[(slice(None),) * (axis % x.dim()) + (slice(start, end, step),)]
    return x


def _split(x: Any, sizes: Any = None, **a: Any) -> Any:
    axis = a.get("axis", 0)
    if sizes is None:
        return x.chunk(a["num_outputs"], axis)
    return x.split(sizes.tolist(), axis)


def _norm(x: Any, scale: Any, shift: Any, mean: Any, variance: Any, **a: Any) -> Any:
    return F.batch_norm(x, mean, variance, scale, shift, False, 0.0, a.get("epsilon", 1e-5))


def _clip(x: Any, low: Any = None, high: Any = None) -> Any:
    return torch.clamp(x, low, high)


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Any, axes: Any = None, **a: Any) -> Any:
        named = a.get("axes") if axes is None else axes.tolist()
        return function(x, named or list(range(x.dim())), bool(a.get("keepdims", 1)))

    return reduce


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Add": torch.add,
    "Attention": F.scaled_dot_product_attention,
    "AveragePool": _pool(F.avg_pool2d, 0.0),
    "BatchNormalization": _norm,
    "Cast": lambda x, to: x.to(_type(to)),
    "Clip": _clip,
    "Concat": lambda *x, axis: torch.cat(x, axis),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": torch.div,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Flatten": lambda x, axis=1: x.flatten(axis),
    "Gather": lambda x, at, axis=0: x[(slice(None),) * (axis % x.dim()) + (at,)],
    "Gelu": lambda x, approximate="none": F.gelu(x, approximate=approximate),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: torch.clamp(x * alpha + beta, 0, 1),
    "HardSwish": F.hardswish,
    "Identity": torch.clone,
    "LayerNormalization": lambda x, scale, shift, axis=-1, epsilon=1e-5: F.layer_norm(
        x, scale.shape, scale, shift, epsilon
    ),
    "LeakyRelu": lambda x, alpha=0.01: F.leaky_relu(x, alpha),
    "MatMul": torch.matmul,
    "MaxPool": _pool(F.max_pool2d, float("-inf")),
    "Mul": torch.mul,
    "PRelu": lambda x, slope: torch.where(x < 0, x * slope, x),
    "Pow": torch.pow,
    "Reciprocal": torch.reciprocal,
    "ReduceMean": _reduce(torch.mean),
    "ReduceSum": _reduce(torch.sum),
    "Relu": torch.relu,
    "Reshape": _reshape,
    "Resize": _resize,
    "Sigmoid": torch.sigmoid,
    "Slice": _slice,
    "Softmax": lambda x, axis=-1: torch.softmax(x, axis),
    "Split": _split,
    "Sqrt": torch.sqrt,
    "Squeeze": lambda x, axes: x.squeeze(axes.tolist()),
    "Sub": torch.sub,
    "Tanh": torch.tanh,
    "Transpose": lambda x, perm: x.permute(perm),
    "Unsqueeze": lambda x, axes: _unsqueezed(x, axes.tolist()),
    "Where": torch.where,
}


def _type(number: int) -> Any:
    """torch's name of an element type of ONNX."""
    return torch.from_numpy(np.zeros(0, helper.tensor_dtype_to_np_dtype(number))).dtype


def _unsqueezed(x: Any, axes: list[int]) -> Any:
    for axis in sorted(axes):
        x = x.unsqueeze(axis)
    return x


class TorchGraph:
    """A model that `run` computes. Raises NotImplementedError for what is not above."""

    def __init__(self, model: Path) -> None:
        graph = onnx.load(model).graph
        self._fixed: Values = {"": None}
        for tensor in graph.initializer:
            self._fixed[tensor.name] = torch.from_numpy(numpy_helper.to_array(tensor).copy())
        self._outputs = [port.name for port in graph.output]
        self._steps = []
        with torch.inference_mode():
            for node in graph.node:
                self._add(node)

    def _add(self, node: Any) -> None:
        """As a step, or at once where all that it reads is fixed."""
        attributes = {a.name: _value(a) for a in node.attribute}
        if node.op_type == "Constant":
            self._fixed[node.output[0]] = attributes["value"]
            return
        if node.op_type not in OPERATORS:
            raise NotImplementedError(f"operator {node.op_type}")
        inputs = list(node.input)
        while not inputs[-1]:
            inputs.pop()
        attributes.pop("auto_pad", None)
        step = (OPERATORS[node.op_type], inputs, attributes, list(node.output))
        if all(name in self._fixed for name in inputs):
            _take(step, self._fixed)
        else:
            self._steps.append(step)

    def run(self, given: Values) -> Values:
        values = {**self._fixed, **given}
        with torch.inference_mode():
            for step in self._steps:
                _take(step, values)
        return {name: values[name] for name in self._outputs}


def _value(attribute: Any) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return torch.from_numpy(numpy_helper.to_array(value).copy())
    if isinstance(value, bytes):
        return value.decode()
    return value


def _take(step: tuple[Any, list[str], Values, list[str]], values: Values) -> None:
    function, inputs, attributes, outputs = step
    result = function(*(values[name] for name in inputs), **attributes)
    if len(outputs) == 1:
        values[outputs[0]] = result
    else:
        values.update(zip(outputs, result, strict=True))
