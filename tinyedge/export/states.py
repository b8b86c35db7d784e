"""States: which output of a model is kept on the device to be an input of its next run.

An update is written `OUTPUT[:shift[@AXIS]][:keep]`: the output becomes the state's new value, or
with `shift` its last entries along an axis, while the others move towards 0 and the first ones are
dropped. With `keep` the output stays an output too.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

from tinyedge.core import dtype as dtypes
from tinyedge.core.errors import InputError
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.tensor.graph import Graph, Port, State
from tinyedge.export.near import did_you_mean
from tinyedge.export.ports import show, show_shape

Spec = Union[str, Sequence[str]]

_WORD = re.compile(r"shift(?:@(-?\d{1,3}))?|keep", re.ASCII)
FORMS = "OUTPUT, OUTPUT:shift or OUTPUT:shift@AXIS; each also with :keep at its end"


@dataclass(frozen=True)
class Update:
    """How an output feeds a state."""

    output: str
    shift: bool = False
    axis: int | None = None  # None for the one axis along which the shapes differ
    keep: bool = False


def parse_update(state: str, spec: Spec, outputs: Container[str] = ()) -> Update:
    """A state's update from its text, or from a tuple of the output and the words after it.

    A text that is an output's name as it stands is that output. Raises InputError.
    """
    if isinstance(spec, str):
        parts = [spec] if spec in outputs else _split(spec)
    else:
        parts = list(spec) if isinstance(spec, (list, tuple)) else []
    if not parts or not all(isinstance(part, str) and part for part in parts):
        raise _refused(state, f"its update {spec!r} names no output", "state.update", FORMS)
    update = Update(parts[0])
    for word in parts[1:]:
        match = _WORD.fullmatch(word)
        if match is None:
            raise _refused(state, f"its update has the word {word!r}", "state.update", FORMS)
        if word == "keep":
            update = replace(update, keep=True)
        else:
            update = replace(update, shift=True, axis=int(match[1]) if match[1] else None)
    return update


def _split(spec: str) -> list[str]:
    """An output's name, which may hold colons, and the words after it."""
    words: list[str] = []
    while ":" in spec and _WORD.fullmatch(spec.rpartition(":")[2]):
        spec, _, word = spec.rpartition(":")
        words.insert(0, word)
    return [spec, *words]


def with_states(
    graphs: Mapping[str, Graph],
    states: Mapping[str, Spec],
    initial: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Graph], tuple[State, ...], dict[str, str]]:
    """The graphs of all entries with states in place of the outputs that feed them; the states; the
    output that feeds each.

    states: updates by the name of the input that reads the state. A state is read in every entry
    with that input, and updated in every entry with that output. initial: arrays for states that do
    not start with zeros. Raises InputError.
    """
    names = {port.name for graph in graphs.values() for port in graph.outputs}
    updates = {name: parse_update(name, spec, names) for name, spec in states.items()}
    made = {state.name: state for state in own_states(graphs.values())}
    for name, update in updates.items():
        if name in made:
            raise _refused(name, "the model itself updates it", "state.update", "other inputs")
        port, fed = _reader(graphs, name), _feeder(graphs, name, update)
        made[name] = state = State(name, port.dtype, port.shape)
        _check_sizes(state)
        _check_size_is_known(state, fed)
        if update.shift:
            made[name] = replace(state, update="shift", axis=_axis(state, update, fed))
    for name, value in (initial or {}).items():
        if name not in made:
            raise _refused(name, "there is no such state", "state.initial", _list(made))
        _check_initial(made[name], value)
        made[name] = replace(made[name], initial=value)
    _check_twice(made, updates)
    kept = {update.output for update in updates.values() if update.keep}
    gone = {update.output for update in updates.values()} - kept
    entries = {}
    for entry, graph in graphs.items():
        outputs = {port.name: port for port in graph.outputs}
        fed_here = {n: outputs[u.output] for n, u in updates.items() if u.output in outputs}
        for name, port in fed_here.items():
            _check_fed(made[name], port)
        entries[entry] = replace(
            graph,
            outputs=tuple(port for port in graph.outputs if port.name not in gone),
            updates=(
                *graph.updates,
                *(replace(port, name=name) for name, port in fed_here.items()),
            ),
        )
    return entries, tuple(made.values()), {name: u.output for name, u in updates.items()}


def own_states(graphs: Iterable[Graph]) -> tuple[State, ...]:
    """The states that graphs update by themselves, as that of a model's random numbers."""
    ports = {port.name: port for graph in graphs for port in graph.updates}
    return tuple(State(port.name, port.dtype, port.shape) for port in ports.values())


def _reader(graphs: Mapping[str, Graph], state: str) -> Port:
    """The input that reads a state; the same in every entry that has it."""
    ports = {
        entry: port
        for entry, graph in graphs.items()
        for port in graph.inputs
        if port.name == state
    }
    if not ports:
        inputs = dict.fromkeys(port.name for graph in graphs.values() for port in graph.inputs)
        raise InputError(
            f"state {state!r}",
            "no input has its name",
            id="state.input",
            supported=_list(inputs),
            next=did_you_mean(state, inputs) or "name a state as the input that reads it",
        )
    (first, port), *others = ports.items()
    for entry, other in others:
        if (other.dtype, other.shape) != (port.dtype, port.shape):
            because = f"it is {show(port)} in entry {first!r}, but {show(other)} in {entry!r}"
            raise _refused(state, because, "state.entries", "one type and shape in all entries")
    return port


