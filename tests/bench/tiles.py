"""The machine's measure: matrix products by hand-written tiles and by tinyedge, in one run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench import cases
from tests.bench.chromium import Chromium
from tests.bench.server import Server, Site
from tests.bench.side import PAGES, Effort, as_files, measure, middle
from tests.study.device import programs

SIZES = ((256, 256, 256), (784, 1152, 128))


def beside(chromium: Chromium) -> float:
    """What the best tile reaches just now: the machine's pace, to compare a model's with."""
    (result,) = by_hand(chromium, seconds=0.3, blocks=1, sizes=SIZES[1:]).values()
    return float(result["median"])


def by_hand(
    chromium: Chromium,
    seconds: float = 0.8,
    blocks: int = 3,
    sizes: Sequence[tuple[int, int, int]] = SIZES,
) -> dict[str, Any]:
    """GFLOP per CPU second of the GPU process: for each m x k x n and tile (rows x vec4s) of the
    study's kernel by hand.
    """
    results: dict[str, Any] = {}
    with Server(Site({"pages": PAGES})) as server, chromium.page() as page:
        page.goto(f"{server.url}tiles.html")
        page.wait_for_function("globalThis.tiles")
        for m, k, n in sizes:
            rates: dict[str, Any] = {}
            for tile, request in _requests(m, k, n).items():
                if not page.evaluate("(request) => tiles.open(request)", request):
                    raise RuntimeError(f"hand-written tile {tile} is wrong at {m}x{k}x{n}")
                count, samples = 2, []
                while len(samples) < blocks:
                    watch = chromium.stopwatch()
                    page.evaluate("(times) => tiles.run(times)", count)
                    spent = watch.read()
                    if spent.gpu < 0.5 * seconds:
                        count = round(count * seconds / max(spent.gpu, 0.02)) + 1
                        continue
                    samples.append(2e-9 * m * k * n * count / spent.gpu)
                page.evaluate("() => tiles.close()")
                rates[tile] = middle(samples)
            best = max(rates, key=lambda name: rates[name]["median"])
            results[f"{m}x{k}x{n}"] = {"tiles": rates, "best": best, **rates[best]}
    return results


def _requests(m: int, k: int, n: int) -> dict[str, Any]:
    """What pages/tiles.js is given, by tile."""
    empty = [np.zeros(shape, np.float32) for shape in ((m, k), (k, n))]
    requests = {}
    for hand in programs.variants("webgpu", "matmul", empty[:1], empty[1:], {}):
        program = hand.program("webgpu")
        floats = {name: array.size for name, array in hand.arrays.items()} | dict(hand.made)
        code = program.prelude + program.kernels[0].source
        sizes = {"m": m, "k": k, "n": n, "floats": floats}
        requests[hand.name] = {**sizes, "code": code, "grid": hand.steps[0].grid}
    return requests


def by_tinyedge(chromium: Chromium, effort: Effort) -> dict[str, Any]:
    """The same sizes as exported functions; what does not export has an `error`."""
    return {"x".join(map(str, size)): _function(chromium, size, effort) for size in SIZES}


def _function(chromium: Chromium, size: tuple[int, int, int], effort: Effort) -> dict[str, Any]:
    m, k, n = size
    generator = np.random.default_rng(3)
    arrays = {
        "a": generator.normal(0, 1, (m, k)).astype(np.float32),
        "b": generator.normal(0, k**-0.5, (k, n)).astype(np.float32),
    }

    def function(a: Any, b: Any) -> Any:
        return a @ b

    try:
        bundle = _export(function, arrays, f"matmul-{m}-{k}-{n}")
        site = Site({"pages": PAGES, "bundle": bundle}, dict(as_files(arrays)))
        with Server(site) as server:
            result = measure(chromium, server, "ours", effort, profile=True)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    flops = 2e-9 * m * k * n
    (output,) = result["outputs"].values()
    right = arrays["a"].astype(np.float64) @ arrays["b"]
    kernel = sum(launch["milliseconds"] for launch in result["launches"]) / 1e3
    return {
        **middle([flops / spent.gpu for spent in result["runs"]]),
        "launch_seconds": kernel,
        "wall_seconds": statistics.median(spent.wall for spent in result["runs"]),
        "difference": cases.error(output, right.astype(np.float32)),
    }


def _export(function: Any, arrays: dict[str, cases.Array], name: str) -> Path:
    import tinyedge

    cases.CACHE.mkdir(parents=True, exist_ok=True)
    out = cases.CACHE / f"{name}.tinyedge"
    return tinyedge.export_function(function, arrays, out=out, golden=False, force=True)
