"""A function's graph, from one call of it; and whether another call of it gives the same."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.errors import TraceError
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.rewrite import replaced
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.eager import tracing
from tinyedge.eager.call import Call
from tinyedge.eager.describe import Description, difference, replaced_in
from tinyedge.eager.held import array_of, held_by
from tinyedge.eager.realize import argument, leaves_of


@dataclass(frozen=True)
class Traced:
    """What a function made of arguments.

    result: what it gave, a tree with tensors. outputs: these, each once, and nodes: what each is of
    the arguments: those that were given, then those that it captured, then `extras`, tensors that
    it got at from elsewhere. key: of the result but for its tensors' values. lines: where nodes
    were made.
    """

    result: Any
    outputs: tuple[Any, ...]
    nodes: tuple[UOp, ...]
    key: Hashable
    arguments: tuple[UOp, ...]
    extras: tuple[UOp, ...]
    lines: Mapping[UOp, str]


def trace(call: Call) -> Traced:
    """Call a function with tensors that stand for its arguments.

    Raises TraceError where it asks for values, or changes what it reads.
    """
    given = call.seen.given
    shapes = [call.open.shapes.get(id(value), value.shape) for value in given]
    types = [_type(value) for value in given]
    places = [argument(n, shape, t) for n, (shape, t) in enumerate(zip(shapes, types, strict=True))]
    standing = {id(v): Tensor(place) for v, place in zip(given, places, strict=True)}
    arguments = replaced_in(call.arguments, lambda value: standing[id(value)], {})
    captured = dict.fromkeys(tensor.node for tensor in call.seen.captured)
    before = Description()
    key = before.key(arguments)
    lines: dict[UOp, str] = {}
    with tracing.trace(frozenset(captured), lines):
        result = call.function.invoke(arguments)
    _check_pure(call, arguments, key, before.given)
    out = Description()
    result_key = out.key(result)
    _check_result(call, out)
    outputs = tuple(out.given)
    roots = [value.node if isinstance(value, Tensor) else _constant(value) for value in outputs]
    leaves = [node for node in leaves_of(toposort(roots)) if node not in places]
    extras = tuple(n for n in leaves if n not in captured and held_by(n) is not None)
    first = len(places)
    numbered = {
        node: argument(number, node.shape, node.dtype)
        for number, node in enumerate([*captured, *extras], first)
    }
    constants = {node: _constant(array_of(node), node) for node in leaves if node not in numbered}
    done = replaced(roots, {**numbered, **constants})
    return Traced(
        result,
        outputs,
        tuple(done[root] for root in roots),
        result_key,
        (*places, *numbered.values()),
        extras,
        {done[node]: line for node, line in lines.items() if node in done},
    )


def _type(value: Any) -> dt.DType:
    return value.dtype if isinstance(value, Tensor) else dt.from_numpy(value.dtype)


def _constant(array: Any, node: UOp | None = None) -> UOp:
    """The leaf of an array: the same for the same elements."""
    dtype = dt.from_numpy(array.dtype) if node is None else node.dtype
    content = np.asarray(dt.codes(array), order="C")
    return _interned(content.tobytes(), content.dtype.str, content.shape, dtype)


@lru_cache(maxsize=256)
def _interned(content: bytes, numpy: str, shape: tuple[int, ...], dtype: dt.DType) -> UOp:
    name = f"constant {hashlib.blake2b(content, digest_size=12).hexdigest()}"
    array = np.frombuffer(content, numpy).reshape(shape)
    return UOp(ops.BUFFER, dtype, (), args.Buffer(ops.TensorSource("weight", name, array), shape))


def _check_pure(call: Call, arguments: Any, key: Hashable, tensors: Sequence[Any]) -> None:
    """Raise TraceError for a function that changed its arguments or what it reads."""
    after = Description()
    found = after.key(arguments)
    if found != key or not _same(after.given, tensors):
        raise _impure(call, f"it changes an argument{_at(key, found)}")
    reads = Description(call.open.shapes)
    reads.key(call.arguments)
    found = reads.key_of_function(call.function.function)
    if found != call.reads or not _same(reads.captured, call.seen.captured):
        raise _impure(call, f"it changes what it reads{_at(call.reads, found)}")


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _at(one: Hashable, other: Hashable) -> str:
    name = difference(one, other)
    return f": {name!r}" if name else ""


def _impure(call: Call, because: str) -> TraceError:
    return TraceError(
        f"{call.function.name}, called at {tracing.line()}",
        f"{because}; a compiled function is not called again, so this would happen once",
        id="jit.pure",
        next="return the new value, and give it to the next call",
    )


def _check_result(call: Call, out: Description) -> None:
    for tensor in out.captured:
        if any(n.arg.source.kind == "input" for n in leaves_of(toposort((tensor.node,)))):
            raise TraceError(
                f"{call.function.name}, called at {tracing.line()}",
                "it returns a function that holds tensors of this call",
                id="jit.result",
                next="return the tensors",
            )


def check_equal(call: Call, first: Traced, again: Traced) -> None:
    """Raise TraceError where a later call of the function gives another graph or result."""
    if again.key != first.key or len(again.nodes) != len(first.nodes):
        raise _differs(call, "its result has another structure", "")
    if again.extras != first.extras:
        raise _differs(call, "it reads another tensor, from where its key does not see it", "")
    if [n.digest for n in again.nodes] == [n.digest for n in first.nodes]:
        return
    known = {node.digest for node in toposort(first.nodes)}
    order = toposort(again.nodes)
    new = next((node for node in order if node.digest not in known), again.nodes[0])
    line = _line(new, order, again.lines)
    raise _differs(call, f"it now has {_shown(new)}, which the first call had not", line)


def _line(node: UOp, order: Sequence[UOp], lines: Mapping[UOp, str]) -> str:
    """Where a node was made, or else the first one that was made of it."""
    below = {node}
    for each in order:
        if each in below or below.intersection(each.src):
            if each in lines:
                return lines[each]
            below.add(each)
    return ""


def _shown(node: UOp) -> str:
    if node.op is ops.CONST:
        return f"the constant {node.arg}"
    if node.op is ops.BUFFER:
        return f"a constant array of {node.dtype} {list(node.shape)}"
    return f"{node.op.name} of {node.dtype} {list(node.shape)}"


def _differs(call: Call, because: str, line: str) -> TraceError:
    where = f" at {line}" if line else ""
    return TraceError(
        f"{call.function.name}{where}",
        f"traced again for equal arguments, it gives something else: {because}",
        id="jit.differs",
        next="give what changes (random numbers, counters, time) as an argument",
    )
