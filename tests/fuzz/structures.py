"""Recipes of one structure and random sizes: layers of a network, whose kernels may become one.

All members of a structure have the same operations, filters, strides and activations; how many
rows, columns, channels and pixels they have is drawn for each.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.fuzz.recipes import Recipe, Step

CHANNELS = (4, 8, 12, 16, 20, 24, 32, 36, 48, 64)
SIDES = (5, 6, 7, 8, 9, 10, 12, 14, 16, 20)
ANY = (1, 2, 3, 5, 6, 7, 11, 13, 30)


class Draft:
    """A recipe that grows. choose: draws what all members have in common; size: a member's own."""

    def __init__(self, structure: int, member: int) -> None:
        self.recipe: Recipe = []
        self.choose = random.Random(structure).choice
        self.size = random.Random(f"{structure} {member}").choice
        self.seed = 1000 * structure + 100 * member

    def new(self, *shape: int, kind: str = "f", op: str = "input") -> int:
        self.recipe.append(Step(op, (), (kind, shape, self.seed + len(self.recipe))))
        return len(self.recipe) - 1

    def weight(self, *shape: int) -> int:
        return self.new(*shape, op="weight")

    def add(self, op: str, *args: int, params: Any = None) -> int:
        self.recipe.append(Step(op, args, params))
        return len(self.recipe) - 1

    def activated(self, n: int) -> int:
        op = self.choose(("relu", "clip", "tanh", "abs", ""))
        return self.add(op, n) if op else n


def product(d: Draft) -> None:
    """Rows by a matrix, a bias, an activation, what was there before."""
    small = d.choose((False, True))
    rows, inner = d.size(ANY if small else CHANNELS), d.size(CHANNELS)
    columns = d.size(d.choose((CHANNELS, CHANNELS, ANY)))
    y = d.add("matmul", d.new(rows, inner), d.weight(inner, columns))
    y = d.activated(d.add("add", y, d.weight(columns)))
    if d.choose((False, True)):
        d.add("add", d.new(rows, columns), y)


def products(d: Draft) -> None:
    """Several, of two inputs, one of them turned."""
    batch, rows = d.size(ANY[:5]), d.size(ANY)
    inner, columns = d.size(CHANNELS[:6]), d.size(CHANNELS[:6])
    right = d.new(batch, columns, inner)
    turned = d.add("permute", right, params=(0, 2, 1))
    d.add("scale", d.add("matmul", d.new(batch, rows, inner), turned), params=0.5)


def convolution(d: Draft) -> None:
    kernel, stride = d.choose((1, 2, 3, 5)), d.choose((1, 1, 2))
    pads = tuple((d.choose((0, 1, 2)), d.choose((0, 1, 2))) for _ in range(2))
    channels, filters, side = d.size(CHANNELS[:6]), d.size(CHANNELS[:6]), d.size(SIDES)
    x, w = d.new(1, channels, side, d.size(SIDES)), d.weight(filters, channels, kernel, kernel)
    d.activated(d.add("conv", x, w, params=((stride, stride), pads, 1)))


def by_channel(d: Draft) -> None:
    """Depthwise between two of 1 x 1, with a shortcut."""
    kernel, stride = d.choose((3, 5)), d.choose((1, 2))
    pads = ((kernel // 2, kernel // 2),) * 2
    channels, inner, side = d.size(CHANNELS[:5]), d.size(CHANNELS[:7]), d.size(SIDES)
    x = d.new(1, channels, side, side)
    plain = ((1, 1), ((0, 0), (0, 0)), 1)
    y = d.activated(d.add("conv", x, d.weight(inner, channels, 1, 1), params=plain))
    deep = d.weight(inner, 1, kernel, kernel)
    y = d.activated(d.add("conv", y, deep, params=((stride, stride), pads, inner)))
    y = d.add("scale", y, params=0.125)
    y = d.add("conv", y, d.weight(channels, inner, 1, 1), params=plain)
    if stride == 1:
        d.add("add", x, y)


def pool(d: Draft) -> None:
    size, stride = d.choose((2, 3)), d.choose((1, 2, 3))
    x = d.new(1, d.size(CHANNELS), d.size(SIDES), d.size(SIDES))
    d.add("pool", x, params=(size, stride, d.choose(("max", "mean"))))


def reduction(d: Draft) -> None:
    x = d.new(d.size(ANY), d.size(CHANNELS), d.size(SIDES))
    axes = d.choose(((0,), (1,), (2,), (0, 2), (1, 2)))
    op = d.choose(("sum", "mean", "max_of", "min_of"))
    d.add(op, d.add("mul", x, d.weight(d.size((1,)))), params=(axes, d.choose((False, True))))


def moved(d: Draft) -> None:
    """Turned, flipped, padded, cut, and two of these added."""
    sizes = d.size(ANY), d.size(SIDES), d.size(CHANNELS)
    x, y = d.new(*sizes), d.new(*sizes)
    order = d.choose(((0, 2, 1), (2, 1, 0), (1, 2, 0), (0, 1, 2)))
    x = d.add("flip", d.add("permute", x, params=order), params=(d.choose((0, 1, 2)),))
    y = d.activated(d.add("permute", y, params=order))
    y = d.add("pad", y, params=(((0, 0), (d.choose((0, 1)), 2), (1, d.choose((0, 3)))), 0))
    turned = [sizes[axis] for axis in order]
    cut = tuple((1 if axis else 0, size + (1 if axis else 0)) for axis, size in enumerate(turned))
    d.add("add", x, d.add("shrink", y, params=cut))


def stretched(d: Draft) -> None:
    """Every pixel twice, and every other one."""
    channels, side, wide = d.size(CHANNELS), d.size(SIDES), d.size(SIDES)
    x = d.activated(d.new(channels, side, 1, wide, 1))
    x = d.add("expand", x, params=(channels, side, 2, wide, 2))
    x = d.add("reshape", x, params=(channels, 2 * side, 2 * wide))
    d.add("stride", d.add("shift", x, params=1.0), params=(d.choose((1, 2)), 3))


def joined(d: Draft) -> None:
    rows, ends = d.size(ANY), [d.size(CHANNELS) for _ in range(3)]
    parts = [d.activated(d.new(rows, end)) for end in ends]
    d.add("concat", *parts, params=1)


def looked_up(d: Draft) -> None:
    table = d.new(d.size(CHANNELS), d.size(CHANNELS))
    places = d.new(d.size(ANY), d.size(ANY[:4]), kind="i")
    d.add("gather", table, places, params=d.choose((0, 1)))


def rows(d: Draft) -> None:
    x = d.new(d.size(ANY), d.size((*ANY, *CHANNELS)))
    d.add(d.choose(("softmax", "norm")), x, params=1)


def integers(d: Draft) -> None:
    by, n = d.choose((3, 8)), d.new(d.size(ANY), d.size(CHANNELS), kind="i")
    d.add("mod", n, params=by)
    d.add("argmax", d.add("floordiv", n, params=by), params=d.choose((0, 1)))


STRUCTURES: tuple[Callable[[Draft], None], ...] = (
    *(product, products, convolution, by_channel, pool, reduction),
    *(moved, stretched, joined, looked_up, rows, integers),
)


def members(seed: int, count: int) -> dict[str, Recipe]:
    """So many recipes of each structure in a variant that the seed draws, by name."""
    found = {}
    for structure in STRUCTURES:
        for member in range(count):
            draft = Draft(seed, member)
            structure(draft)
            found[f"{structure.__name__}{member}"] = draft.recipe
    return found
