"""What a training run shows and leaves: a bar with the loss on the terminal, its curve as an SVG
file, the weights; also when it is interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tinyedge import nn
from tinyedge.core.errors import TinyedgeError

WIDTH, HEIGHT, MARGIN = 640, 360, 48
COLORS = ("#2563eb", "#d97706", "#059669", "#dc2626")
INTERRUPTED = 130  # exit code


def command(main: Callable[[], None]) -> None:
    """Run a command: what is wrong is said in a sentence, and Ctrl-C ends it without a trace."""
    try:
        main()
    except KeyboardInterrupt:
        print("stopped; nothing was saved", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    except (RuntimeError, OSError, TinyedgeError) as error:
        raise SystemExit(str(error)) from error


def count(text: str) -> int:
    """A whole number from 1 on, of the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def place(text: str) -> Path:
    """A file of the command line that can be written; else said at once, before there is work that
    would be lost.
    """
    path = Path(text)
    if path.is_dir() or (path.exists() and not os.access(path, os.W_OK)):
        raise argparse.ArgumentTypeError(f"{text!r} is a folder, or may not be written")
    _try(text, path.parent)
    return path


def folder(text: str) -> Path:
    """A folder of the command line that can be made and written to."""
    path = Path(text).absolute()
    _try(text, next(each for each in (path, *path.parents) if each.exists()))
    return Path(text)


def _try(text: str, at: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=at):
            pass
    except OSError as error:
        because = error.strerror or str(error)
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: {because}") from error


def files(parser: argparse.ArgumentParser) -> None:
    """The options of a command for what `Run.write` writes."""
    parser.add_argument("--curve", type=place, help="write the loss of each step to this SVG file")
    parser.add_argument("--save", type=place, help="write the weights to this .safetensors file")


class _Stopped(Exception):
    """Ends the steps of a run that was interrupted."""


@dataclass
class Run:
    """What training has so far."""

    model: Any
    losses: list[float] = field(default_factory=list)  # of each step
    found: list[float] = field(default_factory=list)  # what was measured from time to time
    stopped: bool = False

    @contextmanager
    def steps(self, title: str, count: int) -> Iterator[Callable[..., None]]:
        """`with run.steps("digits", 640) as done: ... done(loss)` after each step, under a bar.

        Ctrl-C ends the `with` when the step at hand is done: within it, the model is neither what
        it was nor what it will be. A second one ends it at once, as one before the first step does.
        """

        def interrupted(*_: object) -> None:
            if self.stopped or not self.losses:
                raise KeyboardInterrupt
            self.stopped = True

        def done(loss: float, said: str = "") -> None:
            self.losses.append(loss)
            advance(f"loss {loss:.3f}{said}")
            if self.stopped:
                raise _Stopped

        before = signal.signal(signal.SIGINT, interrupted)
        try:
            with bar(title, count) as advance:
                yield done
        except _Stopped:
            pass
        except TinyedgeError:
            if not self.stopped:  # by Ctrl-C a compiler that is at work ends, too
                raise
        finally:
            signal.signal(signal.SIGINT, before)

    def write(
        self,
        to: argparse.Namespace,
        title: str,
        share: float = 0.9,
        save: Callable[[Path], object] | None = None,
    ) -> None:
        """Curve and weights, where the command line asks for them. A run that was stopped says so,
        and the command ends. share: of `smoothed`; save: writes weights in another way.
        """
        if to.curve:
            curves(to.curve, title, {"loss": smoothed(self.losses, share)}, 1)
        if to.save:
            (save or self._save)(to.save)
        if self.stopped:
            written = [str(file) for file in (to.curve, to.save) if file]
            kept = f"written: {', '.join(written)}" if written else "nothing was saved"
            hint = "" if to.save else " (--save FILE keeps the weights)"
            print(f"stopped after {len(self.losses)} steps; {kept}{hint}", file=sys.stderr)
            raise SystemExit(INTERRUPTED)

    def _save(self, file: Path) -> None:
        nn.save(file, nn.state_dict(self.model))


@contextmanager
def bar(title: str, steps: int) -> Iterator[Any]:
    """`with bar("digits", 640) as advance: advance("loss 0.31")` after each step."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=steps, said="")
        yield lambda said="": progress.update(task, advance=1, said=said)


def smoothed(values: Sequence[float], share: float = 0.9) -> list[float]:
    """A moving average, of which each new value is the rest of `share`."""
    found: list[float] = []
    for value in values:
        found.append(share * found[-1] + (1 - share) * value if found else value)
    return found


def curves(file: str | Path, title: str, lines: Mapping[str, Sequence[float]], every: int) -> None:
    """Curves over steps, one below another's name. every: steps between two values of a line."""
    top = max(max(values) for values in lines.values())
    low = min(0.0, *(min(values) for values in lines.values()))
    longest = max(len(values) for values in lines.values())
    across = (WIDTH - 2 * MARGIN) / max(longest - 1, 1)
    up = (HEIGHT - 2 * MARGIN) / ((top - low) or 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{MARGIN}" y="24" font-size="15">{escape(title)}</text>',
    ]
    for share in range(5):
        value = low + (top - low) * share / 4
        y = HEIGHT - MARGIN - (value - low) * up
        parts.append(f'<path d="M{MARGIN} {y:.1f}H{WIDTH - MARGIN}" stroke="#ddd"/>')
        parts.append(f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    last = (longest - 1) * every
    below = f'y="{HEIGHT - MARGIN + 18}"'
    parts.append(f'<text x="{MARGIN}" {below}>step 0</text>')
    parts.append(f'<text x="{WIDTH - MARGIN}" {below} text-anchor="end">step {last:,}</text>')
    for number, (name, values) in enumerate(lines.items()):
        color = COLORS[number % len(COLORS)]
        points = " ".join(_points(values, across, up, low))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}"/>')
        parts.append(
            f'<text x="{WIDTH - MARGIN}" y="{24 + 16 * number}" text-anchor="end" fill="{color}">'
            f"{escape(name)}</text>"
        )
    Path(file).write_text("\n".join([*parts, "</svg>", ""]))


def _points(values: Iterable[float], across: float, up: float, low: float) -> Iterator[str]:
    for number, value in enumerate(values):
        yield f"{MARGIN + number * across:.1f},{HEIGHT - MARGIN - (value - low) * up:.1f}"
