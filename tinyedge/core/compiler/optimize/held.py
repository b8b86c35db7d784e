"""Default moves of kernels that compute a small result of another kernel first, in a stage."""

from __future__ import annotations

from math import prod

from tinyedge.core.compiler.optimize.blocks import Partials
from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.schedule.held import GROUP, copies_of
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import divisor
from tinyedge.core.ir.spec import stage_length
from tinyedge.core.ir.uop import UOp, toposort

UNROLL = 8  # steps of a thread whose loads are on the way at once
COMPILED_UNROLL = 2  # the same, where somebody waits for a compiler of all their loads


def stages(sink: UOp) -> list[UOp]:
    """A kernel's stages, inner ones first."""
    return [n for n in toposort((sink,)) if n.op is ops.STAGE]


def share_stages(kernel: MovedKernel) -> int:
    """Deal out the sums of a kernel's stages to the threads of a workgroup; gives how many it
    should have.
    """
    threads = min(_outputs(kernel), GROUP, kernel.caps.threads)
    for stage in stages(kernel.sink):
        own = toposort(stage.src, stop=lambda n: n.op is ops.STAGE)
        (reduction,) = (n for n in own if n.op is ops.REDUCE_LOOP)
        number = max((r.arg.number for r in reduction.src[1:]), key=kernel.extent)
        vectors = -(-stage_length(stage) // kernel.caps.vector)
        parts = _parts(kernel.extent(number), vectors, threads)
        if parts > 1:
            outer = kernel.unused()
            if kernel.attempt(Partials(number, parts, outer)):
                number = outer + 1
        _unroll(kernel, number)
    return threads


def _outputs(kernel: MovedKernel) -> int:
    """How many outputs, or vectors of them, threads compute; in a long row each has some."""
    loops = kernel.left("loop")
    outputs = prod(kernel.extent(number) for number in loops)
    copies = copies_of(outputs, kernel.caps)
    if len(loops) > 1 or copies == 1:
        return outputs
    _, inner = kernel.split(loops[0], copies)
    kernel.to(inner, "upcast")
    return outputs // copies


def _parts(steps: int, vectors: int, threads: int) -> int:
    """In how many parts to take sums of so many steps, vectors of them, for the fewest steps a
    thread.
    """

    def taken(parts: int) -> int:
        second = -(-vectors // threads) * parts if parts > 1 else 0
        return -(-vectors * parts // threads) * (steps // parts) + second

    choices = [n for n in range(1, steps) if steps % n == 0]
    return min(choices or [1], key=taken)


def _unroll(kernel: MovedKernel, number: int) -> None:
    """Some steps of a range as copies; all where they are few."""
    most = COMPILED_UNROLL if kernel.caps.shares_sizes else UNROLL
    if kernel.extent(number) <= most:
        kernel.attempt(To(number, "unroll"))
        return
    step = max(n for n in range(1, most + 1) if divisor(kernel.size(number)) % n == 0)
    if step > 1:
        _, inner = kernel.split(number, step)
        kernel.to(inner, "unroll")
