"""What a long row's sum and the row itself are both made of is computed once, and lies in memory.

    y[i, j] = exp(x[i, j]) / sum(k: exp(x[i, k]))  ->  e[i, j] = exp(x[i, j])
                                                       y[i, j] = e[i, j] / sum(k: e[i, k])

A thread that is alone with a row keeps what it computes of it, where it has the room (the move
`keep`). Longer rows are stored and loaded again: that takes less time than an exponential.

The exponentials of a softmax's row are those of blocks of it, each with a greatest number of its
own, which one kernel finds, stores and sums while a block is in the first cache:

    m[b] = max(r: x[b, r])      e[b, r] = exp(x[b, r] - m[b])      s[b] = sum(r: e[b, r])
    f[b] = exp(m[b] - max(c: m[c]))      y[b, r] = e[b, r] * f[b] / sum(c: s[c] * f[c])

So the row is read once and what is made of it once more, by as many threads as there are. Of a
block of which all numbers are -infinity the least finite number is taken away: its exponentials are
0, as they are beside others, and where there are no others its factor is NaN, as all of the row is.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.attention import lowered_scores
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.ir import ops
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.uop import UOp, consumers, decay, toposort
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.tensor import Tensor

LONG_WORK = 8  # operations on an element, after which it is kept rather than computed again
BLOCK = 2048  # elements of a block at most, and a quarter of it at least


def keep_long_rows(
    roots: tuple[UOp, ...], caps: Caps, *, fp16_storage: bool = False
) -> dict[UOp, UOp]:
    """Every node of the graph, mapped to one in which such rows are in memory; nothing where there
    is none, or where threads share a row. None are in blocks where what lies in memory is fp16: a
    block's greatest number would not be what its exponentials took.
    """
    if caps.threads > 1:
        return {}
    nodes = toposort(roots)
    users = consumers(nodes)
    pay = [n for n in nodes if n.op is ops.REDUCE and _pays(n, users, caps)]
    if not pay:
        return {}

    found = {n.src[0] for n in pay}
    sums = {} if fp16_storage else {n: length for n in pay if (length := _block(n, caps))}
    lengths = {n.src[0]: length for n, length in sums.items()}
    blocks: dict[UOp, tuple[Tensor, Tensor]] = {}  # of a row: its exponentials, and its sum

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in lengths:
            blocks[node] = _in_blocks(Tensor(src[0].src[0]), lengths[node])
            return blocks[node][0].node
        if node in sums:
            return blocks[node.src[0]][1].node
        return UOp(ops.REALIZE, node.dtype, (node.replace(src),)) if node in found else None

    return bottom_up(roots, change)


def _block(node: UOp, caps: Caps) -> int:
    """How long the blocks of a row are that is reduced; 0 where that is no sum of e^(x - max(x))
    along its last axis, or has no length of which the blocks are whole vectors.
    """
    row = node.src[0]
    axis = len(row.shape) - 1
    if node.arg.op is not ops.ADD or node.arg.axes != (axis,) or row.dtype is not dt.float32:
        return 0
    if lowered_scores(row, axis) is None:
        return 0
    size = fixed(row.shape[axis])
    lengths = range(BLOCK // 4, BLOCK + 1, caps.vector)
    return max((n for n in lengths if size % n == 0), default=0)


def _in_blocks(x: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The exponentials of rows, and their sums."""
    *lead, size = x.shape
    parts = x.reshape((*lead, size // length, length))
    least = float(np.finfo(np.float32).min)
    most = parts.max(-1).in_memory()
    each = Tensor(decay((parts - most.maximum(least).unsqueeze(-1)).node)).in_memory()
    sums = each.sum(-1).in_memory()
    factors = Tensor(decay((most - most.max(-1, keepdims=True)).node)).in_memory()
    whole = (each * factors.unsqueeze(-1)).reshape(x.shape)
    return whole, (sums * factors).sum(-1)


def _pays(node: UOp, users: Mapping[UOp, list[UOp]], caps: Caps) -> bool:
    """Whether what is reduced is read by others too, is costly and finds no room."""
    row = node.src[0]
    sizes = [row.shape[axis] for axis in node.arg.axes]
    if not row.op.elementwise or not all(isinstance(size, int) for size in sizes):
        return False
    again = any(user.op is not ops.REDUCE for user in users[row])
    return again and prod(sizes) * row.dtype.itemsize > caps.array and _cost(row) >= LONG_WORK


def _cost(row: UOp) -> int:
    """Operations for each element of a row that is reduced, below which others begin."""
    inside = toposort((row,), stop=lambda n: not n.op.elementwise)
    return sum(n.op.cost for n in inside if n.op.elementwise)
