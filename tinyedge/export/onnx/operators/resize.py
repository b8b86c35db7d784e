"""Resizing: Resize and Upsample."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.uop import Size, UOp
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.elements import Quotient
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators import interpolation
from tinyedge.export.onnx.operators.shapes import checked_shape
from tinyedge.export.onnx.registry import Node, operator

OUTWARD = "floor, ceil when shrinking"  # how operator sets before 11 rounded
MANY_SIZES = 1 << 16  # of which each is tried


@dataclass(frozen=True)
class Axis:
    """One resized axis."""

    axis: int
    length: Size
    target: Size
    scale: float | None  # out / in as ONNX counts it; None where only a run knows it
    roi: tuple[float, float] = (0.0, 1.0)
    # the scale as a quotient; None where that is target / length
    ratio: interpolation.Ratio | None = None

    @property
    def open(self) -> bool:
        return isinstance(self.length, UOp) or isinstance(self.target, UOp)


@dataclass(frozen=True)
class Options:
    """The attributes of Resize."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    exclude_outside: bool
    extrapolation: float
    antialias: bool


@operator("Resize", limits="open sizes: not tf_crop_and_resize, keep_aspect_ratio_policy")
def resize(
    node: Node,
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Tensor:
    if node.opset < 11:  # inputs X, scales
        scales, roi = roi, None
        options = Options(
            node.text("mode", "nearest"), "asymmetric", OUTWARD, -0.75, False, 0, False
        )
    else:
        options = Options(
            node.text("mode", "nearest"),
            node.text("coordinate_transformation_mode", "half_pixel"),
            node.text("nearest_mode", "round_prefer_floor"),
            node.number("cubic_coeff_a", -0.75),
            bool(node.integer("exclude_outside", 0)),
            node.number("extrapolation_value", 0.0),
            bool(node.integer("antialias", 0)),
        )
    axes = node.integer_list("axes")
    places = list(range(x.ndim)) if axes is None else [node.wrap(a, x.ndim) for a in axes]
    if sizes is not None and sizes.shape != (0,):
        chosen = _by_sizes(node, x, places, node.sizes(sizes, "sizes"))
    elif scales is not None:
        chosen = _by_scales(node, x, places, _values(node, scales, "scales"))
    else:
        raise node.invalid("it has neither scales nor sizes")
    if options.coordinates == "tf_crop_and_resize":
        chosen = _with_regions(node, chosen, roi)
    return _resized(node, x, chosen, options)


@operator("Upsample")
def upsample(node: Node, x: Tensor, scales: Tensor | None = None) -> Tensor:
    values = node.number_list("scales") if scales is None else _values(node, scales, "scales")
    return upsampled(node, x, values or [], node.text("mode", "nearest"), "asymmetric")


def upsampled(node: Node, x: Tensor, scales: Sequence[Any], mode: str, coordinates: str) -> Tensor:
    """x resized by a scale for each axis."""
    options = Options(mode, coordinates, OUTWARD, -0.75, False, 0, False)
    return _resized(node, x, _by_scales(node, x, list(range(x.ndim)), scales), options)


def _values(node: Node, tensor: Tensor, what: str) -> list[Any]:
    """Floats, or quotients of symbolic sizes."""
    value = node.context.knowledge.value(tensor)
    if value is None:
        node.constant_input(tensor, what)
    return value.reshape(-1).tolist()  # type: ignore[no-any-return]


def _by_scales(node: Node, x: Tensor, places: Sequence[int], scales: Sequence[Any]) -> list[Axis]:
    if len(scales) != len(places):
        raise node.invalid(f"{len(scales)} scales for {len(places)} axes")
    result = []
    for axis, scale in zip(places, scales, strict=True):
        length = x.shape[axis]
        if isinstance(scale, (UOp, Quotient)):
            result.append(_by_quotient(axis, length, scale))
            continue
        if not math.isfinite(scale) or scale <= 0:
            raise node.invalid(f"a scale is {scale}")
        if isinstance(length, int):
            target: Size = math.floor(np.float32(length) * np.float32(scale))
            result.append(Axis(axis, length, target, float(scale)))
            continue
        ratio = _ratio(float(scale), length)
        if ratio is None:
            raise node.unsupported(
                f"an axis of {show(length)} elements is scaled by {scale}",
                supported="open sizes scaled by a fraction of small numbers, such as 2, 0.5 or 1.7",
                next=node.remedy(
                    length, otherwise="fix the size with --dim, or give `sizes` instead of `scales`"
                ),
            )
        target = length * ratio[0] // ratio[1]
        result.append(Axis(axis, length, target, float(scale), ratio=ratio))
    return _checked(node, x, result)


def _by_quotient(axis: int, length: Size, scale: UOp | Quotient) -> Axis:
    """By a scale that is computed from sizes."""
    a, b = (scale.size, scale.denominator) if isinstance(scale, Quotient) else (scale, 1)
    return Axis(axis, length, length * a // b, None, ratio=(a, b))


def _ratio(scale: float, length: UOp) -> tuple[int, int] | None:
    """The simplest fraction that is the scale in float32 and rounds no size otherwise, if any."""
    low, high = bounds(length)
    sizes = np.arange(max(low, 0), min(high, MANY_SIZES) + 1)
    targets = np.floor(sizes.astype(np.float32) * np.float32(scale))
    for digits in range(13):
        fraction = Fraction(scale).limit_denominator(1 << digits)
        if np.float32(fraction) == np.float32(scale):
            top, bottom = fraction.as_integer_ratio()
            exact = high <= MANY_SIZES or fraction == scale
            if exact and (sizes * top // bottom == targets).all():
                return top, bottom
    return None


def _by_sizes(node: Node, x: Tensor, places: Sequence[int], sizes: Sequence[Size]) -> list[Axis]:
    if len(sizes) != len(places):
        raise node.invalid(f"{len(sizes)} sizes for {len(places)} axes")
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    targets = list(sizes)
    ratio = None
    if policy != "stretch":
        lengths = [x.shape[axis] for axis in places]
        if not all(isinstance(s, int) for s in [*lengths, *targets]):
            raise node.unsupported(
                f"keep_aspect_ratio_policy {policy!r} of open sizes {show([*lengths, *targets])}",
                supported="'stretch'",
                next=node.remedy(*lengths, *targets),
            )
        ratios = [t / n for t, n in zip(targets, lengths, strict=True)]  # type: ignore[operator]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        targets = [math.floor(n * ratio + 0.5) for n in lengths]  # type: ignore[operator]
    result = []
    for axis, target in zip(places, targets, strict=True):
        length = x.shape[axis]
        scale = ratio
        if scale is None and isinstance(length, int) and isinstance(target, int):
            scale = target / length if length else 1.0
        elif scale is None:
            scale = _known_ratio(target, length)
        known = None if scale is None else Fraction(scale).as_integer_ratio()
        result.append(Axis(axis, length, target, scale, ratio=known))
    return _checked(node, x, result)


def _known_ratio(target: Size, length: Size) -> float | None:
    """target / length where it is the same for all sizes."""
    for factor in (1, 2, 3, 4, 8, 16, 32):
        if target == length * factor:
            return float(factor)
        if target * factor == length:
            return 1 / factor
    return None


def _checked(node: Node, x: Tensor, axes: list[Axis]) -> list[Axis]:
    shape = list(x.shape)
    for item in axes:
        shape[item.axis] = item.target
    checked_shape(node, shape)
    return axes


def _with_regions(node: Node, axes: list[Axis], roi: Tensor | None) -> list[Axis]:
    if roi is None:
        raise node.invalid("tf_crop_and_resize needs roi")
    values = node.constant_input(roi, "roi").reshape(-1).tolist()
    if len(values) != 2 * len(axes):
        raise node.invalid(f"{len(values)} values of roi for {len(axes)} axes")
    return [replace(item, roi=(values[i], values[i + len(axes)])) for i, item in enumerate(axes)]


def _resized(node: Node, x: Tensor, axes: list[Axis], options: Options) -> Tensor:
    modes: dict[str, Callable[[Node, Tensor, Axis, Options], Tensor]] = {
        "nearest": _nearest,
        "linear": _linear,
        "bilinear": _linear,
        "cubic": _cubic,
    }
    if options.mode not in modes:
        raise node.invalid(f"mode is {options.mode!r}")
    outside = None
    kind = x.dtype
    for item in axes:
        same = item.length == item.target and item.scale in (1.0, None)
        if options.coordinates != "tf_crop_and_resize" and same:
            continue
        if item.target == 0 or item.length == 0:
            shape = list(x.shape)
            shape[item.axis] = item.target
            if 0 not in shape:
                raise node.invalid(f"{show(x)} is resized to {show(shape)}")
            x = Tensor.full(shape, 0, x.dtype)
            continue
        if options.coordinates == "tf_crop_and_resize":
            place = _source(node, item, options)
            beyond = (place < 0) | (place > item.length - 1)
            mask = node.constant(
                beyond.reshape([-1 if a == item.axis else 1 for a in range(x.ndim)])
            )
            outside = mask if outside is None else outside | mask
        if options.mode != "nearest" and not x.dtype.is_float:
            x = x.cast(dt.float32)  # back once: rounded after each axis, digits would be lost
        if item.open and options.mode != "nearest":
            x = _interpolated(node, x, item, options)
        else:
            x = modes[options.mode](node, x, item, options)
    if outside is not None:
        x = outside.where(options.extrapolation, x)
    if options.mode == "cubic" or options.antialias:
        return x if kind.is_float else x.round().cast(kind)
    return x.cast(kind)


def _source(node: Node, item: Axis, options: Options) -> Any:
    """For every output place its place in the input, in double precision."""
    length, target, scale = item.length, item.target, item.scale
    if not isinstance(length, int) or not isinstance(target, int):
        raise node.unsupported(
            f"coordinate_transformation_mode {options.coordinates!r} along an axis that goes "
            f"from {show(length)} to {show(target)} elements",
            supported="fixed sizes",
            next=node.remedy(length, target),
        )
    assert scale is not None
    node.check_table(target)
    place = np.arange(target, dtype=np.float64)
    mode = options.coordinates
    exact = length * scale  # the output's size before it was rounded down
    if mode == "half_pixel":
        return (place + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        adjustment = target / exact
        return length / 2 * (1 - adjustment) + (place + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (place + 0.5) / scale - 0.5 if exact > 1 else np.zeros(target)
    if mode == "align_corners":
        return place * ((length - 1) / (exact - 1)) if exact != 1 else np.zeros(target)
    if mode == "asymmetric":
        return place / scale
    if mode == "tf_half_pixel_for_nn":
        return (place + 0.5) / scale
    if mode == "tf_crop_and_resize":
        start, end = item.roi
        if exact != 1:
            return start * (length - 1) + place * ((end - start) * (length - 1) / (exact - 1))
        return np.full(target, 0.5 * (start + end) * (length - 1))
    raise node.invalid(f"coordinate_transformation_mode is {mode!r}")


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


def _nearest(node: Node, x: Tensor, item: Axis, options: Options) -> Tensor:
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
        return interpolation.outward(x, _places(node, item, options))
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
        raise node.invalid(f"nearest_mode is {chosen!r}")
    if item.open:
        return interpolation.nearest(x, _places(node, item, options), chosen)
    place = _source(node, item, options)
    assert isinstance(item.length, int)
    nearest = np.clip(rounding[chosen](place), 0, item.length - 1)
    return x.gather(axis, node.constant(nearest.astype(np.int32)))


def _places(node: Node, item: Axis, options: Options) -> interpolation.Places:
    """The places along an axis of open size."""
    ratio = (item.target, item.length) if item.ratio is None else item.ratio
    try:
        found = interpolation.places(
            options.coordinates, item.axis, item.length, item.target, ratio
        )
    except interpolation.TooLarge:
        raise node.unsupported(
            f"{show(item.length)} elements are resized to {show(item.target)}",
            supported="open sizes whose product is below 2**28",
            next=node.smaller(item.length, item.target),
        ) from None
    if found is None:
        _source(node, item, options)
        raise node.invalid(f"coordinate_transformation_mode is {options.coordinates!r}")
    return found


def _interpolated(node: Node, x: Tensor, item: Axis, options: Options) -> Tensor:
    """Linear or cubic along an axis of open size."""
    at = _places(node, item, options)
    smooth = options.antialias and (item.scale is None or item.scale < 1)
    if options.mode != "cubic" and not smooth:
        return interpolation.linear(x, at)
    kernel: interpolation.Kernel = interpolation.triangle
    if options.mode == "cubic":
        kernel = interpolation.cubic(options.cubic)
    radius = 2 if options.mode == "cubic" else 1
    resize = interpolation.filtered if smooth else interpolation.weighted
    return resize(x, at, kernel, radius, exclude=options.exclude_outside)


def _linear(node: Node, x: Tensor, item: Axis, options: Options) -> Tensor:
    if options.antialias and item.scale is not None and item.scale < 1:
        return _filtered(node, x, item, options, _triangle, 1.0)
    assert isinstance(item.length, int)
    place = np.clip(_source(node, item, options), 0, item.length - 1)
    low = np.floor(place)
    high = np.minimum(low + 1, item.length - 1)
    return _blend(node, x, item.axis, [low, high], [1 - (place - low), place - low])


def _blend(
    node: Node, x: Tensor, axis: int, places: Sequence[Any], weights: Sequence[Any]
) -> Tensor:
    """The sum of elements at places, each times a weight, along an axis."""
    shape = [-1 if a == axis else 1 for a in range(x.ndim)]
    total: Tensor | None = None
    for place, weight in zip(places, weights, strict=True):
        if not weight.any():
            continue
        taken = x.gather(axis, node.constant(place.astype(np.int32)))
        part = taken * node.constant(weight.astype(x.dtype.numpy).reshape(shape))
        total = part if total is None else total + part
    assert total is not None
    return total


def _cubic(node: Node, x: Tensor, item: Axis, options: Options) -> Tensor:
    """Keys' cubic convolution over four neighbors; those outside repeat the border, or weigh 0."""
    a = options.cubic

    def kernel(distance: Any) -> Any:
        d = np.abs(distance)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

    if options.antialias and item.scale is not None and item.scale < 1:
        return _filtered(node, x, item, options, kernel, 2.0)
    place = _source(node, item, options)
    assert isinstance(item.length, int)
    first = np.floor(place) - 1
    places = [first + tap for tap in range(4)]
    weights = [kernel(place - p) for p in places]
    return _weighted(node, x, item, options, places, weights)


def _triangle(distance: Any) -> Any:
    return np.maximum(0.0, 1 - np.abs(distance))


def _filtered(
    node: Node,
    x: Tensor,
    item: Axis,
    options: Options,
    kernel: Callable[[Any], Any],
    radius: float,
) -> Tensor:
    """Shrinking with a kernel stretched by 1 / scale, normalized."""
    place = _source(node, item, options)
    assert isinstance(item.length, int) and item.scale is not None
    reach = radius / item.scale
    first = np.floor(place - reach) + 1
    node.check_table(math.ceil(2 * reach) * len(place))
    places = [first + tap for tap in range(math.ceil(2 * reach))]
    weights = [kernel((place - p) * item.scale) for p in places]
    total = np.sum(weights, axis=0)
    return _weighted(node, x, item, options, places, [w / total for w in weights])


def _weighted(
    node: Node, x: Tensor, item: Axis, options: Options, places: list[Any], weights: list[Any]
) -> Tensor:
    """One matrix product with the interpolation weights: [target, length] is constant."""
    length, target = item.length, item.target
    assert isinstance(length, int) and isinstance(target, int)
    node.check_table(target * length)
    matrix = np.zeros((target, length))
    rows = np.arange(target)
    for place, weight in zip(places, weights, strict=True):
        inside = (place >= 0) & (place <= length - 1)
        kept = np.where(inside, weight, 0) if options.exclude_outside else weight
        np.add.at(matrix, (rows, np.clip(place, 0, length - 1).astype(np.int64)), kept)
    if options.exclude_outside:
        matrix = matrix / matrix.sum(axis=1, keepdims=True)
    order = [a for a in range(x.ndim) if a != item.axis] + [item.axis]
    weight_tensor = node.constant(matrix.T.astype(x.dtype.numpy))
    return x.permute(order).matmul(weight_tensor).permute(np.argsort(order).tolist())
