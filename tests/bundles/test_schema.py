"""The tables that readers have of schema.py are those that it gives, and they do all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tinyedge.core.dtype import by_name
from tinyedge.core.program import program
from tinyedge.export.bundle import expressions, records, schema, tables


def _names(file: str, start: str) -> list[str]:
    """The keys of an object of a script that begins so."""
    text = (tables.ROOT / "web" / "src" / "runtime" / file).read_text(encoding="utf-8")
    body = text[text.index(start) + len(start) :]
    return re.findall(r"^  (\w+):", body[: body.index("\n};")], re.MULTILINE)


@pytest.mark.parametrize("path", tables.files(), ids=lambda path: path.name)
def test_tables_are_fresh(path: Path) -> None:
    stale = "run python -m tinyedge.export.bundle.tables, then npm --prefix web run build"
    assert path.read_text(encoding="utf-8") == tables.files()[path], stale


def test_readers_know_all_operators_and_features() -> None:
    assert tuple(expressions.OPERATORS) == schema.OPERATORS
    assert set(program.EXPRESSION_OPERATORS) == set(schema.OPERATORS)
    assert _names("expressions.js", "const OPERATORS = {") == list(schema.OPERATORS)
    # Images are for qcom alone, variants for the cpu.
    known = [name for name in schema.FEATURES if name not in schema.NOT_IN_SCRIPT]
    assert _names("check.js", "const FEATURES = {") == known


def test_a_field_is_in_all_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row in the schema, and every reader asks for it."""
    row = schema.Field("hue", schema.AXIS, "of nothing")
    changed = schema.Record("ROOT", (*schema.ROOT.fields, row))
    monkeypatch.setattr(schema, "ROOT", changed)
    texts = {path.name: text for path, text in tables.files().items()}
    assert "X(hue)" in texts["tinyedge_schema.h"]
    assert "SKIP(hue, AXIS)" in texts["tinyedge_schema.h"]
    assert "hue: AXIS" in texts["check.js"]
    assert "| hue | 0..7 | of nothing |" in texts["bundle.md"]
    assert "hue" in records._record(changed, frozenset()).members


def test_types_are_kept_as_types_of_their_kind() -> None:
    for name, kept in schema.STORAGE.items():
        assert kept[0] == name
        for other in map(by_name, kept):
            assert other.is_float == by_name(name).is_float
