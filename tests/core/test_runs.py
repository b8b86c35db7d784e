"""What a loop over tiles of a row, or over channels, reads at borders is chosen before it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, find_target, graph, reference, run
from tests.core.test_borders import check_processor, reading_borders, state_for
from tests.core.test_tiles import check_statements, convolution
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.state import CompiledKernel
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import UOp
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(5)
# A layer of 3 x 3 for each channel: channels, side, step. What its runs of tiles are long.
ROWS = {
    "four tiles": ((16, 56, 1), [1, 2, 1]),
    "five tiles, far rows": ((64, 70, 1), [1, 3, 1]),
    "a border on the left": ((16, 112, 2), [1, 3]),
    "a tile of 11": ((16, 55, 1), [1, 3, 1]),
    "two tiles": ((64, 24, 1), [1, 1]),
    "the last tile overlaps": ((16, 53, 1), [1, 4, 1]),
}


def loops(kernel: CompiledKernel) -> list[UOp]:
    assert kernel.text is not None
    return [n.src[0] for n in kernel.text.linear.statements if n.op is ops.BEGIN]


def lengths(run: UOp, step: UOp) -> list[int]:
    """How many steps each run has."""
    _, stop = step.src[1:] or (None, step.src[0])
    return [_value(stop, run, number) for number in range(int(run.src[0].arg))]


def _value(node: UOp, run: UOp, number: int) -> int:
    if node is run:
        return number
    if node.op is ops.CONST:
        return int(node.arg)
    a, *others = (_value(source, run, number) for source in node.src)
    if node.op is ops.WHERE:
        return others[0] if a else others[1]
    (b,) = others
    return {ops.LT: int(a < b), ops.ADD: a + b, ops.MUL: a * b}[node.op]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_tiles_is_cut_where_its_borders_change(name: str, cpu_device: Device) -> None:
    (channels, side, step), expected = ROWS[name]
    outputs, inputs = convolution(channels, channels, side, 3, step, channels)
    state = state_for(("cpu", "default"), outputs, inputs)
    check_processor(state)
    (kernel,) = reading_borders(state)
    assert lengths(*loops(kernel)) == expected
    check_statements(state, inputs)
    got = run(outputs, inputs, "cpu", cpu_device, Options(winograd=0))
    assert_agreement(got, reference(outputs, inputs))


def test_a_region_is_chosen_before_the_loop_over_channels(cpu_device: Device) -> None:
    """Of a tile that is a whole row, and whose rows lie farther apart than there are zeros."""
    outputs, inputs = convolution(600, 600, 7, 3, 1, 600)
    state = state_for(("cpu", "default"), outputs, inputs)
    check_processor(state)
    (kernel,) = reading_borders(state)
    assert len(loops(kernel)) == 1
    check_statements(state, inputs)
    got = run(outputs, inputs, "cpu", cpu_device, Options(winograd=0))
    assert_agreement(got, reference(outputs, inputs))


@pytest.mark.parametrize("side", [28, 30])
def test_transforms_of_winograd_test_no_border(side: int, cpu_device: Device) -> None:
    outputs, inputs = convolution(64, 64, side, 3, 1, 1)
    options = Options()
    state = compile_graph(graph(outputs, inputs), find_target("cpu"), options)
    assert state.winograd
    check_processor(state)
    assert_agreement(run(outputs, inputs, "cpu", cpu_device, options), reference(outputs, inputs))


def test_parts_of_a_row_are_runs(cpu_device: Device) -> None:
    """Where a row is padded on either side, for a sum."""
    inputs = Inputs()
    parts = [inputs.new(RNG.normal(size=(3, width)).astype(np.float32)) for width in (64, 32)]
    outputs = {"y": parts[0].pad([(0, 0), (0, 32)]) + parts[1].pad([(0, 0), (64, 0)])}
    state = state_for(("cpu", "default"), outputs, inputs)
    check_statements(state, inputs)
    assert_agreement(run(outputs, inputs, "cpu", cpu_device), reference(outputs, inputs))


def test_a_table_is_read_under_the_condition_of_its_row(cpu_device: Device) -> None:
    """Whether a row lies in it is known from data, before the loop over its columns."""
    inputs = Inputs()
    rows = inputs.new(np.array([0, 2, 9, -1], np.int64))
    table = Tensor.weight("t", RNG.normal(size=(5, 64)).astype(np.float32))
    outputs = {"y": table.gather(0, rows)}
    assert_agreement(run(outputs, inputs, "cpu", cpu_device), reference(outputs, inputs))
