"""Which tensors get a buffer of their own: everything else is computed where it is used.

One pass over the graph from the outputs up knows, for every node, in which kernels and through
which views its value will be computed and how often an element is computed there. A node whose
computation would be repeated, and is worth more than a load, is realized. A second pass, downward,
cuts what would exceed the device's bindings or grow without bound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.reductions import has_row_in_registers
from tinyedge.core.compiler.schedule.products import has_sides_of, reduces_rows_of, viewed
from tinyedge.core.compiler.schedule.recompute import Kept, choose
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.memory import MEMORY, kernels_write
from tinyedge.core.ir.movement import MOVEMENTS, needed
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Shape, UOp, consumers, toposort

LARGE_KERNEL = 200  # nodes
CHEAP_COST = 2  # operations that are recomputed rather than kept
MANY_REDUCTIONS = 8  # in one kernel; compiling one takes time in their square
SHUFFLED_PARTS = 8  # parts of a concatenation that one kernel selects from
FEW_NODES = 32  # between a node and what is kept below it, for it to be computed again
LONG_PART = 64  # steps of a sum that is not computed beside what lies beyond it, load by load
SINGLE_LOAD = 0.25  # of a tensor of one element, which a thread loads once

ALIGNED = "aligned"  # elements correspond: only elementwise operations and reductions lie between
SCORE = "score"  # the scores of an attention, of which it computes each once
ROW = "row"  # a reduction comes back over the axes that it reduced: computed once a row
ROW_PATH = -1  # the path of all values that a row shares
VIEWED = "viewed"  # read through other views

REDUCTIONS = (ops.REDUCE, ops.ATTEND)

Row = tuple[Shape, tuple[int, ...]]  # what is reduced, over which axes


@dataclass(frozen=True)
class Use:
    """One way in which a kernel uses a node: through which views, how often an element is
    computed.
    """

    kernel: UOp
    path: int = 0
    repeats: float = 1.0
    kind: str = ALIGNED
    summed: bool = False  # within a reduction
    part: bool = False  # as some of the elements of what is written


@dataclass
class Decision:
    """What `decide` found."""

    realized: dict[UOp, None] = field(default_factory=dict)  # nodes with a buffer, in order
    # for a realized chain of assignments on an empty tensor, its assignments in order; each is a
    # kernel of its own that writes its region
    parts: dict[UOp, list[UOp]] = field(default_factory=dict)


@dataclass(frozen=True)
class ProducerCost:
    """What computing a node from sources takes."""

    cost: float = 0
    loads: float = 0
    reduction: bool = False  # a reduction is part of it
    row: bool = False  # the node depends on a reduction that came back over the axes it reduced
    # it is made of weights alone, which lie in memory in the form that takes the least of it
    constant: bool = False


def decide(outputs: Iterable[UOp], caps: Caps, *, again: bool = False) -> Decision:
    """Choose the realized nodes of a graph: twice, as the kernels that compute reductions are known
    then, and what only moves and combines what they leave in memory costs less than it seemed.
    again: what is kept long may be computed again instead, see `recompute`.
    """
    roots = list(outputs)
    first = _Fusion(roots, caps)
    first.upward()
    fusion = _Fusion(roots, caps, first.reducing())
    fusion.upward()
    choice = choose(fusion.facts()) if again else None
    if choice is not None and choice.recomputed:
        kept = (first.reducing() | choice.kept) - choice.recomputed
        fusion = _Fusion(roots, caps, kept, choice.recomputed)
        fusion.upward()
    return fusion.downward()


def is_source(node: UOp) -> bool:
    return node.op.group == "source"


class _Fusion:
    def __init__(
        self,
        roots: list[UOp],
        caps: Caps,
        kept: Collection[UOp] = (),
        again: Collection[UOp] = (),
    ) -> None:
        """kept: nodes that are realized in any case. again: those that are in none."""
        self.caps = caps
        self.kept = kept
        self.again = again
        self.order = toposort(roots)
        self.users = consumers(self.order, needed)
        self.rows = _row_shapes(self.order)
        self.filled = _filled(self.order)
        self.cones = self._cones()
        self.realized: set[UOp] = {root for root in roots if not is_source(root)}
        for loop in (node for node in self.order if node.op is ops.LOOP_CALL):
            self.realized.add(loop)
            self.realized.update(v for v in map(viewed, loop.src) if not is_source(v))
        for node in (node for node in self.order if kernels_write(node.op)):
            self.realized.add(node)
            self.realized.update(v for v in node.src[1:2] if not is_source(v))
        self.forced = frozenset(self.realized)
        # whether a product's rows may be reduced as soon as they are there: by threads that share
        # them; one thread has better tiles where it does nothing else
        self.pools = caps.threads > 1 and caps.shared > 0
        self.contexts: dict[UOp, list[Use]] = {}
        self.reductions: dict[UOp, list[UOp]] = {}
        self.transforming: set[UOp] = set()  # kernels that compute transforms
        self.scored: set[UOp] = set()  # kernels that compute an attention's scores
        self.kernel_rows: dict[UOp, Row] = {}
        self.parts: dict[UOp, list[UOp]] = {}
        self.part_of: dict[UOp, UOp] = {}
        self.pulled: set[UOp] = set()
        self.paths: dict[tuple[int, object], int] = {}

    # Facts from the sources down.

    def _cones(self) -> dict[UOp, ProducerCost]:
        cones: dict[UOp, ProducerCost] = {}
        for node in self.order:
            op = node.op
            if is_source(node):
                constant = node.op is not ops.BUFFER or node.arg.source.data is not None
                cones[node] = ProducerCost(loads=int(_in_memory(node)), constant=constant)
                continue
            if op in (ops.REALIZE, ops.LOOP_CALL, ops.WORD) or node in self.filled:
                cones[node] = ProducerCost(loads=1)
                continue
            inputs = [cones[s] for s in dict.fromkeys(needed(node))]
            back = op is ops.EXPAND and self._comes_back(node.src[0], node)
            cost = (op.cost if op.elementwise else 0) + sum(c.cost for c in inputs)
            loads = sum(c.loads for c in inputs) + (MEMORY[op].loads if op in MEMORY else 0)
            if cost == 0 and product(node.shape) == 1:
                loads = min(loads, SINGLE_LOAD)
            cones[node] = ProducerCost(
                cost=min(1e6, cost),
                loads=min(1000, loads),
                reduction=op in REDUCTIONS or any(c.reduction for c in inputs),
                row=back or (op is not ops.REDUCE and any(c.row for c in inputs)),
                constant=all(c.constant for c in inputs),
            )
        return cones

    def _comes_back(self, node: UOp, expand: UOp) -> bool:
        row = self.rows.get(node)
        if row is None:
            return False
        shape, axes = row
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        return shape == expand.shape and node.shape == kept

    # Uses, from the outputs up.

    def reducing(self) -> set[UOp]:
        """The realized nodes whose kernels compute reductions, or transforms."""
        found = {n for n in self.realized if self.reductions.get(n)} | self.transforming
        return found - self.filled

    def upward(self) -> None:
        for node in reversed(self.order):
            if is_source(node) or node.op is ops.LOOP_CALL:
                continue
            found = self.contexts[node] = self._uses(node)
            keep = node in self.kept or (
                node not in self.again and self._worth_keeping(node, found)
            )
            if node not in self.realized and keep:
                self.realized.add(node)
            if node in self.realized and node in self.filled:
                if self._is_shuffle(node):
                    self.pulled.update(_chain(node))
                elif self._is_ragged(node, self.caps.vector):
                    self.pulled.update(_chain(node))
                    values = (viewed(n.src[1]) for n in _chain(node))
                    self.realized.update(v for v in values if not is_source(v))
                else:
                    self._take_parts(node)
            if node.op is ops.TRANSFORM:
                own = node in self.realized
                self.transforming.update([node] if own else (use.kernel for use in found))
            if node.op in REDUCTIONS:
                own = node in self.realized
                for kernel in [node] if own else dict.fromkeys(use.kernel for use in found):
                    if node.op is ops.REDUCE:
                        self.kernel_rows.setdefault(kernel, self.rows[node])
                    self.reductions.setdefault(kernel, []).append(node)
                self.scored.update(use.kernel for use in found if not own and use.kind == SCORE)

    def facts(self) -> Kept:
        """What is decided so far, for what is kept long to be decided anew."""
        fixed = {*self.filled, *self.part_of, *self.pulled, *self.forced}
        free = (n for n in self.realized if n.op.elementwise and n not in fixed)
        readers = {
            node: {use.kernel for use in self.contexts.get(node, ())} for node in self.realized
        }
        once = {node for node in free if all(use.repeats <= 1 for use in self.contexts[node])}
        return Kept(self.order, self.realized, readers, once, self.reductions)

    def _take_parts(self, top: UOp) -> None:
        chain = [n for n in _chain(top) if n is top or n not in self.realized]
        self.part_of.update((n, top) for n in chain)
        self.parts[top] = chain[::-1]

    def _is_shuffle(self, top: UOp) -> bool:
        """Whether the parts are views of one tensor or of sources: one kernel copies them all."""
        chain = _chain(top)
        bases = {viewed(n.src[1]) for n in chain}
        if len(chain) < 2 or len(chain) > SHUFFLED_PARTS:
            return False
        return len(bases) == 1 or all(is_source(base) for base in bases)

    def _is_ragged(self, top: UOp, vector: int) -> bool:
        """Whether sums of products would lie beside each other where no vectors can be written:
        they get buffers of their own, and one kernel copies the parts together.
        """
        chain = _chain(top)
        if not 2 <= len(chain) <= SHUFFLED_PARTS or not top.shape:
            return False
        whole = args.Span(0, top.shape[-1])
        return any(
            self.cones[n.src[1]].reduction
            and n.arg[-1] != whole
            and any(isinstance(at, int) and at % vector for at in (n.arg[-1].start, n.arg[-1].end))
            for n in chain
        )

    def _uses(self, node: UOp) -> list[Use]:
        found: dict[tuple[UOp, int], Use] = {}
        for user in self.users.get(node, []):
            if user in self.part_of:
                if node is user.src[0] and node is not user.src[1]:
                    continue
                inherited = [Use(user)]
                steps = inherited
            else:
                inherited = [Use(user)] if user in self.realized else self.contexts[user]
                steps = [self._step(node, user, use) for use in inherited]
            for step in steps:
                key = (step.kernel, step.path)
                before = found.get(key, step)
                most = max(before, step, key=lambda each: each.repeats)
                found[key] = replace(most, summed=before.summed or step.summed)
        return list(found.values())

    def _step(self, node: UOp, user: UOp, use: Use) -> Use:
        """The use of `node` through `user`, given a use of `user`."""
        op = user.op
        if op.elementwise:
            return use
        if op is ops.REDUCE:
            return Use(use.kernel, self._path(use, user), use.repeats, use.kind, summed=True)
        if op is ops.EXPAND:
            row = self.rows.get(node)
            if (
                use.kind != VIEWED
                and self._comes_back(node, user)
                and self.kernel_rows.get(use.kernel, row) == row
            ):
                return Use(use.kernel, ROW_PATH, use.repeats, ROW, use.summed)
        if op.group == "movement":
            moves = MOVEMENTS[op]
            each = 1.0 if moves.fills else max(1.0, _ratio(user.shape, node.shape))
            kind = use.kind if moves.in_order or use.kind == SCORE else VIEWED
            path = self._path(use, (op, user.arg))
            return Use(
                use.kernel, path, use.repeats * each, kind, use.summed, use.part or moves.fills
            )
        if op is ops.LOOP_CALL:
            return Use(use.kernel, self._path(use, user), use.repeats, VIEWED, use.summed)
        rules = MEMORY[op]
        reads = rules.reads(user, node)
        if op is ops.ATTEND and node is user.src[0]:
            return Use(use.kernel, self._path(use, user), use.repeats, SCORE, summed=True)
        if reads is None:
            return use
        path = self._path(use, (op, user.arg) if rules.static else user)
        summed = use.summed or op is ops.ATTEND
        part = use.part or (op is ops.ASSIGN and node is user.src[1])
        return Use(use.kernel, path, use.repeats * max(1.0, reads), VIEWED, summed, part)

    def _path(self, use: Use, step: object) -> int:
        """The number of the path that goes on by one step."""
        return self.paths.setdefault((use.path, step), len(self.paths) + 1)

    def _worth_keeping(self, node: UOp, found: list[Use]) -> bool:
        op = node.op
        if op is ops.REALIZE:
            return True
        if op is ops.ASSIGN and node in self.filled:
            return node not in self.part_of and node not in self.pulled
        if op.group == "movement" or self._is_padding(node):
            return False
        repeats = sum(use.repeats for use in found)
        if op in REDUCTIONS:
            long = _ratio(node.src[0].shape, node.shape) >= LONG_PART
            return repeats > 1 or any(
                (use.part and long) or self._refuses(node, use) for use in found
            )
        if op is ops.TRANSFORM and any(self.reductions.get(use.kernel) for use in found):
            return True  # of its own tiles, which share what they load
        if repeats <= 1:
            return False
        cone = self.cones[node]
        if cone.constant and not cone.reduction:
            return False
        if len({use.kernel for use in found}) == 1 and cone.row:
            if all(use.kind != VIEWED for use in found):
                return False
        if cone.reduction:
            # by many threads, each element by itself
            summed = any(use.summed and use.repeats > 1 for use in found)
            near = None if summed else self._from_kept(node)
            if near is None:
                return True
            cone = near
        if cone.loads == 0 or self._is_in_registers(found):
            return False
        return cone.cost * (repeats - 1) > CHEAP_COST * repeats or cone.loads > 2

    def _is_in_registers(self, found: list[Use]) -> bool:
        """Whether the only kernel that uses a node reduces rows of it that its threads have in
        registers: each element is loaded and computed once, for all that the row is needed for.
        """
        kernels = {use.kernel for use in found}
        row = self.kernel_rows.get(found[0].kernel)
        if len(kernels) > 1 or row is None or any(use.kind not in (ALIGNED, ROW) for use in found):
            return False
        shape, axes = row
        lead = len(shape) - len(axes)
        if axes != tuple(range(lead, len(shape))) or not isinstance(product(shape[lead:]), int):
            return False
        width, rows = maximum(product(shape[lead:])), maximum(product(shape[:lead]))
        return has_row_in_registers(width, rows, self.caps)

    def _from_kept(self, node: UOp) -> ProducerCost | None:
        """What computing a node takes from kept nodes and sources; None where it takes more than
        some arithmetic on their elements.
        """
        seen, waiting, cost, loads = {node}, [node], 0.0, 0
        while waiting:
            below = waiting.pop()
            if below is not node and (below in self.kept or is_source(below)):
                loads += below in self.kept or _in_memory(below)
                continue
            if not (below.op.elementwise or below.op.group == "movement"):
                return None
            cost += below.op.cost if below.op.elementwise else 0
            waiting += [source for source in needed(below) if source not in seen]
            seen.update(needed(below))
            if len(seen) > FEW_NODES:
                return None
        return ProducerCost(cost, loads)

    def _is_padding(self, node: UOp) -> bool:
        """A select between a tensor and a constant under a condition that reads no memory."""
        if node.op is not ops.WHERE:
            return False
        condition, yes, no = (self.cones[s] for s in node.src)
        return condition.loads == 0 and 0 in (yes.loads + yes.cost, no.loads + no.cost)

    def _refuses(self, node: UOp, use: Use) -> bool:
        """Whether the kernel has reductions beside which this one cannot be computed, or computes
        transforms, by tiles of their own.
        """
        if use.kernel in self.transforming:
            return True
        present = self.reductions.get(use.kernel, [])
        if use.kind == SCORE:
            return use.kernel in self.scored
        if use.kind == ALIGNED and len(present) == 1:
            if has_sides_of(node, present[0]):
                return False
            if self.pools and reduces_rows_of(present[0], node):
                return False
        return len(present) >= MANY_REDUCTIONS or (use.kind != ROW and len(present) > 0)

    # Limits, from the sources down.

    def downward(self) -> Decision:
        before = -1
        while len(self.realized) != before:  # what is realized is read where its operands were
            before = len(self.realized)
            self._cut(self.caps.bindings - 1)
            self.realized.update(self._repeated())
        return Decision({n: None for n in self.order if n in self.realized}, self.parts)

    def _cut(self, limit: int) -> None:
        """Realize where a kernel would read too many buffers or grow too large."""
        reads: dict[UOp, frozenset[UOp]] = {}
        members: dict[UOp, frozenset[UOp]] = {}
        for node in self.order:
            if is_source(node) or node.op is ops.LOOP_CALL:
                reads[node] = frozenset((node,)) if _in_memory(node) else frozenset()
                members[node] = frozenset()
                continue
            sources = dict.fromkeys(needed(node))
            total = frozenset().union(*(self._read(s, reads) for s in sources))
            while len(total) > limit:
                largest = max(sources, key=lambda s: len(self._read(s, reads)))
                self.realized.add(viewed(largest))
                total = frozenset().union(*(self._read(s, reads) for s in sources))
            reads[node] = total
            inside = frozenset((node,)).union(*(members[s] for s in sources))
            if len(inside) > LARGE_KERNEL and (node.op.elementwise or node.op.group == "movement"):
                self.realized.add(node)
            kept = node in self.realized or node in self.part_of
            members[node] = frozenset() if kept else inside

    def _repeated(self) -> list[UOp]:
        """Reductions that more than one kernel would compute."""
        kernels: dict[UOp, frozenset[UOp]] = {}
        found = []
        for node in reversed(self.order):
            if is_source(node) or node.op is ops.LOOP_CALL:
                continue
            holders: set[UOp] = set()
            for user in self.users.get(node, []):
                if user in self.realized or user in self.part_of:
                    holders.add(user)
                else:
                    holders |= kernels[user]
            kernels[node] = frozenset(holders)
            if node.op in REDUCTIONS and node not in self.realized and len(holders) > 1:
                found.append(node)
        return found

    def _read(self, node: UOp, reads: dict[UOp, frozenset[UOp]]) -> frozenset[UOp]:
        while node.op.group == "movement" and node not in self.realized:
            node = node.src[0]
        if node in self.realized or node in self.part_of:
            return frozenset((self.part_of.get(node, node),))
        return reads[node]


def _in_memory(node: UOp) -> bool:
    """Whether a source's values lie in a buffer."""
    return node.op in (ops.BUFFER, ops.LOOP_OUTPUT)


