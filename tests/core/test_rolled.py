"""Results of a tile that are finished and stored in a loop: one text for all, their own values."""

from __future__ import annotations

import re

import numpy as np

from tests.agreement import Inputs, assert_agreement, compiled, find_target, reference, run
from tests.core.test_winograd import network
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return RNG.normal(size=shape).astype(np.float32)


def product(*, bias: bool, gate: bool) -> tuple[dict[str, Tensor], Inputs]:
    """Rows of which a tile's last ones are beyond the end."""
    inputs = Inputs()
    x = inputs.new(normal(67, 96)) @ Tensor.weight("w", normal(96, 256))
    x = x + Tensor.weight("b", normal(256)) if bias else x
    return {"y": x.silu() if gate else x.relu()}, inputs


def stores(outputs: dict[str, Tensor], inputs: Inputs) -> list[int]:
    """How many each kernel has in its text."""
    kernels = compiled(outputs, inputs, find_target("webgpu")).kernels.values()
    return [len(re.findall(r"\bb0\[.*\] = ", kernel.source)) for kernel in kernels]


def test_long_text_is_written_once_for_rows(webgpu_device: Device) -> None:
    given = product(bias=True, gate=True)
    (count,) = stores(*given)
    assert 1 <= count <= 2
    assert_agreement(run(*given, "webgpu", webgpu_device), reference(*given))


def test_short_text_and_sums_themselves_stay_copies() -> None:
    """A sum that the loop chose among would take a register from the loop that sums."""
    assert stores(*product(bias=True, gate=False))[0] > 2
    assert stores(*product(bias=False, gate=True))[0] > 2


def test_transforms_are_of_numbers_in_loops() -> None:
    """36 numbers, not vectors: as many registers as a phone has. The 36 results of the first
    transform are stored in 6 steps, the 16 of the last in 4.
    """
    kernels = compiled(*network(24, 28), find_target("webgpu")).kernels.values()
    found = []
    for kernel in kernels:
        assert kernel.text is not None
        nodes = toposort(kernel.text.linear.statements)
        loads = [n.dtype.lanes for n in nodes if n.op is ops.LOAD]
        if len(loads) >= 36 and not any(n.op is ops.ACCUMULATOR for n in nodes):
            found.append((sum(loads), sum(n.op is ops.STORE for n in nodes)))
    assert found and all(numbers <= 64 and stores <= 6 for numbers, stores in found)
