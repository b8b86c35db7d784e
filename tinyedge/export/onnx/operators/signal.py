"""Fourier transforms as products with matrices, which of fixed sizes are constants; and spectral
weights.
"""

from __future__ import annotations

import math

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.registry import Node, operator

AT_ONCE = 1024  # values of a transform that is one product with a matrix


def _waves(node: Node, rows: Size, columns: Size, length: Size, x: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of 2 pi n k / length, [rows, columns]; n k is reduced as an integer."""
    if isinstance(rows, int) and isinstance(columns, int) and isinstance(length, int):
        node.check_table(rows * columns)
        turns = np.outer(np.arange(rows), np.arange(columns)) % length
        angle = 2 * np.pi * turns / length
        kind = x.dtype.numpy
        return node.constant(np.cos(angle).astype(kind)), node.constant(np.sin(angle).astype(kind))
    if maximum(rows) * maximum(columns) > dt.int32.limits[1]:
        raise node.unsupported(
            f"a transform of {show(length)} values",
            supported="transforms of an open size up to 46340",
            next=node.smaller(length),
        )
    return _open_waves(rows, columns, length, x)


def _open_waves(rows: Size, columns: Size, length: Size, x: Tensor) -> tuple[Tensor, Tensor]:
    """The same in a run: of n k, quarters of a turn are taken out as integers, so that what is
    left for a float is small.
    """
    wide = dt.float64 if x.dtype is dt.float64 else dt.float32
    count = Tensor.from_size(length, dt.int32)
    part = Tensor.arange(rows).unsqueeze(1) * Tensor.arange(columns) % count
    quarter = (part * 8 + count) // (count * 2)
    rest = (part * 4 - quarter * count).cast(wide) / Tensor.from_size(length, wide)
    angle = rest * (math.pi / 2)
    swapped, turned = (quarter & 1).eq(1), (quarter & 2).eq(2)
    cosine, sine = angle.cos(), angle.sin()
    across, along = swapped.where(-sine, cosine), swapped.where(cosine, sine)
    across, along = turned.where(-across, across), turned.where(-along, along)
    return across.cast(x.dtype).in_memory(), along.cast(x.dtype).in_memory()


def _transform(
    node: Node, x: Tensor, length: Size, bins: Size, sign: float
) -> tuple[Tensor, Tensor]:
    """x [.., length, 1 or 2] -> real and imaginary parts [.., bins]."""
    if isinstance(length, int) and isinstance(bins, int) and (first := _factor(length)):
        re, im = _in_two_steps(node, x, first, length // first, sign)
        return re[..., :bins], im[..., :bins]
    cosine, sine = _waves(node, length, bins, length, x)
    sine = node.folded(sine * sign)
    real = x[..., 0]
    re, im = real.matmul(cosine), real.matmul(sine)
    if x.shape[-1] == 2:
        imaginary = x[..., 1]
        re, im = re - imaginary.matmul(sine), im + imaginary.matmul(cosine)
    return re, im


def _factor(length: int) -> int:
    """What a long transform is divided by, the nearest to its root; 0 where it is done at once."""
    if length <= AT_ONCE:
        return 0
    factor = next(f for f in range(math.isqrt(length), 0, -1) if length % f == 0)
    return factor if factor > 1 else 0


def _in_two_steps(
    node: Node, x: Tensor, first: int, second: int, sign: float
) -> tuple[Tensor, Tensor]:
    """A transform of first * second values [.., values, 1 or 2] by shorter ones: real and imaginary
    parts [.., values] (Cooley and Tukey 1965, with any two factors).

    Value second * i + j is at [i, j]: transforms over i give [j, k] for bins k, these are turned
    by j * k, and transforms over j give bin k + first * l at [k, l].
    """
    lead, length = x.shape[:-2], first * second
    grid = x.reshape((*lead, first, second, x.shape[-1]))
    along = grid.transpose(len(lead), len(lead) + 1)
    re, im = _transform(node, along, first, first, sign)
    node.check_table(length)
    angle = 2 * np.pi * np.outer(np.arange(second), np.arange(first)) / length
    cosine = node.constant(np.cos(angle).astype(x.dtype.numpy))
    sine = node.constant((sign * np.sin(angle)).astype(x.dtype.numpy))
    turned = Tensor.stack([re * cosine - im * sine, re * sine + im * cosine], re.ndim)
    across = turned.transpose(len(lead), len(lead) + 1)
    re, im = _transform(node, across, second, second, sign)
    re, im = (
        part.transpose(len(lead), len(lead) + 1).reshape((*lead, length)) for part in (re, im)
    )
    return re, im


@operator("DFT", limits="open sizes: up to 46340")
def dft(node: Node, x: Tensor, length: Tensor | None = None, axis: Tensor | None = None) -> Tensor:
    if node.opset < 20:
        place = node.axis(1, x.ndim)
    else:
        place = -2 if axis is None else node.integers(axis, "axis")[0]
        place = node.wrap(place, x.ndim)
    if place == x.ndim - 1 or x.shape[-1] not in (1, 2):
        raise node.invalid(f"axis {place} of {show(x)}")
    size = x.shape[place]
    inverse, onesided = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    count = size if length is None else node.sizes(length, "dft_length")[0]
    if any(isinstance(n, int) and n < 1 for n in (count, size)):
        raise node.invalid(f"a transform of {show(count)} values, of {show(size)}")
    if inverse and onesided:
        whole = (size - 1) * 2 if length is None else count
        return _inverse_real(node, x, place, whole)
    x = _fitted(x, place, count)
    order = [a for a in range(x.ndim - 1) if a != place] + [place, x.ndim - 1]
    bins = count // 2 + 1 if onesided else count
    re, im = _transform(node, x.permute(order), count, bins, 1.0 if inverse else -1.0)
    result = Tensor.stack([re, im], re.ndim)
    if inverse:
        result = result / Tensor.from_size(count, x.dtype)
    return result.permute(np.argsort(order).tolist())


def _fitted(x: Tensor, axis: int, count: Size) -> Tensor:
    """Zeros appended, or the end cut off."""
    more = count - x.shape[axis]
    return x.pad([(0, more if a == axis else 0) for a in range(x.ndim)])


def _inverse_real(node: Node, x: Tensor, axis: int, count: Size) -> Tensor:
    """The real signal of which x holds the first count // 2 + 1 bins."""
    bins = count // 2 + 1
    x = _fitted(x, axis, bins)
    order = [a for a in range(x.ndim - 1) if a != axis] + [axis, x.ndim - 1]
    moved = x.permute(order)
    if isinstance(count, int) and _factor(count):
        real, _ = _transform(node, _mirrored(moved, count), count, count, 1.0)
        real = real / Tensor.from_size(count, x.dtype)
    else:
        real = _at_once_of_bins(node, moved, bins, count)
    return real.unsqueeze(real.ndim).permute(np.argsort(order).tolist())


def _at_once_of_bins(node: Node, x: Tensor, bins: Size, count: Size) -> Tensor:
    """A real signal [.., count] of its first bins [.., bins, 1 or 2], by one product.

    Bins other than the first stand for their mirror images too; the one in the middle has none.
    """
    cosine, sine = _waves(node, bins, count, count, x)
    number = Tensor.arange(bins)
    alone = number.eq(0) | (number * 2).eq(Tensor.from_size(count, dt.int32))
    share = alone.where(1.0, Tensor.full((bins,), 2.0, x.dtype)) / Tensor.from_size(count, x.dtype)
    share = share.unsqueeze(1)
    real = x[..., 0].matmul(node.folded(cosine * share))
    if x.shape[-1] == 2:
        real = real - x[..., 1].matmul(node.folded(sine * share))
    return real


def _mirrored(bins: Tensor, count: int) -> Tensor:
    """All `count` bins of a real signal [.., count, 2] of the first count // 2 + 1 [.., 1 or 2].

    Those that are their own image keep their imaginary parts, which change no real value.
    """
    if bins.shape[-1] == 1:
        bins = bins.pad([(0, 0)] * (bins.ndim - 1) + [(0, 1)])
    others = bins[..., 1 : (count + 1) // 2, :].flip(bins.ndim - 2)
    images = Tensor.concat([others[..., :1], -others[..., 1:]], bins.ndim - 1)
    return Tensor.concat([bins, images], bins.ndim - 2)


@operator("STFT", limits="a fixed frame_length, a constant frame_step")
def stft(
    node: Node,
    signal: Tensor,
    step: Tensor,
    window: Tensor | None = None,
    length: Tensor | None = None,
) -> Tensor:
    """signal [B, L, 1 or 2] (or [B, L]) -> [B, frames, bins, 2]."""
    if signal.ndim == 2:
        signal = signal.unsqueeze(2)
    (stride,) = node.integers(step, "frame_step")
    if length is not None:
        (size,) = node.integers(length, "frame_length")
    else:
        given = signal.shape[1] if window is None else window.shape[0]
        if not isinstance(given, int):
            raise node.unsupported(
                f"a frame_length of {show(given)}",
                supported="a fixed frame_length",
                next=node.remedy(
                    given,
                    otherwise="fix the size with --dim, or give the node a constant frame_length",
                ),
            )
        size = given
    if stride < 1 or size < 1:
        raise node.invalid(f"frame_step {stride}, frame_length {size}")
    node.needs(signal.shape[1], size)
    bins = size // 2 + 1 if node.integer("onesided", 1) else size
    frames = signal.window(1, size, stride).permute((0, 1, 3, 2))
    if window is not None:
        frames = frames * window.cast(signal.dtype).reshape((-1, 1))
    re, im = _transform(node, frames, size, bins, -1.0)
    return Tensor.stack([re, im], re.ndim)


@operator("MelWeightMatrix", limits="constant inputs")
def mel_weight_matrix(
    node: Node, bins: Tensor, length: Tensor, rate: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    (count,) = node.integers(bins, "num_mel_bins")
    (size,) = node.integers(length, "dft_length")
    (hertz,) = node.integers(rate, "sample_rate")
    edges = [
        float(node.constant_input(t, name).reshape(-1)[0])
        for t, name in ((low, "lower_edge_hertz"), (high, "upper_edge_hertz"))
    ]
    if count < 0 or size < 0 or hertz < 1 or not all(0 <= edge < np.inf for edge in edges):
        raise node.invalid(f"{count} bins of {size} values, {edges} Hz of {hertz} Hz")
    mel_low, mel_high = (2595 * np.log10(1 + edge / 700) for edge in edges)
    spectrum = size // 2 + 1
    node.check_table(spectrum * count + count + 2)
    mels = mel_low + np.arange(count + 2) * ((mel_high - mel_low) / (count + 2))
    places = ((size + 1) * (700 * (10 ** (mels / 2595) - 1)) // hertz).astype(np.int64)
    result = np.zeros((spectrum, count))
    for i in range(count):
        first, center, last = places[i : i + 3]
        if first == center:
            result[min(center, spectrum - 1), i] = 1
        else:
            up = np.arange(first, min(center + 1, spectrum))
            result[up, i] = (up - first) / (center - first)
        if last != center:
            down = np.arange(center, min(last, spectrum))
            result[down, i] = (last - down) / (last - center)
    return node.constant(result.astype(node.dtype("output_datatype", dt.float32).numpy))
