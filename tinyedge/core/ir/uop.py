"""The one IR: an immutable, hash-consed node for tensor graphs, index expressions and kernels."""

from __future__ import annotations

import hashlib
import operator
import struct
import weakref
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Union

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.ops import Primitive

# An integer of a shape or an address: an int where it is constant, an index node where it is open.
Size = Union[int, "UOp"]
Shape = tuple[Size, ...]

# What the modules above know of nodes, by row; importing `core.ir` fills both. How index nodes are
# computed (`rules.index`), and the shapes of tensor nodes (`shapes`); nodes of other rows have ().
ARITHMETIC: dict[Primitive, Callable[..., UOp]] = {}
SHAPES: dict[Primitive, Callable[[UOp], Shape]] = {}

# How many operands of a reduction come before its ranges.
BINDING = {ops.REDUCE_LOOP: 1, ops.GROUP_REDUCE: 1, ops.ATTEND_LOOP: 2, ops.RESCALED_LOOP: 2}


class _Entry(weakref.ref["UOp"]):
    """A node that is known by a key, as long as somebody holds it."""

    __slots__ = ("key",)
    key: Any


_interned: dict[Any, _Entry] = {}


def _forget(entry: weakref.ref[UOp]) -> None:
    assert isinstance(entry, _Entry)
    if _interned.get(entry.key) is entry:
        del _interned[entry.key]


class UOp:
    """A node. Equal nodes are one object: `is` compares structure, a dict memoizes by meaning.

    op: its row in `ops`. dtype: element type. src: operands. arg: what the row says.
    shape: of a tensor node; () for scalars and everything inside kernels.

    Index nodes have the operators of integers, and these with ints: `r * step + i` is the canonical
    node of its value, or the int where the value is constant, so that a size is never a constant
    node. Divisors are positive; `//` rounds down. Other nodes have none, and none has `<`.
    """

    __slots__ = (
        "__weakref__",
        "_atoms",
        "_bounds",
        "_digest",
        "_ranges",
        "_terms",
        "arg",
        "dtype",
        "op",
        "shape",
        "src",
    )
    op: Primitive
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    shape: Shape
    _atoms: tuple[UOp, ...] | None
    _bounds: tuple[int | float, int | float] | None
    _terms: dict[tuple[UOp, ...], int] | None
    _ranges: frozenset[UOp] | None
    _digest: bytes | None

    def __new__(
        cls, op: Primitive, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None
    ) -> UOp:
        key = (op, dtype, src, arg) if op is not ops.CONST else (op, dtype, _bits(arg))
        known = _interned.get(key)
        node = None if known is None else known()
        if node is not None:
            return node
        node = object.__new__(cls)
        node.op = op
        node.dtype = dtype
        node.src = src
        node.arg = arg
        node._atoms = None
        node._bounds = None
        node._terms = None
        node._ranges = None
        node._digest = None
        shape = SHAPES.get(op)
        node.shape = () if shape is None else shape(node)
        entry = _Entry(node, _forget)
        entry.key = key
        _interned[key] = entry
        return node

    def __repr__(self) -> str:
        arg = "" if self.arg is None else f" {self.arg!r}"
        return f"<{self.op.name} {self.dtype}{arg} {list(self.shape) if self.shape else ''}>"

    def __add__(self, other: Size) -> Size:
        return _computed(ops.ADD, self, other)

    def __radd__(self, other: int) -> Size:
        return _computed(ops.ADD, other, self)

    def __sub__(self, other: Size) -> Size:
        return _computed(ops.SUB, self, other)

    def __rsub__(self, other: int) -> Size:
        return _computed(ops.SUB, other, self)

    def __mul__(self, other: Size) -> Size:
        return _computed(ops.MUL, self, other)

    def __rmul__(self, other: int) -> Size:
        return _computed(ops.MUL, other, self)

    def __floordiv__(self, other: Size) -> Size:
        return _computed(ops.FLOORDIV, self, other)

    def __rfloordiv__(self, other: int) -> Size:
        return _computed(ops.FLOORDIV, other, self)

    def __mod__(self, other: Size) -> Size:
        return _computed(ops.MOD, self, other)

    def __rmod__(self, other: int) -> Size:
        return _computed(ops.MOD, other, self)

    def __neg__(self) -> Size:
        return _computed(ops.NEG, self)

    def replace(self, src: tuple[UOp, ...]) -> UOp:
        """The same operation on other operands."""
        return self if src == self.src else UOp(self.op, self.dtype, src, self.arg)

    @property
    def ranges(self) -> frozenset[UOp]:
        """The free RANGE nodes that the value depends on (a reduction binds its own)."""
        if self._ranges is None:
            for node in toposort((self,), stop=lambda n: n._ranges is not None):
                if node._ranges is None:
                    node._ranges = _free_ranges(node)
        assert self._ranges is not None
        return self._ranges

    @property
    def digest(self) -> bytes:
        """A hash of the structure, the same in every process: for stable orders and cache keys."""
        if self._digest is None:
            for node in toposort((self,), stop=lambda n: n._digest is not None):
                if node._digest is None:
                    node._digest = _structure_hash(node)
        assert self._digest is not None
        return self._digest


def _computed(op: Primitive, *operands: Size) -> Size:
    nodes = [_operand(op, size) for size in operands]
    return as_size(ARITHMETIC[op](*nodes))


def _operand(op: Primitive, size: Size) -> UOp:
    if not isinstance(size, UOp):
        return const(operator.index(size), dt.index)
    if size.dtype is not dt.index:
        raise TypeError(f"{op.name} of {size!r}: operators are for index nodes")
    return size


