"""Guarded loads read a region: a part of a buffer, or zeros.

The border of a convolution's data is where guards are. Whether one holds is known before the loop
over the channels, or over the tiles of a row: there the region is chosen, and the loop reads it
without a test. Loads at places that differ by a constant share a region, as far apart as there are
zeros. Where a loop's own steps are farther apart, as rows are, all of them read the same zeros:

    p, m = (0 <= x ? b + start, row : zeros, 0)
    for y in 0..5:
      a += p[y * m] * w
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.lower.runs import innermost_loop, loads_of, stride
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.polynomial import build, terms
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.uop import Size, UOp, as_node, as_size, toposort


@dataclass
class _Region:
    """The loads of a loop under one guard whose places differ by constants alone."""

    guard: UOp
    step: int  # how far apart the places of two iterations are; 0: it is of one iteration
    iterations: int  # at most
    loads: dict[UOp, int] = field(default_factory=dict)  # each with its constant

    @property
    def strides(self) -> int:
        """The elements from the first iteration's to the last one's."""
        return self.step * (self.iterations - 1)

    def windows(self, zeros: int) -> list[_Region]:
        """Regions of loads that are near enough to each other for so many zeros. A load alone that
        is in no loop is in none.
        """
        widest = max(load.dtype.lanes for load in self.loads)
        strides = self.strides if self.strides + widest <= zeros else 0
        found: list[_Region] = []
        for load, constant in sorted(self.loads.items(), key=lambda each: each[1]):
            window = found[-1] if found else None
            if window is None or constant + load.dtype.lanes + strides - window.first > zeros:
                window = _Region(self.guard, self.step, self.iterations)
                found.append(window)
            window.loads[load] = constant
        return [window for window in found if window.step or len(window.loads) > 1]

    def is_near(self, zeros: int) -> bool:
        """Whether so many zeros are enough for all loads in all iterations."""
        return self.strides + self.length <= zeros

    @property
    def first(self) -> int:
        return min(self.loads.values())

    @property
    def length(self) -> int:
        """The elements of one iteration from the first that is read to the last."""
        return max(at + load.dtype.lanes for load, at in self.loads.items()) - self.first


# By the buffer, the guard, the places but for constants and the innermost loop's, its range, and
# the step.
Found = dict[tuple[UOp, UOp, UOp, UOp | None, int], _Region]


def open_regions(sink: UOp, caps: Caps) -> UOp:
    """A kernel of flat accesses whose guarded loads in innermost loops read regions instead, as far
    as the device's zeros reach.
    """
    if not caps.zeros:
        return sink
    found: Found = {}
    for node in toposort((sink,)):
        if node.op is ops.REDUCE_LOOP:
            for load in loads_of(node.src[0]):
                _collect(load, node.src[-1], found)
    loop = innermost_loop(sink)
    for load in loads_of(sink):
        if loop is not None and loop not in access.guard_of(load).ranges and stride(load, loop):
            _collect(load, loop, found)
        elif load.dtype.lanes > 1:
            _collect(load, None, found)
    mapping: dict[UOp, UOp] = {}
    for (param, _, rest, inner, _), region in found.items():
        for window in region.windows(caps.zeros):
            mapping.update(_read(param, rest, inner, window, caps.zeros))
    return substitute((sink,), mapping)[0] if mapping else sink


def _collect(load: UOp, inner: UOp | None, found: Found) -> None:
    """Put a guarded load of a reduction's innermost loop, or of the innermost one around stores, to
    those that it may share a region with; None: it is in no loop.
    """
    iterations = 1 if inner is None else max(1, maximum(as_size(inner.src[0])))
    guard, polynomial = access.guard_of(load), dict(terms(load.src[1]))
    constant, step = polynomial.pop((), 0), 0
    if inner is not None and inner not in guard.ranges:
        step = stride(load, inner)
        if not step:
            return
        del polynomial[(inner,)]
    same = ix.all_of(map(ix.whole, ix.conjuncts(guard)))
    key = (load.src[0], same, as_node(build(polynomial)), inner if step else None, step)
    region = found.setdefault(key, _Region(guard, step, iterations if step else 1))
    region.loads[load] = constant


def _read(param: UOp, rest: UOp, inner: UOp | None, region: _Region, zeros: int) -> dict[UOp, UOp]:
    """What the loads of a region become. inner: the range of the loop that moves them, if any."""
    near = region.is_near(zeros)
    length = region.length + (region.strides if near else 0)
    start = as_node(rest + region.first)
    node = UOp(ops.REGION, param.dtype, (param, start, region.guard), args.Region(length))
    step: Size = region.step
    if not near:
        step = UOp(ops.WHERE, dt.index, (region.guard, as_node(region.step), as_node(0)))
    moves = 0 if inner is None else inner * step
    return {
        load: access.load(node, (as_node(moves + (at - region.first)),), dtype=load.dtype)
        for load, at in region.loads.items()
    }
