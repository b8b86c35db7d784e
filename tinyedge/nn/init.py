"""First values of parameters, drawn as torch draws them: other numbers, the same distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.tensor import random
from tinyedge.core.tensor.tensor import Tensor

_generator = [random.Generator(0)]


def seed(number: int) -> None:
    """Where layers without a key draw their first values from: each after the one before."""
    _generator[0] = random.Generator(number)


class Draws:
    """First values of one layer's parameters, each from a key of its own."""

    def __init__(self, key: Tensor | None, dtype: DType = dt.float32) -> None:
        self.key = _generator[0].key() if key is None else key
        self._drawn = 0
        self.dtype = dtype

    def _next(self) -> Tensor:
        self._drawn += 1
        return random.fold_in(self.key, self._drawn - 1)

    def held(self, name: str, values: Tensor) -> Tensor:
        """Values that are computed once, now, without a device."""
        return Tensor.weight(name, evaluate([values.node], {})[0]).cast(self.dtype)

    def uniform(self, name: str, shape: Sequence[int], bound: float) -> Tensor:
        """Between -bound and bound."""
        return self.held(name, random.uniform(self._next(), shape, -bound, bound))

    def normal(self, name: str, shape: Sequence[int], std: float = 1.0) -> Tensor:
        """Normally distributed around 0."""
        return self.held(name, random.normal(self._next(), shape, 0.0, std))

    def xavier(self, name: str, shape: tuple[int, int]) -> Tensor:
        """Uniform within sqrt(6 / (rows + columns)): X. Glorot and Y. Bengio, 2010."""
        return self.uniform(name, shape, math.sqrt(6 / sum(shape)))

    def full(self, name: str, shape: Sequence[int], value: float) -> Tensor:
        """All alike."""
        return Tensor.weight(name, np.full(tuple(shape), value, np.float32)).cast(self.dtype)
