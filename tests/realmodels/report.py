"""One table of what exporting and running each model gives.

    python -m tests.realmodels.report                          # fixed sizes, every model
    python -m tests.realmodels.report onet minilm --symbolic   # one bundle for many sizes
    python -m tests.realmodels.report opennsfw --precision fp16 --stages

launches: beside them the limit (contractions and what is allowed beyond). live: the largest set of
buffers needed at the same time. gz: manifest and kernels. error: the greatest over outputs and
sizes of max|a-b| / max|b| against onnxruntime. Export seconds include the golden case; they are
those of a machine that may be busy.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import tinyedge
from tests.realmodels import cases, facts
from tests.realmodels.inputs import Arrays
from tinyedge.core.errors import TinyedgeError
from tinyedge.export.verify.browser import Browser, open_browser

COLUMNS = (
    ("model", -10),
    ("dims", -24),
    ("launches", 8),
    ("limit", 5),
    ("contr.", 6),
    ("kernels", 7),
    ("arenas", 9),
    ("x live", 6),
    ("gz", 6),
    ("export s", 8),
    ("cpu", 8),
    ("wgpu", 8),
    ("Chromium", 8),
)
PLACES = ("cpu", "wgpu", "chromium")


class Stages:
    """Seconds of each stage of an export, from its progress."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = self._last = time.perf_counter()
        self._stage = ""

    def __call__(self, stage: str, *_: object) -> None:
        now = time.perf_counter()
        if self._stage:
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._last
        self._stage, self._last = stage, now

    @property
    def total(self) -> float:
        return self._last - self._start


def row(
    model: str, symbolic: bool, precision: str, chromium: Browser | None, folder: Path
) -> tuple[list[str], Stages]:
    """A model's line of the table. chromium: None leaves its column empty."""
    stages = Stages()
    bundle = cases.export(
        model,
        folder / "webgpu",
        symbolic=symbolic,
        precision=precision,
        golden=True,
        progress=stages,
    )
    stages("")
    found = facts.read(bundle)
    contractions = len(cases.contractions(model))
    sizes = cases.SYMBOLIC[model].sizes if symbolic else [cases.CASES[model].size]
    feeds = [cases.feeds(model, size) for size in sizes]

    def error(place: str, run: Callable[[], Sequence[Arrays]]) -> str:
        try:
            outputs = run()
        except TinyedgeError as fault:
            print(f"{model} on {place}: {fault}", file=sys.stderr)
            return "failed"
        pairs = zip(outputs, sizes, strict=True)
        errors = [cases.errors(o, cases.expected(model, size)).values() for o, size in pairs]
        return f"{max(map(max, errors)):.1e}"

    def on_cpu() -> list[Arrays]:
        other = cases.export(model, folder / "cpu", target="cpu", symbolic=symbolic)
        return _replay(other, feeds)

    dims = (cases.SYMBOLIC[model] if symbolic else cases.CASES[model]).dims
    cells = [
        model,
        " ".join(str(value) for value in dims.values()) or "-",
        str(found.launches),
        str(contractions + cases.CASES[model].spare),
        str(contractions),
        str(found.kernels) + (f" ({found.distinct})" if found.distinct != found.kernels else ""),
        f"{found.arenas:,}",
        f"{found.arenas / found.live:.2f}",
        f"{found.zipped:,}",
        f"{stages.total:.1f}",
        "-" if precision == "fp16" else error("cpu", on_cpu),
        error("wgpu", lambda: _replay(bundle, feeds)),
        "-"
        if chromium is None
        else error("Chromium", lambda: chromium.run_in_page(bundle, feeds)[0]),
    ]
    return cells, stages


def _replay(bundle: Path, feeds: Sequence[Arrays]) -> list[Arrays]:
    with tinyedge.load(bundle) as ready:
        return [ready.run(arrays) for arrays in feeds]


def line(cells: Sequence[str]) -> str:
    return "  ".join(
        cell.rjust(width) if width > 0 else cell.ljust(-width)
        for cell, (_, width) in zip(cells, COLUMNS, strict=True)
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.realmodels.report",
        description="Export and run the models; print one table.",
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(cases.CASES))
    parser.add_argument("--symbolic", action="store_true", help="with symbolic sizes")
    parser.add_argument("--precision", choices=["fp32", "fp16"], default="fp32")
    parser.add_argument("--stages", action="store_true", help="the seconds of each export stage")
    parser.add_argument("--no-browser", action="store_true", help="leave Chromium out")
    given = parser.parse_args(arguments)
    known = cases.SYMBOLIC if given.symbolic else cases.CASES
    chosen = given.models or [m for m in known if given.precision == "fp32" or m in cases.HALF]
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        parser.error(f"no such model: {', '.join(unknown)}")
    chromium = None if given.no_browser else open_browser()
    print(line([title for title, _ in COLUMNS]))
    try:
        for model in chosen:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    cells, stages = row(
                        model, given.symbolic, given.precision, chromium, Path(folder)
                    )
                except TinyedgeError as fault:
                    print(f"{model:<10}  {fault}", flush=True)
                    continue
            print(line(cells), flush=True)
            if given.stages:
                print(
                    "  " + ", ".join(f"{n} {s:.1f}" for n, s in stages.seconds.items() if s >= 0.05)
                )
    finally:
        if chromium is not None:
            chromium.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
