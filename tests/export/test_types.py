"""Stored types in ONNX models and in bundles: how files hold them, what operators make of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinyedge
from tests import stored
from tests.conformance.cases import all_codes
from tests.export.hostile import info, model, node
from tests.imported import import_model
from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InputError, ModelError, RunError
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.uop import toposort
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle.reading import read
from tinyedge.export.onnx.reader import CODES
from tinyedge.export.verify import verify

ml = pytest.importorskip("ml_dtypes")
pytest.importorskip("onnx", "1.23")
OPSET = 28
BF16 = TensorProto.BFLOAT16


def imported(proto: Any, **feeds: Any) -> dict[str, Any]:
    """The outputs of a model, of stored types as ml_dtypes has them."""
    found = import_model(proto.SerializeToString() if hasattr(proto, "graph") else proto)
    nodes = [tensor.node for tensor in found.outputs.values()]
    values = evaluate(nodes, feeds)
    return {
        name: dt.named(value, tensor.dtype)
        for (name, tensor), value in zip(found.outputs.items(), values, strict=True)
    }


def raw(array: Any) -> bytes:
    return bytes(np.ascontiguousarray(array).reshape(-1).view(np.uint8).tobytes())


# How a model's file holds them.


@pytest.mark.parametrize("dtype", dt.STORED, ids=repr)
@pytest.mark.parametrize("count", [0, 1, 2, 5, 8, 33])
@pytest.mark.parametrize("form", ["raw", "ints", "external"])
def test_weights(tmp_path: Path, dtype: DType, count: int, form: str) -> None:
    codes = np.random.default_rng(count).permutation(np.resize(all_codes(dtype), count))
    values = dt.named(codes.astype(dtype.numpy), dtype)
    weight = numpy_helper.from_array(values, "w")
    if form == "ints":
        packed = np.frombuffer(weight.raw_data, "<u2" if dtype.bits == 16 else np.uint8)
        weight.ClearField("raw_data")
        weight.int32_data.extend(packed.astype(np.int32).tolist())
    elif form == "external":
        (tmp_path / "w.bin").write_bytes(weight.raw_data)
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="w.bin")
    to_float = node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)
    path = tmp_path / "model.onnx"
    path.write_bytes(model([to_float], weights=[weight], opset=OPSET).SerializeToString())
    got = imported(str(path))["y"]
    np.testing.assert_array_equal(got, values.astype(np.float32))


@pytest.mark.parametrize(
    ("dtype", "of_257", "of_1001"),
    [(dt.bfloat16, 256, 1000), (dt.float8_e4m3fn, 256, 448), (dt.int4, 1, -7)],
    ids=repr,
)
def test_an_open_size_is_rounded(dtype: DType, of_257: int, of_1001: int) -> None:
    """Sizes are expressions where they are exact; in a stored type they are numbers of a run."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Cast", ["s"], ["c"], to=CODES[dtype]),
        node("Cast", ["c"], ["y"], to=TensorProto.INT64),
    ]
    proto = model(nodes, inputs=[info("x", ["N"])], opset=OPSET)
    y = import_model(proto.SerializeToString(), dims={"N": "1..2000"}).outputs["y"].node
    for size, want in ((1, 1), (257, of_257), (1001, of_1001)):
        (got,) = evaluate([y], {"x": np.zeros(size, np.float32)}, {"N": size})
        assert got.tolist() == [want]


def test_weights_of_another_length() -> None:
    for kind, count in ((TensorProto.INT4, 3), (TensorProto.UINT2, 9), (BF16, 2)):
        weight = TensorProto(name="w", data_type=kind, dims=[count], raw_data=b"\0" * 3 * count)
        to_float = node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)
        with pytest.raises(ModelError) as caught:
            imported(model([to_float], weights=[weight], opset=OPSET))
        assert caught.value.id == "model.tensor"


def test_constants_and_fills() -> None:
    """Attributes of stored types; one value that repeats is a scalar."""
    value = numpy_helper.from_array(np.array([1.5, -2], ml.bfloat16))
    fill = numpy_helper.from_array(np.array([3], ml.int4))
    nodes = [
        node("Constant", [], ["a"], value=value),
        node("Constant", [], ["n"], value_ints=[2, 3]),
        node("ConstantOfShape", ["n"], ["b"], value=fill),
    ]
    got = imported(model(nodes, outputs=("a", "b"), opset=OPSET))
    assert got["a"].dtype == ml.bfloat16 and got["a"].tolist() == [1.5, -2]
    assert got["b"].dtype == ml.int4 and (got["b"].astype(int) == 3).all()
    assert got["b"].shape == (2, 3)


