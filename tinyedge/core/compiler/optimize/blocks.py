"""The move that takes a reduction apart into blocks."""

from __future__ import annotations

from dataclasses import dataclass

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.move import IllegalMove, Move, find, numbers
from tinyedge.core.compiler.schedule.canonical import make_range, replace_ranges
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import divisor
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.spec import REDUCTIONS
from tinyedge.core.ir.uop import UOp, as_node, own_ranges, toposort


@dataclass(frozen=True)
class Block(Move):
    """sum over r in 0..n  ->  sum over b in 0..n/factor of
                                   sum over i in 0..factor, r = b*factor + i

    The sum of each block is kept by itself, then added to those of the blocks before; so it is with
    every other reduction. A block's steps are those of the ranges that are nested in r as well. The
    range over blocks gets number `outer`, that over a block's steps `outer` + 1; both must be
    unused.
    """

    factor: int
    outer: int

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        target = find(sink, self.range)
        number, kind, size = self.range, target.arg.kind, target.src[0]
        if kind != "reduce":
            raise IllegalMove(f"cannot block range {number}: it is {kind}")
        if self.factor < 2 or divisor(size) % self.factor or size is as_node(self.factor):
            raise IllegalMove(f"cannot block range {number}: {self.factor} does not divide it")
        over = (n for n in toposort((sink,)) if n.op in REDUCTIONS and target in own_ranges(n))
        if any(node.op is not ops.REDUCE_LOOP for node in over):
            raise IllegalMove(f"cannot block range {number}: more than one value is reduced")
        if self.outer <= max(numbers(sink)):
            raise IllegalMove(f"cannot block range {number}: number {self.outer} is taken")
        blocks = make_range(size // self.factor, self.outer, kind)
        steps = make_range(self.factor, self.outer + 1, kind)
        whole = as_node(blocks * self.factor + steps)
        split = replace_ranges(sink, {target: (whole, (blocks, steps))})

        def apart(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if node.op is not ops.REDUCE_LOOP or blocks not in src:
                return None
            inner = src.index(blocks) + 1
            partial = node.replace((src[0], *src[inner:]))
            return node.replace((partial, *src[1:inner]))

        return bottom_up((split,), apart)[split]
