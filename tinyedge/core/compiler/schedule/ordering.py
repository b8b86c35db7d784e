"""The order of an entry's launches, chosen so that less memory is alive at once.

A list scheduler: of the launches that have all they read, one that frees at least what it allocates
goes first; else the next in the given order does. So a gradient goes into its parameter, and what
it was made of is free, before the next layer's is computed. The given order is kept where it is no
worse.

Where most is alive, what a kernel makes of a tensor element by element is written in its place, if
nothing else reads that. What is alive there for long, and made by little arithmetic of what is kept
anyway, is not kept: its launch is repeated before it is read again. It is the same kernel, so the
bits are the same.

Of a state, the launch that writes its new value stays behind those that read the old one, so that
one may lie in the other's place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.schedule.canonical import steps_of
from tinyedge.core.compiler.schedule.in_place import over
from tinyedge.core.compiler.schedule.launches import ScheduledLaunch, ScheduledStep, all_launches
from tinyedge.core.ir import ops
from tinyedge.core.ir.buffers import TensorBuffer
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.uop import toposort

LITTLE = 128  # operations for an element of what is computed again
ENOUGH = 2**16  # bytes of what is computed again: fewer are not worth a launch
LEAST = 1024  # of the largest buffer, what does not matter is at most a part
SHARE = 40  # of the bytes alive, what is computed again has at least a part
States = Sequence[tuple[TensorBuffer, TensorBuffer]]


@dataclass(frozen=True)
class _Step:
    """A launch or loop, and the buffers that it reads and writes, each once."""

    step: ScheduledStep
    reads: tuple[TensorBuffer, ...]
    writes: tuple[TensorBuffer, ...]

    @property
    def touches(self) -> tuple[TensorBuffer, ...]:
        return (*self.writes, *self.reads)


def in_memory_order(steps: Sequence[ScheduledStep], states: States) -> list[ScheduledStep]:
    """The steps, so that less is alive at once. states: the buffers of their old and new values."""
    given = [_step(step) for step in steps]
    plan = _Plan(states)
    best = min(given, plan.sorted(given), key=plan.cost)  # the first of equals
    return [step.step for step in plan.lowered(best)]


def _step(step: ScheduledStep) -> _Step:
    launches = list(all_launches((step,)))
    writes = dict.fromkeys(s for launch in launches for s in launch.written)
    reads = dict.fromkeys(s for launch in launches for s in launch.storages if s not in writes)
    if not isinstance(step, ScheduledLaunch) and step.condition not in writes:
        reads[step.condition] = None
    return _Step(step, tuple(reads), tuple(writes))


class _Plan:
    def __init__(self, states: States) -> None:
        self.states = states
        self.free = {buffer for pair in states for buffer in pair}  # what takes no memory besides
        self.little = 0  # bytes that do not matter

    def _bytes(self, buffer: TensorBuffer) -> int:
        if buffer in self.free or buffer.role == "weight":
            return 0
        return _size(buffer)

    # The order.

    def _before(self, steps: Sequence[_Step]) -> list[set[int]]:
        """For each step those that must come before it."""
        writers: dict[TensorBuffer, list[int]] = {}
        readers: dict[TensorBuffer, list[int]] = {}
        olds = {new: old for old, new in self.states}
        found: list[set[int]] = []
        for number, step in enumerate(steps):
            before = {n for buffer in step.touches for n in writers.get(buffer, ())}
            for buffer in step.writes:
                before.update(readers.get(buffer, ()))
                before.update(readers.get(olds.get(buffer, buffer), ()))
            found.append(before - {number})
            for buffer in step.reads:
                readers.setdefault(buffer, []).append(number)
            for buffer in step.writes:
                writers.setdefault(buffer, []).append(number)
        return found

    def sorted(self, steps: Sequence[_Step]) -> list[_Step]:
        """The order of the list scheduler."""
        self.little = max((self._bytes(b) for s in steps for b in s.touches), default=0) // LEAST
        queue = _Queue(steps, self._before(steps), self._bytes, self.little)
        order: list[_Step] = []
        while queue.ready:
            order.append(queue.take(queue.next()))
        return order

    # What is alive.

    def _spans(self, steps: Sequence[_Step]) -> dict[TensorBuffer, tuple[int, int]]:
        """The first and the last step of every buffer."""
        spans: dict[TensorBuffer, tuple[int, int]] = {}
        for number, step in enumerate(steps):
            for buffer in step.touches:
                first = 0 if buffer.role == "input" else number
                spans[buffer] = spans.get(buffer, (first, 0))[0], number
        last = len(steps) - 1
        return {b: (f, last if b.role == "output" else end) for b, (f, end) in spans.items()}

    def _live(self, steps: Sequence[_Step]) -> list[int]:
        """The bytes alive at each step."""
        changes = [0] * (len(steps) + 1)
        for buffer, (first, last) in self._spans(steps).items():
            changes[first] += self._bytes(buffer)
            changes[last + 1] -= self._bytes(buffer)
        live = 0
        return [live := live + change for change in changes[:-1]]

    def cost(self, steps: Sequence[_Step]) -> tuple[int, int]:
        """The most bytes alive at once, and those of all steps."""
        live = self._live(steps)
        return max(live, default=0), sum(live)

    # What lies in another's place or is computed again.

    def lowered(self, steps: Sequence[_Step]) -> list[_Step]:
        """The steps changed as far as that makes the peak lower."""
        best = trial = list(steps)
        lowest = height = self._height(trial)
        while (found := self._lower(trial, height)) is not None:
            trial, height = found, self._height(found)
            if height[0] < lowest[0]:
                best, lowest = trial, height
        return best

    def _height(self, steps: Sequence[_Step]) -> tuple[int, int]:
        """The most bytes alive at once, and at how many steps they are."""
        live = self._live(steps)
        peak = max(live, default=0)
        return peak, live.count(peak)

    def _lower(self, steps: list[_Step], height: tuple[int, int]) -> list[_Step] | None:
        """The steps with less alive at the first of their peaks, and nowhere more than there; None
        if there is no such change.
        """
        peak = height[0]
        at = self._live(steps).index(peak) if peak else 0
        for trial in self._changes(steps, at, peak):
            if self._height(trial) < height:
                return trial
        return None

    def _changes(self, steps: list[_Step], at: int, peak: int) -> Iterator[list[_Step]]:
        """What is written at a step lies in another's place; or what is not used there, the largest
        first, is made anew before it is next read.
        """
        spans = self._spans(steps)
        if (found := self._over(steps, at, spans)) is not None:
            yield found
        for buffer in sorted(spans, key=self._bytes, reverse=True):
            first, last = spans[buffer]
            if self._bytes(buffer) < max(ENOUGH, peak / SHARE):
                break
            if not first < at < last or buffer in steps[at].touches or buffer.role != "scratch":
                continue
            number = next(n for n in range(at, last + 1) if buffer in steps[n].touches)
            number = min(number, self._overwritten(steps[first], spans))
            if number > at and _may_be_repeated(steps, buffer, first, number):
                yield _with_copies(steps, self._again(steps, buffer, at, number, spans), number)

    def _again(
        self,
        steps: Sequence[_Step],
        buffer: TensorBuffer,
        at: int,
        number: int,
        spans: Mapping[TensorBuffer, tuple[int, int]],
    ) -> list[int]:
        """The steps to repeat before another one for a buffer: that which writes it, and before it
        those that write what it reads and what nothing else would need any more.
        """
        found, waiting = {spans[buffer][0]}, [buffer]
        while waiting:
            for read in steps[spans[waiting.pop()][0]].reads:
                first, last = spans[read]
                if read.role == "scratch" and last < at and first not in found:
                    in_time = number <= self._overwritten(steps[first], spans)
                    if in_time and _may_be_repeated(steps, read, first, number):
                        found.add(first)
                        waiting.append(read)
        return sorted(found)

    def _over(
        self, steps: list[_Step], at: int, spans: Mapping[TensorBuffer, tuple[int, int]]
    ) -> list[_Step] | None:
        """The steps with the result of one in place of what only it still reads."""
        launch = steps[at].step
        if not isinstance(launch, ScheduledLaunch):
            return None
        ends = [b for b in steps[at].reads if spans[b][1] == at and self._bytes(b) > self.little]
        for new, old in product(steps[at].writes, ends):
            fits = new.role == old.role == "scratch" and self._bytes(new) <= self._bytes(old)
            if fits and spans[new][0] == at and (found := over(launch, old, new)) is not None:
                swap = {new: old}
                after = [_moved(s.step, swap) for s in steps[at + 1 :]]
                return [*steps[:at], _step(_moved(found, swap)), *map(_step, after)]
        return None

    def _overwritten(self, step: _Step, spans: Mapping[TensorBuffer, tuple[int, int]]) -> int:
        """The first step that overwrites a state that a step reads."""
        news = [new for old, new in self.states if old in step.reads]
        return min((spans[new][0] for new in news if new in spans), default=len(spans))


class _Queue:
    """The steps that are still to be done, and what is alive.

    before: for each step those that must come before it. size: a buffer's bytes. little: bytes that
    do not matter.
    """

    def __init__(
        self,
        steps: Sequence[_Step],
        before: list[set[int]],
        size: Callable[[TensorBuffer], int],
        little: int,
    ) -> None:
        self.steps, self.size, self.little = steps, size, little
        self.left = [len(numbers) for numbers in before]
        self.after: dict[int, list[int]] = {}
        for number, numbers in enumerate(before):
            for each in numbers:
                self.after.setdefault(each, []).append(number)
        self.users = Counter(buffer for step in steps for buffer in step.touches)
        self.alive: set[TensorBuffer] = set()
        self.ready = {number for number, count in enumerate(self.left) if not count}

    def next(self) -> int:
        """The first step that allocates nothing; or frees what it allocates; or does so with those
        that follow it; or is ready.
        """
        order = sorted(self.ready)
        least = (n for n in order if self._allocates(self.steps[n]) <= self.little)
        alone = (n for n in order if self._frees(n, follow=False))
        together = (n for n in order if self._frees(n, follow=True))
        return next(chain(least, alone, together, order))

    def take(self, number: int) -> _Step:
        """Do a step that is ready."""
        self.ready.remove(number)
        step = self.steps[number]
        self.users.subtract(step.touches)
        self.alive.update(step.writes)
        for each in self.after.get(number, ()):
            self.left[each] -= 1
            if not self.left[each]:
                self.ready.add(each)
        return step

    def _allocates(self, step: _Step, made: Collection[TensorBuffer] = ()) -> int:
        """The bytes of what a step makes. made: buffers that are made already."""
        return sum(self.size(b) for b in step.writes if b not in self.alive and b not in made)

    def _frees(self, number: int, *, follow: bool) -> bool:
        """Whether a step frees at least what it allocates. follow: together with those that can be
        done only after it and do so themselves.
        """
        users: Counter[TensorBuffer] = Counter()
        met: Counter[int] = Counter()
        made: set[TensorBuffer] = set()
        waiting, more = [number], 0
        while waiting:
            at = waiting.pop()
            step = self.steps[at]
            own = self._allocates(step, made)
            own -= sum(self.size(b) for b in step.touches if self._ends(b, users))
            if at != number and own > self.little:
                continue
            more += own
            if more <= self.little or not follow:
                break
            users.update(step.touches)
            made.update(step.writes)
            for each in self.after.get(at, ()):
                met[each] += 1
                if met[each] == self.left[each]:
                    waiting.append(each)
        return more <= self.little

    def _ends(self, buffer: TensorBuffer, users: Mapping[TensorBuffer, int]) -> bool:
        return self.users[buffer] - users[buffer] == 1 and buffer.role != "output"


def _may_be_repeated(steps: Sequence[_Step], buffer: TensorBuffer, first: int, number: int) -> bool:
    """Whether the launch that writes a buffer may be done again before a step."""
    step = steps[first]
    if not isinstance(step.step, ScheduledLaunch) or len(step.writes) > 1:
        return False
    between = {written for s in steps[first + 1 : number] for written in s.writes}
    alone = not any(buffer in other.writes for other in steps if other is not step)
    return alone and between.isdisjoint(step.reads) and _is_light(step.step)


def _is_light(launch: ScheduledLaunch) -> bool:
    """Whether a kernel does little for each element that it stores, sums included."""
    stored = frozenset().union(*(store.ranges for store in launch.sink.src))
    work = 0
    for node in toposort((launch.sink,)):
        if node.op is ops.ATTEND_LOOP:
            return False
        if node.op is ops.REDUCE_LOOP:
            work += steps_of(node.src[0].ranges - stored)
        elif node.op.elementwise and node.dtype is not dt.index:
            work += node.op.cost * steps_of(node.ranges - stored)
    return work <= LITTLE


def _size(buffer: TensorBuffer) -> int:
    """Its bytes, at the symbols' maxima."""
    return maximum(buffer.layout.count(buffer.shape)) * buffer.dtype.itemsize


def _with_copies(steps: Sequence[_Step], repeated: Sequence[int], number: int) -> list[_Step]:
    """The steps with some repeated before another, which and those after it read the copies."""
    swap = {buffer: replace(buffer) for n in repeated for buffer in steps[n].writes}
    again = [_moved(steps[n].step, swap) for n in repeated]
    after = [
        _moved(s.step, swap) if any(b in swap for b in s.touches) else s.step
        for s in steps[number:]
    ]
    return [*steps[:number], *map(_step, again), *map(_step, after)]


def _moved(step: ScheduledStep, swap: dict[TensorBuffer, TensorBuffer]) -> ScheduledStep:
    """A step over other buffers."""
    if isinstance(step, ScheduledLaunch):
        return replace(step, storages=tuple(swap.get(s, s) for s in step.storages))
    condition = swap.get(step.condition, step.condition)
    return replace(step, condition=condition, launches=[_moved(s, swap) for s in step.launches])
