"""Slices: named parts of an output along one of its axes, such as `plan` of one packed output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Union

from tinyedge.core.compile import Graph, Port
from tinyedge.core.errors import InputError
from tinyedge.core.program import Slice

Range = Union[str, Sequence[int]]
Specs = Mapping[str, Mapping[str, Range]]

SLICES = 256

_KEY = re.compile(r"(.+)\[(-?\d{1,3})\]", re.DOTALL | re.ASCII)
_RANGE = re.compile(r"\s*(\d{1,12})\s*\.\.\s*(\d{1,12})\s*", re.ASCII)


def make_slices(graphs: Mapping[str, Graph], specs: Specs) -> dict[str, tuple[Slice, ...]]:
    """The slices of each output.

    specs: by output, `OUTPUT` for its last axis or `OUTPUT[AXIS]`, ranges by the slice's name:
    `START..END` or a pair, the end not included. Names are unique among all slices and outputs,
    so that results can be found by name alone. Raises InputError.
    """
    outputs = {port.name: port for graph in graphs.values() for port in graph.outputs}
    made: dict[str, list[Slice]] = {}
    taken: dict[str, str] = dict.fromkeys(outputs, "an output")
    for key, ranges in specs.items():
        port, axis = _place(outputs, key)
        for name, given in ranges.items():
            subject = f"slice {name!r} of output {port.name!r}"
            if name in taken:
                raise InputError(
                    subject,
                    f"{taken[name]} has that name",
                    id="slice.name",
                    supported="a name of its own",
                )
            taken[name] = f"a slice of output {port.name!r}"
            start, end = _range(subject, given)
            _check(subject, port, axis, start, end)
            made.setdefault(port.name, []).append(Slice(name, axis, start, end - start))
    for output, parts in made.items():
        if len(parts) > SLICES:
            because = f"it has {len(parts)} slices"
            raise InputError(
                f"output {output!r}", because, id="slice.count", supported=f"up to {SLICES}"
            )
    return {output: tuple(parts) for output, parts in made.items()}


def parse_slice(text: str) -> tuple[str, str, str]:
    """The output, name and range of `OUTPUT:NAME=START..END`. Raises ValueError."""
    place, equals, given = text.rpartition("=")
    output, colon, name = place.rpartition(":")
    if not (equals and colon and output and name):
        raise ValueError(f"{text!r} is not OUTPUT:NAME=START..END or OUTPUT[AXIS]:NAME=START..END")
    return output, name, given


def read_slices(path: str | Path) -> dict[str, dict[str, Any]]:
    """Slices from a JSON file: {"output": {"name": [start, end], ..}, ..}. Raises InputError."""
    subject = f"slices in {str(path)!r}"
    supported = 'a JSON file such as {"output": {"name": [0, 100]}}'
    try:
        found = json.loads(Path(path).read_bytes(), object_pairs_hook=_object)
    except OSError as error:
        because = f"it cannot be read: {error.strerror or error}"
        raise InputError(subject, because, id="slice.file", supported=supported) from None
    except (ValueError, RecursionError) as error:
        because = f"it is no JSON: {error}"
        raise InputError(subject, because, id="slice.file", supported=supported) from None
    if not isinstance(found, dict) or not all(isinstance(part, dict) for part in found.values()):
        because = "it is no object of objects"
        raise InputError(subject, because, id="slice.file", supported=supported)
    return found


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    for name in _repeated(name for name, _ in pairs):
        raise ValueError(f"{name!r} is there twice")
    return dict(pairs)


def _repeated(names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)


def _place(outputs: Mapping[str, Port], key: str) -> tuple[Port, int]:
    """The output and axis that a key names."""
    match = _KEY.fullmatch(key)
    name, axis = (match[1], int(match[2])) if match and key not in outputs else (key, -1)
    if name not in outputs:
        raise InputError(
            f"slices of output {name!r}",
            "there is no such output",
            id="slice.output",
            supported=", ".join(map(repr, outputs)) or "none",
            next="an output that feeds a state is an output no more, unless it is kept with :keep",
        )
    port = outputs[name]
    rank = len(port.shape)
    if not -rank <= axis < rank:
        because = f"it has no axis {axis}" if rank else "it is a scalar"
        supported = f"axes 0 to {rank - 1}" if rank else "outputs with axes"
        raise InputError(
            f"slices of output {name!r}", because, id="slice.axis", supported=supported
        )
    return port, axis % rank


def _range(subject: str, given: Range) -> tuple[int, int]:
    if isinstance(given, str):
        match = _RANGE.fullmatch(given)
        ends: Sequence[int] = [int(match[1]), int(match[2])] if match else []
    else:
        ends = list(given) if isinstance(given, (list, tuple)) else []
    if len(ends) != 2 or not all(type(end) is int for end in ends):
        raise InputError(
            subject,
            f"{given!r} is no range",
            id="slice.range",
            supported="START..END or a pair [start, end], the end not included",
        )
    return ends[0], ends[1]


def _check(subject: str, port: Port, axis: int, start: int, end: int) -> None:
    size = port.shape[axis]
    if not isinstance(size, int):
        raise InputError(
            subject,
            f"axis {axis} is open",
            id="slice.axis",
            supported="axes of a fixed size",
            next="fix the size with --dim",
        )
    if not 0 <= start < end <= size:
        raise InputError(
            subject,
            f"{start}..{end} does not lie in axis {axis} of {size}",
            id="slice.range",
            supported=f"0 <= start < end <= {size}, the end not included",
        )
