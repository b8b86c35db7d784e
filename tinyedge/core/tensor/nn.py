"""Layers of neural networks, composed of other operations: softmax, products, convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from tinyedge.core import dtype as dt
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.base import Axes, Sizes, UnequalSizes, axes_of, computed, each, fixed
from tinyedge.core.tensor.mathematics import log1p
from tinyedge.core.tensor.overlapping import resized, spread
from tinyedge.core.tensor.reductions import Reductions

T = TypeVar("T", bound=Reductions)


def softmax(x: T, axes: Axes = -1) -> T:
    """exp(x - max) / sum(exp(x - max)) along an axis, or over several together.

    No gradient flows through the maximum: whatever is taken there, the quotient is the same.
    """
    e = (x - x.max(axes, keepdims=True).detach()).exp()
    return e / e.sum(axes, keepdims=True)


def log_softmax(x: T, axes: Axes = -1) -> T:
    """x - log(sum(exp(x))) along an axis, or over several together."""
    most = x.max(axes, keepdims=True)
    return x - most - _log_of_sum(x, most, axes)


def log_sum_exp(x: T, axes: Axes = None, keepdims: bool = False) -> T:
    """log(sum(exp(x)))."""
    if axes is not None and not axes_of(axes, x.ndim):
        return x
    most = x.max(axes, keepdims=True)
    finite = most.isinf().where(0.0, most)
    result = finite + _log_of_sum(x, finite, axes)
    return result if keepdims else result.squeeze(axes_of(axes, x.ndim))


def _log_of_sum(x: T, most: T, axes: Axes) -> T:
    """log(sum(exp(x - most))): terms that are 1 are counted, so that a small rest of the sum
    is not lost beside them.
    """
    shifted = x - most
    ones = x.eq(most)
    rest = ones.where(shifted, shifted.exp()).sum(axes, keepdims=True)
    return log1p(rest + (ones.cast(x.dtype).sum(axes, keepdims=True) - 1.0))


def matmul(x: T, other: T) -> T:
    """numpy's matmul: x's last axis with other's last but one; the rest broadcasts."""
    if x.ndim == 0 or other.ndim == 0:
        raise ValueError("matmul needs at least one axis on both sides")
    a = x.unsqueeze(0) if x.ndim == 1 else x
    b = other.unsqueeze(1) if other.ndim == 1 else other
    if a.shape[-1] != b.shape[-2]:
        message = f"matmul of {list(x.shape)} and {list(other.shape)}"
        raise UnequalSizes(message, (a.shape[-1], b.shape[-2]))
    left, right = a.unsqueeze(-2), b.transpose().unsqueeze(-3)
    result = (left * right).sum(-1)
    if x.ndim == 1:
        result = result.squeeze(-2)
    return result.squeeze(-1) if other.ndim == 1 else result


