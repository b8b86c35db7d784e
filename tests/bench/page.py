"""`python -m tests.bench.page`: what a page feels of a model, by tinyedge and by onnxruntime-web.

    python -m tests.bench.page                       # onet and mobilenet_v2
    python -m tests.bench.page resnet18 --rounds 5   # other models, the median of so many pages
    python -m tests.bench.page dense --wasm --down 8 # 128 MiB, on no GPU, 8 MB a second
    python -m tests.bench.page onet --delay 150      # each request 150 ms there and back
    python -m tests.bench.page onet --camera 60      # a model on a camera, for a minute

Each page loads over a line like a phone's, which our server keeps, in a fresh headless Chromium
that nothing drives, the sides by turns: seconds by the clock from navigation to the first output,
the longest task of the main thread meanwhile, and by how much the page's process grows, to its
peak, from a page without a model. `--delay` is of a line that is only far away: bytes take no time,
unless `--down` says how many come a second; `hinted` is tinyedge's page with the elements that
docs/page.md has for its head.

`--camera` runs the model on Chromium's own camera, a frame after the other: tinyedge takes the
video (`--image`), the other side its pixels by a canvas, as pages do; processor time of the main
thread a frame, without that of showing the camera, and memory before and after. `bare` is a page
with one launch by hand, or one that takes each frame to a texture and computes nothing: what the
browser itself needs.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any, NamedTuple

from tests.bench import cases, compare
from tests.bench.chromium import VIDEO, Chromium, open_chromium, owned, processes, undriven
from tests.bench.line import Line
from tests.bench.server import HINT, Said, Server, Site
from tests.bench.side import AWAIT, PAGES, PATIENCE, as_files
from tests.bench.worker import SideError
from tests.study import networks

SIDES = ("ours", "peer", "bare")
WASM_SIDES = ("fallback", "wasm")
DELAY_SIDES = ("ours", "hinted", "peer", "bare")
CAMERA = {side: f"camera-{side}" for side in SIDES}
MODELS = ("onet", "mobilenet_v2")
COUNTED = """missed: frames that the video presented (presentedFrames of requestVideoFrameCallback)
less those with an output; a frame has none where the one before is still computed when it comes"""


def _dense() -> Any:
    n = networks.Network("dense", networks.OPSET)
    x = n.input("x", [1, 2048])
    for _ in range(8):
        x = n.node("Tanh", n.gemm(x, 2048, 2048))
    return n.model({x: [1, 2048]})


# `dense` is 128 MiB of weights and little beside.
CASES = {**cases.ALL, "dense": cases.Case("dense", "128 MiB", make=_dense)}
REST = 5.0  # seconds in which nothing is computed
WARM = 5.0  # and of frames before those that count


class Pace(NamedTuple):
    """Of a line: seconds there and back, bytes a second."""

    latency: float
    down: float
    up: float


PHONE = Pace(0.165, 1_012_500, 168_750)  # Chromium's "Fast 4G"
# Tasks of 50 ms and more, which browsers call long.
TASKS = """
globalThis.longest = 0;
new PerformanceObserver((list) => {
  for (const {duration} of list.getEntries()) longest = Math.max(longest, duration);
}).observe({type: "longtask", buffered: true});
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"default: {' '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=3, help="pages a side (default 3)")
    parser.add_argument("--wasm", action="store_true", help="both sides in WebAssembly")
    parser.add_argument("--down", type=float, metavar="MB", help="a second")
    parser.add_argument("--delay", type=float, metavar="MS", help="there and back, of a request")
    parser.add_argument(
        "--camera", type=float, metavar="SECONDS", help="frames of a camera instead"
    )
    parser.add_argument("--json", metavar="FILE", help="write everything measured")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.models) - set(CASES))
    if unknown:
        parser.error(f"no model called {', '.join(unknown)}; there are {', '.join(CASES)}")
    compare.install_peers()
    names = given.models or MODELS
    if given.camera:
        found = {name: camera(CASES[name], given.camera) for name in names}
    else:
        pace, sides = PHONE, SIDES
        if given.delay is not None:
            pace, sides = Pace(given.delay / 1e3, math.inf, math.inf), DELAY_SIDES
        if given.down is not None:
            pace = pace._replace(down=given.down * 1e6)
        sides = WASM_SIDES if given.wasm else sides
        found = {name: loads(CASES[name], given.rounds, sides, pace) for name in names}
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(text(found))
    if given.camera:
        print(COUNTED)
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


