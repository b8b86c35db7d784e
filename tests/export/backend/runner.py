"""Cases run: by the reference evaluator, or compiled for a target and run on its device.

Floats are kept in full, also where a target's bundles hold halves unless asked otherwise. Many
cases are one program, an entry each: equal kernels are compiled once, and all of them by one call
of the device's compiler. Where a program is refused, its cases are run as two programs, and so on
down to the case that is at fault.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.export.backend.cases import Array, Case, Imported, cases, difference, imported
from tinyedge.choices import find_target
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.dtype import named
from tinyedge.core.errors import InputError
from tinyedge.core.ir import ops
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.rewrite import replaced
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Program
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Graphs, Port
from tinyedge.export.package.package import write_bundle
from tinyedge.export.verify.browser import Browser, BrowserRunError

PLACES = ("reference", "cpu", "webgpu", "qcom", "cuda", "chromium")
TOGETHER = 32  # cases in one program
RANDOM = "random numbers: types and shapes are compared"

# Runs the entries of a program, each with the arrays of its inputs; its outputs by name.
Run = Callable[[Program, dict[str, dict[str, Any]]], list[dict[str, Array]]]


@dataclass(frozen=True)
class Outcome:
    """verdict: pass, refused, wrong or crash."""

    name: str
    verdict: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.verdict}: {self.detail}" if self.detail else self.verdict


def choose(pattern: str = "", first: int = 0, every: int = 1) -> list[Case]:
    """Of the cases whose name has the pattern in it, every so many."""
    return [case for case in cases() if re.search(pattern, case.name)][first::every]


def by_reference(chosen: Iterable[Case], symbolic: bool = False) -> Iterator[Outcome]:
    """The cases' outcomes by the reference evaluator. symbolic: with symbolic input sizes."""
    for case in chosen:
        ready = imported_once(case, symbolic)
        if isinstance(ready, Imported):
            yield _evaluated(ready)
        else:
            yield ready


def compiled(
    chosen: Iterable[Case], target: str, run: Run, alone: Collection[str] = ()
) -> Iterator[Outcome]:
    """The cases' outcomes, compiled for a target. alone: those in a program of their own."""
    together: list[Imported] = []
    for case in chosen:
        ready = imported_once(case)
        if not isinstance(ready, Imported):
            yield ready
        elif case.name in alone:
            yield from _together([ready], target, run)
        else:
            together.append(ready)
        if len(together) == TOGETHER:
            yield from _together(together, target, run)
            together = []
    yield from _together(together, target, run)


def on_device(device: Device) -> Run:
    """How programs are run on an open device."""

    def run(program: Program, feeds: dict[str, dict[str, Any]]) -> list[dict[str, Array]]:
        with Replay(program, device, poison=True) as replay:
            return [replay.run(arrays, entry) for entry, arrays in feeds.items()]

    return run


def in_browser(browser: Browser, folder: Path) -> Run:
    """How programs are run in a browser, as a bundle in an empty folder."""

    def run(program: Program, feeds: dict[str, dict[str, Any]]) -> list[dict[str, Array]]:
        bundle = write_bundle(program, folder / "cases")
        try:
            outputs, _ = browser.run_in_page(bundle, list(feeds.values()), entry=list(feeds))
        finally:
            shutil.rmtree(bundle)
        return list(outputs)

    return run


@cache
def imported_once(case: Case, symbolic: bool = False) -> Imported | Outcome:
    """The case as a graph, or its outcome where it cannot be one."""
    try:
        return imported(case, symbolic)
    except Exception as error:
        return failed(case, error)


def _evaluated(ready: Imported) -> Outcome:
    nodes = [port.node for port in _ports(ready) if port.node is not None]
    try:
        with np.errstate(all="ignore"):
            outputs = evaluate(nodes, ready.read, ready.sizes, ready.graph.counts)
    except Exception as error:
        return failed(ready.case, error)
    return compared(ready, outputs)


def _ports(ready: Imported) -> list[Port]:
    """The ports of the model's outputs."""
    ports = {port.name: port for port in ready.graph.outputs}
    return [ports[name] for name in ready.outputs]


def _together(some: Sequence[Imported], target: str, run: Run) -> Iterator[Outcome]:
    """The outcomes of cases that are one program."""
    if not some:
        return
    feeds = {
        ready.case.name: {f"{ready.case.name}/{name}": v for name, v in ready.read.items()}
        for ready in some
    }
    try:
        graphs = {ready.case.name: prefixed(ready.graph, ready.case.name) for ready in some}
        program = compile_graph(Graphs(graphs), find_target(target)).program
        assert program is not None
        results = run(program, feeds)
    except Exception as error:
        if len(some) == 1:
            yield failed(some[0].case, error)
            return
        half = len(some) // 2
        yield from _together(some[:half], target, run)
        yield from _together(some[half:], target, run)
        return
    for ready, outputs in zip(some, results, strict=True):
        names = [f"{ready.case.name}/{name}" for name in ready.outputs]
        yield compared(ready, [outputs[name] for name in names])


def prefixed(graph: Graph, prefix: str) -> Graph:
    """The graph with other names of its ports: entries share ports of one name."""
    renamed: dict[UOp, UOp] = {}
    roots = [port.node for port in graph.outputs if port.node is not None]
    for node in toposort([*roots, *graph.counts.values()]):
        if node.op is ops.BUFFER and node.arg.source.kind == "input":
            source = node.arg.source
            source = replace(source, name=f"{prefix}/{source.name}")
            renamed[node] = UOp(node.op, node.dtype, (), replace(node.arg, source=source))
    done = replaced([*roots, *graph.counts.values()], renamed)

    def port(old: Port) -> Port:
        count = f"{prefix}/{old.count}" if old.count else ""
        node = None if old.node is None else done[old.node]
        return replace(old, name=f"{prefix}/{old.name}", node=node, count=count)

    return Graph(
        tuple(map(port, graph.inputs)),
        tuple(map(port, graph.outputs)),
        {done[node]: name for node, name in graph.names.items() if node in done},
        counts={name: done[node] for name, node in graph.counts.items()},
    )


def compared(ready: Imported, outputs: Sequence[Array]) -> Outcome:
    """The outcome of a case that gave these outputs."""
    types = [port.dtype for port in _ports(ready)]
    named_outputs = [named(array, dtype) for array, dtype in zip(outputs, types, strict=True)]
    with np.errstate(all="ignore"):
        problem = difference(ready.case, named_outputs, not ready.draws)
    name, said = ready.case.name, RANDOM if ready.draws else ready.fixed
    return Outcome(name, "wrong", problem) if problem else Outcome(name, "pass", said)


def failed(case: Case, error: Exception) -> Outcome:
    """Refused, if the error is one that is raised on purpose for what cannot be done."""
    at_run = isinstance(error, BrowserRunError) and error.id.startswith("run.")
    if isinstance(error, InputError) or at_run:
        return Outcome(case.name, "refused", error.because.splitlines()[0])
    return Outcome(case.name, "crash", f"{type(error).__name__}: {error}")
