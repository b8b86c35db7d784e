"""Functions of several vectors as one of a longer vector.

    a = exp(x); b = exp(y)   ->   w = exp((x, y)); a = w.lo; b = w.hi

A function of a language, such as the exponential, is a call for which a processor may take as long
whether it has 4 lanes or 16, and no compiler puts calls together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.lower.vectors import extract
from tinyedge.core.ir import ops
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.uop import UOp, toposort

FUNCTIONS = (ops.EXP, ops.LOG, ops.TANH)


def widen_functions(sink: UOp, caps: Caps) -> UOp:
    """An expanded kernel whose functions that are computed in the same loops are together, as many
    as `caps.function_lanes` says.
    """
    while (found := next(_together(sink, caps), None)) is not None:
        sink = substitute((sink,), _as_one(found))[0]
    return sink


def _together(sink: UOp, caps: Caps) -> Iterator[Sequence[UOp]]:
    """Two, four or more calls of the same function, of which none needs another one."""
    most = caps.function_lanes // caps.vector
    if most < 2:
        return
    groups: dict[object, list[UOp]] = {}
    for node in toposort((sink,)):
        if node.op in FUNCTIONS and node.dtype is dt.float32.vector(caps.vector):
            groups.setdefault((node.op, node.ranges), []).append(node)
    for group in groups.values():
        count = most
        while count > 1:
            for first in range(0, len(group) - count + 1, count):
                calls = group[first : first + count]
                if _are_apart(calls):
                    yield calls
            count //= 2


def _are_apart(calls: Iterable[UOp]) -> bool:
    below = toposort(tuple(source for call in calls for source in call.src))
    return set(below).isdisjoint(calls)


def _as_one(calls: Sequence[UOp]) -> dict[UOp, UOp]:
    """What each call becomes."""
    width = calls[0].dtype.lanes
    scalar = calls[0].dtype.scalar
    lanes = tuple(extract(call.src[0], i) for call in calls for i in range(width))
    wide = UOp(ops.VECTOR, scalar.vector(len(lanes)), lanes)
    result = UOp(calls[0].op, wide.dtype, (wide,))
    parts = {}
    for number, call in enumerate(calls):
        own = tuple(extract(result, number * width + i) for i in range(width))
        parts[call] = UOp(ops.VECTOR, call.dtype, own)
    return parts
