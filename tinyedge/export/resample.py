"""Pictures to tensors: the filter, the placing and the colors of a declared picture, as a graph.

An axis of `size` pixels becomes one of `out`: the middle of pixel y of the result lies at

    center = (y + 1/2 - out / 2) * scale + size / 2

of the source, in pixels; scale is a fraction, so that centers are exact. Each pixel is the mean of
those around its center, weighted by a triangle whose half width is `scale` pixels where the filter
is `antialias` and the picture shrinks, else 1: Pillow's BILINEAR, and what PyTorch calls antialias,
or plain bilinear interpolation. Pixels beyond the edge do not count.

The triangle is the same along both axes, so rows are averaged first, then columns: two kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir.rules import index
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.tensor import Tensor

# What is added to luma by blue and red difference, from -128 to 127, at full range: BT.601, BT.709.
CHROMA = {
    "bt601": (1.402, 0.344136, 0.714136, 1.772),
    "bt709": (1.5748, 0.187324, 0.468124, 1.8556),
}
LUMA = (0.299, 0.587, 0.114)  # of red, green and blue, for gray: BT.601
TINY = 1e-6  # less than any sum of weights


@dataclass(frozen=True)
class Line:
    """How one axis is resampled."""

    places: Tensor  # [out, taps], int32: which pixels count
    weights: Tensor  # [out, taps]: how much; of those beyond the edges, 0
    total: Tensor  # [out]: the sum of the weights
    inside: Tensor  # [out], bool: whether the center lies in the picture


@dataclass(frozen=True)
class Ratio:
    """Pixels of the source for one of the result, and the most that a triangle reaches."""

    over: Tensor
    under: Tensor
    reach: Size


def ratios(fit: str, sizes: tuple[Size, Size], out: tuple[int, int]) -> tuple[Ratio, Ratio]:
    """The scale of rows and of columns.

    fit: `stretch` scales each axis alone, `letterbox` shows all of the picture, `cover` fills all
    of the result.
    """
    each = [
        Ratio(Tensor.from_size(size, dt.int32), _whole(o), index.ceildiv(size, o))
        for size, o in zip(sizes, out, strict=True)
    ]
    rows, columns = each
    if fit == "stretch":
        return rows, columns
    wide = rows.over * out[1] < columns.over * out[0]
    first, other = (columns, rows) if fit == "letterbox" else (rows, columns)
    pick = index.maximum if fit == "letterbox" else index.minimum
    both = Ratio(
        wide.where(first.over, other.over),
        wide.where(first.under, other.under),
        pick(rows.reach, columns.reach),
    )
    return both, both


def line(size: Size, out: int, ratio: Ratio, filter: str) -> Line:
    """The pixels of an axis that make each of the result's."""
    edge = Tensor.from_size(size, dt.int32)
    y = Tensor.arange(out, dt.int32)
    top = (y * 2 + (1 - out)) * ratio.over + edge * ratio.under
    base = top // (ratio.under * 2)
    inside = ~(base < 0) & (base < edge)
    if filter == "nearest":
        places = _within(base, edge).reshape((out, 1))
        return Line(places, Tensor.ones((out, 1)), Tensor.ones((out,)), inside)
    rest = (top - base * (ratio.under * 2)).cast(dt.float32) / (ratio.under * 2).cast(dt.float32)
    width = Tensor.ones(())
    reach: Size = 1
    if filter == "antialias":
        width = (ratio.over.cast(dt.float32) / ratio.under.cast(dt.float32)).maximum(1.0)
        reach = index.maximum(ratio.reach, 1)
    taps = 2 * reach + 1
    step = (Tensor.arange(taps, dt.int32) - Tensor.from_size(reach, dt.int32)).reshape((1, taps))
    place = base.reshape((out, 1)) + step
    distance = (step.cast(dt.float32) + 0.5 - rest.reshape((out, 1))).abs()
    counts = ~(place < 0) & (place < edge)
    weights = counts.where((1.0 - distance / width).maximum(0.0), 0.0)
    return Line(_within(place, edge), weights, _total(base, rest, edge, width), inside)


def _total(base: Tensor, rest: Tensor, edge: Tensor, width: Tensor) -> Tensor:
    """The sum of a triangle's weights in the picture, by its two sides' arithmetic series."""
    late = ~(rest < 0.5)
    left = late.where(base, base - 1)  # the last pixel whose middle is not beyond the center
    near = late.where(rest - 0.5, rest + 0.5)  # from its middle to the center
    sides = ((left + 1, near), (edge - 1 - left, 1.0 - near))
    total = Tensor.full((), 0.0, dt.float32)
    for most, first in sides:
        count = (width - first).ceil().minimum(most.cast(dt.float32)).maximum(0.0)
        total = total + count - (count * first + count * (count - 1.0) * 0.5) / width
    return total.maximum(TINY)


