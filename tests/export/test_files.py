"""What model files hold beside nodes: weights in every form, functions, odd inputs and names."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import FunctionProto, ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.agreement import Array
from tests.export.hostile.build import (
    body,
    call,
    flag,
    floats,
    function,
    info,
    ints,
    model,
    node,
    tensor,
)
from tests.imported import import_model
from tinyedge.core.errors import ModelError, UnsupportedOp
from tinyedge.core.ir.reference import evaluate
from tinyedge.export.onnx import ImportedModel

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def computed(
    imported: ImportedModel, inputs: Mapping[str, Array], sizes: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """The outputs of an imported model by the reference evaluator."""
    values = evaluate([t.node for t in imported.outputs.values()], inputs, sizes)
    return dict(zip(imported.outputs, values, strict=True))


def expected(source: ModelProto | Path, inputs: Mapping[str, Array]) -> list[Array]:
    """The outputs by onnxruntime."""
    given = str(source) if isinstance(source, Path) else source.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(inputs))  # type: ignore[no-any-return]


def agree(source: ModelProto | Path, inputs: Mapping[str, Array] | None = None) -> None:
    """A model gives what onnxruntime gives."""
    given = {"x": X} if inputs is None else inputs
    imported = import_model(source if isinstance(source, Path) else source.SerializeToString())
    found = computed(imported, {port.name: given[port.name] for port in imported.inputs})
    for name, value in zip(found, expected(source, given), strict=True):
        assert found[name].shape == value.shape and found[name].dtype == value.dtype
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


# Weights.


def _kinds() -> list[int]:
    known = [*range(1, 8), *range(9, 14), 16]
    return [kind for kind in known if kind != TensorProto.STRING]


VALUES = {"b": [1, 0, 1, 1, 0], "i": [1, -2, 3, -128, 127], "u": [1, 2, 3, 0, 255], "f": [1, -2.5]}
FIELDS = {
    TensorProto.FLOAT: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT64: "uint64_data",
    TensorProto.UINT32: "uint64_data",
}


@pytest.mark.parametrize("kind", [k for k in _kinds() if k != TensorProto.BFLOAT16])
@pytest.mark.parametrize("form", ["raw", "field", "file"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (5, 1)], ids=str)
def test_weights_in_every_form(
    kind: int, form: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    count = int(np.prod(shape))
    values = np.resize(VALUES[dtype.kind], count).astype(dtype).reshape(shape)
    proto = TensorProto(name="w", data_type=kind)
    proto.dims.extend(shape)
    raw = values.astype(dtype.newbyteorder("<")).tobytes()
    if form == "raw":
        proto.raw_data = raw
    elif form == "field":
        held = {TensorProto.FLOAT16: np.uint16, TensorProto.BOOL: np.uint8}.get(kind, dtype)
        numbers = values.view(held).reshape(-1).tolist()
        getattr(proto, FIELDS.get(kind, "int32_data")).extend(numbers)
    else:  # after a byte that is not its own, so that no element is aligned
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "w.bin").write_bytes(b"\xff" + raw + b"\xff")
        _outside(proto, "data/w.bin", 1, len(raw))
    path = tmp_path / "m.onnx"
    path.write_bytes(
        model([node("Identity", ["w"])], inputs=[], weights=[proto]).SerializeToString()
    )
    (value,) = computed(import_model(path), {}).values()
    assert value.dtype == dtype
    np.testing.assert_array_equal(value, values)


def _outside(proto: TensorProto, place: str, offset: int, length: int) -> None:
    proto.data_location = TensorProto.EXTERNAL
    for key, value in (("location", place), ("offset", str(offset)), ("length", str(length))):
        entry = proto.external_data.add()
        entry.key, entry.value = key, value


def test_weights_share_a_file(tmp_path: Path) -> None:
    """As onnx writes them: one file, each at its place, some without a length."""
    weights = [floats(f"w{i}", np.full((2, 3), i)) for i in range(3)]
    nodes = [node("Sum", ["x", "w0", "w1", "w2"])]
    source = model(nodes, weights=weights)
    path = tmp_path / "m.onnx"
    onnx.save(source, path, save_as_external_data=True, location="all.bin", size_threshold=0)
    saved = onnx.load(path, load_external_data=False)
    places = {weight.external_data[0].value for weight in saved.graph.initializer}
    assert places == {"all.bin"}
    del saved.graph.initializer[1].external_data[2]
    path.write_bytes(saved.SerializeToString())
    agree(path)


@pytest.mark.parametrize("kind", ["string", "complex64", "complex128"])
def test_types_that_are_refused_by_name(kind: str) -> None:
    proto = tensor("w", [1], bytes(16), getattr(TensorProto, kind.upper()))
    with pytest.raises(UnsupportedOp, match=f"its element type is {kind}"):
        import_model(model([node("Identity", ["w"])], weights=[proto]).SerializeToString())


def _sparse(name: str, dims: list[int], indices: Any, values: Any) -> Any:
    held = numpy_helper.from_array(np.asarray(values), name)
    return helper.make_sparse_tensor(held, ints("", indices), dims)


@pytest.mark.parametrize(
    "indices", [[1, 2, 5], [[0, 1], [0, 2], [1, 2]], np.zeros(0, int), np.zeros((0, 2), int)]
)
def test_sparse_weights(indices: Any) -> None:
    count = len(indices)
    source = model([node("Add", ["x", "w"])])
    given = _sparse("w", [2, 3], indices, np.arange(1, count + 1, dtype=np.float32))
    source.graph.sparse_initializer.append(given)
    imported = import_model(source.SerializeToString())
    dense = np.zeros(6, np.float32)
    dense[[1, 2, 5][:count]] = range(1, count + 1)
    np.testing.assert_array_equal(computed(imported, {"x": X})["y"], X + dense.reshape(2, 3))


def test_sparse_constants_and_integers() -> None:
    given = _sparse("s", [3], [2], np.array([7], np.int64))
    nodes = [
        node("Constant", [], ["c"], sparse_value=given),
        node("Cast", ["c"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["x", "f"]),
    ]
    imported = import_model(model(nodes).SerializeToString())
    np.testing.assert_array_equal(computed(imported, {"x": X})["y"], X * [0, 0, 7])


def test_constants_in_every_form() -> None:
    """The attributes by which a Constant may say its value."""
    nodes = [
        node("Constant", [], ["a"], value_float=1.5),
        node("Constant", [], ["b"], value_floats=[1.0, 2.0, 3.0]),
        node("Constant", [], ["c"], value_int=2),
        node("Constant", [], ["d"], value_ints=[1]),
        node("Constant", [], ["e"], value=floats("", [[1], [2]])),
        node("ReduceSum", ["x", "d"], ["s"]),
        node("Gather", ["b", "c"], ["g"]),
        node("Sum", ["s", "a", "g", "b", "e"]),
    ]
    agree(model(nodes))


def test_weights_that_nothing_uses() -> None:
    """What no node reads may be of any type and damaged: it is not looked at."""
    weights = [
        helper.make_tensor("words", TensorProto.STRING, [1], [b"a"]),
        tensor("short", [100, 100], bytes(3)),
        tensor("far", [1 << 40], b""),
    ]
    imported = import_model(model([node("Relu", ["x"])], weights=weights).SerializeToString())
    assert computed(imported, {"x": X})["y"].max() == 3


# Inputs and outputs.


def test_inputs_with_a_value_are_constants() -> None:
    """Older files list every weight as an input as well."""
    inputs = [info("x", [2, 3]), info("w", [3])]
    agree(model([node("Mul", ["x", "w"])], inputs=inputs, weights=[floats("w", [1, 2, 3])]))


def test_optional_inputs_and_outputs() -> None:
    """Left out at the end, or by an empty name in between."""
    nodes = [
        node("Clip", ["x", "", "most"], ["a"]),
        node("Clip", ["a", "least"], ["b"]),
        node("TopK", ["b", "k"], ["greatest", "places"]),
        node("Cast", ["places"], ["f"], to=TensorProto.FLOAT),
        node("MaxPool", ["u"], ["p", ""], kernel_shape=[2]),
        node("Unsqueeze", ["b", "axis"], ["u"]),
        node("Sum", ["f", "f"], ["y"]),
    ]
    weights = [floats("most", 2), floats("least", -1), ints("k", [2]), ints("axis", [0])]
    agree(model(nodes, weights=weights, outputs=("y", "p")))


def test_outputs_that_are_no_results() -> None:
    """An input, a weight and a constant as they are."""
    nodes = [node("Constant", [], ["c"], value_float=4.0), node("Neg", ["x"])]
    source = model(nodes, weights=[floats("w", [1, 2])], outputs=("x", "w", "c", "y"))
    found = computed(import_model(source.SerializeToString()), {"x": X})
    np.testing.assert_array_equal(found["x"], X)
    assert found["w"].tolist() == [1, 2] and found["c"] == 4
    np.testing.assert_array_equal(found["y"], -X)


def test_no_shapes_but_those_of_inputs() -> None:
    """What the file says of shapes of inner values and outputs is not needed, and not believed."""
    nodes = [
        node("Conv", ["image", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Shape", ["a"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Concat", ["n", "rest"], ["target"], axis=0),
        node("Reshape", ["a", "target"]),
    ]
    weights = [floats("w", np.ones((4, 3, 3, 3))), ints("zero", [0]), ints("rest", [-1])]
    source = model(nodes, inputs=[info("image", [2, 3, 5, 5])], weights=weights)
    image = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype(np.float32)
    agree(source, {"image": image})
    before = computed(import_model(source.SerializeToString()), {"image": image})["y"]
    source.graph.output[0].CopyFrom(info("y", [7, 7, 7]))
    source.graph.value_info.append(info("a", [1]))
    after = computed(import_model(source.SerializeToString()), {"image": image})["y"]
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_batch_in_arithmetic(batch: int) -> None:
    """The open leading size is multiplied, divided, compared and made a tensor's value."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "zero", "one"], ["n"]),
        node("Mul", ["n", "six"], ["m"]),
        node("Div", ["m", "two"], ["half"]),
        node("Concat", ["half", "two"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["r"]),
        node("Cast", ["n"], ["count"], to=TensorProto.FLOAT),
        node("Div", ["r", "count"], ["y"]),
        node("ConstantOfShape", ["n"], ["ones"], value=floats("", [1])),
        node("ReduceSum", ["ones", "zero"], ["sum"]),
    ]
    weights = [ints("zero", [0]), ints("one", [1]), ints("two", [2]), ints("six", [6])]
    source = model(
        nodes, inputs=[info("x", ["batch", 2, 3])], weights=weights, outputs=("y", "sum")
    )
    x = np.arange(batch * 6, dtype=np.float32).reshape(batch, 2, 3)
    imported = import_model(source.SerializeToString(), dims={"batch": "1..8"})
    assert [node.arg.name for node in imported.symbols] == ["batch"]
    found = computed(imported, {"x": x}, {"batch": batch})
    for name, value in zip(found, expected(source, {"x": x}), strict=True):
        np.testing.assert_allclose(found[name], value)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
