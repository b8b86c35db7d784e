"""Copies in registers, vectors and threads: ranges of those kinds are replaced by what they stand
for.

Hash-consing makes register blocking a matter of common subexpressions: copies that do not depend on
a range are one node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.lower.attend import attended, attended_in_lanes
from tinyedge.core.compiler.lower.copies import at, at_each
from tinyedge.core.compiler.lower.rolled import roll
from tinyedge.core.compiler.lower.stages import fill_stages
from tinyedge.core.compiler.lower.vectors import Vectorizer, extract
from tinyedge.core.compiler.optimize.move import ranges as kernel_ranges
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.polynomial import build, divisor, terms
from tinyedge.core.ir.rewrite import bottom_up, substitute
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import operands, simplified, simplify
from tinyedge.core.ir.spec import BLOCK_KIND
from tinyedge.core.ir.uop import UOp, as_node, const, own_ranges, toposort


def expand(sink: UOp, caps: Caps) -> UOp:
    """A kernel with only serial loops, grid and local ranges left. Loads and stores are flat
    already.
    """
    sink = _one_thread(_unroll(roll(sink) if caps.shares_sizes else sink))
    stores: list[UOp] = []
    for store in sink.src:
        stores.extend(_copies(store))
    sink = UOp(ops.SINK, dt.index, tuple(stores))
    vector = next((r for r in kernel_ranges(sink) if r.arg.kind == "vector"), None)
    if vector is not None:
        sink = UOp(ops.SINK, dt.index, tuple(Vectorizer(vector, caps).run(sink.src)))
    sink = fill_stages(_one_writer(_along_lanes(sink, caps)), caps)
    return _group_loads(sink, caps)


def _one_thread(sink: UOp) -> UOp:
    """All ranges over the threads that share a row are one: what several reductions load of it, and
    what is stored, is then the same value.
    """
    shared = [r for r in kernel_ranges(sink) if r.arg.kind in ("lane", "threads")]
    if len(shared) < 2:
        return sink
    one = min(shared, key=lambda r: (r.arg.kind, r.arg.number))
    return bottom_up((sink,), simplified, dict.fromkeys(shared, one), operands=operands)[sink]


def _one_writer(sink: UOp) -> UOp:
    """Where threads share a reduction and no lane tells their stores apart, the first of them
    stores.
    """
    found = kernel_ranges(sink)
    threads = [r for r in found if r.arg.kind == "threads"]
    if not threads or any(r.arg.kind == "lane" for r in found):
        return sink
    first = ix.lt(threads[0], 1)
    return sink.replace(tuple(access.also_under(first, store) for store in sink.src))


def _unroll(sink: UOp) -> UOp:
    """Reductions over "unroll" ranges run over copies of their body; "threads" ranges become a
    GROUP_REDUCE node.
    """
    return bottom_up((sink,), _unrolled, operands=operands)[sink]


def _unrolled(node: UOp, src: tuple[UOp, ...]) -> UOp:
    if node.op is ops.ATTEND_LOOP and not _in_lanes(node):
        return attended(node.replace(src))
    if node.op is not ops.REDUCE_LOOP:
        return simplified(node, src)
    copied = [r for r in src[1:] if r.arg.kind == "unroll"]
    threads = [r for r in src[1:] if r.arg.kind == "threads"]
    serial = [r for r in src[1:] if r.arg.kind in ("reduce", BLOCK_KIND)]
    serial += [r for r in src[1:] if r.arg.kind == "lanes"]
    total: UOp | None = None
    for copy in at_each(src[0], copied):
        alone = len(copied) == len(src) - 1
        total = copy if total is None else _combined(node, total, copy, alone=alone)
    assert total is not None
    new = _reduced(node, total, serial)
    return UOp(ops.GROUP_REDUCE, node.dtype, (new, *threads), node.arg) if threads else new


def _combined(reduction: UOp, total: UOp, copy: UOp, *, alone: bool) -> UOp:
    """One more copy of a reduction's body. alone: no accumulator will hold the result."""
    product = reduction.arg is ops.ADD and copy.op is ops.MUL and copy.dtype is dt.float32
    if alone and product:
        return UOp(ops.FMA, copy.dtype, (*copy.src, total))
    return simplify(UOp(reduction.arg, copy.dtype, (total, copy)))


