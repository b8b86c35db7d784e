"""From expressions to statements: loops, accumulators, and every value at the outermost place it
can have.

The result is a list of nodes in the order of the program text. A BEGIN opens a loop and an END
closes it, an ACCUMULATOR declares a variable and a SET changes it, a STORE stores; any other node
in the list is a value that gets a name. What is not in the list is written where it is used.

Memory of a workgroup is filled at the outermost place where all that is stored in it is known,
between barriers: one before, where an earlier iteration may still be read, and one after. What a
thread stores there is loaded before it waits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tinyedge.core import dtype as dt
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.lowered import Linear
from tinyedge.core.ir.polynomial import atom_key, terms
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.spec import BLOCK_KIND
from tinyedge.core.ir.uop import BINDING, UOp, as_node, own_ranges, toposort

Path = tuple[UOp, ...]
LOOPS = ("loop", "serial")  # around stores
SERIAL = ("loop", "serial", "reduce", BLOCK_KIND)
NAMED = (ops.GROUP_REDUCE, ops.REGION)
LOOPED = (ops.REDUCE_LOOP, ops.RESCALED_LOOP)
APART = (*LOOPED, ops.FILLED)  # what has statements of its own
BARRIER = UOp(ops.BARRIER, dt.index)
INLINE = (
    *(ops.CONST, ops.RANGE, ops.SYMBOL, ops.PARAM, ops.SHARED),
    *(ops.ACCUMULATOR, ops.RUNNING),
)


@dataclass
class _Block:
    path: Path
    items: list[UOp | _Block] = field(default_factory=list)


def linearize(sink: UOp, *, vectors_in_turn: bool = False) -> Linear:
    """The statements of an expanded kernel. vectors_in_turn: as in Caps."""
    return _without_fills(_Linearizer(sink, vectors_in_turn).run())


class _Linearizer:
    def __init__(self, sink: UOp, vectors_in_turn: bool) -> None:
        self.vectors_in_turn = vectors_in_turn
        self.values: dict[UOp, UOp] = {}
        self.paths: dict[UOp, Path] = {}
        self.range_paths: dict[UOp, Path] = {}
        self.reduce_groups: dict[Path, list[UOp]] = {}
        self.running: dict[UOp, UOp] = {}  # reductions of which steps read what was before them
        self._place_ranges(sink)
        self.sink = self._ordered(sink)
        self._place_ranges(self.sink)  # whose limits may be ordered
        self.nodes = toposort((self.sink,), operands=access.in_order)
        for node in self.nodes:  # operands first
            self._path(node)
        self._group_reductions()
        self.uses = self._count_uses()
        self.stores = set(self.sink.src)
        self.done: set[UOp] = set()
        self.root = _Block(())
        self.blocks: dict[Path, _Block] = {(): self.root}
        self.accumulators = 0

    # Where things belong.

    def _place_ranges(self, sink: UOp) -> None:
        path: Path = ()
        loops = [n for n in toposort((sink,)) if n.op is ops.RANGE and n.arg.kind in LOOPS]
        for loop in sorted(loops, key=lambda r: r.arg.number):
            path = (*path, loop)
            self.range_paths[loop] = path
        parents: dict[Path, Path] = {}
        for node in reversed(toposort((sink,))):  # a reduction inside of another one comes after it
            own = _loops(node)
            if not own:
                continue
            parent = self._reduction_parent(node)
            if own not in parents or len(parent) > len(parents[own]):
                parents[own] = parent
            for i, r in enumerate(own):
                self.range_paths[r] = parents[own] + own[: i + 1]

    def _reduction_parent(self, reduction: UOp) -> Path:
        return self._longest(r for r in reduction.ranges if r.arg.kind in SERIAL)

    def _longest(self, ranges: object) -> Path:
        best: Path = ()
        for r in ranges:  # type: ignore[attr-defined]
            path = self.range_paths[r]
            if len(path) > len(best):
                best = path
        return best

    def _path(self, node: UOp) -> Path:
        """The loops around a node: those of its ranges, and those around the reductions that it
        uses, which may be more where they run with others over the same ranges.
        """
        path = self.paths.get(node)
        if path is None:
            own = _loops(node)
            if own:
                path = self.range_paths[own[0]][:-1]
            else:
                path = self._longest(r for r in node.ranges if r.arg.kind in SERIAL)
                for source in node.src:
                    around = self._path(source)
                    path = around if len(around) > len(path) else path
            self.paths[node] = path
        return path

    def _depth(self, node: UOp) -> int:
        return len(self._longest(r for r in node.ranges if r.arg.kind in SERIAL))

    def _ordered(self, sink: UOp) -> UOp:
        """Index sums with the terms of the outer loops first, so that their sums can be kept."""
        done: dict[UOp, UOp] = {}

        def ordered(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if node.op is ops.ADD and node.dtype is dt.index:
                return self._sum(node, done)
            return None

        return bottom_up((sink,), ordered, done)[sink]

    def _sum(self, node: UOp, done: dict[UOp, UOp]) -> UOp:
        levels: dict[int, dict[tuple[UOp, ...], int]] = {}
        for monomial, coefficient in terms(node).items():
            depth = max((self._depth(atom) for atom in monomial), default=10**6)
            levels.setdefault(depth, {})[monomial] = coefficient
        total: UOp | None = None
        for depth in sorted(levels):
            part = _factored(levels[depth], done)
            total = part if total is None else UOp(ops.ADD, dt.index, (total, part))
        assert total is not None
        return total

    def _group_reductions(self) -> None:
        self.fills = [node for node in self.nodes if node.op is ops.FILLED]
        for node in self.nodes:
            if node.op is ops.RUNNING:
                self.running[node.src[0]] = node
            if node.op in LOOPED:
                self.reduce_groups.setdefault(own_ranges(node), []).append(node)

    def _count_uses(self) -> dict[UOp, int]:
        uses: dict[UOp, int] = {}
        self.users: dict[UOp, int] = {}
        for node in self.nodes:
            for source in node.src:
                self.users[source] = self.users.get(source, 0) + 1
                uses[source] = uses.get(source, 0) + (2 if _inline(node) else 1)
                if self._path(source) != self._path(node) and node.op not in (*APART, ops.SINK):
                    uses[source] += 1
                if node.op in LOOPED and source in node.src[: BINDING[node.op]]:
                    inside = self.range_paths[node.src[-1]]
                    if self._path(source) != inside:
                        uses[source] += 1
        return uses

    # Emission.

    def run(self) -> Linear:
        stores = list(self.sink.src)
        outer = [s for s in stores if not self._path(s)]
        inner = [s for s in stores if self._path(s)]
        for store in outer:
            self._need(store)
        groups: dict[Path, list[UOp]] = {}
        for store in inner:
            groups.setdefault(self._path(store), []).append(store)
        for path, members in groups.items():
            self._open(path, members)
            for store in members:
                self._need(store)
        result = Linear(values=self.values)
        _emit(self.root, result.statements)
        return result

    def _open(self, path: Path, contents: list[UOp]) -> None:
        """Make the block of a path; first everything from outside that its contents need."""
        for length in range(1, len(path) + 1):
            prefix = path[:length]
            if prefix in self.blocks:
                continue
            for node in toposort(contents, self._is_known, access.in_order):
                if self._around(node, path[: length - 1]) and node not in contents:
                    self._need(node)
            block = _Block(prefix)
            self.blocks[prefix[:-1]].items.append(block)
            self.blocks[prefix] = block

    def _need(self, root: UOp) -> None:
        """Emit a node after its operands."""
        for node in toposort(
            (root,), lambda n: self._is_known(n) or n.op in APART, access.in_order
        ):
            if node in self.done:
                continue
            if node.op in LOOPED:
                self._reduce(node)
            elif node.op is ops.FILLED:
                self._fill(node)
            else:
                self._emit_value(node)
            self.done.add(node)

    def _emit_value(self, node: UOp) -> None:
        if node.op is ops.STORE:
            if node in self.stores:
                self._append(self._path(node), node)
        elif node.op in NAMED or (self.uses.get(node, 0) > 1 and not _inline(node)):
            self._append(self._path(node), node)

    def _append(self, path: Path, node: UOp) -> None:
        self.blocks[path].items.append(node)

    def _reduce(self, reduction: UOp) -> None:
        """A loop nest for all reductions over the same ranges, each with its accumulator."""
        own = own_ranges(reduction)
        group = [f for f in self.reduce_groups[own] if f not in self.done]
        parent = self._path(reduction)
        inside = self.range_paths[own[-1]]
        bodies = [body for f in group for body in f.src[: BINDING[f.op]]]
        for node in toposort(bodies, stop=self._is_known):
            if self._around(node, parent) and not self._within(node, own):
                self._need(node)
        for f in group:
            if f in self.values:
                continue  # it goes on with the sum that it is a part of
            op = ops.ADD if f.op is ops.RESCALED_LOOP else f.arg
            accumulator = UOp(ops.ACCUMULATOR, f.dtype, (), args.Accumulator(self.accumulators, op))
            self.accumulators += 1
            self.values[f] = accumulator
            if f in self.running:
                self.values[self.running[f]] = accumulator
            self._append(parent, accumulator)
        self._open(inside, bodies)
        self._step(inside, group)
        self.done.update(group)

    def _fill(self, first: UOp) -> None:
        """Memory of the workgroup, and all other that can be filled at the same place."""
        path = self._path(first)
        self._need_for(first)  # which may fill other memory
        together = [f for f in self.fills if self._path(f) == path and self._can_fill(f)]
        group = list(dict.fromkeys((first, *together)))
        for f in group[1:]:
            self._need_for(f)
        shared = any(f.arg for f in group)
        if shared and path:
            self._append(path, BARRIER)
        for f in group:
            self._store_all(f)
        if shared:
            self._append(path, BARRIER)
        self.done.update(group)

    def _can_fill(self, filled: UOp) -> bool:
        """Whether nothing that is stored there waits for a reduction or for other memory."""
        below = toposort(filled.src, stop=lambda n: n in self.done)
        return filled not in self.done and all(n in self.done or n.op not in APART for n in below)

    def _need_for(self, filled: UOp) -> None:
        """What is known outside of the loops in which memory is filled. Without loops that is all
        that is stored there, by its names.
        """
        path, loops = self._path(filled), _loops(filled)
        for node in toposort(filled.src, lambda n: n in self.done, access.in_order):
            if self._around(node, path) and node.op is not ops.STORE:
                self._need(node)
        for store in filled.src[1:] if filled.arg and not loops else ():
            value = store.src[1]
            if not _inline(value) and self.uses.get(value, 0) <= 1:
                self._append(path, value)

    def _store_all(self, filled: UOp) -> None:
        path = (*self._path(filled), *_loops(filled))
        stores = [s for s in filled.src if s.op is ops.STORE]
        self._open(path, stores)
        for store in stores:
            for source in store.src:
                self._need(source)
            self._append(path, store)
            self.done.add(store)

    def _around(self, node: UOp, path: Path) -> bool:
        """Whether a node belongs to a block or to one around it."""
        own = self._path(node)
        return own == path[: len(own)]

    def _step(self, inside: Path, group: Sequence[UOp]) -> None:
        """What one iteration does to accumulators. Sums that are rescaled take one part after the
        other, each all of them; what steps read of before is set last.
        """
        rescaled = [f for f in group if f.op is ops.RESCALED_LOOP]
        for f in rescaled:
            self._set(inside, self.values[f], f.src[1], ops.MUL)
        for parts in itertools.zip_longest(*(_parts(f.src[0], ops.ADD) for f in rescaled)):
            for f, part in zip(rescaled, parts, strict=True):
                if part is not None:
                    self._set(inside, self.values[f], part, ops.ADD)
        plain = [f for f in group if f not in rescaled and f not in self.running]
        for f in plain:
            for part in _parts(f.src[0], f.arg):
                if self._continues(part, f):
                    self.values[part] = self.values[f]
        order = _by_vectors if self.vectors_in_turn else _in_turn
        for f, part in order([(f, _parts(f.src[0], f.arg)) for f in plain]):
            if self.values.get(part) is self.values[f]:
                self._need(part)
            else:
                self._set(inside, self.values[f], part, f.arg)
        for f in group:
            if f in self.running and f not in rescaled:
                self._set(inside, self.values[f], f.src[0], f.arg)

    def _continues(self, part: UOp, whole: UOp) -> bool:
        """Whether a reduction is of the same kind as the one that it alone is a part of, and no
        block of it.
        """
        if any(r.arg.kind == BLOCK_KIND for r in own_ranges(whole)):
            return False
        same = part.op is ops.REDUCE_LOOP and part.op is whole.op and part.arg is whole.arg
        return same and part.dtype is whole.dtype and self.users.get(part) == 1

    def _set(self, path: Path, accumulator: UOp, value: UOp, op: ops.Primitive) -> None:
        self._need(value)
        self._append(path, UOp(ops.SET, accumulator.dtype, (accumulator, value), op))

    def _is_known(self, node: UOp) -> bool:
        """Whether a node has its value already: what a reduction was before a step, in its loop."""
        return node in self.done or node.op is ops.RUNNING

    def _within(self, node: UOp, own: Path) -> bool:
        return any(r in node.ranges for r in own)


def _loops(node: UOp) -> Path:
    """The loops that a reduction is, or in which memory is filled."""
    if node.op in LOOPED:
        return own_ranges(node)
    return tuple(s for s in node.src if s.op is ops.RANGE) if node.op is ops.FILLED else ()


def _without_fills(linear: Linear) -> Linear:
    """The statements with the memory alone in the place of its being filled."""
    if not any(node.op is ops.FILLED for node in toposort(linear.statements)):
        return linear

    def memory(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return src[0] if node.op is ops.FILLED else None

    done = bottom_up((*linear.statements, *linear.values), memory)
    values = {done[key]: done[value] for key, value in linear.values.items()}
    return Linear([done[node] for node in linear.statements], values)


def _inline(node: UOp) -> bool:
    """Whether a node is written where it is used, however often."""
    if node.op is ops.VECTOR and len(node.src) == 1:
        return node.src[0].op in INLINE
    return node.op in INLINE or (node.op is ops.LANE)


def _parts(body: UOp, op: ops.Primitive) -> list[UOp]:
    """a + b + c as its parts, each added to the accumulator in order."""
    parts: list[UOp] = []
    while body.op is op and len(body.src) == 2 and len(parts) < 64:
        parts.append(body.src[1])
        body = body.src[0]
    parts.append(body)
    return parts[::-1]


def _in_turn(sums: Sequence[tuple[UOp, list[UOp]]]) -> Iterator[tuple[UOp, UOp]]:
    """The parts of one sum after those of the other."""
    return ((f, part) for f, parts in sums for part in parts)


def _by_vectors(sums: Sequence[tuple[UOp, list[UOp]]]) -> Iterator[tuple[UOp, UOp]]:
    """The parts of sums, each sum's own in their order. Where these are products of vectors with
    lanes of a row's values, the vector that most sums have next comes for all of these.
    """
    products = [[_vector_of(part) for part in parts] for _, parts in sums]
    if not all(all(of_sum) for of_sum in products):
        yield from _in_turn(sums)
        return
    steps = [0] * len(sums)
    while True:
        waiting: dict[UOp | None, list[int]] = {}
        for n in sorted(range(len(sums)), key=lambda n: steps[n]):
            if steps[n] < len(products[n]):
                waiting.setdefault(products[n][steps[n]], []).append(n)
        if not waiting:
            return
        vector = max(waiting, key=lambda v: len(waiting[v]))
        for n in sorted(waiting[vector]):
            yield sums[n][0], sums[n][1][steps[n]]
            steps[n] += 1


def _vector_of(part: UOp) -> UOp | None:
    """The vector of a product with a lane of another one."""
    for factor, other in (part.src, part.src[::-1]) if part.op is ops.MUL else ():
        if factor.op is ops.VECTOR and len(factor.src) == 1:
            number = factor.src[0]
            number = number.src[0] if number.op is ops.CAST else number
            if number.op is ops.LANE:
                return other
    return None


def _factored(polynomial: dict[tuple[UOp, ...], int], done: dict[UOp, UOp]) -> UOp:
    total: UOp | None = None
    for monomial, coefficient in sorted(
        polynomial.items(), key=lambda item: [atom_key(atom) for atom in item[0]]
    ):
        term: UOp | None = None
        for atom in monomial:
            atom = done.get(atom, atom)
            term = atom if term is None else UOp(ops.MUL, dt.index, (term, atom))
        factor = as_node(coefficient)
        if term is None:
            term = factor
        elif coefficient != 1:
            term = UOp(ops.MUL, dt.index, (term, factor))
        total = term if total is None else UOp(ops.ADD, dt.index, (total, term))
    assert total is not None
    return total


def _emit(block: _Block, statements: list[UOp]) -> None:
    for item in block.items:
        if isinstance(item, _Block):
            loop = item.path[-1]
            statements.append(UOp(ops.BEGIN, dt.index, (loop,)))
            _emit(item, statements)
            statements.append(UOp(ops.END, dt.index, (loop,)))
        else:
            statements.append(item)
