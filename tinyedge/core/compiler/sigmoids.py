"""Sigmoids as quotients, where a quotient takes no longer than a reciprocal.

    (e or 1) * (1 / (1 + e))       ->   (e or 1) / (1 + e),     e = exp(-abs(x))
    x * (e or 1) * (1 / (1 + e))   ->   (x * e or x) / (1 + e)

Of a processor's vectors the division runs beside the exponential's products, so that each product
less counts. The result is rounded once or twice less. Nothing overflows: e is at most 1.
"""

from __future__ import annotations

from collections import Counter

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.ir import ops
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.tensor.mathematics import sigmoid
from tinyedge.core.tensor.tensor import Tensor


def with_quotients(roots: tuple[UOp, ...], caps: Caps) -> dict[UOp, UOp]:
    """Every node, mapped to one in which sigmoids, and products with what they are of, divide once;
    nothing if there is none.
    """
    nodes = toposort(roots) if caps.divides else ()
    uses = Counter(operand for node in nodes for operand in node.src) + Counter(roots)
    sigmoids = {
        node: x
        for node in nodes
        # a gradient uses the reciprocal, too: it stays
        if (x := _argument(node)) is not None and uses[node.src[1]] == 1
    }
    if not sigmoids:
        return {}
    products = {}
    for node in nodes:
        if node.op is ops.MUL:
            for side, other in (node.src, node.src[::-1]):
                if sigmoids.get(side) is other and uses[side] == 1:
                    products[node] = node.src.index(other)

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in products:
            x = Tensor(src[products[node]])
        elif node in sigmoids:
            x = Tensor(_of(src))
        else:
            return None
        e = (-x.abs()).exp()
        above = (x < 0).where(x * e, x) if node in products else (x < 0).where(e, 1.0)
        return (above / (1.0 + e)).node

    return bottom_up(roots, change)


def _argument(node: UOp) -> UOp | None:
    """x, if a node is sigmoid(x)."""
    if node.op is not ops.MUL or node.dtype is not dt.float32 or node.src[0].op is not ops.WHERE:
        return None
    e = node.src[0].src[1]
    if [e.op, *(n.op for n in e.src), *(n.op for m in e.src for n in m.src)] != _FALLING:
        return None
    x = _of(node.src)
    return x if sigmoid(Tensor(x)).node is node else None


_FALLING = [ops.EXP, ops.NEG, ops.ABS]


def _of(src: tuple[UOp, ...]) -> UOp:
    """x, of the operands of a sigmoid."""
    e = src[0].src[1]
    return e.src[0].src[0].src[0]
