"""A function over single elements made one over batches of them: `vmap`.

What depends on a batch gets an axis more, the first one, and each row says what becomes of it; the
rest of the graph stays as it is. No element is computed by itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinyedge.core import dtype as dt
from tinyedge.core.errors import InternalError
from tinyedge.core.gradient import trees
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.loops import LoopInfo, inside
from tinyedge.core.ir.ops import Primitive
from tinyedge.core.ir.uop import Size, UOp, toposort
from tinyedge.core.tensor.tensor import Tensor

Axes = Any  # an int or None, or a sequence of them, one for each argument


def vmap(function: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0) -> Callable[..., Any]:
    """A function over batches: of arguments with one axis more, results with one axis more.

    in_axes: where that axis is in the tensors and arrays of every argument, None for an argument
    that is the same for the whole batch; a sequence has one for each argument. out_axes: where it
    is in the results; a sequence has one for each part of a tuple or list.
    Raises ValueError where sizes of the batch differ, or no argument has one.
    """

    @functools.wraps(function)
    def call(*values: Any) -> Any:
        axes = _of_each(in_axes, len(values), "in_axes", "arguments")
        batch = _Batch()
        inner = [
            value if axis is None else batch.of_singles(axis, value)
            for axis, value in zip(axes, values, strict=True)
        ]
        result = function(*inner)
        if not isinstance(out_axes, Sequence):
            return trees.mapped(functools.partial(batch.whole, out_axes), result)
        places = _of_each(out_axes, len(result), "out_axes", "results")
        return type(result)(
            trees.mapped(functools.partial(batch.whole, axis), part)
            for axis, part in zip(places, result, strict=True)
        )

    return call


def _of_each(axes: Axes, count: int, name: str, what: str) -> list[int | None]:
    found = list(axes) if isinstance(axes, Sequence) else [axes] * count
    if len(found) != count:
        raise ValueError(f"{name} has {len(found)} axes for {count} {what}")
    return found


class _Batch:
    """One batch: what stands for a single element, and the whole."""

    def __init__(self) -> None:
        self.size: Size | None = None
        self.known: dict[UOp, UOp] = {}
        self.batched: _Batched | None = None

    def of_singles(self, axis: int, tree: Any) -> Any:
        """A tree of what stands for single elements."""
        return trees.mapped(functools.partial(self.single, axis), trees.tensors(tree))

    def single(self, axis: int, leaf: Tensor) -> Tensor:
        """What stands for an element of the batch that lies along an axis of a tensor."""
        if not -leaf.ndim <= axis < leaf.ndim:
            raise ValueError(f"a batch along axis {axis} of a tensor with {leaf.ndim} axes")
        axis %= leaf.ndim
        if self.size is not None and self.size != leaf.shape[axis]:
            raise ValueError(f"batches of {self.size} and {leaf.shape[axis]}")
        self.size = leaf.shape[axis]
        others = [other for other in range(leaf.ndim) if other != axis]
        place = Tensor.input("an element", [leaf.shape[a] for a in others], leaf.dtype)
        self.known[place.node] = leaf.permute([axis, *others]).node
        return place

    def whole(self, axis: int | None, leaf: Tensor) -> Tensor:
        """A result for the whole batch, which lies along an axis; None: one for all."""
        if self.size is None:
            raise ValueError("no argument has a batch")
        if self.batched is None:
            self.batched = _Batched(self.size, self.known, {})
        found = self.batched.run([leaf.node])[0]
        if axis is None:
            if found is not None:
                raise ValueError("out_axes is None for a result that depends on the batch")
            return leaf
        result = Tensor(self.batched.repeated(leaf.node) if found is None else found)
        if not -result.ndim <= axis < result.ndim:
            raise ValueError(f"a batch along axis {axis} of a result with {result.ndim} axes")
        order = [*range(1, result.ndim)]
        order.insert(axis % result.ndim, 0)
        return result.permute(order)


class _Batched:
    """What nodes become for a batch.

    known: the nodes that depend on it. same: nodes that do not, but are computed by a loop beside
    others that do, and so by another loop.
    """

    def __init__(self, size: Size, known: Mapping[UOp, UOp], same: Mapping[UOp, UOp]) -> None:
        self.size = size
        self.known = dict(known)
        self.same = dict(same)

    def run(self, roots: Sequence[UOp]) -> list[UOp | None]:
        """The roots for the whole batch; None for one that does not depend on it."""
        order = toposort(roots, self.known.__contains__)
        within: set[UOp] = set()
        for node in order:
            if node.op is ops.LOOP:
                number = len(node.arg.carried)
                within |= inside(node.src[number:], node.arg.carried)
        for node in order:
            if node in self.known or node in self.same or node in within:
                continue
            if node.op is ops.LOOP:
                self._loop(node)
            elif any(source in self.known for source in node.src):
                self.known[node] = self._node(node).node
            elif any(source in self.same for source in node.src):
                self.same[node] = node.replace(tuple(map(self.single, node.src)))
        return [self.known.get(root) for root in roots]

    def repeated(self, node: UOp) -> UOp:
        """A node for the whole batch, whether it depends on it or not."""
        if node in self.known:
            return self.known[node]
        if node.op is ops.EMPTY:
            return UOp(ops.EMPTY, node.dtype, (), (self.size, *node.shape))
        return Tensor(self.single(node)).unsqueeze(0).expand((self.size, *node.shape)).node

    def single(self, node: UOp) -> UOp:
        """A node that does not depend on the batch."""
        return self.same.get(node, node)

    def _node(self, node: UOp) -> Tensor:
        if node.op.elementwise:
            return Tensor(node.replace(tuple(map(self.repeated, node.src))))
        rule = RULES.get(node.op)
        if rule is None:
            raise InternalError(
                f"a batch of `{node.op.name}`",
                "the row has no rule",
                id="vmap.rule",
                next="report this with the function",
            )
        return rule(self, node)

    def operands(self, node: UOp) -> list[Tensor]:
        return [Tensor(self.repeated(source)) for source in node.src]

    # Loops.

    def _loop(self, node: UOp) -> None:
        """A loop carries batches of what depends on one, in its iteration or before."""
        info: LoopInfo = node.arg
        count = len(info.carried)
        first, nexts = node.src[:count], node.src[count:]
        varying = {n for n, value in enumerate(first) if value in self.known}
        while True:
            holes = {n: self._carried(info.carried[n], n) for n in varying}
            body = self._inside({info.carried[n]: holes[n] for n in varying})
            after = body.run(nexts)
            more = {n for n, value in enumerate(after) if value is not None}
            if more <= varying:
                break
            varying |= more
        if not varying:
            if any(value in self.same for value in node.src):
                self.same[node] = node.replace(tuple(map(body.single, node.src)))
            return
        if info.trips is None and 0 in varying:
            self._until_all_are_done(node)
            return
        starts = [(self.single, self.repeated)[n in varying](v) for n, v in enumerate(first)]
        ends = [(body.single, body.repeated)[n in varying](v) for n, v in enumerate(nexts)]
        carried = tuple(holes.get(n, value) for n, value in enumerate(info.carried))
        arg = LoopInfo(carried, info.trips, info.bound)
        self._outputs(node, UOp(ops.LOOP, dt.index, (*starts, *ends), arg), varying, 0)

    def _inside(self, carried: Mapping[UOp, UOp]) -> _Batched:
        """For an iteration of a loop."""
        return _Batched(self.size, {**self.known, **carried}, self.same)

    def _carried(self, value: UOp, number: int) -> UOp:
        """What stands for a batch of a value that a loop carries, the new loop's `number`-th."""
        return Tensor.carried([Tensor(self.repeated(value))], number)[0].node

    def _until_all_are_done(self, node: UOp) -> None:
        """Each element's loop ends for itself: what is done is kept while others go on."""
        info: LoopInfo = node.arg
        count = len(info.carried)
        first = [Tensor(self.repeated(value)) for value in node.src[:count]]
        holes = [self._carried(value, n + 1) for n, value in enumerate(info.carried)]
        body = self._inside(dict(zip(info.carried, holes, strict=True)))
        body.run(node.src[count:])
        going = Tensor(holes[0])
        ends = []
        for value, hole in zip(node.src[count:], holes, strict=True):
            after = Tensor(body.repeated(value))
            mask = going.reshape((self.size, *(1,) * (after.ndim - 1)))
            ends.append(mask.where(after, Tensor(hole)))
        ends[0] = going & Tensor(body.repeated(node.src[count]))
        (some,) = Tensor.carried([Tensor(True)])
        arg = LoopInfo((some.node, *holes), None, info.bound)
        src = [first[0].max(), *first, ends[0].max(), *ends]
        loop = UOp(ops.LOOP, dt.index, tuple(value.node for value in src), arg)
        self._outputs(node, loop, set(range(count)), 1)

    def _outputs(self, node: UOp, loop: UOp, varying: set[int], before: int) -> None:
        """The new loop's outputs in place of the old one's; `before` are new."""
        for number, value in enumerate(node.arg.carried):
            old = UOp(ops.LOOP_OUTPUT, value.dtype, (node,), args.LoopOutput(number, value.shape))
            shape = loop.arg.carried[number + before].shape
            arg = args.LoopOutput(number + before, shape)
            new = UOp(ops.LOOP_OUTPUT, value.dtype, (loop,), arg)
            (self.known if number in varying else self.same)[old] = new


