"""A softmax divides once a row, and a sigmoid by its quotient on a processor."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agreement import Inputs, assert_agreement, compiled, find_target, reference, replay
from tinyedge.core.compiler.options import Options
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

ROWS = np.random.default_rng(0).normal(size=(4, 40)).astype(np.float32) * 30
ROWS[1], ROWS[2, 3], ROWS[3, 5] = -np.inf, np.inf, np.nan


@pytest.mark.parametrize("axis", [0, 1])
def test_one_division_a_row(axis: int, cpu_device: Device) -> None:
    """A row of -infinity, and one that has infinity or NaN, are NaN as by a quotient."""
    inputs = Inputs()
    outputs = {"y": inputs.new(ROWS if axis else ROWS.T.copy()).softmax(axis)}
    state = compiled(outputs, inputs, find_target("cpu"), Options())
    assert state.program is not None
    divisions = [node for node in toposort(state.roots) if node.op is ops.DIV]
    assert [node.shape for node in divisions] == [(4, 1) if axis else (1, 4)]
    expected = reference(outputs, inputs, fp64_reference=True)
    assert_agreement(replay(state.program, cpu_device, inputs.arrays), expected)


def test_other_quotients_stay(cpu_device: Device) -> None:
    """Of what is no softmax the divisor may be so small that its reciprocal is infinite."""
    inputs = Inputs()
    x = inputs.new(np.full((3, 8), 1e-39, np.float32))
    outputs: dict[str, Tensor] = {"y": x / x.sum(1, keepdims=True)}
    state = compiled(outputs, inputs, find_target("cpu"), Options())
    assert state.program is not None
    assert np.allclose(replay(state.program, cpu_device, inputs.arrays)["y"], 0.125)


def test_a_sigmoid_is_a_quotient_on_a_processor(cpu_device: Device) -> None:
    """Alone, as a factor of what it is of, and both; elsewhere it has a reciprocal."""
    inputs = Inputs()
    rows = np.concatenate([ROWS.reshape(-1), np.float32([0.0, -0.0, 88.5, -88.5, -103.5, 3e38])])
    x = inputs.new(rows)
    outputs = {"alone": (x + 1.0).sigmoid(), "swish": x * x.sigmoid()}
    products = {"cpu": 1, "webgpu": 3}  # of e; of the sigmoids' two factors, and of x
    for target, count in products.items():
        state = compiled(outputs, inputs, find_target(target), Options())
        nodes = toposort(state.roots)
        assert sum(node.op is ops.DIV for node in nodes) == 2
        assert sum(node.op is ops.MUL for node in nodes) == count
    both = outputs | {"sigmoid": x.sigmoid()}  # x * that: its quotient is there anyway
    state = compiled(both, inputs, find_target("cpu"), Options())
    assert sum(node.op is ops.DIV for node in toposort(state.roots)) == 2
    for made in (outputs, both):
        program = compiled(made, inputs, find_target("cpu"), Options()).program
        assert program is not None
        expected = reference(made, inputs, fp64_reference=True)
        assert_agreement(replay(program, cpu_device, inputs.arrays), expected)
