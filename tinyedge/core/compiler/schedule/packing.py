"""Integer weights in as few bits as their values take, several in a 32-bit word.

    q[a]  ->  word[a / n] >> (a % n) * bits & mask        n = 32 / bits; the first in the low bits

Kernels unpack with 32-bit arithmetic, which every device has, in vectors too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.buffers import TensorBuffer
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.rules.algebra import simplify
from tinyedge.core.ir.uop import UOp, as_node, cast, const, elementwise

CHUNK = 1 << 16  # words that are packed at a time


def pack(values: Any, bits: int) -> Any:
    """Elements in memory's order as words, padded with zeros."""
    each = 32 // bits
    flat = values.reshape(-1)
    words = np.empty(-(-len(flat) // each), np.uint32)
    for start in range(0, len(words), CHUNK):
        codes = flat[start * each : (start + CHUNK) * each].astype(np.int64).astype(np.uint32)
        codes &= np.uint32((1 << bits) - 1)
        codes = np.pad(codes, (0, -len(codes) % each)).reshape(-1, each)
        codes <<= np.arange(0, 32, bits, dtype=np.uint32)
        words[start : start + CHUNK] = np.bitwise_or.reduce(codes, axis=1)
    return words


def unpack(sink: UOp, storages: Sequence[TensorBuffer]) -> UOp:
    """A kernel with flat addresses: what it loads of packed weights is unpacked."""
    if not any(storage.bits for storage in storages):
        return sink
    wide: dict[UOp, UOp] = {}

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.LOAD and storages[node.src[0].arg.slot].bits:
            wide[node] = _element(node.replace(src), storages[node.src[0].arg.slot])
            return cast(wide[node], node.dtype)
        if node.op is ops.CAST and node.src[0] in wide:
            return cast(wide[node.src[0]], node.dtype)
        return None

    return bottom_up((sink,), change)[sink]


def _element(load: UOp, storage: TensorBuffer) -> UOp:
    """The element that a load means: an int32, or a uint32 where none is negative."""
    bits, each = storage.bits, 32 // storage.bits
    param, address = UOp(ops.PARAM, dt.uint32, (), load.src[0].arg), load.src[1]
    word = access.load(param, (as_node(address // each),), access.guard_of(load))
    place = as_node(address % each * bits)
    if storage.data.min() < 0:
        above = cast(as_node(32 - bits - place), dt.uint32)
        high = cast(elementwise(ops.SHL, word, simplify(above)), dt.int32)
        return elementwise(ops.SHR, high, const(32 - bits, dt.int32))
    low = elementwise(ops.SHR, word, simplify(cast(place, dt.uint32)))
    return elementwise(ops.AND, low, const((1 << bits) - 1, dt.uint32))
