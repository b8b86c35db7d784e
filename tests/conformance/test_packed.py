"""Outputs of a few bytes, on every target: nothing beside them changes.

Targets that write whole words pack bytes and halves, so sizes that are no multiple of a word end in
one. What lies between the buffers of an arena keeps the bytes it had, rows that are put into a
tensor leave the others alone, and so do the entries that a state is shifted by.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.agreement import Inputs, find_target, graph, reference
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.dtype import DType
from tinyedge.core.program.device import Device, Range
from tinyedge.core.program.program import Program
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Graphs, Port, State
from tinyedge.core.tensor.tensor import Tensor

SIZES = (1, 2, 3, 5)
TYPES = (dt.uint8, dt.int8, dt.bool_, dt.float16)
FILL = 0xA5  # of memory that nobody may touch; no value of a test has these bits in every byte
RNG = np.random.default_rng(12)


def numbers(dtype: DType, *shape: int) -> Any:
    if dtype is dt.bool_:
        return RNG.random(shape) < 0.5
    low = 0 if dtype is dt.uint8 else -50
    return RNG.integers(low, 100, shape).astype(dtype.numpy)


def changed(x: Tensor) -> Tensor:
    return ~x if x.dtype is dt.bool_ else x + x


def results(inputs: Inputs) -> Iterator[tuple[str, Tensor]]:
    for dtype in TYPES:
        for size in SIZES:
            name = f"{dtype}_{size}"
            x = inputs.new(numbers(dtype, size))
            table = inputs.new(numbers(dtype, 7, size))
            chosen = inputs.new(np.array([4, 0, 6], np.int32))
            yield f"{name}_each", changed(x)
            yield f"{name}_columns", changed(table).transpose(1, 0)
            yield f"{name}_row", table.gather(0, chosen)
            yield f"{name}_joined", Tensor.concat([x, changed(x)[:1]], 0)


def untouched(program: Program, replay: Replay) -> Iterator[Range]:
    """What of each arena belongs to no buffer."""
    for number, arena in enumerate(program.arenas):
        used = sorted(
            (buffer.offset, buffer.offset + buffer.bytes, place)
            for place, buffer in enumerate(program.buffers)
            if buffer.weight < 0 and buffer.arena == number
        )
        memory = replay._ranges[used[0][2]].memory
        end = 0
        for start, stop, _ in (*used, (arena.bytes, arena.bytes, 0)):
            if start > end:
                yield Range(memory, end, start - end)
            end = max(end, stop)


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
def test_memory_beside_outputs(optimize: bool, target: str, device: Device) -> None:
    inputs = Inputs()
    tensors = dict(results(inputs))
    ports = graph(tensors, inputs)
    program = compile_graph(ports, find_target(target), Options(optimize=optimize)).program
    assert program is not None
    with Replay(program, device) as replay:
        gaps = list(untouched(program, replay))
        assert sum(gap.bytes for gap in gaps) > 100 * len(tensors)
        for gap in gaps:
            device.upload(gap, np.full(gap.bytes, FILL, np.uint8))
        for _ in range(2):
            found = replay.run(inputs.arrays)
        for content in device.read(gaps):
            assert (content.view(np.uint8) == FILL).all()
    for name, expected in reference(tensors, inputs).items():
        assert found[name].dtype == expected.dtype
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


def test_rows_beside_one_that_is_put(target: str, device: Device) -> None:
    """The second and the last row are written: they begin and end within words of the others."""
    inputs = Inputs()
    tensors: dict[str, Tensor] = {}
    for dtype in TYPES:
        for size in SIZES:
            table = inputs.new(numbers(dtype, 4, size))
            row = changed(inputs.new(numbers(dtype, size)))
            first = [Tensor(1, dt.int32), table]
            iteration = lambda t, y, row=row: (t + 2, y.put(t, row))  # noqa: E731
            tensors[f"{dtype}_{size}"] = Tensor.loop(first, iteration, trips=2)[1]
    ports = graph(tensors, inputs)
    program = compile_graph(ports, find_target(target)).program
    assert program is not None
    with Replay(program, device, poison=True) as replay:
        found = replay.run(inputs.arrays)
    for name, expected in reference(tensors, inputs).items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


@pytest.mark.parametrize("update", ["replace", "shift"])
def test_states_of_a_few_bytes(update: Any, target: str, device: Device) -> None:
    inputs: list[Port] = []
    updates, outputs, states = [], [], []
    arrays: dict[str, Any] = {}
    for dtype in TYPES:
        for size in SIZES:
            name = f"{dtype}_{size}"
            length = 3 * size
            states.append(State(name, dtype, (length,), update, initial=numbers(dtype, length)))
            kept = Tensor.input(name, (length,), dtype)
            given = Tensor.input(f"x_{name}", (size,), dtype)
            arrays[f"x_{name}"] = numbers(dtype, size)
            inputs += [Port(f"x_{name}", dtype, (size,)), Port(name, dtype, (length,))]
            new = changed(given)
            if update == "replace":
                new = Tensor.concat([kept[size:], new], 0)
            updates.append(Port(name, dtype, new.shape, new.node))
            seen = changed(kept)
            outputs.append(Port(f"y_{name}", dtype, (length,), seen.node))
    entry = Graph(tuple(inputs), tuple(outputs), updates=tuple(updates))
    graphs = Graphs({"main": entry}, states=tuple(states))
    program = compile_graph(graphs, find_target(target)).program
    assert program is not None
    expected = {state.name: np.asarray(state.initial) for state in states}
    with Replay(program, device, poison=True) as replay:
        for _ in range(4):
            found = replay.run(arrays)
            for state in states:
                before = expected[state.name]
                wanted = ~before if state.dtype is dt.bool_ else before + before
                np.testing.assert_array_equal(found[f"y_{state.name}"], wanted, state.name)
                given = arrays[f"x_{state.name}"]
                new = ~given if state.dtype is dt.bool_ else given + given
                expected[state.name] = np.concatenate([before[len(given) :], new])
            for name, value in arrays.items():
                arrays[name] = value[::-1].copy()
        for state in states:
            np.testing.assert_array_equal(replay.get_state(state.name), expected[state.name])
