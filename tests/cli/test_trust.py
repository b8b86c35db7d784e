"""Commands run the native code of a bundle only if it is known, or if they are told to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import tinyedge
from tinyedge.cli import execute
from tinyedge.cli.device import check_trust
from tinyedge.export.bundle.manifest import encode
from tinyedge.export.bundle.reading import read
from tinyedge.export.package import trust


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return export(tmp_path / "f.tinyedge", "cpu")


def export(out: Path, target: str) -> Path:
    one = {"x": np.ones(4, np.float32)}
    return tinyedge.export_function(lambda x: x + x, one, target=target, out=out)


def changed(bundle: Path) -> None:
    """As if it came from somewhere else."""
    manifest = json.loads((bundle / "manifest.json").read_text("ascii"))
    manifest["tool"] = "another"
    (bundle / "manifest.json").write_bytes(encode(manifest))


@pytest.mark.parametrize("command", [["verify"], ["run", "--random"], ["bench", "--runs", "1"]])
def test_commands(
    bundle: Path, tmp_path: Path, command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*command, str(bundle)]
    if "run" in command:
        words += ["--out", str(tmp_path / "outputs")]
    assert execute(words) == 0
    changed(bundle)
    assert execute(words) == 1
    said = capfd.readouterr().err
    assert "bundle.trust" in said and "--trust" in said
    assert execute([*words, "--trust"]) == 0
    assert execute(words) == 0  # it is known from then on


@pytest.mark.parametrize("answer", [True, False])
def test_a_terminal_is_asked(bundle: Path, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    asked: list[str] = []

    def confirm(text: str, **_: Any) -> bool:
        asked.append(text)
        return answer

    check_trust(read(bundle), False)
    changed(bundle)
    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    if answer:
        check_trust(read(bundle), False)
        check_trust(read(bundle), False)
    else:
        with pytest.raises(tinyedge.InputError) as caught:
            check_trust(read(bundle), False)
        assert caught.value.id == "bundle.trust"
    assert len(asked) == 1 and "native code" in asked[0]


def test_kernels_behind_checks_are_not_asked_about(bundle: Path) -> None:
    changed(bundle)
    found = read(bundle)
    for target in ("webgpu", "cpu", "qcom", "cuda"):
        other = replace(found, program=replace(found.program, target=target))
        if target == "webgpu":
            check_trust(other, False)
            continue
        with pytest.raises(tinyedge.InputError):
            check_trust(other, False)


def test_what_was_read_is_what_is_asked_about(bundle: Path) -> None:
    """Another manifest put in the bundle's place after it was read changes nothing."""
    known = (bundle / "manifest.json").read_bytes()
    changed(bundle)
    unknown = read(bundle)
    (bundle / "manifest.json").write_bytes(known)
    with pytest.raises(tinyedge.InputError):
        check_trust(unknown, False)


def test_a_record_that_others_can_write_is_ignored(bundle: Path) -> None:
    trust.record_file().chmod(0o666)
    with pytest.raises(tinyedge.InputError):
        check_trust(read(bundle), False)


def test_the_record_does_not_grow_without_end(bundle: Path) -> None:
    lines = [f"{number:064x}" for number in range(trust.MOST)]
    trust.record_file().write_text("".join(f"{line}\n" for line in lines), "ascii")
    trust.remember("f" * 64)
    assert trust.is_known("f" * 64) and trust.is_known(lines[-1]) and not trust.is_known(lines[0])
    assert len(trust.record_file().read_text("ascii").splitlines()) == trust.MOST // 2


def test_where_nothing_can_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_text("a file")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    export(tmp_path / "e.tinyedge", "cpu")
    (said,) = (r.getMessage() for r in caplog.records if "cannot be recorded" in r.getMessage())
    assert str(tmp_path / "state") in said and "--trust" in said
    with pytest.raises(tinyedge.InputError):
        check_trust(read(export(tmp_path / "f.tinyedge", "cpu")), False)
