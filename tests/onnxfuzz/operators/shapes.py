"""Shapes as values: what models compute before a Reshape or an Expand."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.onnxfuzz.builder import ALL, Builder, Unsuitable
from tests.onnxfuzz.makers import Made, maker


@maker("Shape")
def shape(g: Builder, op: str) -> Made:
    x = g.pick(ALL)
    if g.opset < 15:
        return g.node(op, [x])
    ends = [None if g.chance(0.4) else g.integer(-3, 3) for _ in range(2)]
    return g.node(op, [x], start=ends[0], end=ends[1])


@maker("Size")
def size(g: Builder, op: str) -> Made:
    return g.node(op, [g.pick(ALL)])


@maker("ConstantOfShape")
def constant_of_shape(g: Builder, op: str) -> Made:
    kind = g.kind(ALL)
    value = helper.make_tensor(
        "v", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), [1], [g.integer(0, 1)]
    )
    wanted = g.constant(np.array(g.shape(0, 3), np.int64).reshape(-1))
    return g.node(op, [wanted], value=value if g.chance(0.8) else None)


@maker("ReshapeOfShape", weight=2)
def reshape_of_shape(g: Builder, op: str) -> Made:
    """x.reshape(x.shape[a], -1), by Shape, Gather, Unsqueeze and Concat."""
    x = g.pick(ALL, 1, least=1)
    if g.array(x).size == 0:
        raise Unsuitable
    axis = g.integer(0, g.array(x).ndim - 1)
    whole = g.node("Shape", [x])
    if g.chance(0.5):
        part = g.node("Gather", [whole.output[0], g.constant(axis)], axis=0)
        column = g.node("Unsqueeze", [part.output[0], g.constant([0])])
        middle = [part, column]
    else:
        column = g.node("Slice", [whole.output[0], g.constant([axis]), g.constant([axis + 1])])
        middle = [column]
    pieces = [column.output[0], g.constant([-1])]
    g.random.shuffle(pieces)
    joined = g.node("Concat", pieces, axis=0)
    return [whole, *middle, joined, g.node("Reshape", [x, joined.output[0]])]


@maker("HalvedShape", weight=1.5)
def halved(g: Builder, op: str) -> Made:
    """x[: shape[a] // 2], as exporters write chunks."""
    x = g.pick(ALL, 1, least=2)
    axis = g.integer(0, g.array(x).ndim - 1)
    whole = g.node("Shape", [x])
    part = g.node("Gather", [whole.output[0], g.constant([axis])], axis=0)
    half = g.node("Div", [part.output[0], g.constant([2])])
    ends = [g.constant([0]), half.output[0]]
    if g.chance(0.5):
        ends = [half.output[0], part.output[0]]
    return [whole, part, half, g.node("Slice", [x, *ends, g.constant([axis])])]


@maker("ExpandOfShape", weight=1.5)
def expand_of_shape(g: Builder, op: str) -> Made:
    """A row or a number for each element of another."""
    x = g.pick(ALL, 1)
    whole = g.node("Shape", [x])
    if g.chance(0.3):
        return [whole, g.node("ConstantOfShape", [whole.output[0]])]
    y = g.leaf(g.kind(ALL), tuple(1 if g.chance(0.5) else n for n in g.shape_of(x)))
    return [whole, g.node("Expand", [y, whole.output[0]])]


@maker("RangeOfSize", weight=1.5)
def range_of_size(g: Builder, op: str) -> Made:
    """0, 1, ... below the size of an axis: positions."""
    x = g.pick(ALL, 1)
    whole = g.node("Shape", [x])
    part = g.node("Gather", [whole.output[0], g.constant(g.axis(x))], axis=0)
    made = g.node("Range", [g.constant(0), part.output[0], g.constant(1)])
    if g.chance(0.5):
        return [whole, part, made]
    return [whole, part, made, g.node("Cast", [made.output[0]], to=1)]
