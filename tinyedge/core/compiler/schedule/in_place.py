"""New values over old ones: a kernel that reads what it overwrites element by element.

    new[i] = old[i] - f(i)   ->   state[i] = state[i] - f(i)

Such a kernel gets the new value's argument in place of the old one's, so that no device sees two
arguments that are one memory. No other element of the old value is read, and none by the kernel's
later stores or by later launches: then `sharing` gives the new value the state's own buffer.

A long result that is made of an intermediate one in this way, as a softmax of its exponentials, has
that in its own memory:

    e[i] = exp(x[i]); y[i] = e[i] * f   ->   y[i] = exp(x[i]); y[i] = y[i] * f
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinyedge.core.compiler.schedule.launches import (
    ScheduledLaunch,
    ScheduledStep,
    all_launches,
)
from tinyedge.core.ir import ops
from tinyedge.core.ir.buffers import TensorBuffer, row_major
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.shapes import product
from tinyedge.core.ir.uop import UOp, toposort


def write_over(steps: Sequence[ScheduledStep], old: TensorBuffer, new: TensorBuffer) -> None:
    """Have the launch that writes a state's new value read the old one there, if it may; one of a
    loop may not: the next iteration would read what it wrote.
    """
    launches = list(all_launches(steps))
    writers = [launch for launch in launches if new in launch.written]
    readers = [launch for launch in launches if old in launch.storages]
    if len(writers) != 1 or writers != readers[-1:] or writers[0] not in steps:
        return
    (launch,) = writers
    found = over(launch, old, new)
    if found is not None:
        launch.sink, launch.storages = found.sink, found.storages


def results_over(
    steps: Sequence[ScheduledStep], results: Sequence[TensorBuffer], least: int
) -> None:
    """Have what the launch that makes a result reads for the last time, element by element, lie in
    the result's memory from the beginning, where that is more than so many bytes: one array less
    goes through the caches. results: no states' new values.
    """
    launches = list(all_launches(steps))
    for new in results:
        given = [each for each in launches if new in each.storages]
        if len(given) != 1 or not _is_longer(new, least):
            continue
        (launch,) = given
        for old in launch.storages:
            users = [each for each in launches if old in each.storages]
            last = launch is users[-1] and all(each in steps for each in users)
            found = over(launch, old, new) if old.role == "scratch" and last else None
            if found is not None:
                launch.sink, launch.storages = found.sink, found.storages
                for each in users:
                    each.storages = tuple(new if s is old else s for s in each.storages)
                break


def over(launch: ScheduledLaunch, old: TensorBuffer, new: TensorBuffer) -> ScheduledLaunch | None:
    """The launch with what it writes in place of what it reads; None if it may not be."""
    if not _same_memory(old, new):
        return None
    before, after = launch.storages.index(old), launch.storages.index(new)
    if not _reads_own_elements(launch.sink, before, after):
        return None
    storages = tuple(s for s in launch.storages if s is not old)
    return replace(launch, sink=_without(launch.sink, before, after), storages=storages)


def _same_memory(old: TensorBuffer, new: TensorBuffer) -> bool:
    """Whether two buffers have their elements at the same places."""
    if old.dtype is not new.dtype or old.layout.rows is not None:
        return False
    if old.layout == new.layout and old.shape == new.shape:
        return True
    return _is_plain(old) and _is_plain(new) and product(old.shape) == product(new.shape)


def _is_plain(buffer: TensorBuffer) -> bool:
    """Whether elements lie row-major without gaps."""
    layout, places = buffer.layout, buffer.layout.count(buffer.shape)
    order = row_major(buffer.shape).order
    return layout.order == order and not layout.panel and places == product(buffer.shape)


def _is_longer(buffer: TensorBuffer, least: int) -> bool:
    places = buffer.layout.count(buffer.shape)
    return isinstance(places, int) and places * buffer.dtype.itemsize > least


def _reads_own_elements(sink: UOp, old: int, new: int) -> bool:
    """Whether a kernel reads of argument `old` only what it stores at the same place of `new`, in
    that store or one before, and outside of reductions: tiles of these may be shared.
    """
    slots = [store.src[0].arg.slot for store in sink.src]
    if slots.count(new) != 1:
        return False
    position = slots.index(new)
    place = sink.src[position].src[2]
    if any(n.op is ops.MIN for n in toposort((place,))):
        return False  # panels that overlap store some elements twice
    for number, store in enumerate(sink.src):
        nodes = toposort((store,))
        found = [n for n in nodes if _is_param(n, old)]
        loads = [n for n in nodes if n.op is ops.LOAD and _is_param(n.src[0], old)]
        users = [n for n in nodes if any(source in found for source in n.src)]
        inside = {
            n
            for r in nodes
            if r.op in (ops.REDUCE_LOOP, ops.ATTEND_LOOP, ops.STAGE)
            for n in toposort((r,))
        }
        if loads and (number > position or not inside.isdisjoint(loads)):
            return False
        if users != loads or any(n.arg or n.src[1] is not place for n in loads):
            return False
    return True


def _is_param(node: UOp, slot: int) -> bool:
    return node.op is ops.PARAM and node.arg.slot == slot


def _without(sink: UOp, old: int, new: int) -> UOp:
    """The kernel with argument `new` in place of `old`, of which the slot is taken away."""
    param = next(store.src[0] for store in sink.src if store.src[0].arg.slot == new)

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.PARAM or node.arg.slot < old:
            return None
        if node.arg.slot == old:
            return param
        return UOp(ops.PARAM, node.dtype, (), replace(node.arg, slot=node.arg.slot - 1))

    return bottom_up((sink,), change)[sink]
