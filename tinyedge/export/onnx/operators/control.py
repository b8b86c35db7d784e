"""Control flow, decided or unrolled at import; sequences and optionals, which exist only there."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.context import Call
from tinyedge.export.onnx.equality import show
from tinyedge.export.onnx.operators.movement import cut
from tinyedge.export.onnx.registry import REFUSED, Node, operator

Steps = Generator[Call, list[Any], Any]


@operator(
    "If",
    limits="a computed condition: branches whose results have one shape and type; of what each "
    "counts for itself they have two",
)
def if_(node: Node, condition: Tensor) -> Steps:
    """The branch of a known condition; else both branches, and a choice between their results."""
    known = node.known(condition)
    if known is not None:
        if known.size != 1:
            raise node.invalid(f"its condition has {known.size} elements")
        name = "then_branch" if bool(known.reshape(-1)[0]) else "else_branch"
        return (yield node.call(node.graph(name), {}, name))
    yes = yield node.call(node.graph("then_branch"), {}, "then_branch", conditional=True)
    no = yield node.call(node.graph("else_branch"), {}, "else_branch", conditional=True)
    if REFUSED in yes or REFUSED in no:
        return [REFUSED] * len(node.outputs)
    return [_chosen(node, condition.reshape(()), a, b) for a, b in zip(yes, no, strict=True)]


def _chosen(node: Node, condition: Tensor, a: Any, b: Any) -> Any:
    """a where a condition of the run is true, else b: tensors, or sequences of as many."""
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [_chosen(node, condition, x, y) for x, y in zip(a, b, strict=True)]
    same = isinstance(a, Tensor) and isinstance(b, Tensor)
    if not same or a.shape != b.shape or a.dtype is not b.dtype:
        counted = same and a.dtype is b.dtype and a.ndim == b.ndim
        raise node.unsupported(
            f"its condition is computed at run time, its branches give {show(a)}, {show(b)}",
            supported="branches whose results have one shape and type",
            next="fix what the condition depends on: --constant INPUT=NUMBER"
            + (", or give both results one size in the model" if counted else ""),
        )
    return condition.where(a, b)


@operator(
    "Loop",
    limits="a computed number of iterations: below a bound; what is carried keeps its shape, "
    "nothing is counted in an iteration",
)
def loop(
    node: Node, trips: Tensor | None = None, condition: Tensor | None = None, *carried: Any
) -> Steps:
    """Unrolled where the number of iterations is known at import; else a loop of steps.

    Without a condition, the one that iterations compute is ignored.
    """
    body = node.graph("body")
    names = [value.name for value in body.input]
    if len(names) != 2 + len(carried):
        raise node.invalid(f"its body has {len(names)} inputs for {len(carried)} carried values")
    if trips is None and condition is None:
        raise node.unsupported("it has neither a trip count nor a condition")
    watched = condition is not None
    if node.unknown(trips) or node.unknown(condition):
        return (yield from _repeated(node, body, names, trips, condition, watched, carried))
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
        condition = results[0] if watched else None
        if node.unknown(condition):
            return (yield from _repeated(node, body, names, trips, None, watched, carried))
        state = results[1 : 1 + len(state)]
        for parts, value in zip(scanned, results[1 + len(state) :], strict=True):
            parts.append(value)
        number += 1
    if scanned and not number:  # an iteration that is not taken says what it would collect
        values = [node.constant(np.array(0)), node.constant(np.array(True)), *state]
        results = yield node.call(body, dict(zip(names, values, strict=True)), number)
        if REFUSED in results:
            return [REFUSED] * len(node.outputs)
        made = results[1 + len(state) :]
        return [*state, *(Tensor.full((0, *v.shape), 0, v.dtype) for v in made)]
    return [*state, *(Tensor.stack(parts) for parts in scanned)]


def _repeated(
    node: Node,
    body: Any,
    names: list[str],
    trips: Tensor | None,
    condition: Tensor | None,
    watched: bool,
    carried: tuple[Any, ...],
) -> Steps:
    """A loop of which only the run knows the number of iterations, below a bound.

    condition: before the first iteration; None where it is true. watched: whether those count that
    iterations compute.
    """
    if not all(isinstance(value, Tensor) for value in carried):
        raise node.unsupported(
            "only the run knows how many iterations it takes, and it carries a sequence",
            supported="sequences in loops whose number of iterations is constant",
            next="make the number of iterations constant, or collect what iterations make by a "
            "scan output",
        )
    limit = None if trips is None or node.unknown_sizes(trips) else node.sizes(trips, "M")[0]
    bound = node.bound(None if limit is None else maximum(limit))
    if bound == 0 and len(body.output) == 1 + len(carried):
        return list(carried)
    fixed = trips is None or isinstance(limit, int)
    count = None if trips is None or fixed else trips.reshape(()).cast(dt.int64)
    going = Tensor(True, dt.bool_) if condition is None else condition.reshape(())
    if count is not None:
        going = going & (count > 0)
    first = [going, Tensor(0, dt.int64), *carried]
    inside = Tensor.carried(first)
    values = [inside[1], node.constant(np.array(True)), *inside[2:]]
    inputs = dict(zip(names, values, strict=True))
    results = yield node.call(body, inputs, "turn", dynamic=True)
    if REFUSED in results:
        return [REFUSED] * len(node.outputs)
    number = inside[1] + 1
    more = results[0].reshape(()) if watched else Tensor(True, dt.bool_)
    if count is not None:
        more = more & (number < count)
    for old, new in zip(carried, results[1:], strict=False):
        fits = isinstance(old, Tensor) and isinstance(new, Tensor)
        if not fits or old.shape != new.shape or old.dtype is not new.dtype:
            raise node.unsupported(
                f"an iteration makes {show(new)} of {show(old)}",
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
    certain = bound == maximum(limit or 0) and _hold(
        node, condition, results[0] if watched else None
    )
    iterations = limit if limit is not None and certain else node.dynamic_size(last[1], bound)
    rows = [cut(tensor, 0, 0, iterations) for tensor in last[2 + len(carried) :]]
    return [*last[2 : 2 + len(carried)], *rows]


def _hold(node: Node, *conditions: Tensor | None) -> bool:
    """Whether all conditions that are given are known to be true."""
    known = [node.known(condition) for condition in conditions if condition is not None]
    return all(value is not None and bool(value.all()) for value in known)


@operator("Scan", since=9, limits="scanned axes of equal sizes")
def scan(node: Node, *values: Tensor) -> Steps:
    body = node.graph("body")
    count, outputs = _scanned(node, body, len(values))
    states = len(values) - count
    axes = node.integer_list("scan_input_axes") or [0] * count
    reverse = node.integer_list("scan_input_directions") or [0] * count
    scanned = values[states:]
    rows = [_moved(t, node.wrap(a, t.ndim), 0) for t, a in zip(scanned, axes, strict=True)]
    rows = [t.flip((0,)) if back else t for t, back in zip(rows, reverse, strict=True)]
    back = node.integer_list("scan_output_directions") or [0] * outputs
    last = yield from _scan(node, body, values[:states], rows, back)
    if REFUSED in last:
        return last
    axes = node.integer_list("scan_output_axes") or [0] * outputs
    made = last[states:]
    moved = [_moved(t, 0, node.wrap(a, t.ndim)) for t, a in zip(made, axes, strict=True)]
    return [*last[:states], *moved]


@operator("Scan", limits="scanned axes of fixed, equal sizes; constant sequence_lens")
def scan_of_batches(node: Node, lengths: Tensor | None, *values: Tensor) -> Steps:
    """Every element of the batch is scanned by itself, along axis 1."""
    body = node.graph("body")
    count, outputs = _scanned(node, body, len(values))
    states = len(values) - count
    reverse = node.integer_list("directions") or [0] * count
    batch, length = values[-1].shape[:2]
    if not isinstance(batch, int) or not isinstance(length, int):
        raise node.unsupported(
            f"it scans {show(length)} elements of a batch of {show(batch)}",
            supported="fixed sizes",
            next=node.remedy(batch, length),
        )
    if any(t.shape[0] != batch for t in values) or (lengths is not None and lengths.size != batch):
        raise node.invalid("its operands have batches of several sizes")
    iterations = [length] * batch if lengths is None else node.integers(lengths, "sequence_lens")
    results = []
    for number, taken in enumerate(iterations):
        if not 0 <= taken <= length:
            raise node.invalid(f"sequence_lens is {iterations} for an axis of {length}")
        parts = [t[number] for t in values]
        rows = [cut(t, 0, 0, taken) for t in parts[states:]]
        rows = [t.flip((0,)) if back else t for t, back in zip(rows, reverse, strict=True)]
        last = yield from _scan(node, body, parts[:states], rows, [0] * outputs)
        if REFUSED in last:
            return last
        tail = [t.pad([(0, length - taken), *((0, 0),) * (t.ndim - 1)]) for t in last[states:]]
        results.append([*last[:states], *tail])
    return [Tensor.stack(parts) for parts in zip(*results, strict=True)]


def _scanned(node: Node, body: Any, given: int) -> tuple[int, int]:
    """How many operands are scanned, and how many results are collected."""
    count = node.integer("num_scan_inputs", 0)
    outputs = len(body.output) - (given - count)
    if not 1 <= count <= given or len(body.input) != given or outputs < 0:
        raise node.invalid(f"{count} of its {given} inputs are scanned")
    return count, outputs


def _scan(
    node: Node, body: Any, state: Sequence[Tensor], rows: Sequence[Tensor], back: Sequence[int]
) -> Steps:
    """A loop over the first axis of `rows`: the last states, then what was collected on axis 0.

    back: of what is collected, whether the last comes first.
    """
    states = len(state)
    length, *others = dict.fromkeys(t.shape[0] for t in rows)
    if others and isinstance(length, int) and isinstance(others[0], int):
        raise node.unsupported("it scans axes of different sizes", supported="one size")
    if others:
        raise node.unequal(length, others[0], what="the scanned axes")
    end = Tensor.from_size(length)
    first = [Tensor(0, dt.int64), *state]
    carried = Tensor.carried(first)
    elements = [t.gather(0, carried[0]) for t in rows]
    names = [value.name for value in body.input]
    inputs = dict(zip(names, [*carried[1:], *elements], strict=True))
    results = yield node.call(body, inputs, "turn", dynamic=not isinstance(length, int))
    if REFUSED in results:
        return [REFUSED] * len(node.outputs)
    for old, new in zip(state, results, strict=False):
        if old.shape != new.shape or old.dtype is not new.dtype:
            raise node.invalid(f"an iteration makes {show(new)} of the state {show(old)}")
    made = [Tensor.full((length, *v.shape), 0, v.dtype) for v in results[states:]]
    kept = Tensor.carried(made, len(first))
    nexts = [carried[0] + 1, *results[:states]]
    for tensor, value, last in zip(kept, results[states:], back, strict=True):
        nexts.append(tensor.put(end - 1 - carried[0] if last else carried[0], value))
    return Tensor.repeated([*first, *made], [*carried, *kept], nexts, trips=length)[1:]


def _moved(tensor: Tensor, source: int, target: int) -> Tensor:
    """One axis moved to another place."""
    axes = [axis for axis in range(tensor.ndim) if axis != source]
    axes.insert(target, source)
    return tensor.permute(axes)


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
        raise node.unsupported(
            f"an axis of {show(length)} elements",
            supported="a fixed number",
            next=node.remedy(length),
        )
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
