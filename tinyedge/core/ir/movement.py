"""What the movement primitives mean: one row each, from which every stage takes what it needs.

A movement only changes where a value is read. To add one: a row in `ops`, its rules here, and a
method of Tensor that makes its node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyedge.core.ir import args, ops
from tinyedge.core.ir.ops import Primitive
from tinyedge.core.ir.polynomial import proves_nonnegative, terms
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import SHAPES, Shape, Size, UOp, as_node

Array = Any
Indices = tuple[UOp, ...]


@dataclass(frozen=True)
class Movement:
    """The rules of one movement primitive."""

    shape: Callable[[UOp], Shape]  # of a node
    numpy: Callable[[Array, Any], Array]  # its meaning: of the operand and arg, sizes being ints
    source: Callable[[UOp, Indices], Indices]  # where the operand's element is, by the node's
    fills: bool = False  # where that is outside of the operand, the element is 0
    in_order: bool = False  # the elements keep their row-major order


MOVEMENTS: dict[Primitive, Movement] = {}


def define(row: Primitive, rules: Movement) -> None:
    """Give a row of the group "movement" its meaning."""
    MOVEMENTS[row] = rules
    SHAPES[row] = rules.shape


def read(node: UOp, indices: Indices) -> tuple[Indices, UOp]:
    """Where a movement's element comes from, and under which condition: it is 0 otherwise."""
    rules = MOVEMENTS[node.op]
    source = rules.source(node, indices)
    if not rules.fills:
        return source, ix.TRUE
    conditions: list[UOp] = []
    for index, size in zip(source, node.src[0].shape, strict=True):
        conditions += (ix.le(0, index), ix.lt(index, size))
    return source, ix.all_of(conditions)


def fills(row: Primitive) -> bool:
    """Whether the row's nodes have zeros besides the operand's elements."""
    return row in MOVEMENTS and MOVEMENTS[row].fills


def _given(node: UOp) -> Shape:
    return tuple(node.arg)


# RESHAPE.


def _reshape_source(node: UOp, indices: Indices) -> Indices:
    return reshape_indices(node.shape, node.src[0].shape, indices)


def reshape_indices(shape: Shape, source: Shape, indices: Indices) -> Indices:
    """Indices of the same element in `source`, of which `shape` is a reshape.

    The axes are matched in groups with equal counts, so that only what really merges or splits is
    divided.
    """
    result: list[UOp] = []
    i = j = 0
    while i < len(shape) or j < len(source):
        outer = [i]
        inner = [j]
        i, j = i + 1, j + 1
        left: Size = shape[outer[0]] if outer[0] < len(shape) else 1
        right: Size = source[inner[0]] if inner[0] < len(source) else 1
        while left != right:
            if j < len(source) and (i >= len(shape) or _smaller(right, left)):
                right *= source[j]
                inner.append(j)
                j += 1
            elif i < len(shape):
                left *= shape[i]
                outer.append(i)
                i += 1
            else:
                raise ValueError(f"reshape of {source} to {shape}")
        result.extend(_group(shape, source, indices, outer, inner))
    return tuple(result)


def _smaller(a: Size, b: Size) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return proves_nonnegative(terms(b - a))


def _group(
    shape: Shape, source: Shape, indices: Indices, outer: list[int], inner: list[int]
) -> list[UOp]:
    inner = [axis for axis in inner if axis < len(source)]
    outer = [axis for axis in outer if axis < len(shape)]
    if len(inner) == 1 and len(outer) == 1:
        return [indices[outer[0]]]
    linear: Size = 0
    for axis in outer:
        linear = linear * shape[axis] + indices[axis]
    result = []
    for axis in reversed(inner):
        size = source[axis]
        if axis == inner[0] or size == 1:
            result.append(as_node(linear) if size != 1 else ix.ZERO)
        else:
            result.append(as_node(linear % size))
            linear //= size
    result.reverse()
    return result


# PERMUTE, EXPAND, FLIP.