def attention_weights(
    query: T,
    key: T,
    mask: T | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> T:
    """softmax(query @ key' * scale + mask), [*, T, S], of query [*, T, H] and key [*, S, H].

    mask: what is added, or bools: true where a query may look. causal: no query looks beyond its
    own place. scale: None for 1 / sqrt(H).
    """
    width = query.shape[-1]
    factor = 1 / math.sqrt(width) if scale is None and isinstance(width, int) else scale
    if factor is None:
        raise ValueError(f"the width {width} is open: give a scale")
    scores = computed(matmul)(query, key.transpose()) * factor
    if causal:
        rows = scores.arange(scores.shape[-2]).unsqueeze(-1)
        scores = (scores.arange(scores.shape[-1]) <= rows).where(scores, -math.inf)
    if mask is not None and mask.dtype is dt.bool_:
        scores = mask.where(scores, -math.inf)
    elif mask is not None:
        scores = scores + mask
    weights: T = computed(softmax)(scores)
    return weights


def conv(
    x: T,
    weight: T,
    bias: T | None = None,
    *,
    strides: Sequence[int] = (),
    pads: Sequence[tuple[int, int]] = (),
    dilations: Sequence[int] = (),
    groups: int = 1,
) -> T:
    """Convolution (cross-correlation) of x [N, C, *S] with weight [M, C/groups, *K]."""
    spatial = x.ndim - 2
    strides = tuple(strides) or (1,) * spatial
    dilations = tuple(dilations) or (1,) * spatial
    pads = tuple(pads) or ((0, 0),) * spatial
    message = f"conv of {list(x.shape)} with {list(weight.shape)}, {groups} groups"
    if spatial < 0 or weight.ndim != x.ndim or {*map(len, (strides, dilations, pads))} != {spatial}:
        raise ValueError(f"{message}, strides {strides}, dilations {dilations}, pads {pads}")
    padded = x.pad([(0, 0), (0, 0), *pads])
    batch, channels = x.shape[:2]
    kernel = [fixed(size) for size in weight.shape[2:]]
    windows = _windows(padded, kernel, strides, dilations)
    out = windows.shape[2 : 2 + spatial]
    per_group = channels // groups
    filters = weight.shape[0] // groups
    if per_group != weight.shape[1]:
        raise UnequalSizes(message, (per_group, weight.shape[1]))
    left = windows.reshape((batch, groups, 1, per_group, *out, *kernel))
    right = weight.reshape((1, groups, filters, per_group, *(1,) * spatial, *kernel))
    last = 4 + spatial
    total = (left * right).sum((3, *range(last, last + spatial)))
    return _biased(total.reshape((batch, weight.shape[0], *out)), bias)


def margins(padding: Sizes, axes: int) -> list[tuple[int, int]]:
    """What is added before and after each spatial axis: one number for all, one for each axis, or
    two for each, the last axis first, as torch's and tinygrad's `pad` have them. Raises ValueError.
    """
    if not isinstance(padding, int) and len(padding) == 2 * axes != axes:
        return [(padding[i], padding[i + 1]) for i in range(2 * axes - 2, -1, -2)]
    return [(size, size) for size in each(padding, axes, "padding")]


def _windows(x: T, taps: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> T:
    """x [N, C, *S] in windows of so many taps along each spatial axis: [N, C, *O, *K]."""
    for axis, window in enumerate(zip(taps, strides, dilations, strict=True), start=2):
        x = x.window(axis, *window)
    return x


def _biased(x: T, bias: T | None) -> T:
    """x [N, C, *S] with a number added for each channel."""
    return x if bias is None else x + bias.reshape((1, -1) + (1,) * (x.ndim - 2))


def conv_transpose(
    x: T,
    weight: T,
    bias: T | None = None,
    *,
    strides: Sequence[int] = (),
    pads: Sequence[tuple[int, int]] = (),
    dilations: Sequence[int] = (),
    output_padding: Sequence[int] = (),
    groups: int = 1,
) -> T:
    """The transpose of a convolution: x [N, C, *S], weight [C, M/groups, *K] -> [N, M, *O].

    O = (S-1)*stride + (K-1)*dilation + 1 + output_padding - pad_before - pad_after. The output
    is computed by stride phase: position q*stride + p takes taps p, p + stride, ... Phases that
    lack the last one of these multiply a zero by a zero, so that infinities reach no further.
    """
    spatial = x.ndim - 2
    ones = (1,) * spatial
    strides = tuple(strides) or ones
    dilations = tuple(dilations) or ones
    extra = tuple(output_padding) or (0,) * spatial
    cut = tuple(pads) or ((0, 0),) * spatial
    batch, channels = x.shape[:2]
    # A dilation is one of the windows where the stride is 1; else the kernel has gaps.
    steps = [d if s == 1 else 1 for d, s in zip(dilations, strides, strict=True)]
    gaps = [1 if s == 1 else d for d, s in zip(dilations, strides, strict=True)]
    kernel = weight
    for axis, gap in enumerate(gaps, start=2):
        kernel = spread(kernel, axis, gap)
    span = [fixed(size) for size in kernel.shape[2:]]
    taps = [-(-k // s) for k, s in zip(span, strides, strict=True)]
    reach = [(t - 1) * step for t, step in zip(taps, steps, strict=True)]
    padded = x.pad([(0, 0), (0, 0), *((r, r) for r in reach)])
    windows = _windows(padded, taps, ones, steps)
    blocks = windows.shape[2 : 2 + spatial]
    # left  [N, G, 1, C, (Q, 1 or P)*, T*]     right [1, G, M, C, (1, P)*, T*]
    interleaved = [size for q in blocks for size in (q, 1)]
    left = windows.reshape((batch, groups, 1, channels // groups, *interleaved, *taps))
    first_tap = 4 + 2 * spatial
    for axis, (length, stride, gap) in enumerate(zip(span, strides, gaps, strict=True)):
        if gap > 1 or length % stride:
            left = _at_taps(left, 5 + 2 * axis, first_tap + axis, length, stride, gap)
    right = _phases(kernel, taps, strides, groups)
    total = (left * right).sum((3, *range(first_tap, first_tap + spatial)))
    sizes = [q * s for q, s in zip(blocks, strides, strict=True)]
    result = total.reshape((batch, groups * weight.shape[1], *sizes))
    ends = [
        (size - 1) * stride + length + (length - 1) * (step - 1) + more - after
        for size, stride, length, step, more, (_, after) in zip(
            x.shape[2:], strides, span, steps, extra, cut, strict=True
        )
    ]
    return _biased(_cropped(result, [before for before, _ in cut], ends), bias)


def _at_taps(left: T, phase: int, tap: int, length: int, stride: int, gap: int) -> T:
    """The windows of a transposed convolution for each phase of a stride, an axis of size 1 before,
    with zeros where a kernel so long, with gaps, has no tap: an infinity times its 0 is NaN.
    """
    taps = fixed(left.shape[tap])
    shape = [stride if axis == phase else size for axis, size in enumerate(left.shape)]
    order = [axis for axis in range(left.ndim) if axis not in (phase, tap)] + [tap, phase]
    places = left.expand(shape).flip(tap).permute(order).flatten(left.ndim - 2)
    last = places.ndim - 1
    chosen = spread(resized(places, last, length).stride(last, gap), last, gap)
    whole = resized(chosen, last, taps * stride).reshape((*places.shape[:-1], taps, stride))
    return whole.permute([order.index(axis) for axis in range(left.ndim)]).flip(tap)


def _phases(kernel: T, taps: Sequence[int], strides: Sequence[int], groups: int) -> T:
    """The kernel [C, M, *K] of a transposed convolution by phases p of its strides, as [1, G, M,
    C/G, (1, P)*, T*], its taps reversed: block q of the output sums x[q - t] * w[t * stride + p].
    """
    channels, filters = kernel.shape[:2]
    spatial = len(taps)
    split = [size for t, s in zip(taps, strides, strict=True) for size in (t, s)]
    missing = [t * s - fixed(k) for t, s, k in zip(taps, strides, kernel.shape[2:], strict=True)]
    wide = kernel.pad([(0, 0), (0, 0), *((0, amount) for amount in missing)])
    wide = wide.reshape((channels, filters, *split)).flip([2 + 2 * i for i in range(spatial)])
    grouped = wide.reshape((groups, channels // groups, filters, *split))
    phases, places = ([first + 2 * i for i in range(spatial)] for first in (4, 3))
    ordered = grouped.permute([0, 2, 1, *phases, *places])
    ones = [size for s in strides for size in (1, s)]
    return ordered.reshape((1, groups, filters, channels // groups, *ones, *taps))


def _cropped(x: T, starts: Sequence[Size], ends: Sequence[Size]) -> T:
    """x [N, C, *S] from `starts` to `ends` along its spatial axes; zeros beyond its own end."""
    region: list[tuple[Size, Size]] = [(0, size) for size in x.shape[:2]]
    region += zip(starts, ends, strict=True)
    over = [end - size for end, size in zip(ends, x.shape[2:], strict=True)]
    tail = [(0, more if isinstance(more, int) and more > 0 else 0) for more in over]
    return x.pad([(0, 0), (0, 0), *tail]).shrink(region)
