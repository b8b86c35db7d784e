"""Conditions at the border of data leave the innermost loops.

Padding is a condition on what is loaded: where it is false a part of a sum is zero. Where all parts
have the same one, the loop over a filter's taps begins and ends at the border instead:

    for t in 0..3:                                for t in max(0, 1 - y)..min(3, H + 1 - y):
      a += (0 <= y + t - 1 < H ? x[..] : 0) * w     a += x[..] * w

Else the parts under a condition have a sum of their own, of the loops in which it stays the same,
that counts only where the condition holds. Elsewhere it is made of other elements of the buffer:

    for t in 0..3:                                for t in 0..3:
      for c in 0..n:                                p, i = 0, (0 <= y + t - 1 < H ? .. : 0)
        a += (0 <= y + t - 1 < H ? x[..] : 0) * w   for c in 0..n:
                                                      p += x[i + c] * w
                                                    a += 0 <= y + t - 1 < H ? p : 0

Where each sum of a loop has other steps beside the picture, as rows of a tile in one that is
smaller than the window, each has a loop of its own, if that loads less.

A processor, which may read zeros in place of a buffer, has no sums apart: the innermost of its
loops is one that does not change what is tested, if there is one, and reads a region. Products of a
filter that is known and finite with padding that each thread has at the same place are left out on
all devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.lower.summands import (
    NONE,
    Conditions,
    Finite,
    Part,
    parts_of,
    summands,
    tested_lanes,
)
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.polynomial import (
    Terms,
    added,
    build,
    divisor,
    proves_nonnegative,
    scaled,
    split_atom,
    terms,
    times,
)
from tinyedge.core.ir.rewrite import bottom_up, substitute
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.uop import Size, UOp, as_node, as_size, const, own_ranges, toposort

KINDS = (ops.ADD, ops.MAX, ops.MIN)  # of reductions
MANY_SUMS = 18  # of a loop nest: more are kept in registers only if most are no others than before
# Of all sums in a step, where zeros could be read: with fewer that costs less than a loop of which
# a processor cannot tell the end.
MANY_PARTS = 16
# Of a loop within a sum: other statements than those of a sum, or other loops.
APART = (*(ops.REDUCE_LOOP, ops.RESCALED_LOOP, ops.FILLED, ops.GROUP_REDUCE), ops.RUNNING)


def free_borders(sink: UOp, caps: Caps, is_finite: Finite) -> UOp:
    """An expanded kernel of flat accesses whose sums test no borders in their innermost loops, as
    far as the loops allow it. is_finite: whether the weight of a slot is. Where a device's zeros
    may be read in place of a buffer, loops end at the border, and regions do the rest.
    """
    groups: dict[tuple[UOp, ...], list[UOp]] = {}
    for node in toposort((sink,)):
        if node.op is ops.REDUCE_LOOP:
            groups.setdefault(own_ranges(node), []).append(node)
    mapping: dict[UOp, UOp] = {}
    for own, sums in groups.items():
        if all(s.arg is sums[0].arg in KINDS and _is_plain(s.src[0]) for s in sums):
            mapping.update(_freed_sums(own, sums, is_finite, not caps.zeros))
    return substitute((sink,), mapping)[0] if mapping else sink


def _freed_sums(
    own: tuple[UOp, ...], sums: Sequence[UOp], is_finite: Finite, apart: bool
) -> Mapping[UOp, UOp]:
    """What the sums of a loop nest become. Where tests stay in its only loop, as each has other
    steps outside of the picture, each sum has a loop of its own, if all of these end at the border
    and load less together: in a picture of 3 rows and a window of 5, each has 3 of 5 steps.
    """
    together = _Borders(own, sums, is_finite, apart)
    found = together.run()
    if not apart or len(sums) == 1 or len(own) > 1 or not together.tests:
        return found
    alone = [_Borders(own, [each], is_finite, apart) for each in sums]
    freed = {k: v for each in alone for k, v in each.run().items()}
    if any(each.tests or not each.met for each in alone):
        return found
    return freed if sum(each.loads for each in alone) < together.loads else found


def _is_plain(body: UOp) -> bool:
    return all(node.op not in APART for node in toposort((body,)))


@dataclass
class _Borders:
    """The sums of one loop nest. own: its ranges, the innermost one last. apart: whether parts may
    have a sum of their own.
    """

    own: tuple[UOp, ...]
    sums: Sequence[UOp]
    is_finite: Finite
    apart: bool
    met: Conditions = NONE  # by the limits of the loops
    tests: bool = False  # whether tests are left in the innermost loop
    loads: int = 0  # of all steps of the loops, at most
    starts: dict[tuple[UOp, UOp, UOp], int] = field(default_factory=dict)

    def run(self) -> Mapping[UOp, UOp]:
        """What the sums become, those that change."""
        found = {each: parts_of(each.src[0], each.arg, self.is_finite) for each in self.sums}
        parts = [part for each in found.values() for part in each]
        fewer = any(len(found[each]) < len(summands(each.src[0], each.arg)) for each in found)
        if not fewer and not any(part.conditions for part in parts):
            return {}
        lanes = [conditions for part in parts for conditions in part.lanes]
        limited = self._limited(frozenset.intersection(*lanes) if lanes else NONE)
        each_step = toposort([each.src[0] for each in self.sums])
        steps = _steps(limited.get(r, r) for r in self.own)
        self.loads = steps * sum(node.op is ops.LOAD for node in each_step)
        moved = not self.apart and self._move_inside(frozenset().union(*lanes) - self.met)
        if not self.apart and not moved and len(parts) < MANY_PARTS:
            limited, self.met = {}, NONE
        for part in parts:
            part.lanes = tuple(conditions - self.met for conditions in part.lanes)
        if self.apart:
            self._hoist(found, limited)
        self.tests = any(part.conditions and not part.hoisted for part in parts)
        if not fewer and not moved and not self.met and not any(part.hoisted for part in parts):
            return {}
        for part in parts:
            self._note_start(part)
        for part in parts:
            part.value = self._freed(part)
        cuts = {self._level(part.gone) for part in parts if part.hoisted} - {0}
        sums = {each: self._joined(each, found[each], sorted(cuts)) for each in self.sums}
        done = substitute(tuple(sums.values()), limited) if limited else tuple(sums.values())
        return dict(zip(sums, done, strict=True))

    def _hoist(self, found: Mapping[UOp, Sequence[Part]], limited: Mapping[UOp, UOp]) -> None:
        """Let parts have a sum of their own, if there are not too many of these."""
        parts = [part for each in found.values() for part in each]
        self._order(parts, limited)
        for part in parts:
            part.hoisted = bool(part.conditions) and self._can_hoist(part)
        count = sum(len(set(map(_together, each))) for each in found.values())
        if count > max(MANY_SUMS, len(self.sums) * 3 // 2):
            for part in parts:
                part.hoisted = False

    # Loops that begin and end at the border.

    def _limited(self, common: Iterable[UOp]) -> dict[UOp, UOp]:
        """The ranges that end where conditions of all parts do, which are then met."""
        first: dict[UOp, Size] = {}
        stop: dict[UOp, Size] = {}
        met = set()
        for condition in sorted(common, key=lambda c: c.digest):
            found = self._limit(condition)
            if found is None:
                continue
            r, low, high = found
            met.add(condition)
            first[r] = ix.maximum(low, first.get(r, 0))
            stop[r] = ix.minimum(high, stop.get(r, as_size(r.src[0])))
        self.met = frozenset(met)
        mapping: dict[UOp, UOp] = {}
        for r in self.own:
            if r in first:
                ends = substitute((as_node(first[r]), as_node(stop[r])), mapping)
                mapping[r] = UOp(ops.RANGE, dt.index, (*r.src, *ends), r.arg)
        return mapping

    def _limit(self, condition: UOp) -> tuple[UOp, Size, Size] | None:
        """The innermost range of a condition on places, and the first of its steps for which it
        holds and the one after the last, if these are one after the other.
        """
        inner = [r for r in self.own if r in condition.ranges]
        if not inner or condition.op is not ops.LT or condition.src[0].dtype is not dt.index:
            return None
        r, (a, b) = inner[-1], condition.src
        rest = dict(terms(b - a - 1))  # at least 0 where the condition holds
        step = rest.pop((r,), 0)
        others = as_node(build(rest))
        if not step or r in others.ranges:
            return None
        if step > 0:
            return r, ix.ceildiv(-others, step), as_size(r.src[0])
        return r, 0, others // -step + 1

    def _move_inside(self, tested: Conditions) -> bool:
        """Let the loop of most steps of those without a test be the innermost one, if the one that
        is has tests; gives whether another one is.
        """
        used = frozenset().union(*(c.ranges for c in tested))
        free = [r for r in self.own if r not in used]
        if not free or self.own[-1] not in used:
            return False
        inner = max(free, key=lambda r: maximum(as_size(r.src[0])))
        self.own = (*(r for r in self.own if r is not inner), inner)
        return True

    # Sums that count under a condition.

    def _level(self, conditions: Conditions) -> int:
        """How many of the loops, from the outermost on, conditions depend on."""
        used = frozenset().union(*(c.ranges for c in conditions))
        return max((place + 1 for place, r in enumerate(self.own) if r in used), default=0)

    def _order(self, parts: Sequence[Part], limited: Mapping[UOp, UOp]) -> None:
        """The loops with one on which no condition depends innermost, if there is one."""
        used = frozenset().union(*(c.ranges for part in parts for c in part.conditions))
        used = used.union(limited, *(end.ranges for r in limited.values() for end in r.src))
        free = [r for r in self.own if r not in used]
        if free and self.own[-1] in used:
            self.own = (*(r for r in self.own if r is not free[-1]), free[-1])

    def _can_hoist(self, part: Part) -> bool:
        """Whether the innermost loop need not know, and all that is loaded in vain is known."""
        level = self._level(part.conditions)
        if level == len(self.own):
            return False
        loads = [load for load in _guarded(part.value) if not access.is_image(load)]
        lost = [(load, _lost(load, part.conditions)) for load in loads]
        # limits of loops are those of the place itself, not of another one
        limits = frozenset().union(*(condition.ranges for condition in self.met))
        if any(not limits.isdisjoint(c.ranges) for _, gone in lost for c in gone):
            return False
        return all(_inside(self._first(load, level), gone) is not None for load, gone in lost)

    def _first(self, load: UOp, level: int) -> Terms:
        """The terms of a place that inner loops do not change."""
        inner = set(self.own[level:])
        place = terms(load.src[1]).items()
        return {m: f for m, f in place if all(inner.isdisjoint(atom.ranges) for atom in m)}

    def _start(self, load: UOp, part: Part) -> tuple[tuple[UOp, UOp, UOp], int]:
        """What the loads share that begin at the same place, and how far this one is from it."""
        rest = self._first(load, self._level(part.gone))
        constant = rest.pop((), 0)
        return (load.src[0], build(rest), ix.all_of(_lost(load, part.gone))), constant

    def _note_start(self, part: Part) -> None:
        for load in _guarded(part.value):
            if _lost(load, part.gone) and not access.is_image(load):
                key, constant = self._start(load, part)
                self.starts[key] = min(constant, self.starts.get(key, constant))

    def _freed(self, part: Part) -> UOp:
        """The part without the conditions that loops or a sum of its own have taken."""
        gone = self.met | part.gone

        def free(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if node.op is ops.WHERE and not gone.isdisjoint(frozenset().union(*tested_lanes(node))):
                return _only_where([lane - gone for lane in tested_lanes(node)], src[1], src[2])
            return self._load(node, part, gone) if node.op is ops.LOAD else None

        return bottom_up((part.value,), free, operands=_values)[part.value]

    def _load(self, load: UOp, part: Part, gone: Conditions) -> UOp:
        if not load.arg:
            return load
        kept = (c for c in ix.conjuncts(access.guard_of(load)) if c not in gone)
        free, lost = access.under(ix.all_of(kept), load), _lost(load, part.gone)
        if not lost or access.is_image(load):
            return free
        key, _ = self._start(load, part)
        first = added(terms(key[1]), {(): self.starts[key]} if self.starts[key] else {})
        inside = _inside(first, lost)
        assert inside is not None
        start = UOp(ops.WHERE, dt.index, (key[2], build(first), inside))
        moves = load.src[1] - build(first)  # and how far it is from the start
        return access.at(free, (as_node(start + moves),))

    def _joined(self, reduction: UOp, parts: Sequence[Part], cuts: Sequence[int]) -> UOp:
        """The sum of all parts, those under the same conditions in a loop nest that is cut where
        any are tested.
        """
        neutral = const(ops.reduce_identity(reduction.arg, reduction.dtype.scalar), reduction.dtype)
        groups: dict[tuple[Conditions, ...], list[UOp]] = {(): []}
        for part in parts:
            groups.setdefault(_together(part), []).append(part.value)
        total: UOp | None = None
        for lanes, values in groups.items():
            if not values:
                continue
            value = values[0]
            for each in values[1:]:
                value = UOp(reduction.arg, value.dtype, (value, each))
            tested = self._level(frozenset().union(*lanes)) if lanes else -1
            ends = [*cuts, len(self.own)]
            for first, end in reversed(list(zip((0, *cuts), ends, strict=True))):
                src = (value, *self.own[first:end])
                value = UOp(ops.REDUCE_LOOP, value.dtype, src, reduction.arg)
                if first == tested:
                    value = _only_where(lanes, value, neutral)
            total = value if total is None else UOp(reduction.arg, value.dtype, (total, value))
        return neutral if total is None else total


def _steps(ranges: Iterable[UOp]) -> int:
    """How many steps loops have within each other, at most: all, where an end is not known."""
    count = 1
    for r in ranges:
        size, *ends = (as_size(end) for end in r.src)
        steps = ends[1] - ends[0] if ends else size
        count *= max(0, steps) if isinstance(steps, int) else maximum(size)
    return count


def _lost(load: UOp, hoisted: Conditions) -> list[UOp]:
    """The conditions of a load that leave the innermost loop."""
    return [c for c in ix.conjuncts(access.guard_of(load)) if c in hoisted]


def _inside(place: Terms, conditions: Iterable[UOp]) -> UOp | None:
    """The place where all conditions hold, each as one says that some coordinate is inside of a
    border, and at the border of some; None: it is not known.
    """
    left = []
    ranges: set[UOp] = set()
    for condition in conditions:
        if condition.op is not ops.LT or condition.src[0].dtype is not dt.index:
            return None
        if not condition.ranges:  # on sizes alone: all places may be outside
            return None
        a, b = ix.whole(condition).src  # of whole steps
        left.append(terms(as_node(b) - a - 1))  # by so much it is inside
        ranges |= condition.ranges
    while left:
        found = next(_at_a_border(place, left), None)
        if found is None:
            return None
        place, left = found
    result = build(place)
    return result if ranges.isdisjoint(result.ranges) else None


def _at_a_border(place: Terms, left: Sequence[Terms]) -> Iterator[tuple[Terms, list[Terms]]]:
    """The place where what must be at least 0 is 0 for one of these by another step of an atom, if
    those that are known there hold; and the others.
    """
    atoms = {atom for each in (place, *left) for monomial in each for atom in monomial}
    for beyond in left:
        for monomial, factor in beyond.items():
            if len(monomial) != 1 or not monomial[0].ranges or _is_within(monomial[0], atoms):
                continue
            step, _ = split_atom(place, monomial[0])
            if step and divisor(build(step)) % factor:
                continue
            by = {m: f // factor for m, f in step.items()}
            there = added(place, scaled(times(by, beyond), -1))
            others = []
            for other in left:
                step, _ = split_atom(other, monomial[0])
                by = scaled(step, -1 if factor > 0 else 1)
                others.append(added(scaled(other, abs(factor)), times(by, beyond)))
            known = [each for each in others if not build(each).ranges]
            if all(map(proves_nonnegative, known)):
                yield there, [each for each in others if build(each).ranges]


def _is_within(atom: UOp, atoms: Iterable[UOp]) -> bool:
    """Whether one of two atoms is a range of the other one, so that none has steps of its own."""
    return any(each is not atom and (atom in each.ranges or each in atom.ranges) for each in atoms)


def _only_where(lanes: Sequence[Conditions], value: UOp, other: UOp) -> UOp:
    """A value in those lanes whose conditions hold."""
    if not any(lanes):
        return value
    tested = [ix.all_of(sorted(each, key=lambda c: c.digest)) for each in lanes]
    tested = tested[:1] if len(set(tested)) == 1 else tested
    condition = tested[0]
    if value.dtype.lanes > 1:
        condition = UOp(ops.VECTOR, dt.bool_.vector(value.dtype.lanes), tuple(tested))
    return UOp(ops.WHERE, value.dtype, (condition, value, other))


def _together(part: Part) -> tuple[Conditions, ...]:
    """The conditions of each lane of the sum that a part is in; (): those of no sum of its own."""
    lanes = part.lanes if part.hoisted else ()
    return tuple(frozenset(map(ix.whole, conditions)) for conditions in lanes)


def _values(node: UOp) -> tuple[UOp, ...]:
    """Operands but for places."""
    return () if node.op is ops.LOAD else node.src


def _guarded(value: UOp) -> Iterator[UOp]:
    for node in toposort((value,), stop=lambda n: n.op is ops.LOAD):
        if node.op is ops.LOAD and node.arg:
            yield node
