"""Tiny models on the qcom device, compared with the reference; `python -m tests.targets.checked`.

Small enough for an interpreter that checks every access (tests/targets/test_opencl_engines.py).
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from tests.agreement import (
    HALF_TOLERANCE,
    TOLERANCE,
    Inputs,
    Tolerance,
    assert_agreement,
    compiled,
    find_target,
    reference,
)
from tinyedge.core.compiler.options import Options
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import (
    Arena,
    Binding,
    Buffer,
    Entry,
    Kernel,
    Launch,
    Port,
    Program,
)
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.targets.qcom.device import open as open_device

OPTIONS = [
    Options(profile=profile, precision=precision, optimize=optimize)
    for profile in ("default", "buffers", "local", "processor")
    for precision in ("fp32", "fp16")
    for optimize in (True, False)
    if optimize or profile == "buffers"
]
SIZES = ((4, 1), (12, 7))


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape) + sum(shape)).normal(size=shape).astype(np.float32)


def models(inputs: Inputs) -> dict[str, Tensor]:
    """Convolutions, products, rows, windows, joins; odd sizes, and sizes that are open."""
    edge, count = symbol("H", 4, 12, 4), symbol("N", 1, 7)
    image = inputs.new(floats(1, 3, 4, 4), "image", (1, 3, edge, edge))
    rows = inputs.new(floats(1, 6), "rows", (count, 6))
    x, odd = inputs.new(floats(1, 4, 6, 6), "x"), inputs.new(floats(2, 3, 5, 7), "odd")
    a, long = inputs.new(floats(5, 7), "a"), inputs.new(floats(3, 70), "long")
    same = ((1, 1), (1, 1))
    fours = x.conv(Tensor.weight("u", floats(8, 4, 3, 3)), pads=same).relu()
    fours = fours.conv(Tensor.weight("v", floats(8, 1, 3, 3)), pads=same, groups=8)
    fours = fours.conv(Tensor.weight("w", floats(12, 8, 1, 1))) + 1.0
    threes = odd.conv(Tensor.weight("k", floats(5, 3, 3, 2)), strides=(2, 1), pads=((1, 0), (0, 1)))
    open_sizes = image.conv(Tensor.weight("f", floats(4, 3, 3, 3)), pads=same, strides=(2, 2))
    pooled = fours.pad(((0, 0), (0, 0), (1, 1), (1, 1)), -np.inf).window(2, 3, 2).window(3, 3, 2)
    inner = fours.conv(Tensor.weight("i", floats(8, 12, 1, 1))).relu()
    around = inner.pad(((0, 0), (0, 0), (1, 1), (1, 1)), -np.inf).window(2, 3).window(3, 3)
    around = around.max((4, 5))  # lies beside what it is computed from, in one buffer
    return {
        "fours": fours,
        "threes": threes.relu(),
        "pooled": pooled.max((4, 5)),
        "beside": Tensor.concat([inner, around], 1).conv(Tensor.weight("j", floats(4, 16, 1, 1))),
        "joined": Tensor.concat([fours, x], 1).mean((2, 3)),
        "product": (a @ Tensor.weight("m", floats(7, 3))).exp() @ Tensor.weight("n", floats(3, 9)),
        "softmax": (long * 2.0).softmax(-1),
        "softmax_across": odd.softmax(1),
        "open": open_sizes.relu().mean((2, 3)),
        "open_softmax": rows.softmax(0),
        "open_product": rows @ Tensor.weight("o", floats(6, 5)),
    }


def check(options: Options, device: Device) -> None:
    """The models agree with the reference."""
    inputs = Inputs()
    outputs = models(inputs)
    program = compiled(outputs, inputs, find_target("qcom"), options).program
    assert program is not None
    half = options.precision == "fp16"
    tolerance = Tolerance(greatest=HALF_TOLERANCE if half else TOLERANCE)
    with Replay(apart(program), device, poison=True) as replay:
        for height, count in SIZES:
            inputs.arrays["image"] = floats(1, 3, height, height)
            inputs.arrays["rows"] = floats(count, 6)
            expected = reference(outputs, inputs, {"H": height, "N": count}, fp64_reference=True)
            actual = replay.run(inputs.arrays)
            assert_agreement(actual, expected, dict.fromkeys(expected, tolerance))


def apart(program: Program) -> Program:
    """The program with every buffer in memory of its own, so that one byte beyond it shows."""
    arenas: list[Arena] = []
    buffers: list[Buffer] = []
    for buffer in program.buffers:
        if buffer.weight < 0:
            arenas.append(Arena(buffer.bytes))
            buffer = Buffer(len(arenas) - 1, 0, buffer.bytes)
        buffers.append(buffer)
    return replace(program, arenas=tuple(arenas), buffers=tuple(buffers))


def wrong() -> Program:
    """Threads that write the same element, and one beyond the buffer: what must be reported."""
    race = "__kernel void race(__global float *b0) { b0[get_local_id(0) / 2] = get_local_id(0); }"
    beyond = "__kernel void beyond(__global float *b0) { b0[16 + get_local_id(0)] = 1.0f; }"
    written = (Binding("read_write", "float32"),)
    steps = (Launch(0, (0,), (1, 1, 1)), Launch(1, (0,), (1, 1, 1)))
    return Program(
        target="qcom",
        suffix="cl",
        symbols=(),
        inputs=(),
        outputs=(Port("y", "float32", (16,), "float32", 0),),
        states=(),
        arenas=(Arena(64),),
        buffers=(Buffer(0, 0, 64),),
        weights=(),
        kernels=(
            Kernel("race", race, (32, 1, 1), written),
            Kernel("beyond", beyond, (1, 1, 1), written),
        ),
        entries=(Entry("main", (), ("y",), steps),),
    )


def main() -> None:
    """Arguments: profiles to check, default: all; `wrong`: a program that an interpreter must
    report.
    """
    device = open_device()
    chosen = sys.argv[1:]
    if chosen == ["wrong"]:
        Replay(wrong(), device).run({})
        return
    for options in OPTIONS:
        if not chosen or options.profile in chosen:
            check(options, device)
            print(f"{device.name}: {options} agrees", flush=True)


if __name__ == "__main__":
    main()
