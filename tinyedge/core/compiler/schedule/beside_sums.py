"""Reductions of what a sum in blocks reads, too, take the same blocks, which one launch then reads.

    p[j] = sum of x[l*j + r]                  p[j] = sum of x[l*j + r];  q[j] = max of x[l*j + r]
    y = sum of p[j]                    ->     y = sum of p[j];  z = max of q[j]
    z = max of x[r]

Floats of which there are very many are summed by blocks wherever they are (`Tensor.blocked_sum`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tinyedge.core.ir import args, ops
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import Shape, UOp, toposort
from tinyedge.core.tensor.tensor import Tensor


def beside_sums(reductions: Collection[UOp], users: Mapping[UOp, list[UOp]]) -> frozenset[UOp]:
    """Those that take the blocks of a sum, of which they make nothing."""
    sums: dict[Shape, list[UOp]] = {}
    for node in reductions:
        if _is_of_blocks(node, users.get(node, [])):
            sums.setdefault(node.src[0].shape, []).append(node)
    if not sums:
        return frozenset()
    return frozenset(n for n in reductions if any(_is_beside(n, s) for s in _alike(n, sums)))


def _alike(node: UOp, sums: Mapping[Shape, Sequence[UOp]]) -> Sequence[UOp]:
    """The sums of blocks such as a reduction's would be."""
    blocks = _blocks(node)
    return () if blocks is None else sums.get(blocks.shape, ())


def _is_beside(node: UOp, other: UOp) -> bool:
    """Whether a reduction reads nothing but what a sum does, and is no part of that."""
    own = _read(node)
    return bool(own) and own <= _read(other) and node not in toposort((other,))


def _blocks(node: UOp) -> Tensor | None:
    """What is reduced in blocks, [..., blocks, elements], padded by what changes nothing."""
    value = ops.reduce_identity(node.arg.op, node.dtype)
    return Tensor(node.src[0]).in_blocks(node.arg.axes, value)


def of_the_same_blocks(node: UOp) -> UOp:
    """A reduction of reductions of blocks, which lie in memory."""
    blocks = _blocks(node)
    assert blocks is not None
    last = (blocks.ndim - 1,)
    parts = UOp(ops.REDUCE, node.dtype, (blocks.node,), args.Reduce(node.arg.op, last))
    kept = Tensor(parts).in_memory()
    return UOp(ops.REDUCE, node.dtype, (kept.node,), args.Reduce(node.arg.op, (kept.ndim - 1,)))


def _is_of_blocks(node: UOp, users: Collection[UOp]) -> bool:
    """Whether it is a sum of each of some blocks, which are added up from memory."""
    shape = node.src[0].shape
    return (
        node.arg.op is ops.ADD
        and node.dtype.is_float
        and node.arg.axes == (len(shape) - 1,)
        and len(shape) > 1
        and all(user.op is ops.REALIZE for user in users)
        and isinstance(product(shape), int)
    )


def _read(node: UOp) -> frozenset[UOp]:
    """The tensors in memory that a reduction reads."""
    below = toposort((node.src[0],), stop=lambda n: not _passes(n))
    return frozenset(n for n in below if not _passes(n) and n.op not in (ops.CONST, ops.IOTA))


def _passes(node: UOp) -> bool:
    """Whether it is made of its operands in registers."""
    return node.op.elementwise or node.op.group == "movement"
