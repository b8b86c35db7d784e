"""What is true while a function is traced: which tensors have no values, and what line is run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tinyedge.core.errors import TraceError
from tinyedge.core.ir.uop import UOp
from tinyedge.core.values import observers
from tinyedge.eager.held import held_by

PACKAGE = str(Path(__file__).resolve().parents[1])


class _Traces(threading.local):
    def __init__(self) -> None:
        self.hidden: list[frozenset[UOp]] = []


_traces = _Traces()


def hidden(node: UOp) -> bool:
    """Whether a leaf may be another one in a later call of the function that is being traced."""
    if not _traces.hidden:
        return False
    return held_by(node) is not None or any(node in nodes for nodes in _traces.hidden)


def active() -> bool:
    """Whether a function is being traced in this thread."""
    return bool(_traces.hidden)


@contextmanager
def trace(captured: frozenset[UOp], lines: dict[UOp, str]) -> Iterator[None]:
    """While a function is called to be traced.

    captured: leaves that it reads from around it. lines: gets the line that made each node.
    """

    def note(node: UOp) -> None:
        if node not in lines:
            lines[node] = line()

    _traces.hidden.append(captured)
    observers.append(note)
    try:
        yield
    finally:
        observers.remove(note)
        _traces.hidden.pop()


def line() -> str:
    """The innermost line outside of the package that is being run."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def unknown(name: str) -> TraceError:
    """The error of asking for values while a function is traced."""
    what = name or "a tensor that the function reads"
    return TraceError(
        f"{what}, at {line()}",
        "a traced function is called once and stands for all its calls: it has no truth value or "
        "number here",
        id="jit.value",
        next="compare and use .where() instead of if; compute with the tensor; or return it, and "
        "ask for its values outside",
    )
