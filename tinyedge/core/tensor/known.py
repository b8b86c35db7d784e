"""Tensors whose values are wanted: as arrays, as Python's numbers, in a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.tensor.reductions import Reductions
from tinyedge.core.values import values

if TYPE_CHECKING:
    from typing_extensions import Self

SHOWN = 1000  # elements that a tensor's text may show; of more, the first and last ones


class Known(Reductions):
    """What needs values. A tensor that depends on the argument of a traced function has none:
    TraceError.
    """

    __slots__ = ()

    def realize(self, *others: Any, device: Any = None) -> Self:
        """This tensor, computed now, once, and kept on a device; with others in one program.

        device: a `tinyedge.device`, or its name; default: the one that holds what they are computed
        from, else the current one. In a traced function, where nothing is known, this is
        `in_memory`.
        """
        if not values().realize([self, *others], device):
            return self.in_memory()
        return self

    @property
    def device(self) -> str:
        """The name of the device that holds it; "" where it is not computed, or a constant."""
        return values().place(self)

    def to(self, device: Any) -> Self:
        """A tensor of the same values on a device; this one stays where it is. See `realize`."""
        return type(self)(self.node).realize(device=device)

    def numpy(self) -> Any:
        """The values, a new array. The graph must have no inputs.

        Of a stored type: an array of ml_dtypes' type, or of codes where that is not installed.
        """
        return values().array(self)

    def data(self) -> memoryview:
        """The values' bytes, a copy of this shape."""
        return memoryview(self.numpy())

    def tolist(self) -> Any:
        """The values as nested lists of Python's numbers; of a scalar, the number."""
        return self.numpy().tolist()

    def item(self) -> Any:
        """The one element, a Python number. Raises ValueError if there are more."""
        if self.size != 1:
            raise ValueError(f"item() of a tensor of {self.size} elements, {list(self.shape)}")
        return self.numpy().item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise TypeError(
                f"a tensor of {self.size} elements has no truth value; compare and use .where()"
            )
        return bool(self.item())

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # it never changes

    def __reduce__(self) -> Any:
        """Pickled as its values."""
        if self.dtype.storage_type:
            return _unpickled, (type(self), self.bitcast(self.dtype.held).numpy(), self.dtype.name)
        return _unpickled, (type(self), self.numpy(), self.dtype.name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """A copy of the values for another library, on the processor: a tensor never changes."""
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU

    def __repr__(self) -> str:
        known = values().known(self)
        if known is None:
            return f"Tensor({self.dtype}, {list(self.shape)})"
        text = np.array2string(known, separator=", ", prefix="Tensor(", threshold=SHOWN)
        return f"Tensor({text}, {self.dtype})"


def _unpickled(kind: Any, array: Any, dtype: str) -> Any:
    made = kind(array)
    return made if made.dtype.name == dtype else made.bitcast(dt.by_name(dtype))
