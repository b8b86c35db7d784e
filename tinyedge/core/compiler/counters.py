"""Facts about a program that need no device: what its launches read, move and share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tinyedge.core.compiler.target import LoweredKernel
from tinyedge.core.ir import ops
from tinyedge.core.ir.lowered import shared_bytes, workgroup_buffers
from tinyedge.core.ir.uop import toposort
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


def workgroup_bytes(text: LoweredKernel) -> int:
    """Memory that a kernel's workgroup shares."""
    return sum(
        shared_bytes(node.dtype, node.arg.length)
        for node in workgroup_buffers(text.linear.statements)
    )
