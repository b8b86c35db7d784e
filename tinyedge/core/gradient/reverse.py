"""Reverse mode: from the gradients by a graph's outputs to those by some of its nodes.

The graph is walked once, from its outputs down; each node's gradient is the sum over those that use
it. The result is a graph over the same nodes: what the derivatives need of the values, they share
with them.

A loop cannot be walked: before, it is made to keep what it carries, iteration by iteration, and its
gradient is a loop through these, the last one first. Such a loop replaces the one that was there,
so the outputs become others, too (`Pullback.outputs`).

What a CHECKPOINT encloses is not walked either: it is copied, from its arguments on, and the copy
is. The copy is made of AFTER nodes, so no kernel computes it before the gradient by the results.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tinyedge.core import dtype as dt
from tinyedge.core.errors import InternalError
from tinyedge.core.gradient.rules import CONSTANT, RULES, zeros
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.loops import LoopInfo, inside
from tinyedge.core.ir.rewrite import bottom_up, replaced
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.tensor.tensor import Tensor


@dataclass(frozen=True)
class Pullback:
    """outputs: of the same values as those that were given; gradients: one for each of `wrt`."""

    outputs: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]


def pull_back(
    outputs: Sequence[Tensor], gradients: Sequence[Tensor], wrt: Sequence[Tensor]
) -> Pullback:
    """The gradients by the nodes of `wrt` of a scalar whose gradients by the outputs are given.

    wrt: tensors of floats that the outputs are computed from; zeros for those that they are not.
    A constant that stands in the graph (Tensor(0.5)) is one node wherever it is used, and cannot be
    told from others: raises ValueError. TypeError: for a tensor that is not of floats.
    """
    for tensor in wrt:
        _check(tensor)
    targets = {tensor.node for tensor in wrt}
    done, kept = _keep_loops([output.node for output in outputs], targets)
    roots = [done[output.node] for output in outputs]
    nodes = [done.get(tensor.node, tensor.node) for tensor in wrt]
    walk = _Walk(roots, {*nodes}, kept)
    for root, gradient in zip(roots, gradients, strict=True):
        walk.add(root, gradient)
    walk.run()
    return Pullback(tuple(map(Tensor, roots)), tuple(map(walk.gradient, nodes)))


_SPELLED = (ops.CONST, ops.RESHAPE, ops.EXPAND)  # of a constant that stands in the graph


def _check(tensor: Tensor) -> None:
    if not tensor.dtype.is_float:
        raise TypeError(f"a gradient by a tensor of {tensor.dtype}: only floats have one")
    if all(node.op in _SPELLED for node in toposort((tensor.node,))):
        raise ValueError(
            "a gradient by a constant: it is the same node wherever it is used; "
            "differentiate a function of it (`grad`), or make it an input or a weight"
        )


def depending(roots: Sequence[UOp], targets: set[UOp]) -> set[UOp]:
    """The nodes through which the roots depend on the targets, which a gradient flows through."""
    found: set[UOp] = set()
    for node in toposort(roots, operands=walked):
        if node in targets:
            found.add(node)
        elif node.op not in CONSTANT and any(s in found for s in walked(node)):
            if node.dtype.is_float or node.op is ops.LOOP:
                found.add(node)
    return found


def walked(node: UOp) -> tuple[UOp, ...]:
    """The operands that a walk goes to: of a CHECKPOINT what its function reads."""
    return _read_by(node.src, node.arg.count) if node.op is ops.CHECKPOINT else node.src


@functools.lru_cache(maxsize=256)
def _read_by(src: tuple[UOp, ...], count: int) -> tuple[UOp, ...]:
    """The arguments of a CHECKPOINT, and what else its results are computed from beside them."""
    results, arguments = src[:count], src[count:]
    made = _made_of(results, arguments)
    read = {source: None for node in made for source in node.src if source not in made}
    rest = {result: None for result in results if result not in made}
    return tuple({**dict.fromkeys(arguments), **read, **rest})


def _made_of(results: Sequence[UOp], arguments: Sequence[UOp]) -> dict[UOp, None]:
    """The nodes between arguments and results."""
    known = set(arguments)
    found: dict[UOp, None] = {}
    for node in toposort(results, known.__contains__):
        if node not in known and any(s in known or s in found for s in node.src):
            found[node] = None
    return found


class _Walk:
    """One walk through a graph without the insides of its loops."""

    def __init__(self, roots: Sequence[UOp], targets: set[UOp], kept: Mapping[UOp, Kept]) -> None:
        self.roots = roots
        self.kept = kept
        self.active = depending(roots, targets)
        self.gradients: dict[UOp, Tensor] = {}

    def gradient(self, node: UOp) -> Tensor:
        return self.gradients[node] if node in self.gradients else zeros(node)

    def add(self, node: UOp, gradient: Tensor | None) -> None:
        if gradient is None or node not in self.active:
            return
        before = self.gradients.get(node)
        self.gradients[node] = gradient if before is None else _sum(before, gradient)

    def run(self) -> None:
        loops: dict[UOp, dict[int, Tensor]] = {}
        order = toposort(self.roots, operands=walked)
        enclosed = Counter(node.src for node in order if node.op is ops.CHECKPOINT)
        for node in reversed(order):
            if node.op is ops.LOOP:
                if node in loops:
                    self._loop(node, loops[node])
            elif node.op is ops.CHECKPOINT:
                enclosed[node.src] -= 1
                if not enclosed[node.src]:  # the last of the function's results
                    self._again(node.src, node.arg.count)
            elif node in self.active and node in self.gradients and node.src:
                if node.op is ops.LOOP_OUTPUT:
                    given = loops.setdefault(node.src[0], {})
                    given[node.arg.number] = self.gradients[node]
                else:
                    self._node(node)

    def _node(self, node: UOp) -> None:
        rule = RULES.get(node.op)
        if rule is None:
            raise InternalError(
                f"a gradient through `{node.op.name}`",
                "the row has no rule",
                id="gradient.rule",
                next="report this with the function",
            )
        gradient = self.gradients[node]
        if node.op.elementwise and node.op is not ops.WHERE:
            condition, gradient = _unguarded(gradient)
        else:
            condition = None
        for source, found in zip(node.src, rule(node, gradient), strict=True):
            if found is not None and condition is not None:
                found = Tensor(condition).where(found, 0.0)
            self.add(source, found)

    def _loop(self, node: UOp, given: Mapping[int, Tensor]) -> None:
        for source, found in self.kept[node].gradients(node, given, self.active):
            self.add(source, found)

    def _again(self, src: tuple[UOp, ...], count: int) -> None:
        """Through a CHECKPOINT's function, computed again after the gradients by its results."""
        results = [_checkpoint(src, number, count) for number in range(count)]
        known = [number for number, node in enumerate(results) if node in self.gradients]
        if not known:
            return
        gradients = [self.gradients[results[number]] for number in known]
        tokens = tuple(gradient.node for gradient in gradients)
        again = {x: UOp(ops.AFTER, x.dtype, (x, *tokens)) for x in src[count:]}
        done = replaced(src[:count], again)
        places = {x: again.get(x, x) for x in _read_by(src, count) if x in self.active}
        wrt = [Tensor(place) for place in places.values()]
        back = pull_back([Tensor(done[src[number]]) for number in known], gradients, wrt)
        for source, found in zip(places, back.gradients, strict=True):
            self.add(source, found)


