"""Reductions over the threads of a workgroup, as statements of single threads.

A GROUP_REDUCE combines a value of each of `count` neighboring threads, and all of them get the
result. Threads of one subgroup exchange their values in registers, where the device has that: each
combines its value with that of the thread whose number differs in one bit, for one bit after the
other. Everything else goes through workgroup memory: each thread leaves its part there, and after a
barrier each combines all of them, in the same order.

Many parts are first brought down to a few, by as many threads.
"""

from __future__ import annotations

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.lower.linear import BARRIER
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InternalError
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.lowered import Geometry, Linear, shared_bytes, workgroup_buffers
from tinyedge.core.ir.uop import UOp, cast, const

FEW_PARTS = 16  # parts that every thread combines for itself
EXCHANGED_BITS = 32  # at least, of a value that threads exchange in registers

THREAD = UOp(ops.SPECIAL, dt.index, (), args.Special("thread", 0))


def cooperate(linear: Linear, geometry: Geometry, caps: Caps) -> Linear:
    """The statements without reductions over threads."""
    return _Cooperation(linear, geometry.threads, caps).run()


class _Cooperation:
    def __init__(self, linear: Linear, threads: int, caps: Caps) -> None:
        self.linear = linear
        self.threads = threads
        self.subgroup = caps.subgroup
        self.room = caps.shared  # bytes of workgroup memory that no buffer has
        self.values = dict(linear.values)
        self.statements: list[UOp] = []
        self.named: set[UOp] = set()
        self.buffers: list[UOp] = []
        filled = workgroup_buffers(linear.statements)  # by what is staged
        self.room -= sum(shared_bytes(each.dtype, each.arg.length) for each in filled)
        self.first = len(filled)
        self.used: dict[UOp, int] = {}  # how often a buffer was
        self.loops = 0

    def run(self) -> Linear:
        for node in self.linear.statements:
            self.loops += (node.op is ops.BEGIN) - (node.op is ops.END)
            if node.op is ops.GROUP_REDUCE:
                self.values[node] = self._reduce(node)
            else:
                self._add(node)
        return Linear(self.statements, self.values)

    def _add(self, node: UOp) -> UOp:
        self.statements.append(node)
        self.named.add(node)
        return node

    def _reduce(self, node: UOp) -> UOp:
        """The value that stands for the reduction: a statement."""
        value, lane = node.src
        count = int(lane.src[0].arg)
        if not self._exchanges(count, node.dtype):
            return self._through_memory(node, value, lane, count)
        value = self._name(value)
        offset = min(count, self.subgroup) // 2
        while offset:
            other = UOp(ops.SHUFFLE, node.dtype, (value,), offset)
            value = self._add(UOp(node.arg, node.dtype, (value, other)))
            offset //= 2
        if count > self.subgroup:
            return self._over_subgroups(node, value, count // self.subgroup)
        return value

    def _exchanges(self, count: int, dtype: DType) -> bool:
        """Whether subgroups are whole, and hold the threads of a reduction or are held by them."""
        size = self.subgroup
        whole = self.threads % size == 0 and (size % count == 0 or count % size == 0)
        return size > 1 and whole and dtype.kind != "b" and dtype.bits >= EXCHANGED_BITS

    def _name(self, value: UOp) -> UOp:
        """A value that is used more than once, as a statement."""
        if value in self.named or value in self.values or value.op is ops.CONST:
            return value
        return self._add(value)

    def _over_subgroups(self, node: UOp, value: UOp, parts: int) -> UOp:
        """The values of several subgroups, one of each, combined by every thread."""
        size = self.subgroup
        shared = self._buffer(node.dtype, self.threads // size)
        first = None
        if self.threads != parts * size:
            first = self._add(_index(ops.MUL, _index(ops.FLOORDIV, THREAD, parts * size), parts))
        self._settle(shared)
        leads = UOp(ops.EQ, dt.bool_, (_index(ops.MOD, THREAD, size), const(0, dt.index)))
        store = _store(shared, value, _index(ops.FLOORDIV, THREAD, size))
        self._add(access.under(leads, store))
        self._add(BARRIER)
        return self._combined(node, [self._load(shared, _behind(first, i)) for i in range(parts)])

    def _through_memory(self, node: UOp, value: UOp, lane: UOp, count: int) -> UOp:
        shared = self._buffer(node.dtype, self.threads)
        first = None
        if self.threads != count:
            first = self._add(_index(ops.SUB, THREAD, lane))
        self._settle(shared)
        self._add(_store(shared, value, THREAD))
        self._add(BARRIER)
        parts = count
        if count > FEW_PARTS and count % FEW_PARTS == 0:
            parts = FEW_PARTS
            places = [_behind(THREAD, i) for i in range(0, count, parts)]
            total = _chain(node, [self._load(shared, place) for place in places])
            few = UOp(ops.LT, dt.bool_, (lane, const(parts, dt.index)))
            self._add(access.under(few, _store(shared, total, THREAD)))
            self._add(BARRIER)
        return self._combined(node, [self._load(shared, _behind(first, i)) for i in range(parts)])

    def _buffer(self, dtype: DType, length: int) -> UOp:
        """A buffer of the workgroup: a new one as long as there is room. Memory holds no bool."""
        held = dt.int32.vector(dtype.lanes) if dtype.kind == "b" else dtype
        size = shared_bytes(held, length)
        if size <= self.room:
            self.room -= size
            number = self.first + len(self.buffers)
            self.buffers.append(UOp(ops.SHARED, held, (), args.Shared(number, length)))
            return self.buffers[-1]
        for buffer in self.buffers:
            if buffer.dtype is held and buffer.arg.length == length:
                return buffer
        raise InternalError(
            f"{size} bytes of workgroup memory for a reduction over {self.threads} threads",
            f"{self.room} bytes are left",
            id="lower.shared",
            next="report this with the model",
        )

    def _settle(self, buffer: UOp) -> None:
        """Others may still read what an iteration or a reduction before has left."""
        if self.loops or buffer in self.used:
            self._add(BARRIER)
        self.used[buffer] = self.used.get(buffer, 0) + 1

    def _load(self, buffer: UOp, place: UOp) -> UOp:
        """What is loaded after a buffer was filled anew is another value: it is another node."""
        for _ in range(1, self.used[buffer]):
            place = _index(ops.ADD, place, 0)
        return access.load(buffer, (place,))

    def _combined(self, node: UOp, parts: list[UOp]) -> UOp:
        return self._add(_chain(node, parts))


def _chain(node: UOp, parts: list[UOp]) -> UOp:
    """The parts of a reduction combined in order."""
    total, *rest = [cast(part, node.dtype) for part in parts]
    for part in rest:
        total = UOp(node.arg, node.dtype, (total, part))
    return total


def _store(shared: UOp, value: UOp, place: UOp) -> UOp:
    return access.store(shared, cast(value, shared.dtype), (place,))


def _index(op: ops.Primitive, a: UOp, b: UOp | int) -> UOp:
    return UOp(op, dt.index, (a, const(b, dt.index) if isinstance(b, int) else b))


def _behind(first: UOp | None, i: int) -> UOp:
    """The place i places behind the first; None: that is 0."""
    if first is None:
        return const(i, dt.index)
    return _index(ops.ADD, first, i) if i else first
