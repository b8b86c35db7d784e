"""States and entries through the compiler: every run on a device is what the graphs mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests import stateful
from tests.agreement import assert_agreement, find_target
from tests.stateful import CASES, Case, Machine, X, runs, single, zeros
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Copy, Launch, Program
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Graphs, Port, State
from tinyedge.core.tensor.tensor import Tensor

RUNS = 10


def compiled(case: Case, target: str, **options: Any) -> Program:
    program = compile_graph(case.source(), find_target(target), Options(**options)).program
    assert program is not None
    return program


def follow(case: Case, replay: Replay, seed: int = 0) -> list[dict[str, Any]]:
    """Compare a sequence of runs with what they mean, outputs and states."""
    machine = Machine(case.source())
    seen = []
    for entry, inputs in runs(case, RUNS, seed):
        outputs = replay.run(inputs, entry)
        seen.append(outputs | {name: replay.get_state(name) for name in machine.states})
        assert_agreement(seen[-1], machine.run(entry, inputs) | machine.states)
    return seen


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
@pytest.mark.parametrize("name", CASES)
def test_runs(name: str, optimize: bool, target: str, device: Device) -> None:
    case = CASES[name]()
    with Replay(compiled(case, target, optimize=optimize), device, poison=True) as replay:
        first = follow(case, replay)
        replay.reset()
        again = follow(case, replay)
    for one, two in zip(first, again, strict=True):
        for key in one:
            assert one[key].tobytes() == two[key].tobytes(), f"{key}: equal to the bit after reset"


@pytest.mark.parametrize("name", ["cell", "frames", "queue of 6 along 1 takes 4"])
def test_halves(name: str, target: str, device: Device) -> None:
    """States are kept as they are declared, whatever the precision of what is between."""
    if not find_target(target).caps().fp16_storage:
        pytest.skip("the target keeps no halves")
    case = CASES[name]()
    program = compiled(case, target, precision="fp16")
    machine = Machine(case.source())
    with Replay(program, device, poison=True) as replay:
        for entry, inputs in runs(case, RUNS):
            outputs = replay.run(inputs, entry)
            for key, value in machine.run(entry, inputs).items():
                room = 2e-2 * np.abs(value).max(initial=1e-3)
                np.testing.assert_allclose(outputs[key], value, atol=room)


def test_in_full(target: str, device: Device) -> None:
    """What is made of a gradient lies between kernels as float32: 1e-9 is 0 in fp16."""
    if not find_target(target).caps().fp16_storage:
        pytest.skip("the target keeps no halves")
    x, w = (Tensor.input(name, (16, 16), dt.float32) for name in "xw")
    small = ((x @ x).in_full() * 1e-9).tanh()
    port = Port("w", dt.float32, w.shape, (w * 0.5 + (small @ small.transpose(0, 1)) * 1e18).node)
    graph = Graph((Port("x", dt.float32, x.shape), replace(port, node=None)), (), {}, (port,))
    source = Graphs({"main": graph}, (State("w", dt.float32, w.shape),))
    program = compile_graph(source, find_target(target), Options(precision="fp16")).program
    assert program is not None
    given = np.random.default_rng(1).normal(size=(16, 16)).astype(np.float32)
    with Replay(program, device, poison=True) as replay:
        replay.run({"x": given}, "main")
        product = given @ given
        np.testing.assert_allclose(replay.get_state("w"), product @ product.T, rtol=2e-3, atol=2e-2)


def steps(program: Program, entry: int = 0) -> tuple[list[Launch], list[Copy]]:
    found = program.entries[entry].steps
    launches = [step for step in found if isinstance(step, Launch)]
    return launches, [step for step in found if isinstance(step, Copy)]


@pytest.mark.parametrize(
    ("name", "copies"),
    [
        ("accumulator", 0),  # its kernel reads what it overwrites, element by element
        ("moments", 0),
        ("neighbors", 1),  # it reads other elements than it overwrites
        ("read after new", 1),  # a later kernel reads it
        ("new read by outputs", 0),
        ("kept accumulator", 1),  # the caller gets it in a buffer of its own
        ("delay line", 2),  # only the last of the line is not read any more
        ("constant", 0),
    ],
)
def test_in_place_where_nothing_is_lost(name: str, copies: int) -> None:
    program = compiled(CASES[name](), "cpu")
    launches, copied = steps(program)
    assert len(copied) == copies
    written = {copy.destination for copy in copied}
    for launch in launches:
        written |= {launch.buffers[slot] for slot in program.kernels[launch.kernel].written}
    assert {state.buffer for state in program.states} <= written


def test_a_parameter_and_its_moments_are_one_launch() -> None:
    """The parameter's new value is made of the moments' new ones, and stored before they are."""
    program = compiled(CASES["moments"](), "cpu")
    launches, copied = steps(program)
    (launch,) = launches
    kept = {state.name: state.buffer for state in program.states}
    assert not copied and launch.buffers[0] == kept["w"]
    assert set(launch.buffers[:3]) == set(kept.values()) and len(launch.buffers) == 4


def test_entries_share_memory_weights_and_kernels() -> None:
    large = zeros(64, 1024)
    weight = np.random.default_rng(0).standard_normal((1024, 1024), dtype=np.float32)

    def work(x: Tensor) -> dict[str, Tensor]:
        return {"y": ((x @ Tensor.weight("w", weight.copy())).softmax(1) * 3.0).sum(1)}

    one = compiled(single(work, {}, x=large), "cpu")
    entries = {"main": (work, {"x": large}), "again": (work, {"x": large})}
    two = compiled(Case(entries, {}), "cpu")
    assert [len(two.weights), len(two.kernels)] == [len(one.weights), len(one.kernels)]
    assert two.arenas == one.arenas
    assert [entry.name for entry in two.entries] == ["main", "again"]
    kernels = [[launch.kernel for launch in steps(two, entry)[0]] for entry in (0, 1)]
    assert kernels[0] == kernels[1]


def test_states_lie_apart_from_all_else() -> None:
    program = compiled(stateful.CASES["frames"](), "cpu")
    kept = {state.buffer for state in program.states}
    ranges = {
        number: range(buffer.offset, buffer.offset + buffer.bytes)
        for number, buffer in enumerate(program.buffers)
        if buffer.arena >= 0
    }
    for state in kept:
        for other, place in ranges.items():
            start, end = ranges[state].start, ranges[state].stop
            assert other == state or place.stop <= start or end <= place.start


def test_a_queue_is_named_in_its_launches() -> None:
    launches, _ = steps(compiled(CASES["queue of 5 along 0 takes 1"](), "cpu"))
    assert any("shift q" in launch.nodes for launch in launches)


def test_a_state_with_an_open_first_axis(target: str, device: Device) -> None:
    """A run of N rows takes and updates the first N rows of a state."""
    from tests.imported import source_of
    from tinyedge.core import dtype as dt
    from tinyedge.core.ir.shapes import symbol
    from tinyedge.core.tensor.graph import Graph, Port

    rows = symbol("N", 1, 8)
    x = Tensor.input("x", (rows, 6), dt.float32)
    h = Tensor.input("h", (rows, 6), dt.float32)
    q = Tensor.input("q", (rows, 3, 6), dt.float32)
    new = h * 0.5 + x
    outputs = {"y": q.sum((1,)) + h, "h_out": new, "q_out": new.reshape((rows, 1, 6))}
    graph = Graph(
        tuple(Port(n, t.dtype, t.shape) for n, t in {"x": x, "h": h, "q": q}.items()),
        tuple(Port(n, t.dtype, t.shape, t.node) for n, t in outputs.items()),
    )
    source, *_ = source_of(graph, states={"h": "h_out", "q": "q_out:shift"})
    program = compile_graph(source, find_target(target), Options()).program
    assert program is not None
    states = {"h": np.zeros((8, 6), np.float32), "q": np.zeros((8, 3, 6), np.float32)}
    rng = np.random.default_rng(1)
    with Replay(program, device, poison=True) as replay:
        for count in (8, 3, 5, 1, 8):
            given = rng.standard_normal((count, 6)).astype(np.float32)
            got = replay.run({"x": given})["y"]
            old, queue = states["h"][:count], states["q"][:count]
            np.testing.assert_allclose(got, queue.sum(1) + old, rtol=1e-5, atol=1e-5)
            states["h"][:count] = old * np.float32(0.5) + given
            states["q"][:count] = np.concatenate([queue[:, 1:], states["h"][:count, None]], 1)
            for name, value in states.items():
                np.testing.assert_allclose(replay.get_state(name), value[:count], rtol=1e-6)


def test_states_are_got_and_set(target: str, device: Device) -> None:
    case = CASES["accumulator"]()
    with Replay(compiled(case, target), device) as replay:
        replay.run({"x": X + 1})
        saved = replay.get_state("h")
        replay.run({"x": X + 5})
        after = replay.get_state("h")
        replay.set_state("h", saved)
        replay.run({"x": X + 5})
        np.testing.assert_array_equal(replay.get_state("h"), after)
