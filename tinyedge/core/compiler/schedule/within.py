"""A kernel within another one: what it would have stored is computed where it was loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinyedge.core import dtype as dt
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.buffers import TensorBuffer
from tinyedge.core.ir.polynomial import terms
from tinyedge.core.ir.rewrite import substitute
from tinyedge.core.ir.spec import STAGE_KIND
from tinyedge.core.ir.uop import UOp, toposort


def compute_within(
    outer: tuple[UOp, Sequence[TensorBuffer]], inner: tuple[UOp, Sequence[TensorBuffer]]
) -> tuple[UOp, list[TensorBuffer]]:
    """A kernel, with all of another's one result in a stage in the place of its buffer. Both are
    given with the buffers in their slots, in the inner one's first what it stores.
    """
    sink, storages = outer
    small, (result, *read) = inner
    kept = [s for s in storages if s is not result]
    merged = [*kept, *(s for s in read if s not in kept)]
    slots = {s: slot for slot, s in enumerate(merged)}
    stage = _as_stage(small, _highest(sink) + 1, [slots[s] for s in read])
    mapping: dict[UOp, UOp] = {}
    for node in toposort((sink,)):
        if node.op is ops.PARAM and storages[node.arg.slot] is not result:
            mapping[node] = _in_slot(node, slots[storages[node.arg.slot]])
        if node.op is ops.LOAD and _storage(node, storages) is result:
            mapping[node] = access.load(stage, access.indices_of(node))
    return substitute((sink,), mapping)[0], merged


def _storage(load: UOp, storages: Sequence[TensorBuffer]) -> TensorBuffer | None:
    """The buffer that is loaded from; None where that is a stage."""
    memory = load.src[0]
    return storages[memory.arg.slot] if memory.op is ops.PARAM else None


def _as_stage(sink: UOp, number: int, slots: Sequence[int]) -> UOp:
    """The value that a kernel stores, over ranges of its own. number: the first that is free.
    slots: the new ones of what it reads, in order.
    """
    (store,) = sink.src
    order = places_in_order(sink)
    assert order is not None
    mapping: dict[UOp, UOp] = {}
    nodes = toposort((sink,))
    summed = [n for n in nodes if n.op is ops.RANGE and n not in order]
    for place, r in enumerate([*order, *summed]):
        kind = STAGE_KIND if r in order else r.arg.kind
        mapping[r] = UOp(ops.RANGE, dt.index, r.src, args.Range(number + place, kind))
    for node in nodes:
        if node.op is ops.PARAM and not node.arg.written:
            mapping[node] = _in_slot(node, slots[node.arg.slot - 1])
    (value,) = substitute((store.src[1],), mapping)
    return UOp(ops.STAGE, value.dtype, (value, *(mapping[r] for r in order)))


def _in_slot(param: UOp, slot: int) -> UOp:
    return UOp(ops.PARAM, param.dtype, (), replace(param.arg, slot=slot))


def _highest(sink: UOp) -> int:
    return max(int(n.arg.number) for n in toposort((sink,)) if n.op is ops.RANGE)


def places_in_order(sink: UOp) -> list[UOp] | None:
    """The ranges of a kernel's one store, outermost first, if it fills the first elements of its
    buffer in their order.
    """
    (store,) = sink.src
    if store.arg or any(len(m) > 1 for m in terms(store.src[2])):
        return None
    strides = {m[0] if m else None: c for m, c in terms(store.src[2]).items()}
    order = sorted(store.ranges, key=lambda r: -strides.get(r, 0))
    step = 1
    for r in reversed(order):
        if r.src[0].op is not ops.CONST or strides.pop(r, 0) != step:
            return None
        step *= r.src[0].arg
    return order if not any(strides.values()) else None
