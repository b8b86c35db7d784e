"""An axis of a weight that a kernel reads by several ranges becomes as many axes.

    w[r0 * 128 + r1]   of 256 elements   ->   w[r0, r1]   of 2 x 128

So do filters of groups, and those of a layer after pixels in a row: its layout may then have each
of these ranges where the kernel wants it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tinyedge.core.ir import access, ops
from tinyedge.core.ir.buffers import row_major
from tinyedge.core.ir.polynomial import terms
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.uop import Shape, UOp, toposort

Sizes = tuple[tuple[int, ...], ...]  # of the axes that each axis of a weight becomes


def split_sizes(sink: UOp) -> dict[int, Sizes]:
    """The sizes by a weight's slot, where a kernel reads one of its axes by several ranges, and all
    loads of it by as many steps.
    """
    found: dict[int, set[Sizes]] = {}
    for node in toposort((sink,)):
        if node.op is ops.LOAD and node.src[0].op is ops.PARAM and node.src[0].arg.weight:
            shape, indices = node.src[0].arg.shape, access.indices_of(node)
            sizes = tuple(
                tuple(r.src[0].arg for r in _digits(index, size)) or (size,)
                for index, size in zip(indices, shape, strict=True)
            )
            found.setdefault(node.src[0].arg.slot, set()).add(sizes)
    same = {slot: sizes.pop() for slot, sizes in found.items() if len(sizes) == 1}
    return {slot: sizes for slot, sizes in same.items() if any(len(axis) > 1 for axis in sizes)}


def split_axes(sink: UOp, sizes: Mapping[int, Sizes]) -> UOp:
    """The kernel with these weights' axes split, all of them row-major."""

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.PARAM and node.arg.slot in sizes:
            shape = split_shape(sizes[node.arg.slot])
            arg = replace(node.arg, shape=shape, layout=row_major(shape))
            return UOp(ops.PARAM, node.dtype, (), arg)
        if node.op is ops.LOAD and node.src[0].op is ops.PARAM and node.src[0].arg.slot in sizes:
            new: list[UOp] = []
            for index, size in zip(access.indices_of(node), node.src[0].arg.shape, strict=True):
                new.extend(_digits(index, size) or (index,))
            return access.at(node.replace(src), new)
        return None

    return bottom_up((sink,), change)[sink]


def split_shape(sizes: Sizes) -> Shape:
    """The shape of a weight whose axes become axes of these sizes."""
    return tuple(size for axis in sizes for size in axis)


def _digits(index: UOp, size: int) -> tuple[UOp, ...]:
    """The ranges of an index that is a number of several digits, the highest one first, each of
    which counts to a range's size; none where it is not, or does not reach all of an axis.
    """
    polynomial = terms(index)
    if len(polynomial) < 2:
        return ()
    found: list[UOp] = []
    reached = 1
    for monomial, coefficient in sorted(polynomial.items(), key=lambda item: item[1]):
        if coefficient != reached or len(monomial) != 1 or monomial[0].op is not ops.RANGE:
            return ()
        (r,) = monomial
        if r.src[0].op is not ops.CONST:
            return ()
        found.insert(0, r)
        reached *= r.src[0].arg
    return tuple(found) if reached == size else ()
