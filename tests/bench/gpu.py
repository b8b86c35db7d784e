"""Our CUDA kernels beside the same ones written by hand, on one GPU in one run.

    python -m tests.bench.gpu                 # sizes for a GPU of a data center
    python -m tests.bench.gpu --scale 4       # a quarter of them, for a Jetson
    python -m tests.bench.gpu --json FILE

Both sides are compiled by the same NVRTC, work in memory of the same device and are replayed as
CUDA graphs; they take turns, and medians are compared. Their results must agree. It needs a GPU:
without one it says so and ends with 3.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.agreement import Inputs, compiled, find_target
from tests.cuda.shim import KERNEL
from tinyedge.core.errors import DeviceError
from tinyedge.core.program.device import Device, Dispatch, Range
from tinyedge.core.program.program import (
    Arena,
    Binding,
    Buffer,
    Entry,
    Kernel,
    Launch,
    Port,
    Program,
    evaluate,
)
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.bundle.writing import kernel_file
from tinyedge.targets.cuda import compiler
from tinyedge.targets.cuda import device as cuda

BY_HAND = Path(__file__).with_name("by_hand.cu")
THREADS = 256
ROUNDS = 15
SECONDS = 0.05  # of one round of a side
AGREEMENT = 1e-4

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """One kernel at sizes."""

    name: str
    rows: int
    columns: int
    inner: int
    build: Callable[..., Tensor]
    shapes: tuple[tuple[int, int], ...]
    counts: tuple[int, int, int]  # its workgroups by hand
    bytes: int  # bytes, flops: what it must do
    flops: int

    def arrays(self) -> dict[str, Array]:
        generator = np.random.default_rng(0)
        return {
            f"x{i}": generator.standard_normal(shape, np.float32)
            for i, shape in enumerate(self.shapes)
        }


def cases(scale: int = 1, columns: int = 4096) -> list[Case]:
    """Memory-bound ones and a product of matrices; scale divides the rows, or each side."""
    rows = 16384 // scale
    each = rows * columns
    side = max(64, 2048 // scale)
    return [
        Case(
            "elementwise",
            *(rows, columns, 0),
            lambda a, b: (a * 2.0 + b).relu(),
            ((rows, columns),) * 2,
            (each // 4 // THREADS, 1, 1),
            12 * each,
            3 * each,
        ),
        Case(
            "softmax",
            *(rows, columns, 0),
            lambda x: x.softmax(-1),
            ((rows, columns),),
            (rows, 1, 1),
            8 * each,
            5 * each,
        ),
        Case(
            "matmul",
            *(side, side, side),
            lambda a, b: a @ b,
            ((side, side),) * 2,
            (side // 64, side // 64, 1),
            12 * side * side,
            2 * side**3,
        ),
    ]


def ours(case: Case) -> Program:
    """The case as tinyedge compiles it."""
    inputs = Inputs()
    tensors = [inputs.new(np.zeros(shape, np.float32)) for shape in case.shapes]
    program = compiled({"y": case.build(*tensors)}, inputs, find_target("cuda")).program
    assert program is not None
    return program


def by_hand(case: Case) -> Program:
    """The case as it is written in by_hand.cu, with memory laid out plainly."""
    text = BY_HAND.read_text(encoding="ascii")
    starts = [*(match.start() for match in KERNEL.finditer(text)), len(text)]
    sources = {
        match[1]: text[start:end]
        for match, start, end in zip(KERNEL.finditer(text), starts, starts[1:], strict=False)
    }
    sizes = {"ROWS": case.rows, "COLUMNS": case.columns, "INNER": case.inner}
    shapes = ((case.rows, case.columns), *case.shapes)
    buffers, end = [], 0
    for rows, columns in shapes:
        buffers.append(Buffer(0, end, rows * columns * 4))
        end += -(-rows * columns * 4 // 256) * 256
    binding = Binding("read_write", "float32")
    kernel = Kernel(case.name, sources[case.name], (THREADS, 1, 1), (binding,) * len(shapes))
    ports = [Port(f"x{i}", "float32", s, "float32", i + 1) for i, s in enumerate(case.shapes)]
    return Program(
        target="cuda",
        suffix="cu",
        symbols=(),
        inputs=tuple(ports),
        outputs=(Port("y", "float32", shapes[0], "float32", 0),),
        states=(),
        arenas=(Arena(end),),
        buffers=tuple(buffers),
        weights=(),
        kernels=(kernel,),
        entries=(
            Entry(
                "main",
                tuple(port.name for port in ports),
                ("y",),
                (Launch(0, tuple(range(len(shapes))), case.counts),),
            ),
        ),
        prelude="".join(f"#define {name} {size}\n" for name, size in sizes.items()),
    )


class Side:
    """A program on the device with its inputs, as one recording."""

    def __init__(self, device: Device, program: Program, arrays: dict[str, Array]) -> None:
        self._device = device
        self._arenas = [device.alloc(arena.bytes) for arena in program.arenas]
        assert not program.weights and not program.symbols
        self._places = [
            Range(self._arenas[each.arena], each.offset, each.bytes) for each in program.buffers
        ]
        for port in program.inputs:
            place = self._places[port.buffer]
            device.upload(place, arrays[port.name].reshape(-1).view(np.uint8))
        kernels = device.compile(program)
        commands = []
        for step in program.entries[0].steps:
            assert isinstance(step, Launch)
            ranges = [self._places[buffer] for buffer in step.buffers]
            x, y, z = (evaluate(count, {}) for count in step.grid)
            commands.append(Dispatch(device.bind(kernels[step.kernel], ranges, None), (x, y, z)))
        self.launches = len(commands)
        self._recording = device.record(commands)
        self._output = self._places[program.outputs[0].buffer]

    def result(self) -> Array:
        self._device.replay(self._recording)
        (content,) = self._device.read([self._output])
        return content.view(np.float32)

    def seconds(self, runs: int) -> float:
        """Of one run, by the host's clock around many that follow each other."""
        end = Range(self._output.memory, self._output.offset, 4)
        self._device.read([end])
        start = time.perf_counter()
        for _ in range(runs):
            self._device.replay(self._recording)
        self._device.read([end])
        return (time.perf_counter() - start) / runs

    def close(self) -> None:
        for arena in self._arenas:
            self._device.free(arena)


