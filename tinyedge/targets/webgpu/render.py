"""Kernels as WGSL."""

from __future__ import annotations

import functools
import math
import re
from importlib import resources
from typing import ClassVar

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.render import (
    LANES,
    Printer,
    constant,
    float_text,
    known_shift,
    strip_parens,
)
from tinyedge.core.compiler.target import LoweredArg, LoweredKernel
from tinyedge.core.dtype import DType
from tinyedge.core.ir import access, float_bounds, ops
from tinyedge.core.ir.intervals import Interval
from tinyedge.core.ir.lowered import workgroup_buffers
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.targets.webgpu.pictures import place_of, textures

TYPES = {
    "bool": "bool",
    "index": "i32",
    "int32": "i32",
    "uint32": "u32",
    "float32": "f32",
    "float16": "f32",
}
HELPERS = {
    ops.EXP: "exp",
    ops.LOG: "log",
    ops.SQRT: "sqrt",
    ops.SIN: "sin",
    ops.COS: "cos",
    ops.TANH: "tanh",
    ops.POW: "pow",
    ops.FMOD: "fmod",
    ops.ISNAN: "isnan",
    ops.MAX: "max",
    ops.MIN: "min",
    ops.TRUNCDIV: "truncdiv",
    ops.SHL: "shl",
    ops.SHR: "shr",
}
BUILT_IN = {ops.ROUND: "round"}


def short(dtype: DType) -> str:
    """The suffix of helper functions: f32, f32x4, ..."""
    name = TYPES[dtype.name]
    return name if dtype.lanes == 1 else f"{name}x{dtype.lanes}"


