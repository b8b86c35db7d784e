"""Reading between the elements: GridSample, DeformConv, RoiAlign; and regions: MaxRoiPool."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Union

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.open_resizing import far_weight, near_weight
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.convolution import conv_options
from tinyedge.export.onnx.operators.indexing import flat_index
from tinyedge.export.onnx.operators.shapes import checked_shape
from tinyedge.export.onnx.registry import Node, operator


@operator("GridSample", limits="cubic: 2 spatial axes")
def grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    """x [N, C, *S], grid [N, *O, len(S)] with coordinates last axis first -> [N, C, *O]."""
    mode = node.text("mode", "bilinear" if node.opset < 20 else "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    border = node.text("padding_mode", "zeros")
    align = bool(node.integer("align_corners", 0))
    spatial = x.ndim - 2
    if grid.shape[-1] != spatial or grid.ndim != x.ndim:
        raise node.invalid(f"{show(grid)} for {show(x)}")
    sizes = [_number(size, grid.dtype) for size in x.shape[2:]]
    places = []
    for axis, size in enumerate(sizes):
        unit = grid[..., spatial - 1 - axis]
        if align:
            place = (unit + 1.0) * ((size - 1) / 2)
        else:
            place = ((unit + 1.0) * size - 1.0) * 0.5
        places.append(place if mode == "cubic" else _bordered(node, place, size, border, align))
    taps: Sequence[Sequence[Tap]]
    if mode == "nearest":
        taps = [[(place.round(), None)] for place in places]
    elif mode == "linear":
        taps = [_linear_taps(place) for place in places]
    elif mode == "cubic":
        if spatial != 2:
            raise node.unsupported("cubic over other than 2 spatial axes")
        taps = [
            [
                (_bordered(node, tap, size, border, align).round(), weight)
                for tap, weight in _cubic_taps(place)
            ]
            for place, size in zip(places, sizes, strict=True)
        ]
    else:
        raise node.invalid(f"mode is {mode!r}")
    return _interpolated(x, taps)


Tap = tuple[Tensor, Tensor | None]  # a whole place along an axis, and its weight
Number = Union[float, Tensor]


def _number(size: Size, dtype: DType) -> Number:
    """A size to reckon with: a scalar tensor where it is open."""
    return float(size) if isinstance(size, int) else Tensor.from_size(size, dtype)


def _interpolated(x: Tensor, taps: Sequence[Sequence[Tap]]) -> Tensor:
    """x [N, C, *S] as sums over the taps [N, *O] of each spatial axis -> [N, C, *O]; 0 outside."""
    total: Tensor | None = None
    for choice in itertools.product(*taps):
        value = _taken(x, [place for place, _ in choice])
        for _, weight in choice:
            if weight is not None:
                value = value * weight.unsqueeze(1).cast(x.dtype)
        total = value if total is None else total + value
    assert total is not None
    return total


def _linear_taps(place: Tensor) -> list[Tap]:
    low = place.floor()
    return [(low, 1.0 - (place - low)), (low + 1.0, place - low)]


def _cubic_taps(place: Tensor) -> list[Tap]:
    """Keys' kernel with a = -0.75 at the four neighbors."""
    low = place.floor()
    t = place - low
    taps: list[Tap] = []
    for offset in range(-1, 3):
        weight = near_weight if offset in (0, 1) else far_weight
        taps.append((low + float(offset), weight(-0.75, (t - float(offset)).abs())))
    return taps


def _bordered(node: Node, place: Tensor, size: Number, border: str, align: bool) -> Tensor:
    """A coordinate moved inside, for `border` and `reflection`."""
    if border == "zeros":
        return place
    if border == "border":
        return place.clip(0.0, size - 1.0)
    if border != "reflection":
        raise node.invalid(f"padding_mode is {border!r}")
    low = 0.0 if align else -0.5
    span = size - 1.0 if align else size
    if isinstance(span, Tensor):
        span = span.maximum(1.0)  # of one element, which is all that there is to read
    elif span == 0:
        return place * 0.0
    offset = (place - low).abs()
    rounds = (offset / span).floor()
    rest = offset - rounds * span
    odd = rounds - (rounds * 0.5).floor() * 2.0
    back = odd.eq(1.0).where(span - rest, rest) + low
    return back.clip(0.0, size - 1.0)


def _taken(x: Tensor, places: list[Tensor]) -> Tensor:
    """x [N, C, *S] at whole coordinates [N, *O]; 0 outside."""
    batch, channels, *sizes = x.shape
    inside: Tensor | None = None
    whole = []
    for place, size in zip(places, sizes, strict=True):
        last = _number(size, place.dtype) - 1.0
        good = (place >= 0.0) & (place <= last)
        inside = good if inside is None else inside & good
        whole.append(place.clip(0.0, last).cast(dt.int32))
    assert inside is not None
    spot = flat_index(tuple(sizes), whole)
    area = product(sizes)
    image = Tensor.arange(batch).reshape((-1,) + (1,) * (spot.ndim - 1))
    flat = spot + image * Tensor.from_size(area, dt.int32)
    order = [0, *range(2, x.ndim), 1]
    rows = x.permute(order).reshape((product((batch, area)), channels))
    taken = rows.gather(0, flat)
    picked = inside.unsqueeze(inside.ndim).where(taken, 0.0)
    return picked.permute([0, picked.ndim - 1, *range(1, picked.ndim - 1)])