# What operators allow, and what they compute.


@pytest.mark.parametrize(
    ("op", "opset", "kind", "because"),
    [
        ("Identity", 20, TensorProto.INT4, "int4: not allowed in opset 20"),
        ("Identity", 12, BF16, "bfloat16: not allowed in opset 12"),
        ("Neg", OPSET, TensorProto.INT4, "int4: not allowed"),
        ("Relu", OPSET, TensorProto.FLOAT8E5M2, "float8_e5m2: not allowed"),
        ("Relu", 13, TensorProto.UINT2, "uint2: not allowed"),
    ],
)
def test_operator_sets_say_what_is_allowed(op: str, opset: int, kind: int, because: str) -> None:
    proto = model([node(op, ["x"])], inputs=[info("x", [2], kind)], opset=opset)
    with pytest.raises(ModelError, match=because) as caught:
        imported(proto)
    assert caught.value.id == "model.node"


def test_results_are_checked_too() -> None:
    to_float8 = node("Cast", ["x"], to=TensorProto.FLOAT8E4M3FN)
    with pytest.raises(ModelError, match="float8_e4m3fn: not allowed in opset 18"):
        imported(model([to_float8], opset=18))


def test_foreign_operators_take_none() -> None:
    gelu = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    proto = model([gelu], inputs=[info("x", [2], BF16)], opset=OPSET)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(InputError, match="an operand is bfloat16"):
        imported(proto)


def sample(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(ml.bfloat16)


def erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x)


def normalized(x: Any) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def enlarged(x: Any) -> Any:
    places = np.clip((np.arange(2 * x.shape[-1]) + 0.5) / 2 - 0.5, 0, x.shape[-1] - 1)
    low = np.minimum(np.floor(places).astype(int), x.shape[-1] - 2)
    part = places - low
    return x[..., low] * (1 - part) + x[..., low + 1] * part


@pytest.mark.parametrize(
    ("proto", "meaning"),
    [
        ([node("Erf", ["x"])], erf),
        ([node("Gelu", ["x"])], lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2)))),
        ([node("Softmax", ["x"])], softmax),
        ([node("ReduceMean", ["x"], keepdims=0)], lambda x: x.mean()),
        ([node("Tanh", ["x"])], np.tanh),
        ([node("MatMul", ["x", "xt"]), node("Transpose", ["x"], ["xt"])], lambda x: x @ x.T),
        (
            [
                node("Constant", [], ["s"], value_floats=[1.0, 2.0]),
                node("Resize", ["x", "", "s"], mode="linear"),
            ],
            enlarged,
        ),
        (
            [
                node(
                    "Constant", [], ["o"], value=numpy_helper.from_array(np.ones(32, ml.bfloat16))
                ),
                node("LayerNormalization", ["x", "o"]),
            ],
            normalized,
        ),
    ],
    ids=lambda value: value[-1].op_type if isinstance(value, list) else "",
)
def test_an_operator_rounds_its_result_alone(proto: Any, meaning: Any) -> None:
    """Within half a unit of the last place of what real numbers would give, and a little."""
    x = sample(24, 32)
    got = imported(model(proto, inputs=[info("x", [24, 32], BF16)], opset=22), x=x)["y"]
    assert got.dtype == ml.bfloat16
    want = meaning(x.astype(np.float64))
    room = np.abs(want) * 2.0**-8 + 2e-6 * np.abs(want).max()
    assert np.all(np.abs(got.astype(np.float64) - want) <= room)


def test_movement_leaves_codes_alone() -> None:
    """NaN of any payload, signed zeros: only what computes looks at numbers."""
    x = np.resize(np.array([0x7F81, 0xFFFF, 0x8000, 0x0001, 0x7FC1], np.uint16), (4, 6))
    x = x.view(ml.bfloat16)
    rows = numpy_helper.from_array(np.array([3, 0, 1]), "rows")
    pads = numpy_helper.from_array(np.array([0, 1, 0, 0]), "pads")
    mask = numpy_helper.from_array(np.arange(24).reshape(4, 6) % 2 == 0, "mask")
    nodes = [
        node("Transpose", ["x"], ["t"]),
        node("Gather", ["x", "rows"], ["g"]),
        node("Concat", ["g", "x"], ["c"], axis=0),
        node("Where", ["mask", "x", "x"], ["w"]),
        node("Pad", ["x", "pads"], ["p"]),
        node("Identity", ["x"], ["i"]),
    ]
    proto = model(
        nodes,
        inputs=[info("x", [4, 6], BF16)],
        outputs=("t", "c", "w", "p", "i"),
        weights=[rows, pads, mask],
        opset=22,
    )
    got = imported(proto, x=x)
    gathered = x[[3, 0, 1]]
    want = {
        "t": x.T,
        "c": np.concatenate([gathered, x]),
        "w": x,
        "p": np.pad(x.view(np.uint16), ((0, 0), (1, 0))).view(ml.bfloat16),
        "i": x,
    }
    for name, array in want.items():
        np.testing.assert_array_equal(dt.codes(got[name]), dt.codes(array), err_msg=name)


