"""Cases through the front door, as a user takes it: a file is exported, the bundle loaded and run.

The runner compiles the graph of a case beside others; what only `export_onnx`, `load` and the
command line do, it does not see. Here each case is done alone, in a worker process whose memory is
limited, and whose processor time is limited for each case: what hangs, ends the worker and is a
crash; another worker does the cases after it.

Inputs that have to be constants are stored in the model. Cases with sequences, or with nothing, as
an input are left out: no file and no bundle can hold these.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, numpy_helper

from tests.export.backend.cases import ATTEMPTS, Array, Asked, Case, Imported, asked, cases
from tests.export.backend.runner import Outcome, compared, failed, imported_once
from tinyedge import export_onnx, load
from tinyedge.cli import tinyedge
from tinyedge.core.dtype import codes

CPU_SECONDS = 60  # of a case, after which its process is ended
PATIENCE = "TINYEDGE_FRONT_SECONDS"  # of the environment: other seconds than these
WAITING_SECONDS = 300  # the same, where it waits for something
MEMORY = 4 << 30  # bytes of a process, beyond which it gets no more
WAYS = ("python", "commands")


def outcomes(chosen: Sequence[Case], target: str, way: str = "python") -> Iterator[Outcome]:
    """The cases' outcomes through the front door: functions of Python, or commands."""
    waiting = [case.name for case in chosen]
    while waiting:
        command = [sys.executable, "-W", "ignore", "-m", __name__, target, way]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as worker:
            assert worker.stdin is not None and worker.stdout is not None
            json.dump(waiting, worker.stdin)
            worker.stdin.close()
            for line in worker.stdout:
                found = json.loads(line)
                waiting.remove(found["name"])
                if found["verdict"]:
                    yield Outcome(**found)
        if waiting:
            yield Outcome(waiting.pop(0), "crash", f"its process ended with {worker.returncode}")


def _work(target: str, way: str) -> None:
    """Do the cases that are named on standard input; print a line for each."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    through = {"python": _by_functions, "commands": _by_commands}[way]
    wanted = set(json.load(sys.stdin))
    seconds = float(os.environ.get(PATIENCE, CPU_SECONDS))
    for case in cases():
        if case.name not in wanted:
            continue
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.alarm(WAITING_SECONDS)
        with tempfile.TemporaryDirectory(prefix="tinyedge-front-") as folder:
            outcome = _outcome(case, target, through, Path(folder))
        print(json.dumps(vars(outcome)), flush=True)


def _outcome(case: Case, target: str, through: Any, folder: Path) -> Outcome:
    ready = imported_once(case)
    fixed = ready.fixed if isinstance(ready, Imported) else ""
    ask = asked(case, next(constant for constant, name in ATTEMPTS if name == fixed))
    if not all(isinstance(value, np.ndarray) for value in ask.feeds.values()):
        return Outcome(case.name, "")
    path = folder / "model.onnx"
    path.write_bytes(_with_constants(ask).SerializeToString())
    feeds = ready.feeds if isinstance(ready, Imported) else {}
    try:
        outputs = through(path, target, ask.dims, feeds)
    except Exception as error:
        return failed(case, error)
    assert isinstance(ready, Imported)
    return compared(ready, [outputs[name] for name in ready.outputs])


def _with_constants(ask: Asked) -> ModelProto:
    """The model with its constants stored in it."""
    graph = ask.model.graph
    kept = [value for value in graph.input if value.name not in ask.constants]
    del graph.input[:]
    graph.input.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in ask.constants.items())
    return ask.model


def _by_functions(
    path: Path, target: str, dims: Mapping[str, int | str], feeds: Mapping[str, Any]
) -> Mapping[str, Array]:
    bundle = export_onnx(path, target=target, dims=dims, out=path.with_name("b"), golden=False)
    with load(bundle) as model:
        outputs: dict[str, Array] = model.run(feeds)
    return outputs


def _by_commands(
    path: Path, target: str, dims: Mapping[str, int | str], feeds: Mapping[str, Any]
) -> Mapping[str, Array]:
    bundle = path.with_name("b")
    sizes = [word for name, size in dims.items() for word in ("--dim", f"{name}={size}")]
    _command("export", str(path), "-t", target, "-o", str(bundle), *sizes)
    inputs = []
    for number, (name, value) in enumerate(feeds.items()):
        file = path.with_name(f"{number}.npy")
        np.save(file, codes(value))
        inputs += ["--input", f"{name}={file}"]
    said = _command("run", str(bundle), *inputs, "-o", str(path.with_name("outputs")), "--json")
    return {n: np.load(facts["file"]) for n, facts in json.loads(said)["outputs"].items()}


def _command(*words: str) -> str:
    """What a command prints; an error is raised as it is."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        tinyedge.main([*words], standalone_mode=False)
    return said.getvalue()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    _work(*sys.argv[1:])
