"""What commands print: tables and JSON to standard output, progress and errors to standard error.

Names come from models that nobody has checked: nothing is printed with control characters in it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar


def plain(text: str) -> str:
    """Text with its control characters written as escapes; line ends and tabs stay."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1]
        for letter in text
    )


def one_line(text: str) -> str:
    """Text with all its control characters written as escapes."""
    return plain(text).replace("\n", "\\n").replace("\t", "\\t")


def say(line: str = "") -> None:
    """Print one line to standard output."""
    print(one_line(line))


def say_text(text: str) -> None:
    """Print text of several lines to standard output."""
    print(plain(text))


def complain(line: str) -> None:
    """Print one line to standard error."""
    print(one_line(line), file=sys.stderr)


def complain_text(text: str) -> None:
    """Print text of several lines to standard error."""
    print(plain(text), file=sys.stderr)


def say_json(value: Any) -> None:
    """Print a value as JSON; NaN and infinity, which JSON lacks, as strings."""
    print(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return value


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = "") -> None:
    """Print rows under headings. A heading that starts with `>` aligns its column to the right."""
    from rich.table import Table
    from rich.text import Text

    wanted = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        wanted.add_column(column.lstrip(">"), justify="right" if right else "left")
    for row in rows:
        wanted.add_row(*(Text(one_line(str(cell))) for cell in row))
    _console().print(wanted)


def bytes_of(count: int) -> str:
    """A number of bytes for people: 47.3 MiB."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def several(count: int, what: str) -> str:
    """A number of things: 1 kernel, 2 kernels."""
    return f"{count} {what}" if count == 1 else f"{count} {what}{'es' if what[-1] == 'h' else 's'}"


def seconds_of(seconds: float) -> str:
    """A duration for people: 3.21 ms."""
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.2f} {unit}"
    return f"{seconds * 1e6:.1f} us"


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    # Piped output keeps whole lines, however long.
    width = None if (sys.stderr if stderr else sys.stdout).isatty() else 200
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, width=width)


class Stages:
    """Progress of a long command: `report(stage, done, total)`; remembers how long stages took."""

    def __init__(self, bar: Bar | None) -> None:
        self.times: dict[str, float] = {}
        self._bar = bar
        self._task: Any = None
        self._stage = ""
        self._since = time.perf_counter()

    def report(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Stage `stage` is at `done` of `total`; total 0: unknown."""
        if stage != self._stage:
            self._end_stage()
            self._stage = stage
            if self._bar is not None:
                self._task = self._bar.add_task(one_line(stage), total=total or None)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total or None)

    def finish(self) -> None:
        """The last stage is over."""
        self._end_stage()
        self._stage = ""

    def _end_stage(self) -> None:
        now = time.perf_counter()
        if self._stage:
            self.times[self._stage] = self.times.get(self._stage, 0.0) + now - self._since
            if self._bar is not None:
                self._bar.remove_task(self._task)
        self._since = now


@contextmanager
def stages() -> Iterator[Stages]:
    """Show progress on a terminal; elsewhere only measure."""
    if not sys.stderr.isatty():
        yield Stages(None)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_console(stderr=True), transient=True) as bar:
        yield Stages(bar)


def print_fallback(facts: Mapping[str, Any] | None) -> None:
    """A bundle's program for WebAssembly."""
    if facts is not None:
        say(
            f"fallback WebAssembly: {several(facts['launches'], 'launch')}, weights "
            f"{bytes_of(facts['weight_bytes'])}, adds {bytes_of(facts['added_bytes'])} to the "
            f"bundle, {bytes_of(facts['added_weight_bytes'])} of it weights"
        )


def print_variants(variants: list[dict[str, Any]]) -> None:
    """The programs of a bundle of several."""
    if not variants:
        return
    rows = [
        (
            each["name"],
            ", ".join(each["requires"]) or "-",
            each["launches"],
            bytes_of(each["weight_bytes"]),
            bytes_of(each["added_bytes"]),
        )
        for each in variants
    ]
    table(("variant", "requires", ">launches", ">weights", ">adds to the bundle"), rows)
