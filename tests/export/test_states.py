"""States, entries and slices of models: what options mean, what is refused and verified."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import tinyedge
from tests.export.hostile import info, ints, model, node
from tests.imported import source_of
from tinyedge.choices import find_target
from tinyedge.core import dtype as dt
from tinyedge.core.errors import InputError
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Slice, Symbol
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.bundle.reading import read
from tinyedge.export.states import Update, parse_update
from tinyedge.export.verify.verify import verify

BATCH, WIDE, HIDDEN = "batch", 5, 8
RUNS = 10


def save(made: onnx.ModelProto, path: Path) -> Path:
    onnx.save(made, path)
    return path


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    """An LSTM of one step: y, its new hidden value and cell, and a summary of the last five."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(0.4 * rng.standard_normal(shape).astype(np.float32), name)

    nodes = [
        node("LSTM", ["x", "w", "r", "b", "", "h", "c"], ["_", "h_out", "c_out"], hidden_size=8),
        node("ReduceMean", ["past"], ["mean"], axes=[1], keepdims=0),
        node("Add", ["h_out", "mean"], ["y"]),
        node("Transpose", ["h_out"], ["past_out"], perm=[1, 0, 2]),
    ]
    inputs = [
        info("x", [1, BATCH, WIDE]),
        info("h", [1, BATCH, HIDDEN]),
        info("c", [1, BATCH, HIDDEN]),
        info("past", [BATCH, 5, HIDDEN]),
    ]
    weights = [weight("w", 1, 32, WIDE), weight("r", 1, 32, HIDDEN), weight("b", 1, 64)]
    made = model(nodes, inputs=inputs, outputs=("y", "h_out", "c_out", "past_out"), weights=weights)
    return save(made, tmp_path / "cell.onnx")


CELL = {"h": "h_out:keep", "c": "c_out", "past": ("past_out", "shift")}


@pytest.fixture
def drive(tmp_path: Path) -> dict[str, Path]:
    """Two models: one reads a stack of frames and an old feature, the other makes a frame."""
    rng = np.random.default_rng(1)
    weights = [
        numpy_helper.from_array(0.3 * rng.standard_normal((6, 4)).astype(np.float32), "w"),
        ints("axis", [1]),
    ]
    nodes = [
        node("Cast", ["frames"], ["f"], to=TensorProto.FLOAT),
        node("ReduceMean", ["f"], ["seen"], axes=[2, 3], keepdims=0),
        node("MatMul", ["seen", "w"], ["z"]),
        node("ReduceMax", ["features"], ["old"], axes=[1], keepdims=0),
        node("Add", ["z", "old"], ["all"]),
        node("Tanh", ["all"], ["outputs"]),
        node("Unsqueeze", ["outputs", "axis"], ["features_out"]),
    ]
    inputs = [info("frames", [1, 6, 4, 4], TensorProto.UINT8), info("features", [1, 9, 4])]
    made = model(nodes, inputs=inputs, outputs=("outputs", "features_out"), weights=weights)
    half = numpy_helper.from_array(np.array(2, np.uint8), "two")
    frame = model(
        [node("Div", ["image", "two"], ["frames_out"])],
        inputs=[info("image", [1, 2, 4, 4], TensorProto.UINT8)],
        outputs=("frames_out",),
        weights=[half],
    )
    return {
        "drive": save(made, tmp_path / "drive.onnx"),
        "frame": save(frame, tmp_path / "frame.onnx"),
    }


DRIVE = {"features": "features_out:shift", "frames": "frames_out:shift"}


