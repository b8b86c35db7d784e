"""One model on both sides: exported, measured in alternation, compared with onnxruntime."""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench import cases, flops, size, tiles
from tests.bench.cases import Case, as_said
from tests.bench.chromium import Chromium
from tests.bench.opencl import peer as tinygrad
from tests.bench.server import Server, Site
from tests.bench.side import PAGES, Effort, as_files, measure, middle
from tests.bench.worker import SideError
from tests.study import converters

MODULES = Path(__file__).resolve().parent / "node_modules"
PEER = MODULES / "onnxruntime-web"
LITERT = MODULES / "@litertjs"
TOLERANCE = 1e-4
# ours, onnxruntime-web on WebGPU and on WASM, ours in WebAssembly, LiteRT.js, tinygrad's export
SIDES = ("ours", "peer", "wasm", "fallback", "litert", "tinygrad")
NO_TINYGRAD = (
    f"not installed: the package tinygrad {tinygrad.VERSION} has no export to JavaScript, which is "
    "only in its repository (extra/export_model.py)"
)
# A pair of pages that took longer than this is not repeated.
_REPEATED = 60.0

Say = Callable[[str], None]


def peer_version(folder: Path = PEER) -> str:
    return str(json.loads((folder / "package.json").read_text(encoding="utf-8"))["version"])


def install_peers() -> None:
    """npm ci, once. Raises RuntimeError."""
    folder = MODULES.parent
    pinned = json.loads((folder / "package.json").read_text(encoding="utf-8"))["dependencies"]
    found = {name: MODULES / name for name in pinned}
    if all(path.is_dir() and peer_version(path) == pinned[name] for name, path in found.items()):
        return
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(f"npm is needed to install {', '.join(pinned)}")
    print(f"installing {', '.join(pinned)}", file=sys.stderr)
    command = [npm, "ci", "--ignore-scripts", "--silent", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"npm ci failed in {folder}: {done.stderr.strip()[-500:]}")


