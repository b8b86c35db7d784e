"""Slices: named parts of an output along one of its axes, such as `plan` of one packed output."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Union

from tinyedge.core.errors import InputError
from tinyedge.core.program.program import Slice
from tinyedge.core.tensor.graph import Graph, Port

Range = Union[str, Sequence[int]]
Specs = Mapping[str, Mapping[str, Range]]

SLICES = 256

_KEY = re.compile(r"(.+)\[(-?\d{1,3})\]", re.DOTALL | re.ASCII)
_RANGE = re.compile(r"\s*(\d{1,12})\s*\.\.\s*(\d{1,12})\s*", re.ASCII)


def with_slices(graphs: Mapping[str, Graph], specs: Specs) -> dict[str, Graph]:
    """The graphs with named slices of their outputs.

    specs: by output, `OUTPUT` for its last axis or `OUTPUT[AXIS]`, ranges by the slice's name:
    `START..END` or a pair, the end not included. Names are unique among all slices and outputs,
    so that results can be found by name alone. Of outputs of one name in several entries, those
    have a slice that have all of its elements. Raises InputError, also where none has.
    """
    outputs: dict[str, list[Port]] = {}
    for graph in graphs.values():
        for port in graph.outputs:
            outputs.setdefault(port.name, []).append(port)
    made: dict[str, list[Slice]] = {}
    taken: dict[str, str] = dict.fromkeys(outputs, "an output")
    for key, ranges in specs.items():
        output, axis = _place(outputs, key)
        for name, given in ranges.items():
            subject = f"slice {name!r} of output {output!r}"
            if name in taken:
                raise InputError(
                    subject,
                    f"{taken[name]} has that name",
                    id="slice.name",
                    supported="a name of its own",
                )
            taken[name] = f"a slice of output {output!r}"
            start, end = _range(subject, given)
            part = Slice(name, axis, start, end - start)
            first, *others = (_refusal(port, part) for port in outputs[output])
            if first is not None and None not in others:
                raise first
            made.setdefault(output, []).append(part)
    for output, parts in made.items():
        if len(parts) > SLICES:
            because = f"it has {len(parts)} slices"
            raise InputError(
                f"output {output!r}", because, id="slice.count", supported=f"up to {SLICES}"
            )
    return {
        name: replace(
            graph,
            outputs=tuple(
                replace(port, slices=_fitting(port, made.get(port.name, ())))
                for port in graph.outputs
            ),
        )
        for name, graph in graphs.items()
    }


def _fitting(port: Port, parts: Iterable[Slice]) -> tuple[Slice, ...]:
    """The slices that an output has, their axes counted from its first."""
    fitting = (part for part in parts if _refusal(port, part) is None)
    return tuple(replace(part, axis=part.axis % len(port.shape)) for part in fitting)


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


def _place(outputs: Collection[str], key: str) -> tuple[str, int]:
    """The output and axis that a key names; the last axis is -1."""
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
    return name, axis


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


def _refusal(port: Port, part: Slice) -> InputError | None:
    """Why an output does not have a slice, if so."""
    rank = len(port.shape)
    if not -rank <= part.axis < rank:
        because = f"it has no axis {part.axis}" if rank else "it is a scalar"
        supported = f"axes 0 to {rank - 1}" if rank else "outputs with axes"
        return InputError(
            f"slices of output {port.name!r}", because, id="slice.axis", supported=supported
        )
    subject = f"slice {part.name!r} of output {port.name!r}"
    axis, end = part.axis % rank, part.start + part.size
    size = port.shape[axis]
    if not isinstance(size, int):
        return InputError(
            subject,
            f"axis {axis} is open",
            id="slice.axis",
            supported="axes of a fixed size",
            next="fix the size with --dim",
        )
    if not 0 <= part.start < end <= size:
        return InputError(
            subject,
            f"{part.start}..{end} does not lie in axis {axis} of {size}",
            id="slice.range",
            supported=f"0 <= start < end <= {size}, the end not included",
        )
    return None
