"""What is left of a kernel's output goes to threads and workgroups."""

from __future__ import annotations

from collections.abc import Sequence

from tinyedge.core.compiler.optimize.move import find
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.moves import PadTo
from tinyedge.core.compiler.schedule.canonical import coefficient_of
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import divisor
from tinyedge.core.ir.uop import UOp, toposort

FEW_GROUPS = 64  # with fewer, some of a processor's threads wait for the others
WAVE = 16  # threads that run together on any device, or a part of them
MANY_STEPS = 64  # times the threads of a workgroup, of which the last one may be partly idle
GRID_STEP = 4096  # workgroups that one dimension takes of a range beyond the device's limit


def distribute(
    kernel: MovedKernel, threads: int, keep: Sequence[int] = (), *, tiles: bool = False
) -> None:
    """What is left of the output: the innermost ranges to threads, the others to workgroups;
    `keep` stays. Without threads the innermost range is a loop, but not of few groups of tiles,
    each of which is work enough.
    """
    outer = [n for n in kernel.left("loop") if n not in keep]
    if not outer:
        return
    if kernel.caps.threads > 1:
        _to_threads(kernel, outer, threads)
        for number in kernel.left("loop"):
            if number not in keep:
                _to_grid(kernel, number)
        return
    groups = 1
    for number in outer[:-1]:
        groups *= kernel.extent(number)
    loop = len(outer) > 1 and not keep and not (tiles and groups < FEW_GROUPS)
    for number in outer[:-1] if loop else outer:
        kernel.to(number, "grid")


def _to_grid(kernel: MovedKernel, number: int) -> None:
    """A range over workgroups; one beyond the device's limit becomes two."""
    if kernel.extent(number) <= min(kernel.caps.grid):
        kernel.to(number, "grid")
        return
    if divisor(kernel.size(number)) % GRID_STEP:
        kernel.do(PadTo(number, GRID_STEP))
    outer, inner = kernel.split(number, GRID_STEP)
    kernel.to(inner, "grid")
    _to_grid(kernel, outer)


def _to_threads(kernel: MovedKernel, outer: list[int], limit: int) -> None:
    """The innermost output ranges, up to a workgroup's worth, become threads: in whole waves, where
    a kernel sums nothing and has so many that a last workgroup may be partly idle.
    """
    threads = 1
    sums = any(node.op is ops.REDUCE_LOOP for node in toposort((kernel.sink,)))
    for number in sorted(outer, key=lambda n: _position(kernel, n)):
        room = limit // threads
        if room < 2:
            break
        size = kernel.size(number)
        if size.op is ops.CONST and size.arg <= room:
            kernel.to(number, "local")
            threads *= size.arg
            continue
        step = _divisor(size, room)
        many = not sums and room % WAVE == 0 and kernel.extent(number) >= MANY_STEPS * room
        if step * 2 < room or (many and step % WAVE):
            step = min(room, 1 << (kernel.extent(number) - 1).bit_length())
            if not kernel.attempt(PadTo(number, step)):
                break
        if step < 2:
            break
        if kernel.is_exactly(number, step):
            kernel.to(number, "local")
        else:
            _, inner = kernel.split(number, step)
            kernel.to(inner, "local")
        threads *= step


def _position(kernel: MovedKernel, number: int) -> int:
    """How far apart in memory a range's steps are stored: neighbors first."""
    store = kernel.sink.src[0]
    r = find(kernel.sink, number)
    if r not in store.src[2].ranges:
        return 2**40
    return coefficient_of(store.src[2], r) or 2**39


def _divisor(size: UOp, most: int) -> int:
    """The greatest divisor of a size that is at most `most`."""
    known = divisor(size)
    return max((d for d in range(1, most + 1) if known % d == 0), default=1)
