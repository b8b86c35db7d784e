"""`inspect` of models, `--outputs` and `--keep-going`: what is said, and that it is true."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import models
from tests.export.hostile import info, ints, model, node
from tinyedge import cli, load
from tinyedge.export.bundle.reading import read_manifest

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tinyedge(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Command:
    """Runs the command line in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = cli.execute([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


def _facts(tinyedge: Command, *arguments: object) -> tuple[int, dict[str, Any]]:
    code, out, err = tinyedge("inspect", *arguments, "--json")
    assert err == ""
    return code, json.loads(out)


def _save(proto: Any, name: str = "m.onnx") -> None:
    onnx.save(proto, name)


def _floats(name: str, values: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values, np.float32), name)


# The estimate.

SIZES = ("--dim", "M1=24", "--dim", "M2=16..32:16")


@pytest.mark.parametrize(
    ("target", "more"),
    [("webgpu", ()), ("webgpu", ("--precision", "fp16")), ("qcom", ()), ("cpu", ()), ("cuda", ())],
)
def test_the_estimate_is_what_the_bundle_takes(
    tinyedge: Command, target: str, more: tuple[str, ...]
) -> None:
    path = models.path("pnet")
    code, facts = _facts(tinyedge, path, "-t", target, *SIZES, *more)
    assert code == 0 and facts["exportable"] and facts["open"] == []
    assert facts["sizes"] == {"N": "1", "M1": "24", "M2": "16..32:16"}
    assert tinyedge("export", path, "-t", target, *SIZES, *more, "-o", "b.tinyedge")[0] == 0
    manifest = read_manifest(Path("b.tinyedge"))
    launches = [step for step in manifest["steps"] if step["op"] == "launch"]
    found = facts["estimate"]
    assert found["launches"] == len(launches)
    assert found["flops"] == sum(step["flops"] for step in launches)
    assert found["weight_bytes"] == sum(weight["bytes"] for weight in manifest["weights"])
    assert found["peak_bytes"] == manifest["peak_bytes"]
    assert found["largest"] == max(buffer["bytes"] for buffer in manifest["buffers"])
    assert len(manifest["kernels"]) <= found["kernels"] <= len(launches)


def test_the_estimate_in_words(tinyedge: Command) -> None:
    code, out, err = tinyedge("inspect", models.path("pnet"), *SIZES)
    assert (code, err) == (0, "")
    assert "symbolic M1 24, M2 16..32:16, N 1" in out
    assert "for webgpu, fp32, at the greatest sizes:" in out
    assert re.search(r"^launches 7 of at most \d kernels$", out, re.MULTILINE)
    assert re.search(r"^compute  \d+\.\d\d MFLOP a run$", out, re.MULTILINE)
    assert "note: the open leading size input_1[0] (N) is taken as 1" in out


def test_open_sizes_leave_no_estimate(tinyedge: Command) -> None:
    code, facts = _facts(tinyedge, models.path("pnet"))
    assert (code, facts["open"], facts["estimate"]) == (0, ["M1", "M2"], None)
    assert facts["exportable"] and facts["folded"]["of"] == 13
    _, out, _ = tinyedge("inspect", models.path("pnet"))
    assert "estimate none: M1, M2 are open" in out


def test_a_size_that_is_given_is_not_open(tinyedge: Command) -> None:
    _, out, _ = tinyedge("inspect", models.path("pnet"), "--dim", "M1=24")
    assert "symbolic M1 24, M2 open, N 1\nopen     taken as 32..1024:32 here" in out


def test_operators_count_over_operator_sets(tinyedge: Command) -> None:
    """A function has its own; one name is one line."""
    function = helper.make_function(
        "local", "twice", ["a"], ["b"],
        [node("Neg", ["a"], ["c"]), node("Neg", ["c"], ["b"])],
        [helper.make_opsetid("", 13)],
    )  # fmt: skip
    call = helper.make_node("twice", ["n"], ["y"], domain="local")
    _save(model([node("Neg", ["x"], ["n"]), call], functions=[function], domains=["local"]))
    assert _facts(tinyedge, "m.onnx")[1]["operators"] == {"Neg": 3, "local.twice": 1}


def test_a_loop_counts_with_all_its_turns(tinyedge: Command) -> None:
    """Launches once, as the bundle has them; operations at the bound."""
    body = helper.make_graph(
        [
            node("Mul", ["state", "state"], ["next"]),
            node("ReduceMax", ["next"], ["most"], keepdims=0),
            node("Less", ["most", "limit"], ["going_on"]),
        ],
        "body",
        [
            info("number", [], TensorProto.INT64),
            info("going", [], TensorProto.BOOL),
            info("state", [2, 3]),
        ],
        [helper.make_empty_tensor_value_info(name) for name in ("going_on", "next")],
    )
    loop = helper.make_node("Loop", ["", "go", "x"], ["y"], name="grow", body=body)
    weights = [_floats("limit", 9.0), numpy_helper.from_array(np.array(True), "go")]
    _save(model([loop], weights=weights))
    code, facts = _facts(tinyedge, "m.onnx")
    assert code == 1 and "--bound grow=1000" in tinyedge("inspect", "m.onnx")[1]
    assert "only the run knows" in facts["unsupported"]["Loop, node 'grow'"]
    figures = [
        _facts(tinyedge, "m.onnx", "--bound", f"grow={iterations}")[1]["estimate"]
        for iterations in (10, 20)
    ]
    assert figures[0]["launches"] == figures[1]["launches"]
    once = (figures[1]["flops"] - figures[0]["flops"]) // 10
    assert 6 <= once < 60
    code, _, err = tinyedge("inspect", "m.onnx", "--bound", "grow=10", "--bound", "other=1")
    assert code == 1 and "input.bound" in err


# What is folded.


def test_what_is_folded(tinyedge: Command) -> None:
    """A transposed and scaled weight, a shape, and a factor that goes into the weights."""
    nodes = [
        node("Transpose", ["w"], ["t"], perm=[1, 0]),
        node("Mul", ["t", "t"], ["s"]),
        node("MatMul", ["x", "s"], ["m"]),
        node("Shape", ["x"], ["shape"]),
        node("Reshape", ["m", "shape"], ["r"]),
        node("Relu", ["r"], ["y"]),
    ]
    values = np.arange(9).reshape(3, 3)
    _save(model(nodes, weights=[_floats("w", values)]))
    folded = _facts(tinyedge, "m.onnx")[1]["folded"]
    assert folded == {"nodes": 3, "merged": 0, "of": 6, "weights": 1, "bytes": 36}
    _, out, _ = tinyedge("inspect", "m.onnx")
    assert "folded   3 of 6 nodes, 0 more into the weights of a node before them: 36 bytes" in out


def test_what_is_merged_into_weights(tinyedge: Command) -> None:
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Mul", ["c", "k"], ["y"])]
    weights = [_floats("w", np.ones((2, 2, 3, 3))), _floats("k", np.arange(1, 3).reshape(2, 1, 1))]
    _save(model(nodes, inputs=[info("x", [1, 2, 8, 8])], weights=weights))
    folded = _facts(tinyedge, "m.onnx")[1]["folded"]
    assert (folded["nodes"], folded["merged"], folded["of"]) == (0, 1, 2)


def test_weights_that_kernels_unpack_are_not_folded(tinyedge: Command) -> None:
    """8-bit weights stay 8 bits wide in memory: their DequantizeLinear is done by kernels."""
    nodes = [
        node("DequantizeLinear", ["q", "scale"], ["w"]),
        node("MatMul", ["x", "w"], ["y"]),
    ]
    values = np.random.default_rng(0).integers(-100, 100, (128, 128), np.int8)
    weights = [numpy_helper.from_array(values, "q"), _floats("scale", 0.5)]
    _save(model(nodes, inputs=[info("x", [4, 128])], weights=weights))
    facts = _facts(tinyedge, "m.onnx")[1]
    assert facts["folded"]["nodes"] == 0 and facts["folded"]["bytes"] == 0
    assert facts["estimate"]["weight_bytes"] == values.nbytes


# Refusals.


def _detector() -> Any:
    """Two heads on one trunk; the first needs a node that nobody has, the second does not."""
    nodes = [
        node("Relu", ["x"], ["trunk"], name="trunk"),
        node("Neg", ["trunk"], ["left"], name="left"),
        node("Abs", ["trunk"], ["right,1"], name="right"),
        node("Frobnicate", ["left", "right,1"], ["f"], name="froth"),
        node("Sqrt", ["x"], ["side"], name="side"),
        node("Add", ["f", "side"], ["boxes"], name="boxes"),
        node("Add", ["left", "z"], ["scores"], name="scores"),
    ]
    inputs = [info("x", [2, 3]), info("z", ["rows", 3])]
    return model(nodes, inputs=inputs, outputs=("boxes", "scores"))


def test_a_refused_node(tinyedge: Command) -> None:
    _save(_detector())
    code, facts = _facts(tinyedge, "m.onnx", "--dim", "rows=2")
    assert code == 1 and not facts["exportable"]
    assert facts["unsupported"] == {
        "Frobnicate, node 'froth'": "opset 17 has no operator of this name"
    }
    assert facts["estimate"] is None and facts["folded"]["of"] == 5
    assert "remaining" not in facts
    code, out, _ = tinyedge("inspect", "m.onnx")
    assert code == 1 and "estimate none: something is refused" in out
    assert re.search(r"^Frobnicate +1 +NO", out, re.MULTILINE)


@pytest.mark.parametrize("command", ["inspect", "export"])
def test_keep_going_names_what_is_left(tinyedge: Command, command: str) -> None:
    """Nothing is written; the command that it prints exports what is left."""
    _save(_detector())
    arguments = ("m.onnx", "--keep-going", "--target", "cpu", "--dim", "rows=2")
    code, out, err = tinyedge(command, *arguments)
    assert code == 1 and not list(Path().glob("*.tinyedge"))
    assert ("cannot be imported" in err) == (command == "export")
    assert "output 'scores'" in out
    assert "in place of output 'boxes': 'side', 'left', 'right,1'" in out
    printed = next(line for line in out.splitlines() if line.startswith("  tinyedge export "))
    _, facts, _ = tinyedge(command, *arguments, "--json")
    assert json.loads(facts)["remaining"] == {
        "outputs": ["scores"],
        "blocked": {"boxes": ["side", "left", "right,1"]},
        "command": printed.strip(),
    }
    code, out, err = tinyedge(*shlex.split(printed)[1:])
    assert (code, err) == (0, "")
    x = np.array([[1, 4, 9], [0.25, 2, 0]], np.float32)
    with load("m.tinyedge") as exported:
        values = exported.run({"x": x, "z": x})
    np.testing.assert_array_equal(values["scores"], 0 * x)
    np.testing.assert_array_equal(values["left"], -x)
    np.testing.assert_allclose(values["side"], np.sqrt(x), rtol=1e-6)
    np.testing.assert_array_equal(values["right,1"], x)


def test_keep_going_keeps_the_options_of_an_export(tinyedge: Command) -> None:
    _save(_detector())
    given = "--dim rows=2 --precision fp32 --profile default --arch sm_90 --no-optimize --out other"
    options = [*given.split(), "--target", "cuda"]
    code, out, _ = tinyedge("export", "m.onnx", "--keep-going", "--state", "x=boxes", *options)
    assert code == 1
    printed = next(line for line in out.splitlines() if line.startswith("  tinyedge export "))
    words = shlex.split(printed)
    assert sorted(words[3:]) == sorted([*options, "--outputs", words[-3], "--outputs", "right,1"])
    assert tinyedge(*words[1:])[0] == 0 and Path("other").is_dir()


def test_keep_going_changes_nothing_where_nothing_is_refused(tinyedge: Command) -> None:
    _save(model([node("Relu", ["x"])]))
    code, out, _ = tinyedge("export", "m.onnx", "--keep-going", "-t", "cpu")
    assert code == 0 and out.startswith("m.tinyedge: 1 kernel")
    code, facts = _facts(tinyedge, "m.onnx", "--keep-going")
    assert code == 0 and "remaining" not in facts
    _save(model([node("Relu", ["x"])], inputs=[info("x", [2, "n"])]))
    code, out, err = tinyedge("export", "m.onnx", "--keep-going", "-t", "cpu")
    assert code == 1 and "input.open-dims" in err and out == ""


def test_what_depends_on_strings_is_refused_by_name(tinyedge: Command) -> None:
    """The rest is imported; nothing before a refused input can be exported instead."""
    nodes = [node("Identity", ["words"], ["same"]), node("Relu", ["x"])]
    inputs = [info("words", [2], TensorProto.STRING), info("x", [2, 3])]
    _save(model(nodes, inputs=inputs, outputs=("same", "y")))
    code, facts = _facts(tinyedge, "m.onnx", "--keep-going")
    assert code == 1
    assert facts["unsupported"] == {"input 'words'": "its element type is string"}
    assert facts["remaining"]["outputs"] == ["y"]
    assert facts["remaining"]["blocked"] == {"same": []}
    code, _, err = tinyedge(*shlex.split(facts["remaining"]["command"])[1:])
    assert (code, err) == (0, "note: the chosen outputs need no input 'words': left out\n")


def test_nothing_is_left(tinyedge: Command) -> None:
    _save(model([node("Frobnicate", ["x"])]))
    code, out, _ = tinyedge("inspect", "m.onnx", "--keep-going")
    assert code == 1 and "nothing can still be exported" in out
    facts = _facts(tinyedge, "m.onnx", "--keep-going")[1]
    assert facts["remaining"] == {"outputs": [], "blocked": {"y": []}, "command": None}


def test_an_output_that_no_bundle_can_hold(tinyedge: Command) -> None:
    """It has more axes than a port may; what it is made of has fewer."""
    nodes = [node("Relu", ["x"], ["r"]), node("Reshape", ["r", "shape"])]
    _save(model(nodes, weights=[ints("shape", [1] * 7 + [2, 3])]))
    code, facts = _facts(tinyedge, "m.onnx", "--keep-going")
    assert code == 1 and facts["unsupported"] == {"output 'y'": "it has 9 axes"}
    assert facts["remaining"]["outputs"] == []
    assert facts["remaining"]["blocked"] == {"y": ["r"]}


def test_a_sequence_as_an_output_is_not_refused(tinyedge: Command) -> None:
    nodes = [node("Relu", ["x"], ["r"]), node("SequenceConstruct", ["r", "x"], ["y"])]
    proto = model(nodes)
    tensor = onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 3])
    proto.graph.output[0].type.CopyFrom(onnx.helper.make_sequence_type_proto(tensor))
    _save(proto)
    code, facts = _facts(tinyedge, "m.onnx", "--keep-going")
    assert code == 0 and "remaining" not in facts
    assert facts["outputs"] == [{"name": "y", "dtype": "sequence", "shape": None}]


