"""A small result of which the next kernel needs all is computed within it, by each workgroup anew.

    t[h] = f(sum(k: x[k] * v[h, k]))            y[m] = g(sum(h: t[h] * w[m, h]))  with, in a stage,
    y[m] = g(sum(h: t[h] * w[m, h]))      ->        t[h] = f(sum(k: x[k] * v[h, k])) for all h

A launch and a buffer are saved: of the two layers of a squeeze-and-excite block, of the last layers
of a classifier. What is held may need all of a result itself, as the first of those two layers
needs the means of an image: that is held, too. Each workgroup does the work of the first kernels,
so that must be little, and a long row's results are all computed by one of them, with two vectors a
thread: docs/study.md has the times. Devices without workgroup memory keep all launches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.schedule.canonical import steps_of
from tinyedge.core.compiler.schedule.forming import Draft, Former
from tinyedge.core.compiler.schedule.loops import (
    DraftLaunch,
    DraftLoop,
    Step,
    drafts_of,
    written_by,
)
from tinyedge.core.compiler.schedule.within import places_in_order
from tinyedge.core.ir import ops
from tinyedge.core.ir.buffers import TensorBuffer
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.spec import REDUCTIONS, STAGE_KIND
from tinyedge.core.ir.uop import UOp, toposort

GROUP = 256  # threads of a workgroup that computes a result anew
COPIES = 2  # vectors of a long row's results that a thread has, so that there is one workgroup
STEPS = 128  # of reductions, in vectors, that a thread does for it: they take about a launch's time
# steps in all workgroups, of single elements: beyond, a launch costs less than what is repeated
REPEATED = 2**16
# steps of both kernels on a processor, which has no workgroups: too few for a second thread
ALONE = 2**17
LONG = 128  # steps of a reduction that threads would share, which then are taken by one


def hold_small_results(steps: Sequence[Step], former: Former) -> list[Step]:
    """The steps without those that are computed within the only one that reads them."""
    return _Holding(steps, former).held(steps)


class _Holding:
    """All steps of an entry: how often each kernel is launched, each buffer written and read."""

    def __init__(self, steps: Sequence[Step], former: Former) -> None:
        self.former = former
        self.launched = Counter(draft for step in steps for draft in drafts_of(step))
        drafts = list(self.launched)
        self.written = Counter(output for draft in drafts for output in draft.outputs)
        self.read = Counter(s for d in drafts for s in set(d.storages[len(d.outputs) :]))

    def held(self, steps: Sequence[Step]) -> list[Step]:
        left: list[Step | None] = [
            DraftLoop(s.condition, s.bound, self.held(s.steps)) if isinstance(s, DraftLoop) else s
            for s in steps
        ]
        small: dict[TensorBuffer, int] = {}  # where what may be held is written
        for number, step in enumerate(left):
            if not isinstance(step, DraftLaunch) or step.homes or self.launched[step.draft] > 1:
                continue
            outer = step.draft
            while (before := self._within(outer, left[:number], small)) is not None:
                outer = self.former.held(before.draft, outer)
                left[left.index(before)] = None
                left[number] = DraftLaunch(outer)
            if _is_small(outer):
                small[outer.outputs[0]] = number
        return [step for step in left if step is not None]

    def _within(
        self, outer: Draft, before: Sequence[Step | None], small: Mapping[TensorBuffer, int]
    ) -> DraftLaunch | None:
        """One of the launches before a kernel that may be computed within it."""
        for storage in (s for s in outer.storages if s in small and self._is_private(s)):
            number = small[storage]
            step, between = before[number], [s for s in before[number:] if s is not None]
            if isinstance(step, DraftLaunch) and self._fits(step.draft, outer, between):
                return step
        return None

    def _is_private(self, storage: TensorBuffer) -> bool:
        return self.read[storage] == self.written[storage] == 1

    def _fits(self, inner: Draft, outer: Draft, between: Sequence[Step]) -> bool:
        """Whether what a kernel reads is still there in the place of another, which can hold it."""
        changed = {output for step in between for output in written_by(step)}
        unchanged = changed.isdisjoint(inner.storages[1:])
        return unchanged and _fits(inner, outer, self.former.options.caps)


def _is_small(draft: Draft) -> bool:
    """Whether a kernel's result may be computed anew where it is used, as far as is known of the
    kernel alone: one reduction for each of few elements that lie in order, in memory that no other
    kernel knows.
    """
    output = draft.outputs[0]
    if len(draft.parts) > 1 or draft.parts[0].undecided is None:
        return False
    sizes = draft.parts[0].shape
    if not sizes or not all(isinstance(size, int) for size in sizes):
        return False
    nodes = toposort((draft.sink,))
    kinds = {n.arg.kind for n in nodes if n.op is ops.RANGE}
    return (
        _is_scratch(output)
        and kinds <= {"loop", "reduce", STAGE_KIND}
        and len(_reductions(draft.sink)) == 1
        and not any(n.op is ops.SYMBOL for n in nodes)
        and bool(places_in_order(draft.sink))
    )


def _is_scratch(output: TensorBuffer) -> bool:
    """Whether a buffer of float32 is known to kernels alone, and no image."""
    node = output.node
    alone = output.role == "scratch" and not output.layout.rows
    return alone and node is not None and node.dtype is dt.float32


def _reductions(sink: UOp) -> list[UOp]:
    """Those of a kernel but for what it holds."""
    nodes = toposort((sink,), stop=lambda n: n.op is ops.STAGE)
    return [n for n in nodes if n.op in REDUCTIONS]


def _fits(inner: Draft, outer: Draft, caps: Caps) -> bool:
    """Whether each output of a kernel needs all of another's result, and computing that anew for
    each workgroup is worth a launch.
    """
    nodes = toposort((outer.sink,))
    slot = outer.storages.index(inner.outputs[0])
    loads = [n for n in nodes if n.op is ops.LOAD and _loads_from(n, slot)]
    summed = [set(n.src[1:]) for n in nodes if n.op in REDUCTIONS]
    if len(_reductions(outer.sink)) != 1 or len(outer.parts) > 1:
        return False
    if any(load.arg or not any(load.ranges <= ranges for ranges in summed) for load in loads):
        return False
    if 2 * sum(map(_bytes, (inner, *outer.held))) > caps.room:
        return False
    roles = outer.contraction
    bound = len({*inner.storages, *outer.storages}) - 1
    if roles is None or (roles["rows"] and roles["columns"]) or bound > caps.bindings:
        return False
    return _pays(inner, outer, caps)


def _pays(inner: Draft, outer: Draft, caps: Caps) -> bool:
    outputs = _outputs(outer)
    repeated, own = sum(map(_work, (inner, *outer.held))), outputs * _steps(outer)
    if caps.threads == 1:  # which reduces what is no product along lanes, but not in a stage
        return inner.contraction is not None and repeated + own <= ALONE
    vectors = max(1, outputs // caps.vector)
    copies = copies_of(vectors, caps) if _is_row(outer) else 1
    threads = min(vectors // copies, GROUP, caps.threads)
    groups = -(-vectors // (copies * threads))
    return (
        _steps(outer) < LONG
        and all(_own(d) <= STEPS * threads * caps.vector for d in (inner, *inner.held))
        and (groups == 1 or repeated * groups <= REPEATED)
    )


def copies_of(vectors: int, caps: Caps) -> int:
    """How many of a row's vectors a thread computes, so that one workgroup has them all; 1 where
    that is no even share.
    """
    most = min(GROUP, caps.threads)
    choices = (n for n in range(1, COPIES + 1) if vectors % n == 0 and vectors // n <= most)
    return next(choices, 1)


def _is_row(draft: Draft) -> bool:
    """Whether its results lie along one axis."""
    return sum(size != 1 for size in draft.parts[0].shape) == 1


def _loads_from(load: UOp, slot: int) -> bool:
    return load.src[0].op is ops.PARAM and load.src[0].arg.slot == slot


def _outputs(draft: Draft) -> int:
    return maximum(product(draft.parts[0].shape))


def _own(draft: Draft) -> int:
    """The steps of its own reduction, for all results."""
    return _outputs(draft) * _steps(draft)


def _work(draft: Draft) -> int:
    """The same, with those of what it holds."""
    return _own(draft) + sum(map(_work, draft.held))


def _bytes(draft: Draft) -> int:
    """Of its result and of those that it holds."""
    own = _outputs(draft) * draft.outputs[0].dtype.itemsize
    return own + sum(map(_bytes, draft.held))


def _steps(draft: Draft) -> int:
    """Of its own reduction, for one result."""
    (reduction,) = _reductions(draft.sink)
    return steps_of(reduction.src[1:])
