"""Tensor: a lazy array. Operations build a graph of primitives; nothing is computed yet."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Union

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.loops import LoopInfo
from tinyedge.core.ir.ops import Primitive
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import (
    Shape,
    Size,
    UOp,
    cast,
    const,
    elementwise,
    maximum,
    minimum,
    product,
)
from tinyedge.core.tensor import functions

MANY_TERMS = 32768  # of a float sum: beyond it they are summed by blocks
BLOCKS = (256, 4096)  # terms of a block
MANY_TURNS = 2048  # of a loop: beyond it the program holds one iteration and counts

Scalar = Union[bool, int, float]
Axes = Union[int, Sequence[int], None]
Method = TypeVar("Method", bound=Callable[..., Any])


def _computed(method: Method) -> Method:
    """A method's arithmetic on a stored type is done in another; its result is rounded once."""

    @functools.wraps(method)
    def call(self: Tensor, *operands: Any, **options: Any) -> Tensor:
        dtype = self.dtype
        if not dtype.storage_type:
            return method(self, *operands, **options)  # type: ignore[no-any-return]
        for other in operands:
            if isinstance(other, Tensor) and other.dtype is not dtype:
                raise TypeError(f"an operation on {dtype} and {other.dtype}: cast one of them")
        wide = (o.cast(dtype.computed) if isinstance(o, Tensor) else o for o in operands)
        result: Tensor = method(self.cast(dtype.computed), *wide, **options)
        return result.cast(dtype) if result.dtype is dtype.computed else result

    return call  # type: ignore[return-value]


class UnequalSizes(ValueError):
    """`sizes` must be equal, and are not or not always."""

    def __init__(self, message: str, sizes: tuple[Size, Size]) -> None:
        super().__init__(message)
        self.sizes = sizes


