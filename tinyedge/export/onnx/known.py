"""What is known at import: constants, and integers computed from shapes, symbolic sizes included.

The graph of primitives itself is evaluated, one node at a time, over numpy arrays; where a size is
symbolic the array has object elements that are ints, index expressions, or quotients of them (a
size multiplied by a scale). So an ONNX operator is written once, and its shape arithmetic folds
without a second definition.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core import stored
from tinyedge.core.dtype import DType
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.movement import MOVEMENTS, slices
from tinyedge.core.ir.packed import FEWEST, packed_bits
from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import UOp, as_size, toposort
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.limits import Limits
from tinyedge.export.onnx.elements import ELEMENTWISE, Element, NotKnown, Quotient, caster

# How many times the size of a folded constant may be kept, and computed, beside what weights allow.
HELD, DONE = 64, 1024
TRIFLE = 4096  # bytes that are not counted
# Bytes that constants may take which are computed of weights, beside a few times those. What is
# beyond that stays in the graph, where the compiler knows what of it is still needed.
BESIDE = 1 << 16
WIDEST = 256  # elements of an array with sizes in it; wider ones are left to the run


class ConstantPropagation:
    """Values of tensor nodes that depend on no model input, only perhaps on input sizes.

    subject: what asks for them. sized: elements that were computed of arrays with sizes in them.
    """

    def __init__(self, limits: Limits) -> None:
        self.subject = ""
        self.sized = 0
        self._limits = limits
        self._limit = limits.folded_bytes
        self._values: dict[UOp, Any] = {}  # None: not known
        self._held = 0  # bytes of values that were computed
        self._done = 0  # bytes that were read and made to compute them
        self._weights = 0  # bytes of the weights they were computed from
        self._kept = 0  # bytes of the constants that took their place

    def value(self, tensor: Tensor) -> Any:
        """The tensor's values as an array (objects where a size is symbolic), or None."""
        self._learn(tensor.node)
        return self._values[tensor.node]

    def fold(self, tensor: Tensor, name: str) -> Tensor:
        """The tensor as a constant called `name` where its values are known, else itself."""
        node = tensor.node
        if node.op in (ops.CONST, ops.BUFFER) or _is_stored(node):
            return tensor
        fresh = self._learn(node)
        value = self._values[node]
        for other in fresh:
            if other is not node and other.op is not ops.BUFFER:
                self._forget(other)
        if value is None or _is_fill(node) or _is_wider(node, value):
            return tensor
        if value.nbytes > self._limit and _is_view(node):
            return tensor  # movement is free; a copy would be stored beside the original
        if value.dtype == object:
            folded = _sizes_tensor(value, node.dtype)
            if folded is None:
                return tensor
        elif not self._keep(value):
            self._forget(node)
            return tensor
        else:
            folded = constant(value, name, node.dtype)
        self._values[folded.node] = value
        return folded

    def _learn(self, root: UOp) -> list[UOp]:
        fresh = toposort((root,), stop=lambda node: node in self._values)
        fresh = [node for node in fresh if node not in self._values]
        if not self._may_be_known(fresh):
            self._values[root] = None
            return [root]
        largest = self._limit
        for node in fresh:
            if node.op is ops.BUFFER and node.arg.source.data is not None:
                largest = max(largest, node.arg.source.data.nbytes)
                self._weights += node.arg.source.data.nbytes
        for source in {s for node in fresh for s in node.src}:
            held = self._values.get(source)
            if held is not None and held.dtype != object:
                largest = max(largest, held.size * held.itemsize)
        new = {*fresh}
        waiting = Counter(source for node in fresh for source in {*node.src})
        for node in fresh:
            value = self._values[node] = self._evaluate(node, largest)
            if node.op is not ops.BUFFER:
                self._held += _bytes(value)
            for source in {*node.src}:
                waiting[source] -= 1
                large = _bytes(self._values[source]) > TRIFLE and source.op is not ops.BUFFER
                if large and not waiting[source] and source in new:
                    self._forget(source)
        return fresh

    def _may_be_known(self, nodes: Sequence[UOp]) -> bool:
        """Whether the last of some nodes depends on no input. Each comes after its operands."""
        unknown: set[UOp] = set()
        for node in nodes:
            if node.op is ops.BUFFER:
                missing = node.arg.source.data is None
            else:
                missing = any(s in unknown or self._values.get(s, s) is None for s in node.src)
            if missing:
                unknown.add(node)
        return not nodes or nodes[-1] not in unknown

    def _forget(self, node: UOp) -> None:
        self._held -= _bytes(self._values.pop(node, None))

    def _spend(self, operands: Sequence[Any], made: int) -> bool:
        """Whether so many bytes may still be computed: a model cannot ask for any amount of it."""
        work = made + sum(map(_bytes, operands))
        if work <= TRIFLE:
            return True
        if self._held + made > HELD * self._limit + 4 * self._weights:
            return False
        self._done += work
        return self._done <= DONE * self._limit + 64 * self._weights

    def _keep(self, value: Any) -> bool:
        """Whether a value may become a constant: a few operations on one large weight, each by
        another number, would be as many large weights.
        """
        if value.nbytes > TRIFLE:
            if self._kept + value.nbytes > self._limits.folded_growth * self._weights + BESIDE:
                return False
            self._kept += value.nbytes
        return True

    def _count_sized(self, elements: int) -> None:
        """Count arithmetic on sizes, each an expression. Raises ModelError beyond the limit."""
        self.sized += elements
        if self.sized > self._limits.sizes:
            raise self._limits.exceeded(
                "sizes",
                self.subject,
                "the model does too much arithmetic on open sizes",
                "sizes computed",
            )

    def _evaluate(self, node: UOp, largest: int) -> Any:
        if node.op is ops.BUFFER:
            return node.arg.source.data
        if node.op is ops.CONST:
            with np.errstate(over="ignore"):  # a number too great for its type is infinite
                return np.asarray(node.arg, node.dtype.numpy)
        if node.op is ops.SYMBOL:
            return _objects(node)
        operands = [self._values[source] for source in node.src]
        if any(operand is None for operand in operands):
            return None
        if node.dtype is dt.index and not node.shape:
            return _scalar_size(node)
        count = product(node.shape)
        if not isinstance(count, int) or count * node.dtype.itemsize > largest:
            return None
        if not self._spend(operands, count * node.dtype.itemsize):
            return None
        try:
            if any(operand.dtype == object for operand in operands):
                if count > WIDEST:
                    return None
                self._count_sized(count)
                return _tidy(_held(_symbolic(node, operands), node.dtype), node.dtype)
            return _numeric(node, operands)
        except (NotKnown, ValueError, TypeError, IndexError, OverflowError, KeyError):
            return None