def test_branches_and_loops_carry_them() -> None:
    """A loop that doubles a bfloat16 until its condition no longer holds."""
    body = helper.make_graph(
        [node("Identity", ["on"], ["going"]), node("Add", ["v", "v"], ["w"])],
        "body",
        [info("i", [], TensorProto.INT64), info("on", [], TensorProto.BOOL), info("v", [2], BF16)],
        [info("going", [], TensorProto.BOOL), info("w", [2], BF16)],
    )
    weights = [
        numpy_helper.from_array(np.array(3), "trips"),
        numpy_helper.from_array(np.array(True), "on"),
    ]
    loop = node("Loop", ["trips", "on", "x"], ["y"], body=body)
    proto = model([loop], inputs=[info("x", [2], BF16)], weights=weights, opset=22)
    got = imported(proto, x=np.array([1.5, -3], ml.bfloat16))["y"]
    assert got.dtype == ml.bfloat16 and got.tolist() == [12, -24]


# Quantized to and from them.


def test_block_scales_of_powers_of_two() -> None:
    """Float4 with an E8M0 scale a block, as Microscaling formats have it: there and back."""
    x = np.random.default_rng(3).standard_normal((4, 64)).astype(np.float32)
    peak = np.abs(x.reshape(4, 2, 32)).max(-1)
    scale = numpy_helper.to_float8e8m0((peak / 6).astype(np.float32), True, "up")
    nodes = [
        node(
            "QuantizeLinear",
            ["x", "s"],
            ["q"],
            axis=1,
            block_size=32,
            output_dtype=TensorProto.FLOAT4E2M1,
        ),
        node(
            "DequantizeLinear",
            ["q", "s"],
            ["y"],
            axis=1,
            block_size=32,
            output_dtype=TensorProto.FLOAT,
        ),
    ]
    proto = model(
        nodes,
        inputs=[info("x", [4, 64])],
        outputs=("q", "y"),
        weights=[numpy_helper.from_array(scale, "s")],
        opset=OPSET,
    )
    got = imported(proto, x=x)
    factor = scale.astype(np.float32).repeat(32, -1)
    want = (x / factor).astype(ml.float4_e2m1fn)
    np.testing.assert_array_equal(dt.codes(got["q"]), dt.codes(want))
    np.testing.assert_array_equal(got["y"], want.astype(np.float32) * factor)


def test_quantized_product_of_float8() -> None:
    kind = TensorProto.FLOAT8E4M3FN
    a = np.random.default_rng(1).standard_normal((3, 8)).astype(ml.float8_e4m3fn)
    b = np.random.default_rng(2).standard_normal((8, 4)).astype(ml.float8_e4m3fn)
    zero = numpy_helper.from_array(np.zeros((), ml.float8_e4m3fn), "z")
    scales = [
        numpy_helper.from_array(np.float32(value), name)
        for name, value in (("sa", 0.5), ("sb", 0.25), ("sy", 0.125))
    ]
    product = node("QLinearMatMul", ["a", "sa", "z", "b", "sb", "z", "sy", "z"])
    proto = model(
        [product],
        inputs=[info("a", [3, 8], kind), info("b", [8, 4], kind)],
        weights=[zero, *scales],
        opset=21,
    )
    got = imported(proto, a=a, b=b)["y"]
    exact = (a.astype(np.float32) @ b.astype(np.float32)) * np.float32(0.5 * 0.25 / 0.125)
    np.testing.assert_array_equal(dt.codes(got), dt.codes(exact.astype(ml.float8_e4m3fn)))


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [(TensorProto.INT4, -8, 7), (TensorProto.UINT4, 0, 15), (TensorProto.UINT2, 0, 3)],
)
def test_quantized_weights_are_not_made_wide(kind: int, low: int, high: int) -> None:
    """No constant of the imported graph holds the weights in more bits than the model did."""
    codes = np.random.default_rng(4).integers(low, high + 1, (128, 96))
    weight = numpy_helper.from_array(codes.astype(helper.tensor_dtype_to_np_dtype(kind)), "q")
    scale = numpy_helper.from_array(np.linspace(0.1, 1, 96, dtype=np.float32), "s")
    nodes = [node("DequantizeLinear", ["q", "s"], ["w"], axis=1), node("MatMul", ["x", "w"])]
    proto = model(nodes, inputs=[info("x", [2, 128])], weights=[weight, scale], opset=25)
    found = import_model(proto.SerializeToString())
    kept = [
        n.arg.source.data
        for n in toposort([found.outputs["y"].node])
        if n.arg and n.op.name == "buffer"
    ]
    assert max(array.nbytes for array in kept if array is not None) == codes.size
    x = np.random.default_rng(5).standard_normal((2, 128)).astype(np.float32)
    got = evaluate([found.outputs["y"].node], {"x": x})[0]
    np.testing.assert_allclose(got, x @ (codes * np.linspace(0.1, 1, 96)), rtol=1e-4, atol=1e-3)


