"""What is fetched other than weights, and the memory plan of a bundle."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import onnx

from tests.bench.server import Site

_LARGE = 1024


def fetched(site: Site, paths: dict[str, int]) -> dict[str, Any]:
    """Bytes, plain and gzipped, of what was fetched beside weights, inputs and our own pages."""
    files: dict[str, dict[str, int]] = {}
    for path in paths:
        name = Path(path).name
        if path.startswith("pages/") or name.startswith(("weights-", "input", "golden-")):
            continue
        data = site.read(path)
        if data is None or path == "case/options.json":
            continue
        if name == "model.onnx":
            data = _without_weights(data)
        files[name] = {"bytes": len(data), "gzipped": len(gzip.compress(data, 9, mtime=0))}
    return {
        "files": files,
        "bytes": sum(file["bytes"] for file in files.values()),
        "gzipped": sum(file["gzipped"] for file in files.values()),
    }


def _without_weights(data: bytes) -> bytes:
    """A model's bytes with its larger tensors' contents taken out."""
    model = onnx.load_model_from_string(data)
    tensors = list(model.graph.initializer)
    for node in model.graph.node:
        tensors += [a.t for a in node.attribute if a.type == onnx.AttributeProto.TENSOR]
    for tensor in tensors:
        if tensor.ByteSize() > _LARGE:
            for name in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
                tensor.ClearField(name)
    return model.SerializeToString()


def memory(bundle: Path) -> dict[str, Any]:
    """Activations of the first entry: bytes of the arenas, and of the largest set alive at a step.

    Inputs live until their last use, outputs from their first to the end.
    """
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="ascii"))
    first, last = manifest["entries"][0]["steps"]
    spans: dict[int, tuple[int, int]] = {}

    def used(buffer: int, step: int) -> None:
        begin, end = spans.get(buffer, (step, step))
        spans[buffer] = (min(begin, step), max(end, step))

    for port in manifest["inputs"]:
        used(port["buffer"], first)
    for index in range(first, last):
        step = manifest["steps"][index]
        for buffer in step.get("buffers", []):
            used(buffer, index)
    for port in manifest["outputs"]:
        used(port["buffer"], last - 1)
    buffers = manifest["buffers"]
    alive = [0] * (last - first)
    for buffer, (begin, end) in spans.items():
        if buffers[buffer]["weight"] < 0 and isinstance(buffers[buffer]["bytes"], int):
            for step in range(begin, end + 1):
                alive[step - first] += buffers[buffer]["bytes"]
    return {
        "arena_bytes": sum(arena["bytes"] for arena in manifest["arenas"]),
        "live_bytes": max(alive, default=0),
        "kernels": len(manifest["kernels"]),
        "peak_bytes": manifest["peak_bytes"],
    }
