"""What a checkpoint keeps, and when its function is computed again."""

from __future__ import annotations

import numpy as np

from tests.agreement import find_target
from tinyedge import Tensor, checkpoint, value_and_grad
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort
from tinyedge.core.program.program import Program, launches
from tinyedge.core.tensor.graph import Graph, Port

BLOCKS, ROWS, WIDTH = 6, 64, 32


def _block(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(4):
        x = ((x @ w).tanh() @ w.transpose()).sin()
    return x


def _step(*, again: bool) -> Graph:
    """The gradient by the input of a chain of blocks."""
    block = checkpoint(_block) if again else _block
    x = Tensor.input("x", (ROWS, WIDTH), dt.float32)
    weights = [Tensor.input(f"w{n}", (WIDTH, WIDTH), dt.float32) for n in range(BLOCKS)]

    def loss(h: Tensor) -> Tensor:
        for w in weights:
            h = block(h, w)
        return h.sum()

    value, gradient = value_and_grad(loss)(x)
    inputs = [Port(t.node.arg.source.name, t.dtype, t.shape) for t in (x, *weights)]
    results = {"loss": value, "gradient": gradient}
    outputs = [Port(name, t.dtype, t.shape, t.node) for name, t in results.items()]
    return Graph(tuple(inputs), tuple(outputs))


def _compiled(*, again: bool) -> Program:
    program = compile_graph(_step(again=again), find_target("cpu")).program
    assert program is not None
    return program


def test_memory_is_traded_for_launches() -> None:
    """Between its passes a step of 6 blocks of 8 products keeps a tensor a block, not 8."""
    kept, again = _compiled(again=False), _compiled(again=True)
    tensor = 4 * ROWS * WIDTH
    saved = sum(a.bytes for a in kept.arenas) - sum(a.bytes for a in again.arenas)
    assert saved > 4 * BLOCKS * tensor
    (entry,), (other,) = kept.entries, again.entries
    more = len(list(launches(other.steps))) - len(list(launches(entry.steps)))
    assert 0 < more <= 8 * BLOCKS


def test_the_copy_comes_after_the_gradient() -> None:
    """Nothing of a block is computed again before the gradient by its result is there."""
    graph = _step(again=True)
    order = toposort([port.node for port in graph.outputs if port.node is not None])
    anew = [node for node in order if node.op is ops.AFTER]
    assert len({node.src[1:] for node in anew}) == BLOCKS
    for node in anew:
        assert all(order.index(before) < order.index(node) for before in node.src[1:])


def test_options_and_names_stay() -> None:
    @checkpoint
    def scaled(x: Tensor, *, by: float) -> dict[str, Tensor]:
        """Told."""
        return {"y": x * by}

    x = Tensor.weight("x", np.array([1.0, 2.0]))
    assert scaled.__doc__ == "Told."
    assert scaled(x, by=3.0)["y"].numpy().tolist() == [3, 6]