def _permute_shape(node: UOp) -> Shape:
    shape = node.src[0].shape
    return tuple(shape[axis] for axis in node.arg)


def _permute_source(node: UOp, indices: Indices) -> Indices:
    inner = [ix.ZERO] * len(indices)
    for position, axis in enumerate(node.arg):
        inner[axis] = indices[position]
    return tuple(inner)


def _expand_source(node: UOp, indices: Indices) -> Indices:
    return tuple(
        ix.ZERO if have == 1 else index
        for index, have in zip(indices, node.src[0].shape, strict=True)
    )


def _flip_source(node: UOp, indices: Indices) -> Indices:
    return tuple(
        as_node(size - 1 - index) if axis in node.arg else index
        for axis, (index, size) in enumerate(zip(indices, node.shape, strict=True))
    )


# PAD, SHRINK.


def _pad_shape(node: UOp) -> Shape:
    pairs = zip(node.src[0].shape, node.arg, strict=True)
    return tuple(size + margin.before + margin.after for size, margin in pairs)


def _pad_source(node: UOp, indices: Indices) -> Indices:
    return tuple(as_node(i - margin.before) for i, margin in zip(indices, node.arg, strict=True))


def _padded(array: Array, margins: tuple[args.Margin, ...]) -> Array:
    widths: Any = [(margin.before, margin.after) for margin in margins]
    return np.pad(array, widths)


def _shrink_shape(node: UOp) -> Shape:
    return tuple(span.end - span.start for span in node.arg)


def _shrink_source(node: UOp, indices: Indices) -> Indices:
    return tuple(as_node(i + span.start) for i, span in zip(indices, node.arg, strict=True))


def _shrunk(array: Array, spans: tuple[args.Span, ...]) -> Array:
    return array[slices(spans)]


def slices(spans: tuple[args.Span, ...]) -> tuple[slice, ...]:
    """A region as numpy's slices."""
    return tuple(slice(span.start, span.end) for span in spans)


# WINDOW.


def _window_shape(node: UOp) -> Shape:
    shape, arg = node.src[0].shape, node.arg
    count = (shape[arg.axis] - ((arg.size - 1) * arg.dilation + 1)) // arg.stride + 1
    return shape[: arg.axis] + (count,) + shape[arg.axis + 1 :] + (arg.size,)


def _window_source(node: UOp, indices: Indices) -> Indices:
    window = node.arg
    inner = list(indices[:-1])
    inner[window.axis] = as_node(inner[window.axis] * window.stride + indices[-1] * window.dilation)
    return tuple(inner)


def _windows(array: Array, window: args.Window) -> Array:
    axis, span = window.axis, (window.size - 1) * window.dilation + 1
    shape = [*array.shape, window.size]
    shape[axis] = (array.shape[axis] - span) // window.stride + 1
    strides = [*array.strides, array.strides[axis] * window.dilation]
    strides[axis] *= window.stride
    return np.lib.stride_tricks.as_strided(array, shape, strides, writeable=False)


# AFTER.


def _same(array: Array, arg: None) -> Array:
    return array


def needed(node: UOp) -> tuple[UOp, ...]:
    """The operands of which a node takes values: all but those that come before it in time."""
    return node.src[:1] if node.op is ops.AFTER else node.src


define(
    ops.AFTER,
    Movement(lambda node: node.src[0].shape, _same, lambda node, indices: indices, in_order=True),
)
define(ops.RESHAPE, Movement(_given, np.reshape, _reshape_source, in_order=True))
define(ops.PERMUTE, Movement(_permute_shape, np.transpose, _permute_source))
define(ops.EXPAND, Movement(_given, np.broadcast_to, _expand_source))
define(ops.FLIP, Movement(lambda node: node.src[0].shape, np.flip, _flip_source))
define(ops.PAD, Movement(_pad_shape, _padded, _pad_source, fills=True))
define(ops.SHRINK, Movement(_shrink_shape, _shrunk, _shrink_source))
define(ops.WINDOW, Movement(_window_shape, _windows, _window_source))
