"""Kernels as C (gcc and clang): vectors by the vector extension, masks as vectors of int."""

from __future__ import annotations

from importlib import resources
from typing import ClassVar

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.render import FUNCTIONS, Printer, known_shift, strip_parens
from tinyedge.core.compiler.target import LoweredKernel
from tinyedge.core.dtype import DType
from tinyedge.core.ir import float_bounds, ops
from tinyedge.core.ir.intervals import Interval
from tinyedge.core.ir.lowered import workgroup_buffers
from tinyedge.core.ir.polynomial import bounds, divisor
from tinyedge.core.ir.uop import UOp, as_node

TYPES = {
    "bool": "int32_t",
    "index": "int32_t",
    "float16": "_Float16",
    "float32": "float",
    "float64": "double",
}
HELPERS = {
    **FUNCTIONS,
    ops.ABS: "abs",
    ops.ISNAN: "isnan",
    ops.LEVEL: "level",
    ops.MAX: "max",
    ops.MIN: "min",
    ops.PAIRS: "pairs",
    ops.QUADS: "quads",
    ops.TRUNCDIV: "truncdiv",
    ops.WORD: "word",
}
ADDED = {ops.PAIRS: "add_pairs", ops.QUADS: "add_quads"}  # to a sum
COMPARISONS = (ops.LT, ops.LE, ops.EQ)
STREAMED = 1 << 25  # bytes of what is written past the caches


def short(dtype: DType) -> str:
    """The suffix of helper functions and vector types: f32, i32x8, ..."""
    name = {"index": "i32", "bool": "i32"}.get(dtype.name, f"{dtype.kind}{dtype.bits}")
    return name if dtype.lanes == 1 else f"{name}x{dtype.lanes}"


