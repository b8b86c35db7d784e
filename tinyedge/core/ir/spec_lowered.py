"""The grammar of lowered kernels: statements in order.

Names come before their uses, loops are closed, and no range is left that stands for copies or
lanes of vectors. What concerns threads: a barrier and an exchange between threads are reached by
all of them, and workgroup memory is used as `sharing` says, in every order that threads can run in.

A violation is a bug of the compiler: `check_lowered` raises InternalError naming the node and the
rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InternalError
from tinyedge.core.ir import access, fragments, ops
from tinyedge.core.ir.lowered import Geometry, Linear, workgroup_buffers
from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.sharing import Accesses, stranger
from tinyedge.core.ir.spec import BLOCK_KIND
from tinyedge.core.ir.uop import UOp, toposort

Array = Any

SERIAL_KINDS = ("loop", "serial", "reduce", BLOCK_KIND)
THREAD_KINDS = ("local", "lane", "threads", "fill")  # a position of a thread in its workgroup
KINDS = (*SERIAL_KINDS, "grid", "flat", *THREAD_KINDS)
UNNAMED = (
    *(ops.BEGIN, ops.END, ops.ACCUMULATOR, ops.SET, ops.STORE, ops.BARRIER),
    ops.FRAGMENT_STORE,
)
TOGETHER = (ops.SHUFFLE, *fragments.OPS)  # what all threads of a subgroup do together
SAMPLES = (1, 5)  # of what is the same in all threads of a workgroup


def check_lowered(linear: Linear, geometry: Geometry) -> None:
    """The grammar of statements."""
    nodes = toposort(linear.statements)
    _check_statements(linear)
    for node in nodes:
        _check_node(node, linear)
    if any(node.dtype.role or node.op in fragments.OPS for node in nodes):
        _check_fragments(nodes)
    if any(node.op in TOGETHER or node.op is ops.BARRIER for node in nodes):
        _check_together(linear.statements, geometry)
    if any(node.op is ops.SHARED for node in nodes):
        if geometry.threads == 1:
            _check_array(nodes)
        else:
            _Phases(linear, geometry).run()


def _fail(node: UOp, rule: str) -> InternalError:
    return InternalError(
        f"lowered: {node!r}", rule, id="spec.lowered", next="report this with the model"
    )


def _check_statements(linear: Linear) -> None:
    open_loops: list[UOp] = []
    declared: set[UOp] = set()
    for node in linear.statements:
        op = node.op
        if op is ops.BEGIN:
            open_loops.append(node.src[0])
        elif op is ops.END:
            if not open_loops or open_loops.pop() is not node.src[0]:
                raise _fail(node, "a loop is closed that is not the last one opened")
        elif op is ops.SET and node.src[0] not in declared:
            raise _fail(node, "an accumulator is set before it is declared")
        declared.add(node)
        for r in node.ranges:
            if r.arg.kind not in KINDS:
                raise _fail(r, f"a range of kind {r.arg.kind} is left")
            serial = r.arg.kind in SERIAL_KINDS
            if serial and r not in open_loops and op not in (ops.BEGIN, ops.END):
                raise _fail(node, f"range {r.arg.number} is used outside of its loop")
    if open_loops:
        raise _fail(open_loops[-1], "a loop is not closed")
    for reduction, value in linear.values.items():
        if value not in declared:
            raise _fail(reduction, "no statement has the value of a reduction")


def _check_node(node: UOp, linear: Linear) -> None:
    if node.op is ops.RANGE and [s.dtype for s in node.src] not in ([dt.index], [dt.index] * 3):
        raise _fail(node, "a range has a size, and a loop's a first step and where it stops")
    if node.op is ops.GROUP_REDUCE and node not in linear.values:
        raise _fail(node, "a reduction over threads is left")
    if node.op is ops.REDUCE_LANES:
        vector = node.src[0].dtype
        if vector.lanes < 2 or vector.scalar is not node.dtype or node.arg.identity is None:
            raise _fail(node, "the lanes of a vector are combined to one of them")
    if node.op in access.ACCESSES and node.arg and node.src[-1].dtype is not dt.bool_:
        raise _fail(node, "a guard is a condition")
    if node.op is ops.SHARED and (node.dtype.kind == "b" or node.arg.length < 1):
        raise _fail(node, "workgroup memory holds numbers, at least one")
    if node.op is ops.REGION:
        _check_region(node)
    if node.op in access.ACCESSES and node.src[0].op is ops.REGION:
        _check_region_load(node)
    if node.op not in access.ACCESSES or node.src[0].op is not ops.SHARED:
        return
    value = node if node.op is ops.LOAD else node.src[1]
    places = [place.dtype for place in access.indices_of(node)]
    guarded = node.op is ops.LOAD and node.arg
    if value.dtype.scalar is not node.src[0].dtype.scalar or places != [dt.index] or guarded:
        raise _fail(node, "workgroup memory is taken by whole elements, at one index")


def _check_array(nodes: Sequence[UOp]) -> None:
    """What a thread alone loads and stores of the memory of its workgroup lies in it."""
    for node in nodes:
        if node.op in access.ACCESSES and node.src[0].op is ops.SHARED:
            _check_bounds(node)


def _check_bounds(node: UOp) -> None:
    if not _is_bounded(node):
        raise _fail(node, "outside of the workgroup's memory")


def _is_bounded(node: UOp) -> bool:
    memory = node.src[0]
    lanes = (node if node.op is ops.LOAD else node.src[1]).dtype.lanes // memory.dtype.lanes
    low, high = bounds(access.indices_of(node)[0])
    return bool(0 <= low and high + lanes <= memory.arg.length)


def _check_region(node: UOp) -> None:
    param, start, guard = node.src
    if param.op is not ops.PARAM or param.dtype is not node.dtype or param.arg.is_image:
        raise _fail(node, "a region is a part of a buffer, with its type")
    if start.dtype is not dt.index or guard.dtype is not dt.bool_ or node.arg.length < 1:
        raise _fail(node, "a region has a first place, a condition and elements")


def _check_region_load(node: UOp) -> None:
    region = node.src[0]
    if node.op is ops.STORE or node.arg or [n.dtype for n in node.src[1:]] != [dt.index]:
        raise _fail(node, "a region is read at one index, under no condition of the load's own")
    low, high = bounds(_where_zeros(region, node.src[1]))
    if low < 0 or high + node.dtype.lanes > region.arg.length:
        raise _fail(node, f"a load at {low}..{high} of a region of {region.arg.length}")


def _where_zeros(region: UOp, place: UOp) -> UOp:
    """A place of a load where the region's guard is false."""
    choices = [n for n in toposort((place,)) if n.op is ops.WHERE and n.src[0] is region.src[2]]
    return substitute((place,), {n: n.src[2] for n in choices})[0] if choices else place


