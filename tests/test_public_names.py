"""The package's public names: what type checkers see is what a run gets."""

from __future__ import annotations

import ast
from pathlib import Path

import tinyedge


def test_type_checkers_see_what_a_run_imports() -> None:
    tree = ast.parse(Path(tinyedge.__file__).read_text(encoding="utf-8"))
    (seen,) = (node for node in tree.body if isinstance(node, ast.If))
    homes = {
        alias.name: node.module
        for node in seen.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert homes == tinyedge._HOMES
    assert sorted(homes) == tinyedge.__all__


def test_modules_are_there_when_they_are_named() -> None:
    key = tinyedge.random.key(3)
    assert tinyedge.random.bits(key, (2,)).shape == (2,)
    assert {"nn", "optim", "random"} <= set(dir(tinyedge))
    assert callable(tinyedge.nn.Linear) and callable(tinyedge.optim.Adam)