class CPrinter(Printer):
    """The spellings of C."""

    streamed: frozenset[UOp] = frozenset()  # arguments that are written past the caches
    suffixes: ClassVar = {"int64": "LL", "uint64": "ULL", "uint32": "u"}

    def __init__(self, kernel: LoweredKernel) -> None:
        super().__init__(kernel)
        self._bounds: dict[UOp, Interval] = {}

    def is_named(self, size: UOp) -> bool:
        return True

    def steps(self, node: UOp) -> str:
        """Whatever the caller passes, no size is beyond what the kernel was compiled for."""
        size = node.arg
        if node.src:
            value = f"b{node.src[0].arg.slot}[0], 0, 1"
        else:
            value = f"{self.symbol(node)}, {size.offset}, {size.step}"
        return f"te_size({value}, {size.min}, {size.max})"

    def type(self, dtype: DType) -> str:
        if dtype.lanes > 1:
            return short(dtype)
        return TYPES.get(dtype.name, f"{dtype.name}_t")

    def short(self, dtype: DType) -> str:
        return short(dtype)

    def special(self, kind: str, dimension: int) -> str:
        return "group" if kind == "group" else "0"

    def region(self, node: UOp, name: str) -> str:
        param, start, guard = node.src
        place = f"b{param.arg.slot} + {self.expression(start)}"
        chosen = f"{self.expression(guard)} ? {place} : (const void *)te_zeros"
        return f"const {self.type(node.dtype)} *const {name} = {chosen};"

    def memory(self, node: UOp) -> str:
        """What is loaded from or stored to, as a pointer."""
        return f"b{node.arg.slot}" if node.op is ops.PARAM else self.known(node) or ""

    def load_text(self, node: UOp, operands: list[str]) -> str:
        name = self.memory(node.src[0])
        if node.dtype.lanes == 1:
            text = f"{name}[{strip_parens(operands[0])}]"
        else:
            text = f"te_load_{short(node.dtype)}({name} + {operands[0]})"
        if node.arg:
            return f"({operands[1]} ? {text} : {self._zero(node.dtype)})"
        return text

    def _zero(self, dtype: DType) -> str:
        return "0" if dtype.lanes == 1 else f"({short(dtype)}){{0}}"

    def store(self, node: UOp) -> str:
        param, value, address = node.src
        name = self.memory(param)
        text = self.strip_parens(value)
        if value.dtype.lanes == 1:
            return f"{name}[{self.strip_parens(address)}] = {text};"
        verb = "stream" if param in self.streamed else "store"
        return f"te_{verb}_{short(value.dtype)}({name} + {self.expression(address)}, {text});"

    def _set(self, node: UOp) -> None:
        accumulator, part = node.src
        if not (_adds_product(node) and self.known(part) is None):
            super()._set(node)
            return
        factors = ", ".join(self.strip_parens(factor) for factor in part.src)
        name = self.names[accumulator]
        helper = ADDED.get(part.op, "fma")
        self.line(f"{name} = te_{helper}_{short(node.dtype)}({factors}, {name});")

    def convert(self, node: UOp, value: str) -> str:
        source, target = node.src[0].dtype, node.dtype
        if target.kind == "b":
            return f"({value} != 0)"
        if target.lanes > 1:
            if source.kind == "b":
                value = f"(-{value})"
            if short(source) == short(target):
                return value
            if self._clips(node, value):
                return self._clipped(node, value)
            return f"te_{short(source)}_to_{short(target)}({strip_parens(value)})"
        if target.kind in "iu" and source.kind == "f":
            return f"te_to_{target.name}({strip_parens(value)})"
        return f"(({self.type(target)}){value})"

    def _clips(self, node: UOp, value: str) -> bool:
        """Whether floats that were made narrow integers are made wide again, as quantizing does;
        not where the narrow ones have a name, as what would be nested too deep gets.
        """
        narrow = node.src[0]
        return (
            narrow.op is ops.CAST
            and narrow.src[0].dtype.scalar is dt.float32
            and narrow.dtype.kind in "iu"
            and narrow.dtype.bits < 32 == node.dtype.bits
            and value.startswith(_made(narrow))
        )

    def _clipped(self, node: UOp, value: str) -> str:
        """Such a cast without the narrow vector between: to int32, and on from there."""
        floats, narrow, target = node.src[0].src[0].dtype, node.src[0].dtype, node.dtype
        text = value.replace(_made(node.src[0]), f"te_{short(floats)}_clip_{short(narrow)}", 1)
        whole = dt.int32.vector(target.lanes)
        return text if target is whole else f"te_{short(whole)}_to_{short(target)}({text})"

    def bitcast(self, node: UOp, value: str) -> str:
        return f"te_bits_{short(node.src[0].dtype)}_to_{short(node.dtype)}({strip_parens(value)})"

    def select(self, node: UOp, condition: str, yes: str, no: str) -> str:
        if node.dtype.lanes > 1:
            operands = ", ".join(map(strip_parens, (condition, yes, no)))
            return f"te_select_{short(node.dtype)}({operands})"
        return f"({condition} ? {yes} : {no})"

    def vector(self, node: UOp, lanes: list[str]) -> str:
        name = short(node.dtype)
        permuted = self._permuted(node)
        if permuted is not None:
            return permuted
        if node.dtype.kind == "b":
            lanes = [f"-({lane})" for lane in lanes]
        if len(lanes) == 1:
            return f"te_splat_{name}({strip_parens(lanes[0])})"
        return f"({name}){{{', '.join(strip_parens(lane) for lane in lanes)}}}"

    def _permuted(self, node: UOp) -> str | None:
        """A vector of lanes of two others, or of one and zeros, as one permutation: of lanes that
        are written one by one gcc loads each again. None for others, as for one lane in all places.
        """
        if len(node.src) < node.dtype.lanes:
            return None
        sources = list(dict.fromkeys(lane.src[0] for lane in node.src if lane.op is ops.LANE))
        rest = [lane for lane in node.src if lane.op is not ops.LANE]
        names = [self.known(source) for source in sources]
        alike = all(source.dtype is node.dtype for source in sources)
        if node.dtype.kind == "b" or not alike or None in names or not all(map(_is_zero, rest)):
            return None
        if not names or len(names) + bool(rest) > 2:
            return None
        count = node.dtype.lanes
        second = f"({short(node.dtype)}){{0}}" if len(names) < 2 else names[1]
        order = (
            sources.index(lane.src[0]) * count + lane.arg if lane.op is ops.LANE else count
            for lane in node.src
        )
        return f"te_permute(i32x{count}, {names[0]}, {second}, {', '.join(map(str, order))})"

    def lane(self, node: UOp, value: str) -> str:
        text = f"{value}[{node.arg}]"
        return f"(-{text})" if node.dtype.kind == "b" else text

    def reduce_lanes(self, node: UOp, value: str) -> str:
        return f"te_lanes_{node.arg.name}_{short(node.src[0].dtype)}({strip_parens(value)})"

    def operation(self, node: UOp, operands: list[str]) -> str:
        op = node.op
        source = node.src[0].dtype
        if op is ops.NOT and source.kind == "b" and source.lanes == 1:
            return f"(!{operands[0]})"
        if op is ops.FMA and source.lanes > 1:
            return f"te_fma_{short(source)}({', '.join(map(strip_parens, operands))})"
        if op is ops.WORD and (word := self._word(node)) is not None:
            return word
        if op in HELPERS:
            inner = ", ".join(strip_parens(o) for o in operands)
            name = self._exponential(node) if op is ops.EXP else HELPERS[op]
            return f"te_{name}_{short(source)}({inner})"
        if op in (ops.SHL, ops.SHR) and source.bits >= 32 and known_shift(node):
            return super().operation(node, operands)
        if op in (ops.SHL, ops.SHR):
            return f"te_{op.name}_{short(source)}({', '.join(operands)})"
        if op is ops.ADD and (text := self._added(node, operands)) is not None:
            return text
        if op in (ops.ADD, ops.SUB, ops.MUL, ops.NEG) and source.is_int and _may_wrap(node):
            return self._wrapping(node, operands)
        if op in COMPARISONS and source.lanes > 1 and source.bits == 64:
            mask = strip_parens(super().operation(node, operands))
            return f"te_{short(dt.int64.vector(source.lanes))}_to_{short(node.dtype)}({mask})"
        if op is ops.NOT and source.bits < 32:
            return f"(({self.type(source)})(~{operands[0]}))"
        return super().operation(node, operands)

    def _word(self, node: UOp) -> str | None:
        """Four bytes that lie beside each other in memory, loaded at once."""
        loads = [part.src[0] if part.op is ops.CAST else part for part in node.src]
        if any(n.op is not ops.LOAD or n.arg or n.dtype not in (dt.int8, dt.uint8) for n in loads):
            return None
        first, place = loads[0].src
        if any(n.src[0] is not first or n.src[1] is not place + i for i, n in enumerate(loads)):
            return None
        return f"te_load_word({self.memory(first)} + {self.expression(place)})"

    def _added(self, node: UOp, operands: list[str]) -> str | None:
        """The sum of a vector and of products of words that have no name."""
        for part, text, other in zip(node.src, operands, operands[::-1], strict=True):
            call = f"te_{HELPERS[part.op]}_" if part.op in ADDED else ""
            if call and part.dtype.lanes > 1 and text.startswith(call):
                added = f"te_{ADDED[part.op]}_{text.removeprefix(call)}"
                return f"{added.removesuffix(')')}, {strip_parens(other)})"
        return None

    def _exponential(self, node: UOp) -> str:
        """The helper for an exponential: of vectors of numbers of at most 0 it takes less."""
        (power,) = node.src
        if power.dtype.lanes < 2:
            return HELPERS[ops.EXP]
        if node.arg:
            return "decay"
        _, most = float_bounds.bounds(power, self._bounds)
        return "fall" if power.dtype.scalar is dt.float32 and most <= 0 else HELPERS[ops.EXP]

    def _wrapping(self, node: UOp, operands: list[str]) -> str:
        """Arithmetic modulo 2^bits: in unsigned integers, because C's signed overflow is
        undefined.
        """
        dtype = node.src[0].dtype
        wide = dt.uint64 if dtype.bits == 64 else dt.uint32
        unsigned = self.type(wide.vector(dtype.lanes))
        if dtype.kind == "i" or dtype.bits < 32:
            operands = [f"({unsigned}){operand}" for operand in operands]
            return f"(({self.type(dtype)}){super().operation(node, operands)})"
        return super().operation(node, operands)


