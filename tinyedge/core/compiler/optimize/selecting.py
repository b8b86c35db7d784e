"""Copies in registers of what differs by a range's number alone: the transforms of tiles."""

from __future__ import annotations

from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import toposort

MOST_CHOICES = 64  # of a thread's values, each computed in its own way


def select(kernel: MovedKernel, vector: int | None) -> int:
    """Ranges that only choose among values, each by its number: copies in registers, of which each
    computes its own value, and which share what they load. Gives the lanes of vectors of which
    registers hold all that.
    """
    chosen: dict[int, set[object]] = {}
    for node in toposort((kernel.sink,)):
        if node.op is ops.EQ and node.src[1].op is ops.CONST:
            r = node.src[0].src[0] if node.src[0].op is ops.CAST else node.src[0]
            if r.op is ops.RANGE and r.arg.kind == "loop" and r.arg.number != vector:
                chosen.setdefault(r.arg.number, set()).add(node.src[1].arg)
    copies = 1
    for number, values in sorted(chosen.items()):
        if len(values) >= kernel.extent(number) - 1 and copies * len(values) < MOST_CHOICES:
            if kernel.attempt(To(number, "upcast")):
                copies *= len(values) + 1
    width, room = kernel.caps.vector, kernel.caps.max_registers if copies > 1 else 0
    loads = sum(node.op is ops.LOAD for node in toposort((kernel.sink,)))
    while room and width > 1 and loads * width > room:
        width //= 2
    return width
