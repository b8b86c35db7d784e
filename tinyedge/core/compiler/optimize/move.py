"""What a schedule move is, and what all of them ask of a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import prod
from typing import Any

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.schedule.canonical import Changes
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import build, divisor, terms
from tinyedge.core.ir.spec import STAGE_KIND, stage_fault, staged_bytes
from tinyedge.core.ir.uop import UOp, toposort

REDUCED_BYTES = 16  # of workgroup memory that a thread needs for a reduction over threads


class IllegalMove(Exception):
    """A move whose precondition does not hold; the text says which."""


@dataclass(frozen=True)
class Move:
    """range: the number of the range that the move changes."""

    range: int

    def apply(self, sink: UOp, caps: Caps) -> UOp:
        """The kernel after the move. Raises IllegalMove."""
        moved = self.moved(sink, caps)
        if wrong := _stage_faults(moved, caps):
            raise IllegalMove(f"cannot {self.record()['move']} range {self.range}: {wrong}")
        return moved

    def moved(self, sink: UOp, caps: Caps) -> UOp:
        """The kernel after the move, whose stages may be wrong or too large. Raises IllegalMove."""
        raise NotImplementedError

    def renames(self, found: Sequence[UOp], caps: Caps, *, allowed: bool = False) -> Changes | None:
        """What becomes of a kernel's ranges, which are `found`, where the move does nothing else;
        None: it does more, or depends on more. Raises IllegalMove. allowed: the kernel is known to
        allow it.
        """
        return None

    def record(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {"move": type(self).__name__.lower(), **asdict(self)}


def _stage_faults(sink: UOp, caps: Caps) -> str:
    """Why a kernel's stages cannot be filled; "" if they can."""
    found = ranges(sink)
    if not any(r.arg.kind == STAGE_KIND for r in found):
        return ""
    stages = [node for node in toposort((sink,)) if node.op is ops.STAGE]
    reduced = 0
    if any(r.arg.kind == "threads" for r in found):
        reduced = REDUCED_BYTES * threads_of(sink)
    taken = staged_bytes(sink, 0 if caps.threads > 1 else caps.vector) + reduced
    if taken > caps.room:
        return f"its stages take {taken} bytes of {caps.room}"
    return next(filter(None, map(stage_fault, stages)), "")


def find(sink: UOp, number: int) -> UOp:
    """The range with a number. Raises IllegalMove."""
    return find_among(ranges(sink), number)


def find_among(found: Sequence[UOp], number: int) -> UOp:
    """The range with a number, of those of a kernel. Raises IllegalMove."""
    for r in found:
        if r.arg.number == number:
            return r
    raise IllegalMove(f"there is no range {number}")


@lru_cache(2)  # moves ask again and again
def ranges(sink: UOp) -> tuple[UOp, ...]:
    """The kernel's ranges by number."""
    return in_order(node for node in toposort((sink,)) if node.op is ops.RANGE)


def in_order(found: Iterable[UOp]) -> tuple[UOp, ...]:
    """Ranges by number."""
    return tuple(sorted(found, key=lambda r: r.arg.number))


def threads_of(sink: UOp) -> int:
    """The threads of a workgroup: local ranges multiply them, all others are the same threads."""
    found = ranges(sink)
    local = prod(int(r.src[0].arg) for r in found if r.arg.kind == "local")
    return local * next((int(r.src[0].arg) for r in found if r.arg.kind in ("lane", "threads")), 1)


def numbers(sink: UOp) -> list[int]:
    return [r.arg.number for r in ranges(sink)] or [-1]


def vector_width(node: UOp, caps: Caps) -> bool:
    """Whether a value can be a vector. Elements that only move in vectors are loaded, converted and
    stored.
    """
    if node.op is ops.PARAM or node.dtype is dt.index:
        return True
    computed = all(caps.vectors(source.dtype) != "memory" for source in node.src)
    if node.dtype is dt.bool_:
        return computed
    if caps.vectors(node.dtype) == "memory":
        return node.op is ops.LOAD or (node.op is ops.CAST and computed)
    return caps.vectors(node.dtype) == "all"


def is_padded(param: UOp, address: UOp, target: UOp, multiple: int) -> bool:
    """Whether the range runs along the innermost axis, rounded up to a multiple in memory, a whole
    number of steps before it.
    """
    if param.op is not ops.PARAM or not param.arg.layout.pads:
        return False
    if param.arg.layout.pads[-1] % multiple:
        return False
    rest = dict(terms(address))
    if rest.pop((target,), 0) != 1 or any(target in a.ranges for m in rest for a in m):
        return False
    return divisor(build(rest)) % multiple == 0