def by_hand(path: Path, states: Mapping[str, Any], feeds: Mapping[str, str], inputs: Any) -> Any:
    """A model's outputs by onnxruntime for a sequence of inputs; new states replace old ones."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    kept = dict(states)
    for given in inputs:
        outputs = dict(zip(names, session.run(None, {**given, **kept}), strict=True))
        for state, output in feeds.items():
            new = outputs[output]
            if kept[state].shape != new.shape:  # a queue along the second axis
                new = np.concatenate([kept[state][:, new.shape[1] :], new], 1)
            kept[state] = new
        yield outputs, kept


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_cell(
    cell: Path, tmp_path: Path, target: str, device: Device, precision: str, batch: int
) -> None:
    """Ten runs of an LSTM with an open batch, against onnxruntime with its states by hand."""
    if precision == "fp16" and not find_target(target).caps().fp16_storage:
        pytest.skip("the target keeps no halves")
    rng = np.random.default_rng(2)
    first = rng.standard_normal((1, 4, HIDDEN)).astype(np.float32)
    bundle = tinyedge.export_onnx(
        cell,
        target=target,
        out=tmp_path / "bundle",
        dims={BATCH: "1..4"},
        states=CELL,
        state_init={"c": first},
        precision=precision,
        golden=False,
    )
    program = read(bundle).program
    assert program.symbols == (Symbol(BATCH, 1, 4),)
    inputs = [{"x": rng.standard_normal((1, batch, WIDE)).astype(np.float32)} for _ in range(RUNS)]
    zeros = np.zeros((batch, 5, HIDDEN), np.float32)
    states = {"h": zeros[None, :, 0], "c": first[:, :batch], "past": zeros}
    feeds = {"h": "h_out", "c": "c_out", "past": "past_out"}
    room = 1e-4 if precision == "fp32" else 2e-2
    with Replay(program, device, poison=True) as replay:
        for given, (expected, kept) in zip(
            inputs, by_hand(cell, states, feeds, inputs), strict=True
        ):
            got = replay.run(given)
            assert set(got) == {"y", "h_out"}, "what feeds a state is an output only where kept"
            for name, value in got.items():
                np.testing.assert_allclose(value, expected[name], atol=room, err_msg=name)
            for name, value in kept.items():
                np.testing.assert_allclose(replay.get_state(name), value, atol=room, err_msg=name)


def test_two_entries(drive: dict[str, Path], tmp_path: Path, target: str, device: Device) -> None:
    """Frames go in by one entry and are seen by the other; the whole is as if by hand."""
    bundle = tinyedge.export_onnx(
        drive["drive"],
        target=target,
        out=tmp_path / "bundle",
        entries={"frame": drive["frame"]},
        states=DRIVE,
        slices={"outputs": {"left": "0..1", "right": (1, 4)}},
        precision="fp32",
        golden=False,
    )
    program = read(bundle).program
    assert [entry.name for entry in program.entries] == ["main", "frame"]
    assert [state.update for state in program.states] == ["shift", "shift"]
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(drive["drive"]), providers=["CPUExecutionProvider"])
    frames, features = np.zeros((1, 6, 4, 4), np.uint8), np.zeros((1, 9, 4), np.float32)
    rng = np.random.default_rng(3)
    with Replay(program, device, poison=True) as replay:
        for _ in range(RUNS):
            image = rng.integers(0, 256, (1, 2, 4, 4), np.uint8)
            assert replay.run({"image": image}, "frame") == {}
            frames = np.concatenate([frames[:, 2:], image // 2], 1)
            outputs, new = session.run(None, {"frames": frames, "features": features})
            features = np.concatenate([features[:, 1:], new], 1)
            got = replay.run({})
            np.testing.assert_allclose(got["outputs"], outputs, atol=1e-5)
            np.testing.assert_array_equal(got["left"], got["outputs"][:, :1])
            np.testing.assert_array_equal(got["right"], got["outputs"][:, 1:])
            np.testing.assert_array_equal(replay.get_state("frames"), frames)


def test_goldens_are_sequences(drive: dict[str, Path], tmp_path: Path, cpu_device: Device) -> None:
    said: list[str] = []
    bundle = tinyedge.export_onnx(
        drive["drive"],
        target="cpu",
        out=tmp_path / "bundle",
        entries={"frame": drive["frame"]},
        states=DRIVE,
        state_init={"frames": np.arange(96, dtype=np.uint8).reshape(1, 6, 4, 4)},
        warn=said.append,
    )
    goldens = read(bundle).goldens()
    assert [(golden.entry, golden.steps) for golden in goldens] == [("main", 8)]
    assert len(said) == 1 and "entry 'frame' has no outputs" in said[0]
    kept = tinyedge.export_onnx(
        drive["drive"],
        target="cpu",
        out=tmp_path / "kept",
        entries={"frame": drive["frame"]},
        states={**DRIVE, "frames": "frames_out:shift:keep"},
        golden_steps=3,
        warn=said.append,
    )
    goldens = read(kept).goldens()
    assert [(golden.entry, golden.steps) for golden in goldens] == [("main", 3), ("frame", 3)]
    assert len(said) == 1
    assert verify(kept, cpu_device).agrees
    with pytest.raises(InputError) as caught:
        tinyedge.export_onnx(drive["drive"], target="cpu", out=tmp_path / "b", golden_steps=1025)
    assert caught.value.id == "golden.steps"


def test_verify_against_the_models(
    drive: dict[str, Path], cell: Path, tmp_path: Path, cpu_device: Device
) -> None:
    pytest.importorskip("onnxruntime")
    both = tinyedge.export_onnx(
        drive["drive"],
        target="cpu",
        out=tmp_path / "both",
        entries={"frame": drive["frame"]},
        states=DRIVE,
        state_init={"features": np.full((1, 9, 4), 0.5, np.float32)},
        golden=False,
    )
    report = verify(both, cpu_device, {"main": drive["drive"], "frame": drive["frame"]})
    seen = [(case.entry, output.output) for case in report.cases for output in case.outputs]
    assert seen == [("main", "outputs"), ("main", "state features"), ("frame", "state frames")]
    assert report.agrees
    other = onnx.load(drive["frame"])
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(3, np.uint8), "two"))
    third = save(other, tmp_path / "third.onnx")
    assert not verify(both, cpu_device, {"frame": third}).agrees
    batches = tinyedge.export_onnx(
        cell,
        target="cpu",
        out=tmp_path / "cell",
        dims={BATCH: "1..4"},
        states=CELL,
        golden=False,
    )
    report = verify(batches, cpu_device, cell)
    assert [case.symbols for case in report.cases] == [{BATCH: 4}, {BATCH: 1}]
    assert report.agrees


def test_dims_may_belong_to_any_entry(drive: dict[str, Path], cell: Path, tmp_path: Path) -> None:
    source, assumed, record, _ = source_of(
        drive["drive"], entries={"cell": cell}, dims={BATCH: "2..3"}, states={"h": "h_out"}
    )
    assert assumed == [] and record["dims"] == [f"{BATCH}=2..3"]
    assert [state.name for state in source.states] == ["h"]
    with pytest.raises(InputError) as caught:
        source_of(drive["drive"], entries={"cell": cell}, dims={BATCH: 2, "Q": 3})
    assert caught.value.id == "input.dim" and "--dim Q" in str(caught.value)
    _, assumed, *_ = source_of(drive["drive"], entries={"cell": cell}, dims={"x[1]": 2})
    assert assumed == []


@pytest.mark.parametrize(
    ("text", "update"),
    [
        ("h_out", Update("h_out")),
        ("h_out:shift", Update("h_out", shift=True)),
        ("h_out:shift@2", Update("h_out", shift=True, axis=2)),
        ("h_out:shift@-1:keep", Update("h_out", shift=True, axis=-1, keep=True)),
        ("h_out:keep:shift", Update("h_out", shift=True, keep=True)),
        ("scope/h:0", Update("scope/h:0")),
        ("scope/h:0:shift", Update("scope/h:0", shift=True)),
        (("a:shift", "keep"), Update("a:shift", keep=True)),
    ],
)
def test_updates(text: Any, update: Update) -> None:
    assert parse_update("h", text) == update


def test_an_output_may_be_called_as_an_update() -> None:
    assert parse_update("h", "h:shift", {"h:shift"}) == Update("h:shift")


def graph(inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor] | None = None) -> Graph:
    """A graph with these inputs; by default each NAME also gives NAME_out."""
    given = outputs or {f"{name}_out": tensor * 2.0 for name, tensor in inputs.items()}
    return Graph(
        tuple(Port(name, t.dtype, t.shape) for name, t in inputs.items()),
        tuple(Port(name, t.dtype, t.shape, t.node) for name, t in given.items()),
    )


def tensor(name: str, *shape: Any, dtype: Any = dt.float32) -> Tensor:
    return Tensor.input(name, shape, dtype)


H = tensor("h", 2, 3)
Q = tensor("q", 4, 2, 3)
OPEN = tensor("o", 2, symbol("N", 1, 4))
BYTES = tensor("u", symbol("N", 1, 4), 3, dtype=dt.uint8)
MAIN = graph(
    {"h": H, "q": Q, "o": OPEN, "u": BYTES},
    {
        "h_out": H * 2.0,
        "wide": H.reshape((1, 6)),
        "q_new": Q[:2],
        "q_odd": Q[:2, :1],
        "q_long": Tensor.concat([Q, Q], 0),
        "q_same": Q * 2.0,
        "whole": H.cast(dt.int32),
        "total": H.sum(),
        "o_out": OPEN * 2.0,
        "u_out": BYTES + BYTES,
        "y": H.sum((1,)),
    },
)
OTHER = graph({"h": tensor("h", 2, 4)})
SHORT = graph({"n": tensor("n", 2, 3)}, {"h_out": tensor("n", 2, 2) * 2.0})


@pytest.mark.parametrize(
    ("options", "id", "words"),
    [
        ({"states": {"z": "h_out"}}, "state.input", "'z', 'h', 'q', reads it"),
        ({"states": {"uu": "u_out"}}, "state.input", "did you mean 'u'?"),
        ({"states": {"h": "z"}}, "state.output", "'z', 'h_out', 'y'"),
        ({"states": {"h": "h_out:shfit"}}, "state.output", "'h_out:shfit', did you mean 'h_out'?"),
        ({"states": {"h": ("h_out", "move")}}, "state.update", "'move', shift@AXIS"),
        ({"states": {"h": ()}}, "state.update", "OUTPUT"),
        ({"states": {"h": 3}}, "state.update", "OUTPUT"),
        ({"states": {"h": "whole"}}, "state.dtype", "float32, int32, 'whole'"),
        ({"states": {"h": "wide"}}, "state.shape", "[2, 3], [1, 6]"),
        ({"states": {"h": "total"}}, "state.shape", "'total'"),
        ({"states": {"q": "q_new"}}, "state.shape", "q=q_new:shift"),
        ({"states": {"q": "q_odd:shift"}}, "state.shape", "more than one axis"),
        ({"states": {"q": "q_odd:shift@0"}}, "state.shape", "along axis 0"),
        ({"states": {"q": "q_long:shift"}}, "state.shape", "4, 8"),
        ({"states": {"q": "q_same:shift"}}, "state.axis", "shift@AXIS"),
        ({"states": {"q": "q_new:shift@3"}}, "state.axis", "0 to 2"),
        ({"states": {"q": "y:shift"}}, "state.shape", "axes"),
        ({"states": {"h": "total:shift"}}, "state.shape", "axes"),
        ({"states": {"o": "o_out"}}, "state.size", "[2, N], --dim"),
        ({"states": {"u": "u_out"}}, "state.size", "3 bytes, --dim"),
        ({"states": {"h": "h_out", "q": "h_out"}}, "state.twice", "'h', 'q', 'h_out'"),
        ({"state_init": {"h": np.zeros((2, 3))}}, "state.initial", "no such state"),
        (
            {"states": {"h": "h_out"}, "state_init": {"h": np.zeros((2, 3))}},
            "state.initial",
            "float64, float32",
        ),
        (
            {"states": {"h": "h_out"}, "state_init": {"h": np.zeros(6, np.float32)}},
            "state.initial",
            "[6], [2, 3]",
        ),
        ({"entries": {"main": OTHER}}, "entry.name", "another name"),
        ({"entries": {"b": OTHER}, "states": {"h": "h_out"}}, "state.entries", "'main', 'b'"),
        ({"entries": {"b": SHORT}, "states": {"h": "h_out"}}, "state.shape", "[2, 2]"),
        (
            {"entries": {"b": graph({"v": tensor("v", symbol("N", 1, 5))})}},
            "entry.size",
            "'N', bounds",
        ),
        ({"entries": {"\n": graph({"v": tensor("v", 2)})}}, "model.limit", "control"),
        ({"slices": {"z": {"a": (0, 1)}}}, "slice.output", "'z', 'y'"),
        ({"slices": {"total": {"a": (0, 1)}}}, "slice.axis", "a scalar"),
        ({"slices": {"wide[2]": {"a": (0, 1)}}}, "slice.axis", "axis 2"),
        ({"slices": {"o_out": {"a": (0, 1)}}}, "slice.axis", "open, --dim"),
        ({"slices": {"wide": {"a": (0, 7)}}}, "slice.range", "0..7, axis 1 of 6"),
        ({"slices": {"wide": {"a": (3, 3)}}}, "slice.range", "3..3"),
        ({"slices": {"wide": {"a": "3-4"}}}, "slice.range", "START..END"),
        ({"slices": {"wide": {"a": (0, 1, 2)}}}, "slice.range", "(0, 1, 2)"),
        ({"slices": {"wide": {"a": (0, True)}}}, "slice.range", "pair"),
        ({"slices": {"wide": {"y": (0, 1)}}}, "slice.name", "an output"),
        ({"slices": {"wide": {"a": (0, 1)}, "y": {"a": (0, 1)}}}, "slice.name", "'wide'"),
        ({"slices": {"wide": {"a\n": (0, 1)}}}, "model.limit", "control"),
        (
            {"slices": {"wide": {f"s{i}": (0, 1) for i in range(257)}}},
            "slice.count",
            "257, 256",
        ),
        (
            {"states": {"h": "h_out"}, "slices": {"h_out": {"a": (0, 1)}}},
            "slice.output",
            ":keep",
        ),
    ],
)
def test_refused(options: dict[str, Any], id: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        source_of(MAIN, **options)
    assert caught.value.id == id
    for word in words.split(", "):
        assert word in str(caught.value), word


def test_slices(tmp_path: Path) -> None:
    source, *_ = source_of(
        MAIN,
        slices={"wide": {"a": "0..2", "b": [2, 6]}, "q_new[0]": {"c": (1, 2)}, "y": {"d": "0..2"}},
    )
    assert {p.name: p.slices for p in source.entries["main"].outputs if p.slices} == {
        "wide": (Slice("a", 1, 0, 2), Slice("b", 1, 2, 4)),
        "q_new": (Slice("c", 0, 1, 1),),
        "y": (Slice("d", 0, 0, 2),),
    }


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"y": 3}', '{"y": {}, "y": {}}', '{"y": {"a": [0, 1], "a": [0, 1]}}']
)
def test_a_file_of_slices_that_is_none(text: str, tmp_path: Path) -> None:
    from tinyedge.export.slices import read_slices

    file = tmp_path / "slices.json"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_slices(file)
    assert caught.value.id == "slice.file" and str(file) in str(caught.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_slices(tmp_path / "missing.json")


def test_the_manifest_says_what_feeds_a_state(drive: dict[str, Path], tmp_path: Path) -> None:
    bundle = tinyedge.export_onnx(
        drive["drive"],
        target="cpu",
        out=tmp_path / "bundle",
        entries={"frame": drive["frame"]},
        states=DRIVE,
        golden=False,
    )
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["features"] == ["entries", "state"]
    assert manifest["options"]["states"] == [
        {"name": "features", "output": "features_out"},
        {"name": "frames", "output": "frames_out"},
    ]
    assert [state["update"] for state in manifest["states"]] == ["shift", "shift"]
    assert [state["axis"] for state in manifest["states"]] == [1, 1]


def test_a_loaded_model_keeps_and_gives_its_states(tmp_path: Path) -> None:
    x = np.ones((2, 3), np.float32)
    bundle = tinyedge.export_function(
        lambda x, h: {"y": h + x, "h_out": h + x},
        {"x": x, "h": x},
        target="cpu",
        out=tmp_path / "bundle",
        states={"h": "h_out"},
        state_init={"h": 5 * x},
        entries={"twice": (lambda h: {"z": h * 2.0}, {"h": x})},
    )
    with tinyedge.load(bundle) as loaded:
        assert [state.name for state in loaded.states] == ["h"]
        assert [entry.name for entry in loaded.entries] == ["main", "twice"]
        assert [port.name for port in loaded.inputs] == ["x"]
        np.testing.assert_array_equal(loaded.run({"x": x})["y"], 6 * x)
        np.testing.assert_array_equal(loaded.run({}, "twice")["z"], 12 * x)
        loaded.set_state("h", x)
        np.testing.assert_array_equal(loaded.run({"x": x})["y"], 2 * x)
        np.testing.assert_array_equal(loaded.get_state("h"), 2 * x)
        loaded.reset()
        np.testing.assert_array_equal(loaded.get_state("h"), 5 * x)
        with pytest.raises(tinyedge.RunError, match="'h'"):
            loaded.get_state("hidden")