def compare(
    chromium: Chromium,
    case: Case,
    effort: Effort,
    rounds: int,
    sides: tuple[str, ...],
    say: Say,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything about one case. A side that fails has an `error` instead of numbers.

    rounds: how many fresh pages each side gets at most; who goes first alternates. options: of our
    export for WebGPU.
    """
    runner = cases.session(case.path)
    arrays = cases.inputs(case, runner)
    right = cases.expected(runner, arrays)
    counted = flops.count(case.path, arrays)
    result: dict[str, Any] = {
        "model": case.model,
        "size": case.size,
        "flops": sum(counted.values()),
        "contractions": len(counted),
    }
    site = Site({"pages": PAGES, "peer": PEER / "dist"}, dict(as_files(arrays)))
    site.files["case/model.onnx"] = case.path
    site.files["case/options.json"] = json.dumps(
        {"freeDimensionOverrides": _overrides(runner, arrays)}
    ).encode()
    active = [side for side in SIDES if side in sides]
    if "litert" in active:
        say("converting for LiteRT.js")
        _try(result, active, "litert", lambda: _litert(case, arrays, site))
    if "tinygrad" in active:
        result["tinygrad"] = {"error": NO_TINYGRAD}
        active.remove("tinygrad")
    if "ours" in active:
        say("exporting")
        exported = export(case, options=options)
        result["export"] = exported
        if "error" in exported:
            result["ours"] = {"error": exported["error"]}
            active.remove("ours")
        else:
            site.folders["bundle"] = Path(exported["bundle"])
            result["memory"] = size.memory(Path(exported["bundle"]))
    if "fallback" in active:
        say("exporting for WebAssembly")
        place = cases.CACHE / f"{case.model}-wasm.tinyedge"
        site.folders["fallback"] = place
        _try(result, active, "fallback", lambda: _fallback(case, place))
    samples: dict[str, list[dict[str, Any]]] = {side: [] for side in active}
    paces: list[float] = []
    with Server(site) as server:
        for turn in range(rounds):
            begin = time.perf_counter()
            for side in active if turn % 2 == 0 else active[::-1]:
                say(f"{side}, page {turn + 1}")
                try:
                    profile = side == "ours" and turn == 0
                    if side == "ours":
                        paces.append(tiles.beside(chromium))
                    samples[side].append(measure(chromium, server, side, effort, profile=profile))
                    if side == "ours":
                        paces.append(tiles.beside(chromium))
                except SideError as error:
                    result[side] = {"error": str(error)}
            active = [side for side in active if side not in result]
            if time.perf_counter() - begin > _REPEATED:
                break
        for side in active:
            result[side] = _summary(samples[side], right, site, result["flops"], counted)
    if paces:
        result["by_hand"] = middle(paces)
    return result


def _try(result: dict[str, Any], active: list[str], side: str, prepare: Callable[[], None]) -> None:
    """Prepares a side, or takes it out with its reason."""
    try:
        prepare()
    except (SideError, RuntimeError) as error:
        result[side] = {"error": str(error)}
        active.remove(side)


def _fallback(case: Case, place: Path) -> None:
    """A bundle with a program for WebAssembly. Raises SideError."""
    exported = export(case, place, ["--fallback", "wasm"])
    if "error" in exported:
        raise SideError(exported["error"])


def _litert(case: Case, arrays: dict[str, cases.Array], site: Site) -> None:
    """The model as LiteRT.js reads it, and its inputs: onnx2tf puts what is second of three and
    more axes last. Raises SideError and RuntimeError.
    """
    converters.install("litert")
    converted = converters.CONVERTERS["litert"]("litert", case.path, arrays, cases.CACHE)
    site.files["case/model.tflite"] = converted
    turned = {
        name: np.ascontiguousarray(np.moveaxis(array, 1, -1)) if array.ndim > 2 else array
        for name, array in arrays.items()
    }
    site.files |= as_files(turned, "litert")
    site.folders["litert"] = LITERT / "core"
    # a browser finds no packages by their names
    text = (LITERT / "core" / "dist" / "index.js").read_text("utf-8")
    named = text.replace('"@litertjs/wasm-utils"', '"/litert-utils/index.js"')
    site.files["litert/dist/index.js"] = named.encode()
    site.folders["litert-utils"] = LITERT / "wasm-utils" / "dist"


def _summary(
    pages: list[dict[str, Any]],
    right: dict[str, cases.Array],
    site: Site,
    total: int,
    counted: dict[str, int],
) -> dict[str, Any]:
    page = pages[0]
    runs = [spent for each in pages for spent in each["runs"]]
    firsts = [each["first"] for each in pages]
    outputs = page["outputs"]
    differences = {
        name: cases.error(as_said(outputs[name], value), value) if name in outputs else float("inf")
        for name, value in right.items()
    }
    gpu = statistics.median(spent.gpu for spent in runs)
    summary = {
        "run": {
            kind: middle([getattr(spent, kind) for spent in runs])
            for kind in ("cpu", "gpu", "wall")
        },
        "first": {
            kind: middle([getattr(spent, kind) for spent in firsts])
            for kind in ("cpu", "gpu", "wall")
        },
        "counters_to_first": page["load_counters"],
        "counters_of_a_run": page["run_counters"],
        "peak_gpu_bytes": page["peak_bytes"],
        "fetched": size.fetched(site, page["fetched"]),
        "difference": max(differences.values()),
        "right": max(differences.values()) <= TOLERANCE,
    }
    if not gpu:  # WASM asks nothing of it
        return summary
    summary["gflop_per_gpu_cpu_second"] = total / 1e9 / gpu
    summary.update(_contractions(page["launches"], counted, summary["gflop_per_gpu_cpu_second"]))
    return summary


def _contractions(
    launches: list[dict[str, Any]], counted: dict[str, int], rate: float
) -> dict[str, Any]:
    """The rate of the launches that contract: the whole's, by their share of the launches' time."""
    total = sum(launch["milliseconds"] for launch in launches)
    inside = sum(launch["milliseconds"] for launch in launches if flops.contracts(launch, counted))
    if not total or not inside:
        return {}
    share = inside / total
    return {"contraction_share": share, "contraction_gflop_per_gpu_cpu_second": rate / share}


def _overrides(runner: Any, arrays: dict[str, cases.Array]) -> dict[str, int]:
    """The peer may plan for fixed sizes too, where the model names them."""
    sizes: dict[str, int] = {}
    for port in runner.get_inputs():
        for name, length in zip(port.shape, arrays[port.name].shape, strict=True):
            if isinstance(name, str) and name.isprintable():
                sizes[name] = length
    return sizes


def export(case: Case, bundle: Path | None = None, options: Sequence[str] = ()) -> dict[str, Any]:
    """The bundle, golden included, by the command line with empty caches: seconds, or `error`."""
    cases.CACHE.mkdir(parents=True, exist_ok=True)
    bundle = bundle or cases.CACHE / f"{case.model}.tinyedge"
    shutil.rmtree(bundle, ignore_errors=True)
    command = [sys.executable, "-m", "tinyedge", "export", str(case.path), "--out", str(bundle)]
    command += options
    for name, length in case.dims.items():
        command += ["--dim", f"{name}={length}"]
    with tempfile.TemporaryDirectory() as scratch:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        environment = {**os.environ, "XDG_CACHE_HOME": scratch, "NO_COLOR": "1", "COLUMNS": "200"}
        # ziglang compiles its C library once, for all models
        environment["ZIG_GLOBAL_CACHE_DIR"] = str(cases.CACHE / "zig")
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        # What is refused says so on its first line, what breaks on its last.
        traced = any(line.startswith("Traceback") for line in lines)
        shown = lines[-1:] if traced else lines[:2]
        return {"error": " ".join(shown) or f"exit status {done.returncode}"}
    return {
        "bundle": str(bundle),
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "wall": wall,
        "golden": any(bundle.glob("golden-*")),
    }
