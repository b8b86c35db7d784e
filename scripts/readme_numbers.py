"""Writes the README's table of numbers: `python scripts/readme_numbers.py MEASURED.json`.

MEASURED.json is what `python -m tests.bench --json MEASURED.json` wrote.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.bench.report import markdown  # noqa: E402

BEGIN, END = "<!-- numbers -->\n", "<!-- /numbers -->\n"


def main(measured: Path, readme: Path = ROOT / "README.md") -> None:
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    table = markdown(json.loads(measured.read_text(encoding="utf-8")))
    readme.write_text(before + BEGIN + table.strip() + "\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
