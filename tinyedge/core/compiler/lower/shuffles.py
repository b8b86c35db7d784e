"""Vectors of single loads become lanes of whole ones.

Along the width of an image a window's first and last columns are beside the image, and with a
stride every other element is left out: such vectors are written lane by lane. Where what lies
between the first and the last element that a kernel reads holds all lanes, one or two vectors are
loaded in their place, from which the lanes are permuted.

    (0, p[0], p[1], p[2])     (0, v[0], v[1], v[2])             v = p[0..3]
    (p[0], p[2], p[4], p[6])  (v[0], v[2], w[0], w[2])          v = p[0..3], w = p[4..7]
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.polynomial import build, terms
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.uop import UOp, as_node, toposort

SOURCES = 2  # vectors that one instruction permutes; zeros are of one as well

Key = tuple[UOp, UOp]  # a memory, and a place in it but for its constant
Offsets = tuple[int | None, ...]  # of each lane, where it is from that place; None: a zero


@dataclass
class _Row:
    """What a kernel reads at places that differ by constants alone, without a condition."""

    first: int
    end: int
    wide: dict[int, UOp] = field(default_factory=dict)  # vectors that it loads, by their first
    made: dict[UOp, Offsets] = field(default_factory=dict)  # vectors of single loads

    def add(self, load: UOp, offset: int) -> None:
        self.first = min(self.first, offset)
        self.end = max(self.end, offset + load.dtype.lanes)


def permute_loads(sink: UOp, caps: Caps) -> UOp:
    """A kernel of flat accesses in which no vector is made of single loads that lie near each
    other, on devices whose vectors lie anywhere.
    """
    if caps.vector < 2 or not caps.unaligned:
        return sink
    rows: dict[Key, _Row] = {}
    nodes = toposort((sink,))
    for node in nodes:
        if node.op is ops.LOAD and not node.arg and node.dtype.bits == 32:
            key, offset = _place(node)
            row = rows.setdefault(key, _Row(offset, offset))
            row.add(node, offset)
            if node.dtype.lanes > 1:
                row.wide[offset] = node
    for node in nodes:
        found = _offsets(node)
        if found is not None:
            key, offsets = found
            rows[key].made[node] = offsets
    mapping: dict[UOp, UOp] = {}
    for key, row in rows.items():
        mapping.update(_permuted(key, row))
    return substitute((sink,), mapping)[0] if mapping else sink


def _place(load: UOp) -> tuple[Key, int]:
    rest = dict(terms(load.src[1]))
    offset = rest.pop((), 0)
    return (load.src[0], as_node(build(rest))), offset


def _offsets(node: UOp) -> tuple[Key, Offsets] | None:
    """Where the lanes of a vector of single loads are, if all are loads of one row, or zeros;
    None for other nodes.
    """
    if node.op is not ops.VECTOR or len(node.src) < 2 or node.dtype.bits != 32:
        return None
    keys: set[Key] = set()
    offsets: list[int | None] = []
    for lane in node.src:
        if lane.op is ops.CONST and lane.arg == 0:
            offsets.append(None)
        elif lane.op is ops.LOAD and not lane.arg:
            key, offset = _place(lane)
            keys.add(key)
            offsets.append(offset)
        else:
            return None
    return (keys.pop(), tuple(offsets)) if len(keys) == 1 else None


def _permuted(key: Key, row: _Row) -> dict[UOp, UOp]:
    """The vectors of a row's single loads as lanes of others. Those with zeros take them from
    one vector, which may be one of those without.
    """
    mapping: dict[UOp, UOp] = {}
    whole: dict[UOp, Offsets] = {}
    for node, offsets in sorted(row.made.items(), key=lambda item: None in item[1]):
        zeros = None in offsets
        sources = _sources(key, row, node, offsets, SOURCES - zeros)
        if sources is None and zeros:
            sources = tuple(s for s in whole.items() if _holds(s, node, offsets))[:1] or None
        if sources is None:
            continue
        mapping[node] = new = _lanes_of(node, offsets, dict(sources))
        if not zeros:
            whole[new] = offsets
    return mapping


def _holds(source: tuple[UOp, Offsets], node: UOp, offsets: Offsets) -> bool:
    """Whether a vector of the same type has all lanes of another that are not zeros."""
    same = source[0].dtype is node.dtype
    return same and {o for o in offsets if o is not None} <= set(source[1])


def _sources(
    key: Key, row: _Row, node: UOp, offsets: Offsets, most: int
) -> tuple[tuple[UOp, Offsets], ...] | None:
    """At most so many vectors of which a vector has its lanes, within what the row reads."""
    places = [o for o in offsets if o is not None]
    count, first, end = node.dtype.lanes, min(places), max(places) + 1
    if end - first > most * count or row.end - row.first < count:
        return None
    starts = _starts(row, first, end, count, node)
    if len(starts) > most:
        last = row.end - count
        starts = [min(start, last) for start in range(first, end, count)]
    return tuple((_load(key, node, start), tuple(range(start, start + count))) for start in starts)


def _starts(row: _Row, first: int, end: int, count: int, node: UOp) -> list[int]:
    """Where vectors start that hold what lies between: one that is loaded anyway, else those of the
    row's own division into vectors, which others share.
    """
    for start, load in sorted(row.wide.items()):
        if start <= first and end <= start + count and load.dtype is node.dtype:
            return [start]
    last = row.end - count
    before = (first - row.first) // count * count + row.first
    return [min(start, last) for start in range(before, end, count)]


def _load(key: Key, node: UOp, start: int) -> UOp:
    return access.load(key[0], (as_node(key[1] + start),), dtype=node.dtype)


def _lanes_of(node: UOp, offsets: Offsets, sources: dict[UOp, Offsets]) -> UOp:
    """The vector with its loads taken from the sources."""
    where = {o: (source, i) for source, places in sources.items() for i, o in enumerate(places)}
    lanes = []
    for lane, offset in zip(node.src, offsets, strict=True):
        if offset is None:
            lanes.append(lane)
        else:
            source, i = where[offset]
            lanes.append(UOp(ops.LANE, lane.dtype, (source,), i))
    return UOp(ops.VECTOR, node.dtype, tuple(lanes))
