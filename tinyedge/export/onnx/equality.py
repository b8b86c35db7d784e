"""Symbolic sizes that should be equal: how they read, and which step would make them equal."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from tinyedge.core.errors import InputError
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.reference import size_value
from tinyedge.core.ir.rules.algebra import rewrite
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.ir.uop import Size, UOp, as_node, toposort
from tinyedge.core.program.ports import say
from tinyedge.core.tensor.expressions import expression
from tinyedge.core.tensor.tensor import Tensor
from tinyedge.export.onnx.causes import Causes, next_step

_STEPS = (2, 4, 8, 16, 32, 64, 128, 256)


def text(size: Size) -> str:
    """A size as a person would write it: `(H - 1) // 2 + 1`."""
    return say(expression(size))


def shape_text(sizes: Sequence[Size]) -> str:
    return "[" + ", ".join(text(size) for size in sizes) + "]"


def show(value: Any) -> str:
    """A tensor, a shape, a size or a value of control flow, for messages."""
    if isinstance(value, Tensor):
        return f"{value.dtype} {shape_text(value.shape)}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(show(item) for item in value) + "]"
    return text(value) if isinstance(value, (int, UOp)) else str(value)


def unequal(subject: str, a: Size, b: Size, causes: Causes) -> InputError:
    """The error for two sizes that must be equal and are not for every value of their symbols."""
    nodes = toposort([size for size in (a, b) if isinstance(size, UOp)])
    symbols = [node for node in nodes if node.op is ops.SYMBOL]
    return InputError(
        subject,
        f"the sizes {text(a)} and {text(b)} must be equal, and are not for every size allowed",
        id="input.sizes",
        supported="sizes that are equal whatever the symbols' values",
        next=next_step(causes.of(symbols), _suggestion(a, b, symbols)),
    )


def too_small(subject: str, size: Size, least: int, causes: Causes) -> InputError | None:
    """The error for a size that is below `least` at some ends of its symbols' ranges, if any."""
    if isinstance(size, int) or bounds(size)[0] >= least:
        return None
    symbols = [node for node in toposort((size,)) if node.op is ops.SYMBOL]
    if len(symbols) > MANY_SYMBOLS:
        return None
    for ends in itertools.product(*(_values(node) for node in symbols)):
        at = {node.arg.name: end[0] for node, end in zip(symbols, ends, strict=True)}
        value = size_value(size, at)
        if value < least:
            where = " and ".join(f"{name} is {number}" for name, number in at.items())
            found = f"may be {value}" if size in symbols else f"is {value} where {where}"
            return InputError(
                subject,
                f"the size {text(size)} {found}",
                id="input.sizes",
                supported=f"sizes of at least {least}",
                next=next_step(causes.of(symbols), _least_suggestion(size, least, symbols)),
            )
    return None


TRIED = 4096  # values of a size
MANY_SYMBOLS = 6  # of a size, whose ends are not all tried


def _values(symbol: UOp) -> list[range]:
    """The values of a symbol, from both ends."""
    size = symbol.arg
    first, last = (steps * size.step + size.offset for steps in (size.min, size.max))
    values = range(first, last + 1, size.step)
    return [values, values[::-1]]


def _least_suggestion(size: Size, least: int, symbols: Sequence[UOp]) -> str:
    if len(symbols) == 1:
        name, step = symbols[0].arg.name, symbols[0].arg.step
        values = _values(symbols[0])[0]
        if size_value(size, {name: values[-1]}) >= least:
            first = bisect_left(values, least, key=lambda v: size_value(size, {name: v}))
            rest = f":{step}" if step > 1 else ""
            bounds = f"{values[first]}..{values[-1]}{rest}"
            return f"give it a greater least one: --dim '{name}={bounds}'"
    return "choose other bounds with --dim, or fix the sizes"


def _suggestion(a: Size, b: Size, symbols: Sequence[UOp]) -> str:
    for step in _STEPS:
        ranges: dict[str, range] = {}
        for node in symbols:
            own = node.arg
            unit = math.lcm(step, own.step)
            first = -(-(own.min * own.step + own.offset) // unit) * unit
            last = (own.max * own.step + own.offset) // unit * unit
            if own.offset or first > last or first < 1:
                break
            ranges[own.name] = range(first, last + 1, unit)
        if len(ranges) == len({node.arg.name for node in symbols}) and _equal(a, b, ranges):
            flags = [f"--dim '{name}={r[0]}..{r[-1]}:{r.step}'" for name, r in ranges.items()]
            return "give the size a step: " + " ".join(flags)
    if len(symbols) == 1:
        name = symbols[0].arg.name
        for value in itertools.islice(_values(symbols[0])[0], TRIED):
            if size_value(a, {name: value}) == size_value(b, {name: value}):
                return f"give the size this value: --dim '{name}={value}'"
    return "fix the size with --dim, or choose other bounds"


def _equal(a: Size, b: Size, ranges: Mapping[str, range]) -> bool:
    """Whether two sizes would be known to be equal if their symbols had these ranges, whose steps
    are multiples of their own. Values that agree are not enough: an import compares what sizes
    become, of which a minimum or a division may not go away.
    """
    sizes = (as_node(a), as_node(b))
    steps = {
        node: as_node(symbol(node.arg.name, own[0], own[-1], own.step) // node.arg.step)
        for node in toposort(sizes)
        if node.op is ops.SYMBOL
        for own in (ranges[node.arg.name],)
    }
    first, second = rewrite(sizes, steps)
    return first is second