class WgslPrinter(Printer):
    """The spellings of WGSL. pictured: the argument in whose place there are textures."""

    suffixes: ClassVar = {"uint32": "u"}
    reserved: ClassVar = frozenset({"i32"})

    def __init__(self, kernel: LoweredKernel, pictured: LoweredArg | None = None) -> None:
        super().__init__(kernel)
        self.pictured = pictured
        self._bounds: dict[UOp, Interval] = {}

    def short(self, dtype: DType) -> str:
        return short(dtype)

    def type(self, dtype: DType) -> str:
        name = TYPES[dtype.name]
        return name if dtype.lanes == 1 else f"vec{dtype.lanes}<{name}>"

    def declare(self, dtype: DType, name: str, value: str) -> str:
        return f"let {name} = {value};"

    def variable(self, dtype: DType, name: str, value: str) -> str:
        return f"var {name} = {value};"

    def combined(self, name: str, value: UOp) -> str:
        """In few characters, as pages download them."""
        if value.op is ops.ADD:
            return f"{name} += {self.strip_parens(value.src[1])};"
        return super().combined(name, value)

    def loop(self, name: str, first: str, stop: str) -> str:
        return f"for (var {name} = {first}; {name} < {stop}; {name}++)"

    def special(self, kind: str, dimension: int) -> str:
        return f"i32(group.{LANES[dimension]})" if kind == "group" else "i32(thread)"

    def barrier(self) -> str:
        return "workgroupBarrier();"

    def shared_type(self, dtype: DType) -> str:
        """The element type of workgroup memory, of as many bytes as `dtype` has."""
        if dtype.bits != 32:
            raise ValueError(f"no spelling for {dtype} in workgroup memory")
        return self.type(dtype)

    def symbol(self, node: UOp) -> str:
        number = self.kernel.symbols.index(node.arg.name)
        return f"sizes[{number // 4}].{LANES[number % 4]}"

    def load_text(self, node: UOp, operands: list[str]) -> str:
        slot = node.src[0].arg.slot
        name = f"b{slot}"
        if self.pictured is not None and slot == self.pictured.param.arg.slot:
            text = self._texel(node, self.pictured, strip_parens(operands[0]))
        elif node.dtype.bits == 16:
            text = self._load_halves(node, name, operands[0])
        else:
            text = f"{name}[{strip_parens(operands[0])}]"
        if node.arg:
            return f"select({self._zero(node.dtype)}, {text}, {strip_parens(operands[1])})"
        return text

    def _texel(self, node: UOp, pictured: LoweredArg, address: str) -> str:
        """What would lie at an address of a picture's bytes."""
        place = place_of(pictured, access.indices_of(node)[0])
        if place is None:
            return f"texel(u32({address}))"
        assert pictured.picture is not None
        line, column = map(self.strip_parens, place)
        pixel, channels = f"pixel(u32({line}), u32({column}))", pictured.picture[1]
        if node.dtype.lanes > 1:
            return pixel
        return f"te_gray({pixel})" if channels == 1 else f"{pixel}[u32({address}) % {channels}u]"

    def _load_halves(self, node: UOp, name: str, address: str) -> str:
        """Halves lie two in a 32-bit word: a vector of four is two words."""
        if node.dtype.lanes == 1:
            address = self.once(dt.index, address)
            return f"te_half({name}[{address} / 2], {address})"
        if node.dtype.lanes == 2:
            return f"unpack2x16float({name}[{strip_parens(address)}])"
        return f"te_unpack({name}[{strip_parens(address)}])"

    def _zero(self, dtype: DType) -> str:
        zero = self.number(0, dtype.scalar if dtype.lanes > 1 else dtype)
        return zero if dtype.lanes == 1 else f"{self.type(dtype)}({zero})"

    def store(self, node: UOp) -> str:
        param, value, address = node.src
        if param.dtype.bits == 16:
            return self._store_halves(param, value, address)
        return f"b{param.arg.slot}[{self.strip_parens(address)}] = {self.strip_parens(value)};"

    def _store_halves(self, param: UOp, value: UOp, address: UOp) -> str:
        name = f"b{param.arg.slot}"
        text = self.strip_parens(value)
        if param.dtype.lanes == 4:
            return f"{name}[{self.strip_parens(address)}] = te_pack({text});"
        if param.dtype.lanes == 2:
            return f"{name}[{self.strip_parens(address)}] = te_pack2({text});"
        at = self.expression(address)
        if value.dtype.lanes == 2:
            return f"{name}[{at} / 2] = te_pack2({text});"
        at, text = self.once(dt.index, at), self.once(value.dtype, text)
        first, second = f"{name}[{at} / 2]", f"{name}[{at} / 2 + 1]"
        return f"{first} = te_pack({text}).x; {second} = te_pack({text}).y;"

    def element(self, dtype: DType) -> str:
        """The element type of a buffer: halves lie in words."""
        if dtype.bits == 16:
            return "vec2<u32>" if dtype.lanes == 4 else "u32"
        return self.type(dtype)

    def number(self, value: bool | int | float, dtype: DType) -> str:
        if dtype.kind == "f":
            if math.isnan(value):
                return "te_nan()"
            if math.isinf(value):
                return "te_infinity()" if value > 0 else "(-te_infinity())"
            text = float_text(float(value)) + "f"
            return f"({text})" if text.startswith("-") else text
        if dtype.kind == "b":
            return "true" if value else "false"
        return self.integer(int(value), dtype)

    def convert(self, node: UOp, value: str) -> str:
        source, target = node.src[0].dtype, node.dtype
        if source.kind == "f" and target.kind in "iu":
            return f"te_f32_to_{short(target)}({strip_parens(value)})"
        if self.type(source) == self.type(target):
            return value
        return f"{self.type(target)}({strip_parens(value)})"

    def bitcast(self, node: UOp, value: str) -> str:
        return f"bitcast<{self.type(node.dtype)}>({strip_parens(value)})"

    def select(self, node: UOp, condition: str, yes: str, no: str) -> str:
        return f"select({strip_parens(no)}, {strip_parens(yes)}, {strip_parens(condition)})"

    def vector(self, node: UOp, lanes: list[str]) -> str:
        return f"{self.type(node.dtype)}({', '.join(strip_parens(lane) for lane in lanes)})"

    def lane(self, node: UOp, value: str) -> str:
        return f"{value}.{LANES[node.arg]}"

    def operation(self, node: UOp, operands: list[str]) -> str:
        op = node.op
        source = node.src[0].dtype
        if op is ops.NOT and source.kind == "b":
            return f"(!{operands[0]})"
        if op is ops.XOR and source.kind == "b":
            return f"({operands[0]} != {operands[1]})"
        inner = ", ".join(strip_parens(o) for o in operands)
        if op in (ops.MAX, ops.MIN) and source.kind != "f":
            return f"{op.name}({inner})"
        if op in (ops.MAX, ops.MIN) and _plain_constant(node.src[1]):
            sign = "<" if op is ops.MAX else ">"
            value, bound = self.once(node.dtype, operands[0]), operands[1]
            return f"select({value}, {bound}, {value} {sign} {bound})"
        if op is ops.EQ and source.kind == "f" and not _plain_constant(node.src[1]):
            return f"te_eq_{short(source)}({inner})"
        if op is ops.SUB and source.kind == "f" and node.src[0] is node.src[1]:
            return f"te_nothing_{short(source)}({strip_parens(operands[0])})"
        zeros = [constant(operand) == 0 for operand in node.src]
        if op is ops.MUL and source.kind == "f" and any(zeros):
            return f"te_nothing_{short(source)}({strip_parens(operands[0 if zeros[1] else 1])})"
        if op is ops.NEG and source.kind == "u":
            return f"({self.number(0, source.scalar)} - {operands[0]})"
        if op in (ops.SHL, ops.SHR) and known_shift(node):
            return super().operation(node, [operands[0], self._amount(node.src[1])])
        if op in HELPERS:
            name = "fall" if op is ops.EXP and self._falls(node) else HELPERS[op]
            return f"te_{name}_{short(source)}({inner})"
        if op in BUILT_IN:
            return f"{BUILT_IN[op]}({inner})"
        return super().operation(node, operands)

    def _falls(self, node: UOp) -> bool:
        """Whether an exponential is of numbers of at most 0, for which it takes fewer steps."""
        return bool(node.arg) or float_bounds.bounds(node.src[0], self._bounds)[1] <= 0

    def _amount(self, node: UOp) -> str:
        """A shift's known amount, which is unsigned in any case."""
        lanes = node.src if node.op is ops.VECTOR else (node,)
        text = ", ".join(f"{lane.arg}u" for lane in lanes)
        return f"vec{node.dtype.lanes}<u32>({text})" if node.dtype.lanes > 1 else text


