"""From views to indices: a tensor's element at given indices, as a scalar expression over loads.

Movement operations vanish here: each only changes the indices that its source is read at.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from tinyedge.core import dtype as dt
from tinyedge.core.ir import access, args, movement, ops
from tinyedge.core.ir.buffers import KernelArg, Placement, TensorBuffer
from tinyedge.core.ir.movement import Indices
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import simplify
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.uop import Size, UOp, as_node, const

Request = tuple[
    UOp, Indices, UOp
]  # tensor node, indices, condition under which the value is needed


class Indexer:
    """Builds one kernel's expressions. `placed` tells which tensors are in memory and where.

    storages: the kernel's buffers in slot order, slot 0 being the one it writes.
    """

    def __init__(self, placed: Mapping[UOp, Placement], output: TensorBuffer) -> None:
        self.placed = placed
        self.storages: list[TensorBuffer] = [output]
        self.read: dict[UOp, Placement] = {}  # where the nodes lie that were read from memory
        self.next_range = 0
        self._memo: dict[Request, UOp] = {}

    def range(self, size: Size, kind: str) -> UOp:
        """A new loop variable; the constant 0 where the size is 1."""
        if size == 1:
            return ix.ZERO
        self.next_range += 1
        return UOp(ops.RANGE, dt.index, (as_node(size),), args.Range(self.next_range - 1, kind))

    def param(self, storage: TensorBuffer) -> UOp:
        """The kernel's argument for a buffer."""
        if storage not in self.storages:
            self.storages.append(storage)
        slot = self.storages.index(storage)
        arg = KernelArg(slot, storage.shape, storage.layout, slot == 0, storage.role == "weight")
        return UOp(ops.PARAM, storage.dtype, (), arg)

    def value(self, node: UOp, indices: Indices, root: bool = False) -> UOp:
        """The element of `node` at the indices. root: compute it although it is placed in
        memory.
        """
        stack = [self._visit((node, indices, ix.TRUE), root)]
        requests: list[Request] = [(node, indices, ix.TRUE)]
        answer: UOp | None = None
        while stack:
            try:
                request = stack[-1].send(answer)
            except StopIteration as finished:
                answer = finished.value
                stack.pop()
                self._memo[requests.pop()] = answer
                continue
            answer = self._memo.get(request)
            if answer is None:
                stack.append(self._visit(request, False))
                requests.append(request)
        assert answer is not None
        return answer

    def _visit(self, request: Request, root: bool) -> Generator[Request, Any, UOp]:
        node, indices, valid = request
        if node in self.placed and not root:
            self.read[node] = self.placed[node]
            return self._load(self.placed[node], indices, valid, node.dtype)
        op = node.op
        if op.elementwise:
            src = []
            for source in node.src:
                src.append((yield (source, indices, valid)))
            return simplify(UOp(op, node.dtype, tuple(src), node.arg))
        if op.group == "movement":
            inner, inside = movement.read(node, indices)
            if inside is ix.FALSE:
                return const(0, node.dtype)
            moved: UOp = yield (node.src[0], inner, ix.both(valid, inside))
            if inside is ix.TRUE:
                return moved
            return simplify(UOp(ops.WHERE, node.dtype, (inside, moved, const(0, node.dtype))))
        if op is ops.REDUCE:
            return (yield from self._reduce(node, indices, valid))
        if op is ops.GATHER:
            return (yield from self._gather(node, indices, valid))
        if op is ops.ASSIGN:
            return (yield from self._assigned(node, indices, valid))
        if op is ops.UPDATE_ROW:
            return (yield from self._put(node, indices, valid))
        if op is ops.REALIZE:
            same: UOp = yield (node.src[0], indices, valid)
            return same
        if op is ops.IOTA:
            return indices[0]
        if op is ops.EMPTY:
            return const(0, node.dtype)
        assert op in (ops.CONST, ops.SYMBOL), f"no index rule for {node}"
        return node

    def _load(self, place: Placement, indices: Indices, valid: UOp, dtype: dt.DType) -> UOp:
        param = self.param(place.storage)
        load = access.load(param, placed_indices(place, indices), valid)
        return load if param.dtype is dtype else simplify(UOp(ops.CAST, dtype, (load,)))

    def _reduce(self, node: UOp, indices: Indices, valid: UOp) -> Generator[Request, Any, UOp]:
        op, axes = node.arg.op, node.arg.axes
        source = node.src[0]
        remaining = iter(indices)
        inner: list[UOp] = []
        ranges: list[UOp] = []
        for axis, size in enumerate(source.shape):
            if axis not in axes:
                inner.append(next(remaining))
                continue
            new = self.range(size, "reduce")
            inner.append(new)
            if new is not ix.ZERO:
                ranges.append(new)
        if any(maximum(size) == 0 for size in source.shape):
            return const(ops.reduce_identity(op, node.dtype), node.dtype)
        value = yield (source, tuple(inner), valid)
        return UOp(ops.REDUCE_LOOP, node.dtype, (value, *ranges), op) if ranges else value

    def _gather(self, node: UOp, indices: Indices, valid: UOp) -> Generator[Request, Any, UOp]:
        data, positions = node.src
        axis = node.arg
        rank = len(positions.shape)
        position = yield (positions, indices[axis : axis + rank], valid)
        at, inside = position_of(position, data.shape[axis])
        inner = (*indices[:axis], at, *indices[axis + rank :])
        value = yield (data, inner, ix.both(valid, inside))
        return simplify(UOp(ops.WHERE, node.dtype, (inside, value, const(0, node.dtype))))

    def _assigned(self, node: UOp, indices: Indices, valid: UOp) -> Generator[Request, Any, UOp]:
        base, value = node.src
        conditions = []
        inner = []
        for index, span, size in zip(indices, node.arg, base.shape, strict=True):
            if span.start != 0:
                conditions.append(ix.at_most(span.start, index))
            if span.end != size:
                conditions.append(ix.less(index, span.end))
            inner.append(as_node(index - span.start))
        inside = ix.every(conditions)
        new = yield (value, tuple(inner), ix.both(valid, inside))
        outside = simplify(UOp(ops.NOT, dt.bool_, (inside,)))
        old = yield (base, indices, ix.both(valid, outside))
        return simplify(UOp(ops.WHERE, node.dtype, (inside, new, old)))

    def _put(self, node: UOp, indices: Indices, valid: UOp) -> Generator[Request, Any, UOp]:
        base, row, position = node.src
        at = put_index(base, (yield (position, (), valid)))
        here = ix.equal(indices[0], at)
        new = yield (row, indices[1:], ix.both(valid, here))
        elsewhere = simplify(UOp(ops.NOT, dt.bool_, (here,)))
        old = yield (base, indices, ix.both(valid, elsewhere))
        return simplify(UOp(ops.WHERE, node.dtype, (here, new, old)))


