"""What operators mean at their edges: values from ONNX's specification, on every target.

Each row is one node. Its operands are inputs of a run unless they are named as constants; all rows
are one program per target. Where onnxruntime says otherwise: docs/deviations.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.agreement import find_target, replay
from tests.export.hostile import model
from tests.imported import import_model
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.dtype import from_numpy
from tinyedge.core.errors import InputError
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.graph import Graph, Port

F, I32, L, U8 = np.float32, np.int32, np.int64, np.uint8
INF, NAN = np.inf, np.nan
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass
class Row:
    """A node."""

    name: str
    op: str
    operands: Sequence[Any]
    results: Sequence[Any]
    constants: tuple[int, ...] = ()  # positions of operands that are initializers
    opset: int = 22
    close: float = 0.0  # relative tolerance
    attributes: dict[str, Any] = field(default_factory=dict)


ROWS: list[Row] = []


def row(
    name: str,
    op: str,
    operands: Sequence[Any],
    *results: Any,
    constants: tuple[int, ...] = (),
    opset: int = 22,
    close: float = 0.0,
    **attributes: Any,
) -> None:
    ROWS.append(Row(name, op, operands, results, constants, opset, close, attributes))


def f(*values: Any) -> Any:
    return np.array(values, F)


# fmt: off
# Slice: INT64_MAX and INT64_MIN stand for the ends, whatever the step.

TEN = np.arange(10, dtype=F)
for label, start, end, step, expected in (
    ("whole backwards", MOST, LEAST, -1, TEN[::-1]),
    ("from the last in threes", -1, LEAST, -3, f(9, 6, 3, 0)),
    ("down to 0", 4, -11, -2, f(4, 2, 0)),
    ("down to 1", 4, 0, -2, f(4, 2)),
    ("from before the first", LEAST, 3, 1, f(0, 1, 2)),
    ("beyond the last", 8, MOST, 1, f(8, 9)),
    ("nothing", 3, 3, 1, f()),
    ("nothing backwards", 2, 5, -1, f()),
    ("steps beyond the end", 1, MOST, 100, f(1)),
):
    bounds = [np.array([v], L) for v in (start, end)]
    slice_operands = [TEN, *bounds, np.array([0], L), np.array([step], L)]
    row(f"slice {label}", "Slice", slice_operands, expected, constants=(1, 2, 3, 4))

# Negative indices, known and computed.

GRID = np.arange(12, dtype=F).reshape(3, 4)
for fixed in ((), (1,)):
    kind = "known" if fixed else "computed"
    row(f"gather {kind}", "Gather", [GRID, np.array([-1, 0, -3], L)], GRID[[2, 0, 0]],
        constants=fixed)
    row(f"gather elements {kind}", "GatherElements",
        [GRID, np.array([[-1, 0, -4, 1]], L)], f([3, 0, 0, 1]), constants=fixed, axis=1)
    row(f"gather nd {kind}", "GatherND", [GRID, np.array([[-1, -1], [0, -4]], L)], f(11, 0),
        constants=fixed)
    row(f"scatter elements {kind}", "ScatterElements",
        [GRID[:1], np.array([[-1, -3]], L), f([5, 7])], f([0, 7, 2, 5]), constants=fixed, axis=1)
    row(f"scatter nd {kind}", "ScatterND",
        [GRID, np.array([[-1], [-3]], L), f([9] * 4, [8] * 4)],
        np.stack([f(8, 8, 8, 8), GRID[1], f(9, 9, 9, 9)]), constants=fixed)

# Beyond an axis there is nothing, though in memory another row is there.

OUTSIDE = np.array([[0, 4], [1, -5], [3, -1], [-1, -1]], L)
row("gather elements outside", "GatherElements", [GRID, np.array([[4, -5, 3]] * 3, L)],
    f([0, 0, 3], [0, 0, 7], [0, 0, 11]), axis=1)
row("gather nd outside", "GatherND", [GRID, OUTSIDE], f(0, 0, 0, 11))
row("gather nd outside of a batch", "GatherND", [GRID, np.array([[4], [-5], [-4]], L)],
    f(0, 0, 8), batch_dims=1)
LAST = np.concatenate([np.arange(11), [99]]).reshape(3, 4).astype(F)
row("scatter nd outside", "ScatterND", [GRID, OUTSIDE, f(99, 99, 99, 99)], LAST)
row("scatter nd outside, sums", "ScatterND", [GRID, OUTSIDE, f(88, 88, 88, 88)], LAST,
    reduction="add")
row("scatter elements outside", "ScatterElements",
    [GRID, np.array([[4, -5]] * 3, L), np.full((3, 2), 99, F)], GRID, axis=1)
row("halves scaled by floats", "RMSNormalization", [np.array([[3, 4]], np.float16), f(1, 2)],
    f([3, 8]) / np.sqrt(F(12.5)), opset=23, close=1e-4)
row("one hot of bytes", "OneHot", [np.array([-1, 5], np.int8), np.array(300, L), f(0, 1)],
    np.eye(300, dtype=F)[[299, 5]], constants=(1,))
row("one hot", "OneHot", [np.array([1, -1, -3, 7, -4], L), np.array(3, L), f(2, 5)],
    f([2, 5, 2], [2, 2, 5], [5, 2, 2], [2, 2, 2], [2, 2, 2]), constants=(1,))
row("scatter, the last of equal places", "ScatterElements",
    [f([0, 0, 0]), np.array([[1, 1]], L), f([5, 7])], f([0, 7, 0]), constants=(1,), axis=1)
row("scatter, sums of equal places", "ScatterElements",
    [f([1, 1, 1]), np.array([[1, 1]], L), f([5, 7])], f([1, 13, 1]), axis=1, reduction="add")

# Resize. Samples and channels stay apart; a size is the floor of size * scale.

PAIR = np.arange(8, dtype=F).reshape(2, 2, 1, 2)
SCALE = np.array([1, 1, 1, 2], F)
HALVES = np.array([1, 1, 1, 0.5], F)
FOUR = f(1, 2, 3, 4).reshape(1, 1, 1, 4)


def resized(label: str, x: Any, scales: Any, expected: Any, **attributes: Any) -> None:
    operands = [x, None, scales]
    row(f"resize {label}", "Resize", operands, expected, constants=(2,), close=1e-6, **attributes)


resized("nearest of samples and channels", PAIR, SCALE, np.repeat(PAIR, 2, 3), mode="nearest")
resized("72 times", np.arange(5, dtype=F).reshape(1, 1, 1, 5), np.array([1, 1, 1, 72], F),
        np.repeat(np.arange(5, dtype=F), 72).reshape(1, 1, 1, 360), mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor")
for choice, expected in (  # x = 0.5 and 2.5 of 1, 2, 3, 4
    ("round_prefer_floor", [1, 3]),
    ("round_prefer_ceil", [2, 4]),
    ("floor", [1, 3]),
    ("ceil", [2, 4]),
):
    resized(f"halves by {choice}", FOUR, HALVES, f(*expected).reshape(1, 1, 1, 2),
            mode="nearest", nearest_mode=choice)
for transform, expected in (  # linear, twice as many of 1, 2, 3, 4
    ("half_pixel", [1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4]),
    ("asymmetric", [1, 1.5, 2, 2.5, 3, 3.5, 4, 4]),
    ("align_corners", [1 + 3 * i / 7 for i in range(8)]),
    ("pytorch_half_pixel", [1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4]),
):
    resized(f"linear {transform}", FOUR, SCALE, f(*expected).reshape(1, 1, 1, 8), mode="linear",
            coordinate_transformation_mode=transform)
resized("linear to one, align_corners", FOUR, np.array([1, 1, 1, 0.25], F),
        f(1).reshape(1, 1, 1, 1), mode="linear", coordinate_transformation_mode="align_corners")
resized("linear to one, pytorch_half_pixel", FOUR, np.array([1, 1, 1, 0.25], F),
        f(1).reshape(1, 1, 1, 1), mode="linear",
        coordinate_transformation_mode="pytorch_half_pixel")
resized("cubic to one, pytorch_half_pixel", FOUR, np.array([1, 1, 1, 0.25], F),
        f(1).reshape(1, 1, 1, 1), mode="cubic", coordinate_transformation_mode="pytorch_half_pixel")
# Between two elements Keys' kernel with a = -0.75 is -3, 19, 19, -3 of 32; beyond the ends it takes
# the last element, or leaves it out.
resized("cubic", FOUR, HALVES, f(45 / 32, 5 - 45 / 32).reshape(1, 1, 1, 2), mode="cubic")
resized("cubic, exclude_outside", FOUR, HALVES, f(48 / 35, 5 - 48 / 35).reshape(1, 1, 1, 2),
        mode="cubic", exclude_outside=1)
resized("linear, antialias", FOUR, HALVES,
        f(1.625, 3.375).reshape(1, 1, 1, 2),
        mode="linear", antialias=1)

row("square roots by Pow", "Pow", [f(-np.inf, 4, 0), f(0.5)], f(np.inf, 2, 0))
row("by square roots, Pow", "Pow", [f(-np.inf, 4, -0.0), f(-0.5)], f(0, 0.5, np.inf))

# Pools.

RUN = f(1, 2, 3, 4, 5).reshape(1, 1, 5)
LOW = -1 - RUN
row("average, ceil_mode", "AveragePool", [RUN], f(1.5, 3.5, 5).reshape(1, 1, 3),
    kernel_shape=[2], strides=[2], ceil_mode=1)
row("average, ceil_mode, with padding", "AveragePool", [RUN],
    f(0.5, 2.5, 4.5).reshape(1, 1, 3), kernel_shape=[2], strides=[2], pads=[1, 0], ceil_mode=1,
    count_include_pad=1)
row("average, ceil_mode, with padding at the end", "AveragePool", [RUN],
    f(1, 3, 3).reshape(1, 1, 3), kernel_shape=[3], strides=[2], pads=[1, 1], ceil_mode=1,
    count_include_pad=1)
row("average without padding", "AveragePool", [RUN], f(1.5, 3, 4.5).reshape(1, 1, 3),
    kernel_shape=[3], strides=[2], pads=[1, 1])
row("max of negative numbers", "MaxPool", [LOW], f(-2, -3, -5).reshape(1, 1, 3),
    kernel_shape=[3], strides=[2], pads=[1, 1])
row("max, dilations", "MaxPool", [RUN], f(3, 4, 5).reshape(1, 1, 3), kernel_shape=[2],
    dilations=[2])
row("max, SAME_LOWER", "MaxPool", [LOW], f(-2, -2, -3, -4, -5).reshape(1, 1, 5),
    kernel_shape=[2], auto_pad="SAME_LOWER")
row("max, SAME_UPPER", "MaxPool", [LOW], f(-2, -3, -4, -5, -6).reshape(1, 1, 5),
    kernel_shape=[2], auto_pad="SAME_UPPER")
for padding in ([2, 2], [3, 1]):  # a window of padding alone: the greatest, the mean of nothing
    row(f"max in {padding} of padding", "MaxPool", [RUN[..., :2]],
        f(*([-INF] * (padding[0] - 1)), 1, 2, 2, *([-INF] * (padding[1] - 1))).reshape(1, 1, -1),
        kernel_shape=[2], pads=padding, opset=19)
    row(f"average in {padding} of padding", "AveragePool", [RUN[..., :2]],
        f(*([NAN] * (padding[0] - 1)), 1, 1.5, 2, *([NAN] * (padding[1] - 1))).reshape(1, 1, -1),
        kernel_shape=[2], pads=padding, opset=19)
    row(f"average with {padding} of padding", "AveragePool", [RUN[..., :2]],
        f(*([0] * (padding[0] - 1)), 0.5, 1.5, 1, *([0] * (padding[1] - 1))).reshape(1, 1, -1),
        kernel_shape=[2], pads=padding, count_include_pad=1, opset=19)
row("max of bytes", "MaxPool", [np.array([[[-3, -128, -9]]], np.int8)],
    np.array([[[-3, -3, -9]]], np.int8), kernel_shape=[3], pads=[1, 1])

# ConvTranspose: output = stride * (n - 1) + output_padding + k - pads.

ONE_TWO = f(1, 2).reshape(1, 1, 2)
ONES = f(1, 1, 1).reshape(1, 1, 3)
row("transposed", "ConvTranspose", [ONE_TWO, ONES], f(1, 1, 3, 2, 2).reshape(1, 1, 5),
    strides=[2])
row("transposed, output_padding", "ConvTranspose", [ONE_TWO, ONES],
    f(1, 1, 3, 2, 2, 0).reshape(1, 1, 6), strides=[2], output_padding=[1])
row("transposed, SAME_UPPER", "ConvTranspose", [ONE_TWO, ONES], f(1, 1, 3, 2).reshape(1, 1, 4),
    strides=[2], auto_pad="SAME_UPPER")
row("transposed, SAME_LOWER", "ConvTranspose", [ONE_TWO, ONES], f(1, 3, 2, 2).reshape(1, 1, 4),
    strides=[2], auto_pad="SAME_LOWER")
row("transposed, output_shape", "ConvTranspose", [ONE_TWO, ONES], f(1, 3, 2).reshape(1, 1, 3),
    strides=[2], output_shape=[3])
row("transposed, output_shape beyond", "ConvTranspose", [ONE_TWO, ONES],
    f(1, 1, 3, 2, 2, 0).reshape(1, 1, 6), strides=[2], output_shape=[6])

# What is infinite or no number reaches what it is a part of, and nothing beside it.

SPECIAL = f(1, INF, 2, NAN).reshape(1, 1, 4)
for constants in ((), (1,)):
    row("transposed, an infinity", "ConvTranspose", [SPECIAL, ONES],
        f(1, 1, INF, INF, INF, 2, NAN, NAN, NAN).reshape(1, 1, 9), strides=[2], constants=constants)
row("transposed, a step of one tap", "ConvTranspose", [SPECIAL, ONES[..., :1]],
    f(1, 0, INF, 0, 2, 0, NAN).reshape(1, 1, 7), strides=[2])
row("transposed, an infinity beside gaps", "ConvTranspose", [SPECIAL, ONES[..., :2]],
    f(1, INF, 3, NAN, 2, NAN).reshape(1, 1, 6), dilations=[2])
row("transposed, steps and gaps", "ConvTranspose", [SPECIAL[..., :2], ONES[..., :2]],
    f(1, 0, INF, 1, 0, INF).reshape(1, 1, 6), strides=[2], dilations=[3])
BLOCKS = np.arange(16, dtype=F).reshape(1, 4, 4)
BLOCKS[0, 1, 2], BLOCKS[0, 2, 1], BLOCKS[0, 0, 0] = INF, INF, NAN
IMAGE = np.zeros((1, 1, 3, 3), F)
for tap, block in np.ndindex(4, 4):
    IMAGE[0, 0, block // 2 + tap // 2, block % 2 + tap % 2] += BLOCKS[0, tap, block]
row("blocks put together", "Col2Im", [BLOCKS, np.array([3, 3], L), np.array([2, 2], L)], IMAGE,
    constants=(1, 2))
row("blocks in steps, with gaps", "Col2Im",
    [f(1, INF, NAN, 4).reshape(1, 2, 2), np.array([6], L), np.array([2], L)],
    f(1, 0, INF, NAN, 0, 4).reshape(1, 1, 6), constants=(1, 2), strides=[2], dilations=[3])

# A product of many factors is none of its parts, which soon are infinite, or 0.

FACTORS = np.tile(f(2, 0.5), (6, 2500))
FACTORS[0, 17], FACTORS[1], FACTORS[2], FACTORS[3, 99] = -6, 2, -0.5, 0
FACTORS[4, 4999], FACTORS[5, 3] = NAN, -INF
row("product of many", "ReduceProd", [FACTORS, np.array([1], L)],
    f(-12, INF, 0, 0, NAN, -INF), constants=(1,), keepdims=0)
row("product over all axes", "ReduceProd", [FACTORS[:1].reshape(2, 50, 50)],
    f(-12).reshape(1, 1, 1))
BIG, SMALL = 2.0**100, 2.0**-100
for count in (8, 60, 1000):
    HALVES = np.full((5, count), BIG, F)
    HALVES[0, 1::2], HALVES[1, count // 2 :], HALVES[2, : count // 2] = SMALL, SMALL, SMALL
    HALVES[3, ::2], HALVES[3, 3], HALVES[4, 1:], HALVES[4, 1] = SMALL, 0, 1, 2.0**-99
    row(f"product of {count}, great and small", "ReduceProd", [HALVES, np.array([1], L)],
        f(1, 1, 1, 0, 2), constants=(1,), keepdims=0)
    row(f"product of {count} that lie across", "ReduceProd", [HALVES.T, np.array([0], L)],
        f(1, 1, 1, 0, 2), constants=(1,), keepdims=0)

# Order and sums.

TIES = f(1, 3, 3, 0, 3, NAN)
row("top, equal by the lower index", "TopK", [f(1, 3, 3, 0, 3), np.array([3], L)],
    f(3, 3, 3), np.array([1, 2, 4], L), constants=(1,))
row("least, equal by the lower index", "TopK", [f(2, 0, 0, 5), np.array([3], L)], f(0, 0, 2),
    np.array([1, 2, 0], L), constants=(1,), largest=0)
row("top, NaN is the greatest", "TopK", [TIES, np.array([2], L)], f(NAN, 3), np.array([5, 1], L),
    constants=(1,))
row("sum of those after", "CumSum", [f(1, 2, 3, 4), np.array(0, L)], f(9, 7, 4, 0),
    constants=(1,), exclusive=1, reverse=1)
row("first of equal", "ArgMax", [f(1, 5, 5)], np.array([1], L), axis=0)
row("last of equal", "ArgMin", [f(2, 2, 5)], np.array([1], L), axis=0, select_last_index=1)

# Integer arithmetic.

SIGNS = [np.array([-4, 7, 5, 4, -7, 8], I32), np.array([2, -3, 8, -2, 3, 5], I32)]
row("remainder of the divisor's sign", "Mod", SIGNS, np.array([0, -2, 5, 0, 2, 3], I32))
row("remainder of the dividend's sign", "Mod", SIGNS, np.array([0, 1, 5, 0, -1, 3], I32), fmod=1)
LOWEST = [np.array([-(2**31)] * 2, I32), np.array([-1, 1], I32)]
row("the least integer by -1", "Mod", LOWEST, np.zeros(2, I32))
row("the least integer by -1, C", "Mod", LOWEST, np.zeros(2, I32), fmod=1)
row("quotients are cut", "Div", [np.array([7, -7, 7, -7], I32), np.array([2, 2, -2, -2], I32)],
    np.array([3, -3, -3, 3], I32))
row("bytes wrap around when added", "Add", [np.array([200, 255, 0], U8)] * 2,
    np.array([144, 254, 0], U8))
row("bytes wrap around when subtracted", "Sub",
    [np.array([3, 0], U8), np.array([5, 1], U8)], np.array([254, 255], U8))
row("bytes wrap around when multiplied", "Mul", [np.array([16, 255], U8)] * 2,
    np.array([0, 1], U8))
row("signed bytes wrap around", "Neg", [np.array([-128, 127], np.int8)],
    np.array([-128, -127], np.int8))
for width, dtype in ((8, U8), (16, np.uint16), (32, np.uint32)):
    for direction in ("LEFT", "RIGHT"):
        row(f"shift {direction} by {width}", "BitShift",
            [np.array([1, 2**width - 1], dtype), np.array([width, width + 1], dtype)],
            np.zeros(2, dtype), direction=direction)

# Remainders of floats.

EDGES = [
    f(5.5, -5.5, 5.5, -5.5, 3, -3, INF, 2, NAN, 0, 1),
    f(2, 2, -2, -2, INF, INF, 2, 0, 1, 3, 0.1),
]
row("float remainder of the dividend's sign", "Mod", EDGES,
    f(1.5, -1.5, 1.5, -1.5, 3, -3, NAN, NAN, NAN, 0, np.fmod(F(1), F(0.1))), fmod=1)
row("float remainder of great quotients", "Mod", [f(1e10, 16777215, 1e30), f(3, 0.7, 7)],
    np.fmod(f(1e10, 16777215, 1e30), f(3, 0.7, 7)), fmod=1)

# Quantization: halves to even, then saturated.

QUANTIZED = f(0.5, 1.5, 2.5, -0.5, -1.5, 300, -300, 254.5)
row("quantized to bytes", "QuantizeLinear", [QUANTIZED, F(1), U8(0)],
    np.array([0, 2, 2, 0, 0, 255, 0, 254], U8), constants=(1, 2))
row("quantized around 128", "QuantizeLinear", [QUANTIZED, F(1), U8(128)],
    np.array([128, 130, 130, 128, 126, 255, 0, 255], U8), constants=(1, 2))
row("quantized to signed bytes", "QuantizeLinear", [QUANTIZED, F(2), np.int8(-1)],
    np.array([-1, 0, 0, -1, -2, 127, -128, 126], np.int8), constants=(1, 2))
row("dequantized", "DequantizeLinear", [np.array([0, 3, 255], U8), F(0.5), U8(3)],
    f(-1.5, 0, 126), constants=(1, 2))
row("zeros quantized", "DynamicQuantizeLinear", [f(0, 0)], np.zeros(2, U8), F(0), U8(0))
row("a product of columns", "QLinearMatMul",
    [np.array([[1, 2]], U8), F(1), U8(0), np.array([[3, 4], [5, 6]], U8), f(1, 2),
     np.array([1, 2], U8), F(1), U8(0)], np.array([[10, 20]], U8))
row("a product of rows and columns, twice", "QLinearMatMul",
    [np.array([[[3, 4]], [[5, 6]]], U8), f([[1]], [[2]]), np.array([[[1]], [[2]]], U8),
     np.array([[[1], [2]], [[3], [4]]], U8), f([[1]], [[3]]), np.zeros((2, 1, 1), U8),
     F(1), U8(0)], np.array([[[8]], [[150]]], U8))

# Padding.

THREE = f(1, 2, 3)
for mode, pads, expected in (
    ("constant", [1, -1], f(0, 1, 2)),
    ("constant", [-2, 2], f(3, 0, 0)),
    ("reflect", [2, 2], f(3, 2, 1, 2, 3, 2, 1)),
    ("edge", [2, 1], f(1, 1, 1, 2, 3, 3)),
    ("wrap", [2, 1], f(2, 3, 1, 2, 3, 1)),
    ("wrap", [4, 5], f(3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2)),
    ("reflect", [4, 5], f(1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3, 2)),
    ("reflect", [0, 9], f(1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3, 2)),
    ("edge", [4, 5], f(1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3)),
    ("constant", [-4, 4], f(0, 0, 0)),
    ("constant", [3, -5], f(0)),
    ("edge", [-4, 4], f(3, 3, 3)),
    ("wrap", [-1, 4], f(2, 3, 1, 2, 3, 1)),
    ("reflect", [-2, 3], f(3, 2, 1, 2)),
    ("reflect", [-1, 1], f(2, 3, 2)),
    ("edge", [-1, 2], f(2, 3, 3, 3)),
):
    row(f"pad {mode} {pads}", "Pad", [THREE, np.array(pads, L)], expected, constants=(1,),
        mode=mode)
for mode in ("reflect", "edge", "wrap"):
    row(f"pad {mode} of one", "Pad", [f(7), np.array([2, 3], L)], f(*[7] * 6), constants=(1,),
        mode=mode)
row("pad along a negative axis", "Pad",
    [GRID[:2, :2], np.array([0, 1], L), F(7), np.array([-1], L)], f([0, 1, 7], [4, 5, 7]),
    constants=(1, 2, 3))

# NaN, and bounds that cross.

BAD = f(NAN, -1, INF, -INF, 2)
row("relu of NaN", "Relu", [BAD], f(NAN, 0, INF, 0, 2))
row("maximum with NaN", "Max", [BAD, f(0, NAN, 0, 0, 0)], f(NAN, NAN, INF, 0, 2))
row("minimum with NaN", "Min", [BAD, f(0, NAN, 0, 0, 0)], f(NAN, NAN, 0, -INF, 0))
row("clip of NaN", "Clip", [BAD, F(-0.5), F(1)], f(NAN, -0.5, 1, -0.5, 1), constants=(1, 2))
row("clip by NaN", "Clip", [f(-5, 5), F(0), F(NAN)], f(NAN, NAN))
row("clip, crossed", "Clip", [f(-5, 0, 5), F(3), F(1)], f(1, 1, 1), constants=(1, 2))
row("clip, computed and crossed", "Clip", [f(-5, 0, 5), F(3), F(1)], f(1, 1, 1))
row("clip below", "Clip", [f(-5, 0, 5), F(1)], f(1, 1, 5), constants=(1,))
row("clip above", "Clip", [f(-5, 0, 5), None, F(1)], f(-5, 0, 1), constants=(2,))
row("greatest with NaN", "ReduceMax", [BAD], f(NAN))
row("greatest without NaN", "ReduceMax", [f(-INF, -2)], f(-2))
row("least with NaN", "ReduceMin", [BAD], f(NAN))

# Functions far out.

FAR = f(-1e30, -200, -90, 0, 90, 200, 1e30, INF, -INF)
row("tanh far out", "Tanh", [FAR], f(-1, -1, -1, 0, 1, 1, 1, 1, -1), close=1e-6)
row("sigmoid far out", "Sigmoid", [FAR], f(0, 0, 0, 0.5, 1, 1, 1, 1, 0), close=1e-6)
row("softplus far out", "Softplus", [FAR], f(0, 0, 0, np.log(2), 90, 200, 1e30, INF, 0),
    close=1e-6)
row("erf far out", "Erf", [FAR], f(-1, -1, -1, 0, 1, 1, 1, 1, -1), close=1e-6)
row("gelu far out", "Gelu", [f(-1e4, -50, 0, 50, 1e4)], f(0, 0, 0, 50, 1e4), close=1e-6)
row("softmax with -inf", "Softmax", [f([-INF, 0, 0], [-INF, -INF, -INF], [1e30, 0, -1e30])],
    f([0, 0.5, 0.5], [NAN, NAN, NAN], [1, 0, 0]), close=1e-6)
row("log softmax far apart", "LogSoftmax", [f([1000, 0], [0, -1000])], f([0, -1000], [0, -1000]),
    close=1e-6)
row("log of a sum of exponentials", "ReduceLogSumExp",
    [f([1000, 1000], [-1000, -INF]), np.array([1], L)], f([1000 + np.log(2)], [-1000]),
    constants=(1,), close=1e-6)

# Casts. From float: cut, saturated, NaN is 0. From integers: the low bits.

CUT = f(1.9, -1.9, NAN, INF, -INF, 300, -300)
row("cast to int32", "Cast", [CUT],
    np.array([1, -1, 0, 2**31 - 1, -(2**31), 300, -300], I32), to=6)
row("cast to uint8", "Cast", [CUT], np.array([1, 0, 0, 255, 0, 255, 0], U8), to=2)
row("cast to int8", "Cast", [CUT], np.array([1, -1, 0, 127, -128, 127, -128], np.int8), to=3)
row("cast to bool", "Cast", [f(0, -0.0, 0.5, NAN)], np.array([False, False, True, True]), to=9)
row("cast of integers", "Cast", [np.array([200, -129, 256], np.int16)],
    np.array([-56, 127, 0], np.int8), to=3)
row("cast of bool", "Cast", [np.array([True, False])], f(1, 0), to=1)

# Products and means.

row("product over nothing", "MatMul", [np.zeros((2, 0), F), np.zeros((0, 3), F)],
    np.zeros((2, 3), F))
row("sum over nothing", "ReduceSum", [np.zeros((2, 0), F), np.array([1], L)],
    np.zeros((2, 1), F), constants=(1,))
OFFSET = F(1e4) + np.arange(8, dtype=F) * F(2**-7)
STEPS = np.arange(8) - 3.5
row("normalized around a large mean", "LayerNormalization", [OFFSET[None], np.ones(8, F)],
    (STEPS / np.sqrt((STEPS**2).mean()))[None].astype(F), constants=(1,), close=1e-3,
    epsilon=1e-12)
row("variance around a large mean", "InstanceNormalization",
    [OFFSET.reshape(1, 1, 8), np.ones(1, F), np.zeros(1, F)],
    (STEPS / np.sqrt((STEPS**2).mean())).reshape(1, 1, 8).astype(F), constants=(1, 2),
    close=1e-3, epsilon=1e-12)

# LSTM: what is clipped are the inputs of all activations, so also the cell before its last.

GATE, CELL = 1 / (1 + np.exp(-1)), np.tanh(1)
row("clip", "LSTM",
    [np.zeros((1, 1, 1), F), *[np.zeros((1, 4, 1), F)] * 2, f([5, 5, 5, 5, 0, 0, 0, 0]), None,
     np.zeros((1, 1, 1), F), np.full((1, 1, 1), 4, F)],
    np.full((1, 1, 1, 1), GATE * CELL, F), np.full((1, 1, 1), GATE * CELL, F),
    np.full((1, 1, 1), GATE * (4 + CELL), F), close=1e-6, hidden_size=1, clip=1.0)

# Attention: 9 query heads share 3 key heads; softcap comes before the mask.

HEADS = np.zeros((1, 9, 1, 1), F)
KEYS = np.zeros((1, 3, 2, 1), F)
VALUES = np.arange(6, dtype=F).reshape(1, 3, 2, 1)
row("grouped heads", "Attention", [HEADS, KEYS, VALUES],
    np.repeat(f(0.5, 2.5, 4.5), 3).reshape(1, 9, 1, 1), opset=23, close=1e-6)
row("a row that attends to nothing", "Attention",
    [HEADS, KEYS, VALUES, np.zeros((1, 2), bool)], np.zeros((1, 9, 1, 1), F), opset=23)
row("softcap before the mask", "Attention",
    [f(1).reshape(1, 1, 1, 1), f(1e3, -1e3).reshape(1, 1, 2, 1), f(1, 3).reshape(1, 1, 2, 1),
     f([-INF, 0])], f(3).reshape(1, 1, 1, 1), opset=23, close=1e-6, scale=1.0, softcap=1.0)
CAPPED = np.exp(np.tanh([1e3, -1e3]) * 2)
row("softcap", "Attention",
    [f(1).reshape(1, 1, 1, 1), f(1e3, -1e3).reshape(1, 1, 2, 1), f(1, 3).reshape(1, 1, 2, 1)],
    f((CAPPED @ [1, 3]) / CAPPED.sum()).reshape(1, 1, 1, 1), opset=23, close=1e-5, scale=1.0,
    softcap=2.0)

# Einsum with an index twice in one operand.

SQUARE = np.arange(9, dtype=F).reshape(3, 3)
row("diagonal", "Einsum", [SQUARE], f(0, 4, 8), equation="ii->i")
row("trace", "Einsum", [SQUARE], F(12), equation="ii->")
row("diagonal by a vector", "Einsum", [SQUARE, f(1, 2, 3)], f(0, 8, 24), equation="ii,i->i")
row("batches of diagonals", "Einsum", [np.stack([SQUARE, SQUARE + 1])],
    f([0, 4, 8], [1, 5, 9]), equation="...ii->...i")

# Split: the last part is what is left.

row("ten in three", "Split", [TEN], TEN[:4], TEN[4:8], TEN[8:], num_outputs=3)
for size in (1, 2, 3, 5):  # stored in words of four
    values = np.arange(250, 250 + size).astype(U8)
    row(f"{size} bytes", "Add", [values, np.full(size, 3, U8)], values + U8(3))

# fmt: on


def imported(number: int, row: Row) -> tuple[dict[str, Any], list[Any]]:
    """A row's inputs by name, and its results as tensors."""
    names = [f"r{number}_{n}" if value is not None else "" for n, value in enumerate(row.operands)]
    feeds = {
        name: np.asarray(value)
        for n, (name, value) in enumerate(zip(names, row.operands, strict=True))
        if name and n not in row.constants
    }
    stored = [(names[n], np.asarray(row.operands[n])) for n in row.constants]
    weights = [numpy_helper.from_array(value, name) for name, value in stored]
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in feeds.items()
    ]
    outputs = tuple(f"y{n}" for n in range(len(row.results)))
    node = helper.make_node(row.op, names, outputs, **row.attributes)
    proto = model([node], inputs=infos, outputs=outputs, weights=weights, opset=row.opset)
    found = import_model(proto.SerializeToString()).outputs
    return feeds, [found[name] for name in outputs]


