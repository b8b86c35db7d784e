"""The best classes of an output, by the names that its bundle has for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyedge.core.errors import RunError
from tinyedge.core.program.program import Program
from tinyedge.given import is_whole


@dataclass(frozen=True)
class Ranked:
    """A class: its number, its name and its value."""

    index: int
    label: str
    value: float


def top(
    program: Program, outputs: Mapping[str, Any], name: str, count: int = 5, row: int = 0
) -> list[Ranked]:
    """The classes of an output with the greatest values, best first; NaN is none.

    row: which of the places along its other axes, in row-major order. Of an output whose values
    are the numbers of classes, the one at that place. Raises RunError, also for a count that is no
    whole number from 1 on.
    """
    records: dict[str, dict[str, Any]] = {}
    for each in labels_of(program):
        records.setdefault(each["output"], each)
    record = records.get(name)
    if record is None or name not in outputs:
        because = "the bundle has no labels for it" if record is None else "it is not there"
        known = ", ".join(map(repr, records)) or "none"
        raise _refused(name, because, known, "" if records else "export with --labels FILE")
    values, names = np.asarray(outputs[name]), record["names"]
    axis = record["axis"]
    rows = values.reshape(-1, 1) if axis < 0 else np.moveaxis(values, axis, -1)
    rows = rows.reshape(-1, rows.shape[-1])
    if not (is_whole(count) and count >= 1):
        raise _refused(name, f"the count is {count!r:.80}", "a whole number from 1 on")
    if not (is_whole(row) and 0 <= row < len(rows)):
        raise _refused(name, f"it has no row {row!r:.80}", f"0 to {len(rows) - 1}")
    if axis < 0:
        index = int(rows[row, 0])
        label = names[index] if 0 <= index < len(names) else str(index)
        return [Ranked(index, label, float(index))]
    if rows.shape[1] != len(names):
        raise _refused(name, f"it has {rows.shape[1]} classes", f"{len(names)}, of its labels")
    found = rows[row].astype(np.float64)
    order = [int(i) for i in np.argsort(-found, kind="stable") if not np.isnan(found[i])]
    return [Ranked(i, names[i], float(found[i])) for i in order[:count]]


def labels_of(program: Program) -> list[dict[str, Any]]:
    """What a bundle's manifest says of labels, where it is what an export writes."""
    found = program.options.get("labels")
    axes = {port.name: len(port.shape) for port in program.outputs}
    return [each for each in (found if isinstance(found, list) else ()) if _is_written(each, axes)]


def _is_written(record: Any, axes: Mapping[str, int]) -> bool:
    """Whether an export may have written it. axes: of outputs, how many each has."""
    if not isinstance(record, dict) or not isinstance(record.get("output"), str):
        return False
    names, axis = record.get("names"), record.get("axis")
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        return False
    return type(axis) is int and -1 <= axis < axes.get(record["output"], 0)


def _refused(name: str, because: str, supported: str, next: str = "") -> RunError:
    subject = f"labels of output {name!r:.80}"
    return RunError(subject, because, id="run.labels", supported=supported, next=next)
