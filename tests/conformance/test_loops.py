"""Loops over whole kernels, on every target, optimized and not, against the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tinyedge.choices import find_target
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.program import program
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor

RNG = np.random.default_rng(5)
X = RNG.standard_normal((12, 5), dtype=np.float32)
INPUT = RNG.standard_normal((5, 8), dtype=np.float32)
RECURRENT = 0.3 * RNG.standard_normal((8, 8), dtype=np.float32)


def _zeros(*shape: int) -> Tensor:
    return Tensor.full(shape, 0.0, dt.float32)


def _recurrent(x: Tensor) -> Sequence[Tensor]:
    """The projection of the inputs does not depend on the iteration: it stays outside."""
    projected = x @ Tensor.weight("w", INPUT)
    weight = Tensor.weight("r", RECURRENT)

    def iteration(t: Tensor, h: Tensor, y: Tensor) -> Sequence[Tensor]:
        new = (projected.gather(0, t) + (h.reshape((1, 8)) @ weight).reshape((8,))).tanh()
        return t + 1, new, y.put(t, new)

    _, h, y = Tensor.loop([Tensor(0, dt.int32), _zeros(8), _zeros(12, 8)], iteration, trips=12)
    return h * 2, y


def _exchanged(x: Tensor) -> Sequence[Tensor]:
    return Tensor.loop([x[0], x[1]], lambda a, b: (b, a + b), trips=5)


def _twice_the_same(x: Tensor) -> Sequence[Tensor]:
    a, b = Tensor.loop([x[0], x[1]], lambda a, b: (a + b, a + b), trips=3)
    return a + 0.0, b


def _constants(x: Tensor) -> Sequence[Tensor]:
    return Tensor.loop([x, x[0]], lambda a, b: (a + 1.0, x[3] * 2), trips=2)


def _single_elements(x: Tensor) -> Sequence[Tensor]:
    """What one iteration made is copied, by kernels that have no expression for it."""
    first = [x[0, :1], x[1, :1]]
    return Tensor.loop(first, lambda a, b: (a * 3.0 + b, b * 2.0 + a), trips=1)


def _no_turn(x: Tensor) -> Sequence[Tensor]:
    return Tensor.loop([x], lambda a: (a + 1.0,), trips=0)


def _until_large(x: Tensor) -> Sequence[Tensor]:
    def iteration(go: Tensor, i: Tensor, v: Tensor) -> Sequence[Tensor]:
        new = v * 1.5
        return new.max() < 50.0, i + 1, new

    start = [Tensor(True, dt.bool_), Tensor(0, dt.int32), x.abs() + 1.0]
    return Tensor.loop(start, iteration, bound=100)[1:]


def _never(x: Tensor) -> Sequence[Tensor]:
    return Tensor.loop([x.max() > 1e9, x], lambda go, v: (go, v + 1.0), bound=3)[1:]


def _bounded(x: Tensor) -> Sequence[Tensor]:
    return Tensor.loop([x.max() < 1e9, x], lambda go, v: (go, v + 1.0), bound=3)[1:]


def _nested(x: Tensor) -> Sequence[Tensor]:
    def outer(i: Tensor, acc: Tensor) -> Sequence[Tensor]:
        def inner(j: Tensor, a: Tensor) -> Sequence[Tensor]:
            return j + 1, a + x.gather(0, j) * (i + 1).cast(dt.float32)

        return i + 1, Tensor.loop([Tensor(0, dt.int32), acc], inner, trips=3)[1] * 0.5

    return Tensor.loop([Tensor(0, dt.int32), _zeros(5)], outer, trips=4)[1:]


def _nested_at_run_time(x: Tensor) -> Sequence[Tensor]:
    def outer(go: Tensor, i: Tensor, acc: Tensor) -> Sequence[Tensor]:
        def inner(go: Tensor, j: Tensor, a: Tensor) -> Sequence[Tensor]:
            return j < i, j + 1, a + x.gather(0, j)

        first = [Tensor(True, dt.bool_), Tensor(0, dt.int32), acc]
        return i < 3, i + 1, Tensor.loop(first, inner, bound=10)[2] * 0.5

    first = [Tensor(True, dt.bool_), Tensor(0, dt.int32), _zeros(5)]
    return Tensor.loop(first, outer, bound=10)[1:]


def _many_turns(x: Tensor) -> Sequence[Tensor]:
    return Tensor.loop([x[0], x[1]], lambda a, b: (b, a * 0.5 + b * 0.25), trips=2051)


def _one_after_the_other(x: Tensor) -> Sequence[Tensor]:
    (a,) = Tensor.loop([x], lambda v: (v * 0.5 + 1.0,), trips=3)
    (b,) = Tensor.loop([a + x], lambda v: (v * a,), trips=2)
    return b, a


def _rows_that_are_read(x: Tensor) -> Sequence[Tensor]:
    """The tensor that rows are put in is read in the same iteration, so it is not written in
    place.
    """

    def iteration(t: Tensor, y: Tensor) -> Sequence[Tensor]:
        return t + 1, y.put(t, y.sum(0) + x.gather(0, t))

    return Tensor.loop([Tensor(0, dt.int32), x * 0.1], iteration, trips=4)[1:]


def _exchanged_at_run_time(x: Tensor) -> Sequence[Tensor]:
    """Next values that are other carried ones, each overwritten in the same iteration."""
    go = x.max() < 1e9
    a, b = Tensor.loop([go, x[0], x[1]], lambda go, a, b: (go, a + b, a), bound=5)[1:]
    first = [go, x[0], x[1], x[2]]
    return a, b, *Tensor.loop(first, lambda go, a, b, c: (go, b, c, a), bound=4)[1:]


def _the_same_pair_twice(x: Tensor) -> Sequence[Tensor]:
    return Tensor.loop([x[0], x[1], x[2], x[3]], lambda a, b, c, d: (b, a, a, b), trips=3)


def _rows_and_the_old_value(x: Tensor) -> Sequence[Tensor]:
    """A carried tensor that gets a row is also another one's next value as it was."""

    def iteration(t: Tensor, y: Tensor, old: Tensor) -> Sequence[Tensor]:
        return t + 1, y.put(t, x.gather(0, t)), y

    return Tensor.loop([Tensor(0, dt.int32), x * 0.1, x], iteration, trips=3)[1:]


