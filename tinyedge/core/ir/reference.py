"""The reference evaluator: what a tensor graph means, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core import stored
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.loops import outline
from tinyedge.core.ir.memory import MEMORY
from tinyedge.core.ir.movement import MOVEMENTS
from tinyedge.core.ir.shapes import symbol_value
from tinyedge.core.ir.uop import Size, UOp, toposort

Array = Any

_FLOATS = {dt.float16, dt.float32}  # a half is held as a float32


def evaluate(
    outputs: Sequence[UOp],
    inputs: Mapping[str, Array],
    symbols: Mapping[str, int] | None = None,
    counts: Mapping[str, UOp] | None = None,
    *,
    fast: bool = True,
) -> list[Array]:
    """The outputs' values; of stored types, their codes.

    inputs: by name; symbols: values of the symbolic sizes. counts: what the values of others are
    computed by, each after those that it depends on. fast: products of matrices by a BLAS, which
    adds in an order that depends on the processor. Halves are computed in float32, as on every
    target.
    """
    sizes = dict(symbols or {})
    for name, node in (counts or {}).items():
        sizes[name] = int(_evaluate([node], inputs, sizes, fast)[0])
    values = _evaluate(outputs, inputs, sizes, fast)
    with np.errstate(over="ignore"):
        return [
            value.astype(np.float16) if node.dtype is dt.float16 else value
            for node, value in zip(outputs, values, strict=True)
        ]


def _evaluate(
    outputs: Sequence[UOp], inputs: Mapping[str, Array], symbols: Mapping[str, int], fast: bool
) -> list[Array]:
    """The outputs' values; of halves, as float32."""
    values: dict[UOp, Array] = {}
    outlined = outline(outputs)
    outputs = [outlined[node] for node in outputs]
    order = toposort(outputs)
    remaining: dict[UOp, int] = {}
    for node in order:
        for source in node.src:
            remaining[source] = remaining.get(source, 0) + 1
    kept = set(outputs)
    contractions = _contractions(order, kept, remaining)
    inside = {n for below in contractions.values() for n in below}
    for node in order:
        if node in inside:
            continue
        if node in contractions:
            used = contractions[node][-1].src
            values[node] = _contract(node, [values[s] for s in used], fast)
        else:
            used = node.src
            src = [values[s] for s in used]
            if node.op is ops.LOOP_CALL:
                values[node] = _loop(node, src, inputs, symbols, fast)
            else:
                values[node] = _value(node, src, inputs, symbols)
        for source in used:
            remaining[source] -= 1
            if not remaining[source] and source not in kept:
                values.pop(source, None)
    return [values[node] for node in outputs]


def _contractions(
    nodes: Sequence[UOp], kept: set[UOp], uses: Mapping[UOp, int]
) -> dict[UOp, tuple[UOp, ...]]:
    """Sums of products, mapped to what lies below them down to their product: for einsum, without
    the broadcast array.
    """
    found = {}
    for node in nodes:
        if node.op is ops.REDUCE and node.arg.op is ops.ADD:
            below = _below(node)
            alone = all(uses[n] == 1 and n not in kept for n in below)
            if alone and below[-1].op is ops.MUL and below[-1].dtype.is_float:
                found[node] = below
    return found


def _below(node: UOp) -> tuple[UOp, ...]:
    """The operand of a node; while it is a cast that changes nothing here, its operand, too."""
    below = [node.src[0]]
    while below[-1].op is ops.CAST and {below[-1].dtype, below[-1].src[0].dtype} == _FLOATS:
        below.append(below[-1].src[0])
    return tuple(below)


def _contract(node: UOp, operands: Sequence[Array], fast: bool) -> Array:
    """sum(a * b) by einsum over views in which repeated axes have size 1.

    einsum takes a factor that stays out of a sum. With infinities that gives another result
    (inf * 3 - inf * 1 is NaN, inf * (3 - 1) is not): they are added up product by product.
    """
    subscripts = []
    arrays = []
    for operand in operands:
        axes = [
            axis
            for axis in range(operand.ndim)
            if not (operand.strides[axis] == 0 and operand.shape[axis] > 1)
        ]
        key = tuple(slice(None) if axis in axes else 0 for axis in range(operand.ndim))
        arrays.append(operand[key])
        subscripts.append(axes)
    alone = set(node.arg.axes) - (set(subscripts[0]) & set(subscripts[1]))
    if alone and not all(np.isfinite(array).all() for array in arrays):
        return np.asarray((operands[0] * operands[1]).sum(node.arg.axes))
    out = [axis for axis in range(operands[0].ndim) if axis not in node.arg.axes]
    covered = set(subscripts[0]) | set(subscripts[1])
    scale = 1
    for axis in range(operands[0].ndim):
        if axis not in covered and axis in node.arg.axes:
            scale *= operands[0].shape[axis]
    present = [axis for axis in out if axis in covered]
    result = np.einsum(arrays[0], subscripts[0], arrays[1], subscripts[1], present, optimize=fast)
    shape = [operands[0].shape[axis] for axis in out]
    missing = tuple(position for position, axis in enumerate(out) if axis not in covered)
    full = np.broadcast_to(np.expand_dims(np.asarray(result), missing), shape)
    return (full * scale).astype(operands[0].dtype) if scale != 1 else full


