"""Where a bundle's time goes on PoCL: the CPU time of each launch, most first.

    python -m tests.bench.opencl.kernels opennsfw                   # a model's name: exported first
    python -m tests.bench.opencl.kernels build/opennsfw.tinyedge
    python -m tests.bench.opencl.kernels minilm --top 10

A launch is repeated alone, on zeroed buffers of the bundle's sizes: its operands lie in the caches
if they fit. The CPU time of all threads is counted, which depends little on what else the machine
does. Bundles with images are for `tinyedge bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench import cases
from tests.bench.opencl import process
from tests.bench.worker import measure
from tinyedge.core.errors import TinyedgeError

SECONDS = 0.06  # CPU time of a sample
SAMPLES = 3  # the least counts


def launches(bundle: Path) -> list[dict[str, Any]]:
    """The distinct launches of the first entry: kernel, grid, times, cpu (s), flops, nodes."""
    import pyopencl as cl

    manifest = json.loads((bundle / "manifest.json").read_text(encoding="ascii"))
    if "images" in manifest:
        raise ValueError(f"{bundle} has images")
    context = cl.Context([cl.get_platforms()[0].get_devices()[0]])
    queue = cl.CommandQueue(context)
    source = (bundle / "kernels.cl").read_text(encoding="ascii")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        program = cl.Program(context, source).build(manifest["options"]["build"])
    buffers = [_buffer(cl, context, buffer["bytes"]) for buffer in manifest["buffers"]]
    found: dict[Any, dict[str, Any]] = {}
    first, last = manifest["entries"][0]["steps"]
    for step in manifest["steps"][first:last]:
        if step["op"] != "launch":
            continue
        key = (step["kernel"], *step["grid"])
        if key in found:
            found[key]["times"] += 1
            continue
        record = manifest["kernels"][step["kernel"]]
        kernel = cl.Kernel(program, record["entry"])
        kernel.set_args(*(buffers[index] for index in step["buffers"]))
        workgroup = record["workgroup"]
        threads = [count * size for count, size in zip(step["grid"], workgroup, strict=True)]

        def run(count: int, kernel: Any = kernel, shape: Any = (threads, workgroup)) -> float:
            def enqueue() -> None:
                for _ in range(count):
                    cl.enqueue_nd_range_kernel(queue, kernel, *shape)
                queue.finish()

            return measure(enqueue, 1)["cpu"] / count

        run(1)  # PoCL compiles
        count = max(2, min(2000, round(SECONDS / max(run(2), 1e-6))))
        found[key] = {
            "kernel": record["entry"],
            "grid": step["grid"],
            "workgroup": workgroup,
            "times": 1,
            "cpu": min(run(count) for _ in range(SAMPLES)),
            "flops": step["flops"],
            "nodes": step["nodes"],
        }
    return list(found.values())


def _buffer(cl: Any, context: Any, bytes: int) -> Any:
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=np.zeros(bytes, np.uint8))


def show(rows: Sequence[dict[str, Any]], top: int) -> None:
    """Print the table."""
    total = sum(row["cpu"] * row["times"] for row in rows)
    print(f"{'CPU ms':>9} {'share':>6} {'times':>5} {'MFLOP':>8} {'GFLOP/s':>8}  kernel  (nodes)")
    for row in sorted(rows, key=lambda row: -row["cpu"] * row["times"])[:top]:
        seconds = row["cpu"] * row["times"]
        rate = f"{row['flops'] / row['cpu'] / 1e9:.1f}" if row["flops"] else "-"
        counts = "x".join(map(str, row["grid"]))
        threads = "x".join(map(str, row["workgroup"]))
        print(
            f"{seconds * 1e3:9.3f} {100 * seconds / total:5.1f}% {row['times']:>5} "
            f"{row['flops'] / 1e6:8.1f} {rate:>8}  {row['kernel']}: {counts} of {threads}  "
            f"({', '.join(row['nodes'][:2])[:60]})"
        )
    print(f"total {total * 1e3:.2f} CPU ms in {sum(row['times'] for row in rows)} launches")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.opencl.kernels", description="CPU time of each launch on PoCL."
    )
    parser.add_argument("bundle", help=f"a bundle, or a model to export: {', '.join(cases.CASES)}")
    parser.add_argument("--top", type=int, default=30, help="rows shown (default 30)")
    given = parser.parse_args(arguments)
    os.environ.update(process.driver("pocl"))
    try:
        bundle = Path(given.bundle)
        if given.bundle in cases.CASES:
            bundle = _export(cases.CASES[given.bundle])
        rows = launches(bundle)
    except (TinyedgeError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    show(rows, given.top)
    return 0


def _export(case: cases.Case) -> Path:
    import tinyedge

    return tinyedge.export_onnx(
        case.path,
        target="qcom",
        out=cases.CACHE / f"{case.model}-kernels.tinyedge",
        dims=dict(case.dims),
        profile="buffers",
        precision="fp32",
        golden=False,
        force=True,
    )


if __name__ == "__main__":
    sys.exit(main())
