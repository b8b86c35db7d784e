"""Sums of products of data and weights in a tensor graph, and along which axes they take which."""

from __future__ import annotations

from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import UOp


def has_sides_of(node: UOp, other: UOp) -> bool:
    """Whether two sums of products with weights have the same shape, and along the same axes the
    weights: the outputs of both are computed in the same tiles.
    """
    sides = weight_axes(node)
    return node.shape == other.shape and bool(sides) and sides == weight_axes(other)


def weight_axes(node: UOp) -> frozenset[int]:
    """The axes of what a sum is of along which its result takes other weights, but the same data;
    none where it is no sum of products with weights, or other axes do not all take other data and
    the same weights.
    """
    whole = node.src[0]
    found = sides(node)
    if found is None:
        return frozenset()
    kept = [a for a in range(len(whole.shape)) if a not in node.arg.axes and whole.shape[a] != 1]
    same_data, same_weights = map(repeated_axes, found)
    if any((a in same_data) == (a in same_weights) for a in kept):
        return frozenset()
    return frozenset(a for a in kept if a in same_data)


def sides(node: UOp) -> tuple[UOp, UOp] | None:
    """The data and the weights of a sum of products."""
    whole = node.src[0]
    if node.op is not ops.REDUCE or node.arg.op is not ops.ADD or whole.op is not ops.MUL:
        return None
    weights = [is_weight(side) for side in whole.src]
    if sorted(weights) != [False, True]:
        return None
    return whole.src[weights.index(False)], whole.src[weights.index(True)]


def is_weight(node: UOp) -> bool:
    """Whether a node is a view of a weight."""
    base = viewed(node)
    return base.op is ops.BUFFER and base.arg.source.kind == "weight"


def viewed(node: UOp) -> UOp:
    """The node below movement operations."""
    while node.op.group == "movement":
        node = node.src[0]
    return node


def repeated_axes(node: UOp) -> frozenset[int]:
    """The axes along which a tensor repeats what it is expanded from."""
    if node.op is not ops.EXPAND:
        return frozenset()
    sizes = enumerate(zip(node.shape, node.src[0].shape, strict=True))
    return frozenset(axis for axis, (new, old) in sizes if new != old)
