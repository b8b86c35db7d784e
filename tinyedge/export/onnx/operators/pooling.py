"""Pooling over sliding windows, and over everything."""

from __future__ import annotations

from tinyedge.core import dtype as dt
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor import pooling
from tinyedge.core.tensor.pooling import Windows
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.operators.convolution import check_windows, pads_of, spatial_attribute
from tinyedge.export.onnx.registry import Node, operator


def windows_of(node: Node, x: Tensor) -> Windows:
    """The windows of a pooling node."""
    spatial = x.ndim - 2
    kernel = node.integer_list("kernel_shape")
    if kernel is None or len(kernel) != spatial or any(k < 1 for k in kernel):
        raise node.invalid(f"kernel_shape is {kernel} for {spatial} spatial axes")
    strides = spatial_attribute(node, "strides", spatial, 1)
    dilations = spatial_attribute(node, "dilations", spatial, 1)
    sizes = x.shape[2:]
    pads = pads_of(node, sizes, kernel, strides, dilations)
    tail: list[Size] = [0] * spatial
    if node.integer("ceil_mode", 0):
        for axis in range(spatial):
            span = (kernel[axis] - 1) * dilations[axis] + 1
            tail[axis] = pooling.tail(sizes[axis], pads[axis], span, strides[axis])
    padded = [size + lo + hi + more for size, (lo, hi), more in zip(sizes, pads, tail, strict=True)]
    check_windows(node, padded, kernel, dilations)
    return Windows(kernel, strides, dilations, pads, tail)


@operator("MaxPool")
def max_pool(node: Node, x: Tensor) -> list[Tensor]:
    windows = windows_of(node, x)
    values = pooling.max_pool(windows, x)
    if len(node.outputs) < 2:
        return [values]
    order = list(range(x.ndim))
    if node.integer("storage_order", 0):
        order = [0, 1, *reversed(order[2:])]
    return [values, pooling.max_places(windows, x, order).cast(dt.int64)]


@operator("AveragePool")
def average_pool(node: Node, x: Tensor) -> Tensor:
    windows = windows_of(node, x)
    count = pooling.counts(windows, x, pads=bool(node.integer("count_include_pad", 0)))
    return pooling.average_pool(windows, x, None if count is None else node.folded(count))


@operator("LpPool")
def lp_pool(node: Node, x: Tensor) -> Tensor:
    exponent = float(node.integer("p", 2))
    windows = windows_of(node, x)
    return windows.over(x, 0).norm(windows.axes, exponent=exponent)


def _global_axes(node: Node, x: Tensor) -> tuple[int, ...]:
    if x.ndim < 3:
        raise node.invalid(f"its input has {x.ndim} axes")
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool")
def global_average_pool(node: Node, x: Tensor) -> Tensor:
    return x.mean(_global_axes(node, x), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(node: Node, x: Tensor) -> Tensor:
    return x.max(_global_axes(node, x), keepdims=True)


@operator("GlobalLpPool")
def global_lp_pool(node: Node, x: Tensor) -> Tensor:
    exponent = float(node.integer("p", 2))
    return x.norm(_global_axes(node, x), keepdims=True, exponent=exponent)
