"""A bundle read back replays on a real device as the program it was written from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.targets import programs
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Program
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle import golden
from tinyedge.export.package.package import write_bundle
from tinyedge.export.verify.verify import verify

MAKERS = (
    programs.addition,
    programs.symbolic,
    programs.repeat,
    programs.counter,
    programs.ports,
    programs.selection,
)


def with_counts(program: Program) -> Program:
    """The program with every count among its entries' outputs, which the format asks for."""
    counts = {port.name: port.count for port in program.outputs if port.count}
    entries = []
    for entry in program.entries:
        wanted = [counts[name] for name in entry.outputs if name in counts]
        outputs = tuple(dict.fromkeys((*entry.outputs, *wanted)))
        entries.append(dataclasses.replace(entry, outputs=outputs))
    return dataclasses.replace(program, entries=tuple(entries))


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_verify_on_a_device(
    device: Device, target: str, make: Callable[[str], Program], tmp_path: Path
) -> None:
    program = with_counts(make(target))
    ranges = {
        port.name: (0, 3) for port in program.inputs if port.dtype.startswith(("int", "uint"))
    }
    with Replay(program, device) as replay:
        cases = [
            golden.make(
                program,
                replay.run,
                made="a test",
                entry=entry.name,
                steps=3 if program.states else 1,
                ranges=ranges,
                reset=replay.reset,
            )
            for entry in program.entries
        ]
    path = write_bundle(program, tmp_path / "bundle", goldens=cases)
    report = verify(path, device)
    assert report.agrees, str(report)
    assert report.device == device.name
