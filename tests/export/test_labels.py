"""Names of classes: which output they are of, and what is best of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tinyedge.cli import execute
from tinyedge.core.errors import InputError, RunError

NAMES = ["caf\u00e9", "tench, Tinca tinca", "\u732b"]
RNG = np.random.default_rng(4)
SCORES = RNG.random((2, 3), np.float32)
MAP = RNG.random((1, 3, 3, 4), np.float32)
IDS = np.array([[2, 0, 7, 1]], np.int32)


def export(folder: Path, labels: Any, target: str = "cpu", **inputs: Any) -> Path:
    return tinyedge.export_function(
        lambda **given: {name: value + 0 for name, value in given.items()},
        inputs,
        target=target,
        out=folder / "m",
        labels=labels,
        golden=False,
    )


def test_the_best_by_name(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_bytes("\ufeff".encode() + "\r\n".join(NAMES).encode() + b"\r\n\r\n")
    with tinyedge.load(export(tmp_path, file, scores=SCORES)) as m:
        out = m.run({"scores": SCORES})
        for row in range(2):
            found = m.top(out, "scores", 2, row)
            order = np.argsort(-SCORES[row])[:2]
            assert [each.index for each in found] == order.tolist()
            assert [each.label for each in found] == [NAMES[i] for i in order]
            assert [each.value for each in found] == SCORES[row][order].tolist()
        out["scores"][0, order[0]] = np.nan
        assert len(m.top(out, "scores")) == 2, "NaN is none"
        for name, row in (("scores", 2), ("scores", -1), ("other", 0)):
            with pytest.raises(RunError) as caught:
                m.top(out, name, row=row)
            assert caught.value.id == "run.labels"


def test_a_bundle_without_labels_or_pictures(tmp_path: Path) -> None:
    """It says which option of the export makes the call work."""
    with tinyedge.load(export(tmp_path, None, scores=SCORES)) as m:
        with pytest.raises(RunError, match="export with --labels"):
            m.top(m.run({"scores": SCORES}), "scores")
        for name, said in (("scores", "export with --image scores="), ("x", "no such input")):
            with pytest.raises(RunError, match=said):
                m.run({"scores": SCORES, name: "cat.png"})


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", True, None])
def test_counts_and_rows_are_whole(tmp_path: Path, count: Any) -> None:
    with tinyedge.load(export(tmp_path, NAMES, scores=SCORES)) as m:
        out = m.run({"scores": SCORES})
        for given in ({"count": count}, {"row": -1 if count == 0 else count}):
            with pytest.raises(RunError) as caught:
                m.top(out, "scores", **given)
            assert caught.value.id == "run.labels"
        assert len(m.top(out, "scores", np.int64(2), np.int64(1))) == 2


def test_places(tmp_path: Path) -> None:
    """Of a map, and of numbers of classes."""
    labels = {"x[1]": NAMES, "ids": NAMES}
    with tinyedge.load(export(tmp_path, labels, x=MAP, ids=IDS)) as m:
        out = m.run({"x": MAP, "ids": IDS})
        assert m.top(out, "x", 1, row=6)[0].index == MAP[0, :, 1, 2].argmax()
        found = [m.top(out, "ids", row=row)[0].label for row in range(4)]
        assert found == [NAMES[2], NAMES[0], "7", NAMES[1]]


@pytest.mark.parametrize(
    ("labels", "id", "says"),
    [
        (NAMES[:2], "labels.size", "2 names are given, and no axis has as many places"),
        (NAMES, "labels.place", "several axes have 3 places"),
        ({"x": NAMES}, "labels.place", "several axes"),
        ({"x[0]": NAMES}, "labels.size", r"axis 0 has 1 places[^$]*axis 1 has 3: say x\[1\]"),
        ({"x[-1]": NAMES}, "labels.size", "axis 3 has 4 places"),
        ({"x[4]": NAMES}, "labels.place", "there is no axis 4[^$]*from 0 to 3"),
        ({"y": NAMES}, "labels.output", "no output 'y'"),
        ({"x[1]": NAMES, "x[2]": NAMES}, "labels.twice", "already"),
        ({"x[1]": ["a", "", "c"]}, "labels.name", "name 2 is ''"),
        ({"x[1]": ["a", "b\t", "c"]}, "labels.name", "name 2"),
        ({"x[1]": []}, "labels.count", "0 names"),
        ("none.txt", "labels.file", "No such file"),
        (NAMES[1:], "labels.size", r"^InputError: labels \["),
    ],
)
def test_refusals(tmp_path: Path, labels: Any, id: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        export(tmp_path, labels, x=MAP)
    assert caught.value.id == id


def test_a_line_without_a_name(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text("a\n\nc\n")
    with pytest.raises(InputError, match="line 2"):
        export(tmp_path, file, scores=SCORES)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="no text in UTF-8"):
        export(tmp_path, file, scores=SCORES)
    file.write_text("\n")
    with pytest.raises(InputError, match="0 names"):
        export(tmp_path, file, scores=SCORES)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import onnx
    from onnx import TensorProto, helper

    model = tmp_path / "m.onnx"
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, model)
    array, names, odd = (tmp_path / name for name in ("x.npy", "names.txt", "a=b.txt"))
    for file in (names, odd):
        file.write_text("one\ntwo\nthree\n")
    np.save(array, np.array([[0.5, 2, 1]], np.float32))
    bundle = str(tmp_path / "m")
    command = ["export", str(model), "-t", "cpu", "-o", bundle, "--labels"]
    for labels in (str(odd), f"y={names}"):
        assert execute([*command, labels]) == 0
    assert execute([*command, f"z={names}"]) == 1
    few = tmp_path / "few.txt"
    few.write_text("one\ntwo\n")
    capsys.readouterr()
    for labels, said in ((str(few), "few.txt'"), (f"y={few}", "few.txt' for 'y'")):
        assert execute([*command, labels]) == 1
        err = capsys.readouterr().err
        assert f"{said} [labels.size]" in err and "next       count the lines" in err
        assert "the file has 2 lines, and axis 1 has 3 places: 'y' is float32" in err
    run = ["run", bundle, "--trust", "--input", str(array), "-o", str(tmp_path / "out")]
    assert execute(run) == 0
    assert "y: two 2, three 1, one 0.5" in capsys.readouterr().out
    assert execute([*run, "--json"]) == 0
    top = json.loads(capsys.readouterr().out)["outputs"]["y"]["top"]
    assert top[0] == {"index": 1, "label": "two", "value": 2.0}
