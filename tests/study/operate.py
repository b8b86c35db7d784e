"""Measures the operations: each on all sides in turn, beside the machine's two limits."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from tests.bench import cases as bench
from tests.study import fits, hand, overhead, sides
from tests.study.child import Task
from tests.study.operations import Case
from tests.study.sides import Effort, Say, Sides

# Sizes through which t = a + b*n is laid: those that the second cache holds.
FITTED = range(1_000, 100_001)


def measure(
    chosen: Mapping[str, Case],
    names: Sequence[str],
    effort: Effort,
    say: Say,
    *,
    split: bool,
    refused: Mapping[str, str] | None = None,
    target: str = "cpu",
) -> dict[str, Any]:
    """The report. names: the sides; refused: by side why it is not installed. split: also where the
    time of a small run goes. target: whose device runs them. Raises SideError without one.
    """
    with Sides(names, target=target) as running:
        limit = _limit(running, effort)
        rows = [
            _row(case, running, effort, lambda text, n=name: say(f"{n}: {text}"), refused or {})
            for name, case in chosen.items()
        ]
        steps = {"overhead": overhead.measure(running, effort.patience, say)} if split else {}
    return {
        "study": "operations",
        "machine": sides.machine(),
        "versions": running.versions,
        "target": target,
        "sides": list(names),
        **limit,
        "rows": rows,
        "fits": fitted(rows, limit["clock"]),
        **steps,
    }


def _limit(running: Sides, effort: Effort) -> dict[str, Any]:
    """What multiplies and adds reach, by which clock, and on which device."""
    if running.target == "cpu":
        return {"fma": hand.fma_limit(sides.KERNELS), "clock": "cpu"}
    found: dict[str, Any] = running.ask("hand", "limit", running.target, effort.patience)
    return found


def _row(
    case: Case, running: Sides, effort: Effort, say: Say, missing: Mapping[str, str]
) -> dict[str, Any]:
    target = running.target
    folder = sides.CACHE / f"operations-{target}" / case.name.replace(" ", "-").replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "operation.onnx"
    onnx.save(case.make(), model)
    arrays, bundle = case.arrays(), folder / "operation.tinyedge"
    chosen = [side for side in running.names if side in case.sides]
    refused = {**sides.refusals(chosen, model, bundle, target), **missing}
    task = Task(
        model,
        bundle,
        sides.save(folder / "inputs", arrays),
        running.threads,
        case.kind,
        case.numbers,
        sides.KERNELS,
        target=target,
    )
    right = bench.expected(bench.session(model), arrays)
    found = sides.compare(running, chosen, task, right, effort, say, refused)
    shutil.rmtree(folder / "inputs")  # up to gigabytes
    return {
        "kind": case.kind,
        "size": case.size,
        "flops": case.flops,
        "bytes": case.bytes,
        "bound": case.bound,
        "sides": found,
    }


def fitted(rows: Sequence[Mapping[str, Any]], clock: str = "cpu") -> list[dict[str, Any]]:
    """By kind and side a and b of t = a + b*n over rows of one size each, and the n at which the
    side takes as long as tinyedge does.
    """
    points: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        count = _count(row["size"])
        if row["bound"] == "memory" and count in FITTED:
            for side, facts in row["sides"].items():
                if clock in facts:
                    found = points.setdefault((row["kind"], side), {})
                    found[count] = facts[clock]["median"]
    lines = {key: fits.line(found) for key, found in points.items() if len(found) > 1}
    made = []
    for (kind, side), line in lines.items():
        ours = lines.get((kind, "tinyedge"))
        meets = line.meets(ours) if ours is not None and side != "tinyedge" else None
        made.append({"kind": kind, "side": side, "a": line.a, "b": line.b, "equal": meets})
    return made


def _count(size: str) -> int:
    """10K as 10000; 0 for what is no single number."""
    units = {"K": 1_000, "M": 1_000_000}
    number, unit = (size[:-1], units[size[-1]]) if size[-1:] in units else (size, 1)
    return round(float(number) * unit) if number.replace(".", "").isdigit() else 0