def _feeder(graphs: Mapping[str, Graph], state: str, update: Update) -> Port:
    """The output that feeds a state, in the first entry that has it."""
    ports = [port for graph in graphs.values() for port in graph.outputs]
    for port in ports:
        if port.name == update.output:
            return port
    outputs = dict.fromkeys(port.name for port in ports)
    because = f"no output is named {update.output!r}"
    next = did_you_mean(update.output, outputs)
    raise _refused(state, because, "state.output", _list(outputs), next)


def _check_sizes(state: State) -> None:
    """A run of N rows takes and updates the first N rows of a state: they must be whole words."""
    axis = next((a for a, size in enumerate(state.shape) if size != 1), 0)
    rows, inner = state.shape[axis : axis + 1], state.shape[axis + 1 :]
    if any(not isinstance(size, int) for size in inner):
        raise InputError(
            f"state {state.name!r}",
            f"it is [{show_shape(state.shape)}]: its elements would move with the sizes",
            id="state.size",
            supported="fixed sizes; an open first axis (leading ones aside), of which each run "
            "updates the rows it has",
            next="fix its sizes with --dim",
        )
    row = maximum(product(inner)) * state.dtype.itemsize
    fixed = all(isinstance(size, int) for size in rows)
    if not fixed and row % 4 and state.dtype is not dtypes.bool_:
        raise InputError(
            f"state {state.name!r}",
            f"its first axis is open and its rows have {row} bytes",
            id="state.size",
            supported="rows of a multiple of 4 bytes, or a fixed first axis",
            next="fix its first size with --dim",
        )


def _axis(state: State, update: Update, fed: Port) -> int:
    """The axis along which a queue moves."""
    subject, rank = f"output {fed.name!r}", len(state.shape)
    if len(fed.shape) != rank or not rank:
        raise _mismatch(state, fed, "a queue and its new entries have the same number of axes")
    if update.axis is not None:
        if not -rank <= update.axis < rank:
            because = f"{subject} has no axis {update.axis}"
            raise _refused(state.name, because, "state.axis", f"axes 0 to {rank - 1}")
        return update.axis % rank
    axes = [
        a for a, pair in enumerate(zip(state.shape, fed.shape, strict=True)) if pair[0] != pair[1]
    ]
    if len(axes) == 1:
        return axes[0]
    if axes:
        raise _mismatch(state, fed, "they differ along more than one axis")
    raise InputError(
        f"state {state.name!r}",
        f"{subject} has its shape [{show_shape(fed.shape)}]: the axis to move along is not clear",
        id="state.axis",
        supported="shift@AXIS; without shift, the output replaces the state",
    )


def _check_size_is_known(state: State, fed: Port) -> None:
    if fed.count:
        raise _mismatch(
            state,
            fed,
            f"only a run knows the size of axis {fed.axis} of the output, or if it has one, "
            "a state's is fixed",
            "feed it from a result of fixed size, such as TopK of a constant K or a mask and Where",
        )


def _check_fed(state: State, fed: Port) -> None:
    """Raise InputError unless an output can feed a state."""
    _check_size_is_known(state, fed)
    if fed.dtype is not state.dtype:
        raise InputError(
            f"state {state.name!r}",
            f"it is {state.dtype}, but output {fed.name!r} is {fed.dtype}",
            id="state.dtype",
            supported="one element type",
            next="add a Cast to the model",
        )
    if state.update == "replace":
        if fed.shape != state.shape:
            next = ""
            if len(fed.shape) == len(state.shape):
                next = f"for a queue that takes new entries: {state.name}={fed.name}:shift"
            raise _mismatch(state, fed, "a new value has the shape of the old", next)
        return
    if len(fed.shape) != len(state.shape):
        raise _mismatch(state, fed, "a queue and its new entries have the same number of axes")
    for axis, (size, count) in enumerate(zip(state.shape, fed.shape, strict=True)):
        if axis != state.axis and size != count:
            raise _mismatch(state, fed, f"they must be equal but along axis {state.axis}")
    size, count = state.shape[state.axis], fed.shape[state.axis]
    if not isinstance(size, int) or not isinstance(count, int):
        raise _mismatch(state, fed, f"axis {state.axis}, along which it moves, must be fixed")
    if count > size:
        raise _mismatch(state, fed, f"a queue of {size} does not hold {count} new entries")


def _check_twice(states: Mapping[str, State], updates: Mapping[str, Update]) -> None:
    """Raise InputError where two states would always hold the same."""
    seen: dict[tuple[object, ...], str] = {}
    for name, update in updates.items():
        key = (update.output, states[name].update, states[name].axis)
        if key in seen:
            raise InputError(
                f"states {seen[key]!r} and {name!r}",
                f"output {update.output!r} feeds both in the same way",
                id="state.twice",
                supported="one state an output; one that it replaces and one that it shifts into",
            )
        seen[key] = name


def _check_initial(state: State, value: Any) -> None:
    shape = tuple(maximum(size) for size in state.shape)
    array = dtypes.codes(value)
    if array.dtype != state.dtype.numpy or array.shape != shape:
        raise InputError(
            f"the initial value of state {state.name!r}",
            f"it is {array.dtype} {list(array.shape)}",
            id="state.initial",
            supported=f"{state.dtype} {list(shape)}",
        )


def _mismatch(state: State, fed: Port, because: str, next: str = "") -> InputError:
    return InputError(
        f"state {state.name!r}",
        f"it is [{show_shape(state.shape)}] and output {fed.name!r} is [{show_shape(fed.shape)}]: "
        f"{because}",
        id="state.shape",
        next=next,
    )


def _refused(state: str, because: str, id: str, supported: str, next: str = "") -> InputError:
    return InputError(f"state {state!r}", because, id=id, supported=supported, next=next)


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
