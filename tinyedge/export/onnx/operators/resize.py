"""Resizing: Resize and Upsample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.uop import Size, UOp
from tinyedge.core.tensor.open_resizing import TooLarge
from tinyedge.core.tensor.resizing import FIXED_ONLY, OUTWARD, Axis, Options, Refused, resized
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.elements import Quotient
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.shapes import checked_shape
from tinyedge.export.onnx.registry import Node, operator

MANY_SIZES = 1 << 16  # of which each is tried


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
        options = Options(node.text("mode", "nearest"), "asymmetric", OUTWARD)
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
    if options.coordinates == FIXED_ONLY:
        chosen = _with_regions(node, chosen, roi)
    return _resized(node, x, chosen, options)


@operator("Upsample")
def upsample(node: Node, x: Tensor, scales: Tensor | None = None) -> Tensor:
    values = node.number_list("scales") if scales is None else _values(node, scales, "scales")
    return upsampled(node, x, values or [], node.text("mode", "nearest"), "asymmetric")


def upsampled(node: Node, x: Tensor, scales: Sequence[Any], mode: str, coordinates: str) -> Tensor:
    """x resized by a scale for each axis."""
    options = Options(mode, coordinates, OUTWARD)
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
    for item in axes:
        if options.coordinates == FIXED_ONLY and item.open:
            raise node.unsupported(
                f"coordinate_transformation_mode {FIXED_ONLY!r} along an axis that goes "
                f"from {show(item.length)} to {show(item.target)} elements",
                supported="fixed sizes",
                next=node.remedy(item.length, item.target),
            )
    try:
        return resized(node, x, axes, options)
    except Refused as error:
        raise node.invalid(str(error)) from None
    except TooLarge as error:
        length, target = error.sizes
        raise node.unsupported(
            f"{show(length)} elements are resized to {show(target)}",
            supported="open sizes whose product is below 2**28",
            next=node.smaller(length, target),
        ) from None
