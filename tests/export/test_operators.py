"""Operators against onnxruntime: older operator sets, random convolutions and pools."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.export.hostile import model
from tests.imported import import_model
from tinyedge.core.errors import InputError, ModelError, UnsupportedOp
from tinyedge.core.ir.reference import evaluate

runtime = pytest.importorskip("onnxruntime")


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compare(
    op: str,
    opset: int,
    inputs: list[Any],
    /,
    *,
    outputs: int = 1,
    constants: tuple[int, ...] = (),
    steps: int = 0,
    **attributes: Any,
) -> None:
    """One node; the inputs at positions in `constants` are initializers, None is left out.

    steps: how far integers may be off.
    """
    names = [f"i{n}" if value is not None else "" for n, value in enumerate(inputs)]
    results = [f"o{n}" for n in range(outputs)]
    feeds = {
        name: value
        for n, (name, value) in enumerate(zip(names, inputs, strict=True))
        if name and n not in constants
    }
    weights = [
        numpy_helper.from_array(np.asarray(inputs[n]), names[n]) for n in constants if names[n]
    ]
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in feeds.items()
    ]
    node = helper.make_node(op, names, results, **attributes)
    proto = model([node], inputs=infos, outputs=tuple(results), weights=weights, opset=opset)
    if node.domain:
        proto.opset_import.append(helper.make_opsetid(node.domain, 1))
    source = proto.SerializeToString()
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    want = session.run(None, feeds)
    imported = import_model(source)
    got = evaluate([tensor.node for tensor in imported.outputs.values()], feeds)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        exact = ours.dtype.kind in "iu"
        room = {"rtol": 0, "atol": steps} if exact else {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), **room)


X = floats(2, 3, 4, 5)
I64 = np.int64

OLD: list[tuple[str, int, list[Any], dict[str, Any]]] = [
    ("Softmax", 11, [X], {"axis": 1}),
    ("Softmax", 11, [X], {"axis": 2}),
    ("Softmax", 7, [X], {}),
    ("LogSoftmax", 11, [X], {"axis": 2}),
    ("Hardmax", 11, [X], {"axis": 2}),
    ("Squeeze", 11, [floats(1, 3, 1, 5)], {"axes": [0, -2]}),
    ("Squeeze", 9, [floats(1, 3, 1, 5)], {}),
    ("Unsqueeze", 11, [X], {"axes": [0, -1]}),
    ("Clip", 7, [X], {"min": -0.5, "max": 0.25}),
    ("Clip", 7, [X], {"max": 0.25}),
    ("Dropout", 7, [X], {"ratio": 0.3}),
    ("Dropout", 10, [X], {"ratio": 0.3}),
    ("Pad", 9, [X], {"pads": [0, 1, 0, 2, 0, 0, 3, 1], "value": 1.5}),
    ("Pad", 9, [X], {"pads": [0, 0, 1, 2, 0, 0, 3, 1], "mode": "reflect"}),
    ("Pad", 9, [X], {"pads": [0, 0, 1, 2, 0, 0, 3, 1], "mode": "edge"}),
    ("Slice", 9, [X], {"starts": [1, -3], "ends": [9, -1], "axes": [1, 3]}),
    ("Slice", 7, [X], {"starts": [0, 1], "ends": [2, 1000]}),
    ("ReduceSum", 11, [X], {"axes": [1, -1], "keepdims": 0}),
    ("ReduceMean", 11, [X], {"axes": [0]}),
    ("ReduceMax", 12, [X], {}),
    ("ReduceL2", 11, [X], {"axes": [2]}),
    ("ReduceLogSumExp", 11, [X * 50], {"axes": [1, 2]}),
    ("ArgMax", 11, [X], {"axis": -2}),
    ("ArgMin", 11, [X], {"keepdims": 0}),
    ("TopK", 9, [X], {"k": 2, "axis": 2, "outputs": 2}),
    ("Gemm", 7, [floats(3, 2), floats(4, 3), floats(4)], {"transA": 1, "transB": 1, "alpha": 0.5}),
    ("Gemm", 9, [floats(2, 3), floats(3, 4), floats(2, 1)], {"beta": 2.0}),
    ("Gemm", 11, [floats(2, 3), floats(3, 4)], {}),
    ("Upsample", 7, [X], {"scales": [1.0, 1.0, 2.0, 3.0]}),
    ("Upsample", 7, [X], {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "linear"}),
    ("BatchNormalization", 7, [X, *(np.abs(floats(3, seed=s)) for s in range(4))], {}),
    ("BatchNormalization", 9, [X, *(np.abs(floats(3, seed=s)) for s in range(4))], {}),
    ("InstanceNormalization", 7, [X, floats(3), floats(3)], {"epsilon": 0.01}),
    ("LRN", 7, [X], {"size": 3, "alpha": 0.1}),
    ("LpNormalization", 7, [X], {"p": 1, "axis": 1}),
    ("Flatten", 7, [X], {"axis": 2}),
    ("Concat", 7, [X, X], {"axis": 2}),
    ("Mean", 8, [X, floats(1, 4, 5)], {}),
    ("PRelu", 7, [X, floats(3, 1, 1)], {}),
    ("Elu", 7, [X], {"alpha": 0.7}),
    ("Selu", 7, [X], {}),
    ("HardSigmoid", 7, [X], {}),
    ("Transpose", 7, [X], {}),
    ("DepthToSpace", 9, [floats(1, 8, 2, 3)], {"blocksize": 2}),
    ("MaxPool", 8, [X], {"kernel_shape": [2, 2], "outputs": 2}),
    ("GlobalLpPool", 7, [X], {"p": 3}),
    ("Cast", 9, [X * 100], {"to": 6}),
    ("Pow", 7, [np.abs(X), floats(5)], {}),
    ("Pow", 12, [np.array([3, -2, 7, 1, -1]), np.array([33, 5, 0, -3, -5])], {}),
    ("IsNaN", 9, [np.where(X > 0, np.float32(np.nan), X)], {}),
    ("Erf", 9, [3 * X], {}),
    ("Sinh", 9, [X], {}),
    ("Asinh", 9, [X], {}),
    ("Atan", 9, [5 * X], {}),
    ("Acos", 9, [np.tanh(X)], {}),
]


@pytest.mark.parametrize("case", OLD, ids=lambda case: f"{case[0]}-{case[1]}")
def test_older_operator_sets(case: tuple[str, int, list[Any], dict[str, Any]]) -> None:
    op, opset, inputs, attributes = case
    compare(op, opset, inputs, **attributes)


WITH_CONSTANTS: list[tuple[str, int, list[Any], tuple[int, ...], dict[str, Any]]] = [
    ("Split", 11, [X], (), {"axis": 3, "split": [2, 3], "outputs": 2}),
    ("Split", 13, [X, np.array([2, 3], I64)], (1,), {"axis": 3, "outputs": 2}),
    ("Split", 18, [floats(10)], (), {"num_outputs": 3, "outputs": 3}),
    ("TopK", 10, [X, np.array([3], I64)], (1,), {"outputs": 2}),
    ("TopK", 11, [np.round(X), np.array([3], I64)], (1,), {"largest": 0, "outputs": 2}),
    ("Resize", 10, [X, np.array([1, 1, 2, 0.6], np.float32)], (1,), {}),
    ("Resize", 10, [X, np.array([1, 1, 2, 1.4], np.float32)], (1,), {"mode": "linear"}),
    ("OneHot", 9, [np.array([1, -1, 7]), np.array(4), floats(2)], (1, 2), {"axis": 0}),
    ("Scatter", 9, [X, np.array([[[[1, 0]]]]), floats(1, 1, 1, 2)], (), {"axis": 3}),
    ("ScatterElements", 16, [X, np.array([[[[1, 1]]]]), floats(1, 1, 1, 2)], (),
     {"reduction": "add"}),
    ("ScatterND", 16, [X, np.array([[0, 1], [1, -1]]), floats(2, 4, 5)], (1,), {}),
    ("GatherND", 12, [X, np.array([[[1]], [[-1]]])], (), {"batch_dims": 1}),
    ("Slice", 10, [X, *(np.array(v) for v in ([-1], [-6], [3], [-2]))], (1, 2, 3, 4), {}),
    ("CumSum", 11, [X, np.array(2)], (1,), {"exclusive": 1, "reverse": 1}),
    ("Tile", 7, [X, np.array([1, 2, 1, 3])], (1,), {}),
    ("Expand", 8, [floats(3, 1), np.array([2, 1, 4])], (1,), {}),
    ("Range", 11, [np.float32(1), np.float32(7), np.float32(1.7)], (0, 1, 2), {}),
    ("Pad", 13, [X, np.array([0, 0, 1, -2, 0, 0, 2, -1]), np.float32(3)], (1, 2), {}),
    ("ReverseSequence", 10, [floats(4, 3, 2), np.array([1, 4, 2])], (), {}),
    ("Trilu", 14, [X, np.array(-1)], (1,), {"upper": 0}),
    ("QuantizeLinear", 10, [X * 9, np.float32(0.3), np.uint8(7)], (1, 2), {}),
    ("DequantizeLinear", 13, [np.arange(6, dtype=np.int8).reshape(2, 3), floats(3)], (),
     {"axis": 1}),
    ("Einsum", 12, [floats(2, 3, 4), floats(2, 4, 5)], (), {"equation": "bij,bjk->bki"}),
    ("Einsum", 12, [floats(3, 3), floats(3)], (), {"equation": "ii,j->i"}),
    ("LayerNormalization", 17, [X + 10, floats(5), floats(5)], (1, 2), {}),
    ("GridSample", 16, [X, np.tanh(floats(2, 3, 3, 2))], (), {"padding_mode": "reflection"}),
    ("LSTM", 14, [floats(5, 2, 3), floats(2, 16, 3), floats(2, 16, 4), floats(2, 32)], (1, 2, 3),
     {"hidden_size": 4, "direction": "bidirectional", "outputs": 3}),
    ("GRU", 14, [floats(5, 2, 3), floats(1, 12, 3), floats(1, 12, 4), floats(1, 24),
                 np.array([3, 5], np.int32)], (1, 2, 3),
     {"hidden_size": 4, "linear_before_reset": 1, "direction": "reverse", "outputs": 2}),
]  # fmt: skip


@pytest.mark.parametrize("case", WITH_CONSTANTS, ids=lambda case: f"{case[0]}-{case[1]}")
def test_constant_operands(
    case: tuple[str, int, list[Any], tuple[int, ...], dict[str, Any]],
) -> None:
    op, opset, inputs, constants, attributes = case
    compare(op, opset, [np.asarray(v) for v in inputs], constants=constants, **attributes)


FAR = 2**63 - 1

# Found by random models, tests/onnxfuzz.
ONCE_WRONG: list[tuple[str, int, list[Any], tuple[int, ...], dict[str, Any]]] = [
    ("Slice", 13, [X, *(np.array(v) for v in ([1], [FAR], [3], [FAR]))], (1, 2, 3, 4), {}),
    ("Slice", 13, [X, *(np.array(v) for v in ([2], [-9], [2], [-FAR]))], (1, 2, 3, 4), {}),
    ("Pow", 15, [np.array([[2, -3]], np.int32), np.array(5)], (1,), {}),
    ("ArgMin", 13, [np.array([3, -127, -128, 127], np.int8)], (), {}),
    ("CumSum", 14, [np.zeros((3, 0), np.float32), np.array(1)], (1,), {}),
    ("CumSum", 14, [np.zeros(0, np.float32), np.array(0)], (1,), {"exclusive": 1}),
    ("QuantizeLinear", 21, [floats(6) * 9, np.array([0.5, 2, 1], np.float32),
                            np.array([1, 0, 3], np.int8)], (1, 2), {"axis": 0, "block_size": 2}),
    ("NegativeLogLikelihoodLoss", 17, [floats(4, 3), np.array([2, 0, 1, 1])], (), {}),
    ("SoftmaxCrossEntropyLoss", 18, [floats(4, 3), np.array([2, 0, 1, 1])], (), {}),
    ("Trilu", 14, [X, np.array(1 << 32)], (), {}),
    ("Trilu", 14, [X, np.array(-(1 << 33) + 2)], (), {"upper": 0}),
    ("AffineGrid", 20, [floats(1, 2, 3), np.array([1, 2, 3, 4])], (1,), {}),
    ("AffineGrid", 20, [floats(2, 3, 4), np.array([2, 2, 3, 2, 4])], (1,), {"align_corners": 1}),
    ("Resize", 18, [floats(1, 1, 2, 3), None, None, np.array([3, 1])], (3,),
     {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger", "mode": "linear",
      "coordinate_transformation_mode": "pytorch_half_pixel"}),
]  # fmt: skip


@pytest.mark.parametrize("case", ONCE_WRONG, ids=lambda case: f"{case[0]}-{case[1]}")
def test_what_random_models_found(
    case: tuple[str, int, list[Any], tuple[int, ...], dict[str, Any]],
) -> None:
    op, opset, inputs, constants, attributes = case
    compare(op, opset, inputs, constants=constants, **attributes)


@pytest.mark.parametrize("op", ["Sinh", "Erf"])
def test_doubles_to_their_last_digits(op: str) -> None:
    """Where onnxruntime has no doubles, or computes them as float32."""
    x = np.linspace(-7, 7, 1001)
    want = np.sinh(x) if op == "Sinh" else np.vectorize(math.erf)(x)
    proto = model(
        [helper.make_node(op, ["x"], ["y"])],
        inputs=[helper.make_tensor_value_info("x", TensorProto.DOUBLE, x.shape)],
        outputs=("y",),
    )
    imported = import_model(proto.SerializeToString())
    (got,) = evaluate([imported.outputs["y"].node], {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-14)


def test_statistics_of_doubles_are_floats() -> None:
    """The mean and the inverse deviation are of `stash_type`, which is float32."""
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y", "m", "d"])
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.DOUBLE, (2, 4)[start:])
        for start, name in enumerate("xs")
    ]
    imported = import_model(
        model([node], inputs=inputs, outputs=("y", "m", "d"), opset=17).SerializeToString()
    )
    assert [t.dtype.name for t in imported.outputs.values()] == ["float64", "float32", "float32"]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("sizes", [(7, 3), (8, 10), (2, 13)])
def test_resize(mode: str, coordinates: str, sizes: tuple[int, int]) -> None:
    target = np.array([2, 3, *sizes], I64)
    compare(
        "Resize",
        13,
        [X, None, None, target],
        constants=(3,),
        mode=mode,
        coordinate_transformation_mode=coordinates,
    )


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int32])
def test_resized_integers_are_rounded_once(kind: Any) -> None:
    """Not after each axis."""
    x = np.random.default_rng(1).integers(0, 127, (1, 2, 6, 5)).astype(kind)
    compare("Resize", 13, [x, None, np.array([1, 1, 2, 4], np.float32)], constants=(2,),
            mode="linear")  # fmt: skip


def _windows(rng: random.Random, spatial: int) -> dict[str, Any]:
    attributes: dict[str, Any] = {"strides": [rng.randint(1, 3) for _ in range(spatial)]}
    padding = rng.choice(["NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if padding == "NOTSET":
        attributes["pads"] = [rng.randint(0, 1) for _ in range(2 * spatial)]
    else:
        attributes["auto_pad"] = padding
    return attributes


@pytest.mark.parametrize("seed", range(40))
def test_random_convolutions(seed: int) -> None:
    rng = random.Random(seed)
    spatial, group = rng.randint(1, 3), rng.choice([1, 1, 2, 4])
    kernel = [rng.randint(1, 3) for _ in range(spatial)]
    attributes = {**_windows(rng, spatial), "group": group, "kernel_shape": kernel}
    sizes = [rng.randint(7, 9) for _ in range(spatial)]
    x = floats(2, 4, *sizes, seed=seed)
    bias = floats(8, seed=seed) if rng.random() < 0.5 else None
    transposed = rng.random() < 0.4
    if "auto_pad" not in attributes:  # onnxruntime refuses both together
        attributes["dilations"] = [rng.randint(1, 2) for _ in range(spatial)]
    if transposed:
        if "auto_pad" in attributes:  # where the kernel has gaps, onnxruntime's output is too small
            attributes["strides"] = [1] * spatial
        if "pads" in attributes and rng.random() < 0.5:
            attributes["output_padding"] = [rng.randint(0, s - 1) for s in attributes["strides"]]
        weight = floats(4, 8 // group, *kernel, seed=seed + 1)
    else:
        weight = floats(8, 4 // group, *kernel, seed=seed + 1)
    op = "ConvTranspose" if transposed else "Conv"
    compare(op, 11, [x, weight, bias], constants=(1, 2), **attributes)


@pytest.mark.parametrize("seed", range(40))
def test_random_pools(seed: int) -> None:
    rng = random.Random(seed)
    spatial = rng.randint(1, 3)
    op = rng.choice(["MaxPool", "AveragePool", "AveragePool", "LpPool"])
    attributes = {
        **_windows(rng, spatial),
        "kernel_shape": [rng.randint(2, 3) for _ in range(spatial)],
    }
    if op != "LpPool" and "pads" in attributes:
        attributes["ceil_mode"] = rng.randint(0, 1)
    if op == "AveragePool":
        attributes["count_include_pad"] = rng.randint(0, 1)
    if op == "MaxPool" and "pads" in attributes:
        attributes["dilations"] = [rng.randint(1, 2) for _ in range(spatial)]
    x = floats(1, 2, *(rng.randint(6, 9) for _ in range(spatial)), seed=seed)
    compare(op, 19 if op == "AveragePool" else 12, [x], **attributes)


def test_an_output_that_is_not_supported_is_refused() -> None:
    with pytest.raises(InputError):
        compare("BatchNormalization", 7, [X, *(floats(3) for _ in range(4))], outputs=5)
    second = helper.make_node("BatchNormalization", ["x", *"abcd"], ["", "y"], training_mode=0)
    weights = [numpy_helper.from_array(np.ones(3, np.float32), name) for name in "abcd"]
    with pytest.raises(UnsupportedOp, match="only its first 1 outputs"):
        import_model(model([second], weights=weights).SerializeToString())


@pytest.mark.parametrize(
    "attributes", [{"pads": [-1, 0, 0, 0]}, {"pads": [1, 1]}, {"auto_pad": "SAME"}]
)
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_paddings_that_there_are_not(op: str, attributes: dict[str, Any]) -> None:
    """Less than none would be read from before the data."""
    kernel = numpy_helper.from_array(floats(1, 1, 3, 3), "w")
    node = helper.make_node(op, ["x", "w"], ["y"], **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 5, 5])
    with pytest.raises(ModelError, match=f"{next(iter(attributes))} is"):
        import_model(model([node], inputs=[x], weights=[kernel]).SerializeToString())


def test_nothing_is_not_resized_to_something() -> None:
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [0, 3])
    sizes = numpy_helper.from_array(np.array([2, 3]), "sizes")
    with pytest.raises(ModelError, match=r"\[0, 3\] is resized to \[2, 3\]"):
        import_model(model([node], inputs=[x], weights=[sizes]).SerializeToString())


def test_a_layer_of_no_steps_is_refused() -> None:
    operands = {"x": floats(0, 2, 3), "w": floats(1, 12, 3), "r": floats(1, 12, 4)}
    source = helper.make_graph(
        [helper.make_node("GRU", list(operands), ["y"], hidden_size=4)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (0, 2, 3))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (0, 1, 2, 4))],
        [numpy_helper.from_array(operands[name], name) for name in ("w", "r")],
    )
    with pytest.raises(InputError, match="no steps"):
        import_model(helper.make_model(source, ir_version=8).SerializeToString())


@pytest.mark.parametrize("op", ["Acosh", "Asinh", "Atanh", "Sinh", "Cosh"])
def test_hyperbolic_functions_at_the_ends(op: str) -> None:
    values = [np.inf, -np.inf, np.nan, 2, -2, 1, -1, 0.5, 1e-4, -1e10, 3e38, -3e38]
    compare(op, 17, [np.array(values, np.float32)])


@pytest.mark.parametrize(
    "shape", [(), (1,), (5,), (4, 1), (3, 1, 1), (3, 4, 5), (1, 3, 1, 1), (2, 1, 1, 5)]
)
def test_slopes_of_every_shape_that_broadcasts(shape: tuple[int, ...]) -> None:
    compare("PRelu", 16, [X, floats(*shape, seed=1)])
