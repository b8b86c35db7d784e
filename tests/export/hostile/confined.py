"""An import in a process of its own, with its time and memory limited and measured.

A server, started once, has imported everything; for each request it forks a process, so that what
is measured is the model's doing alone.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from onnx import ModelProto

from tests.export.hostile.build import Source
from tinyedge.core.errors import InputError
from tinyedge.export.onnx import import_model

CPU_SECONDS = 20  # after which a process is ended
WAITING_SECONDS = 30  # the same, where it waits for something
MEMORY = 2 << 30  # bytes, beyond which it gets no more


@dataclass(frozen=True)
class Answer:
    """How an import ended.

    id: the error's, "imported", or what else ended the process. text: the whole error. cpu: seconds
    of processor time. peak: bytes of memory, the interpreter's own included.
    """

    id: str
    kind: str
    subject: str
    because: str
    next: str
    cpu: float
    peak: int


class Server:
    """Forks a process for every import. Use as a context manager."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def answer(self, source: Source, folder: Path) -> Answer:
        """Import a model; one that is no file yet is given as bytes."""
        path = source
        if not isinstance(source, Path):
            path = folder / "given.bin"
            data = source.SerializeToString() if isinstance(source, ModelProto) else source
            path.write_bytes(data)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(path), path is not source]) + "\n")
        self.process.stdin.flush()
        return Answer(**json.loads(self.process.stdout.readline()))

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def _serve() -> None:
    for line in sys.stdin:
        path, as_bytes = json.loads(line)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            signal.alarm(WAITING_SECONDS)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            with os.fdopen(writer, "w") as stream:
                json.dump(_imported(Path(path), as_bytes), stream)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as stream:
            text = stream.read()
        _, status, usage = os.wait4(child, 0)
        facts = json.loads(text) if text else _ended(os.waitstatus_to_exitcode(status))
        facts |= {"cpu": usage.ru_utime + usage.ru_stime, "peak": usage.ru_maxrss << 10}
        print(json.dumps(facts), flush=True)


def _imported(path: Path, as_bytes: bool) -> dict[str, Any]:
    try:
        import_model(path.read_bytes() if as_bytes else path)
    except InputError as error:
        return {
            "id": error.id,
            "kind": type(error).__name__,
            "subject": error.subject,
            "because": error.because,
            "next": error.next,
        }
    except BaseException as error:
        return _ended(f"{type(error).__name__}: {error}")
    return _ended("imported")


def _ended(how: object) -> dict[str, Any]:
    return {"id": str(how), "kind": "", "subject": "", "because": "", "next": ""}


if __name__ == "__main__":
    _serve()
