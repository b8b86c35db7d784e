"""Constants computed at export: what depends on weights alone becomes a weight."""

from __future__ import annotations

from tinyedge.core import ops
from tinyedge.core.reference import evaluate
from tinyedge.core.uop import UOp, consumers, maximum, product, toposort

GROWTH = 2  # a folded weight may have this many times the elements of what it is computed from
SMALL = 65536  # elements below which growth does not matter


def fold_constants(roots: tuple[UOp, ...]) -> dict[UOp, UOp]:
    """Every node of the graph, mapped to one in which computations on weights are done."""
    order = toposort(roots)
    constant: dict[UOp, int] = {}
    for node in order:
        elements = _constant_elements(node, constant)
        if elements is not None:
            constant[node] = elements
    users = consumers(order)
    kept = set(roots)
    boundary = [
        node
        for node in order
        if node in constant
        and node.op.group not in ("source", "movement")
        and _affordable(node, constant[node])
        and (node in kept or any(not _absorbed(user, constant) for user in users.get(node, ())))
    ]
    values = evaluate(boundary, {}) if boundary else []
    done: dict[UOp, UOp] = {}
    for node, value in zip(boundary, values, strict=True):
        if node.shape:
            source = ops.Source("weight", "constant", value.astype(node.dtype.numpy))
            done[node] = UOp(ops.BUFFER, node.dtype, (), (source, node.shape))
    for node in toposort(roots, stop=lambda n: n in done):
        if node not in done:
            src = tuple(done[s] for s in node.src)
            done[node] = node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
    return done


def _constant_elements(node: UOp, constant: dict[UOp, int]) -> int | None:
    """For a node that depends on weights alone: how many of their elements; else None."""
    op = node.op
    if op is ops.BUFFER:
        source, shape = node.arg
        return maximum(product(shape)) if source.data is not None else None
    if op is ops.CONST:
        return 1
    if op is ops.IOTA:
        return 1 if isinstance(node.arg[0], int) else None
    if op is ops.EMPTY:
        return 1 if all(isinstance(size, int) for size in node.arg) else None
    if not node.src or any(s not in constant for s in node.src):
        return None
    if any(not isinstance(size, int) for size in node.shape):
        return None
    return sum(constant[s] for s in dict.fromkeys(node.src))


def _affordable(node: UOp, elements: int) -> bool:
    size = maximum(product(node.shape))
    return size <= max(SMALL, GROWTH * elements)


def _absorbed(user: UOp, constant: dict[UOp, int]) -> bool:
    """Whether a user of a constant will be computed at export itself, or is a view on the way to
    one.
    """
    if user not in constant:
        return False
    return user.op.group == "movement" or _affordable(user, constant[user])
