"""Cases imported, evaluated, compiled and compared; many in one program: compiling costs most."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.imported import import_model
from tests.onnxfuzz.case import Array, Case
from tests.onnxfuzz.oracle import close
from tinyedge.choices import find_target
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.dtype import named
from tinyedge.core.errors import InputError
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Graphs
from tinyedge.export.onnx import ImportedModel

SECONDS = 20  # of processor time for one case


@dataclass(frozen=True)
class Outcome:
    """verdict: pass, refused, wrong, crash. stage: import, evaluate, or the target."""

    case: Case
    verdict: str
    stage: str = ""
    detail: str = ""

    @property
    def failed(self) -> bool:
        return self.verdict in ("wrong", "crash")

    def __str__(self) -> str:
        return f"{self.case.name}: {self.verdict} ({self.stage}): {self.detail}"


class Hang(Exception):
    """More processor time than a case may take."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise Hang after so much processor time."""

    def stop(*_: Any) -> None:
        raise Hang(f"more than {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass(frozen=True)
class Ready:
    """A case as a graph."""

    case: Case
    imported: ImportedModel
    graph: Graph
    refusal: str = ""  # why it cannot have symbolic sizes, where it has none


def ready(case: Case) -> Ready | Outcome:
    """The case imported with symbolic sizes, or at its first sizes where these are refused."""
    try:
        with limited(SECONDS):
            return _imported(case)
    except InputError as error:
        refusal = error.because.splitlines()[0]
        if not case.dims():
            return Outcome(case, "refused", "import", refusal)
    except Exception as error:
        return Outcome(case, "crash", "import", f"{type(error).__name__}: {error}")
    found = ready(first_world(case))
    if isinstance(found, Ready):
        return replace(found, refusal=refusal)
    return found


def first_world(case: Case) -> Case:
    """The case at its first sizes only."""
    return replace(case, values={name: values[:1] for name, values in case.values.items()})


def _imported(case: Case) -> Ready:
    source = case.model().SerializeToString()
    imported = import_model(source, dims=case.dims(), bounds=case.bounds)
    return Ready(case, imported, imported.graph())


def evaluated(some: Ready) -> Outcome:
    """The outcome by the reference evaluator."""
    try:
        with np.errstate(all="ignore"), limited(SECONDS):
            for world in range(some.case.worlds):
                problem = differences(some.case, world, _evaluate(some, world))
                if problem:
                    return Outcome(some.case, "wrong", "evaluate", problem)
    except Exception as error:
        return Outcome(some.case, "crash", "evaluate", f"{type(error).__name__}: {error}")
    return Outcome(some.case, "pass")


def _evaluate(some: Ready, world: int) -> dict[str, Array]:
    case, outputs = some.case, some.imported.outputs
    feeds = case.feeds(world)
    symbols = {}
    for port in some.graph.inputs:
        for size, actual in zip(port.shape, feeds[port.name].shape, strict=True):
            if not isinstance(size, int):
                symbols[size.arg.name] = actual
    nodes = [tensor.node for tensor in outputs.values()]
    found = evaluate(nodes, feeds, symbols, some.imported.counts.nodes)
    return {
        name: named(np.asarray(array), tensor.dtype)
        for (name, tensor), array in zip(outputs.items(), found, strict=True)
    }


def differences(case: Case, world: int, outputs: dict[str, Array]) -> str:
    """What is wrong with the outputs; nothing if they are right."""
    problems = {name: close(outputs[name], case.values[name][world]) for name in case.outputs}
    return "; ".join(f"{name} in world {world}: {why}" for name, why in problems.items() if why)


def compiled(
    some: Sequence[Ready], target: str, device: Device, options: Options
) -> Iterator[Outcome]:
    """The outcomes of cases as one program; where that fails, of halves."""
    if not some:
        return
    try:
        with limited(SECONDS * len(some)):
            results = _run(some, target, device, options)
    except Exception as error:
        if len(some) == 1:
            refused = isinstance(error, InputError)
            detail = error.because.splitlines()[0] if isinstance(error, InputError) else ""
            detail = detail or f"{type(error).__name__}: {error}"
            yield Outcome(some[0].case, "refused" if refused else "crash", target, detail)
            return
        half = len(some) // 2
        yield from compiled(some[:half], target, device, options)
        yield from compiled(some[half:], target, device, options)
        return
    for each, worlds in zip(some, results, strict=True):
        problems = [differences(each.case, n, outputs) for n, outputs in enumerate(worlds)]
        problem = "; ".join(filter(None, problems))
        yield Outcome(each.case, "wrong" if problem else "pass", target, problem)


def _run(
    some: Sequence[Ready], target: str, device: Device, options: Options
) -> list[list[dict[str, Array]]]:
    graphs = {each.case.name: each.graph for each in some}
    program = compile_graph(Graphs(graphs), find_target(target), options).program
    assert program is not None
    with Replay(program, device, poison=True) as replay:
        return [
            [
                replay.run(each.case.feeds(world), each.case.name)
                for world in range(each.case.worlds)
            ]
            for each in some
        ]


def outcome(case: Case, target: str, device: Device | None, options: Options) -> Outcome:
    """One case all the way. device: None for the reference evaluator alone."""
    some = ready(case)
    if isinstance(some, Outcome):
        return some
    found = evaluated(some)
    if found.failed or device is None:
        return found
    return next(compiled([some], target, device, options))


def seconds() -> float:
    """Processor time of this process and its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
