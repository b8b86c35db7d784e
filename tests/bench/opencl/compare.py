"""One model on all sides: exported, started, measured in turn, compared with onnxruntime."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench import cases
from tests.bench.cases import CACHE, Array, Case
from tests.bench.compare import export
from tests.bench.opencl import peer
from tests.bench.opencl.process import Child, caches, driver
from tests.bench.side import middle
from tests.bench.worker import SideError
from tinyedge.core.errors import TinyedgeError

TOLERANCES = {"fp32": 1e-4, "fp16": 2e-2}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Side:
    """How a model is run."""

    name: str
    runner: str  # of child.RUNNERS
    driver: str = "pocl"
    profile: str = "buffers"
    precision: str = "fp32"

    def bundle(self, case: Case) -> Path:
        return CACHE / f"{case.model}-{self.profile}-{self.precision}.tinyedge"


PEER = Side("tinygrad", "tinygrad")
OURS = Side("tinyedge", "c")
PROCESSOR = Side("tinyedge for a processor", "c", profile="processor")
MAIN = (PEER, OURS, Side("tinyedge by Python", "python"), PROCESSOR)
IMAGES = tuple(
    Side(f"images, {precision}, {name}", "c", driver, "default", precision)
    for driver, name in (("pocl", "PoCL"), ("intel", "Intel"))
    for precision in ("fp32", "fp16")
)


@dataclass(frozen=True)
class Effort:
    """rounds: blocks of runs a side, in turn. block: CPU seconds of each."""

    rounds: int = 5
    block: float = 0.5


def compare(case: Case, effort: Effort, sides: tuple[Side, ...], say: Say) -> dict[str, Any]:
    """Everything about one case. A side that fails has an `error` instead of numbers."""
    runner = cases.session(case.path)
    arrays = cases.inputs(case, runner)
    right = cases.expected(runner, arrays)
    result: dict[str, Any] = {"model": case.model, "size": case.size, "sides": {}}
    children: dict[Side, Child] = {}
    with tempfile.TemporaryDirectory() as scratch:
        try:
            for side in sides:
                say(side.name)
                try:
                    facts, children[side] = _start(case, side, arrays, Path(scratch))
                    outputs = children[side].outputs
                    facts |= _difference(outputs, right, TOLERANCES[side.precision])
                    result["sides"][side.name] = facts
                except (SideError, TinyedgeError, RuntimeError) as error:
                    result["sides"][side.name] = {"error": str(error)}
            for side, samples in _runs(children, effort, say).items():
                result["sides"][side.name] |= samples
        finally:
            for child in children.values():
                child.close()
    return result


def _start(
    case: Case, side: Side, arrays: Mapping[str, Array], scratch: Path
) -> tuple[dict[str, Any], Child]:
    """A process that has run once, and what it took to the first outputs.

    `cold`: without, `warm`: with the kernels that the first time compiled and kept; of a bundle in
    C as its own program does it.
    """
    facts: dict[str, Any] = {}
    folder = scratch / side.name
    environment = driver(side.driver) | caches(folder)
    if side.runner == "tinygrad":
        path = peer.readable(case.path, CACHE / f"{case.model}-for-tinygrad.onnx")
        facts["repaired"] = path != case.path
        first = Child(side.runner, path, arrays, environment)
        first.close()
        child = Child(side.runner, path, arrays, environment)
        return {**facts, "cold": first.first, "warm": child.first}, child
    path = side.bundle(case)
    if side is OURS or not path.is_dir():
        facts["export"] = _export(case, side, path)
    if side.runner == "c":
        _make(path)
        facts["cold"] = _program(path, arrays, environment, folder)
        facts["warm"] = _program(path, arrays, environment, folder)
    manifest = json.loads((path / "manifest.json").read_text(encoding="ascii"))
    start, end = manifest["entries"][0]["steps"]
    facts["launches"] = sum(step["op"] == "launch" for step in manifest["steps"][start:end])
    return facts, Child(side.runner, path, arrays, environment)


def _export(case: Case, side: Side, path: Path) -> dict[str, Any]:
    options = ["--target", "qcom", "--profile", side.profile, "--precision", side.precision]
    exported = export(case, path, options)
    if "error" in exported:
        raise SideError(exported["error"])
    return exported


def _make(bundle: Path) -> None:
    """The bundle's program and library."""
    command = ["make", "-s", "-C", str(bundle), "all", "shared"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SideError(f"make failed: {done.stderr.strip()[-300:]}")


def _program(
    bundle: Path, arrays: Mapping[str, Array], environment: Mapping[str, str], folder: Path
) -> float:
    """CPU seconds of the bundle's program for one run, from its start to its end."""
    command = [str(bundle / "build" / "run"), str(bundle), "--cache", str(folder)]
    folder.mkdir(parents=True, exist_ok=True)
    for index, (name, array) in enumerate(arrays.items()):
        file = folder / f"input-{index}.npy"
        np.save(file, array)
        command += ["--input", f"{name}={file}"]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=said, env={**os.environ, **environment}
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise SideError(said.read().decode(errors="replace").strip()[-300:])
    return usage.ru_utime + usage.ru_stime


def _difference(
    outputs: Mapping[str, Array], right: Mapping[str, Array], tolerance: float
) -> dict[str, Any]:
    greatest = max(
        cases.error(outputs[name], value) if name in outputs else float("inf")
        for name, value in right.items()
    )
    return {"difference": greatest, "right": greatest <= tolerance}


def _runs(children: Mapping[Side, Child], effort: Effort, say: Say) -> dict[Side, dict[str, Any]]:
    """What a run of each spends: blocks in turn, each round begins with another side."""
    found: dict[Side, dict[str, Any]] = {}
    counts: dict[Side, int] = {}
    for side, child in children.items():
        child.ask(("run", 3))  # TinyJit runs, captures, replays
        spent = child.ask(("run", 2))["cpu"] / 2
        counts[side] = max(1, round(effort.block / spent))
        found[side] = {"cpu": [], "wall": []} | ({"replay": []} if side is PEER else {})
    order = list(children)
    for turn in range(effort.rounds):
        say(f"round {turn + 1}")
        for side in order[turn % len(order) :] + order[: turn % len(order)]:
            count = counts[side]
            spent = children[side].ask(("run", count))
            if side is PEER:
                spent["replay"] = children[side].ask(("replay", count))["cpu"]
            for kind, values in found[side].items():
                values.append(spent[kind] / count)
    return {
        side: {kind: middle(values) for kind, values in samples.items()}
        | children[side].ask(("facts", 1))
        for side, samples in found.items()
    }