def wrong(row: Row, got: Sequence[Any]) -> str:
    for ours, value in zip(got, row.results, strict=True):
        expected = np.asarray(value)
        if ours.shape != expected.shape or ours.dtype != expected.dtype:
            return f"{row.name}: {ours.dtype} {ours.shape} for {expected.dtype} {expected.shape}"
        with np.errstate(invalid="ignore"):
            same = (ours == expected) | ((ours != ours) & (expected != expected))
            if row.close:
                same |= np.abs(ours - expected) <= row.close * np.maximum(1, np.abs(expected))
        if not np.all(same):
            return f"{row.name}: {ours.tolist()} for {expected.tolist()}"
    return ""


def test_the_meaning() -> None:
    """By the reference evaluator."""
    found = []
    for number, row in enumerate(ROWS):
        feeds, tensors = imported(number, row)
        with np.errstate(all="ignore"):
            found.append(wrong(row, evaluate([tensor.node for tensor in tensors], feeds)))
    assert not [text for text in found if text]


def run_rows(rows: Sequence[Row], target: str, device: Device) -> list[str]:
    """What is wrong with rows as one program."""
    feeds: dict[str, Any] = {}
    ports: list[Port] = []
    for number, row in enumerate(rows):
        given, tensors = imported(number, row)
        feeds.update(given)
        for place, tensor in enumerate(tensors):
            ports.append(Port(f"{number}/{place}", tensor.dtype, tensor.shape, tensor.node))
    inputs = [Port(name, from_numpy(value.dtype), value.shape) for name, value in feeds.items()]
    program = compile_graph(Graph(tuple(inputs), tuple(ports)), find_target(target)).program
    assert program is not None
    found = replay(program, device, feeds)
    problems = []
    for number, row in enumerate(rows):
        got = [found[f"{number}/{place}"] for place in range(len(row.results))]
        problems.append(wrong(row, got))
    return [text for text in problems if text]


