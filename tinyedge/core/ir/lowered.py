"""The form of a lowered kernel: statements in order, and which threads run them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import Size, UOp, toposort

FLAT = 64  # threads of a workgroup where all threads of a launch are numbered one after the other


@dataclass
class Linear:
    """Statements in order; `values` names the node that stands for a reduction, over a loop or over
    threads.
    """

    statements: list[UOp] = field(default_factory=list)
    values: dict[UOp, UOp] = field(default_factory=dict)


@dataclass(frozen=True)
class Geometry:
    """grid: workgroups along each dimension. workgroup: threads along x, y, z.

    positions: every grid and local range with its value as an expression of the thread's position.
    """

    grid: tuple[Size, ...]
    workgroup: tuple[int, int, int]
    positions: tuple[tuple[UOp, UOp], ...]

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return math.prod(self.workgroup)


def workgroup_buffers(statements: Iterable[UOp]) -> list[UOp]:
    """The SHARED nodes below statements, by number."""
    found = (node for node in toposort(statements) if node.op is ops.SHARED)
    return sorted(found, key=lambda node: int(node.arg.number))


def shared_bytes(dtype: DType, length: int) -> int:
    """Bytes of a workgroup buffer."""
    return length * dtype.lanes * dtype.itemsize
