"""Kernels as OpenCL C: vectors are the language's own, fp16 values are unpacked on their way from
and to memory, arithmetic is in float.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import ClassVar

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.render import (
    FUNCTIONS,
    LANES,
    Printer,
    constant,
    known_shift,
    strip_parens,
)
from tinyedge.core.compiler.target import LoweredArg, LoweredKernel
from tinyedge.core.dtype import DType
from tinyedge.core.ir import access, float_bounds, ops
from tinyedge.core.ir.float_bounds import FP16_MAX
from tinyedge.core.ir.intervals import Interval
from tinyedge.core.ir.lowered import workgroup_buffers
from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.uop import UOp

# How kernels are compiled. Of a driver's options, those that change values are left out.
BUILD = "-cl-std=CL1.2 -cl-mad-enable"

SAMPLER = "te_sampler"  # of the prelude: whole coordinates, zeros outside

TYPES = {
    "bool": "int",
    "index": "int",
    "int8": "char",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "uint8": "uchar",
    "uint16": "ushort",
    "uint32": "uint",
    "uint64": "ulong",
    "float16": "float",
    "float32": "float",
}
HELPERS = {
    ops.ISNAN: "isnan",
    ops.SIN: "sin",
    ops.COS: "cos",
    ops.TRUNCDIV: "truncdiv",
    ops.SHL: "shl",
    ops.SHR: "shr",
}
WRAPPING = (ops.ADD, ops.SUB, ops.MUL, ops.NEG)
WIDENING = (ops.ADD, ops.SUB, ops.MUL, ops.DIV)  # a scalar beside a vector is repeated
LOADED = ("float16", "float32")  # by te_load_... of the prelude
ATOM = re.compile(r"[\w.]+(\[[^][]*\])?")


def short(dtype: DType) -> str:
    """The suffix of helper functions: f32, i32x4, ..."""
    names = {"index": "i32", "bool": "i32", "float16": "f32"}
    name = names.get(dtype.name, f"{dtype.kind}{dtype.bits}")
    return name if dtype.lanes == 1 else f"{name}x{dtype.lanes}"


class OpenclPrinter(Printer):
    """The spellings of OpenCL C."""

    suffixes: ClassVar = {"int64": "L", "uint64": "UL", "uint32": "u"}

    def __init__(self, kernel: LoweredKernel) -> None:
        super().__init__(kernel)
        self._bounds: dict[UOp, Interval] = {}

    def short(self, dtype: DType) -> str:
        return short(dtype)

    def type(self, dtype: DType) -> str:
        name = TYPES[dtype.name]
        return name if dtype.lanes == 1 else f"{name}{dtype.lanes}"

    def statement(self, node: UOp) -> None:
        """A vector of one scalar gets no name: the scalar has one, and takes a fourth of the
        registers.
        """
        if _repeated(node):
            node = node.src[0]
            if self.known(node) is not None:
                return
        super().statement(node)

    def special(self, kind: str, dimension: int) -> str:
        return f"(int)get_{'group' if kind == 'group' else 'local'}_id({dimension})"

    def barrier(self) -> str:
        return "barrier(CLK_LOCAL_MEM_FENCE);"

    def shared_type(self, dtype: DType) -> str:
        """The element type of workgroup memory, of as many bytes as `dtype` has."""
        if dtype.name == "float16":
            raise ValueError("no spelling for fp16 in workgroup memory")
        return self.type(dtype)

    def load_text(self, node: UOp, operands: list[str]) -> str:
        if access.is_image(node):
            place = ", ".join(strip_parens(operand) for operand in operands[:2])
            sampler = "" if _inside(node) else f"{SAMPLER}, "
            text = f"read_imagef(b{node.src[0].arg.slot}, {sampler}(int2)({place}))"
        elif node.arg and _speculative(node):
            param, address = node.src[0], strip_parens(operands[0])
            kind = "half" if param.dtype.bits == 16 else short(param.dtype)
            return f"te_load_{kind}(b{param.arg.slot}, {address}, {strip_parens(operands[-1])})"
        else:
            text = self._load(node.src[0], node.dtype.lanes, operands[0])
        if node.arg:
            return f"({operands[-1]} ? {text} : {self._repeated('0', node.dtype)})"
        return text

    def _load(self, param: UOp, lanes: int, address: str) -> str:
        name = f"b{param.arg.slot}"
        if param.dtype.bits == 16 and param.dtype.is_float:
            if lanes == 1:
                return f"vload_half({strip_parens(address)}, {name})"
            if param.dtype.lanes == lanes:
                return f"vloada_half{lanes}({strip_parens(address)}, {name})"
            return f"vloada_half{lanes}(0, {_behind(name, address)})"
        if param.dtype.lanes == lanes:
            return f"{name}[{strip_parens(address)}]"
        vector = self.type(param.dtype.vector(lanes))
        return f"*(__global const {vector} *)({_behind(name, address)})"

    def store(self, node: UOp) -> str:
        param, value, *places = node.src
        name = f"b{param.arg.slot}"
        if param.arg.is_image:
            place = ", ".join(self.strip_parens(index) for index in places)
            text = self.strip_parens(value)
            if param.dtype is dt.float16:
                text = self._saturated(value, text)
            return f"write_imagef({name}, (int2)({place}), {text});"
        (address,) = places
        lanes, text, at = value.dtype.lanes, self.strip_parens(value), self.expression(address)
        if param.dtype.bits == 16 and param.dtype.is_float:
            text = self._saturated(value, text)
            if lanes == 1:
                return f"vstore_half_rte({text}, {strip_parens(at)}, {name});"
            if param.dtype.lanes == lanes:
                return f"vstorea_half{lanes}_rte({text}, {strip_parens(at)}, {name});"
            return f"vstorea_half{lanes}_rte({text}, 0, {_behind(name, at)});"
        if param.dtype.lanes == lanes:
            return f"{name}[{strip_parens(at)}] = {text};"
        vector = self.type(param.dtype.vector(lanes))
        return f"*(__global {vector} *)({_behind(name, at)}) = {text};"

    def _saturated(self, value: UOp, text: str) -> str:
        """A value as fp16 can hold it: limited where it may be too large."""
        low, high = float_bounds.bounds(value, self._bounds)
        if high <= FP16_MAX and low >= -FP16_MAX:
            return text
        name = "te_half_above" if low >= 0 else "te_half"
        return f"{name}_{short(value.dtype)}({text})"

    def select(self, node: UOp, condition: str, yes: str, no: str) -> str:
        """Of vectors by the function: compilers make bitwise operations of the operator."""
        if node.dtype.lanes == 1:
            return super().select(node, condition, yes, no)
        return f"select({', '.join(map(strip_parens, (no, yes, condition)))})"

    def _repeated(self, text: str, dtype: DType) -> str:
        return text if dtype.lanes == 1 else f"({self.type(dtype)})({text})"

    def convert(self, node: UOp, value: str) -> str:
        source, target = node.src[0].dtype, node.dtype
        if target.kind == "b":
            return f"({value} != {self._repeated('0', source)})"
        if target.kind in "iu" and source.kind == "f":
            return f"te_{short(source)}_to_{short(target)}({strip_parens(value)})"
        if target.lanes == 1:
            same = self.type(source) == self.type(target)
            return value if same else f"(({self.type(target)}){value})"
        if source.kind == "b":
            value = f"(-{value})"
        if self.type(source) == self.type(target):
            return value
        if target.kind == "f":
            return f"convert_{self.type(target)}({strip_parens(value)})"
        return f"as_{self.type(target)}({strip_parens(value)})"

    def bitcast(self, node: UOp, value: str) -> str:
        return f"as_{self.type(node.dtype)}({strip_parens(value)})"

    def vector(self, node: UOp, lanes: list[str]) -> str:
        if node.dtype.kind == "b":
            lanes = [f"-{lane}" for lane in lanes]
        elif len(lanes) == node.dtype.lanes:
            lanes = list(_parts(node, [strip_parens(lane) for lane in lanes]))
            if len(lanes) == 1:
                return lanes[0]
        else:
            lanes = [strip_parens(lane) for lane in lanes]
        return f"(({self.type(node.dtype)})({', '.join(lanes)}))"

    def lane(self, node: UOp, value: str) -> str:
        wide = node.src[0].dtype.lanes > len(LANES)
        text = f"{value}.{f's{node.arg:x}' if wide else LANES[node.arg]}"
        return f"(-{text})" if node.dtype.kind == "b" else text

    def operation(self, node: UOp, operands: list[str]) -> str:
        op = node.op
        source = node.src[0].dtype
        inner = ", ".join(strip_parens(operand) for operand in operands)
        if op is ops.NOT and source.kind == "b" and source.lanes == 1:
            return f"(!{operands[0]})"
        if op in (ops.MAX, ops.MIN):
            return self._extreme(node, operands)
        if op is ops.ABS:
            if source.is_float:
                return f"fabs({inner})"
            return self._as(node.dtype, f"abs({inner})")
        if op in FUNCTIONS and op not in HELPERS:
            return f"{FUNCTIONS[op]}({inner})"
        if op in (ops.SHL, ops.SHR) and source.bits >= 32 and known_shift(node):
            return super().operation(node, operands)
        if op in HELPERS:
            return f"te_{HELPERS[op]}_{short(source)}({inner})"
        if op in WRAPPING and source.is_int and source.name != "index":
            return self._wrapping(node, operands)
        if op is ops.NOT and source.bits < 32:
            return f"(({self.type(source)})(~{operands[0]}))"
        if op in WIDENING and source.lanes > 1 and source.is_float:
            operands = self._widened(node, operands)
        return super().operation(node, operands)

    def _widened(self, node: UOp, operands: list[str]) -> list[str]:
        """The operands of an operation that repeats a scalar by itself."""
        repeated = [_repeated(s) for s in node.src]
        if all(repeated):
            return operands
        before, after = len(f"(({self.type(node.dtype)})("), len("))")
        texts = []
        for text, scalar in zip(operands, repeated, strict=True):
            if scalar:
                text = text[before:-after]
                text = text if ATOM.fullmatch(text) else f"({text})"
            texts.append(text)
        return texts

    def _extreme(self, node: UOp, operands: list[str]) -> str:
        """The greater or the lesser of two; a NaN wins, where there can be one."""
        op, dtype = node.op, node.dtype
        inner = ", ".join(strip_parens(operand) for operand in operands)
        if dtype.kind == "b" or (dtype.is_int and dtype.bits == 32):
            return f"{op.name}({inner})"
        other = constant(node.src[1])
        if dtype.is_float and other is not None and not math.isnan(other):
            sign = "<" if op is ops.MAX else ">"
            value, bound = self.once(dtype, operands[0]), operands[1]
            return self.select(node, f"{value} {sign} {bound}", bound, value)
        return f"te_{op.name}_{short(dtype)}({inner})"

    def _as(self, dtype: DType, value: str) -> str:
        """An integer as another of its width."""
        return (
            f"(({self.type(dtype)}){value})"
            if dtype.lanes == 1
            else (f"as_{self.type(dtype)}({strip_parens(value)})")
        )

    def _wrapping(self, node: UOp, operands: list[str]) -> str:
        """Arithmetic modulo 2^bits: in unsigned integers, because C's signed overflow is
        undefined.
        """
        dtype = node.src[0].dtype
        if dtype.kind == "i":
            unsigned = dt.by_name(f"u{dtype.name}").vector(dtype.lanes)
            operands = [self._as(unsigned, operand) for operand in operands]
        text = super().operation(node, operands)
        return self._as(dtype, text) if dtype.kind == "i" or dtype.bits < 32 else text


def _inside(load: UOp) -> bool:
    """Whether an image is read inside of it alone: then no sampler is needed, whose coordinates are
    floats.
    """
    param, *places = load.src[:3]
    sizes = param.arg.layout.image(param.arg.shape)
    return all(
        low >= 0 and high < size
        for (low, high), size in zip(map(bounds, places), sizes, strict=True)
    )


def _speculative(load: UOp) -> bool:
    """Whether a guarded load may read the first element where the guard is false: a choice of two
    addresses takes less than a branch.
    """
    return load.dtype.lanes == 1 and load.src[0].dtype.name in LOADED


def _behind(name: str, address: str) -> str:
    """A pointer to an element of a buffer."""
    return name if address == "0" else f"{name} + {address}"


def _repeated(node: UOp) -> bool:
    """Whether the node is a vector of one scalar."""
    return node.op is ops.VECTOR and len(node.src) == 1


def render(kernel: LoweredKernel) -> str:
    """A kernel as an OpenCL function: its buffers in order, then the symbols if it takes them."""
    printer = OpenclPrinter(kernel)
    arguments = [_argument(printer, argument) for argument in kernel.arguments]
    if kernel.symbols:
        arguments.append("__constant int *symbols")
    body = printer.body()
    shared = [
        f"    __local {printer.shared_type(node.dtype)} {printer.known(node)}[{node.arg.length}];"
        for node in workgroup_buffers(kernel.linear.statements)
    ]
    x, y, z = kernel.geometry.workgroup
    lines = [
        f"__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))",
        f"void {kernel.name}({', '.join(arguments)}) {{",
    ]
    return "\n".join([*lines, *shared, *body, "}", ""])


def _argument(printer: OpenclPrinter, argument: LoweredArg) -> str:
    dtype = argument.param.dtype
    if argument.param.arg.is_image:
        access = "__write_only" if argument.written else "__read_only"
        return f"{access} image2d_t b{argument.param.arg.slot}"
    half = dtype.bits == 16 and dtype.is_float
    element = "half" if half else printer.type(dtype)
    qualifier = "" if argument.written else "const "
    return f"__global {qualifier}{element} *restrict b{argument.param.arg.slot}"


def prelude() -> str:
    """Helper functions that go before the kernels."""
    return resources.files(__package__).joinpath("prelude.cl").read_text(encoding="ascii")


def _parts(vector: UOp, lanes: Sequence[str]) -> Iterator[str]:
    """What a vector is put together of: whole vectors, or halves and quarters, where their lanes
    follow each other, else single numbers.
    """
    position, width = 0, len(LANES)
    while position < len(lanes):
        found = vector.src[position : position + width]
        first, source = found[0].arg, found[0].src[0] if found[0].src else None
        follows = all(
            lane.op is ops.LANE and lane.src[0] is source and lane.arg == first + i
            for i, lane in enumerate(found)
        )
        if len(found) < width or not follows or first % width:
            yield lanes[position]
            position += 1
            continue
        assert source is not None
        name, _, _ = lanes[position].rpartition(".")
        numbers = "".join(f"{first + i:x}" for i in range(width))
        yield name if source.dtype.lanes == width else f"{name}.s{numbers}"
        position += width
