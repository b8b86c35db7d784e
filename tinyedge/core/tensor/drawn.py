"""Tensors of random numbers by the names that tinygrad has for them; each takes a key."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.tensor import drawing
from tinyedge.core.tensor.arrays import Arrays
from tinyedge.core.tensor.base import unpacked

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


def _given(key: T | None) -> T:
    """The key. Raises TypeError where none is given: nothing draws from a hidden state."""
    if key is None:
        raise TypeError("random numbers come from a key: give key=tinyedge.random.key(0)")
    return key


class Drawn(Arrays):
    """Random numbers of a `key`, by functions of `tinyedge.random`: one key gives one tensor."""

    __slots__ = ()

    @classmethod
    def rand(cls, *shape: Any, key: Self | None = None, dtype: DType = dt.float32) -> Self:
        """Floats in [0, 1), each as likely."""
        return drawing.uniform(_given(key), unpacked(shape), dtype=dtype)

    @classmethod
    def uniform(
        cls,
        *shape: Any,
        low: float = 0.0,
        high: float = 1.0,
        key: Self | None = None,
        dtype: DType = dt.float32,
    ) -> Self:
        """Floats in [low, high), each as likely."""
        return drawing.uniform(_given(key), unpacked(shape), low, high, dtype)

    @classmethod
    def randn(cls, *shape: Any, key: Self | None = None, dtype: DType = dt.float32) -> Self:
        """Normally distributed around 0, with a deviation of 1."""
        return drawing.normal(_given(key), unpacked(shape), dtype=dtype)

    @classmethod
    def normal(
        cls,
        *shape: Any,
        mean: float = 0.0,
        std: float = 1.0,
        key: Self | None = None,
        dtype: DType = dt.float32,
    ) -> Self:
        """Normally distributed around a mean."""
        return drawing.normal(_given(key), unpacked(shape), mean, std, dtype)

    @classmethod
    def randint(
        cls,
        *shape: Any,
        low: int = 0,
        high: int = 10,
        key: Self | None = None,
        dtype: DType = dt.int32,
    ) -> Self:
        """Integers low <= i < high."""
        return drawing.randint(_given(key), unpacked(shape), low, high, dtype)

    @classmethod
    def randperm(cls, n: int, *, key: Self | None = None) -> Self:
        """0 to n - 1 (int32) in a random order."""
        return drawing.permutation(_given(key), n)

    def rand_like(self, *, key: Self | None = None, dtype: DType | None = None) -> Self:
        """See `rand`."""
        return drawing.uniform(_given(key), self.shape, dtype=dtype or self.dtype)

    def randn_like(self, *, key: Self | None = None, dtype: DType | None = None) -> Self:
        """See `randn`."""
        return drawing.normal(_given(key), self.shape, dtype=dtype or self.dtype)

    @classmethod
    def scaled_uniform(cls, *shape: Any, **options: Any) -> Self:
        """Within 1 / sqrt(elements). key and dtype as `uniform`'s, here and below."""
        return cls._within(math.prod(unpacked(shape)), *shape, **options)

    @classmethod
    def glorot_uniform(cls, *shape: Any, **options: Any) -> Self:
        """Within sqrt(6 / (outputs + inputs)): X. Glorot and Y. Bengio, 2010."""
        first, *rest = unpacked(shape)
        return cls._within((first + math.prod(rest)) / 6, *shape, **options)

    @classmethod
    def kaiming_uniform(cls, *shape: Any, a: float = 0.01, **options: Any) -> Self:
        """Within sqrt(6 / (1 + a^2) / inputs): K. He and others, 2015."""
        inputs = math.prod(unpacked(shape)[1:])
        return cls._within((1 + a * a) * inputs / 6, *shape, **options)

    @classmethod
    def kaiming_normal(cls, *shape: Any, a: float = 0.01, **options: Any) -> Self:
        """With a deviation of sqrt(2 / (1 + a^2) / inputs): K. He and others, 2015."""
        inputs = math.prod(unpacked(shape)[1:])
        return cls.normal(*shape, std=math.sqrt(2 / max(1, inputs) / (1 + a * a)), **options)

    @classmethod
    def _within(cls, part: float, *shape: Any, **options: Any) -> Self:
        bound = math.sqrt(1 / part) if part else 0.0
        return cls.uniform(*shape, low=-bound, high=bound, **options)

    def multinomial(
        self, num_samples: int = 1, replacement: bool = False, *, key: Self | None = None
    ) -> Self:
        """int32 [*, num_samples]: places along the last axis, each with a chance in proportion to
        its weight. replacement: a place may be drawn again. Raises ValueError.
        """
        length = self.shape[-1] if self.ndim else 0
        if not 1 <= self.ndim <= 2 or num_samples < 1:
            raise ValueError(f"{num_samples} draws from weights {list(self.shape)}")
        if not replacement and isinstance(length, int) and num_samples > length:
            raise ValueError(f"{num_samples} draws of {length} places without replacement")
        logits = self.cast(dt.float64 if self.dtype is dt.float64 else dt.float32).log()
        if not replacement:
            return drawing.without_replacement(_given(key), logits, num_samples)
        drawn = drawing.categorical(_given(key), logits, shape=(num_samples,))
        return drawn.transpose() if drawn.ndim == 2 else drawn

    def dropout(self, p: float = 0.5, *, key: Self | None = None) -> Self:
        """Elements are 0 with a chance of p, others divided by 1 - p. `nn.Dropout` does it in
        training alone.
        """
        return drawing.dropout(self, _given(key), p)
