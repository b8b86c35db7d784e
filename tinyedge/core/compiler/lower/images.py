"""Kernels that read and write images: padding for free, whole pixels, coordinates."""

from __future__ import annotations

from tinyedge.core import dtype as dt
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.buffers import PIXEL, coordinates
from tinyedge.core.ir.polynomial import bounds, divisor, terms
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import Size, UOp, as_node, toposort


def free_guards(sink: UOp) -> UOp:
    """The kernel without conditions on loads from images where reading outside gives their zero."""
    return bottom_up((sink,), _freed)[sink]


def _freed(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    if node.op is not ops.LOAD or not node.arg or not access.is_image(node):
        return None
    load = node.replace(src)
    conditions = ix.conjuncts(access.guard_of(load))
    return access.under(ix.all_of(c for c in conditions if not _implied(c, *src[:2])), load)


def not_pixels(sink: UOp) -> set[int]:
    """Slots of an expanded kernel's images that it does not read or write in whole pixels, or does
    both.
    """
    found = set()
    used: dict[ops.Primitive, set[int]] = {ops.LOAD: set(), ops.STORE: set()}
    for node in toposort((sink,)):
        if node.op in access.ACCESSES and access.is_image(node):
            value = node if node.op is ops.LOAD else node.src[1]
            used[node.op].add(node.src[0].arg.slot)
            if value.dtype.lanes != PIXEL or divisor(*access.indices_of(node)) % PIXEL:
                found.add(node.src[0].arg.slot)
    return found | (used[ops.LOAD] & used[ops.STORE])


def to_coordinates(sink: UOp) -> UOp:
    """Loads from and stores to images at a pixel's x and y in place of an address."""
    return bottom_up((sink,), _at_coordinates)[sink]


def _at_coordinates(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    if node.op not in access.ACCESSES or not access.is_image(node):
        return None
    place, row = coordinates(*access.indices_of(node))
    pixel = as_node(place // PIXEL)
    return access.at(node.replace(src), (pixel, row))


def _implied(condition: UOp, param: UOp, address: UOp) -> bool:
    """Whether the address is outside of the image wherever the condition, a < b, is false."""
    if condition.op is not ops.LT or condition.src[0].dtype is not dt.index:
        return False
    a, b = condition.src
    wanted = b - a - 1  # at least 0 where the condition holds
    width, height = param.arg.layout.image(param.arg.shape)
    place, row = coordinates(address)
    last = (width * PIXEL - 1 - place, height - 1 - row)
    return any(_negative_with(inside, wanted) for inside in (place, row, *last))


def _negative_with(inside: Size, wanted: Size) -> bool:
    """Whether `inside` is below 0 wherever `wanted` is: inside <= factor * wanted + factor - 1."""
    polynomial = terms(inside)
    for monomial, coefficient in terms(wanted).items():
        if monomial and monomial in polynomial:
            factor, rest = divmod(polynomial[monomial], coefficient)
            if factor < 1 or rest:
                continue
            if bounds(inside - wanted * factor)[1] <= factor - 1:
                return True
    return False
