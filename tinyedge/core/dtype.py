"""Element types. One frozen record each; `index` is the integer of shapes and addresses.

A *stored* type (bfloat16, float8, float4, int4...) is a name for the codes that a `carrier` holds,
one element each: memory and movement know it, nothing computes with it. `core/stored.py` says which
numbers its codes mean.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class DType:
    """An element type."""

    name: str
    kind: str  # 'b' bool, 'i' signed, 'u' unsigned, 'f' float. lanes > 1: a vector (kernels only).
    bits: int
    lanes: int = 1
    storage_type: str = ""  # of a stored type, the integer type that holds its codes
    role: str = ""  # of a matrix that threads hold together: see `ir/fragments.py`

    def __repr__(self) -> str:
        return self.name if self.lanes == 1 else f"{self.name}x{self.lanes}{self.role}"

    @property
    def itemsize(self) -> int:
        """Bytes of one scalar element."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "iu"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type that holds its values in the reference evaluator; of a stored type, its
        codes.
        """
        return np.dtype(self.storage_type or _NUMPY.get(self.name, self.name))

    @property
    def held(self) -> DType:
        """The type that memory holds it as: a stored type's carrier, or itself."""
        return _BY_NAME[self.storage_type] if self.storage_type else self

    @property
    def computed(self) -> DType:
        """The type that arithmetic on it is done in: float32 or int32 for a stored type."""
        if not self.storage_type:
            return self
        return float32 if self.is_float else int32

    @property
    def scalar(self) -> DType:
        return _BY_NAME[self.name]

    def vector(self, lanes: int) -> DType:
        """The same element type with `lanes` lanes."""
        return _vector(self.name, lanes)

    def fragment(self, role: str, lanes: int) -> DType:
        """The type of a matrix of such elements, of which each thread holds some."""
        return _vector(self.name, lanes, role)

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest value of an integer or bool type."""
        if self.kind == "b":
            return 0, 1
        if self.kind == "u":
            return 0, 2**self.bits - 1
        return -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1

    @property
    def code_limits(self) -> tuple[int, int]:
        """Least and greatest code of a stored type."""
        return self.limits if self.is_int else (0, 2**self.bits - 1)


_NUMPY = {"index": "int64"}
_BY_NAME: dict[str, DType] = {}
_VECTORS: dict[tuple[str, int, str], DType] = {}


def _scalar(name: str, kind: str, bits: int, storage_type: str = "") -> DType:
    dtype = _BY_NAME[name] = DType(name, kind, bits, 1, storage_type)
    return dtype


def _vector(name: str, lanes: int, role: str = "") -> DType:
    if lanes == 1:
        return _BY_NAME[name]
    dtype = _VECTORS.get((name, lanes, role))
    if dtype is None:
        base = _BY_NAME[name]
        dtype = _VECTORS[name, lanes, role] = DType(name, base.kind, base.bits, lanes, role=role)
    return dtype


bool_ = _scalar("bool", "b", 8)
int8 = _scalar("int8", "i", 8)
int16 = _scalar("int16", "i", 16)
int32 = _scalar("int32", "i", 32)
int64 = _scalar("int64", "i", 64)
uint8 = _scalar("uint8", "u", 8)
uint16 = _scalar("uint16", "u", 16)
uint32 = _scalar("uint32", "u", 32)
uint64 = _scalar("uint64", "u", 64)
float16 = _scalar("float16", "f", 16)
float32 = _scalar("float32", "f", 32)
float64 = _scalar("float64", "f", 64)
index = _scalar("index", "i", 32)

bfloat16 = _scalar("bfloat16", "f", 16, "uint16")
float8_e4m3fn = _scalar("float8_e4m3fn", "f", 8, "uint8")
float8_e4m3fnuz = _scalar("float8_e4m3fnuz", "f", 8, "uint8")
float8_e5m2 = _scalar("float8_e5m2", "f", 8, "uint8")
float8_e5m2fnuz = _scalar("float8_e5m2fnuz", "f", 8, "uint8")
float8_e8m0fnu = _scalar("float8_e8m0fnu", "f", 8, "uint8")
float6_e2m3fn = _scalar("float6_e2m3fn", "f", 6, "uint8")
float6_e3m2fn = _scalar("float6_e3m2fn", "f", 6, "uint8")
float4_e2m1fn = _scalar("float4_e2m1fn", "f", 4, "uint8")
int4 = _scalar("int4", "i", 4, "int8")
uint4 = _scalar("uint4", "u", 4, "uint8")
int2 = _scalar("int2", "i", 2, "int8")
uint2 = _scalar("uint2", "u", 2, "uint8")

STORED = tuple(dtype for dtype in _BY_NAME.values() if dtype.storage_type)
ALL = tuple(d for d in _BY_NAME.values() if not d.storage_type and d is not index)  # computed with


def by_name(name: str) -> DType:
    """The scalar type called `name`. Raises KeyError."""
    return _BY_NAME[name]


@lru_cache(None)
def from_numpy(dtype: Any) -> DType:
    """The type of a numpy dtype; stored types are those of the package ml_dtypes.

    Raises TypeError for strings, complex, objects.
    """
    name = np.dtype(dtype).name
    if name not in _BY_NAME:
        names = ", ".join(d.name for d in (*ALL, *STORED))
        raise TypeError(f"no tinyedge type for numpy's {name}; supported: {names}")
    return _BY_NAME[name]


def has_type(dtype: Any) -> bool:
    """Whether there is a type for a numpy dtype."""
    return np.dtype(dtype).name in _BY_NAME


def of(given: Any) -> DType:
    """A type, as itself, by its name or as numpy's. Raises TypeError."""
    if isinstance(given, DType):
        return given
    if isinstance(given, str) and given in _BY_NAME:
        return _BY_NAME[given]
    if isinstance(given, (str, type, np.dtype)):
        with suppress(TypeError):  # of a text that is no type's name
            given = np.dtype(given)
    if isinstance(given, np.dtype):
        return from_numpy(given)
    hint = "; sizes are in one sequence, as (2, 3)" if isinstance(given, int) else ""
    raise TypeError(
        f"{given!r} is no type of elements: give one by its name, such as 'float32'{hint}"
    )


