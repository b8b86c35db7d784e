"""`python -m tests.bench.page`: what a page feels of a model, by tinyedge and by onnxruntime-web.

    python -m tests.bench.page                       # onet and mobilenet_v2
    python -m tests.bench.page resnet18 --rounds 5   # other models, the median of so many pages
    python -m tests.bench.page dense --wasm --down 8 # 128 MiB, on no GPU, 8 MB a second
    python -m tests.bench.page --camera 60           # mobilenet_v2 on a camera, for a minute

Each page loads over a line like a phone's, which our server keeps, in a fresh headless Chromium
that nothing drives, the sides by turns: seconds by the clock from navigation to the first output,
the longest task of the main thread meanwhile, and by how much the page's process grows, to its
peak, from a page without a model. `--camera` runs the model on Chromium's own camera, a frame after
the other: tinyedge takes the video (`--image`), the other side its pixels by a canvas, as pages do;
processor time of the main thread a frame, without that of showing the camera, and what is left
behind. `bare` is a page with one launch by hand, or one that takes each frame to a texture and
computes nothing: what the browser itself needs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

from tests.bench import cases, compare
from tests.bench.chromium import VIDEO, Chromium, open_chromium, renderers, undriven
from tests.bench.line import Line
from tests.bench.server import Said, Server, Site
from tests.bench.side import AWAIT, PAGES, PATIENCE, as_files
from tests.bench.worker import SideError
from tests.study import networks

SIDES = ("ours", "peer", "bare")
WASM_SIDES = ("fallback", "wasm")
CAMERA = {side: f"camera-{side}" for side in SIDES}
MODELS = ("onet", "mobilenet_v2")


def _dense() -> Any:
    n = networks.Network("dense", networks.OPSET)
    x = n.input("x", [1, 2048])
    for _ in range(8):
        x = n.node("Tanh", n.gemm(x, 2048, 2048))
    return n.model({x: [1, 2048]})


# `dense` is 128 MiB of weights and little beside.
CASES = {**cases.ALL, "dense": cases.Case("dense", "128 MiB", make=_dense)}
REST = 5.0  # seconds in which nothing is computed
# Chromium's "Fast 4G": seconds there and back, bytes a second.
LATENCY, DOWN, UP = 0.165, 1_012_500, 168_750
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
    parser.add_argument("--wasm", action="store_true", help="both sides in WebAssembly")
    parser.add_argument(
        "--down", type=float, default=DOWN / 1e6, metavar="MB", help="a second (%(default)s)"
    )
    parser.add_argument(
        "--camera", type=float, metavar="SECONDS", help="frames of a camera instead"
    )
    parser.add_argument("--json", metavar="FILE", help="write everything measured")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.models) - set(CASES))
    if unknown:
        parser.error(f"no model called {', '.join(unknown)}; there are {', '.join(CASES)}")
    compare.install_peers()
    if given.camera:
        found = {"camera": camera(given.camera)}
    else:
        sides = WASM_SIDES if given.wasm else SIDES
        found = {
            name: loads(CASES[name], given.rounds, sides, given.down * 1e6)
            for name in given.models or MODELS
        }
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


def loads(
    case: cases.Case, rounds: int, sides: Sequence[str] = SIDES, down: float = DOWN
) -> dict[str, dict[str, float]]:
    """Medians of what each side's pages felt until their first output. down: bytes a second."""
    options = ["--fallback", "wasm"] if "fallback" in sides else []
    site = site_of(case, options)
    # both programs, for the GPU and WebAssembly, are of one bundle
    site.folders["fallback"] = site.folders["bundle"]
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for turn in range(rounds):
        for side in sides if turn % 2 == 0 else sides[::-1]:
            print(f"{case.model}: {side}, page {turn + 1}", file=sys.stderr, flush=True)
            found[side].append(first_output(site, side, down))
    return {
        side: {what: statistics.median(page[what] for page in pages) for what in pages[0]}
        for side, pages in found.items()
    }


def of_bundle(bundle: Path, arrays: dict[str, cases.Array]) -> dict[str, float]:
    """One page of a bundle that is there."""
    return first_output(Site({"pages": PAGES, "bundle": bundle}, {**as_files(arrays)}), "ours")


def first_output(site: Site, side: str, down: float = DOWN) -> dict[str, float]:
    """One page over the line, in a fresh Chromium that nothing drives.

    Seconds, the longest task, how its process grows from that of a page without a model, and the
    weights that it has of a bundle, in MB. Raises SideError.
    """
    line = Line(LATENCY, down, UP)
    with (
        Server(site, line) as server,
        undriven(f"{server.url}none.html#/{side}.html?felt") as chromium,
    ):
        rest = _heard(site, chromium)
        with Growth(chromium.pid) as growth:
            rest.heard.set()
            felt = _heard(site, chromium)
        felt.heard.set()
    if "error" in felt.words:
        raise SideError(felt.words["error"])
    return {
        "first output, s": felt.words["seconds"],
        "longest task, ms (0: below 50)": felt.words["longest"],
        "growth of the page's process, MB": growth.megabytes(),
        "weights of the bundle, MB": _weights(site, side),
        "fetched over the line, MB": line.down.bytes / 1e6,
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
    if side not in ("ours", "fallback"):
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
        self._before = {process: _owned(process) for process in renderers(chromium)}
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
        self._after = renderers(self._chromium)

    def megabytes(self) -> float:
        """Raises SideError where a page has come to a process of its own, which had no before."""
        if not self._after <= self._before.keys():
            raise SideError("Chromium has started another process for pages")
        return max(self._peak[process] - size for process, size in self._before.items())

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            for process, most in self._peak.items():
                self._peak[process] = max(most, _owned(process))


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
    case = CASES["mobilenet_v2"]
    (name,) = (port.name for port in cases.session(case.path).get_inputs())
    site = site_of(case, ["--image", f"{name}=stretch,imagenet"])
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


def site_of(case: cases.Case, options: Sequence[str]) -> Site:
    """What both sides' pages fetch, the bundle exported with these options."""
    runner = cases.session(case.path)
    site = compare.site_of(case, runner, cases.inputs(case, runner))
    place = cases.CACHE / f"{case.model}-page.tinyedge"
    site.folders["bundle"] = compare.bundle_of(compare.export(case, place, options))
    return site


if __name__ == "__main__":
    sys.exit(main())
