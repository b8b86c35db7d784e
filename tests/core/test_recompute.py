"""What a training step keeps from its forward pass, and in which order and place it is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from math import prod

import numpy as np
import pytest

from tests.agreement import assert_agreement, find_target
from tests.stateful import Machine
from tinyedge import Tensor, optim, value_and_grad
from tinyedge.core import dtype as dt
from tinyedge.core.compiler import stages
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.schedule import fuse, ordering
from tinyedge.core.compiler.schedule.flow import sink_side
from tinyedge.core.compiler.schedule.launches import ScheduledLaunch
from tinyedge.core.compiler.schedule.recompute import Choice
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.gradient import trees
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Copy, Program
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Graphs, Port, State

ROWS, WIDTH = 12, 16
RNG = np.random.default_rng(3)
X = RNG.normal(size=(ROWS, WIDTH)).astype(np.float32)
Loss = Callable[[list[Tensor], Tensor], Tensor]


def step(loss: Loss, layers: int, optimizer: optim.Optimizer | None = None) -> Graphs:
    """A step of a model of square matrices: parameters and moments are states."""
    opt = optimizer or optim.SGD(0.1)
    arrays = [RNG.normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32) for _ in range(layers)]
    first = [Tensor.weight(f"w{n}", array) for n, array in enumerate(arrays)]
    kept = {"model": first, "state": opt.init(first)}
    leaves = trees.leaves(kept)
    names = [f"kept{number}" for number in range(len(leaves))]
    places = [Tensor.input(n, t.shape, t.dtype) for n, t in zip(names, leaves, strict=True)]
    now = trees.rebuilt(kept, places)
    x = Tensor.input("x", X.shape, dt.float32)
    value, gradients = value_and_grad(lambda model: loss(model, x))(now["model"])
    model, state = opt.update(now["model"], gradients, now["state"])
    news = trees.leaves({"model": model, "state": state})
    updates = [Port(n, t.dtype, t.shape, t.node) for n, t in zip(names, news, strict=True)]
    inputs = [Port("x", dt.float32, X.shape)]
    inputs += [Port(n, t.dtype, t.shape) for n, t in zip(names, leaves, strict=True)]
    output = Port("loss", value.dtype, (), value.node)
    states = [
        State(n, t.dtype, t.shape, initial=t.numpy()) for n, t in zip(names, leaves, strict=True)
    ]
    return Graphs({"main": Graph(tuple(inputs), (output,), updates=tuple(updates))}, tuple(states))


def gated(model: list[Tensor], x: Tensor) -> Tensor:
    """A normalization, a product and a gate of each layer."""
    for w in model:
        centered = x - x.mean(-1, True)
        spread = (centered * centered).mean(-1, True)
        h = (centered / (spread + 1e-5).sqrt()) @ w
        x = x + h * (h * 1.7).sigmoid()
    return (x * x).mean()


def pooled(model: list[Tensor], x: Tensor) -> Tensor:
    for w in model:
        h = (x @ w).tanh() * 0.5 + x
        most = h.reshape((ROWS, WIDTH // 2, 2)).max(-1)
        x = Tensor.concat([most, most * 0.5], 1)
    return (x * x).mean()


def softmaxed(model: list[Tensor], x: Tensor) -> Tensor:
    for w in model:
        x = (x @ w).softmax(-1) @ w.transpose() + x
    return -x.log_softmax(-1).mean()


LOSSES: dict[str, Loss] = {"gated": gated, "pooled": pooled, "softmaxed": softmaxed}


def compiled(source: Graphs, target: str) -> tuple[Compilation, Program]:
    state = compile_graph(source, find_target(target))
    assert state.program is not None
    return state, state.program


@pytest.mark.parametrize("optimizer", [optim.SGD(0.1), optim.Adam(0.01)], ids=["sgd", "adam"])
@pytest.mark.parametrize("name", LOSSES)
def test_steps_mean_what_they_are(
    name: str, optimizer: optim.Optimizer, target: str, device: Device
) -> None:
    source = step(LOSSES[name], 3, optimizer)
    _, program = compiled(source, target)
    machine = Machine(source)
    with Replay(program, device, poison=True) as replay:
        for _ in range(2):
            found = replay.run({"x": X}) | {n: replay.get_state(n) for n in machine.states}
            assert_agreement(found, machine.run("main", {"x": X}) | machine.states)


def _large(state: Compilation) -> list[ScheduledLaunch]:
    """The launches that write a tensor of the activations' size to memory of its own."""
    return [
        launch
        for launch in state.launches
        if launch.written[0].role == "scratch" and prod(launch.written[0].shape) == X.size
    ]