def test_what_only_one_target_refuses(tinyedge: Command) -> None:
    _save(
        model([node("Add", ["x", "w"])], inputs=[info("x", [1], 7)], weights=[ints("w", [2**40])])
    )
    assert _facts(tinyedge, "m.onnx", "-t", "cpu")[0] == 0
    code, facts = _facts(tinyedge, "m.onnx", "-t", "webgpu")
    assert code == 1 and len(facts["unsupported"]) == 1 and facts["estimate"] is None


def test_doubles_are_noted(tinyedge: Command) -> None:
    _save(model([node("Relu", ["x"])], inputs=[info("x", [2], TensorProto.DOUBLE)]))
    assert "webgpu has no doubles" in _facts(tinyedge, "m.onnx")[1]["notes"][0]
    assert _facts(tinyedge, "m.onnx", "-t", "cpu")[1]["notes"] == []


def test_integers_beyond_32_bits_are_noted(tinyedge: Command) -> None:
    """By name, unless the values are proved to fit, and where the target lacks such integers."""
    _save(
        model(
            [
                node("Mul", ["x", "x"], ["square"], name="/square"),
                node("Mul", ["flags", "seven"], ["few"], name="/few"),
                node("Cast", ["b"], ["flags"], to=TensorProto.INT64),
                node("Add", ["square", "few"], name="/sum"),
            ],
            inputs=[info("x", [4], TensorProto.INT64), info("b", [4], TensorProto.BOOL)],
            weights=[ints("seven", [7])],
        )
    )
    (note,) = _facts(tinyedge, "m.onnx", "-t", "webgpu")[1]["notes"]
    assert "no 64-bit integers: '/square', '/sum' computed in 32 bits" in note
    for target in ("cpu", "qcom", "cuda"):
        assert _facts(tinyedge, "m.onnx", "-t", target)[1]["notes"] == []


