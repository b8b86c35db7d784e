"""Resizing along an axis of open size: where each element is read is computed in a run.

That place is a quotient of whole numbers, so that what is nearest, and which are the neighbors, is
exact whatever the sizes are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tinyedge.core import dtype as dt
from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.reductions import Reductions

T = TypeVar("T", bound=Reductions)

Ratio = tuple[Size, Size]
Kernel = Callable[[T], T]

ROUNDINGS: dict[str, Callable[[Places[Any]], Any]] = {
    "round_prefer_floor": lambda p: -((p.half - p.top) // p.bottom),
    "round_prefer_ceil": lambda p: (p.top + p.half) // p.bottom,
    "floor": lambda p: p.top // p.bottom,
    "ceil": lambda p: -(-p.top // p.bottom),
}


class TooLarge(ValueError):
    """A place is no quotient of 32-bit integers, where `sizes` are the length and the target."""

    def __init__(self, length: Size, target: Size) -> None:
        super().__init__(f"{length} elements are resized to {target}: too many")
        self.sizes = (length, target)


@dataclass(frozen=True)
class Places(Generic[T]):
    """Where the elements of the result are read along an axis: at top / (2 half), a place each.

    last: the greatest place of the axis.
    """

    axis: int
    top: T  # int32 [target]
    half: T  # half, last: int32 scalars
    last: T
    ratio: Ratio  # target / length as the operator counts it

    @property
    def bottom(self) -> T:
        return self.half * 2

    def inside(self, place: T) -> T:
        return place.maximum(0).minimum(self.last)

    def column(self, x: T, values: T) -> T:
        """Values of the axis, to be multiplied by tensors like x."""
        return values.reshape([-1 if a == self.axis else 1 for a in range(x.ndim)])


def places(x: T, coordinates: str, axis: int, target: Size, ratio: Ratio) -> Places[T] | None:
    """The places along an axis of x by ONNX's coordinate_transformation_mode; None where it is none
    of those known.

    Raises TooLarge.
    """
    a, b = ratio
    length = x.shape[axis]
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
        raise TooLarge(length, target)

    def scalar(size: Size) -> T:
        return x.from_size(size, dt.int32)

    top = x.arange(target) * scalar(slope) + scalar(offset)
    return Places(axis, top, scalar(half), scalar(last), ratio)


def nearest(x: T, at: Places[T], rounding: str) -> T:
    return x.gather(at.axis, at.inside(ROUNDINGS[rounding](at)))


def outward(x: T, at: Places[T]) -> T:
    """The nearest by rounding down, and up where the axis shrinks."""
    shrinks = x.from_size(at.ratio[0], dt.int32) < x.from_size(at.ratio[1], dt.int32)
    place = shrinks.where(ROUNDINGS["ceil"](at), ROUNDINGS["floor"](at))
    return x.gather(at.axis, at.inside(place))


def linear(x: T, at: Places[T]) -> T:
    top = at.top.maximum(0).minimum(at.last * at.bottom)
    low = top // at.bottom
    weight = at.column(x, _share(top - low * at.bottom, at.bottom, x))
    below, above = x.gather(at.axis, low), x.gather(at.axis, (low + 1).minimum(at.last))
    return below * (1.0 - weight) + above * weight


def _share(part: T, whole: T, x: T) -> T:
    """part / whole, in the type in which weights of x are computed."""
    kind = dt.float64 if x.dtype is dt.float64 else dt.float32
    return (part.cast(kind) / whole.cast(kind)).cast(x.dtype)


def weighted(x: T, at: Places[T], kernel: Kernel[T], radius: int, *, exclude: bool) -> T:
    """The sum of the 2 * radius neighbors, each times the kernel of its distance.

    Those outside repeat the border; exclude: they count nothing, and the others' weights add up
    to 1.
    """
    low = at.top // at.bottom
    share = _share(at.top - low * at.bottom, at.bottom, x)
    terms: list[tuple[T, T]] = []
    for offset in range(1 - radius, radius + 1):
        place, weight = low + offset, kernel(share - float(offset))
        if exclude:
            weight = ((place >= 0) & (place <= at.last)).where(weight, 0.0)
        terms.append((x.gather(at.axis, at.inside(place)), weight))
    result = _total([taken * at.column(x, weight) for taken, weight in terms])
    if exclude:
        result = result / at.column(x, _total([weight for _, weight in terms]))
    return result


def triangle(distance: T) -> T:
    return (1.0 - distance.abs()).maximum(0.0)


def cubic(a: float) -> Kernel[T]:
    """R. Keys, Cubic convolution interpolation for digital image processing, 1981."""

    def kernel(distance: T) -> T:
        d = distance.abs()
        return (d <= 1.0).where(near_weight(a, d), (d < 2.0).where(far_weight(a, d), 0.0))

    return kernel


def near_weight(a: float, d: Any) -> Any:
    """Keys' weight of a neighbor at a distance of at most 1: of numbers, arrays or tensors."""
    return ((a + 2) * d - (a + 3)) * d * d + 1.0


def far_weight(a: float, d: Any) -> Any:
    """Keys' weight of a neighbor at a distance of 1 to 2."""
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def _total(parts: list[T]) -> T:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def filtered(x: T, at: Places[T], kernel: Kernel[T], radius: int, *, exclude: bool) -> T:
    """As `weighted`, by a kernel that is as much wider as the axis shrinks."""
    a, b = at.ratio
    kind = dt.float64 if x.dtype is dt.float64 else dt.float32
    wider = (x.from_size(b, kind) / x.from_size(a, kind)).maximum(1.0)
    taps = ix.maximum(ix.ceildiv(b * (2 * radius), a), 2 * radius)
    low = at.top // at.bottom
    share = (at.top - low * at.bottom).cast(kind) / at.bottom.cast(kind)
    first = low + (share - wider * float(radius)).floor().cast(dt.int32) + 1
    place = first.unsqueeze(1) + x.arange(taps)  # [target, taps]
    distance = (low.unsqueeze(1) - place).cast(kind) + share.unsqueeze(1)
    weight = kernel(distance / wider)
    if exclude:
        weight = ((place >= 0) & (place <= at.last)).where(weight, 0.0)
    weight = (weight / weight.sum(1, keepdims=True)).cast(x.dtype)
    taken = x.gather(at.axis, at.inside(place))
    spread = weight.reshape((1,) * at.axis + weight.shape + (1,) * (x.ndim - at.axis - 1))
    return (taken * spread).sum(at.axis + 1)
