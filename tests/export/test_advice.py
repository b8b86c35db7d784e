"""Refusals that depend on sizes: each says what to type, or that nothing typed changes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from tests.export.hostile.build import body, flag, floats, info, ints, iteration, model, node
from tests.imported import import_model
from tinyedge import export_onnx, load
from tinyedge.core.errors import InputError, ModelError, UnsupportedOp
from tinyedge.export.limits import choose_limits

ROW = [1, 2, "N"]
KERNEL = np.ones((2, 2, 3))


def one(op: str, shape: list[Any], *operands: Any, outputs: int = 1, **attributes: Any) -> Any:
    """One node on an input of open sizes. operands: constants; None for one left out."""
    weights, names = [], []
    for number, value in enumerate(operands):
        array = np.asarray(value)
        names.append("" if value is None else f"w{number}")
        if value is not None:
            kind = ints if array.dtype.kind == "i" else floats
            weights.append(kind(names[-1], array))
    results = ["y", *(f"y{number}" for number in range(1, outputs))]
    nodes = [node(op, ["x", *names], results, name="it", **attributes)]
    return model(nodes, inputs=[info("x", shape)], weights=weights, opset=20)


def bounded() -> ModelProto:
    """A reshape of x [N] to max(N, 8) + min(N, 8) - 8, which is N, but not known to be below 8."""
    nodes = [
        node("Shape", ["x"], ["n"]),
        node("Max", ["n", "eight"], ["more"]),
        node("Min", ["n", "eight"], ["less"]),
        node("Add", ["more", "less"], ["sum"]),
        node("Sub", ["sum", "eight"], ["to"]),
        node("Reshape", ["x", "to"], ["y"], name="it"),
    ]
    return model(nodes, inputs=[info("x", ["N"])], weights=[ints("eight", [8])], opset=20)


FITS = {
    "Conv": (one("Conv", ROW, KERNEL), "N=3..24"),
    "Conv with strides and dilations": (
        one("Conv", ROW, KERNEL, strides=[2], dilations=[2]),
        "N=5..24",
    ),
    "Conv of a padded axis": (one("Conv", ROW, KERNEL, pads=[1, 0]), "N=2..24"),
    "Conv of stepped sizes": (one("Conv", ROW, np.ones((2, 2, 5))), "N=6..24:2"),
    "MaxPool": (one("MaxPool", ROW, kernel_shape=[3]), "N=3..24"),
    "MaxPool with long strides": (one("MaxPool", ROW, kernel_shape=[3], strides=[4]), "N=3..24"),
    "AveragePool": (one("AveragePool", ROW, kernel_shape=[3]), "N=3..24"),
    "AveragePool that rounds up": (
        one("AveragePool", ROW, kernel_shape=[3], strides=[2], ceil_mode=1),
        "N=2..24",
    ),
    "LpPool": (one("LpPool", ROW, kernel_shape=[3]), "N=3..24"),
    "ConvTranspose": (one("ConvTranspose", ROW, KERNEL, pads=[3, 3]), "N=4..24"),
    "ConvTranspose to a shape": (one("ConvTranspose", ROW, KERNEL, output_shape=[10]), "N=8..24"),
    "STFT": (one("STFT", [1, "N", 1], 4, None, 8), "N=8..24"),
    "Pad": (one("Pad", ["N"], [-5, 0]), "N=5..24"),
    "Split": (one("Split", ["N"], [5, 3], outputs=2), "N=8"),
    "Squeeze": (one("Squeeze", ["N", 3], [0]), "N=1"),
    "Reshape": (one("Reshape", ["N"], [3, 4]), "N=12"),
    "Reshape to what has bounds": (bounded(), "N=8..24:8"),
    "Reshape by a quotient": (one("Reshape", ["N", 3], [-1, 4]), "N=4..24:4"),
    "DepthToSpace": (one("DepthToSpace", [1, "N", 2, 2], blocksize=2), "N=4..24:4"),
    "SpaceToDepth": (one("SpaceToDepth", [1, 2, "N", 2], blocksize=2), "N=2..24:2"),
    "Col2Im": (one("Col2Im", [1, "N", 4], [3, 3], [2, 2]), "N=4..24:4"),
    "Conv of channels": (one("Conv", [1, "N", 5], KERNEL), "N=2"),
    "MatMul": (one("MatMul", [2, "N"], np.ones((3, 4))), "N=3"),
    "Gemm": (one("Gemm", [2, "N"], np.ones((3, 4))), "N=3"),
}


@pytest.mark.parametrize("name", FITS)
def test_the_option_that_helps_is_said(name: str, tmp_path: Path) -> None:
    """And with it the model is exported and runs at its least size."""
    source, wanted = FITS[name]
    dims = {"N": "2..24:2" if "stepped" in name else "1..24"}
    path = tmp_path / "model.onnx"
    path.write_bytes(source.SerializeToString())
    with pytest.raises(InputError) as caught:
        export_onnx(path, target="cpu", out=tmp_path / "none", dims=dims)
    error = caught.value
    assert error.id == "input.sizes" and f"ONNX node 'it' ({name.split()[0]}" in error.subject
    (option,) = re.findall(r"--dim '(\S+)'", error.next)
    assert option == wanted
    key, value = option.split("=")
    bundle = export_onnx(path, target="cpu", out=tmp_path / "bundle", dims={key: value})
    least = int(value.split(".")[0])
    with load(bundle) as loaded:
        shape = [least if s == "N" else s for s in _shape(source)]
        loaded.run({"x": np.ones(shape, np.float32)})


def _shape(source: ModelProto) -> list[Any]:
    dims = source.graph.input[0].type.tensor_type.shape.dim
    return [dim.dim_param or dim.dim_value for dim in dims]


def counted(nodes: Sequence[NodeProto], **weights: Any) -> ModelProto:
    """c [n]: those elements of x [24] that are not 0; r: the same as [1, 1, n]."""
    first = [
        node("NonZero", ["x"], ["places"], name="nz"),
        node("Transpose", ["places"], ["rows"]),
        node("GatherND", ["x", "rows"], ["c"]),
        node("Reshape", ["c", "to"], ["r"]),
    ]
    values = {"to": [1, 1, -1], **weights}
    made = []
    for name, value in values.items():
        whole = np.asarray(value).dtype.kind == "i"
        made.append((ints if whole else floats)(name, value))
    return model([*first, *nodes], inputs=[info("x", [24])], weights=made, opset=20)


def it(op: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attributes: Any) -> Any:
    return node(op, inputs, outputs, name="it", **attributes)


COUNTED = {
    "Conv": counted([it("Conv", ["r", "w"])], w=np.ones((1, 1, 3))),
    "MaxPool": counted([it("MaxPool", ["r"], kernel_shape=[3])]),
    "Pad": counted([it("Pad", ["c", "s"])], s=[-5, 0]),
    "Add": counted([it("Add", ["c", "w"])], w=np.ones(5)),
    "Reshape": counted([it("Reshape", ["c", "s"])], s=[3, 4]),
    "Split": counted([it("Split", ["c", "s"], ["y", "z"])], s=[5, 3]),
    "Squeeze": counted([it("Squeeze", ["c", "s"])], s=[0]),
    "GatherND": counted([it("GatherND", ["x", "places"])]),
    "Resize": counted([it("Resize", ["r", "", "s"])], s=[1.0, 1.0, 1.234567]),
    "STFT": counted([node("Transpose", ["r"], ["t"], perm=[0, 2, 1]), it("STFT", ["t", "s"])], s=4),
    "Concat": counted(
        [node("Unsqueeze", ["c", "s"], ["u"]), node("Unsqueeze", ["x", "s"], ["v"])]
        + [it("Concat", ["u", "v"], axis=0)],
        s=[0],
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_no_option_changes_a_count(name: str) -> None:
    with pytest.raises(InputError) as caught:
        import_model(COUNTED[name].SerializeToString())
    error = caught.value
    assert f"ONNX node 'it' ({name}" in error.subject and "count of nz" in error.because
    assert error.next == (
        "only a run knows 'count of nz', which no --dim changes: "
        "export what comes before this node: --outputs NAME"
    )


def test_values_of_inputs_are_no_sizes() -> None:
    nodes = [it("Reshape", ["x", "shape"])]
    inputs = [info("x", [6]), info("shape", [2], TensorProto.INT64)]
    with pytest.raises(UnsupportedOp) as caught:
        import_model(model(nodes, inputs=inputs).SerializeToString())
    assert "--constant shape=NUMBER" in caught.value.next and "--dim" not in caught.value.next


def test_a_count_is_made_less_by_a_bound() -> None:
    """c c', of as many elements as a count's square."""
    nodes = [node("Unsqueeze", ["c", "s"], ["u"]), it("Mul", ["u", "c"], ["m"])]
    nodes += [node("ReduceSum", ["m"])]
    source = counted(nodes, s=[1]).SerializeToString()
    assert import_model(source).outputs["y"].shape
    with pytest.raises(ModelError) as caught:
        import_model(source, limits=choose_limits({"elements": 500}))
    assert caught.value.next == "give 'count of nz' a smaller bound: --bound nz=N"
    assert import_model(source, limits=choose_limits({"elements": 500}), bounds={"nz": 22})


def test_a_count_and_one(tmp_path: Path) -> None:
    """A -1 that is 1 whatever the count is, also none."""
    path = tmp_path / "model.onnx"
    path.write_bytes(counted([it("Reshape", ["c", "s"])], s=[0, 1, -1]).SerializeToString())
    with load(export_onnx(path, target="cpu", out=tmp_path / "bundle")) as loaded:
        for count in (0, 1, 7, 24):
            x = np.zeros(24, np.float32)
            x[24 - count :] = np.arange(1, count + 1)
            y = loaded.run({"x": x})["y"]
            assert y.shape == (count, 1, 1) and y.reshape(-1).tolist() == [*range(1, count + 1)]


def test_two_counted_axes() -> None:
    nodes = [node("Unsqueeze", ["c", "s"], ["u"]), it("Mul", ["u", "c"])]
    imported = import_model(counted(nodes, s=[1]).SerializeToString())
    with pytest.raises(
        UnsupportedOp, match=r"output 'y'.*\n.*the sizes of 2 of its axes"
    ) as caught:
        imported.graph()
    assert caught.value.supported and caught.value.next


def test_branches_that_count() -> None:
    def branch(values: str) -> Any:
        return body([node("NonZero", [values], ["r"], name="in")], [], ["r"])

    choice = helper.make_node(
        "If", ["go"], ["y"], name="it", then_branch=branch("x"), else_branch=branch("n")
    )
    total = node("ReduceSum", ["x"], ["t"], keepdims=0)
    nodes = [node("Exp", ["x"], ["n"]), total, node("Greater", ["t", "zero"], ["go"]), choice]
    with pytest.raises(UnsupportedOp, match="ONNX node 'it' ") as caught:
        import_model(model(nodes, weights=[floats("zero", 0)]).SerializeToString())
    assert "count of it/then_branch/in" in caught.value.because
    assert "give both results one size in the model" in caught.value.next


def test_turns_that_count() -> None:
    steps = [
        node("NonZero", ["s"], ["q"], name="in"),
        node("Cast", ["q"], ["f"], to=TensorProto.FLOAT),
        node("ReduceSum", ["f"], ["t"], keepdims=0),
        node("Add", ["s", "t"], ["s1"]),
    ]
    loop = helper.make_node(
        "Loop", ["m", "go", "x"], ["y"], name="it", body=iteration(steps, ["c", "s1"])
    )
    inputs = [info("x", [2, 3]), info("m", [], TensorProto.INT64)]
    source = model([loop], inputs=inputs, weights=[flag("go", True)]).SerializeToString()
    with pytest.raises(UnsupportedOp, match="ONNX node 'it/turn/in' ") as caught:
        import_model(source, bounds={"it": 3})
    assert "number of iterations constant" in caught.value.next
    fixed = import_model(source, constants={"m": 3})
    assert list(fixed.outputs) == ["y"]


@pytest.mark.parametrize("update", ["y", "y:shift"])
def test_a_state_fed_by_a_count(update: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(counted([it("Relu", ["c"])]).SerializeToString())
    with pytest.raises(InputError, match="only a run knows the size of axis 0") as caught:
        export_onnx(path, target="cpu", out=tmp_path / "bundle", states={"x": update})
    assert caught.value.id == "state.shape" and "fixed size" in caught.value.next
