"""A kernel's canonical form: linear addresses, as few ranges as it can have, reductions in the
order of memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.polynomial import bounds, build, terms
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.rules.algebra import operands, rewrite, simplified, simplify
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import (
    BINDING,
    Size,
    UOp,
    as_node,
    as_size,
    const,
    own_ranges,
    toposort,
)


def split_ranges(sink: UOp) -> UOp:
    """Ranges that are only used divided and modulo become several ranges, so that no division is
    left.
    """
    while mapping := _splits(sink):  # each iteration leaves smaller ranges
        sink = replace_ranges(sink, {r: (whole, _pieces(whole)) for r, whole in mapping.items()})
    return sink


# Of ranges: what stands for each, and the ranges that reductions run over in its place.
Changes = Mapping[UOp, tuple[UOp, tuple[UOp, ...]]]


def in_turn(first: Changes, then: Changes) -> Changes:
    """Both changes, one after the other, as one."""
    places = {r: place for r, (place, _) in then.items()}
    both: dict[UOp, tuple[UOp, tuple[UOp, ...]]] = {}
    made: set[UOp] = set()
    for r, (place, pieces) in first.items():
        made.update(pieces)
        left = [p for piece in pieces for p in (then[piece][1] if piece in then else (piece,))]
        both[r] = rewrite((place,), places)[0], tuple(left)
    return both | {r: change for r, change in then.items() if r not in made}


def replace_ranges(sink: UOp, changes: Changes) -> UOp:
    """Each range replaced by an expression; reductions over it run over the given new ranges
    instead.
    """

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp:
        if node.op not in BINDING or changes.keys().isdisjoint(own_ranges(node)):
            return simplified(node, src)
        bodies = BINDING[node.op]
        reduced: list[UOp] = []
        for r, same in zip(own_ranges(node), src[bodies:], strict=True):
            reduced.extend(changes[r][1] if r in changes else (same,))
        return simplify(node.replace((*src[:bodies], *dict.fromkeys(reduced))))

    done = {old: new for old, (new, _) in changes.items()}
    return bottom_up((sink,), change, done, operands=operands)[sink]


def _splits(sink: UOp) -> dict[UOp, UOp]:
    nodes = toposort((sink,))
    divisors: dict[UOp, set[int]] = {}
    for node in nodes:
        if node.op in (ops.FLOORDIV, ops.MOD) and node.src[1].op is ops.CONST:
            inner = node.src[0]
            if inner.op is ops.RANGE:
                divisors.setdefault(inner, set()).add(node.src[1].arg)
    highest = max((n.arg.number for n in nodes if n.op is ops.RANGE), default=0)
    mapping: dict[UOp, UOp] = {}
    for target, found in sorted(divisors.items(), key=lambda item: item[0].arg.number):
        size = target.src[0]
        if size.op is not ops.CONST:
            continue
        steps = _chain(found, size.arg)
        if not steps:
            continue
        whole: Size = 0
        bounds = [size.arg, *steps, 1]
        for outer, inner in itertools.pairwise(bounds):
            highest += 1
            piece = make_range(outer // inner, highest, target.arg.kind)
            whole += piece * inner
        mapping[target] = as_node(whole)
    return mapping


def steps_of(ranges: Iterable[UOp]) -> int:
    """How many steps ranges have together, at the symbols' maxima."""
    return maximum(product(as_size(r.src[0]) for r in ranges))


def make_range(size: Size, number: int, kind: str) -> UOp:
    """A range, or the constant 0 where the size is 1."""
    length = as_node(size)
    if as_size(length) == 1:
        return ix.ZERO
    return UOp(ops.RANGE, dt.index, (length,), args.Range(number, kind))


def _chain(divisors: set[int], size: int) -> list[int]:
    """The divisors, greatest first, where each divides the next and the size; else nothing."""
    steps = sorted((d for d in divisors if 1 < d < size), reverse=True)
    previous = size
    for step in steps:
        if previous % step:
            return []
        previous = step
    return steps


def _pieces(whole: UOp) -> tuple[UOp, ...]:
    return tuple(sorted((a for m in terms(whole) for a in m), key=lambda a: a.arg.number))