def _plain_constant(node: UOp) -> bool:
    """Whether the node is a constant that is no NaN (or a vector of it)."""
    value = constant(node)
    return value is not None and not math.isnan(value)


def render(kernel: LoweredKernel) -> str:
    """A kernel as a WGSL entry point with its bindings. Of one that takes pictures there is another
    entry point, `picture`, which takes textures in place of their buffer.
    """
    printer = WgslPrinter(kernel)
    lines = []
    read = _numbers(kernel)
    for position, argument in enumerate(kernel.arguments):
        mode = "read" if argument.weight else "read_write"
        slot = argument.param.arg.slot
        element = printer.element(argument.param.dtype)
        if slot in read:
            element += f", {read[slot]}"
        lines.append(
            f"@group(0) @binding({position}) var<storage, {mode}> b{slot}: array<{element}>;"
        )
    bindings = len(kernel.arguments)
    if kernel.symbols:
        vectors = -(-len(kernel.symbols) // 4)
        lines.append(
            f"@group(0) @binding({bindings}) var<uniform> sizes: array<vec4<i32>, {vectors}>;"
        )
        bindings += 1
    entry = _entry(printer, kernel.name)
    lines += [
        f"var<workgroup> {printer.known(node)}: "
        f"array<{printer.shared_type(node.dtype)}, {node.arg.length}>;"
        for node in workgroup_buffers(kernel.linear.statements)
    ]
    lines += entry
    for argument in kernel.arguments:
        if argument.picture:
            lines += textures(argument, bindings)
            lines += _entry(WgslPrinter(kernel, argument), "picture")
    text = "\n".join([*lines, ""])
    return "".join(helpers(text)) + text


def _entry(printer: WgslPrinter, name: str) -> list[str]:
    """The lines of an entry point."""
    x, y, z = printer.geometry.workgroup
    return [
        f"@compute @workgroup_size({x}, {y}, {z})",
        f"fn {name}(@builtin(workgroup_id) group: vec3<u32>, "
        "@builtin(local_invocation_index) thread: u32) {",
        *printer.body(),
        "}",
    ]


def _numbers(kernel: LoweredKernel) -> dict[int, int]:
    """How many sizes a slot holds: a place in an array of known length needs no test."""
    found = toposort(kernel.linear.statements, operands=access.in_order)
    positions = toposort([place for _, place in kernel.geometry.positions])
    symbols = (n for n in (*found, *positions) if n.op is ops.SYMBOL and n.src[1:])
    return {n.src[0].arg.slot: n.src[0].arg.shape[0] for n in symbols}


BINDING = re.compile(r"@binding\((\d+)\) var<storage, read_write> (b\d+):")
STORE = re.compile(r"(?:^|\{)\s*(b\d+)\[.*?\](?:\.\w+)? = ", re.MULTILINE)


def stores(text: str) -> list[int]:
    """The numbers of the bindings that a kernel's text, as `render` writes it, stores to."""
    names = set(STORE.findall(text))
    return [int(number) for number, name in BINDING.findall(text) if name in names]


# Helpers: the parts of prelude.wgsl that a kernel uses.

HELPER = re.compile(r"\bte_\w+")
LANEWISE = re.compile(r"(te_\w+_(?:f32|i32|u32))x([248])")
SIGNATURE = re.compile(r"fn \w+\((.*?)\) -> (\w+) \{")


@functools.cache
def _prelude() -> dict[str, str]:
    """Every declaration of prelude.wgsl by name, in order."""
    text = resources.files(__package__).joinpath("prelude.wgsl").read_text(encoding="ascii")
    found: dict[str, str] = {}
    code = re.sub(r"^//.*\n|^\n", "", text, flags=re.M)
    for part in re.split(r"^(?=fn |var|const )", code, flags=re.M):
        if part:
            found[HELPER.findall(part)[0]] = part
    return found


def _lanewise(name: str) -> str:
    """A helper for vectors that applies the one for scalars to each lane."""
    scalar, lanes = LANEWISE.fullmatch(name).groups()  # type: ignore[union-attr]
    arguments, result = SIGNATURE.match(_prelude()[scalar]).groups()  # type: ignore[union-attr]
    names = [argument.split(":")[0] for argument in arguments.split(", ")]
    types = [argument.split(": ")[1] for argument in arguments.split(", ")]
    wide = ", ".join(f"{n}: vec{lanes}<{t}>" for n, t in zip(names, types, strict=True))
    calls = (f"{scalar}({', '.join(f'{n}.{lane}' for n in names)})" for lane in LANES[: int(lanes)])
    vector = f"vec{lanes}<{result}>"
    return f"fn {name}({wide}) -> {vector} {{ return {vector}({', '.join(calls)}); }}\n"


@functools.cache
def _declaration(name: str) -> str:
    return _prelude()[name] if name in _prelude() else _lanewise(name)


def helpers(text: str) -> list[str]:
    """Declarations of all helpers that a text uses, directly or through others, in a fixed
    order.
    """
    used: dict[str, str] = {}
    waiting = HELPER.findall(text)
    while waiting:
        name = waiting.pop()
        if name not in used:
            used[name] = _declaration(name)
            waiting.extend(HELPER.findall(used[name]))
    order = {name: position for position, name in enumerate(_prelude())}
    return [used[name] for name in sorted(used, key=lambda n: (order.get(n, len(order)), n))]
