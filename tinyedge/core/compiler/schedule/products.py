"""Sums of products of data and weights in a tensor graph, and along which axes they take which."""

from __future__ import annotations

from tinyedge.core.ir import ops
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import UOp

FEWEST_ROWS, MOST_ROWS = 4, 64  # of a product, that one thread or a few have all of


def has_sides_of(node: UOp, other: UOp) -> bool:
    """Whether two sums of products with weights have the same shape, and along the same axes the
    weights: the outputs of both are computed in the same tiles.
    """
    sides = weight_axes(node)
    return node.shape == other.shape and bool(sides) and sides == weight_axes(other)


def reduces_rows_of(whole: UOp, node: UOp) -> bool:
    """Whether a reduction is over all rows of a product with weights, which are few, and over
    nothing else: an image's mean after a layer of 1 x 1.
    """
    columns = weight_axes(node)
    if not columns or whole.op is not ops.REDUCE:
        return False
    sizes = [size for size in whole.src[0].shape if size != 1]
    axes = [axis for axis, size in enumerate(node.shape) if size != 1]
    steps = [axis for axis in node.arg.axes if node.src[0].shape[axis] != 1]
    if len(steps) != 1 or sizes != [node.shape[axis] for axis in axes]:
        return False
    if not all(isinstance(size, int) for size in sizes):
        return False
    places = [axis for axis, size in enumerate(whole.src[0].shape) if size != 1]
    rows = [of for of, axis in zip(places, axes, strict=True) if axis not in columns]
    reduced = [axis for axis in places if axis in whole.arg.axes]
    count = maximum(product(whole.src[0].shape[axis] for axis in rows))
    return rows == reduced and FEWEST_ROWS <= count <= MOST_ROWS


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
