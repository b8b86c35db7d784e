"""Constants computed at export: what depends on weights alone becomes a weight."""

from __future__ import annotations

from dataclasses import dataclass

from tinyedge.core import dtype as dt
from tinyedge.core import ops
from tinyedge.core.reference import evaluate
from tinyedge.core.schedule.packing import FEWEST, packed_bits
from tinyedge.core.uop import UOp, consumers, maximum, product, replaced, toposort

GROWTH = 2  # a folded weight may have this many times the elements of what it is computed from
SMALL = 65536  # elements below which growth does not matter
CHEAP = 24  # operations on positions, which a kernel does faster than it loads what they make


@dataclass(frozen=True)
class Made:
    """What a constant is computed from: elements of weights in all, and of the largest one.

    bits: of an element of the largest. cost: of computing an element.
    """

    elements: int
    largest: int
    bits: int
    cost: int = 0


def fold_constants(roots: tuple[UOp, ...]) -> dict[UOp, UOp]:
    """Every node of the graph, mapped to one in which computations on weights are done.

    Weights of few bits an element stay as they are: kernels unpack them.
    """
    order = toposort(roots)
    constant: dict[UOp, Made] = {}
    for node in order:
        made = _made_of(node, constant)
        if made is not None:
            constant[node] = made
    folded = {
        node
        for node, made in constant.items()
        if node.op.group not in ("source", "movement") and _affordable(node, made)
    }
    users = consumers(order)
    left = set(roots)  # what is read at run time
    for node in reversed(order):
        for user in users.get(node, ()):
            if user not in folded and (user in left or user not in constant):
                left.add(node)
    boundary = [node for node in order if node in folded and node in left]
    values = evaluate(boundary, {}) if boundary else []
    done: dict[UOp, UOp] = {}
    for node, value in zip(boundary, values, strict=True):
        if node.shape:
            source = ops.Source("weight", "constant", value.astype(node.dtype.numpy))
            done[node] = UOp(ops.BUFFER, node.dtype, (), (source, node.shape))
    return replaced(roots, done)


def _made_of(node: UOp, constant: dict[UOp, Made]) -> Made | None:
    """What a node is computed from, if that is weights alone."""
    op = node.op
    if op is ops.BUFFER:
        source, shape = node.arg
        count = maximum(product(shape))
        bits = packed_bits(source.data, node.dtype) or node.dtype.bits
        return Made(count, count, bits) if source.data is not None else None
    if op is ops.CONST:
        return Made(1, 0, 0)
    if op is ops.IOTA:
        return Made(1, 0, 0) if isinstance(node.arg[0], int) else None
    if op is ops.EMPTY:
        return Made(1, 0, 0) if all(isinstance(size, int) for size in node.arg) else None
    if not node.src or any(s not in constant for s in node.src):
        return None
    if any(not isinstance(size, int) for size in node.shape):
        return None
    sources = [constant[s] for s in dict.fromkeys(node.src)]
    largest = max(sources, key=lambda made: made.largest)
    cost = sum(made.cost for made in sources)
    if op.group != "movement":
        cost += op.cost if op.elementwise else CHEAP
    return Made(sum(made.elements for made in sources), largest.largest, largest.bits, cost)


def _affordable(node: UOp, made: Made) -> bool:
    size = maximum(product(node.shape))
    bits = 32 if node.dtype is dt.bool_ else node.dtype.bits  # in memory
    if size > FEWEST and made.largest and bits > made.bits:
        return False
    if not made.largest and not node.dtype.is_float and made.cost <= CHEAP:
        return False  # positions and masks of few operations
    return size <= max(SMALL, GROWTH * made.elements)
