"""`python -m tests.bench.page`: what a page feels of a model, by tinyedge and by onnxruntime-web.

    python -m tests.bench.page                       # onet and mobilenet_v2
    python -m tests.bench.page resnet18 --rounds 5   # other models, the median of so many pages
    python -m tests.bench.page --camera 60           # mobilenet_v2 on a camera, for a minute

Each page loads over a line like a phone's, in one headless Chromium, the sides by turns: seconds by
the clock from navigation to the first output, the longest task of the main thread meanwhile, and by
how much the page's process grows to its peak. `--camera` runs the model on Chromium's own camera, a
frame after the other: tinyedge takes the video (`--image`), the other side its pixels by a canvas,
as pages do; processor time of the main thread a frame, without that of showing the camera, and what
is left behind. `bare` is a page with one launch by hand, or one that takes each frame to a texture
and computes nothing: what the browser itself needs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench import cases, compare
from tests.bench.chromium import VIDEO, Chromium, open_chromium
from tests.bench.server import Server, Site
from tests.bench.side import AWAIT, PAGES, PATIENCE, as_files

SIDES = ("ours", "peer", "bare")
CAMERA = {side: f"camera-{side}" for side in SIDES}
MODELS = ("onet", "mobilenet_v2")
REST = 5.0  # seconds in which nothing is computed
# Chromium's "Fast 4G": bytes a second, milliseconds.
LINE = {"downloadThroughput": 1_012_500, "uploadThroughput": 168_750, "latency": 165}
# Tasks of 50 ms and more, which browsers call long.
TASKS = """
globalThis.longest = 0;
new PerformanceObserver((list) => {
  for (const {duration} of list.getEntries()) longest = Math.max(longest, duration);
}).observe({type: "longtask", buffered: true});
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.page", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"default: {' '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=3, help="pages a side (default 3)")
    parser.add_argument(
        "--camera", type=float, metavar="SECONDS", help="frames of a camera instead"
    )
    parser.add_argument("--json", metavar="FILE", help="write everything measured")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.models) - set(cases.ALL))
    if unknown:
        parser.error(f"no model called {', '.join(unknown)}; there are {', '.join(cases.ALL)}")
    compare.install_peers()
    if given.camera:
        found = {"camera": camera(given.camera)}
    else:
        found = {name: loads(cases.ALL[name], given.rounds) for name in given.models or MODELS}
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(text(found))
    return 0


def text(found: dict[str, Any]) -> str:
    """A line for each model, side and figure."""
    return "\n".join(
        f"{name:16} {side:6} {what:40} {value:10.3f}"
        for name, sides in found.items()
        for side, figures in sides.items()
        for what, value in figures.items()
    )


# ---- loading


def loads(case: cases.Case, rounds: int) -> dict[str, dict[str, float]]:
    """Medians of what each side's pages felt until their first output."""
    site = sites(case, ())
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    with open_chromium() as chromium, Server(site) as server:
        for turn in range(rounds):
            for side in SIDES if turn % 2 == 0 else SIDES[::-1]:
                print(f"{case.model}: {side}, page {turn + 1}", file=sys.stderr, flush=True)
                found[side].append(first_output(chromium, f"{server.url}{side}.html"))
    return {
        side: {what: statistics.median(page[what] for page in pages) for what in pages[0]}
        for side, pages in found.items()
    }


def of_bundle(bundle: Path, arrays: dict[str, cases.Array]) -> dict[str, float]:
    """One page of a bundle that is there."""
    site = Site({"pages": PAGES, "bundle": bundle}, {**as_files(arrays)})
    with open_chromium() as chromium, Server(site) as server:
        return first_output(chromium, f"{server.url}ours.html")


