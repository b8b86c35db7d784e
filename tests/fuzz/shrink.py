"""Smaller recipes that fail in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.agreement import Inputs
from tests.fuzz.recipes import Recipe, Step, build, leaves

Fails = Callable[[Recipe], bool]
LETTERS = {"float32": "f", "int32": "i", "bool": "b"}


def without(recipe: Recipe, number: int, instead: int | None) -> Recipe:
    """The recipe without a step; its users use an earlier step."""

    def renumbered(n: int) -> int:
        if n == number:
            assert instead is not None
            return instead
        return n - (n > number)

    kept = [step for n, step in enumerate(recipe) if n != number]
    return [replace(step, args=tuple(renumbered(a) for a in step.args)) for step in kept]


def candidates(recipe: Recipe) -> Iterator[Recipe]:
    """Recipes that are one change smaller, greatest changes first."""
    try:
        tensors = build(recipe, Inputs())
    except Exception:
        return
    for number in reversed(range(len(recipe))):
        if number in leaves(recipe) and len(recipe) > 1:
            yield without(recipe, number, None)
            continue
        tensor = tensors[number]
        for other in range(number):
            same = tensors[other].shape == tensor.shape and tensors[other].dtype is tensor.dtype
            if same and other in recipe[number].args:
                yield without(recipe, number, other)
        if recipe[number].op not in ("input", "weight"):
            shape = tuple(int(s) for s in tensor.shape)
            source = Step("input", (), (LETTERS[tensor.dtype.name], shape, number))
            yield [*recipe[:number], source, *recipe[number + 1 :]]


def shrink(recipe: Recipe, fails: Fails, tries: int = 200) -> Recipe:
    """Greedy: take the first smaller recipe that still fails, until none does."""
    while True:
        for candidate in candidates(recipe):
            tries -= 1
            if tries < 0:
                return recipe
            if _smaller(candidate, recipe) and fails(candidate):
                recipe = candidate
                break
        else:
            return recipe


def _smaller(a: Recipe, b: Recipe) -> bool:
    def weight(recipe: Recipe) -> tuple[int, int]:
        return sum(step.op not in ("input", "weight") for step in recipe), len(recipe)

    return weight(a) < weight(b)
