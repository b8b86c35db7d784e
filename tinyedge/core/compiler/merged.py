"""Sums of views of sums of products as one sum, of products of views.

    t[i, j, u] = sum over o of a[i, o] * b[j, o, u]
    y[p, j]    = sum over u of t[p - u, j, u]

  becomes  y[p, j] = sum over o, u of a[p - u, o] * b[j, o, u]

The gradient of a convolution by its input is written so, by its windows: t is as large as all of
them, and y is what they are windows of. Merged, it is a convolution by the flipped filter, which
needs no memory for t and is computed in tiles. It has the terms of t's elements that y sums, so it
is done where these are hardly more than t's own, and t is much larger than y.
"""

from __future__ import annotations

from collections.abc import Collection

from tinyedge.core.ir import ops
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import UOp, consumers, toposort
from tinyedge.core.tensor.tensor import Tensor

MOST_TERMS = 2.0  # of the merged sum, for each of the inner one
LEAST_SAVED = 2  # elements between the sums, for each of the result
MOVES = (ops.RESHAPE, ops.PERMUTE, ops.EXPAND, ops.FLIP, ops.PAD, ops.SHRINK, ops.WINDOW)

Pair = tuple[Tensor, Tensor]


def with_merged_sums(roots: tuple[UOp, ...]) -> dict[UOp, UOp]:
    """Every node, mapped to one in which sums of overlapping views of sums of products are one;
    nothing where there are none.
    """
    order = toposort(roots)
    users = consumers(order)
    single = {n for n in order if len(users.get(n, ())) == 1 and n not in roots}
    if not any(_chain(n, single) for n in order):
        return {}

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return _merged(node.replace(src)) if _chain(node, single) else None

    return bottom_up(roots, change)


def _chain(node: UOp, single: Collection[UOp]) -> list[UOp]:
    """The views between a sum and one that it is of, the last one first, if they are of windows
    over what was padded.
    """
    views = _views(node) if _is_sum(node) else []
    if not views or not _is_sum(views[-1].src[0]):
        return []
    used_once = all(n in single for n in (*views, views[-1].src[0]))
    overlaps = {ops.PAD, ops.WINDOW} <= {view.op for view in views}
    return views if used_once and overlaps else []


def _views(node: UOp) -> list[UOp]:
    """The views that a sum is of, the last one first."""
    found: list[UOp] = []
    below = node.src[0]
    while below.op in MOVES:
        found.append(below)
        below = below.src[0]
    return found


def _is_sum(node: UOp) -> bool:
    return node.op is ops.REDUCE and node.arg.op is ops.ADD and node.dtype.is_float


def _merged(node: UOp) -> UOp | None:
    """A sum of views of a sum of products as one; None where that is not worth it."""
    views = _views(node)
    inner = views[-1].src[0] if views else node
    if not views or not _is_sum(inner) or inner.src[0].op is not ops.MUL:
        return None
    count, axes = len(inner.arg.axes), inner.arg.axes
    rest = [axis for axis in range(len(inner.src[0].shape)) if axis not in axes]
    a, b = (Tensor(factor).permute([*axes, *rest]) for factor in inner.src[0].src)
    for view in reversed(views):
        a, b = _moved(view, a, b, count)
    sizes = [product(x.shape) for x in (a, inner.src[0], inner, node)]
    if not all(isinstance(size, int) for size in sizes):
        return None
    terms, before, between, results = (int(size) for size in sizes)  # type: ignore[arg-type]
    if terms > MOST_TERMS * before or between < LEAST_SAVED * results:
        return None
    return (a * b).sum([*range(count), *(axis + count for axis in node.arg.axes)]).node


def _moved(view: UOp, a: Tensor, b: Tensor, lead: int) -> Pair:
    """A view of a product as a product of views; `lead` axes more come first. Zeros around one
    factor are enough, where the other one is the same all along.
    """
    if view.op is ops.PAD:
        for one, other in ((a, b), (b, a)):
            longer: Tensor | None = other
            for axis, margin in enumerate(view.arg, lead):
                if longer is not None and (margin.before, margin.after) != (0, 0):
                    longer = _longer(longer, axis, margin.before + margin.after)
            if longer is not None:
                padded = _view(view, one, lead)
                return (padded, longer) if one is a else (longer, padded)
    return _view(view, a, lead), _view(view, b, lead)


def _view(view: UOp, x: Tensor, lead: int) -> Tensor:
    """The same view of a tensor with `lead` axes more."""
    first = x.shape[:lead]
    if view.op in (ops.RESHAPE, ops.EXPAND):
        shape = (*first, *view.shape)
        return x.reshape(shape) if view.op is ops.RESHAPE else x.expand(shape)
    if view.op is ops.PERMUTE:
        return x.permute([*range(lead), *(axis + lead for axis in view.arg)])
    if view.op is ops.FLIP:
        return x.flip([axis + lead for axis in view.arg])
    if view.op is ops.PAD:
        return x.pad([*((0, 0) for _ in first), *((m.before, m.after) for m in view.arg)])
    if view.op is ops.SHRINK:
        return x.shrink([*((0, n) for n in first), *((span.start, span.end) for span in view.arg)])
    window = view.arg
    return x.window(window.axis + lead, window.size, window.stride, window.dilation)


def _longer(x: Tensor, axis: int, more: int) -> Tensor | None:
    """A tensor that is `more` longer along an axis, along which it is the same all along."""
    node = x.node
    shape = [*x.shape]
    shape[axis] += more
    if node.op is ops.EXPAND and node.src[0].shape[axis] == 1:
        return Tensor(node.src[0]).expand(shape)
    if node.op not in MOVES:
        return None
    source = source_axis(node, axis)
    below = None if source is None else _longer(Tensor(node.src[0]), source, more)
    if below is None:
        return None
    if node.op in (ops.RESHAPE, ops.EXPAND):
        return below.reshape(shape) if node.op is ops.RESHAPE else below.expand(shape)
    if node.op is ops.SHRINK:
        spans = [(span.start, span.end) for span in node.arg]
        spans[axis] = (0, spans[axis][1] + more)
        return below.shrink(spans)
    return _view(node, below, 0)


def source_axis(node: UOp, axis: int) -> int | None:
    """The axis of what a view is of that is as it is along an axis of the view."""
    op, arg, before = node.op, node.arg, node.src[0].shape
    if op is ops.PERMUTE:
        return int(arg[axis])
    if op is ops.RESHAPE:
        outer = product(node.shape[:axis])
        alike = (a for a, n in enumerate(before) if n == node.shape[axis] and n != 1)
        return next((a for a in alike if product(before[:a]) == outer), None)
    if op is ops.PAD:
        same = (arg[axis].before, arg[axis].after) == (0, 0)
    elif op is ops.SHRINK:
        same = (arg[axis].start, arg[axis].end) == (0, before[axis])
    elif op is ops.WINDOW:
        same = axis not in (arg.axis, len(before))
    else:
        same = op is not ops.FLIP or axis not in arg
    return axis if same else None
