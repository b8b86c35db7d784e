"""Commands in a process of their own, in which CUDA kernels run under g++'s sanitizers."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def library() -> str:
    """The address sanitizer's library, which a process must be started with."""
    command = ["g++", "-print-file-name=libasan.so"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments. Python's own memory is not looked at for leaks."""
    environment = {**os.environ, "LD_PRELOAD": library(), "ASAN_OPTIONS": "detect_leaks=0"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
