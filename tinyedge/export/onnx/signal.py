"""Fourier transforms as products with constant matrices, and spectral weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.movement import cut
from tinyedge.export.onnx.registry import Node, operator


def _matrices(node: Node, length: int, bins: int, kind: Any, sign: float) -> tuple[Tensor, Tensor]:
    """cos and sin of 2 pi n k / length, [length, bins]; n k is reduced as an integer."""
    node.check_table(length * bins)
    turns = np.outer(np.arange(length), np.arange(bins)) % length
    angle = 2 * np.pi * turns / length
    cosine, sine = np.cos(angle), sign * np.sin(angle)
    return node.constant(cosine.astype(kind)), node.constant(sine.astype(kind))


def _transform(node: Node, x: Tensor, length: int, bins: int, sign: float) -> tuple[Tensor, Tensor]:
    """x [.., length, 1 or 2] -> real and imaginary parts [.., bins]."""
    cosine, sine = _matrices(node, length, bins, x.dtype.numpy, sign)
    real = x[..., 0]
    re, im = real.matmul(cosine), real.matmul(sine)
    if x.shape[-1] == 2:
        imaginary = x[..., 1]
        re, im = re - imaginary.matmul(sine), im + imaginary.matmul(cosine)
    return re, im


@operator("DFT", limits="fixed sizes")
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
    count = size if length is None else node.integers(length, "dft_length")[0]
    if not isinstance(count, int) or not isinstance(size, int):
        raise node.unsupported("a symbolic axis", supported="fixed sizes")
    if count < 1 or size < 1:
        raise node.invalid(f"a transform of {count} values, of {size}")
    if inverse and onesided:
        return _inverse_real(node, x, place, count if length is not None else 2 * (size - 1))
    x = _fitted(x, place, size, count)
    order = [a for a in range(x.ndim - 1) if a != place] + [place, x.ndim - 1]
    bins = count // 2 + 1 if onesided else count
    re, im = _transform(node, x.permute(order), count, bins, 1.0 if inverse else -1.0)
    result = Tensor.stack([re, im], re.ndim)
    if inverse:
        result = result / float(count)
    return result.permute(np.argsort(order).tolist())


def _fitted(x: Tensor, axis: int, size: int, count: int) -> Tensor:
    """Zeros appended, or the end cut off."""
    if count < size:
        return cut(x, axis, 0, count)
    return x.pad([(0, count - size if a == axis else 0) for a in range(x.ndim)])


def _inverse_real(node: Node, x: Tensor, axis: int, count: int) -> Tensor:
    """The real signal of which x holds the first count // 2 + 1 bins."""
    size = x.shape[axis]
    assert isinstance(size, int)
    bins = count // 2 + 1
    x = _fitted(x, axis, size, bins)
    order = [a for a in range(x.ndim - 1) if a != axis] + [axis, x.ndim - 1]
    moved = x.permute(order)
    node.check_table(bins * count)
    turns = np.outer(np.arange(bins), np.arange(count)) % count
    angle = 2 * np.pi * turns / count
    twice = np.full((bins, 1), 2.0)
    twice[0] = 1.0
    if count % 2 == 0:
        twice[-1] = 1.0
    kind = x.dtype.numpy
    cosine = node.constant((twice * np.cos(angle) / count).astype(kind))
    sine = node.constant((twice * np.sin(angle) / count).astype(kind))
    real = moved[..., 0].matmul(cosine)
    if moved.shape[-1] == 2:
        real = real - moved[..., 1].matmul(sine)
    return real.unsqueeze(real.ndim).permute(np.argsort(order).tolist())


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
            raise node.unsupported("a symbolic frame_length", supported="fixed sizes")
        size = given
    if stride < 1 or size < 1:
        raise node.invalid(f"frame_step {stride}, frame_length {size}")
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
        first, centre, last = places[i : i + 3]
        if first == centre:
            result[min(centre, spectrum - 1), i] = 1
        else:
            up = np.arange(first, min(centre + 1, spectrum))
            result[up, i] = (up - first) / (centre - first)
        if last != centre:
            down = np.arange(centre, min(last, spectrum))
            result[down, i] = (last - down) / (last - centre)
    return node.constant(result.astype(node.dtype("output_datatype", dt.float32).numpy))
