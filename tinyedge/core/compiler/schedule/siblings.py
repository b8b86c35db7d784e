"""Kernels over the same ranges that read the same tensors become one, with several outputs.

    y[i] = f(x[i])        y[i] = f(x[i])
    z[i] = g(x[i])   ->   z[i] = g(x[i])      for i in 0..n, in one launch

What both read is loaded once, and a launch is saved. The second kernel moves to the place of the
first, so all that it reads must be there already: it reads no tensor that the first does not.

Updates that are elementwise are joined, too, to one whose new value they read, which they have at
hand then; of Adam's, the parameter's to those of its moments. They may read further states.

Joined are kernels without reductions; those with one reduction each over the same ranges, which
become one loop; and products with the same rows and columns, each with a loop of its own. Of these
a thread does both, so on a device that one of them does not keep busy, the other must be short.
So is a reduction of rows to one whose result it reads for each row: the sum of exp(x - max) to the
maximum. It may read more than that, too, and be of another type.

Where a thread is alone with a row that its array holds, what is stored of the row and what is
stored of its elements are made together, if each is to lie in memory and is made of the others:

    m[i] = max(r: x[i, r])              m[i] = max(r: x[i, r])
    e[i, j] = f(x[i, j], m[i])     ->   e[i, j] = f(x[i, j], m[i])
    s[i] = sum(r: e[i, r])              s[i] = sum(r: f(x[i, r], m[i]))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.schedule.forming import Draft, Former
from tinyedge.core.compiler.schedule.loops import (
    DraftLaunch,
    DraftLoop,
    Step,
    drafts_of,
    written_by,
)
from tinyedge.core.ir import ops
from tinyedge.core.ir.buffers import TensorBuffer
from tinyedge.core.ir.polynomial import divisor, terms
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.uop import Size, UOp, as_size, toposort

MOST_OUTPUTS = 4  # of a kernel
LARGE_KERNEL = 400  # nodes of one that is joined
# steps between joined kernels, over which the outputs of the later one are kept longer; and between
# reductions, which leave little
FAR, FAR_REDUCED = 4, 16
SHORT = 4  # how many times shorter a product is than one beside which it takes no time of its own
TILE = 16  # outputs that a thread of a product computes


@dataclass
class _Kernel:
    """A launch, and what its kernel reads and does."""

    draft: Draft
    read: frozenset[TensorBuffer] = field(init=False)  # but for weights
    reductions: list[UOp] = field(init=False)
    nodes: list[UOp] = field(init=False)
    beside: frozenset[TensorBuffer] = frozenset()  # what is written with what it reads

    def __post_init__(self) -> None:
        inputs = self.draft.storages[len(self.draft.outputs) :]
        self.read = frozenset(s for s in inputs if s.role != "weight")
        self.nodes = toposort((self.draft.sink,))
        self.reductions = [n for n in self.nodes if n.op is ops.REDUCE_LOOP]

    @property
    def products(self) -> bool:
        """Whether its reductions are sums of products of different tensors."""
        return self.draft.contraction is not None and all(
            len({n.src[0] for n in toposort((r,)) if n.op is ops.LOAD}) > 1 for r in self.reductions
        )

    @property
    def reduces(self) -> bool:
        """Whether it has reductions, none of which are products'."""
        return bool(self.reductions) and self.draft.contraction is None

    @property
    def work(self) -> int:
        """The steps of its reductions for one output."""
        return sum(maximum(product(_sizes(r))) for r in self.reductions)


def join_siblings(steps: Sequence[Step], former: Former) -> list[Step]:
    """The steps, those that are worth it joined to one before."""
    launched = Counter(draft for step in steps for draft in drafts_of(step))
    written = Counter(output for draft in former.drafts for output in draft.outputs)
    alone = {d for d, count in launched.items() if count == 1 and _is_plain(d, written)}
    return _joined(steps, alone, former)


def _is_plain(draft: Draft, written: Counter[TensorBuffer]) -> bool:
    """Whether a kernel stores each element of a buffer that no other kernel writes."""
    (part,) = draft.parts
    first = part.undecided is not None or part.output.role == "output"
    serial = (n for n in toposort((draft.sink,)) if n.op is ops.RANGE and n.arg.kind == "serial")
    return first and written[part.output] == 1 and not any(serial)


