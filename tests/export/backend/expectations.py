"""The committed list of what every case does in every place."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from tests.export.backend.runner import PLACES, Outcome

FILE = Path(__file__).with_name("expectations.json")
LIKE = {**dict.fromkeys(PLACES[1:], "reference"), "chromium": "webgpu"}


@dataclass
class Expectations:
    """Texts by case and place; a place that has none does as the one that it is like."""

    onnx: str = onnx.__version__  # the version whose cases these are
    cases: dict[str, dict[str, str]] = field(default_factory=dict)

    def of(self, case: str, place: str) -> str:
        """What is expected of a case; nothing of one that is not listed."""
        texts = self.cases.get(case, {})
        while place not in texts and place in LIKE:
            place = LIKE[place]
        return texts.get(place, "")

    def differences(self, place: str, outcomes: Iterable[Outcome]) -> list[str]:
        """Where outcomes are not as expected. With another version of onnx the texts are not
        compared, but no case may be wrong or crash.
        """
        found = []
        for outcome in outcomes:
            expected = self.of(outcome.name, place)
            wrong = str(outcome) != expected
            if self.onnx != onnx.__version__:
                wrong = outcome.verdict not in ("pass", "refused")
            if wrong:
                found.append(f"{outcome.name} on {place}: {outcome}; listed: {expected or 'not'}")
        return found

    def update(self, place: str, outcomes: Iterable[Outcome]) -> None:
        """Take what cases do in a place; what is said of others by name stays."""
        for outcome in outcomes:
            texts = self.cases.setdefault(outcome.name, {})
            texts[place] = str(outcome)
            for other in LIKE:
                text = texts.pop(other, "")
                if text and text != self.of(outcome.name, other):
                    texts[other] = text

    def save(self, names: Iterable[str], file: Path = FILE) -> None:
        """Write what is expected of the named cases, one a line."""
        lines = []
        for name in sorted(names):
            texts = self.cases[name]
            value = texts["reference"] if set(texts) == {"reference"} else texts
            lines.append(f"{json.dumps(name)}: {json.dumps(value)}")
        head = f'{{"onnx": {json.dumps(onnx.__version__)}, "cases": {{'
        file.write_text("\n".join((head, ",\n".join(lines), "}}\n")), "utf-8")


def load(file: Path = FILE) -> Expectations:
    """The list in a file; an empty one where there is none."""
    if not file.exists():
        return Expectations()
    content = json.loads(file.read_text("utf-8"))
    cases = {
        name: {"reference": texts} if isinstance(texts, str) else texts
        for name, texts in content["cases"].items()
    }
    return Expectations(content["onnx"], cases)
