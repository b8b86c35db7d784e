"""The operations that are measured: an ONNX graph each, its numbers, its work and its traffic.

flops: a multiply and an add count as two, an exponential as one. bytes: what must be moved at
least: each input, weight and output once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.exporters.networks import Network

Shapes = Mapping[str, tuple[int, ...]]
SIDES = ("hand", "tinyedge", "avx512", "numpy", "onnxruntime", "torch", "tinygrad")
DEVICE_SIDES = ("hand", "tinyedge")
FEW_SIDES = ("hand", "tinyedge", "avx512", "numpy")  # where each holds gigabytes
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
HUGE = 100_000_000
MATRICES = {  # sides of products; software adapters take seconds for larger ones
    "cpu": (256, 512, 1024, 2048),
    **dict.fromkeys(("webgpu", "qcom"), (256, 512, 1024)),
    "cuda": (256, 512, 1024, 2048, 4096),
}
HUGE_MATRICES = {"cpu": (4096,)}  # more than a second a run
OPSET, ATTENTION_OPSET = 17, 23  # the second is the first that has Attention


@dataclass(frozen=True)
class Case:
    """One operation at one size."""

    kind: str  # of hand.KINDS
    size: str
    make: Callable[[], Any]  # the model
    inputs: Shapes
    flops: int
    bytes: int
    numbers: Mapping[str, int] = field(default_factory=dict)  # what hand.py must know of it
    sides: tuple[str, ...] = SIDES
    bound: str = "memory"  # what limits it: "memory", or "arithmetic"

    @property
    def name(self) -> str:
        return f"{self.kind} {self.size}"

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        random = np.random.default_rng(11)
        return {
            name: random.standard_normal(shape, np.float32) for name, shape in self.inputs.items()
        }


def short(number: int) -> str:
    """1000 as 1K."""
    for unit, name in ((10**6, "M"), (10**3, "K")):
        if number >= unit:
            return f"{number / unit:g}{name}"
    return str(number)


def _sides(n: int) -> tuple[str, ...]:
    return FEW_SIDES if n >= HUGE else SIDES


def _floats(*shapes: tuple[int, ...]) -> int:
    return 4 * sum(map(math.prod, shapes))


def elementwise(kind: str, n: int) -> Case:
    """One row of n: multiply-add, sum, softmax, copy."""
    names = ("a", "b", "c") if kind == "multiply-add" else ("a",)

    def make() -> Any:
        net = Network(kind, OPSET)
        given = [net.input(name, [n]) for name in names]
        if kind == "multiply-add":
            y = net.node("Add", net.node("Mul", *given[:2]), given[2])
        elif kind == "sum":
            y = net.node("ReduceSum", *given, keepdims=1)
        elif kind == "softmax":
            y = net.node("Softmax", *given, axis=-1)
        else:
            y = net.node("Identity", *given)
        return net.model({y: [made]})

    made = 1 if kind == "sum" else n
    work = {"multiply-add": 2, "sum": 1, "softmax": 5, "copy": 0}[kind]
    # tinygrad gives an input that is an output back without copying it
    sides = tuple(side for side in _sides(n) if kind != "copy" or side != "tinygrad")
    return Case(
        kind,
        short(n),
        make,
        dict.fromkeys(names, (n,)),
        work * n,
        4 * (len(names) * n + made),
        sides=sides,
    )


def softmax_rows(n: int) -> Case:
    """n numbers in rows of 1000."""
    shape = (n // 1000, 1000)

    def make() -> Any:
        net = Network("rows", OPSET)
        return net.model({net.node("Softmax", net.input("a", shape), axis=-1): shape})

    size = f"{shape[0]}x1000"
    return Case("softmax of rows", size, make, {"a": shape}, 5 * n, 8 * n, sides=_sides(n))


def layer_norm(rows: int, width: int) -> Case:
    shape = (rows, width)

    def make() -> Any:
        net = Network("layer_norm", OPSET)
        return net.model({net.layer_norm(net.input("a", shape), width): shape})

    count, traffic = rows * width, _floats(shape, shape, (2, width))
    return Case("layer norm", f"{rows}x{width}", make, {"a": shape}, 8 * count, traffic)


def matmul(n: int) -> Case:
    """Square; the second operand is a weight."""

    def make() -> Any:
        net = Network("matmul", OPSET)
        weight = net.drawn(n, n)
        return net.model({net.node("MatMul", net.input("a", (n, n)), weight): (n, n)})

    shape = (n, n)
    traffic = _floats(shape, shape, shape)
    sides = tuple(side for side in SIDES if n < 4096 or side != "tinygrad")  # half a minute a run
    return Case(
        *("matmul", f"{n}", make, {"a": shape}, 2 * n**3, traffic), sides=sides, bound="arithmetic"
    )


def convolution(
    kind: str,
    size: int,
    channels: int,
    filters: int,
    kernel: int,
    stride: int = 1,
    *,
    depthwise: bool = False,
) -> Case:
    """Of a square image, padded to the same size (divided by the stride); no bias."""
    group = channels if depthwise else 1
    given, made = (1, channels, size, size), (1, filters, size // stride, size // stride)

    def make() -> Any:
        net = Network("convolution", OPSET)
        weight = net.drawn(filters, channels // group, kernel, kernel)
        sizes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        y = net.node("Conv", net.input("a", given), weight, group=group, **sizes)
        return net.model({y: made})

    steps = channels // group * kernel**2
    numbers = {"size": size, "channels": channels, "filters": filters}
    return Case(
        kind,
        f"{size}x{size}x{channels}" + ("" if filters == channels else f" to {filters}"),
        make,
        {"a": given},
        2 * math.prod(made) * steps,
        _floats(given, made, (filters, steps)),
        {**numbers, "kernel": kernel, "stride": stride},
        tuple(side for side in SIDES if side != "numpy"),  # it has no convolution
        "memory" if depthwise else "arithmetic",
    )


def attention(heads: int, length: int, width: int) -> Case:
    shape = (1, heads, length, width)

    def make() -> Any:
        net = Network("attention", ATTENTION_OPSET)
        y = net.node("Attention", *(net.input(name, shape) for name in "abc"))
        return net.model({y: shape})

    flops = heads * length * length * (4 * width + 5)
    numbers = {"heads": heads, "length": length, "width": width}
    return Case(
        "attention",
        f"{heads}x{length}x{width}",
        make,
        dict.fromkeys("abc", shape),
        flops,
        4 * _floats(shape),
        numbers,
        bound="arithmetic",
    )


def _all(sizes: tuple[int, ...], matrices: tuple[int, ...]) -> Iterator[Case]:
    for kind in ("copy", "multiply-add", "sum", "softmax"):
        yield from (elementwise(kind, n) for n in sizes)
    yield from (softmax_rows(n) for n in sizes if n >= 100_000)
    yield from (layer_norm(rows, width) for rows, width in ((128, 384), (1024, 768)))
    yield from (matmul(n) for n in matrices)
    for size, channels in ((56, 64), (28, 128), (14, 256), (7, 512)):
        yield convolution("conv 3x3", size, channels, channels, 3)
    # of MobileNetV2: widening and narrowing, large images and small ones, the last layer
    for shape in ((56, 24, 144), (28, 192, 32), (14, 384, 64), (7, 160, 960), (7, 320, 1280)):
        yield convolution("conv 1x1", *shape, 1)
    for size, channels, stride in ((112, 32, 1), (112, 96, 2), (14, 384, 1), (7, 960, 1)):
        kind = "depthwise 3x3" + ("/2" if stride == 2 else "")
        yield convolution(kind, size, channels, channels, 3, stride, depthwise=True)
    yield convolution("first layer 7x7/2", 224, 3, 64, 7, 2)
    yield from (attention(*shape) for shape in ((3, 197, 64), (12, 128, 64)))


def cases(*, huge: bool = False, target: str = "cpu") -> dict[str, Case]:
    """By name. huge: also rows of 100 million numbers, of 400 MB each, and matrices of 64 MB."""
    sizes = (*SIZES, HUGE) if huge else SIZES
    matrices = (*MATRICES[target], *(HUGE_MATRICES.get(target, ()) if huge else ()))
    return {case.name: case for case in _all(sizes, matrices)}
