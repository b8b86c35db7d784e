"""Measures one side on one case: a fresh page, its first output, runs, counters, fetches."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.cases import Array
from tests.bench.chromium import Chromium, Spent
from tests.bench.server import Server, Site
from tests.bench.worker import SideError
from tinyedge.export.verify.browser import decode

PAGES = Path(__file__).resolve().parent / "pages"

# A wait in the page ends in an error rather than never.
PATIENCE = 900

AWAIT = """async (seconds) => {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing after ${seconds} s`)), 1e3 * seconds);
  });
  while (!globalThis.bench) {
    await Promise.race([late, new Promise((resolve) => setTimeout(resolve, 5))]);
  }
  try { return await Promise.race([bench.ready, late]); } finally { clearTimeout(timer); }
}"""


@dataclass(frozen=True)
class Effort:
    """How long one page's runs are measured: until `cpu` seconds in 3 blocks, or 5 blocks."""

    cpu: float = 3.0
    wall: float = 90.0
    block: float = 0.4


def measure(
    chromium: Chromium, server: Server, side: str, effort: Effort, *, profile: bool = False
) -> dict[str, Any]:
    """One fresh page of `side`, of compare.SIDES. Raises SideError.

    The result: `first` (Spent, from navigation to the first output), `runs` (for each block what
    a run of it spent), `outputs`, `load_counters` (until the first output), `run_counters` (of one
    run), `peak_bytes`, `fetched`, `launches` (with profile).
    """
    from playwright.sync_api import Error

    server.site.fetched.clear()
    said: list[str] = []
    script = (PAGES / "counters.js").read_text(encoding="utf-8")
    with chromium.page(script) as page:
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        try:
            watch = chromium.stopwatch()
            page.goto(f"{server.url}{side}.html")
            load_counters = page.evaluate(AWAIT, PATIENCE)
            first = watch.read()
            fetched = dict(server.site.fetched)
            outputs = {
                name: decode(value)
                for name, value in page.evaluate("() => bench.outputs()").items()
            }
            run_counters, runs = _runs(chromium, page, effort)
            launches = page.evaluate("() => bench.profile()") if profile else []
            peak = page.evaluate("() => bench.counters().peakBytes")
        except Error as error:
            raise SideError("; ".join([_told(str(error)), *said[:2]])) from error
    return {
        "first": first,
        "runs": runs,
        "outputs": outputs,
        "load_counters": load_counters,
        "run_counters": run_counters,
        "peak_bytes": peak,
        "fetched": fetched,
        "launches": launches,
    }


def adapter(chromium: Chromium) -> str:
    """What the adapter says it is."""
    with Server(Site({"pages": PAGES})) as server, chromium.page() as page:
        page.goto(f"{server.url}tiles.html")
        return str(page.evaluate(_ADAPTER))


_ADAPTER = """async () => {
  const {info} = await navigator.gpu.requestAdapter();
  const {vendor, architecture, device, description} = info;
  return [vendor, architecture, device, description].filter(Boolean).join(" ");
}"""


def bare(chromium: Chromium, pages: int) -> dict[str, float]:
    """CPU seconds from navigation to the first output of a page with one launch by hand."""
    effort = Effort(cpu=0.1, wall=5.0, block=0.05)
    spent = []
    with Server(Site({"pages": PAGES})) as server:
        for _ in range(pages):
            page = measure(chromium, server, "bare", effort)
            (squares,) = page["outputs"].values()
            if not np.array_equal(squares, np.arange(64.0) ** 2):
                raise SideError("the launch by hand gives other numbers")
            spent.append(page["first"].cpu)
    return middle(spent)


def _told(message: str) -> str:
    """An error of the page without its stack, on one line."""
    text = message.removeprefix("Page.evaluate: ").removeprefix("Error: ")
    lines = [re.sub(r"/(\S+/)+", "", line.strip()) for line in text.splitlines()]
    return " ".join(line for line in lines if line and not line.startswith("at "))[:500]


def _runs(chromium: Chromium, page: Any, effort: Effort) -> tuple[dict[str, int], list[Spent]]:
    """What one run adds to the counters; and what a run spends, measured over blocks of runs.

    Blocks are long enough for the 10 ms ticks of CPU time.
    """
    blocks: list[Spent] = []
    counters: dict[str, int] = {}
    count, total = 1, 0.0
    begin = time.perf_counter()
    while True:
        watch = chromium.stopwatch()
        if counters:
            page.evaluate("(times) => bench.run(times)", count)
        else:
            counters = page.evaluate("() => bench.count()")
        spent = watch.read()
        late = time.perf_counter() - begin > effort.wall
        if spent.cpu < 0.75 * effort.block and count < 2000 and not late:
            # Also the warm-up of what is quick.
            count = min(2000, 8 * count, round(count * effort.block / max(spent.cpu, 0.01)) + 1)
            continue
        blocks.append(Spent(spent.cpu / count, spent.gpu / count, spent.wall / count))
        total += spent.cpu
        enough = total >= effort.cpu and len(blocks) >= 3
        if enough or len(blocks) >= 5 or (late and len(blocks) >= 2):
            return counters, blocks


def middle(values: list[float]) -> dict[str, float]:
    """Median, least, greatest and number."""
    return {
        "median": statistics.median(values),
        "least": min(values),
        "greatest": max(values),
        "samples": len(values),
    }


def as_files(arrays: Mapping[str, Array], name: str = "inputs") -> dict[str, bytes]:
    """The inputs as pages/case.js reads them from case/NAME.json."""
    import json

    ports, files = [], {}
    for index, (port, array) in enumerate(arrays.items()):
        file = f"input-{name}-{index}.bin"
        kind = array.dtype.name
        shape = list(array.shape)
        ports.append({"name": port, "dtype": kind, "shape": shape, "file": file})
        files[f"case/{file}"] = np.ascontiguousarray(array).tobytes()
    return files | {f"case/{name}.json": json.dumps(ports).encode()}