def _joined(steps: Sequence[Step], alone: set[Draft], former: Former) -> list[Step]:
    left: list[Step | None] = [
        DraftLoop(s.condition, s.bound, _joined(s.steps, alone, former))
        if isinstance(s, DraftLoop)
        else s
        for s in steps
    ]
    found = {n: _Kernel(d) for n, s in enumerate(left) if (d := _single(s, alone)) is not None}
    for number in list(found):
        if number not in found:
            continue
        far = FAR_REDUCED if found[number].reduces else FAR
        for other in _near(left, number, far):
            if other not in found:
                continue
            kernel = found[number]
            kernel.beside = _written_beside(kernel.read, found.values())
            near = {*kernel.read, *kernel.beside, *kernel.draft.outputs}
            if near.isdisjoint(found[other].read):
                continue
            between = [step for step in left[number:other] if step is not None]
            draft = _join(kernel, found[other], between, former)
            if draft is not None:
                left[number], left[other] = DraftLaunch(draft), None
                del found[other]
                found[number] = _Kernel(draft)
    return [step for step in left if step is not None]


def _near(left: Sequence[Step | None], number: int, far: int) -> Iterator[int]:
    """The numbers of the steps right behind one that are still there, and still there behind it."""
    stay = 0
    for other in range(number + 1, len(left)):
        if left[other] is None:
            continue
        yield other
        stay += left[other] is not None
        if stay == far - 1:
            return


def _written_beside(
    read: frozenset[TensorBuffer], kernels: Iterable[_Kernel]
) -> frozenset[TensorBuffer]:
    """What kernels of several outputs write beside what is read."""
    written = (k.draft.outputs for k in kernels if len(k.draft.parts) > 1)
    return frozenset(o for outputs in written if not read.isdisjoint(outputs) for o in outputs)


def _single(step: Step | None, alone: set[Draft]) -> Draft | None:
    """The kernel of a launch that may be joined to others."""
    return step.draft if isinstance(step, DraftLaunch) and step.draft in alone else None


def _join(a: _Kernel, b: _Kernel, between: Sequence[Step], former: Former) -> Draft | None:
    """One kernel for both, if that is worth it. between: the steps from the first to the second."""
    rows = _fit_as_rows(a, b, former.options.caps)
    if not rows and not _fit(a, b, former.options.caps):
        return None
    if any(output in b.read for step in between[1:] for output in written_by(step)):
        return None
    before = [(o, o.dtype, o.layout) for k in (a, b) for o in k.draft.outputs]
    draft = former.joined(a.draft, b.draft)
    pays = _is_of_rows(draft) if rows else _goes_on(a, b) or _shares(draft, a, b)
    if not pays or not _pads_alike(draft):
        for output, dtype, layout in before:
            output.dtype, output.layout = dtype, layout
        return None
    former.take(draft, a.draft, b.draft)
    former.read_again({o for o, *was in before if was != [o.dtype, o.layout]})
    return draft


def _fit(a: _Kernel, b: _Kernel, caps: Caps) -> bool:
    """Whether two kernels have the same ranges and inputs, and may be one as far as is known before
    it is formed.
    """
    one, two = a.draft.parts[0], b.draft.parts[0]
    outputs = [o for d in (a.draft, b.draft) for o in d.outputs]
    beside = len({o.dtype.itemsize for o in outputs}) == 1
    in_order = len({o.layout for o in outputs}) == 1 or _scatters(a, b, caps)
    alike = len({o.dtype for o in outputs}) == 1
    bound = {*a.draft.storages, *b.draft.storages}
    return (
        one.shape == two.shape
        and bool(b.read)
        and beside
        and in_order
        and len(a.draft.parts) < MOST_OUTPUTS
        and len(bound) < caps.bindings
        and len(a.nodes) + len(b.nodes) <= LARGE_KERNEL
        and (_goes_on(a, b) or (alike and _are_alike(a, b, caps)))
    )


def _scatters(a: _Kernel, b: _Kernel, caps: Caps) -> bool:
    """Whether the results may lie in different orders: where any element is stored alone, results
    of long sums, which take no time beside these.
    """
    return caps.threads == 1 and caps.unaligned and a.products and b.products


def _are_alike(a: _Kernel, b: _Kernel, caps: Caps) -> bool:
    """Whether two kernels that read the same do the same kind of work."""
    return (
        (b.read <= a.read | a.beside or _updates(a, b))
        and len(a.reductions) == len(a.draft.parts) * len(b.reductions)
        and len(b.reductions) <= 1
        and a.products == b.products
        and (not a.products or _busy(a, b, caps))
    )


