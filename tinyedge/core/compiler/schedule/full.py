"""What lies between gradients and the new values of states: in bundles of fp16 it stays float32.

The square of a small gradient is 0 in fp16, and what an optimizer divides by it is infinite.
"""

from __future__ import annotations

from collections.abc import Iterable

from tinyedge.core.ir import ops
from tinyedge.core.ir.uop import UOp, toposort


def in_full(updates: Iterable[UOp], gradients: frozenset[UOp]) -> frozenset[UOp]:
    """The nodes that states' new values are made of, up to the gradients and these included. States
    that no gradient changes, such as a cache, are as other tensors.
    """
    if not gradients:
        return frozenset()
    roots = list(updates)
    changed: set[UOp] = set()
    for node in toposort(roots):
        if node in gradients or any(source in changed for source in node.src):
            changed.add(node)
    reached = [root for root in roots if root in changed]
    between = toposort(reached, stop=lambda n: n in gradients)
    return frozenset((*between, *_terms(gradients)))


def _terms(gradients: Iterable[UOp]) -> set[UOp]:
    """The gradients and the sums that they are moved or added from."""
    found: set[UOp] = set()
    waiting = list(gradients)
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        found.add(node)
        if node.op is ops.ADD or node.op.group == "movement":
            waiting.extend(node.src)
    return found
