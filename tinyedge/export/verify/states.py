"""Golden cases that update states: inputs and states of which other kernels make the same.

An optimizer may make much of nothing: where a gradient is 0 but for rounding, as that of a bias
before a softmax, Adam steps by the whole rate to either side. The case is played again with a
disturbance of one in the last place of what each launch writes; a state that changes by more than a
part of the tolerance is not told. Where an output does, as the loss after a step beside a kink (two
elements of a pool's window that are nearly equal), other inputs are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tinyedge.core.program.program import Launch, Program
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle import golden
from tinyedge.export.bundle.golden import Golden

Array = Any

MARGIN = 4  # of the tolerance, what a disturbance may make
LAST_PLACE = 2.0**-23  # of float32
SEEDS = 4  # of inputs, that are tried


def telling(program: Program, replay: Replay, case: Golden) -> Golden:
    """The case, of inputs whose outputs are told, with what states hold after its last run."""
    limit = case.tolerance // MARGIN
    disturbed = Disturbed(replay)
    first = case
    generated = any(record.data is None for record in case.inputs)
    for seed in range(first.seed, first.seed + SEEDS):
        if seed > first.seed:
            drawn = replace(first, seed=seed)
            case = golden.expecting(program, drawn, replay.run, replay.reset)
        outputs = golden.play(program, case, disturbed.run, replay.reset)
        strict = replace(case, tolerance=limit)
        told = all(found.agrees for found in golden.compare_case(program, strict, outputs))
        if told or not generated:
            break
    moved = {state.name: np.array(replay.get_state(state.name)) for state in replay.program.states}
    golden.play(program, case, replay.run, replay.reset)
    types = {state.name: state.dtype for state in program.states}

    def is_told(name: str) -> bool:
        right = replay.get_state(name)
        return golden.compare(name, moved[name], right, limit, types[name]).agrees

    return replace(case, states=golden.state_samples(program, replay.get_state, is_told))


class Disturbed:
    """Runs in which each float32 that a launch writes is moved by up to one in its last place."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._numbers = np.random.default_rng(0)

    def run(
        self, inputs: Mapping[str, Array], entry: str, symbols: Mapping[str, int]
    ) -> Mapping[str, Array]:
        """The outputs by name."""
        return self._replay.observe(inputs, entry, symbols, self._launched)

    def _launched(self, launch: Launch) -> None:
        kernel = self._replay.program.kernels[launch.kernel]
        for place in kernel.written:
            if kernel.bindings[place].dtype == "float32":
                self._disturb(launch.buffers[place])

    def _disturb(self, buffer: int) -> None:
        device, range = self._replay.device, self._replay.ranges[buffer]
        (content,) = device.read([range])
        values = content.view(np.float32)
        moved = values * (1 + LAST_PLACE * self._numbers.uniform(-1, 1, values.shape))
        with np.errstate(all="ignore"):  # of what nothing wrote
            device.upload(range, moved.astype(np.float32).view(np.uint8))
