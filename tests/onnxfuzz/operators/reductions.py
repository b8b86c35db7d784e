"""Reductions, running sums and the softmax family."""

from __future__ import annotations

import numpy as np

from tests.onnxfuzz.builder import FLOATS, Builder, Unsuitable
from tests.onnxfuzz.makers import Made, maker

SUMS = (*FLOATS, "int32", "int64", "uint32", "uint64")


def whole(array) -> bool:
    return not (array.dtype.kind == "f" and np.isnan(array).any())


def finite(array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


@maker("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", weight=1.5)
def sums(g: Builder, op: str) -> Made:
    kinds = FLOATS if op in ("ReduceMean", "ReduceL2") else SUMS
    return _reduced(g, op, g.pick(kinds, when=_small))


def _small(array) -> bool:
    """Whether no integer's square overflows: what a sum of those is, nothing says."""
    return array.dtype.kind == "f" or bool((np.abs(array.astype(float)) < 100).all())


@maker("ReduceProd")
def product(g: Builder, op: str) -> Made:
    return _reduced(g, op, g.pick(SUMS, when=lambda a: a.size <= 8 and _small(a)))


@maker("ReduceLogSum", "ReduceLogSumExp")
def logarithms(g: Builder, op: str) -> Made:
    return _reduced(g, op, g.pick(FLOATS))


@maker("ReduceMax", "ReduceMin", weight=1.5)
def extremes(g: Builder, op: str) -> Made:
    kinds = (*SUMS, "int8", "uint8", *(("bool",) if g.opset >= 20 else ()))
    return _reduced(g, op, g.pick(kinds))


def _reduced(g: Builder, op: str, x: str) -> Made:
    keepdims = g.choice((None, 0, 1))
    axes = g.axes(x) if g.array(x).ndim and g.chance(0.8) else None
    if g.opset < (13 if op == "ReduceSum" else 18):
        return g.node(op, [x], axes=axes, keepdims=keepdims)
    noop = g.choice((None, None, 0, 1))
    if axes is None:
        given = g.choice(("", "empty"))
        inputs = [x, g.constant(np.zeros(0))] if given else [x]
        return g.node(op, inputs, keepdims=keepdims, noop_with_empty_axes=noop)
    return g.node(op, [x, g.constant(axes)], keepdims=keepdims, noop_with_empty_axes=noop)


@maker("ArgMax", "ArgMin")
def places(g: Builder, op: str) -> Made:
    x = g.pick((*FLOATS, "int32", "int8", "uint8"), 1, least=1, when=whole)
    last = g.choice((None, 0, 1))
    keepdims = g.choice((None, 0, 1))
    return g.node(op, [x], axis=g.axis(x), keepdims=keepdims, select_last_index=last)


@maker("Softmax", "LogSoftmax", "Hardmax")
def softmax(g: Builder, op: str) -> Made:
    x = g.pick(FLOATS, 1, when=finite if op == "Hardmax" else None)
    return g.node(op, [x], axis=g.axis(x) if g.chance(0.8) else None)


@maker("CumSum", "CumProd")
def running(g: Builder, op: str) -> Made:
    x = g.pick(SUMS, 1, when=_small if op == "CumSum" else lambda a: a.size <= 8 and _small(a))
    axis = g.constant(g.axis(x), g.choice(("int64", "int32")))
    reverse, exclusive = g.choice((None, 0, 1)), g.choice((None, 0, 1))
    return g.node(op, [x, axis], reverse=reverse, exclusive=exclusive)


@maker("Det")
def determinant(g: Builder, op: str) -> Made:
    size = g.integer(1, 4)
    batch = g.shape(0, 2)
    return g.node(op, [g.leaf("float32", (*batch, size, size), "normal")])


@maker("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def losses(g: Builder, op: str) -> Made:
    x = g.pick(("float32",), 2, 4, least=1)
    shape = g.shape_of(x)
    classes = g.known(x, 1)
    if min(shape) == 0:
        raise Unsuitable
    labels = g.filled((shape[0], *shape[2:]), lambda rng, s: rng.integers(0, classes, s))
    inputs = [x, labels]
    if g.chance(0.4):
        inputs.append(g.leaf("float32", (classes,), "positive"))
    ignore = g.choice((None, 0, classes - 1))
    reduction = g.choice((None, "none", "sum", "mean"))
    return g.node(op, inputs, reduction=reduction, ignore_index=ignore)
