"""Makes files by their recipes, exports them for a target, runs them beside onnxruntime.

    python -m tests.exporters.runner MODULE [MODULE ...]

writes lists/MODULE.json: of each file what becomes of it on the targets below.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import tinyedge
from tests.exporters.recipes import Array
from tinyedge.core.errors import TinyedgeError
from tinyedge.core.program.device import Device, device_module
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle.reading import read

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".cache" / "exporters"
LISTS = Path(__file__).parent / "lists"
TARGETS = ("cpu", "webgpu")
PASSES = "passes"

# Modules of recipes, and the environment in which each runs: the name of a file of requirements.
EXPORTERS = {
    "onnxruntime_quantizer": "onnxruntime",
    "onnxruntime_optimizer": "onnxruntime",
    "onnxruntime_few_bits": "onnxruntime",
    "torch_files": "torch",
    "onnxslim_files": "onnxslim",
    "onnxconverter_common_files": "onnxconverter_common",
    "tf2onnx_files": "tf2onnx",
    "jax2onnx_files": "jax2onnx",
    "sklearn_files": "sklearn",
    "boosted_trees_files": "sklearn",
}


@dataclass(frozen=True)
class Made:
    """What an exporter wrote."""

    folder: Path
    versions: Mapping[str, str]
    recipes: Mapping[str, Mapping[str, Any]]  # options, tolerance and quick of each, by name
    failed: Mapping[str, str]  # what the exporter said of those for which it wrote nothing


def python_of(exporter: str) -> Path:
    """The Python of an exporter's environment."""
    return ENVIRONMENTS / EXPORTERS[exporter] / "bin" / "python"


def make(exporter: str, folder: Path, names: Sequence[str] = (), python: str = "") -> Made:
    """Files by an exporter in its environment, or by another Python. Raises CalledProcessError."""
    command = [python or str(python_of(exporter)), "-m", f"tests.exporters.{exporter}"]
    done = subprocess.run([*command, str(folder), *names], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return read_made(folder)


def read_made(folder: Path) -> Made:
    """What lies in a folder."""
    said = json.loads((folder / "made.json").read_text())
    return Made(folder, said["versions"], said["recipes"], said["failed"])


def listed(exporter: str) -> dict[str, Any]:
    """The committed list of an exporter."""
    found: dict[str, Any] = json.loads((LISTS / f"{exporter}.json").read_text())
    return found


def fixed(model: Any, given: Mapping[str, Array]) -> dict[str, int | str]:
    """`dims` that fix each open size at that of the inputs."""
    chosen: dict[str, int | str] = {}
    for port in model.graph.input:
        if port.name in given:
            sizes = given[port.name].shape
            for axis, dim in enumerate(port.type.tensor_type.shape.dim):
                if not dim.HasField("dim_value"):
                    chosen[f"{port.name}[{axis}]"] = sizes[axis]
    return chosen


def expected(path: Path, given: Mapping[str, Array]) -> dict[str, Array]:
    """What onnxruntime computes of a file as it is, without optimizing it further."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    results = map(as_numbers, session.run(None, dict(given)))
    return dict(zip(names, results, strict=True))


def as_numbers(result: Any) -> Array:
    """A result as tinyedge has it: of maps from labels a row of their values each, of labels that
    are texts their places in order.
    """
    if isinstance(result, list) and result and isinstance(result[0], dict):
        return np.array([list(row.values()) for row in result], np.float32)
    if isinstance(result, np.ndarray) and result.dtype == object:
        return np.unique(result, return_inverse=True)[1].reshape(result.shape)
    return np.asarray(result)


def result(path: Path, target: str, device: Device, tolerance: float, out: Path) -> str:
    """PASSES, or what is wrong: a refusal, or outputs that are not onnxruntime's."""
    model = onnx.load(path)
    kept = {port.name for port in model.graph.input}
    with np.load(path.with_suffix(".npz")) as stored:
        given = {name: stored[name] for name in stored if name in kept}
    try:
        right = expected(path, given)
    except Exception as refusal:  # of several types, which onnxruntime does not name
        return f"refused by onnxruntime: {type(refusal).__name__}"
    dims = fixed(model, given)
    try:
        tinyedge.export_onnx(path, target=target, out=out, dims=dims, golden=False, force=True)
    except TinyedgeError as refusal:
        return f"refused: {refusal.because}"
    with Replay(read(out).program, device, poison=True) as replay:
        found = replay.run(given)
    wrong = [
        f"{name} is {off:.2g} off"
        for name, value in right.items()
        if not (off := error(found[name], value)) <= tolerance
    ]
    return f"wrong: {', '.join(wrong)}" if wrong else PASSES


def error(found: Array, right: Array) -> float:
    """max|a - b| / max|b|; infinity for another shape, or NaN at other places."""
    if found.shape != right.shape:
        return float("inf")
    a, b = found.astype(np.float64), right.astype(np.float64)
    if (np.isnan(a) != np.isnan(b)).any():
        return float("inf")
    greatest = np.max(np.abs(np.nan_to_num(b)), initial=0.0)
    worst = np.max(np.abs(np.nan_to_num(a) - np.nan_to_num(b)), initial=0.0)
    return float(worst / (greatest or 1.0))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("exporters", nargs="+", choices=sorted(EXPORTERS))
    parser.add_argument("--target", choices=TARGETS, action="append", help="usually all of them")
    parser.add_argument("--folder", type=Path, help="where files lie that were made before")
    arguments = parser.parse_args()
    targets = arguments.target or TARGETS
    devices = {t: device_module(t).open() for t in targets}
    for exporter in arguments.exporters:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            if arguments.folder:
                made = read_made(arguments.folder / exporter)
            else:
                made = make(exporter, Path(folder))
            print(f"{exporter}: made in {time.monotonic() - began:.0f} s", flush=True)
            _update(exporter, made, devices)
        print(f"{exporter}: {time.monotonic() - began:.0f} s in all", flush=True)


def _update(exporter: str, made: Made, devices: Mapping[str, Device]) -> None:
    """Write what becomes of an exporter's files on devices into its list, after each file."""
    path = LISTS / f"{exporter}.json"
    before = json.loads(path.read_text())["files"] if path.exists() else {}
    files = {
        name: {**recipe, "result": before.get(name, {}).get("result", {})}
        for name, recipe in made.recipes.items()
        if name not in made.failed
    }
    text = {"versions": made.versions, "files": files, "not written": made.failed}
    LISTS.mkdir(exist_ok=True)
    for name, file in files.items():
        for target, device in devices.items():
            with tempfile.TemporaryDirectory() as out:
                bundle = Path(out) / "b.tinyedge"
                found = result(
                    made.folder / f"{name}.onnx", target, device, file["tolerance"], bundle
                )
            file["result"] = {**file["result"], target: found}
            print(f"{name} for {target}: {found}", flush=True)
        path.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