def first_output(chromium: Chromium, url: str) -> dict[str, float]:
    """One page over the line: seconds, the longest task, and growth of its process in MB."""
    with chromium.page(TASKS) as page:
        page.goto(url.replace(".html", "-none.html"))  # a page of the same process, without a model
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.send("Network.emulateNetworkConditions", {"offline": False, **LINE})
        with grown(chromium) as growth:
            watch = chromium.stopwatch()
            page.goto(url)
            page.evaluate(AWAIT, PATIENCE)
            wall = watch.read().wall
        return {
            "first output, s": wall,
            "longest task, ms (0: below 50)": page.evaluate("longest"),
            "growth of the page's process, MB": growth[0],
        }


@contextmanager
def grown(chromium: Chromium) -> Iterator[list[float]]:
    """The greatest growth of a renderer's own memory, from now to its peak, in MB.

    Its own: without pages of files, which are mostly Chromium's program as it comes to be used.
    """
    session = chromium.browser.new_browser_cdp_session()
    listed = session.send("SystemInfo.getProcessInfo")["processInfo"]
    before = {each["id"]: _owned(each["id"]) for each in listed if each["type"] == "renderer"}
    peak = dict(before)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            for process, most in peak.items():
                peak[process] = max(most, _owned(process))

    watcher = threading.Thread(target=watch)
    watcher.start()
    growth: list[float] = []
    try:
        yield growth
    finally:
        over.set()
        watcher.join()
        session.detach()
    growth.append(max(peak[process] - size for process, size in before.items()))


def _owned(process: int) -> float:
    """In MB; of a process that ended meanwhile none."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    sizes = dict(line.split(":") for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
    return sum(int(size.split()[0]) for size in sizes.values()) * 1024 / 1e6


# ---- a camera


def camera(seconds: float) -> dict[str, dict[str, float]]:
    """What frames of a camera cost each side's page, one side after the other."""
    case = cases.ALL["mobilenet_v2"]
    (name,) = (port.name for port in cases.session(case.path).get_inputs())
    site = sites(case, ["--image", f"{name}=stretch,imagenet"])
    with open_chromium(*VIDEO) as chromium, Server(site) as server:
        url = server.url
        return {side: watched(chromium, f"{url}{CAMERA[side]}.html", seconds) for side in SIDES}


def watched(chromium: Chromium, url: str, seconds: float) -> dict[str, float]:
    """A page that runs its model on frame after frame: what one costs, and what is left."""
    counters = (PAGES / "counters.js").read_text(encoding="utf-8")
    with chromium.page(counters + TASKS) as page:
        page.goto(url)
        page.evaluate(AWAIT, PATIENCE)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        idle = _metrics(session)
        page.evaluate("(rest) => new Promise((resolve) => setTimeout(resolve, rest))", 1e3 * REST)
        before, objects = _metrics(session), page.evaluate("bench.counters()")
        page.evaluate("longest = 0")
        frames = page.evaluate("(seconds) => bench.watch(seconds)", seconds)
        after, then = _metrics(session), page.evaluate("bench.counters()")
        spent = {key: after[key] - before[key] for key in after}
        shown = (before["TaskDuration"] - idle["TaskDuration"]) / REST * seconds
        made = sum(then[key] - objects[key] for key in ("buffers", "textures", "pipelines"))
        return {
            "frames": frames,
            "main thread a frame, CPU ms": 1e3 * (spent["TaskDuration"] - shown) / frames,
            "longest task, ms (0: below 50)": page.evaluate("longest"),
            "growth of the JavaScript heap, MB": spent["JSHeapUsedSize"] / 1e6,
            "GPU objects made a frame": made / frames,
        }


def _metrics(session: Any) -> dict[str, float]:
    session.send("HeapProfiler.collectGarbage")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return {each["name"]: each["value"] for each in metrics}


# ---- both


def sites(case: cases.Case, options: list[str] | tuple[()]) -> Site:
    """What both sides' pages fetch, the bundle exported with these options."""
    runner = cases.session(case.path)
    site = compare.site_of(case, runner, cases.inputs(case, runner))
    place = cases.CACHE / f"{case.model}-page.tinyedge"
    site.folders["bundle"] = compare.bundle_of(compare.export(case, place, options))
    return site


if __name__ == "__main__":
    sys.exit(main())
