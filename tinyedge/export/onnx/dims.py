"""Input sizes: which are fixed, which stay symbolic within bounds, which are still open."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from tinyedge.core import ops
from tinyedge.core.errors import InputError
from tinyedge.core.uop import Size, UOp, symbol, toposort

Dim = Union[int, str, None]  # fixed, named, or anonymous
GREATEST = (1 << 31) - 1


@dataclass(frozen=True)
class Declared:
    """An input as the model declares it: every dim is a size, a symbol's name, or None."""

    name: str
    dims: tuple[Dim, ...]


@dataclass(frozen=True)
class Bounds:
    """The sizes low, low + step, .. high."""

    low: int
    high: int
    step: int = 1

    def __str__(self) -> str:
        """As `parse_value` takes it."""
        if self.low == self.high:
            return str(self.low)
        return f"{self.low}..{self.high}" + (f":{self.step}" if self.step > 1 else "")


ASSUMED = Bounds(32, 1024, 32)  # where a model is only looked at


@dataclass(frozen=True)
class Resolved:
    """Shapes in the order of the declared inputs, the SYMBOL nodes in them, what was assumed.

    unknown: keys of the given dims that name no size. bounds: of every size that the model leaves
    open. open: the names of those that got `open_bounds`.
    """

    shapes: tuple[tuple[Size, ...], ...]
    symbols: tuple[UOp, ...]
    warnings: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    open: tuple[str, ...] = ()


_VALUE = re.compile(r"\s*(\d{1,12})(?:\s*\.\.\s*(\d{1,12})(?:\s*:\s*(\d{1,12}))?)?\s*", re.ASCII)
_KEY = re.compile(r"(.*)\[\s*(\d{1,3})\s*\]", re.DOTALL | re.ASCII)


