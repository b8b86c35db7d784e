"""Resizing along axes, as ONNX's Resize and torch's interpolate do it.

Where sizes are known, so is each place that an element of the result is read at: nearest elements
are one gather, linear ones a sum of two, and a wider kernel is a matrix product with a table of
weights. open_resizing.py has the forms whose places are computed in a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir.uop import Size, UOp
from tinyedge.core.tensor import nn, open_resizing
from tinyedge.core.tensor.base import computed
from tinyedge.core.tensor.open_resizing import Ratio, far_weight, near_weight
from tinyedge.core.tensor.reductions import Reductions

T = TypeVar("T", bound=Reductions)

OUTWARD = "floor, ceil when shrinking"  # how ONNX's operator sets before 11 rounded
FIXED_ONLY = "tf_crop_and_resize"  # the coordinates that open sizes do not have


class Maker(Protocol):
    """What makes the tables that resizing reads."""

    def constant(self, array: Any) -> Any:
        """An array as a tensor."""
        ...

    def check_table(self, elements: int) -> None:
        """Called before a table of so many elements is made."""
        ...


class Tables(Generic[T]):
    """Tables as tensors like x, as large as memory allows."""

    def __init__(self, x: T) -> None:
        self.kind = type(x)

    def constant(self, array: Any) -> T:
        """An array as a tensor."""
        return self.kind(array)

    def check_table(self, elements: int) -> None:
        """No table is too large."""


class Refused(ValueError):
    """An option has a value that is unknown, or there is nothing to read."""


@dataclass(frozen=True)
class Axis:
    """One resized axis."""

    axis: int
    length: Size
    target: Size
    scale: float | None  # out / in as ONNX counts it; None where only a run knows it
    roi: tuple[float, float] = (0.0, 1.0)
    ratio: Ratio | None = None  # the scale as a quotient; None where that is target / length

    @property
    def open(self) -> bool:
        return isinstance(self.length, UOp) or isinstance(self.target, UOp)


@dataclass(frozen=True)
class Options:
    """How elements are found, by the names of the attributes of ONNX's Resize."""

    mode: str  # nearest, linear, bilinear or cubic
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    extrapolation: float = 0.0
    antialias: bool = False


# What the modes of torch's interpolate mean by the options of ONNX.
MODES = {
    "nearest": Options("nearest", "asymmetric", "floor"),
    "nearest-exact": Options("nearest", "half_pixel", "round_prefer_ceil"),
    "linear": Options("linear"),
    "cubic": Options("cubic"),
}
NAMES = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
SMOOTH = -0.5  # the cubic kernel's coefficient where it is stretched to shrink, as in torch


def interpolate(x: T, size: Sequence[Size], mode: str, align_corners: bool, antialias: bool) -> T:
    """The last axes of x resized to `size`; see `Tensor.interpolate`."""
    options = MODES.get(NAMES.get(mode, mode))
    if options is None:
        raise ValueError(f"interpolate in mode {mode!r}: it is one of {sorted([*MODES, *NAMES])}")
    first = x.ndim - len(size)
    if not size or first < 0 or any(isinstance(target, int) and target < 0 for target in size):
        raise ValueError(f"interpolate of {list(x.shape)} to size {list(size)}")
    if (align_corners or antialias) and options.mode == "nearest":
        raise ValueError(f"mode {mode!r} has neither align_corners nor antialias")
    if align_corners and antialias:
        raise ValueError("align_corners and antialias exclude each other")
    if align_corners:
        options = replace(options, coordinates="align_corners")
    if antialias:
        options = replace(options, antialias=True, exclude_outside=True, cubic=SMOOTH)
    axes = []
    for axis, target in enumerate(size, first):
        length = x.shape[axis]
        scale = None
        if isinstance(length, int) and isinstance(target, int):
            scale = target / max(length, 1)
        axes.append(Axis(axis, length, target, scale, ratio=(target, length)))
    return resized(Tables(x), x, axes, options)


