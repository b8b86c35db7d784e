"""Writes a page's tables of numbers: `python scripts/readme_numbers.py MEASURED.json`.

MEASURED.json is what one of these wrote: `python -m tests.bench --json MEASURED.json`, for the
README and docs/study.md (of its `more` models for the latter alone), `python -m tests.bench.opencl
--json MEASURED.json`, for docs/qcom.md, or `python -m tests.study --json MEASURED.json` (and its
`models`, `scale` and `--target`) and `python -m tests.bench.exports --json MEASURED.json`, for
docs/study.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.bench import cases, exports, report  # noqa: E402
from tests.bench.opencl import report as opencl_report  # noqa: E402
from tests.study import report as study_report  # noqa: E402


def main(measured: Path) -> None:
    result = json.loads(measured.read_text(encoding="utf-8"))
    study = ROOT / "docs" / "study.md"
    if "study" in result:
        name = result["study"]
        if result.get("target", "cpu") != "cpu":
            name += f"-{result['target']}"
        write(study, name, study_report.markdown(result))
    elif "exports" in result:
        write(study, f"exports-{result['target']}", exports.markdown(result))
    elif "chromium" in result and all(each["model"] in cases.MORE for each in result["models"]):
        write(study, "chromium-more", report.others(result))
    elif "chromium" in result:
        write(ROOT / "README.md", "numbers", report.summary(result))
        write(study, "chromium", report.study(result))
    else:
        write(ROOT / "docs" / "qcom.md", "numbers", opencl_report.markdown(result))


def write(page: Path, name: str, table: str) -> None:
    """Between the page's two marks of that name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    page.write_text(before + begin + table.strip() + "\n" + end + after, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
