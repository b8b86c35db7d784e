"""Kernels that differ in numbers alone become one, which reads them: layers of a quantized network
have scales of their own, and compiling a kernel for each takes a page longer than running it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.schedule.launches import ScheduledLaunch
from tinyedge.core.ir import args, ops
from tinyedge.core.ir.buffers import KernelArg, TensorBuffer, row_major
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.uop import UOp, as_node, toposort

LIFTED = (dt.float32, dt.int32)


def share_numbers(launches: Sequence[ScheduledLaunch], caps: Caps) -> None:
    """Give launches whose kernels differ in constants of 32 bits alone one kernel, and each a small
    weight with those that differ. A kernel without room for one more buffer stays as it is.
    """
    groups: dict[UOp, list[tuple[ScheduledLaunch, list[UOp]]]] = {}
    for launch in launches:
        if len(launch.storages) < caps.bindings:
            numbers = [n for n in toposort((launch.sink,)) if _is_number(n)]
            form = _reading(launch, numbers)
            groups.setdefault(form, []).append((launch, numbers))
    for members in groups.values():
        if len({launch.sink for launch, _ in members}) > 1:
            _share(members)


def _is_number(node: UOp) -> bool:
    return node.op is ops.CONST and node.dtype in LIFTED


def _share(members: Sequence[tuple[ScheduledLaunch, list[UOp]]]) -> None:
    columns = zip(*(numbers for _, numbers in members), strict=True)
    differ = [place for place, column in enumerate(columns) if len({*column}) > 1]
    for launch, numbers in members:
        chosen = [numbers[place] for place in differ]
        bits = [np.array(n.arg, n.dtype.numpy).view(np.int32) for n in chosen]
        launch.sink = _reading(launch, chosen)
        launch.storages = (*launch.storages, numbers_read(np.array(bits, np.int32)))


def numbers_read(data: np.ndarray[Any, Any]) -> TensorBuffer:
    """A small weight of int32 that a launch reads beside its other buffers."""
    source, shape = ops.TensorSource("weight", "numbers", data), data.shape
    node = UOp(ops.BUFFER, dt.int32, (), args.Buffer(source, shape))
    return TensorBuffer("weight", "numbers", dt.int32, shape, row_major(shape), node, data)


def _reading(launch: ScheduledLaunch, numbers: Sequence[UOp]) -> UOp:
    """The launch's kernel with these of its constants read from one more buffer, as their bits."""
    shape = (len(numbers),)
    arg = KernelArg(len(launch.storages), shape, row_major(shape), weight=True)
    param = UOp(ops.PARAM, dt.int32, (), arg)
    mapping = {}
    for place, number in enumerate(numbers):
        load = UOp(ops.LOAD, dt.int32, (param, as_node(place)), False)
        is_float = number.dtype.is_float
        mapping[number] = UOp(ops.BITCAST, number.dtype, (load,)) if is_float else load
    return substitute((launch.sink,), mapping)[0]
