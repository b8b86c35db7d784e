"""What every tensor is, before it has operations: a node of a graph, its facts and its type."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Union

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import Shape, Size, UOp, as_node, cast, const, elementwise
from tinyedge.core.values import observers

if TYPE_CHECKING:
    from typing_extensions import Self

Scalar = Union[bool, int, float]
NUMBERS = (bool, int, float, np.number, np.bool_)
Axes = Union[int, Sequence[int], None]
Sizes = Union[int, Sequence[int]]  # one for each spatial axis, or one for all
Method = TypeVar("Method", bound=Callable[..., Any])
Given = TypeVar("Given", bound="Lazy")


def computed(method: Method) -> Method:
    """A method's arithmetic on a stored type is done in another; its result is rounded once."""

    @functools.wraps(method)
    def call(self: Lazy, *operands: Any, **options: Any) -> Any:
        dtype = self.dtype
        if not dtype.storage_type:
            return method(self, *operands, **options)
        for other in operands:
            if isinstance(other, Lazy) and other.dtype is not dtype:
                raise TypeError(f"an operation on {dtype} and {other.dtype}: cast one of them")
        wide = (o.cast(dtype.computed) if isinstance(o, Lazy) else o for o in operands)
        result = method(self.cast(dtype.computed), *wide, **options)
        return result.cast(dtype) if result.dtype is dtype.computed else result

    return call  # type: ignore[return-value]


def given(kind: type[Given], value: Any, what: str) -> Given:
    """A tensor that is given to `what`, or the one that an array, a number or a list of numbers is
    (of Python's integers: int32). Raises TypeError for anything else.
    """
    if isinstance(value, kind):
        return value
    if isinstance(value, (np.ndarray, np.generic, int, float, list, tuple)):
        array = np.array(value)
        if dt.has_type(array.dtype):
            known = isinstance(value, (np.ndarray, np.generic)) or array.dtype != np.int64
            return kind(array if known else array.astype(np.int32))
    raise TypeError(f"{what} of {type(value).__name__}: it takes a tensor or an array")


def places(kind: type[Given], value: Any, what: str) -> Given:
    """As `given`, of integers that say where. Raises TypeError for others."""
    found = given(kind, value, what)
    if not found.dtype.is_int:
        raise TypeError(f"{what} needs integer indices, not {found.dtype}")
    return found


class UnequalSizes(ValueError):
    """`sizes` must be equal, and are not or not always."""

    def __init__(self, message: str, sizes: tuple[Size, Size]) -> None:
        super().__init__(message)
        self.sizes = sizes


class Lazy:
    """What every tensor is: a `node`, with its facts, its construction and its type."""

    __slots__ = ("__weakref__", "node")

    # numpy's operators leave a Tensor on their right to the Tensor.
    __array_ufunc__ = None

    __array_priority__ = 1000

    def __init__(self, data: Any, dtype: DType | None = None) -> None:
        """A constant from an array, a list or a scalar, copied; or a view of a graph node."""
        if isinstance(data, UOp):
            self.node = data
            for observe in observers:
                observe(data)
            return
        array = np.array(data)
        dtype = None if dtype is None else dt.of(dtype)
        if dtype is not None and dtype.storage_type and array.dtype.name != dtype.name:
            self.node = cast(_weight("constant", array.astype(dtype.computed.numpy)), dtype)
            return
        if dtype is not None and not dtype.storage_type:
            array = array.astype(dtype.numpy)
        self.node = _weight("constant", array)

    # Construction.

    @classmethod
    def input(cls, name: str, shape: Sequence[Size], dtype: DType) -> Self:
        """A model input."""
        return cls(
            UOp(ops.BUFFER, dtype, (), args.Buffer(ops.TensorSource("input", name), tuple(shape)))
        )

    @classmethod
    def weight(cls, name: str, array: Any) -> Self:
        """A named constant array."""
        return cls(_weight(name, np.asarray(array)))

    @classmethod
    def full(cls, shape: Sequence[Size], value: Scalar, dtype: DType) -> Self:
        """Every element is `value`."""
        dtype = dt.of(dtype)
        node, target = scalar(value, dtype), sizes_of(shape)
        if any(isinstance(size, int) and size < 0 for size in target):
            raise ValueError(f"a tensor of {list(target)}: no size is below 0")
        if target:
            ones = (1,) * len(target)
            node = UOp(ops.RESHAPE, dtype, (node,), ones)
            node = node if target == ones else UOp(ops.EXPAND, dtype, (node,), target)
        return cls(node)

    @classmethod
    def arange(cls, size: Size, dtype: DType = dt.int32) -> Self:
        """0, 1, ..., size - 1."""
        (size,) = sizes_of((size,))
        if isinstance(size, int) and size < 0:
            raise ValueError(f"arange of {size}: no size is below 0")
        return cls(UOp(ops.IOTA, dt.index, (), (size,))).cast(dtype)

    @classmethod
    def from_size(cls, size: Size, dtype: DType = dt.int64) -> Self:
        """A size as a scalar tensor: symbolic shape arithmetic as data."""
        return cls(as_node(size)).cast(dtype)

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

    # Types.

    def cast(self, dtype: DType) -> Self:
        """Converted: floats to integers truncate and saturate, NaN to 0; to bool is `!= 0`.

        To stored types: see `stored.convert`. A type may be given by its name, too.
        """
        dtype = dt.of(dtype)
        if dtype is dt.bool_ and not self.dtype.storage_type:
            if self.dtype is dtype:
                return self
            zeros = self.full(self.shape, 0, self.dtype)
            is_zero = elementwise(ops.EQ, self.node, zeros.node)
            return type(self)(elementwise(ops.NOT, is_zero))
        return type(self)(cast(self.node, dtype))

    def bitcast(self, dtype: DType) -> Self:
        """The same bits as another type of the same width; a stored type's are its carrier's, too.

        Raises TypeError for another width.
        """
        dtype = dt.of(dtype)
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
        return type(self)(node)