BatchRule = Callable[[_Batched, UOp], Tensor]
RULES: dict[Primitive, BatchRule] = {}


def _rule(row: Primitive) -> Callable[[BatchRule], BatchRule]:
    def record(function: BatchRule) -> BatchRule:
        RULES[row] = function
        return function

    return record


@_rule(ops.RESHAPE)
def _reshape(batch: _Batched, node: UOp) -> Tensor:
    return batch.operands(node)[0].reshape((batch.size, *node.arg))


@_rule(ops.PERMUTE)
def _permute(batch: _Batched, node: UOp) -> Tensor:
    return batch.operands(node)[0].permute([0, *(axis + 1 for axis in node.arg)])


@_rule(ops.EXPAND)
def _expand(batch: _Batched, node: UOp) -> Tensor:
    return batch.operands(node)[0].expand((batch.size, *node.arg))


@_rule(ops.PAD)
def _pad(batch: _Batched, node: UOp) -> Tensor:
    return batch.operands(node)[0].pad([(0, 0), *((m.before, m.after) for m in node.arg)])


@_rule(ops.SHRINK)
def _shrink(batch: _Batched, node: UOp) -> Tensor:
    spans = [(span.start, span.end) for span in node.arg]
    return batch.operands(node)[0].shrink([(0, batch.size), *spans])


