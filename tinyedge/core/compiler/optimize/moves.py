"""Schedule moves: small records that change how a kernel's ranges run, never what it computes.

A kernel is a SINK of stores over ranges. A range has a kind: "loop" (an output range, of which the
steps may be taken in any order), "serial" (one whose steps must follow each other, as they read
what those before wrote: no move changes it), "reduce" (a reduction's, serial), and what moves make
of them: "grid" (workgroups), "local" (threads of a workgroup), "lane" (the threads that also share
a reduction), "upcast" (copies in registers), "vector" (lanes of a vector), "unroll" (copies of a
reduction's body), "threads" (a reduction's range given to threads, combined through workgroup
memory), "lanes" (a reduction's range along one or several vectors of partial results, whose lanes
are combined at the end), "block" (over blocks of a reduction, each with a total of its own). A tile
of an argument that threads share has ranges of its own ("staged"). Ranges are named by number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.blocks import Block, Partials
from tinyedge.core.compiler.optimize.extend import Extend
from tinyedge.core.compiler.optimize.keeping import Keep
from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.move import (
    IllegalMove,
    Move,
    find,
    find_among,
    is_padded,
    numbers,
    ranges,
)
from tinyedge.core.compiler.optimize.staging import Stage
from tinyedge.core.compiler.optimize.weighing import Weigh
from tinyedge.core.compiler.schedule.canonical import (
    Changes,
    Rest,
    make_range,
    mask_reductions,
    peel_reductions,
    replace_ranges,
)
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.polynomial import bounds, divisor
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import rewrite, simplify
from tinyedge.core.ir.spec import BLOCK_KIND, REDUCE_KINDS, REDUCTIONS
from tinyedge.core.ir.uop import Size, UOp, as_node, as_size, const, own_ranges, toposort


def _open(target: UOp, what: str) -> None:
    """Only ranges that still are plain loops, or workgroups, may change their size."""
    number, kind = target.arg.number, target.arg.kind
    if kind not in ("loop", "reduce", "grid"):
        raise IllegalMove(f"cannot {what} range {number}: it is {kind}")


@dataclass(frozen=True)
class Split(Move):
    """for r in 0..n  ->  for outer in 0..n/factor: for inner in 0..factor, r = outer*factor +
    inner.

    The outer range gets number `outer`, the inner one `outer` + 1; both must be unused.
    """

    factor: int
    outer: int

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        return replace_ranges(sink, self.renames(ranges(sink), caps))

    def renames(self, found: Sequence[UOp], caps: Caps, *, allowed: bool = False) -> Changes:
        target = find_among(found, self.range)
        _open(target, "split")
        size = target.src[0]
        if self.factor < 2 or divisor(size) % self.factor:
            raise IllegalMove(f"cannot split range {self.range}: {self.factor} does not divide it")
        if self.outer <= max(r.arg.number for r in found):
            raise IllegalMove(f"cannot split range {self.range}: number {self.outer} is taken")
        kind = target.arg.kind
        outer = make_range(size // self.factor, self.outer, kind)
        inner = make_range(self.factor, self.outer + 1, kind)
        whole = as_node(outer * self.factor + inner)
        return {target: (whole, tuple(r for r in (outer, inner) if r.op is ops.RANGE))}


@dataclass(frozen=True)
class Reorder(Move):
    """for r in 0..n: for s in 0..m  ->  for s in 0..m: for r in 0..n.

    Ranges of a kind are nested in the order of their numbers. The range gets the number `number`,
    greater than all others: of its kind it becomes the innermost, the one that changes fastest.
    """

    number: int

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        return replace_ranges(sink, self.renames(ranges(sink), caps))

    def renames(self, found: Sequence[UOp], caps: Caps, *, allowed: bool = False) -> Changes:
        target = find_among(found, self.range)
        if target.arg.kind != "loop":
            why = f"it is {target.arg.kind}"
            raise IllegalMove(f"cannot move range {self.range} inwards: {why}")
        if self.number <= max(r.arg.number for r in found):
            why = f"number {self.number} is not the greatest"
            raise IllegalMove(f"cannot move range {self.range} inwards: {why}")
        moved = make_range(as_size(target.src[0]), self.number, "loop")
        return {target: (moved, (moved,))}


@dataclass(frozen=True)
class Merge(Move):
    """for r in 0..n: for s in 0..m  ->  for t in 0..n*m, r = t // m, s = t % m.

    inner: the number of the range s, of a size that is known. The new range gets the number
    `number`, greater than all others. Both are loops, or steps of the same reductions.
    """

    inner: int
    number: int

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        outer, inner = find(sink, self.range), find(sink, self.inner)
        kind, size = outer.arg.kind, inner.src[0]
        why = f"cannot merge ranges {self.range} and {self.inner}:"
        if outer is inner or {kind, inner.arg.kind} not in ({"loop"}, {"reduce"}):
            raise IllegalMove(f"{why} they are {kind} and {inner.arg.kind}")
        if size.op is not ops.CONST or outer.src[0].ranges:
            raise IllegalMove(f"{why} the size of the inner one is symbolic")
        if self.number <= max(numbers(sink)):
            raise IllegalMove(f"{why} number {self.number} is not the greatest")
        for node in toposort((sink,)):
            own = own_ranges(node) if node.op in REDUCTIONS else ()
            if (outer in own) != (inner in own):
                raise IllegalMove(f"{why} a reduction is over one of them")
        whole = make_range(outer.src[0] * size, self.number, kind)
        divided, rest = as_node(whole // size), as_node(whole % size)
        changes = {outer: (divided, (whole,)), inner: (rest, (whole,))}
        return bottom_up((merged := replace_ranges(sink, changes),), _put_together)[merged]


def _put_together(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """An access at a place that walks what was taken apart."""
    if node.op not in access.ACCESSES:
        return None
    node = node.replace(src)
    return access.at(node, [ix.joined(place) for place in access.indices_of(node)])


@dataclass(frozen=True)
class PadTo(Move):
    """for r in 0..n  ->  for r in 0..ceil(n / multiple)*multiple, storing only where r < n.

    Reads use min(r, n - 1), or r itself along an axis that is rounded up in memory as well, so that
    vectors are read whole. A reduction takes its neutral element where r >= n. The range keeps its
    number.
    """

    multiple: int

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        target = find(sink, self.range)
        number, kind = target.arg.number, target.arg.kind
        _open(target, "pad")
        size = target.src[0]
        if divisor(size) % self.multiple == 0:
            raise IllegalMove(f"cannot pad range {self.range}: {self.multiple} divides it already")
        padded = make_range(ix.round_up(size, self.multiple), number, kind)
        inside = ix.lt(padded, size)
        clamped = as_node(ix.minimum(padded, size - 1))
        if kind in REDUCE_KINDS:
            return mask_reductions(sink, target, (clamped, (padded,)), inside)
        guarded = []
        for store in sink.src:
            loads = [n for n in toposort((store,)) if n.op is ops.LOAD and target in n.ranges]
            whole = [n for n in loads if self._reads_padding(n, target)]
            changes: dict[UOp, UOp] = {n: rewrite((n,), {target: padded})[0] for n in whole}
            changes[target] = padded if loads and whole == loads else clamped
            (new,) = rewrite((store,), changes)
            guarded.append(access.also_under(inside, new))
        return sink.replace(tuple(guarded))

    def _reads_padding(self, load: UOp, target: UOp) -> bool:
        return not load.arg and is_padded(load.src[0], load.src[1], target, self.multiple)


@dataclass(frozen=True)
class Peel(Move):
    """reduce r in 0..n  ->  reduce r in 0..floor(n / multiple)*multiple, then rest in
    0..n % multiple, r = floor(n / multiple)*multiple + rest; both results are combined.

    The range keeps its number. That of what is left over is `rest`, which must be unused, and
    other ranges of the second reduction get the numbers behind it. overlap: the rest is the last
    `multiple` steps, r = n - multiple + rest, and those of them that are done already give the
    neutral element.
    """

    multiple: int
    rest: int
    overlap: bool = False

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        target = find(sink, self.range)
        size, whole = self._sizes(target, sink)
        main = make_range(whole, self.range, target.arg.kind)
        if self.overlap:
            rest = make_range(self.multiple, self.rest, target.arg.kind)
            place = as_node(size - self.multiple + rest)
            new = ix.le(self.multiple - size % self.multiple, rest)
        else:
            rest = make_range(size % self.multiple, self.rest, target.arg.kind)
            place, new = as_node(whole + rest), ix.TRUE
        return peel_reductions(sink, target, main, Rest(place, rest, new, self.rest))

    def _sizes(self, target: UOp, sink: UOp) -> tuple[Size, Size]:
        """Of the range, and of its part that ends at a multiple."""
        number, kind, multiple = self.range, target.arg.kind, self.multiple
        if kind not in ("reduce", BLOCK_KIND):
            raise IllegalMove(f"cannot peel range {number}: it is {kind}")
        if self.rest <= max(numbers(sink)):
            raise IllegalMove(f"cannot peel range {number}: number {self.rest} is taken")
        if any(target in n.src[2:] for n in toposort((sink,)) if n.op is ops.ATTEND_LOOP):
            raise IllegalMove(f"cannot peel range {number}: its steps share their weights")
        size = as_size(target.src[0])
        if multiple < 2 or divisor(size) % multiple == 0:
            raise IllegalMove(f"cannot peel range {number}: {multiple} divides it")
        if bounds(size)[0 if self.overlap else 1] < multiple:
            raise IllegalMove(f"cannot peel range {number}: it may be shorter than {multiple}")
        return size, size // multiple * multiple


@dataclass(frozen=True)
class Overlap(Move):
    """for r in 0..n  ->  for outer in 0..ceil(n / factor): for inner in 0..factor,
    r = min(outer*factor, n - factor) + inner.

    The last block ends where the range does: so blocks need no end of their own, and what is
    consecutive stays so. Those of its steps that were done before give the neutral element of a
    reduction; of an output range they are computed and stored again, maybe by another workgroup, so
    nothing that is stored may be read: for devices whose vectors begin at any element, without
    threads in a workgroup. The outer range gets number `outer`, the inner one `outer` + 1; both
    must be unused.
    """

    factor: int
    outer: int

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        target = find(sink, self.range)
        size, kind = as_size(target.src[0]), target.arg.kind
        why = self._refused(sink, target) or (_writes_once(sink, caps) if kind == "loop" else "")
        if why:
            raise IllegalMove(f"cannot overlap blocks of range {self.range}: {why}")
        outer = make_range(-(-size // self.factor), self.outer, kind)
        inner = make_range(self.factor, self.outer + 1, kind)
        start = as_node(ix.minimum(as_node(outer * self.factor), as_node(size - self.factor)))
        place = as_node(start + inner)
        pieces = tuple(r for r in (outer, inner) if r.op is ops.RANGE)
        if kind == "loop":
            return replace_ranges(sink, {target: (place, pieces)})
        return mask_reductions(sink, target, (place, pieces), ix.le(outer * self.factor, place))

    def _refused(self, sink: UOp, target: UOp) -> str:
        size = target.src[0]
        if target.arg.kind not in ("loop", "reduce"):
            return f"it is {target.arg.kind}"
        if self.outer <= max(numbers(sink)):
            return f"number {self.outer} is taken"
        if self.factor < 2 or divisor(size) % self.factor == 0:
            return f"{self.factor} divides it"
        if bounds(size)[0] < self.factor:
            return f"it may be shorter than {self.factor}"
        return ""


def _writes_once(sink: UOp, caps: Caps) -> str:
    """Why what a kernel stores may not be computed and stored again."""
    if caps.threads > 1 or not caps.unaligned:
        return "the device has threads, or vectors that must be aligned"
    stored = {store.src[0].arg.slot for store in sink.src}
    loads = (n for n in toposort((sink,)) if n.op is ops.LOAD and n.src[0].op is ops.PARAM)
    return "what is stored is read" if any(n.src[0].arg.slot in stored for n in loads) else ""


@dataclass(frozen=True)
class Fill(Move):
    """for r in 0..n  ->  for r in 0..ceil(n / multiple)*multiple, into the padding of what is
    written or read.

    An output range along which the stored tensors are contiguous and rounded up in memory: zeros
    are stored in the padding. A summed range along which the data is contiguous and rounded up: the
    zeros that were stored there are summed too. The range keeps its number.
    """

    multiple: int

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        target = find(sink, self.range)
        number, kind = target.arg.number, target.arg.kind
        _open(target, "fill")
        size = target.src[0]
        if size.op is not ops.CONST or size.arg % self.multiple == 0:
            raise IllegalMove(f"cannot fill range {self.range}: {self.multiple} divides it")
        count = -(-size.arg // self.multiple) * self.multiple
        filled = make_range(count, number, kind)
        loads = [n for n in toposort((sink,)) if n.op is ops.LOAD and target in n.ranges]
        if any(n.src[0].op is not ops.PARAM for n in loads):
            raise IllegalMove(f"cannot fill range {self.range}: what is read along it is staged")
        if kind in REDUCE_KINDS:
            self._check_sum(sink, target, loads)
            return replace_ranges(sink, {target: (filled, (filled,))})
        # what is known of a row has no such range
        stores = [self._filled(s, target, filled) if target in s.ranges else s for s in sink.src]
        return sink.replace(tuple(stores))

    def _filled(self, store: UOp, target: UOp, filled: UOp) -> UOp:
        """The store over the longer range."""
        size = as_size(target.src[0])
        if store.arg:
            raise IllegalMove(f"cannot fill range {self.range}: the store is guarded")
        if not is_padded(store.src[0], store.src[2], target, self.multiple):
            raise IllegalMove(
                f"cannot fill range {self.range}: what is stored has no padding there"
            )
        loads = [n for n in toposort((store,)) if n.op is ops.LOAD and target in n.ranges]
        exact = all(
            not any(target in source.ranges for source in n.src[2:])
            and (
                is_padded(n.src[0], n.src[1], target, self.multiple)
                or _stays_within(n, {target: filled})
            )
            for n in loads
        )
        inside = filled if exact else as_node(ix.minimum(filled, size - 1))
        (value,) = rewrite((store.src[1],), {target: inside})
        (address,) = rewrite((store.src[2],), {target: filled})
        return store.replace((store.src[0], _or_zero(ix.lt(filled, size), value), address))

    def _check_sum(self, sink: UOp, target: UOp, loads: list[UOp]) -> None:
        why = f"cannot fill range {self.range}:"
        reductions = [
            n for n in toposort((sink,)) if n.op is ops.REDUCE_LOOP and target in n.src[1:]
        ]
        if any(f.arg is not ops.ADD or f.src[0].op is not ops.MUL for f in reductions):
            raise IllegalMove(f"{why} it is not a sum of products")
        if len(loads) != 2 or any(n.arg and target in n.src[2].ranges for n in loads):
            raise IllegalMove(f"{why} not both operands are plain loads")
        zeros = [n for n in loads if is_padded(n.src[0], n.src[1], target, self.multiple)]
        zeros = [n for n in zeros if _inner_size(n.src[0]) == target.src[0].arg]
        others = [n for n in loads if n not in zeros]
        if not zeros:
            raise IllegalMove(f"{why} no operand has zeros there")
        if not all(n.src[0].arg.weight and _rounded_axis(n.src[0], target) for n in others):
            raise IllegalMove(f"{why} the other operand ends there")


def _stays_within(load: UOp, longer: dict[UOp, UOp]) -> bool:
    """Whether all that is read over longer ranges lies in the buffer, wherever it is there."""
    arg = load.src[0].arg
    if arg.is_image:
        return False
    (address,) = rewrite((load.src[1],), longer)
    low, high = bounds(address)
    return low >= 0 and high < bounds(arg.layout.count(arg.shape))[0]


def _inner_size(param: UOp) -> object:
    arg = param.arg
    return arg.shape[arg.layout.order[-1]] if arg.layout.order else None


def _rounded_axis(param: UOp, target: UOp) -> bool:
    """Whether a weight's axis of the range's size is rounded up as well (the last but one axis)."""
    layout = param.arg.layout
    if len(layout.order) < 2 or layout.pads[-2] == 1:
        return False
    return bool(param.arg.shape[layout.order[-2]] == target.src[0].arg)


@dataclass(frozen=True)
class SplitK(Move):
    """each thread: sum over r in 0..n  ->  thread p in 0..parts: s[p] = sum over i in 0..n/parts,
                                                                      r = p*n/parts + i
                                            all threads: the sum of s[p]

    A long sum with few results is divided among threads, each of which has a run of its steps; what
    they have goes through the workgroup's memory. (Among workgroups it is two launches, which is
    decided before there are kernels: `schedule/long_reductions`.) The range over threads gets
    number `outer`, that over the steps of one `outer` + 1; both must be unused.
    """

    parts: int
    outer: int

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        target = find(sink, self.range)
        number, size = self.range, target.src[0]
        if target.arg.kind != "reduce" or size.op is not ops.CONST:
            raise IllegalMove(f"cannot divide range {number}: it is {target.arg.kind}, of {size!r}")
        if self.parts < 2 or size.arg % self.parts or size.arg == self.parts:
            raise IllegalMove(f"cannot divide range {number}: {size.arg} steps in {self.parts}")
        split = Split(number, size.arg // self.parts, self.outer).moved(sink, caps)
        return To(self.outer, "threads").moved(split, caps)


KINDS: tuple[type[Move], ...] = (
    *(Split, Merge, Reorder, PadTo, Peel, Overlap, Fill, To),
    *(Stage, Weigh, Keep, Block, Partials, SplitK, Extend),
)
MOVES: dict[str, type[Move]] = {kind.__name__.lower(): kind for kind in KINDS}


def from_record(record: Mapping[str, Any]) -> Move:
    """The move of a record. Raises KeyError or TypeError for a bad one."""
    fields = {key: value for key, value in record.items() if key != "move"}
    return MOVES[record["move"]](**fields)


def _or_zero(real: UOp, value: UOp) -> UOp:
    """A value, or 0 where it is none: chosen before it is made narrow, as vectors of few bits are
    of memory alone.
    """
    if value.op is ops.CAST and value.dtype.kind in "iu" and value.dtype.bits < 32:
        return simplify(value.replace((_or_zero(real, value.src[0]),)))
    return simplify(UOp(ops.WHERE, value.dtype, (real, value, const(0, value.dtype))))
