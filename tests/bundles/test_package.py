"""An export that fails, is killed or meets a full disk leaves the old bundle or nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bundles import programs
from tinyedge.core.errors import InputError
from tinyedge.export.bundle import read
from tinyedge.export.package import PARTIAL, STALE_SECONDS, write_bundle

ROOT = Path(__file__).resolve().parents[2]

EXPORT = """
import os, resource, signal, sys
from tests.bundles import programs
from tinyedge.export.package import write_bundle

out, how = sys.argv[1:]
calls = 0

def progress(done, total):
    global calls
    calls += 1
    if how == "kill" and calls == 3:
        os.kill(os.getpid(), signal.SIGKILL)

if how == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
weights = tuple(programs.weight(f"w{n}", 1 << 18, n) for n in range(4))
write_bundle(programs.plain(weights), out, progress=progress)
"""


def export(out: Path, how: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", EXPORT, str(out), how]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_bundle_is_written_with_its_extras(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>hello</p>")
    out = tmp_path / "new" / "model"
    extras = {"index.html": page, "src/tinyedge.js": b"export {}"}
    assert write_bundle(programs.plain(), out, extras=extras) == out
    assert (out / "index.html").read_text() == "<p>hello</p>"
    assert (out / "src" / "tinyedge.js").read_bytes() == b"export {}"
    read(out)
    assert [path.name for path in out.parent.iterdir()] == ["model"]
    assert out.stat().st_mode & 0o777 == out.parent.stat().st_mode & 0o777


@pytest.mark.parametrize("name", ["manifest.json", "kernels.wgsl", "../x", "/x", "", "a//b", ".x"])
def test_extras_cannot_leave_or_replace(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        write_bundle(programs.plain(), tmp_path / "out", extras={name: b""})
    assert caught.value.id == "export.extra"


def test_an_old_bundle_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "model"
    write_bundle(programs.plain(), out, extras={"index.html": b"old"})
    write_bundle(programs.everything(), out, extras={"index.html": b"new"})
    assert read(out).program.kernels[1].name == "count_1"
    assert (out / "index.html").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_empty_folder_and_a_link_to_a_bundle_are_replaced(tmp_path: Path) -> None:
    out = tmp_path / "model"
    out.mkdir()
    write_bundle(programs.plain(), out)
    (tmp_path / "link").symlink_to(out)
    write_bundle(programs.everything(), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert read(out).program.target == "webgpu"
    assert len(read(out).program.entries) == 2


def test_the_current_folder_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell that stands in it would be left in a folder that is gone."""
    write_bundle(programs.plain(), tmp_path / "m", extras={"src/a.js": b""})
    for folder in (tmp_path / "m", tmp_path / "m" / "src"):
        monkeypatch.chdir(folder)
        before = snapshot(tmp_path / "m" / "src")
        with pytest.raises(InputError, match="current folder"):
            write_bundle(programs.plain(), tmp_path / "m", extras={"src/a.js": b"new"})
        assert snapshot(tmp_path / "m" / "src") == before
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(InputError, match="current folder"):
        write_bundle(programs.plain(), ".")


def test_what_is_no_bundle_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter-1.tex").write_text("It was a dark and stormy night.")
    with pytest.raises(InputError) as caught:
        write_bundle(programs.plain(), out, force=True)
    assert caught.value.id == "export.exists"
    assert [path.name for path in out.iterdir()] == ["chapter-1.tex"]
    file = tmp_path / "file"
    file.write_text("a file")
    with pytest.raises(InputError) as caught:
        write_bundle(programs.plain(), file, force=True)
    assert caught.value.id == "export.exists"
    assert file.read_text() == "a file"


def test_files_that_a_user_added_need_force(tmp_path: Path) -> None:
    out = tmp_path / "model"
    write_bundle(programs.plain(), out)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt") as caught:
        write_bundle(programs.plain(), out)
    assert caught.value.id == "export.foreign"
    assert (out / "notes.txt").read_text() == "mine"
    write_bundle(programs.plain(), out, force=True)
    assert not (out / "notes.txt").exists()


@pytest.mark.parametrize("old", [True, False])
def test_a_killed_export_leaves_the_old_bundle_or_none(tmp_path: Path, old: bool) -> None:
    out = tmp_path / "model"
    if old:
        write_bundle(programs.everything(), out)
    before = snapshot(out) if old else {}
    assert export(out, "kill").returncode == -9
    assert out.exists() == old
    assert (snapshot(out) if old else {}) == before
    assert export(out, "").returncode == 0
    assert len(read(out).program.weights) == 4


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on file sizes")
def test_a_full_disk_leaves_the_old_bundle_and_no_rubbish(tmp_path: Path) -> None:
    out = tmp_path / "model"
    write_bundle(programs.everything(), out)
    before = snapshot(out)
    result = export(out, "full")
    assert result.returncode == 1
    assert "[export.write]" in result.stderr
    assert snapshot(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), MemoryError()]
)
def test_a_failure_at_any_byte_leaves_no_rubbish(tmp_path: Path, error: BaseException) -> None:
    def fail(done: int, total: int) -> None:
        if done == total:
            raise error

    wanted = InputError if isinstance(error, OSError) else type(error)
    with pytest.raises(wanted):
        write_bundle(programs.plain(), tmp_path / "model", progress=fail)
    assert not list(tmp_path.iterdir())


def test_a_failed_rename_brings_the_old_bundle_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model"
    write_bundle(programs.everything(), out)
    before = snapshot(out)
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if target == out and "-old" not in self.name:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(KeyboardInterrupt):
        write_bundle(programs.plain(), out)
    assert snapshot(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_a_killed_export_left_is_removed_once_old(tmp_path: Path) -> None:
    for name, age in (("old", STALE_SECONDS + 60), ("new", 60)):
        folder = tmp_path / f".model-{name}{PARTIAL}"
        folder.mkdir()
        os.utime(folder, (time.time() - age,) * 2)
    write_bundle(programs.plain(), tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".model-new{PARTIAL}", "model"]
