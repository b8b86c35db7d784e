"""Products of one tensor with several weights as one product, with the weights beside each other.

    q = x @ a + d
    k = x @ b + e    ->   y = x @ [a b c] + [d e f];   q = y[:, :n], k = y[:, n:m], v = y[:, m:]
    v = x @ c + f

x is read once, and a launch has as many threads as the three before, where each would leave a part
of the device idle. Products that are wanted in memory as they are, side by side, are joined: their
readers read parts of rows. It is done on devices with threads, and for a program that shares its
weights with one of these; on a processor a launch costs nothing, and what reads k wants it in
another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.schedule.products import is_weight, sides, viewed, weight_axes
from tinyedge.core.ir import ops
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.uop import Shape, UOp, consumers, toposort
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.tensor import Tensor

MOST_BYTES = 2**27  # of weights that are copied to lie beside each other

Users = Mapping[UOp, Sequence[UOp]]


@dataclass(frozen=True)
class _Product:
    """A sum of products and what is done to it with further weights.

    steps: the nodes from the sum to the last one. axis: that of the weights' columns, in the tensor
    that is summed.
    """

    steps: tuple[UOp, ...]
    axis: int

    @property
    def data(self) -> UOp:
        """What is multiplied, before it is repeated for each column."""
        found = sides(self.steps[0])
        assert found is not None
        return found[0].src[0]

    @property
    def weight(self) -> UOp:
        """The weights, before they are repeated for each row."""
        found = sides(self.steps[0])
        assert found is not None
        side = found[1]
        return side.src[0] if side.op is ops.EXPAND else side

    @property
    def columns(self) -> int:
        return fixed(self.steps[0].src[0].shape[self.axis])

    @property
    def axes(self) -> list[int]:
        """That of the columns in what each step gives."""
        axes = [self.axis - sum(a < self.axis for a in self.steps[0].arg.axes)]
        for step in self.steps[1:]:
            moved = step.op is ops.RESHAPE
            axis = _same_axis(step.src[0].shape, axes[-1], step.shape) if moved else axes[-1]
            axes.append(axis)
        return axes

    @property
    def key(self) -> tuple[Any, ...]:
        """What products have in common that can be one. The shape of each is its own where no
        weights come after it.
        """
        total = self.steps[0]
        first = _place(total.src[0])
        shape = _with_size(total.src[0].shape, self.axis, 0)
        last = max(n for n, step in enumerate(self.steps) if step.op is not ops.RESHAPE)
        shapes = [
            _with_size(step.shape, axis, 0) if number <= last else ()
            for number, (step, axis) in enumerate(zip(self.steps, self.axes, strict=True))
        ]
        then = tuple((step.op, _place(step)) for step in self.steps[1:])
        return self.data, first, shape, self.axis, total.arg, total.dtype, then, tuple(shapes)


def with_joined_products(roots: tuple[UOp, ...], caps: Caps) -> dict[UOp, UOp]:
    """Every node, mapped to one in which products of one tensor are one; nothing where none are."""
    groups = dict(_groups(roots, caps))
    if not groups:
        return {}

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node not in groups:
            return None
        return groups[node].part(node, node.replace(src))

    return bottom_up(roots, change)


def _groups(roots: tuple[UOp, ...], caps: Caps) -> Iterator[tuple[UOp, _Joined]]:
    """Products that become one, by the last node of each."""
    order = toposort(roots)
    users = consumers(order)
    found: dict[tuple[Any, ...], list[_Product]] = {}
    for node in order if caps.threads > 1 or caps.shares_weights else ():
        product = _match(node, users, caps)
        if product is not None and product.steps[-1] not in roots:
            found.setdefault(product.key, []).append(product)
    room = MOST_BYTES
    for group in found.values():
        size = sum(viewed(product.weight).arg.source.data.nbytes for product in group)
        if len(group) > 1 and size <= room and not _meet(group, users):
            room -= size
            joined = _Joined(group)
            yield from ((product.steps[-1], joined) for product in group)


def _match(node: UOp, users: Users, caps: Caps) -> _Product | None:
    """A product with weights of its own, which is read as it is."""
    if node.op is not ops.REDUCE or not all(isinstance(size, int) for size in node.src[0].shape):
        return None
    axes = weight_axes(node)
    if len(axes) != 1:
        return None
    (axis,) = axes
    steps = [node]
    while (step := _step(steps[-1], users)) is not None:
        steps.append(step)
    found = _Product(tuple(steps), axis)
    weight = viewed(found.weight)
    if weight.arg.source.data is None or not _alone(node, users) or found.columns % caps.vector:
        return None
    return found


def _alone(node: UOp, users: Users) -> bool:
    """Whether nothing else reads the weights of a product."""
    found = sides(node)
    assert found is not None
    side = found[1]
    while side.op.group == "movement" and len(users[side]) == 1:
        side = side.src[0]
    return side.op is ops.BUFFER and len(users[side]) == 1


def _step(node: UOp, users: Users) -> UOp | None:
    """What is done next with a product, if it can be done with several at once."""
    if len(users.get(node, ())) != 1:
        return None
    (user,) = users[node]
    if user.op is ops.RESHAPE and _long(user.shape) == _long(node.shape):
        return user
    if not user.op.elementwise or len(user.src) != 2:
        return None
    other = user.src[1 - _place(user, node)]
    one_vector = is_weight(other) and len(_long(_unrepeated(other).shape)) == 1
    return user if one_vector and viewed(other).arg.source.data is not None else None


def _place(step: UOp, node: UOp | None = None) -> int:
    """Which operand of a step is the product; the other one is a weight."""
    if node is not None:
        return step.src.index(node)
    return next(place for place, source in enumerate(step.src) if not is_weight(source))


def _meet(group: Sequence[_Product], users: Users) -> bool:
    """Whether one is read by arithmetic on its elements, better done before it is stored."""
    waiting = [product.steps[-1] for product in group]
    while waiting:
        for user in users.get(waiting.pop(), ()):
            if user.op.elementwise:
                return True
            if user.op in (ops.RESHAPE, ops.PERMUTE):
                waiting.append(user)
    return False


class _Joined:
    """Products that become one. weights: theirs beside each other, then those of each further step,
    None where it takes none.
    """

    def __init__(self, products: Sequence[_Product]) -> None:
        self.products = products
        self.columns = sum(product.columns for product in products)
        axis = products[0].axis
        self.weights: list[Tensor | None] = [
            _beside([product.weight for product in products], axis)
        ]
        self.axes = products[0].axes
        for number, step in enumerate(products[0].steps[1:], 1):
            if step.op is ops.RESHAPE:
                self.weights.append(None)
                continue
            others = (product.steps[number] for product in products)
            sources = [_unrepeated(other.src[1 - _place(other)]) for other in others]
            self.weights.append(_beside(sources, self.axes[number]))

    def part(self, node: UOp, last: UOp) -> UOp:
        """The last node of a product as a part of all. last: the same over what is new below."""
        number = [product.steps[-1] for product in self.products].index(node)
        product = self.products[number]
        for step in reversed(product.steps[1:]):
            last = last.src[_place(step)]
        found = sides(last)
        assert found is not None
        whole = Tensor(self._whole(found[0].src[0])).in_memory()
        start = sum(each.columns for each in self.products[:number])
        key = [slice(None)] * len(whole.shape)
        key[self.axes[-1]] = slice(start, start + product.columns)
        return whole[tuple(key)].reshape(product.steps[-1].shape).node

    def _whole(self, data: UOp) -> UOp:
        """All products beside each other."""
        first = self.products[0]
        total = first.steps[0]
        shape = _with_size(total.src[0].shape, first.axis, self.columns)
        node = _with(total.src[0], Tensor(data).expand(shape).node, self.weights[0])
        node = UOp(ops.REDUCE, total.dtype, (node,), total.arg)
        for step, axis, weight in zip(
            first.steps[1:], self.axes[1:], self.weights[1:], strict=True
        ):
            if weight is None:
                node = Tensor(node).reshape(_with_size(step.shape, axis, self.columns)).node
            else:
                node = _with(step, node, weight)
        return node


def _with(step: UOp, data: UOp, weight: Tensor | None) -> UOp:
    """A step of two operands, of other data and weights."""
    assert weight is not None
    operands = (data, weight.expand(data.shape).node)
    return UOp(step.op, step.dtype, operands[:: -1 if _place(step) else 1], step.arg)


def _beside(weights: Sequence[UOp], axis: int) -> Tensor:
    """Views of weights as one, one after the other along an axis. It is stored without axes of one
    element: a transposed convolution's views have more axes than a bundle holds.
    """
    names = "|".join(viewed(weight).arg.source.name for weight in weights)
    whole = np.concatenate(evaluate(list(weights), {}), axis)
    return Tensor.weight(names, whole.reshape(_long(whole.shape))).reshape(whole.shape)


def _unrepeated(node: UOp) -> UOp:
    return node.src[0] if node.op is ops.EXPAND else node


def _long(shape: Shape) -> list[Any]:
    """The sizes of axes of more than one element."""
    return [size for size in shape if size != 1]


def _with_size(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _same_axis(old: Shape, axis: int, new: Shape) -> int:
    """The axis that one becomes where only axes of one element are added or left out."""
    before = len(_long(old[:axis]))
    return [a for a, size in enumerate(new) if size != 1][before]
