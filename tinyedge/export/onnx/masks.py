"""Counts of true elements: one name for a count, however a model computes it.

How many elements of a mask are true is what NonZero and Compress find, and what the sum of the mask
is, as numbers of any type that holds it, in any order and in steps. Exporters compute a size in one
of these ways and another size, which must be equal, in another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Size, UOp, toposort

_SAME_ORDER = (ops.RESHAPE, ops.PERMUTE, ops.REALIZE)  # where elements lie along one axis
_SAME_ELEMENTS = (*_SAME_ORDER, ops.FLIP)
_EXACT = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53}


@dataclass(frozen=True)
class Mask:
    """Bools of which only the number of true ones matters."""

    node: UOp  # what they are a view of, or the numbers that are not 0 where they are true
    inverted: bool  # they are true where it is false, or 0
    size: Size

    @property
    def complement(self) -> Mask:
        return Mask(self.node, not self.inverted, self.size)


def mask_of(node: UOp) -> Mask:
    """The mask that a bool tensor is."""
    size, inverted = product(node.shape), False
    while True:
        node = _elements(node)
        if node.op is ops.NOT:
            node, inverted = node.src[0], not inverted
            continue
        told = _told(node)
        if told is None:
            return Mask(node, inverted, size)
        source, turned = told
        if source.dtype is not dt.bool_:
            return Mask(source, inverted ^ turned, size)
        node, inverted = source, inverted ^ turned


def dynamic_mask(node: UOp) -> Mask | None:
    """The mask of which a tensor of one element is the sum: the number of its true elements."""
    if maximum(product(node.shape)) != 1 or not (node.dtype.is_int or node.dtype.is_float):
        return None
    least, kept = math.inf, math.inf  # what every type counts up to; those since the last sum too
    squared = False
    while True:
        node = _elements(node)
        kept = min(kept, _most(node.dtype))
        if node.op is ops.CAST:
            if node.src[0].dtype is dt.bool_:
                break
            node = node.src[0]
        elif node.op is ops.WHERE and [_constant(part) for part in node.src[1:]] == [1, 0]:
            break
        elif node.op is ops.REDUCE and node.arg.op is ops.ADD and not squared:
            node, least = node.src[0], kept
        elif node.op in (ops.PAD, ops.ABS):  # by zeros; of what is 0 or 1
            node = node.src[0]
        elif node.op is ops.MUL and (factor := _squared(node)) is not None:
            node, squared = factor, True  # of 0 and 1: not of a sum
        else:
            return None
    mask = mask_of(node.src[0])
    return mask if maximum(mask.size) <= least < math.inf else None


def sums_of_masks(root: UOp) -> dict[UOp, Mask]:
    """The nodes below a root, the nearest to it, that are sums of masks."""
    found: dict[UOp, Mask] = {}

    def known(node: UOp) -> bool:
        mask = dynamic_mask(node) if node not in found else None
        if mask is not None:
            found[node] = mask
        return node in found

    toposort((root,), stop=known)
    return found


def _squared(node: UOp) -> UOp | None:
    """What a product multiplies by itself, element by element: also a row by itself as a column."""
    if node.src[0] is node.src[1]:
        return node.src[0]
    left, right = (_elements(source, _SAME_ORDER) for source in node.src)
    return left if left is right and _vector(left) and _vector(node) else None


def _vector(node: UOp) -> bool:
    """Whether all elements lie along one axis."""
    return sum(size != 1 for size in node.shape) <= 1


def _most(dtype: DType) -> float:
    """How far a type counts without rounding and wrapping."""
    return dtype.limits[1] if dtype.is_int else _EXACT.get(dtype.name, 0)


def _elements(node: UOp, views: tuple[ops.Primitive, ...] = _SAME_ELEMENTS) -> UOp:
    """The tensor below views that have all its elements, each once."""
    while node.op in views:
        node = node.src[0]
    return node


def _told(node: UOp) -> tuple[UOp, bool] | None:
    """For a comparison of a tensor with 0 that says whether it is 0: the tensor without views and
    casts of bools; and whether the comparison is true where the tensor is false, or 0.
    """
    if node.op is ops.EQ:
        for value, other in (node.src, node.src[::-1]):
            if _constant(other) == 0:
                return _number(value), True
    if node.op is ops.LT and _constant(node.src[0]) == 0:
        value = _number(node.src[1])
        return (value, False) if value.dtype is dt.bool_ else None
    return None


def _number(node: UOp) -> UOp:
    """A tensor without its views, and without casts where they keep what is 0."""
    while True:
        node = _elements(node)
        if node.op is not ops.CAST or not (node.src[0].dtype is dt.bool_ or _widened(node)):
            return node
        node = node.src[0]


def _widened(node: UOp) -> bool:
    """Whether a cast keeps what is 0, and what is not: of integers, to numbers that hold them."""
    old, new = node.src[0].dtype, node.dtype
    if new.storage_type:
        return False
    return old.is_int and (new.is_float or (new.is_int and new.bits >= old.bits))


def _constant(node: UOp) -> object:
    while node.op in (ops.EXPAND, ops.RESHAPE, ops.CAST) and not node.dtype.storage_type:
        node = node.src[0]
    return node.arg if node.op is ops.CONST else None