def _chain(top: UOp) -> list[UOp]:
    """A chain of assignments, the last one first."""
    chain = []
    while top.op is ops.ASSIGN:
        chain.append(top)
        top = top.src[0]
    return chain


def _filled(order: Sequence[UOp]) -> set[UOp]:
    """The assignments of which the chain starts on an empty tensor."""
    found: set[UOp] = set()
    for node in order:
        if node.op is ops.ASSIGN and (node.src[0].op is ops.EMPTY or node.src[0] in found):
            found.add(node)
    return found


def _row_shapes(order: list[UOp]) -> dict[UOp, Row]:
    """For nodes computed elementwise from a reduction: the shape that was reduced, and the axes."""
    rows: dict[UOp, Row] = {}
    for node in order:
        op = node.op
        if op is ops.REDUCE:
            rows[node] = (node.src[0].shape, node.arg.axes)
        elif op.elementwise:
            shapes = {rows[s] for s in node.src if s in rows}
            if len(shapes) == 1:
                rows[node] = shapes.pop()
        elif op is ops.RESHAPE and node.src[0] in rows:
            source = node.src[0]
            if [s for s in source.shape if s != 1] == [s for s in node.shape if s != 1]:
                rows[node] = rows[source]
    return rows


def _ratio(new: Shape, old: Shape) -> float:
    return maximum(product(new)) / max(1, maximum(product(old)))