def test_no_elements(shape: tuple[int, ...]) -> None:
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Concat", ["a", "x"], ["b"], axis=0),
        node("ReduceSum", ["b"], ["s"], keepdims=0),
        node("Flatten", ["x"], ["f"], axis=0),
    ]
    source = model(nodes, inputs=[info("x", [*shape])], outputs=("b", "s", "f"))
    agree(source, {"x": np.zeros(shape, np.float32)})


def test_scalars() -> None:
    nodes = [
        node("Add", ["x", "w"], ["a"]),
        node("Unsqueeze", ["a", "axis"], ["u"]),
        node("Expand", ["u", "shape"], ["e"]),
        node("Squeeze", ["u"], ["y"]),
        node("Shape", ["x"], ["none"]),
        node("ReduceMean", ["x"], ["m"]),
    ]
    weights = [floats("w", 2.5), ints("axis", [0]), ints("shape", [2, 2])]
    source = model(
        nodes, inputs=[info("x", [])], weights=weights, outputs=("a", "e", "y", "none", "m")
    )
    agree(source, {"x": np.array(-3, np.float32)})


# Functions.


def _attribute(one: Any, name: str, of_caller: str, kind: int = 1) -> Any:
    """The node with an attribute that is one of the function's caller."""
    one.attribute.add(name=name, ref_attr_name=of_caller, type=kind)
    return one


