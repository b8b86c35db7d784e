"""Quantized operators: integers inside, rounded to even and saturated."""

from __future__ import annotations

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.tensor import formats
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.convolution import conv_options
from tinyedge.export.onnx.operators.movement import cut
from tinyedge.export.onnx.reader import element_type
from tinyedge.export.onnx.registry import Node, operator


def _spread(node: Node, parameter: Tensor, x: Tensor) -> Tensor:
    """A scale or zero point per tensor, per axis or per block, broadcastable to x."""
    if parameter.ndim == 0 or (parameter.ndim == 1 and parameter.shape[0] == 1):
        return parameter.reshape(())
    axis = node.axis(1, x.ndim)
    block = node.integer("block_size", 0)
    if parameter.ndim == 1 and not (block and x.ndim == 1):
        return parameter.reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    length = x.shape[axis]
    if block < 1 or parameter.ndim != x.ndim or not isinstance(length, int):
        raise node.invalid(f"block_size {block} with {show(parameter)} for {show(x)}")
    wide = parameter.unsqueeze(axis + 1)
    wide = wide.expand([block if a == axis + 1 else s for a, s in enumerate(wide.shape)])
    return cut(wide.flatten(axis, axis + 2), axis, 0, length)


def saturated(x: Tensor, zero: Tensor | None, dtype: DType, *, saturate: bool = True) -> Tensor:
    """Rounded half to even, shifted by the zero point, limited to the type.

    Raises TypeError for types that are neither of integers nor of few bits.
    """
    if not dtype.is_int and not dtype.storage_type:
        raise TypeError(f"numbers cannot be quantized to {dtype}")
    if dtype.is_float:
        shifted = x if zero is None else x + zero.cast(x.dtype)
        return formats.encode(shifted, dtype, saturate=saturate)
    whole = x.round()
    if whole.dtype.bits == 16:
        whole = whole.cast(dt.float32)
    if zero is not None:
        whole = whole + zero.cast(whole.dtype)
    if dtype.storage_type:  # a cast to these keeps the low bits, one to others saturates
        low, high = dtype.limits
        whole = whole.clip(float(low), float(high))
    return whole.cast(dtype)


@operator("QuantizeLinear")
def quantize_linear(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    dtype = dt.uint8 if zero is None else zero.dtype
    if zero is None and node.integer("output_dtype", 0):
        dtype = element_type(node.integer("output_dtype", 0), node.label)
    kind = node.dtype("precision", scale.dtype if node.opset >= 23 else x.dtype)
    if not kind.is_float:
        kind = scale.dtype
    if kind is dt.float8_e8m0fnu:
        kind = x.dtype if x.dtype.is_float else dt.float32
    quotient = x.cast(kind) / _spread(node, scale, x).cast(kind)
    spread = None if zero is None or _is_zero(node, zero) else _spread(node, zero, x)
    return saturated(quotient, spread, dtype, saturate=bool(node.integer("saturate", 1)))


def _is_zero(node: Node, zero: Tensor) -> bool:
    """Whether a zero point is known to be 0, as those of floats are."""
    value = node.known(zero)
    return value is not None and not value.any()


@operator("DequantizeLinear")
def dequantize_linear(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    whole = x.cast(dt.float32 if x.dtype.is_float else dt.int32)
    if zero is not None and not _is_zero(node, zero):
        whole = whole - _spread(node, zero, x).cast(whole.dtype)
    kind = node.dtype("output_dtype", scale.dtype)
    if kind is dt.float8_e8m0fnu:
        kind = dt.float32
    wide = dt.float32 if kind.bits == 16 else kind
    return (whole.cast(wide) * _spread(node, scale, x).cast(wide)).cast(kind)


def _shifted(x: Tensor, zero: Tensor) -> Tensor:
    """x - zero point, in int32, or in float32 where x is of a float type."""
    whole = x.cast(x.dtype.computed if x.dtype.is_float else dt.int32)
    return whole - zero.cast(whole.dtype)


def _by_row(parameter: Tensor) -> Tensor:
    """Of the first operand of a product: one for all, or one a row."""
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter.unsqueeze(1) if parameter.ndim == 1 else parameter


def by_column(parameter: Tensor) -> Tensor:
    """Of the second operand: one for all, or one a column."""
    return parameter.reshape(()) if parameter.size == 1 else parameter


@operator("QLinearMatMul")
def qlinear_matmul(
    node: Node,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    total = _shifted(a, _by_row(a_zero)).matmul(_shifted(b, by_column(b_zero)))
    factor = _by_row(a_scale).cast(dt.float32) * by_column(b_scale).cast(dt.float32)
    factor = factor / y_scale.reshape(()).cast(dt.float32)
    return saturated(total.cast(dt.float32) * factor, y_zero.reshape(()), y_zero.dtype)


@operator("QLinearConv")
def qlinear_conv(
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
    options = conv_options(node, x, w)
    filters = (-1,) + (1,) * (w.ndim - 1)
    zero = w_zero.reshape(filters if w_zero.size != 1 else ())
    total = _shifted(x, x_zero.reshape(())).conv(_shifted(w, zero), bias, **options)
    scale = w_scale.reshape(filters[:-1] if w_scale.size != 1 else ())
    factor = x_scale.reshape(()) * scale / y_scale.reshape(())
    return saturated(total.cast(dt.float32) * factor, y_zero.reshape(()), y_zero.dtype)