def _streamed(kernel: LoweredKernel) -> frozenset[UOp]:
    """The arguments that are larger than caches are, where whoever reads them finds nothing of
    them, if all that is stored are whole vectors beside each other.
    """
    stores: dict[UOp, list[UOp]] = {}
    for node in kernel.linear.statements:
        if node.op is ops.STORE and node.src[0].op is ops.PARAM:
            stores.setdefault(node.src[0], []).append(node)
    return frozenset(p for p, found in stores.items() if _is_large(p) and all(map(_whole, found)))


def _is_large(param: UOp) -> bool:
    count = param.arg.layout.count(param.arg.shape)
    return isinstance(count, int) and count * param.dtype.itemsize >= STREAMED


def _whole(store: UOp) -> bool:
    """Whether vectors of floats are stored at multiples of their length."""
    dtype, place = store.src[1].dtype, store.src[2]
    return dtype.lanes > 1 and dtype.scalar is dt.float32 and divisor(place) % dtype.lanes == 0


def _is_zero(node: UOp) -> bool:
    return node.op is ops.CONST and node.arg == 0 and not str(node.arg).startswith("-")


def _made(cast: UOp) -> str:
    """The function that makes integers of floats."""
    return f"te_{short(cast.src[0].dtype)}_to_{short(cast.dtype)}"


