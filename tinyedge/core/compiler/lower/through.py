"""What a thread keeps of a row is summed as it is stored, in one loop.

    for i in 0..n: t[i] = f(i)            for k in 0..n: v = f(k); t[k] = v; s += v
    for k in 0..n: s += t[k]        ->

Where the second loop takes some vectors in a step and leaves a few over, these are stored before.
What is only copied to an argument after that is stored there from the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.lower.linear import INLINE
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.lowered import Linear
from tinyedge.core.ir.polynomial import terms
from tinyedge.core.ir.rewrite import bottom_up, substitute
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import UOp, as_node, const, toposort

EFFECTS = (ops.STORE, ops.SET, ops.BEGIN, ops.END, ops.BARRIER, ops.GROUP_REDUCE)


@dataclass(frozen=True)
class _Loop:
    """The statements of a loop: from its BEGIN, at `first`, to its END."""

    first: int
    body: Sequence[UOp]
    r: UOp

    @property
    def after(self) -> int:
        return self.first + len(self.body) + 2

    @property
    def steps(self) -> int:
        return int(self.r.src[0].arg)


def store_through(linear: Linear) -> Linear:
    """The statements with every loop that fills memory in the next one, if that reads it so."""
    position = 0
    while (fill := _loop(linear.statements, position)) is not None:
        position = fill.after
        sums = _loop(linear.statements, position) if _is_fill(fill) else None
        if sums is None or any(n.op in EFFECTS for n in linear.statements[position : sums.first]):
            continue
        loads = _loads(linear, fill, sums)
        if loads:
            between = linear.statements[position : sums.first]
            new = [*_rest(fill, len(loads) * sums.steps), *between, *_joined(fill, sums, loads)]
            linear.statements[fill.first : sums.after] = new
            position = fill.first + len(new)
    return _written_out(linear)


def _loop(statements: Sequence[UOp], start: int) -> _Loop | None:
    """The first loop from a statement on that has no other one within, of a known length."""
    first = None
    for i in range(start, len(statements)):
        if statements[i].op is ops.BEGIN:
            first = i
        elif statements[i].op is ops.END and first is not None:
            r = statements[i].src[0]
            if r.src[0].op is ops.CONST:
                return _Loop(first, statements[first + 1 : i], r)
            first = None
    return None


def _is_fill(loop: _Loop) -> bool:
    """Whether all that a loop does is to store one vector after the other in a thread's memory."""
    *values, store = loop.body
    if store.op is not ops.STORE or any(node.op in EFFECTS for node in values):
        return False
    memory, value, place = store.src[:3]
    along = {(loop.r,): value.dtype.lanes}
    guarded = access.guard_of(store) is not ix.TRUE
    return memory.op is ops.SHARED and not guarded and dict(terms(place)) == along


def _loads(linear: Linear, fill: _Loop, sums: _Loop) -> list[UOp]:
    """The loads by which a loop reads what another one fills, in order, where it reads all of it
    that its steps reach, and where what uses them has no other name.
    """
    memory, value = fill.body[-1].src[:2]
    if any(node.op in (ops.STORE, ops.BARRIER) for node in sums.body):
        return []
    nodes = toposort(sums.body)
    found = {n for n in nodes if n.op is ops.LOAD and n.src[0] is memory}
    if any(not found.isdisjoint(toposort((n,))) for n in nodes if n in linear.values):
        return []
    width, count = value.dtype.lanes, len(found)
    placed = {tuple(sorted(terms(n.src[1]).items(), key=str)): n for n in found}
    loads = []
    for i in range(count):
        wanted: dict[tuple[UOp, ...], int] = {(sums.r,): width * count}
        if i:
            wanted[()] = width * i
        load = placed.get(tuple(sorted(wanted.items(), key=str)))
        if load is None or load.dtype is not value.dtype:
            return []
        loads.append(load)
    return loads if count * sums.steps <= fill.steps else []


