"""The kernels by hand as programs of a device: operands laid out, sizes, launches, and the variants
of which the fastest is taken.

What a kernel wants besides its operands is made before it is timed, as in hand.py: channels last, a
halo, and everything padded to whole vectors, workgroups and tiles.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tinyedge.core.program.program import (
    Arena,
    Binding,
    Buffer,
    Entry,
    Kernel,
    Launch,
    Port,
    Program,
)
from tinyedge.targets.qcom.render import BUILD

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, "int | float"]
Numbers = Mapping[str, int]

FOLDER = Path(__file__).parent
TARGETS = ("webgpu", "qcom", "cuda")
THREADS = {"webgpu": 64, "qcom": 64, "cuda": 256}
PARTS = {"webgpu": 64 * 64, "qcom": 64 * 64, "cuda": 256 * 1024}  # of a sum, at most
LOW = -1e30  # pads what a greatest is taken of; its exponential is 0
EPSILON = 1e-12
# Pixels by vectors of a thread: which is fastest depends on the device.
TILES = {
    "webgpu": ((4, 1), (4, 2), (8, 1), (8, 2)),
    "qcom": ((4, 1), (4, 2), (8, 1), (8, 2)),
    "cuda": ((4, 1), (4, 2), (8, 2)),
}

OPENCL = """\
#define F4(x) ((float4)(x))
static inline float lanes(float4 v) { return (v.x + v.y) + (v.z + v.w); }
static inline float greatest(float4 v) { return fmax(fmax(v.x, v.y), fmax(v.z, v.w)); }
static inline float4 larger(float4 a, float4 b) { return fmax(a, b); }
static inline float4 exponential(float4 v) { return exp(v); }
"""
CUDA = """\
#define fmax fmaxf
#define exp expf
#define sqrt sqrtf
#define F4(x) splat((float)(x))
__device__ __forceinline__ int get_global_id(int) { return blockIdx.x * THREADS + threadIdx.x; }
__device__ __forceinline__ int get_local_id(int) { return threadIdx.x; }
__device__ __forceinline__ int get_group_id(int d) { return d ? blockIdx.y : blockIdx.x; }
__device__ __forceinline__ float4 splat(float x) { return float4{x, x, x, x}; }
__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
    return float4{a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
__device__ __forceinline__ float4 operator-(float4 a, float4 b) {
    return float4{a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w};
}
__device__ __forceinline__ float4 operator*(float4 a, float4 b) {
    return float4{a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
__device__ __forceinline__ float4 operator*(float4 a, float b) { return a * splat(b); }
__device__ __forceinline__ float lanes(float4 v) { return (v.x + v.y) + (v.z + v.w); }
__device__ __forceinline__ float greatest(float4 v) { return fmax(fmax(v.x, v.y), fmax(v.z, v.w)); }
__device__ __forceinline__ float4 larger(float4 a, float4 b) {
    return float4{fmax(a.x, b.x), fmax(a.y, b.y), fmax(a.z, b.z), fmax(a.w, b.w)};
}
__device__ __forceinline__ float4 exponential(float4 v) {
    return float4{exp(v.x), exp(v.y), exp(v.z), exp(v.w)};
}
"""


@dataclass(frozen=True)
class Step:
    """A launch: a kernel over its buffers, the first of which it writes."""

    kernel: str
    buffers: tuple[str, ...]
    grid: tuple[int, int, int]


@dataclass(frozen=True)
class Hand:
    """An operation by hand. arrays: what its buffers hold; made: floats of those that it writes, of
    which y is the result; result: what y says in ONNX's layout; sizes: named in the kernels.
    """

    steps: tuple[Step, ...]
    arrays: Mapping[str, Array]
    made: Mapping[str, int]
    sizes: Sizes
    result: Callable[[Array], Array]
    name: str = ""  # of the variant
    flops: int = 0

    def program(self, target: str) -> Program:
        """For a device of the target; each buffer is an arena of its own."""
        floats = {name: array.size for name, array in self.arrays.items()} | dict(self.made)
        numbers = {name: number for number, name in enumerate(floats)}
        sizes = {"THREADS": THREADS[target], **self.sizes}
        kernels = [_kernel(step, target, sizes) for step in self.steps]
        launches = [
            Launch(number, tuple(numbers[name] for name in step.buffers), step.grid)
            for number, step in enumerate(self.steps)
        ]
        arrays = self.arrays.items()
        y = Port("y", "float32", (floats["y"],), "float32", numbers["y"])
        return Program(
            target=target,
            suffix={"webgpu": "wgsl", "qcom": "cl", "cuda": "cu"}[target],
            symbols=(),
            inputs=tuple(Port(n, "float32", a.shape, "float32", numbers[n]) for n, a in arrays),
            outputs=(y,),
            states=(),
            arenas=tuple(Arena(-(-4 * count // 256) * 256) for count in floats.values()),
            buffers=tuple(Buffer(n, 0, 4 * count) for n, count in enumerate(floats.values())),
            weights=(),
            kernels=tuple(kernels),
            entries=(Entry("main", tuple(self.arrays), ("y",), tuple(launches)),),
            prelude=_prelude(target, sizes),
            options={"build": BUILD} if target == "qcom" else {},
        )


# --- texts ----------------------------------------------------------------------------------------


@cache
def _texts(file: str, start: str) -> dict[str, str]:
    """The kernels of a file by name; `start` finds where each begins, with its name."""
    text = (FOLDER / file).read_text("ascii")
    found = list(re.finditer(start, text, re.MULTILINE))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return {match[1]: text[match.start() : end] for match, end in zip(found, ends, strict=True)}


def _kernel(step: Step, target: str, sizes: Sizes) -> Kernel:
    bindings = [Binding("read_write", "float32"), *[Binding("read", "float32")] * 8]
    square = step.kernel == "contract" and target != "cuda"
    threads = (8, 8, 1) if square else (THREADS[target], 1, 1)
    text = source(step.kernel, target, sizes)
    return Kernel(step.kernel, text, threads, tuple(bindings[: len(step.buffers)]))


def source(name: str, target: str, sizes: Sizes) -> str:
    """A kernel's text in the target's language, without the sizes before it."""
    if target == "webgpu":
        return _unrolled(_texts("kernels.wgsl", r"^// --- (\w+)$")[name], sizes)
    if target == "cuda" and name == "contract":
        return _texts("kernels.cu", r'^extern "C" __global__ .*?(\w+)\($')[name]
    text = _texts("kernels.cl", r"^kernel void (\w+)\(")[name]
    # the comment at the end is the next kernel's
    text = text[: text.index("\n}\n") + 3]
    if target == "qcom":
        return text
    for word, spelled in _CUDA_WORDS.items():
        text = re.sub(word, spelled, text)
    bounds = f"__launch_bounds__({THREADS[target]})"
    return text.replace("kernel void", f'extern "C" __global__ void {bounds}', 1)


# Not macros: CUDA's own headers use two of them as words.
_CUDA_WORDS = {
    r"\bglobal ": "",
    r"\blocal ": "__shared__ ",
    r"\brestrict\b": "__restrict__",
    r"\bbarrier\(CLK_LOCAL_MEM_FENCE\)": "__syncthreads()",
}


def _unrolled(text: str, sizes: Sizes) -> str:
    """Lines with ${r} or ${c} once for each of R or C: WGSL's arrays do not stay in registers."""
    lines: list[str] = []
    for line in text.splitlines():
        made = [line]
        for mark, count in (("${r}", "R"), ("${c}", "C")):
            if mark in line:
                many = range(int(sizes[count])) if count in sizes else ()
                made = [each.replace(mark, str(i)) for each in made for i in many]
        lines += made
    return "\n".join(lines) + "\n"


def _prelude(target: str, sizes: Sizes) -> str:
    if target == "webgpu":
        spelled = {k: f"{v}u" if isinstance(v, int) else repr(v) for k, v in sizes.items()}
        return "".join(f"const {name} = {value};\n" for name, value in spelled.items())
    spelled = {k: str(v) if isinstance(v, int) else f"{v!r}f" for k, v in sizes.items()}
    defines = "".join(f"#define {name} {value}\n" for name, value in spelled.items())
    return defines + (OPENCL if target == "qcom" else CUDA)


# --- layouts --------------------------------------------------------------------------------------


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _padded(array: Array, shape: Sequence[int], fill: float = 0.0) -> Array:
    """The array at the start of a larger one."""
    out = np.full(shape, fill, np.float32)
    out[tuple(slice(length) for length in array.shape)] = array
    return out


Given = Sequence[Array]
Make = Callable[[str, Given, Given, Numbers], Iterator[Hand]]


def _elementwise(kernel: str) -> Make:
    def make(target: str, x: Given, w: Given, n: Numbers) -> Iterator[Hand]:
        count, threads = x[0].size, THREADS[target]
        floats = _up(count, 4 * threads)
        arrays = {
            name: _padded(a.reshape(-1), (floats,)) for name, a in zip("abc", x, strict=False)
        }
        grid = (floats // 4 // threads, 1, 1)
        step = Step(kernel, ("y", *arrays), grid)
        yield Hand((step,), arrays, {"y": floats}, {}, lambda y: y[:count])

    return make


def _split(target: str, count: int) -> tuple[int, int]:
    """Parts of a long row, and vectors of each: a multiple of four."""
    threads, vectors = THREADS[target], -(-count // 4)
    parts = min(PARTS[target], max(1, vectors // (16 * threads)) * threads)
    return parts, _up(-(-vectors // parts), 4)


def _sum(target: str, x: Given, w: Given, n: Numbers) -> Iterator[Hand]:
    parts, each = _split(target, x[0].size)
    a = _padded(x[0], (4 * parts * each,))
    grid = (parts // THREADS[target], 1, 1)
    steps = (Step("sum_parts", ("parts", "a"), grid), Step("sum_total", ("y", "parts"), (1, 1, 1)))
    for strided in (0, 1):
        sizes = {"PARTS": parts, "EACH": each, "STRIDED": strided}
        made = {"parts": parts, "y": 4}
        yield Hand(steps, {"a": a}, made, sizes, lambda y: y[:1], f"stride {strided}")


def _long_row(target: str, x: Given, w: Given, n: Numbers) -> Iterator[Hand]:
    count, threads = x[0].size, THREADS[target]
    parts, each = _split(target, count)
    a = _padded(x[0], (4 * parts * each,), LOW)
    steps = (
        Step("row_parts", ("parts", "a"), (parts // threads, 1, 1)),
        Step("row_total", ("pair", "parts"), (1, 1, 1)),
        Step("row_write", ("y", "a", "pair"), (-(-count // (4 * threads)), 1, 1)),
    )
    made = {"parts": 2 * parts, "pair": 4, "y": a.size}
    for strided in (0, 1):
        sizes = {"PARTS": parts, "EACH": each, "STRIDED": strided}
        yield Hand(steps, {"a": a}, made, sizes, lambda y: y[:count], f"stride {strided}")


def _rows(kernel: str, target: str, given: Mapping[str, Array], fill: float) -> Iterator[Hand]:
    """By a thread each, and by a workgroup each. given: rows `a`, and operands of one row."""
    rows, width = given["a"].shape
    threads, vectors = THREADS[target], -(-width // 4)
    for by, padded, groups in (
        ("thread", _up(rows, threads), _up(rows, threads) // threads),
        ("group", rows, rows),
    ):
        arrays = {**given, "a": _padded(given["a"], (padded, 4 * vectors), fill)}
        step = Step(f"{kernel}_by_{by}", ("y", *arrays), (groups, 1, 1))
        sizes = {"VECTORS": vectors, "EPSILON": EPSILON}

        def result(y: Array, shape: tuple[int, int] = (padded, 4 * vectors)) -> Array:
            return y.reshape(shape)[:rows, :width]

        yield Hand((step,), arrays, {"y": padded * 4 * vectors}, sizes, result, f"by {by}")


def _softmax(target: str, x: Given, w: Given, n: Numbers) -> Iterator[Hand]:
    yield from _rows("softmax", target, {"a": x[0]}, LOW)


def _layer_norm(target: str, x: Given, w: Given, n: Numbers) -> Iterator[Hand]:
    if x[0].shape[-1] % 4:
        raise ValueError("rows of a layer norm by hand are whole vectors")
    given = {"a": x[0], "scale": w[0], "shift": w[1]}
    yield from _rows("norm", target, given, 0.0)


@dataclass(frozen=True)
class _Contraction:
    """Where a contraction's operands lie: see `contract` in kernels.cl. Sizes in floats."""

    pixels: int
    filters: int
    steps: int  # along k for each ky
    kernel: int  # number of ky
    width: int
    row: int
    pixel: int
    pitch: int
    a: Callable[[int], Array]  # what is read for so many pixels
    weights: Array  # [kernel, steps, filters]
    result: Callable[[Array], Array]  # of [pixels, filters]
    names: Mapping[str, int] = field(default_factory=dict)

    def tiled(self, target: str) -> Iterator[Hand]:
        across, down = (16, 16) if target == "cuda" else (8, 8)
        for r, c in TILES[target]:
            pixels, filters = _up(self.pixels, down * r), _up(self.filters, 4 * across * c)
            quads = next(q for q in (4, 2, 1) if self.steps // 4 % q == 0)
            sizes = {
                **{"R": r, "C": c, "CHUNK": 4 * quads},
                **{"KERNEL": self.kernel, "STEPS": self.steps // 4, "COLUMNS": filters // 4},
                **{"WIDTH": self.width or pixels, "ROW": self.row // 4},
                **{"PIXEL": self.pixel // 4, "PITCH": self.pitch // 4},
            }
            w = _padded(self.weights, (*self.weights.shape[:2], filters))
            grid = (filters // (4 * across * c), pixels // (down * r), 1)
            step = Step("contract", ("y", "a", "w"), grid)

            def result(y: Array, shape: tuple[int, int] = (pixels, filters)) -> Array:
                return self.result(y.reshape(shape)[: self.pixels, : self.filters])

            arrays, made = {"a": self.a(pixels), "w": w}, {"y": pixels * filters}
            yield Hand((step,), arrays, made, sizes, result, f"{r}x{c}")


def _matmul(target: str, x: Given, w: Given, n: Numbers) -> Iterator[Hand]:
    (rows, k), columns = x[0].shape, w[0].shape[1]
    steps = _up(k, 4)
    yield from _Contraction(
        *(rows, columns, steps, 1, 0, 0, steps, 0),
        lambda pixels: _padded(x[0], (pixels, steps)),
        _padded(w[0], (steps, columns))[None],
        lambda y: y,
    ).tiled(target)


def _haloed(image: Array, border: int, channels: int, more: int) -> Array:
    """[1, C, H, W] as [H + 2 border + more, W + 2 border, channels], with zeros around it."""
    _, count, height, width = image.shape
    out = np.zeros((height + 2 * border + more, width + 2 * border, channels), np.float32)
    out[border : border + height, border : border + width, :count] = image[0].transpose(1, 2, 0)
    return out


def _convolution(target: str, x: Given, w: Given, n: Numbers) -> Iterator[Hand]:
    kernel, stride, filters = n["kernel"], n["stride"], n["filters"]
    size, channels = n["size"] // stride, _up(n["channels"], 4)
    pitch = (n["size"] + kernel // 2 * 2) * channels
    weights = np.zeros((kernel, kernel, channels, filters), np.float32)
    weights[:, :, : n["channels"]] = w[0].transpose(2, 3, 1, 0)

    def image(pixels: int) -> Array:
        more = -(-(pixels - size * size) // size) * stride + kernel  # rows of pixels that pad
        return _haloed(x[0], kernel // 2, channels, more)

    yield from _Contraction(
        *(size * size, filters, kernel * channels, kernel),
        *(size, stride * pitch, stride * channels, pitch),
        image,
        weights.reshape(kernel, kernel * channels, filters),
        lambda y: y.reshape(size, size, filters).transpose(2, 0, 1)[None],
    ).tiled(target)


def _depthwise(target: str, x: Given, w: Given, n: Numbers) -> Iterator[Hand]:
    channels, size, stride = n["channels"], n["size"] // n["stride"], n["stride"]
    if channels % 4:
        raise ValueError("channels of a depthwise convolution by hand are whole vectors")
    columns, threads = channels // 4, THREADS[target]
    vectors = _up(size * size * columns, threads)
    more = -(-(vectors - size * size * columns) // (size * columns)) * stride + 3
    pitch = (n["size"] + 2) * columns
    arrays = {
        "a": _haloed(x[0], 1, channels, more),
        "w": np.ascontiguousarray(w[0][:, 0].transpose(1, 2, 0)),
    }
    sizes = {"COLUMNS": columns, "WIDTH": size, "PITCH": pitch}
    sizes |= {"ROW": stride * pitch, "PIXEL": stride * columns}
    step = Step("depthwise", ("y", "a", "w"), (vectors // threads, 1, 1))

    def result(y: Array) -> Array:
        image = y[: size * size * channels].reshape(size, size, channels)
        return image.transpose(2, 0, 1)[None]

    yield Hand((step,), arrays, {"y": 4 * vectors}, sizes, result)


def _attention(target: str, x: Given, w: Given, n: Numbers) -> Iterator[Hand]:
    heads, length, width = n["heads"], n["length"], n["width"]
    if width % 4:
        raise ValueError("heads of an attention by hand are whole vectors")
    rows, keys = _up(length, THREADS[target]), _up(length, 4)
    arrays = {
        name: _padded(array[0], (heads, rows if name == "q" else keys, width))
        for name, array in zip("qkv", x, strict=True)
    }
    sizes = {
        **{"VECTORS": width // 4, "ROWS": rows, "BLOCKS": keys // 4, "LENGTH": length},
        "SCALE": width**-0.5,
    }
    step = Step("attention", ("y", *arrays), (rows // THREADS[target], heads, 1))
    shape = (heads, rows, width)
    yield Hand(
        *((step,), arrays, {"y": math.prod(shape)}, sizes),
        lambda y: y.reshape(shape)[None, :, :length],
    )


KINDS: Mapping[str, Make] = {
    "copy": _elementwise("copy"),
    "multiply-add": _elementwise("multiply_add"),
    "sum": _sum,
    "softmax": _long_row,
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


def variants(
    target: str, kind: str, arrays: Given, weights: Given, numbers: Numbers
) -> Iterator[Hand]:
    """All that the device may choose from."""
    yield from KINDS[kind](target, arrays, weights, numbers)


def fma_loop(target: str, groups: int, turns: int) -> Hand:
    """The limit of arithmetic: 64 operations a turn of each thread."""
    floats = 4 * groups * THREADS[target]
    step = Step("fma_loop", ("y",), (groups, 1, 1))
    flops = 64 * turns * groups * THREADS[target]
    return Hand((step,), {}, {"y": floats}, {"TURNS": turns}, lambda y: y, flops=flops)
