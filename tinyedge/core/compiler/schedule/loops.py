"""Loops over whole kernels: their iterations one after the other, or a loop of launches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tinyedge.core.compiler.schedule.forming import Draft
from tinyedge.core.compiler.schedule.launches import ScheduledLaunch, ScheduledLoop, ScheduledStep
from tinyedge.core.ir.buffers import TensorBuffer
from tinyedge.core.ir.loops import LoopInfo

Homes = Mapping[TensorBuffer, TensorBuffer]  # buffers in the place of which others are taken


@dataclass(frozen=True)
class DraftLaunch:
    """A launch of a drafted kernel, with other buffers in the place of some."""

    draft: Draft
    homes: Homes = field(default_factory=dict)


@dataclass(frozen=True)
class DraftLoop:
    """Drafts that are repeated, as a `ScheduledLoop` of launches."""

    condition: TensorBuffer
    bound: int
    steps: Sequence[DraftLaunch | DraftLoop]


Step = DraftLaunch | DraftLoop


def drafts_of(step: Step) -> Iterator[Draft]:
    """What a step launches, once for each launch."""
    if isinstance(step, DraftLaunch):
        yield step.draft
    else:
        for inner in step.steps:
            yield from drafts_of(inner)


def written_by(step: Step) -> Iterator[TensorBuffer]:
    """The buffers that a step writes."""
    if isinstance(step, DraftLaunch):
        yield from (step.homes.get(output, output) for output in step.draft.outputs)
    else:
        for inner in step.steps:
            yield from written_by(inner)


def iterations(
    repeat: LoopInfo, homes: Sequence[TensorBuffer], steps: Sequence[Step], swaps: Homes
) -> list[Step]:
    """A loop whose iteration is `steps`. homes: where what is carried lies; the first is the
    condition. swaps: pairs of buffers that every other iteration takes for each other.
    """
    if repeat.trips is None:
        return [DraftLoop(homes[0], repeat.bound, steps)]
    return [
        _moved(step, swaps if number % 2 else {})
        for number in range(repeat.trips)
        for step in steps
    ]


def _moved(step: Step, homes: Homes) -> Step:
    """A launch, or a loop, with other buffers in the place of some."""
    if isinstance(step, DraftLoop):
        condition = homes.get(step.condition, step.condition)
        return DraftLoop(condition, step.bound, [_moved(inner, homes) for inner in step.steps])
    moved = {old: homes.get(new, new) for old, new in step.homes.items()}
    return DraftLaunch(step.draft, {**homes, **moved})


def launches(steps: Iterable[Step]) -> list[ScheduledStep]:
    """The launches of drafts as they are formed now."""
    found: list[ScheduledStep] = []
    for step in steps:
        if isinstance(step, DraftLoop):
            found.append(ScheduledLoop(step.condition, step.bound, launches(step.steps)))
            continue
        draft = step.draft
        storages = tuple(step.homes.get(s, s) for s in draft.storages)
        found.append(ScheduledLaunch(draft.sink, storages, draft.nodes, draft.contraction))
    return found
