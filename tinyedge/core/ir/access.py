"""The memory accesses of a kernel: how a LOAD's and a STORE's operands are told apart.

    LOAD   param, indices.., guard?         the element there, or 0 where the guard is false
    STORE  param, value, indices.., guard?  nothing happens where the guard is false

The indices are one for each axis of what is accessed, or one linear address, or an image's x and y.
An access's arg says whether it has a guard, a condition.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import UOp

ACCESSES = (ops.LOAD, ops.STORE)


def load(
    param: UOp, indices: Sequence[UOp], guard: UOp = ix.TRUE, dtype: DType | None = None
) -> UOp:
    """The element at the indices. dtype: what is read at once, a vector of the argument's type."""
    return UOp(ops.LOAD, dtype or param.dtype, *_guarded((param, *indices), guard))


def store(param: UOp, value: UOp, indices: Sequence[UOp], guard: UOp = ix.TRUE) -> UOp:
    """A value written at the indices."""
    return UOp(ops.STORE, dt.index, *_guarded((param, value, *indices), guard))


def _guarded(src: tuple[UOp, ...], guard: UOp) -> tuple[tuple[UOp, ...], bool]:
    return (src, False) if guard is ix.TRUE else ((*src, guard), True)


def indices_of(access: UOp) -> tuple[UOp, ...]:
    """Where it is; a linear address is the only one of them."""
    return access.src[_first(access) : len(access.src) - access.arg]


def guard_of(access: UOp) -> UOp:
    """Under which condition it is done."""
    return access.src[-1] if access.arg else ix.TRUE


def memory_of(access: UOp) -> UOp:
    """What it loads from or stores to: a parameter, a workgroup's memory, a stage."""
    memory = access.src[0]
    return memory.src[0] if memory.op is ops.FILLED else memory


def is_image(access: UOp) -> bool:
    """Whether it loads from or stores to an image."""
    return access.src[0].op is ops.PARAM and bool(access.src[0].arg.is_image)


def at(access: UOp, indices: Sequence[UOp]) -> UOp:
    """The same access at other indices."""
    first = _first(access)
    end = len(access.src) - access.arg
    return access.replace((*access.src[:first], *indices, *access.src[end:]))


def under(guard: UOp, access: UOp) -> UOp:
    """The same access under this condition in place of its own."""
    src = _guarded(access.src[: len(access.src) - access.arg], guard)
    return UOp(access.op, access.dtype, *src)


def also_under(condition: UOp, access: UOp) -> UOp:
    """The same access under a condition besides its own."""
    return under(ix.and_(condition, guard_of(access)), access)


def in_order(node: UOp) -> tuple[UOp, ...]:
    """A node's operands in the order in which they are needed: a store's guard before its value."""
    if node.op is ops.STORE and node.arg:
        return (node.src[-1], *node.src[:-1])
    return node.src


def _first(access: UOp) -> int:
    return 1 if access.op is ops.LOAD else 2
