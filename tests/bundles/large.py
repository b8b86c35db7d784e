"""Manifests as large as the format allows, of the records that cost most to check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from tinyedge.export.bundle.check import features_used
from tinyedge.export.bundle.manifest import SIZE_LIMIT, encode

Manifest = dict[str, Any]

BUFFER_BYTES = 256
KERNEL_BYTES = 16


def empty() -> Manifest:
    """A sound manifest with one entry that does nothing."""
    limits = ("bindings", "binding_bytes", "buffer_bytes", "invocations", "workgroups")
    return {
        **{"format": "tinyedge-bundle", "version": 1, "tool": "", "target": "webgpu"},
        **{"options": {}, "features": [], "symbols": [], "inputs": [], "outputs": []},
        **{"states": [], "arenas": [], "buffers": [], "weights": [], "kernels": [], "steps": []},
        "requirements": dict.fromkeys((*limits, "workgroup_bytes"), 2**50),
        "entries": [{"name": "main", "inputs": [], "outputs": [], "steps": [0, 0]}],
        "prelude": {"file": 0, "offset": 0, "bytes": 0},
        "golden": [],
        "files": [
            {"name": "kernels.wgsl", "bytes": 2**26, "sha256": "0" * 64},
            {"name": "weights-00000.bin", "bytes": 2**25, "sha256": "0" * 64},
        ],
        "peak_bytes": 0,
    }


def finished(manifest: Manifest) -> Manifest:
    """With what follows from the rest."""
    manifest["peak_bytes"] = sum(r["bytes"] for r in (*manifest["arenas"], *manifest["weights"]))
    manifest["entries"][0]["steps"] = [0, len(manifest["steps"])]
    for entry in manifest["entries"][1:]:
        entry["steps"] = [len(manifest["steps"]), 0]
    manifest["features"] = list(features_used(manifest))
    return manifest


def memory(manifest: Manifest, buffers: int) -> None:
    """Buffers that lie one behind the other."""
    manifest["arenas"] = [{"bytes": buffers * BUFFER_BYTES}]
    manifest["buffers"] = [
        {"arena": 0, "weight": -1, "offset": i * BUFFER_BYTES, "bytes": BUFFER_BYTES}
        for i in range(buffers)
    ]


def kernel(name: str, number: int, bindings: int) -> Manifest:
    place = {"file": 0, "offset": number * KERNEL_BYTES, "bytes": KERNEL_BYTES}
    binding = {"access": "read_write", "dtype": "f"}
    facts = {"workgroup": [1, 1, 1], "moves": [], "symbols": False}
    return {"entry": name, **place, **facts, "bindings": [binding] * bindings}


def launch(buffers: list[int], size: Any = 1) -> Manifest:
    return {
        **{"op": "launch", "kernel": 0, "buffers": buffers, "grid": [size, 1, 1]},
        **{"flops": 0, "nodes": []},
    }


def port(name: str, buffer: int, shape: list[Any], **more: Any) -> Manifest:
    tensor = {"dtype": "float32", "storage": "float32", "shape": shape, "buffer": buffer}
    return {"name": name, **tensor, **(more or {"slices": [], "count": -1, "axis": 0})}


Records = Iterator[None]


def _launches(m: Manifest) -> Records:
    """Launches with as many buffers as there may be, which are compared with each other."""
    memory(m, 64)
    m["kernels"] = [kernel("k", 0, 64)]
    for number in count():
        iteration = number % 64
        m["steps"].append(launch([*range(iteration, 64), *range(iteration)]))
        yield


def _expressions(m: Manifest) -> Records:
    memory(m, 1)
    m["kernels"] = [kernel("k", 0, 1)]
    m["symbols"] = [{"name": "n", "min": 1, "max": 9, "step": 1}]
    for number in count(1):
        m["steps"].append(launch([0], ["add"] * 127 + [number] + ["$n"] * 127))
        yield


def _buffers(m: Manifest) -> Records:
    m["arenas"] = [{"bytes": 2**36}]
    for number in count():
        place = {"offset": number * BUFFER_BYTES, "bytes": BUFFER_BYTES}
        m["buffers"].append({"arena": 0, "weight": -1, **place})
        yield


def _kernels(m: Manifest) -> Records:
    for number in count():
        m["kernels"].append(kernel(f"{'k' * 122}{number:06}", number, 16))
        yield


def _slices(m: Manifest) -> Records:
    memory(m, 1024)
    m["buffers"] = [{**buffer, "bytes": 4} for buffer in m["buffers"]]
    parts = [{"name": f"{i:03}", "axis": 0, "start": 0, "size": 1} for i in range(256)]
    for number in range(1024):
        m["outputs"].append(port(f"o{number}", number, [1], slices=parts, count=-1, axis=0))
        yield


def _ports(m: Manifest) -> Records:
    """As many ports, states and entries as there may be."""
    memory(m, 3072)
    for number in range(1024):
        m["inputs"].append(port(f"i{number}", number, [1]))
        m["outputs"].append(
            {**port(f"o{number}", 1024 + number, [1]), "count": 1023, "dtype": "int32"}
            | {"storage": "int32"}
        )
        more = {"initial": -1, "update": "replace", "axis": 0}
        m["states"].append(port(f"s{number}", 2048 + number, [1], **more))
    everything = list(range(1024))
    m["entries"][0] |= {"inputs": everything, "outputs": everything}
    for number in range(1, 64):
        m["entries"].append({**m["entries"][0], "name": f"e{number}"})
    yield


def _segments(m: Manifest) -> Records:
    files = 4094
    m["files"] = m["files"][:1] + [
        {"name": f"weights-{i:05}.bin", "bytes": 2**25, "sha256": "0" * 64} for i in range(files)
    ]
    for number in count():
        segments = [
            {"file": 1 + number // 32, "offset": (number % 32 * 4096 + i) * 256, "bytes": 256}
            for i in range(4096)
        ]
        weight = {"name": "w", "dtype": "uint8", "storage": "uint8", "shape": [2**20]}
        m["weights"].append({**weight, "bytes": 2**20, "segments": segments})
        yield


def _strings(m: Manifest) -> Records:
    memory(m, 1)
    m["kernels"] = [kernel("k", 0, 1)]
    while True:
        m["steps"].append({**launch([0]), "nodes": ["n"] * 1024})
        yield


def _options(m: Manifest) -> Records:
    while True:
        m["options"].setdefault("a", []).append([[0] * 1000])
        yield


MAKERS: dict[str, Callable[[Manifest], Records]] = {
    **{"launches": _launches, "expressions": _expressions, "buffers": _buffers},
    **{"kernels": _kernels, "slices": _slices, "ports": _ports, "segments": _segments},
    **{"strings": _strings, "options": _options},
}
MOST = {"buffers": 262144, "kernels": 16384, "steps": 262144, "weights": 65536}


def text(name: str, share: float = 1) -> bytes:
    """The text of a manifest of such records, so large as the format allows, or a share of that."""
    manifest = empty()
    records = MAKERS[name](manifest)
    fixed = 0
    for number in count(1):
        if next(records, "end") == "end":
            break
        if number == 2:  # all are about as long
            each = len(encode(finished(manifest))) - fixed
            last = int(min((SIZE_LIMIT * share - fixed) / each, min(MOST.values()) * 1e9))
        elif number == 1:
            fixed = len(encode(finished(manifest)))
            last = 2
        full = any(len(manifest[kind]) >= most * share for kind, most in MOST.items())
        if number >= max(2, last * 0.97) or full:
            break
    return encode(finished(manifest))
