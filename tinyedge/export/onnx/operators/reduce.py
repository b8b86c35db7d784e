"""Reductions along axes, and operators made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyedge.core import dtype as dt
from tinyedge.core.tensor.prefix import cumulative_product, cumulative_sum
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.registry import Node, operator


def reduced_axes(node: Node, x: Tensor, axes: Tensor | None) -> tuple[int, ...]:
    """The axes of a reduction, from attribute or input; none given means all, or none at all."""
    chosen = node.listed("axes", axes)
    if not chosen:
        return () if node.integer("noop_with_empty_axes", 0) else tuple(range(x.ndim))
    return tuple(sorted({node.wrap(axis, x.ndim) for axis in chosen}))


def _reduction(function: Callable[[Node, Tensor, tuple[int, ...], bool], Tensor]) -> Any:
    def call(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
        keep = bool(node.integer("keepdims", 1))
        return function(node, x, reduced_axes(node, x, axes), keep)

    return call


@operator("ReduceSum")
@_reduction
def reduce_sum(node: Node, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.blocked_sum(axes, keep)


@operator("ReduceMean")
@_reduction
def reduce_mean(node: Node, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.mean(axes, keep) if axes else x


@operator("ReduceProd")
@_reduction
def reduce_prod(node: Node, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.prod(axes, keep)


@operator("ReduceMax")
@_reduction
def reduce_max(node: Node, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.max(axes, keep)


@operator("ReduceMin")
@_reduction
def reduce_min(node: Node, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.min(axes, keep)


@operator("ReduceL1")
@_reduction
def reduce_l1(node: Node, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.abs().blocked_sum(axes, keep)


@operator("ReduceL2")
@_reduction
def reduce_l2(node: Node, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if not x.dtype.is_float:
        return (x * x).sum(axes, keep).cast(dt.float64).sqrt().cast(x.dtype)
    return x.norm(axes, keep)


@operator("ReduceSumSquare")
@_reduction
def reduce_sum_square(node: Node, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return (x * x).blocked_sum(axes, keep)


@operator("ReduceLogSum")
@_reduction
def reduce_log_sum(node: Node, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.blocked_sum(axes, keep).log()


@operator("ReduceLogSumExp")
@_reduction
def reduce_log_sum_exp(node: Node, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.log_sum_exp(axes, keep)


@operator("ArgMax")
def arg_max(node: Node, x: Tensor) -> Tensor:
    axis = node.axis(0, x.ndim)
    keep, last = bool(node.integer("keepdims", 1)), bool(node.integer("select_last_index", 0))
    return x.argmax(axis, keep, last).cast(dt.int64)


@operator("ArgMin")
def arg_min(node: Node, x: Tensor) -> Tensor:
    axis = node.axis(0, x.ndim)
    keep, last = bool(node.integer("keepdims", 1)), bool(node.integer("select_last_index", 0))
    return x.argmin(axis, keep, last).cast(dt.int64)


# Softmax and its relatives.


def _normalized_axes(node: Node, x: Tensor) -> tuple[int, ...]:
    """One axis; before opset 13, all axes from it on together."""
    if node.opset >= 13:
        return (node.axis(-1, x.ndim),)
    axis = node.axis(1, x.ndim, end=True)
    return tuple(a for a in range(axis, x.ndim) if x.shape[a] != 1) or tuple(range(axis, x.ndim))


@operator("Softmax")
def softmax(node: Node, x: Tensor) -> Tensor:
    axes = _normalized_axes(node, x)
    return x.softmax(axes) if axes else Tensor.full(x.shape, 1.0, x.dtype)


@operator("LogSoftmax")
def log_softmax(node: Node, x: Tensor) -> Tensor:
    axes = _normalized_axes(node, x)
    return x.log_softmax(axes) if axes else Tensor.full(x.shape, 0.0, x.dtype)


@operator("Hardmax")
def hardmax(node: Node, x: Tensor) -> Tensor:
    """1 at the first greatest element, 0 elsewhere."""
    axes = _normalized_axes(node, x)
    flat = x
    if len(axes) != 1:
        flat = x.flatten(axes[0]) if axes else x.unsqueeze(x.ndim)
        axes = (flat.ndim - 1,)
    best = flat.argmax(axes[0], keepdims=True)
    place = Tensor.arange(flat.shape[axes[0]]).reshape(
        [-1 if a == axes[0] else 1 for a in range(flat.ndim)]
    )
    return place.eq(best).cast(x.dtype).reshape(x.shape)


@operator("CumSum")
def cum_sum(node: Node, x: Tensor, axis: Tensor) -> Tensor:
    return _cumulated(node, x, axis, cumulative_sum)


@operator("CumProd")
def cum_prod(node: Node, x: Tensor, axis: Tensor) -> Tensor:
    return _cumulated(node, x, axis, cumulative_product)


def _cumulated(node: Node, x: Tensor, axis: Tensor, cumulative: Callable[..., Tensor]) -> Tensor:
    place = node.wrap(node.integers(axis, "axis")[0], x.ndim)
    exclusive, reverse = bool(node.integer("exclusive", 0)), bool(node.integer("reverse", 0))
    if not reverse:
        return cumulative(x, place, exclusive=exclusive)
    return cumulative(x.flip(place), place, exclusive=exclusive).flip(place)