def _checkpoint(src: tuple[UOp, ...], number: int, count: int) -> UOp:
    return UOp(ops.CHECKPOINT, src[number].dtype, src, args.Checkpoint(number, count))


def checkpoint(results: Sequence[Tensor], arguments: Sequence[Tensor]) -> list[Tensor]:
    """The results of a function of arguments, which their gradient computes again."""
    src = tuple(tensor.node for tensor in (*results, *arguments))
    return [Tensor(_checkpoint(src, number, len(results))) for number in range(len(results))]


def _unguarded(gradient: Tensor) -> tuple[UOp | None, Tensor]:
    """A gradient that is 0 unless a condition holds, as the condition and what it is then.

    What rows do to each element by itself, they do to that, and the condition is put around it:
    an infinite factor where it does not hold has no effect.
    """
    condition: UOp | None = None
    node = gradient.node
    while node.op is ops.WHERE and _is_zero(node.src[2]):
        inner = node.src[0]
        condition = inner if condition is None else (Tensor(condition) & Tensor(inner)).node
        node = node.src[1]
    return condition, Tensor(node)


def _is_zero(node: UOp) -> bool:
    while node.op in (ops.RESHAPE, ops.EXPAND):
        node = node.src[0]
    return node.op is ops.CONST and node.arg == 0


def _sum(a: Tensor, b: Tensor) -> Tensor:
    """The sum; of two that are 0 unless a condition holds, under either of these."""
    first, second = _unguarded(a)[0], _unguarded(b)[0]
    if first is None or second is None:
        return a + b
    if first is second:
        return Tensor(first).where(_unguarded(a)[1] + _unguarded(b)[1], 0.0)
    return (Tensor(first) | Tensor(second)).where(a + b, 0.0)


# Loops.


