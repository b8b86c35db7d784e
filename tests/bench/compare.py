"""One model on both sides: exported, measured in alternation, compared with onnxruntime."""

from __future__ import annotations

import functools
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
from tests.study import sides as study

ROOT = Path(__file__).resolve().parents[2]
MODULES = Path(__file__).resolve().parent / "node_modules"
PEER = MODULES / "onnxruntime-web"
LITERT = MODULES / "@litertjs"
TOLERANCE = 1e-4
# ours, onnxruntime-web on WebGPU and on WASM, ours in WebAssembly, LiteRT.js, tinygrad's export
SIDES = ("ours", "peer", "wasm", "fallback", "litert", "tinygrad")
BEFORE = "before"  # an older tinyedge's bundle, where one is given
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
    baseline: Path | None = None,
) -> dict[str, Any]:
    """Everything about one case. A side that fails has an `error` instead of numbers.

    rounds: how many fresh pages each side gets at most; who goes first alternates. options: of our
    export for WebGPU. baseline: an older tinyedge's files, whose bundle is the side BEFORE.
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
    site = site_of(case, runner, arrays)
    active = [side for side in SIDES if side in sides]
    if "tinygrad" in active:
        result["tinygrad"] = {"error": NO_TINYGRAD}
        active.remove("tinygrad")
    prepare: dict[str, Callable[[], None]] = {
        "litert": lambda: _litert(case, arrays, site, say),
        "ours": lambda: _ours(case, result, site, options),
        "fallback": lambda: _fallback(case, site),
    }
    if baseline is not None:
        active.append(BEFORE)
        prepare[BEFORE] = functools.partial(_before, case, result, site, baseline)
    for side, function in prepare.items():
        if side in active:
            say(f"{side}: converting" if side == "litert" else f"{side}: exporting")
            _try(result, active, side, function)
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


def site_of(case: Case, runner: Any, arrays: dict[str, cases.Array]) -> Site:
    """What pages of the sides fetch: their scripts, the peer, the model and its inputs."""
    site = Site({"pages": PAGES, "peer": PEER / "dist"}, dict(as_files(arrays)))
    site.files["case/model.onnx"] = case.path
    options = {"freeDimensionOverrides": _overrides(runner, arrays)}
    site.files["case/options.json"] = json.dumps(options).encode()
    return site


def _try(result: dict[str, Any], active: list[str], side: str, prepare: Callable[[], None]) -> None:
    """Prepares a side, or takes it out with its reason."""
    try:
        prepare()
    except (SideError, RuntimeError) as error:
        result[side] = {"error": str(error)}
        active.remove(side)


def _ours(case: Case, result: dict[str, Any], site: Site, options: Sequence[str]) -> None:
    """Raises SideError."""
    result["export"] = exported = export(case, options=options)
    bundle = bundle_of(exported)
    site.folders["bundle"] = bundle
    result["memory"] = size.memory(bundle)


def _fallback(case: Case, site: Site) -> None:
    """A bundle with a program for WebAssembly. Raises SideError."""
    place = cases.CACHE / f"{case.model}-wasm.tinyedge"
    site.folders["fallback"] = bundle_of(export(case, place, ["--fallback", "wasm"]))


def _before(case: Case, result: dict[str, Any], site: Site, baseline: Path) -> None:
    """A bundle by an older tinyedge, with its own runtime. Raises SideError."""
    place = cases.CACHE / f"{case.model}-before.tinyedge"
    result["export_before"] = exported = export(case, place, (), baseline)
    site.folders[BEFORE] = bundle_of(exported)


def bundle_of(facts: dict[str, Any]) -> Path:
    if "error" in facts:
        raise SideError(facts["error"])
    return Path(facts["bundle"])


def _litert(
    case: Case, arrays: dict[str, cases.Array], site: Site, say: Callable[[str], None]
) -> None:
    """The model as LiteRT.js reads it, and its inputs: onnx2tf puts what is second of three and
    more axes last. Raises SideError.
    """
    if refused := study.install(("litert",), say):
        raise SideError(refused["litert"])
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


def environment(root: Path, scratch: str) -> dict[str, str]:
    """Of a process that exports by the tinyedge of a checkout; scratch: an empty folder."""
    return {
        **os.environ,
        "PYTHONPATH": str(root),
        "XDG_CACHE_HOME": scratch,
        "NO_COLOR": "1",
        "COLUMNS": "200",
        # ziglang compiles its C library once, for all models
        "ZIG_GLOBAL_CACHE_DIR": str(cases.CACHE / "zig"),
    }


def _overrides(runner: Any, arrays: dict[str, cases.Array]) -> dict[str, int]:
    """The peer may plan for fixed sizes too, where the model names them."""
    sizes: dict[str, int] = {}
    for port in runner.get_inputs():
        for name, length in zip(port.shape, arrays[port.name].shape, strict=True):
            if isinstance(name, str) and name.isprintable():
                sizes[name] = length
    return sizes


def export(
    case: Case, bundle: Path | None = None, options: Sequence[str] = (), root: Path = ROOT
) -> dict[str, Any]:
    """The bundle, golden included, by the command line with empty caches: seconds, or `error`.

    root: the checkout whose tinyedge exports.
    """
    cases.CACHE.mkdir(parents=True, exist_ok=True)
    bundle = bundle or cases.CACHE / f"{case.model}.tinyedge"
    shutil.rmtree(bundle, ignore_errors=True)
    command = [sys.executable, "-m", "tinyedge", "export", str(case.path), "--out", str(bundle)]
    command += options
    for name, length in case.dims.items():
        command += ["--dim", f"{name}={length}"]
    with tempfile.TemporaryDirectory() as scratch:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            cwd=root,
            env=environment(root, scratch),
        )
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
