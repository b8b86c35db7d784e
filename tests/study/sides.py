"""The sides: a process each, of a device one for both, what they need installed, and measuring all
of them in turn.

torch comes from the environment in which tests/exporters write its files, tinygrad from the folder
of tests/bench/opencl, ncnn and LiteRT from environments of their own; all are made when they are
first needed. One that cannot be installed has the reason in place of its times.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import tinyedge
from tests.bench import cases
from tests.bench.opencl import peer, process
from tests.bench.side import middle
from tests.bench.worker import SideError, Worker
from tests.study import converters, hand
from tests.study.child import Array, Task
from tests.study.operations import DEVICE_SIDES
from tinyedge.core.errors import TinyedgeError

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "study"
KERNELS = CACHE / "kernels"
TORCH = ROOT / ".cache" / "exporters" / "torch" / "bin" / "python"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """rounds: blocks of runs a side, in turn; block: CPU seconds of each; shared: at least so many
    of whole models on several threads, as the second sleeps, or another side's spins, before a
    block begins. Before them warm-ups for so many seconds, at most so many. patience: seconds until
    a side must have answered.
    """

    rounds: int = 3
    block: float = 0.03
    shared: float = 0.25
    warm: float = 0.06
    most_warm: int = 100
    patience: float = 300.0


SPACE = {"tinygrad": 0.02, "torch": 1.0, "ncnn": 0.2, "litert": 2.6}  # GB of disk
PROFILES = {"tinyedge": None, "avx512": "avx512"}  # the sides that run a bundle: of which profile


def install(names: Iterable[str], say: Say, target: str = "cpu") -> dict[str, str]:
    """What these sides need and this machine lacks, said first; by side why it could not be
    installed. target: on whose device tinygrad runs.
    """
    names = tuple(names)
    missing = [f"{side} ({SPACE[side]} GB)" for side in names if not _installed(side)]
    if missing:
        say(
            f"installing, once, into {ROOT / '.cache'}: {', '.join(missing)}; sides are left out "
            "by --sides"
        )
    refused = {}
    for side in names:
        try:
            if side == "tinygrad":
                peer.install()
                if _TINYGRAD[target] == "CPU" and peer.clang() is None:
                    raise RuntimeError("it compiles by clang, which is not there: install clang")
            elif side == "torch":
                _install_torch()
            elif side in converters.CONVERTERS:
                converters.install(side)
            elif side == "avx512" and hand.lanes() < 16:
                raise RuntimeError("this processor has no vectors of 16 floats")
        except RuntimeError as error:
            refused[side] = " ".join(str(error).split())
    return refused


def _installed(side: str) -> bool:
    if side == "tinygrad":
        return peer.FOLDER.is_dir()
    if side == "torch":
        return TORCH.exists()
    return side not in converters.CONVERTERS or converters.installed(side)


def _install_torch() -> None:
    if _installed("torch"):
        return
    command = [str(ROOT / "scripts" / "setup"), "exporters", "torch"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"torch is not installed: {done.stderr.strip()[-300:]}")


def python(side: str) -> str:
    """The interpreter that runs a side."""
    if side == "torch":
        return str(TORCH)
    return str(converters.python(side)) if side in converters.CONVERTERS else sys.executable


def environment(side: str, threads: int, target: str = "cpu") -> dict[str, str]:
    """The variables that a side's process gets: none may take more threads than it is given. OpenCL
    is PoCL's where it is installed and the caller names no other driver.
    """
    folders = [str(ROOT), *([str(peer.FOLDER)] if side == "tinygrad" else [])]
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUM_CPU_THREADS")
    return {
        "PYTHONPATH": os.pathsep.join(folders),
        **dict.fromkeys(names, str(threads)),
        **(peer.environment(_TINYGRAD[target]) if side == "tinygrad" else {}),
        **(_opencl() if target == "qcom" else {}),
    }


_TINYGRAD = {"cpu": "CPU", "webgpu": "CPU", "qcom": "CL", "cuda": "CUDA"}


def _opencl() -> dict[str, str]:
    if "OCL_ICD_VENDORS" in os.environ:
        return {}
    try:
        return process.driver("pocl")
    except SideError:
        return {}


class Sides:
    """Processes of sides by name, each started when it is first asked and again after it ended."""

    def __init__(self, names: Iterable[str], threads: int = 1, target: str = "cpu") -> None:
        self.names, self.threads, self.target = tuple(names), threads, target
        self.versions: dict[str, str] = {}
        self._workers: dict[str, Worker] = {}

    def __enter__(self) -> Sides:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.close()

    def ask(self, side: str, word: str, content: object, patience: float) -> Any:
        """Raises SideError."""
        process = self._process(side)
        worker = self._workers.get(process)
        if worker is None or worker.ended:
            if worker is not None:
                worker.close()
            command = [python(side), "-W", "ignore", "-m", "tests.study.child"]
            worker = Worker(command, environment(side, self.threads, self.target))
            self._workers[process] = worker
        return worker.ask((side, word, content), patience)

    def _process(self, side: str) -> str:
        """Kernels of a device run in one process, as its driver's threads are faster or slower in
        one than in another: small launches by a factor of two.
        """
        return "device" if self.target != "cpu" and side in DEVICE_SIDES else side

    def start(self, side: str, task: Task, patience: float) -> dict[str, Array]:
        """The side's outputs, of one run. Raises SideError."""
        answer = self.ask(side, "task", task, patience)
        self.versions[side] = answer["version"]
        outputs: dict[str, Array] = answer["outputs"]
        return outputs


