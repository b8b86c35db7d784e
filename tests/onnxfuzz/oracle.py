"""What a step must give: by onnxruntime, else by ONNX's own evaluator, else by ours.

A step is run alone on the arrays that it gets, so that each engine answers only for the steps that
it is right about. How far others may be from the answer is measured: the inputs are moved a little,
as much as they may be off and as rounding moves them, and the results compared. A step that this
makes jump, such as a comparison of almost equal numbers, is no step to test with.
"""

from __future__ import annotations

import io
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper, shape_inference
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state as states

from tests.imported import import_model
from tests.onnxfuzz.case import Array, Step, Value, element_type, model_of
from tests.onnxfuzz.deviations import attributes, deviation
from tinyedge.core.dtype import codes, named
from tinyedge.core.errors import InputError
from tinyedge.core.ir.reference import evaluate

Run = Callable[[dict[str, Array]], list[Array]]

MOVED = 3  # times that inputs are moved: up, down, mixed
MOVED_BEFORE_A_CHOICE = 12  # times where results are integers: one that changes is enough
SAFETY = 4.0  # times the greatest change seen
UNITS = 4.0  # of the last place, by which inputs of an inexact step are moved
GREATEST_ERROR = {"float16": 0.1, "float32": 1e-2, "float64": 1e-2}  # of the greatest value

# Results that are the same everywhere, if the inputs are: chosen, moved, compared, rounded.
EXACT = frozenset(
    """Abs And ArgMax ArgMin BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast
    CastLike Ceil CenterCropPad Clip Compress Concat Constant ConstantOfShape ConvInteger
    DepthToSpace Equal Expand EyeLike Flatten Floor Gather GatherElements GatherND
    GlobalMaxPool Greater GreaterOrEqual Hardmax Identity If IsInf IsNaN Less LessOrEqual
    MatMulInteger Max MaxPool MaxUnpool Min Neg NonMaxSuppression NonZero Not OneHot Or Pad
    ReduceMax ReduceMin Relu Reshape ReverseSequence Round Shape
    Sign Size Slice SpaceToDepth Split Squeeze Tile TopK Transpose Trilu Unique Unsqueeze Where
    Xor SequenceConstruct SequenceAt SequenceInsert SequenceErase SplitToSequence
    ConcatFromSequence SequenceLength TensorScatter Dropout MaxRoiPool""".split()
)
# Those that are exact for few digits: multiples of 1/64 below 2^11, also in between.
DYADIC = frozenset(
    """Add Sub Mul MatMul Gemm Conv ConvTranspose Einsum ReduceSum ReduceSumSquare ReduceL1 CumSum
    Sum ScatterND ScatterElements Loop Scan Range Col2Im LeakyRelu PRelu QuantizeLinear
    DequantizeLinear Mod ThresholdedRelu""".split()
)
# Those in which an element's result is one of its own alone: only these are given huge numbers.
LOCAL = EXACT | frozenset(
    """Add Sub Mul Div Mod Sqrt Reciprocal Exp Log LeakyRelu PRelu Pow ThresholdedRelu Elu Softsign
    Tanh Sigmoid Atan QuantizeLinear DequantizeLinear Shrink""".split()
)
HUGE = {"float16": 32.0, "float32": 1e8, "float64": 1e8}
# Those that may compute in float32 also for doubles, by `stash_type`.
STASHED = ("LayerNormalization", "GroupNormalization", "RMSNormalization")
# What is added up on the way to a result that may be near 0, where inputs do not tell.
WITHIN = dict.fromkeys(
    """BlackmanWindow HannWindow HammingWindow AffineGrid Elu Celu Selu Softplus Sigmoid Tanh
    LogSoftmax LSTM GRU RNN""".split(),
    1.0,
)


class Invalid(Exception):
    """No engine can run the step: the generator made a wrong one."""


class Jumps(Exception):
    """The step's results change by much where its inputs change by little."""