def scalar(value: Scalar, dtype: DType) -> UOp:
    """A constant that a Python number is. Raises TypeError where the type cannot hold it."""
    if not isinstance(value, NUMBERS) or isinstance(value, complex):
        kind = type(value).__name__
        raise TypeError(f"{kind} {value!r} is neither a number, an array nor a tensor")
    if isinstance(value, float) and not dtype.is_float and not value.is_integer():
        raise TypeError(f"{value} with {dtype}: cast one of them")
    return cast(const(value, dtype.computed), dtype)


def _weight(name: str, array: Any) -> UOp:
    dtype = dt.from_numpy(array.dtype)
    array = dt.codes(array)
    if array.ndim == 0:
        node = const(array.item(), dtype.held)
        return node if node.dtype is dtype else UOp(ops.BITCAST, dtype, (node,))
    source = ops.TensorSource("weight", name, np.ascontiguousarray(array))
    return UOp(ops.BUFFER, dtype, (), args.Buffer(source, array.shape))


def unpacked(sizes: Sequence[Any]) -> tuple[Any, ...]:
    """Sizes as arguments, which are one by one or one sequence."""
    return tuple(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], Sequence) else sizes)


def sizes_of(shape: Any, more: Sequence[Any] = ()) -> tuple[Size, ...]:
    """Sizes in a sequence, or one by one, the others in `more`: ints, or symbolic.

    Raises TypeError for what is no size.
    """
    if more and isinstance(shape, (tuple, list)):
        raise TypeError(f"{shape!r} and {list(more)}: sizes are in one sequence, or one by one")
    whole = shape if isinstance(shape, (tuple, list)) else _listed(shape, more)
    return tuple(
        size if type(size) is int or isinstance(size, UOp) else _size(size) for size in whole
    )


def _size(size: Any) -> int:
    try:
        return operator.index(size)
    except TypeError:
        raise TypeError(f"a size of {type(size).__name__} {size!r}: it is a whole number") from None


def _listed(shape: Any, more: Sequence[Any]) -> tuple[Any, ...]:
    if isinstance(shape, (UOp, int, np.integer)):
        return (shape, *more)
    if more or isinstance(shape, (str, float)):
        raise TypeError(f"{[shape, *more]} is no shape: sizes are whole numbers")
    return tuple(shape)


def axes_of(axes: Axes, ndim: int) -> tuple[int, ...]:
    """The axes that are meant, of so many, counted from 0; None: all of them."""
    if axes is None:
        return tuple(range(ndim))
    single = isinstance(axes, (int, np.integer))
    try:
        chosen = tuple(map(operator.index, (axes,) if single else axes))  # type: ignore[arg-type]
    except TypeError:
        kind = type(axes).__name__
        raise TypeError(f"an axis of {kind} {axes!r}: axes are whole numbers") from None
    for axis in chosen:
        if not -ndim <= axis < ndim:
            raise ValueError(f"axis {axis} of a tensor with {ndim} axes")
    return tuple(axis % ndim for axis in chosen)


def pairs_of(pairs: Any, axes: int, what: str) -> list[tuple[Any, Any]]:
    """A pair of sizes for each of so many axes. Raises ValueError."""
    try:
        found = [(first, second) for first, second in pairs]
    except (TypeError, ValueError):
        found = []
    if len(found) != axes:
        raise ValueError(f"{what} by {pairs!r}: it takes a pair for each of {axes} axes")
    return found


def each(sizes: Sizes, axes: int, what: str) -> tuple[int, ...]:
    """A size for each of so many spatial axes. Raises ValueError."""
    found = (sizes,) * axes if isinstance(sizes, int) else tuple(sizes)
    if len(found) != axes:
        raise ValueError(f"{what} {sizes} for {axes} spatial axes")
    return found


def fixed(size: Size) -> int:
    """A size that must be an int. Raises TypeError for a symbolic one."""
    if isinstance(size, UOp):
        raise TypeError(f"a fixed size is needed here, not {size}")
    return int(size)
