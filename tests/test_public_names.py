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
