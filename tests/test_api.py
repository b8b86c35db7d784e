"""The public functions: what they refuse, and how."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tinyedge
from tinyedge import InputError, Tensor
from tinyedge.export.bundle.reading import read_manifest


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = x + x, with an open leading size."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "double",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize(
    ("options", "id", "supported"),
    [
        ({"target": "abacus"}, "target.name", "webgpu, qcom, cuda, cpu"),
        ({"precision": "fp8"}, "option.precision", "fp32, fp16"),
        ({"profile": "mainframe"}, "option.profile", "default, wide, shared"),
        ({"target": "cpu", "arch": "sm_87"}, "option.arch", ""),
    ],
)
def test_unknown_options(model: Path, options: dict[str, Any], id: str, supported: str) -> None:
    """They are refused before the model is read, by both kinds of export."""
    for path in (model, model.with_name("missing.onnx")):
        with pytest.raises(InputError) as caught:
            tinyedge.export_onnx(path, out=model.with_name("out"), **options)
        assert (caught.value.id, caught.value.supported) == (id, supported)
    with pytest.raises(InputError) as caught:
        tinyedge.export_function(lambda x: x, [np.zeros(1)], out=model.with_name("out"), **options)
    assert caught.value.id == id
    assert not model.with_name("out").exists()


def test_what_was_assumed_is_said_and_recorded(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = model.with_name("m.tinyedge")
    with caplog.at_level(logging.WARNING, logger="tinyedge"):
        tinyedge.export_onnx(model, target="cpu", out=out, golden=False)
    assert "x[0] (batch) is taken as 1" in caplog.text
    assert "x[0] (batch) is taken as 1" in read_manifest(out)["options"]["assumed"][0]
    said: list[str] = []
    tinyedge.export_onnx(
        model, target="cpu", out=out, dims={"batch": 2}, golden=False, warn=said.append
    )
    assert said == []
    assert read_manifest(out)["options"]["dims"] == ["batch=2"]
    assert "assumed" not in read_manifest(out)["options"]


@pytest.mark.parametrize(
    ("name", "content", "id"),
    [
        ("x", b"no array", "golden.file"),
        ("x", None, "golden.file"),
        ("z", np.zeros((1, 3), np.float32), "golden.input"),
        ("x", np.zeros((1, 4), np.float32), "golden.input"),
        ("x", np.zeros((1, 3), np.float64), "golden.input"),
    ],
)
def test_golden_inputs_that_do_not_fit(model: Path, name: str, content: Any, id: str) -> None:
    file = model.with_name("array.npy")
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        np.save(file, content)
    with pytest.raises(InputError) as caught:
        tinyedge.export_onnx(
            model, target="cpu", out=model.with_name("out"), golden_inputs={name: file}
        )
    assert caught.value.id == id
    assert not model.with_name("out").exists()


def test_a_golden_input(model: Path) -> None:
    file = model.with_name("array.npy")
    np.save(file, np.array([[1, 2, 3]], np.float32))
    out = tinyedge.export_onnx(
        model, target="cpu", out=model.with_name("out"), golden_inputs={"x": file}
    )
    from tinyedge.export.bundle.reading import read

    (golden,) = read(out).goldens()
    np.testing.assert_array_equal(golden.outputs[0].data, [2, 4, 6])


def _several(x: Tensor) -> Any:
    return {"twice": x + x, "sum": x.sum()}


def test_a_function(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = tinyedge.export_function(_several, {"x": x}, target="cpu", out=tmp_path / "f")
    with tinyedge.load(out) as loaded:
        results = loaded.run({"x": x})
    np.testing.assert_allclose(results["twice"], 2 * x)
    assert results["sum"] == 15


def test_arrays_in_a_function_are_constants(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, w, v = (rng.normal(size=s).astype(np.float32) for s in ((2, 3), (3, 4), (5, 2)))
    out = tinyedge.export_function(
        lambda x: v @ (x @ w + w[:1]), [x], target="cpu", out=tmp_path / "f"
    )
    with tinyedge.load(out) as loaded:
        result = loaded.run({"input_0": x})["output"]
    np.testing.assert_allclose(result, v @ (x @ w + w[:1]), rtol=1e-4, atol=1e-5)


def test_a_tensor_that_not_every_device_can_bind(tmp_path: Path) -> None:
    said: list[str] = []
    tinyedge.export_function(
        lambda x: (x + 1).expand((40, 1024, 1024)),
        [np.zeros((1, 1024, 1024), np.float32)],
        out=tmp_path / "f",
        golden=False,
        warn=said.append,
    )
    assert len(said) == 1 and "a tensor takes 167772160 bytes" in said[0]


def test_doubles_that_a_target_lacks_are_named(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], name="widen", to=TensorProto.DOUBLE),
        helper.make_node("Exp", ["wide"], ["e"], name="grow"),
        helper.make_node("Cast", ["e"], ["y"], name="round", to=TensorProto.FLOAT),
    ]
    opsets = [helper.make_opsetid("", 17)]
    graph = helper.make_graph(nodes, "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    said: dict[str, list[str]] = {}
    for target in ("webgpu", "qcom", "cpu"):
        found = said.setdefault(target, [])
        place = tmp_path / target
        tinyedge.export_onnx(
            tmp_path / "m.onnx", target=target, out=place, golden=False, warn=found.append
        )
    for target in ("webgpu", "qcom"):
        (text,) = said[target]
        assert f"{target} has no doubles: 'widen', 'grow', 'round' computed in float32" in text
    assert said["cpu"] == []
    tinyedge.export_function(
        lambda *xs: list(xs),
        [np.zeros(1)] * 9,
        out=tmp_path / "f",
        golden=False,
        warn=said["cpu"].append,
    )
    assert "'input_7' and 10 more computed in float32" in said["cpu"][0]


@pytest.mark.parametrize(
    ("function", "inputs", "id"),
    [
        (lambda x: 3, [np.zeros(2)], "function.output"),
        (lambda x: None, [np.zeros(2)], "function.output"),
        (lambda x: (x, "text"), [np.zeros(2)], "function.output"),
        (lambda x: x, [np.array(["text"])], "function.input"),
        (lambda x: x, [np.zeros(2, complex)], "function.input"),
    ],
)
def test_functions_that_cannot_be_exported(
    tmp_path: Path, function: Any, inputs: Any, id: str
) -> None:
    with pytest.raises(InputError) as caught:
        tinyedge.export_function(function, inputs, target="cpu", out=tmp_path / "f")
    assert caught.value.id == id


def test_golden_inputs_may_be_arrays(model: Path) -> None:
    out = model.with_name("m.tinyedge")
    given = {"x": np.ones((1, 3), np.float32)}
    tinyedge.export_onnx(model, target="cpu", out=out, golden_inputs=given)
    assert read_manifest(out)["golden"][0]["inputs"][0]["file"] >= 0
    with pytest.raises(InputError, match=r"golden\.input"):
        tinyedge.export_onnx(model, out=out, golden_inputs={"x": np.ones((2, 3), np.float32)})


def test_a_place_that_cannot_be_is_refused_first(model: Path) -> None:
    """Before the model is read: nobody waits for a compilation to learn it."""
    said: list[str] = []
    file = model.with_name("file")
    file.write_text("mine")
    for out in (file, file / "m.tinyedge", model.parent):
        with pytest.raises(InputError, match=r"export\.exists"):
            tinyedge.export_onnx("missing.onnx", out=out, progress=said.append)
        with pytest.raises(InputError, match=r"export\.exists"):
            tinyedge.export_function(lambda x: x, [np.zeros(1)], out=out, progress=said.append)
    assert said == [] and file.read_text() == "mine"


def test_example_inputs_must_be_the_function_s_parameters(tmp_path: Path) -> None:
    for examples in ({"x": np.zeros(1)}, [np.zeros(1), np.zeros(1)]):
        with pytest.raises(InputError) as caught:
            tinyedge.export_function(lambda y: y, examples, out=tmp_path / "out")
        assert (caught.value.id, caught.value.supported) == ("function.input", "y")


def test_a_closed_model_and_inputs_without_names(tmp_path: Path) -> None:
    out = tmp_path / "f.tinyedge"
    values = np.ones(3, np.float32)
    tinyedge.export_function(lambda x: x + x, {"x": values}, target="cpu", out=out, golden=False)
    with tinyedge.load(out) as model:
        assert model.run({"x": values})["output"].tolist() == [2, 2, 2]
        for wrong in (values, None, [values]):
            with pytest.raises(tinyedge.RunError) as caught:
                model.run(wrong)
            assert caught.value.id == "run.input" and "'x'" in (caught.value.next or "")
    model.close()
    for use in (model.run, model.profile):
        with pytest.raises(tinyedge.RunError) as caught:
            use({"x": values})
        assert caught.value.id == "run.disposed"


def test_the_model_in_the_folder_of_its_bundle(model: Path) -> None:
    """It is not deleted with the old bundle, nor is its data or an array that is read."""
    out = tinyedge.export_onnx(model, target="cpu", out=model.with_name("out"), golden=False)
    inside = out / "m.onnx"
    proto = onnx.load(model)
    proto.graph.node[0].input[1] = "w"
    weight = onnx.numpy_helper.from_array(np.ones((256, 3), np.float32), "w")
    proto.graph.initializer.append(weight)
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 256
    onnx.save(proto, model.with_name("big.onnx"), save_as_external_data=True, location="out/w.bin")
    model.rename(inside)
    array = out / "array.npy"
    np.save(array, np.ones((1, 3), np.float32))
    for path, options in (
        (inside, {}),
        (model.with_name("big.onnx"), {"golden": False}),
        (model.with_name("big.onnx"), {"golden_inputs": {"x": array}}),
    ):
        with pytest.raises(InputError, match="would be deleted") as caught:
            tinyedge.export_onnx(path, target="cpu", out=out, force=True, **options)
        assert caught.value.id == "export.input"
    assert inside.exists() and array.exists() and (out / "w.bin").stat().st_size == 3072
    assert read_manifest(out)["target"] == "cpu"
