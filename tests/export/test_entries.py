"""Entries whose inputs and outputs have one name, but not one shape or type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import tinyedge
from tests.agreement import find_target
from tests.entries import ENTRIES, export, inputs_of, logits_of, write_models
from tests.export.hostile import info, model, node
from tests.export.test_states import graph, tensor
from tests.imported import source_of
from tinyedge.cli import execute
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.errors import InputError, RunError
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Slice
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.bundle.reading import read
from tinyedge.export.package.c_bundle import header
from tinyedge.export.package.web import types
from tinyedge.export.verify.verify import verify


def test_runs_goldens_and_onnxruntime(tmp_path: Path, target: str, device: Device) -> None:
    bundle = export(tmp_path, target)
    with Replay(read(bundle).program, device, poison=True) as replay:
        for seed in range(2):
            for entry in ENTRIES:
                inputs = inputs_of(entry, seed)
                got = replay.run(inputs, entry)["logits"]
                assert got.dtype == logits_of(entry, inputs).dtype
                np.testing.assert_array_equal(got, logits_of(entry, inputs))
        with pytest.raises(RunError, match=r"input_ids int64 \[1, 1\]"):
            replay.run(inputs_of("main"), "decode")
        with pytest.raises(RunError) as caught:
            replay.run(inputs_of("small"), "decode")
        assert caught.value.id == "run.dtype"
    report = verify(bundle, device, write_models(tmp_path))
    assert report.agrees
    assert [case.entry for case in report.cases] == [*ENTRIES, *ENTRIES]


def test_what_is_alike_is_one_port(tmp_path: Path) -> None:
    program = read(export(tmp_path, "cpu")).program
    assert [(p.name, p.dtype, p.shape) for p in program.inputs] == [
        ("input_ids", "int64", (1, 8)),
        ("input_ids", "int64", (1, 1)),
        ("input_ids", "int32", (1, 1)),
    ]
    assert [p.shape for p in program.outputs] == [(1, 8, 3), (1, 1, 3), (1, 1, 3)]
    for entry, number in zip(program.entries, (0, 1, 1, 2), strict=True):
        assert entry.inputs == ("input_ids",) and entry.input_numbers == (number,)
        assert entry.outputs == ("logits",) and entry.output_numbers == (number,)


def test_the_names_of_the_files_for_users(tmp_path: Path) -> None:
    program = read(export(tmp_path, "cpu")).program
    lines = header(program, "MODEL", {"manifest.json": "0" * 64}).split("\n")
    assert "    MODEL_INPUT_INPUT_IDS_2 = 1," in lines
    assert "#define MODEL_INPUT_INPUT_IDS_2_SHAPE {1, 1}" in lines
    assert '#define MODEL_INPUT_INPUT_IDS_3_NAME "input_ids"' in lines
    text = types(program)
    assert text.count('"logits"?: Output<Float32Array> | Output<Int32Array>;') == 1
    assert text.count('"input_ids"?: InputValue<"int64"> | InputValue<"int32">;') == 1
    assert "/** float32 [1, 8, 3] or float32 [1, 1, 3] or int32 [1, 1, 3] */" in text


def test_slices_are_of_the_outputs_that_have_them(tmp_path: Path) -> None:
    slices = {"logits": {"two": "0..2"}, "logits[1]": {"tail": "6..8"}}
    bundle = export(tmp_path, "cpu", slices=slices)
    with tinyedge.load(bundle) as model:
        assert [tuple(p.slices) for p in model.outputs] == [
            (Slice("two", 2, 0, 2), Slice("tail", 1, 6, 2)),
            (Slice("two", 2, 0, 2),),
            (Slice("two", 2, 0, 2),),
        ]
        assert model.run(inputs_of("main"))["tail"].shape == (1, 2, 3)
        assert list(model.run(inputs_of("decode"), "decode")) == ["logits", "two"]
    with pytest.raises(InputError, match=r"7\.\.9 does not lie in axis 1 of 8"):
        export(tmp_path, "cpu", slices={"logits[1]": {"beyond": "7..9"}})


def test_a_given_golden_input_is_for_the_entries_that_it_fits(tmp_path: Path) -> None:
    given = inputs_of("main")
    goldens = read(export(tmp_path, "cpu", golden_inputs=given)).goldens()
    assert [case.inputs[0].data is not None for case in goldens] == [True, False, False, False]
    np.testing.assert_array_equal(goldens[0].inputs[0].data.reshape(1, 8), given["input_ids"])
    with pytest.raises(InputError) as caught:
        export(tmp_path, "cpu", golden_inputs={"input_ids": np.zeros((1, 2), np.int64)}, force=True)
    assert caught.value.id == "golden.input"
    assert "[1, 8] or int64 [1, 1] or int32 [1, 1]" in str(caught.value)


def test_the_command_line_is_of_one_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = export(tmp_path, "cpu")
    np.save(tmp_path / "ids.npy", inputs_of("decode")["input_ids"])
    run = ["run", str(bundle), "--trust", "--entry", "decode", "--out", str(tmp_path / "out")]
    assert execute([*run, "--input", f"input_ids={tmp_path / 'ids.npy'}"]) == 0
    got = np.load(tmp_path / "out" / "logits.npy")
    np.testing.assert_array_equal(got, logits_of("decode", inputs_of("decode")))
    assert execute(["inspect", str(bundle)]) == 0
    shown = capsys.readouterr().out
    assert "input_ids int64 [1, 8] of main\n" in shown
    assert "logits float32 [1, 1, 3] of decode, negative\n" in shown


def test_a_state_has_one_shape_and_its_kept_output_may_have_many() -> None:
    """A queue takes 3 new rows at once in one entry, one in another; both are outputs, too."""
    q, many, one = tensor("q", 4, 2), tensor("x", 3, 2), tensor("x", 1, 2)
    source, *_ = source_of(
        graph({"q": q, "x": many}, {"new": many * 2.0, "sum": q.sum()}),
        entries={"one": graph({"q": q, "x": one}, {"new": one * 2.0, "sum": q.sum()})},
        states={"q": "new:shift:keep"},
    )
    program = compile_graph(source, find_target("cpu")).program
    assert program is not None
    assert [(p.name, p.shape) for p in program.outputs] == [
        ("new", (3, 2)),
        ("sum", ()),
        ("new", (1, 2)),
    ]
    assert [entry.output_numbers for entry in program.entries] == [(0, 1), (2, 1)]
    with pytest.raises(InputError) as caught:
        source_of(
            graph({"q": q, "x": many}, {"new": many * 2.0}),
            entries={"one": graph({"q": tensor("q", 5, 2)}, {"y": Tensor(np.float32(1))})},
            states={"q": "new:shift"},
        )
    assert caught.value.id == "state.entries"


def test_alike_but_for_a_count_is_not_one_port(tmp_path: Path, cpu_device: Device) -> None:
    """One entry's output is cut to what a run finds, the other's of the same name never."""
    cut = model(
        [node("Compress", ["x", "keep"], ["y"], axis=0)],
        inputs=[info("x", [4, 2]), info("keep", [4], TensorProto.BOOL)],
    )
    whole = model([node("Relu", ["x"], ["y"])], inputs=[info("x", [4, 2])])
    for name, each in (("cut", cut), ("whole", whole)):
        (tmp_path / f"{name}.onnx").write_bytes(each.SerializeToString())
    for first, second in (("cut", "whole"), ("whole", "cut")):
        bundle = tinyedge.export_onnx(
            tmp_path / f"{first}.onnx",
            target="cpu",
            out=tmp_path / f"{first}.tinyedge",
            entries={second: tmp_path / f"{second}.onnx"},
        )
        x = np.arange(8, dtype=np.float32).reshape(4, 2)
        keep = np.array([True, False, True, False])
        with Replay(read(bundle).program, cpu_device) as replay:
            entry = {first: "main", second: second}
            np.testing.assert_array_equal(replay.run({"x": x}, entry["whole"])["y"], x)
            got = replay.run({"x": x, "keep": keep}, entry["cut"])["y"]
            np.testing.assert_array_equal(got, x[keep])
