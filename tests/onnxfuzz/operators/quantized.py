"""Quantization and products of integers."""

from __future__ import annotations

import numpy as np

from tests.onnxfuzz.builder import Builder, Unsuitable
from tests.onnxfuzz.makers import Made, maker
from tests.onnxfuzz.operators.images import picture, window

BYTES = ("uint8", "int8")


def _scale(g: Builder, shape: tuple[int, ...], kind: str = "float32") -> str:
    """Powers of two, so that no rounding depends on the last bit."""
    powers = np.array([0.125, 0.25, 0.5, 1.0, 2.0])
    return g.filled(shape, lambda rng, s: rng.choice(powers, s).astype(kind), True)


def _zero(g: Builder, shape: tuple[int, ...], kind: str) -> str:
    low = 0 if kind.startswith("u") else -5
    return g.filled(shape, lambda rng, s: rng.integers(low, 10, s).astype(kind), True)


def _parameters(g: Builder, x: str) -> tuple[tuple[int, ...], dict]:
    """The shape of scales for a value: one for all, for an axis, for blocks."""
    rank = g.array(x).ndim
    way = g.choice(("all", "axis", "block" if g.opset >= 21 else "axis"))
    if way == "all" or rank == 0:
        return (), {}
    axis = g.axis(x)
    size = g.known(x, axis)
    if way == "axis":
        return (size,), {"axis": axis}
    shape = list(g.shape_of(x))
    if min(shape) == 0:
        raise Unsuitable
    block = g.choice([d for d in range(1, size + 1) if size % d == 0])
    shape[axis] = size // block
    return tuple(shape), {"axis": axis, "block_size": block}


@maker("QuantizeLinear", weight=2)
def quantize(g: Builder, op: str) -> Made:
    x = g.pick(("float32",), 0, 4, when=lambda a: not np.isnan(a).any())
    shape, attributes = _parameters(g, x)
    kind = g.choice((*BYTES, *BYTES, *(("int16", "uint16") if g.opset >= 21 else ())))
    inputs = [x, _scale(g, shape)]
    if kind != "uint8" or g.chance(0.6):
        inputs.append(_zero(g, shape, kind))
    return g.node(op, inputs, **attributes)


@maker("DequantizeLinear", weight=2)
def dequantize(g: Builder, op: str) -> Made:
    kinds = (*BYTES, "int32", *(("int16", "uint16") if g.opset >= 21 else ()))
    x = g.pick(kinds, 0, 4)
    shape, attributes = _parameters(g, x)
    inputs = [x, _scale(g, shape)]
    if g.kind_of(x) != "int32" and g.chance(0.6):
        inputs.append(_zero(g, shape, g.kind_of(x)))
    return g.node(op, inputs, **attributes)


@maker("DynamicQuantizeLinear")
def dynamic(g: Builder, op: str) -> Made:
    x = g.pick(("float32",), 1, 4, least=1, when=lambda a: bool(np.isfinite(a).all() and a.any()))
    return g.node(op, [x], 3)


@maker("MatMulInteger")
def matmul_integer(g: Builder, op: str) -> Made:
    x = g.pick(BYTES, 2, 3)
    kind = g.choice(BYTES)
    y = g.leaf(kind, (g.shape_of(x)[-1], g.integer(1, 5)))
    inputs = [x, y]
    if g.chance(0.7):
        inputs.append(_zero(g, (), g.kind_of(x)))
        if g.chance(0.7):
            inputs.append(_zero(g, g.choice(((), g.shape_of(y)[1:])), kind))
    return g.node(op, inputs)


@maker("ConvInteger")
def conv_integer(g: Builder, op: str) -> Made:
    x = picture(g, ("uint8",), (2,))
    if g.array(x).ndim != 4:
        raise Unsuitable
    chosen = window(g, x)
    w = g.leaf("uint8", (g.integer(1, 3), g.known(x, 1), *chosen["kernel_shape"]))
    inputs = [x, w]
    if g.chance(0.7):
        inputs.append(_zero(g, (), "uint8"))
        if g.chance(0.6):
            inputs.append(_zero(g, (), "uint8"))
    return g.node(op, inputs, **chosen)


@maker("QLinearMatMul")
def qlinear_matmul(g: Builder, op: str) -> Made:
    kind = g.choice(BYTES)
    x = g.pick((kind,), 2, 3)
    columns = g.integer(1, 5)
    y = g.leaf(kind, (g.shape_of(x)[-1], columns))
    shape = g.choice(((), (columns,)))
    sides = [x, _scale(g, ()), _zero(g, (), kind), y, _scale(g, shape), _zero(g, shape, kind)]
    return g.node(op, [*sides, _scale(g, ()), _zero(g, (), kind)])


@maker("QLinearConv")
def qlinear_conv(g: Builder, op: str) -> Made:
    kind = g.choice(BYTES)
    x = picture(g, (kind,), (2,))
    if g.array(x).ndim != 4:
        raise Unsuitable
    chosen = window(g, x)
    outputs = g.integer(1, 3)
    w = g.leaf(kind, (outputs, g.known(x, 1), *chosen["kernel_shape"]))
    scale = g.choice(((), (outputs,)))
    zero = g.constant(np.zeros(scale), kind) if scale else _zero(g, (), kind)
    sides = [x, _scale(g, ()), _zero(g, (), kind), w, _scale(g, scale), zero]
    bias = [g.leaf("int32", (outputs,))] if g.chance(0.5) else []
    return g.node(op, [*sides, _scale(g, ()), _zero(g, (), kind), *bias], **chosen)


@maker("FusedQuantized", weight=1)
def quantized_product(g: Builder, op: str) -> Made:
    """What exporters write: Q and DQ around a product."""
    x = g.pick(("float32",), 2, 3, when=lambda a: not np.isnan(a).any())
    kind = g.choice(BYTES)
    scales = [_scale(g, ()), _zero(g, (), kind)]
    w = g.leaf("int8", (g.shape_of(x)[-1], g.integer(1, 4)), constant=True)
    q = g.node("QuantizeLinear", [x, *scales])
    d = g.node("DequantizeLinear", [q.output[0], *scales])
    e = g.node("DequantizeLinear", [w, _scale(g, ())])
    product = g.node("MatMul", [d.output[0], e.output[0]])
    out = [_scale(g, ()), _zero(g, (), kind)]
    last = g.node("QuantizeLinear", [product.output[0], *out])
    return [q, d, e, product, last, g.node("DequantizeLinear", [last.output[0], *out])]
