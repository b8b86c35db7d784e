"""Quotients of a softmax as products: one division a row, by a sum that is at least 1.

    exp(s - max(s)) / sum   ->   exp(s - max(s)) * (1 / sum)

Its exponentials are marked as those of numbers that are at most 0, of which a target may compute
fewer steps: none is infinite.

A division of vectors takes a processor as long as some ten of its products. The result is rounded
once more, which other libraries do, too. Nothing overflows: among what is summed is exp(0) = 1.
"""

from __future__ import annotations

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.attention import row_of, scores_of
from tinyedge.core.ir import ops
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.uop import UOp, decay, toposort
from tinyedge.core.tensor.tensor import Tensor


def with_shares(roots: tuple[UOp, ...]) -> dict[UOp, UOp]:
    """Every node, mapped to one in which no softmax divides each element; nothing if none does."""
    nodes = toposort(roots)
    found = {node for node in nodes if _is_share(node)}
    decays = {node for node in nodes if _is_decay(node)}
    if not found and not decays:
        return {}

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in decays:
            return decay(src[0])
        if node not in found:
            return None
        return (Tensor(src[0]) * (1.0 / Tensor(src[1].src[0]))).node

    return bottom_up(roots, change)


def _is_share(node: UOp) -> bool:
    if node.op is not ops.DIV or node.dtype is not dt.float32:
        return False
    return any(scores_of(node, axis, None) is not None for axis in range(len(node.shape)))


def _is_decay(node: UOp) -> bool:
    """Whether a node is e^(s - max(s))."""
    if node.op is not ops.EXP or node.src[0].op is not ops.SUB:
        return False
    scores, most = node.src[0].src
    return any(row_of(most, ops.MAX, axis) is scores for axis in range(len(node.shape)))
