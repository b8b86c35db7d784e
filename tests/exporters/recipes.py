"""A recipe makes one file by one exporter; the modules beside this one hold the recipes.

To add an exporter: a module here with a list `RECIPES` and `main(RECIPES, PACKAGES)` at its end;
its pinned packages in `requirements/ENVIRONMENT.txt`, which `scripts/setup slow` installs into
.cache/exporters/ENVIRONMENT; its line in `EXPORTERS` of runner.py; and what becomes of its files,
which `python -m tests.exporters.runner MODULE` finds out and writes into lists/MODULE.json.

Modules run in their environment, where tinyedge is not installed: they import only the exporter,
numpy, onnx, and what lies here.

    .cache/exporters/ENVIRONMENT/bin/python -m tests.exporters.MODULE FOLDER [RECIPE ...]

writes RECIPE.onnx, RECIPE.npz (the inputs to try it with) and made.json: versions, options, and
what the exporter said of recipes for which it wrote nothing.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Recipe:
    """write: makes the file at a path and returns inputs by name. options: what a reader would set
    to get the same. tolerance: how far outputs may be off, of the greatest value. quick: whether
    the ordinary tests run it, too.
    """

    name: str
    options: str
    write: Callable[[Path], Mapping[str, Array]]
    tolerance: float = 1e-4
    quick: bool = False


def make(recipes: Sequence[Recipe], folder: Path, names: Sequence[str] = ()) -> dict[str, str]:
    """Write files and their inputs. Returns what the exporter said of those it could not write."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = {}
    for recipe in recipes:
        if names and recipe.name not in names:
            continue
        try:
            given = recipe.write(folder / f"{recipe.name}.onnx")
        except Exception as error:  # an exporter may fail in any way; the list says which do
            failed[recipe.name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            continue
        np.savez(folder / f"{recipe.name}.npz", **given)
    return failed


def main(recipes: Sequence[Recipe], packages: Sequence[str]) -> None:
    """The command line of a module of recipes. packages: whose versions to print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="RECIPE")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    failed = make(recipes, arguments.folder, arguments.names)
    said = {
        "versions": {package: version(package) for package in packages},
        "failed": failed,
        "recipes": {
            recipe.name: {
                "options": recipe.options,
                "tolerance": recipe.tolerance,
                "quick": recipe.quick,
            }
            for recipe in recipes
        },
    }
    (arguments.folder / "made.json").write_text(json.dumps(said))
    for name, why in failed.items():
        print(f"{name}: {why}", file=sys.stderr)
