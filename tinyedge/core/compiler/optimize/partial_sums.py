"""Sums that a thread is alone with, taken in parts.

A running total of many numbers loses the digits of each that are below its own last one, so that a
sum in order is off by more the longer it is. Totals of parts are smaller: the lanes of some vectors
where what is summed lies beside each other, and blocks of steps that are added up in turn.

    s = sum of x[r], r in 0..n  ->  s[0..15] = sum of x[16*v + 0..15], v in 0..n/16; the sum of s
    s = sum of x[r], r in 0..n  ->  s = sum over b in 0..n/32 of sum of x[32*b + r], r in 0..32

Several sums at once also wait less for one another than one does for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.blocks import Block
from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.moves import Peel
from tinyedge.core.compiler.optimize.reductions import reductions
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import bounds, divisor
from tinyedge.core.ir.spec import BLOCK_KIND
from tinyedge.core.ir.uop import UOp, as_size

VECTORS = (4, 2, 1)  # of partial sums, the most that divide a range
APART = 2  # of them where what is summed lies in no whole vectors
FEW = 32  # elements that need no vectors of their own there
LONG = 256  # elements from which what is left of all vectors has statements of its own
MOST = (32, 128)  # steps of a total, of one number and of the lanes of vectors


def are_alone(caps: Caps) -> bool:
    """Whether a device's threads share no reductions."""
    return caps.threads > 1 and not caps.shared


def in_vectors(kernel: MovedKernel, number: int, vectors: int = VECTORS[0]) -> int | None:
    """Lay what is summed along vectors of partial sums, of which it has at most so many; gives the
    range over a thread's steps, or None where it cannot be. What no vector of a long range holds is
    summed by itself.
    """
    before, width = (kernel.sink, list(kernel.moves)), kernel.caps.vector
    size, least = divisor(kernel.size(number)), bounds(as_size(kernel.size(number)))[0]
    vectors = vectors if size % width == 0 else min(vectors, APART)
    if size % width and least < FEW:
        return None
    long = are_alone(kernel.caps) and least >= LONG
    if size % width or (long and size % (vectors * width)):
        rest = kernel.peel(number, vectors * width)
        if kernel.extent(rest) > 1:  # one step is no range
            kernel.attempt(To(rest, "lanes" if kernel.extent(rest) % width == 0 else "unroll"))
    size = divisor(kernel.size(number))
    count = width * next(n for n in VECTORS if n <= vectors and size % (n * width) == 0)
    number, last = kernel.split(number, count)
    if not kernel.attempt(To(last, "lanes")):
        kernel.sink, kernel.moves = before
        return None
    return number


def in_blocks(kernel: MovedKernel) -> None:
    """Take the kernel's long sums of floats in blocks, and many blocks in blocks again."""
    while any(_shorten(kernel, node) for node in _long_sums(kernel)):
        pass


def _long_sums(kernel: MovedKernel) -> Iterator[UOp]:
    for node in reductions(kernel.sink):
        kinds = {r.arg.kind for r in node.src[1:]}
        if node.arg is ops.ADD and node.dtype.is_float and "threads" not in kinds:
            if prod(kernel.extent(r.arg.number) for r in _serial(node)) > _most(node):
                yield node


def _serial(node: UOp) -> list[UOp]:
    """The ranges of a reduction whose steps follow each other."""
    return [r for r in node.src[1:] if r.arg.kind in ("reduce", BLOCK_KIND)]


def _most(node: UOp) -> int:
    """Steps that a total may have: lanes share what is summed already."""
    return MOST[any(r.arg.kind == "lanes" for r in node.src[1:])]


def _shorten(kernel: MovedKernel, node: UOp) -> bool:
    """Cut a sum where its inner steps are those of a block; gives whether that was done."""
    inner, most = 1, _most(node)
    for r in reversed(_serial(node)):
        number = int(r.arg.number)
        extent = kernel.extent(number)
        if inner * extent <= most:
            inner *= extent
            continue
        factor = _factor(divisor(r.src[0]), most // inner)
        if inner * factor * 4 < most <= bounds(as_size(r.src[0]))[0]:
            return kernel.attempt(Peel(number, most, kernel.unused()))
        return inner * factor > 1 and kernel.attempt(Block(number, factor, kernel.unused()))
    return False


def _factor(size: int, most: int) -> int:
    """The greatest divisor of a range that is no more than `most`."""
    return max(n for n in range(1, most + 1) if size % n == 0)
