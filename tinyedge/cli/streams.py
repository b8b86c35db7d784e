"""Standard output and error as a pipe's other programs expect them to be treated."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any, TextIO

# What writing to a pipe that nobody reads gives; on Windows it is EINVAL.
UNREAD = (errno.EPIPE, errno.EINVAL) if os.name == "nt" else (errno.EPIPE,)
ERRORS = 2  # the number of standard error


class Unwritten(OSError):
    """Standard output cannot be written; its text says why."""


class _Pipe(io.FileIO):
    """A stream whose reader may have seen enough: the rest is dropped, the command goes on.

    So its exit code says what came of it, however much of the text was read. The same holds for a
    standard error that cannot be written: there is nowhere to say so.
    """

    unread = False

    def write(self, data: Any, /) -> int:
        if not self.unread:
            try:
                return super().write(data)
            except OSError as error:
                if error.errno not in UNREAD and self.fileno() != ERRORS:
                    because = error.strerror or str(error)
                    failure = Unwritten(f"standard output cannot be written: {because}")
                    failure.errno = error.errno
                    raise failure from error
                self.unread = True
        return memoryview(data).nbytes


def prepare() -> None:
    """Make standard output and error safe to print to, whatever the caller made of them.

    A closed one (`>&-`) is one that nobody reads; without that, the next file that is opened would
    get its number, and what a driver prints. Names come from models: what the terminal's encoding
    lacks is printed as an escape.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the least number that is free: this one
    sys.stdout = _stream(sys.stdout, 1)
    sys.stderr = _stream(sys.stderr, ERRORS)


def _stream(stream: TextIO | None, number: int) -> TextIO:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    pipe = _Pipe(number, "w", closefd=False)
    lines = number == ERRORS or pipe.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(pipe), encoding, errors="backslashreplace", line_buffering=lines
    )


def flush() -> Unwritten | None:
    """Write what was printed; why that failed, or nothing."""
    try:
        sys.stdout.flush()
    except Unwritten as error:
        sys.stdout = open(os.devnull, "w")  # Python would try again at exit
        return error
    return None
