"""Measures growth: export time against nodes, run time against FLOPs, along one size at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx

import tinyedge
from tests.bench import cases as bench
from tests.bench import flops
from tests.bench.worker import measure as spend
from tests.study import fits, networks, sides
from tests.study.child import Task
from tests.study.figures import time
from tests.study.sides import Effort, Say, Sides


@dataclass(frozen=True)
class Axis:
    """A size that grows, and the network of that size."""

    sizes: Sequence[int]
    make: Callable[[int], Any]


AXES: Mapping[str, Axis] = {
    "layers": Axis((2, 4, 8, 16, 32, 64), lambda n: networks.plain(layers=n)),
    "encoder layers": Axis((2, 4, 8, 16), lambda n: networks.bert(64, n, 128)),
    "sequence": Axis(tuple(64 * 2**n for n in range(7)), lambda n: networks.bert(n, 2, 256)),
    "image": Axis((64, 128, 256, 512, 1024), lambda n: networks.plain(4, n, 16)),
}


def measure(chosen: Sequence[str], effort: Effort, say: Say) -> dict[str, Any]:
    """The report."""
    _export(networks.plain(2), "warm")  # loads what an export needs
    with Sides(["tinyedge"]) as running:
        rows = [_row(axis, n, running, effort, say) for axis in chosen for n in AXES[axis].sizes]
    return {
        "study": "scale",
        "machine": sides.machine(),
        "versions": running.versions,
        "rows": rows,
        "slopes": slopes(rows),
    }


def _export(model: Any, name: str) -> float:
    """CPU seconds of an export, with no compiler of C in them."""
    folder = sides.CACHE / "scale" / name
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    options: dict[str, Any] = {"target": "cpu", "golden": False, "force": True}
    out = folder / "model.tinyedge"
    return spend(lambda: tinyedge.export_onnx(folder / "model.onnx", out=out, **options), 1)["cpu"]


def _row(axis: str, n: int, running: Sides, effort: Effort, say: Say) -> dict[str, Any]:
    say(f"{axis} {n}")
    model = AXES[axis].make(n)
    name = f"{axis}-{n}".replace(" ", "-")
    export = _export(model, name)
    folder = sides.CACHE / "scale" / name
    bundle = folder / "model.tinyedge"
    sides.build(bundle)
    arrays = networks.feeds(model)
    right = bench.expected(bench.session(folder / "model.onnx"), arrays)
    task = Task(folder / "model.onnx", bundle, sides.save(folder / "inputs", arrays), 1)
    found, two = (
        sides.compare(running, ["tinyedge"], each, right, effort, lambda _: None)["tinyedge"]
        for each in (task, replace(task, threads=2))
    )
    for each in (found, two):
        if "error" in each:
            raise RuntimeError(f"{axis} {n}: {each['error']}")
    steps = json.loads((bundle / "manifest.json").read_text("ascii"))["steps"]
    return {
        "axis": axis,
        "n": n,
        "nodes": len(model.graph.node),
        "flops": sum(flops.count(folder / "model.onnx", arrays).values()),
        "export": export,
        "run": found["cpu"]["median"],
        "two_threads": two["wall"]["median"] / found["wall"]["median"],
        "off": found["off"],
        "launches": sum(step["op"] == "launch" for step in steps),
    }


def slopes(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By axis: how an export grows with the nodes, or with n where there are as many nodes at every
    n, and how a run grows with its FLOPs: the power, and the line as text.
    """
    made = []
    for axis in dict.fromkeys(row["axis"] for row in rows):
        here = [row for row in rows if row["axis"] == axis]
        over = "nodes" if len({row["nodes"] for row in here}) > 1 else "n"
        made.append(_slope(here, axis, "export", over, 1))
        made.append(_slope(here, axis, "run", "flops", 10**9))
    return made


def _slope(
    rows: Sequence[Mapping[str, Any]], axis: str, what: str, over: str, unit: int
) -> dict[str, Any]:
    points = {row[over]: row[what] for row in rows}
    line = fits.line(points)
    each = {"nodes": "a node", "n": "each of n", "flops": "a GFLOP"}[over]
    return {
        "axis": axis,
        "of": f"{what} against {over}",
        "power": fits.power(points),
        "a": line.a,
        "b": line.b,
        "line": f"{time(line.a)} + {time(line.b * unit)} {each}",
    }
