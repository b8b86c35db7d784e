"""Schedule moves: small records that change how a kernel's ranges run, never what it computes.

A kernel is a SINK of stores over ranges. A range has a kind: "loop" (an output range, serial), "reduce" (a
fold's, serial), and what moves make of them: "grid" (workgroups), "local" (threads of a workgroup), "upcast"
(copies in registers), "vector" (lanes of a vector), "unroll" (copies of a fold's body), "threads" (a fold's
range given to threads, combined through workgroup memory). Ranges are named by number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tinyedge.core import dtype as dt
from tinyedge.core import ops
from tinyedge.core.caps import Caps
from tinyedge.core.rules import index as ix
from tinyedge.core.rules.algebra import SIMPLIFY
from tinyedge.core.uop import UOp, as_node, const, toposort

OUTPUT_KINDS = ("loop", "grid", "local", "upcast", "vector")
REDUCE_KINDS = ("reduce", "unroll", "threads")


class IllegalMove(Exception):
    """A move whose precondition does not hold; the text says which."""


@dataclass(frozen=True)
class Move:
    """range: the number of the range that the move changes."""

    range: int

    def apply(self, sink: UOp, caps: Caps) -> UOp:
        """The kernel after the move. Raises IllegalMove."""
        raise NotImplementedError

    def record(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {"move": type(self).__name__.lower(), **asdict(self)}


@dataclass(frozen=True)
class Split(Move):
    """for r in 0..n  ->  for outer in 0..n/factor: for inner in 0..factor, r = outer*factor + inner.

    The outer range gets number `outer`, the inner one `outer` + 1; both must be unused.
    """

    factor: int
    outer: int

    def apply(self, sink: UOp, caps: Caps) -> UOp:
        target = find(sink, self.range)
        size = target.src[0]
        if self.factor < 2 or ix.divisor(size) % self.factor:
            raise IllegalMove(f"cannot split range {self.range}: {self.factor} does not divide it")
        if self.outer <= max(numbers(sink)):
            raise IllegalMove(f"cannot split range {self.range}: number {self.outer} is taken")
        kind = target.arg[1]
        count = ix.floordiv(size, const(self.factor, dt.index))
        outer = _make_range(count, self.outer, kind)
        inner = _make_range(as_node(self.factor), self.outer + 1, kind)
        whole = ix.add(ix.mul(outer, const(self.factor, dt.index)), inner)
        pieces = tuple(r for r in (outer, inner) if r.op is ops.RANGE)
        return replace_ranges(sink, {target: (whole, pieces)})


@dataclass(frozen=True)
class PadTo(Move):
    """for r in 0..n  ->  for r in 0..ceil(n / multiple)*multiple, storing only where r < n.

    An output range: reads use min(r, n - 1). The range keeps its number.
    """

    multiple: int

    def apply(self, sink: UOp, caps: Caps) -> UOp:
        target = find(sink, self.range)
        number, kind = target.arg
        if kind not in OUTPUT_KINDS:
            raise IllegalMove(f"cannot pad range {self.range}: it is reduced")
        size = target.src[0]
        if ix.divisor(size) % self.multiple == 0:
            raise IllegalMove(f"cannot pad range {self.range}: {self.multiple} divides it already")
        step = const(self.multiple, dt.index)
        rounded = ix.mul(ix.floordiv(ix.add(size, ix.sub(step, ix.ONE)), step), step)
        padded = _make_range(rounded, number, kind)
        inside = ix.less(padded, size)
        clamped = ix.minimum(padded, ix.sub(size, ix.ONE))
        guarded = []
        for store in sink.src:
            (new,) = SIMPLIFY.rewrite((store,), {target: clamped})
            guarded.append(guard(inside, new))
        return UOp(ops.SINK, dt.index, tuple(guarded))


@dataclass(frozen=True)
class To(Move):
    """Give a range another kind, as the text of this module lists them."""

    kind: str

    def apply(self, sink: UOp, caps: Caps) -> UOp:
        target = find(sink, self.range)
        number, old = target.arg
        family = OUTPUT_KINDS if old in OUTPUT_KINDS else REDUCE_KINDS
        if self.kind not in family or old not in ("loop", "reduce"):
            raise IllegalMove(f"cannot make range {self.range} {self.kind}: it is {old}")
        self._check(target, sink, caps)
        new = UOp(ops.RANGE, dt.index, target.src, (number, self.kind))
        return replace_ranges(sink, {target: (new, (new,))})

    def _check(self, target: UOp, sink: UOp, caps: Caps) -> None:
        size = target.src[0]
        if self.kind in ("upcast", "vector", "unroll", "local", "threads"):
            if size.op is not ops.CONST:
                raise IllegalMove(f"cannot make range {self.range} {self.kind}: its size is symbolic")
        if self.kind in ("upcast", "unroll") and size.arg > 64:
            raise IllegalMove(f"cannot unroll range {self.range}: {size.arg} copies")
        if self.kind == "vector":
            if size.arg not in (2, 4, 8, 16) or size.arg > caps.vector:
                raise IllegalMove(f"cannot vectorise range {self.range}: {size.arg} lanes")
            if any(r.arg[1] == "vector" for r in ranges(sink)):
                raise IllegalMove(f"cannot vectorise range {self.range}: one is vectorised already")
            if any(n.dtype.bits == 64 or n.dtype.bits == 16 for n in _values(sink)):
                raise IllegalMove(f"cannot vectorise range {self.range}: elements of another width")
        if self.kind == "local":
            total = size.arg
            for other in ranges(sink):
                if other.arg[1] in ("local", "threads"):
                    total *= other.src[0].arg
            if total > caps.threads:
                raise IllegalMove(f"cannot make range {self.range} local: {total} threads")
        if self.kind == "threads":
            self._check_threads(target, sink, caps)

    def _check_threads(self, target: UOp, sink: UOp, caps: Caps) -> None:
        total = target.src[0].arg
        for other in ranges(sink):
            if other.arg[1] in ("local", "threads") and other is not target:
                total *= other.src[0].arg
        if total > caps.threads:
            raise IllegalMove(f"cannot give range {self.range} to threads: {total} threads")
        if total & (total - 1):
            raise IllegalMove(f"cannot give range {self.range} to threads: {total} is no power of 2")


MOVES: dict[str, type[Move]] = {kind.__name__.lower(): kind for kind in (Split, PadTo, To)}


def from_record(record: Mapping[str, Any]) -> Move:
    """The move of a record. Raises KeyError or TypeError for a bad one."""
    fields = {key: value for key, value in record.items() if key != "move"}
    return MOVES[record["move"]](**fields)


def find(sink: UOp, number: int) -> UOp:
    """The range with a number. Raises IllegalMove."""
    for node in ranges(sink):
        if node.arg[0] == number:
            return node
    raise IllegalMove(f"there is no range {number}")


def ranges(sink: UOp) -> list[UOp]:
    """The kernel's ranges by number."""
    found = [node for node in toposort((sink,)) if node.op is ops.RANGE]
    return sorted(found, key=lambda r: r.arg[0])


