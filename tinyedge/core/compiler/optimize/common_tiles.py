"""Tiles that kernels have in common: those of another tile are a kernel more to compile.

Which tile costs least depends on a kernel's sizes, but others cost little more. Kernels that differ
in sizes alone before their moves take as few tiles as that allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.move import Move, ranges
from tinyedge.core.compiler.optimize.sizes import form_of
from tinyedge.core.compiler.optimize.tiles import Roles, tile_cost
from tinyedge.core.ir.uop import UOp

LOSS = 0.1  # the part of a kernel's estimated cost that another tile may add

Choose = Callable[[UOp, Caps, Roles | None], tuple[UOp, list[Move]]]


@dataclass(frozen=True)
class Chosen:
    """A kernel before its moves, its roles, and what was chosen for it."""

    sink: UOp
    contraction: Roles | None
    moved: UOp
    moves: list[Move]


@dataclass(frozen=True)
class _Way:
    """Moves that a kernel may have. form: what kernels with these moves can share."""

    moved: UOp
    moves: list[Move]
    form: UOp
    cost: float


def common_tiles(
    kernels: Sequence[Chosen], caps: Caps, choose: Choose
) -> dict[int, tuple[UOp, list[Move]]]:
    """For some of the kernels, by their position, other moves than were chosen: those of a tile
    that others have. choose: the chooser of moves, which is asked again with fewer tiles.
    """
    families: dict[UOp, list[int]] = {}
    for position, kernel in enumerate(kernels):
        form = form_of(kernel.sink, (), caps) if kernel.contraction else None
        if form is not None:
            families.setdefault(form, []).append(position)
    found = {}
    for family in families.values():
        members = [kernels[position] for position in family]
        if len({_extent(kernel.moved, "upcast") for kernel in members}) == 1:
            continue
        ways = _ways(members, caps, choose)
        forms = _fewest(ways)
        for position, own in zip(family, ways, strict=True):
            best = min((w for w in own if w.form in forms), key=lambda w: w.cost, default=None)
            if best is not None and best is not own[0]:
                found[position] = best.moved, best.moves
    return found


def _ways(family: Sequence[Chosen], caps: Caps, choose: Choose) -> list[list[_Way]]:
    """For each of the kernels, what was chosen for it and what else costs little more."""
    copies = {_extent(kernel.moved, "upcast") for kernel in family}
    return [_ways_of(kernel, copies, caps, choose) for kernel in family]


def _ways_of(kernel: Chosen, copies: Iterable[int], caps: Caps, choose: Choose) -> list[_Way]:
    own = _way(kernel, kernel.moved, kernel.moves, caps)
    if own is None:
        return []
    ways = [own]
    for count in sorted({*copies} - {_extent(kernel.moved, "upcast")}):
        if _least_cost(kernel, count, caps) > own.cost * (1 + LOSS):
            continue
        tiles = tuple((rows, across) for rows, across in caps.tiles if rows * across == count)
        moved, moves = choose(kernel.sink, replace(caps, tiles=tiles), kernel.contraction)
        way = _way(kernel, moved, moves, caps)
        if way is not None and own.cost <= way.cost <= own.cost * (1 + LOSS):
            ways.append(way)
    return ways


def _way(kernel: Chosen, moved: UOp, moves: list[Move], caps: Caps) -> _Way | None:
    form = form_of(kernel.sink, moves, caps)
    if form is None:
        return None
    copies, threads = _extent(moved, "upcast"), _extent(moved, "loop", "local", "grid")
    results = threads * copies * _extent(moved, "vector")
    waste = results / _extent(kernel.sink, "loop")
    return _Way(moved, moves, form, tile_cost((copies, 1), waste, threads, caps))


def _least_cost(kernel: Chosen, copies: int, caps: Caps) -> float:
    """What a tile costs at least: if it computes no result that there is not."""
    results = _extent(kernel.sink, "loop") / _extent(kernel.moved, "vector")
    return tile_cost((copies, 1), 1.0, results / copies, caps)


def _extent(sink: UOp, *kinds: str) -> int:
    """How many steps the ranges of some kinds have together; they are constants in what has a
    form.
    """
    return prod(int(r.src[0].arg) for r in ranges(sink) if r.arg.kind in kinds)


def _fewest(ways: Sequence[Sequence[_Way]]) -> set[UOp]:
    """Few forms of which every kernel can have one: again and again the one that most of those left
    can have, of these the one that costs least.
    """
    forms: set[UOp] = set()
    left = [own for own in ways if own]
    while left:
        losses: dict[UOp, list[float]] = {}
        for own in left:
            for way in own:
                losses.setdefault(way.form, []).append(way.cost / own[0].cost)
        best = max(losses, key=lambda form: (len(losses[form]), -sum(losses[form])))
        forms.add(best)
        left = [own for own in left if all(way.form is not best for way in own)]
    return forms
