"""What a model launches: of a bundle for qcom as its manifest says, of tinygrad as it was seen."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Kernel:
    """A kernel's text with all that it calls, and the compiler's options."""

    name: str
    source: str
    options: str = "-cl-std=CL1.2"


@dataclass(frozen=True)
class Launch:
    """A kernel run by so many threads; for what it is run, as far as that is known."""

    kernel: Kernel
    threads: int
    nodes: tuple[str, ...] = ()


def of_bundle(bundle: Path) -> list[Launch]:
    """The launches of a bundle's first entry. Raises ValueError for another target's bundle."""
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="ascii"))
    if manifest["target"] != "qcom":
        raise ValueError(f"{bundle} is for {manifest['target']}: export it with --target qcom")
    text = (bundle / "kernels.cl").read_text(encoding="ascii")
    prelude = text[: min(record["offset"] for record in manifest["kernels"])]
    kernels = [
        Kernel(
            record["entry"],
            prelude + text[record["offset"] : record["offset"] + record["bytes"]],
            manifest["options"]["build"],
        )
        for record in manifest["kernels"]
    ]
    first, last = manifest["entries"][0]["steps"]
    return [
        Launch(
            kernels[step["kernel"]],
            math.prod(step["grid"]) * math.prod(manifest["kernels"][step["kernel"]]["workgroup"]),
            tuple(step["nodes"]),
        )
        for step in manifest["steps"][first:last]
        if step["op"] == "launch"
    ]


def counted(launches: Iterable[Launch]) -> dict[tuple[Kernel, int], int]:
    """How often each kernel is launched with so many threads, in the order of the first launch."""
    return dict(Counter((launch.kernel, launch.threads) for launch in launches))
