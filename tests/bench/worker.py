"""A side in a process of its own, which answers requests: both ends of the pipe, and its clock.

Requests and answers are pickled, on the process's standard input and output.
"""

from __future__ import annotations

import os
import pickle
import resource
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

PATIENCE = 900.0  # seconds until a side must have answered


class SideError(Exception):
    """A side that gives no answer, with what it said."""


class Worker:
    """A process that was started by `command` and calls `serve`."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._said = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, **environment},
        )

    def ask(self, request: object, patience: float = PATIENCE) -> Any:
        """What it answers within so many seconds. Raises SideError."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
            self._wait(patience)
            answer = pickle.load(self._process.stdout)
        except (BrokenPipeError, EOFError):
            status = self._process.wait()
            self._said.seek(0)
            said = self._said.read().decode(errors="replace").strip()[-200:]
            raise SideError(f"the process ended with {status}: {said}") from None
        if "error" in answer:
            raise SideError(answer["error"])
        return answer

    def _wait(self, patience: float) -> None:
        with selectors.DefaultSelector() as selector:
            assert self._process.stdout is not None
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(patience):
                self._process.kill()
                raise SideError(f"nothing after {patience:.0f} s")

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._said.close()


def serve(handle: Callable[[Any], dict[str, Any]]) -> None:
    """Answer each request until there are no more; by its `error` where handling it fails."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = handle(request)
        except Exception as error:
            answer = {"error": _told(error)}
        pickle.dump(answer, answers)
        answers.flush()


def _told(error: Exception) -> str:
    """What an error says, after its type: one of tinyedge begins with it, and has lines of its own;
    of others two.
    """
    kind, said = f"{type(error).__name__}:", str(error).strip()
    return said if said.startswith(kind) else " ".join([kind, *said.splitlines()[:2]])


def spent() -> float:
    """CPU seconds of this process so far, with those of compilers that it called."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Clock:
    """Calls steps, and keeps the wall seconds that a call of each has taken, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def __call__(self, name: str, call: Callable[[], Any], times: int = 1) -> Any:
        """What the last of so many calls gives; their mean is one figure."""
        start = time.perf_counter()
        for _ in range(times):
            result = call()
        self.seconds.setdefault(name, []).append((time.perf_counter() - start) / times)
        return result


def measure(function: Callable[[], object], times: int) -> dict[str, float]:
    """CPU and wall seconds of so many calls."""
    cpu, wall = spent(), time.perf_counter()
    for _ in range(times):
        function()
    return {"cpu": spent() - cpu, "wall": time.perf_counter() - wall}
