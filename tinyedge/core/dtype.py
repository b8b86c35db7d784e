"""Element types. One frozen record each; `index` is the integer of shapes and addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class DType:
    """kind: 'b' bool, 'i' signed, 'u' unsigned, 'f' float. lanes > 1: a vector (kernels only)."""

    name: str
    kind: str
    bits: int
    lanes: int = 1

    def __repr__(self) -> str:
        return self.name if self.lanes == 1 else f"{self.name}x{self.lanes}"

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
        """The numpy type that holds its values in the reference evaluator."""
        return np.dtype(_NUMPY.get(self.name, self.name))

    @property
    def scalar(self) -> DType:
        return _BY_NAME[self.name]

    def vector(self, lanes: int) -> DType:
        """The same element type with `lanes` lanes."""
        return _vector(self.name, lanes)

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest value of an integer or bool type."""
        if self.kind == "b":
            return 0, 1
        if self.kind == "u":
            return 0, 2**self.bits - 1
        return -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1


_NUMPY = {"index": "int64"}
_BY_NAME: dict[str, DType] = {}
_VECTORS: dict[tuple[str, int], DType] = {}


def _scalar(name: str, kind: str, bits: int) -> DType:
    dtype = _BY_NAME[name] = DType(name, kind, bits)
    return dtype


def _vector(name: str, lanes: int) -> DType:
    if lanes == 1:
        return _BY_NAME[name]
    dtype = _VECTORS.get((name, lanes))
    if dtype is None:
        base = _BY_NAME[name]
        dtype = _VECTORS[name, lanes] = DType(name, base.kind, base.bits, lanes)
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

ALL = tuple(dtype for name, dtype in _BY_NAME.items() if name != "index")


def by_name(name: str) -> DType:
    """The scalar type called `name`. Raises KeyError."""
    return _BY_NAME[name]


def from_numpy(dtype: Any) -> DType:
    """The type of a numpy dtype. Raises TypeError for strings, complex, objects."""
    name = np.dtype(dtype).name
    if name not in _BY_NAME:
        names = ", ".join(d.name for d in ALL)
        raise TypeError(f"no tinyedge type for numpy's {name}; supported: {names}")
    return _BY_NAME[name]
