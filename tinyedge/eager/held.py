"""Values on a device, and the leaves of graphs that stand for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InputError
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.uop import UOp
from tinyedge.core.program import ports
from tinyedge.core.program.device import Range
from tinyedge.core.program.program import Port

if TYPE_CHECKING:
    from tinyedge.eager.places import Place

Array = Any


class Held:
    """A tensor in a device's memory, row-major, as elements of `storage`.

    home: the argument of a compiled function in whose memory it lies; None: in its own. spent: what
    has overwritten it, if anything has.
    """

    __slots__ = (
        "__weakref__",
        "dtype",
        "home",
        "place",
        "range",
        "shape",
        "spent",
        "storage",
    )

    def __init__(
        self, place: Place, dtype: DType, shape: tuple[int, ...], storage: str, range: Range
    ) -> None:
        self.place = place
        self.dtype = dtype
        self.shape = shape
        self.storage = storage
        self.range = range
        self.home: Any = None
        self.spent = ""

    def check(self) -> None:
        """Raise InputError if it is overwritten."""
        if self.spent:
            raise spent_error(self.spent, self.dtype, self.shape)

    def array(self) -> Array:
        """Its elements, of stored types their codes: a new array."""
        self.check()
        port = Port("", self.dtype.name, self.shape, self.storage, 0)
        with self.place.turn():
            content = self.place.device.read([self.range])[0] if self.range.bytes else _EMPTY
        return dt.codes(ports.decode(content, port, self.shape))


_EMPTY = np.empty(0, np.uint8)


def spent_error(by: str, dtype: DType, shape: Any) -> InputError:
    """The error of using a tensor that was donated."""
    return InputError(
        f"a tensor of {dtype} {list(shape)}",
        f"it was donated to {by}, which may have overwritten it",
        id="jit.donated",
        next="use what that call returned in its place, or leave the argument out of donate=",
    )


class Source(ops.TensorSource):
    """A weight that is on a device: its array is read from there when the compiler asks for it."""

    held: Held

    def __init__(self, held: Held) -> None:
        self.__dict__.update(kind="weight", name="tensor", held=held)

    @property
    def data(self) -> Array:
        return self.held.array()


def leaf(held: Held) -> UOp:
    """The node of a tensor on a device."""
    return UOp(ops.BUFFER, held.dtype, (), args.Buffer(Source(held), held.shape))


def host_leaf(array: Array, dtype: DType) -> UOp:
    """The node of a constant array, of a stored type of its codes; a scalar's too."""
    source = ops.TensorSource("weight", "constant", np.asarray(array, order="C"))
    return UOp(ops.BUFFER, dtype, (), args.Buffer(source, array.shape))


def is_leaf(node: UOp) -> bool:
    """Whether a node is a tensor with values: a constant's array, or on a device."""
    return node.op is ops.BUFFER and node.arg.source.kind == "weight"


def held_by(node: UOp) -> Held | None:
    """What holds a leaf on a device; None for constants and nodes that are computed."""
    if node.op is not ops.BUFFER:
        return None
    source = node.arg.source
    return source.held if isinstance(source, Source) else None


def array_of(node: UOp) -> Array:
    """The elements of a leaf or of a scalar constant; of stored types, their codes."""
    if node.op is ops.CONST:
        return np.asarray(node.arg, node.dtype.numpy)
    data = node.arg.source.data
    return data if data.dtype == node.dtype.held.numpy else data.astype(node.dtype.held.numpy)