def _bytes(value: Any) -> int:
    """The size of an array of numbers; 0 for what is none."""
    return 0 if value is None or value.dtype == object else int(value.nbytes)


def element(tensor: Tensor, position: int) -> Tensor:
    """An element of a 1-D or scalar tensor; of joined parts, that of the part that has it."""
    node, place = tensor.node, position
    while True:
        if node.op is ops.ASSIGN and isinstance(node.arg[0].start, int):
            part = node.arg[0]
            if not isinstance(part.end, int):
                break
            inside = part.start <= place < part.end
            node, place = (node.src[1], place - part.start) if inside else (node.src[0], place)
        elif node.op is ops.REALIZE or (node.op is ops.RESHAPE and not node.src[0].shape):
            node = node.src[0]
        else:
            break
    found = Tensor(node)
    return found[place] if found.ndim else found


def constant(array: Any, name: str, dtype: DType | None = None) -> Tensor:
    """A constant tensor; one that repeats a single value is a broadcast scalar.

    dtype: a stored type of which the array holds the codes.
    """
    if dtype is not None and dtype.storage_type:
        return constant(array, name).bitcast(dtype)
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    dtype = dt.from_numpy(array.dtype)
    if array.ndim and 0 < array.size <= 4096:
        unit = array.reshape(-1).view(f"V{array.itemsize}")
        if (unit == unit[0]).all():
            return Tensor.full(array.shape, array.reshape(-1)[0].item(), dtype)
    return Tensor.weight(name, array)


def _is_fill(node: UOp) -> bool:
    while node.op in (ops.EXPAND, ops.RESHAPE, ops.BITCAST):
        node = node.src[0]
    return node.op is ops.CONST


def _is_wider(node: UOp, value: Any) -> bool:
    """Whether a constant would take more bits an element than the weights it is made of."""
    scaled = _is_scaled(node)
    if value.dtype == object or (value.size <= FEWEST and not scaled):
        return False
    weights = [n for n in toposort((node,)) if n.op is ops.BUFFER]
    largest = max(weights, key=lambda n: n.arg.source.data.size, default=None)
    if largest is None:
        return False
    bits = packed_bits(largest.arg.source.data, largest.dtype)
    if scaled and not bits:
        bits = largest.dtype.bits
    return 0 < bits < node.dtype.bits


def _is_scaled(node: UOp) -> bool:
    """Whether a constant of more than one axis is of integers, which are scaled: it is for the
    compiler to say whether a product is computed of them.
    """
    casts = (s.op is ops.CAST and s.src[0].dtype is dt.int32 for s in node.src)
    return len(node.shape) > 1 and node.op is ops.MUL and any(casts)


