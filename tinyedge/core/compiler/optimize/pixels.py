"""Pixels that a thread computes together, of layers whose filters have one channel each."""

from __future__ import annotations

from math import prod

from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.tiles import MOST_TAPS, Roles, rows_share, upcast
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import divisor

LONGEST = 14  # pixels of a row: as many sums
BELOW = (4, 2)  # vectors of pixels below each other


def row_of_pixels(kernel: MovedKernel, contraction: Roles, along: int | None) -> int:
    """Have a thread compute a whole row, where it is short, no whole vectors, and there are enough
    of them: what windows share is loaded once, and none needs a guard at the row's ends. Gives how
    many sums a thread has; 0 where nothing is done.
    """
    caps = kernel.caps
    if along not in contraction["rows"] or contraction["columns"] or caps.threads == 1:
        return 0
    size, pixels = kernel.size(along), kernel.extent(along)
    whole = divisor(size) % caps.vector == 0
    if size.op is not ops.CONST or whole or not 1 < pixels <= LONGEST:
        return 0
    if any(store.src[0].dtype.itemsize < 4 for store in kernel.sink.src):  # in words of several
        return 0
    outputs = prod(kernel.extent(number) for number in kernel.left("loop"))
    if outputs < pixels * caps.threads_to_saturate:
        return 0
    return pixels if kernel.attempt(To(along, "upcast")) else 0


def windows_below(kernel: MovedKernel, contraction: Roles, along: int | None) -> int:
    """Have a thread compute vectors of pixels below each other, whose windows share rows of what
    they read, with all steps of their sums as copies; of as many as leave enough threads. Gives how
    many sums a thread has; 0 where nothing is done.
    """
    caps = kernel.caps
    if along not in contraction["rows"] or contraction["columns"] or caps.threads == 1:
        return 0
    left = kernel.left("loop")
    outputs, taps = prod(map(kernel.extent, left)), kernel.left("reduce")
    if not kernel.left("vector") or any(kernel.size(tap).op is not ops.CONST for tap in taps):
        return 0
    steps = prod(map(kernel.extent, taps))
    for number in (n for n in left if n in contraction["rows"] and rows_share(kernel, n)):
        for count in BELOW:
            even = divisor(kernel.size(number)) % count == 0
            busy = outputs >= count * caps.threads_to_saturate
            if even and busy and count * steps <= MOST_TAPS:
                upcast(kernel, number, count)
                for tap in taps:
                    kernel.to(tap, "unroll")
                return count
    return 0
