"""An ONNX graph in eager torch: node by node, in inference mode. For the networks of this study.

Runs in torch's own environment, see sides.py. Weights are tensors from the start; what is computed
from weights alone is computed once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional as F  # noqa: N812  as everyone calls it

Values = dict[str, Any]


def _whole(value: Any) -> list[int]:
    """Numbers that are an attribute in older opsets and an input in newer ones."""
    return [int(v) for v in (value.tolist() if isinstance(value, torch.Tensor) else value)]


def _same(size: int, kernel: int, stride: int, lower: bool) -> tuple[int, int]:
    """What SAME adds before and behind an axis."""
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return ((total + 1) // 2, total // 2) if lower else (total // 2, (total + 1) // 2)


def _padded(
    x: Any,
    kernel: list[int],
    strides: list[int],
    pads: list[int] | None,
    auto_pad: str,
    fill: float = 0.0,
) -> tuple[Any, list[int]]:
    """What torch takes as padding; padded here where the two ends differ."""
    rank = len(kernel)
    if auto_pad.startswith("SAME"):
        lower = auto_pad == "SAME_LOWER"
        given = zip(x.shape[2:], kernel, strides, strict=True)
        ends = [_same(*sizes, lower) for sizes in given]
    else:
        pads = pads or [0] * 2 * rank
        ends = list(zip(pads[:rank], pads[rank:], strict=True))
    if all(before == behind for before, behind in ends):
        return x, [before for before, _ in ends]
    flat = [size for pair in reversed(ends) for size in pair]
    return F.pad(x, flat, value=fill), [0] * rank


def _conv(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    kernel_shape: Any = None,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
) -> Any:
    kernel = list(w.shape[2:])
    strides, dilations = strides or [1] * len(kernel), dilations or [1] * len(kernel)
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    x, border = _padded(x, reach, strides, pads, auto_pad)
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(kernel)]
    return function(x, w, b, strides, border, dilations, group)


def _conv_transpose(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    kernel_shape: Any = None,
    strides: Any = (1, 1),
    pads: Any = (0, 0, 0, 0),
    dilations: Any = (1, 1),
    group: int = 1,
) -> Any:
    if list(pads[:2]) != list(pads[2:]):
        raise NotImplementedError("ConvTranspose with different pads at the two ends")
    return F.conv_transpose2d(x, w, b, strides, pads[:2], 0, group, dilations)


def _gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    if (alpha, beta, transA) != (1.0, 1.0, 0):
        raise NotImplementedError("Gemm with alpha, beta or transA")
    return F.linear(a, b if transB else b.T, c)


def _pooled(
    function: Callable[..., Any],
    x: Any,
    fill: float,
    kernel_shape: Any,
    strides: Any,
    pads: Any,
    auto_pad: str,
    more: Mapping[str, Any],
) -> Any:
    strides = strides or [1] * len(kernel_shape)
    x, border = _padded(x, kernel_shape, strides, pads, auto_pad, fill)
    return function(x, kernel_shape, strides, border, **more)


def _max_pool(
    x: Any,
    *,
    kernel_shape: Any,
    strides: Any = None,
    pads: Any = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    storage_order: int = 0,
) -> Any:
    if set(dilations or [1]) != {1}:
        raise NotImplementedError("MaxPool with dilations")
    more = {"ceil_mode": bool(ceil_mode)}
    low = float("-inf")
    return _pooled(F.max_pool2d, x, low, kernel_shape, strides, pads, auto_pad, more)


def _average_pool(
    x: Any,
    *,
    kernel_shape: Any,
    strides: Any = None,
    pads: Any = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> Any:
    more = {"ceil_mode": bool(ceil_mode), "count_include_pad": bool(count_include_pad)}

    def average(image: Any) -> Any:
        return _pooled(F.avg_pool2d, image, 0.0, kernel_shape, strides, pads, auto_pad, more)

    if count_include_pad:
        return average(x)
    # where the two ends differ zeros are among what is averaged: the share of the rest is that of
    # ones
    return average(x) / average(torch.ones_like(x[:1, :1]))


def _resize(
    x: Any,
    roi: Any,
    scales: Any,
    sizes: Any = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
) -> Any:
    how = (mode, coordinate_transformation_mode, nearest_mode)
    if how != ("nearest", "asymmetric", "floor") or scales is None or not scales.numel():
        raise NotImplementedError(f"Resize of {', '.join(how)}, or by sizes")
    return F.interpolate(x, scale_factor=scales.tolist()[2:], mode="nearest")


def _reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    sizes = _whole(shape)
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(sizes)])


def _slice(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    for number, (start, end) in enumerate(zip(_whole(starts), _whole(ends), strict=True)):
        axis = number if axes is None else int(axes[number])
        step = 1 if steps is None else int(steps[number])
        if step < 1:
            raise NotImplementedError("Slice backwards")
        x = x[(slice(None),) * (axis % x.dim()) + (slice(start, end, step),)]
    return x


def _split(
    x: Any, sizes: Any = None, *, axis: int = 0, split: Any = None, num_outputs: int = 0
) -> Any:
    given = split if sizes is None else sizes
    return x.chunk(num_outputs, axis) if given is None else x.split(_whole(given), axis)


def _batch_norm(
    x: Any,
    scale: Any,
    shift: Any,
    mean: Any,
    variance: Any,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
) -> Any:
    return F.batch_norm(x, mean, variance, scale, shift, False, 0.0, epsilon)


def _clip(x: Any, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Any:
    return torch.clamp(x, min if low is None else low, max if high is None else high)


def _divided(a: Any, b: Any) -> Any:
    return torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc")


def _gathered(x: Any, at: Any, *, axis: int = 0) -> Any:
    return x[(slice(None),) * (axis % x.dim()) + (at,)]


def _layer_norm(
    x: Any, scale: Any, shift: Any = None, *, axis: int = -1, epsilon: float = 1e-5
) -> Any:
    return F.layer_norm(x, x.shape[axis:], scale, shift, epsilon)


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Any, given: Any = None, *, axes: Any = None, keepdims: int = 1) -> Any:
        named = axes if given is None else _whole(given)
        return function(x, named or list(range(x.dim())), bool(keepdims))

    return reduce


def _softmax(x: Any, *, axis: int = -1) -> Any:
    return torch.softmax(x, axis)


def _old_softmax(x: Any, *, axis: int = 1) -> Any:
    """Before opset 13 over all axes from `axis` on."""
    return torch.softmax(x.flatten(axis), -1).reshape(x.shape)


def _squeezed(x: Any, given: Any = None, *, axes: Any = None) -> Any:
    named = axes if given is None else _whole(given)
    return x.squeeze() if named is None else x.squeeze(named)


def _unsqueezed(x: Any, given: Any = None, *, axes: Any = None) -> Any:
    named = _whole(axes if given is None else given)
    rank = x.dim() + len(named)
    for axis in sorted(axis % rank for axis in named):
        x = x.unsqueeze(axis)
    return x


def _type(number: int) -> Any:
    """torch's name of an element type of ONNX."""
    return torch.from_numpy(np.zeros(0, helper.tensor_dtype_to_np_dtype(number))).dtype