def resized(maker: Maker, x: T, axes: Sequence[Axis], options: Options) -> T:
    """x with its axes resized one after the other. Raises Refused, open_resizing.TooLarge."""
    modes: dict[str, Callable[[Maker, T, Axis, Options], T]] = {
        "nearest": _nearest,
        "linear": _linear,
        "bilinear": _linear,
        "cubic": _cubic,
    }
    if options.mode not in modes:
        raise Refused(f"mode is {options.mode!r}")
    outside = None
    kind = x.dtype
    for item in axes:
        same = item.length == item.target and item.scale in (1.0, None)
        if options.coordinates != FIXED_ONLY and same:
            continue
        if item.target == 0 or item.length == 0:
            shape = list(x.shape)
            shape[item.axis] = item.target
            if 0 not in shape:
                raise Refused(f"{list(x.shape)} is resized to {shape}")
            x = x.full(shape, 0, x.dtype)
            continue
        if options.coordinates == FIXED_ONLY:
            place = _source(maker, item, options)
            beyond = (place < 0) | (place > item.length - 1)
            mask = maker.constant(
                beyond.reshape([-1 if a == item.axis else 1 for a in range(x.ndim)])
            )
            outside = mask if outside is None else outside | mask
        if options.mode != "nearest" and not x.dtype.is_float:
            x = x.cast(dt.float32)  # back once: rounded after each axis, digits would be lost
        if item.open and options.mode != "nearest":
            x = _interpolated(maker, x, item, options)
        else:
            x = modes[options.mode](maker, x, item, options)
    if outside is not None:
        x = outside.where(options.extrapolation, x)
    if options.mode == "cubic" or options.antialias:
        return x if kind.is_float else x.round().cast(kind)
    return x.cast(kind)


def _source(maker: Maker, item: Axis, options: Options) -> Any:
    """For every output place its place in the input, in double precision."""
    length, target, scale = item.length, item.target, item.scale
    assert isinstance(length, int) and isinstance(target, int) and scale is not None
    maker.check_table(target)
    place = np.arange(target, dtype=np.float64)
    mode = options.coordinates
    exact = length * scale  # the output's size before it was rounded down
    top, bottom = map(_number, (scale, 1.0) if item.ratio is None else item.ratio)
    centers = (place + 0.5) * bottom / top  # one rounding: of a quotient of whole numbers
    if mode == "half_pixel":
        return centers - 0.5
    if mode == "half_pixel_symmetric":
        adjustment = target / exact
        return length / 2 * (1 - adjustment) + centers - 0.5
    if mode == "pytorch_half_pixel":
        return centers - 0.5 if exact > 1 else np.zeros(target)
    if mode == "align_corners":
        return place * ((length - 1) / (exact - 1)) if exact != 1 else np.zeros(target)
    if mode == "asymmetric":
        return place * bottom / top
    if mode == "tf_half_pixel_for_nn":
        return centers
    if mode == FIXED_ONLY:
        start, end = item.roi
        if exact != 1:
            return start * (length - 1) + place * ((end - start) * (length - 1) / (exact - 1))
        return np.full(target, 0.5 * (start + end) * (length - 1))
    raise Refused(f"coordinate_transformation_mode is {mode!r}")


def _number(size: Size | float) -> float:
    assert not isinstance(size, UOp)
    return float(size)


def _repetition(item: Axis, options: Options) -> int | None:
    """How often every element is repeated, where nearest resizing is just that."""
    scale = item.scale
    if scale is None or scale != int(scale) or item.target != item.length * int(scale):
        return None
    if options.coordinates == "asymmetric" and options.nearest in ("floor", OUTWARD):
        return int(scale)
    centered = options.coordinates in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
    if centered and options.nearest.startswith("round"):
        return int(scale) if item.target != 1 else None
    return None


