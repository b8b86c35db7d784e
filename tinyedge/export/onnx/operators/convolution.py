"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tinyedge.core import dtype as dt
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import Size, UOp
from tinyedge.core.tensor.overlapping import overlapped
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.folding import remember
from tinyedge.export.onnx.registry import Node, operator


def channels_first(x: Tensor) -> Tensor:
    """[N, *S, C] as [N, C, *S]."""
    return x.permute((0, x.ndim - 1, *range(1, x.ndim - 1)))


def channels_last(x: Tensor) -> Tensor:
    """[N, C, *S] as [N, *S, C]."""
    return x.permute((0, *range(2, x.ndim), 1))


def spatial_attribute(node: Node, name: str, spatial: int, default: int) -> list[int]:
    """strides or dilations: one positive integer per spatial axis."""
    values = node.integer_list(name)
    if values is None:
        return [default] * spatial
    if len(values) != spatial or any(value < 1 for value in values):
        raise node.invalid(f"{name} is {values} for {spatial} spatial axes")
    return values


def given_pads(node: Node, spatial: int) -> list[tuple[int, int]]:
    """Padding before and after each spatial axis as `pads` says it; none by default."""
    pads = node.integer_list("pads") or [0] * (2 * spatial)
    if len(pads) != 2 * spatial or any(pad < 0 for pad in pads):
        raise node.invalid(f"pads is {pads} for {spatial} spatial axes")
    return [(pads[axis], pads[axis + spatial]) for axis in range(spatial)]


def _auto_pad(node: Node) -> str:
    mode = node.text("auto_pad", "NOTSET") or "NOTSET"
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.invalid(f"auto_pad is {mode!r}")
    return mode


