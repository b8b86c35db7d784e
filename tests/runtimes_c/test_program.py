"""The program of a bundle, and what its documentation says of building one's own."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np

from tests.runtimes_c import build
from tests.targets import programs
from tinyedge.core.program.program import Program
from tinyedge.export.package.c_bundle import runtime_files
from tinyedge.export.package.package import write_bundle

ROOT = Path(__file__).resolve().parents[2]


def written(folder: Path, program: Program | None = None) -> Path:
    """A bundle whose output has as many rows as its input n says: at most 8; or of the program."""
    program = program or programs.selection("cpu")
    return write_bundle(program, folder, extras=runtime_files(program))


def test_documented_commands_build(tmp_path: Path) -> None:
    folder = written(tmp_path / "model.tinyedge")
    text = (ROOT / "docs" / "c.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    (cc .+?)(?: {2,}#.*)?$", text, re.MULTILINE)
    assert len(commands) == 3
    build.run(build.CC, *build.STRICT, f"-I{folder}", "-c", folder / "main.c", cwd=folder)
    (folder / "main.o").rename(folder / "program.o")
    for command in commands:
        assert shlex.split(command)[0] == "cc"
        build.run("sh", "-c", command.replace("cc ", f"{build.CC} ", 1), cwd=folder)
    np.full((), 3, np.int32).tofile(folder / "n")
    said = build.run(folder / "program", folder, "--input", f"n={folder / 'n'}")
    assert "[3, 2]" in said


def test_no_times_of_runs_that_fail(tmp_path: Path) -> None:
    folder = written(tmp_path / "model.tinyedge")
    build.run("make", "-s", "-C", folder)
    for n, code in ((8, 0), (9, 2)):
        np.full((), n, np.int32).tofile(folder / "n")
        command = (folder / "build" / "run", folder, "--loop", "3", "--input", f"n={folder / 'n'}")
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == code, done
        assert ("p50" in done.stdout) == (code == 0)
        assert ("9 entries of 8" in done.stderr) == (code == 2)
    for option, refused in (("--device", "adreno"), ("--load-states", "a"), ("--save-states", "a")):
        done = subprocess.run((*command, option, refused), capture_output=True, text=True)
        why = "the only one" if option == "--device" else "the bundle has no states"
        assert done.returncode == 2 and why in done.stderr, done
    np.zeros(2, np.int32).tofile(folder / "n")
    for more, why in (
        ((), "elements of input n are 4 bytes, the file has 8"),
        (("--loop", "2.5"), "--loop: it takes a whole number, 1 to 1e9, not 2.5"),
        (("--threads", "0"), "--threads: it takes a whole number, 1 to 1e9, not 0"),
        (("--hz", "fast"), "--hz: it takes a number, 0.001 to 1e9, not fast"),
        (("--output", f"picked={folder}/none/picked"), "No such file"),
    ):
        done = subprocess.run((*command, *more), capture_output=True, text=True)
        assert done.returncode == 2 and why in done.stderr, done


def test_refusals_say_what_is_taken(tmp_path: Path) -> None:
    folder = written(tmp_path / "model.tinyedge", programs.symbolic("cpu"))
    build.run("make", "-s", "-C", folder)
    np.save(folder / "double.npy", np.zeros((8, 16)))
    np.save(folder / "whole.npy", np.zeros((8, 16), np.float32))
    (folder / "cut.npy").write_bytes((folder / "whole.npy").read_bytes()[:-8])
    (folder / "raw").write_bytes(bytes(504))
    for *words, why in (
        ("--input", "x=double.npy", "double.npy: input x takes float32, '<f4', the file has '<f8'"),
        ("--input", "x=cut.npy", "cut.npy: elements of input x are 512 bytes, the file has 504"),
        (
            *("--symbol", "N=2", "--input", "x=raw"),
            "raw: elements of input x are 128 bytes, the file "
            "has 504; that is --symbol N=2 --symbol M=16",
        ),
        ("--input", "x=none", "none: No such file or directory, for input x"),
        ("--input", "z=whole.npy", "z: no such input; entry main has x, bias"),
        ("--output", "z=z.npy", "z: no such output; entry main has y"),
        ("--entry", "train", "train: no such entry; the bundle has main"),
        ("--symbol", "K=1", "K: no such symbol; the bundle has N, M"),
        ("--symbol", "M=6", "M: it is 4 to 16 by steps of 4, not 6"),
        ("--symbol", "N=9", "N: it is 1 to 8 by steps of 1, not 9"),
        ("--symbol", "N=2x", "N: it is 1 to 8 by steps of 1, not 2x"),
        ("--symbol", "N=2", "--symbol", "N=3", "N: it is given twice"),
        (".", "other.tinyedge", "other.tinyedge: a bundle is given before it"),
    ):
        command = (folder / "build" / "run", *words)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (2, f"{why}\n"), done
