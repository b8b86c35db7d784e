"""Steps of a sum as copies: what several steps load alike is loaded once."""

from __future__ import annotations

from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.move import find
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.optimize.moves import Fill
from tinyedge.core.compiler.optimize.reductions import reductions
from tinyedge.core.compiler.optimize.tiles import (
    MOST_COPIES,
    MOST_TAPS,
    SUMS_IN_FLIGHT,
    UNROLL,
    reads_again,
    reads_whole_vectors,
)
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import Terms, divisor, terms
from tinyedge.core.ir.uop import UOp, toposort

LONG_SUM = 64  # steps from which a loop of 5 or 7 at once is worth its text
MANY_SUMS = 9  # in a tile: of so many no step of a loop is idle


def unroll(kernel: MovedKernel, position: int, sums: int) -> None:
    """Unroll a reduction's innermost range: along it one vector load serves several steps. Or the
    taps at which a tile's rows read the same elements, or both where no other range is left. A tile
    of many sums does enough in one step. Steps of a window along a vector's lanes, of no products,
    are all copies: each lane of each step were a load of its own else. Where each vector serves all
    rows in turn, taps that are more than the steps of a vector load fewer numbers for a product,
    though one by one.
    """
    reduction = reductions(kernel.sink)[position]
    inner = reduction.src[-1]
    tap = _shared_tap(kernel, reduction, sums)
    wide = tap is not None and kernel.caps.vectors_in_turn and tap.src[0].arg > UNROLL
    if tap is not None and (wide or not reads_whole_vectors(reduction, kernel.caps)):
        kernel.attempt(To(tap.arg.number, "unroll"))
        return
    if _slides(kernel, reduction, sums):
        kernel.attempt(To(inner.arg.number, "unroll"))
        return
    size = inner.src[0]
    enough = SUMS_IN_FLIGHT if kernel.caps.loads_first else MANY_SUMS
    many = kernel.caps.scalar_operands and sums >= enough
    if many and (size.op is not ops.CONST or size.arg > UNROLL):
        return
    left = _unroll_some(kernel, inner.arg.number)
    if tap is not None and kernel.left("reduce") == [tap.arg.number] and not left:
        if sums * size.arg * tap.src[0].arg <= MOST_COPIES:
            kernel.attempt(To(tap.arg.number, "unroll"))


def _unroll_some(kernel: MovedKernel, number: int) -> bool:
    """Unroll a range, or a part of its steps; gives whether others are left."""
    size = kernel.size(number)
    if size.op is not ops.CONST:
        step = UNROLL if divisor(size) % UNROLL == 0 else 1
    else:
        if size.arg > UNROLL and size.arg % UNROLL:
            kernel.attempt(Fill(number, UNROLL))
            size = kernel.size(number)
        if size.arg <= UNROLL:
            return not kernel.attempt(To(number, "unroll"))
        odd = (5, 7) if size.arg >= LONG_SUM else ()
        step = next((s for s in (UNROLL, 3, 2, *odd) if size.arg % s == 0), 1)
    if step > 1:
        _, last = kernel.split(number, step)
        kernel.attempt(To(last, "unroll"))
    return True


def _slides(kernel: MovedKernel, reduction: UOp, sums: int) -> bool:
    """Whether lanes of a vector read at one innermost step what others read at another, of few, and
    of no products: these have tiles, and taps of their own.
    """
    if any(n.op is ops.MUL and n.dtype.is_float for n in toposort((reduction.src[0],))):
        return False
    tap = reduction.src[-1]
    taps = tap.src[0].arg if tap.src[0].op is ops.CONST else MOST_TAPS + 1
    lanes = [find(kernel.sink, number) for number in kernel.left("vector")]
    places = [terms(n.src[1]) for n in toposort((reduction,)) if n.op is ops.LOAD]
    return sums * taps <= MOST_TAPS and any(
        reads_again(place, _apart(place, lane), tap, taps) for place in places for lane in lanes
    )


def _shared_tap(kernel: MovedKernel, reduction: UOp, sums: int) -> UOp | None:
    """The range at whose steps a tile's rows read the same elements, if it has few."""
    if kernel.caps.scalar_operands:
        return None
    rows = [find(kernel.sink, number) for number in kernel.left("upcast")]
    places = [terms(n.src[1]) for n in toposort((reduction,)) if n.op is ops.LOAD]
    for tap in reversed(reduction.src[1:]):
        taps = tap.src[0].arg if tap.src[0].op is ops.CONST else 0
        for place in places if tap.arg.kind == "reduce" and sums * taps <= MOST_TAPS else ():
            if any(reads_again(place, _apart(place, row), tap, taps) for row in rows):
                return tap
    return None


def _apart(place: Terms, row: UOp) -> int:
    """How far apart the places of two rows are, but for rows beyond the last, which repeat it."""
    for monomial, factor in place.items():
        if monomial == (row,):
            return factor
        if len(monomial) == 1 and monomial[0].op is ops.MIN:
            return factor * terms(monomial[0].src[0]).get((row,), 0)
    return 0


def unroll_window(kernel: MovedKernel, sums: int) -> None:
    """A filter for each channel is small: all of its steps in a row use each value that is loaded
    as often as windows overlap.
    """
    if not kernel.caps.scalar_operands:
        return
    copies = sums
    for number in kernel.left("unroll"):
        copies *= kernel.extent(number)
    for number in reversed(kernel.left("reduce")):
        copies *= kernel.extent(number)
        if copies <= MOST_COPIES:
            kernel.attempt(To(number, "unroll"))
