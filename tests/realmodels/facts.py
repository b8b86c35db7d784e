"""What a bundle's manifest says of itself: counts, memory, sizes."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Facts:
    """Of one bundle."""

    launches: int
    kernels: int
    distinct: int  # kernels that differ in more than their name
    arenas: int
    live: int  # bytes of the largest set of buffers that are needed at the same time
    zipped: int  # bytes of the manifest and the kernels by gzip
    runtime_zipped: int
    launched: tuple[dict[str, Any], ...]  # the manifest's launches
    winograd: int  # convolutions that are transformed


def read(bundle: Path) -> Facts:
    """The facts of a bundle for webgpu, taken from its files alone."""
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    launches = [step for step in manifest["steps"] if step["op"] == "launch"]
    kernels = [f["name"] for f in manifest["files"] if f["name"].startswith("kernels")]
    return Facts(
        len(launches),
        len(manifest["kernels"]),
        len(set(_texts(bundle, manifest))),
        sum(arena["bytes"] for arena in manifest["arenas"]),
        _live(manifest),
        sum(_zipped(bundle / name) for name in ("manifest.json", *kernels)),
        _zipped(bundle / "tinyedge.js"),
        tuple(launches),
        manifest["options"].get("winograd", 0),
    )


def _zipped(file: Path) -> int:
    return len(gzip.compress(file.read_bytes(), 9, mtime=0)) if file.exists() else 0


def _texts(bundle: Path, manifest: dict[str, Any]) -> list[tuple[bytes, ...]]:
    """Each kernel as the device sees it, without its name: equal ones are compiled twice."""
    files = [(bundle / file["name"]) for file in manifest["files"]]
    texts = []
    for kernel in manifest["kernels"]:
        data = files[kernel["file"]].read_bytes()
        source = data[kernel["offset"] : kernel["offset"] + kernel["bytes"]]
        source = source.replace(kernel["entry"].encode(), b"kernel")
        texts.append((source, json.dumps([kernel["workgroup"], kernel["bindings"]]).encode()))
    return texts


def _live(manifest: dict[str, Any]) -> int:
    """The largest sum of bytes of buffers between the first step that names them and the last.

    Inputs are there before the first step, outputs after the last. A buffer within another is
    counted once.
    """
    (entry,) = manifest["entries"]
    steps = manifest["steps"]
    spans: dict[int, list[int]] = {}
    for number in entry["inputs"]:
        spans[manifest["inputs"][number]["buffer"]] = [-1, -1]
    for index, step in enumerate(steps):
        for buffer in _buffers(step):
            span = spans.setdefault(buffer, [index, index])
            span[1] = index
    for number in entry["outputs"]:
        spans.setdefault(manifest["outputs"][number]["buffer"], [len(steps), len(steps)])
        spans[manifest["outputs"][number]["buffer"]][1] = len(steps)
    return max(
        _covered(
            [manifest["buffers"][b] for b, (first, last) in spans.items() if first <= t <= last]
        )
        for t in range(-1, len(steps) + 1)
    )


def _covered(buffers: list[dict[str, int]]) -> int:
    """Bytes of arenas that the buffers cover together."""
    ranges = sorted((b["arena"], b["offset"], b["bytes"]) for b in buffers if b["arena"] >= 0)
    total, arena, end = 0, -1, 0
    for number, offset, size in ranges:
        end = end if number == arena else 0
        arena = number
        total += max(0, offset + size - max(end, offset))
        end = max(end, offset + size)
    return total


def _buffers(step: dict[str, Any]) -> list[int]:
    if step["op"] == "launch":
        buffers: list[int] = step["buffers"]
        return buffers
    if step["op"] == "copy":
        return [step["source"], step["destination"]]
    return [step["condition"]]