def share_reductions(sink: UOp) -> UOp:
    """The stores' reductions in one loop, where each store has one, over as many steps."""
    found = [[n for n in toposort((s,)) if n.op is ops.REDUCE_LOOP] for s in sink.src]
    if len(found) < 2 or any(len(each) != 1 for each in found):
        return sink
    (first,), *others = found
    changes: dict[UOp, tuple[UOp, tuple[UOp, ...]]] = {}
    for (other,) in others:
        pairs = list(zip(other.src[1:], first.src[1:], strict=False))
        if [a.src for a in other.src[1:]] == [b.src for b in first.src[1:]]:
            changes.update((a, (b, (b,))) for a, b in pairs if a is not b)
    return replace_ranges(sink, changes) if changes else sink


def flatten(sink: UOp) -> UOp:
    """Loads and stores get one linear index each."""
    return bottom_up((sink,), _flat)[sink]


def _flat(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    if node.op not in access.ACCESSES:
        return None
    new = node.replace(src)
    return access.at(new, (_address(new),))


def order_reductions(sink: UOp) -> UOp:
    """Reductions loop outermost over the range with the largest stride in what they read."""
    return bottom_up((sink,), _by_stride)[sink]


def _by_stride(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    if node.op is not ops.REDUCE_LOOP or len(src) < 3:
        return None
    loads = [n for n in toposort((src[0],)) if n.op is ops.LOAD]
    loads.sort(key=lambda n: (n.src[0].arg.weight, n.src[0].arg.slot))
    strides = {r: _stride(loads, r) for r in src[1:]}
    return node.replace((src[0], *sorted(src[1:], key=lambda r: (-strides[r], r.arg.number))))


def _stride(loads: list[UOp], r: UOp) -> int:
    for load in loads:
        address = _address(load)
        coefficient = coefficient_of(address, r)
        if coefficient:
            return abs(coefficient)
    return 0


def _address(node: UOp) -> UOp:
    param = node.src[0].arg
    address: UOp = param.layout.flatten(param.shape, access.indices_of(node))
    return address


def coefficient_of(address: UOp, r: UOp) -> int:
    """By how much an address grows at the symbols' maxima when the range grows by one; 0: it
    does not.
    """
    total = 0
    for monomial, coefficient in terms(address).items():
        if r in monomial:
            size: Size = coefficient
            for atom in monomial:
                if atom is not r:
                    size *= max(1, _greatest(atom))
            total += maximum(size)
    return total


def _greatest(atom: UOp) -> int:
    high = bounds(atom)[1]
    return int(high) if high < 2**31 else 1


def collapse(sink: UOp) -> UOp:
    """Two ranges that every address walks like one become one."""
    changed = True
    while changed:
        changed = False
        nodes = toposort((sink,))
        for outer, inner in _candidates(nodes):
            merged = _merge(sink, nodes, outer, inner)
            if merged is not None:
                sink = merged
                changed = True
                break
    return sink


def _candidates(nodes: list[UOp]) -> list[tuple[UOp, UOp]]:
    loops = [n for n in nodes if n.op is ops.RANGE and n.arg.kind == "loop"]
    pairs = [(a, b) for a in loops for b in loops if a is not b]
    for node in nodes:
        if node.op is ops.REDUCE_LOOP:
            pairs.extend((a, b) for a in node.src[1:] for b in node.src[1:] if a is not b)
    return sorted(dict.fromkeys(pairs), key=lambda p: (p[0].arg.number, p[1].arg.number))


def _merge(sink: UOp, nodes: list[UOp], outer: UOp, inner: UOp) -> UOp | None:
    """outer * size(inner) + inner as one range, where the two occur only so."""
    size = inner.src[0]
    if outer.src[0].ranges or size.ranges:
        return None
    for node in nodes:
        if node.op in BINDING and (outer in own_ranges(node)) != (inner in own_ranges(node)):
            return None
    mapping: dict[UOp, UOp] = {}
    total = as_node(outer.src[0] * size)
    whole = UOp(ops.RANGE, dt.index, (total,), outer.arg)
    users = [n for n in nodes if n.op not in _ARITHMETIC or n.dtype is not dt.index]
    for node in users:
        if node.op in BINDING:
            if any(body in (outer, inner) for body in node.src[: BINDING[node.op]]):
                return None
            continue
        for source in node.src:
            if source.dtype is not dt.index or source.op is ops.STORE:
                continue
            if outer not in source.ranges and inner not in source.ranges:
                continue
            replaced = _walked_as_one(source, outer, inner, size, whole)
            if replaced is None:
                return None
            mapping[source] = replaced
    if not mapping:
        return None
    renamed = replace_ranges(sink, {outer: (outer, (whole,)), inner: (inner, ())})
    return rewrite((renamed,), mapping)[0]


_ARITHMETIC = (ops.ADD, ops.MUL, ops.SUB, ops.NEG)


def _walked_as_one(address: UOp, outer: UOp, inner: UOp, size: UOp, whole: UOp) -> UOp | None:
    """The address with outer * size + inner written as `whole`; None where it is not of that
    form.
    """
    factors: dict[UOp, dict[tuple[UOp, ...], int]] = {outer: {}, inner: {}}
    rest: dict[tuple[UOp, ...], int] = {}
    for monomial, coefficient in terms(address).items():
        if any(atom not in (outer, inner) and _depends(atom, outer, inner) for atom in monomial):
            return None
        found = [atom for atom in monomial if atom in (outer, inner)]
        if not found:
            rest[monomial] = coefficient
        elif len(found) > 1:
            return None
        else:
            left = list(monomial)
            left.remove(found[0])
            factors[found[0]][tuple(left)] = coefficient
    step = build(factors[inner])
    if build(factors[outer]) is not as_node(step * size):
        return None
    return as_node(build(rest) + step * whole)


def _depends(atom: UOp, outer: UOp, inner: UOp) -> bool:
    return outer in atom.ranges or inner in atom.ranges


Part = tuple[UOp, tuple[UOp, ...]]  # of a range: a place in it, and the ranges that walk it


def mask_reductions(sink: UOp, target: UOp, part: Part, inside: UOp) -> UOp:
    """Reductions over a range run over the longer `part` instead: their neutral element where that
    is not `inside`, else what there was.
    """

    def masked(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op not in BINDING or target not in own_ranges(node):
            return None
        return _reduced_over(node.replace(src), {target: part}, inside)

    return bottom_up((sink,), masked)[sink]


@dataclass(frozen=True)
class Rest:
    """The second part of a range that is reduced in two.

    place: where in the whole range a step of it is. steps: its range, or the constant 0 for one
    step. counts: where it has no neutral element. number: the first of the numbers that it takes.
    """

    place: UOp
    steps: UOp
    counts: UOp
    number: int


def peel_reductions(sink: UOp, target: UOp, main: UOp, rest: Rest) -> UOp:
    """Reductions over a range run over two parts of it, the range `main` and the rest, and combine
    both results. Whatever else is reduced in the second part has ranges of its own there.
    """
    others = dict(_with_numbers(_reduced_with(sink, target), rest.number + 1))

    def peeled(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.REDUCE_LOOP or target not in node.src[1:]:
            return None
        node = node.replace(src)
        first = _reduced_over(node, {target: (main, (main,))}, ix.TRUE)
        second = _reduced_over(node, {target: (rest.place, (rest.steps,)), **others}, rest.counts)
        return UOp(node.arg, node.dtype, (first, second))

    return bottom_up((sink,), peeled)[sink]


def _reduced_with(sink: UOp, target: UOp) -> list[UOp]:
    """The other ranges of reductions over a range, and those of reductions that depend on it."""
    found = [
        node
        for node in toposort((sink,))
        if node.op is ops.REDUCE_LOOP and (target in node.src[1:] or target in node.ranges)
    ]
    return list(dict.fromkeys(r for node in found for r in node.src[1:] if r is not target))


def _with_numbers(found: Iterable[UOp], first: int) -> Iterator[tuple[UOp, Part]]:
    """Each range with another one of its kind: in its place, and to reduce over."""
    for number, r in enumerate(found, first):
        new = UOp(ops.RANGE, dt.index, r.src, args.Range(number, r.arg.kind))
        yield r, (new, (new,))


def _reduced_over(reduction: UOp, changes: Mapping[UOp, Part], counts: UOp) -> UOp:
    """A reduction with some ranges replaced, each by an expression and by what is reduced over
    instead.
    """
    places = {r: place for r, (place, _) in changes.items()}
    body, *others = rewrite(reduction.src[: BINDING[reduction.op]], places)
    attends = reduction.op is ops.ATTEND_LOOP  # a value of this score has no weight
    least = -np.inf if attends else ops.reduce_identity(reduction.arg, body.dtype)
    neutral = const(least, body.dtype)
    body = simplify(UOp(ops.WHERE, body.dtype, (counts, body, neutral)))
    changed: list[UOp] = []
    for r in own_ranges(reduction):
        changed.extend(changes[r][1] if r in changes else (r,))
    left = [r for r in changed if r.op is ops.RANGE]  # a range of one iteration is none
    return reduction.replace((body, *others, *left)) if left or attends else body