def _fit_as_rows(a: _Kernel, b: _Kernel, caps: Caps) -> bool:
    """Whether the second kernel makes something of what the first one made of the same rows."""
    parts = (*a.draft.parts, *b.draft.parts)
    longest = max((part.shape for part in parts), key=len)
    if caps.threads > 1 or not longest or any(k.draft.contraction for k in (a, b)):
        return False
    made = frozenset(a.draft.outputs)
    size = longest[-1]
    return (
        isinstance(size, int)
        and size * parts[0].output.dtype.itemsize <= caps.array
        and {part.shape for part in parts} == {longest, longest[:-1]}
        and all(p.output.node is not None and p.output.node.op is ops.REALIZE for p in parts)
        and bool(b.read & made)
        and b.read <= a.read | made
        and len(parts) <= MOST_OUTPUTS
    )


def _is_of_rows(draft: Draft) -> bool:
    """Whether a kernel needs for a row nothing of others."""
    rows = min((store.src[2].ranges for store in draft.sink.src), key=len)
    sums = (n for n in toposort((draft.sink,)) if n.op is ops.REDUCE_LOOP)
    return all(rows <= n.ranges for n in sums)


def _pads_alike(draft: Draft) -> bool:
    """Whether outputs whose elements lie beside each other along one range are rounded up in memory
    alike: where they are, all of it is written.
    """
    stores = draft.sink.src
    return not any(
        divisor(as_size(r.src[0])) % max(rooms) and len(set(rooms)) > 1
        for r in {r for store in stores for r in store.ranges}
        if (rooms := [s.src[0].arg.layout.room for s in stores if _is_inner(s, r)])
    )


def _is_inner(store: UOp, along: UOp) -> bool:
    """Whether elements of what is stored lie beside each other along a range."""
    return terms(store.src[2]).get((along,), 0) == 1


def _updates(a: _Kernel, b: _Kernel) -> bool:
    """Whether both only write what is an output, elementwise, and the second reads something that
    the first one reads or has made, that at the same place.
    """
    made = frozenset(a.draft.outputs)
    if a.reductions or b.reductions or not b.read & (a.read | made):
        return False
    if any(s.role != "output" for s in (*a.draft.outputs, *b.draft.outputs)):
        return False
    if any(p.storage in made and n.op is ops.LOOP_OUTPUT for n, p in b.draft.read.items()):
        return False  # the second kernel has no expression for what the first one made
    return _reads_in_place(b, made)


def _goes_on(a: _Kernel, b: _Kernel) -> bool:
    """Whether a kernel reduces rows as long as those that another one has reduced, and needs of
    that the row's own result alone.
    """
    made = frozenset(a.draft.outputs)
    if len(a.reductions) != len(a.draft.parts) or len(b.reductions) != 1 or not b.read & made:
        return False
    if any(d.contraction and d.contraction["columns"] for d in (a.draft, b.draft)):
        return False
    alike = all(_sizes(each) == _sizes(b.reductions[0]) for each in a.reductions)
    return alike and _reads_in_place(b, made)


def _reads_in_place(kernel: _Kernel, made: frozenset[TensorBuffer]) -> bool:
    """Whether a kernel reads what another one has made at the place where it stores."""
    draft = kernel.draft
    place = draft.sink.src[0].src[2]
    loads = (n for n in kernel.nodes if n.op is ops.LOAD)
    return all(n.src[1] is place for n in loads if draft.storages[n.src[0].arg.slot] in made)


def _busy(a: _Kernel, b: _Kernel, caps: Caps) -> bool:
    """Whether threads that do both products one after the other take no longer than theirs beside
    each other do.
    """
    threads = maximum(product(a.draft.parts[0].shape)) / TILE
    if caps.threads == 1 or threads >= caps.threads_to_saturate:
        return True
    return SHORT * min(a.work, b.work) <= max(a.work, b.work)


def _shares(draft: Draft, a: _Kernel, b: _Kernel) -> bool:
    """Whether a joined kernel does what its parts had in common once."""
    if a.products:
        return draft.contraction is not None
    loops = {n.src[1:] for n in toposort((draft.sink,)) if n.op is ops.REDUCE_LOOP}
    return len(loops) <= 1


def _sizes(reduction: UOp) -> list[Size]:
    return [as_size(r.src[0]) for r in reduction.src[1:]]
