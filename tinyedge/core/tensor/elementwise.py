"""Elementwise arithmetic, as Python's operators and as methods."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.ops import Primitive
from tinyedge.core.ir.uop import UOp, elementwise, toposort
from tinyedge.core.tensor.base import Lazy, computed, scalar
from tinyedge.core.tensor.movement import Movement, broadcast

if TYPE_CHECKING:
    from typing_extensions import Self

_OF_FLOATS = (ops.EXP, ops.LOG, ops.SQRT, ops.SIN, ops.COS, ops.TANH)


class Elementwise(Movement):
    """Operations on every element."""

    __slots__ = ()

    def _operand(self, other: Any) -> Self:
        """What is given beside a tensor, as one; a Python number takes the tensor's type."""
        if isinstance(other, type(self)):
            return other
        if isinstance(other, (UOp, np.ndarray)):
            return type(self)(other)
        return type(self)(scalar(other, self.dtype))

    @computed
    def _binary(self, op: Primitive, other: Any, *, reverse: bool = False) -> Self:
        right = self._operand(other)
        if right.dtype is not self.dtype:
            raise TypeError(f"{op.name} of {self.dtype} and {right.dtype}: cast one of them")
        a, b = broadcast(self, right)
        if reverse:
            a, b = b, a
        return type(self)(elementwise(op, a.node, b.node))

    @computed
    def _unary(self, op: Primitive) -> Self:
        if op in _OF_FLOATS and not self.dtype.is_float:
            raise TypeError(f"{op.name} of {self.dtype}: cast it")
        return type(self)(elementwise(op, self.node))

    def __add__(self, other: Any) -> Self:
        return self._binary(ops.ADD, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self._binary(ops.SUB, other)

    def __rsub__(self, other: Any) -> Self:
        return self._binary(ops.SUB, other, reverse=True)

    def __mul__(self, other: Any) -> Self:
        if self.dtype is dt.bool_:
            return self._binary(ops.AND, other)
        return self._binary(ops.MUL, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        """Float division; integers divide truncating toward zero."""
        return self._binary(ops.DIV if self.dtype.is_float else ops.TRUNCDIV, other)

    def __rtruediv__(self, other: Any) -> Self:
        op = ops.DIV if self.dtype.is_float else ops.TRUNCDIV
        return self._binary(op, other, reverse=True)

    def __floordiv__(self, other: Any) -> Self:
        if self.dtype.is_float:
            return (self / self._operand(other)).floor()
        return self._binary(ops.FLOORDIV, other)

    @computed
    def __mod__(self, other: Any) -> Self:
        """The remainder with the divisor's sign, as in Python and numpy."""
        if self.dtype.is_float:
            divisor = self._operand(other)
            remainder = self.fmod(divisor)
            wrong = remainder.ne(0) & ((remainder < 0) ^ (divisor < 0))
            return wrong.where(remainder + divisor, remainder)
        return self._binary(ops.MOD, other)

    @computed
    def fmod(self, other: Any) -> Self:
        """The remainder with the dividend's sign, as in C: of floats without rounding."""
        if self.dtype.is_float:
            return self._binary(ops.FMOD, other)
        divisor = self._operand(other)
        return self - (self / divisor) * divisor

    @computed
    def __pow__(self, other: Any) -> Self:
        if isinstance(other, (int, float)) and self.dtype.is_float:
            simple = self._simple_power(float(other))
            if simple is not None:
                return simple
        if not self.dtype.is_float:
            return self._whole_power(other)
        return self._binary(ops.POW, other)

    def _whole_power(self, exponent: Any) -> Self:
        """Of integers, by squares. Raises TypeError unless the exponent is a whole number."""
        if isinstance(exponent, (bool, float, Lazy)) or not hasattr(exponent, "__index__"):
            raise TypeError(f"pow of {self.dtype} by {type(exponent).__name__}: cast it to floats")
        left = operator.index(exponent)
        if left < 0:
            raise ValueError(f"pow of {self.dtype} by {left}: cast it to floats")
        result, square = self.full(self.shape, 1, self.dtype), self
        while left:
            result = result * square if left & 1 else result
            square = square * square
            left >>= 1
        return result

    def __rpow__(self, other: Any) -> Self:
        return self._operand(other) ** self

    def __rfloordiv__(self, other: Any) -> Self:
        return self._operand(other) // self

    def __rmod__(self, other: Any) -> Self:
        return self._operand(other) % self

    def __pos__(self) -> Self:
        return self

    def _simple_power(self, exponent: float) -> Self | None:
        if exponent == 2.0:
            return self * self
        if exponent == 3.0:
            return self * self * self
        if exponent == 1.0:
            return self
        if exponent == 0.5:  # a square root differs where a power is infinite, or 0
            return self.eq(-math.inf).where(math.inf, self.sqrt())
        if exponent == -1.0:
            return 1.0 / self
        if exponent == -0.5:
            finite = self.eq(-math.inf).where(0.0, 1.0 / self.sqrt())
            return self.eq(0).where(math.inf, finite)
        return None

    def __neg__(self) -> Self:
        return self._unary(ops.NEG)

    def __invert__(self) -> Self:
        if self.dtype.is_float:
            raise TypeError(f"not of {self.dtype}: it takes bools or integers")
        return self._unary(ops.NOT)

    def __and__(self, other: Any) -> Self:
        return self._bitwise(ops.AND, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Self:
        return self._bitwise(ops.OR, other)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Self:
        return self._bitwise(ops.XOR, other)

    __rxor__ = __xor__

    def _bitwise(self, op: Primitive, other: Any) -> Self:
        if self.dtype.is_float:
            raise TypeError(f"{op.name} of {self.dtype}: it takes bools or integers")
        return self._binary(op, other)

    def __lshift__(self, other: Any) -> Self:
        return self._bitwise(ops.SHL, other)

    def __rshift__(self, other: Any) -> Self:
        return self._bitwise(ops.SHR, other)

    def __lt__(self, other: Any) -> Self:
        return self._binary(ops.LT, other)

    def __le__(self, other: Any) -> Self:
        return self._binary(ops.LE, other)

    def __gt__(self, other: Any) -> Self:
        return self._binary(ops.LT, other, reverse=True)

    def __ge__(self, other: Any) -> Self:
        return self._binary(ops.LE, other, reverse=True)

    def eq(self, other: Any) -> Self:
        return self._binary(ops.EQ, other)

    def ne(self, other: Any) -> Self:
        return ~self.eq(other)

    def maximum(self, other: Any) -> Self:
        """The greater; NaN where either is NaN."""
        if self.dtype is dt.bool_:
            return self | self._operand(other)
        return self._binary(ops.MAX, other)

    def minimum(self, other: Any) -> Self:
        """The lesser; NaN where either is NaN."""
        if self.dtype is dt.bool_:
            return self & self._operand(other)
        return self._binary(ops.MIN, other)

    def where(self, yes: Any, no: Any) -> Self:
        """yes where self (bool) is true, else no."""
        if self.dtype is not dt.bool_:
            raise TypeError(
                f"where by {self.dtype}: its condition is of bools, as x > 0 gives them"
            )
        yes, no = (type(self)(b) if isinstance(b, np.ndarray) else b for b in (yes, no))
        if not isinstance(yes, Lazy) and not isinstance(no, Lazy):
            raise TypeError("where needs a tensor as one of its branches")
        yes = no._operand(yes) if not isinstance(yes, Lazy) else yes
        no = yes._operand(no)
        if yes.dtype is not no.dtype:
            raise TypeError(f"where of {yes.dtype} and {no.dtype}: cast one of them")
        condition, yes, no = broadcast(self, yes, no)
        return type(self)(elementwise(ops.WHERE, condition.node, yes.node, no.node))

    def exp(self) -> Self:
        return self._unary(ops.EXP)

    def log(self) -> Self:
        return self._unary(ops.LOG)

    def sqrt(self) -> Self:
        return self._unary(ops.SQRT)

    def sin(self) -> Self:
        return self._unary(ops.SIN)

    def cos(self) -> Self:
        return self._unary(ops.COS)

    def tanh(self) -> Self:
        return self._unary(ops.TANH)

    def floor(self) -> Self:
        return self._unary(ops.FLOOR) if self.dtype.is_float else self

    def ceil(self) -> Self:
        return -((-self).floor()) if self.dtype.is_float else self

    def trunc(self) -> Self:
        return self._unary(ops.TRUNC) if self.dtype.is_float else self

    def round(self) -> Self:
        """To the nearest integer, halves to even."""
        return self._unary(ops.ROUND) if self.dtype.is_float else self

    def abs(self) -> Self:
        return self._unary(ops.ABS) if self.dtype.kind in "if" else self

    __abs__ = abs

    def isnan(self) -> Self:
        if not self.dtype.is_float:
            return self.full(self.shape, False, dt.bool_)
        return self._unary(ops.ISNAN)

    def isinf(self) -> Self:
        if not self.dtype.is_float:
            return self.full(self.shape, False, dt.bool_)
        return self.abs().eq(math.inf)

    def sign(self) -> Self:
        """-1, 0 or 1; NaN stays NaN."""
        one = self._operand(1)
        positive = (self > 0).where(one, self)
        if self.dtype.kind == "u":
            return positive
        return (self < 0).where(self._operand(-1), positive)

    def detach(self) -> Self:
        """The same values, as constants: no gradient flows through them."""
        if not self.dtype.is_float:
            return self
        return type(self)(UOp(ops.STOP_GRADIENT, self.dtype, (self.node,)))

    def in_full(self) -> Self:
        """The same values, of which a state's new value is made: in bundles of fp16, too, all that
        is computed from here to there stays float32.
        """
        near = toposort((self.node,), stop=lambda n: n.op is ops.IN_FULL or not n.op.elementwise)
        if not self.dtype.is_float or any(n.op is ops.IN_FULL for n in near):
            return self
        return type(self)(UOp(ops.IN_FULL, self.dtype, (self.node,)))

    def relu(self) -> Self:
        """The greater of x and 0; NaN stays NaN."""
        return (self < 0).where(self._operand(0), self)

    def clip(self, low: Any = None, high: Any = None) -> Self:
        """min(max(x, low), high): crossed bounds give `high`. A bound that is None is absent."""
        result = self
        if low is not None:
            result = result.maximum(low)
        if high is not None:
            result = result.minimum(high)
        return result
