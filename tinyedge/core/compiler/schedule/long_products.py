"""Products of several factors, whose parts are neither too great nor too small for their type.

    y = product of x[r]  ->  x[r] = m[r] * 2^e[r], 1 <= |m[r]| < 2
                             p[j] = product of m[64*j + r], s[j] = sum of e[64*j + r], r in 0..64
                             (or fewer, of which so many divide the count), and of p again, until
                             there are at most 64; y = p * 2^s

Whichever factors a kernel multiplies first, what they give would soon be infinite or 0 although the
whole is not, and NaN where both meet: of 8 factors, of which four are 1e30 and four 1e-30, each
lane of a vector may have one kind. Two factors have no parts.
"""

from __future__ import annotations

from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import divisor
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Size, UOp
from tinyedge.core.tensor.powers import BLOCK, FORMATS, kept, parts, times_power
from tinyedge.core.tensor.tensor import Tensor

# A sum of exponents is low + DIGIT * high: of so many that no int32 may hold it.
DIGIT = 1 << 16
BEYOND = 1 << 10  # an upper half of which no type holds the power
LEAST = 16  # elements of a block
WHOLE = 8  # of a vector


def scale_long_products(roots: tuple[UOp, ...], *, fp16_storage: bool) -> dict[UOp, UOp]:
    """Every node of the graph, mapped to one whose products are scaled."""

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return _scaled(node.replace(src), fp16_storage) if _has_parts(node) else None

    return bottom_up(roots, change)


def _has_parts(node: UOp) -> bool:
    if node.op is not ops.REDUCE or node.arg.op is not ops.MUL or node.dtype not in FORMATS:
        return False
    sizes = [node.src[0].shape[axis] for axis in node.arg.axes]
    return maximum(product(sizes)) > 2


def _scaled(node: UOp, fp16_storage: bool) -> UOp:
    x, axes = Tensor(node.src[0]), node.arg.axes
    left = [axis for axis in range(x.ndim) if axis not in axes]
    m, low = parts(x.permute([*left, *axes]).flatten(len(left)))
    high: Tensor | None = None
    while maximum(m.shape[-1]) > BLOCK:
        m, more = parts(_product(_blocks(m, 1), fp16_storage))
        m, low = kept(m), (_blocks(low, 0).sum(-1) + more).in_memory()
        if maximum(m.shape[-1]) > BLOCK:
            above = None if high is None else _blocks(high, 0).sum(-1).in_memory()
            low, high = low & (DIGIT - 1), _carried(low, above)
        elif high is not None:
            high = _blocks(high, 0).sum(-1).in_memory()
    m, more = parts(_product(m, fp16_storage))
    e = low.sum(-1)
    if high is not None:
        upper = _carried(e, high.sum(-1)).clip(-BEYOND, BEYOND)
        e = (e & (DIGIT - 1)) + upper * DIGIT
    e = e + more
    result: Tensor = times_power(m, e).reshape(node.shape)
    return result.node


def _product(m: Tensor, fp16_storage: bool) -> Tensor:
    """Along the last axis; what a kernel may write of it is no half."""
    return kept(m.prod(-1)) if fp16_storage else m.prod(-1)


def _carried(low: Tensor, high: Tensor | None) -> Tensor:
    """The upper half of a sum, with what its lower one has above its digit."""
    carried = low // DIGIT
    return carried if high is None else high + carried


def _blocks(x: Tensor, value: int) -> Tensor:
    """x [.., n] in blocks of its elements, `value` behind the last."""
    length = x.shape[-1]
    size = _block(length)
    count = ix.ceildiv(length, size)
    padded = x.pad([*((0, 0) for _ in x.shape[:-1]), (0, count * size - length)], value)
    return padded.reshape((*x.shape[:-1], count, size))


def _block(length: Size) -> int:
    """How many elements a block has: so many that they are whole vectors and none is padding, if
    that can be.
    """
    sizes = [size for size in range(BLOCK, LEAST - 1, -1) if divisor(length) % size == 0]
    return next((size for size in sizes if size % WHOLE == 0), sizes[0] if sizes else BLOCK)
