"""Writes a page's tables of numbers: `python scripts/readme_numbers.py MEASURED.json`.

MEASURED.json is what `python -m tests.bench --json MEASURED.json` wrote, for the README,
`python -m tests.bench.opencl --json MEASURED.json`, for docs/qcom.md, or
`python -m tests.study --json MEASURED.json` (and its `models`, `scale` and `--target`), for
docs/study.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.bench import report  # noqa: E402
from tests.bench.opencl import report as opencl_report  # noqa: E402
from tests.study import report as study_report  # noqa: E402


def main(measured: Path) -> None:
    result = json.loads(measured.read_text(encoding="utf-8"))
    name = "numbers"
    if "study" in result:
        page, table, name = ROOT / "docs/study.md", study_report.markdown(result), result["study"]
        if result.get("target", "cpu") != "cpu":
            name += f"-{result['target']}"
    elif "chromium" in result:
        page, table = ROOT / "README.md", report.summary(result)
    else:
        page, table = ROOT / "docs" / "qcom.md", opencl_report.markdown(result)
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    page.write_text(before + begin + table.strip() + "\n" + end + after, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
