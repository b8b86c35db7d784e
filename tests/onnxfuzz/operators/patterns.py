"""Several nodes that belong together: what one kernel computes, and what exporters write."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from tests.onnxfuzz.builder import Builder
from tests.onnxfuzz.makers import Made, maker
from tests.onnxfuzz.operators.quantized import BYTES, _scale, _zero

LONGEST = 24  # steps of a chain


def _number(g: Builder, low: int = -8, high: int = 8) -> str:
    """A constant of few digits."""
    return g.constant(g.integer(low, high) / 4, "float32")


def _link(g: Builder, x: str) -> list[Any]:
    """One more step of a chain of float32, exact for numbers of few digits."""
    op = g.choice(
        ("Clip", "Clip", "Max", "Min", "Cast", "Relu", "Abs", "Neg", "Mul", "Add", "Where")
    )
    if op == "Clip":
        return [g.node(op, [x, _number(g, -12, -1), _number(g, 1, 12)])]
    if op in ("Max", "Min", "Add"):
        return [g.node(op, [x, _number(g)])]
    if op == "Mul":
        return [g.node(op, [x, g.constant(g.choice((0.5, -1.0, 2.0)), "float32")])]
    if op == "Cast":
        whole = g.node(op, [x], to=g.choice((TensorProto.INT32, TensorProto.INT64)))
        return [whole, g.node(op, [whole.output[0]], to=TensorProto.FLOAT)]
    if op == "Where":
        above = g.node("Greater", [x, _number(g)])
        return [above, g.node(op, [above.output[0], x, _number(g)])]
    return [g.node(op, [x])]


@maker("ElementwiseChain", weight=1.5)
def chain(g: Builder, op: str) -> Made:
    """Elementwise steps one after the other, which become one kernel."""
    x = g.pick(("float32",), 0, 4, when=lambda a: bool(np.isfinite(a).all()), style="plain")
    nodes: list[Any] = []
    for _ in range(g.integer(4, LONGEST)):
        nodes += _link(g, nodes[-1].output[0] if nodes else x)
    return nodes


@maker("QuantizedChain")
def quantized_chain(g: Builder, op: str) -> Made:
    """Q and DQ around every step, as static quantization writes them; some steps add the input."""
    x = g.pick(("float32",), 1, 4, when=lambda a: bool(np.isfinite(a).all()), style="plain")
    nodes: list[Any] = []
    last = x
    for _ in range(g.integer(2, 8)):
        parameters = [_scale(g, ()), _zero(g, (), g.choice(BYTES))]
        nodes.append(g.node("QuantizeLinear", [last, *parameters]))
        nodes.append(g.node("DequantizeLinear", [nodes[-1].output[0], *parameters]))
        last = nodes[-1].output[0]
        if g.chance(0.6):
            nodes += [g.node("Add", [last, x])] if g.chance(0.5) else _link(g, last)
            last = nodes[-1].output[0]
    return nodes


@maker("LargeHalves")
def large_halves(g: Builder, op: str) -> Made:
    """A normalization in parts, of halves whose squares no half can hold."""
    shape = g.shape(1, 3, least=2)
    spread = g.choice((1.0, 80.0, 800.0))
    x = g.filled(shape, lambda rng, s: (rng.standard_normal(s) * spread).astype(np.float16), False)
    axis = g.constant([-1])
    axes = [axis] if g.opset >= 18 else []
    given = {} if axes else {"axes": [-1]}
    mean = g.node("ReduceMean", [x, *axes], **given)
    apart = g.node("Sub", [x, mean.output[0]])
    two = g.constant(2)  # whole: a power of a negative number is moved by no rounding of it
    square = g.node("Pow", [apart.output[0], two])
    variance = g.node("ReduceMean", [square.output[0], *axes], **given)
    more = g.node("Add", [variance.output[0], g.constant(0.5, "float16")])
    root = g.node("Sqrt", [more.output[0]])
    g.widen()
    return [
        mean,
        apart,
        square,
        variance,
        more,
        root,
        g.node("Div", [apart.output[0], root.output[0]]),
    ]


@maker("MaskedAssignment")
def masked_assignment(g: Builder, op: str) -> Made:
    """x[mask] = v, as exporters write it: the number of elements is counted twice."""
    x = g.pick(("float32", "int64"), 1, 3)
    kind = g.kind_of(x)
    mask = g.leaf("bool", g.shape_of(x), constant=False)
    places = g.node("NonZero", [mask])
    index = g.node("Transpose", [places.output[0]])
    ones = g.node("Cast", [mask], to=g.choice((TensorProto.INT64, TensorProto.INT32)))
    total = g.node("ReduceSum", [ones.output[0]], keepdims=0)
    wide = g.node("Cast", [total.output[0]], to=TensorProto.INT64)
    count = g.node("Reshape", [wide.output[0], g.constant([1])])
    values = g.node("Expand", [g.leaf(kind, (), "plain"), count.output[0]])
    written = g.node("ScatterND", [x, index.output[0], values.output[0]])
    return [places, index, ones, total, wide, count, values, written]