def _bits(value: Any) -> Any:
    if isinstance(value, float):
        return struct.pack("<d", value)
    return type(value), value


def _free_ranges(node: UOp) -> frozenset[UOp]:
    if node.op is ops.RANGE:
        return frozenset({node}).union(*(s.ranges for s in node.src))
    if node.op in BINDING or node.op is ops.STAGE:
        own = own_ranges(node)
        sizes = frozenset().union(*(s.ranges for r in own for s in r.src))
        bodies = frozenset().union(*(s.ranges for s in node.src[: -len(own) or None]))
        return (bodies | sizes) - set(own)
    if node.op is ops.FILLED:
        return frozenset().union(*(s.ranges for s in node.src)) - set(node.src)
    if node.op is ops.RUNNING:
        return node.src[0].ranges | set(own_ranges(node.src[0]))
    if not node.src:
        return frozenset()
    if len(node.src) == 1:
        return node.src[0].ranges
    return frozenset().union(*(s.ranges for s in node.src))


def own_ranges(node: UOp) -> tuple[UOp, ...]:
    """The ranges that a reduction runs over, or of which a stage holds all steps."""
    return node.src[BINDING.get(node.op, 1) :]


def _structure_hash(node: UOp) -> bytes:
    h = hashlib.blake2b(digest_size=12)
    arg = _bits(node.arg) if node.op is ops.CONST else node.arg
    h.update(f"{node.op.name}|{node.dtype!r}|{_arg_text(arg)}".encode())
    for source in node.src:
        h.update(source.digest)
    return h.digest()


def _arg_text(arg: Any) -> str:
    """A record is spelled as the tuple of its fields, whatever its class is called: orders that
    depend on digests stay as they are when a class is renamed, or a tuple becomes a record.
    """
    if isinstance(arg, (Primitive, DType)):
        return str(arg)
    if is_dataclass(arg):
        arg = tuple(getattr(arg, each.name) for each in fields(arg) if each.repr)
    if isinstance(arg, tuple):
        return "(" + ",".join(_arg_text(a) for a in arg) + ")"
    if isinstance(arg, UOp):
        return arg.digest.hex()
    return repr(arg)


def toposort(
    roots: Iterable[UOp],
    stop: Callable[[UOp], bool] | None = None,
    operands: Callable[[UOp], tuple[UOp, ...]] | None = None,
) -> list[UOp]:
    """Every node below the roots, operands first. Nodes for which `stop` holds are not entered.

    operands: what lies below a node; its `src` by default.
    """
    if stop is None and operands is None:
        given = tuple(roots)
        kernel = len(given) == 1 and given[0].op is ops.SINK
        return [*_kernel_nodes(*given)] if kernel else _sorted(given)
    return _sorted(roots, stop, operands)


@lru_cache(4)  # of a kernel passes ask again and again
def _kernel_nodes(sink: UOp) -> list[UOp]:
    return _sorted((sink,))


def _sorted(
    roots: Iterable[UOp],
    stop: Callable[[UOp], bool] | None = None,
    operands: Callable[[UOp], tuple[UOp, ...]] | None = None,
) -> list[UOp]:
    done: dict[UOp, None] = {}
    stack: list[UOp | None] = [*roots]
    stack.reverse()
    while stack:
        node = stack.pop()
        if node is None:  # what lies below the next is done
            done[stack.pop()] = None  # type: ignore[index]
        elif node not in done:
            below = node.src
            if not below or (stop is not None and stop(node)):
                done[node] = None
                continue
            if operands is not None:
                below = operands(node)
            stack += (node, None)
            for source in reversed(below):
                if source not in done:
                    stack.append(source)
    return list(done)


def const(value: bool | int | float, dtype: DType) -> UOp:
    """A scalar constant, converted to the type's Python value."""
    if dtype.kind == "f":
        value = float(value)
    elif dtype.kind == "b":
        value = bool(value)
    else:
        value = int(value)
    scalar = UOp(ops.CONST, dtype.scalar if dtype.lanes > 1 else dtype, (), value)
    if dtype.lanes > 1:
        return UOp(ops.VECTOR, dtype, (scalar,))
    return scalar


def elementwise(op: Primitive, *src: UOp) -> UOp:
    """An elementwise node whose type follows from its operands (not for casts)."""
    first = src[1] if op is ops.WHERE else src[0]
    dtype = first.dtype
    if op.result == "bool":
        dtype = dt.bool_.vector(dtype.lanes)
    elif op.result == "int32":
        dtype = dt.int32.vector(dtype.lanes)
    return UOp(op, dtype, src)


def decay(node: UOp) -> UOp:
    """e^x of a value that is at most 0."""
    return UOp(ops.EXP, node.dtype, (node,), True)


def cast(node: UOp, dtype: DType) -> UOp:
    """The value converted to `dtype`; nothing when it has that type already."""
    return node if node.dtype is dtype else UOp(ops.CAST, dtype, (node,))


def as_node(size: Size) -> UOp:
    """A size as an index expression."""
    return size if isinstance(size, UOp) else const(size, dt.index)


def as_size(node: UOp) -> Size:
    """An index expression as a size: an int where it is constant."""
    return int(node.arg) if node.op is ops.CONST else node


def consumers(
    nodes: Iterable[UOp], operands: Callable[[UOp], tuple[UOp, ...]] | None = None
) -> dict[UOp, list[UOp]]:
    """For every operand, the nodes that use it (once for each use).

    operands: those of a node; its `src` by default.
    """
    result: dict[UOp, list[UOp]] = {}
    for node in nodes:
        for source in node.src if operands is None else operands(node):
            result.setdefault(source, []).append(node)
    return result
