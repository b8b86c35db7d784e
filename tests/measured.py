"""Python code in a process of its own, of which time and memory are limited."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path


def processor_seconds(code: str, *arguments: object, seconds: int, memory: int = 1 << 40) -> float:
    """The processor time that a program took, its start included, and those it started.

    seconds: of processor time, memory: bytes that are its own (files that are mapped do not count);
    beyond these it fails. Whatever makes it fail is an AssertionError with what it printed.
    """

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))

    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parent.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=limit,
    ) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"it ended with {process.returncode}:\n{printed[-4000:]}"
    return usage.ru_utime + usage.ru_stime
