"""Resizing along an axis of open size: where each element is read is computed in a run.

That place is a quotient of whole numbers, so that what is nearest, and which are the neighbors, is
exact whatever the sizes are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tinyedge.core import dtype as dt
from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.tensor import Tensor

Ratio = tuple[Size, Size]
Kernel = Callable[[Tensor], Tensor]

ROUNDINGS: dict[str, Callable[[Places], Tensor]] = {
    "round_prefer_floor": lambda p: -((p.half - p.top) // p.bottom),
    "round_prefer_ceil": lambda p: (p.top + p.half) // p.bottom,
    "floor": lambda p: p.top // p.bottom,
    "ceil": lambda p: -(-p.top // p.bottom),
}


class TooLarge(Exception):
    """A place is no quotient of 32-bit integers."""


@dataclass(frozen=True)
class Places:
    """Where the elements of the result are read along an axis: at top / (2 half), a place each.

    last: the greatest place of the axis.
    """

    axis: int
    top: Tensor  # int32 [target]
    half: Tensor  # half, last: int32 scalars
    last: Tensor
    ratio: Ratio  # target / length as the operator counts it

    @property
    def bottom(self) -> Tensor:
        return self.half * 2

    def inside(self, place: Tensor) -> Tensor:
        return place.maximum(0).minimum(self.last)

    def column(self, x: Tensor, values: Tensor) -> Tensor:
        """Values of the axis, to be multiplied by tensors like x."""
        return values.reshape([-1 if a == self.axis else 1 for a in range(x.ndim)])


def places(coordinates: str, axis: int, length: Size, target: Size, ratio: Ratio) -> Places | None:
    """The places by a coordinate_transformation_mode; None where it is none of those known.

    Raises TooLarge.
    """
    a, b = ratio
    last = length - 1
    beyond = length * a - b  # the size before rounding, less 1, times b
    half, slope = a, b * 2
    centered = b - a
    offset: Size
    if coordinates == "half_pixel":
        offset = centered
    elif coordinates == "pytorch_half_pixel":
        several = ix.maximum(ix.minimum(beyond, 1), 0)
        offset = centered * several
    elif coordinates == "half_pixel_symmetric":
        rest = length * a - target * b
        offset = rest + centered
    elif coordinates == "asymmetric":
        offset = 0
    elif coordinates == "tf_half_pixel_for_nn":
        offset = b
    elif coordinates == "align_corners":
        offset = 0
        if ratio == (target, length):
            half, slope = target - 1, last * 2
        else:
            half, slope = beyond, last * 2 * b
        half = ix.maximum(half, 1)
    else:
        return None
    reach = [(target + 1) * slope, offset, -offset]
    reach.append(half * 2 * (length + 1))
    if any(bounds(size)[1] > dt.int32.limits[1] // 2 for size in reach):
        raise TooLarge
    top = Tensor.arange(target) * _scalar(slope) + _scalar(offset)
    return Places(axis, top, _scalar(half), _scalar(last), ratio)


def _scalar(size: Size) -> Tensor:
    return Tensor.from_size(size, dt.int32)


def nearest(x: Tensor, at: Places, rounding: str) -> Tensor:
    return x.gather(at.axis, at.inside(ROUNDINGS[rounding](at)))


def outward(x: Tensor, at: Places) -> Tensor:
    """The nearest by rounding down, and up where the axis shrinks."""
    shrinks = _scalar(at.ratio[0]) < _scalar(at.ratio[1])
    place = shrinks.where(ROUNDINGS["ceil"](at), ROUNDINGS["floor"](at))
    return x.gather(at.axis, at.inside(place))


def linear(x: Tensor, at: Places) -> Tensor:
    top = at.top.maximum(0).minimum(at.last * at.bottom)
    low = top // at.bottom
    weight = at.column(x, _share(top - low * at.bottom, at.bottom, x))
    below, above = x.gather(at.axis, low), x.gather(at.axis, (low + 1).minimum(at.last))
    return below * (1.0 - weight) + above * weight


def _share(part: Tensor, whole: Tensor, x: Tensor) -> Tensor:
    """part / whole, in the type in which weights of x are computed."""
    kind = dt.float64 if x.dtype is dt.float64 else dt.float32
    return (part.cast(kind) / whole.cast(kind)).cast(x.dtype)


def weighted(x: Tensor, at: Places, kernel: Kernel, radius: int, *, exclude: bool) -> Tensor:
    """The sum of the 2 * radius neighbors, each times the kernel of its distance.

    Those outside repeat the border; exclude: they count nothing, and the others' weights add up
    to 1.
    """
    low = at.top // at.bottom
    share = _share(at.top - low * at.bottom, at.bottom, x)
    terms: list[tuple[Tensor, Tensor]] = []
    for offset in range(1 - radius, radius + 1):
        place, weight = low + offset, kernel(share - float(offset))
        if exclude:
            weight = ((place >= 0) & (place <= at.last)).where(weight, 0.0)
        terms.append((x.gather(at.axis, at.inside(place)), weight))
    result = _total([taken * at.column(x, weight) for taken, weight in terms])
    if exclude:
        result = result / at.column(x, _total([weight for _, weight in terms]))
    return result


def triangle(distance: Tensor) -> Tensor:
    return (1.0 - distance.abs()).maximum(0.0)


def cubic(a: float) -> Kernel:
    """Keys' cubic convolution."""

    def kernel(distance: Tensor) -> Tensor:
        d = distance.abs()
        near = ((a + 2) * d - (a + 3)) * d * d + 1.0
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return (d <= 1.0).where(near, (d < 2.0).where(far, 0.0))

    return kernel


def _total(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def filtered(x: Tensor, at: Places, kernel: Kernel, radius: int, *, exclude: bool) -> Tensor:
    """As `weighted`, by a kernel that is as much wider as the axis shrinks."""
    a, b = at.ratio
    kind = dt.float64 if x.dtype is dt.float64 else dt.float32
    wider = (Tensor.from_size(b, kind) / Tensor.from_size(a, kind)).maximum(1.0)
    taps = ix.maximum(ix.ceildiv(b * (2 * radius), a), 2 * radius)
    low = at.top // at.bottom
    share = (at.top - low * at.bottom).cast(kind) / at.bottom.cast(kind)
    first = low + (share - wider * float(radius)).floor().cast(dt.int32) + 1
    place = first.unsqueeze(1) + Tensor.arange(taps)  # [target, taps]
    distance = (low.unsqueeze(1) - place).cast(kind) + share.unsqueeze(1)
    weight = kernel(distance / wider)
    if exclude:
        weight = ((place >= 0) & (place <= at.last)).where(weight, 0.0)
    weight = (weight / weight.sum(1, keepdims=True)).cast(x.dtype)
    taken = x.gather(at.axis, at.inside(place))
    spread = weight.reshape((1,) * at.axis + weight.shape + (1,) * (x.ndim - at.axis - 1))
    return (taken * spread).sum(at.axis + 1)