def parse_value(key: str, value: int | str) -> Bounds:
    """`n` or `lo..hi` or `lo..hi:step`. Raises InputError."""
    match = _VALUE.fullmatch(str(value))
    if match is None:
        raise _bad(key, value, "it is not a size or a range")
    low = int(match[1])
    high = low if match[2] is None else int(match[2])
    step = 1 if match[3] is None else int(match[3])
    if low < 1 or step < 1:
        raise _bad(key, value, "sizes and steps start at 1")
    if high < low:
        raise _bad(key, value, "the range is empty")
    if high > GREATEST:
        raise _bad(key, value, f"the greatest size is {GREATEST}")
    return Bounds(low, low + (high - low) // step * step, step)


def _bad(key: str, value: int | str, because: str) -> InputError:
    return InputError(
        f"--dim {shlex.quote(f'{key}={value}')}",
        because,
        id="input.dim",
        supported="a size such as 224, or a range such as 32..1280 or 32..1280:32",
    )


def resolve(
    inputs: Sequence[Declared],
    dims: Mapping[str, int | str],
    model: str,
    *,
    open_bounds: Bounds | None = None,
    spare: bool = False,
) -> Resolved:
    """Give every input dim a size or a symbol.

    dims: `SYMBOL` or `INPUT[AXIS]` -> size or range. A symbolic leading axis that is left open
    becomes 1, unless the symbol also occurs elsewhere; any other is an error, or gets
    `open_bounds` where those are given. spare: dims may name sizes that the model lacks.
    """
    names = _names(inputs)
    present = {name for row in names for name in row if name}
    unknown = unknown_sizes(inputs, dims)
    for key in unknown:
        parse_value(key, dims[key])
        if not spare:
            raise no_size(key, present)
    chosen = _chosen(inputs, {k: v for k, v in dims.items() if k not in unknown}, names)
    leading = _leading(names)
    warnings: list[str] = []
    missing: list[tuple[int, int]] = []
    seen: set[str] = set()
    sizes: dict[str, Size] = {}
    taken: dict[str, Bounds] = {}
    shapes = []
    for position, declared in enumerate(inputs):
        shape: list[Size] = []
        for axis, dim in enumerate(declared.dims):
            if isinstance(dim, int):
                shape.append(dim)
                continue
            name = names[position][axis]
            if name not in sizes:
                bounds = chosen.get(name)
                if bounds is None and name in leading:
                    warnings.append(f"{_described(declared, axis)} is taken as 1")
                    bounds = Bounds(1, 1)
                elif bounds is None:
                    if name not in seen:
                        missing.append((position, axis))
                    seen.add(name)
                    bounds = open_bounds or Bounds(1, 1)
                taken[name] = bounds
                sizes[name] = (
                    bounds.low
                    if bounds.low == bounds.high
                    else symbol(name, bounds.low, bounds.high, bounds.step)
                )
            shape.append(sizes[name])
        shapes.append(tuple(shape))
    if missing and open_bounds is None:
        raise _open(inputs, missing, model)
    expressions = [size for size in sizes.values() if not isinstance(size, int)]
    symbols = tuple(node for node in toposort(expressions) if node.op is ops.SYMBOL)
    still = tuple(names[position][axis] for position, axis in missing)
    return Resolved(tuple(shapes), symbols, tuple(warnings), tuple(unknown), taken, still)


def unknown_sizes(inputs: Sequence[Declared], keys: Iterable[str]) -> list[str]:
    """Those of the keys that name no size of the inputs."""
    present = {name for row in _names(inputs) for name in row if name}
    return [key for key in keys if key not in present and _find(inputs, key) is None]


def _names(inputs: Sequence[Declared]) -> list[list[str]]:
    """The symbol of every dim: its own name, or one made of input and axis; '' for a fixed one."""
    result = []
    for declared in inputs:
        row = []
        for axis, dim in enumerate(declared.dims):
            if isinstance(dim, int):
                row.append("")
            else:
                row.append(dim if dim else f"{declared.name}[{axis}]")
        result.append(row)
    return result


def _leading(names: Sequence[Sequence[str]]) -> set[str]:
    first = {row[0] for row in names if row}
    later = {name for row in names for name in row[1:]}
    return first - later


def _chosen(
    inputs: Sequence[Declared], dims: Mapping[str, int | str], names: Sequence[Sequence[str]]
) -> dict[str, Bounds]:
    symbols = {name for row in names for name in row if name}
    chosen: dict[str, Bounds] = {}
    for key, value in dims.items():
        bounds = parse_value(key, value)
        name = key
        if key not in symbols:
            place = _find(inputs, key)
            assert place is not None
            position, axis = place
            fixed = inputs[position].dims[axis]
            if isinstance(fixed, int):
                if bounds != Bounds(fixed, fixed):
                    raise _bad(key, value, f"the model fixes this size to {fixed}")
                continue
            name = names[position][axis]
        if chosen.setdefault(name, bounds) != bounds:
            raise _bad(key, value, f"the same size {name!r} was given another value")
    return chosen


def _find(inputs: Sequence[Declared], key: str) -> tuple[int, int] | None:
    """The input and axis that `INPUT[AXIS]` names."""
    match = _KEY.fullmatch(key)
    if match is not None:
        for position, declared in enumerate(inputs):
            if declared.name == match[1] and int(match[2]) < len(declared.dims):
                return position, int(match[2])
    return None


def no_size(key: str, symbols: Iterable[str]) -> InputError:
    """The error for a key of dims that names no size."""
    available = sorted(symbols)
    return InputError(
        f"--dim {shlex.quote(key)}",
        "the model has no such symbolic size",
        id="input.dim",
        supported=", ".join(available[:20]) if available else "all sizes of this model are fixed",
    )


def _described(declared: Declared, axis: int) -> str:
    dim = declared.dims[axis]
    named = f" ({dim})" if dim else ""
    return f"the open leading size {declared.name}[{axis}]{named}"


def _open(
    inputs: Sequence[Declared],
    missing: Sequence[tuple[int, int]],
    model: str,
) -> InputError:
    flags, texts = [], []
    for position, axis in missing:
        declared = inputs[position]
        example = 224 if len(declared.dims) == 4 else 64
        dim = declared.dims[axis]
        key = dim if isinstance(dim, str) else f"{declared.name}[{axis}]"
        flags.append(f"--dim {shlex.quote(f'{key}={example}')}")
        texts.append(f"{declared.name}[{axis}]" + (f" ({dim})" if dim else ""))
    return InputError(
        model,
        f"these input sizes are open: {', '.join(texts)}",
        id="input.open-dims",
        supported="a size (224), or a range (32..1280:32) for one bundle that serves many sizes",
        next=f"add {' '.join(flags)}",
    )
