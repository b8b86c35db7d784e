"""Reductions over the threads of a workgroup, as statements of single threads.

A GROUP_REDUCE combines a value of each of `count` neighboring threads, and all of them get the
result. Threads of one subgroup exchange their values in registers, where the device has that: each
combines its value with that of the thread whose number differs in one bit, for one bit after the
other. Everything else goes through workgroup memory: each thread leaves its part there, and after a
barrier each combines all of them, in the same order.

Many parts are first brought down to a few, by as many threads. More than UNROLLED parts are
combined in a loop, and several reductions take turns in little memory rather than have memory each:
a driver may take long to compile many loads of workgroup memory, or much of it where it has to
start as zeros.

Reductions of which none waits for another share their barriers: all leave their parts, all threads
wait, and all parts are combined. For that, what depends on no reduction is moved before them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.lower.linear import BARRIER
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InternalError
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.lowered import Geometry, Linear, shared_bytes, workgroup_buffers
from tinyedge.core.ir.uop import UOp, cast, const, toposort

FEW_PARTS = 8  # parts that every thread combines for itself
UNROLLED = 4  # parts that are combined without a loop
SCRATCH = 2048  # bytes beyond which reductions use the same memory one after the other
EXCHANGED_BITS = 32  # at least, of a value that threads exchange in registers

# The parts that a reduction combines at its end, so many from a place on (None: 0). It goes on
# where all threads have met.
Parts = Generator[None, None, tuple[UOp | None, int]]

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
        self.scratch = 0  # bytes of them
        filled = workgroup_buffers(linear.statements)  # by what is staged
        self.room -= sum(shared_bytes(each.dtype, each.arg.length) for each in filled)
        self.first = len(filled)
        self.used: dict[UOp, int] = {}  # how often a buffer was
        self.loops = 0
        self.waited = True  # at a barrier since the innermost loop was begun
        self.read: set[UOp] = set()  # buffers that some thread may have loaded since then
        nodes = toposort(linear.statements)
        self.loaded = {node.src[0] for node in nodes if node.op is ops.LOAD}
        self.ranges = 1 + max((r.arg.number for r in nodes if r.op is ops.RANGE), default=-1)
        sums = (node.arg.number for node in nodes if node.op is ops.ACCUMULATOR)
        self.accumulators = 1 + max(sums, default=-1)

    def run(self) -> Linear:
        straight: list[UOp] = []  # statements of which the order is free, but for their operands
        for node in self.linear.statements:
            if self._is_free(node):
                straight.append(node)
                continue
            self._run_straight(straight)
            straight = []
            self._pass(node)
        self._run_straight(straight)
        return Linear(self.statements, self.values)

    def _is_free(self, node: UOp) -> bool:
        if node.op is ops.STORE:
            return node.src[0] not in self.loaded
        return node.op not in (ops.BEGIN, ops.END, ops.BARRIER, ops.SET)

    def _pass(self, node: UOp) -> None:
        """A statement that stays where it is. What a loop's last iteration has loaded is not known
        at its begin, nor whether there was one at its end.
        """
        if node.op in (ops.BEGIN, ops.END):
            self.loops += 1 if node.op is ops.BEGIN else -1
            self.waited = self.loops == 0
            self.read.update(self.buffers)
        elif node.op is ops.BARRIER:
            self._meet()
        self._add(node)

    def _run_straight(self, nodes: list[UOp]) -> None:
        """All statements that wait for no reduction, all reductions of what is known then, and so
        on.
        """
        after = self._waits(nodes)
        self.starts: dict[UOp, UOp] = {}
        for step in range(max(after.values(), default=-1) + 1):
            now = [node for node in nodes if after[node] == step]
            for node in now:
                if node.op is not ops.GROUP_REDUCE:
                    self._add(node)
            self._reduce_all([node for node in now if node.op is ops.GROUP_REDUCE])

    def _waits(self, nodes: list[UOp]) -> dict[UOp, int]:
        """How many reductions, one after the other, each statement waits for."""
        after: dict[UOp, int] = {}

        def known(node: UOp) -> bool:
            return node in after or node in self.values

        def least(node: UOp) -> int:
            return after.get(node, 0) + (node.op is ops.GROUP_REDUCE and node not in self.values)

        for node in toposort(nodes, stop=known):
            after[node] = 0 if known(node) else max(map(least, node.src), default=0)
        return {node: after[node] for node in nodes}

    def _add(self, node: UOp) -> UOp:
        self.statements.append(node)
        self.named.add(node)
        return node

    def _meet(self) -> None:
        self.waited = True
        self.read.clear()

    def _wait(self) -> None:
        self._meet()
        self._add(BARRIER)

    # Reductions that share their barriers.

    def _reduce_all(self, nodes: list[UOp]) -> None:
        """Each reduction's value: a statement. As many as have room in memory wait together."""
        waiting: dict[UOp, UOp] = {}
        for node in nodes:
            if (length := self._length(node)) == 0:
                self.values[node] = self._exchanged(node)
                continue
            buffer = self._buffer(node.dtype, length, waiting.values())
            if buffer is None:
                self._through_memory(waiting)
                waiting = {}
                buffer = self._buffer(node.dtype, length, ())
            if buffer is None:
                raise self._no_room(node.dtype, length)
            waiting[node] = buffer
        self._through_memory(waiting)

    def _through_memory(self, buffers: dict[UOp, UOp]) -> None:
        """Reductions, each through a buffer. Others may still read what an iteration or a reduction
        before has left there.
        """
        if buffers and not (self.waited and self.read.isdisjoint(buffers.values())):
            self._wait()
        steps = {node: self._steps(node, buffer) for node, buffer in buffers.items()}
        while steps:
            ends: dict[tuple[UOp | None, int], list[UOp]] = {}  # of reductions by their parts
            for node, each in list(steps.items()):
                try:
                    next(each)
                except StopIteration as end:
                    ends.setdefault(end.value, []).append(node)
                    del steps[node]
            for (first, parts), nodes in ends.items():
                self._combine({node: buffers[node] for node in nodes}, first, parts)
            if steps:
                self._wait()

    def _steps(self, node: UOp, buffer: UOp) -> Parts:
        """One reduction up to its last parts. It goes on where all threads have met."""
        self.used[buffer] = self.used.get(buffer, 0) + 1
        by_threads = not self._exchanges(node)
        steps = self._of_threads(node, buffer) if by_threads else self._of_subgroups(node, buffer)
        last = yield from steps
        self.read.add(buffer)
        return last

    def _combine(self, buffers: dict[UOp, UOp], first: UOp | None, parts: int) -> None:
        """The values of reductions, each of the parts in its buffer."""
        if parts <= UNROLLED:
            for node, buffer in buffers.items():
                loads = [self._load(buffer, _behind(first, i)) for i in range(parts)]
                self.values[node] = self._add(_chain(node, loads))
            return
        part = UOp(
            ops.RANGE, dt.index, (const(parts, dt.index),), args.Range(self.ranges, "serial")
        )
        self.ranges += 1
        for node in buffers:
            total = args.Accumulator(self.accumulators, node.arg)
            self.values[node] = self._add(UOp(ops.ACCUMULATOR, node.dtype, (), total))
            self.accumulators += 1
        self._add(UOp(ops.BEGIN, dt.index, (part,)))
        place = part if first is None else UOp(ops.ADD, dt.index, (first, part))
        for node, buffer in buffers.items():
            load = cast(self._load(buffer, place), node.dtype)
            self._add(UOp(ops.SET, node.dtype, (self.values[node], load), node.arg))
        self._add(UOp(ops.END, dt.index, (part,)))

    def _exchanges(self, node: UOp) -> bool:
        """Whether subgroups are whole, and hold the threads of a reduction or are held by them."""
        size, count, dtype = self.subgroup, _count(node), node.dtype
        whole = self.threads % size == 0 and (size % count == 0 or count % size == 0)
        return size > 1 and whole and dtype.kind != "b" and dtype.bits >= EXCHANGED_BITS

    def _length(self, node: UOp) -> int:
        """Elements that a reduction leaves in memory."""
        if not self._exchanges(node):
            return self.threads
        return self.threads // self.subgroup if _count(node) > self.subgroup else 0

    def _exchanged(self, node: UOp) -> UOp:
        """The values of the threads of a subgroup, combined by each of them."""
        value = self._name(node.src[0])
        offset = min(_count(node), self.subgroup) // 2
        while offset:
            other = UOp(ops.SHUFFLE, node.dtype, (value,), offset)
            value = self._add(UOp(node.arg, node.dtype, (value, other)))
            offset //= 2
        return value

    def _name(self, value: UOp) -> UOp:
        """A value that is used more than once, as a statement."""
        if value in self.named or value in self.values or value.op is ops.CONST:
            return value
        return self._add(value)

    def _of_subgroups(self, node: UOp, shared: UOp) -> Parts:
        """The values of several subgroups, one of each, combined by every thread."""
        size = self.subgroup
        parts = _count(node) // size
        value = self._exchanged(node)
        first = None
        if self.threads != parts * size:
            place = _index(ops.MUL, _index(ops.FLOORDIV, THREAD, parts * size), parts)
            first = self._start(place)
        leads = UOp(ops.EQ, dt.bool_, (_index(ops.MOD, THREAD, size), const(0, dt.index)))
        store = _store(shared, value, _index(ops.FLOORDIV, THREAD, size))
        self._add(access.under(leads, store))
        yield
        return first, parts

    def _of_threads(self, node: UOp, shared: UOp) -> Parts:
        value, lane = node.src
        parts = count = _count(node)
        first = None
        if self.threads != count:
            first = self._start(_index(ops.SUB, THREAD, lane))
        self._add(_store(shared, value, THREAD))
        yield
        if count > FEW_PARTS and count % FEW_PARTS == 0:
            parts = min(FEW_PARTS, count // UNROLLED)
            places = [_behind(THREAD, i) for i in range(0, count, parts)]
            total = _chain(node, [self._load(shared, place) for place in places])
            few = UOp(ops.LT, dt.bool_, (lane, const(parts, dt.index)))
            self._add(access.under(few, _store(shared, total, THREAD)))
            yield
        return first, parts

    def _start(self, place: UOp) -> UOp:
        """Where the parts of a thread's reduction start, named once."""
        if place not in self.starts:
            self.starts[place] = self._add(place)
        return place

    def _buffer(self, dtype: DType, length: int, taken: Iterable[UOp]) -> UOp | None:
        """A buffer of the workgroup: one that no thread reads any more; else a new one, beyond
        SCRATCH only if it is the first of its kind; else one that threads have to wait for. None:
        all are taken, or there is no room. Memory holds no bool.
        """
        held = dt.int32.vector(dtype.lanes) if dtype.kind == "b" else dtype
        fits = [each for each in self.buffers if each.dtype is held and each.arg.length == length]
        free = [each for each in fits if each not in taken]
        settled = [each for each in free if self.waited and each not in self.read]
        size = shared_bytes(held, length)
        more = not fits or self.scratch + size <= SCRATCH
        if not settled and more and size <= self.room:
            self.room -= size
            self.scratch += size
            number = self.first + len(self.buffers)
            self.buffers.append(UOp(ops.SHARED, held, (), args.Shared(number, length)))
            return self.buffers[-1]
        return next(iter(settled or free), None)

    def _no_room(self, dtype: DType, length: int) -> InternalError:
        return InternalError(
            f"{length} x {dtype} in workgroup memory for a reduction over {self.threads} threads",
            f"{self.room} bytes are left",
            id="lower.shared",
            next="report this with the model",
        )

    def _load(self, buffer: UOp, place: UOp) -> UOp:
        """What is loaded after a buffer was filled anew is another value: it is another node."""
        for _ in range(1, self.used[buffer]):
            place = _index(ops.ADD, place, 0)
        return access.load(buffer, (place,))


def _count(node: UOp) -> int:
    """The threads that share a reduction."""
    return int(node.src[1].src[0].arg)


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