# Bundles.


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


def test_outputs_of_another_type_than_declared() -> None:
    wrong = model([node("Add", ["x", "x"], ["y"])], inputs=[info("x", [3])])
    wrong.graph.output[0].CopyFrom(info("y", [3], TensorProto.INT64))
    with pytest.raises(ModelError, match="says it is int64, its nodes make float32") as caught:
        import_model(wrong.SerializeToString())
    assert caught.value.id == "model.dtype"


def exported(bundles: Path, target: str) -> Path:
    path = bundles / target
    if not path.exists():
        tinyedge.export_function(stored.function, stored.examples(), target=target, out=path)
    return path


def test_bundles_of_every_type(bundles: Path, target: str, device: Any) -> None:
    """Goldens agree; callers give and get ml_dtypes' arrays, or codes."""
    path = exported(bundles, target)
    report = verify.verify(path, device)
    assert report.agrees and len(report.cases[0].outputs) == 3 * len(dt.STORED)
    inputs = stored.examples(seed=7)
    with Replay(read(path).program, device) as loaded:
        got = loaded.run(inputs)
        again = loaded.run({name: dt.codes(array) for name, array in inputs.items()})
    for name, want in stored.expected(inputs).items():
        assert got[name].dtype == want.dtype, name
        np.testing.assert_array_equal(dt.codes(got[name]), dt.codes(want), err_msg=name)
        assert raw(got[name]) == raw(again[name])


def test_manifest_says_what_codes_mean(bundles: Path) -> None:
    program = read(exported(bundles, "cpu")).program
    assert [port.dtype for port in program.inputs] == [dtype.name for dtype in dt.STORED]
    text = (bundles / "cpu" / "manifest.json").read_text()
    for dtype in dt.STORED:
        assert f'"dtype":"{dtype.storage_type}:{dtype.name}"' in text


def test_inputs_that_do_not_fit(bundles: Path) -> None:
    inputs = stored.examples()
    with tinyedge.load(exported(bundles, "cpu")) as loaded:
        for name, value, error in (
            ("int4", np.full(stored.SHAPE, 8, np.int8), "run.range"),
            ("float4_e2m1fn", np.full(stored.SHAPE, 16, np.uint8), "run.range"),
            ("uint2", [[4] * 5] * 3, "run.range"),
            ("bfloat16", np.ones(stored.SHAPE, np.float32), "run.dtype"),
            ("float8_e5m2", inputs["float8_e4m3fn"], "run.dtype"),
        ):
            with pytest.raises(RunError) as caught:
                loaded.run({**inputs, name: value})
            assert caught.value.id == error, name
        lists = {**inputs, "bfloat16": [[0.1] * 5] * 3, "int4": [[-8] * 5] * 3}
        got = loaded.run(lists)
    assert (got["bfloat16 numbers"] == np.float32(ml.bfloat16(0.1))).all()
    assert (got["int4 numbers"] == -8).all()


def test_types_of_numpy_files(bundles: Path, tmp_path: Path) -> None:
    """numpy.save forgets most types and keeps the bytes; a port knows what they are."""
    inputs = stored.examples(seed=2)
    files = {}
    for name, array in inputs.items():
        np.save(tmp_path / f"{name}.npy", dt.codes(array) if array.dtype.kind == "f" else array)
        files[name] = np.load(tmp_path / f"{name}.npy")
    with tinyedge.load(exported(bundles, "cpu")) as loaded:
        got = loaded.run(files)
    for name, want in stored.expected(inputs).items():
        np.testing.assert_array_equal(dt.codes(got[name]), dt.codes(want), err_msg=name)


def test_every_type_of_onnx_is_known() -> None:
    """All but strings and complex numbers."""
    names = set(TensorProto.DataType.keys()) - {"UNDEFINED", "STRING", "COMPLEX64", "COMPLEX128"}
    assert {TensorProto.DataType.Name(code) for code in CODES.values()} == names