def _filled(shape: Any, *, value: Any = None) -> Any:
    fill = torch.zeros(1) if value is None else value
    return fill.reshape([1] * len(shape)).expand(_whole(shape))


def _expanded(x: Any, shape: Any) -> Any:
    return x.expand(torch.broadcast_shapes(x.shape, _whole(shape)))


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Add": torch.add,
    "Attention": F.scaled_dot_product_attention,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": lambda x, to: x.to(_type(to)),
    "Clip": _clip,
    "Concat": lambda *x, axis: torch.cat(x, axis),
    "ConstantOfShape": _filled,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": _divided,
    "Dropout": lambda x, *_, ratio=0.5: x,
    "Elu": lambda x, alpha=1.0: F.elu(x, alpha),
    "Equal": torch.eq,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Expand": _expanded,
    "Flatten": lambda x, axis=1: x.flatten(axis),
    "Gather": _gathered,
    "Gelu": lambda x, approximate="none": F.gelu(x, approximate=approximate),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: torch.clamp(x * alpha + beta, 0, 1),
    "HardSwish": F.hardswish,
    "Identity": torch.clone,
    "LRN": lambda x, size, alpha=1e-4, beta=0.75, bias=1.0: F.local_response_norm(
        x, size, alpha, beta, bias
    ),
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda x, alpha=0.01: F.leaky_relu(x, alpha),
    "MatMul": torch.matmul,
    "Max": lambda *x: functools.reduce(torch.maximum, x),
    "MaxPool": _max_pool,
    "Mul": torch.mul,
    "PRelu": lambda x, slope: torch.where(x < 0, x * slope, x),
    "Pow": torch.pow,
    "Reciprocal": torch.reciprocal,
    "ReduceMax": _reduced(torch.amax),
    "ReduceMean": _reduced(torch.mean),
    "ReduceSum": _reduced(torch.sum),
    "Relu": torch.relu,
    "Reshape": _reshape,
    "Resize": _resize,
    "Shape": lambda x: torch.tensor(x.shape),
    "Sigmoid": torch.sigmoid,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Sqrt": torch.sqrt,
    "Squeeze": _squeezed,
    "Sub": torch.sub,
    "Sum": lambda *x: sum(x[1:], x[0]),
    "Tanh": torch.tanh,
    "Transpose": lambda x, perm: x.permute(perm),
    "Unsqueeze": _unsqueezed,
    "Where": torch.where,
}


class TorchGraph:
    """A model that `run` computes. Raises NotImplementedError for what is not above."""

    def __init__(self, model: Path) -> None:
        loaded = onnx.load(model)
        graph = loaded.graph
        self._opset = {each.domain: each.version for each in loaded.opset_import}.get("", 1)
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
        function = OPERATORS[node.op_type]
        if node.op_type == "Softmax" and self._opset < 13:
            function = _old_softmax
        outputs = [name for name in node.output if name]
        step = (function, inputs, attributes, outputs)
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
    if isinstance(result, torch.Tensor):
        values[outputs[0]] = result  # others are optional: Dropout's mask
    else:
        values.update(zip(outputs, result, strict=True))
