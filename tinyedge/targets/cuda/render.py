"""Kernels as CUDA C: C++ with CUDA's own vectors of float, int and uint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from importlib import resources
from typing import ClassVar

from tinyedge.core.compiler.render import (
    FUNCTIONS,
    LANES,
    Printer,
    constant,
    float_text,
    strip_parens,
)
from tinyedge.core.compiler.target import LoweredKernel
from tinyedge.core.dtype import DType
from tinyedge.core.ir import ops
from tinyedge.core.ir.lowered import workgroup_buffers
from tinyedge.core.ir.uop import UOp, toposort

# Sums of a thread from which a loop over a tile's steps stays one: copies of its steps, which NVRTC
# would make of few of them, load so much ahead that they need up to 140 registers.
SUMS_IN_LOOP = 48
UNBOUNDED_THREADS = 256  # they share 65536 registers, of which a thread has at most 255

TYPES = {
    "bool": "bool",
    "index": "int",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float16": "half",
    "float32": "float",
    "float64": "double",
}
VECTORS = {
    "bool": "bool",
    "index": "int",
    "int32": "int",
    "uint32": "uint",
    "float16": "half",
    "float32": "float",
}
HELPERS = {
    **FUNCTIONS,
    ops.ABS: "abs",
    ops.ISNAN: "isnan",
    ops.MAX: "max",
    ops.MIN: "min",
    ops.TRUNCDIV: "truncdiv",
    ops.SHL: "shl",
    ops.SHR: "shr",
}
WRAPPING = {ops.ADD: "add", ops.SUB: "sub", ops.MUL: "mul", ops.NEG: "neg"}


class CudaPrinter(Printer):
    """The spellings of CUDA C."""

    suffixes: ClassVar = {"int64": "ll", "uint64": "ull", "uint32": "u"}

    def type(self, dtype: DType) -> str:
        if dtype.lanes > 1:
            return f"{VECTORS[dtype.name]}{dtype.lanes}"
        return TYPES[dtype.name]

    def short(self, dtype: DType) -> str:
        return dtype.name

    def special(self, kind: str, dimension: int) -> str:
        return f"(int)blockIdx.{LANES[dimension]}" if kind == "group" else "(int)threadIdx.x"

    def barrier(self) -> str:
        return "__syncthreads();"

    def shuffle(self, node: UOp, value: str) -> str:
        return f"te_shuffle({strip_parens(value)}, {node.arg})"

    def statement(self, node: UOp) -> None:
        if node.op is ops.BEGIN and node in self._kept_loops:
            self.line("#pragma unroll 1")
        super().statement(node)

    @cached_property
    def _kept_loops(self) -> frozenset[UOp]:
        """The begins of innermost loops over steps in workgroup memory, where sums are many."""
        statements = self.linear.statements
        if sum(n.dtype.lanes for n in statements if n.op is ops.ACCUMULATOR) < SUMS_IN_LOOP:
            return frozenset()
        found, begin = set(), -1
        for position, node in enumerate(statements):
            if node.op is ops.BEGIN:
                begin = position
            elif node.op is ops.END and begin >= 0:
                if _sums_from_workgroup(statements[begin + 1 : position]):
                    found.add(statements[begin])
                begin = -1
        return frozenset(found)

    def load_text(self, node: UOp, operands: list[str]) -> str:
        param = node.src[0]
        name = f"b{param.arg.slot}"
        if node.dtype.lanes == param.dtype.lanes:
            text = f"{name}[{strip_parens(operands[0])}]"
        else:
            text = f"te_load<{self.type(node.dtype)}>({name} + {operands[0]})"
        if node.arg:
            zero = self.number(0, node.dtype.scalar)
            zero = zero if node.dtype.lanes == 1 else self._splat(node.dtype, zero)
            return f"({operands[1]} ? {text} : {zero})"
        return text

    def store(self, node: UOp) -> str:
        param, value, address = node.src
        name = f"b{param.arg.slot}"
        if value.dtype.lanes == param.dtype.lanes:
            return f"{name}[{self.strip_parens(address)}] = {self.strip_parens(value)};"
        return f"te_store({name} + {self.expression(address)}, {self.strip_parens(value)});"

    def number(self, value: bool | int | float, dtype: DType) -> str:
        if dtype.kind == "f":
            return self._float(float(value), dtype)
        if dtype.kind == "b":
            return "true" if value else "false"
        if dtype.bits < 32:
            return f"({self.type(dtype)}){value}"
        return self.integer(int(value), dtype)

    def _float(self, value: float, dtype: DType) -> str:
        if math.isnan(value):
            text = "TE_NAN"
        elif math.isinf(value):
            text = "TE_INFINITY"
        elif dtype.bits == 64:
            text = float_text(abs(value), single=False)
        else:
            text = float_text(abs(value)) + "f"
        if math.copysign(1.0, value) < 0:
            text = f"(-{text})"
        return f"half({strip_parens(text)})" if dtype.bits == 16 else text

    def convert(self, node: UOp, value: str) -> str:
        source, target = node.src[0].dtype, node.dtype
        if self.type(source) == self.type(target):
            return value
        name = "int32" if target.name == "index" else target.name
        saturates = source.kind == "f" and target.kind in "iu"
        if target.lanes > 1 or saturates or target.name == "float16":
            return f"te_to_{name}({strip_parens(value)})"
        if target.kind == "b":
            return f"({value} != 0)"
        return f"(({self.type(target)}){value})"

    def bitcast(self, node: UOp, value: str) -> str:
        return f"te_bits<{self.type(node.dtype)}>({strip_parens(value)})"

    def select(self, node: UOp, condition: str, yes: str, no: str) -> str:
        if node.dtype.lanes > 1:
            return f"te_select({strip_parens(condition)}, {strip_parens(yes)}, {strip_parens(no)})"
        return f"({condition} ? {yes} : {no})"

    def vector(self, node: UOp, lanes: list[str]) -> str:
        if len(lanes) == 1:
            return self._splat(node.dtype, lanes[0])
        return f"{self.type(node.dtype)}{{{', '.join(strip_parens(lane) for lane in lanes)}}}"

    def _splat(self, dtype: DType, value: str) -> str:
        return f"te_{self.type(dtype)}({strip_parens(value)})"

    def lane(self, node: UOp, value: str) -> str:
        return f"{value}.{LANES[node.arg]}"

    def operation(self, node: UOp, operands: list[str]) -> str:
        op = node.op
        source = node.src[0].dtype
        inner = ", ".join(strip_parens(o) for o in operands)
        if op in HELPERS:
            return f"te_{HELPERS[op]}({inner})"
        if op is ops.DIV and source.name == "float32" and constant(node.src[0]) == 1.0:
            return f"te_reciprocal({strip_parens(operands[1])})"
        if source.lanes == 1:
            if op is ops.NOT and source.kind == "b":
                return f"(!{operands[0]})"
            if source.is_int and source.bits < 32 and op.name in ("not", "and", "or", "xor"):
                return f"te_{op.name}({inner})"
            if op in WRAPPING and (source.kind == "i" or source.bits < 32) and source.is_int:
                if source.name != "index":
                    return f"te_{WRAPPING[op]}({inner})"
        return super().operation(node, operands)

    def division(self, node: UOp, operands: list[str]) -> str:
        plain = super().division(node, operands)
        promoted = node.dtype.kind == "u" and node.dtype.bits < 32
        if not plain.startswith("te_") and not promoted:
            return plain
        return f"te_{node.op.name}({', '.join(strip_parens(o) for o in operands)})"


def _sums_from_workgroup(body: Sequence[UOp]) -> bool:
    """Whether statements add to sums what they read of the workgroup's memory."""
    read = toposort([node for node in body if node.op is ops.SET])
    return any(node.op is ops.LOAD and node.src[0].op is ops.SHARED for node in read)


