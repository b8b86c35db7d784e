"""Channels that are scaled before a product: the product's weights are scaled in their place.

    y[p, m] = sum(k: (x[p, k] * s[k]) * w[k, m])   ->   y[p, m] = sum(k: x[p, k] * (s[k] * w[k, m]))

So x need not be stored once more, scaled: by a squeeze-and-excite block. A tile of some rows scales
each weight once, which takes less than a launch of a device with threads does; on a processor,
where launches cost nothing, it pays where there are few columns. Results differ in their last
digits, and where s * w is beyond the largest float but x * s is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.schedule.products import sides, weight_axes
from tinyedge.core.ir import ops
from tinyedge.core.ir.rewrite import bottom_up, viewed
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import UOp, consumers, toposort
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.tensor import Tensor

# A tile has some 6 rows, and to store an element and load it takes as long as 12 products: see
# `winograd.TRANSFORM`.
MOST_COLUMNS = 6 * 12
VIEWS = (ops.EXPAND, ops.RESHAPE, ops.WINDOW)
LEAST_ROWS = 16  # with fewer a tile scales weights for too few of them


@dataclass(frozen=True)
class _Scaled:
    """A sum of products with scaled data. views: from the scaled tensor up to the product."""

    views: tuple[UOp, ...]
    place: int  # which operand is the scale
    axis: int  # of the summed channels, in the tensor that is summed


def with_scaled_weights(roots: tuple[UOp, ...], caps: Caps) -> dict[UOp, UOp]:
    """Every node, mapped to one in which weights are scaled in the place of channels; nothing where
    that is not worth it.
    """
    order = toposort(roots)
    users = consumers(order)
    single = {n for n in order if len(users.get(n, ())) == 1 and n not in roots}
    most = MOST_COLUMNS if caps.threads == 1 else 2**31
    found = {n: match for n in order if (match := _match(n, single, most)) is not None}
    if not found:
        return {}

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return _moved(node.replace(src), found[node]) if node in found else None

    return bottom_up(roots, change)


def _match(node: UOp, single: set[UOp], most: int) -> _Scaled | None:
    """A sum of products with weights and of data that is scaled for it alone."""
    parts = sides(node) if node.op is ops.REDUCE and node.dtype is dt.float32 else None
    if parts is None or not all(isinstance(size, int) for size in node.src[0].shape):
        return None
    whole = node.src[0].shape
    columns = product(whole[axis] for axis in weight_axes(node))
    channels = [a for a in node.arg.axes if whole[a] != 1]
    if len(channels) != 1 or not 1 < fixed(columns) <= most:
        return None
    if fixed(product(node.shape)) < LEAST_ROWS * fixed(columns):
        return None
    views = [parts[0]]
    while views[-1].op in VIEWS and views[-1] in single:
        if views[-1].op is not ops.EXPAND and _long(views[-1]) != _long(views[-1].src[0]):
            return None
        views.append(views[-1].src[0])
    scaled = views.pop()
    if scaled.op is not ops.MUL or scaled not in single or not views:
        return None
    for place, scale in enumerate(scaled.src):
        if scale.op is ops.EXPAND and _long(scale.src[0]) == [whole[channels[0]]]:
            if _is_along(scale, len(_before(views, channels[0]))):
                return _Scaled(tuple(views), place, channels[0])
    return None


def _long(node: UOp) -> list[object]:
    """The sizes of axes of more than one element."""
    return [size for size in node.shape if size != 1]


def _before(views: list[UOp], axis: int) -> list[object]:
    """The sizes before the channels, of what the views are of."""
    top = views[0]
    kept = top.src[0].shape if top.op is ops.EXPAND else top.shape
    return [size for size in kept[:axis] if size != 1]


def _is_along(scale: UOp, before: int) -> bool:
    """Whether a scale differs along the axis that has so many longer than one element before it."""
    inner = scale.src[0].shape
    axis = next(a for a, size in enumerate(inner) if size != 1)
    return len([size for size in scale.shape[:axis] if size != 1]) == before


def _moved(node: UOp, found: _Scaled) -> UOp:
    """The sum with its weights scaled."""
    parts = sides(node)
    assert parts is not None
    data, weight = parts
    below = data
    for _ in found.views:
        below = below.src[0]
    scale, x = below.src[found.place].src[0], viewed(below.src[1 - found.place], found.views)
    shape = node.src[0].shape
    sizes = [size if axis == found.axis else 1 for axis, size in enumerate(shape)]
    weight = (Tensor(weight) * Tensor(scale).reshape(sizes).expand(shape)).node
    operands = (x, weight) if node.src[0].src[0] is data else (weight, x)
    return node.replace((node.src[0].replace(operands),))
