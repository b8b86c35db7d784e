"""Ports: between the arrays a caller sees and the bytes a buffer holds, and the words for both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tinyedge.core import dtype as dtypes
from tinyedge.core.errors import RunError
from tinyedge.core.program.device import Bytes
from tinyedge.core.program.program import Expression, Port, State, Symbol, evaluate
from tinyedge.core.stored import convert

Array = np.ndarray[Any, Any]


def encode(array: Array, storage: str, subject: str) -> Bytes:
    """An array's bytes as a buffer holds them, padded with zeros to a multiple of 4.

    Raises RunError if an integer, or a finite float, does not fit the storage type.
    """
    target = dtypes.by_name(storage)
    if array.dtype.kind in "iu" and target.is_int and array.size:
        low, high = target.limits
        least, greatest = int(array.min()), int(array.max())
        if least < low or greatest > high:
            culprit = least if least < low else greatest
            raise RunError(
                subject,
                f"its value {culprit} does not fit the device's {storage}",
                id="run.range",
                supported=f"{low}..{high}",
            )
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, target.numpy.newbyteorder("<"))
    _check_finite(array, converted, f"the device's {storage}", subject)
    content = raw(converted)
    return pad(content, padded(content.nbytes))


def decode(content: Bytes, port: Port | State, shape: tuple[int, ...]) -> Array:
    """A buffer's bytes as an array of the declared dtype and of `shape`."""
    storage, dtype = dtypes.by_name(port.storage).numpy, dtypes.by_name(port.dtype)
    elements = elements_of(shape)
    stored = content[: elements * storage.itemsize].view(storage.newbyteorder("<"))
    if port.dtype == "bool" and port.storage == "bool":
        stored = stored.view(np.uint8)
    with np.errstate(over="ignore"):  # float32 computed for float16: infinity beyond its range
        values: Array = stored.astype(dtype.numpy, copy=False)
    named: Array = dtypes.named(values.reshape(shape), dtype)
    return named


def as_array(value: Any, dtype: str, subject: str) -> Array:
    """A value as an array of exactly `dtype`; only Python's own numbers and lists are converted.

    Of a stored type the result is its codes, and may be given as them or as ml_dtypes' type.
    """
    kind = dtypes.by_name(dtype)
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__"):
        try:
            array = np.asarray(value)
        except Exception as error:  # of another package: a tensor of a GPU, one with gradients
            raise RunError(subject, f"it gives no array: {error}", id="run.input") from error
        if array.dtype.name == dtype:
            array = dtypes.codes(array)
        elif kind.storage_type and array.dtype == np.dtype(
            f"V{kind.itemsize}"
        ):  # as .npy files hold it
            array = dtypes.low_bits(array.view(kind.numpy), kind)
        elif kind.storage_type and array.dtype == kind.numpy:
            _check_range(array, kind.code_limits, dtype, subject)
        if array.dtype.newbyteorder("=") != kind.numpy:
            storage_type = f", or its codes as {kind.storage_type}" if kind.storage_type else ""
            package = "ml_dtypes" if storage_type else "numpy"
            raise RunError(
                subject,
                f"its dtype is {array.dtype.name}",
                id="run.dtype",
                supported=f"{dtype}{storage_type}",
                next=f"convert it: array.astype({package}.{dtype})",
            )
        return array
    try:
        natural = np.asarray(value)
    except ValueError as error:
        raise RunError(subject, str(error), id="run.shape", supported="a regular array") from None
    if natural.size and not _rank(natural.dtype.kind) <= _rank(kind.kind):
        raise RunError(
            subject,
            f"its values are {natural.dtype.name}",
            id="run.dtype",
            supported=dtype,
        )
    if kind.is_int:
        _check_range(natural, kind.limits, dtype, subject)
    converted: Array
    if kind.storage_type:
        computed = natural.astype(kind.computed.numpy)
        converted = convert(computed, kind.computed, kind)
        return converted
    with np.errstate(over="ignore"):
        converted = natural.astype(kind.numpy)
    _check_finite(natural, converted, dtype, subject)
    return converted


