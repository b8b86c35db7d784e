"""Convolutions, pools, resizing and sampling."""

from __future__ import annotations

import numpy as np

from tests.onnxfuzz.builder import FLOATS, Builder, Unsuitable
from tests.onnxfuzz.makers import Made, maker

PADDING = ("NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def picture(g: Builder, kinds=FLOATS, dims: tuple[int, ...] = (1, 2, 2, 2, 3)) -> str:
    """A value of a batch, channels and one to three axes of positions."""
    if g.chance(0.5):
        return g.pick(kinds, 3, 5, least=1, fresh=0.0) if _any(g, kinds) else _new(g, kinds, dims)
    return _new(g, kinds, dims)


def _any(g: Builder, kinds) -> bool:
    return any(
        v[0].array.dtype.name in kinds and 3 <= v[0].array.ndim <= 5 and min(v[0].array.shape) >= 1
        for name, v in g.values.items()
        if name not in g.new
    )


def _new(g: Builder, kinds, dims) -> str:
    spatial = g.choice(dims)
    sizes = [
        g.choice({1: (5, 9, 16, 31), 2: (4, 5, 7, 9), 3: (3, 4, 5)}[spatial])
        for _ in range(spatial)
    ]
    if g.open and g.chance(0.5):
        sizes[g.integer(0, spatial - 1)] = g.open
    batch = g.choice((1, 1, 2, 3))
    if g.open and g.chance(0.2):
        batch = g.open
    return g.leaf(g.kind(kinds), (batch, g.choice((1, 2, 3, 4, 6)), *sizes), constant=False)


def window(g: Builder, x: str, most: int = 3) -> dict:
    """kernel_shape, strides, dilations, pads or auto_pad that leave at least one position."""
    sizes = [g.least(x, 2 + a) for a in range(g.array(x).ndim - 2)]
    if not all(sizes):
        raise Unsuitable  # no window fits into an axis of size 0
    kernel, strides, dilations, before, after = [], [], [], [], []
    auto = g.choice(PADDING)
    for size in sizes:
        k = g.integer(1, most)
        d = g.choice((1, 1, 1, 2))
        pads = [g.integer(0, k - 1) if g.chance(0.4) and auto == "NOTSET" else 0 for _ in range(2)]
        while (k - 1) * d + 1 > size + sum(pads):
            k, d = max(1, k - 1), 1
            pads = [min(p, k - 1) for p in pads]
        kernel.append(k)
        dilations.append(d)
        stride = g.choice((1, 1, 2, 3))
        strides.append(stride if auto == "NOTSET" else min(stride, (k - 1) * d + 1))
        before.append(pads[0])
        after.append(pads[1])
    chosen = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    if auto == "NOTSET":
        chosen["pads"] = [*before, *after] if any(before + after) or g.chance(0.5) else None
    else:
        chosen["auto_pad"] = auto
    if all(s == 1 for s in strides) and g.chance(0.5):
        chosen["strides"] = None
    if all(d == 1 for d in dilations) and g.chance(0.7):
        chosen["dilations"] = None
    return chosen


def _groups(g: Builder, channels: int) -> int:
    divisors = [d for d in range(1, channels + 1) if channels % d == 0]
    return g.choice(divisors) if g.chance(0.5) else 1


@maker("Conv", weight=4)
def conv(g: Builder, op: str) -> Made:
    x = picture(g)
    channels = g.known(x, 1)
    group = _groups(g, channels)
    chosen = window(g, x)
    outputs = group * g.integer(1, 3)
    kind = g.kind_of(x)
    weights = g.leaf(kind, (outputs, channels // group, *chosen["kernel_shape"]))
    inputs = [x, weights, *([g.leaf(kind, (outputs,))] if g.chance(0.6) else [])]
    if g.chance(0.3):
        chosen["kernel_shape"] = None
    return g.node(op, inputs, group=group if group > 1 or g.chance(0.3) else None, **chosen)


@maker("ConvTranspose", weight=3)
def conv_transpose(g: Builder, op: str) -> Made:
    """Of finite numbers: whether infinity is multiplied with the zeros between is not defined."""
    x = picture(g)
    if not all(np.isfinite(value.array).all() for value in g.values[x]):
        raise Unsuitable
    channels = g.known(x, 1)
    group = _groups(g, channels)
    spatial = g.array(x).ndim - 2
    kernel = [g.integer(1, 3) for _ in range(spatial)]
    strides = [g.choice((1, 2, 3)) for _ in range(spatial)]
    dilations = [g.choice((1, 1, 2)) for _ in range(spatial)]
    chosen: dict = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    way = g.choice(("pads", "pads", "auto", "shape"))
    if way == "pads":
        chosen["pads"] = [g.integer(0, k - 1) for k in [*kernel, *kernel]]
        if g.chance(0.5):
            chosen["output_padding"] = [
                g.integer(0, max(s, d) - 1) for s, d in zip(strides, dilations, strict=True)
            ]
    elif way == "auto":
        chosen["auto_pad"] = g.choice(("VALID", "SAME_UPPER", "SAME_LOWER"))
    else:
        chosen["auto_pad"] = g.choice(("NOTSET", "SAME_UPPER", "SAME_LOWER"))
        full = [
            s * (g.known(x, 2 + a) - 1) + (k - 1) * d + 1
            for a, (s, k, d) in enumerate(zip(strides, kernel, dilations, strict=True))
        ]
        chosen["output_shape"] = [
            g.integer(max(1, size - k + 1), size) for size, k in zip(full, kernel, strict=True)
        ]
    each = g.integer(1, 3)
    kind = g.kind_of(x)
    weights = g.leaf(kind, (channels, each, *kernel), g.choice(("plain", "normal")))
    inputs = [x, weights, *([g.leaf(kind, (each * group,))] if g.chance(0.6) else [])]
    return g.node(op, inputs, group=group, **chosen)


@maker("MaxPool", "AveragePool", "LpPool", weight=2)
def pools(g: Builder, op: str) -> Made:
    kinds = FLOATS
    if op == "MaxPool" and g.chance(0.15):
        kinds = ("int8", "uint8")
    x = picture(g, kinds)
    chosen = window(g, x)
    ceil = g.choice((None, 0, 1, 1))
    if op == "MaxPool":
        order = g.choice((None, None, 0, 1))
        distinct = all(np.unique(v.array).size == v.array.size for v in g.values[x])
        outputs = g.choice((1, 2)) if distinct else 1  # which of equals it is, nothing says
        return g.node(op, [x], outputs, ceil_mode=ceil, storage_order=order, **chosen)
    if g.opset < (19 if op == "AveragePool" else 18):
        chosen.pop("dilations")
        if op == "LpPool":
            ceil = None
    if op == "LpPool":
        return g.node(op, [x], p=g.choice((None, 1, 2, 3)), ceil_mode=ceil, **chosen)
    count = g.choice((None, 0, 1))
    return g.node(op, [x], ceil_mode=ceil, count_include_pad=count, **chosen)


@maker("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def global_pools(g: Builder, op: str) -> Made:
    return g.node(op, [picture(g)], p=g.choice((None, 1, 2)) if op == "GlobalLpPool" else None)


@maker("MaxUnpool")
def max_unpool(g: Builder, op: str) -> Made:
    x = _new(g, ("float32",), (1, 2))
    if np.isnan(g.array(x)).any():
        raise Unsuitable
    spatial = g.array(x).ndim - 2
    shape = {"kernel_shape": [2] * spatial, "strides": [2] * spatial}
    pool = g.node("MaxPool", [x], 2, **shape)
    unpool = g.node(op, list(pool.output), 1, **shape)
    return [pool, unpool]


MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@maker("Resize", weight=4)
def resize(g: Builder, op: str) -> Made:
    """Every mode; of scales in powers of two and of sizes."""
    mode = g.choice(("nearest", "nearest", "linear", "cubic"))
    x = picture(g, FLOATS[:1] if mode != "nearest" else (*FLOATS[:1], "uint8", "int8", "int32"))
    rank = g.array(x).ndim
    finite = all(np.isfinite(value.array).all() for value in g.values[x])
    if (mode == "cubic" and rank != 4) or (mode != "nearest" and not finite):
        raise Unsuitable  # whether a weight of 0 takes infinity away is not defined
    modes = list(MODES[:4]) + ([MODES[4]] if g.opset >= 19 else [])
    if mode != "nearest" or g.opset < 18 or g.chance(0.9):
        chosen = {"coordinate_transformation_mode": g.choice(modes)}
    else:
        chosen = {}
    chosen["mode"] = mode
    if mode == "nearest":
        chosen["nearest_mode"] = g.choice(NEAREST)
    if mode == "cubic":
        chosen["cubic_coeff_a"] = g.choice((None, -0.5, -0.75))
        chosen["exclude_outside"] = g.choice((None, 0, 1))
    if mode != "nearest" and g.opset >= 18 and g.chance(0.3):
        chosen["antialias"] = 1
    region = ""
    if g.chance(0.1) and mode != "nearest":
        chosen["coordinate_transformation_mode"] = "tf_crop_and_resize"
        chosen["extrapolation_value"] = g.choice((None, 1.5))
        chosen["antialias"] = None
        ends = [g.choice((0.0, 0.25)) for _ in range(rank - 2)]
        tops = [g.choice((1.0, 0.75, 1.25)) for _ in range(rank - 2)]
        region = g.constant([0, 0, *ends, 1, 1, *tops], "float32")
    if g.chance(0.5):
        scales = [g.choice((0.5, 1.0, 2.0, 1.5, 3.0, 0.25)) for _ in range(rank - 2)]
        return g.node(op, [x, region, g.constant([1, 1, *scales], "float32")], **chosen)
    sizes = [g.choice((1, 2, 3, 5, 8, 13)) for _ in range(rank - 2)]
    if mode == "nearest":  # of factors that no rounding moves across an element's end
        sizes = [g.known(x, 2 + a) for a in range(rank - 2)]
        sizes = [g.choice((n, 2 * n, 3 * n, 4 * n, n // 2 if n % 2 == 0 else n)) for n in sizes]
    batch = [g.known(x, 0), g.known(x, 1)]
    if g.opset >= 18 and g.chance(0.3):
        axes = list(range(2, rank))
        policy = g.choice((None, "stretch", "not_larger", "not_smaller"))
        return (
            g.node(
                op,
                [x, region, "", g.constant(sizes)],
                axes=axes,
                keep_aspect_ratio_policy=policy,
                **chosen,
            )
            if not region
            else g.node(op, [x, region, "", g.constant([*batch, *sizes])], **chosen)
        )
    return g.node(op, [x, region, "", g.constant([*batch, *sizes])], **chosen)


@maker("GridSample", weight=1.5)
def grid_sample(g: Builder, op: str) -> Made:
    x = picture(g, FLOATS[:1], (2, 2, 3))
    spatial = g.array(x).ndim - 2
    if spatial < 2 or (spatial == 3 and g.opset < 20):
        raise Unsuitable
    old = g.opset < 20
    modes = ("bilinear", "nearest", "bicubic") if old else ("linear", "nearest", "cubic")
    mode = g.choice(modes[: 3 if spatial == 2 else 2])
    shape = (g.shape_of(x)[0], *(g.integer(1, 4) for _ in range(spatial)), spatial)
    grid = g.filled(shape, lambda rng, s: rng.uniform(-1.4, 1.4, s).astype(np.float32))
    padding = g.choice((None, "zeros", "border", "reflection"))
    corners = g.choice((None, 0, 1))
    return g.node(op, [x, grid], mode=mode, padding_mode=padding, align_corners=corners)


@maker("RoiAlign")
def roi_align(g: Builder, op: str) -> Made:
    x = picture(g, ("float32",), (2,))
    if g.array(x).ndim != 4:
        raise Unsuitable
    count = g.integer(1, 3)
    batch = g.least(x, 0)
    if batch == 0:  # of which no region can be
        raise Unsuitable

    def boxes(rng, s):
        corners = rng.uniform(0, 4, (s[0], 2))
        return np.concatenate([corners, corners + rng.uniform(0.5, 4, (s[0], 2))], -1).astype(
            np.float32
        )

    rois = g.filled((count, 4), boxes)
    batches = g.filled((count,), lambda rng, s: rng.integers(0, batch, s))
    mode = g.choice((None, "avg", "max"))
    corner = g.choice((None, "half_pixel", "output_half_pixel")) if g.opset >= 16 else None
    return g.node(
        op,
        [x, rois, batches],
        mode=mode,
        output_height=g.integer(1, 3),
        output_width=g.integer(1, 3),
        sampling_ratio=g.choice((1, 2, 3)),
        spatial_scale=g.choice((None, 0.5, 1.0)),
        coordinate_transformation_mode=corner,
    )


@maker("Col2Im")
def col2im(g: Builder, op: str) -> Made:
    kernel = [g.integer(1, 2) for _ in range(2)]
    image = [g.integer(2, 5) for _ in range(2)]
    strides = [g.choice((1, 2)) for _ in range(2)]
    counts = [(i - k) // s + 1 for i, k, s in zip(image, kernel, strides, strict=True)]
    channels = g.integer(1, 3)
    x = g.leaf(
        "float32",
        (g.integer(1, 2), channels * kernel[0] * kernel[1], counts[0] * counts[1]),
        "plain",
        False,
    )
    return g.node(op, [x, g.constant(image), g.constant(kernel)], strides=strides)


@maker("AffineGrid")
def affine_grid(g: Builder, op: str) -> Made:
    spatial = g.choice((2, 3))
    batch = g.integer(1, 2)
    theta = g.leaf("float32", (batch, spatial, spatial + 1), constant=False)
    size = g.constant([batch, 2, *(g.integer(1, 4) for _ in range(spatial))])
    return g.node(op, [theta, size], align_corners=g.choice((None, 0, 1)))


@maker("DeformConv")
def deform_conv(g: Builder, op: str) -> Made:
    x = g.leaf("float32", (1, 2, g.integer(3, 5), g.integer(3, 5)), constant=False)
    height, width = g.shape_of(x)[2:]
    weights = g.leaf("float32", (g.integer(1, 3), 2, 2, 2))
    shape = (1, 8, height - 1, width - 1)
    offset = g.filled(shape, lambda rng, s: rng.uniform(-1, 1, s).astype(np.float32))
    inputs = [x, weights, offset]
    if g.chance(0.5):
        mask = g.leaf("float32", (1, 4, height - 1, width - 1), "unit")
        inputs += ["" if g.chance(0.5) else g.leaf("float32", (g.shape_of(weights)[0],)), mask]
    return g.node(op, inputs, kernel_shape=[2, 2])


@maker("LRN")
def lrn(g: Builder, op: str) -> Made:
    return g.node(
        op, [picture(g, ("float32",))], size=g.choice((1, 3, 2, 5)), alpha=g.choice((None, 0.5))
    )


@maker("MaxRoiPool")
def max_roi_pool(g: Builder, op: str) -> Made:
    x = g.leaf("float32", (2, g.integer(1, 3), g.integer(3, 6), g.integer(3, 6)), "plain", False)

    def boxes(rng, s):
        corners = rng.integers(0, 3, (s[0], 2))
        sizes = rng.integers(0, 4, (s[0], 2))
        batch = rng.integers(0, 2, (s[0], 1))
        return np.concatenate([batch, corners, corners + sizes], -1).astype(np.float32)

    rois = g.filled((g.integer(1, 3), 5), boxes)
    return g.node(op, [x, rois], pooled_shape=[g.integer(1, 3), g.integer(1, 3)])