def resampled(planes: Sequence[Tensor], rows: Line, columns: Line, colors: Colors) -> Tensor:
    """The picture's value at each pixel of the result, [frames, height, width, channels].

    planes: [frames, height, width, channels], uint8: the picture, or its luma and, of half the
    width and height, its chroma.
    """
    flat = []
    for number, plane in enumerate(planes):
        frames, height, width, channels = plane.shape
        places = rows.places if number == 0 else _within(rows.places // 2, _count(height))
        lines = plane.reshape((frames, height, width * channels))
        flat.append(lines.gather(1, places).cast(dt.float32))
    out, taps = rows.places.shape
    summed = (_side_by_side(flat) * rows.weights.reshape((1, out, taps, 1))).sum(2)
    summed = summed / rows.total.reshape((1, out, 1))
    across, taps = columns.places.shape
    shape = (1, 1, across, taps, 1)
    weights = columns.weights.reshape(shape)
    values = summed.gather(2, _elements(planes, columns.places, colors.read)) * weights
    frames = values.shape[0]
    if colors.shares is None:
        light = values.sum(3)
    else:  # in the same sum, so that no kernel is needed for it
        count = len(colors.read)
        values = values.reshape((frames, out, across, taps, 1, count))
        light = (values * Tensor(colors.shares.astype(np.float32))).sum((3, 5))
    light = light / columns.total.reshape((1, 1, across, 1))
    return light + Tensor(colors.bias.astype(np.float32)) if colors.bias.any() else light


def _elements(planes: Sequence[Tensor], places: Tensor, read: Sequence[int]) -> Tensor:
    """Where the channels of each pixel lie in a line, [out, taps, channels]: those of a second
    plane come after the whole first one.
    """
    width, channels = planes[0].shape[2], fixed(planes[0].shape[3])
    first = places * channels
    found = [first + number if number else first for number in read if number < channels]
    if len(planes) > 1:
        less = planes[1].shape[2]
        second = _within(places // 2, _count(less)) * 2 + _count(width)
        found += [second + (number - 1) for number in read if number >= channels]
    if len(found) == 1:
        return found[0].unsqueeze(-1)
    step = Tensor.arange(len(read), dt.int32).reshape((1, 1, len(read)))
    if len(planes) == 1:
        start, end = read[0], read[-1]
        return first.unsqueeze(-1) + (step + start if end > start else start - step)
    return step.eq(0).where(found[0].unsqueeze(-1), found[1].unsqueeze(-1) + (step - 1))


def _side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """Tensors one after the other along the last axis, without a copy of them."""
    if len(parts) == 1:
        return parts[0]
    a, b = parts
    none = (0, 0)
    left = a.pad((none, none, none, (0, b.shape[3])))
    return left + b.pad((none, none, none, (a.shape[3], 0)))


@dataclass(frozen=True)
class Colors:
    """What of a pixel makes the model's channels: shares of some of its own, and a number."""

    read: tuple[int, ...]  # channels of the planes, one after the other
    shares: Any  # [channels, read]; None: they are what is read
    bias: Any  # [channels]


def colors_of(wanted: str, source: str, matrix: str = "bt601", full: bool = False) -> Colors:
    """The channels, 0 to 255, that a model wants, `rgb`, `bgr` or `gray`, of a picture in `rgb`,
    `rgba`, `gray` or `nv12`. Of gray and of luma alone one is made.

    matrix, full: of nv12: how colors became differences, and whether values use all of 0 to 255.
    """
    if source == "nv12":
        return _of_luma(wanted, matrix, full)
    none = np.zeros(1)
    if source == "gray":
        return Colors((0,), None, none)
    if wanted == "gray":
        return Colors((0, 1, 2), np.array([LUMA]), none)
    return Colors((0, 1, 2) if wanted == "rgb" else (2, 1, 0), None, none)


def _of_luma(wanted: str, matrix: str, full: bool) -> Colors:
    """Of luma, which without `full` goes from 16 to 235, and of blue and red difference."""
    light, strength = (1.0, 1.0) if full else (255 / 219, 255 / 224)
    black = 0.0 if full else 16.0
    if wanted == "gray":
        return Colors((0,), np.array([[light]]), np.array([-black * light]))
    red, green_u, green_v, blue = (share * strength for share in CHROMA[matrix])
    shares = np.array([[light, 0, red], [light, -green_u, -green_v], [light, blue, 0]])
    if wanted == "bgr":
        shares = shares[::-1]
    return Colors((0, 1, 2), shares, shares @ -np.array([black, 128.0, 128.0]))


def _whole(number: int) -> Tensor:
    return Tensor.full((), number, dt.int32)


def _count(size: Size) -> Tensor:
    return Tensor.from_size(size, dt.int32)


def _within(places: Tensor, size: Tensor) -> Tensor:
    return places.maximum(0).minimum(size - 1)
