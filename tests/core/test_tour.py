"""The compiler's tour, tinyedge/core/README.md, says what happens.

Its blocks of Python run one after the other; what each prints is the block of text that follows.
`python -m tests.core.test_tour` writes these anew.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

TOUR = Path(__file__).resolve().parents[2] / "tinyedge" / "core" / "README.md"
BLOCK = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def printed(text: str) -> list[tuple[str, str, str]]:
    """(code, what it prints, what the text says) of each block."""
    names: dict[str, Any] = {"__name__": "tour"}
    blocks = []
    for match in BLOCK.finditer(text):
        output = io.StringIO()
        line = text.count("\n", 0, match.start()) + 1
        with redirect_stdout(output):
            exec(compile("\n" * line + match[1], str(TOUR), "exec"), names)
        blocks.append((match[1], output.getvalue().rstrip() + "\n", match[2]))
    return blocks


def test_the_tour() -> None:
    text = TOUR.read_text(encoding="utf-8")
    blocks = printed(text)
    assert len(blocks) == text.count("```python")
    for code, result, said in blocks:
        assert result == said, f"after\n{code}\nUpdate: python -m tests.core.test_tour"


def update() -> None:
    text = TOUR.read_text(encoding="utf-8")
    results = iter(printed(text))
    new = BLOCK.sub(
        lambda match: f"```python\n{match[1]}```\n\n```text\n{next(results)[1]}```", text
    )
    TOUR.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    update()
