"""Rewrites of a tensor graph into the element types that a device can compute with."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InputError
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.memory import MEMORY
from tinyedge.core.ir.movement import fills, needed
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.uop import UOp, cast, const, toposort
from tinyedge.core.tensor import formats
from tinyedge.core.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]

FIRST_BEYOND_HALVES = 65520.0  # what rounds to infinity

WRAPPING = (
    *(ops.ADD, ops.SUB, ops.MUL, ops.NEG, ops.SHL, ops.NOT, ops.XOR),
    *(ops.ABS, ops.FLOORDIV, ops.TRUNCDIV),
)


def retype(
    roots: tuple[UOp, ...], types: Mapping[str, str], fp16_of: Collection[str] = ()
) -> dict[UOp, UOp]:
    """Every node of the graph, mapped to one that computes with other element types.

    types: by name, what a type is computed as. Narrow integers computed in wider ones wrap as they
    would; 64-bit constants that do not fit 32 bits raise InputError. A stored type becomes its
    carrier, the change between them nothing, and a cast from or to it arithmetic. fp16_of: kinds of
    source that stay float16 in memory and are converted where they are read.
    """
    types = {**{d.name: types.get(d.storage_type, d.storage_type) for d in dt.STORED}, **types}
    done: dict[UOp, UOp] = {}
    sources: dict[ops.TensorSource, ops.TensorSource] = {}

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp:
        if node.op is ops.BUFFER and node.dtype is dt.float16 and node.arg.source.kind in fp16_of:
            return cast(node, _target(node.dtype, types))
        if node.op is ops.CAST and (node.dtype.storage_type or node.src[0].dtype.storage_type):
            arithmetic = formats.convert(Tensor(node.src[0]), node.dtype).node
            return bottom_up((arithmetic,), change, done)[arithmetic]
        if node.op is ops.LOOP:
            carried = tuple(_retyped(c, (), types, sources) for c in node.arg.carried)
            return UOp(node.op, node.dtype, src, replace(node.arg, carried=carried))
        return _retyped(node, src, types, sources)

    return bottom_up(roots, change, done)


def _target(dtype: DType, types: Mapping[str, str]) -> DType:
    return dt.by_name(types[dtype.name]) if dtype.name in types else dtype


def _retyped(
    node: UOp,
    src: tuple[UOp, ...],
    types: Mapping[str, str],
    sources: dict[ops.TensorSource, ops.TensorSource],
) -> UOp:
    dtype = _target(node.dtype, types)
    op = node.op
    if op is ops.BUFFER:
        return node if dtype is node.dtype else _retyped_buffer(node, dtype, sources)
    if op is ops.CONST:
        return node if dtype is node.dtype else const(_fitting(node.arg, node.dtype, dtype), dtype)
    if op is ops.NOT and node.dtype.kind == "u" and dtype.bits < node.dtype.bits:
        raise InputError(
            f"a complement (NOT) of type {node.dtype}",
            f"the target computes {node.dtype} as {dtype}, which cannot hold it",
            id="compile.integer.range",
            next="use a target with 64-bit integers (cpu), or a narrower type in the model",
        )
    if op in (ops.STOP_GRADIENT, ops.IN_FULL):
        return src[0]
    if op is ops.CHECKPOINT:
        number: int = node.arg.number
        return src[number]
    if op is ops.CAST:
        if src[0].dtype.is_float and _narrower(node.dtype, dtype):
            return _saturated(src[0], node.dtype, dtype)
        return _wrapped(cast(src[0], dtype), node.dtype, dtype)
    if op is ops.BITCAST:
        return _same_bits(node, src[0], types)
    new = node if src == node.src and dtype is node.dtype else UOp(op, dtype, src, node.arg)
    if op in WRAPPING or (op in (ops.REDUCE, ops.SCATTER) and node.arg.op in WRAPPING):
        return _wrapped(new, node.dtype, dtype)
    return new


def _same_bits(node: UOp, source: UOp, types: Mapping[str, str]) -> UOp:
    """A bitcast, where its operand or its result may be computed in another type."""
    old, new = node.src[0].dtype.held, node.dtype.held
    computed = _target(new, types)
    if old is new:
        return source
    if old.is_int and new.is_int and old.bits < 32 and (old.name in types or new.name in types):
        return _wrapped(cast(source, computed), new, computed)
    if dt.float16 in (old, new) and "float16" in types:
        return _half_bits(source, old, new, computed)
    for dtype in (old, new):
        if types.get(dtype.name, "float64") != "float64":
            raise InputError(
                f"bitcast of {old} to {new}",
                f"the target computes {dtype} as {types[dtype.name]}",
                id="compile.bitcast",
                supported="bitcasts between integers and between types of at most 32 bits",
            )
    return cast(UOp(ops.BITCAST, new, (cast(source, old),)), computed)  # wider is exact


def _half_bits(source: UOp, old: DType, new: DType, computed: DType) -> UOp:
    """A bitcast between float16 and an integer, where fp16 is computed as a wider float."""
    if new is dt.float16:
        codes = Tensor(source).cast(dt.uint32) & dt.uint16.limits[1]
        return formats.half_of(codes).cast(computed).node
    return _wrapped(cast(formats.bits_of_half(Tensor(source)).node, computed), new, computed)


def _retyped_buffer(
    node: UOp, dtype: DType, sources: dict[ops.TensorSource, ops.TensorSource]
) -> UOp:
    source = node.arg.source
    if source not in sources:
        if source.data is not None:
            _check_fitting(source.data, node.dtype, dtype, source.name)
        sources[source] = ops.TensorSource(source.kind, source.name, source.data)
    return UOp(ops.BUFFER, dtype, (), args.Buffer(sources[source], node.shape))


def _fitting(value: int | float, old: DType, new: DType) -> int | float:
    if new.kind in "iu" and not new.limits[0] <= value <= new.limits[1]:
        raise InputError(
            f"a constant {value} of type {old}",
            f"the target computes {old} as {new}, which cannot hold it",
            id="compile.integer.range",
            next="use a target with 64-bit integers (cpu), or smaller constants in the model",
        )
    return value


def _check_fitting(data: Array, old: DType, new: DType, name: str) -> None:
    """Refuse a weight with integers that its new type cannot hold. The array stays as it is: large
    ones are converted where they are read, one at a time.
    """
    if new.kind in "iu" and data.size:
        for value in (int(data.min()), int(data.max())):
            if not new.limits[0] <= value <= new.limits[1]:
                raise InputError(
                    f"weight {name!r} of type {old}",
                    f"it holds {value}; the target computes {old} as {new}",
                    id="compile.integer.range",
                    next="use a target with 64-bit integers (cpu)",
                )


def _narrower(old: DType, new: DType) -> bool:
    return old.is_int and old.bits < 32 <= new.bits


def _saturated(node: UOp, old: DType, new: DType) -> UOp:
    """A float as the narrower integer type would hold it; NaN gives 0."""
    low, high = old.limits
    return Tensor(node).clip(low, high).cast(new).node


def _wrapped(node: UOp, old: DType, new: DType) -> UOp:
    """The value as the narrower integer type would hold it."""
    if not _narrower(old, new):
        return node
    value = Tensor(node)
    shift = 32 - old.bits
    wrapped = value & (2**old.bits - 1) if old.kind == "u" else (value << shift) >> shift
    return wrapped.node


def narrowed(node: UOp, native: bool) -> UOp:
    """The values of a float tensor as fp16: what only moves values moves these instead.

    native: conversions make what is too large infinite; others saturate and must not see it.
    """

    def change(n: UOp, moved: tuple[UOp, ...]) -> UOp:
        if n.op is ops.EMPTY:
            return UOp(ops.EMPTY, dt.float16, (), n.arg)
        if n.op is ops.CAST and n.src[0].dtype is dt.float16:
            return n.src[0]
        if moved:
            as_fp16 = dict(zip(_moved(n), moved, strict=True))
            return UOp(n.op, dt.float16, tuple(as_fp16.get(s, s) for s in n.src), n.arg)
        return cast(n if native else _without_large(n), dt.float16)

    return bottom_up((node,), change, operands=_moved)[node]


def _without_large(node: UOp) -> UOp:
    """A float tensor whose numbers too large for fp16 are infinite."""
    value = Tensor(node)
    return (value.abs() >= FIRST_BEYOND_HALVES).where(value * math.inf, value).node


def joined(root: UOp) -> UOp | None:
    """What assigns or scatters into a tensor of which another is a view, if fp16 values of memory
    are among what it takes.
    """
    while _moved(root) and root.op.group == "movement":
        root = root.src[0]
    if root.op not in MEMORY:
        return None
    below = toposort((root,), stop=lambda n: not _moved(n), operands=_moved)
    return root if any(n.op is ops.CAST and n.src[0].dtype is dt.float16 for n in below) else None


def _moved(node: UOp) -> tuple[UOp, ...]:
    """The operands of which a node only moves values. Padding selects, which vectors of fp16 values
    cannot do.
    """
    if node.op in MEMORY:
        return MEMORY[node.op].moves(node)
    return needed(node) if node.op.group == "movement" and not fills(node.op) else ()