@dataclass(frozen=True)
class Kept:
    """What a loop that keeps its values carries besides: the number of the iterations done, then a
    stack of each of its `values`, what it was before each iteration.
    """

    values: int

    def gradients(
        self, node: UOp, given: Mapping[int, Tensor], active: set[UOp]
    ) -> list[tuple[UOp, Tensor]]:
        """The gradients by what the loop reads, of those by its outputs."""
        info: LoopInfo = node.arg
        carried = info.carried[: self.values]
        following = node.src[len(info.carried) :]
        nexts = following[: self.values]
        floats = [n for n, value in enumerate(carried) if value.dtype.is_float]
        read = [value for value in _outside(nexts, carried) if value in active]
        stacks = {value: _output(node, self.values + 1 + n) for n, value in enumerate(carried)}
        count = _output(node, self.values)
        back = _Backward(carried, [nexts[n] for n in floats], floats, read, stacks)
        gradients = [given[n] if n in given else zeros(carried[n]) for n in floats]
        first = [count > 0, count, *gradients, *map(zeros, read)]
        last = Tensor.loop(first, back.iteration, bound=info.bound)
        return [*zip([*(node.src[n] for n in floats), *read], last[2:], strict=True)]


@dataclass(frozen=True)
class _Backward:
    """One iteration of a loop's gradient.

    It carries the gradients by the loop's values of floats, at `floats` among all that are
    `carried`, and by what the loop `read` from outside. results: the floats after an iteration.
    """

    carried: Sequence[UOp]
    results: Sequence[UOp]
    floats: Sequence[int]
    read: Sequence[UOp]
    stacks: Mapping[UOp, Tensor]

    def iteration(self, more: Tensor, step: Tensor, *gradients: Tensor) -> list[Tensor]:
        at = step - 1
        holes = {value: _hole(value) for value in (*self.carried, *self.read)}
        body = replaced(self.results, holes)
        wrt = [Tensor(holes[self.carried[n]]) for n in self.floats]
        wrt += [Tensor(holes[value]) for value in self.read]
        after, total = gradients[: len(self.floats)], gradients[len(self.floats) :]
        back = pull_back([Tensor(body[result]) for result in self.results], after, wrt)
        values = {holes[value]: value for value in self.read}
        for value, stack in self.stacks.items():
            values[holes[value]] = stack.gather(0, at).reshape(value.shape).node
        found = replaced([gradient.node for gradient in back.gradients], values)
        by_value = [Tensor(found[gradient.node]) for gradient in back.gradients]
        by_read = by_value[len(self.floats) :]
        sums = [a + b for a, b in zip(total, by_read, strict=True)]
        return [at > 0, at, *by_value[: len(self.floats)], *sums]


def _keep_loops(roots: Sequence[UOp], targets: set[UOp]) -> tuple[dict[UOp, UOp], dict[UOp, Kept]]:
    """Every node below the roots, mapped to what it becomes where loops that a gradient flows
    through keep what they carry; and these loops. Those inside of another loop are left: its
    gradient goes through its iterations.
    """
    order = toposort(roots)
    kept: dict[UOp, Kept] = {}
    loops = [node for node in toposort(roots, operands=walked) if node.op is ops.LOOP]
    if not loops:
        return {node: node for node in order}, kept
    active = depending(roots, targets)
    within: set[UOp] = set()
    walks = set(loops)
    for loop in loops:
        number = len(loop.arg.carried)
        within |= inside(loop.src[number:], loop.arg.carried)

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node not in walks or node not in active or node in within:
            return None
        new = _keeping(node.arg, src)
        kept[new] = Kept(len(node.arg.carried))
        return new

    return bottom_up(roots, change), kept


def _keeping(info: LoopInfo, src: tuple[UOp, ...]) -> UOp:
    """The loop that carries besides what `Kept` says."""
    number = len(info.carried)
    first, nexts = src[:number], src[number:]
    start = [Tensor(0, dt.int32)]
    start += [Tensor.full((info.bound, *v.shape), 0, v.dtype).in_memory() for v in info.carried]
    count, *stacks = more = Tensor.carried(start, number)
    after = [count + 1]
    after += [s.put(count, Tensor(v)) for s, v in zip(stacks, info.carried, strict=True)]
    carried = (*info.carried, *(value.node for value in more))
    arg = LoopInfo(carried, info.trips, info.bound)
    ends = (*nexts, *(value.node for value in after))
    return UOp(ops.LOOP, dt.index, (*first, *(value.node for value in start), *ends), arg)


def _output(loop: UOp, number: int) -> Tensor:
    value = loop.arg.carried[number]
    arg = args.LoopOutput(number, value.shape)
    return Tensor(UOp(ops.LOOP_OUTPUT, value.dtype, (loop,), arg))


def _hole(node: UOp) -> UOp:
    """A node that stands for another one, and is equal to no other."""
    return Tensor.input("a value of a loop", node.shape, node.dtype).node


def _outside(nexts: Sequence[UOp], carried: Sequence[UOp]) -> list[UOp]:
    """What an iteration reads from outside of the loop."""
    own = inside(nexts, tuple(carried))
    read = {s: None for node in toposort(nexts) if node in own for s in node.src if s not in own}
    return [*read, *(node for node in nexts if node not in own and node not in read)]
