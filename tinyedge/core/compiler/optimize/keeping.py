"""The move that keeps what a reduction computes of a row for what the row is computed of then."""

from __future__ import annotations

from dataclasses import dataclass

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.move import IllegalMove, Move, find, numbers
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.rules.algebra import rewrite
from tinyedge.core.ir.spec import STAGE_KIND
from tinyedge.core.ir.uop import UOp, toposort


@dataclass(frozen=True)
class Keep(Move):
    """s = sum over k in 0..n of f(k)             e[i] = f(i) for i in 0..n
    for j in 0..n: g(f(j), s)             ->      s = sum over k in 0..n of e[k]
                                                  for j in 0..n: g(e[j], s)

    What was computed twice is computed once, and lies in a stage. reduced: the range k of a
    reduction. column: the output range j, of as many steps. The stage's range gets the number
    `range`, which must be unused.
    """

    reduced: int
    column: int

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        if self.range <= max(numbers(sink)):
            raise IllegalMove(f"cannot keep: number {self.range} is taken")
        reduced, column = find(sink, self.reduced), find(sink, self.column)
        if reduced.src[0] is not column.src[0] or column.src[0].op is not ops.CONST:
            raise IllegalMove(f"cannot keep range {self.reduced}: range {self.column} is another")
        own = UOp(ops.RANGE, dt.index, column.src, args.Range(self.range, STAGE_KIND))
        mapping: dict[UOp, UOp] = {}
        for value, again in shared_values(sink, reduced, column):
            if value.dtype.bits < 32 or caps.vectors(value.dtype) != "all":
                raise IllegalMove(f"cannot keep a {value.dtype} of range {self.reduced}")
            (held,) = substitute((value,), {reduced: own})
            stage = UOp(ops.STAGE, value.dtype, (held, own))
            mapping[value] = access.load(stage, (reduced,))
            mapping[again] = access.load(stage, (column,))
        if not mapping:
            raise IllegalMove(f"cannot keep range {self.reduced}: nothing of it is used again")
        return substitute((sink,), mapping)[0]


def shared_values(sink: UOp, reduced: UOp, column: UOp) -> list[tuple[UOp, UOp]]:
    """What the reductions over a range compute, of which the output computes the same along a
    range: each as both have it, and no parts of others.
    """
    nodes = toposort((sink,))
    present = set(nodes)
    bodies = [n.src[0] for n in nodes if n.op is ops.REDUCE_LOOP and n.src[1:] == (reduced,)]
    found: dict[UOp, UOp] = {}

    def is_shared(node: UOp) -> bool:
        if node not in found and node.op.elementwise and reduced in node.ranges:
            again = rewrite((node,), {reduced: column})[0]
            if again in present and node.dtype.is_float:
                found[node] = again
        return node in found

    toposort(bodies, stop=is_shared)
    return list(found.items())
