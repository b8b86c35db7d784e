"""Operators and functions of each element, by the names that numpy, torch and tinygrad have.

Each is an operator's name, or a composition of a line or two; what is longer is a function in a
file of its subject.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tinyedge.core import dtype as dt
from tinyedge.core.tensor import activations, mathematics
from tinyedge.core.tensor.base import computed, given
from tinyedge.core.tensor.known import Known

if TYPE_CHECKING:
    from typing_extensions import Self


class Casts(Known):
    """Conversions to a type by its name."""

    __slots__ = ()

    def bool(self) -> Self:
        return self.cast(dt.bool_)

    def short(self) -> Self:
        return self.cast(dt.int16)

    def int(self) -> Self:
        return self.cast(dt.int32)

    def long(self) -> Self:
        return self.cast(dt.int64)

    def half(self) -> Self:
        return self.cast(dt.float16)

    def bfloat16(self) -> Self:
        return self.cast(dt.bfloat16)

    def float(self) -> Self:
        return self.cast(dt.float32)

    def double(self) -> Self:
        return self.cast(dt.float64)


class Arithmetic(Casts):
    """Operators by name, and functions of each element."""

    __slots__ = ()

    add = Known.__add__
    sub = Known.__sub__
    mul = Known.__mul__
    div = Known.__truediv__
    mod = Known.__mod__
    pow = Known.__pow__
    neg = Known.__neg__
    bitwise_and = Known.__and__
    bitwise_or = Known.__or__
    bitwise_xor = Known.__xor__
    bitwise_not = Known.__invert__
    lshift = Known.__lshift__
    rshift = Known.__rshift__
    clamp = Known.clip

    def logical_not(self) -> Self:
        return ~self.cast(dt.bool_)

    def square(self) -> Self:
        return self * self

    @computed
    def reciprocal(self) -> Self:
        return 1.0 / self

    @computed
    def rsqrt(self) -> Self:
        """1 / sqrt(x)."""
        return 1.0 / self.sqrt()

    @computed
    def exp2(self) -> Self:
        """2^x."""
        return self.full((), 2, self.dtype) ** self

    @computed
    def log2(self) -> Self:
        return self.log() * (1 / math.log(2))

    @computed
    def log10(self) -> Self:
        return self.log() * (1 / math.log(10))

    @computed
    def tan(self) -> Self:
        return self.sin() / self.cos()

    @computed
    def asin(self) -> Self:
        return mathematics.asin(self)

    @computed
    def acos(self) -> Self:
        return mathematics.acos(self)

    @computed
    def atan(self) -> Self:
        return mathematics.atan(self)

    @computed
    def sinh(self) -> Self:
        return mathematics.sinh(self)

    @computed
    def cosh(self) -> Self:
        return mathematics.cosh(self)

    @computed
    def asinh(self) -> Self:
        return mathematics.asinh(self)

    @computed
    def acosh(self) -> Self:
        return mathematics.acosh(self)

    @computed
    def atanh(self) -> Self:
        return mathematics.atanh(self)

    @computed
    def copysign(self, other: Any) -> Self:
        """|x| with the sign of `other`, of zeros too."""
        sign = self._operand(other)
        negative = (sign < 0) | (sign.eq(0) & ((1.0 / sign) < 0))
        size = self.abs()
        return negative.where(-size, size)

    @computed
    def logaddexp(self, other: Any) -> Self:
        """log(exp(x) + exp(other)), without overflow."""
        right = self._operand(other)
        most = self.maximum(right)
        apart = most.isinf().where(0.0, (self - right).abs())
        near = most + mathematics.log1p((-apart).exp())
        return most.isinf().where(self.eq(right).where(self, most), near)

    @computed
    def lerp(self, end: Self, weight: Any) -> Self:
        """x + (end - x) * weight."""
        moved: Self = self + (end - self) * weight
        return moved

    def isfinite(self) -> Self:
        return ~(self.isinf() | self.isnan())

    @computed
    def isclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Self:
        """|x - other| <= atol + rtol * |other|, and equal infinities."""
        right = self._operand(other)
        near = self.isfinite() & right.isfinite()
        near = near & ((self - right).abs() <= right.abs() * rtol + atol)
        same = near | self.eq(right)
        return same | (self.isnan() & right.isnan()) if equal_nan else same

    def allclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Whether all elements are close, a Python bool: it computes them."""
        close = self.isclose(other, rtol, atol, equal_nan).cast(dt.int32)
        return bool((close.min() if close.ndim else close).item())

    def masked_fill(self, mask: Self, value: Any) -> Self:
        """`value` where the mask is true."""
        return given(type(self), mask, "masked_fill").where(value, self)

    # Activations.

    @computed
    def celu(self, alpha: float = 1.0) -> Self:
        return activations.celu(self, alpha)

    @computed
    def elu(self, alpha: float = 1.0) -> Self:
        return activations.elu(self, alpha)

    @computed
    def selu(self, alpha: float = activations.SELU[0], gamma: float = activations.SELU[1]) -> Self:
        return activations.selu(self, alpha, gamma)

    @computed
    def gelu(self) -> Self:
        """x * Phi(x), exactly; tinygrad's is the approximation by tanh."""
        return mathematics.gelu(self)

    @computed
    def quick_gelu(self) -> Self:
        """x * sigmoid(1.702 x)."""
        return self * mathematics.sigmoid(self * 1.702)

    @computed
    def hardsigmoid(self, alpha: float = 1 / 6, beta: float = 0.5) -> Self:
        return activations.hard_sigmoid(self, alpha, beta)

    @computed
    def hardswish(self) -> Self:
        return activations.hard_swish(self)

    def hardtanh(self, low: float = -1.0, high: float = 1.0) -> Self:
        """x between two bounds."""
        return self.clip(low, high)

    def relu6(self) -> Self:
        """x between 0 and 6."""
        return self.clip(0, 6)

    @computed
    def leaky_relu(self, slope: float = 0.01) -> Self:
        return activations.leaky_relu(self, slope)

    @computed
    def mish(self) -> Self:
        return mathematics.mish(self)

    @computed
    def swish(self) -> Self:
        return mathematics.silu(self)

    @computed
    def softsign(self) -> Self:
        return activations.softsign(self)

    @computed
    def logsigmoid(self) -> Self:
        """log(sigmoid(x)), without overflow."""
        return -mathematics.softplus(-self)