def render(kernel: LoweredKernel) -> str:
    """A kernel as a CUDA function of its buffers and, where it needs them, the symbolic sizes."""
    printer = CudaPrinter(kernel)
    x, y, z = kernel.geometry.workgroup
    arguments = []
    for argument in kernel.arguments:
        dtype = printer.type(argument.param.dtype)
        qualifier = "" if argument.written else "const "
        arguments.append(f"{qualifier}{dtype} *__restrict__ b{argument.param.arg.slot}")
    if kernel.symbols:
        arguments.append("const int *__restrict__ symbols")
    lines = [f'extern "C" __global__ void {_bounds(x * y * z)}{kernel.name}(']
    lines.extend(f"    {argument}," for argument in arguments[:-1])
    lines.append(f"    {arguments[-1]}) {{")
    body = printer.body()
    for shared in workgroup_buffers(kernel.linear.statements):
        name, element = printer.known(shared), printer.type(shared.dtype)
        lines.append(f"    __shared__ {element} {name}[{shared.arg.length}];")
    return "\n".join([*lines, *body, "}", ""])


def _bounds(threads: int) -> str:
    """The threads of a workgroup, where these can have no 255 registers each.

    Told of a smaller one, the compiler rather spills registers than let fewer of them share a
    multiprocessor.
    """
    return f"__launch_bounds__({threads}) " if threads > UNBOUNDED_THREADS else ""


def prelude() -> str:
    """Helper functions that go before the kernels."""
    return resources.files(__package__).joinpath("prelude.cu").read_text(encoding="ascii")
