"""Processor time: of Python code in a process of its own, and how much of it is too much."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

# What `_yardstick` takes on the machine whose seconds the limits of the tests are.
YARDSTICK_SECONDS = 0.25


def within(spent: float, seconds: float) -> bool:
    """Whether processor time is below a limit, which a slower machine reaches later.

    Machines differ, and so does one from minute to minute, where others share its processors. So
    what is over the limit is compared with fixed work, measured at once.
    """
    return spent < seconds or spent < seconds * _yardstick() / YARDSTICK_SECONDS


def _yardstick() -> float:
    """The processor time of a fixed piece of work like a compiler's: tuples and a dictionary."""
    start = time.process_time()
    seen: dict[tuple[int, ...], int] = {}
    for number in range(600_000):
        key = (number % 65_521, number % 7, number % 3)
        seen[key] = seen.get(key, 0) + len(key)
    return time.process_time() - start


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