class Oracle:
    """answered: how often each engine decided, by operator; refused: why onnxruntime would not."""

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, str]] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()
        onnxruntime.set_default_logger_severity(4)
        self.options = onnxruntime.SessionOptions()
        disable = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.options.graph_optimization_level = disable
        self.options.intra_op_num_threads = self.options.inter_op_num_threads = 1
        self.options.log_severity_level = 4

    def answer(
        self, step: Step, opset: int, values: dict[str, Value], seed: int
    ) -> dict[str, Value]:
        """The results of a step. Raises Invalid, Jumps."""
        feeds = {name: values[name].array for name in step.inputs}
        run, first = self._run(step, opset, feeds)
        arrays = dict(zip(step.outputs, first, strict=True))
        if any(_may_be_equal(node, feeds, values) for node in step.nodes):
            raise Jumps
        if self._overflows(step, opset, feeds, arrays):
            raise Jumps
        errors = [values[name].error for name in step.inputs]
        if all(error is None for error in errors) and _exact(step, feeds, arrays):
            return {name: Value(array) for name, array in arrays.items()}
        if not all(node.op_type in LOCAL for node in step.nodes) and any(
            _huge(array, step.wide) for array in feeds.values()
        ):
            raise Jumps
        exact = all(_exactly(node) for node in step.nodes)
        within = max(_within(node, feeds) for node in step.nodes)
        units = 0.0 if exact else max(UNITS, _terms(step, feeds, arrays) / 16)
        if any(node.op_type in STASHED for node in step.nodes):
            units *= 2.0**29 if "float64" in {a.dtype.name for a in feeds.values()} else 1.0
        return self._measured(run, arrays, feeds, values, seed, units, within)

    def _overflows(
        self, step: Step, opset: int, feeds: dict[str, Array], results: dict[str, Array]
    ) -> bool:
        """Whether results are infinite as fp16 and finite as float32, which tinyedge has between
        a model's steps.
        """
        infinite = {n: np.isinf(a) for n, a in results.items() if a.dtype == np.float16}
        if not any(places.any() for places in infinite.values()):
            return False
        _, found = self._run(replace(step, wide=False), opset, _as_float32(feeds))
        wide = dict(zip(step.outputs, found, strict=True))
        return any((places & np.isfinite(wide[n])).any() for n, places in infinite.items())

    def _run(self, step: Step, opset: int, feeds: dict[str, Array]) -> tuple[Run, list[Array]]:
        """How to run a step, and its results."""
        for engine, make in (
            ("onnxruntime", self._onnxruntime),
            ("onnx", _onnx),
            ("tinyedge", _tinyedge),
        ):
            if deviation(engine, step, feeds, opset):
                self.answered[step.operator, f"not {engine}"] += 1
                continue
            try:
                run = _widened(make, step, opset, feeds) if step.wide else make(step, opset, feeds)
                found = run(feeds)
            except _Unable as unable:
                if unable.final:
                    raise Invalid(str(unable)) from None
                continue
            self.answered[step.operator, engine] += 1
            return run, found
        raise Invalid("no engine has it")

    def _onnxruntime(self, step: Step, opset: int, feeds: dict[str, Array]) -> Run:
        source = _model(step, opset, feeds).SerializeToString()
        try:
            session = onnxruntime.InferenceSession(
                source, self.options, providers=["CPUExecutionProvider"]
            )
        except states.NotImplemented as error:
            raise _Unable(str(error)) from None
        except Exception as error:  # an invalid model, by any of its error classes
            self.refused[step.operator, str(error)[:300]] += 1
            raise _Unable(str(error), final="is invalid" not in str(error)) from None

        def run(feeds: dict[str, Array]) -> list[Array]:
            try:
                return [np.asarray(r) for r in session.run(list(step.outputs), feeds)]
            except states.NotImplemented as error:
                raise _Unable(str(error)) from None
            except Exception as error:
                self.refused[step.operator, str(error)[:300]] += 1
                raise _Unable(str(error), final=True) from None

        return run

    def _measured(
        self,
        run: Run,
        arrays: dict[str, Array],
        feeds: dict[str, Array],
        values: dict[str, Value],
        seed: int,
        units: float,
        within: float,
    ) -> dict[str, Value]:
        """The results with their errors. Raises Jumps."""
        rng = np.random.default_rng(seed)
        changes = {n: np.zeros(a.shape) for n, a in arrays.items()}
        chosen = any(array.dtype.kind != "f" for array in arrays.values())
        for iteration in range(MOVED_BEFORE_A_CHOICE if chosen else MOVED):
            moved = {n: _moved(a, values[n].error, units, rng, iteration) for n, a in feeds.items()}
            try:
                again = run(moved)
            except _Unable:
                raise Jumps from None
            for (name, array), other in zip(arrays.items(), again, strict=True):
                change = _change(array, other)
                changes[name] = np.maximum(changes[name], change)
        return {n: _value(array, changes[n], units, within) for n, array in arrays.items()}


