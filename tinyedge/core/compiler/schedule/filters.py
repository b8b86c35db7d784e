"""Filters that lie as a caller gives them are brought into the order in which a product reads them.

    y[i, j] = sum(k: x[i, k] * w[j, k])   ->   p[k, j] = w[j, k]
                                               y[i, j] = sum(k: x[i, k] * p[k, j])

Vectors of a product lie along its filter's columns. Constants and what kernels write are laid out
so, but states and inputs are row-major: a vector of them would be gathered element by element, as
often as there are tiles of rows. A copy right before the reader takes each element once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tinyedge.core.compiler.schedule.forming import Draft, Filter, Former, Part
from tinyedge.core.compiler.schedule.kernels import elements
from tinyedge.core.compiler.schedule.loops import DraftLaunch, Step, drafts_of
from tinyedge.core.ir.buffers import Layout, Placement, TensorBuffer
from tinyedge.core.ir.uop import UOp

MANY_ROWS = 32  # that use each element of a filter; a copy takes about as long as gathering for 6


def filters_in_order(steps: Sequence[Step], former: Former) -> list[Step]:
    """The steps, with copies of the filters that they would read across their order, each before
    the first step that reads it.
    """
    found: list[Step] = []
    copies: dict[tuple[TensorBuffer, tuple[int, ...]], Placement] = {}
    for step in steps:
        for draft in dict.fromkeys(drafts_of(step)):
            read = draft.filter
            if read is None or not _pays(draft, read):
                continue
            (node,) = (node for node, place in draft.read.items() if place.storage is read.storage)
            key = read.storage, read.order
            if key not in copies:
                copies[key] = _place(read)
                copying = _copying(node, copies[key], draft.nodes)
                former.add(copying, {node: Placement(read.storage)})
                found.append(DraftLaunch(copying))
            former.read_at(draft, node, copies[key])
        found.append(step)
    return found


def _pays(draft: Draft, read: Filter) -> bool:
    """Whether a kernel's vectors are gathered from what it is given, for many rows."""
    across = read.storage.layout.order[-1] != read.axis
    given = read.storage.role == "input" and read.storage not in draft.outputs
    fixed = all(isinstance(size, int) for size in read.storage.shape)
    return given and fixed and across and read.vectors and read.rows >= MANY_ROWS


def _place(read: Filter) -> Placement:
    """Where the copy of a filter lies."""
    layout = Layout(read.order, (1,) * len(read.order))
    return Placement(replace(read.storage, role="scratch", layout=layout))


def _copying(node: UOp, place: Placement, names: tuple[str, ...]) -> Draft:
    """The kernel that copies a filter. names: what the model calls what it is copied for."""
    write = partial(elements, node, place, False)
    return Draft((Part(write, node.shape, place.storage, None),), names)
