"""The whole path on a real model: `make demo`.

Downloads an image classifier (opennsfw: 53 convolutions, 6 million weights), compiles it for WebGPU
and for the cpu, runs one image through both bundles - in Python and, by the bundle's own
tinyedge.js, in headless Chromium - and compares every result with onnxruntime.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tinyedge  # noqa: E402
from tests import models  # noqa: E402
from tinyedge.cli.output import bytes_of, seconds_of, table  # noqa: E402

OUT = ROOT / "build" / "demo"
TOLERANCE = 1e-4

Array = np.ndarray[Any, Any]


def image() -> Array:
    """A picture as the model wants it: 224 x 224, blue green red, the mean color taken away."""
    y, x = np.mgrid[0:224, 0:224].astype(np.float32) / 224
    disc = ((x - 0.5) ** 2 + (y - 0.4) ** 2 < 0.08).astype(np.float32)
    colors = np.stack([0.4 + 0.4 * y, 0.3 + 0.3 * disc, 0.2 + 0.6 * disc * x], axis=-1)
    grain = np.random.default_rng(0).normal(0, 0.02, colors.shape).astype(np.float32)
    pixels = np.clip(colors + grain, 0, 1) * 255
    mean = np.array([104, 117, 123], np.float32)
    return np.ascontiguousarray((pixels - mean)[None], np.float32)


def with_onnxruntime(model: Path, inputs: dict[str, Array]) -> tuple[Array, float]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    session.run(None, inputs)
    start = time.perf_counter()
    (scores,) = session.run(None, inputs)
    return scores, time.perf_counter() - start


def in_python(bundle: Path, inputs: dict[str, Array]) -> tuple[Array, float, float]:
    """The scores, seconds until the first result, seconds of one more run."""
    start = time.perf_counter()
    model = tinyedge.load(bundle)
    scores = model.run(inputs)["outputs"]
    first = time.perf_counter() - start
    start = time.perf_counter()
    again = model.run(inputs)["outputs"]
    seconds = time.perf_counter() - start
    if not np.array_equal(scores, again):
        raise SystemExit("demo: two runs gave different bits")
    return scores, first, seconds


def in_chromium(bundle: Path, inputs: dict[str, Array]) -> tuple[Array, float, float]:
    from tinyedge.export.verify.browser import open_browser

    browser = open_browser()
    try:
        (first, _), stats = browser.run_in_page(bundle, [inputs, inputs])
    finally:
        browser.close()
    times = stats["times"]
    return first["outputs"], (stats["loadTime"] + times[0]) / 1e3, times[1] / 1e3


def main() -> int:
    print("model     opennsfw, an image classifier, from the package registry")
    model = models.path("opennsfw")
    bundles = {}
    for target in ("cpu", "webgpu"):
        start = time.perf_counter()
        bundles[target] = OUT / f"opennsfw-{target}.tinyedge"
        # The model's batch axis is symbolic; left open it would become 1 with a note.
        tinyedge.export_onnx(
            model, target=target, out=bundles[target], dims={"input:0[0]": 1}, force=True
        )
        size = sum(file.stat().st_size for file in bundles[target].rglob("*") if file.is_file())
        seconds = seconds_of(time.perf_counter() - start)
        print(f"export    {target}: {bytes_of(size)} in {seconds}")
    inputs = {"input:0": image()}
    expected, seconds = with_onnxruntime(model, inputs)
    rows: list[tuple[object, ...]] = [
        ("onnxruntime, cpu", "-", seconds_of(seconds), "-", scores_of(expected), "reference")
    ]
    places: tuple[tuple[str, Callable[..., tuple[Array, float, float]], str], ...] = (
        ("tinyedge, cpu", in_python, "cpu"),
        ("tinyedge, wgpu", in_python, "webgpu"),
        ("tinyedge, Chromium", in_chromium, "webgpu"),
    )
    failed = False
    for name, run, target in places:
        print(f"run       {name}")
        scores, first, seconds = run(bundles[target], inputs)
        error = float(np.abs(scores - expected).max() / np.abs(expected).max())
        agrees = scores.shape == expected.shape and error <= TOLERANCE
        failed = failed or not agrees
        result = "agrees" if agrees else "DIFFERS"
        times = seconds_of(first), seconds_of(seconds)
        rows.append((name, *times, f"{error:.1e}", scores_of(scores), result))
    print()
    table(("where", ">first result", ">next", ">error", "scores (safe, not)", "result"), rows)
    print()
    print(f"The model:  {model.relative_to(ROOT)}, for .venv/bin/tinyedge inspect, export, ..")
    print(f"The bundle: {bundles['webgpu'].relative_to(ROOT)}")
    print(f"Its page:   .venv/bin/tinyedge serve {bundles['webgpu'].relative_to(ROOT)}")
    return 1 if failed else 0


def scores_of(scores: Array) -> str:
    return ", ".join(f"{score:.4f}" for score in scores.reshape(-1))


if __name__ == "__main__":
    sys.exit(main())