def _check_fragments(nodes: Sequence[UOp]) -> None:
    for node in nodes:
        wrong = fragments.fault(node)
        if wrong:
            raise _fail(node, wrong)


# What all threads do together.


def _check_together(statements: Sequence[UOp], geometry: Geometry) -> None:
    """Every thread of a workgroup reaches a barrier, and every thread of a subgroup an exchange."""
    loops: list[UOp] = []
    named: set[UOp] = set()
    for node in statements:
        if node.op is ops.BEGIN:
            loops.append(node.src[0])
        elif node.op is ops.END:
            loops.pop()
        else:
            exchanges = list(_exchanges(node, named))
            for r in loops if exchanges or node.op is ops.BARRIER else ():
                if any(map(_differs, r.src)):
                    raise _fail(node, f"some threads leave loop {r.arg.number} before others")
            for each in exchanges:
                _check_partners(each, geometry)
            named.add(node)


def _check_partners(node: UOp, geometry: Geometry) -> None:
    """Subgroups are whole, and take a fragment from one place."""
    shuffles = node.op is ops.SHUFFLE
    size = 1 << int(node.arg).bit_length() if shuffles else fragments.SUBGROUP
    if geometry.threads % size or (shuffles and node.arg < 1):
        raise _fail(node, f"not every one of {geometry.threads} threads has a partner")
    threads = np.arange(geometry.threads)
    for operand in (fragments.memory(node) or ())[1:]:
        for sample in SAMPLES:
            value = _Places(geometry, threads, sample).value(operand)
            if value is None or not fragments.agree(threads, value):
                raise _fail(node, "threads of a subgroup take a fragment from several places")


def _exchanges(statement: UOp, named: set[UOp]) -> Iterator[UOp]:
    """The exchanges of a statement; each must be made whatever a thread's values are."""
    stack = [(statement, statement.op is ops.STORE and bool(statement.arg))]
    seen = set()
    while stack:
        node, divided = stack.pop()
        if node in named or (node, divided) in seen:
            continue
        seen.add((node, divided))
        if node.op in TOGETHER:
            if divided:
                raise _fail(node, "an exchange between threads under a condition")
            yield node
        chooses = node.op is ops.WHERE or (node.op is ops.LOAD and bool(node.arg))
        stack += [(source, divided or chooses) for source in node.src]


def _differs(count: UOp) -> bool:
    """Whether the threads of a workgroup may have different values of a loop's count."""
    return any(
        node.op in (ops.LOAD, ops.SHUFFLE, ops.ACCUMULATOR)
        or (node.op is ops.SPECIAL and node.arg.kind == "thread")
        or (node.op is ops.RANGE and node.arg.kind in THREAD_KINDS)
        for node in toposort((count,))
    )