# --outputs.


def test_outputs(tinyedge: Command) -> None:
    """Only what is needed is exported; verified against the whole model."""
    _save(_detector())
    exported = tinyedge("export", "m.onnx", "-t", "cpu", "--outputs", "trunk,left")
    assert exported[0] == 0
    assert exported[2] == "note: the chosen outputs need no input 'z': left out\n"
    facts = _facts(tinyedge, "m.tinyedge")[1]
    assert [port["name"] for port in facts["inputs"]] == ["x"]
    assert [port["name"] for port in facts["outputs"]] == ["trunk", "left"]
    assert facts["options"]["outputs"] == ["trunk,left"]
    code, out, err = tinyedge("verify", "m.tinyedge", "--against", "m.onnx")
    assert (code, err) == (0, "") and out.count("onnxruntime") == 2
    facts = _facts(tinyedge, "m.onnx", "--outputs", "right,1")[1]
    assert facts["operators"] == {"Relu": 1, "Abs": 1} and facts["exportable"]
    assert facts["outputs"] == [{"name": "right,1", "dtype": "float32", "shape": [2, 3]}]
    code, out, _ = tinyedge("explain", "m.onnx", "--outputs", "trunk", "--stop-after", "fold")
    assert code == 0 and "outputs: trunk" in out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trunc", "did you mean 'trunk'?"),
        ("left,nothing", "--outputs 'nothing'"),
        ("right", "did you mean 'right,1'?"),
        ("", "the model has no value of that name"),
    ],
)
def test_outputs_that_the_model_lacks(tinyedge: Command, name: str, message: str) -> None:
    _save(_detector())
    for command in ("export", "inspect", "explain"):
        code, _, err = tinyedge(command, "m.onnx", "--outputs", name)
        assert code == 1 and "[input.outputs]" in err and message in err
        assert not list(Path().glob("*.tinyedge"))


