"""Writes a page's tables of numbers: `python scripts/readme_numbers.py MEASURED.json`.

MEASURED.json is what `python -m tests.bench --json MEASURED.json` wrote, for the README, or
`python -m tests.bench.opencl --json MEASURED.json`, for docs/qcom.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.bench import report  # noqa: E402
from tests.bench.opencl import report as opencl_report  # noqa: E402

BEGIN, END = "<!-- numbers -->\n", "<!-- /numbers -->\n"


def main(measured: Path) -> None:
    result = json.loads(measured.read_text(encoding="utf-8"))
    if "chromium" in result:
        page, table = ROOT / "README.md", report.summary(result)
    else:
        page, table = ROOT / "docs" / "qcom.md", opencl_report.markdown(result)
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(before + BEGIN + table.strip() + "\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
