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


@operator("If")
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


@operator("Loop")
def loop(
    node: Node, trips: Tensor | None = None, condition: Tensor | None = None, *carried: Any
) -> Steps:
    """Unrolled: the trip count, or every condition, must be known at import."""
    body = node.graph("body")
    names = [value.name for value in body.input]
    if len(names) != 2 + len(carried):
        raise node.invalid(f"its body has {len(names)} inputs for {len(carried)} carried values")
    limit = None if trips is None else int(node.constant_input(trips, "M").reshape(-1)[0])
    if limit is None and condition is None:
        raise node.unsupported("it has neither a trip count nor a condition")
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
            raise node.unsupported("its condition is computed at run time")
        state = results[1 : 1 + len(state)]
        for parts, value in zip(scanned, results[1 + len(state) :], strict=True):
            parts.append(value)
        number += 1
    return [*state, *(_stacked(node, parts, 0, False) for parts in scanned)]


@operator("Scan", since=9)
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
    names = [value.name for value in body.input]
    made: list[list[Any]] = [[] for _ in range(outputs)]
    for number in range(length):
        elements = []
        for tensor, axis, back in zip(scanned, places, reverse, strict=True):
            at = length - 1 - number if back else number
            elements.append(cut(tensor, axis, at, at + 1).squeeze(axis))
        inputs = dict(zip(names, [*state, *elements], strict=True))
        results = yield node.call(body, inputs, number)
        if REFUSED in results:
            return [REFUSED] * len(node.outputs)
        state = results[:states]
        for parts, value in zip(made, results[states:], strict=True):
            parts.append(value)
    out_axes = node.integer_list("scan_output_axes") or [0] * outputs
    back_out = node.integer_list("scan_output_directions") or [0] * outputs
    stacked = [
        _stacked(node, parts, axis, bool(back))
        for parts, axis, back in zip(made, out_axes, back_out, strict=True)
    ]
    return [*state, *stacked]


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


@operator("SequenceInsert")
def sequence_insert(
    node: Node, sequence: list[Any], value: Tensor, position: Tensor | None = None
) -> list[Any]:
    result = list(sequence)
    at = len(result) if position is None else node.integers(position, "position")[0]
    if not -len(result) <= at <= len(result):
        raise node.invalid(f"position {at} of a sequence of {len(result)}")
    result.insert(at if at >= 0 else at + len(result), value)
    return [result]


@operator("SequenceErase")
def sequence_erase(node: Node, sequence: list[Any], position: Tensor | None = None) -> list[Any]:
    result = list(sequence)
    at = -1 if position is None else node.integers(position, "position")[0]
    del result[node.wrap(at, len(result))]
    return [result]


@operator("SequenceAt")
def sequence_at(node: Node, sequence: list[Any], position: Tensor) -> Any:
    return sequence[node.wrap(node.integers(position, "position")[0], len(sequence))]


@operator("SequenceLength")
def sequence_length(node: Node, sequence: list[Any]) -> Tensor:
    return node.constant(np.array(len(sequence), np.int64))


@operator("SplitToSequence")
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


@operator("ConcatFromSequence")
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
