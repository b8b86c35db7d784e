"""The move that keeps a block of an attention's rows, their scores and weights, beside a thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.move import IllegalMove, Move, find, numbers
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.attend import divided
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.spec import STAGE_KIND, stage_fault
from tinyedge.core.ir.uop import Size, UOp, as_node, const, decay, elementwise, own_ranges, toposort

Places = Mapping[UOp, UOp]


@dataclass(frozen=True)
class Weigh(Move):
    """for i in 0..m: attend over k: score(i, k), value(k)  ->  s[i, k] = score(i, k)
                                                                w[i, k] = exp(s[i, k] - max s[i])
                                                                for i in 0..m: sum over k of
                                                                w[i, k] * value(k) / sum of w[i]

    All scores of some rows lie in a stage, then their weights; both are filled before the rows are
    summed, each in tiles of its own. rows: the output range i. The new ranges get the numbers from
    `range` on, which must be unused.
    """

    rows: int

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        rows = find(sink, self.rows)
        found = [node for node in toposort((sink,)) if node.op is ops.ATTEND_LOOP]
        if len(found) != 1 or rows not in found[0].src[0].ranges:
            raise IllegalMove(f"cannot weigh along range {self.rows}: no scores depend on it")
        node = found[0]
        keys = own_ranges(node)
        if self.range <= max(numbers(sink)):
            raise IllegalMove(f"cannot weigh: number {self.range} is taken")
        if rows.arg.kind != "loop" or any(r.arg.kind != "reduce" for r in keys) or not keys:
            raise IllegalMove(f"cannot weigh along range {self.rows}: its ranges have moved")
        if any(r.src[0].op is not ops.CONST for r in (rows, *keys)):
            raise IllegalMove(f"cannot weigh along range {self.rows}: its size is symbolic")
        made = _Weighing(rows, keys, self.range).mean(node)
        stages = [n for n in toposort((made,)) if n.op is ops.STAGE]
        for stage in stages:
            if wrong := stage_fault(stage):
                raise IllegalMove(f"cannot weigh along range {self.rows}: {wrong}")
        return substitute((sink,), {node: made})[0]


class _Weighing:
    """The stages of an attention's rows. number: the first range number that is free."""

    def __init__(self, rows: UOp, keys: tuple[UOp, ...], number: int) -> None:
        self.rows = rows
        self.keys = keys
        self.number = number

    def mean(self, node: UOp) -> UOp:
        """The sum of values by their weights, which are in a stage."""
        score, value, *_ = node.src
        dtype = node.dtype
        own = self._fresh((self.rows, *self.keys), STAGE_KIND)
        (held,) = substitute((score,), own)
        scores = UOp(ops.STAGE, dtype, (held, *own.values()))
        own = self._fresh((self.rows, *self.keys), STAGE_KIND)
        keys = self._fresh(self.keys, "reduce")
        every = self._loaded(scores, {**own, **keys})
        greatest = UOp(ops.REDUCE_LOOP, dtype, (every, *keys.values()), ops.MAX)
        least = const(np.finfo(dtype.numpy).min, dtype)
        most = elementwise(ops.MAX, greatest, least)
        shifted = elementwise(ops.SUB, self._loaded(scores, own), most)
        weight = decay(shifted)
        weights = UOp(ops.STAGE, dtype, (weight, *own.values()))
        keys = self._fresh(self.keys, "reduce")
        each = self._loaded(weights, keys)
        total = UOp(ops.REDUCE_LOOP, dtype, (each, *keys.values()), ops.ADD)
        product = elementwise(ops.MUL, self._loaded(weights, {}), value)
        summed = UOp(ops.REDUCE_LOOP, dtype, (product, *self.keys), ops.ADD)
        return divided(summed, total, node.arg.zeros)

    def _fresh(self, ranges: Iterable[UOp], kind: str) -> dict[UOp, UOp]:
        new = {}
        for r in ranges:
            new[r] = UOp(ops.RANGE, dt.index, r.src, args.Range(self.number, kind))
            self.number += 1
        return new

    def _loaded(self, stage: UOp, places: Places) -> UOp:
        """What a stage holds at some of its places; else at those of the kernel's ranges."""
        place: Size = 0
        for r in (self.rows, *self.keys):
            place = place * r.src[0].arg + places.get(r, r)
        return access.load(stage, (as_node(place),))
