"""Which room computes values of tensors: the package's root says so, as it lies above `core`."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` is not imported before the command line begins
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol
else:
    Protocol = object


class Values(Protocol):
    """What gives tensors their values."""

    def realize(self, tensors: Sequence[Any], device: Any = None) -> bool:
        """Compute tensors on a device; from then on they are leaves that hold values. Whether they
        could be: not what depends on an argument of a traced function.
        """
        ...

    def array(self, tensor: Any) -> Any:
        """A tensor's values, a new array."""
        ...

    def known(self, tensor: Any) -> Any:
        """The values of a tensor that needs no computing, else None."""
        ...

    def place(self, tensor: Any) -> str:
        """The name of the device that holds a tensor, "" for none."""
        ...


load: Callable[[], Values] | None = None

# Called with each node that a tensor is made of, while a function is traced; else empty.
observers: list[Callable[[Any], None]] = []


def values() -> Values:
    """What computes tensors."""
    assert load is not None, "the package's root sets it"
    return load()
