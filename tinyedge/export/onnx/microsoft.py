"""Operators of the com.microsoft domain that optimised and quantised models contain."""

from __future__ import annotations

from functools import partial
from typing import Any

from tinyedge.core import dtype as dt
from tinyedge.core.rules import functions
from tinyedge.core.tensor import Tensor
from tinyedge.core.uop import product
from tinyedge.export.onnx.convolution import conv_options
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.linear import matmul_integer
from tinyedge.export.onnx.normalisation import centred
from tinyedge.export.onnx.quantised import dequantize_linear, quantize_linear, saturated
from tinyedge.export.onnx.recurrent import Projection, Weights, directions_of, run_lstm
from tinyedge.export.onnx.registry import Node, operator

DOMAIN = "com.microsoft"
operator("QuantizeLinear", domain=DOMAIN)(quantize_linear)
operator("DequantizeLinear", domain=DOMAIN)(dequantize_linear)


@operator("FusedMatMul", domain=DOMAIN, limits="not transBatchA, transBatchB")
def fused_matmul(node: Node, a: Tensor, b: Tensor) -> Tensor:
    if node.integer("transBatchA", 0) or node.integer("transBatchB", 0):
        raise node.unsupported("transBatchA or transBatchB", supported="transA, transB, alpha")
    left = a.transpose() if node.integer("transA", 0) and a.ndim > 1 else a
    right = b.transpose() if node.integer("transB", 0) and b.ndim > 1 else b
    alpha = node.number("alpha", 1.0)
    result = left.matmul(right)
    return result if alpha == 1.0 else result * alpha


# Activations.


@operator("Gelu", domain=DOMAIN)
def gelu(node: Node, x: Tensor) -> Tensor:
    return functions.gelu(x)


@operator("BiasGelu", domain=DOMAIN)
def bias_gelu(node: Node, x: Tensor, bias: Tensor) -> Tensor:
    return gelu(node, x + bias)


