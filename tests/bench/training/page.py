"""The step of the page that trains digits (examples/training) beside TensorFlow.js, in Chromium."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench import size
from tests.bench.cases import Array
from tests.bench.chromium import Chromium, open_chromium
from tests.bench.compare import MODULES, install_peers, peer_version
from tests.bench.server import Server, Site
from tests.bench.side import PAGES, Effort, as_files, measure, middle
from tests.bench.worker import SideError
from tinyedge import Tensor, nn
from tinyedge.core import dtype as dt

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "training"
PEER = MODULES / "@tensorflow"
OURS = "tinyedge, webgpu"
BACKENDS = ("webgl", "webgpu", "wasm", "cpu")
OBJECTS = ("buffers", "textures", "bindGroups", "pipelines", "modules")
CLOSE = 1e-4  # relative, of the first two losses
EFFORT = Effort(cpu=2.0, wall=60.0, block=0.4)

Say = Callable[[str], None]


def measured(rounds: int, say: Say, backends: Sequence[str] = BACKENDS) -> dict[str, Any]:
    """Of each side what its pages spent a step, in turns; `error` where it gives no answer."""
    install_peers()
    with tempfile.TemporaryDirectory() as scratch:
        site, rates = site_of(Path(scratch))
        with open_chromium() as chromium, Server(site) as server:
            return {
                "sides": _sides(chromium, server, rates, rounds, backends, say),
                "chromium": chromium.version,
                "peer": peer_version(PEER / "tfjs"),
            }


def site_of(folder: Path) -> tuple[Site, list[float]]:
    """The example's bundle, its first weights and a batch as tf.js wants them; the first rates."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        digits = importlib.import_module("digits")
    finally:
        sys.path.remove(str(EXAMPLES))
    site = Site({"pages": PAGES, "tfjs": PEER})
    site.folders["bundle"] = digits.export(folder / "digits.tinyedge", "webgpu")
    model, image, target = digits.untrained()
    site.files |= as_files({"image": image, "target": target})
    site.files |= as_files({"image": np.moveaxis(image, 1, -1), "target": target}, "tfjs")
    site.files |= as_files(turned(nn.state_dict(model)), "weights")
    rates = [digits.OPTIMIZER.at(Tensor(step, dt.int32)).item() for step in range(2)]
    return site, rates


def turned(weights: Mapping[str, Tensor]) -> dict[str, Array]:
    """Weights for images that have their channels last."""
    found = {name: tensor.numpy() for name, tensor in weights.items()}
    for name, array in found.items():
        if array.ndim == 4:  # [outputs, inputs, height, width]
            found[name] = array.transpose(2, 3, 1, 0)
        elif array.ndim == 2:  # [outputs, inputs]
            found[name] = array.T
    first = next(name for name, array in found.items() if array.ndim == 2)
    channels = [array.shape[-1] for array in found.values() if array.ndim == 4][-1]
    flat = found[first].reshape(channels, -1, found[first].shape[-1])
    found[first] = flat.swapaxes(0, 1).reshape(found[first].shape)
    return found


def _sides(
    chromium: Chromium,
    server: Server,
    rates: list[float],
    rounds: int,
    backends: Sequence[str],
    say: Say,
) -> dict[str, Any]:
    names = [OURS, *(f"tf.js, {backend}" for backend in backends)]
    pages: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    errors: dict[str, str] = {}
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else names[::-1]:
            if name in errors:
                continue
            say(f"{name}, page {turn + 1}")
            options = {"backend": name.split(", ")[1], "rates": rates}
            server.site.files["case/options.json"] = json.dumps(options).encode()
            side = "training" if name == OURS else "tfjs"
            try:
                pages[name].append(measure(chromium, server, side, EFFORT))
            except SideError as error:
                errors[name] = str(error)
    right = pages[OURS][0]["outputs"]["losses"] if pages[OURS] else np.full(2, np.nan)
    return {
        name: {"error": errors[name]} if name in errors else _summary(pages[name], server, right)
        for name in names
    }


def _summary(pages: list[dict[str, Any]], server: Server, right: Array) -> dict[str, Any]:
    counters, losses = pages[0]["run_counters"], pages[0]["outputs"]["losses"]
    return {
        "cpu": middle([spent.cpu for page in pages for spent in page["runs"]]),
        "first": middle([page["first"].cpu for page in pages]),
        "launches": counters["launches"],
        "objects": sum(counters[kind] for kind in OBJECTS),
        "fetched": size.fetched(server.site, pages[0]["fetched"]),
        "losses": losses.tolist(),
        "right": bool(np.allclose(losses, right, rtol=CLOSE, atol=0)),
    }


def table(result: dict[str, Any]) -> str:
    """As Markdown. The ratio is tinyedge's CPU seconds over the side's."""
    head = "side | CPU ms a step | least to greatest | of it | CPU s to the second step"
    head += " | GPU objects a step | fetched, KB gzipped"
    lines = [head, " | ".join(["---"] * len(head.split("|")))]
    sides = result["sides"]
    mine = sides[OURS].get("cpu", {}).get("median", float("nan"))
    wrong = []
    for name, side in sides.items():
        if "error" in side:
            lines.append(f"{name} | {side['error']} | | | | | ")
            continue
        cpu = side["cpu"]
        cells = [name, f"{cpu['median'] * 1e3:.0f}"]
        cells += [f"{cpu['least'] * 1e3:.0f} to {cpu['greatest'] * 1e3:.0f}"]
        cells += ["" if name == OURS else f"{mine / cpu['median']:.2f}x"]
        cells += [f"{side['first']['median']:.2f}", str(side["objects"])]
        cells += [f"{side['fetched']['gzipped'] / 1e3:.1f}"]
        lines.append(" | ".join(cells))
        if not side["right"]:
            wrong.append(f"{name}: losses {side['losses']}, by tinyedge {sides[OURS]['losses']}")
    said = f"TensorFlow.js {result['peer']}, Chromium {result['chromium']}, software adapters."
    return "\n".join([*(f"| {line} |" for line in lines), "", said, *wrong])


def wrong(result: dict[str, Any]) -> bool:
    """Whether ours gives no answer, or a side's losses are other ones."""
    sides = result["sides"]
    return "error" in sides[OURS] or not all(side.get("right", True) for side in sides.values())
