"""Products of very many factors, whose parts are neither too great nor too small for their type.

    y = product of x[r]  ->  x[r] = m[r] * 2^e[r], 1 <= |m[r]| < 2
                             p[j] = product of m[64*j + r], s[j] = sum of e[64*j + r], r in 0..64
                             and of p again, until there is one; y = p * 2^s

Whichever factors a kernel multiplies first, what they give would soon be infinite or 0 although the
whole is not: of 262,144 factors of 2 and 1/2 in turn, each lane of a vector has one kind. Zeros,
infinities, NaN and what is below the least normal number are their own m.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import UOp
from tinyedge.core.tensor.base import fixed
from tinyedge.core.tensor.tensor import Tensor

MANY = 1024  # factors: of fewer, those of one lane or thread are few
MOST = 2**24  # what a block's exponents may come to, so that no sum of theirs wraps
BLOCK = 64  # numbers below 2 whose product is finite


@dataclass(frozen=True)
class _Format:
    """The bits of a float: of its fraction and of its exponent, and the integer that holds it."""

    fraction: int
    exponent: int
    held: DType

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def greatest(self) -> int:
        """What the exponent's bits are of infinities and NaN."""
        return (1 << self.exponent) - 1


FORMATS = {dt.float32: _Format(23, 8, dt.int32), dt.float64: _Format(52, 11, dt.int64)}


def scale_long_products(roots: tuple[UOp, ...]) -> dict[UOp, UOp]:
    """Every node of the graph, mapped to one whose products of many factors are scaled."""

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return _scaled(node.replace(src)) if _is_long(node) else None

    return bottom_up(roots, change)


def _is_long(node: UOp) -> bool:
    if node.op is not ops.REDUCE or node.arg.op is not ops.MUL or node.dtype not in FORMATS:
        return False
    count = product(node.src[0].shape[axis] for axis in node.arg.axes)
    return isinstance(count, int) and count > MANY


def _scaled(node: UOp) -> UOp:
    x, axes = Tensor(node.src[0]), node.arg.axes
    left = [axis for axis in range(x.ndim) if axis not in axes]
    lines = x.permute([*left, *axes]).flatten(len(left))
    of = FORMATS[node.dtype]
    total: Tensor | None = None  # the sums of exponents, of as many blocks as there are
    while fixed(lines.shape[-1]) > 1:
        m, e = _parts(lines, of)
        e = e if total is None else e + total
        sums = _blocks(e, 0).sum(-1).clip(-MOST, MOST)
        # Kept as its bits, which no precision of memory rounds.
        products = _blocks(m, 1).prod(-1).bitcast(of.held)
        lines, total = products.in_memory().bitcast(node.dtype), sums.in_memory()
    assert total is not None
    m, e = _parts(lines, of)
    result: Tensor = _times_power(m, e + total, of).reshape(node.shape)
    return result.node


def _parts(x: Tensor, of: _Format) -> tuple[Tensor, Tensor]:
    """m and e of x = m * 2^e."""
    bits = x.bitcast(of.held)
    field = (bits >> of.fraction) & of.greatest
    special = field.eq(0) | field.eq(of.greatest)
    one = (bits & ~(of.greatest << of.fraction)) | (of.bias << of.fraction)
    e = special.where(0, (field - of.bias).cast(dt.int32))
    return special.where(x, one.bitcast(x.dtype)), e


def _blocks(x: Tensor, value: int) -> Tensor:
    """x [.., n] in blocks of its elements, `value` behind the last."""
    count = fixed(x.shape[-1])
    padded = x.pad([*((0, 0) for _ in x.shape[:-1]), (0, -count % BLOCK)], value)
    return padded.reshape((*x.shape[:-1], -(-count // BLOCK), BLOCK))


def _times_power(m: Tensor, e: Tensor, of: _Format) -> Tensor:
    """m * 2^e, where the power may be none that the type has: by two factors."""
    most = 2 * of.bias
    bounded = e.clip(2 - most, most).cast(of.held)
    first = bounded >> 1
    for each in (first, bounded - first):
        m = m * ((each + of.bias) << of.fraction).bitcast(m.dtype)
    return m
