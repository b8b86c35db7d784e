"""Measures whole models: real ones, the onnx wheel's topologies, random weights, the example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.bench import cases, flops
from tests.study import hand, overhead, sides
from tests.study.child import Task
from tests.study.sides import Effort, Place, Say, Sides

SIDES = ("tinyedge", "avx512", "onnxruntime", "torch", "ncnn", "litert", "tinygrad")
TOGETHER = ("tinyedge", "onnxruntime")  # that run on two threads and on one by turns
DEFAULT = {
    "cpu": SIDES[:-1],
    "qcom": ("tinyedge", "tinygrad"),
    **dict.fromkeys(("webgpu", "cuda"), ("tinyedge",)),
}
Arrays = dict[str, cases.Array]


def measure(
    chosen: Sequence[str],
    names: Sequence[str],
    threads: Sequence[int],
    effort: Effort,
    say: Say,
    refused: Mapping[str, str] | None = None,
    target: str = "cpu",
) -> dict[str, Any]:
    """The report. names: the sides; refused: by side why it is not installed. A model that does not
    export or convert has an error in place of times. target: whose device runs tinyedge's. Of the
    cpu with several numbers of threads also the first two by turns.
    """
    rows: list[dict[str, Any]] = []
    versions: dict[str, str] = {}
    refused = refused or {}
    prepared = {name: _prepare(name, names, say, target) for name in chosen}
    limit: dict[str, Any] = {"clock": "cpu"}
    if target == "cpu":
        limit["fma"] = hand.fma_limit(sides.KERNELS)
    longer = replace(effort, block=max(effort.block, effort.shared))
    for count in threads:
        with Sides(names, count, target) as running:
            if target != "cpu":
                limit = running.ask("tinyedge", "limit", target, effort.patience)
            for name in chosen:
                blocks = longer if count > 1 else effort
                rows.append(_row(name, prepared[name], running, blocks, say, refused))
            versions |= running.versions
    if target == "cpu" and len(threads) > 1:
        limit |= _together(prepared, names, threads[:2], longer, say, refused)
    return {
        "study": "models",
        "target": target,
        **limit,
        "machine": sides.machine(),
        "versions": versions,
        "sides": list(names),
        "threads": list(threads),
        "rows": rows,
    }


@dataclass(frozen=True)
class Prepared:
    """A model on the disk with its bundle, its inputs and the right outputs."""

    task: Task
    right: Arrays
    flops: int
    refused: dict[str, str]  # by side why there is no bundle, or nothing
    launches: int


def _prepare(name: str, names: Sequence[str], say: Say, target: str) -> Prepared:
    say(f"{name}: export")
    case = cases.ALL[name]
    folder = sides.CACHE / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    path, runner = case.path, cases.session(case.path)
    arrays = cases.inputs(case, runner)
    right = cases.expected(runner, arrays)
    bundle = folder / ("model.tinyedge" if target == "cpu" else f"{target}.tinyedge")
    refused = sides.refusals(names, path, bundle, target, dims=dict(case.dims))
    files = sides.save(folder / "inputs", arrays)
    task = Task(path, bundle, files, 1, outputs=tuple(right), target=target)
    work = sum(flops.count(path, arrays).values())
    launches = 0 if refused.get("tinyedge", "no side") else sides.launches(bundle)
    return Prepared(task, right, work, refused, launches)


def _row(
    name: str,
    prepared: Prepared,
    running: Sides,
    effort: Effort,
    say: Say,
    refused: Mapping[str, str],
) -> dict[str, Any]:
    found = sides.compare(
        running,
        running.names,
        prepared.task,
        prepared.right,
        effort,
        lambda side: say(f"{name}, {running.threads} threads: {side}"),
        {**prepared.refused, **refused},
    )
    return {
        "kind": name,
        "size": cases.ALL[name].size,
        "threads": running.threads,
        "flops": prepared.flops,
        "sides": found,
    }


def _together(
    prepared: Mapping[str, Prepared],
    names: Sequence[str],
    threads: Sequence[int],
    effort: Effort,
    say: Say,
    refused: Mapping[str, str],
) -> dict[str, Any]:
    """What a run takes on few threads and on more, in turn: rows whose sides are "side, threads".
    wake: what a launch takes that a second thread is woken for and waited for.
    """
    rows = []
    with Sides(TOGETHER, threads[0]) as few, Sides(TOGETHER, threads[1]) as more:
        places = {
            f"{side}, {running.threads}": Place(running, side)
            for side in TOGETHER
            if side in names
            for running in (few, more)
        }
        for name, model in prepared.items():
            say(f"{name}, {threads[1]} threads beside {threads[0]}")
            why = {**model.refused, **refused}
            found = sides.compare_places(
                places, model.task, model.right, effort, lambda _: None, why
            )
            row = {"kind": name, "size": cases.ALL[name].size, "launches": model.launches}
            rows.append({**row, "sides": found})
    return {"together": rows, "wake": max(0.0, overhead.wake(sides.CACHE / "overhead-cpu"))}
