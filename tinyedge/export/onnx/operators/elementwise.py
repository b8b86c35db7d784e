"""Arithmetic, comparison, logic and rounding, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.tensor import formats, mathematics
from tinyedge.core.tensor.movement import broadcast
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.folding import fuse_into_weights, per_channel
from tinyedge.export.onnx.registry import Node, operator

Binary = Callable[[Node, Tensor, Tensor], Tensor]


def _aligned(function: Binary) -> Binary:
    """Before opset 7, broadcasting was asked for, and the second operand placed at an axis."""

    def call(node: Node, a: Tensor, b: Tensor) -> Tensor:
        if node.opset >= 7 or a.shape == b.shape or node.domain:
            return function(node, a, b)
        if not node.integer("broadcast", 0):
            raise node.invalid(f"{show(a)} and {show(b)} without broadcast=1")
        if node.has("axis"):
            axis = node.axis(0, a.ndim)
            b = b.reshape((*b.shape, *(1,) * (a.ndim - axis - b.ndim)))
        return function(node, a, b)

    return call


@operator("Add")
@_aligned
def add(node: Node, a: Tensor, b: Tensor) -> Tensor:
    for x, constant, name in ((a, b, node.inputs[0]), (b, a, node.inputs[1])):
        shift = per_channel(node, x, constant)
        if shift is not None:
            fused = fuse_into_weights(node, x, name, np.ones(1), shift)
            if fused is not None:
                return fused
    return a + b


@operator("Sub")
@_aligned
def sub(node: Node, a: Tensor, b: Tensor) -> Tensor:
    shift = per_channel(node, a, b)
    if shift is not None:
        fused = fuse_into_weights(node, a, node.inputs[0], np.ones(1), -shift)
        if fused is not None:
            return fused
    return a - b


@operator("Mul")
@_aligned
def mul(node: Node, a: Tensor, b: Tensor) -> Tensor:
    for x, constant, name in ((a, b, node.inputs[0]), (b, a, node.inputs[1])):
        scale = per_channel(node, x, constant)
        if scale is not None:
            fused = fuse_into_weights(node, x, name, scale, np.zeros(1))
            if fused is not None:
                return fused
    return a * b


@operator("Div")
@_aligned
def div(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return a / b


@operator("Mod")
def mod(node: Node, a: Tensor, b: Tensor) -> Tensor:
    if node.integer("fmod", 0):
        return a.fmod(b)
    if a.dtype.is_float and node.opset < 28:
        raise node.invalid("floats need the attribute fmod=1")
    return a % b


@operator("Pow")
@_aligned
def power(node: Node, a: Tensor, b: Tensor) -> Tensor:
    exponent = node.known(b)
    if exponent is not None and exponent.size == 1 and a.dtype.is_float:
        value = float(exponent.reshape(-1)[0])
        shape = broadcast(a, b.cast(a.dtype))[0].shape
        return (a**value).broadcast_to(shape)
    if a.dtype.is_int:
        return _integer_power(node, a, b)
    return a ** b.cast(a.dtype)


def _integer_power(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """By squaring, modulo the type's range; a negative exponent leaves 0, or 1 or -1 of those."""
    if b.dtype.is_float:
        return (a.cast(dt.float64) ** b.cast(dt.float64)).cast(a.dtype)
    exponent = node.known(b)
    bits = b.dtype.bits
    if exponent is not None and exponent.size:
        bits = max(1, max(abs(int(power)) for power in exponent.flat).bit_length())
    base, power = broadcast(a, b.abs().cast(dt.int64))
    result = Tensor.full(base.shape, 1, a.dtype)
    square = base
    for bit in range(bits):
        odd = ((power >> bit) & 1).ne(0)
        result = odd.where(result * square, result)
        square = square * square
    if b.dtype.kind == "u" or (exponent is not None and (not exponent.size or exponent.min() >= 0)):
        return result
    unit = base.eq(1)
    if a.dtype.kind == "i":
        unit = unit | base.eq(-1)
    return ((b < 0) & ~unit).where(Tensor.full(result.shape, 0, a.dtype), result)


@operator("Neg")
def neg(node: Node, x: Tensor) -> Tensor:
    return -x


@operator("Abs")
def absolute(node: Node, x: Tensor) -> Tensor:
    return x.abs()


@operator("Sign")
def sign(node: Node, x: Tensor) -> Tensor:
    return x.sign()


@operator("Reciprocal")
def reciprocal(node: Node, x: Tensor) -> Tensor:
    return 1.0 / x


@operator("Sqrt")
def sqrt(node: Node, x: Tensor) -> Tensor:
    return x.sqrt()


@operator("Exp")
def exp(node: Node, x: Tensor) -> Tensor:
    return x.exp()


@operator("Log")
def log(node: Node, x: Tensor) -> Tensor:
    return x.log()


@operator("Floor")
def floor(node: Node, x: Tensor) -> Tensor:
    return x.floor()


@operator("Ceil")
def ceil(node: Node, x: Tensor) -> Tensor:
    return x.ceil()


@operator("Round")
def round_half_even(node: Node, x: Tensor) -> Tensor:
    return x.round()


@operator("Erf")
def erf(node: Node, x: Tensor) -> Tensor:
    return x.erf()


# Trigonometry and hyperbolic functions.


@operator("Sin")
def sin(node: Node, x: Tensor) -> Tensor:
    return x.sin()


