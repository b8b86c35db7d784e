"""A compiled graph on a device, whose arguments and results are leaves.

Arguments are states of the Program: they stay where they are between runs, so that one that is the
same as in the run before is not copied. An argument that is *updated* is overwritten by its new
value, which then lies there, as the leaf that the run gives for it; before another value is put
there it moves to memory of its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.options import Options
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.uop import UOp
from tinyedge.core.program import ports
from tinyedge.core.program.device import Range
from tinyedge.core.program.program import Port, Program, State
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor import graph
from tinyedge.eager.held import Held, array_of, held_by, host_leaf, leaf
from tinyedge.eager.places import Place


@dataclass(frozen=True)
class Computation:
    """What is compiled: results of arguments, which are inputs of the graph.

    updates: new values of arguments, by their numbers.
    """

    arguments: tuple[UOp, ...]
    results: tuple[UOp, ...]
    updates: Mapping[int, UOp] = field(default_factory=dict)

    def graphs(self) -> graph.Graphs:
        """As the compiler takes it."""
        inputs = tuple(graph.Port(_name(node), node.dtype, node.shape) for node in self.arguments)
        outputs = tuple(
            graph.Port(f"result {number}", node.dtype, node.shape, node)
            for number, node in enumerate(self.results)
        )
        updates = tuple(
            graph.Port(_name(self.arguments[number]), node.dtype, node.shape, node)
            for number, node in self.updates.items()
        )
        states = tuple(graph.State(port.name, port.dtype, port.shape) for port in inputs)
        return graph.Graphs({"main": graph.Graph(inputs, outputs, updates=updates)}, states)


class _Argument:
    """Where an argument lies, and the leaf whose value lies there."""

    def __init__(self, state: State, whole: Range) -> None:
        self.storage = state.storage
        self.dtype = dt.by_name(state.dtype)
        self._whole = whole
        self._leaf: weakref.ref[UOp] | None = None

    def part(self, bytes: int) -> Range:
        return Range(self._whole.memory, self._whole.offset, bytes)

    def take(self, place: Place, node: UOp) -> None:
        """Put a leaf's value here."""
        before = self._leaf() if self._leaf is not None else None
        if before is node:
            return
        if before is not None:
            self.leave(place, before)
        self._leaf = None
        self._copy(place, node)
        self._leaf = weakref.ref(node)

    def _copy(self, place: Place, node: UOp) -> None:
        held = held_by(node)
        if held is not None and held.place is place and held.storage == self.storage:
            if held.range.bytes:
                place.device.copy(held.range, self.part(held.range.bytes))
            return
        content = ports.encode(array_of(node), self.storage, "a tensor")
        if content.nbytes:
            place.device.upload(self.part(content.nbytes), content)

    def leave(self, place: Place, node: UOp) -> None:
        """Give what lies here memory of its own, if it has none."""
        held = held_by(node)
        if held is None or held.home is not self or held.spent:
            return
        source, held.range = held.range, place.allocate(held.range.bytes)
        if source.bytes:
            place.device.copy(source, held.range)
        _own(place, held)
        held.home = None

    def updated(self, place: Place, shape: tuple[int, ...], owner: object) -> UOp:
        """The leaf of the new value that lies here. owner: what the memory belongs to."""
        held = Held(place, self.dtype, shape, self.storage, self.part(_bytes(shape, self.storage)))
        held.home = self
        node = leaf(held)
        self.owner = owner
        self._leaf = weakref.ref(node)
        return node


class _Result:
    """Where a result lies after a run."""

    def __init__(self, port: Port, whole: Range) -> None:
        self._port, self._whole = port, whole
        self._dtype = dt.by_name(port.dtype)
        fixed = all(isinstance(size, int) for size in port.shape)
        self._fixed = self._at({}) if fixed else None

    def _at(self, named: Mapping[str, int]) -> tuple[tuple[int, ...], Range]:
        """Its shape, and its part of the buffer."""
        shape = ports.shape_of(self._port.shape, named)
        whole = self._whole
        return shape, Range(whole.memory, whole.offset, _bytes(shape, self._port.storage))

    def leaf(self, place: Place, named: Mapping[str, int]) -> UOp:
        """The leaf of what lies there, in memory of its own."""
        shape, part = self._fixed or self._at(named)
        storage = self._port.storage
        held = Held(place, self._dtype, shape, storage, place.allocate(part.bytes))
        if part.bytes:
            place.device.copy(part, held.range)
        _own(place, held)
        return leaf(held)


class Executable:
    """A computation, compiled for a device."""

    def __init__(self, place: Place, computation: Computation) -> None:
        self._place = place
        program = compile_graph(computation.graphs(), place.target, Options()).program
        assert program is not None
        with place.turn():
            self._replay = Replay(program, place.device)
        place.owns(self, self._replay.close)
        self.bytes = _memory(program)
        program = self._replay.program
        ranges = self._replay.ranges
        self._arguments = [_Argument(state, ranges[state.buffer]) for state in program.states]
        self._results = [_Result(port, ranges[port.buffer]) for port in program.outputs]
        self._updated = [(number, program.states[number]) for number in computation.updates]

    def run(
        self, leaves: Sequence[UOp], sizes: Mapping[str, int] | None = None
    ) -> tuple[list[UOp], dict[int, UOp]]:
        """The leaves of the results, and of the updated arguments by their numbers."""
        place = self._place
        with place.turn():
            for argument, node in zip(self._arguments, leaves, strict=True):
                argument.take(place, node)
            named = self._replay.advance(symbols=sizes)
            results = [result.leaf(place, named) for result in self._results]
            updates = {
                number: self._arguments[number].updated(
                    place, ports.shape_of(state.shape, named), self
                )
                for number, state in self._updated
            }
        return results, updates


class Evaluated:
    """A computation, evaluated with numpy."""

    bytes = 0

    def __init__(self, computation: Computation) -> None:
        self._computation = computation

    def run(
        self, leaves: Sequence[UOp], sizes: Mapping[str, int] | None = None
    ) -> tuple[list[UOp], dict[int, UOp]]:
        """As that of Executable: leaves of constant arrays."""
        found = self._computation
        given = {
            _name(argument): array_of(node)
            for argument, node in zip(found.arguments, leaves, strict=True)
        }
        nodes = [*found.results, *found.updates.values()]
        values = evaluate(nodes, given, dict(sizes or {}))
        made = [
            host_leaf(np.asarray(value), node.dtype)
            for value, node in zip(values, nodes, strict=True)
        ]
        count = len(found.results)
        return made[:count], dict(zip(found.updates, made[count:], strict=True))


def build(place: Place, computation: Computation) -> Executable | Evaluated:
    """A computation for a device."""
    if place.is_reference:
        return Evaluated(computation)
    return Executable(place, computation)


def _name(argument: UOp) -> str:
    return str(argument.arg.source.name)


def _own(place: Place, held: Held) -> None:
    memory = held.range.memory
    place.owns(held, lambda: place.device.free(memory))


def _bytes(shape: tuple[int, ...], storage: str) -> int:
    return ports.padded(ports.elements_of(shape) * dt.by_name(storage).itemsize)


def _memory(program: Program) -> int:
    return sum(arena.bytes for arena in program.arenas) + sum(w.bytes for w in program.weights)
