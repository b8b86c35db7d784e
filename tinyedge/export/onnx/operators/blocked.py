"""com.microsoft.nchwc: what onnxruntime writes at its levels "layout" and "all".

There, channels lie in blocks of 8 or 16, as many as the processor that optimized the model likes.
Here a value is [N, C, H, W] as everywhere, where C may be filled up with channels of zeros; only
the weights, which the file holds in blocks, have to be put in order.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.convolution import channels_first, channels_last, conv_options
from tinyedge.export.onnx.operators.microsoft import ACTIVATIONS, activated
from tinyedge.export.onnx.operators.pooling import average_pool, global_average_pool, max_pool
from tinyedge.export.onnx.operators.resize import upsampled
from tinyedge.export.onnx.registry import Node, operator

DOMAIN = "com.microsoft.nchwc"
_SIZES: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def _block(node: Node) -> int:
    """How many channels a block of the model has: as its shapes prove, or as on this machine."""
    context = node.context
    if context not in _SIZES:
        proved = _proved(context.model.proto.graph)
        _SIZES[context] = proved or _usual()
        if not proved:
            context.warn(
                "its convolutions are in blocks of 8 or 16 channels, and the file does not say "
                f"which: {_SIZES[context]} are assumed, as onnxruntime takes on this machine. If "
                "outputs are wrong, optimize the model at level ORT_ENABLE_EXTENDED, which makes "
                "no blocks"
            )
    return _SIZES[context]


def _proved(graph: Any) -> int:
    """8 or 16 where one of them could not have given the graph's shapes, else 0."""
    shapes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    channels: dict[str, int] = {}  # of each value in blocks, 0 where that is not seen
    for node in graph.node:
        given = [channels[name] for name in node.input if name in channels]
        present = given[0] if given else 0
        if node.domain == DOMAIN and node.op_type == "ReorderOutput":
            kept = _attribute(node, "channels", present)
            if present and -(-kept // 8) * 8 != present:
                return 16
            continue
        if node.domain == DOMAIN and node.op_type == "Conv":
            weight = shapes.get(node.input[1], []) if len(node.input) > 1 else []
            if len(weight) == 4:
                present, taken = weight[:2]
                if present % 16:
                    return 8
                # Fewer channels than a block are taken as they lie, more of them in blocks.
                if _attribute(node, "group", 1) == 1 and 8 <= taken < 16:
                    return 8 if given else 16
        if given or node.domain == DOMAIN:
            channels.update(dict.fromkeys(node.output, present))
    return 0


def _attribute(node: Any, name: str, default: int) -> int:
    return next((int(each.i) for each in node.attribute if each.name == name), default)


def _usual() -> int:
    """As many as onnxruntime takes on this machine."""
    if platform.machine().lower() in ("x86_64", "amd64", "i386", "i686"):
        info = Path("/proc/cpuinfo")
        return 16 if info.exists() and "avx512f" in info.read_text() else 8
    return 16


def _in_order(blocked: Any, block: int) -> Any:
    """A weight [O, I, H, W] whose elements lie as [O / block, I / block, H, W, block, block], or as
    [O / block, I, H, W, block] where I is less than a block.
    """
    filters, channels, height, width = blocked.shape
    if channels < block:
        split = blocked.reshape(filters // block, channels, height, width, block)
        return split.transpose(0, 4, 1, 2, 3).reshape(blocked.shape)
    split = blocked.reshape(filters // block, channels // block, height, width, block, block)
    return split.transpose(0, 5, 1, 4, 2, 3).reshape(blocked.shape)


def _filled(x: Tensor, channels: Size) -> Tensor:
    """x with channels of zeros up to a number of them."""
    if x.shape[1] == channels:
        return x
    return x.pad([(0, 0), (0, channels - x.shape[1]), *[(0, 0)] * (x.ndim - 2)])


@operator("ReorderInput", domain=DOMAIN)
def reorder_input(node: Node, x: Tensor) -> Tensor:
    return channels_first(x) if node.integer("channels_last", 0) else x


@operator("ReorderOutput", domain=DOMAIN)
def reorder_output(node: Node, x: Tensor) -> Tensor:
    channels, present = node.integer("channels", 0), x.shape[1]
    if channels < 1 or not isinstance(present, int) or channels > present:
        raise node.invalid(f"{channels} channels of {show(present)}")
    kept = x[:, :channels]
    return channels_last(kept) if node.integer("channels_last", 0) else kept


@operator("Conv", domain=DOMAIN, limits=f"constant weights; {ACTIVATIONS}")
def blocked_conv(
    node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None, added: Tensor | None = None
) -> Tensor:
    block = _block(node)
    known = node.constant_input(weight, "W")
    if known.ndim != 4 or known.shape[0] % block:
        raise node.invalid(f"its weight is {show(weight)}, in blocks of {block}")
    if known.shape[1] >= block and known.shape[1] % block:
        raise node.invalid(f"its weight is {show(weight)}, in blocks of {block}")
    ordered = node.constant(np.ascontiguousarray(_in_order(known, block)))
    x = _filled(x, known.shape[1] * max(node.integer("group", 1), 1))
    result = x.conv(ordered, bias, **conv_options(node, x, ordered))
    if added is not None:
        result = result + _filled(added, result.shape[1])
    return activated(node, result)


@operator("MaxPool", domain=DOMAIN)
def blocked_max_pool(node: Node, x: Tensor) -> Tensor:
    node.has("storage_order")
    return max_pool(node, x)[0]


@operator("AveragePool", domain=DOMAIN)
def blocked_average_pool(node: Node, x: Tensor) -> Tensor:
    return average_pool(node, x)


@operator("GlobalMaxPool", domain=DOMAIN)
def blocked_global_max_pool(node: Node, x: Tensor) -> Tensor:
    return x.max((2, 3), keepdims=True)


@operator("GlobalAveragePool", domain=DOMAIN)
def blocked_global_average_pool(node: Node, x: Tensor) -> Tensor:
    return global_average_pool(node, x)


@operator("Upsample", domain=DOMAIN)
def blocked_upsample(node: Node, x: Tensor) -> Tensor:
    mode = node.text("mode", "nearest")
    coordinates = node.text("coordinate_transformation_mode", "asymmetric")
    return upsampled(node, x, node.integer_list("scales") or [1] * x.ndim, mode, coordinates)
