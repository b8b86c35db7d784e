"""A model's declared inputs: their types and sizes, and those that a caller fixes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tinyedge.core.dtype import DType, codes, from_numpy
from tinyedge.core.errors import InputError, UnsupportedOp
from tinyedge.export.onnx import dims as sizes_of
from tinyedge.export.onnx import reader
from tinyedge.export.onnx.imported import element_names
from tinyedge.export.onnx.known import constant
from tinyedge.export.onnx.ordering import duplicate


def declared(
    graph: Any,
    stored: Mapping[str, Any],
    shapes: Mapping[str, Sequence[str]],
    warn: Callable[[str], None],
    refuse: Callable[[str, InputError], None],
) -> tuple[list[sizes_of.Declared], list[DType | None], dict[str, int | str]]:
    """The inputs; their element types, None for those that are refused; what `shapes`, which
    the caller gives, say of their sizes.
    """
    entries: list[sizes_of.Declared] = []
    dtypes: list[DType | None] = []
    sizes: dict[str, int | str] = {}
    names = set()
    for value in graph.input:
        if value.name in names or not value.name:
            raise duplicate("input", value.name)
        names.add(value.name)
        if value.name in stored:
            continue
        kind = type_of(value).tensor_type
        entry = sizes_of.Declared(value.name, dims_of(kind.shape))
        if value.name in shapes:
            dims = entry.dims if kind.HasField("shape") else None
            entry, more = sizes_of.with_shape(value.name, dims, shapes[value.name])
            sizes.update(more)
        entries.append(entry)
        if value.type.HasField("optional_type"):
            warn(f"input {value.name!r} is optional: it has to be given")
        try:
            dtypes.append(element_type(value, value.name in shapes))
        except UnsupportedOp as error:
            refuse(value.name, error)
            dtypes.append(None)
    return entries, dtypes, sizes


def fixed(inputs: Iterable[Any], constants: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs (ValueInfoProtos) with values that the caller gives: arrays, lists of them for
    sequences, None.
    """
    named = {value.name: value for value in inputs}
    values = {}
    for name, value in constants.items():
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            value = _filled(value, named[name])
        values[name] = _fixed_value(value, name)
    return values


def no_constant(name: str, inputs: Iterable[str]) -> InputError:
    """The error for a constant in the place of an input that is not there."""
    return InputError(
        f"constant {name!r}",
        "the model has no such input",
        id="input.constant",
        supported=", ".join(map(repr, inputs)),
    )


def _filled(number: bool | int | float, value: Any) -> Any:
    """An input of one number, as an array. Raises InputError where it cannot be that."""
    dtype, dims = element_type(value), dims_of(type_of(value).tensor_type.shape)
    kind = np.dtype(dtype.numpy)
    with np.errstate(all="ignore"):
        array = np.asarray(number).astype(kind)
    if dtype.storage_type or (dtype.is_int and array != number):
        raise InputError(
            f"constant {value.name!r}",
            f"{number!r} is no number of type {dtype.name}",
            id="input.constant",
        )
    if not all(isinstance(dim, int) for dim in dims):
        raise InputError(
            f"constant {value.name!r}",
            "the input has open sizes",
            id="input.constant",
            supported="inputs of fixed shape",
        )
    return np.full(dims, array)


def _fixed_value(value: Any, name: str) -> Any:
    """A value for an input as constants. Raises UnsupportedOp."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_fixed_value(part, label) for label, part in element_names(name, value).items()]
    try:
        dtype = from_numpy(np.asarray(value).dtype)
    except TypeError as error:
        raise UnsupportedOp(
            f"constant {name!r}",
            f"its type is {np.asarray(value).dtype}",
            id="model.dtype",
            supported=reader.SUPPORTED_DTYPES,
        ) from error
    return constant(codes(value), name, dtype)


def type_of(value: Any) -> Any:
    """The type of an input, also of one that may be absent."""
    kind = value.type
    return kind.optional_type.elem_type if kind.HasField("optional_type") else kind


def element_type(value: Any, has_shape: bool = False) -> DType:
    """The element type of an input. Raises UnsupportedOp for what cannot be one.

    has_shape: the caller says which shape it has, so that the model need not.
    """
    subject = f"input {value.name!r}"
    if not type_of(value).HasField("tensor_type"):
        raise UnsupportedOp(
            subject,
            "it is no tensor: of a sequence it is not known how many tensors it holds",
            id="model.unsupported",
            supported="tensors",
            next="make each tensor an input, and a sequence of them by SequenceConstruct",
        )
    kind = type_of(value).tensor_type
    if not has_shape and not kind.HasField("shape"):
        raise UnsupportedOp(
            subject,
            "the model does not say how many axes it has",
            id="model.unsupported",
            supported="inputs of known rank",
            next=f"say its shape: --dim {shlex.quote(f'{value.name}=[1,3,?,?]')}, with as many "
            "sizes as it has axes, ? for an open one",
        )
    return reader.element_type(kind.elem_type, subject)


def dims_of(shape: Any) -> tuple[sizes_of.Dim, ...]:
    result: list[sizes_of.Dim] = []
    for dim in shape.dim:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            result.append(int(dim.dim_value))
        elif dim.HasField("dim_param") and dim.dim_param not in ("", "?"):
            result.append(dim.dim_param)
        else:
            result.append(None)
    return tuple(result)