class Tensor:
    """A lazy array over `node`, a graph of primitives.

    Sizes in `shape` are ints, or index expressions where a size is symbolic. Elementwise operations
    broadcast as in numpy; both operands must have one dtype, except that Python scalars take the
    tensor's.
    """

    __slots__ = ("node",)

    # numpy's operators leave a Tensor on their right to the Tensor.
    __array_ufunc__ = None

    __array_priority__ = 1000

    def __init__(self, data: Any, dtype: DType | None = None) -> None:
        """A constant from an array, a list or a scalar; or a view of a graph node."""
        if isinstance(data, UOp):
            self.node = data
            return
        array = np.asarray(data)
        if dtype is not None and dtype.storage_type and array.dtype.name != dtype.name:
            self.node = Tensor(array.astype(dtype.computed.numpy)).cast(dtype).node
            return
        if dtype is not None and not dtype.storage_type:
            array = array.astype(dtype.numpy)
        self.node = _weight("constant", array)

    # Construction.

    @staticmethod
    def input(name: str, shape: Sequence[Size], dtype: DType) -> Tensor:
        """A model input."""
        return Tensor(
            UOp(ops.BUFFER, dtype, (), args.Buffer(ops.TensorSource("input", name), tuple(shape)))
        )

    @staticmethod
    def weight(name: str, array: Any) -> Tensor:
        """A named constant array."""
        return Tensor(_weight(name, np.asarray(array)))

    @staticmethod
    def full(shape: Sequence[Size], value: Scalar, dtype: DType) -> Tensor:
        """Every element is `value`."""
        return _scalar(value, dtype)._expand_scalar(tuple(shape))

    @staticmethod
    def arange(size: Size, dtype: DType = dt.int32) -> Tensor:
        """0, 1, ..., size - 1."""
        return Tensor(UOp(ops.IOTA, dt.index, (), (size,))).cast(dtype)

    @staticmethod
    def from_size(size: Size, dtype: DType = dt.int64) -> Tensor:
        """A size as a scalar tensor: symbolic shape arithmetic as data."""
        node = size if isinstance(size, UOp) else const(size, dt.index)
        return Tensor(node).cast(dtype)

    # Facts.

    @property
    def shape(self) -> Shape:
        return self.node.shape

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    @property
    def ndim(self) -> int:
        return len(self.node.shape)

    @property
    def size(self) -> Size:
        """Number of elements."""
        return product(self.shape)

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}, {list(self.shape)})"

    def __bool__(self) -> bool:
        raise TypeError("a lazy tensor has no truth value; compare and use .where()")

    def numpy(self) -> Any:
        """The values, by the reference evaluator. The graph must have no inputs.

        Of a stored type: an array of ml_dtypes' type, or of codes where that is not installed.
        """
        from tinyedge.core.ir.reference import evaluate

        return dt.named(evaluate([self.node], {})[0], self.dtype)

    # Elementwise.

    def _expand_scalar(self, shape: Shape) -> Tensor:
        if not shape:
            return self
        ones = self.reshape((1,) * len(shape))
        return ones.expand(shape)

    def _operand(self, other: Any) -> Tensor:
        if isinstance(other, Tensor):
            return other
        if isinstance(other, (UOp, np.ndarray)):
            return Tensor(other)
        return _scalar(other, self.dtype)

    @_computed
    def _binary(self, op: Primitive, other: Any, *, reverse: bool = False) -> Tensor:
        right = self._operand(other)
        if right.dtype is not self.dtype:
            raise TypeError(f"{op.name} of {self.dtype} and {right.dtype}: cast one of them")
        a, b = broadcast(self, right)
        if reverse:
            a, b = b, a
        return Tensor(elementwise(op, a.node, b.node))

    @_computed
    def _unary(self, op: Primitive) -> Tensor:
        if op in _OF_FLOATS and not self.dtype.is_float:
            raise TypeError(f"{op.name} of {self.dtype}: cast it")
        return Tensor(elementwise(op, self.node))

    def __add__(self, other: Any) -> Tensor:
        return self._binary(ops.ADD, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Tensor:
        return self._binary(ops.SUB, other)

    def __rsub__(self, other: Any) -> Tensor:
        return self._binary(ops.SUB, other, reverse=True)

    def __mul__(self, other: Any) -> Tensor:
        if self.dtype is dt.bool_:
            return self._binary(ops.AND, other)
        return self._binary(ops.MUL, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Tensor:
        """Float division; integers divide truncating toward zero."""
        return self._binary(ops.DIV if self.dtype.is_float else ops.TRUNCDIV, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        op = ops.DIV if self.dtype.is_float else ops.TRUNCDIV
        return self._binary(op, other, reverse=True)

    def __floordiv__(self, other: Any) -> Tensor:
        if self.dtype.is_float:
            return (self / self._operand(other)).floor()
        return self._binary(ops.FLOORDIV, other)

    @_computed
    def __mod__(self, other: Any) -> Tensor:
        """The remainder with the divisor's sign, as in Python and numpy."""
        if self.dtype.is_float:
            divisor = self._operand(other)
            remainder = self.fmod(divisor)
            wrong = remainder.ne(0) & ((remainder < 0) ^ (divisor < 0))
            return wrong.where(remainder + divisor, remainder)
        return self._binary(ops.MOD, other)

    @_computed
    def fmod(self, other: Any) -> Tensor:
        """The remainder with the dividend's sign, as in C: of floats without rounding."""
        if self.dtype.is_float:
            return self._binary(ops.FMOD, other)
        divisor = self._operand(other)
        return self - (self / divisor) * divisor

    @_computed
    def __pow__(self, other: Any) -> Tensor:
        if isinstance(other, (int, float)) and self.dtype.is_float:
            simple = self._simple_power(float(other))
            if simple is not None:
                return simple
        return self._binary(ops.POW, other)

    def _simple_power(self, exponent: float) -> Tensor | None:
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

    def __neg__(self) -> Tensor:
        return self._unary(ops.NEG)

    def __invert__(self) -> Tensor:
        return self._unary(ops.NOT)

    def __and__(self, other: Any) -> Tensor:
        return self._binary(ops.AND, other)

    def __or__(self, other: Any) -> Tensor:
        return self._binary(ops.OR, other)

    def __xor__(self, other: Any) -> Tensor:
        return self._binary(ops.XOR, other)

    def __lshift__(self, other: Any) -> Tensor:
        return self._binary(ops.SHL, other)

    def __rshift__(self, other: Any) -> Tensor:
        return self._binary(ops.SHR, other)

    def __lt__(self, other: Any) -> Tensor:
        return self._binary(ops.LT, other)

    def __le__(self, other: Any) -> Tensor:
        return self._binary(ops.LE, other)

    def __gt__(self, other: Any) -> Tensor:
        return self._binary(ops.LT, other, reverse=True)

    def __ge__(self, other: Any) -> Tensor:
        return self._binary(ops.LE, other, reverse=True)

    def eq(self, other: Any) -> Tensor:
        return self._binary(ops.EQ, other)

    def ne(self, other: Any) -> Tensor:
        return ~self.eq(other)

    def maximum(self, other: Any) -> Tensor:
        """The greater; NaN where either is NaN."""
        if self.dtype is dt.bool_:
            return self | self._operand(other)
        return self._binary(ops.MAX, other)

    def minimum(self, other: Any) -> Tensor:
        """The lesser; NaN where either is NaN."""
        if self.dtype is dt.bool_:
            return self & self._operand(other)
        return self._binary(ops.MIN, other)

    def where(self, yes: Any, no: Any) -> Tensor:
        """yes where self (bool) is true, else no."""
        if not isinstance(yes, Tensor) and not isinstance(no, Tensor):
            raise TypeError("where needs a tensor as one of its branches")
        yes = no._operand(yes) if not isinstance(yes, Tensor) else yes
        no = yes._operand(no)
        if yes.dtype is not no.dtype:
            raise TypeError(f"where of {yes.dtype} and {no.dtype}: cast one of them")
        condition, yes, no = broadcast(self, yes, no)
        return Tensor(elementwise(ops.WHERE, condition.node, yes.node, no.node))

    def exp(self) -> Tensor:
        return self._unary(ops.EXP)

    def log(self) -> Tensor:
        return self._unary(ops.LOG)

    def sqrt(self) -> Tensor:
        return self._unary(ops.SQRT)

    def sin(self) -> Tensor:
        return self._unary(ops.SIN)

    def cos(self) -> Tensor:
        return self._unary(ops.COS)

    def tanh(self) -> Tensor:
        return self._unary(ops.TANH)

    def floor(self) -> Tensor:
        return self._unary(ops.FLOOR) if self.dtype.is_float else self

    def ceil(self) -> Tensor:
        return -((-self).floor()) if self.dtype.is_float else self

    def trunc(self) -> Tensor:
        return self._unary(ops.TRUNC) if self.dtype.is_float else self

    def round(self) -> Tensor:
        """To the nearest integer, halves to even."""
        return self._unary(ops.ROUND) if self.dtype.is_float else self

    def abs(self) -> Tensor:
        return self._unary(ops.ABS) if self.dtype.kind in "if" else self

    def isnan(self) -> Tensor:
        if not self.dtype.is_float:
            return Tensor.full(self.shape, False, dt.bool_)
        return self._unary(ops.ISNAN)

    def isinf(self) -> Tensor:
        if not self.dtype.is_float:
            return Tensor.full(self.shape, False, dt.bool_)
        return self.abs().eq(math.inf)

    def sign(self) -> Tensor:
        """-1, 0 or 1; NaN stays NaN."""
        one = self._operand(1)
        positive = (self > 0).where(one, self)
        if self.dtype.kind == "u":
            return positive
        return (self < 0).where(self._operand(-1), positive)

    def relu(self) -> Tensor:
        """The greater of x and 0; NaN stays NaN."""
        return (self < 0).where(self._operand(0), self)

    def clip(self, low: Any = None, high: Any = None) -> Tensor:
        """min(max(x, low), high): crossed bounds give `high`. A bound that is None is absent."""
        result = self
        if low is not None:
            result = result.maximum(low)
        if high is not None:
            result = result.minimum(high)
        return result

    @_computed
    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x)), without overflow at either end."""
        return functions.sigmoid(self)

    @_computed
    def silu(self) -> Tensor:
        """x * sigmoid(x)."""
        return functions.silu(self)

    @_computed
    def softplus(self) -> Tensor:
        """log(1 + exp(x)), without overflow; small values keep their digits."""
        return functions.softplus(self)

    @_computed
    def erf(self) -> Tensor:
        """The error function."""
        return functions.erf(self)

    def cast(self, dtype: DType) -> Tensor:
        """Converted: floats to integers truncate and saturate, NaN to 0; to bool is `!= 0`.

        To stored types: see `stored.convert`.
        """
        if dtype is dt.bool_ and not self.dtype.storage_type:
            return self if self.dtype is dtype else self.ne(0)
        return Tensor(cast(self.node, dtype))

    def bitcast(self, dtype: DType) -> Tensor:
        """The same bits as another type of the same width; a stored type's are its carrier's, too.

        Raises TypeError for another width.
        """
        source, held, goal = self.dtype, self.dtype.held, dtype.held
        if dtype is source:
            return self
        if dtype.bits != source.bits and held is not dtype and goal is not source:
            raise TypeError(f"bitcast of {source} to {dtype}: the widths differ")
        if source is dt.bool_:
            return self.cast(dt.uint8).bitcast(dtype)
        if dtype is dt.bool_:
            return self.bitcast(dt.uint8).cast(dtype)
        if held is not goal and dtype.bits < 8:
            whole = dt.by_name(f"{'int' if goal is dt.int8 else 'uint'}{dtype.bits}")
            return self.bitcast(held).cast(whole).bitcast(dtype)
        node = self.node
        for step in (held, goal, dtype):
            if node.dtype is not step and (step is dtype or held is not goal):
                node = UOp(ops.BITCAST, step, (node,))
        return Tensor(node)

    # Movement.

    def reshape(self, shape: Sequence[Size]) -> Tensor:
        """The same elements in row-major order; one size may be -1."""
        target = tuple(shape)
        if target == self.shape:
            return self
        unknown = [axis for axis, size in enumerate(target) if isinstance(size, int) and size == -1]
        if len(unknown) == 1:
            known = product(size for axis, size in enumerate(target) if axis != unknown[0])
            if known == 0:
                raise ValueError(f"reshape of {list(self.shape)} to {list(shape)}: -1 beside a 0")
            rest = ix.size_floordiv(self.size, known)
            target = target[: unknown[0]] + (rest,) + target[unknown[0] + 1 :]
        if product(target) != self.size:
            message = f"reshape of {list(self.shape)} to {list(shape)}: the counts differ"
            raise UnequalSizes(message, (self.size, product(target)))
        source = self.node
        while source.op is ops.RESHAPE:
            source = source.src[0]
        if source.shape == target:
            return Tensor(source)
        return Tensor(UOp(ops.RESHAPE, self.dtype, (source,), target))

    def expand(self, shape: Sequence[Size]) -> Tensor:
        """Axes of size 1 repeated to the given sizes; same number of axes."""
        target = tuple(shape)
        if target == self.shape:
            return self
        for have, want in zip(self.shape, target, strict=True):
            if have != want and have != 1:
                message = f"expand of {list(self.shape)} to {list(target)}"
                raise UnequalSizes(message, (have, want))
        return Tensor(UOp(ops.EXPAND, self.dtype, (self.node,), target))

    def broadcast_to(self, shape: Sequence[Size]) -> Tensor:
        """As numpy's: leading axes are added, then axes of size 1 repeat."""
        target = tuple(shape)
        if target == self.shape:
            return self
        lead = len(target) - self.ndim
        return self.reshape((1,) * lead + self.shape).expand(target)

    def permute(self, axes: Sequence[int]) -> Tensor:
        order = tuple(axis % self.ndim for axis in axes)
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"permute of {self.ndim} axes by {list(axes)}")
        if order == tuple(range(self.ndim)):
            return self
        return Tensor(UOp(ops.PERMUTE, self.dtype, (self.node,), order))

    def transpose(self, a: int = -1, b: int = -2) -> Tensor:
        """Two axes exchanged."""
        order = list(range(self.ndim))
        order[a], order[b] = order[b], order[a]
        return self.permute(order)

    def pad(self, pads: Sequence[tuple[Size, Size]], value: Scalar = 0) -> Tensor:
        """Elements added before and after each axis; negative amounts remove them."""
        if any(isinstance(amount, UOp) and minimum(amount) < 0 for pair in pads for amount in pair):
            return self._fit(pads, value)
        if any(map(_may_remove_more, self.shape, pads)):
            return self._fit(pads, value)
        if any(_negative(amount) for pair in pads for amount in pair):
            pads = [_removing(size, *pair) for size, pair in zip(self.shape, pads, strict=True)]
            cut = [
                (-min(_known(lo), 0), ix.size_add(size, min(_known(hi), 0)))
                for (lo, hi), size in zip(pads, self.shape, strict=True)
            ]
            rest = [(0 if _negative(lo) else lo, 0 if _negative(hi) else hi) for lo, hi in pads]
            return self.shrink(cut).pad(rest, value)
        margins = tuple(args.Margin(lo, hi) for lo, hi in pads)
        if all(margin == args.Margin(0, 0) for margin in margins):
            return self
        padded = Tensor(UOp(ops.PAD, self.dtype, (self.node,), margins))
        if 0 in self.shape:  # nothing is left of it
            return Tensor.full(padded.shape, value, self.dtype)
        if value == 0 and not (isinstance(value, float) and math.copysign(1, value) < 0):
            return padded
        inside = Tensor.full(self.shape, True, dt.bool_)
        mask = Tensor(UOp(ops.PAD, dt.bool_, (inside.node,), margins))
        return mask.where(padded, value)

    def _fit(self, pads: Sequence[tuple[Size, Size]], value: Scalar) -> Tensor:
        """`pad` by amounts of which only the run knows whether they add or remove elements, or of
        more elements than there are: first what they add, then what they remove.
        """
        grown = [(ix.size_max(lo, 0), ix.size_max(hi, 0)) for lo, hi in pads]
        region: list[tuple[Size, Size]] = []
        for size, (lo, hi) in zip(self.shape, pads, strict=True):
            start = ix.size_max(ix.size_sub(0, lo), 0)
            region.append((start, ix.size_add(start, size, lo, hi)))
        return self.pad(grown, value).shrink(region)

    def shrink(self, bounds: Sequence[tuple[Size, Size]]) -> Tensor:
        """Elements [start, end) of each axis. Raises ValueError for those that are not there."""
        pairs = tuple((start, end) for start, end in bounds)
        for size, (start, end) in zip(self.shape, pairs, strict=True):
            beyond = isinstance(end, int) and isinstance(size, int) and end > size
            if beyond or _negative(start):
                raise ValueError(f"shrink of {list(self.shape)} to {list(pairs)}")
        if pairs == tuple((0, size) for size in self.shape):
            return self
        spans = tuple(args.Span(start, end) for start, end in pairs)
        return Tensor(UOp(ops.SHRINK, self.dtype, (self.node,), spans))

    def flip(self, axes: Axes) -> Tensor:
        chosen = tuple(sorted(self._axes(axes)))
        return Tensor(UOp(ops.FLIP, self.dtype, (self.node,), chosen)) if chosen else self

    def window(self, axis: int, size: int, stride: int = 1, dilation: int = 1) -> Tensor:
        """Sliding windows along an axis: out[.., i, .., j] = self[.., i*stride + j*dilation, ..].

        The axis shrinks to floor((n - (size-1)*dilation - 1) / stride) + 1; j is a new last axis.
        """
        axis %= self.ndim
        span = (size - 1) * dilation + 1
        length = self.shape[axis]
        if isinstance(length, int) and length < span:
            raise ValueError(f"a window that spans {span} does not fit an axis of {length}")
        arg = args.Window(axis, size, stride, dilation)
        return Tensor(UOp(ops.WINDOW, self.dtype, (self.node,), arg))

    def stride(self, axis: int, step: int) -> Tensor:
        """Every `step`-th element along an axis, from the first."""
        if step == 1:
            return self
        length = self.shape[axis % self.ndim]
        if isinstance(length, int) and length == 0:
            return self
        windows = self.window(axis, 1, step)
        return windows.reshape(windows.shape[:-1])

    def squeeze(self, axes: Axes = None) -> Tensor:
        drop = [a for a, s in enumerate(self.shape) if s == 1] if axes is None else self._axes(axes)
        return self.reshape([size for axis, size in enumerate(self.shape) if axis not in drop])

    def unsqueeze(self, axis: int) -> Tensor:
        axis %= self.ndim + 1
        return self.reshape(self.shape[:axis] + (1,) + self.shape[axis:])

    def flatten(self, start: int = 0, end: int | None = None) -> Tensor:
        """Axes [start, end) merged into one."""
        stop = self.ndim if end is None else end
        return self.reshape(
            self.shape[:start] + (product(self.shape[start:stop]),) + self.shape[stop:]
        )

    def __getitem__(self, key: Any) -> Tensor:
        """Basic indexing: ints, slices with any step, None and Ellipsis."""
        items = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in items:
            at = items.index(Ellipsis)
            missing = self.ndim - sum(item is not None for item in items) + 1
            items[at : at + 1] = [slice(None)] * missing
        result = self
        axis = 0
        for item in items:
            if item is None:
                result = result.unsqueeze(axis)
                axis += 1
            elif isinstance(item, slice):
                result = result._slice(axis, item)
                axis += 1
            else:
                length = result.shape[axis]
                start = item if item >= 0 else ix.size_add(length, item)
                if isinstance(length, int) and not 0 <= _fixed(start) < length:
                    raise IndexError(f"index {item} of an axis of {length}")
                cut = result._cut(axis, start, ix.size_add(start, 1))
                result = cut.reshape(cut.shape[:axis] + cut.shape[axis + 1 :])
        return result

    def _cut(self, axis: int, start: Size, end: Size) -> Tensor:
        pairs: list[tuple[Size, Size]] = [(0, size) for size in self.shape]
        pairs[axis] = (start, end)
        return self.shrink(pairs)

    def _slice(self, axis: int, item: slice) -> Tensor:
        length = self.shape[axis]
        if item == slice(None):
            return self
        if not isinstance(length, int):
            raise ValueError(f"a slice of the symbolic axis {axis}: use shrink with sizes")
        start, stop, step = item.indices(length)
        if step > 0:
            return self._cut(axis, start, max(start, stop)).stride(axis, step)
        count = max(0, -((start - stop) // step))
        if count == 0:
            return self._cut(axis, 0, 0)
        last = start + (count - 1) * step
        return self._cut(axis, last, start + 1).flip(axis).stride(axis, -step)

    # Joining, indexing.

    @staticmethod
    def concat(tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors one after the other along an axis, each written into its part of one buffer.

        Raises ValueError or TypeError unless they are alike but for their sizes along the axis.
        """
        first = tensors[0]
        axis %= first.ndim
        for part in tensors:
            if part.dtype is not first.dtype:
                raise TypeError(f"concat of {first.dtype} and {part.dtype}")
            if part.ndim != first.ndim:
                raise ValueError(f"concat of {first.ndim} and {part.ndim} axes")
            for other, (a, b) in enumerate(zip(first.shape, part.shape, strict=True)):
                if a != b and other != axis:
                    message = f"concat of {list(first.shape)} and {list(part.shape)} along {axis}"
                    raise UnequalSizes(message, (a, b))
        parts = [t for t in tensors if t.shape[axis] != 0] or [first]
        if len(parts) == 1:
            return parts[0]
        total: Size = 0
        for part in parts:
            total = ix.size_add(total, part.shape[axis])
        shape = first.shape[:axis] + (total,) + first.shape[axis + 1 :]
        node = UOp(ops.EMPTY, first.dtype, (), shape)
        start: Size = 0
        for part in parts:
            end = ix.size_add(start, part.shape[axis])
            region = [args.Span(0, size) for size in shape]
            region[axis] = args.Span(start, end)
            node = UOp(ops.ASSIGN, first.dtype, (node, part.node), tuple(region))
            start = end
        return Tensor(node)

    @staticmethod
    def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
        return Tensor.concat([t.unsqueeze(axis) for t in tensors], axis)

    def assign(self, region: Sequence[tuple[Size, Size]], value: Tensor) -> Tensor:
        """A copy with elements [start, end) of each axis replaced by `value`."""
        spans = tuple(args.Span(start, end) for start, end in region)
        base = self.node
        while base.op is ops.ASSIGN:
            base = base.src[0]
        if base.op is ops.EMPTY:  # a concatenation's elements have one writer each
            base = self.realize().node
        else:
            base = self.node
        return Tensor(UOp(ops.ASSIGN, self.dtype, (base, value.node), spans))

    def gather(self, axis: int, indices: Tensor) -> Tensor:
        """self taken along an axis at integer indices; outside [0, size) the result is 0.

        Shape: self.shape[:axis] + indices.shape + self.shape[axis+1:].
        """
        if not indices.dtype.is_int:
            raise TypeError(f"gather needs integer indices, not {indices.dtype}")
        node = UOp(ops.GATHER, self.dtype, (self.node, indices.node), axis % self.ndim)
        return Tensor(node)

    def gather_elements(self, axis: int, indices: Tensor) -> Tensor:
        """out[i, j, ..] = self[.., indices[i, j, ..] in place of the axis' index, ..]."""
        axis %= self.ndim
        flat = indices.cast(dt.int32) * _factor(_stride(self.shape, axis))
        for other in range(self.ndim):
            if other != axis:
                position = Tensor.arange(indices.shape[other]).reshape(
                    [-1 if a == other else 1 for a in range(self.ndim)]
                )
                flat = flat + position * _factor(_stride(self.shape, other))
        return self.reshape((self.size,)).gather(0, flat)

    def put(self, position: Tensor, row: Tensor) -> Tensor:
        """A copy in which self[position] is `row`; position: an integer scalar in range."""
        return Tensor(UOp(ops.UPDATE_ROW, self.dtype, (self.node, row.node, position.node)))

    def scatter(
        self, axis: int, indices: Tensor, updates: Tensor, combine: Primitive | None = None
    ) -> Tensor:
        """A copy in which the elements at integer indices [*lead, K] along an axis get the updates
        [*lead, K, *rest], where self is [*lead, size, *rest], axis = len(lead).

        The updates are taken one after the other: each replaces what is there, or is combined with
        it (ADD, MUL, MAX, MIN; halves as float32, bools as 0 and 1). An index outside of [0, size)
        has no effect.
        """
        dtype = self.dtype
        wide = dtype.computed
        if dtype is dt.bool_ and combine is not None:
            wide = dt.int32
            combine = {ops.ADD: ops.MAX, ops.MUL: ops.MIN}.get(combine, combine)
        src = (self.cast(wide).node, indices.node, updates.cast(wide).node)
        return Tensor(UOp(ops.SCATTER, wide, src, args.Scatter(axis % self.ndim, combine))).cast(
            dtype
        )

    @staticmethod
    def loop(
        first: Sequence[Tensor],
        iteration: Callable[..., Sequence[Tensor]],
        *,
        trips: Size | None = None,
        bound: int = 0,
    ) -> list[Tensor]:
        """Carry values through iterations: values = iteration(*values), beginning with `first`.

        trips: how many iterations; None: as long as the first value, a bool scalar, is true, at
        most `bound` iterations. Shapes and types stay the same from iteration to iteration.
        """
        carried = Tensor.carried(first)
        return Tensor.repeated(first, carried, iteration(*carried), trips=trips, bound=bound)

    @staticmethod
    def carried(first: Sequence[Tensor], before: int = 0) -> list[Tensor]:
        """What stands for the values that a loop carries, in an expression for one iteration.

        before: how many of the loop's values have been asked for already.
        """
        numbers = range(before, before + len(first))
        sources = [ops.TensorSource("carried", f"carried {n}") for n in numbers]
        return [
            Tensor(UOp(ops.BUFFER, value.dtype, (), args.Buffer(source, value.shape)))
            for source, value in zip(sources, first, strict=True)
        ]

    @staticmethod
    def repeated(
        first: Sequence[Tensor],
        carried: Sequence[Tensor],
        nexts: Sequence[Tensor],
        *,
        trips: Size | None = None,
        bound: int = 0,
    ) -> list[Tensor]:
        """The last values of a loop in which a iteration makes `nexts` of `carried`. See `loop`."""
        for old, new in zip(first, nexts, strict=True):
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                raise ValueError(
                    f"a iteration makes {new.dtype} {list(new.shape)} of {old.dtype} "
                    f"{list(old.shape)}"
                )
        if trips is None and (first[0].dtype is not dt.bool_ or first[0].shape != ()):
            raise ValueError(
                "the first value of a loop without a number of iterations is a bool scalar"
            )
        if trips is not None and not (isinstance(trips, int) and trips <= MANY_TURNS):
            count = Tensor.from_size(trips, dt.int32)
            counter = [count > 0, Tensor(0, dt.int32)]
            _, number = extra = Tensor.carried(counter, len(first))
            counted = [number + 1 < count, number + 1, *nexts]
            whole = [*extra, *carried]
            return Tensor.repeated([*counter, *first], whole, counted, bound=maximum(trips))[2:]
        arg = LoopInfo(tuple(c.node for c in carried), trips, bound if trips is None else trips)
        src = (*(value.node for value in first), *(value.node for value in nexts))
        node = UOp(ops.LOOP, dt.index, src, arg)
        return [
            Tensor(UOp(ops.LOOP_OUTPUT, value.dtype, (node,), args.LoopOutput(number, value.shape)))
            for number, value in enumerate(first)
        ]

    def realize(self) -> Tensor:
        """The same values, kept in memory: a boundary for fusion."""
        return Tensor(UOp(ops.REALIZE, self.dtype, (self.node,)))

    # Reductions.

    def _axes(self, axes: Axes) -> tuple[int, ...]:
        if axes is None:
            return tuple(range(self.ndim))
        chosen = (axes,) if isinstance(axes, int) else tuple(axes)
        for axis in chosen:
            if not -self.ndim <= axis < self.ndim:
                raise ValueError(f"axis {axis} of a tensor with {self.ndim} axes")
        return tuple(axis % self.ndim for axis in chosen)

    @_computed
    def _reduce(self, op: Primitive, axes: Axes, keepdims: bool) -> Tensor:
        chosen = tuple(sorted(set(self._axes(axes))))
        kept = tuple(1 if a in chosen else size for a, size in enumerate(self.shape))
        if not chosen:
            return self
        result = Tensor(UOp(ops.REDUCE, self.dtype, (self.node,), args.Reduce(op, chosen)))
        return result.reshape(kept) if keepdims else result

    def sum(self, axes: Axes = None, keepdims: bool = False) -> Tensor:
        return self._reduce(ops.ADD, axes, keepdims)

    @_computed
    def blocked_sum(self, axes: Axes = None, keepdims: bool = False) -> Tensor:
        """As `sum`; but so many floats are summed by blocks that rounding errors stay small."""
        chosen = sorted(set(self._axes(axes)))
        count = product(self.shape[axis] for axis in chosen)
        if not self.dtype.is_float or not isinstance(count, int) or count <= MANY_TERMS:
            return self.sum(axes, keepdims)
        left = [axis for axis in range(self.ndim) if axis not in chosen]
        lines = self.permute([*left, *chosen]).flatten(len(left))
        sizes = [size for size in range(BLOCKS[1], BLOCKS[0] - 1, -1) if count % size == 0]
        size = min(sizes or BLOCKS[:1], key=lambda size: abs(size * size - count))
        padded = lines.pad([*((0, 0) for _ in left), (0, -count % size)])
        blocks = padded.reshape((*lines.shape[:-1], -(-count // size), size)).sum(-1)
        kept = [1 if axis in chosen else length for axis, length in enumerate(self.shape)]
        result = blocks.realize().blocked_sum(-1)
        return result.reshape(kept) if keepdims else result

    def prod(self, axes: Axes = None, keepdims: bool = False) -> Tensor:
        return self._reduce(ops.MUL, axes, keepdims)

    def max(self, axes: Axes = None, keepdims: bool = False) -> Tensor:
        if self.dtype is dt.bool_:
            return self.cast(dt.int32).max(axes, keepdims) > 0  # of nothing it is False
        return self._reduce(ops.MAX, axes, keepdims)

    def min(self, axes: Axes = None, keepdims: bool = False) -> Tensor:
        if self.dtype is dt.bool_:
            return self.cast(dt.int32).min(axes, keepdims).cast(dt.bool_)
        return self._reduce(ops.MIN, axes, keepdims)

    @_computed
    def mean(self, axes: Axes = None, keepdims: bool = False) -> Tensor:
        count = product(self.shape[axis] for axis in set(self._axes(axes)))
        total = self.blocked_sum(axes, keepdims)
        return total / Tensor.from_size(count, self.dtype)

    @_computed
    def norm(self, axes: Axes = None, keepdims: bool = False, exponent: float = 2.0) -> Tensor:
        """sum(|x|^p)^(1/p) of floats, scaled by the greatest |x|, so that no power overflows."""
        if axes is not None and not self._axes(axes):
            return self.abs()
        size = self.abs()
        if exponent == 1.0:
            return size.blocked_sum(axes, keepdims)
        most = size.max(axes, keepdims=True)
        scale = (most.eq(0) | most.isinf()).where(1.0, most)
        total = ((size / scale) ** exponent).blocked_sum(axes, keepdims=True)
        result = (total.sqrt() if exponent == 2.0 else total ** (1.0 / exponent)) * scale
        return result if keepdims else result.squeeze(self._axes(axes))

    def argmax(self, axis: int, keepdims: bool = False, last: bool = False) -> Tensor:
        """int32 index of the greatest element, the first (or last) among equals."""
        axis = self._axes(axis)[0]
        length = self.shape[axis]
        hit = self.eq(self.max(axis, keepdims=True)) | self.isnan()
        place = Tensor.arange(length).reshape([-1 if a == axis else 1 for a in range(self.ndim)])
        if last:
            return hit.where(place, -1).max(axis, keepdims)
        beyond = Tensor.from_size(length, dt.int32)
        return hit.where(place, beyond).min(axis, keepdims)

    def argmin(self, axis: int, keepdims: bool = False, last: bool = False) -> Tensor:
        """int32 index of the least element, the first (or last) among equals."""
        return (-self if self.dtype.is_float else ~self).argmax(axis, keepdims, last)

    @_computed
    def softmax(self, axes: Axes = -1) -> Tensor:
        """exp(x - max) / sum(exp(x - max)) along an axis, or over several together."""
        e = (self - self.max(axes, keepdims=True)).exp()
        return e / e.sum(axes, keepdims=True)

    @_computed
    def log_softmax(self, axes: Axes = -1) -> Tensor:
        """x - log(sum(exp(x))) along an axis, or over several together."""
        most = self.max(axes, keepdims=True)
        return self - most - self._log_of_sum(most, axes)

    @_computed
    def log_sum_exp(self, axes: Axes = None, keepdims: bool = False) -> Tensor:
        """log(sum(exp(x)))."""
        if axes is not None and not self._axes(axes):
            return self
        most = self.max(axes, keepdims=True)
        finite = most.isinf().where(0.0, most)
        result = finite + self._log_of_sum(finite, axes)
        return result if keepdims else result.squeeze(self._axes(axes))

    def _log_of_sum(self, most: Tensor, axes: Axes) -> Tensor:
        """log(sum(exp(x - most))): terms that are 1 are counted, so that a small rest of the sum
        is not lost beside them.
        """
        shifted = self - most
        ones = self.eq(most)
        rest = ones.where(shifted, shifted.exp()).sum(axes, keepdims=True)
        return functions.log1p(rest + (ones.cast(self.dtype).sum(axes, keepdims=True) - 1.0))

    # Contractions and windows.

    @_computed
    def matmul(self, other: Any) -> Tensor:
        """numpy's matmul: self's last axis with other's last but one; the rest broadcasts."""
        operand = self._operand(other)
        if self.ndim == 0 or operand.ndim == 0:
            raise ValueError("matmul needs at least one axis on both sides")
        a = self.unsqueeze(0) if self.ndim == 1 else self
        b = operand.unsqueeze(1) if operand.ndim == 1 else operand
        if a.shape[-1] != b.shape[-2]:
            message = f"matmul of {list(self.shape)} and {list(operand.shape)}"
            raise UnequalSizes(message, (a.shape[-1], b.shape[-2]))
        left, right = a.unsqueeze(-2), b.transpose().unsqueeze(-3)
        result = (left * right).sum(-1)
        if self.ndim == 1:
            result = result.squeeze(-2)
        return result.squeeze(-1) if operand.ndim == 1 else result

    __matmul__ = matmul

    def __rmatmul__(self, other: Any) -> Tensor:
        left = self._operand(other)
        return left.matmul(self)

    @_computed
    def conv(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        strides: Sequence[int] = (),
        pads: Sequence[tuple[int, int]] = (),
        dilations: Sequence[int] = (),
        groups: int = 1,
    ) -> Tensor:
        """Convolution (cross-correlation) of self [N, C, *S] with weight [M, C/groups, *K]."""
        spatial = self.ndim - 2
        strides = tuple(strides) or (1,) * spatial
        dilations = tuple(dilations) or (1,) * spatial
        padded = self.pad([(0, 0), (0, 0), *(tuple(pads) or ((0, 0),) * spatial)])
        batch, channels = self.shape[0], self.shape[1]
        kernel = weight.shape[2:]
        windows = padded
        for axis in range(spatial):
            taps = _fixed(kernel[axis])
            windows = windows.window(2 + axis, taps, strides[axis], dilations[axis])
        out = windows.shape[2 : 2 + spatial]
        per_group = ix.size_floordiv(channels, groups)
        filters = ix.size_floordiv(weight.shape[0], groups)
        if per_group != weight.shape[1]:
            message = f"conv of {list(self.shape)} with {list(weight.shape)}, {groups} groups"
            raise UnequalSizes(message, (per_group, weight.shape[1]))
        left = windows.reshape((batch, groups, 1, per_group, *out, *kernel))
        right = weight.reshape((1, groups, filters, per_group, *(1,) * spatial, *kernel))
        last = 4 + spatial
        total = (left * right).sum((3, *range(last, last + spatial)))
        result = total.reshape((batch, weight.shape[0], *out))
        if bias is None:
            return result
        return result + bias.reshape((1, -1) + (1,) * spatial)

    @_computed
    def conv_transpose(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        strides: Sequence[int] = (),
        pads: Sequence[tuple[int, int]] = (),
        dilations: Sequence[int] = (),
        output_padding: Sequence[int] = (),
        groups: int = 1,
    ) -> Tensor:
        """The transpose of a convolution: self [N, C, *S], weight [C, M/groups, *K] -> [N, M, *O].

        O = (S-1)*stride + (K-1)*dilation + 1 + output_padding - pad_before - pad_after. The output
        is computed by stride phase: position q*stride + p takes taps p, p + stride, ..., so no zero
        is ever multiplied.
        """
        spatial = self.ndim - 2
        strides = tuple(strides) or (1,) * spatial
        dilations = tuple(dilations) or (1,) * spatial
        extra = tuple(output_padding) or (0,) * spatial
        cut = tuple(pads) or ((0, 0),) * spatial
        batch, channels = self.shape[:2]
        filters = weight.shape[1]
        per_group = ix.size_floordiv(channels, groups)
        kernel = _dilated(weight, dilations)
        span = [_fixed(size) for size in kernel.shape[2:]]
        taps = [-(-k // s) for k, s in zip(span, strides, strict=True)]
        # [C, M, *(taps, phase)], taps reversed: output block q sums x[q - t] * w[t * stride + p].
        wide = kernel.pad(
            [(0, 0), (0, 0), *((0, t * s - k) for k, s, t in zip(span, strides, taps, strict=True))]
        )
        split = [size for t, s in zip(taps, strides, strict=True) for size in (t, s)]
        wide = wide.reshape((*wide.shape[:2], *split)).flip([2 + 2 * i for i in range(spatial)])
        right = wide.reshape((groups, per_group, filters, *split))
        windows = self.pad([(0, 0), (0, 0), *((t - 1, t - 1) for t in taps)])
        for axis in range(spatial):
            windows = windows.window(2 + axis, taps[axis])
        blocks = windows.shape[2 : 2 + spatial]
        # left  [N, G, 1, C, (Q, 1)*, T*]     right [1, G, M, C, (1, P)*, T*]
        interleaved = [size for q in blocks for size in (q, 1)]
        left = windows.reshape((batch, groups, 1, per_group, *interleaved, *taps))
        order = [
            0,
            2,
            1,
            *(4 + 2 * i for i in range(spatial)),
            *(3 + 2 * i for i in range(spatial)),
        ]
        phases = [size for s in strides for size in (1, s)]
        right = right.permute(order).reshape((1, groups, filters, per_group, *phases, *taps))
        first_tap = 4 + 2 * spatial
        total = (left * right).sum((3, *range(first_tap, first_tap + spatial)))
        full = [ix.size_mul(q, s) for q, s in zip(blocks, strides, strict=True)]
        result = total.reshape((batch, ix.size_mul(groups, filters), *full))
        region: list[tuple[Size, Size]] = [(0, size) for size in result.shape[:2]]
        tail: list[tuple[Size, Size]] = [(0, 0), (0, 0)]
        for axis in range(spatial):
            before, after = cut[axis]
            length = ix.size_mul(ix.size_sub(self.shape[2 + axis], 1), strides[axis])
            end = ix.size_sub(ix.size_add(length, span[axis], extra[axis]), after)
            overrun = ix.size_sub(end, full[axis])
            more = overrun if isinstance(overrun, int) and overrun > 0 else 0
            tail.append((0, more))
            region.append((before, end))
        result = result.pad(tail).shrink(region)
        if bias is None:
            return result
        return result + bias.reshape((1, -1) + (1,) * spatial)


_OF_FLOATS = (ops.EXP, ops.LOG, ops.SQRT, ops.SIN, ops.COS, ops.TANH)


def _scalar(value: Scalar, dtype: DType) -> Tensor:
    if isinstance(value, float) and not dtype.is_float and not value.is_integer():
        raise TypeError(f"{value} with {dtype}: cast one of them")
    return Tensor(const(value, dtype.computed)).cast(dtype)


def _weight(name: str, array: Any) -> UOp:
    dtype = dt.from_numpy(array.dtype)
    array = dt.codes(array)
    if array.ndim == 0:
        return Tensor(const(array.item(), dtype.held)).bitcast(dtype).node
    source = ops.TensorSource("weight", name, np.ascontiguousarray(array))
    return UOp(ops.BUFFER, dtype, (), args.Buffer(source, array.shape))


def _negative(size: Size) -> bool:
    return _known(size) < 0


def _known(size: Size) -> int:
    """A size that is an int; 0 for a symbolic one, which is never negative."""
    return size if isinstance(size, int) else 0


def _may_remove_more(size: Size, pads: tuple[Size, Size]) -> bool:
    """Whether an open size may be less than what these pads remove at one end."""
    return isinstance(size, UOp) and any(
        isinstance(amount, int) and minimum(size) < -amount for amount in pads
    )


def _removing(size: Size, low: Size, high: Size) -> tuple[Size, Size]:
    """Pads of which none removes more than there is, for a result of the same size."""
    if isinstance(size, int) and isinstance(low, int) and isinstance(high, int):
        if low < -size:
            return -size, high + low + size
        if high < -size:
            return low + high + size, -size
    return low, high


def _factor(size: Size) -> int | Tensor:
    """What an int32 tensor can be multiplied by."""
    return Tensor.from_size(size, dt.int32) if isinstance(size, UOp) else size


def _fixed(size: Size) -> int:
    """A size that must be an int. Raises TypeError for a symbolic one."""
    if isinstance(size, UOp):
        raise TypeError(f"a fixed size is needed here, not {size}")
    return int(size)


def _stride(shape: Shape, axis: int) -> Size:
    return product(shape[axis + 1 :])


def _dilated(weight: Tensor, dilations: Sequence[int]) -> Tensor:
    """The kernel with dilation - 1 zeros between its taps along every spatial axis."""
    for axis, dilation in enumerate(dilations, start=2):
        if dilation > 1:
            length = _fixed(weight.shape[axis])
            wide = weight.unsqueeze(axis + 1)
            wide = wide.pad([(0, dilation - 1 if a == axis + 1 else 0) for a in range(wide.ndim)])
            wide = wide.flatten(axis, axis + 2)
            weight = wide._cut(axis, 0, (length - 1) * dilation + 1)
    return weight


def broadcast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors expanded to their common shape by numpy's rules. Raises ValueError."""
    ndim = max(t.ndim for t in tensors)
    shape: list[Size] = [1] * ndim
    for tensor in tensors:
        for axis, size in enumerate(tensor.shape, start=ndim - tensor.ndim):
            if size == 1 or shape[axis] == size:
                continue
            if shape[axis] != 1:
                raise ValueError(f"shapes {[list(t.shape) for t in tensors]} do not broadcast")
            shape[axis] = size
    return tuple(t.broadcast_to(shape) for t in tensors)
