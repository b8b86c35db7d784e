"""Graphs, kernels and statements as text for people: what `explain` prints and the tour shows.

A tensor graph is a list of nodes, operands first. A kernel is a few equations over ranges:

    r0 64 loop, r1 96 loop; r2 128 reduce
    v0 = sum(r2: b1[128*r0 + r2] * b2[96*r2 + r1])
    b0[96*r0 + r1] = max(v0, 0)

Statements are the same expressions in order, with loops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass

from tinyedge.core import dtype as dt
from tinyedge.core.ir import access, ops
from tinyedge.core.ir.lowered import workgroup_buffers
from tinyedge.core.ir.polynomial import atom_key, terms
from tinyedge.core.ir.uop import BINDING, UOp, own_ranges, toposort

# An expression longer than this gets a name of its own; an argument's text is cut to this length.
LONG = 80

REDUCTIONS = {"add": "sum", "mul": "prod"}

# Spelling and precedence of binary operations; the others are written as functions.
INFIX = {
    "or": ("|", 1),
    "xor": ("^", 2),
    "and": ("&", 3),
    "eq": ("==", 4),
    "ne": ("!=", 4),
    "lt": ("<", 4),
    "shl": ("<<", 5),
    "shr": (">>", 5),
    "add": ("+", 6),
    "sub": ("-", 6),
    "mul": ("*", 7),
    "div": ("/", 7),
    "floordiv": ("//", 7),
    "mod": ("%", 7),
}
FUNCTION = 9


def graph_text(roots: Iterable[UOp], names: Mapping[UOp, str] | None = None) -> Iterator[str]:
    """The nodes below `roots`, operands first, one a line. names: the model's names of nodes."""
    numbers: dict[UOp, int] = {}
    for node in toposort(tuple(roots)):
        numbers[node] = len(numbers)
        shape = f"[{', '.join(map(say, node.shape))}]" if node.shape else ""
        operands = " ".join(f"%{numbers[each]}" for each in node.src)
        words = (node.op.name, f"{node.dtype}{shape}", operands, _argument(node))
        line = f"%{numbers[node]:<3} {' '.join(filter(None, words))}"
        label = (names or {}).get(node, "")
        yield f"{line:<72} # {label}" if label else line


def say(value: object) -> str:
    """A size or another argument of a node."""
    if isinstance(value, UOp):
        return _Writer().write(value)
    if is_dataclass(value):
        value = tuple(getattr(value, part.name) for part in fields(value))
    if isinstance(value, tuple):
        return f"({', '.join(map(say, value))}{',' if len(value) == 1 else ''})"
    return str(value)


def kernel_text(sink: UOp) -> Iterator[str]:
    """A kernel, before or after moves, as equations: its ranges, then its stores."""
    nodes = toposort((sink,))
    binders = (*BINDING, ops.STAGE)
    reduced = {r for node in nodes if node.op in binders for r in own_ranges(node)}
    ranges = sorted(
        (n for n in nodes if n.op is ops.RANGE), key=lambda r: (r.arg.number, r.arg.kind)
    )
    writer = _Writer()
    groups = ([r for r in ranges if r not in reduced], [r for r in ranges if r in reduced])
    yield "; ".join(", ".join(map(writer.range, group)) for group in groups if group) or "no ranges"
    uses = Counter(operand for node in nodes for operand in set(node.src))
    for node in nodes:
        if node in sink.src:
            yield writer.statement(node)
        elif node.op not in (ops.STORE, ops.SINK):
            line = writer.add(node, named=uses[node] > 1 and _worth_a_name(node))
            if line:
                yield line