def _adds_product(node: UOp) -> bool:
    """Whether a SET adds a product to a sum of vectors of float32, or a pair of products."""
    if node.arg is not ops.ADD or node.dtype.lanes == 1:
        return False
    product = node.src[1].op
    return product in ADDED or (product is ops.MUL and node.dtype.scalar is dt.float32)


def _may_wrap(node: UOp) -> bool:
    """Whether integers may leave their type: indices only where they come from data, which is
    compared with the sizes, but maybe after it was multiplied.
    """
    if node.dtype is not dt.index:
        return True
    least, greatest = dt.index.limits
    low, high = bounds(node)
    return low < least or high > greatest


# Of arrays on the stack: gcc 12 takes it for granted, where it joins accesses to wider ones, that
# they are aligned to these, and aligns the stack only where it is told (gcc's bug 109780).
ALIGNED = "__attribute__((aligned(64)))"


def render(kernel: LoweredKernel) -> str:
    """A kernel as a C function over workgroups [begin, end).

    It stays in its buffers whatever it is called with, as long as these have the bytes that it was
    compiled for: workgroups that it does not have are left out, sizes are clamped.
    """
    printer = CPrinter(kernel)
    printer.streamed = _streamed(kernel)
    arguments = "void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end"
    lines = [f"void {kernel.name}({arguments}) {{"]
    lines.append("    (void)symbols;")
    for argument in kernel.arguments:
        dtype = argument.param.dtype.scalar
        qualifier = "" if argument.written else "const "
        name = f"b{argument.param.arg.slot}"
        pointer = f"{qualifier}{printer.type(dtype)} *restrict {name}"
        lines.append(f"    {pointer} = buffers[{argument.param.arg.slot}];")
    count = as_node(kernel.geometry.grid[0])
    printer.name_sizes(count)
    groups = printer.strip_parens(count)
    lines.extend(printer.lines)
    printer.lines = []
    lines.append(f"    if (end > {groups}) end = {groups};")
    lines.append("    for (int32_t group = begin; group < end; group++) {")
    printer.depth = 2
    for array in workgroup_buffers(kernel.linear.statements):
        declared = f"{printer.type(array.dtype)} {printer.known(array)}[{array.arg.length}]"
        lines.append(f"        {declared} {ALIGNED};")
    lines.extend(printer.body())
    lines.append("    }")
    if printer.streamed:
        lines.append("    te_fence();")  # before other threads read it
    lines.extend(["}", ""])
    return "\n".join(lines)


def prelude(file: str) -> str:
    """Helper functions that go before the kernels."""
    return resources.files(__package__).joinpath(file).read_text(encoding="ascii")
