"""The driving example, built by its own Makefile: once with a narrow network, in full if asked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.examples.reference import EXAMPLE
from tests.runtimes_c import build

CAMERA = (302, 482)
NARROW = f"--width 0.25 --camera {CAMERA[0]}x{CAMERA[1]}"

Bundles = Callable[[str], Path]


def make(models: Path, bundle: Path, *goals: str, target: str = "cpu", size: str = "") -> Path:
    """A bundle of the example, by the commands of its README. goals: also settings, NAME=VALUE."""
    build.run(
        *("make", "-s", "-C", EXAMPLE, f"TARGET={target}", f"MODELS={models}"),
        *(f"BUNDLE={bundle}", f"SIZE={size}", f"PYTHON={sys.executable}"),
        *(f"TINYEDGE={sys.executable} -m tinyedge", "CFLAGS=-O2 -Werror", *goals),
    )
    return bundle


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A narrow network and a small camera."""
    folder = tmp_path_factory.mktemp("driving") / "models"
    build.run(sys.executable, EXAMPLE / "model.py", folder, *NARROW.split())
    return folder


@pytest.fixture(scope="session")
def bundles(models: Path) -> Bundles:
    """The narrow network's bundle for a target."""
    made: dict[str, Path] = {}

    def bundle(target: str) -> Path:
        if target not in made:
            place = models.parent / f"drive-{target}.tinyedge"
            made[target] = make(models, place, "bundle", target=target, size=NARROW)
        return made[target]

    return bundle
