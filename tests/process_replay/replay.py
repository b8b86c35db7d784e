"""Compare what two sides make of a corpus, and say so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.process_replay.bundles import differences
from tests.process_replay.corpus import Case
from tests.process_replay.sides import MARK, ROOT, ReplayError, Results, both, exempt

NO_PARENT = (
    "process replay: there is no commit to compare with, as in a shallow clone; nothing was "
    "compared. `git fetch --unshallow` brings the history."
)
ADVICE = (
    f"If this is meant, write {MARK} into the message of a commit that does it, with the reason. "
    "Else find what changed it: `python -m tests.process_replay` shows the same again."
)


@dataclass(frozen=True)
class Outcome:
    """Whether all is equal or allowed to differ, and the report."""

    passes: bool
    text: str


def report(base: Results, head: Results, *, allowed: bool) -> Outcome:
    """The differences of all cases, and a last line that counts. Raises ReplayError."""
    refused = Counter(result["error"] for result in head.values() if "error" in result)
    if sum(refused.values()) == len(head):
        example = next(iter(head.values()))
        raise ReplayError(f"no case compiles, so nothing is compared:\n{example.get('where')}")
    parts = {name: list(differences(name, base[name], head[name])) for name in head}
    different = [name for name, found in parts.items() if found]
    lines = [text for found in parts.values() for text in found]
    lines += [f"{name}: {head[name]['where']}" for name in different if "error" in head[name]]
    summary = f"process replay: {len(different)} of {len(head)} cases differ"
    if refused:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(refused.items()))
        summary += f"; refused by the newer side: {counts}"
    lines.append(summary)
    if different:
        lines.append(f"Allowed: a commit's message says {MARK}." if allowed else ADVICE)
    return Outcome(allowed or not different, "\n".join(lines))


def compare(base: str, head: str | None, cases: Mapping[str, Case], root: Path = ROOT) -> Outcome:
    """Compile the cases at two commits and compare. head: None for the working tree."""
    old, new = both(base, head, cases, root)
    return report(old, new, allowed=exempt(base, head or "HEAD", root))
