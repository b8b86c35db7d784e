"""Facts about a program that need no device: what its launches read, move and share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.target import LoweredKernel
from tinyedge.core.ir import ops
from tinyedge.core.ir.lowered import shared_bytes, workgroup_buffers
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.program.program import Buffer, Launch

COUNTERS = ("launches", "image_reads", "guarded_reads", "buffer_reads", "barriers", "bytes")


def kernel_counters(text: LoweredKernel) -> dict[str, int]:
    """How many reads of images and of buffers a kernel's text has, how many of them are guarded by
    a condition, and how many barriers.
    """
    found: Counter[str] = Counter()
    for node in toposort(text.linear.statements):
        if node.op is ops.LOAD and node.src[0].op is ops.PARAM:
            found["image_reads" if node.src[0].arg.is_image else "buffer_reads"] += 1
            found["guarded_reads"] += bool(node.arg)
    found["barriers"] = sum(node.op is ops.BARRIER for node in text.linear.statements)
    return {name: found[name] for name in COUNTERS[1:5]}


def program_counters(
    launches: Iterable[Launch], kernels: Sequence[dict[str, int]], buffers: Sequence[Buffer]
) -> dict[str, int]:
    """The kernels' counters summed over all launches. bytes: of the buffers that a launch takes,
    each once, which is what it must move at least, if it uses all of them.
    """
    total = dict.fromkeys(COUNTERS, 0)
    for launch in launches:
        total["launches"] += 1
        for name, count in kernels[launch.kernel].items():
            total[name] += count
        total["bytes"] += sum(buffers[number].bytes for number in set(launch.buffers))
    return total


@dataclass(frozen=True)
class InnerLoops:
    """What a kernel's text has in its innermost loops, or in all of it where it has no loop.

    loads: by how many elements one brings. guards: loads under a condition. fused: sums to which a
    product is added; flops: the other operations on numbers. Both count vectors. integers:
    operations on places. registers: at most, of sums, and of values that are named there.
    """

    loads: Mapping[int, int]
    guards: int
    fused: int
    flops: int
    integers: int
    registers: int


def inner_loops(text: LoweredKernel) -> InnerLoops:
    """Counts of a kernel's innermost loops, as the text has them: of one iteration of each."""
    statements = text.linear.statements
    loads: Counter[int] = Counter()
    found: Counter[str] = Counter()
    registers = 0
    sums = sum(node.op is ops.ACCUMULATOR for node in statements)
    for body in _innermost(statements):
        named = {node for node in body if node.op not in (ops.SET, ops.STORE)}
        registers = max(registers, len(named))
        for node in _operations(body, statements):
            _count(node, loads, found)
    return InnerLoops(
        loads=dict(sorted(loads.items())),
        guards=found["guards"],
        fused=found["fused"],
        flops=found["flops"],
        integers=found["integers"],
        registers=sums + registers,
    )


def _innermost(statements: Sequence[UOp]) -> list[list[UOp]]:
    """The statements of each loop that holds none; all of them where there is no loop."""
    found: list[list[UOp]] = []
    body: list[UOp] = []
    holds_loop = True
    for node in statements:
        if node.op is ops.BEGIN:
            body, holds_loop = [], False
        elif node.op is ops.END:
            if not holds_loop:
                found.append(body)
            body, holds_loop = [], True
        else:
            body.append(node)
    return found or [list(statements)]


def _operations(body: Sequence[UOp], statements: Sequence[UOp]) -> list[UOp]:
    """The nodes that are computed in statements of a body, but not in others that they name."""
    named = set(statements)
    found: list[UOp] = []
    for statement in body:
        others = named - {statement}
        found += [n for n in toposort((statement,), others.__contains__) if n not in others]
    return found


def _count(node: UOp, loads: Counter[int], found: Counter[str]) -> None:
    numbers = node.dtype is not dt.index and node.dtype.kind != "b"
    if node.op is ops.LOAD:
        loads[node.dtype.lanes] += 1
        found["guards"] += bool(node.arg)
    elif node.op is ops.SET:
        fused = node.arg is ops.ADD and node.src[1].op is ops.MUL
        found["fused" if fused else "flops"] += node.arg is not None
        found["flops"] -= fused  # the product is counted by itself
    elif node.op is ops.FMA:
        found["fused"] += 1
    elif node.op.elementwise and numbers:
        found["flops"] += 1
    elif node.op.elementwise and node.dtype is dt.index:
        found["integers"] += 1


def workgroup_bytes(text: LoweredKernel) -> int:
    """Memory that a kernel's workgroup shares."""
    return sum(
        shared_bytes(node.dtype, node.arg.length)
        for node in workgroup_buffers(text.linear.statements)
    )
