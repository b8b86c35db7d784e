"""Constants computed at export: what depends on weights alone becomes a weight."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tinyedge.core import dtype as dt
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.movement import fills
from tinyedge.core.ir.packed import FEWEST, packed_bits
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.rewrite import replaced
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import UOp, consumers, toposort

GROWTH = 2  # a folded weight may have this many times the elements of what it is computed from
SMALL = 65536  # elements below which growth does not matter
CHEAP = 24  # operations on positions, which a kernel does faster than it loads what they make
HELD = 1 << 26  # bytes that it may hold, beside what weights allow
KEPT = 1 << 19  # bytes of constants that it may leave, beside what weights allow
WORK_OF_WEIGHT, HELD_OF_WEIGHT = 64, 4  # the same, for each element and each byte of the weights
NODE = 4096  # operations that take as long as what surrounds a node's evaluation


@dataclass(frozen=True)
class Made:
    """What a constant is computed from: elements of weights in all, and of the largest one."""

    elements: int
    largest: int
    bits: int  # of an element of the largest
    cost: int = 0  # of computing an element


@dataclass(frozen=True)
class Need:
    """What it takes to compute a constant: operations on elements, and bytes made on the way."""

    work: int = 0
    bytes: int = 0

    def __add__(self, other: Need) -> Need:
        return Need(self.work + other.work, self.bytes + other.bytes)


class Budget:
    """Decides what is computed, operands first, within so many operations and bytes.

    What several constants need is counted for each of them, unless it is computed itself.
    """

    def __init__(
        self, users: Mapping[UOp, Sequence[UOp]], work: int, bytes: int, kept: int
    ) -> None:
        self.computed: set[UOp] = set()
        self._users = users
        self._work = work  # operations left
        self._bytes = bytes  # that may be made on the way to one constant
        self._room = kept  # bytes left for what is kept
        self._needs: dict[UOp, Need] = {}
        self._readers: dict[UOp, int] = {}  # of those nodes that are read, by how many still

    def add(self, node: UOp, wanted: bool) -> None:
        """Compute a constant if that is wanted and there is enough; note what it takes if not."""
        need, size = _need(node, self._needs, self._users), _bytes(node)
        if wanted and need.work <= self._work and need.bytes <= self._bytes and size <= self._room:
            self._work -= need.work
            self._room -= size
            self.computed.add(node)
            self._release(node)
            need = Need()
        self._needs[node] = need

    def _release(self, node: UOp) -> None:
        """Make room where everything that reads an operand has been computed."""
        waiting = [*node.src]
        while waiting:
            source = waiting.pop()
            left = self._readers.get(source, len(self._users[source])) - 1
            self._readers[source] = left
            if left:
                continue
            if source in self.computed:
                self._room += _bytes(source)
            else:
                waiting += source.src


def fold_constants(
    roots: tuple[UOp, ...], work: int, growth: int, kept: Collection[UOp] = ()
) -> dict[UOp, UOp]:
    """Every node of the graph, mapped to one in which computations on weights are done.

    Weights of few bits an element stay as they are: kernels unpack them. work: operations on
    elements that this may take; what takes more is left to the run, and so is what would be stored
    beyond `growth` times the bytes of the weights. kept: nodes that stay.
    """
    order = toposort(roots)
    users = consumers(order)
    weights = [node for node in order if node.op is ops.BUFFER and node.arg.source.data is not None]
    elements = sum(node.arg.source.data.size for node in weights)
    stored = sum(map(_bytes, weights))
    held, room = HELD + HELD_OF_WEIGHT * stored, KEPT + growth * stored
    budget = Budget(users, work + WORK_OF_WEIGHT * elements, held, room)
    constant: dict[UOp, Made] = {}
    for node in order:
        made = None if node in kept else _made_of(node, constant, elements)
        if made is not None:
            constant[node] = made
            operation = node.op.group not in ("source", "movement")
            budget.add(node, operation and _affordable(node, made))
    folded = budget.computed
    left = set(roots)  # what is read at run time
    for node in reversed(order):
        for user in users.get(node, ()):
            if user not in folded and (user in left or user not in constant):
                left.add(node)
    boundary = [node for node in order if node in folded and node in left]
    values = evaluate(boundary, {}, fast=False) if boundary else []
    done: dict[UOp, UOp] = {}
    for node, value in zip(boundary, values, strict=True):
        if not node.shape and constant[node].cost < CHEAP:
            continue  # kernels compute it
        shape = node.shape or (1,)
        source = ops.TensorSource(
            "weight", "constant", value.astype(node.dtype.numpy).reshape(shape)
        )
        weight = UOp(ops.BUFFER, node.dtype, (), args.Buffer(source, shape))
        done[node] = weight if node.shape else UOp(ops.RESHAPE, node.dtype, (weight,), ())
    return replaced(roots, done)


def _made_of(node: UOp, constant: dict[UOp, Made], most: int) -> Made | None:
    """What a node is computed from, if that is weights alone. most: elements of all weights."""
    op = node.op
    if op is ops.BUFFER:
        source, shape = node.arg.source, node.shape
        count = maximum(product(shape))
        bits = packed_bits(source.data, node.dtype) or node.dtype.bits
        return Made(count, count, bits) if source.data is not None else None
    if op is ops.CONST:
        return Made(1, 0, 0)
    if op is ops.IOTA:
        return Made(1, 0, 0) if isinstance(node.shape[0], int) else None
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
    count = min(sum(made.elements for made in sources), most + len(sources))
    return Made(count, largest.largest, largest.bits, cost)


def _affordable(node: UOp, made: Made) -> bool:
    size = maximum(product(node.shape))
    bits = 32 if node.dtype is dt.bool_ else node.dtype.bits  # in memory
    if size > FEWEST and made.largest and bits > made.bits:
        return False
    if not made.largest and not node.dtype.is_float and made.cost <= CHEAP:
        return False  # positions and masks of few operations
    return size <= max(SMALL, GROWTH * made.elements)


def _need(node: UOp, needs: Mapping[UOp, Need], users: Mapping[UOp, Sequence[UOp]]) -> Need:
    """What evaluating a constant takes, with what it reads that is not there yet."""
    op = node.op
    factors = _factors(node, users)
    total = sum((needs[s] for s in dict.fromkeys(factors or node.src)), Need())
    if op in (ops.BUFFER, ops.CONST, ops.REALIZE):
        return total
    size = _elements(node)
    if factors:  # by a product of matrices, which may copy its operands
        return total + Need(_elements(node.src[0]), sum(map(_bytes, factors)) + _bytes(node))
    if op.group == "movement":
        copied = fills(op) or (op is ops.RESHAPE and _scattered(node.src[0]))
        return total + (Need(size, _bytes(node)) if copied else Need())
    if op is ops.REDUCE:
        return total + Need(_elements(node.src[0]) + NODE, _bytes(node))
    if op is ops.GATHER and _scattered(node.src[0]):  # which numpy copies as a whole
        total += Need(_elements(node.src[0]), _bytes(node.src[0]))
    cost = op.cost if op.elementwise else 4
    return total + Need(cost * size + NODE, _bytes(node))


def _factors(node: UOp, users: Mapping[UOp, Sequence[UOp]]) -> tuple[UOp, ...]:
    """What a sum of products multiplies, where the products themselves are never made."""
    if node.op is not ops.REDUCE or node.arg.op is not ops.ADD:
        return ()
    product = node.src[0]
    if product.op is not ops.MUL or not product.dtype.is_float or len(users[product]) > 1:
        return ()
    return tuple(_repeated(factor) for factor in product.src)


def _repeated(node: UOp) -> UOp:
    """What movements repeat: the operand before its axes were expanded."""
    while node.op in (ops.EXPAND, ops.PERMUTE) or (
        node.op is ops.RESHAPE and not _scattered(node.src[0])
    ):
        node = node.src[0]
    return node


def _scattered(node: UOp) -> bool:
    """Whether a constant's elements may not lie in memory one after the other."""
    while node.op is ops.RESHAPE:
        node = node.src[0]
    return node.op.group == "movement" and not fills(node.op)


def _elements(node: UOp) -> int:
    return maximum(product(node.shape))


def _bytes(node: UOp) -> int:
    return _elements(node) * node.dtype.itemsize
