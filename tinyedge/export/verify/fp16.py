"""What a program gives where values are kept as fp16: reference values, rounded between launches.

The kernels are those of the reference, in double precision. After each launch, what the target
would keep as fp16 is rounded to fp16; so are weights, before the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.schedule.forming import LARGEST_FP16
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.compiler.target import Target
from tinyedge.core.program.device import Range
from tinyedge.core.program.program import Launch, Program, launches
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle import golden
from tinyedge.export.bundle.golden import MILLION, Comparison, Golden

Array = Any

MADE = "cpu, unoptimized, double, kept as fp16"

# The difference between fp16 and fp32, of the greatest output, of which a user is told.
NOTABLE = 0.01

# A device rounds other values than the reference does and errs as much by itself: the tolerance is
# this many times what fp16 makes, but never so much that zeros would pass.
MARGIN = 3
MOST_TOLERANCE = MILLION // 2

LEAST_NORMAL_FP16 = 2.0**-14

# Bytes that are rounded at once: they stay in a cache, and take no new memory from the system.
BLOCK = 1 << 18

SHOWN = 4  # of the nodes whose values are cut


def reference(cpu: Target, caps: Caps) -> Target:
    """The cpu target with tensors between kernels where a target with these caps has them."""
    like = replace(cpu.caps(), vector=caps.vector, bindings=caps.bindings)
    like = like.with_type("float16", scalar_stores=caps.fp16_scalar_stores)
    return replace(cpu, profiles={"default": like})


def expecting(
    program: Program,
    compiled: Compilation,
    replay: Replay,
    case: Golden,
    warn: Callable[[str], None],
) -> Golden:
    """The case with what fp16 gives, and a tolerance that fp16 allows.

    From now on, the replay's weights are rounded. Warns where fp16 outputs are far from the outputs
    that the case has.
    """
    kept_fp16 = Fp16Run(compiled, replay)
    kept = golden.expecting(program, replace(case, made=MADE), kept_fp16.run, replay.reset)
    differences = _differences(program, case, kept)
    worst = max((d.error for d in differences if np.isfinite(d.error)), default=0.0)
    tolerance = max(case.tolerance, min(round(MARGIN * worst * MILLION), MOST_TOLERANCE))
    if notable := [d for d in differences if d.error > NOTABLE]:
        warn(_warning(case.entry, notable, kept_fp16.cut))
    return replace(kept, tolerance=tolerance)


def _differences(program: Program, full: Golden, kept: Golden) -> list[Comparison]:
    """How what fp16 gives compares with what floats give, in the entry's order."""
    found = []
    ports = program.outputs_of(golden.find_entry(program, full.entry)).values()
    for port, expected, actual in zip(ports, full.outputs, kept.outputs, strict=True):
        pair = actual.data, expected.data
        found.append(golden.compare(port.name, *pair, full.tolerance, port.dtype))
    return found


def _warning(entry: str, notable: Sequence[Comparison], cut: Mapping[str, float]) -> str:
    told = ", ".join(
        f"{d.output!r} by {100 * d.error:.2g} % of its greatest value"
        if np.isfinite(d.error)
        else f"{d.output!r} ({d.because})"
        for d in notable
    )
    text = f"on the golden case of entry {entry!r}, fp16 is off what fp32 gives: {told}"
    if cut:
        shown = ", ".join(f"{name!r} ({size:.3g})" for name, size in list(cut.items())[:SHOWN])
        more = f" and {len(cut) - SHOWN} more" if len(cut) > SHOWN else ""
        text += f"; too large for fp16, so cut at {LARGEST_FP16:.0f}: {shown}{more}"
    return (
        f"{text}; see what it is with real inputs, --golden-input NAME=FILE.npy, or keep floats, "
        "--precision fp32"
    )


class Fp16Run:
    """Runs of a reference program as fp16 would give them.

    cut: names of nodes and weights that have numbers too large for fp16, and their greatest.
    """

    def __init__(self, compiled: Compilation, replay: Replay) -> None:
        """From now on, the replay's weights are rounded."""
        assert compiled.program is not None
        self.replay = replay
        self.rounded = compiled.rounded
        self.cut: dict[str, float] = {}
        self.program = program = compiled.program
        steps = [step for entry in program.entries for step in launches(entry.steps)]
        # What leaves a buffer whole: before, parts of it hold whatever was there.
        self.last = {number: step for step in steps for number in self._written(step)}
        for number, buffer in enumerate(program.buffers):
            if buffer.weight >= 0 and number in self.rounded:
                self._round(replay.ranges[number], program.weights[buffer.weight].name)

    def run(
        self, inputs: Mapping[str, Array], entry: str, symbols: Mapping[str, int]
    ) -> Mapping[str, Array]:
        """The outputs by name."""
        return self.replay.observe(inputs, entry, symbols, self._launched)

    def _written(self, launch: Launch) -> list[int]:
        """The numbers of the buffers that a launch writes."""
        return [launch.buffers[place] for place in self.program.kernels[launch.kernel].written]

    def _launched(self, launch: Launch) -> None:
        for number in filter(self.rounded.__contains__, self._written(launch)):
            name = launch.nodes[-1] if launch.nodes and self.last[number] is launch else ""
            self._round(self.replay.ranges[number], name)

    def _round(self, whole: Range, name: str) -> None:
        """Round memory in place; note under a name what is cut."""
        for first in range(0, whole.bytes, BLOCK):
            size = min(BLOCK, whole.bytes - first)
            self._round_block(Range(whole.memory, whole.offset + first, size), name)

    def _round_block(self, place: Range, name: str) -> None:
        device = self.replay.device
        (content,) = device.read([place])
        values = content.view(np.float32)
        # Two passes see that fp16 holds all of it, as it mostly does; NaN is not within.
        if values.size and -LARGEST_FP16 <= values.min() and values.max() <= LARGEST_FP16:
            kept = rounded(values)
        else:
            with np.errstate(invalid="ignore"):  # of what nothing wrote
                kept = self._clipped(values, name).astype(np.float16).astype(np.float32)
        device.upload(place, kept.view(np.uint8))

    def _clipped(self, values: Array, name: str) -> Array:
        """The values with finite ones within what fp16 holds; note under a name what is cut."""
        clipped = np.clip(values, -LARGEST_FP16, LARGEST_FP16)
        clipped[np.isinf(values)] = values[np.isinf(values)]
        if name:
            beyond = np.isfinite(values) & (values != clipped)
            greatest = float(np.max(np.abs(values), where=beyond, initial=0.0))
            if greatest:
                self.cut[name] = max(greatest, self.cut.get(name, 0.0))
        return clipped


def rounded(values: Array) -> Array:
    """What fp16 keeps of floats that are at most its largest, to the bit, in a third of the time
    that numpy takes to convert them.

    Of a float's 23 bits behind the point fp16 has 10: half of its last one is added, less the least
    bit where that is even, and the others are cut. Below 2^-14 it has fewer.
    """
    bits = values.view(np.uint32)
    kept = bits >> 13
    kept &= 1
    kept += 0xFFF
    kept += bits
    kept &= 0xFFFFE000
    found: Array = kept.view(np.float32)
    few = np.flatnonzero(np.abs(values) < LEAST_NORMAL_FP16)
    found[few] = values[few].astype(np.float16)
    return found
