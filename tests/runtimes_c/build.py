"""Compiling the C runtime and the programs that test it."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tinyedge.export.package import c_bundle

HERE = Path(__file__).resolve().parent


def sources(target: str = "cpu") -> list[Path]:
    """The runtime with one backend."""
    names = (*c_bundle.RUNTIME, *c_bundle.BACKENDS[target].files)
    return [c_bundle.FOLDER / name for name in names if name.endswith(".c")]


RUNTIME = sources()
# Linked only where a program calls it.
OPTIONAL = [c_bundle.FOLDER / name for name in c_bundle.OPTIONAL if name.endswith(".c")]
STRICT = (
    *("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"),
    f"-I{c_bundle.FOLDER}",
)
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
CC = next(iter(COMPILERS), "cc")


def run(*command: object, **options: object) -> str:
    """What a command prints; AssertionError with all it said if it fails."""
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert result.returncode == 0, f"{' '.join(words)}\n{result.stdout}\n{result.stderr}"
    text: str = result.stdout
    return text


def supports(compiler: str, *flags: str, text: str = "int main(void) { return 0; }") -> bool:
    """Whether a compiler is there and links with these flags, sanitizers for instance."""
    if not shutil.which(compiler):
        return False
    command = [compiler, *flags, "-x", "c", "-", "-o", "/dev/null"]
    return not subprocess.run(command, input=text, text=True, capture_output=True).returncode


@cache
def sanitized() -> tuple[str, tuple[str, ...]]:
    """A compiler and flags that find faults; no such flags where no compiler has them."""
    for compiler in ("clang", "gcc"):
        if supports(compiler, *SANITIZE):
            return compiler, SANITIZE
    return CC, ("-O1",)


@cache
def _folder() -> Path:
    """Where object files lie until the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="tinyedge-objects-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _object(source: Path, compiler: str, flags: tuple[str, ...]) -> Path:
    out = _folder() / f"{source.stem}-{len(list(_folder().iterdir()))}.o"
    run(compiler, *STRICT, *flags, "-c", "-o", out, source)
    return out


def objects(compiler: str, flags: Sequence[str], target: str = "cpu") -> list[Path]:
    """The runtime with one backend as object files, each compiled once in a process."""
    return [_object(source, compiler, tuple(flags)) for source in (*sources(target), *OPTIONAL)]


def program(
    out: Path, source: str, flags: Sequence[str] = ("-O1",), *more: object, compiler: str = CC
) -> Path:
    """A test program of this folder, linked with the runtime."""
    runtime = objects(compiler, [flag for flag in flags if not flag.startswith("-I")])
    run(compiler, *STRICT, *flags, "-o", out, HERE / source, *runtime, *more, "-pthread", "-lm")
    return out
