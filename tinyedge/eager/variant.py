"""One program of a compiled function: for arguments of some types and shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyedge.core.errors import InputError
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.program.device import Range
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.eager import tracing
from tinyedge.eager.call import Call
from tinyedge.eager.describe import Description, replaced_in
from tinyedge.eager.executable import Computation, build
from tinyedge.eager.held import Held, held_by, leaf
from tinyedge.eager.places import Place
from tinyedge.eager.traced import Traced, check_equal, trace

# Where an output of a run is, given the leaves of its arguments, its results and its updates.
Found = Callable[[Sequence[UOp], Sequence[UOp], "dict[int, UOp]"], UOp]


class Variant:
    """A function traced and compiled. It is traced again at calls 2, 4, 8..."""

    def __init__(self, call: Call, place: Place) -> None:
        self.calls = 0
        self._place = place
        self.traced = trace(call)
        self.donated = donated(call)
        self._updates, self._same = updates_of(call, self.traced)
        nodes = self.traced.nodes
        depends = depending(self.traced)
        results: dict[UOp, int] = {}
        by_output = {output: number for number, output in self._updates.items()}
        self._found: list[Found] = []
        for number, node in enumerate(nodes):
            if number in by_output:
                self._found.append(_update(by_output[number]))
            elif node in self.traced.arguments:
                self._found.append(_argument(self.traced.arguments.index(node)))
            elif node not in depends:
                self._found.append(_constant(node))
            else:
                self._found.append(_result(results.setdefault(node, len(results))))
        updates = {number: nodes[output] for number, output in self._updates.items()}
        self._executable = None
        if results or updates:
            computation = Computation(self.traced.arguments, tuple(results), updates)
            self._executable = build(place, computation)

    def run(self, call: Call, leaves: Sequence[UOp]) -> Any:
        """The function's result, computed."""
        self.calls += 1
        if self.calls > 1 and not self.calls & (self.calls - 1):
            check_equal(call, self.traced, trace(call))
        given = [*dict.fromkeys(leaves[len(call.seen.given) :])]
        given = [*leaves[: len(call.seen.given)], *given, *self.traced.extras]
        results: list[UOp] = []
        updates: dict[int, UOp] = {}
        if self._executable is not None:
            results, updates = self._executable.run(given, call.open.values)
        nodes = [found(given, results, updates) for found in self._found]
        if self.donated:
            self._spend(call, set(nodes))
        return self._given_back(nodes)

    def _given_back(self, nodes: Sequence[UOp]) -> Any:
        outputs = self.traced.outputs
        if len(outputs) == 1 and self.traced.result is outputs[0]:
            return Tensor(nodes[0])
        made: dict[int, Tensor] = {}
        for number, output in enumerate(outputs):
            same = self._same.get(number)
            made[id(output)] = Tensor(nodes[number]) if same is None else made[id(outputs[same])]
        return replaced_in(self.traced.result, lambda output: made[id(output)], {})

    def _spend(self, call: Call, returned: set[UOp]) -> None:
        """The donated tensors are no more, but those that came out as they were."""
        by = f"{call.function.name}() at {tracing.line()}"
        for number in self.donated:
            tensor = call.seen.given[number]
            if isinstance(tensor, Tensor) and tensor.node not in returned:
                _spend(tensor, self._place, by)


def _spend(tensor: Tensor, place: Place, by: str) -> None:
    held = held_by(tensor.node)
    if held is None:  # a constant's array may be that of other tensors, and stays as it is
        shape = tuple(fixed(size) for size in tensor.shape)
        held = Held(place, tensor.dtype, shape, "", Range(None, 0, 0))
        tensor.node = leaf(held)
    held.spent = by


def _update(number: int) -> Found:
    return lambda given, results, updates: updates[number]


def _argument(number: int) -> Found:
    return lambda given, results, updates: given[number]


def _constant(node: UOp) -> Found:
    return lambda given, results, updates: node


def _result(number: int) -> Found:
    return lambda given, results, updates: results[number]


def donated(call: Call) -> tuple[int, ...]:
    """The numbers of the tensors that are donated."""
    numbers: dict[int, None] = {}
    for place in call.function.donated:
        mine = Description()
        mine.key(call.arguments[place])
        numbers.update(dict.fromkeys(call.seen.number(value) for value in mine.given))
    return tuple(numbers)


def depending(traced: Traced) -> set[UOp]:
    """The nodes that depend on arguments."""
    found: set[UOp] = set(traced.arguments)
    for node in toposort(traced.nodes):
        if not found.isdisjoint(node.src):
            found.add(node)
    return found


def updates_of(call: Call, traced: Traced) -> tuple[dict[int, int], dict[int, int]]:
    """By donated tensors' numbers, the output that is the new value; and by outputs, others that
    are the same tensor, as a donated one stood at both places.
    """
    updates: dict[int, int] = {}
    same: dict[int, int] = {}
    if not call.function.donated:
        return updates, same
    numbers = {id(output): number for number, output in enumerate(traced.outputs)}
    depends = depending(traced) - set(traced.arguments)
    taken: set[UOp] = set()
    for old, new in pairs(call, traced):
        number, output = call.seen.number(old), numbers[id(new)]
        node = traced.nodes[output]
        if number in updates:
            first = updates[number]
            if traced.nodes[first] is node and output != first:
                same[output] = first
        elif node in depends and node not in taken and output not in updates.values():
            updates[number] = output
            taken.add(node)
    return updates, same


def pairs(call: Call, traced: Traced) -> list[tuple[Any, Any]]:
    """Donated tensors and their new values: of the parts of the result, the first of an argument's
    structure that is not another's. Raises InputError where there is none.
    """
    result = traced.result
    parts = [*result] if isinstance(result, (tuple, list)) else []
    free = [_structure(part) for part in (result, *parts)]
    found: list[tuple[Any, Any]] = []
    for place in call.function.donated:
        key, old = _structure(call.arguments[place], call.open.shapes)
        match = next((n for n, (other, _) in enumerate(free) if other == key), None)
        if match is None:
            name = call.function.parameters[place]
            raise InputError(
                f"{call.function.name}, called at {tracing.line()}",
                f"it donates {name!r}, and nothing that it returns has its structure, types and "
                "shapes",
                id="jit.donate",
                next="return the new value as an item of a tuple, or leave the name out of donate=",
            )
        found += zip(old, free.pop(match)[1], strict=True)
    return found


def _structure(value: Any, shapes: Any = None) -> tuple[Any, list[Any]]:
    seen = Description(shapes, aliases=False)
    return seen.key(value), seen.given
