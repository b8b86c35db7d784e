"""Results of which only the run knows the size, as room for the most and how much of it is used.

Each function gives its results for at most `bound` elements, and an int32 scalar, how many there
are. What is beyond that number is 0. Where there are more than `bound`, the first ones are right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.tensor.prefix import cumulative_sum
from tinyedge.core.tensor.selection import Flags, true_coordinates, true_places
from tinyedge.core.tensor.sorting import order_of, same, stored
from tinyedge.core.tensor.tensor import Tensor

BATCH = 8  # boxes of a class that are selected before it is asked whether any are left
FEW = (128, 384, 1152, 3456)  # candidates of a class that are listed before boxes are selected
CUTS = 16  # scores at which the candidates above are counted at once, where the best few are sought


def non_zero(x: Tensor, bound: int) -> tuple[Tensor, Tensor]:
    """The coordinates of what is not 0: int64 [rank of x, bound]."""
    coordinates, count = true_coordinates(x.cast(dt.bool_), bound)
    return coordinates.cast(dt.int64), count


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
    order = _sorted_rows(table).in_memory()
    lines = table.gather(0, order)
    changed = ~same(lines, lines.pad([(1, -1), (0, 0)]))
    begins = (changed.cast(dt.int32).sum(1) > 0) | Tensor.arange(length).eq(0)
    group = cumulative_sum(begins.cast(dt.int32), 0) - 1
    inverse = group.gather(0, order_of(order)).in_memory()
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

    def iteration(left: Tensor, order: Tensor) -> Sequence[Tensor]:
        column = table.gather(1, left).gather(0, order)
        return left - 1, order.gather(0, order_of(column))

    first = [Tensor.from_size(columns, dt.int32) - 1, Tensor.arange(table.shape[0])]
    return Tensor.loop(first, iteration, trips=columns)[1]


def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    most: Tensor | int,
    bound: int,
    *,
    overlap: Tensor | float = 0.0,
    least: Tensor | float | None = None,
    centered: bool = False,
) -> tuple[Tensor, Tensor]:
    """boxes [B, N, 4], scores [B, C, N]: int64 [bound, 3], (batch, class, box), the best first.

    Of every class the best box is selected, those are dropped whose intersection with it is more
    than `overlap` of the union, and so on: at most `most` boxes (an integer scalar, or an int). Of
    equal scores the lower index is better. least: only greater scores count; a NaN never does.
    centered: boxes are (x, y, width, height) around (x, y); else two opposite corners.
    """
    number, classes, count = scores.shape
    iterations = maximum(count) if isinstance(most, Tensor) else min(most, maximum(count))
    rounds = -(-iterations // BATCH)
    if 0 in (iterations, number, classes):
        return Tensor.full((bound, 3), 0, dt.int64), Tensor(0, dt.int32)
    limit = most.reshape(()) if isinstance(most, Tensor) else Tensor(iterations, dt.int32)
    corners = stored(_corners(boxes, centered))
    alive = ~scores.isnan() if least is None else scores > least
    sizes = [size for size in FEW if least is not None and 2 * size < maximum(count)]
    none = Tensor.full((rounds, BATCH, number, classes), -1, dt.int32)
    chosen, begin = none, Tensor(True, dt.bool_)

    def among_few(size: int) -> Callable[[Tensor, Tensor], Sequence[Tensor]]:
        def selected(going: Tensor, chosen: Tensor) -> Sequence[Tensor]:
            few = _first_of(corners, scores, flags, going.where(Tensor.arange(size), -1))
            return ~going, few.select(chosen, limit, overlap)

        return selected

    def among_best(size: int) -> Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]]:
        def selected(going: Tensor, chosen: Tensor, complete: Tensor) -> Sequence[Tensor]:
            able = (alive & going).reshape((lines, count))
            best = Flags.of(_best(scores.reshape((lines, count)), able, size))
            few = _first_of(corners, scores, best, Tensor.arange(size))
            found = few.select(chosen, limit, overlap)
            many = (found >= 0).cast(dt.int32).sum((0, 1)).reshape((lines,)).cast(limit.dtype)
            done = (many >= limit) | flags.count.eq(best.count)
            return ~going, found, done.cast(dt.int32).min() > 0

        return selected

    def among_all(going: Tensor, chosen: Tensor) -> Sequence[Tensor]:
        every = _Candidates(corners.unsqueeze(2), scores, alive & going, None)
        return ~going, every.select(chosen, limit, overlap)

    def run(where: Tensor, stage: Callable[[Tensor, Tensor], Sequence[Tensor]]) -> Tensor:
        return Tensor.loop([where, chosen], stage, bound=1)[1]

    if sizes:
        lines = product((number, classes))
        flags = Flags.of(alive.reshape((lines, count)))
        longest = flags.count.max()
    enough = next((size for size in sizes if size >= 2 * iterations), None)
    for size in sizes:
        chosen = run(begin & (longest <= size), among_few(size))
        begin = begin & (longest > size)
        if size == enough:
            tried = Tensor.loop([begin, chosen, ~begin], among_best(size), bound=1)
            begin = ~tried[2]
            chosen = begin.where(none, tried[1])
    chosen = run(begin, among_all)
    room = rounds * BATCH
    listed = chosen.permute((2, 3, 0, 1)).reshape((product((number, classes)), room))
    listed = (Tensor.arange(room).cast(limit.dtype) < limit).where(listed, -1)
    listed = listed.reshape((listed.size,)).in_memory()
    places, found = true_places(listed >= 0, bound)
    line = places.maximum(0) // room
    each = Tensor.from_size(classes, dt.int32)
    columns = [line // each, line % each, listed.gather(0, places)]
    return Tensor.stack(columns, 1).cast(dt.int64), found


@dataclass(frozen=True)
class _Candidates:
    """Boxes that may be selected."""

    corners: Tensor  # [5, B, C or 1, M], with their areas; scores [B, C, M]
    scores: Tensor
    alive: Tensor  # which of them are candidates
    numbers: Tensor | None  # int32 [B, C, M], of each which box it is (None: its place)

    def select(self, chosen: Tensor, limit: Tensor, overlap: Tensor | float) -> Tensor:
        """The numbers of the selected boxes, one in every iteration, written over chosen [rounds,
        BATCH, B, C], which are -1. Those after the limit may be any.
        """
        number, classes, count = self.scores.shape
        total = Tensor.from_size(count, dt.int32)
        lines = self.corners.shape[2]
        flat = self.corners.reshape((5, product((number, lines, count))))
        line = Tensor.arange(number).unsqueeze(1)
        if lines != 1:
            line = line * Tensor.from_size(classes, dt.int32) + Tensor.arange(classes)
        start = line * total
        candidate = Tensor.arange(count)

        def best(alive: Tensor) -> Tensor:
            """[B, C]: the first of the best ones, or M."""
            left = alive.where(self.scores, -np.inf)
            hit = alive & left.eq(left.max(-1, keepdims=True))
            return hit.where(candidate, total).min(-1)

        def several(
            going: Tensor, iteration: Tensor, place: Tensor, alive: Tensor, chosen: Tensor
        ) -> Sequence[Tensor]:
            places = []
            for _ in range(BATCH):
                places.append(place)
                picked = flat.gather(1, start + place).in_memory().unsqueeze(-1)  # [5, B, C, 1]
                over = _overlaps(picked, self.corners, overlap)
                alive = (alive & ~over & candidate.ne(place.unsqueeze(-1))).in_memory()
                place = best(alive).in_memory()
            row = Tensor.full((BATCH, number, classes), 0, dt.int32)
            for step, selected in enumerate(places):
                own = Tensor.arange(BATCH).eq(step).reshape((BATCH, 1, 1))
                row = own.where(selected, row)
            chosen = chosen.put(iteration, row)
            more = (place < total).cast(dt.int32).max() > 0
            left = ((iteration + 1) * BATCH).cast(limit.dtype) < limit
            return more & left, iteration + 1, place, alive, chosen

        rounds = chosen.shape[0]
        assert isinstance(rounds, int)
        alive = self.alive.in_memory()
        first = [Tensor(True, dt.bool_), Tensor(0, dt.int32), best(alive), alive, chosen]
        found = Tensor.loop(first, several, bound=rounds)[-1]
        there = (found >= 0) & (found < total)
        if self.numbers is not None:
            numbers = self.numbers.reshape((self.numbers.size,))
            found = numbers.gather(0, start + found)
        return there.where(found, -1)


def _best(scores: Tensor, alive: Tensor, size: int) -> Tensor:
    """Bools [L, n]: of the candidates of a line some of the best, at most `size`, and no other that
    is as good as one of them. Boxes selected among them are selected among all.

    The score to begin at is sought between the least and the greatest one: candidates above several
    evenly spaced scores are counted, then above others between the two that are nearest.
    """
    low = alive.where(scores, np.inf).min(1, keepdims=True).in_memory()
    high = alive.where(scores, -np.inf).max(1, keepdims=True).in_memory()
    at = Tensor.arange(CUTS + 1)
    part = at.cast(scores.dtype) / CUTS
    for _ in range(3):
        cuts = (low + (high - low) * part).in_memory()  # [L, CUTS + 1]
        above = alive.unsqueeze(1) & (scores.unsqueeze(1) >= cuts.unsqueeze(2))
        few = above.cast(dt.int32).sum(2) <= size
        first = few.where(at, CUTS).min(1, keepdims=True).in_memory()
        low = at.eq(first - 1).where(cuts, 0).sum(1, keepdims=True)
        high = at.eq(first).where(cuts, 0).sum(1, keepdims=True)
    kept = alive & (scores >= high)
    return kept & (kept.cast(dt.int32).sum(1, keepdims=True) <= size)


def _first_of(corners: Tensor, scores: Tensor, flags: Flags[Tensor], places: Tensor) -> _Candidates:
    """Of every class the candidates that so many others come before: places [M], -1 for none."""
    number, classes, count = scores.shape
    lines, (size,) = product((number, classes)), places.shape
    found = flags.places(places.unsqueeze(0).expand((lines, size)))
    total = Tensor.from_size(count, dt.int32)
    line = Tensor.arange(lines).unsqueeze(1)
    image = line // Tensor.from_size(classes, dt.int32)
    alive = found >= 0
    near = alive.where(image * total + found, -1)
    far = alive.where(line * total + found, -1)
    shape = (number, classes, size)
    boxes = stored(corners.reshape((5, product((number, count)))).gather(1, near))
    taken = stored(scores.reshape((scores.size,)).gather(0, far))
    each = boxes.reshape((5, *shape)), taken.reshape(shape), alive.reshape(shape)
    return _Candidates(*each, found.reshape(shape))


def _corners(boxes: Tensor, centered: bool) -> Tensor:
    """[5, ..]: of boxes [.., 4] the least of both coordinates, the greatest, and the area."""
    a, b = boxes[..., :2], boxes[..., 2:]
    ends = [a - b / 2, a + b / 2] if centered else [a.minimum(b), a.maximum(b)]
    corners = [end[..., i] for end in ends for i in (0, 1)]
    area = (corners[2] - corners[0]) * (corners[3] - corners[1])
    return Tensor.stack([*corners, area])


def _overlaps(a: Tensor, b: Tensor, least: Tensor | float) -> Tensor:
    """Whether intersection / union of boxes given by corners [5, ..] is more than `least`."""
    side = [a[i + 2].minimum(b[i + 2]) - a[i].maximum(b[i]) for i in (0, 1)]
    area_a, area_b = a[4], b[4]
    shared = side[0] * side[1]
    union = area_a + area_b - shared
    meet = (side[0] > 0) & (side[1] > 0) & (shared > 0)
    whole = (area_a > 0) & (area_b > 0) & (union > 0)
    return meet & whole & (shared / union > least)