def _a_row_of_what_lies_outside(x: Tensor) -> Sequence[Tensor]:
    outside = (x * 0.1).in_memory()

    def iteration(t: Tensor, y: Tensor) -> Sequence[Tensor]:
        return t + 1, outside.put(t, y.gather(0, t) + 1.0)

    return [*Tensor.loop([Tensor(0, dt.int32), x], iteration, trips=4)[1:], outside + 0.0]


def _a_loop_that_turns_read(x: Tensor) -> Sequence[Tensor]:
    """The first one's results are there before the second one begins: it is no part of a
    iteration.
    """
    _, rows = Tensor.loop(
        [x[0], _zeros(12, 5)], lambda v, y: (v + 1.0, y.put(Tensor(0, dt.int32), v)), trips=7
    )

    def iteration(t: Tensor, v: Tensor) -> Sequence[Tensor]:
        return t + 1, v * 0.5 + rows.gather(0, t)

    return Tensor.loop([Tensor(0, dt.int32), x[1]], iteration, trips=9)[1:]


FUNCTIONS: tuple[Callable[[Tensor], Sequence[Tensor]], ...] = (
    _recurrent,
    _exchanged,
    _twice_the_same,
    _constants,
    _single_elements,
    _no_turn,
    _until_large,
    _never,
    _bounded,
    _nested,
    _nested_at_run_time,
    _many_turns,
    _one_after_the_other,
    _rows_that_are_read,
    _exchanged_at_run_time,
    _the_same_pair_twice,
    _rows_and_the_old_value,
    _a_row_of_what_lies_outside,
    _a_loop_that_turns_read,
)


def _compiled(function: Callable[[Tensor], Sequence[Tensor]], target: str, optimize: bool):  # type: ignore[no-untyped-def]
    results = function(Tensor.input("x", X.shape, dt.float32))
    ports = tuple(Port(f"y{i}", y.dtype, y.shape, y.node) for i, y in enumerate(results))
    graph = Graph((Port("x", dt.float32, X.shape),), ports)
    compiled = compile_graph(graph, find_target(target), Options(optimize=optimize)).program
    assert compiled is not None
    return compiled, evaluate([y.node for y in results], {"x": X})


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__[1:])
def test_loops(
    function: Callable[[Tensor], Sequence[Tensor]], optimize: bool, target: str, device: Device
) -> None:
    compiled, expected = _compiled(function, target, optimize)
    with Replay(compiled, device) as replay:
        for _ in range(2):
            found = replay.run({"x": X})
    for i, values in enumerate(expected):
        scale = max(1.0, float(np.abs(values).max()))
        np.testing.assert_allclose(found[f"y{i}"], values, atol=1e-5 * scale, rtol=0)


def test_turns_share_their_kernels() -> None:
    compiled, _ = _compiled(_recurrent, "cpu", True)
    launches = list(program.launches(compiled.entries[0].steps))
    assert len(launches) > 36 and len(compiled.kernels) < 12
    for function in (_until_large, _many_turns):
        looped, _ = _compiled(function, "cpu", True)
        assert any(isinstance(step, program.Loop) for step in looped.entries[0].steps)


def test_a_loop_that_turns_read_runs_once() -> None:
    compiled, _ = _compiled(_a_loop_that_turns_read, "cpu", True)
    assert len(list(program.launches(compiled.entries[0].steps))) < 7 * 3 + 9 * 3 + 9


def test_what_a_turn_makes_must_fit() -> None:
    x = Tensor.input("x", (3,), dt.float32)
    with pytest.raises(ValueError, match=r"float32 \[4\] of float32 \[3\]"):
        Tensor.loop([x], lambda v: (Tensor.concat([v, v[:1]], 0),), trips=2)
    with pytest.raises(ValueError, match="bool scalar"):
        Tensor.loop([x], lambda v: (v,), bound=2)
