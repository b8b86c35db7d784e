"""The moves that take a reduction apart: into blocks, and into parts that a stage holds."""

from __future__ import annotations

from dataclasses import dataclass

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.move import IllegalMove, Move, find, numbers
from tinyedge.core.compiler.schedule.canonical import make_range, replace_ranges
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.polynomial import divisor
from tinyedge.core.ir.rewrite import bottom_up, substitute
from tinyedge.core.ir.spec import BLOCK_KIND, REDUCTIONS, STAGE_KIND
from tinyedge.core.ir.uop import Size, UOp, as_node, own_ranges, toposort


@dataclass(frozen=True)
class Block(Move):
    """sum over r in 0..n  ->  sum over b in 0..n/factor of
                                   sum over i in 0..factor, r = b*factor + i

    The sum of each block is kept by itself, then added to those of the blocks before; so it is with
    every other reduction. A block's steps are those of the ranges that are nested in r as well;
    with a factor of 1 they are those alone. Blocks may be put into blocks again. The range over
    blocks gets number `outer`, that over a block's steps `outer` + 1; both must be unused.
    """

    factor: int
    outer: int

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        target = find(sink, self.range)
        number, kind, size = self.range, target.arg.kind, target.src[0]
        if kind not in ("reduce", BLOCK_KIND):
            raise IllegalMove(f"cannot block range {number}: it is {kind}")
        if self.factor < 1 or divisor(size) % self.factor or size is as_node(self.factor):
            raise IllegalMove(f"cannot block range {number}: {self.factor} does not divide it")
        over = [n for n in toposort((sink,)) if n.op in REDUCTIONS and target in own_ranges(n)]
        if any(node.op is not ops.REDUCE_LOOP for node in over):
            raise IllegalMove(f"cannot block range {number}: more than one value is reduced")
        if self.factor == 1 and any(own_ranges(node)[-1] is target for node in over):
            raise IllegalMove(f"cannot block range {number}: no range is nested in it")
        if self.outer <= max(numbers(sink)):
            raise IllegalMove(f"cannot block range {number}: number {self.outer} is taken")
        blocks = make_range(size // self.factor, self.outer, BLOCK_KIND)
        steps = make_range(self.factor, self.outer + 1, kind)
        whole = as_node(blocks * self.factor + steps)
        pieces = tuple(r for r in (blocks, steps) if r.op is ops.RANGE)
        split = replace_ranges(sink, {target: (whole, pieces)})

        def apart(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if node.op is not ops.REDUCE_LOOP or blocks not in src:
                return None
            inner = src.index(blocks) + 1
            partial = node.replace((src[0], *src[inner:]))
            return node.replace((partial, *src[1:inner]))

        return bottom_up((split,), apart)[split]


def _own(stage: UOp) -> list[UOp]:
    """The nodes of a stage but for those of stages that it reads."""
    return toposort(stage.src, stop=lambda n: n.op is ops.STAGE)


@dataclass(frozen=True)
class Partials(Move):
    """t[h] = f(sum over r in 0..n)  ->  p[j, h] = sum over i in 0..n/factor, r = i*factor + j
                                        t[h] = f(sum over j in 0..factor: p[j, h])

    What is summed for each element of a stage t is summed in parts, which are a stage themselves:
    so more threads have a share of the work. The range over parts of the second sum gets number
    `outer`, that over the steps of a part `outer` + 1, the stage's own ranges the numbers from
    `outer` + 2 on; all must be unused.
    """

    factor: int
    outer: int

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        number, target = self.range, find(sink, self.range)
        size = target.src[0]
        if target.arg.kind != "reduce" or size.op is not ops.CONST:
            raise IllegalMove(f"cannot sum range {number} in parts: it is {target.arg.kind}")
        if self.factor < 2 or size.arg % self.factor or size.arg == self.factor:
            raise IllegalMove(f"cannot sum range {number} in parts: {size.arg} by {self.factor}")
        if self.outer <= max(numbers(sink)):
            raise IllegalMove(f"cannot sum range {number} in parts: number {self.outer} is taken")
        nodes = toposort((sink,))
        over = [n for n in nodes if n.op in REDUCTIONS and target in own_ranges(n)]
        stages = [n for n in nodes if n.op is ops.STAGE and any(o in _own(n) for o in over)]
        if len(over) != 1 or len(stages) != 1 or over[0].op is not ops.REDUCE_LOOP:
            raise IllegalMove(f"cannot sum range {number} in parts: it is of no stage's one sum")
        (whole,) = over
        own = stages[0].src[1:]
        if any(r.arg.kind == STAGE_KIND and r not in own for r in whole.ranges):
            raise IllegalMove(f"cannot sum range {number} in parts: it is of several stages")
        return substitute((sink,), {whole: self._in_parts(whole, target, own)})[0]

    def _in_parts(self, whole: UOp, target: UOp, own: tuple[UOp, ...]) -> UOp:
        parts = make_range(self.factor, self.outer, "reduce")
        steps = make_range(target.src[0].arg // self.factor, self.outer + 1, "reduce")
        lengths = [self.factor, *(r.src[0].arg for r in own)]
        fresh = [
            UOp(ops.RANGE, dt.index, (as_node(n),), args.Range(self.outer + 2 + i, STAGE_KIND))
            for i, n in enumerate(lengths)
        ]
        places = dict(zip(own, fresh[1:], strict=True))
        at = as_node(steps * self.factor + fresh[0])
        split = replace_ranges(whole, {target: (at, (steps,))})
        (partial,) = substitute((split,), places)
        stage = UOp(ops.STAGE, whole.dtype, (partial, *fresh))
        place: Size = 0
        for r in (parts, *own):
            place = place * r.src[0].arg + r
        return whole.replace((access.load(stage, (as_node(place),)), parts))