def position_of(position: UOp, size: Size) -> tuple[UOp, UOp]:
    """A computed position as an index, and whether it is one of an axis of this size."""
    limit = as_node(size)
    at = simplify(UOp(ops.CAST, dt.index, (position,)))
    if position.dtype.bits < 64:
        return at, ix.both(ix.at_most(0, at), ix.less(at, limit))
    end = simplify(UOp(ops.CAST, position.dtype, (limit,)))
    return at, ix.both(  # compared as it is: the cast to an index may wrap
        simplify(UOp(ops.LE, dt.bool_, (const(0, position.dtype), position))),
        simplify(UOp(ops.LT, dt.bool_, (position, end))),
    )


def put_index(base: UOp, position: UOp) -> UOp:
    """Where a row is put: a position that does not exist is the nearest one that does."""
    at = simplify(UOp(ops.CAST, dt.index, (position,)))
    return as_node(ix.maximum(0, ix.minimum(at, base.shape[0] - 1)))


def placed_indices(place: Placement, indices: Indices) -> Indices:
    """Indices of the storage for indices of the tensor that lies there."""
    for view in place.views:
        if view.kind == "offset":
            pairs = zip(indices, view.arg, strict=True)
            indices = tuple(as_node(i + o) for i, o in pairs)
        elif view.kind == "reshape":
            indices = movement.reshape_indices(view.arg[0], view.arg[1], indices)
        else:
            indices = tuple(indices[axis] for axis in view.arg)
    return indices