@operator("FastGelu", domain=DOMAIN)
def fast_gelu(node: Node, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return functions.gelu_by_tanh(x if bias is None else x + bias)


@operator("QuickGelu", domain=DOMAIN)
def quick_gelu(node: Node, x: Tensor) -> Tensor:
    return x * (x * node.number("alpha", 1.702)).sigmoid()


@operator(
    "FusedConv",
    domain=DOMAIN,
    limits="activations Relu, Sigmoid, Tanh, LeakyRelu, Clip, HardSigmoid",
)
def fused_conv(
    node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None, added: Tensor | None = None
) -> Tensor:
    result = x.conv(weight, bias, **conv_options(node, x, weight))
    if added is not None:
        result = result + added
    name = node.text("activation", "")
    given = node.number_list("activation_params") or []
    if name == "":
        return result
    if name == "Relu":
        return result.relu()
    if name == "Sigmoid":
        return result.sigmoid()
    if name == "Tanh":
        return result.tanh()
    if name == "LeakyRelu" and len(given) == 1:
        return (result < 0).where(result * given[0], result)
    if name == "Clip" and len(given) == 2:
        return result.clip(given[0], given[1])
    if name == "HardSigmoid" and len(given) == 2:
        return (result * given[0] + given[1]).clip(0.0, 1.0)
    raise node.unsupported(f"activation {name!r} with {len(given)} parameters")


# Normalisation.


def _accumulated(*operands: Tensor | None) -> list[Any]:
    """Operands in the type that sums of squares are computed in."""
    return [None if x is None else x.cast(x.dtype.accumulated) for x in operands]


@operator("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_normalization(
    node: Node,
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    shift: Tensor | None = None,
    bias: Tensor | None = None,
) -> list[Tensor]:
    """Results: the normalised sum, its mean, 1 / deviation, and the sum itself."""
    kind = x.dtype
    x, skip, scale, shift, bias = _accumulated(x, skip, scale, shift, bias)
    total = x + skip if bias is None else x + skip + bias
    difference, mean, inverse = centred(total, (total.ndim - 1,), node.number("epsilon", 1e-12))
    result = difference * inverse * scale
    result = result if shift is None else result + shift
    return [result.cast(kind), mean, inverse, total.cast(kind)]


@operator("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_rms_normalization(
    node: Node, x: Tensor, skip: Tensor, scale: Tensor, bias: Tensor | None = None
) -> list[Tensor]:
    kind = x.dtype
    x, skip, scale, bias = _accumulated(x, skip, scale, bias)
    total = x + skip if bias is None else x + skip + bias
    mean = (total * total).mean(-1, keepdims=True)
    inverse = 1.0 / (mean + node.number("epsilon", 1e-12)).sqrt()
    return [(total * inverse * scale).cast(kind), mean, inverse, total.cast(kind)]


# Quantised.


def _real(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    whole = x.cast(dt.int32)
    if zero is not None:
        whole = whole - zero.reshape(()).cast(dt.int32)
    return whole.cast(dt.float32) * scale.reshape(())


def _quantised(x: Tensor, scale: Tensor, zero: Tensor | None, like: Tensor) -> Tensor:
    dtype = like.dtype if zero is None else zero.dtype
    return saturated(x / scale.reshape(()), None if zero is None else zero.reshape(()), dtype)


@operator("QLinearAdd", domain=DOMAIN)
def qlinear_add(
    node: Node,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None = None,
) -> Tensor:
    return _quantised(_real(a, a_scale, a_zero) + _real(b, b_scale, b_zero), scale, zero, a)


@operator("QLinearMul", domain=DOMAIN)
def qlinear_mul(
    node: Node,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None = None,
) -> Tensor:
    return _quantised(_real(a, a_scale, a_zero) * _real(b, b_scale, b_zero), scale, zero, a)


@operator("QLinearSigmoid", domain=DOMAIN)
def qlinear_sigmoid(
    node: Node,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None = None,
) -> Tensor:
    return _quantised(_real(x, x_scale, x_zero).sigmoid(), scale, zero, x)


@operator("QLinearLeakyRelu", domain=DOMAIN)
def qlinear_leaky_relu(
    node: Node,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None = None,
) -> Tensor:
    real = _real(x, x_scale, x_zero)
    alpha = node.number("alpha", 0.01)
    return _quantised((real < 0).where(real * alpha, real), scale, zero, x)


@operator("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(
    node: Node, x: Tensor, x_scale: Tensor, x_zero: Tensor, scale: Tensor, zero: Tensor
) -> Tensor:
    axes = tuple(range(1, x.ndim - 1) if node.integer("channels_last", 0) else range(2, x.ndim))
    whole = x.cast(dt.int32) - x_zero.reshape(()).cast(dt.int32)
    count = Tensor.from_size(product(x.shape[axis] for axis in axes), dt.float32)
    mean = whole.sum(axes, keepdims=True).cast(dt.float32) * x_scale.reshape(()) / count
    return _quantised(mean, scale, zero, x)


@operator("QLinearConcat", domain=DOMAIN)
def qlinear_concat(node: Node, scale: Tensor, zero: Tensor, *operands: Tensor) -> Tensor:
    """operands: tensor, scale and zero point of each part."""
    if not operands or len(operands) % 3:
        raise node.invalid(f"{len(operands)} operands, not three for each part")
    parts = [
        _quantised(_real(*operands[n : n + 3]), scale, zero, operands[n])
        for n in range(0, len(operands), 3)
    ]
    return Tensor.concat(parts, node.axis(0, parts[0].ndim))


@operator("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(
    node: Node,
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    total = matmul_integer(node, a, b, a_zero, b_zero).cast(dt.float32)
    result = total * (a_scale.reshape(()) * (b_scale if b_scale.size != 1 else b_scale.reshape(())))
    return result if bias is None else result + bias


@operator("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(
    node: Node,
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """a is quantised to uint8 over its own range, 0 included."""
    whole, scale, zero = _dynamically_quantised(a)
    return matmul_integer_to_float(node, whole, b, scale, b_scale, zero, b_zero, bias)


def _dynamically_quantised(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x as uint8 over its own range, 0 included; its scale and its zero point, scalars."""
    low, high = x.min().minimum(0.0), x.max().maximum(0.0)
    spread = (high - low) / 255.0
    scale = spread.eq(0.0).where(1.0, spread)
    zero = (0.0 - low / scale).round().clip(0.0, 255.0)
    return saturated(x / scale, zero, dt.uint8), scale, zero.cast(dt.uint8)


@operator("DynamicQuantizeLSTM", domain=DOMAIN)
def dynamic_quantize_lstm(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    lengths: Tensor | None,
    initial: Tensor | None,
    initial_cell: Tensor | None,
    peepholes: Tensor | None,
    w_scale: Tensor,
    w_zero: Tensor,
    r_scale: Tensor,
    r_zero: Tensor,
) -> list[Tensor]:
    """w: [D, I, 4*H], r: [D, H, 4*H]; scales and zero points [D] or [D, 4*H]. x is quantised over
    all steps up to the sequences' lengths, h at every step over the batch.
    """
    directions = directions_of(node)
    hidden = r.shape[1] if r.ndim == 3 else 0
    if not isinstance(hidden, int) or w.ndim != 3 or w.shape[0] != directions:
        raise node.invalid(f"its weights are {show(w)}, {show(r)}")
    if r.shape != (directions, hidden, 4 * hidden) or w.shape[2] != 4 * hidden:
        raise node.invalid(f"its weights are {show(w)}, {show(r)}")

    def projections(weight: Tensor, scale: Tensor, zero: Tensor) -> list[Projection]:
        return [
            partial(dynamic_quantize_matmul, node, b=weight[d], b_scale=scale[d], b_zero=zero[d])
            for d in range(directions)
        ]

    if lengths is not None:
        axis = node.integer("layout", 0)
        step = Tensor.arange(x.shape[axis], dt.int32)
        step = step.reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        ends = lengths.cast(dt.int32).reshape((1, -1, 1) if axis == 0 else (-1, 1, 1))
        x = (step < ends).where(x, 0.0)
    weights = Weights(hidden, projections(w, w_scale, w_zero), projections(r, r_scale, r_zero))
    return run_lstm(node, x, weights, b, lengths, initial, initial_cell, peepholes)
