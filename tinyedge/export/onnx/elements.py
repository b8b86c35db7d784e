"""Symbolic integers as array elements: ints, index expressions, and sizes divided by a constant."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Union

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import bounds, divisor, terms
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import minimum
from tinyedge.core.ir.uop import Size, UOp, as_node


@dataclass(frozen=True)
class Quotient:
    """size / denominator, the value of symbolic sizes in float arithmetic; denominator > 0."""

    size: Size
    denominator: Size


Element = Union[bool, int, float, UOp, Quotient]
_MAX_DENOMINATOR = 1 << 12
_GREATEST = 1 << 62  # what the models' int64 holds, with room for a sum
_MOST_TERMS = 1000  # of a polynomial
_MOST_FACTORS = 64  # of a term: what is 0 or 1 stays small however often it is squared


class NotKnown(Exception):
    """A primitive has no value for these operands."""


def _checked(size: Size) -> Size:
    """A size that is neither beyond int64 nor a polynomial without end. Raises NotKnown."""
    low, high = (size, size) if isinstance(size, int) else bounds(size)
    if low < -_GREATEST or high > _GREATEST:
        raise NotKnown
    if isinstance(size, UOp) and len(terms(size)) > _MOST_TERMS:
        raise NotKnown
    return size


def _times(a: Size, b: Size) -> Size:
    if isinstance(a, UOp) and isinstance(b, UOp):
        if len(terms(a)) * len(terms(b)) > _MOST_TERMS:
            raise NotKnown
        if _factors(a) + _factors(b) > _MOST_FACTORS:
            raise NotKnown
    return a * b


def _factors(size: UOp) -> int:
    """The degree of a polynomial."""
    return max(map(len, terms(size)), default=0)


def _quotient(size: Size, denominator: Size) -> Element:
    """size / denominator, where both are integers in lowest terms."""
    size = _checked(size)
    if isinstance(denominator, UOp):
        return _open_quotient(size, _checked(denominator))
    if isinstance(size, int):
        return size / denominator if size % denominator else size // denominator
    common = math.gcd(divisor(size), denominator)
    if common > 1:
        reduced = size // common
        if isinstance(reduced, int):
            return _quotient(reduced, denominator // common)
        size, denominator = reduced, denominator // common
    if denominator == 1:
        return size
    if denominator > _MAX_DENOMINATOR:
        raise NotKnown
    return Quotient(size, denominator)


def _open_quotient(size: Size, denominator: Size) -> Element:
    if size == denominator:
        return 1
    if size % denominator == 0:
        return size // denominator
    return Quotient(size, denominator)


def _parts(value: Element) -> tuple[Size, Size]:
    """An element as size / denominator; floats that are no small fraction are not representable."""
    if isinstance(value, Quotient):
        return value.size, value.denominator
    if isinstance(value, UOp):
        return value, 1
    if not math.isfinite(value):
        raise NotKnown
    fraction = Fraction(value)
    if fraction.denominator > _MAX_DENOMINATOR:
        raise NotKnown
    return fraction.numerator, fraction.denominator


def caster(dtype: DType) -> Callable[[Element], Element]:
    """A cast to a type. Raises NotKnown for a stored one, which rounds as no expression does."""
    if dtype.storage_type:
        raise NotKnown

    def call(value: Element) -> Element:
        if dtype.kind == "b":
            return _not(_equal(value, 0))
        if dtype.is_float or (dtype is dt.index and not isinstance(value, Quotient)):
            return value
        return _truncated(value)

    return call


def _add(a: Element, b: Element) -> Element:
    (x, p), (y, q) = _parts(a), _parts(b)
    return _quotient(_times(x, q) + _times(y, p), _times(p, q))


def _subtract(a: Element, b: Element) -> Element:
    return _add(a, _negative(b))


def _negative(a: Element) -> Element:
    x, p = _parts(a)
    return _quotient(-x, p)


def _multiply(a: Element, b: Element) -> Element:
    (x, p), (y, q) = _parts(a), _parts(b)
    return _quotient(_times(x, y), _times(p, q))


def _divide(a: Element, b: Element) -> Element:
    (x, p), (y, q) = _parts(a), _parts(b)
    if isinstance(y, int):
        if y == 0:
            raise NotKnown
        sign = -1 if y < 0 else 1
        return _quotient(_times(x, q * sign), p * abs(y))
    bottom = _times(y, p)
    if minimum(bottom) <= 0:
        raise NotKnown
    return _quotient(_times(x, q), bottom)


def steps_between(first: Element, last: Element, step: Element) -> Size:
    """ceil((last - first) / step). Raises NotKnown."""
    (x, p), (y, q) = _parts(_subtract(last, first)), _parts(step)
    if not isinstance(y, int) or y == 0:
        raise NotKnown
    return ix.ceildiv(_times(x, q * (1 if y > 0 else -1)), p * abs(y))


def _floor(a: Element) -> Element:
    x, p = _parts(a)
    return x // p


def _truncated(a: Element) -> Element:
    x, p = _parts(a)
    return x if p == 1 else _toward_zero(x, p)


def _toward_zero(x: Size, y: Size) -> Size:
    """x / y for y > 0."""
    up, down = ix.maximum(x, 0), ix.maximum(-x, 0)
    return up // y - down // y


def _floor_divide(a: Element, b: Element) -> Element:
    (x, p), (y, q) = _parts(a), _parts(b)
    if p != 1 or q != 1 or minimum(y) <= 0:
        raise NotKnown
    return x // y


def _truncated_divide(a: Element, b: Element) -> Element:
    x, y = _size(a), _size(b)
    if isinstance(y, int) and y < 0:
        x, y = -x, -y
    if minimum(y) <= 0:
        raise NotKnown
    return _toward_zero(x, y)


def _remainder(a: Element, b: Element) -> Element:
    x, y = _size(a), _size(b)
    if minimum(y) <= 0:
        raise NotKnown
    return x % y


def _size(a: Element) -> Size:
    size, denominator = _parts(a)
    if denominator != 1:
        raise NotKnown
    return size


def _greater(a: Element, b: Element) -> Element:
    return ix.maximum(_size(a), _size(b))


def _lesser(a: Element, b: Element) -> Element:
    return ix.minimum(_size(a), _size(b))


def _decided(node: UOp) -> bool:
    if node.op is not ops.CONST:
        raise NotKnown
    return bool(node.arg)


def _compare(a: Element, b: Element) -> tuple[UOp, UOp]:
    (x, p), (y, q) = _parts(a), _parts(b)
    return as_node(_times(x, q)), as_node(_times(y, p))


def _equal(a: Element, b: Element) -> bool:
    return _decided(ix.eq(*_compare(a, b)))


def _less(a: Element, b: Element) -> bool:
    return _decided(ix.lt(*_compare(a, b)))


def _less_or_equal(a: Element, b: Element) -> bool:
    x, y = _compare(a, b)
    return not _decided(ix.lt(y, x))


def _not(a: Element) -> Element:
    if not isinstance(a, bool):
        raise NotKnown
    return not a


def _logical(function: Callable[[bool, bool], bool]) -> Callable[..., Element]:
    def call(a: Element, b: Element) -> Element:
        if not isinstance(a, bool) or not isinstance(b, bool):
            raise NotKnown
        return function(a, b)

    return call


def _where(condition: Element, yes: Element, no: Element) -> Element:
    if not isinstance(condition, bool):
        raise NotKnown
    return yes if condition else no


def _absolute(a: Element) -> Element:
    x, _ = _parts(a)
    if isinstance(x, UOp) and bounds(x)[0] < 0:
        raise NotKnown
    return abs(a) if isinstance(a, (int, float)) else a


ELEMENTWISE: dict[ops.Primitive, Callable[..., Any]] = {
    ops.ADD: _add,
    ops.SUB: _subtract,
    ops.NEG: _negative,
    ops.MUL: _multiply,
    ops.DIV: _divide,
    ops.FLOORDIV: _floor_divide,
    ops.TRUNCDIV: _truncated_divide,
    ops.MOD: _remainder,
    ops.MAX: _greater,
    ops.MIN: _lesser,
    ops.FLOOR: _floor,
    ops.TRUNC: _truncated,
    ops.ABS: _absolute,
    ops.EQ: _equal,
    ops.LT: _less,
    ops.LE: _less_or_equal,
    ops.NOT: _not,
    ops.AND: _logical(lambda a, b: a and b),
    ops.OR: _logical(lambda a, b: a or b),
    ops.XOR: _logical(lambda a, b: a != b),
    ops.WHERE: _where,
}
