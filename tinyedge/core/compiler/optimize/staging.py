"""The move that copies a tile of an argument to where all threads of a workgroup reach it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.move import IllegalMove, Move, find, numbers
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.spec import STAGE_KIND, stage_fault
from tinyedge.core.ir.uop import Size, UOp, as_node, consumers, toposort


@dataclass(frozen=True)
class Stage(Move):
    """for k in 0..n: for i in 0..m: .. x[f(k, i)] ..  ->  for k in 0..n:
                                                               t[j] = x[f(k, j)] for j in 0..m
                                                               for i in 0..m: .. t[i] ..

    Every thread of a workgroup fills a part of the tile t, which lies in its memory, before all use
    it; where a thread is alone, t is an array of its own. So what several threads, or several
    copies, read of an argument is read from memory once, and what is read with a condition or in
    strides is read without.

    slot: which argument x is. along: the ranges i over which the tile lies, outermost first, for
    all loads of x that depend on each of them; all other ranges that these depend on are loops
    around the tile, or workgroups. The tile's own ranges get the numbers from `range` on, which
    must be unused. ahead: the tile is double: while a loop uses one half of it, it loads the other
    half for its next step. whole: the tile holds
    what is computed of x, with others along the same ranges: weights of few bits are unpacked and
    scaled once.
    """

    slot: int
    along: tuple[int, ...]
    ahead: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "along", tuple(self.along))  # a list of JSON

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        self._check(sink, caps)
        along = [find(sink, number) for number in self.along]
        own = {
            r: UOp(ops.RANGE, dt.index, r.src, args.Range(self.range + i, STAGE_KIND))
            for i, r in enumerate(along)
        }
        changed = {
            value: _staged(value, own, self.ahead)
            for value in self._values(sink, along)
            if all(r in value.ranges for r in along)
        }
        if not changed:
            raise IllegalMove(f"cannot stage argument {self.slot}: nothing of it lies along there")
        for new in changed.values():
            if new.dtype.bits < 32 or caps.vectors(new.dtype) != "all":
                raise IllegalMove(f"cannot stage argument {self.slot}: it is {new.dtype}")
            if wrong := stage_fault(new.src[0]):
                raise IllegalMove(f"cannot stage argument {self.slot}: {wrong}")
        return substitute((sink,), changed)[0]

    def _check(self, sink: UOp, caps: Caps) -> None:
        if not caps.room:
            raise IllegalMove(f"cannot stage argument {self.slot}: there is no memory for it")
        if self.range <= max(numbers(sink)):
            raise IllegalMove(f"cannot stage argument {self.slot}: number {self.range} is taken")
        if not self.along or len(set(self.along)) < len(self.along):
            raise IllegalMove(f"cannot stage argument {self.slot}: along {self.along}")
        for r in (find(sink, number) for number in self.along):
            if r.arg.kind in (STAGE_KIND, "serial") or r.src[0].op is not ops.CONST:
                raise IllegalMove(
                    f"cannot stage argument {self.slot} along range {r.arg.number}: it is "
                    f"{r.arg.kind}, of {r.src[0]!r}"
                )

    def _values(self, sink: UOp, along: Sequence[UOp]) -> list[UOp]:
        """What is loaded from the argument, as the numbers that the kernel computes with."""
        nodes = toposort((sink,))
        loads = [n for n in nodes if n.op is ops.LOAD and n.src[0].op is ops.PARAM]
        loads = [n for n in loads if n.src[0].arg.slot == self.slot]
        if any(n.src[0].arg.written or access.is_image(n) for n in loads):
            raise IllegalMove(f"cannot stage argument {self.slot}: it is written, or an image")
        users = consumers(nodes)
        found = []
        for load in loads:
            if self.whole:
                found.append(whole_value(load, users, along))
                continue
            casts = users[load]
            narrow = load.dtype.bits < 32 and all(n.op is ops.CAST for n in casts)
            found += casts if narrow else [load]
        return list(dict.fromkeys(found))


def whole_value(load: UOp, users: Mapping[UOp, Sequence[UOp]], along: Iterable[UOp]) -> UOp:
    """What is computed of a load, as long as nothing else needs a part of it and no range comes in
    but those along which it is wanted: one word may hold all lanes of a vector.
    """
    value, own = load, load.ranges.union(along)
    while len(users[value]) == 1:
        (user,) = users[value]
        if not user.op.elementwise or not user.ranges <= own:
            break
        value = user
    return value


def _staged(value: UOp, own: dict[UOp, UOp], ahead: bool) -> UOp:
    """The load from a stage of a value along ranges, each with the stage's own in its place."""
    (held,) = substitute((value,), own)
    stage = UOp(ops.STAGE, value.dtype, (held, *own.values()), ahead or None)
    place: Size = 0
    for r in own:
        place = place * r.src[0].arg + r
    return access.load(stage, (as_node(place),))