def _rest(fill: _Loop, done: int) -> list[UOp]:
    """What is stored of steps that are not done elsewhere."""
    left = fill.steps - done
    if left == 0:
        return []
    if left == 1:
        return _at(fill, {fill.r: const(done, dt.index)}, fill.body)
    r = fill.r.replace((const(left, dt.index),))
    place = UOp(ops.ADD, dt.index, (r, const(done, dt.index)))
    begin, end = (UOp(op, dt.index, (r,)) for op in (ops.BEGIN, ops.END))
    return [begin, *_at(fill, {fill.r: place}, fill.body), end]


def _at(fill: _Loop, places: dict[UOp, UOp], nodes: Sequence[UOp]) -> list[UOp]:
    return [node for node in substitute(tuple(nodes), places) if node.op not in INLINE]


def _joined(fill: _Loop, sums: _Loop, loads: Sequence[UOp]) -> list[UOp]:
    """A loop in whose steps each vector is stored before it is used."""
    value, place = fill.body[-1].src[1:3]
    stored: dict[UOp, UOp] = {}
    statements = [UOp(ops.BEGIN, dt.index, (sums.r,))]
    for node in sums.body:
        below = set(toposort((node,)))
        for i, load in enumerate(loads):
            if load not in below or load in stored:
                continue
            step = UOp(ops.MUL, dt.index, (sums.r, const(len(loads), dt.index)))
            step = UOp(ops.ADD, dt.index, (step, const(i, dt.index))) if i else step
            *values, store = _at(fill, {place: load.src[1], fill.r: step}, fill.body)
            stored[load] = store.src[1]
            named = [*values, store.src[1]] if value not in fill.body else values
            statements += [*(n for n in named if n not in statements), store]
        (node,) = substitute((node,), stored)
        if node not in statements:
            statements.append(node)
    return [*statements, UOp(ops.END, dt.index, (sums.r,))]


def _written_out(linear: Linear) -> Linear:
    """The statements with what is only copied from memory to an argument stored there at once."""
    position = 0
    while (loop := _loop(linear.statements, position)) is not None:
        position = loop.after
        found = _copied(loop)
        if found is None:
            continue
        memory, param, base = found
        rest = [*linear.statements[: loop.first], *linear.statements[loop.after :]]
        inside = {node.src[0] for node in rest if node.op is ops.BEGIN}
        if param in toposort((*rest, *linear.values)) or not base.ranges.isdisjoint(inside):
            continue
        linear = _moved(Linear(rest, linear.values), memory, param, base)
        position = loop.first
    return linear


def _copied(loop: _Loop) -> tuple[UOp, UOp, UOp] | None:
    """The memory that a loop copies whole, the argument that it is copied to, and where."""
    *values, store = loop.body
    if store.op is not ops.STORE or any(node.op in EFFECTS for node in values):
        return None
    param, value, place = store.src[:3]
    if value.op is not ops.LOAD or value.arg or store.arg or param.op is not ops.PARAM:
        return None
    memory, start = value.src
    width = value.dtype.lanes
    whole = memory.op is ops.SHARED and memory.arg.length == loop.steps * width
    base = as_node(place - start)
    if not whole or param.dtype is not memory.dtype or loop.r in base.ranges:
        return None
    return (memory, param, base) if dict(terms(start)) == {(loop.r,): width} else None


def _moved(linear: Linear, memory: UOp, param: UOp, base: UOp) -> Linear:
    """The statements with a part of an argument in the place of memory."""

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op not in access.ACCESSES or node.src[0] is not memory:
            return None
        new = access.at(node.replace(src), (as_node(access.indices_of(node)[0] + base),))
        return new.replace((param, *new.src[1:]))

    done = bottom_up((*linear.statements, *linear.values), change)
    values = {done[key]: done[value] for key, value in linear.values.items()}
    return Linear([done[node] for node in linear.statements], values)