def test_the_meaning_on_every_target(target: str, device: Device) -> None:
    assert not run_rows(ROWS, target, device)


# Places outside.

SCATTERS = [
    ("ScatterElements", [f(1, 2, 3), np.array([3], L), f(9)]),
    ("ScatterElements", [f(1, 2, 3), np.array([-4], L), f(9)]),
    ("ScatterND", [GRID, np.array([[0, 4]], L), f(9)]),
    ("ScatterND", [GRID, np.array([[3, 0]], L), f(9)]),
    ("Gather", [f(1, 2, 3), np.array([3], L)]),
    ("GatherElements", [f(1, 2, 3), np.array([-4], L)]),
    ("GatherND", [GRID, np.array([[0, 4]], L)]),
    ("GatherElements", [GRID, np.zeros((1, 5), L)]),
    ("ScatterElements", [GRID, np.zeros((1, 5), L), np.zeros((1, 5), F)]),
]


@pytest.mark.parametrize("case", range(len(SCATTERS)))
def test_places_outside_are_an_error_where_they_are_known(case: int) -> None:
    op, operands = SCATTERS[case]
    with pytest.raises(InputError, match="out of range"):
        imported(0, Row("", op, operands, [None], constants=(1,)))


def test_nothing_is_written_outside(target: str, device: Device) -> None:
    """A run's places are checked by it: what lies outside changes nothing."""
    far = np.array([[-(2**31), -5, 4, 1, 2**31 - 1, 1000]], np.int32)
    fresh = np.full((1, 6), 9, F)
    rows = [
        Row("elements", "ScatterElements", [GRID[:1], far, fresh], [f([0, 9, 2, 3])],
            attributes={"axis": 1}),
        Row("sums", "ScatterElements", [GRID[:1], far, fresh], [f([0, 10, 2, 3])],
            attributes={"axis": 1, "reduction": "add"}),
        Row("rows", "ScatterND", [GRID[0], far.astype(L).reshape(6, 1), fresh[0]],
            [f(0, 9, 2, 3)]),
        Row("read", "Gather", [GRID[0], np.array([1, 9, -9], np.int32)], [f(1, 0, 0)]),
    ]  # fmt: skip
    assert not run_rows(rows, target, device)


