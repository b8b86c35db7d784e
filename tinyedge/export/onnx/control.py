"""Control flow, decided or unrolled at import; sequences and optionals, which exist only there."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.tensor import Tensor
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.movement import cut
from tinyedge.export.onnx.registry import REFUSED, Call, Node, operator

Steps = Generator[Call, list[Any], Any]


@operator("If", limits="a computed condition: branches whose results have one shape and type")
def if_(node: Node, condition: Tensor) -> Steps:
    """The branch of a known condition; else both branches, and a choice between their results."""
    known = node.known(condition)
    if known is not None:
        if known.size != 1:
            raise node.invalid(f"its condition has {known.size} elements")
        name = "then_branch" if bool(known.reshape(-1)[0]) else "else_branch"
        return (yield node.call(node.graph(name), {}, name))
    yes = yield node.call(node.graph("then_branch"), {}, "then_branch")
    no = yield node.call(node.graph("else_branch"), {}, "else_branch")
    if REFUSED in yes or REFUSED in no:
        return [REFUSED] * len(node.outputs)
    results = []
    for a, b in zip(yes, no, strict=True):
        same = isinstance(a, Tensor) and isinstance(b, Tensor)
        if not same or a.shape != b.shape or a.dtype is not b.dtype:
            raise node.unsupported(
                f"its condition is computed at run time, its branches give {show(a)}, {show(b)}",
                supported="branches whose results have one shape and type",
            )
        results.append(condition.reshape(()).where(a, b))
    return results


@operator(
    "Loop", limits="a computed number of turns: below a bound; what is carried keeps its shape"
)
def loop(
    node: Node, trips: Tensor | None = None, condition: Tensor | None = None, *carried: Any
) -> Steps:
    """Unrolled where the number of turns is known at import; else a loop of steps."""
    body = node.graph("body")
    names = [value.name for value in body.input]
    if len(names) != 2 + len(carried):
        raise node.invalid(f"its body has {len(names)} inputs for {len(carried)} carried values")
    if trips is None and condition is None:
        raise node.unsupported("it has neither a trip count nor a condition")
    if node.unknown(trips) or node.unknown(condition):
        return (yield from _repeated(node, body, names, trips, condition, carried))
    limit = None if trips is None else int(node.constant_input(trips, "M").reshape(-1)[0])
    state = list(carried)
    scanned: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    number = 0
    while limit is None or number < limit:
        if condition is not None:
            going = node.constant_input(condition, "cond")
            if not bool(going.reshape(-1)[0]):
                break
        flag = node.constant(np.array(True))
        values = [node.constant(np.array(number, np.int64)), flag, *state]
        results = yield node.call(body, dict(zip(names, values, strict=True)), number)
        if REFUSED in results:
            return [REFUSED] * len(node.outputs)
        condition = results[0] if condition is not None or limit is None else None
        if condition is None and node.known(results[0]) is not None:
            condition = results[0]
        elif condition is None:
            condition = results[0]
        if node.unknown(condition):
            return (yield from _repeated(node, body, names, trips, None, carried))
        state = results[1 : 1 + len(state)]
        for parts, value in zip(scanned, results[1 + len(state) :], strict=True):
            parts.append(value)
        number += 1
    return [*state, *(_stacked(node, parts, 0, False) for parts in scanned)]


def _repeated(
    node: Node,
    body: Any,
    names: list[str],
    trips: Tensor | None,
    condition: Tensor | None,
    carried: tuple[Any, ...],
) -> Steps:
    """A loop of which only the run knows the number of turns, below a bound."""
    known = node.known(trips)
    limit = None if known is None else int(known.reshape(-1)[0])
    bound = node.bound(limit)
    if bound == 0 and len(body.output) == 1 + len(carried):
        return list(carried)
    count = None if trips is None or limit is not None else trips.reshape(()).cast(dt.int64)
    going = Tensor(True, dt.bool_) if condition is None else condition.reshape(())
    if count is not None:
        going = going & (count > 0)
    first = [going, Tensor(0, dt.int64), *carried]
    inside = Tensor.carried(first)
    values = [inside[1], node.constant(np.array(True)), *inside[2:]]
    results = yield node.call(body, dict(zip(names, values, strict=True)), "turn")
    if REFUSED in results:
        return [REFUSED] * len(node.outputs)
    number = inside[1] + 1
    more = results[0].reshape(())
    if count is not None:
        more = more & (number < count)
    for old, new in zip(carried, results[1:], strict=False):
        fits = isinstance(old, Tensor) and isinstance(new, Tensor)
        if not fits or old.shape != new.shape or old.dtype is not new.dtype:
            raise node.unsupported(
                f"a turn makes {show(new)} of {show(old)}",
                supported="carried values that keep their shape and type",
            )
    scanned = results[1 + len(carried) :]
    made = [Tensor.full((bound, *value.shape), 0, value.dtype) for value in scanned]
    kept = Tensor.carried(made, len(first))
    filled = [tensor.put(inside[1], value) for tensor, value in zip(kept, scanned, strict=True)]
    nexts = [more, number, *results[1 : 1 + len(carried)], *filled]
    last = Tensor.repeated([*first, *made], [*inside, *kept], nexts, bound=bound)
    if not scanned:
        return last[2:]
    turns = node.counted(last[1], bound)
    rows = [cut(tensor, 0, 0, turns) for tensor in last[2 + len(carried) :]]
    return [*last[2 : 2 + len(carried)], *rows]


@operator("Scan", since=9, limits="scanned axes of fixed, equal sizes")
def scan(node: Node, *values: Tensor) -> Steps:
    """Unrolled over the scanned axis."""
    body = node.graph("body")
    count = node.integer("num_scan_inputs", 0)
    states = len(values) - count
    outputs = len(body.output) - states
    if not 1 <= count <= len(values) or len(body.input) != len(values) or outputs < 0:
        raise node.invalid(f"{count} of its {len(values)} inputs are scanned")
    state, scanned = list(values[:states]), values[states:]
    axes = node.integer_list("scan_input_axes") or [0] * count
    reverse = node.integer_list("scan_input_directions") or [0] * count
    places = [node.wrap(a, t.ndim) for a, t in zip(axes, scanned, strict=True)]
    lengths = {t.shape[a] for a, t in zip(places, scanned, strict=True)}
    (length,) = lengths if len(lengths) == 1 else (None,)
    if not isinstance(length, int):
        raise node.unsupported("it scans symbolic or unequal axes", supported="fixed sizes")
    rows = [_moved(t, a, 0) for t, a in zip(scanned, places, strict=True)]
    rows = [t.flip((0,)) if back else t for t, back in zip(rows, reverse, strict=True)]
    first = [Tensor(0, dt.int64), *state]
    carried = Tensor.carried(first)
    elements = [t.gather(0, carried[0]) for t in rows]
    names = [value.name for value in body.input]
    inputs = dict(zip(names, [*carried[1:], *elements], strict=True))
    results = yield node.call(body, inputs, "turn")
    if REFUSED in results:
        return [REFUSED] * len(node.outputs)
    for old, new in zip(state, results, strict=False):
        if old.shape != new.shape or old.dtype is not new.dtype:
            raise node.invalid(f"a turn makes {show(new)} of the state {show(old)}")
    back_out = node.integer_list("scan_output_directions") or [0] * outputs
    made = [Tensor.full((length, *v.shape), 0, v.dtype) for v in results[states:]]
    kept = Tensor.carried(made, len(first))
    nexts = [carried[0] + 1, *results[:states]]
    for tensor, value, back in zip(kept, results[states:], back_out, strict=True):
        nexts.append(tensor.put(length - 1 - carried[0] if back else carried[0], value))
    last = Tensor.repeated([*first, *made], [*carried, *kept], nexts, trips=length)
    out_axes = node.integer_list("scan_output_axes") or [0] * outputs
    stacked = [
        _moved(t, 0, node.wrap(axis, t.ndim))
        for t, axis in zip(last[1 + states :], out_axes, strict=True)
    ]
    return [*last[1 : 1 + states], *stacked]


def _moved(tensor: Tensor, source: int, target: int) -> Tensor:
    """One axis moved to another place."""
    axes = [axis for axis in range(tensor.ndim) if axis != source]
    axes.insert(target, source)
    return tensor.permute(axes)


def _stacked(node: Node, parts: list[Any], axis: int, reverse: bool) -> Tensor:
    if not parts:
        raise node.unsupported("a scan output of no iterations", supported="at least one iteration")
    place = node.wrap(axis, parts[0].ndim + 1)
    return Tensor.stack(parts[::-1] if reverse else parts, place)


# Sequences are Python lists of tensors; optionals are the value itself, or None.


@operator("SequenceConstruct")
def sequence_construct(node: Node, *parts: Tensor) -> list[Any]:
    return [list(parts)]


@operator("SequenceEmpty")
def sequence_empty(node: Node) -> list[Any]:
    return [[]]


@operator("SequenceInsert", limits="a constant position")
def sequence_insert(
    node: Node, sequence: list[Any], value: Tensor, position: Tensor | None = None
) -> list[Any]:
    result = list(sequence)
    at = len(result) if position is None else node.integers(position, "position")[0]
    if not -len(result) <= at <= len(result):
        raise node.invalid(f"position {at} of a sequence of {len(result)}")
    result.insert(at if at >= 0 else at + len(result), value)
    return [result]


@operator("SequenceErase", limits="a constant position")
def sequence_erase(node: Node, sequence: list[Any], position: Tensor | None = None) -> list[Any]:
    result = list(sequence)
    at = -1 if position is None else node.integers(position, "position")[0]
    del result[node.wrap(at, len(result))]
    return [result]


@operator("SequenceAt", limits="a constant position")
def sequence_at(node: Node, sequence: list[Any], position: Tensor) -> Any:
    return sequence[node.wrap(node.integers(position, "position")[0], len(sequence))]


@operator("SequenceLength")
def sequence_length(node: Node, sequence: list[Any]) -> Tensor:
    return node.constant(np.array(len(sequence), np.int64))


@operator("SplitToSequence", limits="an axis of fixed size, constant parts")
def split_to_sequence(node: Node, x: Tensor, sizes: Tensor | None = None) -> list[Any]:
    axis = node.axis(0, x.ndim)
    length = x.shape[axis]
    if not isinstance(length, int):
        raise node.unsupported("a symbolic axis", supported="fixed sizes")
    node.spend(length)
    keep = True
    if sizes is None:
        counts = [1] * length
        keep = bool(node.integer("keepdims", 1))
    elif sizes.ndim == 0:
        (size,) = node.integers(sizes, "split")
        if size < 1:
            raise node.invalid(f"split is {size}")
        counts = [min(size, length - start) for start in range(0, length, size)]
    else:
        counts = node.integers(sizes, "split")
        if sum(counts) != length or min(counts, default=0) < 0:
            raise node.invalid(f"an axis of {show(length)} cannot be split into {counts}")
    parts, start = [], 0
    for count in counts:
        part = cut(x, axis, start, start + count)
        parts.append(part if keep else part.squeeze(axis))
        start += count
    return [parts]


@operator("ConcatFromSequence", limits="a sequence that is not empty")
def concat_from_sequence(node: Node, sequence: list[Any]) -> Tensor:
    if not sequence:
        raise node.unsupported("an empty sequence")
    new = bool(node.integer("new_axis", 0))
    axis = node.wrap(node.integer("axis", 0), sequence[0].ndim + new)
    return Tensor.stack(sequence, axis) if new else Tensor.concat(sequence, axis)


@operator("Optional")
def optional(node: Node, value: Any = None) -> list[Any]:
    return [value]


@operator("OptionalGetElement")
def optional_get_element(node: Node, value: Any) -> list[Any]:
    return [value]


@operator("OptionalHasElement")
def optional_has_element(node: Node, value: Any = None) -> Tensor:
    return Tensor.full((), value is not None, dt.bool_)