def _calling(functions: list[FunctionProto], calls: list[Any], **more: Any) -> ModelProto:
    return model(
        calls, functions=functions, domains=["local", "other"], **{"ir_version": 10, **more}
    )


def test_attributes_of_the_caller() -> None:
    """Given, by default, left out; passed on to another function, and into a subgraph."""
    leaky = _attribute(node("LeakyRelu", ["a"], ["b"]), "alpha", "slope")
    inner = function("inner", [leaky], attributes=["slope"])
    passed = _attribute(call("inner", ["a"], ["m"]), "slope", "steep")
    branch = body([_attribute(node("LeakyRelu", ["m"], ["r"]), "alpha", "steep")], [], ["r"])
    other = body([node("Neg", ["m"], ["r"])], [], ["r"])
    outer = function(
        "outer",
        [
            passed,
            node("Constant", [], ["go"], value=flag("", True)),
            node("If", ["go"], ["b"], then_branch=branch, else_branch=other),
        ],
        attribute_protos=[helper.make_attribute("steep", 0.5)],
    )
    given = call("outer", ["x"], ["p"])
    given.attribute.append(helper.make_attribute("steep", 0.25))
    calls = [given, call("outer", ["x"], ["q"]), call("inner", ["x"], ["r"])]
    source = _calling([inner, outer], calls, outputs=("p", "q", "r"))
    agree(source)
    found = computed(import_model(source.SerializeToString()), {"x": X})
    assert [float(found[name][0, 0]) for name in "pqr"] == [-2 / 16, -2 / 4, np.float32(-0.02)]


