"""An import, or a whole command, in a process of its own, whose time and memory are limited.

A server, started once, has imported everything; for each request it forks a process, so that what
is measured is the model's doing alone.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import ModelProto

from tests.export.hostile.build import Source, model, node
from tests.imported import import_model
from tinyedge.cli import tinyedge
from tinyedge.core.errors import InputError

CPU_SECONDS = 20  # after which a process is ended
WAITING_SECONDS = 30  # the same, where it waits for something
MEMORY = 2 << 30  # bytes, beyond which it gets no more


@dataclass(frozen=True)
class Answer:
    """How an import ended."""

    # the error's, "imported", or what else ended the process; "refused" of an inspection that says
    # so
    id: str
    kind: str
    subject: str
    because: str
    next: str
    cpu: float  # seconds of processor time
    peak: int  # bytes of memory, the interpreter's own included


class Server:
    """Forks a process for every import. Use as a context manager."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def answer(
        self, source: Source, folder: Path, command: str = "import", options: Sequence[str] = ()
    ) -> Answer:
        """Import a model; one that is no file yet is given as bytes.

        command: "inspect" or "export" for these, of the command line and with these options.
        """
        path = source
        if not isinstance(source, Path):
            path = folder / "given.bin"
            data = source.SerializeToString() if isinstance(source, ModelProto) else source
            path.write_bytes(data)
        assert self.process.stdin is not None and self.process.stdout is not None
        request = [str(path), path is not source, command, list(options)]
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return Answer(**json.loads(self.process.stdout.readline()))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def _load() -> None:
    """Use everything once, so that no process has to import it."""
    relu = model([node("Relu", ["x"])])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "relu.onnx"
        path.write_bytes(relu.SerializeToString())
        for command in ("inspect", "export"):
            _command(path, command, [])


def _serve() -> None:
    _load()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        path, as_bytes, command, options = json.loads(line)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            signal.alarm(WAITING_SECONDS)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            with os.fdopen(writer, "w") as stream:
                json.dump(_done(Path(path), as_bytes, command, options), stream)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as stream:
            text = stream.read()
        _, status, usage = os.wait4(child, 0)
        facts = json.loads(text) if text else _ended(os.waitstatus_to_exitcode(status))
        facts |= {"cpu": usage.ru_utime + usage.ru_stime, "peak": usage.ru_maxrss << 10}
        print(json.dumps(facts), flush=True)


def _done(path: Path, as_bytes: bool, command: str, options: list[str]) -> dict[str, Any]:
    try:
        if command == "import":
            import_model(path.read_bytes() if as_bytes else path)
        elif refused := _command(path, command, options):
            return {**_ended("refused"), "because": refused}
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


def _command(path: Path, command: str, options: list[str]) -> str:
    """Run a command on a model; what it printed where that says that something is refused."""
    if command == "export":
        options = [*options, "--out", str(path.with_name("bundle"))]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        code = tinyedge.main([command, str(path), "-t", "cpu", *options], standalone_mode=False)
    return said.getvalue() if code else ""


def _ended(how: object) -> dict[str, Any]:
    return {"id": str(how), "kind": "", "subject": "", "because": "", "next": ""}


if __name__ == "__main__":
    _serve()
