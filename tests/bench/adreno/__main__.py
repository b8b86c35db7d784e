"""`python -m tests.bench.adreno`: see the package."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import onnx

import tinyedge
from tests import models
from tests.bench import cases
from tests.bench import report as tables
from tests.bench.adreno import counts, launches, mesa, report
from tests.bench.adreno.capture import SETTINGS
from tests.bench.opencl import peer
from tests.bench.worker import SideError, Worker
from tests.study import networks
from tinyedge.core.errors import TinyedgeError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.adreno",
        description="Kernels as machine code of an Adreno 630, by Mesa's compiler: counted.",
    )
    known = ", ".join([*networks.NETWORKS, *cases.CASES])
    parser.add_argument("models", nargs="+", metavar="MODEL", help=f"a bundle, a file, or {known}")
    parser.add_argument("--beside", choices=["tinygrad"], help="also tinygrad's kernels")
    parser.add_argument("--precision", choices=["fp16", "fp32"], default="fp16")
    parser.add_argument("--profile", default="default", help="of the target qcom")
    parser.add_argument("--kernels", type=int, metavar="N", help="also the N heaviest kernels")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--json", metavar="FILE", help="write everything counted")
    given = parser.parse_args(arguments)
    version = mesa.version()
    if version is None:
        print(mesa.MISSING, file=sys.stderr)
        return 3
    if given.beside:
        peer.install()
    try:
        pairs = [(Path(name).stem, _sides(name, given)) for name in given.models]
    except (TinyedgeError, SideError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    found = [report.models(pairs)]
    if given.kernels:
        found += [report.kernels(side, given.kernels) for _, sides in pairs for side in sides]
    notes = report.notes(version, [side for _, sides in pairs for side in sides])
    print((tables.as_markdown if given.markdown else tables.as_text)(found, notes))
    if given.json:
        text = json.dumps({"mesa": version, "models": report.as_json(pairs)}, indent=1)
        Path(given.json).write_text(text + "\n", encoding="utf-8")
    return 0


def _sides(name: str, given: argparse.Namespace) -> list[counts.Side]:
    """Ours, then the other one."""
    with tempfile.TemporaryDirectory() as scratch:
        bundle, dims, file = Path(name), {}, Path(name)
        if not (bundle / "manifest.json").exists():
            file, dims = _model(name, Path(scratch))
            bundle = tinyedge.export_onnx(
                file,
                target="qcom",
                out=Path(scratch) / "bundle",
                dims=dict(dims),
                profile=given.profile,
                precision=given.precision,
                golden=False,
            )
        found = [counts.measure("tinyedge", launches.of_bundle(bundle), mesa.compile_all)]
        if given.beside:
            if file is bundle or file.is_dir():
                raise ValueError(f"{name} is a bundle: tinygrad needs the model")
            file = peer.readable(file, Path(scratch) / "for-tinygrad.onnx")
            seen = _of_peer(file, dims, given.precision)
            found.append(counts.measure(f"tinygrad {peer.VERSION}", seen, mesa.compile_all))
    return found


def _model(name: str, scratch: Path) -> tuple[Path, Mapping[str, int]]:
    """A model's file, and the sizes it is given."""
    if name in networks.NETWORKS:
        file = scratch / f"{name}.onnx"
        onnx.save(networks.NETWORKS[name](), file)
        return file, {}
    if name in cases.CASES:
        models.paths([name])
        return cases.CASES[name].path, cases.CASES[name].dims
    if not Path(name).exists():
        raise ValueError(f"there is no file and no model {name}")
    return Path(name), {}


def _of_peer(file: Path, dims: Mapping[str, int], precision: str) -> list[launches.Launch]:
    """tinygrad's launches."""
    graph = onnx.load(file, load_external_data=False).graph
    weights = {value.name for value in graph.initializer}
    shapes = {
        port.name: [
            dims.get(f"{port.name}[{axis}]", size.dim_value or 1)
            for axis, size in enumerate(port.type.tensor_type.shape.dim)
        ]
        for port in graph.input
        if port.name not in weights
    }
    path = [str(peer.FOLDER), str(mesa.ROOT)]
    half = {"FLOAT16": "1" if precision == "fp16" else "0"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.bench.adreno.capture"]
    worker = Worker(command, {"PYTHONPATH": ":".join(path), **SETTINGS, **half})
    try:
        seen = worker.ask((file, shapes))["launches"]
    finally:
        worker.close()
    return [launches.Launch(launches.Kernel(name, text), threads) for name, text, threads in seen]


if __name__ == "__main__":
    sys.exit(main())
