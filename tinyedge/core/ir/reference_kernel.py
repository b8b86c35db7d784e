"""What a kernel means, in numpy: every range is an axis, for tiny sizes.

Kernels before and after moves, and the tensor graph they came from, must agree: a wrong result can
then be traced to one stage.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.ir import ops
from tinyedge.core.ir.attend import attend_arrays
from tinyedge.core.ir.buffers import IMAGE_ROW, PIXEL
from tinyedge.core.ir.memory import reduce_array
from tinyedge.core.ir.reference import size_value
from tinyedge.core.ir.rules.algebra import rewrite
from tinyedge.core.ir.shapes import symbol_value
from tinyedge.core.ir.uop import UOp, as_node, as_size, toposort

Array = Any
LIMIT = 10**8  # elements of an intermediate array


def run_kernel(
    sink: UOp, buffers: Sequence[Array], symbols: Mapping[str, int] | None = None
) -> None:
    """Run a kernel on flat arrays, in slot order; slot 0 is written in place.

    The kernel has linear addresses and may have had any moves. Raises ValueError where it is too
    large.
    """
    sizes = dict(symbols or {})
    for store in sink.src:
        _Store(store, buffers, sizes).run()


def _places(param: UOp, address: Array) -> tuple[Array, Array]:
    """Addresses as positions in a flat array, and whether they are in it; an image reads as zero
    outside.
    """
    layout = param.arg.layout
    if not param.arg.is_image:
        return address, np.ones(address.shape, bool)
    width, height = layout.image(param.arg.shape)
    row = (address + IMAGE_ROW // 2) // IMAGE_ROW
    place = address - row * IMAGE_ROW
    inside = (row >= 0) & (row < height) & (place >= 0) & (place < width * PIXEL)
    return row * layout.pitch(param.arg.shape) + place, inside


class _Store:
    def __init__(self, store: UOp, buffers: Sequence[Array], symbols: Mapping[str, int]) -> None:
        self.store = store
        self.nodes = toposort((store,))
        self.buffers = buffers
        self.symbols = symbols
        found = [n for n in self.nodes if n.op is ops.RANGE]
        self.ranges = sorted(found, key=lambda r: int(r.arg.number))
        self.axes = {r: axis for axis, r in enumerate(self.ranges)}
        self.extents = [self._extent(r.src[0]) for r in self.ranges]
        self.values: dict[UOp, Array] = {}
        self.step: dict[UOp, int] = {}

    def _extent(self, size: UOp) -> int:
        """How many steps a range has; what its size reads is there before the kernel runs."""
        nodes = toposort((size,))
        read = {n: as_node(self._read(n)) for n in nodes if n.op is ops.SYMBOL and n.src}
        return size_value(as_size(rewrite((size,), read)[0]), self.symbols)

    def _read(self, symbol: UOp) -> int:
        """The value of a symbol that lies in a buffer."""
        place = symbol.src[1].arg if symbol.src[1:] else 0
        return int(self.buffers[symbol.src[0].arg.slot][place])

    def run(self) -> None:
        """One after the other for the steps of serial ranges: one may read what another wrote."""
        serial = [r for r in self.ranges if r.arg.kind == "serial"]
        steps = [range(self.extents[self.axes[r]]) for r in serial]
        for values in itertools.product(*steps):
            self.step = dict(zip(serial, values, strict=True))
            self._run()

    def _run(self) -> None:
        for node in self.nodes:
            if node.op not in (ops.STORE, ops.PARAM):
                self.values[node] = self._value(node)
                if self.values[node].size > LIMIT:
                    raise ValueError(f"the kernel is too large for the reference: {node!r}")
        param, value, address, *guard = self.store.src
        parts = [self.values[node] for node in (address, value, *guard)]
        at, what, *rest = np.broadcast_arrays(*parts)
        inside = rest[0] if rest else np.ones(at.shape, bool)
        at, real = _places(param, at)
        if not real[inside].all():
            raise ValueError(f"the kernel writes outside of an image: {self.store!r}")
        flat = self.buffers[param.arg.slot]
        flat[at[inside]] = dt.cast_array(what[inside], param.dtype)

    def _value(self, node: UOp) -> Array:
        op = node.op
        if op is ops.RANGE:
            shape = [1] * len(self.ranges)
            if node in self.step:
                return np.full(shape, self.step[node])
            shape[self.axes[node]] = self.extents[self.axes[node]]
            return np.arange(math.prod(shape)).reshape(shape)
        if op is ops.CONST:
            return np.asarray(node.arg, node.dtype.numpy)
        if op is ops.SYMBOL:
            if node.src:
                return np.asarray(self._read(node), np.int64)
            return np.asarray(symbol_value(node, self.symbols), np.int64)
        if op is ops.LOAD:
            return self._load(node)
        src = [self.values[s] for s in node.src]
        if op is ops.REDUCE_LOOP:
            return self._reduce(node, src[0])
        if op is ops.STAGE:
            return self._spread(node, src[0])
        if op is ops.ATTEND_LOOP:
            axes = tuple(self.axes[r] for r in node.src[2:])
            scores, values = (self._along(axes, value) for value in src[:2])
            return attend_arrays(node.arg, scores, values, axes)
        if op is ops.CAST:
            return dt.cast_array(src[0], node.dtype)
        if op is ops.BITCAST:
            return np.asarray(src[0]).view(node.dtype.numpy)
        assert op.numpy is not None, f"no meaning for {node!r} in a kernel"
        return np.asarray(op.numpy(*src)).astype(node.dtype.numpy, copy=False)

    def _spread(self, node: UOp, value: Array) -> Array:
        """What a stage holds: a value at every step of its own ranges."""
        shape = list(value.shape) if value.ndim else [1] * len(self.ranges)
        for r in node.src[1:]:
            shape[self.axes[r]] = self.extents[self.axes[r]]
        return np.broadcast_to(value, shape)

    def _load_staged(self, node: UOp) -> Array:
        """From a stage, at a place in the order of its ranges."""
        stage = node.src[0]
        held, place = self.values[stage], self.values[node.src[1]]
        place = np.reshape(place, [1] * held.ndim) if not place.ndim else place
        at: list[Array] = []
        for axis, size in enumerate(held.shape):
            shape = [1] * held.ndim
            shape[axis] = size
            at.append(np.arange(size).reshape(shape))
        for r in reversed(stage.src[1:]):
            axis = self.axes[r]
            place, at[axis] = np.divmod(place, self.extents[axis])
        if place.any():
            raise ValueError(f"the kernel loads outside of a stage: {node!r}")
        return np.asarray(held[tuple(at)])

    def _load(self, node: UOp) -> Array:
        if node.src[0].op is ops.STAGE:
            return self._load_staged(node)
        flat = self.buffers[node.src[0].arg.slot]
        at, inside = _places(node.src[0], self.values[node.src[1]])
        if not node.arg and inside.all():
            return np.asarray(flat[at], node.dtype.numpy)
        if node.arg:
            at, inside = np.broadcast_arrays(at, inside & self.values[node.src[2]])
        taken = np.asarray(flat[np.where(inside, at, 0)], node.dtype.numpy)
        return np.where(inside, taken, np.zeros((), node.dtype.numpy))

    def _reduce(self, node: UOp, value: Array) -> Array:
        axes = tuple(self.axes[r] for r in node.src[1:])
        full = self._along(axes, value)
        if node.dtype is dt.bool_:
            full = full.astype(bool)
        return reduce_array(node.arg, full, axes, node.dtype, keepdims=True)

    def _along(self, axes: tuple[int, ...], value: Array) -> Array:
        """A value at every step of the ranges of axes."""
        shape = list(value.shape) if value.ndim else [1] * len(self.ranges)
        for axis in axes:
            shape[axis] = self.extents[axis]
        return np.broadcast_to(value, shape)