def test_overloads() -> None:
    functions = []
    for overload, op in (("", "Neg"), ("twice", "Relu")):
        made = function("f", [node(op, ["a"], ["b"])])
        made.overload = overload
        functions.append(made)
    chosen = call("f", ["x"], ["q"])
    chosen.overload = "twice"
    source = _calling(functions, [call("f", ["x"], ["p"]), chosen], outputs=("p", "q"))
    found = computed(import_model(source.SerializeToString()), {"x": X})
    np.testing.assert_array_equal(found["p"], -X)
    np.testing.assert_array_equal(found["q"], np.maximum(X, 0))


def test_a_function_has_operator_sets_of_its_own() -> None:
    """Softmax of opset 12 works on all axes from the first on, of 13 on the last."""
    nodes = [node("Softmax", ["a"], ["b"], axis=0)]
    old = helper.make_function("local", "f", ["a"], ["b"], nodes, [helper.make_opsetid("", 12)])
    calls = [call("f", ["x"], ["p"]), node("Softmax", ["x"], ["q"], axis=0)]
    source = _calling([old], calls, outputs=("p", "q"))
    found = computed(import_model(source.SerializeToString()), {"x": X})
    assert found["p"].sum() == pytest.approx(1) and found["q"].sum() == pytest.approx(3)


def test_a_function_in_the_place_of_an_operator() -> None:
    nodes = [node("Neg", ["a"], ["b"])]
    made = helper.make_function("", "Relu", ["a"], ["b"], nodes, [helper.make_opsetid("", 17)])
    found = computed(
        import_model(_calling([made], [node("Relu", ["x"])]).SerializeToString()), {"x": X}
    )
    np.testing.assert_array_equal(found["y"], -X)


