"""Workgroup memory that is filled for the next step of a loop while this step's is used.

    for k in 0..n:                 v = x[f(0)]; t[0] = v; barrier
      v = x[f(k)]                  for k in 0..n:
      barrier                        v = x[f(k + 1)]
      t = v             ->           .. t[k % 2] ..
      barrier                        t[(k + 1) % 2] = v
      .. t ..                        barrier

The memory has two halves, of which each step uses one. So a step has one barrier, and what it loads
from memory is on the way while it computes. The last step loads its own again: nobody uses that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.lower.linear import BARRIER, INLINE
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.lowered import Linear, workgroup_buffers
from tinyedge.core.ir.rewrite import bottom_up, substitute
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import UOp, as_node, const, toposort

EFFECTS = (ops.STORE, ops.SET, ops.ACCUMULATOR, ops.BEGIN, ops.END, ops.GROUP_REDUCE)


@dataclass(frozen=True)
class _Step:
    """The parts of a loop's statements, from `first` to `end` among all: what is loaded, the stores
    that fill memory, and the rest, which uses it.
    """

    r: UOp
    first: int
    end: int
    loads: Sequence[UOp]
    stores: Sequence[UOp]
    rest: Sequence[UOp]

    @property
    def memories(self) -> frozenset[UOp]:
        return frozenset(store.src[0] for store in self.stores)


def fill_ahead(linear: Linear) -> Linear:
    """The statements with all memory filled ahead that asks for it, and that a loop fills at its
    begin and nothing else does.
    """
    if not any(each.arg.ahead for each in workgroup_buffers(linear.statements)):
        return linear
    for step in list(_steps(linear))[::-1]:
        linear = _ahead(linear, step)
    return linear


def _steps(linear: Linear) -> Iterator[_Step]:
    """The last ones may be within loops, but not within others of these."""
    statements = linear.statements
    for first, node in enumerate(statements):
        if node.op is not ops.BEGIN:
            continue
        r = node.src[0]
        end = statements.index(UOp(ops.END, dt.index, node.src), first)
        body = statements[first + 1 : end]
        barriers = [i for i, each in enumerate(body) if each.op is ops.BARRIER]
        if len(barriers) != 2 or r.src[0].op is not ops.CONST:
            continue
        a, b = barriers
        step = _Step(r, first, end, body[:a], body[a + 1 : b], body[b + 1 :])
        outside = toposort((*statements[:first], *statements[end:]), linear.values.__contains__)
        if _is_filled_first(step) and step.memories.isdisjoint(outside):
            yield step


def _is_filled_first(step: _Step) -> bool:
    return (
        not any(node.op in EFFECTS for node in step.loads)
        and all(_fills_ahead(node) for node in step.stores)
        and not any(n.op is ops.STORE and n.src[0] in step.memories for n in step.rest)
    )


def _fills_ahead(node: UOp) -> bool:
    memory = node.src[0] if node.op is ops.STORE else node
    return memory.op is ops.SHARED and bool(memory.arg.ahead)


def _ahead(linear: Linear, step: _Step) -> Linear:
    r, count = step.r, int(step.r.src[0].arg)
    following = as_node(ix.minimum(r + 1, count - 1))
    parity = UOp(ops.MOD, dt.index, (r, const(2, dt.index)))
    other = UOp(ops.SUB, dt.index, (const(1, dt.index), parity))
    used = set(toposort(step.rest))
    moving = [node for node in step.loads if r in node.ranges]
    body = [
        *(node for node in (following, parity, other) if node.op not in INLINE),
        *_at(step, following, other, moving),
        *(node for node in moving if node in used),
        *step.rest,
        *_at(step, following, other, step.stores),
        BARRIER,
    ]
    zero = const(0, dt.index)
    begin = [*_at(step, zero, zero, (*step.loads, *step.stores)), BARRIER]
    statements = [
        *linear.statements[: step.first],
        *begin,
        linear.statements[step.first],
        *body,
        *linear.statements[step.end :],
    ]

    def half(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        node = node.replace(src)
        if node.op is not ops.LOAD or node.src[0] not in step.memories:
            return None
        return access.load(_doubled(node.src[0]), (_within(node.src[0], node.src[1], parity),))

    done = bottom_up((*statements, *linear.values), half)
    named = {done[key]: done[value] for key, value in linear.values.items()}
    return Linear([done[node] for node in statements], named)


def _at(step: _Step, place: UOp, half: UOp, nodes: Sequence[UOp]) -> list[UOp]:
    """What is loaded and stored for another step, in a half of the memory."""
    changed = substitute((*step.loads, *nodes), {step.r: place})[len(step.loads) :]
    return [
        _stored(node, half) if node.op is ops.STORE else node
        for node in changed
        if node.op not in INLINE
    ]


def _stored(store: UOp, half: UOp) -> UOp:
    memory, value, place, *guard = store.src
    return store.replace((_doubled(memory), value, _within(memory, place, half), *guard))


def _doubled(memory: UOp) -> UOp:
    arg = replace(memory.arg, length=2 * memory.arg.length, ahead=False)
    return UOp(ops.SHARED, memory.dtype, (), arg)


def _within(memory: UOp, place: UOp, half: UOp) -> UOp:
    """A place in one of the halves, which is 0 or 1."""
    first = UOp(ops.MUL, dt.index, (half, const(memory.arg.length, dt.index)))
    return UOp(ops.ADD, dt.index, (first, place))
