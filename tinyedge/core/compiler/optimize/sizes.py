"""Kernels that differ in sizes alone become one, which reads them: compiling a kernel for each
layer takes a page longer than running it.

Which moves a kernel gets is decided before, by its own sizes; kernels with the same tile, the same
loops and the same work in them then differ in how far loops go and in strides. What runs in
parallel is dealt out to threads one after the other, so that the shape of a workgroup is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.optimize.kinds import To
from tinyedge.core.compiler.optimize.move import Move, ranges
from tinyedge.core.compiler.optimize.moved import MovedKernel
from tinyedge.core.compiler.schedule.canonical import coefficient_of
from tinyedge.core.ir import access, args, ops
from tinyedge.core.ir.buffers import KernelArg, row_major
from tinyedge.core.ir.lowered import FLAT
from tinyedge.core.ir.polynomial import atom_key, terms
from tinyedge.core.ir.rewrite import bottom_up
from tinyedge.core.ir.rules.algebra import rewrite
from tinyedge.core.ir.uop import UOp, as_node, const, toposort

VECTOR = 4  # strides that are divisible by it stay so
TYPES = (dt.float32, dt.int32)
SUMS = (ops.CONST, ops.ADD, ops.SUB, ops.NEG, ops.MUL)


@dataclass(frozen=True)
class Member:
    """One of the kernels that share a text.

    position: among those given. moves: those it still has. numbers: what the shared kernel reads
    for it, as int32, from one more argument; none where nothing differs. groups: its workgroups.
    """

    position: int
    moves: Sequence[Move]
    numbers: tuple[int, ...]
    groups: int


@dataclass(frozen=True)
class Shared:
    """What kernels of one form have become."""

    sink: UOp
    members: tuple[Member, ...]


@dataclass(frozen=True)
class _Form:
    """A kernel with symbols in place of its sizes."""

    position: int
    moves: Sequence[Move]
    sink: UOp
    values: Sequence[int]  # of the symbols
    outputs: int  # threads that it takes


def share_sizes(kernels: Sequence[tuple[UOp, Sequence[Move], int]], caps: Caps) -> list[Shared]:
    """Kernels that can be one.

    kernels: each before its moves, its moves, how many arguments it has.
    """
    forms: dict[UOp, list[_Form]] = {}
    for position, (sink, moves, arguments) in enumerate(kernels):
        if arguments < caps.bindings:
            form = _form(position, sink, moves, caps)
            if form is not None:
                forms.setdefault(form.sink, []).append(form)
    return [_shared(same, kernels[same[0].position][2]) for same in forms.values() if same[1:]]


def form_of(sink: UOp, moves: Sequence[Move], caps: Caps) -> UOp | None:
    """What kernels that can be one have in common: a kernel after its moves, with symbols in place
    of its sizes. None where nothing may be shared.
    """
    form = _form(0, sink, moves, caps)
    return None if form is None else form.sink


def _form(position: int, sink: UOp, moves: Sequence[Move], caps: Caps) -> _Form | None:
    """The form of a kernel; None where none may be shared."""
    last = max((i for i, move in enumerate(moves) if not _distributes(move)), default=-1)
    kept = moves[: last + 1]
    moving = MovedKernel(sink, caps)
    for move in kept:
        moving.do(move, allowed=True)
    sink = moving.sink
    if not all(map(_is_plain, toposort((sink,)))):
        return None
    outputs = prod(int(r.src[0].arg) for r in ranges(sink) if r.arg.kind == "loop")
    if outputs > FLAT * min(caps.grid):
        return None
    former = _Former(sink)
    return _Form(position, kept, former.sink, former.values, outputs)


def _distributes(move: Move) -> bool:
    """Whether a move could be of those that deal out to threads and workgroups what tiles left."""
    return not isinstance(move, To) or move.kind in ("local", "grid")


def _is_plain(node: UOp) -> bool:
    """Whether a shared kernel may hold a node: no open sizes, no images, no halves, no memory of
    workgroups, no attention.
    """
    if node.op is ops.PARAM:
        return node.dtype in TYPES and not node.arg.is_image
    if node.op is ops.RANGE:
        kinds = ("loop", "reduce", "vector", "upcast", "unroll")
        return node.src[0].op is ops.CONST and node.arg.kind in kinds
    return node.op not in (ops.SYMBOL, ops.STAGE, ops.ATTEND_LOOP, ops.RESCALED_LOOP, ops.RUNNING)


def _in_order(sink: UOp) -> list[UOp]:
    """The ranges by their part in the kernel: first what is dealt out, by how far apart in memory
    its steps are stored.
    """
    store = sink.src[0]

    def place(r: UOp) -> tuple[int, int, int]:
        if r.arg.kind != "loop":
            return 1, 0, r.arg.number
        far = coefficient_of(store.src[2], r) if r in store.src[2].ranges else None
        return 0, -(far or 2**40), r.arg.number

    return sorted(ranges(sink), key=place)


class _Former:
    """Gives a kernel's sizes symbols, in the order in which they are met."""

    def __init__(self, sink: UOp) -> None:
        self.values: list[int] = []
        self.done: dict[UOp, UOp] = {}
        accesses = (node for node in toposort((sink,)) if node.op in access.ACCESSES)
        self.addresses = {index for node in accesses for index in access.indices_of(node)}
        for number, r in enumerate(_in_order(sink)):
            self.done[r] = self._range(r, number)
        self.sink = bottom_up((sink,), self._change, self.done, operands=self._parts)[sink]

    def _range(self, r: UOp, number: int) -> UOp:
        kind = str(r.arg.kind)
        size = self._number(r.src[0].arg) if kind in ("loop", "reduce") else r.src[0]
        return UOp(
            ops.RANGE, dt.index, (size,), args.Range(number, "flat" if kind == "loop" else kind)
        )

    def _parts(self, node: UOp) -> tuple[UOp, ...]:
        """What lies below a node: of a sum, its atoms; not the number of a last step."""
        if _is_last_of(node):
            return node.src[:1]
        if node.dtype is not dt.index or node.op not in SUMS:
            return node.src
        atoms = {atom for monomial in terms(node) for atom in monomial}
        return tuple(
            sorted(atoms, key=lambda atom: _order(self.done[atom] if atom in self.done else atom))
        )

    def _change(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        if node.op is ops.PARAM:
            arg = node.arg
            plain = KernelArg(arg.slot, (), row_major(()), arg.written, arg.weight)
            return UOp(ops.PARAM, node.dtype, (), plain)
        if node.dtype is dt.index and node.op in SUMS:
            return self._sum(node)
        if _is_last_of(node):
            last = UOp(ops.ADD, dt.index, (self._number(node.src[1].arg + 1), const(-1, dt.index)))
            return node.replace((*src, last))
        return node.replace(src)

    def _sum(self, node: UOp) -> UOp:
        """A polynomial, from its parts; each coefficient is a size."""
        monomials = {
            tuple(sorted((self.done[atom] for atom in monomial), key=_order)): coefficient
            for monomial, coefficient in terms(node).items()
        }
        total: UOp | None = None
        for monomial in sorted(monomials, key=lambda m: (not m, tuple(map(_order, m)))):
            term = self._number(monomials[monomial], VECTOR if node in self.addresses else 1)
            for atom in monomial:
                term = UOp(ops.MUL, dt.index, (atom, term))
            total = term if total is None else UOp(ops.ADD, dt.index, (total, term))
        return const(0, dt.index) if total is None else total

    def _number(self, value: int, vector: int = 1) -> UOp:
        """A symbol for a size, which says whether `vector` divides it; what is 1 or 0 stays."""
        if abs(value) < 2:
            return const(value, dt.index)
        scale = vector if value % vector == 0 else 1
        self.values.append(value // scale)
        return as_node(_symbol(len(self.values) - 1) * scale)


def _is_last_of(node: UOp) -> bool:
    """Whether a step is at most the last of a size: the size says that it is inside."""
    return node.op is ops.MIN and node.dtype is dt.index and node.src[1].op is ops.CONST


def _symbol(number: int, column: Sequence[int] = (0,), *src: UOp) -> UOp:
    arg = args.Symbol(f"n{number}", min(column), max(column), 1, 0)
    return UOp(ops.SYMBOL, dt.index, src, arg)


def _order(atom: UOp) -> tuple[int, object]:
    return atom_key(atom) if atom.op is ops.RANGE else (2, atom.op.name)


def _shared(forms: Sequence[_Form], slot: int) -> Shared:
    """The kernel of a form: what is equal in all is constant, what is a multiple of another size
    in all is computed.
    """
    columns = list(zip(*(form.values for form in forms), strict=True))
    read: list[tuple[int, ...]] = []
    values: dict[int, tuple[int, int]] = {}  # of a place, which of those that are read, how often
    for place in sorted(range(len(columns)), key=lambda place: (columns[place], place)):
        column = columns[place]
        if len({*column}) > 1:
            known = ((n, _multiple(column, base)) for n, base in enumerate(read))
            found = next(((n, times) for n, times in known if times), None)
            if found is None:
                found = len(read), 1
                read.append(column)
            values[place] = found
    arg = KernelArg(slot, (len(read),), row_major((len(read),)), weight=True)
    param = UOp(ops.PARAM, dt.int32, (), arg)
    symbols = [_symbol(n, column, param, as_node(n)) for n, column in enumerate(read)]
    mapping = {}
    for place, column in enumerate(columns):
        number, times = values.get(place, (0, 0))
        mapping[_symbol(place)] = as_node(symbols[number] * times) if times else as_node(column[0])
    (kernel,) = rewrite((forms[0].sink,), mapping)
    numbers = zip(*read, strict=True) if read else ((),) * len(forms)
    members = (
        Member(form.position, form.moves, own, -(-form.outputs // FLAT))
        for form, own in zip(forms, numbers, strict=True)
    )
    return Shared(kernel, tuple(members))


def _multiple(column: Sequence[int], base: Sequence[int]) -> int:
    """By which integer each of the column is the base's; 0 if there is none."""
    times = column[0] // base[0]
    return times if all(value == times * of for value, of in zip(column, base, strict=True)) else 0
