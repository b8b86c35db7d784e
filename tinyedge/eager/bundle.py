"""A compiled function as what a bundle holds: donated trees are states, the others inputs."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyedge.core.errors import InputError
from tinyedge.core.gradient.trees import Buffer
from tinyedge.core.ir.rewrite import replaced
from tinyedge.core.ir.uop import UOp
from tinyedge.core.tensor.graph import Graph, Port, State
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.eager.call import Call
from tinyedge.eager.describe import attributes_of
from tinyedge.eager.held import array_of, host_leaf
from tinyedge.eager.traced import Traced, trace
from tinyedge.eager.variant import donated, pairs


@dataclass(frozen=True)
class Entry:
    """A function's graph, traced for one call."""

    graph: Graph
    states: tuple[State, ...]  # its donated tensors
    given: Mapping[str, Any]  # the arrays of its inputs in that call, but of those with open sizes
    names: Mapping[int, str]  # of the states, by the id of the call's tensor or array


def graph_of(
    call: Call,
    leaves: Sequence[UOp],
    outputs: Sequence[str] | None = None,
    states: Mapping[int, str] | None = None,
) -> Entry:
    """A function as an entry of a bundle.

    leaves: of the call's tensors. Inputs and states are called by the parameter and the way to the
    tensor, as `model.0.weight`. outputs: names of the tensors of the result that are not new values
    of donated ones; default: `output`, or if there are several by the way to them, `output_0`.
    states: names of the states of other entries, by the id of the tensor that is each one's first
    value: where the call has that tensor, this entry reads the state.
    What the function captured is constant. Raises InputError.
    """
    traced = trace(call)
    known = states or {}
    count = len(call.seen.given)
    names = _names(call.function.parameters, call.arguments) | dict(known)
    named = [names[id(value)] for value in call.seen.given]
    places = traced.arguments[:count]
    inputs = [Port(n, p.dtype, p.shape) for n, p in zip(named, places, strict=True)]
    standing = {
        p: Tensor.input(n, p.shape, p.dtype).node for n, p in zip(named, places, strict=True)
    }
    captured = [*dict.fromkeys(leaves[count:]), *traced.extras]
    for place, node in zip(traced.arguments[count:], captured, strict=True):
        standing[place] = host_leaf(array_of(node), node.dtype)
    done = replaced(traced.nodes, standing)
    nodes = {id(o): done[n] for o, n in zip(traced.outputs, traced.nodes, strict=True)}
    numbers = donated(call)
    updates, taken = _updates(call, traced, nodes, named)
    rest = [output for output in traced.outputs if id(output) not in taken]
    ports = [
        Port(name, nodes[id(output)].dtype, nodes[id(output)].shape, nodes[id(output)])
        for name, output in zip(_output_names(traced, rest, outputs), rest, strict=True)
    ]
    kept = {id(call.seen.given[number]): named[number] for number in numbers}
    given = {
        port.name: array_of(leaves[number])
        for number, port in enumerate(inputs)
        if number not in numbers
        and port.name not in known.values()
        and all(isinstance(size, int) for size in port.shape)
    }
    made = tuple(_state(named[number], places[number], leaves[number]) for number in numbers)
    return Entry(Graph(tuple(inputs), tuple(ports), updates=updates), made, given, kept)


def _state(name: str, place: UOp, leaf: UOp) -> State:
    return State(name, place.dtype, place.shape, initial=np.array(array_of(leaf)))


def _updates(
    call: Call, traced: Traced, nodes: Mapping[int, UOp], named: Sequence[str]
) -> tuple[tuple[Port, ...], set[int]]:
    """The states' new values, and the ids of the outputs that these are."""
    found: dict[str, UOp] = {}
    taken: set[int] = set()
    if not call.function.donated:
        return (), taken
    for old, new in pairs(call, traced):
        name, node = named[call.seen.number(old)], nodes[id(new)]
        taken.add(id(new))
        if found.setdefault(name, node) is not node:
            raise InputError(
                f"state {name!r}",
                "the tensor stands at several donated places, and has several new values",
                id="jit.export",
                next="donate a copy at each place, or return one value for all of them",
            )
    return tuple(Port(n, node.dtype, node.shape, node) for n, node in found.items()), taken


def _names(parameters: Sequence[str], arguments: Sequence[Any]) -> dict[int, str]:
    """By a tensor's or array's id, the parameter and the way to it, of the first place."""
    names: dict[int, str] = {}
    for parameter, value in zip(parameters, arguments, strict=True):
        for name, leaf in _ways(parameter, value, set()):
            names.setdefault(id(leaf), name)
    return names


def _ways(way: str, value: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """The tensors and arrays of a tree, each with the way to it, as `nn.state_dict` names it."""
    if isinstance(value, Buffer):
        value = value.value
    if isinstance(value, (Tensor, np.ndarray)):
        yield way, value
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    for name, part in _parts(value):
        yield from _ways(f"{way}.{name}" if way else str(name), part, seen)


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from zip(value._fields, value, strict=True)
    elif isinstance(value, (list, tuple, collections.deque)):
        yield from enumerate(value)
    elif isinstance(value, Mapping):
        yield from value.items()
    elif not isinstance(value, type):
        yield from (pair for pair in attributes_of(value) if not pair[0].startswith("__"))


def _output_names(
    traced: Traced, rest: Sequence[Any], names: Sequence[str] | None
) -> Sequence[str]:
    if names is not None:
        names = (names,) if isinstance(names, str) else names
        if len(names) != len(rest):
            raise InputError(
                f"outputs {', '.join(names)}",
                f"the function returns {len(rest)} tensors beside the donated ones",
                id="jit.export",
                next="name each of these",
            )
        return names
    ways: dict[int, str] = {}
    for way, leaf in _ways("", traced.result, set()):
        ways.setdefault(id(leaf), way)
    if len(rest) == 1 and ways.get(id(rest[0]), "")[:1] in ("", *"0123456789"):
        return ("output",)
    return [f"output_{way}" if way[:1].isdigit() else way for way in (ways[id(o)] for o in rest)]
