"""Open sizes of arguments: one program for many shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from tinyedge.core.errors import InputError
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.ir.uop import Shape, UOp

Sized = Sequence[Union["Dim", int, None]]


@dataclass(frozen=True)
class Dim:
    """A size that calls choose: min <= size <= max, and size % step == min % step."""

    name: str
    min: int
    max: int
    step: int = 1

    @property
    def node(self) -> UOp:
        return symbol(self.name, self.min, self.max, self.step)

    def holds(self, size: int) -> bool:
        return self.min <= size <= self.max and (size - self.min) % self.step == 0


@dataclass(frozen=True)
class Open:
    """Of one call: shapes with open sizes by the tensors' ids, and the sizes by name."""

    shapes: Mapping[int, Shape] = field(default_factory=dict)
    values: Mapping[str, int] = field(default_factory=dict)


NONE = Open()


class Sizes:
    """Which sizes of which parameters are open: a Dim, an int that it must be, or None."""

    def __init__(self, sizes: Mapping[str, Sized]) -> None:
        self._sizes = sizes

    def of(self, parameters: Sequence[str], arguments: Sequence[Any]) -> Open:
        """Those of a call. Raises InputError for a size that a Dim does not hold."""
        if not self._sizes:
            return NONE
        shapes: dict[int, Shape] = {}
        values: dict[str, int] = {}
        for name, value in zip(parameters, arguments, strict=True):
            if name in self._sizes:
                shapes[id(value)] = _open(name, value, self._sizes[name], values)
        return Open(shapes, values)


def _open(name: str, value: Any, sizes: Sized, values: dict[str, int]) -> Shape:
    shape = getattr(value, "shape", None)
    if shape is None or len(shape) != len(sizes):
        found = f"it is {list(shape)}" if shape is not None else f"it is a {type(value).__name__}"
        raise _refused(name, found, f"a tensor of {len(sizes)} axes")
    result: list[Any] = []
    for axis, (size, wanted) in enumerate(zip(shape, sizes, strict=True)):
        if isinstance(wanted, Dim):
            if not wanted.holds(size):
                step = f" in steps of {wanted.step}" if wanted.step > 1 else ""
                allowed = f"{wanted.name} from {wanted.min} to {wanted.max}{step}"
                raise _refused(name, f"axis {axis} is {size}", allowed)
            if values.setdefault(wanted.name, size) != size:
                because = f"axis {axis} is {size}, but {wanted.name} is {values[wanted.name]}"
                raise _refused(name, because, "one size in all arguments")
            result.append(wanted.node)
        elif wanted not in (None, size):
            raise _refused(name, f"axis {axis} is {size}", str(wanted))
        else:
            result.append(size)
    return tuple(result)


def _refused(name: str, because: str, supported: str) -> InputError:
    return InputError(f"argument {name!r}", because, id="jit.size", supported=supported)