def loads(
    case: cases.Case, rounds: int, sides: Sequence[str] = SIDES, pace: Pace = PHONE
) -> dict[str, dict[str, float]]:
    """Medians of what each side's pages felt until their first output."""
    options = ["--fallback", "wasm"] if "fallback" in sides else []
    site = site_of(case, options)
    # both programs, for the GPU and WebAssembly, are of one bundle
    site.folders["fallback"] = site.folders["bundle"]
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for turn in range(rounds):
        for side in sides if turn % 2 == 0 else sides[::-1]:
            print(f"{case.model}: {side}, page {turn + 1}", file=sys.stderr, flush=True)
            found[side].append(first_output(site, side, pace))
    return {
        side: {what: statistics.median(page[what] for page in pages) for what in pages[0]}
        for side, pages in found.items()
    }


def of_bundle(
    bundle: Path, arrays: dict[str, cases.Array], side: str = "ours", pace: Pace = PHONE
) -> dict[str, float]:
    """One page of a bundle that is there: `ours`, or `hinted`."""
    site = Site({"pages": PAGES, "bundle": bundle}, {**as_files(arrays)}, {"hinted": hints()})
    return first_output(site, side, pace)


def hints() -> list[str]:
    """What docs/page.md has for a page's head, of the bundle that our pages load."""
    text = (compare.ROOT / "docs" / "page.md").read_text(encoding="utf-8")
    return [link.replace('"model.tinyedge/', '"/bundle/') for link in HINT.findall(text)]


def first_output(site: Site, side: str, pace: Pace = PHONE) -> dict[str, float]:
    """One page over the line, in a fresh Chromium that nothing drives.

    Seconds, the longest task, how its process grows from that of a page without a model, the
    weights that it has of a bundle, in MB, and its requests. Raises SideError.
    """
    line = Line(*pace)
    with (
        Server(site, line) as server,
        undriven(f"{server.url}none.html#/{side}.html?felt") as chromium,
    ):
        rest = _heard(site, chromium)
        before = line.requests
        with Growth(chromium.pid) as growth:
            rest.heard.set()
            felt = _heard(site, chromium)
        requests = line.requests - before - 1  # that says so
        felt.heard.set()
    if "error" in felt.words:
        raise SideError(felt.words["error"])
    return {
        "first output, s": felt.words["seconds"],
        "longest task, ms (0: below 50)": felt.words["longest"],
        "growth of the page's process, MB": growth.megabytes(),
        "weights of the bundle, MB": _weights(site, side),
        "fetched over the line, MB": line.down.bytes / 1e6,
        "requests": requests,
    }


def _heard(site: Site, chromium: subprocess.Popen[bytes]) -> Said:
    """The next words of the page. Raises SideError."""
    ends = time.monotonic() + PATIENCE
    while chromium.poll() is None and time.monotonic() < ends:
        with suppress(Empty):
            return site.said.get(timeout=1)
    raise SideError(f"Chromium ended, or its page said nothing in {PATIENCE} s")


def _weights(site: Site, side: str) -> float:
    """In MB, of a side that is a bundle; of others none."""
    if side not in ("ours", "hinted", "fallback"):
        return 0.0
    name = "manifest-00001.json" if side == "fallback" else "manifest.json"
    text = (site.folders["bundle"] / name).read_text(encoding="ascii")
    return sum(weight["bytes"] for weight in json.loads(text)["weights"]) / 1e6


