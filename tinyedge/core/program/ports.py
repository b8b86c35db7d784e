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

CACHE_LINE = 64  # bytes


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


def bytes_of(port: Port | State, named: Mapping[str, int]) -> int:
    """The bytes that a port has in its buffer at these sizes."""
    itemsize = dtypes.by_name(port.storage).itemsize
    return padded(elements_of(shape_of(port.shape, named)) * itemsize)


def aligned(bytes: int) -> Bytes:
    """New memory that begins where a cache line does."""
    whole = np.empty(bytes + CACHE_LINE, np.uint8)
    start = -whole.ctypes.data % CACHE_LINE
    return whole[start : start + bytes]


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


INFIX = ("add", "sub", "mul", "floordiv", "mod")


def say(expression: Expression) -> str:
    """An expression as a person writes it, one way for each: `2 * H + W - 1`, `ceildiv(H, 64)`.

    Sums and products are in the order of the alphabet, with numbers last in sums, else first.
    """
    if not isinstance(expression, tuple):
        return str(expression)
    operator, *operands = expression
    if operator in ("add", "sub"):
        return _sum(expression)
    if operator == "mul":
        number, factors = _factors(expression)
        if number == 1 and len(factors) == 1:
            return say(factors[0])
        texts = sorted(_inner(factor) for factor in factors)
        sign = "-" if number < 0 else ""
        return sign + " * ".join([str(abs(number))] * (abs(number) != 1 or not texts) + texts)
    infix = {"floordiv": "//", "mod": "%"}.get(operator)
    if infix is None:
        return f"{operator}({', '.join(map(say, operands))})"
    return f" {infix} ".join(map(_inner, operands))


def _inner(expression: Expression) -> str:
    """An operand, in brackets unless it reads as one thing without them."""
    text = say(expression)
    of_parts = isinstance(expression, tuple) and expression[0] in INFIX
    return f"({text})" if (of_parts and " " in text) or text.startswith("-") else text


def _factors(expression: Expression) -> tuple[int, list[Expression]]:
    """A product as a number and what it multiplies."""
    if isinstance(expression, int):
        return expression, []
    if not isinstance(expression, tuple) or expression[0] != "mul":
        return 1, [expression]
    (a, left), (b, right) = map(_factors, expression[1:])
    return a * b, left + right


def _terms(expression: Expression, sign: int = 1) -> list[tuple[int, Expression]]:
    """A sum as its terms, each with the number that multiplies it; of a number, 1 is multiplied."""
    if isinstance(expression, tuple) and expression[0] in ("add", "sub"):
        _, a, b = expression
        return _terms(a, sign) + _terms(b, sign if expression[0] == "add" else -sign)
    number, factors = _factors(expression)
    product: Expression = 1
    for factor in factors:
        product = factor if product == 1 else ("mul", product, factor)
    return [(sign * number, product)]


def _sum(expression: Expression) -> str:
    terms = _terms(expression)
    constant = sum(number for number, product in terms if product == 1)
    texts = sorted(
        (number < 0, say(("mul", product, abs(number))))
        for number, product in terms
        if product != 1
    )
    numbers = [(constant < 0, str(abs(constant)))] if constant or not texts else []
    ordered = texts + numbers if not texts or not texts[0][0] else numbers + texts
    first, *others = ordered
    start = f"-{first[1]}" if first[0] else first[1]
    return start + "".join(f" {'-' if below else '+'} {text}" for below, text in others)


def quote(names: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, names)) or "none"
