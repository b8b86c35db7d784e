"""The tool itself, and this commit beside the one before it."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.process_replay import corpus, replay, sides, worker
from tests.process_replay.bundles import FIELDS, differences

GIT = (
    "git",
    "-c",
    "user.name=test",
    "-c",
    "user.email=test@localhost",
    "-c",
    "commit.gpgsign=false",
)


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """A bundle as it is compared: one kernel of two nodes and their state."""
    import tinyedge

    case = corpus.cases(quick=True)["step webgpu"].record()
    return worker.compile_case(case, tinyedge.export_onnx)


def report_of(base: dict[str, Any], head: dict[str, Any], allowed: bool = False) -> replay.Outcome:
    return replay.report({"step": base}, {"step": head}, allowed=allowed)


def headings(base: dict[str, Any], head: dict[str, Any]) -> list[str]:
    """What is said to differ."""
    return [
        text.splitlines()[0].removeprefix("--- base  ") for text in differences("c", base, head)
    ]


def test_the_same_is_no_difference(made: dict[str, Any]) -> None:
    outcome = report_of(made, copy.deepcopy(made))
    assert outcome == replay.Outcome(True, "process replay: 0 of 1 cases differ")


def test_a_changed_kernel_is_headed_by_its_nodes(made: dict[str, Any]) -> None:
    head = copy.deepcopy(made)
    text = head["texts"]["kernels.wgsl"]
    assert "tanh" in text
    head["texts"]["kernels.wgsl"] = text.replace("tanh", "sinh")
    (heading,) = headings(made, head)
    assert heading.startswith("c: kernel of ") and "Tanh_hidden_out" in heading
    outcome = report_of(made, head)
    assert not outcome.passes
    assert "sinh" in outcome.text and sides.MARK in outcome.text


def test_a_new_first_kernel_changes_no_other(made: dict[str, Any]) -> None:
    """Kernels are found by their nodes; numbers shift."""
    head = copy.deepcopy(made)
    manifest = head["manifest"]
    manifest["kernels"].insert(0, manifest["kernels"][0])
    launches = [step for step in manifest["steps"] if "kernel" in step]
    for step in launches:
        step["kernel"] += 1
    manifest["steps"].append({**launches[0], "kernel": 0, "nodes": ["new"]})
    assert headings(made, head) == ["c: schedule", "c: kernel of new"]


@pytest.mark.parametrize(
    ("field", "heading"),
    [("offset", "c: memory plan"), ("grid", "c: schedule"), ("format", "c: manifest")],
)
def test_a_changed_plan(made: dict[str, Any], field: str, heading: str) -> None:
    head = copy.deepcopy(made)
    manifest = head["manifest"]
    if field == "offset":
        manifest["buffers"][-1]["offset"] += 256
    elif field == "grid":
        next(step for step in manifest["steps"] if "grid" in step)["grid"][0] += 1
    else:
        manifest["format"] = "other"
    assert headings(made, head) == [heading]


def test_a_field_nobody_has_heard_of_is_compared(made: dict[str, Any]) -> None:
    head = copy.deepcopy(made)
    head["manifest"]["invented"] = 1
    assert headings(made, head) == ["c: manifest"]


def test_other_weights(made: dict[str, Any]) -> None:
    head = copy.deepcopy(made)
    head["manifest"]["files"][-1]["sha256"] = "0" * 64
    assert headings(made, head) == ["c: files"]


def test_a_known_rename_is_no_difference(
    made: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = json.loads(json.dumps(made).replace('"peak_bytes"', '"greatest_bytes"'))
    assert headings(made, head) == ["c: memory plan", "c: manifest"]
    monkeypatch.setitem(FIELDS, "peak_bytes", "greatest_bytes")
    assert headings(made, head) == []


def test_a_new_refusal(made: dict[str, Any]) -> None:
    head = {"error": "UnsupportedOp", "text": "", "where": "the traceback"}
    outcome = replay.report({"a": made, "b": made}, {"a": head, "b": made}, allowed=False)
    assert not outcome.passes
    assert "+UnsupportedOp" in outcome.text and "the traceback" in outcome.text
    with pytest.raises(sides.ReplayError, match="no case compiles"):
        report_of(made, head)


def test_what_differs_may_if_a_commit_says_so(made: dict[str, Any]) -> None:
    head = copy.deepcopy(made)
    head["manifest"]["peak_bytes"] += 1
    assert not report_of(made, head).passes
    assert report_of(made, head, allowed=True).passes


# --- commits --------------------------------------------------------------------------------------


def commit(root: Path, message: str, text: str) -> str:
    """A commit whose tinyedge answers `export_onnx` with a bundle of `text`."""
    package = root / "tinyedge"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text(text, "utf-8")
    subprocess.run((*GIT, "add", "."), cwd=root, check=True)
    subprocess.run((*GIT, "commit", "-q", "-m", message), cwd=root, check=True)
    return sides.git("rev-parse", "HEAD", root=root)


def refusing(error: str) -> str:
    return f"def export_onnx(model, **options):\n    raise {error}\n"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sides, "CACHE", tmp_path / "kept")
    monkeypatch.delenv(sides.BASE, raising=False)
    root = tmp_path / "repository"
    root.mkdir()
    subprocess.run((*GIT, "init", "-q", "-b", "main"), cwd=root, check=True)
    return root


def test_each_side_is_compiled_by_its_own_code(repository: Path) -> None:
    """Commits, the working tree, and results kept by commit, never of the working tree."""
    old = commit(repository, "one", refusing("KeyError"))
    new = commit(repository, "two", refusing("IndexError"))
    cases = {"step": corpus.cases(quick=True)["step webgpu"]}
    for _ in range(2):
        base, head = sides.both(old, new, cases, repository)
        assert (base["step"]["error"], head["step"]["error"]) == ("KeyError", "IndexError")
    assert sorted(file.name[:40] for file in sides.CACHE.iterdir()) == sorted([old, new])
    for error in ("OSError", "EOFError"):
        (repository / "tinyedge" / "__init__.py").write_text(refusing(error), "utf-8")
        assert sides.both(old, None, cases, repository)[1]["step"]["error"] == error
    assert len(sides.git("worktree", "list", root=repository).splitlines()) == 1


def test_a_side_that_cannot_be_imported(repository: Path) -> None:
    old = commit(repository, "one", refusing("KeyError"))
    commit(repository, "two", "import nothing_of_the_name")
    cases = {"step": corpus.cases(quick=True)["step webgpu"]}
    with pytest.raises(sides.ReplayError, match="nothing_of_the_name"):
        sides.both(old, None, cases, repository)


def test_the_mark_of_any_commit_between(repository: Path) -> None:
    first = commit(repository, "one [changes kernels]", "1")
    second = commit(repository, "two\n\nFaster. [changes kernels]", "2")
    third = commit(repository, "three", "3")
    assert sides.exempt(first, third, repository)
    assert not sides.exempt(second, third, repository)


def test_what_is_compared_with(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = commit(repository, "one", "1")
    assert sides.usual_base(repository) is None
    second = commit(repository, "two", "2")
    assert sides.usual_base(repository) == first
    sides.git("checkout", "-q", "-b", "branch", root=repository)
    commit(repository, "three", "3")
    commit(repository, "four", "4")
    assert sides.usual_base(repository) == second
    monkeypatch.setenv(sides.BASE, first)
    assert sides.usual_base(repository) == first
    monkeypatch.setenv(sides.BASE, "no commit")
    with pytest.raises(sides.ReplayError, match="no such commit"):
        sides.usual_base(repository)


def test_a_shallow_clone_has_nothing_to_compare_with(repository: Path, tmp_path: Path) -> None:
    commit(repository, "one", "1")
    commit(repository, "two", "2")
    place = tmp_path / "shallow"
    sides.git("clone", "-q", "--depth", "1", repository.as_uri(), str(place), root=repository)
    assert sides.usual_base(place) is None


def test_this_commit_changes_nothing_or_says_so() -> None:
    """The quick corpus, by the code here and by that before it."""
    base = sides.usual_base()
    if base is None:
        pytest.skip(replay.NO_PARENT)
    outcome = replay.compare(base, None, corpus.cases(quick=True))
    assert outcome.passes, outcome.text