def _is_stored(node: UOp) -> bool:
    """Whether a node is a constant of a stored type as it is."""
    return node.op is ops.BITCAST and node.src[0].op in (ops.CONST, ops.BUFFER)


def _is_view(node: UOp) -> bool:
    while node.op.group == "movement" or node.op is ops.BITCAST:
        node = node.src[0]
    return node.op is ops.BUFFER


def _sizes_tensor(value: Any, dtype: DType) -> Tensor | None:
    items = value.reshape(-1).tolist()
    if not dtype.is_int or not all(isinstance(item, (int, UOp)) for item in items):
        return None
    scalars = [Tensor.from_size(item, dtype) for item in items]
    if value.ndim == 0:
        return scalars[0]
    return Tensor.stack(scalars).reshape(value.shape)


def _objects(value: Any) -> Any:
    array = np.empty((), object)
    array[()] = value
    return array


def _scalar_size(node: UOp) -> Any:
    size = as_size(node)
    return np.asarray(size, np.int64) if isinstance(size, int) else _objects(size)


def _held(array: Any, dtype: DType) -> Any:
    """The array, if its type holds its sizes whatever the symbols are. Raises NotKnown: beyond the
    type a run wraps around, which an expression of sizes does not.
    """
    if dtype.is_int and array.dtype == object:
        low, high = dtype.limits
        for item in array.reshape(-1).tolist():
            least, most = bounds(item) if isinstance(item, UOp) else (low, high)
            if not low <= least <= most <= high:
                raise NotKnown
    return array


def _tidy(array: Any, dtype: DType) -> Any:
    """An object array as a numeric one where no element is symbolic."""
    array = np.asarray(array)
    if array.dtype != object:
        return array
    if any(isinstance(item, (UOp, Quotient)) for item in array.reshape(-1).tolist()):
        return array
    return array.astype(dtype.numpy)


def _numeric(node: UOp, operands: Sequence[Any]) -> Any:
    """One primitive on numeric arrays: one at a time, so sums of products never meet a BLAS."""
    if node.op is ops.CAST:
        return stored.convert(operands[0], node.src[0].dtype, node.dtype)
    if node.op.elementwise and node.op.numpy is not None:
        return np.asarray(node.op.numpy(*operands)).astype(node.dtype.numpy, copy=False)
    sources = tuple(
        UOp(
            ops.BUFFER,
            source.dtype,
            (),
            args.Buffer(ops.TensorSource("weight", "", value), value.shape),
        )
        for source, value in zip(node.src, operands, strict=True)
    )
    return evaluate([UOp(node.op, node.dtype, sources, node.arg)], {})[0]


# Symbolic elements.


def _symbolic(node: UOp, operands: Sequence[Any]) -> Any:
    op, arg = node.op, node.arg
    if op is ops.CAST:
        return _map(caster(node.dtype), operands[0])
    if op in ELEMENTWISE:
        function = ELEMENTWISE[op]
        return _map(function, *operands)
    if op.group == "movement":
        return MOVEMENTS[op].numpy(operands[0], arg)
    if op is ops.REDUCE and arg.op in ELEMENTWISE:
        return _reduce(operands[0], arg.op, arg.axes)
    if op is ops.GATHER and operands[1].dtype != object:
        data, indices = operands
        if np.all((indices >= 0) & (indices < data.shape[arg])):
            return np.take(data, indices, axis=arg)
    if op is ops.ASSIGN:
        result = np.array(operands[0], dtype=object)
        result[slices(arg)] = operands[1]
        return result
    if op is ops.REALIZE:
        return operands[0]
    raise NotKnown


def _map(function: Callable[..., Element], *operands: Any) -> Any:
    arrays = np.broadcast_arrays(*operands)
    result = np.empty(arrays[0].shape, object)
    flat = result.reshape(-1)
    for position, items in enumerate(zip(*(a.reshape(-1).tolist() for a in arrays), strict=True)):
        flat[position] = function(*items)
    return flat.reshape(result.shape)


def _reduce(array: Any, op: ops.Primitive, axes: Sequence[int]) -> Any:
    keep = [axis for axis in range(array.ndim) if axis not in axes]
    moved = array.transpose([*keep, *axes])
    shape = moved.shape[: len(keep)]
    rows = moved.reshape(math.prod(shape), -1)
    if not rows.shape[1]:
        raise NotKnown
    result = np.empty(len(rows), object)
    for position, row in enumerate(rows.tolist()):
        total = row[0]
        for item in row[1:]:
            total = ELEMENTWISE[op](total, item)
        result[position] = total
    return result.reshape(shape)