class Growth:
    """How a page's process, of a Chromium, grows to its peak from when this is made.

    `with Growth(process of Chromium) as growth: ...`, and then `growth.megabytes()`. Its own
    memory: without pages of files, which are mostly Chromium's program as it comes to be used.
    Nothing tells which of the renderers the page's is: it is the one that grows most.
    """

    def __init__(self, chromium: int) -> None:
        self._chromium = chromium
        self._before = {each: owned(each) for each in processes(chromium, "renderer")}
        self._peak = dict(self._before)
        self._after: set[int] = set()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch)

    def __enter__(self) -> Growth:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watcher.join()
        self._after = processes(self._chromium, "renderer")

    def megabytes(self) -> float:
        """Raises SideError where a page has come to a process of its own, which had no before."""
        if not self._after <= self._before.keys():
            raise SideError("Chromium has started another process for pages")
        return max(self._peak[process] - size for process, size in self._before.items())

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            for process, most in self._peak.items():
                self._peak[process] = max(most, owned(process))


# ---- a camera


def camera(case: cases.Case, seconds: float) -> dict[str, dict[str, float]]:
    """What frames of a camera cost each side's page, each in a Chromium of its own.

    The model has one input, a picture's three channels.
    """
    (name,) = (port.name for port in cases.session(case.path).get_inputs())
    site = site_of(case, ["--image", f"{name}=stretch,imagenet"])
    found = {}
    for side in SIDES:
        print(f"{case.model}: {side}, {seconds:g} s", file=sys.stderr, flush=True)
        with open_chromium(*VIDEO) as chromium, Server(site) as server:
            found[side] = watched(chromium, f"{server.url}{CAMERA[side]}.html", seconds)
    return found


def watched(chromium: Chromium, url: str, seconds: float) -> dict[str, float]:
    """A page that runs its model on frame after frame: what one costs, and what is left.

    Memory, in MB, is read when a page has come to rest after WARM and after `seconds` of frames:
    the JavaScript heap, and what the page's and the GPU's process own. A page's is the largest of
    its Chromium's processes for pages.
    """
    counters = (PAGES / "counters.js").read_text(encoding="utf-8")
    with chromium.page(counters + TASKS) as page:
        page.goto(url)
        page.evaluate(AWAIT, PATIENCE)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        idle = _metrics(session)
        page.evaluate("(rest) => new Promise((resolve) => setTimeout(resolve, rest))", 1e3 * REST)
        shown = (_metrics(session)["TaskDuration"] - idle["TaskDuration"]) / REST
        page.evaluate("(seconds) => bench.watch(seconds)", WARM)
        before, objects = _metrics(session), page.evaluate("bench.counters()")
        own = {
            "page's process": max(chromium.processes("renderer"), key=owned),
            "GPU process": max(chromium.processes("gpu-process"), key=owned),
        }
        memory = {what: owned(process) for what, process in own.items()}
        page.evaluate("longest = 0")
        watched = page.evaluate("(seconds) => bench.watch(seconds)", seconds)
        after, then = _metrics(session), page.evaluate("bench.counters()")
        left = {what: owned(process) for what, process in own.items()}
        made = sum(then[key] - objects[key] for key in ("buffers", "textures", "pipelines"))
        frames, spent = watched["computed"], after["TaskDuration"] - before["TaskDuration"]
        found = {
            "frames presented": watched["presented"],
            "frames missed": watched["presented"] - frames,
            "from a frame to its output, median ms": statistics.median(watched["latencies"]),
            "main thread a frame, CPU ms": 1e3 * (spent - shown * watched["seconds"]) / frames,
            "longest task, ms (0: below 50)": page.evaluate("longest"),
            "GPU objects made a frame": made / frames,
        }
        for when, metrics, sizes in (("start", before, memory), ("end", after, left)):
            found[f"JavaScript heap, {when}, MB"] = metrics["JSHeapUsedSize"] / 1e6
            found |= {f"{what}, {when}, MB": size for what, size in sizes.items()}
        return found


def _metrics(session: Any) -> dict[str, float]:
    session.send("HeapProfiler.collectGarbage")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return {each["name"]: each["value"] for each in metrics}


# ---- both


def site_of(case: cases.Case, options: Sequence[str]) -> Site:
    """What both sides' pages fetch, the bundle exported with these options."""
    runner = cases.session(case.path)
    site = compare.site_of(case, runner, cases.inputs(case, runner))
    place = cases.CACHE / f"{case.model}-page.tinyedge"
    site.folders["bundle"] = compare.bundle_of(compare.export(case, place, options))
    site.hints["hinted"] = hints()
    return site


if __name__ == "__main__":
    sys.exit(main())