def measure(
    device: Device, case: Case, prepare: Callable[[Program], Program], rounds: int = ROUNDS
) -> dict[str, Any]:
    """Both sides of a case. Raises AssertionError if they disagree."""
    arrays = case.arrays()
    sides = {
        name: Side(device, prepare(make(case)), arrays)
        for name, make in (("ours", ours), ("by hand", by_hand))
    }
    results = {name: side.result() for name, side in sides.items()}
    error = np.abs(results["ours"] - results["by hand"]).max() / np.abs(results["by hand"]).max()
    assert error <= AGREEMENT, f"{case.name}: the sides differ by {error:.2g}"
    runs = {name: max(1, int(SECONDS / side.seconds(3))) for name, side in sides.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            times[name].append(side.seconds(runs[name]))
    for side in sides.values():
        side.close()
    medians = {name: statistics.median(each) for name, each in times.items()}
    return {
        "case": case.name,
        "size": [case.rows, case.columns, case.inner],
        "launches": sides["ours"].launches,
        "error": float(error),
        "seconds": times,
        "ratio": medians["ours"] / medians["by hand"],
        "gigabytes": case.bytes / medians["ours"] * 1e-9,
        "gigaflops": case.flops / medians["ours"] * 1e-9,
        "microseconds": {name: each * 1e6 for name, each in medians.items()},
    }


def line(found: dict[str, Any]) -> str:
    times = found["microseconds"]
    return (
        f"{found['case']:12} {times['ours']:10.1f} us  by hand {times['by hand']:10.1f} us "
        f"{found['ratio']:5.2f}x {found['gigabytes']:7.0f} GB/s {found['gigaflops']:8.0f} GFLOP/s"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scale", type=int, default=1, choices=(1, 2, 4, 8), help="divides sizes")
    parser.add_argument("--device", help="a part of the GPU's name")
    parser.add_argument("--json", type=Path, help="write all that was measured to a file")
    options = parser.parse_args(arguments)
    try:
        device = cuda.open(options.device)
    except DeviceError as error:
        print(error, file=sys.stderr)
        return 3
    architecture = "sm_{}{}".format(*device.capability)

    def prepare(program: Program) -> Program:
        binaries = compiler.build(kernel_file(program), [architecture], print)
        return replace(program, binaries=binaries)

    print(f"{device.name}, {architecture}")
    found = []
    for case in cases(options.scale):
        found.append(measure(device, case, prepare))
        print(line(found[-1]), flush=True)
    device.close()
    if options.json is not None:
        options.json.write_text(json.dumps({"device": device.name, "cases": found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
