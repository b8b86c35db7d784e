"""The move that makes a sum longer by zeros."""

from __future__ import annotations

from dataclasses import dataclass

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.move import IllegalMove, Move, find
from tinyedge.core.compiler.schedule.canonical import make_range, replace_ranges
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.polynomial import divisor
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import rewrite
from tinyedge.core.ir.uop import BINDING, UOp, const, own_ranges, toposort


@dataclass(frozen=True)
class Extend(Move):
    """sum over r in 0..n of x[r] * y[r]  ->  sum over r in 0..ceil(n / multiple)*multiple of
                                                  (x[r] if r < n else 0) * (y[r] if r < n else 0)

    The steps behind the end ask nothing of what is summed, but of each load: where that is staged,
    the inner loop has no condition. What is summed must be zero where all that is read along r is.
    The range keeps its number.
    """

    multiple: int

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        target = find(sink, self.range)
        size = target.src[0]
        if target.arg.kind != "reduce" or divisor(size) % self.multiple == 0:
            raise IllegalMove(
                f"cannot extend range {self.range} to a multiple of {self.multiple}: it is "
                f"{target.arg.kind}, of {size!r}"
            )
        over = (n for n in toposort((sink,)) if n.op in BINDING and target in own_ranges(n))
        if not all(_sums_zeros(node, target) for node in over):
            raise IllegalMove(f"cannot extend range {self.range}: no sum, or not of zeros")
        longer = make_range(ix.round_up(size, self.multiple), self.range, target.arg.kind)
        inside = ix.lt(longer, size)

        def guarded(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
            node = node.replace(src)
            along = node.op is ops.LOAD and longer in node.ranges
            return access.also_under(inside, node) if along else None

        moved = replace_ranges(sink, {target: (longer, (longer,))})
        return bottom_up((moved,), guarded)[moved]


def _sums_zeros(reduction: UOp, target: UOp) -> bool:
    """Whether what a reduction adds is zero where all that is loaded along a range is."""
    if reduction.op is not ops.REDUCE_LOOP or reduction.arg is not ops.ADD:
        return False
    value = reduction.src[0]
    loads = [n for n in toposort((value,)) if n.op is ops.LOAD and target in n.ranges]
    if any(n.src[0].op is not ops.PARAM or access.is_image(n) for n in loads):
        return False
    (zero,) = rewrite((value,), {n: const(0, n.dtype) for n in loads})
    return zero is const(0, value.dtype)
