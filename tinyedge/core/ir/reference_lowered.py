"""What a lowered kernel means, in numpy: all threads run its statements in lock step.

A value is an array with one element (or one vector) of each thread of each workgroup. Threads of a
workgroup need no lock step on a device, so that what they share is followed as `sharing` says: a
kernel whose result depends on their order is an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import access, fragments, ops
from tinyedge.core.ir.buffers import PIXEL
from tinyedge.core.ir.lowered import Geometry, Linear, workgroup_buffers
from tinyedge.core.ir.reference import size_value
from tinyedge.core.ir.shapes import symbol_value
from tinyedge.core.ir.sharing import Accesses, stranger
from tinyedge.core.ir.uop import UOp, toposort

Array = Any
LIMIT = 10**7  # threads
ZEROS = np.iinfo(np.int64).min  # a region's first place where it is zeros; others may lie before 0
TOGETHER = (ops.BARRIER, ops.SHUFFLE, *fragments.OPS)  # what threads do with others


def run_lowered(
    linear: Linear,
    geometry: Geometry,
    buffers: Sequence[Array],
    symbols: Mapping[str, int] | None = None,
) -> None:
    """Run a lowered kernel on flat arrays, in slot order; those that it writes change in place.

    Raises ValueError where it leaves a buffer, where threads use workgroup memory or store to one
    element in an order that nothing decides, where they leave a loop one before the other, and
    where there are too many of them.
    """
    _Machine(linear, geometry, buffers, dict(symbols or {})).run()


class _Machine:
    def __init__(
        self,
        linear: Linear,
        geometry: Geometry,
        buffers: Sequence[Array],
        symbols: Mapping[str, int],
    ) -> None:
        self.linear = linear
        self.geometry = geometry
        self.buffers = buffers
        self.symbols = symbols
        self.counts = [size_value(count, symbols) for count in geometry.grid]
        groups = math.prod(self.counts)
        if groups * geometry.threads > LIMIT:
            raise ValueError(f"{groups * geometry.threads} threads are too many for the reference")
        self.threads = np.arange(groups * geometry.threads)
        self.groups = self.threads // geometry.threads
        self.inside = np.ones(self.threads.shape, bool)  # of the loops at hand
        self.named: dict[UOp, Array] = {}  # what statements have computed
        self.shared: dict[UOp, tuple[Array, Accesses]] = {}
        for node in workgroup_buffers(linear.statements):
            count = groups * node.arg.length
            shape = (count, node.dtype.lanes) if node.dtype.lanes > 1 else (count,)
            self.shared[node] = np.zeros(shape, node.dtype.numpy), Accesses(count)

    def run(self) -> None:
        if not self.threads.size:
            return
        for r, expression in self.geometry.positions:
            self.named[r] = self._evaluate(expression)
        self._block(self.linear.statements)

    # Statements.

    def _block(self, statements: Sequence[UOp]) -> None:
        position = 0
        while position < len(statements):
            node = statements[position]
            position += 1
            if node.op is ops.BEGIN:
                end = statements.index(UOp(ops.END, dt.index, node.src), position)
                self._loop(node.src[0], statements[position:end])
                position = end + 1
            else:
                self._statement(node)

    def _loop(self, r: UOp, body: Sequence[UOp]) -> None:
        first, stop = r.src[1:] or (UOp(ops.CONST, dt.index, (), 0), r.src[0])
        first, stop = self._evaluate(first), self._evaluate(stop)
        alike = len(np.unique(first)) == len(np.unique(stop)) == 1
        if not alike and any(node.op in TOGETHER for node in toposort(body)):
            raise ValueError(f"threads leave a loop one before the other: {r!r}")
        outside = self.inside
        for i in range(int(first.min()), int(stop.max())):
            self.named[r] = np.asarray(i)
            self.inside = outside & (first <= i) & (i < stop)
            self._block(body)
        self.inside = outside

    def _statement(self, node: UOp) -> None:
        if node.op is ops.BARRIER:
            for _, accesses in self.shared.values():
                accesses.barrier()
        elif node.op is ops.ACCUMULATOR:
            first = ops.reduce_identity(node.arg.op, node.dtype.scalar)
            self.named[node] = np.full(self._shape(node.dtype), first, node.dtype.numpy)
        elif node.op is ops.SET:
            value = self._evaluate(node.src[1])
            before = self.named[node.src[0]]
            if node.arg is not None:
                value = _apply(node.arg, [before, value], node.dtype)
            if not self.inside.all():
                wide = self.inside[:, None] if node.dtype.lanes > 1 else self.inside
                value = np.where(wide, value, before)
            self.named[node.src[0]] = value
        elif node.op is ops.STORE:
            active = self._evaluate(access.guard_of(node))
            self._store(node, active & self.inside)
        elif node.op is ops.FRAGMENT_STORE:
            memory, at = self._fragment(node, [self._evaluate(s) for s in node.src[2:]])
            value = np.broadcast_to(self._evaluate(node.src[1]), at.shape)
            memory[at] = value
        else:
            self.named.pop(node, None)  # of the iteration before
            self.named[node] = self._evaluate(node)

    def _shape(self, dtype: DType) -> tuple[int, ...]:
        return (len(self.threads), dtype.lanes) if dtype.lanes > 1 else (len(self.threads),)

    def _store(self, node: UOp, active: Array) -> None:
        param, source, *_ = node.src
        value = np.broadcast_to(self._evaluate(source, active), self._shape(source.dtype))[active]
        indices = [self._evaluate(index, active) for index in access.indices_of(node)]
        places = [np.broadcast_to(index, self.threads.shape)[active] for index in indices]
        if param.op is ops.SHARED:
            memory, accesses = self.shared[param]
            at, threads = self._taken(node, source.dtype, places[0], active)
            self._refuse(node, accesses.store(threads, at.reshape(-1)))
            memory[at] = value
            return
        flat = self.buffers[param.arg.slot]
        at, inside = self._elements(param, source.dtype, places)
        if not inside.all():
            raise ValueError(f"a store outside of its buffer: {node!r}")
        stored = dt.cast_array(value, param.dtype)
        flat[at] = stored
        if flat[at].tobytes() != np.ascontiguousarray(stored).tobytes():
            raise ValueError(f"two threads store to one element: {node!r}")

    def _refuse(self, node: UOp, wrong: str) -> None:
        if wrong:
            raise ValueError(f"{wrong}: {node!r}")

    # Expressions.

    def _evaluate(self, root: UOp, active: Array | None = None) -> Array:
        """The value of an expression in every thread; active: those that need it."""
        values: dict[UOp, Array] = {}
        for node in toposort((root,), stop=lambda n: self._known(n) is not None):
            known = self._known(node)
            values[node] = self._value(node, values, active) if known is None else known
        return values[root]

    def _known(self, node: UOp) -> Array | None:
        return self.named.get(self.linear.values.get(node, node))

    def _value(self, node: UOp, values: dict[UOp, Array], active: Array | None) -> Array:
        op = node.op
        if op in (ops.PARAM, ops.SHARED):
            return np.zeros(())  # named by what loads from it
        if op is ops.CONST:
            return np.asarray(node.arg, node.dtype.numpy)
        if op is ops.SYMBOL:
            if node.src:
                count = self.buffers[node.src[0].arg.slot][node.src[1].arg if node.src[1:] else 0]
                return np.asarray(count, np.int64)
            return np.asarray(symbol_value(node, self.symbols), np.int64)
        if op is ops.SPECIAL:
            return self._special(node.arg.kind, node.arg.dimension)
        src = [values[s] for s in node.src]
        if op is ops.REGION:
            return np.where(src[2], src[1], ZEROS)
        if op is ops.LOAD and node.src[0].op is ops.REGION:
            return self._load_region(node, src[0], src[1], active)
        if op is ops.LOAD:
            return self._load(node, src[1:], active)
        if op is ops.FRAGMENT_LOAD:
            memory, at = self._fragment(node, src[1:])
            return memory[at].astype(node.dtype.numpy)
        if op is ops.FRAGMENT_MULTIPLY:
            parts = [np.broadcast_to(s, self._shape(node.dtype)) for s in src]
            return fragments.multiply(*parts)
        if op is ops.SHUFFLE:
            return np.broadcast_to(src[0], self._shape(node.dtype))[self.threads ^ node.arg]
        if op is ops.VECTOR:
            lanes = np.broadcast_arrays(*src)
            if len(lanes) == 1:
                return np.repeat(lanes[0][..., None], node.dtype.lanes, axis=-1)
            return np.stack(lanes, axis=-1)
        if op is ops.LANE:
            return src[0][..., node.arg]
        if op is ops.REDUCE_LANES:
            return _over_lanes(node, src[0])
        return _apply(op, src, node.dtype)

    def _special(self, kind: str, dimension: int) -> Array:
        if kind == "thread":
            return self.threads % self.geometry.threads
        before = math.prod(self.counts[:dimension])
        return self.groups // before % self.counts[dimension]

    def _load(self, node: UOp, operands: list[Array], active: Array | None) -> Array:
        """Zero where a guard says so, outside of an image and where no thread needs it."""
        param, shape = node.src[0], self.threads.shape
        wanted = self.inside if active is None else active
        if node.arg:
            wanted = wanted & operands.pop()
        places = [np.broadcast_to(place, shape)[wanted] for place in operands]
        result = np.zeros(self._shape(node.dtype), node.dtype.numpy)
        if param.op is ops.SHARED:
            memory, accesses = self.shared[param]
            at, threads = self._taken(node, node.dtype, places[0], wanted)
            self._refuse(node, accesses.load(threads, at.reshape(-1)))
            result[wanted] = memory[at]
            return result
        at, inside = self._elements(param, node.dtype, places)
        if not inside.all() and not param.arg.is_image:
            raise ValueError(f"a load outside of its buffer: {node!r}")
        taken = self.buffers[param.arg.slot][np.where(inside, at, 0)]
        result[wanted] = np.where(inside, taken, np.zeros((), taken.dtype))
        return result

    def _load_region(self, node: UOp, start: Array, offset: Array, active: Array | None) -> Array:
        region = node.src[0]
        wanted = self.inside if active is None else active
        first, offset = (np.broadcast_to(a, self.threads.shape) for a in (start, offset))
        there = wanted & (first != ZEROS)
        beyond = ~there & (offset + node.dtype.lanes > region.arg.length)
        if (((offset < 0) | beyond) & wanted).any():
            raise ValueError(f"a load outside of its region: {node!r}")
        at, inside = self._elements(region.src[0], node.dtype, [first + offset])
        wide = there[:, None] if node.dtype.lanes > 1 else there
        if not (inside | ~wide).all():
            raise ValueError(f"a load outside of its buffer: {node!r}")
        taken = self.buffers[region.src[0].arg.slot][np.where(inside & wide, at, 0)]
        return np.where(wide, taken, np.zeros((), taken.dtype))

    def _fragment(self, node: UOp, operands: list[Array]) -> tuple[Array, Array]:
        """The memory of a fragment that is loaded or stored, and the places of its elements."""
        if not all(fragments.agree(self.threads, operand) for operand in operands):
            raise ValueError(f"threads of a subgroup take a fragment from several places: {node!r}")
        buffer, stores = node.src[0], node.op is ops.FRAGMENT_STORE
        transposed = not stores and bool(node.arg)
        places = fragments.elements(self.threads, *operands, transposed=transposed)
        if buffer.op is ops.PARAM:
            flat = self.buffers[buffer.arg.slot]
            if not (0 <= places.min() and places.max() < len(flat)):
                raise ValueError(f"a fragment outside of its buffer: {node!r}")
            if stores and len(np.unique(places)) < places.size:
                raise ValueError(f"two threads store to one element: {node!r}")
            return flat, places
        memory, accesses = self.shared[buffer]
        active = np.ones(self.threads.shape, bool)
        at = np.stack([self._in_group(node, buffer, p, active) for p in places.T], axis=-1)
        who = np.full(at.size, stranger())
        used = accesses.store if stores else accesses.load
        self._refuse(node, used(who, at.reshape(-1)))
        return memory, at

    def _taken(self, node: UOp, dtype: DType, places: Array, active: Array) -> tuple[Array, Array]:
        """The elements of a workgroup's buffer that threads take: one each, or the neighbors that
        a wider value of a thread alone fills; and the thread of each.
        """
        lanes = dtype.lanes // node.src[0].dtype.lanes
        at = self._in_group(node, node.src[0], places, active)
        if lanes > 1:
            self._in_group(node, node.src[0], places + lanes - 1, active)
            at = at[:, None] + np.arange(lanes)
        return at, np.repeat(self.threads[active], lanes)

    def _in_group(self, node: UOp, shared: UOp, places: Array, active: Array) -> Array:
        """Places in a workgroup's buffer as places among those of all workgroups."""
        length = shared.arg.length
        if places.size and not (0 <= places.min() and places.max() < length):
            raise ValueError(f"outside of the workgroup's memory: {node!r}")
        return self.groups[active] * length + places

    def _elements(self, param: UOp, dtype: DType, places: list[Array]) -> tuple[Array, Array]:
        """The elements of a buffer that are loaded or stored as `dtype`, and whether they are in
        it.
        """
        if param.arg.is_image:
            (x, y), layout = places, param.arg.layout
            width, height = layout.image(param.arg.shape)
            inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
            first = y * layout.pitch(param.arg.shape) + x * PIXEL
        else:
            inside, first = np.ones(places[0].shape, bool), places[0] * param.dtype.lanes
        if dtype.lanes > 1:
            first, inside = first[:, None] + np.arange(dtype.lanes), inside[:, None]
        size = len(self.buffers[param.arg.slot])
        return first, inside & (first >= 0) & (first < size)


def _over_lanes(node: UOp, value: Array) -> Array:
    """The lanes of vectors combined, the first half with the second, until one is left."""
    while value.shape[-1] > 1:
        half = value.shape[-1] // 2
        value = _apply(node.arg, [value[..., :half], value[..., half:]], node.dtype)
    return value[..., 0]


def _apply(op: ops.Primitive, src: list[Array], dtype: DType) -> Array:
    if op is ops.CAST:
        return dt.cast_array(src[0], dtype)
    if op is ops.BITCAST:
        return np.ascontiguousarray(src[0]).view(dtype.numpy).reshape(np.shape(src[0]))
    if op.numpy is None:
        raise ValueError(f"{op} has no meaning in a lowered kernel")
    return np.asarray(op.numpy(*src)).astype(dtype.numpy, copy=False)
