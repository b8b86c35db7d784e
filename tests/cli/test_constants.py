"""`--constant`: inputs that are one number."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.export.hostile import model
from tinyedge import cli, export_onnx, load
from tinyedge.core.errors import InputError, ModelError

Command = Callable[..., tuple[int, str, str]]
SIZE = {"n": 12}
X = np.arange(12, dtype=np.float32).reshape(1, 12)


@pytest.fixture
def tinyedge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str, str]:
        code = cli.execute(list(arguments))
        return code, *capsys.readouterr()

    return command


def _save(path: str) -> None:
    """The sum of rows of 4 at a rate of 2, of rows of 5 otherwise; those do not fit 12 numbers."""

    def branch(rows: str) -> onnx.GraphProto:
        nodes = [
            helper.make_node("Reshape", ["scaled", rows], ["cut"]),
            helper.make_node("ReduceSum", ["cut", "first"], ["sum"], keepdims=0),
        ]
        out = [helper.make_tensor_value_info("sum", TensorProto.FLOAT, None)]
        return helper.make_graph(nodes, rows, [], out)

    nodes = [
        helper.make_node("Mul", ["x", "gain"], ["scaled"]),
        helper.make_node("Equal", ["rate", "two"], ["is_two"]),
        helper.make_node(
            "If", ["is_two"], ["y"], then_branch=branch("fours"), else_branch=branch("fives")
        ),
    ]
    weights = [
        onnx.numpy_helper.from_array(np.array(values), name)
        for name, values in {"two": 2, "fours": [-1, 4], "fives": [-1, 5], "first": [0]}.items()
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "n"]),
        helper.make_tensor_value_info("rate", TensorProto.INT64, []),
        helper.make_tensor_value_info("gain", TensorProto.FLOAT, [1]),
    ]
    onnx.save(model(nodes, inputs=inputs, outputs=("y",), weights=weights), path)


def test_a_branch_that_runs_cannot_take(tinyedge: Command) -> None:
    _save("m.onnx")
    with pytest.raises(ModelError, match="--constant INPUT=NUMBER") as refused:
        export_onnx("m.onnx", target="cpu", golden=False, dims=SIZE)
    assert "else_branch" in refused.value.subject
    code, out, _ = tinyedge("inspect", "m.onnx", "--dim", "n=12", "--json")
    assert code == 1 and not json.loads(out)["exportable"]
    chosen = ("--dim", "n=12", "--constant", "rate=2", "--constant", "gain=0.5")
    assert tinyedge("inspect", "m.onnx", *chosen)[0] == 0
    assert tinyedge("explain", "m.onnx", *chosen, "--stop-after", "fold")[0] == 0
    code, out, err = tinyedge("export", "m.onnx", "-t", "cpu", "-o", "m.tinyedge", *chosen)
    assert code == 0, err
    with load("m.tinyedge") as loaded:
        assert [port.name for port in loaded.inputs] == ["x"]
        found = loaded.run({"x": X})
    np.testing.assert_array_equal(found["y"], X.reshape(3, 4).sum(0) * 0.5)
    options = json.loads(Path("m.tinyedge/manifest.json").read_text())["options"]
    assert options["constants"] == [
        {"name": "rate", "value": "2"},
        {"name": "gain", "value": "0.5"},
    ]
    code, out, err = tinyedge("verify", "m.tinyedge", "--against", "m.onnx")
    assert code == 0 and "onnxruntime" in out, out + err


@pytest.mark.parametrize(
    ("constants", "because"),
    [
        ({"rate": 2.5}, "2.5 is no number of type int64"),
        ({"rate": 2**63}, "is no number of type int64"),
        ({"rat": 2}, "no such input"),
    ],
)
def test_a_constant_that_cannot_be(
    constants: dict[str, float], because: str, tinyedge: Command
) -> None:
    _save("m.onnx")
    with pytest.raises(InputError, match=because) as refused:
        export_onnx("m.onnx", target="cpu", golden=False, dims=SIZE, constants=constants)
    assert refused.value.id == "input.constant"


def test_a_constant_of_open_size(tinyedge: Command) -> None:
    node = helper.make_node("Mul", ["x", "by"], ["y"])
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [size])
        for name, size in (("x", 3), ("by", "n"))
    ]
    onnx.save(model([node], inputs=inputs, outputs=("y",)), "m.onnx")
    with pytest.raises(InputError, match="open sizes"):
        export_onnx("m.onnx", target="cpu", golden=False, constants={"by": 2})
    assert tinyedge("export", "m.onnx", "--constant", "by=two")[0] == 2