def _as_float32(arrays: dict[str, Array]) -> dict[str, Array]:
    halves = {n for n, a in arrays.items() if a.dtype == np.float16}
    return {n: a.astype(np.float32) if n in halves else a for n, a in arrays.items()}


def _widened(make: Any, step: Step, opset: int, feeds: dict[str, Array]) -> Run:
    """A step on float32 in the place of float16, of which the results are rounded."""

    inner = make(step, opset, _as_float32(feeds))

    def run(arrays: dict[str, Array]) -> list[Array]:
        found = inner(_as_float32(arrays))
        with np.errstate(over="ignore"):
            return [a.astype(np.float16) if a.dtype == np.float32 else a for a in found]

    return run


class _Unable(Exception):
    """final: the step is wrong, for any engine."""

    def __init__(self, text: str, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


def _model(step: Step, opset: int, feeds: dict[str, Array]) -> Any:
    inputs = [
        helper.make_tensor_value_info(name, element_type(array), array.shape)
        for name, array in feeds.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in step.outputs]
    return model_of(list(step.nodes), opset, inputs, results, [])


def _onnx(step: Step, opset: int, feeds: dict[str, Array]) -> Run:
    """By ONNX's evaluator; results of other types than ONNX itself infers are none."""
    model = _model(step, opset, feeds)
    try:
        evaluator = ReferenceEvaluator(model)
        inferred = shape_inference.infer_shapes(model).graph.output
    except Exception as error:
        raise _Unable(str(error)) from None
    types = [value.type.tensor_type.elem_type for value in inferred]

    def run(feeds: dict[str, Array]) -> list[Array]:
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                with redirect_stdout(io.StringIO()):
                    found = evaluator.run(list(step.outputs), feeds)
        except Exception as error:  # of any kind: it is a script per operator
            raise _Unable(str(error)) from None
        if not all(isinstance(array, (np.ndarray, np.generic)) for array in found):
            raise _Unable("results that are no arrays")
        arrays = [np.asarray(array) for array in found]
        if any(t not in (0, element_type(a)) for t, a in zip(types, arrays, strict=True)):
            raise _Unable("results of another type")
        return arrays

    return run


def _tinyedge(step: Step, opset: int, feeds: dict[str, Array]) -> Run:
    """Our own evaluator, with all inputs known: what is compiled is then only compared with it."""
    inputs = [
        helper.make_tensor_value_info(name, element_type(array), array.shape)
        for name, array in feeds.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in step.outputs]
    source = model_of(list(step.nodes), opset, inputs, results, []).SerializeToString()

    def run(feeds: dict[str, Array]) -> list[Array]:
        try:
            with np.errstate(all="ignore"):
                imported = import_model(source, constants=feeds)
                nodes = [imported.outputs[name].node for name in step.outputs]
                found = evaluate(nodes, {}, counts=imported.counts.nodes)
        except InputError as error:
            raise _Unable(str(error), final=True) from None
        types = [imported.outputs[name].dtype for name in step.outputs]
        return [named(np.asarray(a), t) for a, t in zip(found, types, strict=True)]

    return run


def _exact(step: Step, feeds: dict[str, Array], results: dict[str, Array]) -> bool:
    """Whether every implementation must give these results."""
    operators = {node.op_type for node in step.nodes}
    if all(_exactly(node) for node in step.nodes):
        return True
    if not operators <= EXACT | DYADIC:
        return False
    arrays = [*feeds.values(), *results.values()]
    if operators & {"QuantizeLinear", "DequantizeLinear"} and not _powers(feeds[step.inputs[1]]):
        return False
    return all(_short(array) for array in arrays)


def _short(array: Array) -> bool:
    """Whether all that is finite is a multiple of 1/64 below 2^11 (float16: of 1/8, below 2^7)."""
    if array.dtype.kind != "f":
        return True
    finite = array[np.isfinite(array)].astype(np.float64)
    scale, limit = (8, 2.0**7) if array.dtype == np.float16 else (64, 2.0**11)
    return bool((np.abs(finite) < limit).all() and (finite * scale % 1 == 0).all())


def _powers(scale: Array) -> bool:
    with np.errstate(all="ignore"):
        return bool((np.frexp(scale.astype(np.float64))[0] == 0.5).all())


def _exactly(node: Any) -> bool:
    """Whether a node rounds nothing."""
    if node.op_type in ("ScatterND", "ScatterElements"):
        return attributes(node).get("reduction", b"none") in (b"none", b"max", b"min")
    return node.op_type in EXACT


def _within(node: Any, feeds: dict[str, Array]) -> float:
    """How great the numbers are that a node's results are differences of."""
    if node.op_type in ("InstanceNormalization", "GroupNormalization"):
        x, scale = (_greatest(feeds[name]) for name in node.input[:2])
        return x * scale / float(np.sqrt(attributes(node).get("epsilon", 1e-5)))
    if node.op_type == "MeanVarianceNormalization":  # the variance is a difference of squares
        x, axes = feeds[node.input[0]].astype(np.float64), attributes(node).get("axes", (0, 2, 3))
        with np.errstate(all="ignore"):
            variance = np.nan_to_num(x.var(axis=tuple(axes)), nan=np.inf)
        return _greatest(x) ** 2 / max(float(variance.min(initial=np.inf)), 1e-6)
    if (
        node.op_type in ("Resize", "Upsample")
        and attributes(node).get("mode", b"nearest") != b"nearest"
    ):
        x = feeds[node.input[0]]  # the places between its elements are rounded too
        return _greatest(x) * max(x.shape, default=1)
    if node.op_type in ("Gelu", "Swish", "Mish"):
        return _greatest(feeds[node.input[0]])
    return WITHIN.get(node.op_type, 0.0)


def _may_be_equal(node: Any, feeds: dict[str, Array], values: dict[str, Value]) -> bool:
    """Whether a node compares numbers that only rounding makes equal, which no move shows."""
    if node.op_type != "Equal" or not all(name in feeds for name in node.input):
        return False
    errors = [values[name].error for name in node.input]
    if all(error is None for error in errors):
        return False
    a, b = (feeds[name].astype(np.float64) for name in node.input)
    room = sum(np.asarray(0.0 if error is None else error) for error in errors)
    with np.errstate(all="ignore"):
        return bool((np.abs(a - b) <= room).any())


def _terms(step: Step, feeds: dict[str, Array], results: dict[str, Array]) -> float:
    """How many numbers a loss or a reduction may add up one after the other."""
    if not all(node.op_type.startswith("Reduce") or "Loss" in node.op_type for node in step.nodes):
        return 0.0
    most = max(array.size for array in feeds.values())
    return most / max(1, min(array.size for array in results.values()))


def _greatest(array: Array) -> float:
    """The greatest finite magnitude."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def _huge(array: Array, wide: bool) -> bool:
    """wide: between the nodes of the step, halves are float32."""
    if array.dtype.kind != "f":
        return False
    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
    between = "float32" if wide and array.dtype == np.float16 else array.dtype.name
    return bool((finite > HUGE[between]).any())


def _moved(
    array: Array, error: Array | None, units: float, rng: np.random.Generator, iteration: int
) -> Array:
    """The array, each element moved by its error and by some units of its last place: all up, all
    down, each as it comes; then what may be 0 is 0."""
    if array.dtype.kind != "f":
        return array
    with np.errstate(all="ignore"):
        room = np.abs(array.astype(np.float64)) * (units * np.finfo(array.dtype).eps)
        room = np.where(np.isfinite(room), room, 0) + (0 if error is None else error)
        mixed = rng.integers(0, 2, array.shape) * 2 - 1
        signs = {0: 1, 1: -1}.get(iteration, mixed)
        there = array + signs * room
        if iteration > 1:
            there = np.where((np.abs(array) <= room) & (mixed > 0), 0, there)
        return np.asarray(there).astype(array.dtype)


def _change(array: Array, other: Array) -> Array:
    """How much a result changed. Raises Jumps for other integers, other places of NaN."""
    if array.shape != other.shape:
        raise Jumps
    if array.dtype.kind != "f":
        if not np.array_equal(array, other):
            raise Jumps
        return np.zeros(array.shape)
    finite = np.isfinite(array)
    if not np.array_equal(array[~finite], other[~finite], equal_nan=True):
        raise Jumps
    if not np.isfinite(other[finite]).all():
        raise Jumps
    with np.errstate(all="ignore"):
        change = np.abs(array.astype(np.float64) - other.astype(np.float64))
    return np.where(finite, change, 0)


def _value(array: Array, change: Array, units: float, within: float) -> Value:
    """A result with its error. Raises Jumps where that is no small part of it."""
    if array.dtype.kind != "f":
        return Value(array)
    finite = np.where(np.isfinite(array), np.abs(array.astype(np.float64)), 0)
    unit = float(np.finfo(array.dtype).eps) * max(units, 1.0) * 4 * (units > 0)
    greatest = max(within, float(finite.max(initial=0.0)))
    most = float(change.max(initial=0.0)) * SAFETY
    if most > GREATEST_ERROR[array.dtype.name] * greatest:
        raise Jumps
    error = np.minimum(SAFETY * change + most / 4, most) + unit * finite
    if not error.any() and units == 0.0:
        return Value(array)
    if units == 0.0:  # of a narrower type, perhaps, that rounds to a neighbor
        unit = float(np.finfo(array.dtype).eps)
        error = error + unit * finite
    return Value(array, error + unit * greatest / 16)


def close(actual: Array, value: Value) -> str:
    """What is wrong with a result; nothing where it is as near as it must be."""
    expected = value.array
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return (
            f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
        )
    if expected.dtype.kind != "f":
        wrong = codes(actual) != codes(expected)
    else:
        with np.errstate(all="ignore"):
            wide, exact = actual.astype(np.float64), expected.astype(np.float64)
            same = (wide == exact) | (np.isnan(wide) & np.isnan(exact))
            room = np.finfo(expected.dtype).tiny + (0 if value.error is None else value.error)
            wrong = ~same & ~(np.abs(wide - exact) <= room)
    if not wrong.any():
        return ""
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    room = 0.0 if value.error is None else float(value.error[first])
    return (
        f"{int(wrong.sum())} of {wrong.size} differ, first at {list(first)}: "
        f"{actual[first]} for {expected[first]} within {room:.3g}"
    )


def operators(steps: Sequence[Step]) -> list[str]:
    return [node.op_type for step in steps for node in step.nodes]