def codes(array: Any) -> Any:
    """An array of a stored type of ml_dtypes as one of its carrier; any other as it is."""
    array = np.asarray(array)
    dtype = _BY_NAME.get(array.dtype.name)
    if dtype is None or not dtype.storage_type:
        return array
    # ml_dtypes leaves the bits beyond those of the type undefined
    return low_bits(array.view(dtype.numpy), dtype)


def low_bits(raw: Any, dtype: DType) -> Any:
    """Codes of a stored type from elements of its carrier that hold them in their low bits."""
    if dtype.bits >= 8:
        return raw
    if dtype.kind == "i":
        unused = 8 - dtype.bits
        return np.right_shift(np.left_shift(raw, unused), unused)
    return raw & np.uint8(2**dtype.bits - 1)


def named(array: Any, dtype: DType) -> Any:
    """An array of a stored type's codes as one of ml_dtypes, if that is installed; else itself."""
    if not dtype.storage_type or array.dtype != dtype.numpy:
        return array
    try:
        import ml_dtypes
    except ImportError:
        return array
    return np.ascontiguousarray(array).view(getattr(ml_dtypes, dtype.name)).reshape(array.shape)


def cast_array(array: Any, dtype: DType) -> Any:
    """numpy's conversion, except that floats out of an integer's range saturate and NaN gives 0."""
    with np.errstate(all="ignore"):
        if not dtype.is_int or array.dtype.kind != "f":
            return array.astype(dtype.numpy)
        low, high = dtype.limits
        whole = np.trunc(np.nan_to_num(array.astype(np.float64), nan=0.0))
        inside = np.clip(whole, low, high).astype(dtype.numpy)
        ends = np.where(whole <= low, np.asarray(low, dtype.numpy), np.asarray(high, dtype.numpy))
        return np.where((whole > low) & (whole < high), inside, ends)
