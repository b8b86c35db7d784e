"""Quantized operators of com.microsoft: what onnxruntime's quantizer and optimizer write.

Sums of products are exact; what is rounded is rounded once, half to even. Where onnxruntime reads
a table or multiplies by a rounded quotient, its result may be one step beside (docs/deviations.md).
"""

from __future__ import annotations

from functools import partial

from tinyedge.core import dtype as dt
from tinyedge.core.ir.shapes import product
from tinyedge.core.tensor.recurrent import Projection
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.convolution import channels_first, channels_last
from tinyedge.export.onnx.operators.linear import matmul_integer
from tinyedge.export.onnx.operators.microsoft import DOMAIN
from tinyedge.export.onnx.operators.pooling import average_pool, max_pool
from tinyedge.export.onnx.operators.quantized import (
    by_column,
    dequantize_linear,
    qlinear_conv,
    quantize_linear,
    saturated,
)
from tinyedge.export.onnx.operators.recurrent import Weights, directions_of, run_lstm
from tinyedge.export.onnx.registry import Node, operator

operator("QuantizeLinear", domain=DOMAIN)(quantize_linear)
operator("DequantizeLinear", domain=DOMAIN)(dequantize_linear)


def real(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    whole = x.cast(dt.int32)
    if zero is not None:
        whole = whole - zero.reshape(()).cast(dt.int32)
    return whole.cast(dt.float32) * scale.reshape(())


def quantized(x: Tensor, scale: Tensor, zero: Tensor | None, like: Tensor) -> Tensor:
    dtype = like.dtype if zero is None else zero.dtype
    return saturated(x / scale.reshape(()), None if zero is None else zero.reshape(()), dtype)


@operator("QLinearAdd", domain=DOMAIN)
@operator("QLinearMul", domain=DOMAIN)
def qlinear_add_or_multiply(
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
    x, y = real(a, a_scale, a_zero), real(b, b_scale, b_zero)
    return quantized(x + y if node.op == "QLinearAdd" else x * y, scale, zero, a)


@operator("QLinearSigmoid", domain=DOMAIN)
def qlinear_sigmoid(
    node: Node,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None = None,
) -> Tensor:
    return quantized(real(x, x_scale, x_zero).sigmoid(), scale, zero, x)


@operator("QLinearLeakyRelu", domain=DOMAIN)
def qlinear_leaky_relu(
    node: Node,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None = None,
) -> Tensor:
    wide = real(x, x_scale, x_zero)
    alpha = node.number("alpha", 0.01)
    return quantized((wide < 0).where(wide * alpha, wide), scale, zero, x)


@operator("QLinearSoftmax", domain=DOMAIN)
def qlinear_softmax(
    node: Node,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor,
) -> Tensor:
    """opset: of the Softmax; before 13, all axes from `axis` on are normalized together."""
    axis = node.axis(-1, x.ndim)
    axes = (axis,) if node.integer("opset", 13) >= 13 else tuple(range(axis, x.ndim))
    return quantized(real(x, x_scale, x_zero).softmax(axes), scale, zero, x)


@operator("QLinearWhere", domain=DOMAIN)
def qlinear_where(
    node: Node,
    condition: Tensor,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y: Tensor,
    y_scale: Tensor,
    y_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None,
) -> Tensor:
    chosen = condition.where(real(x, x_scale, x_zero), real(y, y_scale, y_zero))
    return quantized(chosen, scale, zero, x)


@operator("QLinearReduceMean", domain=DOMAIN)
def qlinear_reduce_mean(
    node: Node,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None = None,
) -> Tensor:
    given = node.integer_list("axes") or range(x.ndim)
    axes = tuple(node.wrap(axis, x.ndim) for axis in given)
    keep = bool(node.integer("keepdims", 1))
    mean = _mean(x, x_scale, x_zero, axes, keep)
    return quantized(mean, scale, zero, x)


def _mean(
    x: Tensor, scale: Tensor, zero: Tensor | None, axes: tuple[int, ...], keepdims: bool
) -> Tensor:
    """The mean of what integers stand for; their sum is exact."""
    whole = x.cast(dt.int32)
    if zero is not None:
        whole = whole - zero.reshape(()).cast(dt.int32)
    count = Tensor.from_size(product(x.shape[axis] for axis in axes), dt.float32)
    return whole.sum(axes, keepdims=keepdims).cast(dt.float32) * scale.reshape(()) / count


@operator("QLinearAveragePool", domain=DOMAIN)
def qlinear_average_pool(
    node: Node,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None = None,
) -> Tensor:
    last = bool(node.integer("channels_last", 0))
    mean = average_pool(node, real(channels_first(x) if last else x, x_scale, x_zero))
    return quantized(channels_last(mean) if last else mean, scale, zero, x)


@operator("NhwcMaxPool", domain=DOMAIN)
def nhwc_max_pool(node: Node, x: Tensor) -> Tensor:
    return channels_last(max_pool(node, channels_first(x))[0])


@operator("QLinearConv", domain=DOMAIN)
def qlinear_conv_of_either_layout(
    node: Node,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """As QLinearConv of ai.onnx; channels_last: of x and of the result."""
    last = bool(node.integer("channels_last", 0))
    first = channels_first(x) if last else x
    result = qlinear_conv(node, first, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias)
    return channels_last(result) if last else result


@operator("QGemm", domain=DOMAIN)
def qgemm(
    node: Node,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    c: Tensor | None = None,
    scale: Tensor | None = None,
    zero: Tensor | None = None,
) -> Tensor:
    """alpha * A' @ B' + C, of integers; C is in steps of alpha * a_scale * b_scale. Without a scale
    the result is float.
    """
    transposed = bool(node.integer("transB", 0))
    left = a.transpose() if node.integer("transA", 0) else a
    right = b.transpose() if transposed else b
    total = matmul_integer(node, left, right, a_zero.reshape(()), by_column(b_zero))
    if c is not None:
        total = total + c
    factor = node.number("alpha", 1.0) * a_scale.reshape(()) * by_column(b_scale)
    if scale is None:
        return total.cast(dt.float32) * factor
    dtype = a.dtype if zero is None else zero.dtype
    factor = factor / scale.reshape(())
    shift = None if zero is None else zero.reshape(())
    return saturated(total.cast(dt.float32) * factor, shift, dtype)


@operator("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(
    node: Node, x: Tensor, x_scale: Tensor, x_zero: Tensor, scale: Tensor, zero: Tensor
) -> Tensor:
    axes = tuple(range(1, x.ndim - 1) if node.integer("channels_last", 0) else range(2, x.ndim))
    return quantized(_mean(x, x_scale, x_zero, axes, True), scale, zero, x)


@operator("QLinearConcat", domain=DOMAIN)
def qlinear_concat(node: Node, scale: Tensor, zero: Tensor, *operands: Tensor) -> Tensor:
    """operands: tensor, scale and zero point of each part."""
    if not operands or len(operands) % 3:
        raise node.invalid(f"{len(operands)} operands, not three for each part")
    parts = [
        quantized(real(*operands[n : n + 3]), scale, zero, operands[n])
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
    """a is quantized to uint8 over its own range, 0 included."""
    whole, scale, zero = _dynamically_quantized(a)
    return matmul_integer_to_float(node, whole, b, scale, b_scale, zero, b_zero, bias)


def _dynamically_quantized(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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
    """w: [D, I, 4*H], r: [D, H, 4*H]; scales and zero points [D] or [D, 4*H]. x is quantized over
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
