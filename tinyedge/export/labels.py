"""Labels: names of an output's classes, one for each place along one of its axes, or each value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Union

from tinyedge.core.errors import InputError
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.export.ports import show

Names = Union[str, "os.PathLike[str]", Sequence[str]]  # a file, or the names themselves
Labels = Union[Names, Mapping[str, Names]]

MOST = 1 << 16
LONGEST = 1024  # characters of a name

_KEY = re.compile(r"(.+)\[(-?\d{1,3})\]", re.DOTALL | re.ASCII)
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def labels_of(graphs: Iterable[Graph], labels: Labels) -> list[dict[str, Any]]:
    """What the manifest records of labels: output, axis (-1: its values are the classes), names.

    labels: by output, `OUTPUT` or `OUTPUT[AXIS]`; without an output, of the only one that has an
    axis of as many. Raises InputError.
    """
    ports = [port for graph in graphs for port in graph.outputs]
    given = labels if isinstance(labels, Mapping) else {"": labels}
    records = {}
    for key, source in given.items():
        said = _said(key, source)
        names = _names(said, source)
        held = f"{len(names)} names are given"
        if isinstance(source, (str, os.PathLike)):
            held = f"the file has {len(names)} line{'s' * (len(names) > 1)}"
        output, axis = _place(ports, key, said, len(names), held)
        if output in records:
            raise _refused(said, f"output {output!r} has labels already", "labels.twice", "")
        records[output] = {"output": output, "axis": axis, "names": names}
    return list(records.values())


def _said(key: str, source: Names) -> str:
    """How an error calls labels: by their file and their output, as far as there are any."""
    file = str(source) if isinstance(source, (str, os.PathLike)) else ""
    said = f" {file!r:.80}" * bool(file) + " for" * bool(file and key)
    return said + f" {key!r:.80}" * bool(key)


def _names(said: str, source: Names) -> list[str]:
    """The names, from a file if they lie in one."""
    if not isinstance(source, (str, os.PathLike)):
        names, where = list(source), "name"
    else:
        where = "line"
        try:
            text = Path(source).read_bytes().decode("utf-8-sig")
        except (OSError, ValueError) as error:
            because = getattr(error, "strerror", None) or "it is no text in UTF-8"
            raise _refused(said, str(because), "labels.file", "a text with a name a line") from None
        lines = text.rstrip("\r\n").split("\n") if text.strip() else []
        names = [line.rstrip("\r").strip(" \t") for line in lines]
    if not 1 <= len(names) <= MOST:
        raise _refused(said, f"there are {len(names)} names", "labels.count", f"1 to {MOST}")
    for number, name in enumerate(names, 1):
        if not isinstance(name, str) or not 1 <= len(name) <= LONGEST or _CONTROL.search(name):
            because = f"{where} {number} is {name!r:.80}"
            fix = f"names of 1 to {LONGEST} printable characters"
            raise _refused(said, because, "labels.name", fix)
    return names


def _place(ports: Sequence[Port], key: str, said: str, count: int, held: str) -> tuple[str, int]:
    """The output that names are of, and its axis; -1 where its values are numbers of names.

    held: how many names there are, in words.
    """
    named = {port.name for port in ports}
    match = None if key in named else _KEY.fullmatch(key)
    output, axis = (match[1], int(match[2])) if match else (key, None)
    if output and output not in named:
        supported = ", ".join(map(repr, sorted(named)))
        raise _refused(said, f"there is no output {output!r}", "labels.output", supported)
    chosen = [port for port in ports if not output or port.name == output]
    found = dict.fromkeys(
        (port.name, number)
        for port in chosen
        for number, size in enumerate(port.shape)
        if size == count and axis in (None, number, number - len(port.shape)) and _is_plain(port)
    )
    if len(found) == 1:
        return next(iter(found))
    shown = "; ".join(dict.fromkeys(f"{port.name!r} is {show(port)}" for port in chosen))
    if found:
        because = f"several axes have {count} places: {shown}"
        raise _refused(said, because, "labels.place", "OUTPUT[AXIS]=FILE")
    if output and axis is None and all(port.dtype.is_int for port in chosen):
        return output, -1
    raise _no_place(chosen, axis, said, count, held)


def _no_place(
    ports: Sequence[Port], axis: int | None, said: str, count: int, held: str
) -> InputError:
    """The error of names that are of no axis, or not of the one that was said."""
    shown = "; ".join(dict.fromkeys(f"{port.name!r} is {show(port)}" for port in ports))
    supported = "as many names as an output has classes; an output of integers, by its name"
    fix = "count the lines of the file: one for each class, in the model's order, none more"
    port, because = ports[0], f"{held}, and no axis has as many places: {shown}"
    long = [number for number, size in enumerate(port.shape) if size != 1]
    if axis is None and len(ports) == 1 and len(long) == 1:
        axis = long[0]
    if axis is None:
        return _refused(said, because, "labels.size", supported, fix)
    if not -len(port.shape) <= axis < len(port.shape):
        because = f"there is no axis {axis}: {shown}"
        return _refused(said, because, "labels.place", f"an axis from 0 to {len(port.shape) - 1}")
    axis %= len(port.shape)
    size = port.shape[axis]
    if not _is_plain(port):
        because, supported = f"{shown}, whose values have no order", "outputs of numbers"
        fix = "name an output of scores"
    elif not isinstance(size, int):
        because, fix = f"{held}, and axis {axis} is open: {shown}", "fix its size by --dim"
    else:
        because = f"{held}, and axis {axis} has {size} places: {shown}"
        if count in port.shape:
            other = port.shape.index(count)
            fix = f"axis {other} has {count}: say {port.name}[{other}]"
    return _refused(said, because, "labels.size", supported, fix)


def _is_plain(port: Port) -> bool:
    """Whether its values are numbers that can be put in order, and not codes."""
    return (port.dtype.is_float or port.dtype.is_int) and port.dtype.held is port.dtype


def _refused(said: str, because: str, id: str, supported: str, next: str = "") -> InputError:
    return InputError(f"labels{said}", because, id=id, supported=supported, next=next)
