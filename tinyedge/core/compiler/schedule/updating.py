"""Updates that are computed where their gradient is summed.

    g[i] = sum(k: x[k, i] * y[k, i])        m[i] = m[i] * a + sum(k: ...) * b
    m[i] = m[i] * a + g[i] * b         ->   w[i] = w[i] - m[i] * c      in one launch,
    w[i] = w[i] - m[i] * c                                             without g

What an optimizer makes of a gradient are several new values; a gradient of which only one is made
is part of its kernel from the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tinyedge.core.compiler.schedule.forming import Draft, Former
from tinyedge.core.compiler.schedule.loops import (
    DraftLaunch,
    Step,
    drafts_of,
    written_by,
)
from tinyedge.core.ir import ops
from tinyedge.core.ir.buffers import TensorBuffer
from tinyedge.core.ir.uop import toposort


def sum_in_updates(steps: Sequence[Step], former: Former) -> list[Step]:
    """The steps without sums that only one kernel of updates reads; it computes them."""
    drafts = [draft for step in steps for draft in drafts_of(step)]
    read = Counter(s for d in drafts for s in set(d.storages[len(d.outputs) :]))
    written = Counter(output for draft in drafts for output in draft.outputs)
    launched = Counter(drafts)
    left: list[Step | None] = list(steps)
    sums: dict[TensorBuffer, int] = {}
    for number, step in enumerate(steps):
        if not isinstance(step, DraftLaunch) or step.homes or launched[step.draft] > 1:
            continue
        draft = step.draft
        for storage in _sums_of(draft, sums):
            before = left[sums[storage]]
            assert isinstance(before, DraftLaunch)
            between = [s for s in left[sums[storage] + 1 : number] if s is not None]
            if read[storage] > 1 or written[storage] > 1 or _overwritten(before.draft, between):
                continue
            joined = former.with_sum(before.draft, draft)
            if joined is not None:
                left[sums[storage]], left[number] = None, DraftLaunch(joined)
                break
        if _is_sum(draft):
            sums[draft.outputs[0]] = number
    return [step for step in left if step is not None]


def _is_sum(draft: Draft) -> bool:
    """Whether a kernel reduces to a tensor of its own, and does nothing else."""
    part, *others = draft.parts
    if others or draft.held:
        return False
    reductions = [n for n in toposort((draft.sink,)) if n.op is ops.REDUCE_LOOP]
    return part.undecided is not None and part.output.role == "scratch" and len(reductions) == 1


def _sums_of(draft: Draft, sums: dict[TensorBuffer, int]) -> Iterator[TensorBuffer]:
    """The sums that an elementwise kernel of several updates reads."""
    if len(draft.parts) < 2 or any(s.role != "output" for s in draft.outputs):
        return
    if not any(n.op is ops.REDUCE_LOOP for n in toposort((draft.sink,))):
        yield from (s for s in draft.storages if s in sums)


def _overwritten(draft: Draft, between: Sequence[Step]) -> bool:
    """Whether a kernel reads what a step after it writes."""
    return any(s in draft.storages for step in between for s in written_by(step))
