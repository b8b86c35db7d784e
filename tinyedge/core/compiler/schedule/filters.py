"""Filters that are no weights are brought into the order in which a product reads them.

    y[i, j] = sum(k: x[i, k] * w[j, k])   ->   p[j / 16, k, j % 16] = w[j, k]
                                               y[i, j] = sum(k: x[i, k] * p[j / 16, k, j % 16])

Vectors of a product lie along its filter's columns, and a tile reads as many columns as are in a
panel. Constants lie in panels from the export on; states and inputs are row-major, and so is what
kernels write. A vector of their columns would be gathered element by element, or is a row's length
from that of the next step: rows of a power of two share few places in a cache, and each tile of
rows would wait for them anew. A copy right before the reader takes each element once.

So is data that lies across, x[k, i]: its rows are copied in panels of as many as tiles divide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tinyedge.core.compiler.schedule.computed_filters import Filter
from tinyedge.core.compiler.schedule.forming import Draft, Former, Part
from tinyedge.core.compiler.schedule.indexing import Indexer
from tinyedge.core.compiler.schedule.loops import DraftLaunch, Step, drafts_of, written_by
from tinyedge.core.compiler.schedule.weight_axes import Panels
from tinyedge.core.ir import access
from tinyedge.core.ir.buffers import TensorBuffer
from tinyedge.core.ir.movement import Indices
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import UOp

# Rows that use each element of a filter that would be gathered, or be read number by number because
# its columns are no whole vectors; a copy takes about as long as gathering for 6.
MANY_ROWS = 32
CACHED = 2**18  # bytes of a filter that are read from the nearest caches however they lie
REUSED = 2**27  # bytes of a filter times rows: more of both pay for a copy of rows into panels


def filters_in_order(steps: Sequence[Step], former: Former) -> list[Step]:
    """The steps, with copies of filters in panels where these pay, each before the first step that
    reads it.
    """
    found: list[Step] = []
    copies: dict[tuple[TensorBuffer, tuple[int, ...], Panels], TensorBuffer] = {}
    times = Counter(draft for step in steps for draft in drafts_of(step))
    for step in steps:
        for draft in dict.fromkeys(drafts_of(step)):
            for read in (draft.filter, draft.data):
                if read is None or read.panels is None or read.load in draft.copies:
                    continue
                if not _lasts(step, read, times[draft]) or not _pays(read, read.panels):
                    continue
                key = read.storage, read.order, read.panels
                if key not in copies:
                    copies[key] = _copy(read, read.panels)
                    copying = _copying(read.storage, read.panels, copies[key], draft.nodes)
                    former.add(copying, {})
                    found.append(DraftLaunch(copying))
                former.read_copy(draft, read.load, copies[key])
        found.append(step)
        written = set(written_by(step))
        copies = {key: copy for key, copy in copies.items() if key[0] not in written}
    return found


def _lasts(step: Step, read: Filter, times: int) -> bool:
    """Whether a filter is in one place, with the same values for all launches of a kernel."""
    if read.storage in written_by(step):
        return False
    if read.storage.role == "input":
        return True
    return isinstance(step, DraftLaunch) and times == 1 and read.storage not in step.homes


def _pays(read: Filter, panels: Panels) -> bool:
    """Whether enough rows use a filter for a copy of it in panels to cost less than reading it as
    it lies.
    """
    fixed = all(isinstance(size, int) for size in read.storage.shape)
    if not fixed or read.elements < maximum(product(read.storage.shape)):
        return False
    apart = read.storage.layout.order[-1] != read.axis or panels.size % panels.width
    if apart and not read.data:
        return read.rows >= MANY_ROWS
    size = read.elements // read.products * read.storage.dtype.itemsize
    return panels.count > 1 and size > CACHED and size * read.rows >= REUSED


def _copy(read: Filter, panels: Panels) -> TensorBuffer:
    """A filter's copy in panels."""
    shape, layout = panels.shape(read.storage.shape), panels.layout(read.order)
    return replace(read.storage, role="scratch", shape=shape, layout=layout, node=None)


def _copying(
    storage: TensorBuffer, panels: Panels, copy: TensorBuffer, names: tuple[str, ...]
) -> Draft:
    """The kernel that copies a filter. names: what the model calls what it is copied for."""
    return Draft((Part(partial(_element, storage, panels, copy), copy.shape, copy, None),), names)


def _element(
    storage: TensorBuffer, panels: Panels, copy: TensorBuffer, indexer: Indexer, indices: Indices
) -> UOp:
    """An element of a copy, stored where it lies."""
    axis = panels.axis
    there = (*indices[:axis], panels.place(*indices[axis : axis + 2]), *indices[axis + 2 :])
    value = access.load(indexer.param(storage), there)
    return access.store(indexer.param(copy), value, indices)