def test_means_of_many_halves(target: str, device: Device) -> None:
    """Sums of four million are beyond a half, and terms are lost in one float."""
    rows = [
        Row(f"mean of {value}", "ReduceMean", [np.full(2**22, value, np.float16)],
            [np.full(1, value, np.float16)], opset=17)
        for value in (0.1, 60, 65504)
    ]  # fmt: skip
    assert not run_rows(rows, target, device)


def test_results_that_halves_hold(target: str, device: Device) -> None:
    """Although what is added, squared or exponentiated on the way to them is beyond halves."""
    x = (np.random.default_rng(0).standard_normal((1, 2, 3, 5)) * 400).astype(np.float16)
    exact, many = x.astype(np.float64), np.zeros((1, 70_000), np.float16)
    centered = {axes: exact - exact.mean(axes, keepdims=True) for axes in ((2, 3), (0, 2, 3))}
    scaled = {axes: y / np.sqrt((y * y).mean(axes, keepdims=True)) for axes, y in centered.items()}
    large, three = np.full((1, 1, 8, 8), 2000, np.float16), np.full((1, 4), 300, np.float16)
    ones = np.ones(2, np.float16)
    cases: dict[str, tuple[list[Any], Any, dict[str, Any]]] = {
        "InstanceNormalization": ([x, ones, 0 * ones], scaled[2, 3], {}),
        "MeanVarianceNormalization": ([x], scaled[0, 2, 3], {}),
        "LpNormalization": ([three], np.full((1, 4), 0.5), {}),
        "LRN": ([x], exact / (1 + 1e-4 / 3 * (exact**2).sum(1, keepdims=True)) ** 0.75,
            {"size": 3}),
        "AveragePool": ([large], [[[[2000]]]], {"kernel_shape": [8, 8]}),
        "LpPool": ([large[..., :2, :2]], [[[[4000]]]], {"kernel_shape": [2, 2]}),
        "GlobalLpPool": ([large[..., :2, :2]], [[[[4000]]]], {}),
        "ReduceL2": ([three], [[600]], {}),
        "ReduceLogSum": ([three * 100], [[np.log(120_000)]], {}),
        "ReduceLogSumExp": ([many], [[np.log(70_000)]], {}),
        "LogSoftmax": ([many], many - np.log(70_000), {}),
        "Mean": ([three * 200] * 2, three * 200, {}),
        "Asinh": ([three], np.arcsinh(three.astype(np.float64)), {}),
    }  # fmt: skip
    rows = [
        Row(op, op, operands, [np.asarray(result, np.float16)], close=2e-3, attributes=attributes)
        for op, (operands, result, attributes) in cases.items()
    ]
    sums = np.full((1, 300, 300), 1 / 90_000, np.float16)
    rows.append(Row("Softmax of rows", "Softmax", [0 * sums], [sums], opset=11))
    assert not run_rows(rows, target, device)


def test_sums_of_many_floats(cpu_device: Device) -> None:
    """To more digits than by adding them one by one; the sizes are no multiples of a block."""
    x = np.full((3, 211, 1013), 0.1, F)
    rows = [
        Row(f"sum over {axes}", "ReduceSum", [x, np.array(axes, L)],
            [x.astype(np.float64).sum(axes, keepdims=True).astype(F)], (1,), close=3e-5)
        for axes in ((1, 2), (2,), (0, 1, 2))
    ]  # fmt: skip
    assert not run_rows(rows, "cpu", cpu_device)