@_rule(ops.FLIP)
def _flip(batch: _Batched, node: UOp) -> Tensor:
    return batch.operands(node)[0].flip([axis + 1 for axis in node.arg])


@_rule(ops.WINDOW)
def _window(batch: _Batched, node: UOp) -> Tensor:
    window = node.arg
    (x,) = batch.operands(node)
    return x.window(window.axis + 1, window.size, window.stride, window.dilation)


@_rule(ops.REDUCE)
def _reduce(batch: _Batched, node: UOp) -> Tensor:
    axes = tuple(axis + 1 for axis in node.arg.axes)
    src = (batch.repeated(node.src[0]),)
    return Tensor(UOp(ops.REDUCE, node.dtype, src, args.Reduce(node.arg.op, axes)))


@_rule(ops.REALIZE)
def _realize(batch: _Batched, node: UOp) -> Tensor:
    return batch.operands(node)[0].in_memory()


@_rule(ops.AFTER)
@_rule(ops.CHECKPOINT)
def _of_same(batch: _Batched, node: UOp) -> Tensor:
    return Tensor(node.replace(tuple(map(batch.repeated, node.src))))


@_rule(ops.GATHER)
def _gather(batch: _Batched, node: UOp) -> Tensor:
    """Of data that differs from element to element at positions that do, too: the batch and the
    axis are one axis.
    """
    data, positions = node.src
    axis, rank = node.arg, len(positions.shape)
    if positions not in batch.known:
        return Tensor(batch.known[data]).gather(axis + 1, Tensor(batch.single(positions)))
    at = Tensor(batch.known[positions])
    if data not in batch.known:
        taken = Tensor(batch.single(data)).gather(axis, at)
        others = [other for other in range(taken.ndim) if other != axis]
        return taken.permute([axis, *others])
    size = data.shape[axis]
    number = Tensor.arange(batch.size).reshape((batch.size, *(1,) * rank))
    inside_axis = (at >= 0) & (at < Tensor.from_size(size, at.dtype))
    place = number * Tensor.from_size(size, dt.int32) + at.cast(dt.int32)
    others = [other for other in range(len(data.shape)) if other != axis]
    whole = Tensor(batch.known[data]).permute([0, axis + 1, *(other + 1 for other in others)])
    joined = whole.reshape((batch.size * size, *whole.shape[2:]))
    taken = joined.gather(0, inside_axis.where(place, -1))
    first, last = range(1 + rank, 1 + rank + axis), range(1 + rank + axis, taken.ndim)
    return taken.permute([0, *first, *range(1, 1 + rank), *last])


@_rule(ops.ASSIGN)
def _assign(batch: _Batched, node: UOp) -> Tensor:
    spans = (args.Span(0, batch.size), *node.arg)
    return Tensor(UOp(ops.ASSIGN, node.dtype, tuple(map(batch.repeated, node.src)), spans))


@_rule(ops.UPDATE_ROW)
def _update_row(batch: _Batched, node: UOp) -> Tensor:
    base, row, position = node.src
    bases, rows = Tensor(batch.repeated(base)), Tensor(batch.repeated(row))
    if position not in batch.known:
        others = range(2, bases.ndim)
        at = Tensor(batch.single(position))
        return bases.permute([1, 0, *others]).put(at, rows).permute([1, 0, *others])
    most = Tensor.from_size(base.shape[0], dt.int32) - 1
    at = Tensor(batch.known[position]).cast(dt.int32).maximum(0).minimum(most)
    here = Tensor.arange(base.shape[0]).unsqueeze(0).eq(at.reshape((batch.size, 1)))
    rest = (1,) * (len(base.shape) - 1)
    mask = here.reshape((batch.size, base.shape[0], *rest))
    return mask.where(rows.unsqueeze(1), bases)


@_rule(ops.SCATTER)
def _scatter(batch: _Batched, node: UOp) -> Tensor:
    arg = args.Scatter(node.arg.axis + 1, node.arg.op)
    return Tensor(UOp(ops.SCATTER, node.dtype, tuple(map(batch.repeated, node.src)), arg))


@_rule(ops.TRANSFORM)
def _transform(batch: _Batched, node: UOp) -> Tensor:
    (x,) = batch.operands(node)
    others = range(3, x.ndim)
    return x.permute([1, 2, 0, *others]).transform(node.arg.matrix).permute([2, 0, 1, *others])
