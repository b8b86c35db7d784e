"""What was measured as text: seconds, ratios and errors, as cells of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.report import MISSING

Result = Mapping[str, Any]
TOLERANCE = 1e-4  # of the greatest output: beyond it a side computes something else


def digits(value: float) -> str:
    """Three significant digits."""
    if value == 0:
        return "0"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def time(seconds: float) -> str:
    """With its unit: ns, us, ms or s. A slope may be negative."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= scale:
            return f"{digits(seconds / scale)} {unit}"
    return f"{digits(seconds * 1e9)} ns"


def median(sides: Result, name: str, clock: str = "cpu") -> float | None:
    found = sides.get(name, {}).get(clock)
    return None if found is None else float(found["median"])


def spread(facts: Result, clock: str = "cpu") -> str:
    found = facts[clock]
    ends = "-".join(digits(found[end] * 1e3) for end in ("least", "greatest"))
    return f"{digits(found['median'] * 1e3)} ({ends})"


def ratio(a: float | None, b: float | None) -> str:
    return MISSING if a is None or not b else f"{a / b:.2f}x"


def milliseconds(sides: Result, name: str) -> str:
    found = median(sides, name)
    return MISSING if found is None else digits(found * 1e3)


def off(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0e}"


def clock_name(result: Result) -> str:
    """What seconds are of."""
    return "CPU" if result.get("clock", "cpu") == "cpu" else "device"


def name_of(row: Result) -> str:
    return f"{row['kind']} {row['size']}".strip()


def failures(rows: Sequence[Result]) -> list[str]:
    """What gave no answer, or another one than onnxruntime: a line for each side and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for side, facts in row["sides"].items():
            if "error" in facts:
                words = " ".join(facts["error"].split())[:200]
                reason = f"`{words.replace('`', chr(39))}`"  # words of others, not Markdown
            elif facts["off"] > TOLERANCE:
                reason = f"off by {facts['off']:.1e} from onnxruntime"
            else:
                continue
            names = found.setdefault((side, reason), [])
            if name_of(row) not in names:
                names.append(name_of(row))
    return [f"{side}, {', '.join(names)}: {reason}" for (side, reason), names in found.items()]