def _reduced(reduction: UOp, body: UOp, ranges: Sequence[UOp]) -> UOp:
    """A reduction of a body: over no ranges the body, of zeros 0, for what is computed of their
    sum.
    """
    if not ranges:
        return body
    if reduction.arg is ops.ADD and body.op is ops.CONST and body.arg == 0:
        return const(0, reduction.dtype)
    return UOp(ops.REDUCE_LOOP, reduction.dtype, (body, *ranges), reduction.arg)


def _copies(store: UOp) -> list[UOp]:
    upcast = sorted((r for r in store.ranges if r.arg.kind == "upcast"), key=lambda r: r.arg.number)
    if not upcast:
        return [store]
    return [copy for copy in at_each(store, upcast) if access.guard_of(copy) is not ix.FALSE]


# Reductions along lanes.


def _along_lanes(sink: UOp, caps: Caps) -> UOp:
    """Reductions over "lanes" ranges keep vectors of partial results, and combine their lanes at
    the end.
    """

    def wide(body: UOp, lane: UOp) -> UOp:
        return Vectorizer(lane, caps).wide(body)

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp:
        if node.op is ops.REDUCE_LOOP and _in_lanes(node):
            return _lanes_combined(node.replace(src), caps)
        if node.op is ops.ATTEND_LOOP:
            width = min(caps.vector, node.src[-1].src[0].arg)
            return attended_in_lanes(node.replace(src), width, wide)
        return _joined(simplified(node, src))

    return bottom_up((sink,), change, operands=operands)[sink] if _has_lanes(sink) else sink


def _has_lanes(sink: UOp) -> bool:
    return any(r.arg.kind == "lanes" for r in kernel_ranges(sink))


def _in_lanes(reduction: UOp) -> bool:
    """Whether a reduction runs along the lanes of vectors, with its last range."""
    return any(r.arg.kind == "lanes" for r in own_ranges(reduction))


def _lanes_combined(reduction: UOp, caps: Caps) -> UOp:
    """One vector of partial results for each whole vector of the range, which is the last."""
    body, *serial, along = reduction.src
    count = int(along.src[0].arg)
    width = min(count, caps.vector)
    lane = UOp(ops.RANGE, dt.index, (as_node(width),), along.arg)
    vectors = Vectorizer(lane, caps)
    parts = []
    for first in range(0, count, width):
        wide = vectors.wide(at(body, {along: as_node(lane + first)}))
        loop = UOp(ops.REDUCE_LOOP, wide.dtype, (wide, *serial), reduction.arg)
        parts.append(loop if serial else wide)
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [UOp(reduction.arg, p[0].dtype, tuple(p)) if len(p) > 1 else p[0] for p in pairs]
    return UOp(ops.REDUCE_LANES, reduction.dtype, (parts[0],), reduction.arg)


def _joined(node: UOp) -> UOp:
    """What combines two reductions along lanes combines their vectors first."""
    if len(node.src) != 2 or any(s.op is not ops.REDUCE_LANES for s in node.src):
        return node
    vectors = tuple(s.src[0] for s in node.src)
    if any(s.arg is not node.op for s in node.src) or vectors[0].dtype is not vectors[1].dtype:
        return node
    return UOp(ops.REDUCE_LANES, node.dtype, (UOp(node.op, vectors[0].dtype, vectors),), node.op)


# Loads.


def _group_loads(sink: UOp, caps: Caps) -> UOp:
    """Scalar loads at consecutive addresses become lanes of one vector load."""
    width = caps.vector
    if width < 2 or caps.scalar_operands:
        return sink
    groups: dict[tuple[UOp, ...], dict[int, UOp]] = {}
    for node in toposort((sink,)):
        whole = node.dtype.bits == 32 or node.dtype is dt.float16
        if node.op is ops.LOAD and node.dtype.lanes == 1 and whole:
            rest = dict(terms(node.src[1]))
            offset = rest.pop((), 0)
            key = (node.src[0], build(rest), *node.src[2:])
            groups.setdefault(key, {})[offset] = node
    mapping: dict[UOp, UOp] = {}
    for key, members in groups.items():
        if caps.unaligned or divisor(key[1]) % width == 0:
            mapping.update(_vector_loads(key, members, width, aligned=not caps.unaligned))
    return substitute((sink,), mapping)[0] if mapping else sink


