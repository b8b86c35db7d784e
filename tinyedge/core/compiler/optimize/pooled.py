"""Default moves of a kernel that reduces the rows of a product as soon as it has them.

    y[c] = sum over p of f(sum over k of x[p, k] * w[k, c])

Some rows are computed beside each other, as in any product's tile; the others by further threads.
"""

from __future__ import annotations

from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.move import numbers
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.reductions import reductions
from tinyedge.core.compiler.optimize.tiles import UNROLL
from tinyedge.core.ir.polynomial import divisor
from tinyedge.core.ir.uop import UOp

ROWS = 8  # of a tile


def pooled(sink: UOp) -> tuple[UOp, UOp] | None:
    """The product and the reduction of its rows that a kernel has."""
    found = reductions(sink)
    if len(found) != 2 or found[0].ranges.isdisjoint(found[1].src[1:]):
        return None
    return found[0], found[1]


def lay_rows(kernel: MovedKernel, nested: tuple[UOp, UOp]) -> int:
    """A tile of rows; gives the range of rows that is left, or -1."""
    product, whole = nested
    number = int(whole.src[-1].arg.number)
    size = kernel.extent(number)
    rows = max(n for n in range(1, ROWS + 1) if size % n == 0)
    left = number
    if rows == size:
        kernel.to(number, "unroll")
        left = int(whole.src[-2].arg.number) if len(whole.src) > 2 else -1
    elif rows > 1:
        left, inner = kernel.split(number, rows)
        kernel.to(inner, "unroll")
    _unroll(kernel, int(product.src[-1].arg.number))
    return left if left in numbers(kernel.sink) else -1


def _unroll(kernel: MovedKernel, number: int) -> None:
    if divisor(kernel.size(number)) % UNROLL == 0 and not kernel.is_exactly(number, UNROLL):
        _, number = kernel.split(number, UNROLL)
        kernel.attempt(To(number, "unroll"))
