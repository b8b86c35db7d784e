"""From views to indices: a tensor's element at given indices, as a scalar expression over loads.

Movement operations vanish here: each only changes the indices that its source is read at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinyedge.core import dtype as dt
from tinyedge.core.ir import access, args, movement, ops
from tinyedge.core.ir.buffers import KernelArg, Placement, TensorBuffer
from tinyedge.core.ir.memory import MEMORY, Element, Request
from tinyedge.core.ir.movement import Indices
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import simplify
from tinyedge.core.ir.uop import Size, UOp, as_node, const


class Indexer:
    """Builds one kernel's expressions. `placed` tells which tensors are in memory and where.

    storages: the kernel's buffers in slot order, those that it writes first.
    """

    def __init__(self, placed: Mapping[UOp, Placement], outputs: Sequence[TensorBuffer]) -> None:
        self.placed = placed
        self.storages: list[TensorBuffer] = [*outputs]
        self.written = len(outputs)
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
        written, weight = slot < self.written, storage.role == "weight"
        arg = KernelArg(slot, storage.shape, storage.layout, written, weight)
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

    def _visit(self, request: Request, root: bool) -> Element:
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
            moved: UOp = yield (node.src[0], inner, ix.and_(valid, inside))
            if inside is ix.TRUE:
                return moved
            return simplify(UOp(ops.WHERE, node.dtype, (inside, moved, const(0, node.dtype))))
        if op in MEMORY:
            rule = MEMORY[op].element
            assert rule is not None, f"{node} is in memory before it is read"
            return (yield from rule(node, indices, valid, self.range))
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


def placed_indices(place: Placement, indices: Indices) -> Indices:
    """Indices of the storage for indices of the tensor that lies there."""
    for view in place.views:
        indices = view.indices(indices)
    return indices