def test_outputs_of_a_real_model(tinyedge: Command) -> None:
    path = models.path("pnet")
    inner = onnx.load(path).graph.node[4].output[0]
    sizes = ("--dim", "M1=24", "--dim", "M2=16")
    exported = tinyedge("export", path, "-t", "cpu", "-o", "b.tinyedge", *sizes, "--outputs", inner)
    assert exported[0] == 0
    code, out, err = tinyedge("verify", "b.tinyedge", "--against", path)
    assert (code, err) == (0, "") and "onnxruntime" in out


def test_what_is_neither(tinyedge: Command) -> None:
    code, _, err = tinyedge("inspect", ".")
    assert code == 1 and "no manifest.json, so it is no bundle" in err
    Path("empty.onnx").touch()
    code, _, err = tinyedge("inspect", "empty.onnx")
    assert code == 1 and "the file is empty" in err


@pytest.mark.parametrize("target", ["cpu", "webgpu"])
def test_all_that_a_step_updates(tinyedge: Command, target: str) -> None:
    """A kernel may write several states, and on webgpu bind for writing what it only reads."""
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])]
    weights = {"w": np.ones((4, 3)), "b": np.zeros(3)}
    proto = model(nodes, inputs=[info("x", ["N", 4])], outputs=("y",))
    proto.graph.initializer.extend(_floats(name, value) for name, value in weights.items())
    _save(proto)
    options = ("--train", "*", "--loss", "mse_loss:y", "--batch", "8", "-o", "b.tinyedge")
    assert tinyedge("export", "m.onnx", "-t", target, *options)[0] == 0
    _, facts = _facts(tinyedge, "b.tinyedge")
    main, train = facts["entries"]
    assert main["updates"] == []
    assert train["updates"] == [state["name"] for state in facts["states"]]
    assert len(train["updates"]) == 7
