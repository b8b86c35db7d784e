"""Where a bundle's time goes in Chromium: the GPU's own time for each launch, slowest first.

    python -m tests.bench.kernels opennsfw                  # a model's name: exported first
    python -m tests.bench.kernels build/demo/opennsfw.tinyedge
    python -m tests.bench.kernels onet --by kernel --top 10

Times are medians of timestamp queries around each launch (one pass each), so they leave out what
happens between launches; on the software adapter they are wall time of its threads, and on a busy
machine only their order means much. CPU is that of Chromium's processes for ordinary runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench import cases
from tests.bench import flops as counter
from tests.bench.chromium import EXACT_TIMESTAMPS, open_chromium
from tinyedge.core.errors import TinyedgeError
from tinyedge.serve import Server

BLANK = {"blank.html": ("text/html; charset=utf-8", "<!doctype html><title>kernels</title>")}

LOAD = """async () => {
  const {load} = await import("/tinyedge.js");
  globalThis.model = await load("/");
  globalThis.inputs = await model.example();
  await model.run(inputs);
  return model.stats;
}"""
RUN = "async (times) => { for (let i = 0; i < times; i++) await model.run(inputs); }"
PATIENCE = 10.0
_PROFILE = "() => model.profile(inputs)"


def measure(
    bundle: Path,
    profiles: int = 5,
    seconds: float = 2.0,
    flops: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """The launches with their median milliseconds, and the CPU seconds of a run.

    flops: by the model's nodes, for launches of which the bundle does not say.
    """
    with (
        open_chromium(EXACT_TIMESTAMPS) as chromium,
        Server(bundle, pages=BLANK) as server,
        chromium.page() as page,
    ):
        page.goto(server.url + "blank.html")
        watch = chromium.stopwatch()
        page.evaluate(LOAD)
        first = watch.read()
        watch, runs = chromium.stopwatch(), 0
        while runs < 1 or (watch.read().wall < seconds and runs < 100):
            page.evaluate(RUN, 1)
            runs += 1
        spent = watch.read()
        samples: list[Any] = []
        begin = time.perf_counter()
        while len(samples) < profiles and (not samples or time.perf_counter() - begin < PATIENCE):
            samples.append(page.evaluate(_PROFILE))
    launches = []
    for index, same in enumerate(zip(*samples, strict=True)):
        times = [sample["milliseconds"] for sample in same]
        if not same[0]["flops"] and flops is not None:
            same[0]["flops"] = sum(flops.get(node, 0) for node in same[0]["nodes"])
        launches.append(
            same[0]
            | {"index": index, "milliseconds": statistics.median(times), "least": min(times)}
        )
    return {
        "launches": launches,
        "first_cpu": first.cpu,
        "run_cpu": spent.cpu / runs,
        "run_gpu_process_cpu": spent.gpu / runs,
        "run_wall": spent.wall / runs,
        "runs": runs,
    }


def by_kernel(launches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Launches of the same kernel added up."""
    sums: dict[str, dict[str, Any]] = {}
    for launch in launches:
        entry = sums.setdefault(
            launch["kernel"], {**launch, "milliseconds": 0.0, "flops": 0, "nodes": [], "index": 0}
        )
        entry["milliseconds"] += launch["milliseconds"]
        entry["flops"] += launch["flops"]
        entry["nodes"] = entry["nodes"] + launch["nodes"]
        entry["index"] += 1
    return list(sums.values())


def show(result: dict[str, Any], by: str, top: int) -> None:
    """Print the table."""
    launches = result["launches"]
    rows = by_kernel(launches) if by == "kernel" else launches
    total = sum(row["milliseconds"] for row in rows)
    flops = sum(row["flops"] for row in rows)
    left = "count" if by == "kernel" else "launch"
    print(f"{'ms':>9} {'share':>6} {'MFLOP':>8} {'GFLOP/s':>8} {left:>6}  kernel  (nodes)")
    ordered = sorted(rows, key=lambda row: -row["milliseconds"])
    for row in ordered[:top]:
        milliseconds = row["milliseconds"]
        rate = f"{row['flops'] / milliseconds / 1e6:.2f}" if row["flops"] and milliseconds else "-"
        nodes = ", ".join(row["nodes"][:2]) + (" ..." if len(row["nodes"]) > 2 else "")
        print(
            f"{milliseconds:9.3f} {100 * milliseconds / (total or 1):5.1f}% "
            f"{row['flops'] / 1e6 if row['flops'] else 0:8.1f} {rate:>8} {row['index']:>6}  "
            f"{row['kernel']}  ({nodes[:70]})"
        )
    if len(rows) > top:
        rest = sum(row["milliseconds"] for row in ordered[top:])
        print(f"{rest:9.3f} {100 * rest / (total or 1):5.1f}%  in {len(rows) - top} more (--top)")
    plain = sum(row["milliseconds"] for row in rows if not row["flops"])
    kernels = len({launch["kernel"] for launch in launches})
    print(
        f"total   {total:.1f} ms in {len(launches)} launches of {kernels} kernels; "
        f"{flops / 1e9:.3f} GFLOP, {flops / 1e6 / (total or 1):.2f} GFLOP/s over all; "
        f"{plain:.1f} ms in launches without FLOPs"
    )
    gpu = result["run_gpu_process_cpu"]
    print(
        f"a run   {result['run_wall'] * 1e3:.1f} ms wall, {result['run_cpu']:.3f} CPU s "
        f"(GPU process {gpu:.3f}: {flops / 1e9 / (gpu or 1):.2f} GFLOP per CPU s), "
        f"{result['runs']} runs"
    )
    print(f"first   {result['first_cpu']:.2f} CPU s from loading to the first output")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.kernels", description="GPU time of each launch of a bundle."
    )
    parser.add_argument("bundle", help=f"a bundle, or a model to export: {', '.join(cases.ALL)}")
    parser.add_argument("--by", choices=["launch", "kernel"], default="launch")
    parser.add_argument("--top", type=int, default=30, help="rows shown (default 30)")
    parser.add_argument("--profiles", type=int, default=5, help="timed runs, at most (default 5)")
    parser.add_argument("--no-optimize", action="store_true", help="export without optimizing")
    parser.add_argument("--json", metavar="FILE", help="write everything")
    given = parser.parse_args(arguments)
    try:
        if given.bundle in cases.ALL:
            optimize = not given.no_optimize
            bundle = cases.export(cases.ALL[given.bundle], golden=False, optimize=optimize)
        else:
            bundle = Path(given.bundle)
            if not (bundle / "manifest.json").is_file():
                parser.error(f"{bundle} is no bundle, and no model has that name")
        flops = None
        if bundle.stem in cases.ALL:
            case = cases.ALL[bundle.stem]
            flops = counter.count(case.path, cases.inputs(case, cases.session(case.path)))
        result = measure(bundle, given.profiles, flops=flops)
    except TinyedgeError as error:
        print(error, file=sys.stderr)
        return 1
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=1), encoding="utf-8")
    show(result, given.by, given.top)
    return 0


if __name__ == "__main__":
    sys.exit(main())