@operator("Cos")
def cos(node: Node, x: Tensor) -> Tensor:
    return x.cos()


@operator("Tan")
def tan(node: Node, x: Tensor) -> Tensor:
    return x.sin() / x.cos()


@operator("Tanh")
def tanh(node: Node, x: Tensor) -> Tensor:
    return x.tanh()


@operator("Sinh")
def sinh(node: Node, x: Tensor) -> Tensor:
    return mathematics.sinh(x)


@operator("Cosh")
def cosh(node: Node, x: Tensor) -> Tensor:
    return mathematics.cosh(x)


@operator("Asinh")
def asinh(node: Node, x: Tensor) -> Tensor:
    return mathematics.asinh(x)


@operator("Acosh")
def acosh(node: Node, x: Tensor) -> Tensor:
    return mathematics.acosh(x)


@operator("Atanh")
def atanh(node: Node, x: Tensor) -> Tensor:
    return mathematics.atanh(x)


@operator("Atan")
def atan(node: Node, x: Tensor) -> Tensor:
    return mathematics.atan(x)


@operator("Asin")
def asin(node: Node, x: Tensor) -> Tensor:
    return mathematics.asin(x)


@operator("Acos")
def acos(node: Node, x: Tensor) -> Tensor:
    return mathematics.acos(x)


# Comparison, logic, bits.


@operator("Equal")
@_aligned
def equal(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return a.eq(b)


@operator("Less")
@_aligned
def less(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return a < b


@operator("LessOrEqual")
def less_or_equal(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return a <= b


@operator("Greater")
@_aligned
def greater(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return a > b


@operator("GreaterOrEqual")
def greater_or_equal(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return a >= b


@operator("Not")
def logical_not(node: Node, x: Tensor) -> Tensor:
    return ~x


@operator("And")
@operator("BitwiseAnd")
@_aligned
def logical_and(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return a & b


@operator("Or")
@operator("BitwiseOr")
@_aligned
def logical_or(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return a | b


@operator("Xor")
@operator("BitwiseXor")
@_aligned
def logical_xor(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return a ^ b


@operator("BitwiseNot")
def bitwise_not(node: Node, x: Tensor) -> Tensor:
    return ~x


@operator("BitShift")
def bit_shift(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """Shifts by a negative amount or by the width or more leave only the sign extension."""
    direction = node.text("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise node.invalid(f"direction {direction!r} is neither LEFT nor RIGHT")
    inside = (b >= 0) & (b < a.dtype.bits)
    amount = inside.where(b, 0)
    shifted = a << amount if direction == "LEFT" else a >> amount
    if direction == "RIGHT" and a.dtype.kind == "i":
        return inside.where(shifted, (a < 0).where(Tensor.full(a.shape, -1, a.dtype), 0))
    return inside.where(shifted, 0)


@operator("IsNaN")
def is_nan(node: Node, x: Tensor) -> Tensor:
    return x.isnan()


@operator("IsInf")
def is_inf(node: Node, x: Tensor) -> Tensor:
    result = Tensor.full(x.shape, False, dt.bool_)
    if node.integer("detect_positive", 1):
        result = result | x.eq(math.inf)
    if node.integer("detect_negative", 1):
        result = result | x.eq(-math.inf)
    return result


@operator("Where")
def where(node: Node, condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return condition.where(yes, no)


@operator("Clip")
def clip(node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """min(max(x, low), high)."""
    if node.opset < 11:
        least, most = node.number("min", -math.inf), node.number("max", math.inf)
        return x.clip(
            least if node.has("min") and least > -math.inf else None,
            most if node.has("max") and most < math.inf else None,
        )
    bounds = [low, high]
    for position, bound in enumerate(bounds):
        if bound is not None and bound.ndim:
            bounds[position] = bound.reshape(())
    return x.clip(*bounds)


# Any number of operands.


def _variadic(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def call(node: Node, *operands: Tensor) -> Tensor:
        return reduce(function, operands)

    return call


operator("Max")(_variadic(Tensor.maximum))
operator("Min")(_variadic(Tensor.minimum))
operator("Sum")(_variadic(Tensor.__add__))


@operator("Mean")
def mean(node: Node, *operands: Tensor) -> Tensor:
    return reduce(Tensor.__add__, operands) / float(len(operands))


# Conversion.


@operator("Cast")
def cast(node: Node, x: Tensor) -> Tensor:
    return _converted(node, x, node.dtype("to", x.dtype))


@operator("CastLike")
def cast_like(node: Node, x: Tensor, like: Tensor) -> Tensor:
    return _converted(node, x, like.dtype)


def _converted(node: Node, x: Tensor, dtype: DType) -> Tensor:
    saturate = bool(node.integer("saturate", 1))
    rounding = node.text("round_mode", "up")
    if rounding not in ("up", "down", "nearest"):
        raise node.invalid(f"round_mode {rounding!r} is not up, down or nearest")
    if dtype is dt.float16 and x.dtype not in (dt.float16, dt.bool_):
        return formats.as_half(x if x.dtype is dt.float64 else x.cast(dt.float32))
    if not dtype.storage_type or dtype is x.dtype:
        return x.cast(dtype)
    return formats.encode(x.cast(x.dtype.computed), dtype, saturate=saturate, rounding=rounding)


@operator("BitCast")
def bit_cast(node: Node, x: Tensor) -> Tensor:
    return x.bitcast(node.dtype("to", x.dtype))
