"""The cpu's threads: the same bytes for any number of them, and no race."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtimes_c import build
from tests.runtimes_c.conftest import write
from tests.runtimes_c.test_resources import with_kernels
from tests.runtimes_c.test_runtime import heavy
from tests.targets import programs

THREAD_SANITIZER = ("-fsanitize=thread", "-g", "-O1")
SANITIZED = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            not build.supports(name, *THREAD_SANITIZER), reason=f"no thread sanitizer of {name}"
        ),
    )
    for name in ("gcc", "clang")
]


@pytest.mark.parametrize("compiler", SANITIZED)
def test_two_contexts_in_two_threads(tmp_path: Path, compiler: str) -> None:
    folder = write(heavy(programs.addition("cpu")), tmp_path / "bundle")
    flags = THREAD_SANITIZER
    program = with_kernels(tmp_path / "threads", folder, "threads.c", *flags, compiler=compiler)
    assert build.run(program, folder, 100) == "agree\n"


@pytest.mark.parametrize("compiler", SANITIZED)
def test_lists_of_commands_under_the_sanitizer(tmp_path: Path, compiler: str) -> None:
    program = build.program(tmp_path / "pool", "pool.c", THREAD_SANITIZER, compiler=compiler)
    for threads in (2, 5):
        assert build.run(program, threads, 200) == "agree\n"


def test_lists_of_commands_by_many_threads(tmp_path: Path) -> None:
    """More than processors, too: what is decided is decided by who runs."""
    program = build.program(tmp_path / "pool", "pool.c", ("-O2",))
    for threads in (1, 2, 3, 8):
        assert build.run(program, threads, 3000) == "agree\n"