def numbers(sink: UOp) -> list[int]:
    return [r.arg[0] for r in ranges(sink)] or [-1]


def guard(condition: UOp, store: UOp) -> UOp:
    """The store under a condition; nested guards become one."""
    if store.op is ops.GUARD:
        return UOp(ops.GUARD, dt.index, (ix.both(condition, store.src[0]), store.src[1]))
    return store if condition is ix.TRUE else UOp(ops.GUARD, dt.index, (condition, store))


def replace_ranges(sink: UOp, changes: Mapping[UOp, tuple[UOp, tuple[UOp, ...]]]) -> UOp:
    """Each range replaced by an expression; folds over it fold over the new ranges instead."""
    renamed: dict[UOp, UOp] = {}
    for node in toposort((sink,)):
        src = tuple(renamed.get(s, s) for s in node.src)
        if node.op is ops.FOLD and any(r in changes for r in node.src[1:]):
            folded: list[UOp] = []
            for r in node.src[1:]:
                folded.extend(changes[r][1] if r in changes else (r,))
            src = (src[0], *folded)
        if src != node.src:
            renamed[node] = UOp(node.op, node.dtype, src, node.arg)
    mapping = {old: new for old, (new, _) in changes.items()}
    return SIMPLIFY.rewrite((renamed.get(sink, sink),), mapping)[0]


def _make_range(size: UOp, number: int, kind: str) -> UOp:
    if size.op is ops.CONST and size.arg == 1:
        return ix.ZERO
    return UOp(ops.RANGE, dt.index, (size,), (number, kind))


def _values(sink: UOp) -> list[UOp]:
    return [n for n in toposort((sink,)) if n.dtype not in (dt.index, dt.bool_) and n.op is not ops.PARAM]
