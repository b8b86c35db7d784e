"""Vectors: what depends on a range of lanes gets one lane for each of its steps."""

from __future__ import annotations

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.polynomial import added, build, divisor, terms
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import operands, simplified
from tinyedge.core.ir.uop import BINDING, UOp, as_node, own_ranges


def _values(node: UOp) -> tuple[UOp, ...]:
    """Operands that become vectors: places are taken lane by lane."""
    if node.op in BINDING:
        return node.src[: BINDING[node.op]]
    if node.op is ops.LOAD or any(source.dtype is dt.index for source in node.src):
        return ()
    return node.src


class Vectorizer:
    """Replaces the range `lane` by vectors: what depends on it gets one lane a value."""

    def __init__(self, lane: UOp, caps: Caps) -> None:
        self.lane = lane
        self.count = int(lane.src[0].arg)
        self.caps = caps
        self.done: dict[UOp, UOp] = {}
        # Of each lane, what nodes are there.
        self.lanes = [{lane: as_node(i)} for i in range(self.count)]

    def run(self, stores: tuple[UOp, ...]) -> list[UOp]:
        result: list[UOp] = []
        for store in stores:
            if self.lane not in store.ranges:
                result.append(store)
                continue
            param, original, address, *_ = store.src
            guard = access.guard_of(store)
            value = self._vectors(original)
            if self.lane in guard.ranges or not self._contiguous(address):
                result.extend(self._scalar_stores(store, value))
            else:
                base = self._lane_of(address, 0)
                result.append(access.store(param, self._wide(value), (base,), guard))
        return result

    def wide(self, node: UOp) -> UOp:
        """A value in vectors."""
        return self._wide(self._vectors(node))

    def _vectors(self, root: UOp) -> UOp:
        return bottom_up((root,), self._value, self.done, operands=_values)[root]

    def _scalar_stores(self, store: UOp, value: UOp) -> list[UOp]:
        stores = []
        for i in range(self.count):
            guard = self._lane_of(access.guard_of(store), i)
            if guard is not ix.FALSE:
                address = self._lane_of(store.src[2], i)
                stores.append(access.store(store.src[0], extract(value, i), (address,), guard))
        return stores

    def _lane_of(self, node: UOp, i: int) -> UOp:
        return bottom_up((node,), simplified, self.lanes[i], operands=operands)[node]

    def _wide(self, node: UOp) -> UOp:
        if node.dtype.lanes > 1:
            return node
        return UOp(ops.VECTOR, node.dtype.vector(self.count), (node,))

    def _contiguous(self, address: UOp) -> bool:
        """Whether lane i is at address + i, with an address that a vector load accepts."""
        rest = dict(terms(address))
        if rest.pop((self.lane,), 0) != 1 or any(self.lane in m for m in rest):
            return False
        if any(self.lane in atom.ranges for monomial in rest for atom in monomial):
            return False
        return self.caps.unaligned or divisor(build(rest)) % self.count == 0

    def _in_step(self, condition: UOp) -> bool:
        """Whether a condition is the same in all lanes: those of whole vectors are, on an index
        that goes along with the lanes.
        """
        if self.lane not in condition.ranges:
            return True
        if condition.op in (ops.AND, ops.NOT):
            return all(map(self._in_step, condition.src))
        if condition.op is not ops.LT:
            return False
        less, more = condition.src
        rest = dict(terms(as_node(more - less - 1)))  # true where it is not negative
        step = rest.pop((self.lane,), 0)
        if abs(step) != 1 or any(self.lane in atom.ranges for m in rest for atom in m):
            return False
        first = rest if step > 0 else added(rest, {(): 1})
        return divisor(build(first)) % self.count == 0

    def _value(self, node: UOp, operands: tuple[UOp, ...]) -> UOp:
        if self.lane not in node.ranges:
            return node
        op = node.op
        dtype = node.dtype.vector(self.count)
        if op is ops.LOAD:
            return self._load(node)
        if op in BINDING:
            bodies = tuple(map(self._wide, operands))
            if op is ops.ATTEND_LOOP:  # its scores have no lanes but their own
                bodies = operands[0], bodies[1]
            return UOp(op, bodies[-1].dtype, (*bodies, *own_ranges(node)), node.arg)
        if node.dtype is dt.index or any(s.dtype is dt.index for s in node.src):
            lanes = tuple(self._lane_of(node, i) for i in range(self.count))
            return UOp(ops.VECTOR, dtype, lanes)
        src = tuple(self._wide(operand) for operand in operands)
        return UOp(op, dtype, src, node.arg)

    def _load(self, node: UOp) -> UOp:
        guard = access.guard_of(node)
        if self._in_step(guard) and self._contiguous(node.src[1]):
            base, guard = self._lane_of(node.src[1], 0), self._lane_of(guard, 0)
            return access.load(node.src[0], (base,), guard, node.dtype.vector(self.count))
        lanes = tuple(self._lane_of(node, i) for i in range(self.count))
        if all(lane is lanes[0] for lane in lanes):
            return lanes[0]
        return UOp(ops.VECTOR, node.dtype.vector(self.count), lanes)


def extract(value: UOp, lane: int) -> UOp:
    """One lane of a vector; a scalar is all of its lanes."""
    if value.dtype.lanes == 1:
        return value
    if value.op is ops.VECTOR:
        return value.src[lane] if len(value.src) > 1 else value.src[0]
    return UOp(ops.LANE, value.dtype.scalar, (value,), lane)