def _nearest(maker: Maker, x: T, item: Axis, options: Options) -> T:
    times = _repetition(item, options)
    axis = item.axis
    if times is not None:
        wide = x.unsqueeze(axis + 1)
        wide = wide.expand([times if a == axis + 1 else s for a, s in enumerate(wide.shape)])
        return wide.flatten(axis, axis + 2)
    symbolic = not isinstance(item.length, int)
    if symbolic and item.scale is not None and 1 / item.scale == round(1 / item.scale):
        if options.coordinates == "asymmetric" and options.nearest in ("floor", OUTWARD):
            every = round(1 / item.scale)
            count = item.target
            bounds = [(0, s) for s in x.shape]
            bounds[axis] = (0, count * every)
            return x.shrink(bounds).stride(axis, every)
    if item.open and options.nearest == OUTWARD:
        return open_resizing.outward(x, _places(x, item, options))
    rounding: dict[str, Callable[[Any], Any]] = {
        "round_prefer_floor": lambda p: np.ceil(p - 0.5),
        "round_prefer_ceil": lambda p: np.floor(p + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    chosen = options.nearest
    if chosen == OUTWARD:
        chosen = "ceil" if item.scale is not None and item.scale < 1 else "floor"
    if chosen not in rounding:
        raise Refused(f"nearest_mode is {chosen!r}")
    if item.open:
        return open_resizing.nearest(x, _places(x, item, options), chosen)
    place = _source(maker, item, options)
    assert isinstance(item.length, int)
    nearest = np.clip(rounding[chosen](place), 0, item.length - 1)
    return x.gather(axis, maker.constant(nearest.astype(np.int32)))


def _places(x: T, item: Axis, options: Options) -> open_resizing.Places[T]:
    """The places along an axis of open size."""
    ratio = (item.target, item.length) if item.ratio is None else item.ratio
    found = open_resizing.places(x, options.coordinates, item.axis, item.target, ratio)
    if found is None:
        raise Refused(f"coordinate_transformation_mode is {options.coordinates!r}")
    return found


def _interpolated(maker: Maker, x: T, item: Axis, options: Options) -> T:
    """Linear or cubic along an axis of open size."""
    at = _places(x, item, options)
    smooth = options.antialias and (item.scale is None or item.scale < 1)
    if options.mode != "cubic" and not smooth:
        return open_resizing.linear(x, at)
    kernel: open_resizing.Kernel[T] = open_resizing.triangle
    if options.mode == "cubic":
        kernel = open_resizing.cubic(options.cubic)
    radius = 2 if options.mode == "cubic" else 1
    resize = open_resizing.filtered if smooth else open_resizing.weighted
    return resize(x, at, kernel, radius, exclude=options.exclude_outside)


def _linear(maker: Maker, x: T, item: Axis, options: Options) -> T:
    if options.antialias and item.scale is not None and item.scale < 1:
        return _filtered(maker, x, item, options, _triangle, 1.0)
    assert isinstance(item.length, int)
    place = np.clip(_source(maker, item, options), 0, item.length - 1)
    low = np.floor(place)
    high = np.minimum(low + 1, item.length - 1)
    return _blend(maker, x, item.axis, [low, high], [1 - (place - low), place - low])


def _blend(maker: Maker, x: T, axis: int, places: Sequence[Any], weights: Sequence[Any]) -> T:
    """The sum of elements at places, each times a weight, along an axis."""
    shape = [-1 if a == axis else 1 for a in range(x.ndim)]
    total: T | None = None
    for place, weight in zip(places, weights, strict=True):
        if not weight.any():
            continue
        taken = x.gather(axis, maker.constant(place.astype(np.int32)))
        part = taken * maker.constant(weight.astype(x.dtype.numpy).reshape(shape))
        total = part if total is None else total + part
    assert total is not None
    return total


def _cubic(maker: Maker, x: T, item: Axis, options: Options) -> T:
    """Keys' cubic convolution over four neighbors; those outside repeat the border, or weigh 0."""
    a = options.cubic

    def kernel(distance: Any) -> Any:
        d = np.abs(distance)
        return np.where(d <= 1, near_weight(a, d), np.where(d < 2, far_weight(a, d), 0.0))

    if options.antialias and item.scale is not None and item.scale < 1:
        return _filtered(maker, x, item, options, kernel, 2.0)
    place = _source(maker, item, options)
    assert isinstance(item.length, int)
    first = np.floor(place) - 1
    places = [first + tap for tap in range(4)]
    weights = [kernel(place - p) for p in places]
    return _weighted(maker, x, item, options, places, weights)


def _triangle(distance: Any) -> Any:
    return np.maximum(0.0, 1 - np.abs(distance))


def _filtered(
    maker: Maker,
    x: T,
    item: Axis,
    options: Options,
    kernel: Callable[[Any], Any],
    radius: float,
) -> T:
    """Shrinking with a kernel stretched by 1 / scale, normalized."""
    place = _source(maker, item, options)
    assert isinstance(item.length, int) and item.scale is not None
    reach = radius / item.scale
    first = np.floor(place - reach) + 1
    maker.check_table(math.ceil(2 * reach) * len(place))
    places = [first + tap for tap in range(math.ceil(2 * reach))]
    weights = [kernel((place - p) * item.scale) for p in places]
    total = np.sum(weights, axis=0)
    return _weighted(maker, x, item, options, places, [w / total for w in weights])


def _weighted(
    maker: Maker, x: T, item: Axis, options: Options, places: list[Any], weights: list[Any]
) -> T:
    """One matrix product with the interpolation weights: [target, length] is constant."""
    length, target = item.length, item.target
    assert isinstance(length, int) and isinstance(target, int)
    maker.check_table(target * length)
    matrix = np.zeros((target, length))
    rows = np.arange(target)
    for place, weight in zip(places, weights, strict=True):
        inside = (place >= 0) & (place <= length - 1)
        kept = np.where(inside, weight, 0) if options.exclude_outside else weight
        np.add.at(matrix, (rows, np.clip(place, 0, length - 1).astype(np.int64)), kept)
    if options.exclude_outside:
        matrix = matrix / matrix.sum(axis=1, keepdims=True)
    order = [a for a in range(x.ndim) if a != item.axis] + [item.axis]
    table = maker.constant(matrix.T.astype(x.dtype.numpy))
    product: T = computed(nn.matmul)(x.permute(order), table)
    result: T = product.permute(np.argsort(order).tolist())
    return result
