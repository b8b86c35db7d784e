"""Which integer weights are worth packing into few bits."""

from __future__ import annotations

from typing import Any

from tinyedge.core.dtype import DType

WIDTHS = (2, 4, 8, 16)
FEWEST = 8192  # elements of a weight worth packing


def packed_bits(data: Any, dtype: DType) -> int:
    """Bits that each element of a weight is packed into; 0: it is not packed."""
    if data is None or not dtype.is_int or data.size <= FEWEST:
        return 0
    least, greatest = int(data.min()), int(data.max())
    for bits in WIDTHS:
        low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if least < 0 else (0, 1 << bits)
        if low <= least and greatest < high:
            return bits if bits <= dtype.bits else 0
    return 0
