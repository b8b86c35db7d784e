"""Axes split, joined and put in another order by a pattern, as the package einops writes it."""

from __future__ import annotations

import re
from typing import TypeVar

from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import Size
from tinyedge.core.tensor.movement import Movement

T = TypeVar("T", bound=Movement)

_SIDE = re.compile(r"\s*(?:(?:\w+|\.\.\.|\((?:\s*\w+)*\s*\))\s*)*", re.ASCII)
_PART = re.compile(r"\w+|\.\.\.|\([^)]*\)", re.ASCII)
DOTS = "..."


def rearranged(x: T, pattern: str, sizes: dict[str, int]) -> T:
    """x by "b (h w) c -> b c h w": names in brackets are one axis, 1 is an axis of one element,
    `...` stands for any axes. sizes: of names that the shape does not tell.

    Raises ValueError.
    """
    sides = pattern.split("->")
    if len(sides) != 2 or not all(_SIDE.fullmatch(side) for side in sides):
        raise ValueError(f"pattern {pattern!r}: it is no 'AXES -> AXES'")
    left, right = map(_groups, sides)
    dots = x.ndim - sum(group != [DOTS] for group in left)
    if dots < 0 or (dots and [DOTS] not in left):
        raise ValueError(f"pattern {pattern!r} of a tensor of {x.ndim} axes")
    left, right = (_without_dots(groups, dots) for groups in (left, right))
    names = [name for group in left for name in group]
    wanted = [name for group in right for name in group]
    if len(set(names)) < len(names) or sorted(names) != sorted(wanted):
        raise ValueError(f"pattern {pattern!r}: a name is not once on both sides")
    known: dict[str, Size] = {}
    for size, group in zip(x.shape, left, strict=True):
        known.update(_split(size, group, sizes, pattern))
    unknown = [name for name in sizes if name not in known]
    if unknown:
        raise ValueError(f"pattern {pattern!r}: it has no {unknown[0]!r}")
    apart = x.reshape([known[name] for name in names])
    moved = apart.permute([names.index(name) for name in wanted])
    return moved.reshape([product([known[name] for name in group]) for group in right])


def _groups(side: str) -> list[list[str]]:
    """The names of each axis; of an axis of one element none."""
    parts = [part.strip("()").split() for part in _PART.findall(side)]
    return [[name for name in part if name != "1"] for part in parts]


def _without_dots(groups: list[list[str]], count: int) -> list[list[str]]:
    found: list[list[str]] = []
    for group in groups:
        found += [[f"{DOTS}{n}"] for n in range(count)] if group == [DOTS] else [group]
    return found


def _split(size: Size, group: list[str], sizes: dict[str, int], pattern: str) -> dict[str, Size]:
    """The sizes of the names that an axis is split into."""
    known: dict[str, Size] = {name: sizes[name] for name in group if name in sizes}
    rest = product(list(known.values()))
    missing = [name for name in group if name not in known]
    whole = isinstance(size, int) and isinstance(rest, int)
    if len(missing) > 1 or (whole and (rest == 0 or size % rest or (not missing and size != rest))):
        raise ValueError(f"pattern {pattern!r}: an axis of {size} is no {' '.join(group) or '1'}")
    return known | dict.fromkeys(missing, size // rest)
