"""Where the time of a small run on a device goes, in the side's own process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.worker import Clock, measure
from tests.study.device.replayed import QUEUED, Replayed, built, bundle_program, opened

MANY = 20 * QUEUED  # runs that follow each other


def measured(target: str, bundles: Mapping[int, Path], tries: int) -> dict[str, Any]:
    """steps: by name wall seconds of each try, of the shortest chain; runs: by a chain's launches
    CPU seconds of a run among many, the least.
    """
    device, _ = opened(target)
    clocked = Clock()
    path = bundles[min(bundles)]
    for _ in range(tries):
        read = clocked("open: read and check the manifest, weights", lambda: bundle_program(path))
        program = built(read, device)
        clocked("lookup: compile the kernel, or find it", lambda p=program: device.compile(p))
        replayed = clocked(
            "create: memory, weights, lookup, bind, record", lambda p=program: _of(device, p)
        )
        clocked("bind: the buffers of a launch, recorded", replayed.record, QUEUED)
        replayed.run()
        clocked("launch: submitted", replayed.submit, QUEUED)
        replayed.wait()
        clocked("wait: for what is done, and a number read", replayed.wait, QUEUED)
        clocked("run of one launch, waited for", replayed.run, QUEUED)
        replayed.close()
    runs = {}
    for path in bundles.values():
        replayed = _of(device, built(bundle_program(path), device))
        replayed.run()
        spent = [measure(lambda r=replayed: r.repeat(MANY), 1)["cpu"] / MANY for _ in range(tries)]
        runs[replayed.launches] = min(spent)
        replayed.close()
    return {"steps": clocked.seconds, "runs": runs}


def _of(device: Any, program: Any) -> Replayed:
    shape = tuple(int(size) for size in program.inputs[0].shape)
    return Replayed(device, program, {"x": np.ones(shape, np.float32)})
