"""The hand-written kernels: compiled for each tile, their operands laid out, the best tile chosen.

What a kernel wants besides its operands' own layout - channels last, a halo, weights in panels - is
made before it is timed, as it would be in the middle of a network. Attention packs its keys and
values itself, because they are no weights.
"""

from __future__ import annotations

import ctypes
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.worker import measure
from tinyedge.targets.cpu import compiler as compilers

Array = np.ndarray[Any, Any]
SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-w")
# Rows by vectors of a tile, by the number of vector registers. A tile takes rows*vectors + vectors
# + 1 of them.
TILES = {32: ((6, 4), (7, 4), (8, 3), (12, 2), (14, 2)), 16: ((6, 2), (4, 3), (7, 1))}
BLOCK = 128  # channels of a convolution whose weights are read again for each row of pixels
TRIES = 3


@cache
def lanes() -> int:
    """Floats in the widest vector of this machine, as the compiler knows it."""
    command = [*compilers.find().command, "-march=native", "-dM", "-E", "-x", "c", "/dev/null"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return 16 if "__AVX512F__" in said else 8 if "__AVX__" in said else 4


def tiles() -> tuple[tuple[int, int], ...]:
    """The tiles that fit this machine's registers."""
    many = lanes() == 16 or platform.machine() in ("aarch64", "arm64")
    return TILES[32 if many else 16]


@dataclass(frozen=True)
class Kernels:
    """The kernels of one tile."""

    rows: int
    panel: int  # columns: vectors * lanes
    library: ctypes.CDLL

    def __call__(self, name: str, *arguments: Array | int | float) -> Callable[[], None]:
        """A call of a kernel, its arguments converted once."""
        function = self.library[name]
        function.restype = None
        given = [_argument(argument) for argument in arguments]

        def call() -> None:
            function(*given)

        return call


def _argument(value: Array | int | float) -> Any:
    if isinstance(value, np.ndarray):
        pointer = ctypes.c_void_p(value.ctypes.data)
        pointer.array = value  # type: ignore[attr-defined]  # kept as long as its address
        return pointer
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_long(value)


def compiled(folder: Path, tile: tuple[int, int]) -> Kernels:
    """The kernels of a tile, compiled into `folder` where the source is newer."""
    rows, vectors = tile
    file = folder / f"kernels-{lanes()}-{rows}x{vectors}.so"
    if not file.exists() or file.stat().st_mtime < SOURCE.stat().st_mtime:
        folder.mkdir(parents=True, exist_ok=True)
        sizes = (f"-DW={lanes()}", f"-DR={rows}", f"-DC={vectors}")
        command = [*compilers.find().command, *FLAGS, *sizes, "-shared", "-fPIC", "-o", file]
        subprocess.run([*map(str, command), str(SOURCE)], check=True)
    return Kernels(rows, vectors * lanes(), ctypes.CDLL(str(file)))


def aligned(shape: Sequence[int]) -> Array:
    """Zeros that begin at a cache line."""
    count = int(np.prod(shape))
    whole = np.zeros(count + 16, np.float32)
    start = -whole.ctypes.data % 64 // 4
    return whole[start : start + count].reshape(shape)


def panels(matrix: Array, width: int) -> Array:
    """[steps, columns] as [columns / width, steps, width], with zeros at the end."""
    steps, columns = matrix.shape
    count = -(-columns // width)
    padded = aligned((steps, count * width))
    padded[:, :columns] = matrix
    return _own(padded.reshape(steps, count, width).transpose(1, 0, 2))


Prepared = tuple[Callable[[], None], Callable[[], Array]]
"""A run, and what gives its result in ONNX's layout."""


def _multiply_add(k: Kernels, x: Sequence[Array], w: Sequence[Array], _: Any) -> Prepared:
    out = aligned(x[0].shape)
    return k("multiply_add", *x, out, out.size), lambda: out


def _copy(k: Kernels, x: Sequence[Array], w: Sequence[Array], _: Any) -> Prepared:
    out = aligned(x[0].shape)
    return k("copy", x[0], out, out.size), lambda: out


def _sum(k: Kernels, x: Sequence[Array], w: Sequence[Array], _: Any) -> Prepared:
    out = aligned((1,))
    return k("sum", x[0], out, x[0].size), lambda: out


def _softmax(k: Kernels, x: Sequence[Array], w: Sequence[Array], _: Any) -> Prepared:
    out = aligned(x[0].shape)
    width = x[0].shape[-1]
    return k("softmax", x[0], out, out.size // width, width), lambda: out


def _layer_norm(k: Kernels, x: Sequence[Array], w: Sequence[Array], _: Any) -> Prepared:
    out = aligned(x[0].shape)
    return k("layer_norm", x[0], *w, out, *out.shape, 1e-12), lambda: out


def _matmul(k: Kernels, x: Sequence[Array], w: Sequence[Array], _: Any) -> Prepared:
    rows, steps = x[0].shape
    columns = w[0].shape[1]
    out = aligned((rows, columns))
    return k("product", x[0], panels(w[0], k.panel), out, rows, columns, steps), lambda: out


def _haloed(image: Array, border: int) -> Array:
    """[1, channels, H, W] as [H + 2 border, W + 2 border, channels]."""
    _, channels, height, width = image.shape
    out = aligned((height + 2 * border, width + 2 * border, channels))
    out[border : border + height, border : border + width] = image[0].transpose(1, 2, 0)
    return out


def _convolution(
    k: Kernels, x: Sequence[Array], w: Sequence[Array], n: Mapping[str, int]
) -> Prepared:
    kernel, stride, channels, filters = (
        n[name] for name in ("kernel", "stride", "channels", "filters")
    )
    size = n["size"] // stride
    # the pixels of a 1x1 convolution are one long row
    height, width = (1, size * size) if kernel == 1 else (size, size)
    if width < k.rows:
        raise ValueError("the tile has more rows than the image has pixels in a row")
    block = BLOCK if width % k.rows == 0 and channels % BLOCK == 0 else channels
    image = _haloed(x[0], kernel // 2)
    steps = w[0].transpose(1, 2, 3, 0).reshape(channels // block, block, kernel, kernel, filters)
    packed = panels(steps.transpose(0, 2, 3, 1, 4).reshape(-1, filters), k.panel)
    out = aligned((height, width, filters))
    pitch = image.shape[1] * channels
    sizes = (height, width, channels, filters, kernel, stride, pitch, block)
    run = k("convolution", image, packed, out, *sizes)
    return run, lambda: out.reshape(size, size, filters).transpose(2, 0, 1)[None]


def _depthwise(
    k: Kernels, x: Sequence[Array], w: Sequence[Array], n: Mapping[str, int]
) -> Prepared:
    image, channels, size = _haloed(x[0], 1), n["channels"], n["size"] // n["stride"]
    weights = aligned((3, 3, channels))
    weights[...] = w[0][:, 0].transpose(1, 2, 0)
    out = aligned((size, size, channels))
    pitch = image.shape[1] * channels
    run = k("depthwise", image, weights, out, size, size, channels, n["stride"], pitch)
    return run, lambda: out.transpose(2, 0, 1)[None]


def _attention(
    k: Kernels, x: Sequence[Array], w: Sequence[Array], n: Mapping[str, int]
) -> Prepared:
    heads, length, width = n["heads"], n["length"], n["width"]
    if length < k.rows:
        raise ValueError("the tile has more rows than there are queries")
    padded, across = (-(-size // k.panel) * k.panel for size in (length, width))
    scratch = aligned((padded * width + length * across + 96 * length,))
    out = aligned(x[0].shape)
    return k("attention", *x, out, scratch, heads, length, width), lambda: out


Make = Callable[[Kernels, Sequence[Array], Sequence[Array], Mapping[str, int]], Prepared]
KINDS: Mapping[str, Make] = {
    "copy": _copy,
    "multiply-add": _multiply_add,
    "sum": _sum,
    "softmax": _softmax,
    "softmax of rows": _softmax,
    "layer norm": _layer_norm,
    "matmul": _matmul,
    "conv 3x3": _convolution,
    "conv 1x1": _convolution,
    "depthwise 3x3": _depthwise,
    "depthwise 3x3/2": _depthwise,
    "first layer 7x7/2": _convolution,
    "attention": _attention,
}
TILED = ("matmul", "conv 3x3", "conv 1x1", "first layer 7x7/2", "attention")


class Hand:
    """A kernel by hand with its operands, in the fastest of its tiles."""

    def __init__(
        self,
        folder: Path,
        kind: str,
        arrays: Sequence[Array],
        weights: Sequence[Array],
        numbers: Mapping[str, int],
    ) -> None:
        best = float("inf")
        x, w = ([_own(array) for array in group] for group in (arrays, weights))
        for tile in tiles() if kind in TILED else tiles()[:1]:
            kernels = compiled(folder, tile)
            try:
                run, result = KINDS[kind](kernels, x, w, numbers)
            except ValueError:  # a tile that the operands are too small for
                continue
            run()
            taken = min(measure(run, 1)["cpu"] for _ in range(TRIES))
            if taken < best:
                best, self.tile, self.run, self.result = taken, tile, run, result
        self._kept = (x, w)


def _own(array: Array) -> Array:
    """A copy that begins at a cache line: vectors across two of them take longer."""
    copy = aligned(array.shape)
    copy[...] = array
    return copy


def fma_limit(folder: Path, turns: int = 2_000_000) -> float:
    """Operations a second of multiplies and adds in registers: the most of several tries."""
    call = compiled(folder, tiles()[0])("fma_loop", turns)
    call()
    return max(12 * 2 * lanes() * turns / measure(call, 1)["cpu"] for _ in range(5))
