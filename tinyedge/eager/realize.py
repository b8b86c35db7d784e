"""Computing tensors when their values are wanted.

What is compiled is the graph with its leaves as arguments, numbered in order: tensors of other
values computed in the same way are one Program, found by the digests of what it computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.dtype import DType
from tinyedge.core.errors import InputError
from tinyedge.core.ir import ops
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.rewrite import replaced
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Shape, UOp, toposort
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.eager import tracing
from tinyedge.eager.executable import Computation, build
from tinyedge.eager.held import Held, array_of, held_by, host_leaf, is_leaf
from tinyedge.eager.places import Place, current
from tinyedge.eager.places import device as device_of

Array = Any

# Of one device: compiled graphs that are kept, and the memory that they may take beside the last.
KEPT, KEPT_BYTES = 512, 1 << 30
# Of tensors of constants alone: elements up to which they are computed by the reference, as a
# compiler would compute them.
FOLDED = 1 << 16
SHOWN_BYTES = 1 << 24  # of a tensor whose values a text shows


def realize(tensors: Sequence[Tensor], device: Place | str | None = None) -> bool:
    """Compute tensors on a device; they are leaves then.

    False, and nothing is done, where one depends on an argument of a function that is traced.
    Raises InputError for tensors on several devices or donated ones, DeviceError.
    """
    if isinstance(device, str):
        device = device_of(device)
    todo = [tensor for tensor in tensors if not _placed(tensor.node, device)]
    roots = tuple(dict.fromkeys(tensor.node for tensor in todo))
    if any(map(_unknown, leaves_of(toposort(roots)))):
        return False
    done = dict(zip(roots, compute(roots, device), strict=True)) if roots else {}
    for tensor in todo:
        tensor.node = done[tensor.node]
    return True


def leaves_of(order: Iterable[UOp]) -> list[UOp]:
    """The leaves among nodes, those without values, too. What a loop carries is none."""
    return [n for n in order if n.op is ops.BUFFER and n.arg.source.kind in ("input", "weight")]


def _unknown(node: UOp) -> bool:
    return node.arg.source.kind == "input" or tracing.hidden(node)


def _placed(node: UOp, device: Place | None) -> bool:
    if not is_leaf(node):
        return False
    held = held_by(node)
    if held is None:
        return device is not None and device.is_reference
    held.check()
    return device is None or held.place is device


def compute(roots: Sequence[UOp], device: Place | None = None) -> list[UOp]:
    """Leaves with the values of nodes. Raises TraceError for what has none."""
    order = toposort(roots)
    leaves = leaves_of(order)
    check_known(leaves)
    place = device or place_of(leaves) or current()
    if not leaves and _small(order):
        return [host_leaf(np.asarray(v), n.dtype) for v, n in zip(_fold(roots), roots, strict=True)]
    arguments = [argument(number, node.shape, node.dtype) for number, node in enumerate(leaves)]
    done = replaced(roots, dict(zip(leaves, arguments, strict=True)))
    found = _compiled(place, arguments, tuple([done[root] for root in roots]))
    if device is not None:
        leaves = [_moved(node, place) for node in leaves]
    results: list[UOp] = found.run(leaves)[0]
    return results


@lru_cache(maxsize=1 << 16)
def argument(number: int, shape: Shape, dtype: DType) -> UOp:
    """The node that stands for a leaf: the same one for each graph, so that these can be equal."""
    return Tensor.input(f"argument {number}", shape, dtype).node


def _moved(node: UOp, place: Place) -> UOp:
    """A leaf that a device can take."""
    held = held_by(node)
    return node if held is None or held.place is place else host_leaf(held.array(), node.dtype)


def _compiled(place: Place, arguments: Sequence[UOp], results: tuple[UOp, ...]) -> Any:
    """The computation for a device, compiled unless it is known."""
    kept = place.programs
    key = tuple([node.digest for node in results])
    found = kept.get(key)
    if found is None:
        found = kept[key] = build(place, Computation(tuple(arguments), results))
        while len(kept) > KEPT or (len(kept) > 1 and _taken(kept.values()) > KEPT_BYTES):
            kept.popitem(last=False)
    else:
        kept.move_to_end(key)
    return found


def _taken(programs: Iterable[Any]) -> int:
    return sum(program.bytes for program in programs)


def check_known(leaves: Iterable[UOp]) -> None:
    """Raise TraceError for a leaf without values, InputError for one that was donated."""
    for node in leaves:
        if _unknown(node):
            source = node.arg.source
            raise tracing.unknown(source.name if source.kind == "input" else "")
        held = held_by(node)
        if held is not None:
            held.check()


def place_of(leaves: Iterable[UOp]) -> Place | None:
    """The device that holds leaves; None for constants. Raises InputError if there are several."""
    places = {held.place: None for node in leaves if (held := held_by(node)) is not None}
    if len(places) > 1:
        raise InputError(
            "tensors of one computation",
            f"they are on {', '.join(place.name for place in places)}",
            id="tensor.devices",
            supported="one device",
            next="move some of them: tensor.realize(device=tinyedge.device(...))",
        )
    return next(iter(places), None)


def _small(order: Iterable[UOp]) -> bool:
    return all(maximum(product(node.shape)) <= FOLDED for node in order)


def _fold(roots: Sequence[UOp]) -> list[Array]:
    return evaluate(roots, {})


def array(tensor: Tensor) -> Array:
    """A tensor's values, a new array; of stored types of ml_dtypes' type where that is there."""
    node = tensor.node
    if node.op is ops.CONST:
        return dt.named(array_of(node), node.dtype)
    if not is_leaf(node):
        (node,) = compute([node])
        tensor.node = node
    check_known([node])
    found = array_of(node)
    return dt.named(found.copy() if held_by(node) is None else found, node.dtype)


def known(tensor: Tensor) -> Array | None:
    """A tensor's values if they need no computing and are not too many to look at."""
    node = tensor.node
    if node.op is not ops.CONST and (not is_leaf(node) or tracing.hidden(node)):
        return None
    held = held_by(node)
    if held is not None and (held.spent or held.range.bytes > SHOWN_BYTES):
        return None
    return dt.named(array_of(node), node.dtype)


def place(tensor: Tensor) -> str:
    """The name of the device that holds a tensor, "" for none."""
    held: Held | None = held_by(tensor.node)
    return "" if held is None else held.place.name
