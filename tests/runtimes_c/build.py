"""Compiling the C runtime and the programs that test it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tinyedge.export import c_bundle

HERE = Path(__file__).resolve().parent
RUNTIME = [c_bundle.FOLDER / name for name in c_bundle.RUNTIME if name.endswith(".c")]
STRICT = (
    *("-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror"),
    f"-I{c_bundle.FOLDER}",
)
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]


def run(*command: object, **options: object) -> str:
    """What a command prints; AssertionError with all it said if it fails."""
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert result.returncode == 0, f"{' '.join(words)}\n{result.stdout}\n{result.stderr}"
    text: str = result.stdout
    return text


def program(
    out: Path, source: str, flags: Sequence[str] = ("-O1",), *more: object, compiler: str = "gcc"
) -> Path:
    """A test program of this folder, linked with the runtime."""
    run(compiler, *STRICT, *flags, "-o", out, HERE / source, *RUNTIME, *more, "-pthread", "-lm")
    return out
