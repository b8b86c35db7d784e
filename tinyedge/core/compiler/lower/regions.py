"""Guarded loads read a region: a part of a buffer, or zeros.

The border of a convolution's data is where guards are. Whether one holds is known before the loop
over the channels: there the region is chosen, and the loop reads it without a test. Loads at places
that differ by a constant share a region.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.polynomial import build, terms
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.shapes import maximum
from tinyedge.core.ir.uop import UOp, as_node, as_size, toposort


@dataclass
class _Region:
    """The loads of a loop under one guard whose places differ by constants alone."""

    step: int  # how far apart the places of two iterations are; 0: it is of one iteration
    iterations: int  # at most
    loads: dict[UOp, int] = field(default_factory=dict)  # each with its constant

    @property
    def first(self) -> int:
        return min(self.loads.values())

    @property
    def length(self) -> int:
        """The elements from the first that is read to the last."""
        ends = (constant + load.dtype.lanes for load, constant in self.loads.items())
        return max(ends) - self.first + self.step * (self.iterations - 1)


# By the buffer, the guard, the places but for constants, and where an iteration is from the first.
Found = dict[tuple[UOp, UOp, UOp, UOp], _Region]


def open_regions(sink: UOp, caps: Caps) -> UOp:
    """A kernel of flat accesses whose guarded loads in innermost loops read regions instead, as far
    as the device's zeros reach.
    """
    if not caps.zeros:
        return sink
    found: Found = {}
    for node in toposort((sink,)):
        if node.op is ops.REDUCE_LOOP:
            _collect(node.src[0], node.src[-1], found)
    _collect(sink, None, found)
    mapping: dict[UOp, UOp] = {}
    for key, region in found.items():
        if region.length <= caps.zeros and (region.step or len(region.loads) > 1):
            mapping.update(_read(*key, region))
    return substitute((sink,), mapping)[0] if mapping else sink


def _collect(root: UOp, inner: UOp | None, found: Found) -> None:
    """The guarded loads of a reduction's innermost loop; outside of reductions, the vectors."""
    iterations = 1 if inner is None else max(1, maximum(as_size(inner.src[0])))
    for node in toposort((root,), stop=lambda n: n.op is ops.REDUCE_LOOP):
        if node.op is not ops.LOAD or not node.arg or node.src[0].op is not ops.PARAM:
            continue
        guard, polynomial = access.guard_of(node), dict(terms(node.src[1]))
        constant, step = polynomial.pop((), 0), 0
        if inner is None and node.dtype.lanes == 1:
            continue
        if inner is not None and inner not in guard.ranges:
            step = polynomial.pop((inner,), 0)
            if step < 1 or inner in as_node(build(polynomial)).ranges:
                continue
        moves = as_node(0) if inner is None else as_node(inner * step)
        key = (node.src[0], guard, as_node(build(polynomial)), moves)
        region = found.setdefault(key, _Region(step, iterations if step else 1))
        region.loads[node] = constant


def _read(param: UOp, guard: UOp, rest: UOp, moves: UOp, region: _Region) -> dict[UOp, UOp]:
    """What the loads of a region become. moves: where an iteration is, from the first one."""
    start = as_node(rest + region.first)
    node = UOp(ops.REGION, param.dtype, (param, start, guard), args.Region(region.length))
    return {
        load: access.load(node, (as_node(moves + (constant - region.first)),), dtype=load.dtype)
        for load, constant in region.loads.items()
    }