def test_a_gate_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer has 6 tensors in memory; 11, if nothing is computed again. (Apart from launches that
    the order repeats.)
    """
    monkeypatch.setattr(stages, "in_memory_order", lambda steps, _: list(steps))
    again = [len(_large(compiled(step(gated, n), "cpu")[0])) for n in (2, 3)]
    monkeypatch.setattr(fuse, "choose", lambda _: Choice(frozenset(), frozenset()))
    kept = [len(_large(compiled(step(gated, n), "cpu")[0])) for n in (2, 3)]
    assert again[1] - again[0] == 6 and kept[1] - kept[0] == 11


def test_what_is_compared_is_not_computed_again() -> None:
    """The greatest is found by comparing for equality: on both sides is what lies in memory."""
    state, _ = compiled(step(pooled, 2), "cpu")
    equals = [n for launch in state.launches for n in toposort((launch.sink,)) if n.op is ops.EQ]
    floats = [n for n in equals if n.src[0].dtype.is_float]
    assert floats and all(s.op is not ops.TANH for n in floats for s in toposort((n,)))


def test_inference_is_left_as_it_is() -> None:
    """A graph that updates no state keeps what several kernels read."""
    x = Tensor.input("x", X.shape, dt.float32)
    gate = ((x * 2.0).exp() + 1.0).log() * x
    results = {"a": (gate + 2.0).sum(0), "b": (gate + 1.0).sum(-1)}
    ports = [Port(name, dt.float32, t.shape, t.node) for name, t in results.items()]
    graph = Graph((Port("x", dt.float32, X.shape),), tuple(ports))
    state = compile_graph(graph, find_target("cpu"))
    assert sum(any(n.op is ops.EXP for n in toposort((each.sink,))) for each in state.launches) == 1


def test_moments_are_updated_where_the_gradient_is_summed(target: str) -> None:
    """By Adam a step has one launch a parameter for gradient, moments and parameter, where these
    are no more buffers than a kernel binds; and no gradient lies in memory.
    """
    _, program = compiled(step(gated, 2, optim.Adam(0.01)), target)
    state, _ = compiled(step(gated, 2, optim.SGD(0.01)), target)
    adam, _ = compiled(step(gated, 2, optim.Adam(0.01)), target)
    assert not any(isinstance(each, Copy) for each in program.entries[0].steps)
    room = adam.caps.bindings > 8
    more = len(adam.launches) - len(state.launches)
    assert more <= (3 if room else 3 + 2 * 2)


def test_an_order_changes_no_bit(monkeypatch: pytest.MonkeyPatch, cpu_device: Device) -> None:
    """Neither do launches that are repeated, nor results in place of what they are made of."""
    monkeypatch.setattr(ordering, "ENOUGH", 1)
    source = step(gated, 6, optim.Adam(0.01))
    results, sizes = [], []
    for ordered in (True, False):
        if not ordered:
            monkeypatch.setattr(stages, "in_memory_order", lambda steps, _: list(steps))
        _, program = compiled(source, "cpu")
        sizes.append(sum(arena.bytes for arena in program.arenas))
        with Replay(program, cpu_device, poison=True) as replay:
            losses = [replay.run({"x": X})["loss"] for _ in range(3)]
            results.append([*losses, *(replay.get_state(s.name) for s in program.states)])
    assert sizes[0] < sizes[1]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*results, strict=True))


def test_a_parameter_is_updated_before_the_next_layer_is_walked() -> None:
    """Last layers first; what their gradients are made of is free then."""
    state, _ = compiled(step(gated, 6), "cpu")
    large = _large(state)
    news = [n for n, each in enumerate(state.launches) if each.written[0].shape == (WIDTH, WIDTH)]
    assert len(news) == 6
    between = [any(state.launches[n] in large for n in range(*pair)) for pair in pairwise(news)]
    assert all(between)


# Minimum cuts.


def _cuts(edges: dict[tuple[int, int], int]) -> Iterator[tuple[int, set[int]]]:
    """Every cut of 0 from 5: its capacity, and the sink's side."""
    for count in range(5):
        for others in combinations(range(1, 5), count):
            side = {5, *others}
            yield _capacity(edges, side), side


def _capacity(edges: dict[tuple[int, int], int], side: set[int]) -> int:
    return sum(c for (a, b), c in edges.items() if a not in side and b in side)


@pytest.mark.parametrize("seed", range(40))
def test_cuts_are_minimal(seed: int) -> None:
    """And of all that are, the sink's side is the smallest."""
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for a in range(6) for b in range(6) if a != b and rng.random() < 0.4]
    edges = {pair: int(rng.integers(0, 9)) for pair in pairs}
    side = sink_side(edges, 0, 5)
    least = min(capacity for capacity, _ in _cuts(edges))
    assert 0 not in side and _capacity(edges, side) == least
    assert all(side <= other for capacity, other in _cuts(edges) if capacity == least)
