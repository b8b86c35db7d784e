"""Matrices that the threads of a subgroup hold together: c + a @ b of 16 x 16 elements each.

The meaning is that of CUDA's warp matrix functions (CUDA C++ Programming Guide, "Warp Matrix
Functions"; PTX ISA, `wmma.load`, `wmma.mma.sync.aligned.m16n16k16.f32.f32`, `wmma.store`): 32
threads hold 8 elements each; a and b are float16, products and sums float32, added up in any
order. All threads of a subgroup take part, and give the same place and stride.

A fragment's type is that of its elements, with its role ("a", "b" or "c"). Which thread holds which
element is not said: values are combined elementwise with fragments of the same type, or filled with
one number (VECTOR of a scalar), and nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import bounds, divisor
from tinyedge.core.ir.uop import UOp

Array = Any

SIDE = 16  # rows and columns of a fragment
SUBGROUP = 32  # threads that hold one
LANES = SIDE * SIDE // SUBGROUP  # elements that each of them holds
# of which the first element's address and a stride are multiples
PLACE_BYTES, STRIDE_BYTES = 32, 16

ELEMENTS = {"a": dt.float16, "b": dt.float16, "c": dt.float32}
OPS = (ops.FRAGMENT_LOAD, ops.FRAGMENT_MULTIPLY, ops.FRAGMENT_STORE)


def fragment(role: str) -> DType:
    """The type of a fragment. Raises KeyError for another role than a, b and c."""
    return ELEMENTS[role].fragment(role, LANES)


def memory(node: UOp) -> tuple[UOp, UOp, UOp] | None:
    """The buffer, the first element's place and the stride of what loads or stores a fragment."""
    if node.op is ops.FRAGMENT_LOAD:
        buffer, place, stride = node.src
    elif node.op is ops.FRAGMENT_STORE:
        buffer, _, place, stride = node.src
    else:
        return None
    return buffer, place, stride


# The grammar.


def fault(node: UOp) -> str:
    """What is wrong with a node that makes or takes fragments; "" if nothing is."""
    if node.op is ops.FRAGMENT_MULTIPLY:
        wanted = tuple(map(fragment, "abc"))
        right = tuple(s.dtype for s in node.src) == wanted and node.dtype is wanted[2]
        return "" if right else "a product of fragments is of a and b, added to c"
    found = memory(node)
    if found is not None:
        held = node.dtype if node.op is ops.FRAGMENT_LOAD else node.src[1].dtype
        return _fault_of_memory(held, *found, written=node.op is ops.FRAGMENT_STORE)
    return "" if _elementwise(node) else "the elements of a fragment belong to no thread"


def _fault_of_memory(held: DType, buffer: UOp, place: UOp, stride: UOp, *, written: bool) -> str:
    if not held.role or (written and held.role != "c"):
        return "fragments a, b and c are loaded, c is stored"
    if buffer.op not in (ops.PARAM, ops.SHARED) or buffer.dtype is not held.scalar:
        return f"a fragment of {held.scalar} in memory of {buffer.dtype}"
    if buffer.op is ops.PARAM and (buffer.arg.is_image or (written and not buffer.arg.written)):
        return "a fragment lies in a buffer, and is stored to one that is written"
    if place.dtype is not dt.index or stride.dtype is not dt.index:
        return "a fragment's place and stride are indices"
    size = held.itemsize
    if divisor(place) % (PLACE_BYTES // size) or divisor(stride) % (STRIDE_BYTES // size):
        return "a fragment's place or stride is not aligned"
    if bounds(stride)[0] < SIDE:
        return "the rows of a fragment overlap"
    return ""


def _elementwise(node: UOp) -> bool:
    """Whether fragments keep their type, or a node has none."""
    if not node.dtype.role and not any(s.dtype.role for s in node.src):
        return True
    if node.op is ops.VECTOR:
        return len(node.src) == 1 and not node.src[0].dtype.role
    kept = node.op.group in ("unary", "binary", "ternary")
    kept = kept or node.op in (ops.SET, ops.ACCUMULATOR, ops.REDUCE_LOOP)
    return kept and all(s.dtype is node.dtype for s in node.src if s.op is not ops.RANGE)


# The meaning.


def elements(threads: Array, place: Array, stride: Array, *, transposed: bool) -> Array:
    """Where the elements that each thread holds lie in memory: [threads, LANES].

    Here thread t of a subgroup holds the elements t * LANES + (0 .. LANES - 1), row by row.
    """
    number = (threads % SUBGROUP)[:, None] * LANES + np.arange(LANES)
    row, column = number // SIDE, number % SIDE
    if transposed:
        row, column = column, row
    shape = threads.shape
    first, step = np.broadcast_to(place, shape)[:, None], np.broadcast_to(stride, shape)[:, None]
    return first + row * step + column


def agree(threads: Array, value: Array) -> bool:
    """Whether all threads of each subgroup have one value."""
    each = np.broadcast_to(value, threads.shape).reshape(-1, SUBGROUP)
    return bool((each == each[:, :1]).all())


def multiply(a: Array, b: Array, c: Array) -> Array:
    """c + a @ b, of fragments [threads, LANES]."""
    a, b, c = (matrix.reshape(-1, SIDE, SIDE).astype(np.float32) for matrix in (a, b, c))
    return (c + a @ b).reshape(-1, LANES)