def _check_range(array: Array, limits: tuple[int, int], dtype: str, subject: str) -> None:
    if array.size and not limits[0] <= int(array.min()) <= int(array.max()) <= limits[1]:
        raise RunError(
            subject,
            f"its values do not fit {dtype}",
            id="run.range",
            supported=f"{limits[0]}..{limits[1]}",
        )


def _check_finite(array: Array, converted: Array, dtype: str, subject: str) -> None:
    """Raise RunError where a finite float became infinite."""
    if converted.dtype.kind != "f" or converted.itemsize >= array.itemsize:
        return
    lost = np.isinf(converted).reshape(array.shape) & np.isfinite(array)
    if lost.any():
        raise RunError(
            subject,
            f"its value {array[lost][0]} does not fit {dtype}",
            id="run.range",
            supported=f"magnitudes up to {np.finfo(converted.dtype).max}",
        )


def _rank(kind: str) -> int:
    """bool < integer < float < anything else: Python's values may go up, never down."""
    return {"b": 0, "i": 1, "u": 1, "f": 2}.get(kind, 3)


def raw(array: Array) -> Bytes:
    """The bytes of an array in row-major order."""
    content: Bytes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return content


def pad(content: Bytes, bytes: int) -> Bytes:
    """Content followed by zeros, `bytes` long in all."""
    if content.nbytes == bytes:
        return content
    longer = np.zeros(bytes, np.uint8)
    longer[: content.nbytes] = content
    return longer


def padded(bytes: int) -> int:
    """The next multiple of 4."""
    return -(-bytes // 4) * 4


# Sizes.


def size_of(expression: Expression, values: Mapping[str, int], subject: str) -> int:
    """An expression's value; RunError where it has none."""
    try:
        return evaluate(expression, values)
    except (OverflowError, ZeroDivisionError) as error:
        raise RunError(subject, str(error), id="run.shape") from None


def shape_of(shape: tuple[Expression, ...], named: Mapping[str, int]) -> tuple[int, ...]:
    """A shape at the sizes of a run. Raises RunError where they are too small for it."""
    result = tuple(size_of(size, named, "an output's shape") for size in shape)
    if min(result, default=0) < 0:
        raise sizes_error("an output's shape", f"it is {list(result)}", named)
    return result


def sizes_error(subject: str, because: str, named: Mapping[str, int]) -> RunError:
    """The error of sizes of a run that are too small for the model."""
    sizes = ", ".join(f"{name} = {size}" for name, size in named.items())
    return RunError(subject, f"{because} where {sizes}", id="run.shape", next="give greater inputs")


def elements_of(shape: tuple[int, ...]) -> int:
    elements = 1
    for size in shape:
        elements *= size
    return elements


def allowed(symbol: Symbol, size: int) -> bool:
    return symbol.min <= size <= symbol.max and (size - symbol.min) % symbol.step == 0


def describe_values(symbol: Symbol) -> str:
    if symbol.min == symbol.max:
        return f"{symbol.min}"
    step = f" in steps of {symbol.step}" if symbol.step > 1 else ""
    return f"{symbol.min}..{symbol.max}{step}"


# Words for errors.


def describe(port: Port) -> str:
    return f"{port.name} {port.dtype} [{', '.join(say(size) for size in port.shape)}]"


def say(expression: Expression) -> str:
    """An expression as a person writes it: `ceildiv(4 * H, 64)`."""
    if not isinstance(expression, tuple):
        return str(expression)
    operator, a, b = expression
    infix = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}.get(operator)
    if infix is None:
        return f"{operator}({say(a)}, {say(b)})"
    left, right = (f"({say(x)})" if isinstance(x, tuple) else say(x) for x in (a, b))
    return f"{left} {infix} {right}"


def quote(names: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, names)) or "none"
