"""The printer of C-like languages: a linear kernel as text. Targets say what their language
spells otherwise.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.target import LoweredKernel
from tinyedge.core.dtype import DType
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.rules import index as ix
from tinyedge.core.ir.uop import UOp, const, toposort

INDENT = "    "
LANES = "xyzw"
DEEPEST = 32  # operations nested in one expression; compilers refuse about 100 pairs of parentheses
ATOM = re.compile(r"[\w.]+")  # a name, a number, a lane of either

# What C's mathematical functions are called.
FUNCTIONS = {
    ops.EXP: "exp",
    ops.LOG: "log",
    ops.SQRT: "sqrt",
    ops.SIN: "sin",
    ops.COS: "cos",
    ops.TANH: "tanh",
    ops.FLOOR: "floor",
    ops.TRUNC: "trunc",
    ops.ROUND: "rint",
    ops.POW: "pow",
    ops.FMOD: "fmod",
}


class Printer:
    """Prints one kernel. A target's printer overrides the spellings that differ from C's.

    suffixes: of integer constants, by the type's name. reserved: names that the language has, but
    values must not.
    """

    suffixes: ClassVar[Mapping[str, str]] = {}
    reserved: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, kernel: LoweredKernel) -> None:
        self.kernel = kernel
        self.linear = kernel.linear
        self.geometry = kernel.geometry
        self.names: dict[UOp, str] = {}
        self.counters: dict[str, int] = {}
        self.lines: list[str] = []
        self.depth = 1

    # The language.

    def type(self, dtype: DType) -> str:
        raise NotImplementedError

    def declare(self, dtype: DType, name: str, value: str) -> str:
        """A named value that does not change."""
        return f"const {self.variable(dtype, name, value)}"

    def variable(self, dtype: DType, name: str, value: str) -> str:
        """A variable with its first value."""
        return f"{self.type(dtype)} {name} = {value};"

    def loop(self, name: str, first: str, stop: str) -> str:
        return f"for ({self.type(dt.index)} {name} = {first}; {name} < {stop}; {name}++)"

    def store(self, node: UOp) -> str:
        raise NotImplementedError

    def special(self, kind: str, dimension: int) -> str:
        raise NotImplementedError

    def barrier(self) -> str:
        """Where all threads of a workgroup wait for each other and for what they have stored."""
        raise NotImplementedError

    def region(self, node: UOp, name: str) -> str:
        """The declaration of a part of a buffer, or of zeros where there are none such."""
        raise NotImplementedError

    def shuffle(self, node: UOp, value: str) -> str:
        """The value that another thread of the subgroup has."""
        raise NotImplementedError

    def symbol(self, node: UOp) -> str:
        """A symbolic size, as the caller passes it."""
        return f"symbols[{self.kernel.symbols.index(node.arg.name)}]"

    def steps(self, node: UOp) -> str:
        """How many steps a symbolic size is above its offset."""
        if node.src:
            return f"b{node.src[0].arg.slot}[{node.src[1].arg if node.src[1:] else 0}]"
        step, offset = node.arg.step, node.arg.offset
        text = self.symbol(node)
        text = f"({text} - {offset})" if offset else text
        return f"({text} / {step})" if step != 1 else text

    def convert(self, node: UOp, value: str) -> str:
        raise NotImplementedError

    def bitcast(self, node: UOp, value: str) -> str:
        raise NotImplementedError

    def select(self, node: UOp, condition: str, yes: str, no: str) -> str:
        return f"({condition} ? {yes} : {no})"

    def vector(self, node: UOp, lanes: list[str]) -> str:
        raise NotImplementedError

    def lane(self, node: UOp, value: str) -> str:
        raise NotImplementedError

    def short(self, dtype: DType) -> str:
        """The suffix of helper functions: f32, i32x4, ..."""
        raise NotImplementedError

    def number(self, value: bool | int | float, dtype: DType) -> str:
        if dtype.kind == "b":
            return "1" if value else "0"
        if dtype.kind != "f":
            return self.integer(int(value), dtype)
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INFINITY" if value > 0 else "(-INFINITY)"
        single = dtype.bits <= 32
        text = float_text(float(value), single) + ("f" if single else "")
        return f"({text})" if text.startswith("-") else text

    def integer(self, value: int, dtype: DType) -> str:
        """An integer constant; the least one of a type is no literal in C."""
        suffix = self.suffixes.get(dtype.name, "")
        if dtype.kind == "i" and dtype.bits >= 32 and value == dtype.limits[0]:
            return f"({value + 1}{suffix} - 1)"
        return f"({value}{suffix})" if value < 0 else f"{value}{suffix}"

    def operation(self, node: UOp, operands: list[str]) -> str:
        """An elementwise operation; by default the spelling of its row."""
        op = node.op
        if op in (ops.FLOORDIV, ops.MOD):
            return self.division(node, operands)
        if not op.c:
            raise ValueError(f"no spelling for {op}")
        return op.c.format(*operands)

    def division(self, node: UOp, operands: list[str]) -> str:
        """An operator where it does what is meant, else a helper: for vectors, for negative
        numbers and for divisors that may be zero.
        """
        divisor = node.src[1]
        known = divisor.op is ops.CONST and divisor.arg != 0
        signed = node.dtype.kind == "i"
        name = f"te_{node.op.name}_{self.short(node.dtype)}"
        if node.dtype.lanes > 1 or (node.dtype.kind == "u" and not known):
            return f"{name}({', '.join(strip_parens(operand) for operand in operands)})"
        nonnegative = not signed or (
            node.dtype is dt.index and bounds(node.src[0])[0] >= 0 and bounds(node.src[1])[0] > 0
        )
        sign = "/" if node.op is ops.FLOORDIV else "%"
        if nonnegative or (node.dtype is dt.index and _known_nonnegative(node.src[0])):
            return f"({operands[0]} {sign} {operands[1]})"
        return f"{name}({operands[0]}, {operands[1]})"

    # The kernel.

    def body(self) -> list[str]:
        """The lines of the kernel's body."""
        self.name_sizes()
        for r, expression in self.geometry.positions:
            name = ("g" if r.arg.kind == "grid" else "l") + str(r.arg.number)
            self.line(self.declare(dt.index, name, self.strip_parens(expression)))
            self.names[r] = name
        for statement in self.linear.statements:
            self.statement(statement)
        return self.lines

    def is_named(self, size: UOp) -> bool:
        """Whether a symbolic size gets a name: one that lies in a buffer is read once, at the top,
        and one of which the steps are counted is divided once.
        """
        return bool(size.src) or (size.arg.step, size.arg.offset) != (1, 0)

    def name_sizes(self, *more: UOp) -> None:
        """Declare the symbolic sizes that get names; more: expressions that also use some."""
        used = [expression for _, expression in self.geometry.positions]
        for node in toposort((*more, *used, *self.linear.statements), operands=access.in_order):
            if node.op is ops.SYMBOL and node not in self.names and self.is_named(node):
                name = f"n{self.counters.get('n', 0)}"
                self.counters["n"] = self.counters.get("n", 0) + 1
                self.line(self.declare(dt.index, name, strip_parens(self.steps(node))))
                self.names[node] = name

    def line(self, text: str) -> None:
        self.lines.append(INDENT * self.depth + text)

    def statement(self, node: UOp) -> None:
        op = node.op
        if op is ops.BEGIN:
            r = node.src[0]
            self.names[r] = f"r{r.arg.number}"
            first, stop = r.src[1:] or (const(0, dt.index), r.src[0])
            loop = self.loop(self.names[r], self.strip_parens(first), self.strip_parens(stop))
            self.line(loop + " {")
            self.depth += 1
        elif op is ops.END:
            self.depth -= 1
            self.line("}")
        elif op is ops.ACCUMULATOR:
            self._accumulator(node)
        elif op is ops.SET:
            self._set(node)
        elif op is ops.STORE and node.arg:
            self._guarded(node)
        elif op is ops.STORE:
            self.line(self._stored(node))
        elif op is ops.BARRIER:
            self.line(self.barrier())
        elif op is ops.REGION:
            self.names[node] = self._new_name("p")
            self.line(self.region(node, self.names[node]))
        else:
            name = self.name(node)
            self.line(self.declare(node.dtype, name, self.strip_parens(node)))
            self.names[node] = name

    def _guarded(self, node: UOp) -> None:
        """A store under a condition; what it names on the way is computed under it too."""
        condition = self.strip_parens(access.guard_of(node))
        before, self.lines = self.lines, []
        self.depth += 1
        store = self._stored(access.under(ix.TRUE, node))
        self.depth -= 1
        named, self.lines = self.lines, before
        if not named:
            self.line(f"if ({condition}) {{ {store} }}")
            return
        self.line(f"if ({condition}) {{")
        self.lines += [*named, INDENT * (self.depth + 1) + store]
        self.line("}")

    def _stored(self, node: UOp) -> str:
        if node.src[0].op is not ops.SHARED or node.src[0].dtype is not node.src[1].dtype:
            return self.store(node)
        shared, value, place = node.src
        text = f"{self.known(shared)}[{self.strip_parens(place)}]"
        return f"{text} = {self.strip_parens(value)};"

    def _accumulator(self, node: UOp) -> None:
        name = f"acc{node.arg.number}"
        self.names[node] = name
        self.line(self.variable(node.dtype, name, self.identity(node.arg.op, node.dtype)))

    def identity(self, op: ops.Primitive, dtype: DType) -> str:
        """The first value of an accumulator."""
        scalar = dtype.scalar if dtype.lanes > 1 else dtype
        value = ops.reduce_identity(op, scalar)
        text = self.number(value, scalar)
        if dtype.lanes == 1:
            return text
        return self.vector(UOp(ops.VECTOR, dtype, (UOp(ops.CONST, scalar, (), value),)), [text])

    def _set(self, node: UOp) -> None:
        accumulator, part = node.src
        name = self.names[accumulator]
        combined = UOp(node.arg, node.dtype, (accumulator, part))
        self.line(self.combined(name, combined))

    def combined(self, name: str, value: UOp) -> str:
        """The statement that combines an accumulator, the value's first operand, with a part."""
        return f"{name} = {self.strip_parens(value)};"

    def name(self, node: UOp) -> str:
        """A new name for a value."""
        return self._new_name("x" if node.op is ops.LOAD else _letter(node.dtype))

    def _new_name(self, letter: str) -> str:
        number = self.counters.get(letter, 0)
        self.counters[letter] = number + 1
        name = f"{letter}{number}"
        return name if name not in self.reserved else self._new_name(letter)

    def once(self, dtype: DType, text: str) -> str:
        """An operand that is about to be written more than once: as a name, which it gets before
        the statement at hand.

        Written out each time, a chain of such operations would double its text with every step.
        """
        if ATOM.fullmatch(text):
            return text
        name = self._new_name(_letter(dtype))
        self.line(self.declare(dtype, name, strip_parens(text)))
        return name

    def strip_parens(self, node: UOp) -> str:
        """An expression without parentheses around the whole."""
        return strip_parens(self.expression(node))

    def expression(self, root: UOp) -> str:
        """An expression, from names and from what is written in place. What would be nested too
        deeply gets a name before the statement at hand. No recursion beyond one expression.
        """
        texts: dict[UOp, str] = {}
        depths: dict[UOp, int] = {}
        stack = [root]
        while stack:
            node = stack[-1]
            if node in texts:
                stack.pop()
                continue
            known = self.known(node)
            if known is not None:
                texts[node] = known
                stack.pop()
                continue
            operands = self.operands(node)
            missing = [s for s in operands if s not in texts]
            if missing:
                stack.extend(missing)
                continue
            texts[node] = self.compose(node, [texts[s] for s in operands])
            depths[node] = 1 + max((depths.get(s, 0) for s in operands), default=0)
            if depths[node] >= DEEPEST and node.op is not ops.VECTOR:
                texts[node], depths[node] = self.once(node.dtype, texts[node]), 0
            stack.pop()
        return texts[root]

    def known(self, node: UOp) -> str | None:
        if node in self.names:
            return self.names[node]
        if node in self.linear.values:
            return self.names[self.linear.values[node]]
        if node.op is ops.SHARED:
            return f"shared{node.arg.number}"
        if node.op is ops.CONST:
            return self.number(node.arg, node.dtype)
        if node.op is ops.SYMBOL:
            return self.steps(node)
        if node.op is ops.SPECIAL:
            return self.special(node.arg.kind, node.arg.dimension)
        return None

    def operands(self, node: UOp) -> tuple[UOp, ...]:
        return node.src[1:] if node.op is ops.LOAD else node.src

    def compose(self, node: UOp, operands: list[str]) -> str:
        op = node.op
        if op is ops.LOAD and node.src[0].op is ops.SHARED and node.dtype is node.src[0].dtype:
            return f"{self.known(node.src[0])}[{strip_parens(operands[0])}]"
        if op is ops.LOAD:
            return self.load_text(node, operands)
        if op is ops.SHUFFLE:
            return self.shuffle(node, operands[0])
        if op is ops.WHERE:
            return self.select(node, *operands)
        if op is ops.CAST:
            return self.convert(node, operands[0])
        if op is ops.BITCAST:
            return self.bitcast(node, operands[0])
        if op is ops.VECTOR:
            return self.vector(node, operands)
        if op is ops.LANE:
            return self.lane(node, operands[0])
        if op is ops.REDUCE_LANES:
            return self.reduce_lanes(node, operands[0])
        return self.operation(node, operands)

    def reduce_lanes(self, node: UOp, value: str) -> str:
        """The lanes of a vector combined, the first half with the second, until one is left."""
        vector = node.src[0]
        name = self.once(vector.dtype, value)
        lanes = range(vector.dtype.lanes)
        texts = [self.lane(UOp(ops.LANE, node.dtype, (vector,), i), name) for i in lanes]
        step = UOp(node.arg, node.dtype, (UOp(ops.LANE, node.dtype, (vector,), 0),) * 2)
        while len(texts) > 1:
            half = len(texts) // 2
            pairs = zip(texts[:half], texts[half:], strict=True)
            texts = [self.operation(step, list(pair)) for pair in pairs]
        return texts[0]

    def load_text(self, node: UOp, operands: list[str]) -> str:
        raise NotImplementedError


