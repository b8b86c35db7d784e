"""Arrays that begin at a chosen place of a cache line."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def shifted(array: Array, bytes: int) -> Array:
    """The same values, so many bytes behind a cache line."""
    whole = np.zeros(array.nbytes + 128, np.uint8)
    start = -whole.ctypes.data % 64 + bytes
    moved = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    moved[:] = array
    return moved
