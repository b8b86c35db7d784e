"""Results of which only the run knows the size, as room for the most and how much of it is used.

Each function gives its results for at most `bound` elements, and an int32 scalar, how many there
are. What is beyond that number is 0. Where there are more than `bound`, the first ones are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.rules import index as ix
from tinyedge.core.tensor import Tensor
from tinyedge.core.uop import maximum, product
from tinyedge.export.onnx.prefix import cumulative_sum
from tinyedge.export.onnx.sorting import order_of, same

BATCH = 8  # boxes of a class that are selected before it is asked whether any are left


def true_places(mask: Tensor, bound: int) -> tuple[Tensor, Tensor]:
    """Where a bool mask [n] is true: int32 [bound], in order, then -1; and how often.

    Each place is found by bisection among the numbers of those up to every element.
    """
    (length,) = mask.shape
    if maximum(length) == 0:
        return Tensor.full((bound,), -1, dt.int32), Tensor(0, dt.int32)
    total = Tensor.from_size(length, dt.int32)
    running = cumulative_sum(mask.cast(dt.int32), 0).realise()
    count = running.gather(0, (total - 1).maximum(0))
    at = Tensor.arange(bound)
    place = Tensor.full((bound,), 0, dt.int32)
    for half in reversed(range(maximum(length).bit_length())):
        more = place + (1 << half)
        before = (more <= total) & (running.gather(0, more - 1) <= at)
        place = before.where(more, place)
    return (at < count).where(place, -1), count


def non_zero(x: Tensor, bound: int) -> tuple[Tensor, Tensor]:
    """The coordinates of what is not 0: int64 [rank of x, bound]."""
    places, count = true_places(x.cast(dt.bool_).reshape((x.size,)), bound)
    if not x.ndim:
        return Tensor.full((0, bound), 0, dt.int64), count
    rest = places.maximum(0)
    coordinates: list[Tensor] = []
    for size in reversed(x.shape):
        length = Tensor.from_size(size, dt.int32)
        coordinates.insert(0, rest % length)
        rest = rest // length
    return Tensor.stack(coordinates).cast(dt.int64), count


def compress(x: Tensor, condition: Tensor, axis: int | None, bound: int) -> tuple[Tensor, Tensor]:
    """What a bool condition [c] selects along an axis (None: of the flat x), of the first c."""
    source = x.reshape((x.size,)) if axis is None else x
    places, count = true_places(condition, bound)
    return source.gather(axis or 0, places), count


@dataclass(frozen=True)
class Unique:
    """values: slices along the axis, `bound` of them. first: of each, its first place; counts: how
    often it occurs; int64 [bound]. inverse: for each slice of x its place among them, int64 [n].
    """

    values: Tensor
    first: Tensor
    inverse: Tensor
    counts: Tensor
    count: Tensor


def unique(x: Tensor, axis: int | None, bound: int, *, ascending: bool = True) -> Unique:
    """The different slices of x along an axis (None: the elements of the flat x).

    ascending: sorted, by the first element that differs; else in the order in which they occur.
    NaN equals NaN and is greater than every number, 0 equals -0.
    """
    source, along = (x.reshape((x.size,)), 0) if axis is None else (x, axis)
    rest = [a for a in range(source.ndim) if a != along]
    length = source.shape[along]
    table = source.permute([along, *rest]).reshape((length, product(source.shape[a] for a in rest)))
    order = _sorted_rows(table).realise()
    lines = table.gather(0, order)
    changed = ~same(lines, lines.pad([(1, -1), (0, 0)]))
    begins = (changed.cast(dt.int32).sum(1) > 0) | Tensor.arange(length).eq(0)
    group = cumulative_sum(begins.cast(dt.int32), 0) - 1
    inverse = group.gather(0, order_of(order)).realise()
    starts, count = true_places(begins, maximum(length) if not ascending else bound + 1)
    ends = starts.pad([(-1, 1)])
    last = Tensor.arange(starts.shape[0]) >= count - 1
    sizes = last.where(Tensor.from_size(length, dt.int32), ends) - starts
    first = order.gather(0, starts)
    if ascending:
        first, sizes = first.shrink([(0, bound)]), sizes.shrink([(0, bound)])
    else:
        occurs = first.gather(0, inverse).eq(Tensor.arange(length))
        number = cumulative_sum(occurs.cast(dt.int32), 0) - 1
        at, _ = true_places(occurs, bound)
        sizes = sizes.gather(0, inverse.gather(0, at))
        inverse = number.gather(0, first.gather(0, inverse))
        first = at
    there = Tensor.arange(bound) < count
    values = source.gather(along, there.where(first, -1))
    first, sizes = there.where(first, 0), there.where(sizes, 0)
    return Unique(values, first.cast(dt.int64), inverse.cast(dt.int64), sizes.cast(dt.int64), count)


def _sorted_rows(table: Tensor) -> Tensor:
    """The order of the rows of [n, m]: sorted by the last column, then stably by those before."""
    columns = table.shape[1]
    if columns == 0:
        return Tensor.arange(table.shape[0])
    if columns == 1:
        return order_of(table.squeeze(1))

    def turn(left: Tensor, order: Tensor) -> Sequence[Tensor]:
        column = table.gather(1, left).gather(0, order)
        return left - 1, order.gather(0, order_of(column))

    first = [Tensor.from_size(columns, dt.int32) - 1, Tensor.arange(table.shape[0])]
    return Tensor.loop(first, turn, trips=columns)[1]


def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    most: Tensor | int,
    bound: int,
    *,
    overlap: Tensor | float = 0.0,
    least: Tensor | float | None = None,
    centred: bool = False,
) -> tuple[Tensor, Tensor]:
    """boxes [B, N, 4], scores [B, C, N]: int64 [bound, 3], (batch, class, box), the best first.

    Of every class the best box is selected, those are dropped whose intersection with it is more
    than `overlap` of the union, and so on: at most `most` boxes (an integer scalar, or an int). Of
    equal scores the lower index is better. least: only greater scores count; a NaN never does.
    centred: boxes are (x, y, width, height) around (x, y); else two opposite corners.
    """
    number, classes, count = scores.shape
    turns = maximum(count) if isinstance(most, Tensor) else min(most, maximum(count))
    rounds = -(-turns // BATCH)
    room = rounds * BATCH
    if 0 in (turns, number, classes):
        return Tensor.full((bound, 3), 0, dt.int64), Tensor(0, dt.int32)
    limit = most.reshape(()) if isinstance(most, Tensor) else Tensor(turns, dt.int32)
    corners = _corners(boxes, centred).realise()
    area = _area(corners).unsqueeze(1)
    flat = corners.reshape((ix.size_mul(number, count), 4))
    total = Tensor.from_size(count, dt.int32)
    image = Tensor.arange(number).unsqueeze(1) * total
    candidate = Tensor.arange(count)

    def best(alive: Tensor) -> Tensor:
        """[B, C]: the first of the best ones, or N."""
        left = alive.where(scores, -np.inf)
        hit = alive & left.eq(left.max(-1, keepdims=True))
        return hit.where(candidate, total).min(-1)

    def select(turn: Tensor, place: Tensor, alive: Tensor, chosen: Tensor) -> Sequence[Tensor]:
        valid = (place < total) & (turn.cast(limit.dtype) < limit)
        chosen = chosen.put(turn, valid.where(place, -1))
        box = flat.gather(0, image + place).unsqueeze(2)  # [B, C, 1, 4]
        over = _overlaps(box, corners.unsqueeze(1), _area(box), area, overlap)
        alive = alive & ~over & candidate.ne(place.unsqueeze(-1))
        return turn + 1, best(alive), alive, chosen

    def several(going: Tensor, *carried: Tensor) -> Sequence[Tensor]:
        turn, place, alive, chosen = Tensor.loop(carried, select, trips=BATCH)
        more = (place < total).cast(dt.int32).max() > 0
        return more & (turn.cast(limit.dtype) < limit), turn, place, alive, chosen

    alive = ~scores.isnan() if least is None else scores > least
    start = [
        Tensor(True, dt.bool_),
        Tensor(0, dt.int32),
        best(alive),
        alive,
        Tensor.full((room, number, classes), -1, dt.int32),
    ]
    *_, chosen = Tensor.loop(start, several, bound=rounds)
    listed = chosen.permute((1, 2, 0)).reshape((product((number, classes, room)),))
    places, found = true_places(listed >= 0, bound)
    line = places.maximum(0) // room
    each = Tensor.from_size(classes, dt.int32)
    columns = [line // each, line % each, listed.gather(0, places)]
    return Tensor.stack(columns, 1).cast(dt.int64), found


def _corners(boxes: Tensor, centred: bool) -> Tensor:
    """[.., 4]: the least of both coordinates, then the greatest."""
    a, b = boxes[..., :2], boxes[..., 2:]
    if centred:
        return Tensor.concat([a - b / 2, a + b / 2], -1)
    return Tensor.concat([a.minimum(b), a.maximum(b)], -1)


def _area(corners: Tensor) -> Tensor:
    side = corners[..., 2:] - corners[..., :2]
    return side[..., 0] * side[..., 1]


def _overlaps(
    a: Tensor, b: Tensor, area_a: Tensor, area_b: Tensor, least: Tensor | float
) -> Tensor:
    """Whether intersection / union of boxes given by corners is more than `least`."""
    side = [a[..., i + 2].minimum(b[..., i + 2]) - a[..., i].maximum(b[..., i]) for i in (0, 1)]
    shared = side[0] * side[1]
    union = area_a + area_b - shared
    meet = (side[0] > 0) & (side[1] > 0) & (shared > 0)
    whole = (area_a > 0) & (area_b > 0) & (union > 0)
    return meet & whole & (shared / union > least)
