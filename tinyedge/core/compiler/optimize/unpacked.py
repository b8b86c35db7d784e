"""Filters of few bits, unpacked once for all rows of a processor's tiles.

    for rows: for k: w = f(word[k]); acc += x[k] * w    ->    t[k] = f(word[k]) for all k
                                                              for rows: for k: acc += x[k] * t[k]

A vector of the filter takes some operations, for few products in a tile's step: a product of
matrices with integer weights took 2.2 times as long as with floats. Unpacked, the filter of a
tile's columns lies in an array of the thread while all rows of a group are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tinyedge.core.compiler.optimize.distributing import FEW_GROUPS
from tinyedge.core.compiler.optimize.move import find, ranges
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.staging import Stage, whole_value
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import divisor
from tinyedge.core.ir.uop import UOp, consumers, toposort

LEAST_WORK = 3  # operations on an element, from which it is worth an array
LEAST_ROWS = 48  # for which a filter is unpacked at once


@dataclass(frozen=True)
class PackedFilter:
    """A filter of few bits: which argument it is, and an element of it, unpacked."""

    slot: int
    value: UOp


def packed_filter(kernel: MovedKernel) -> PackedFilter | None:
    """The filter of few bits for many rows, where a thread is alone: the one weight that is summed,
    if its elements are computed from what is loaded: at one place, or at several for a word of two.
    Vectors lie along its columns.
    """
    if kernel.caps.threads > 1 or not kernel.caps.scalar_operands:
        return None
    nodes = toposort((kernel.sink,))
    users = consumers(nodes)
    found = []
    for load in nodes:
        if load.op is ops.LOAD and load.src[0].op is ops.PARAM and load.src[0].arg.weight:
            if any(r.arg.kind == "reduce" for r in load.ranges):
                found.append(load)
    lanes = [r for r in ranges(kernel.sink) if r.arg.kind == "vector"]
    values = {whole_value(load, users, lanes) for load in found}
    if len(values) != 1 or any(load.arg for load in found):
        return None
    if len({load.src[0].arg.slot for load in found}) > 1:
        return None
    below, (value,) = set(toposort(found)), values
    work = sum(n.op.elementwise for n in toposort((value,)) if n not in below)
    if work < LEAST_WORK or _rows_of(kernel, value) < LEAST_ROWS:
        return None
    return PackedFilter(found[0].src[0].arg.slot, value)


def _rows_of(kernel: MovedKernel, value: UOp) -> int:
    """Results for which a filter's element is used."""
    own = {r.arg.number for r in value.ranges}
    kept = [*kernel.left("loop"), *kernel.left("upcast"), *kernel.left("vector")]
    return prod(kernel.extent(n) for n in kept if n not in own)


def most_vectors(kernel: MovedKernel, packed: PackedFilter, vectors: int) -> int:
    """The widest tile, in vectors of columns that divide those there are, whose filter fits the
    thread's memory; 0: none does.
    """
    reduced = [r for r in packed.value.ranges if r.arg.kind == "reduce"]
    if any(r.src[0].op is not ops.CONST for r in reduced):
        return 0
    held = prod(int(r.src[0].arg) for r in reduced) * kernel.caps.vector * 4
    fits = (d for d in range(1, vectors + 1) if vectors % d == 0 and d * held <= kernel.caps.room)
    return max(fits, default=0)


def unpack_filter(kernel: MovedKernel, packed: PackedFilter) -> list[int]:
    """Keep the filter of a tile's columns, with the loops over rows inside. Gives the numbers of
    these loops; none if it is not kept.
    """
    sink = kernel.sink
    rows = [n for n in kernel.left("loop") if find(sink, n) not in packed.value.ranges]
    kinds = ("reduce", "upcast", "vector")
    own = [r for r in ranges(sink) if r in packed.value.ranges and r.arg.kind in kinds]
    along = [r.arg.number for kind in kinds for r in own if r.arg.kind == kind]
    if not rows or not kernel.attempt(
        Stage(kernel.unused(), packed.slot, tuple(along), whole=True)
    ):
        return []
    return _shared_rows(kernel, rows, packed.value)


def _shared_rows(kernel: MovedKernel, rows: list[int], value: UOp) -> list[int]:
    """The loops over rows that stay within a group, so that there are groups for many threads."""
    own = {r.arg.number for r in value.ranges}
    tile = prod(kernel.extent(n) for n in kernel.left("upcast") if n not in own)
    groups = prod(kernel.extent(n) for n in kernel.left("loop") if n not in rows)
    longest = max(rows, key=kernel.extent)
    others = prod(kernel.extent(n) for n in rows if n != longest)
    size = divisor(kernel.size(longest))
    fits = [d for d in range(2, size + 1) if size % d == 0 and d * others * tile >= LEAST_ROWS]
    many = [d for d in fits if groups * (size // d) >= FEW_GROUPS]
    inner = max(many) if many else min(fits, default=0)
    if not inner or kernel.is_exactly(longest, inner):
        return rows
    _, last = kernel.split(longest, inner)
    return [*(n for n in rows if n != longest), last]
