"""The moves of kernels that compute expected values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agreement import find_target
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.optimize import choose
from tinyedge.core.compiler.options import Options
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor

X = np.random.default_rng(1).normal(size=(3, 9, 12, 20)).astype(np.float32)
WEIGHTS = np.random.default_rng(2).normal(size=(5, 9, 3, 3)).astype(np.float32)
COLUMNS = np.random.default_rng(3).normal(size=(20, 28)).astype(np.float32)
x = Tensor.input("x", X.shape, dt.float32)

CASES = {
    "product": x @ Tensor.weight("w", COLUMNS),
    "convolution": x.conv(Tensor.weight("w", WEIGHTS), pads=((1, 1), (1, 1))),
    "odd": x @ Tensor.weight("w", COLUMNS[:, :27]),
    "normalized": (x @ Tensor.weight("w", COLUMNS)).softmax(-1),
}


@pytest.mark.parametrize("name", CASES)
def test_exact_kernels_give_the_bits_of_plain_ones(
    name: str, cpu_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lanes, and rows that share a loop, add up in the same order as alone."""
    monkeypatch.setattr(choose, "LONG_PRODUCT", 1)
    y = CASES[name]
    graph = Graph((Port("x", dt.float32, X.shape),), (Port("y", dt.float32, y.shape, y.node),))

    def run(chooser: object) -> tuple[np.ndarray, list[str]]:
        with monkeypatch.context() as patch:
            patch.setattr("tinyedge.core.compiler.stages.exact", chooser)
            compiled = compile_graph(
                graph, find_target("cpu"), Options(optimize=False, fp64_reference=True)
            )
        assert compiled.program is not None
        kinds = [str(move) for kernel in compiled.kernels.values() for move in kernel.moves]
        with Replay(compiled.program, cpu_device) as replay:
            return replay.run({"x": X})["y"], kinds

    together, moves = run(choose.exact)
    alone, fewer = run(choose.baseline)
    np.testing.assert_array_equal(together.view(np.uint32), alone.view(np.uint32))
    assert any("upcast" in move for move in moves)
    assert any("vector" in move for move in moves) == (name != "odd")
    assert not any("upcast" in move or "vector" in move for move in fewer)
