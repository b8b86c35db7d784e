"""Random numbers from keys, as `tinyedge.random` has them; see core/tensor/drawing.py."""

from __future__ import annotations

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.tensor.drawing import (
    Shape,
    bernoulli,
    bits,
    categorical,
    dropout,
    fold_in,
    normal,
    permutation,
    randint,
    split,
    threefry,
    uniform,
)
from tinyedge.core.tensor.tensor import Tensor

__all__ = [
    "Generator",
    "bernoulli",
    "bits",
    "categorical",
    "dropout",
    "fold_in",
    "key",
    "normal",
    "permutation",
    "randint",
    "split",
    "threefry",
    "uniform",
]


def key(seed: int) -> Tensor:
    """The key of a seed from 0 to 2^64 - 1."""
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed {seed}: it must be from 0 to 2^64 - 1")
    return Tensor(np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32))


class Generator:
    """A key for each call: for programs that draw here and there, and in one order.

    Where a function is compiled, give it keys in its arguments: it would keep the numbers of one
    call.
    """

    def __init__(self, seed: int) -> None:
        self._key = key(seed)
        self._drawn = 0

    def key(self) -> Tensor:
        """A key that was not given before."""
        self._drawn += 1
        return fold_in(self._key, self._drawn - 1)

    def uniform(
        self, shape: Shape, low: float = 0.0, high: float = 1.0, dtype: DType = dt.float32
    ) -> Tensor:
        """See `uniform`."""
        return uniform(self.key(), shape, low, high, dtype)

    def normal(
        self, shape: Shape, mean: float = 0.0, std: float = 1.0, dtype: DType = dt.float32
    ) -> Tensor:
        """See `normal`."""
        return normal(self.key(), shape, mean, std, dtype)

    def randint(self, shape: Shape, low: int, high: int, dtype: DType = dt.int32) -> Tensor:
        """See `randint`."""
        return randint(self.key(), shape, low, high, dtype)

    def permutation(self, x: int | Tensor) -> Tensor:
        """See `permutation`."""
        return permutation(self.key(), x)