def pads_of(
    node: Node,
    sizes: Sequence[Size],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[tuple[Size, Size]]:
    """Padding before and after each spatial axis, from `pads` or `auto_pad`."""
    mode = _auto_pad(node)
    if mode == "NOTSET":
        return [*given_pads(node, len(sizes))]
    if mode == "VALID":
        return [(0, 0)] * len(sizes)
    result: list[tuple[Size, Size]] = []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        span = (k - 1) * dilation + 1
        last = (ix.ceildiv(size, stride) - 1) * stride
        total = nonnegative(last + span - size)
        half = total // 2
        rest = total - half
        result.append((half, rest) if mode == "SAME_UPPER" else (rest, half))
    return result


def check_windows(
    node: Node, padded: Sequence[Size], kernel: Sequence[int], dilations: Sequence[int]
) -> None:
    """Raise InputError where a window may be longer than its padded axis."""
    for size, k, dilation in zip(padded, kernel, dilations, strict=True):
        node.needs(size, (k - 1) * dilation + 1)


def nonnegative(size: Size) -> Size:
    """The greater of a size and 0."""
    return ix.maximum(size, 0)


def _kernel(node: Node, weight: Tensor) -> list[int]:
    kernel = weight.shape[2:]
    given = node.integer_list("kernel_shape")
    if not all(isinstance(k, int) and k > 0 for k in kernel):
        raise node.invalid(f"the weight has shape {show(weight.shape)}")
    if given is not None and tuple(given) != kernel:
        raise node.invalid(f"kernel_shape is {given}, the weight's is {list(kernel)}")
    return [int(k) for k in kernel]  # type: ignore[arg-type]


def _checked(node: Node, x: Tensor, weight: Tensor) -> int:
    """The number of spatial axes."""
    if x.ndim < 3 or weight.ndim != x.ndim:
        raise node.invalid(f"its operands have {x.ndim} and {weight.ndim} axes")
    return x.ndim - 2


@operator("Conv")
def conv(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    options = conv_options(node, x, weight)
    known = node.known(weight)
    start = None if bias is None else node.known(bias)
    result = x.conv(weight, bias, **options)
    if known is None or known.dtype.kind != "f" or (bias is not None and start is None):
        return result

    def make(kernel: Any, shift: Any) -> Tensor:
        return x.conv(node.constant(kernel), node.constant(shift), **options)

    return remember(node, result, make, known, start, filters=0, channel=1)


def conv_options(node: Node, x: Tensor, weight: Tensor) -> dict[str, Any]:
    """strides, pads, dilations and groups of a convolution, checked."""
    spatial = _checked(node, x, weight)
    kernel = _kernel(node, weight)
    strides = spatial_attribute(node, "strides", spatial, 1)
    dilations = spatial_attribute(node, "dilations", spatial, 1)
    groups = node.integer("group", 1)
    channels, filters = x.shape[1], weight.shape[0]
    wanted = weight.shape[1] * max(groups, 1)
    if channels != wanted and (isinstance(channels, UOp) or isinstance(wanted, UOp)):
        raise node.unequal(channels, wanted, what="of which the weight takes as many channels")
    if groups < 1 or filters % groups or channels != wanted:
        raise node.invalid(
            f"{show(channels)} channels and a weight of {show(weight.shape)} in {groups} groups"
        )
    pads = pads_of(node, x.shape[2:], kernel, strides, dilations)
    padded = [lo + size + hi for size, (lo, hi) in zip(x.shape[2:], pads, strict=True)]
    check_windows(node, padded, kernel, dilations)
    return {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}


@operator("ConvTranspose")
def conv_transpose(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    spatial = _checked(node, x, weight)
    kernel = _kernel(node, weight)
    strides = spatial_attribute(node, "strides", spatial, 1)
    dilations = spatial_attribute(node, "dilations", spatial, 1)
    groups = node.integer("group", 1)
    if isinstance(x.shape[1], UOp) and x.shape[1] != weight.shape[0]:
        raise node.unequal(x.shape[1], weight.shape[0], what="of which the weight takes as many")
    if groups < 1 or x.shape[1] != weight.shape[0] or weight.shape[0] % groups:
        raise node.invalid(
            f"{show(x.shape[1])} channels and a weight of {show(weight.shape)} in {groups} groups"
        )
    extra = node.integer_list("output_padding") or [0] * spatial
    if len(extra) != spatial or any(e < 0 for e in extra):
        raise node.invalid(f"output_padding is {extra}")
    pads = _transposed_pads(node, x, kernel, strides, dilations, extra)
    options: dict[str, Any] = {
        "strides": strides,
        "pads": pads,
        "dilations": dilations,
        "output_padding": extra,
        "groups": groups,
    }
    result = x.conv_transpose(weight, bias, **options)
    known = node.known(weight)
    start = None if bias is None else node.known(bias)
    if (
        groups != 1
        or known is None
        or known.dtype.kind != "f"
        or (bias is not None and start is None)
    ):
        return result

    def make(array: Any, shift: Any) -> Tensor:
        return x.conv_transpose(node.constant(array), node.constant(shift), **options)

    return remember(node, result, make, known, start, filters=1, channel=1)


def _transposed_pads(
    node: Node,
    x: Tensor,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    extra: list[int],
) -> list[tuple[Size, Size]]:
    """What is cut off each side: from pads, or so that the output has a wanted shape."""
    spatial = len(kernel)
    mode = _auto_pad(node)
    wanted = node.integer_list("output_shape")
    if wanted is not None:
        wanted = wanted[-spatial:]
        if len(wanted) != spatial or min(wanted) < 0:
            raise node.invalid(f"output_shape is {wanted} for {spatial} spatial axes")
    if wanted is None and mode == "NOTSET":
        return [*given_pads(node, spatial)]
    if wanted is None and mode == "VALID":
        return [(0, 0)] * spatial
    result: list[tuple[Size, Size]] = []
    for axis, size in enumerate(x.shape[2:]):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        full = (size - 1) * strides[axis] + span + extra[axis]
        target = size * strides[axis] if wanted is None else wanted[axis]
        total = full - target
        node.needs(total, 0)
        if isinstance(total, int) and total < 0:
            extra[axis] -= total
            total = 0
        half = total // 2
        rest = total - half
        result.append((half, rest) if mode == "SAME_UPPER" else (rest, half))
    return result


@operator("ConvInteger")
def conv_integer(
    node: Node,
    x: Tensor,
    weight: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
) -> Tensor:
    options = conv_options(node, x, weight)
    left, right = x.cast(dt.int32), weight.cast(dt.int32)
    if x_zero is not None:
        left = left - x_zero.cast(dt.int32).reshape(())
    if w_zero is not None:
        zero = w_zero.cast(dt.int32)
        right = right - zero.reshape((-1,) + (1,) * (weight.ndim - 1) if zero.ndim else ())
    return left.conv(right, **options)


@operator("Col2Im", limits="a constant block_shape")
def col2im(node: Node, x: Tensor, image: Tensor, block: Tensor) -> Tensor:
    """The sum of blocks where they overlap."""
    shape, kernel = node.sizes(image, "image_shape"), node.integers(block, "block_shape")
    spatial = len(shape)
    strides = spatial_attribute(node, "strides", spatial, 1)
    dilations = spatial_attribute(node, "dilations", spatial, 1)
    pads = given_pads(node, spatial)
    n, columns, _ = x.shape
    channels = columns // math.prod(kernel)
    whole = [size + before + after for size, (before, after) in zip(shape, pads, strict=True)]
    counts: list[Size] = []
    for size, taps, stride, dilation in zip(whole, kernel, strides, dilations, strict=True):
        counts.append((size - (taps - 1) * dilation - 1) // stride + 1)
    every = zip(kernel, strides, dilations, strict=True)
    node.spend(sum(taps for taps, *steps in every if 1 not in steps))  # they are added in turn
    blocks = x.reshape((n, channels, *kernel, *counts))
    places, taps_at = range(2 + spatial, 2 + 2 * spatial), range(2, 2 + spatial)
    images = blocks.permute([0, 1, *places, *taps_at])
    for axis in reversed(range(spatial)):
        images = overlapped(images, 2 + axis, strides[axis], dilations[axis], whole[axis])
    cut = ((-before, -after) for before, after in pads)
    return images.pad([(0, 0), (0, 0), *cut]).reshape((n, channels, *shape))
