"""Measures growth: export time against nodes, run time against FLOPs, along one size at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

import tinyedge
from tests.bench import cases as bench
from tests.bench import flops
from tests.bench.worker import measure as spend
from tests.study import fits, networks, sides
from tests.study.child import Task
from tests.study.figures import time
from tests.study.sides import Effort, Place, Say, Sides


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
    with Sides(["tinyedge"], 1) as one, Sides(["tinyedge"], 2) as two:
        places = {"one thread": Place(one, "tinyedge"), "two threads": Place(two, "tinyedge")}
        rows = [_row(axis, n, places, effort, say) for axis in chosen for n in AXES[axis].sizes]
    return {
        "study": "scale",
        "machine": sides.machine(),
        "versions": one.versions,
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


def _row(
    axis: str, n: int, places: Mapping[str, Place], effort: Effort, say: Say
) -> dict[str, Any]:
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
    found = sides.compare_places(places, task, right, effort, lambda _: None)
    for each in found.values():
        if "error" in each:
            raise RuntimeError(f"{axis} {n}: {each['error']}")
    one, two = found.values()
    return {
        "axis": axis,
        "n": n,
        "nodes": len(model.graph.node),
        "flops": sum(flops.count(folder / "model.onnx", arrays).values()),
        "export": export,
        "run": one["cpu"]["median"],
        "clock": one["wall"]["median"],
        "two_threads": two["wall"]["median"],
        "off": max(one["off"], two["off"]),
        "launches": sides.launches(bundle),
    }


def slopes(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By axis: how an export grows with the nodes, or with n where there are as many nodes at every
    n, and how a run grows with its FLOPs, on one thread and on two: the power, the line as text.
    """
    made = []
    for axis in dict.fromkeys(row["axis"] for row in rows):
        here = [row for row in rows if row["axis"] == axis]
        over = "nodes" if len({row["nodes"] for row in here}) > 1 else "n"
        made.append(_slope(here, axis, "export", over, 1))
        made += [_slope(here, axis, what, "flops", 10**9) for what in ("run", "two_threads")]
    return made


def _slope(
    rows: Sequence[Mapping[str, Any]], axis: str, what: str, over: str, unit: int
) -> dict[str, Any]:
    points = {row[over]: row[what] for row in rows}
    line = fits.line(points)
    word = {"two_threads": "run on two threads by the clock"}.get(what, what)
    each = {"nodes": "a node", "n": "each of n", "flops": "a GFLOP"}[over]
    return {
        "axis": axis,
        "of": f"{word} against {over}",
        "power": fits.power(points),
        "a": line.a,
        "b": line.b,
        "line": f"{time(line.a)} + {time(line.b * unit)} {each}",
    }