def _vector_loads(
    key: tuple[UOp, ...], members: dict[int, UOp], width: int, *, aligned: bool
) -> dict[UOp, UOp]:
    mapping: dict[UOp, UOp] = {}
    taken: set[int] = set()
    for start in sorted(members):
        if start in taken or (aligned and start % width):
            continue
        lanes = [members.get(start + i) for i in range(width)]
        if any(lane is None for lane in lanes):
            continue
        address = as_node(key[1] + start)
        first = members[start]
        wide = UOp(ops.LOAD, first.dtype.vector(width), (key[0], address, *key[2:]), first.arg)
        for i, lane in enumerate(lanes):
            assert lane is not None
            mapping[lane] = UOp(ops.LANE, first.dtype, (wide,), i)
            taken.add(start + i)
    return mapping


def one_type_per_buffer(sink: UOp, caps: Caps) -> UOp:
    """Buffers of vectors, addressed in vectors, where every access is one.

    The others are buffers of scalars; where a buffer has one element type, so are the accesses.
    """
    accesses: dict[UOp, list[UOp]] = {}
    for node in toposort((sink,)):
        if node.op in access.ACCESSES and not access.is_image(node):
            accesses.setdefault(access.memory_of(node), []).append(node)
    lanes = {param: {_width(n) for n in nodes} for param, nodes in accesses.items()}

    def typed(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.FILLED:
            return _filled(node, src)
        if node.op not in access.ACCESSES or access.memory_of(node) not in lanes:
            return None
        memory = access.memory_of(node)
        widths = lanes[memory]
        if len(widths) == 1 and widths != {1}:
            return _in_vectors(node.replace(src), next(iter(widths)))
        if _width(node) > 1 and (caps.typed_buffers or memory.op is ops.SHARED):
            return _in_scalars(node.replace(src))
        return None

    sink = bottom_up((sink,), typed)[sink]
    if not caps.typed_buffers:
        return sink
    stores: list[UOp] = []
    for store in sink.src:
        stores.extend(_flat_stores(store))
    return UOp(ops.SINK, dt.index, tuple(stores))


def _width(node: UOp) -> int:
    return node.dtype.lanes if node.op is ops.LOAD else node.src[1].dtype.lanes


def _in_vectors(node: UOp, width: int) -> UOp:
    param = node.src[0]
    if param.op is ops.PARAM:
        param = UOp(ops.PARAM, param.dtype.vector(width), (), param.arg)
    elif param.op is ops.SHARED:
        param = _of_vectors(param, width)
    (address,) = access.indices_of(node)
    node = access.at(node, (as_node(address // width),))
    return node.replace((param, *node.src[1:]))


def _of_vectors(memory: UOp, width: int) -> UOp:
    """The workgroup's memory as vectors."""
    arg = replace(memory.arg, length=memory.arg.length // width)
    return UOp(ops.SHARED, memory.dtype.vector(width), (), arg)


def _filled(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """Memory of the type that its stores have by now, in scalars where it is one of scalars."""
    stores = [s for s in src if s.op is ops.STORE]
    memory = stores[0].src[0]
    flat = [each for store in stores for each in _flat_stores(store)]
    return UOp(ops.FILLED, memory.dtype, (memory, *flat, *src[1 + len(stores) :]), node.arg)


def _in_scalars(node: UOp) -> UOp:
    if node.op is ops.STORE:
        return node
    (address,), guard = access.indices_of(node), access.guard_of(node)
    scalars = tuple(
        access.load(node.src[0], (as_node(address + i),), guard, node.dtype.scalar)
        for i in range(node.dtype.lanes)
    )
    return UOp(ops.VECTOR, node.dtype, scalars)


def _flat_stores(store: UOp) -> list[UOp]:
    param, value, address, *_ = store.src
    if value.dtype.lanes == 1 or param.dtype.lanes > 1 or param.dtype.bits == 16:
        return [store]
    guard = access.guard_of(store)
    return [
        access.store(param, extract(value, i), (as_node(address + i),), guard)
        for i in range(value.dtype.lanes)
    ]
