"""Shapes as data, and operators whose only subject is a shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import Size, UOp
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.elements import NotKnown, steps_between
from tinyedge.export.onnx.equality import shape_text
from tinyedge.export.onnx.registry import Node, operator

ENDLESS = 2**31 - 1  # more elements than any bound
MANY = 4096
LIMITS = ("start", "limit", "delta")


@operator("Shape")
def shape(node: Node, x: Tensor) -> Tensor:
    end = node.integer("end", x.ndim)
    sizes = x.shape[slice(node.integer("start", 0), end)]
    if not sizes:
        return node.constant(np.zeros(0, np.int64))
    return Tensor.stack([Tensor.from_size(size) for size in sizes])


@operator("Size")
def size(node: Node, x: Tensor) -> Tensor:
    return Tensor.from_size(product(x.shape))


@operator("Constant", limits="numbers")
def constant(node: Node) -> Tensor:
    if len(node.attributes) != 1:
        raise node.invalid("it needs exactly one attribute")
    (name,) = node.attributes
    values: Any
    if name in ("value", "sparse_value"):
        return node.tensor(name)
    if name == "value_float":
        values = np.float32(node.number(name, 0.0))
    elif name == "value_floats":
        values = np.asarray(node.number_list(name), np.float32)
    elif name == "value_int":
        values = np.int64(node.integer(name, 0))
    elif name == "value_ints":
        values = np.asarray(node.integer_list(name), np.int64)
    else:
        raise node.unsupported(f"its value is given as {name!r}", supported="numbers")
    return node.constant(values)


@operator("ConstantOfShape", limits="a computed shape: below a bound")
def constant_of_shape(node: Node, sizes: Tensor) -> Tensor:
    value = node.tensor("value") if node.has("value") else Tensor.full((1,), 0.0, dt.float32)
    if value.size != 1:
        raise node.invalid(f"its value has {value.size} elements")
    return value.reshape(()).broadcast_to(
        checked_shape(node, node.sizes(sizes, "input", dynamic=True))
    )


@operator("Range", limits="a computed length: below a bound")
def range_(node: Node, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    dtype = start.dtype
    wide = dtype.is_float and dtype.bits == 16 and node.integer("stash_type", 1) == 1
    kind = dt.float32 if wide else dtype
    first, last, step = (t.reshape(()).cast(kind) for t in (start, limit, delta))
    count: Size
    if any(node.unknown_sizes(t) for t in (start, limit, delta)):
        count = node.dynamic_size(range_length(first, last, step), node.bound(None))
    elif dtype.is_float and any(node.unknown(t) for t in (start, limit, delta)):
        parts = [node.element(t, w) for t, w in zip((start, limit, delta), LIMITS, strict=True)]
        try:
            count = ix.maximum(steps_between(*parts), 0)
        except NotKnown:
            raise node.unsupported(
                "how many numbers it has is no quotient of sizes",
                supported="limits and steps that are sizes, or fractions of small numbers",
                next=node.remedy(
                    start, limit, delta, otherwise="fix the sizes it depends on with --dim"
                ),
            ) from None
    elif dtype.is_float:
        known = [
            np.asarray(node.constant_input(t, name).reshape(-1)[0]).astype(kind.numpy)
            for t, name in zip((start, limit, delta), LIMITS, strict=True)
        ]
        with np.errstate(all="ignore"):
            span, by = float(known[1] - known[0]), float(known[2])
        if by == 0 or not math.isfinite(span) or not math.isfinite(by):
            raise node.invalid(f"a range of {span} in steps of {by}")
        count = max(0, math.ceil(Fraction(span) / Fraction(by)))
    else:
        (begin,), (end,) = node.sizes(start, "start"), node.sizes(limit, "limit")
        (each,) = node.integers(delta, "delta")
        if each == 0:
            raise node.invalid("delta is 0")
        length = end - begin if each > 0 else begin - end
        count = ix.maximum(ix.ceildiv(length, abs(each)), 0)
    checked_shape(node, [count])
    place = Tensor.arange(count, dt.int32 if dtype.is_float else dtype)
    return (first + place.cast(kind) * step).cast(dtype)


def range_length(first: Tensor, last: Tensor, step: Tensor) -> Tensor:
    """max(0, ceil((last - first) / step)) of scalars, an int64 of at most ENDLESS, which also a
    step of 0 gives.

    Of floats the difference is rounded, as any of its type is, the quotient is not: whole numbers
    up to it are found by remainders, which are exact on every target. NaN gives 0.
    """
    if not first.dtype.is_float:
        begin, end, by = (t.cast(dt.int64) for t in (first, last, step))
        up = by > 0
        span = up.where(end - begin, begin - end).cast(dt.uint64)  # may be above all of int64
        stride = by.eq(0).where(1, up.where(by, 0 - by)).cast(dt.uint64)
        count = span // stride + (span % stride).ne(0).cast(dt.uint64)
        count = count.minimum(ENDLESS).cast(dt.int64)
        away = up.where(begin >= end, begin <= end)
        return by.eq(0).where(ENDLESS, away.where(0, count))
    span, by = last - first, step.abs()
    size, many = span.abs(), by * float(MANY)
    low, high = size.fmod(by), size.fmod(many)
    # Multiples of `many` and of `by`, too few for a quotient's rounding to reach a half.
    whole = ((size - high) / many).round(), ((high - low) / by).round()
    beyond = size.isinf() | (whole[0] >= ENDLESS // MANY)
    count = whole[0].cast(dt.int32) * MANY + whole[1].cast(dt.int32) + low.ne(0).cast(dt.int32)
    count = beyond.where(ENDLESS, count)
    away = span.eq(0) | ((span < 0) ^ (step < 0)) | by.isinf()
    unknown = span.isnan() | by.isnan()
    return by.eq(0).where(ENDLESS, (away | unknown).where(0, count)).cast(dt.int64)


@operator("Reshape", limits="a shape from constants and shapes")
def reshape(node: Node, x: Tensor, target: Tensor) -> Tensor:
    sizes = node.sizes(target, "shape")
    allow_zero = bool(node.integer("allowzero", 0))
    result: list[Size] = []
    for axis, want in enumerate(sizes):
        if isinstance(want, int) and want == 0 and not allow_zero:
            if axis >= x.ndim:
                raise node.invalid(f"shape {shape_text(sizes)} copies axis {axis} of {x.ndim} axes")
            want = x.shape[axis]
        result.append(want)
    return resolved(node, x, result)


def resolved(node: Node, x: Tensor, sizes: Sequence[Size]) -> Tensor:
    """A reshape in which one size may be -1, checked."""
    unknown = [axis for axis, want in enumerate(sizes) if isinstance(want, int) and want == -1]
    if len(unknown) > 1 or any(isinstance(want, int) and want < -1 for want in sizes):
        raise node.invalid(f"shape {shape_text(sizes)} is not possible")
    target = list(sizes)
    if unknown:
        known = [want for axis, want in enumerate(sizes) if axis != unknown[0]]
        if product(known) == 0:
            raise node.invalid(f"shape {shape_text(sizes)} has a -1 beside a 0")
        left = [*x.shape]
        for size in [want for want in known if isinstance(want, UOp) and want in left]:
            if size in left:  # so that it may be 0
                left.remove(size)
                known.remove(size)
        target[unknown[0]] = product(left) // product(known)
    count = product(target)
    if count != x.size:
        if isinstance(count, UOp) or isinstance(x.size, UOp):
            raise node.unequal(x.size, count, what=f"a reshape to {shape_text(target)}")
        raise node.invalid(
            f"{shape_text(x.shape)} has {x.size} elements, {shape_text(target)} has {count}"
        )
    return x.reshape(checked_shape(node, target))


def checked_shape(node: Node, sizes: Sequence[Size]) -> tuple[Size, ...]:
    """The sizes, refused where one is negative or their product is beyond the limit."""
    limits = node.context.model.limits
    if any(isinstance(want, int) and want < 0 for want in sizes):
        raise node.invalid(f"shape {shape_text(sizes)} has a negative size")
    if len(sizes) > limits.axes:
        raise limits.exceeded("axes", node.label, f"its result has {len(sizes)} axes")
    count = product(sizes)
    if isinstance(count, int) and count > limits.elements:
        because = f"shape {shape_text(sizes)} has {count} elements"
        raise limits.exceeded("elements", node.label, because)
    return tuple(sizes)


@operator("Squeeze", limits="constant axes")
def squeeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = node.listed("axes", axes)
    if chosen is None:
        for size in x.shape:
            if size != 1:
                node.needs(size, 2, lenient=True)  # else the number of axes would depend on it
        return x.squeeze()
    drop = {node.wrap(axis, x.ndim) for axis in chosen}
    for axis in drop:
        if x.shape[axis] != 1:
            if isinstance(x.shape[axis], UOp):
                raise node.unequal(x.shape[axis], 1, what=f"which drops axis {axis}")
            raise node.invalid(f"axis {axis} has size {x.shape[axis]}, not 1")
    return x.reshape([s for axis, s in enumerate(x.shape) if axis not in drop])


@operator("Unsqueeze", limits="constant axes")
def unsqueeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = node.listed("axes", axes)
    if chosen is None:
        raise node.invalid("its axes are missing")
    ndim = x.ndim + len(chosen)
    places = {node.wrap(axis, ndim) for axis in chosen}
    if len(places) != len(chosen):
        raise node.invalid(f"axes {chosen} repeat")
    sizes = iter(x.shape)
    return x.reshape([1 if axis in places else next(sizes) for axis in range(ndim)])


@operator("Flatten")
def flatten(node: Node, x: Tensor) -> Tensor:
    axis = node.axis(1, x.ndim, end=True)
    return x.reshape((product(x.shape[:axis]), product(x.shape[axis:])))


@operator("Identity")
def identity(node: Node, x: Any) -> list[Any]:
    """A tensor, a sequence or nothing."""
    return [x]


@operator("Expand", limits="a computed shape: below a bound")
def expand(node: Node, x: Tensor, target: Tensor) -> Tensor:
    """Broadcast of x with a shape: a 1 in the shape keeps the size of x."""
    sizes = node.sizes(target, "shape", dynamic=True)
    lead = max(0, len(sizes) - x.ndim)
    have = (1,) * lead + x.shape
    want = (1,) * (len(have) - len(sizes)) + tuple(sizes)
    result = []
    for a, b in zip(have, want, strict=True):
        if a == 1:
            result.append(b)
        elif b == 1 or a == b:
            result.append(a)
        elif isinstance(a, UOp) or isinstance(b, UOp):
            raise node.unequal(a, b, what=f"a broadcast to {shape_text(sizes)}")
        else:
            raise node.invalid(f"{shape_text(x.shape)} does not broadcast to {shape_text(sizes)}")
    return x.broadcast_to(checked_shape(node, result))