def statements_text(statements: Sequence[UOp], values: Mapping[UOp, UOp]) -> Iterator[str]:
    """The statements of a lowered kernel, after the workgroup's memory. values: what stands for
    reductions.
    """
    writer = _Writer(values)
    for shared in workgroup_buffers(statements):
        yield f"{writer.write(shared)} = {shared.arg.length} {shared.dtype} of the workgroup"
    depth = 0
    for node in statements:
        indent = "    " * depth
        if node.op is ops.BEGIN:
            yield f"{indent}for {writer.range(node.src[0])}:"
            depth += 1
        elif node.op is ops.END:
            depth -= 1
        elif node.op is ops.BARRIER:
            yield f"{indent}barrier"
        elif node.op is ops.FRAGMENT_STORE:
            yield indent + writer.write(node)
        elif node.op in (ops.STORE, ops.SET, ops.ACCUMULATOR):
            yield indent + writer.statement(node)
        else:
            yield indent + writer.add(node, named=True)


def _worth_a_name(node: UOp) -> bool:
    """Index expressions are repeated where they occur; values used twice are not."""
    return bool(node.src) and node.op is not ops.RANGE and node.dtype is not dt.index


class _Writer:
    """Expressions as text, operands before what uses them; long and shared ones get names."""

    def __init__(self, values: Mapping[UOp, UOp] | None = None) -> None:
        # Among statements parts of an index have names; in equations it is one polynomial.
        self.flat = values is None
        self.values = values or {}
        self.texts: dict[UOp, tuple[str, int]] = {}
        self.count = 0

    def add(self, node: UOp, *, named: bool) -> str:
        """Remember the node's text; the line that names it, or nothing."""
        text, precedence = self._text(node)
        if not named and len(text) <= LONG:
            self.texts[node] = (text, precedence)
            return ""
        name = f"v{self.count}"
        self.count += 1
        self.texts[node] = (name, FUNCTION)
        return f"{name} = {text}"

    def range(self, node: UOp) -> str:
        size = "..".join(map(self.write, node.src[1:] or node.src))
        return f"r{node.arg.number} {size} {node.arg.kind}"

    def statement(self, node: UOp) -> str:
        if node.op is ops.ACCUMULATOR:
            return f"{self.write(node)} = start of {REDUCTIONS.get(node.arg.op.name, node.arg.op)}"
        if node.op is ops.SET:
            target, value = self.write(node.src[0]), self.write(node.src[1])
            if node.arg is None:
                return f"{target} = {value}"
            sign, precedence = INFIX.get(node.arg.name, (node.arg.name, FUNCTION))
            if precedence == FUNCTION:
                return f"{target} = {sign}({target}, {value})"
            return f"{target} {sign}= {value}"
        where = f"where {self.write(access.guard_of(node))}: " if node.arg else ""
        places = ", ".join(map(self.write, access.indices_of(node)))
        return f"{where}{self.write(node.src[0])}[{places}] = {self.write(node.src[1])}"

    def write(self, node: UOp, least: int = 0) -> str:
        """The text of a node, in brackets where it binds less than `least`."""
        for each in toposort((node,)):
            if each not in self.texts:
                self.texts[each] = self._text(each)
        text, precedence = self.texts[node]
        return text if precedence >= least else f"({text})"

    def _text(self, node: UOp) -> tuple[str, int]:
        op, src = node.op, node.src
        if node in self.values and self.values[node] is not node:
            return self.write(self.values[node]), FUNCTION
        if op is ops.CONST:
            return _constant(node)
        if op is ops.RANGE:
            return f"r{node.arg.number}", FUNCTION
        if op is ops.SYMBOL:
            return _symbol(node), FUNCTION
        if op is ops.PARAM:
            return f"b{node.arg.slot}", FUNCTION
        if op is ops.SHARED:
            return f"shared{node.arg.number}", FUNCTION
        if op is ops.REGION:
            return self._region(node), FUNCTION
        if op is ops.ACCUMULATOR:
            return f"acc{node.arg.number}", FUNCTION
        if op is ops.LOAD:
            return self._load(node), FUNCTION
        if op is ops.STAGE:
            ranges = ", ".join(self.write(r) for r in src[1:])
            return f"stage({ranges}: {self.write(src[0])})", FUNCTION
        if op is ops.REDUCE_LOOP:
            name = REDUCTIONS.get(node.arg.name, node.arg.name)
            ranges = ", ".join(self.write(r) for r in src[1:])
            return f"{name}({ranges}: {self.write(src[0])})", FUNCTION
        if op in BINDING:
            ranges = ", ".join(self.write(r) for r in own_ranges(node))
            bodies = ", ".join(self.write(body) for body in src[: BINDING[op]])
            return f"{op.name.removesuffix('_loop')}({ranges}: {bodies})", FUNCTION
        if self.flat and node.dtype is dt.index and op in (ops.ADD, ops.MUL):
            return self._polynomial(node)
        if op is ops.REDUCE_LANES:
            name = REDUCTIONS.get(node.arg.name, node.arg.name)
            return f"{name}(lanes of {self.write(src[0])})", FUNCTION
        if op.name in INFIX:
            sign, precedence = INFIX[op.name]
            left, right = self.write(src[0], precedence), self.write(src[1], precedence + 1)
            return f"{left} {sign} {right}", precedence
        words = [self.write(operand) for operand in src]
        if op is ops.LANE:
            lane = "xyzw"[node.arg] if node.arg < 4 else f"lane{node.arg}"
            return f"{self.write(src[0], FUNCTION)}.{lane}", FUNCTION
        if op in (ops.CAST, ops.BITCAST):
            return f"{'' if op is ops.CAST else 'bits_'}{node.dtype}({words[0]})", FUNCTION
        if op is ops.VECTOR:
            return f"{node.dtype}({', '.join(words)})", FUNCTION
        if op is ops.SPECIAL:
            return f"{node.arg.kind}{node.arg.dimension}", FUNCTION
        argument = _argument(node)
        return f"{op.name}({', '.join([*words, argument] if argument else words)})", FUNCTION

    def _region(self, node: UOp) -> str:
        param, start, guard = map(self.write, node.src)
        return f"{param}[{start}.. if {guard}]"

    def _load(self, node: UOp) -> str:
        guard = f" if {self.write(access.guard_of(node))}" if node.arg else ""
        places = ", ".join(map(self.write, access.indices_of(node)))
        return f"{self.write(node.src[0])}[{places}{guard}]"

    def _polynomial(self, node: UOp) -> tuple[str, int]:
        """A sum of products, the greatest strides first, the constant last."""
        polynomial = terms(node)
        order = sorted(
            (m for m in polynomial if m),
            key=lambda m: (-abs(polynomial[m]), [atom_key(a) for a in m]),
        )
        text = ""
        for monomial in order:
            coefficient = polynomial[monomial]
            factors = [self.write(atom, 8) for atom in monomial]
            if abs(coefficient) != 1:
                factors.insert(0, str(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+"
            text += f" {sign} " if text else sign.strip("+")
            text += "*".join(factors)
        constant = polynomial.get((), 0)
        if constant:
            text += f" {'-' if constant < 0 else '+'} {abs(constant)}"
        single = len(order) == 1 and not constant
        return text, 7 if single and not text.startswith("-") else 6


def _constant(node: UOp) -> tuple[str, int]:
    value = node.arg
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text, 6 if text.startswith("-") else FUNCTION


def _symbol(node: UOp) -> str:
    """A symbol counts steps of its size."""
    name, step, offset = node.arg.name, node.arg.step, node.arg.offset
    size = f"({name} - {offset})" if offset and step != 1 else name
    return f"{size}/{step}" if step != 1 else f"({name} - {offset})" if offset else name


def _argument(node: UOp) -> str:
    """What a node holds beside its operands."""
    if node.arg is None:
        return ""
    if node.op is ops.BUFFER:
        source = node.arg.source
        return f"{source.kind} {source.name!r}"
    if node.op is ops.REDUCE:
        return f"{node.arg.op} over axes {', '.join(map(str, node.arg.axes))}"
    text = " ".join(say(node.arg).split())
    return text if len(text) <= LONG else text[:LONG] + "..."