@dataclass(frozen=True)
class Place:
    """Where a task runs: a side's process among those of as many threads."""

    sides: Sides
    side: str


def compare(
    sides: Sides,
    chosen: Iterable[str],
    task: Task,
    right: Mapping[str, Array],
    effort: Effort,
    say: Say,
    refused: Mapping[str, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """By side `cpu` and `wall`, seconds of a run (median, least, greatest), and `off`: of
    max|a-b| / max|b| the greatest over the outputs; or `error`, where a side gives no answer.

    refused: by side why it cannot be asked: there is no bundle, or it is not installed.
    """
    places = {side: Place(sides, side) for side in chosen}
    return compare_places(places, task, right, effort, say, refused)


def compare_places(
    places: Mapping[str, Place],
    task: Task,
    right: Mapping[str, Array],
    effort: Effort,
    say: Say,
    refused: Mapping[str, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """The same by the name of a place, with the task on as many threads as each has."""
    found: dict[str, dict[str, Any]] = {}
    for name, place in places.items():
        say(name)
        if refused and refused.get(place.side):
            found[name] = {"error": refused[place.side]}
            continue
        try:
            given = _given(place.side, replace(task, threads=place.sides.threads))
            outputs = place.sides.start(place.side, given, effort.patience)
            found[name] = {"off": difference(outputs, right)}
        except SideError as error:
            found[name] = {"error": str(error)}
    alive = {name: places[name] for name, facts in found.items() if "error" not in facts}
    for name, facts in _runs(alive, effort).items():
        found[name] |= facts
    return found


def _given(side: str, task: Task) -> Task:
    """The task with the model as this side reads it. Raises SideError."""
    profile = PROFILES.get(side)
    if profile:
        return replace(task, bundle=of_profile(task.bundle, profile))
    if side not in converters.CONVERTERS:
        return task
    kept = task.bundle.parent
    file = converters.CONVERTERS[side](side, task.model, task.arrays(), kept)
    return replace(task, converted=file)


def difference(outputs: Mapping[str, Array], right: Mapping[str, Array]) -> float:
    """Of max|a-b| / max|b| the greatest; infinity where an output is missing."""
    return max(
        cases.error(cases.as_said(outputs[name], value), value) if name in outputs else float("inf")
        for name, value in right.items()
    )


def _runs(places: Mapping[str, Place], effort: Effort) -> dict[str, dict[str, Any]]:
    """What runs take: blocks in turn, each round begins with another place."""
    names = list(places)
    counts: dict[str, int] = {}
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    failed: dict[str, dict[str, Any]] = {}

    def ask(name: str, word: str, content: object) -> dict[str, float] | None:
        """None once the side has failed."""
        if name in failed:
            return None
        place = places[name]
        try:
            answer: dict[str, float] = place.sides.ask(place.side, word, content, effort.patience)
        except SideError as error:
            failed[name] = {"error": str(error)}
            return None
        return answer

    for name in names:
        once = ask(name, "warm", (effort.warm, effort.most_warm))
        counts[name] = max(1, round(effort.block / max(once["cpu"], 1e-7))) if once else 1
    for turn in range(effort.rounds):
        shift = turn % max(1, len(names))
        for name in names[shift:] + names[:shift]:
            spent = ask(name, "run", counts[name])
            for clock, seconds in (spent or {}).items():
                samples[name].setdefault(clock, []).append(seconds / counts[name])
    measured = {name: samples[name] for name in names if name not in failed}
    return failed | {
        name: {clock: middle(values) for clock, values in found.items()}
        for name, found in measured.items()
    }


def save(folder: Path, arrays: Mapping[str, Array]) -> dict[str, Path]:
    """The inputs as files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for number, (name, array) in enumerate(arrays.items()):
        files[name] = folder / f"{number}.npy"
        np.save(files[name], array)
    return files


def of_profile(bundle: Path, profile: str | None) -> Path:
    """Where the bundle of a profile lies, beside that of the default one."""
    return bundle.with_stem(f"{bundle.stem}-{profile}") if profile else bundle


def refusals(
    names: Iterable[str], model: Path, bundle: Path, target: str, **options: Any
) -> dict[str, str]:
    """Makes the bundles of those sides that run one; by side why there is none, or nothing."""
    found = {}
    for side in names:
        if side in PROFILES:
            profile = PROFILES[side]
            chosen = {**options, **({"profile": profile} if profile else {})}
            found[side] = refusal(model, of_profile(bundle, profile), target, **chosen)
    return found


def bundle(model: Path | str, out: Path, target: str = "cpu", **options: Any) -> Path:
    """What tinyedge makes of a model, for the cpu with its library built. Raises TinyedgeError and
    RuntimeError.
    """
    if target == "qcom":  # images are no faster on PoCL, and the kernels by hand have none
        options = {**options, "profile": "buffers", "precision": "fp32"}
    tinyedge.export_onnx(
        model, target=target, out=out, golden=False, force=True, warn=lambda _: None, **options
    )
    if target == "cpu":
        build(out)
    return out


def refusal(model: Path | str, out: Path, target: str = "cpu", **options: Any) -> str:
    """Makes a `bundle`; why there is none, or nothing."""
    try:
        bundle(model, out, target, **options)
    except (TinyedgeError, RuntimeError) as error:
        return str(error)
    return ""


def launches(bundle: Path) -> int:
    """Of a run, loops counted once."""
    steps = json.loads((bundle / "manifest.json").read_text("ascii"))["steps"]
    return sum(step["op"] == "launch" for step in steps)


def build(folder: Path) -> None:
    """`make shared`, with the runtime's objects of the first bundle: it is the same in all."""
    kept, made = CACHE / "runtime", folder / "build"
    sources = [folder / "Makefile", *sorted((folder / "runtime").glob("*"))]
    stamp = "".join(source.read_text("ascii") for source in sources)
    same = kept.is_dir() and (kept / "stamp").read_text("ascii") == stamp
    if same:
        made.mkdir(exist_ok=True)
        shutil.copy(kept / "flags", made)
        for file in kept.glob("*.o"):
            shutil.copy(file, made)
    command = ["make", "-s", "-C", str(folder), "shared"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"make failed in {folder}: {done.stderr.strip()[-300:]}")
    if not same:
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(made, kept, ignore=shutil.ignore_patterns("model.o", "*.so", "run"))
        (kept / "stamp").write_text(stamp, encoding="ascii")


def machine() -> dict[str, Any]:
    """What everything was measured on."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    found = dict(
        [part.strip() for part in line.split(":", 1)] for line in reversed(lines) if ":" in line
    )
    command = ["git", "log", "-1", "--format=%h", "--", "tinyedge"]
    commit = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    return {
        "commit": commit.stdout.strip() or "unknown",  # the last one that changed tinyedge
        "processor": f"{found.get('model name', 'unknown')}, family {found.get('cpu family', '-')}"
        f" model {found.get('model', '-')}",
        "processors": os.cpu_count(),
        "vectors": hand.lanes(),
        "load": os.getloadavg()[1],  # processes that wanted a processor in the last five minutes
    }