@operator("RoiAlign", limits="a given sampling_ratio")
def roi_align(node: Node, x: Tensor, rois: Tensor, batch: Tensor) -> Tensor:
    """Every output bin is the mean (or maximum) of sampling_ratio^2 bilinear samples."""
    half = node.opset >= 16 and (
        node.text("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    )
    rows, columns = node.integer("output_height", 1), node.integer("output_width", 1)
    ratio, scale = node.integer("sampling_ratio", 0), node.number("spatial_scale", 1.0)
    mode = node.text("mode", "avg")
    if ratio < 1:
        raise node.unsupported("sampling_ratio is 0", supported="a fixed sampling_ratio")
    checked_shape(node, (rows, columns, ratio, ratio))
    if x.ndim != 4:
        raise node.invalid(f"regions of {show(x)}")
    height, width = (_number(size, x.dtype) for size in x.shape[2:])
    box = rois * scale - (0.5 if half else 0.0)
    places = []
    for low, high, count in ((box[:, 1], box[:, 3], rows), (box[:, 0], box[:, 2], columns)):
        extent = high - low if half else (high - low).maximum(1.0)
        step = Tensor.arange(count * ratio).cast(x.dtype) + 0.5
        place = low.unsqueeze(1) + step * (1.0 / (count * ratio)) * extent.unsqueeze(1)
        places.append(place)
    y, z = places
    roi_count = rois.shape[0]
    y = y.unsqueeze(2).expand((roi_count, rows * ratio, columns * ratio))
    z = z.unsqueeze(1).expand((roi_count, rows * ratio, columns * ratio))
    outside = (y < -1.0) | (y > height) | (z < -1.0) | (z > width)
    y, z = y.clip(0.0, height - 1.0), z.clip(0.0, width - 1.0)
    low_y, low_z = y.floor(), z.floor()
    image = batch.cast(dt.int32).reshape((-1, 1, 1))
    flat = x.permute((0, 2, 3, 1)).reshape((product(x.shape[:1] + x.shape[2:]), x.shape[1]))
    parts = []
    for dy, dz in itertools.product((0, 1), (0, 1)):
        at_y = (low_y + float(dy)).minimum(height - 1.0)
        at_z = (low_z + float(dz)).minimum(width - 1.0)
        wy = y - low_y if dy else 1.0 - (y - low_y)
        wz = z - low_z if dz else 1.0 - (z - low_z)
        spot = flat_index(
            x.shape[:1] + x.shape[2:], [image, at_y.cast(dt.int32), at_z.cast(dt.int32)]
        )
        value = flat.gather(0, spot) * (wy * wz).unsqueeze(3)
        parts.append(outside.unsqueeze(3).where(0.0, value))
    if mode == "avg":
        samples = parts[0] + parts[1] + parts[2] + parts[3]
    elif mode == "max":
        samples = parts[0].maximum(parts[1]).maximum(parts[2]).maximum(parts[3])
    else:
        raise node.invalid(f"mode is {mode!r}")
    split = samples.reshape((roi_count, rows, ratio, columns, ratio, x.shape[1]))
    pooled = split.mean((2, 4)) if mode == "avg" else split.max((2, 4))
    return pooled.permute((0, 3, 1, 2))


@operator("DeformConv", limits="fixed channels")
def deform_conv(
    node: Node,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """A convolution whose taps are read at places of their own, linearly between elements.

    x [N, C, *S], weight [M, C / group, *K], offset [N, D, *K, len(K), *O], mask [N, D, *K, *O],
    the last two with all axes between N and *O as one. Each of D groups of channels has its own
    offsets.
    """
    options = conv_options(node, x, weight)
    groups, kinds = options["groups"], node.integer("offset_group", 1)
    channels, *sizes = x.shape[1:]
    if not isinstance(channels, int):
        raise node.unsupported(f"{show(channels)} channels", supported="a fixed number of channels")
    filters, each, *kernel = (int(size) for size in weight.shape)  # type: ignore[arg-type]
    batch, out, spatial, taps = x.shape[0], offset.shape[2:], len(sizes), math.prod(kernel)
    fits = offset.ndim == x.ndim and offset.shape[1] == kinds * taps * spatial
    if kinds < 1 or channels % kinds or not fits:
        raise node.invalid(f"offsets of {show(offset.shape)} in {kinds} groups for {show(x)}")
    reach = itertools.chain(options["strides"], options["dilations"], *options["pads"])
    if max(reach) > dt.int32.limits[1]:
        raise node.invalid("strides, dilations or pads of 2^31 or more")
    many = batch * kinds
    wide = dt.float64 if x.dtype is dt.float64 else dt.float32
    shifts = offset.cast(wide).reshape((many, *kernel, spatial, *out))
    places = []
    for axis in range(spatial):
        tap = Tensor.arange(kernel[axis]) * options["dilations"][axis]
        start = Tensor.arange(out[axis]) * options["strides"][axis] - options["pads"][axis][0]
        after = (1,) * (spatial - 1 - axis)
        fixed = tap.reshape((-1, *after, *(1,) * spatial)) + start.reshape((-1, *after))
        place = fixed.cast(wide) + shifts[(slice(None),) * (1 + spatial) + (axis,)]
        places.append(place.reshape((many, taps, *out)))
    images = x.reshape((many, channels // kinds, *sizes))
    read = _interpolated(images, [_linear_taps(place) for place in places])
    if mask is not None:
        read = read * mask.reshape((many, 1, taps, *out))
    left = read.reshape((batch, groups, 1, each, taps, *out))
    right = weight.reshape((1, groups, filters // groups, each, taps, *(1,) * spatial))
    total = (left * right).sum((3, 4)).reshape((batch, filters, *out))
    return total if bias is None else total + bias.reshape((1, -1) + (1,) * spatial)


@operator("MaxRoiPool")
def max_roi_pool(node: Node, x: Tensor, rois: Tensor) -> Tensor:
    """x [N, C, H, W], rois [R, 5] (image, x1, y1, x2, y2): the greatest element of each bin.

    A region goes from the rounded first to the rounded last element; bins overlap where they do not
    divide it; an empty one gives 0. The columns of every bin are reduced before its rows.
    """
    shape = node.integer_list("pooled_shape") or []
    scale = node.number("spatial_scale", 1.0)
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5 or len(shape) != 2 or min(shape) < 1:
        raise node.invalid(f"{show(x)}, regions {show(rois)}, pooled_shape {shape}")
    corners = rois[:, 1:] * scale
    corners = (corners.abs() + 0.5).floor() * corners.sign()  # halves away from 0
    inside = []
    for axis, count in enumerate(shape):
        low, high = corners[:, 1 - axis], corners[:, 3 - axis]
        extent = (high - low + 1.0).maximum(1.0).unsqueeze(1) / float(count)
        edge = Tensor.arange(count + 1).cast(x.dtype)
        first = (edge[:-1] * extent).floor() + low.unsqueeze(1)
        last = (edge[1:] * extent).ceil() + low.unsqueeze(1)
        place = Tensor.arange(x.shape[2 + axis]).cast(x.dtype)
        inside.append((place >= first.unsqueeze(2)) & (place < last.unsqueeze(2)))  # [R, bin, size]
    rows, columns = inside
    images = x.gather(0, rois[:, 0].cast(dt.int32))  # [R, C, H, W]
    least = -np.inf
    wide = columns.unsqueeze(1).unsqueeze(1).where(images.unsqueeze(3), least).max(-1)  # R C H bins
    tall = rows.unsqueeze(1).unsqueeze(3).where(wide.transpose(2, 3).unsqueeze(2), least).max(-1)
    some = (rows.max(-1).unsqueeze(2) & columns.max(-1).unsqueeze(1)).unsqueeze(1)
    return some.where(tall, 0)


@operator("ImageDecoder", refused="decodes image files")
def image_decoder(node: Node, encoded: Tensor) -> Tensor:
    raise node.unsupported(
        "it decodes an image file, and how large the image is only the file says",
        supported="images as arrays of numbers",
        next="decode the image before the model: make this node's result an input",
    )


@operator("AffineGrid")
def affine_grid(node: Node, theta: Tensor, size: Tensor) -> Tensor:
    """theta [N, k, k + 1], size N, C and k sizes O -> where in -1..1 [N, *O, k], last axis first.

    A single place between aligned corners, for which the definition divides by 0, is -1.
    """
    sizes = node.sizes(size, "size")[2:]
    spatial = len(sizes)
    if theta.ndim != 3 or theta.shape[1:] != (spatial, spatial + 1):
        raise node.invalid(f"theta {show(theta)} for {spatial} axes")
    align = bool(node.integer("align_corners", 0))
    result = theta[:, :, spatial].reshape((theta.shape[0], *[1] * spatial, spatial))
    for axis, n in enumerate(sizes):
        place = Tensor.arange(n, theta.dtype)
        length = Tensor.from_size(n, theta.dtype)
        if align:
            along = place * (2.0 / (length - 1.0).maximum(1.0)) - 1.0
        else:
            along = (2.0 * place + 1.0) / length - 1.0
        column = theta[:, :, spatial - 1 - axis].reshape((theta.shape[0], *[1] * spatial, spatial))
        result = result + column * along.reshape((n, *[1] * (spatial - axis)))
    return result
