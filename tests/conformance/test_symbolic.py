"""Symbolic sizes: one program, many sizes, nothing compiled again."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, compiled, find_target, reference
from tinyedge.core.compiler.options import Options
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.tensor import Tensor

SIZES = ((4, 1), (40, 9), (12, 3), (28, 8), (4, 1))


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
def test_one_program_for_many_sizes(optimize: bool, target: str, device: Device) -> None:
    generator = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return generator.normal(size=shape).astype(np.float32)

    edge, count = symbol("H", 4, 40, 4), symbol("N", 1, 9)
    inputs = Inputs()
    image = inputs.new(floats(1, 3, 4, 4), "image", (1, 3, edge, edge))
    rows = inputs.new(floats(1, 6), "rows", (count, 6))
    filters = Tensor.weight("filters", floats(4, 3, 3, 3))
    conv = image.conv(filters, pads=((1, 1), (1, 1)), strides=(2, 2)).relu()
    flat = conv.reshape((1, 4, -1))
    outputs = {
        "conv": conv,
        "pool": conv.mean((2, 3)),
        "joined": Tensor.concat([flat, flat * 2.0], 2),
        "swapped": flat.permute((0, 2, 1)),
        "softmax": rows.softmax(-1),
        "softmax_of_columns": rows.softmax(0),
        "matmul": rows @ Tensor.weight("matrix", floats(6, 5)),
        "sum": rows.sum(),
    }
    program = compiled(outputs, inputs, find_target(target), Options(optimize=optimize)).program
    assert program is not None
    with Replay(program, device, poison=True) as replay:
        for height, length in SIZES:
            inputs.arrays = {"image": floats(1, 3, height, height), "rows": floats(length, 6)}
            expected = reference(outputs, inputs, {"H": height, "N": length}, fp64_reference=True)
            assert_agreement(replay.run(inputs.arrays), expected)
