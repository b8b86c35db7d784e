"""Recipes compiled, run and compared; several in one program, because compiling is what costs."""

from __future__ import annotations

import numpy as np

from tests.agreement import Inputs, run
from tests.fuzz.recipes import Recipe, disagreements, expectations, outputs, text
from tests.fuzz.shrink import shrink
from tinyedge.core.compiler.options import Options
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor


def drafted(recipes: dict[str, Recipe]) -> tuple[dict[str, Tensor], Inputs]:
    """The outputs of all recipes and the inputs of all, for one program."""
    inputs = Inputs()
    tensors = {}
    for prefix, recipe in recipes.items():
        tensors.update(outputs(recipe, inputs, prefix))
    return tensors, inputs


def check(recipes: dict[str, Recipe], target: str, device: Device, options: Options) -> list[str]:
    """What is wrong with the recipes, run together."""
    tensors, inputs = drafted(recipes)
    expected, scales = expectations(tensors, inputs)
    actual = run(tensors, inputs, target, device, options)
    return disagreements(actual, expected, scales)


def problem(recipe: Recipe, target: str, device: Device, options: Options) -> str:
    """What is wrong with one recipe; nothing if it agrees."""
    try:
        with np.errstate(all="ignore"):
            return "\n".join(check({"": recipe}, target, device, options))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def failures(
    recipes: dict[str, Recipe], target: str, device: Device, options: Options
) -> list[str]:
    """Reports, with a shrunken reproducer each, of the recipes that do not agree."""
    try:
        found = check(recipes, target, device, options)
        if not found:
            return []
    except Exception as error:
        found = [f"{type(error).__name__}: {error}"]
    reports = []
    for name, recipe in recipes.items():
        why = problem(recipe, target, device, options)
        if not why:
            continue
        kind = why.split(":")[0] if "Error" in why.split(":")[0] else ""

        def fails(smaller: Recipe, kind: str = kind) -> bool:
            again = problem(smaller, target, device, options)
            return bool(again) and again.startswith(kind)

        small = shrink(recipe, fails)
        why = problem(small, target, device, options)
        reports.append(f"{name} on {target}, optimize={options.optimize}: {why}\n{text(small)}")
    return reports or [f"only together: {list(recipes)}: {found}"]