# Who uses workgroup memory when.


class _Phases:
    """Follows the statements for all threads of a workgroup; loops twice, for what one iteration
    leaves to the next, but step by step where these decide at which places threads store.
    """

    def __init__(self, linear: Linear, geometry: Geometry) -> None:
        self.linear = linear
        self.threads = np.arange(geometry.threads)
        self.places = _Places(geometry, self.threads)
        self.named: set[UOp] = set()
        self.accesses: dict[UOp, Accesses] = {}
        numbers = set()
        for shared in workgroup_buffers(linear.statements):
            if shared.arg.number in numbers:
                raise _fail(shared, "two workgroup buffers have one number")
            numbers.add(shared.arg.number)
            self.accesses[shared] = Accesses(shared.arg.length)

    def run(self) -> None:
        self._block(self.linear.statements)

    def _block(self, statements: Sequence[UOp]) -> None:
        position = 0
        while position < len(statements):
            node = statements[position]
            position += 1
            if node.op is ops.BEGIN:
                end = statements.index(UOp(ops.END, dt.index, node.src), position)
                self._loop(node.src[0], statements[position:end])
                position = end + 1
            elif node.op is ops.BARRIER:
                for accesses in self.accesses.values():
                    accesses.barrier()
            else:
                self._statement(node)

    def _loop(self, r: UOp, body: Sequence[UOp]) -> None:
        if self._decides(r, body):
            for step in range(min(r.src[0].arg, 2 * _period(r, body))):
                self.places.at(r, step)
                self._block(body)
            self.places.at(r, None)
            return
        before = {shared: accesses.copy() for shared, accesses in self.accesses.items()}
        for _ in range(2):
            self._block(body)
        if len(r.src) > 1 or r.src[0].op is not ops.CONST:  # it may have no iterations
            for shared, accesses in before.items():
                self.accesses[shared].join(accesses)

    def _decides(self, r: UOp, body: Sequence[UOp]) -> bool:
        """Whether places in the workgroup's memory at which threads store depend on a loop's step.
        Loads at places that are not known are of all of it, but for those in and around loops that
        go step by step, where each place must be known.
        """
        found = list(_shared_places(body))
        stored = [place for node, place in found if node.op is ops.STORE]
        inner = [node.src[0] for node in body if node.op is ops.BEGIN]
        steps = self.places.steps or any(q in place.ranges for q in inner for place in stored)
        places = [place for _, place in found] if steps else stored
        known = len(r.src) == 1 and r.src[0].op is ops.CONST
        return known and any(r in place.ranges for place in places)

    def _statement(self, node: UOp) -> None:
        everyone = np.ones(self.threads.shape, bool)
        self.named.discard(node)  # of the iteration before
        active: Array | None = everyone
        if node.op is ops.STORE and node.arg:
            guard = access.guard_of(node)
            self._loads((guard,), everyone)
            active = self.places.value(guard)
            self._loads(node.src[:-1], active)
        else:
            self._loads((node,), everyone)
        if node.op is ops.STORE and node.src[0].op is ops.SHARED:
            self._store(node, active)
        if node.op is ops.FRAGMENT_STORE and node.src[0].op is ops.SHARED:
            self._fragment(node)
        if node.op not in UNNAMED:
            self.named.add(node)

    def _loads(self, roots: tuple[UOp, ...], active: Array | None) -> None:
        for node in toposort(roots, stop=self._is_named):
            if self._is_named(node) or not node.src or node.src[0].op is not ops.SHARED:
                continue
            if node.op is ops.LOAD:
                self._load(node, active)
            elif node.op is ops.FRAGMENT_LOAD:
                self._fragment(node)

    def _is_named(self, node: UOp) -> bool:
        return node in self.named or node in self.linear.values

    def _load(self, node: UOp, active: Array | None) -> None:
        accesses = self.accesses[node.src[0]]
        self._whole(node, node.dtype)
        places = self.places.value(node.src[1])
        if places is None:
            self._check_steps(node)
            wrong = accesses.load_any()
        else:
            some = slice(None) if active is None else active
            places = self._inside(node, places, some)
            wrong = accesses.load(self.threads[some], places)
        if wrong:
            raise _fail(node, wrong)

    def _check_steps(self, node: UOp) -> None:
        """A load lies in the memory at each step of the loop that alone is not known of its place,
        where bounds do not say so.
        """
        place = node.src[1]
        loops = [r for r in place.ranges if r.arg.kind in SERIAL_KINDS]
        if _is_bounded(node) or len(loops) != 1 or loops[0].src[0].op is not ops.CONST:
            return _check_bounds(node)
        (loop,) = loops
        for step in range(loop.src[0].arg):
            self.places.at(loop, step)
            places = self.places.value(place)
            if places is None:
                raise _fail(node, "which threads load what of workgroup memory is not known")
            self._inside(node, places, slice(None))
        self.places.at(loop, None)
        return None

    def _fragment(self, node: UOp) -> None:
        """Which thread of a subgroup loads or stores which element is not known."""
        found = fragments.memory(node)
        assert found is not None
        accesses, stores = self.accesses[found[0]], node.op is ops.FRAGMENT_STORE
        place, stride = map(self.places.value, found[1:])
        if place is None or stride is None:
            wrong = "a store at a place that is not known" if stores else accesses.load_any()
        else:
            transposed = not stores and bool(node.arg)
            places = fragments.elements(self.threads, place, stride, transposed=transposed)
            flat = self._inside(node, places, slice(None)).reshape(-1)
            who = np.full(flat.shape, stranger())
            wrong = accesses.store(who, flat) if stores else accesses.load(who, flat)
        if wrong:
            raise _fail(node, wrong)

    def _whole(self, node: UOp, dtype: DType) -> None:
        if dtype.lanes != node.src[0].dtype.lanes:
            raise _fail(node, "threads take workgroup memory by whole elements")

    def _store(self, node: UOp, active: Array | None) -> None:
        self._whole(node, node.src[1].dtype)
        places = self.places.value(node.src[2])
        if places is None or active is None:
            raise _fail(node, "which threads store where in workgroup memory is not known")
        wrong = self.accesses[node.src[0]].store(
            self.threads[active], self._inside(node, places, active)
        )
        if wrong:
            raise _fail(node, wrong)

    def _inside(self, node: UOp, places: Array, active: Any) -> Array:
        chosen = places[active]
        if chosen.size and not (0 <= chosen.min() and chosen.max() < node.src[0].arg.length):
            raise _fail(node, "outside of the workgroup's memory")
        return chosen


