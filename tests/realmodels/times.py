"""One table of what the models of `library` take beside onnxruntime, in this run.

    python -m tests.realmodels.times                           # on cpu, every model
    python -m tests.realmodels.times silero gpt.dynamo --target webgpu

nodes: of the file, those of branches included. cpu: processor seconds of a run, the least of
several, ours and onnxruntime's. error: of max|a-b| / max|b| the greatest over outputs and runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import onnx

import tinyedge
from tests.realmodels import cases, library
from tests.realmodels.inputs import Arrays

COLUMNS = "model nodes launches kernels export ours ort ratio error".split()
WIDTHS = (20, 6, 9, 8, 8, 9, 9, 7, 9)
TRIES = 5


def nodes_of(graph: Any) -> int:
    """The nodes of a graph and of the graphs inside them."""
    inner = (a.g for node in graph.node for a in node.attribute if a.HasField("g"))
    return len(graph.node) + sum(map(nodes_of, inner))


def least(run: Callable[[], Any]) -> float:
    """Processor seconds of the fastest of several calls."""
    best = float("inf")
    for _ in range(TRIES):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def row(name: str, target: str, folder: Path) -> list[str]:
    """A model's line of the table."""
    file = library.ENTRIES[name].load()
    if not isinstance(file, Path):
        onnx.save(file, folder / "m.onnx")
        file = folder / "m.onnx"
    start = time.process_time()
    bundle = library.export(name, file, folder / "b", target=target)
    seconds = time.process_time() - start
    runs = library.feeds(name)
    right = library.expected(name, file)
    with tinyedge.load(bundle) as model:
        outputs = [model.run(arrays) for arrays in runs]
        ours = least(lambda: model.run(runs[-1]))
    theirs = least(lambda: library.reference(name, file, runs)) / len(runs)
    errors = [_errors(got, want) for got, want in zip(outputs, right, strict=True)]
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    launches = sum(step["op"] == "launch" for step in manifest["steps"])
    return [
        name,
        str(nodes_of(onnx.load(file, load_external_data=False).graph)),
        str(launches),
        str(len(manifest["kernels"])),
        f"{seconds:.1f} s",
        f"{1e3 * ours:.2f} ms",
        f"{1e3 * theirs:.2f} ms",
        f"{ours / theirs:.1f}x",
        f"{max(errors):.1e}",
    ]


def _errors(got: Arrays, want: Arrays) -> float:
    return max(cases.errors({name: got[name] for name in want}, want).values())


def line(cells: Iterable[str]) -> str:
    first, *others = (f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
    return "  ".join([first.strip().ljust(WIDTHS[0]), *others])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.realmodels.times",
        description="Export and run the models of the library; print one table.",
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(library.ENTRIES))
    parser.add_argument("--target", default="cpu")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.models) - set(library.ENTRIES))
    if unknown:
        parser.error(f"no such model: {', '.join(unknown)}")
    print(line(COLUMNS))
    for name in given.models or library.ENTRIES:
        with tempfile.TemporaryDirectory() as folder:
            print(line(row(name, given.target, Path(folder))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