def test_functions_of_two_domains_with_optional_operands() -> None:
    """Operands and results may be left out; names inside are the function's own."""
    scaled = helper.make_function(
        "other",
        "scaled",
        ["x", "factor", "shift"],
        ["y", "t"],
        [
            node("Mul", ["x", "factor"], ["t"]),
            call("maybe", ["t", "shift"], ["y"]),
        ],
        [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
    )
    maybe = helper.make_function(
        "local",
        "maybe",
        ["t", "least"],
        ["x"],
        [node("Clip", ["t", "least"], ["x"])],
        [helper.make_opsetid("", 17)],
    )
    calls = [
        helper.make_node("scaled", ["x", "w"], ["p", "unused"], domain="other"),
        helper.make_node("scaled", ["p", "w", "least"], ["y", "t"], domain="other"),
    ]
    weights = [floats("w", [1, 2, 3]), floats("least", 0)]
    agree(_calling([scaled, maybe], calls, weights=weights, outputs=("y", "t")))


def test_a_loop_in_a_function_in_a_loop() -> None:
    """Constants and attributes are those of each call."""
    inner = body(
        [
            _attribute(node("Constant", [], ["k"]), "value_float", "step"),
            node("Add", ["s", "k"], ["s1"]),
        ],
        [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL), info("s", [2, 3])],
        ["c", "s1"],
    )
    nodes = [
        node("Constant", [], ["two"], value_int=2),
        node("Loop", ["two", "", "a"], ["b"], body=inner),
    ]
    made = function("f", nodes, attributes=["step"])
    calls = []
    for place, (source, result) in enumerate(itertools.pairwise(["x", "m", "y"])):
        one = call("f", [source], [result])
        one.attribute.append(helper.make_attribute("step", 10.0**place))
        calls.append(one)
    agree(_calling([made], calls))


def test_a_function_with_too_many_operands() -> None:
    source = _calling([function("f", [node("Relu", ["a"], ["b"])])], [call("f", ["x", "x"], ["y"])])
    with pytest.raises(ModelError, match="more inputs or outputs than the function"):
        import_model(source.SerializeToString())


@pytest.mark.parametrize("opset", range(7, onnx.defs.onnx_opset_version() + 1))
def test_operator_sets(opset: int) -> None:
    """What every set has, as it is written there."""
    axes = ["x", "axes"] if opset >= 13 else ["x"]
    own = {} if opset >= 13 else {"axes": [1]}
    nodes = [
        node("ReduceSum", axes, ["s"], keepdims=1, **own),
        node("Softmax", ["x"], ["p"], axis=1),
        node("Transpose", ["p"], ["t"], perm=[1, 0]),
        node("MatMul", ["p", "t"], ["m"]),
        node("BatchNormalization", ["p", "scale", "shift", "mean", "spread"], ["n"]),
        node("Gemm", ["p", "t", "s"], ["g"], alpha=0.5),
        node("Pad", ["x", "pads"] if opset >= 11 else ["x"], ["w"], mode="constant")
        if opset >= 11
        else node("Pad", ["x"], ["w"], mode="constant", pads=[0, 1, 0, 0]),
        node("ReduceSum", ["w", "axes"] if opset >= 13 else ["w"], ["u"], keepdims=1, **own),
        node("Add", ["s", "m"], ["sm"]),
        node("Add", ["g", "u"], ["gu"]),
        node("Sub", ["sm", "gu"], ["y"]),
    ]
    weights = [floats(name, [1, 2, 3]) for name in ("scale", "shift", "mean", "spread")]
    weights += [ints("axes", [1]), ints("pads", [0, 1, 0, 0])]
    source = model(nodes, weights=weights, opset=opset, outputs=("y", "n"))
    imported = import_model(source.SerializeToString())
    found = computed(imported, {"x": X})
    by_reference = opset > 22  # onnxruntime does not know the newest, onnx gets old ones wrong
    values = ReferenceEvaluator(source).run(None, {"x": X}) if by_reference else None
    values = expected(source, {"x": X}) if values is None else values
    for name, value in zip(found, values, strict=True):
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)