def constant(node: UOp) -> float | None:
    """The value of a constant, or of a vector of one."""
    if node.op is ops.VECTOR and len(node.src) == 1:
        node = node.src[0]
    return float(node.arg) if node.op is ops.CONST else None


def _letter(dtype: DType) -> str:
    return "i" if dtype is dt.index else "v"


def _known_nonnegative(node: UOp) -> bool:
    """Whether an index, which a thread's position may be part of, is at least 0."""
    if node.op is ops.SPECIAL or bounds(node)[0] >= 0:
        return True
    if node.op in (ops.FLOORDIV, ops.MOD):
        return _known_nonnegative(node.src[0])
    return node.op in (ops.ADD, ops.MUL, ops.MIN) and all(map(_known_nonnegative, node.src))


def known_shift(node: UOp) -> bool:
    """Whether a shift's amounts are constants below the width: it needs no check, but for bits that
    would leave a signed integer.
    """
    amount = node.src[1]
    lanes = amount.src if amount.op is ops.VECTOR else (amount,)
    if node.op is ops.SHL and node.dtype.kind == "i":
        return False
    return all(lane.op is ops.CONST and 0 <= lane.arg < node.dtype.bits for lane in lanes)


def strip_parens(text: str) -> str:
    """The text without the pair of parentheses around the whole."""
    return text[1:-1] if _enclosed(text) else text


def _enclosed(text: str) -> bool:
    """Whether one pair of parentheses encloses the whole text."""
    if not (text.startswith("(") and text.endswith(")")):
        return False
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return position == len(text) - 1
    return False


def float_text(value: float, single: bool = True) -> str:
    """The shortest decimal that reads back as the same finite float (32 or 64 bits).

    It is never beyond the largest float, which some compilers refuse although it would round to it.
    """
    text = repr(value)
    if single:
        largest = float(np.finfo(np.float32).max)
        rounded = float(np.float32(value))
        texts = (f"{rounded:.{digits}g}" for digits in range(1, 18))
        text = next(t for t in texts if abs(float(t)) <= largest and np.float32(t) == rounded)
    return text if any(c in text for c in ".en") else text + ".0"
