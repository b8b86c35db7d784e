"""docs/operators.md is what scripts/operator_table.py writes, and says what the importer does."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto

from tests.export.hostile import info, model, node
from tests.imported import import_model
from tinyedge.core.errors import UnsupportedOp
from tinyedge.export.onnx import registry

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "operators.md"


def _rows() -> dict[str, list[str]]:
    """The cells of ai.onnx's operators."""
    text = PAGE.read_text(encoding="utf-8").split("## ai.onnx\n")[1].split("\n## ")[0]
    cells = [
        row.strip("| ").split(" | ") for row in re.findall(r"^\| [A-Z].+$", text, re.MULTILINE)
    ]
    return {row[0]: row for row in cells}


def test_the_page_is_fresh() -> None:
    """After a change, or with another onnx: python scripts/operator_table.py"""
    written = runpy.run_path(str(ROOT / "scripts" / "operator_table.py"))["page"]()
    assert PAGE.read_text(encoding="utf-8") == written


def test_every_operator_of_onnx_is_there() -> None:
    names = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    assert names <= _rows().keys() and set(registry.names()) <= _rows().keys()


@pytest.mark.parametrize("name", ["StringConcat", "ImageDecoder"])
def test_what_is_said_to_be_refused_is(name: str) -> None:
    assert _rows()[name][2] == "refused"
    kind = {"StringConcat": TensorProto.STRING, "ImageDecoder": TensorProto.UINT8}[name]
    count = 2 if name == "StringConcat" else 1
    names = [f"x{number}" for number in range(count)]
    proto = model([node(name, names)], inputs=[info(x, [4], kind) for x in names], opset=22)
    with pytest.raises(UnsupportedOp):
        import_model(proto.SerializeToString())


def test_marks() -> None:
    """Doubles and 64-bit integers, for those operators and on those targets that have them."""
    rows = _rows()
    assert rows["Add"][2:6] == ["yes (1, 2)", "yes (1)", "yes", "yes"]
    assert rows["And"][2:6] == ["yes"] * 4
    assert rows["BitwiseNot"][2:4] == ["yes (2)", "yes"]
    assert rows["Det"][6] == "matrices of up to 5 rows"