def _shared_places(body: Sequence[UOp]) -> Iterator[tuple[UOp, UOp]]:
    """Accesses of the workgroup's memory, and on which places and conditions they depend."""
    for node in toposort(body):
        if node.op in access.ACCESSES and node.src[0].op is ops.SHARED:
            first = 1 if node.op is ops.LOAD else 2
            yield from ((node, place) for place in node.src[first:])


def _period(r: UOp, body: Sequence[UOp]) -> int:
    """After how many steps of a loop all places in the workgroup's memory are those of before: they
    depend on what is left of it, divided by constants, or on all of it.
    """
    period = 1
    places = [place for _, place in _shared_places(body)]
    for node in toposort(places, stop=lambda n: _is_part(n, r)):
        if node is r:
            return int(r.src[0].arg)
        period = math.lcm(period, int(node.src[1].arg) if _is_part(node, r) else 1)
    return period


def _is_part(node: UOp, r: UOp) -> bool:
    return node.op is ops.MOD and node.src[0] is r and node.src[1].op is ops.CONST


class _Places:
    """Values that depend on nothing but which thread of the workgroup computes them.

    sample: of loops' variables, workgroups and sizes, which are the same in all threads; None: what
    depends on them is not known.
    """

    def __init__(self, geometry: Geometry, threads: Array, sample: int | None = None) -> None:
        self.threads = threads
        self.sample = sample
        self.positions = dict(geometry.positions)
        self.values: dict[UOp, Array | None] = {}
        self.steps: dict[UOp, int] = {}

    def at(self, r: UOp, step: int | None) -> None:
        """From here on a loop is at a step; None: it is not known at which."""
        self.values.clear()
        if step is None:
            del self.steps[r]
        else:
            self.steps[r] = step

    def value(self, root: UOp) -> Array | None:
        """One of each thread; None: it depends on more."""
        for node in toposort((root,), operands=self._operands):
            if node not in self.values:
                self.values[node] = self._value(node)
        value = self.values[root]
        return None if value is None else np.broadcast_to(value, self.threads.shape)

    def _operands(self, node: UOp) -> tuple[UOp, ...]:
        return (self.positions[node],) if node in self.positions else node.src

    def _value(self, node: UOp) -> Array | None:
        if node in self.positions:
            return self.values[self.positions[node]]
        if node.op is ops.CONST:
            return np.asarray(node.arg, node.dtype.numpy)
        if node.op is ops.SPECIAL and node.arg.kind == "thread":
            return self.threads
        if node in self.steps:
            return np.asarray(self.steps[node])
        if node.op in (ops.RANGE, ops.SPECIAL, ops.SYMBOL):
            return None if self.sample is None else np.asarray(self.sample)
        src = [self.values[s] for s in node.src]
        if node.op.numpy is None or any(value is None for value in src):
            return None
        return np.asarray(node.op.numpy(*src))