def size_value(size: Size, symbols: Mapping[str, int]) -> int:
    """A size as an int."""
    if isinstance(size, int):
        return size
    values: dict[UOp, Any] = {}
    for node in toposort((size,)):
        if node.op is ops.SYMBOL:
            values[node] = symbol_value(node, symbols)
        elif node.op is ops.CONST:
            values[node] = node.arg
        else:
            assert node.op.numpy is not None
            values[node] = int(node.op.numpy(*(np.int64(values[s]) for s in node.src)))
    return int(values[size])


def _value(
    node: UOp, src: list[Array], inputs: Mapping[str, Array], symbols: Mapping[str, int]
) -> Array:
    op, arg = node.op, node.arg

    if op is ops.CONST:
        return np.asarray(arg, _held(node.dtype).numpy)
    if op is ops.SYMBOL:
        return np.asarray(symbol_value(node, symbols), np.int64)
    if op is ops.BUFFER:
        source = arg.source
        if source.data is None:
            data = dt.codes(inputs[source.name])
        else:
            data = source.data.astype(node.dtype.held.numpy, copy=False)
        return data.astype(np.float32) if data.dtype == np.float16 else data
    if op is ops.IOTA:
        return np.arange(size_value(node.shape[0], symbols))
    if op is ops.EMPTY:
        return np.zeros(_in_numbers(arg, symbols), _held(node.dtype).numpy)
    if op is ops.CAST:
        return stored.convert(src[0], node.src[0].dtype, _held(node.dtype))
    if op is ops.BITCAST:
        return _same_bits(src[0], node.src[0].dtype, node.dtype)
    if op.elementwise:
        assert op.numpy is not None
        return np.asarray(op.numpy(*src)).astype(_held(node.dtype).numpy, copy=False)
    if op.group == "movement":
        return MOVEMENTS[op].numpy(src[0], _in_numbers(arg, symbols))
    if op in MEMORY:
        return np.asarray(MEMORY[op].numpy(_in_numbers(arg, symbols), *src))
    if op is ops.LOOP_OUTPUT:
        return src[0][arg.number]
    raise ValueError(f"the reference evaluator has no meaning for {node}")


def _in_numbers(arg: Any, symbols: Mapping[str, int]) -> Any:
    """A node's argument with ints for its sizes."""
    if isinstance(arg, UOp):
        return size_value(arg, symbols)
    if isinstance(arg, tuple):
        return tuple(_in_numbers(part, symbols) for part in arg)
    if is_dataclass(arg) and not isinstance(arg, (type, ops.Primitive)):
        parts = {f.name: _in_numbers(getattr(arg, f.name), symbols) for f in fields(arg)}
        return replace(arg, **parts)
    return arg


def _held(dtype: DType) -> DType:
    """The type whose arrays hold a type's values."""
    return dt.float32 if dtype is dt.float16 else dtype


def _same_bits(array: Array, source: DType, dtype: DType) -> Array:
    """A bitcast. Halves are rounded to their bits, a NaN to one that has no others."""
    bits = stored.nearest(array, source) if source is dt.float16 else np.asarray(array)
    if dtype is dt.float16:
        return stored.numbers(bits.view(np.uint16), dtype)
    return bits.view(dtype.numpy)


def _loop(
    node: UOp,
    src: list[Array],
    inputs: Mapping[str, Array],
    symbols: Mapping[str, int],
    fast: bool,
) -> list[Array]:
    """The last values of what a loop carries, iteration by iteration."""
    body = node.arg
    names = [n.arg.source.name for n in (*body.repeat.carried, *body.captured)]
    values = dict(zip(names, src, strict=True))
    carried = names[: len(body.repeat.carried)]
    for _ in range(body.repeat.bound):
        if body.repeat.trips is None and not bool(values[carried[0]]):
            break
        results = _evaluate(body.results, {**inputs, **values}, symbols, fast)
        values.update(zip(carried, results, strict=True))
    return [values[name] for name in carried]
