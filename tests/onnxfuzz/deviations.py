"""Where other engines are known not to do what ONNX says: there they are not asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from tests.onnxfuzz.case import Array, Step

When = Callable[[NodeProto, list[Array | None], int], bool]


@dataclass(frozen=True)
class Deviation:
    """An engine's deviation in an operator."""

    engine: str
    operator: str
    reason: str
    when: When  # node, its inputs (None: left out), opset


def _always(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    return True


def attributes(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _nan(*positions: int) -> When:
    def when(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
        chosen = [inputs[p] for p in positions if p < len(inputs)] if positions else inputs
        return any(a is not None and a.dtype.kind == "f" and np.isnan(a).any() for a in chosen)

    return when


def _attribute(name: str, *values: Any) -> When:
    def when(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
        return attributes(node).get(name) in values

    return when


def _has(name: str) -> When:
    return lambda node, inputs, opset: name in attributes(node)


def _kind(*kinds: str) -> When:
    def when(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
        return inputs[0] is not None and inputs[0].dtype.name in kinds

    return when


def _before(opset: int) -> When:
    return lambda node, inputs, version: version < opset


def _empty(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    return any(a is not None and a.size == 0 for a in inputs)


def _same_and_dilated(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    given = attributes(node)
    same = given.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER")
    return same and any(d != 1 for d in given.get("dilations", ()))


def _longer(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    """Whether a window is longer than its padded axis."""
    if attributes(node).get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
        return False
    given, sizes = attributes(node), inputs[0].shape[2:] if inputs[0] is not None else ()
    pads = given.get("pads", [0] * 2 * len(sizes))
    dilations = given.get("dilations", [1] * len(sizes))
    return any(
        size + pads[axis] + pads[axis + len(sizes)] < (length - 1) * dilation + 1
        for axis, (size, length, dilation) in enumerate(
            zip(sizes, given["kernel_shape"], dilations, strict=True)
        )
    )


def _padding_alone(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    """Whether there may be a window that begins before or in the data, and has none of it."""
    given, sizes = attributes(node), inputs[0].shape[2:] if inputs[0] is not None else ()
    pads = given.get("pads", [0] * 2 * len(sizes))
    ones = [1] * len(sizes)
    strides, dilations = given.get("strides", ones), given.get("dilations", ones)
    return any(
        not any(0 <= start + tap * dilation < size for tap in range(length))
        for size, low, length, stride, dilation in zip(
            sizes, pads, given["kernel_shape"], strides, dilations, strict=False
        )
        for start in range(-low, size, stride)
    )


def _single_corners(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    return bool(attributes(node).get("align_corners")) and 1 in np.asarray(inputs[1])[2:]


def _backwards_to_max(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    if len(inputs) < 5 or inputs[2] is None or inputs[4] is None:
        return False
    far = np.isin(inputs[2], (2**31 - 1, 2**63 - 1))
    return bool((far & (inputs[4] < 0)).any())


def _before_backwards(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    if len(inputs) < 5 or any(a is None for a in inputs):
        return False
    x, starts, _, axes, steps = (np.asarray(a) for a in inputs)
    sizes = np.array(x.shape, np.int64)[axes]
    return bool(((steps < 0) & (starts < -sizes)).any())


def _beyond_integers(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    x, y = inputs
    if x is None or y is None or x.dtype.kind not in "iu":
        return False
    limits = np.iinfo(x.dtype)
    with np.errstate(all="ignore"):
        powers = x.astype(np.float64) ** y.astype(np.float64)
    return bool(((powers > limits.max) | (powers < limits.min)).any())


def _infinite(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    return inputs[0] is not None and not np.isfinite(inputs[0]).all()


def _between_taps(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    dilated = any(d != 1 for d in attributes(node).get("dilations", ()))
    return dilated and _infinite(node, inputs, opset)


def _infinite_slope(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    return inputs[1] is not None and not np.isfinite(inputs[1]).all()


def _infinite_alone(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    """Whether a label that is summed is not in every operand, and infinities show the order."""
    equation = attributes(node)["equation"].decode().replace(" ", "").replace(".", "")
    terms, arrow, out = equation.partition("->")
    parts = terms.split(",")
    once = {label for label in terms if terms.count(label) == 1}
    kept = set(out) if arrow else once
    alone = any(label not in part for part in parts for label in set(terms) - kept - {","})
    repeated = any(len(set(part)) < len(part) for part in parts)
    return (alone or repeated) and any(a is not None and not np.isfinite(a).all() for a in inputs)


def _no_turns(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    return inputs[0] is not None and int(inputs[0]) == 0


def _grouped_bias(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    return len(inputs) > 2 and attributes(node).get("group", 1) > 1


def _same_strides(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    given = attributes(node)
    kernel = inputs[1].shape[2:] if inputs[1] is not None else ()
    strides, dilations = (given.get(n, [1] * len(kernel)) for n in ("strides", "dilations"))
    smaller = any((k - 1) * d + 1 < s for k, d, s in zip(kernel, dilations, strides, strict=True))
    return given.get("auto_pad", b"") in (b"SAME_UPPER", b"SAME_LOWER") and smaller


def _one_pixel(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    given = attributes(node)
    mode = given.get("coordinate_transformation_mode")
    return bool(given.get("antialias")) and mode == b"pytorch_half_pixel"


def _beyond_pixel(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    given = attributes(node)
    mode = given.get("coordinate_transformation_mode")
    beyond = given.get("mode") == b"cubic" or bool(given.get("antialias"))
    return beyond and mode == b"pytorch_half_pixel"


def _fractional(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    given = attributes(node)
    if given.get("coordinate_transformation_mode") != b"align_corners":
        return False
    x, scales = inputs[0], inputs[2] if len(inputs) > 2 else None
    if x is None or scales is None or not scales.size:
        return given.get("keep_aspect_ratio_policy", b"stretch") != b"stretch"
    lengths = x.shape[-scales.size :]
    return bool((np.array(lengths) * scales % 1 != 0).any())


def _kept_crop(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    """Whether an axis that keeps its length would be cropped."""
    if attributes(node).get("coordinate_transformation_mode") != b"tf_crop_and_resize":
        return False
    x, _, scales, sizes = [*inputs, None, None, None][:4]
    if x is None or attributes(node).get("mode") == b"cubic":
        return True
    if scales is not None and scales.size:
        return bool((scales == 1).any())
    return sizes is None or bool(np.isin(sizes, x.shape).any())


def _scattered_nan(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    return attributes(node).get("reduction") in (b"max", b"min") and _nan()(node, inputs, opset)


def _least_by_minus_one(node: NodeProto, inputs: list[Array | None], opset: int) -> bool:
    x, y = inputs
    if x is None or y is None or x.dtype.kind != "i":
        return False
    return bool((x == np.iinfo(x.dtype).min).any() and (y == -1).any())


SCATTERED = ("ScatterElements", "ScatterND")
REDUCED = ("ReduceMax", "ReduceMin")
ORT, ONNX = "onnxruntime", "onnx"

DEVIATIONS: tuple[Deviation, ...] = (
    *(
        Deviation(
            engine, op, "SAME padding is computed as if there were no dilation", _same_and_dilated
        )
        for op in ("AveragePool", "LpPool", "MaxPool")
        for engine in (ORT, ONNX)
    ),
    *(
        Deviation(ORT, op, "windows longer than their axis may be one", _longer)
        for op in ("AveragePool", "LpPool", "MaxPool")
    ),
    *(
        Deviation(ONNX, op, "ceil_mode: other sizes, and other means", _attribute("ceil_mode", 1))
        for op in ("AveragePool", "LpPool", "MaxPool")
    ),
    Deviation(ORT, "LogSoftmax", "doubles: NaN reaches itself alone", _nan(0)),
    Deviation(ONNX, "LogSoftmax", "the logarithm of a softmax: its digits are lost", _always),
    Deviation(ORT, "AveragePool", "the mean of padding alone is 0", _padding_alone),
    Deviation(ORT, "AffineGrid", "a single place between aligned corners is 0", _single_corners),
    *(
        Deviation(engine, "HardSwish", "1/6 is a float32 also for doubles", _kind("float64"))
        for engine in (ORT, ONNX)
    ),
    Deviation(ORT, "GlobalMaxPool", "a result of another rank for nothing", _empty),
    Deviation(ONNX, "GlobalMaxPool", "a result of another rank for other than 4 axes", _always),
    *(
        Deviation(engine, "Erf", "float32 also for doubles", _kind("float64"))
        for engine in (ORT, ONNX)
    ),
    *(
        Deviation(engine, "ReduceMean", "the mean of nothing is undefined", _empty)
        for engine in (ORT, ONNX)
    ),
    *(Deviation(ORT, op, "NaN is sometimes passed over", _nan(0)) for op in REDUCED),
    Deviation(ORT, "LRN", "one NaN or infinity spoils the channels after it", _infinite),
    *(
        Deviation(engine, "Einsum", "an operand's sum comes before products", _infinite_alone)
        for engine in (ORT, ONNX)
    ),
    Deviation(ORT, "Sign", "halves: NaN's is 0", _nan(0)),
    Deviation(ORT, "LayerNormalization", "the mean with an infinity is NaN", _infinite),
    Deviation(ORT, "Loop", "no iterations: rows of unknown size are of size 0", _no_turns),
    Deviation(ORT, "MeanVarianceNormalization", "no epsilon: 0 / 0 where all is equal", _always),
    Deviation(ONNX, "LRN", "NaN is passed over", _nan(0)),
    Deviation(ONNX, "Conv", "what is between dilated taps is multiplied by 0", _between_taps),
    Deviation(ONNX, "PRelu", "0 is multiplied by the slope too", _infinite_slope),
    Deviation(ONNX, "LpPool", "ceil_mode and pads go wrong", _always),
    *(
        Deviation(engine, "ConvTranspose", "strides above the kernel: not SAME", _same_strides)
        for engine in (ORT, ONNX)
    ),
    Deviation(ONNX, "ConvTranspose", "every group has the first's bias", _grouped_bias),
    Deviation(ORT, "Resize", "antialias with pytorch_half_pixel to a size of 1", _one_pixel),
    Deviation(
        ONNX, "Resize", "pytorch_half_pixel to a size of 1: its place is -0.5", _beyond_pixel
    ),
    Deviation(ORT, "Resize", "align_corners of the rounded size, not scale * length", _fractional),
    Deviation(ORT, "Resize", "tf_crop_and_resize does not crop an axis of scale 1", _kept_crop),
    *(
        Deviation(engine, op, "computed in float32 also for doubles", _kind("float64"))
        for op in ("Gelu", "Shrink")
        for engine in (ORT, ONNX)
    ),
    *(
        Deviation(
            engine, "LSTM", "clip does not limit the cell before its activation", _has("clip")
        )
        for engine in (ORT, ONNX)
    ),
    Deviation(ORT, "Clip", "without a limit, infinity becomes the greatest number", _infinite),
    *(
        Deviation(engine, op, "NaN is passed over", _scattered_nan)
        for op in SCATTERED
        for engine in (ORT, ONNX)
    ),
    Deviation(ONNX, "Loop", "numbers that iterations give become rows of one", _always),
    *(
        Deviation(ORT, op, "the least integer by -1 ends the process", _least_by_minus_one)
        for op in ("Div", "Mod")
    ),
    *(
        Deviation(ORT, op, "no terms: the result is what was in memory", _empty)
        for op in ("MatMulInteger", "QLinearMatMul")
    ),
    *(
        Deviation(ORT, op, "no elements end the process", _empty)
        for op in ("Einsum", "GRU", "LSTM", "RNN", "Unique")
    ),
    Deviation(ORT, "RoiAlign", "no elements: the result is what was in memory", _empty),
    Deviation(ONNX, "RoiAlign", "NaN of a weight of 0 is passed over", _infinite),
    Deviation(ONNX, "RoiAlign", "half_pixel also where there is no such attribute", _before(16)),
    *(
        Deviation(engine, op, "NaN is passed over", _nan(0))
        for op in ("GlobalMaxPool", "MaxPool")
        for engine in (ORT, ONNX)
    ),
    Deviation(ORT, "MaxPool", "-inf becomes the least number", _infinite),
    Deviation(ONNX, "Slice", "nothing from before the axis, backwards", _before_backwards),
    Deviation(ORT, "Pow", "integers beyond their range are the least", _beyond_integers),
    Deviation(ORT, "Slice", "INT_MAX as an end is the first entry, backwards", _backwards_to_max),
    Deviation(ORT, "RoiAlign", "the greatest of weighted corners", _attribute("mode", b"max")),
    *(
        Deviation(ORT, op, "a sample outside is 0 times the first element", _infinite)
        for op in ("DeformConv", "RoiAlign")
    ),
)


def deviation(engine: str, step: Step, feeds: dict[str, Array], opset: int) -> Deviation | None:
    """The first known deviation of an engine that a step would meet."""
    for node in step.nodes:
        inputs = [feeds.get(name) if name else None for name in node.input]
        for known in DEVIATIONS:
            if known.engine == engine and known.operator == node.op_type:
                if known.when(node, inputs, opset):
                    return known
    return None
