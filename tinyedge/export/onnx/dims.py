"""Input sizes: which are fixed, which stay symbolic within bounds, which are still open."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from tinyedge.core.errors import InputError
from tinyedge.core.ir import ops
from tinyedge.core.ir.polynomial import bounds
from tinyedge.core.ir.shapes import symbol
from tinyedge.core.ir.uop import Size, UOp, toposort
from tinyedge.export.onnx.dim_names import ARITHMETIC, OPERATOR, addends_of, postfix_of, slope_of

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
    """Shapes in the order of the declared inputs, the SYMBOL nodes in them, what was assumed."""

    shapes: tuple[tuple[Size, ...], ...]
    symbols: tuple[UOp, ...]
    warnings: tuple[str, ...]
    unknown: tuple[str, ...] = ()  # keys of the given dims that name no size
    # of every size that the model leaves open
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    open: tuple[str, ...] = ()  # the names of those that got `open_bounds`


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
    if step < 1:
        raise _bad(key, value, "steps start at 1")
    if high < low:
        raise _bad(key, value, "the range is empty")
    if high > GREATEST:
        raise _bad(key, value, f"the greatest size is {GREATEST}")
    return Bounds(low, low + (high - low) // step * step, step)


def _bad(key: str, value: int | str, because: str, supported: str = "") -> InputError:
    return InputError(
        f"--dim {shlex.quote(f'{key}={value}')}",
        because,
        id="input.dim",
        supported=supported or "a size such as 224, or a range such as 32..1280 or 32..1280:32",
    )


_SHAPE = re.compile(r"\s*\[([^\[\]]*)\]\s*")
ITEMS = (
    "[1, 3, ?, ?], each of them a size, a range, a name for the size, or ? or -1 for an open one"
)
_NAME = re.compile(r"[^\W\d][^\[\]]*")


def split_shapes(
    dims: Mapping[str, int | str],
) -> tuple[dict[str, tuple[str, ...]], dict[str, int | str]]:
    """Of given dims those that are the shape of a whole input, `x=[1,3,?,?]`, and the others."""
    shapes: dict[str, tuple[str, ...]] = {}
    others: dict[str, int | str] = {}
    for key, value in dims.items():
        match = _SHAPE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            others[key] = value
        else:
            items = match[1].split(",") if match[1].strip() else []
            shapes[key] = tuple("?" if item.strip() == "-1" else item.strip() for item in items)
    return shapes, others


def with_shape(
    name: str, dims: Sequence[Dim] | None, items: Sequence[str]
) -> tuple[Declared, dict[str, int | str]]:
    """An input with the shape that `--dim NAME=[..]` gives it, and what that says of its sizes.

    dims: as the model declares them; None where it does not say how many there are.
    Raises InputError where the two do not fit.
    """
    text = f"[{','.join(items)}]"
    if dims is not None and len(dims) != len(items):
        raise _bad(name, text, f"the model says that the input has {len(dims)} axes", ITEMS)
    declared: list[Dim] = []
    sizes: dict[str, int | str] = {}
    for axis, item in enumerate(items):
        dim = dims[axis] if dims is not None else None
        if _VALUE.fullmatch(item):
            sizes[f"{name}[{axis}]"] = item
        elif item != "?" and (item != dim if dims is not None else not _NAME.fullmatch(item)):
            because = (
                f"{item!r} is no size" if dims is None else f"the model has {dim} on axis {axis}"
            )
            raise _bad(name, text, because, ITEMS)
        elif item != "?":
            dim = item
        declared.append(dim)
    return Declared(name, tuple(declared)), sizes


def resolve(
    inputs: Sequence[Declared],
    dims: Mapping[str, int | str],
    model: str,
    *,
    open_bounds: Bounds | None = None,
    allow_unused: bool = False,
) -> Resolved:
    """Give every input dim a size or a symbol.

    dims: `SYMBOL` or `INPUT[AXIS]` -> size or range. A symbolic leading axis that is left open
    becomes 1, unless the symbol also occurs elsewhere; any other is an error, or gets
    `open_bounds` where those are given. A dim named as arithmetic on other dims, such as
    `past_sequence_length + sequence_length`, is that sum, and not open itself, unless `dims` gives
    the sum a size; an addend that is no dim of an input is a size of its own.
    allow_unused: dims may name sizes that the model lacks.
    """
    names = _names(inputs)
    computed = _computed(names, _by_name(inputs, names, dims))
    places = _places(names, computed)
    present = set(places)
    unknown = _unknown(inputs, dims, places)
    for key in unknown:
        parse_value(key, dims[key])
        if not allow_unused:
            raise no_size(key, present)
    chosen = _chosen(inputs, {k: v for k, v in dims.items() if k not in unknown}, names, present)
    warnings: list[str] = []
    missing: dict[str, list[Place]] = {}
    sizes: dict[str, Size] = {}
    taken: dict[str, Bounds] = {}
    for name, where in places.items():
        if name in computed:
            continue
        bounds = chosen.get(name)
        if bounds is None and all(axis == 0 for _, axis in where):
            described = _described(inputs, name, where)
            warnings.append(f"the open leading size {described} is taken as 1")
            bounds = Bounds(1, 1)
        elif bounds is None:
            missing[name] = where
            bounds = open_bounds or Bounds(1, 1)
        taken[name] = bounds
        sizes[name] = (
            bounds.low
            if bounds.low == bounds.high
            else symbol(name, bounds.low, bounds.high, bounds.step)
        )
    if missing and open_bounds is None:
        raise _open(inputs, missing, model)
    for name, postfix in computed.items():
        sizes[name] = _evaluated(name, postfix, sizes)
        if name in chosen:
            warnings.append(_check_chosen(name, chosen[name], sizes[name]))
    shapes = tuple(
        tuple(
            dim if isinstance(dim, int) else sizes[name]
            for dim, name in zip(declared.dims, row, strict=True)
        )
        for declared, row in zip(inputs, names, strict=True)
    )
    expressions = [size for size in sizes.values() if not isinstance(size, int)]
    symbols = tuple(node for node in toposort(expressions) if node.op is ops.SYMBOL)
    return Resolved(shapes, symbols, tuple(warnings), tuple(unknown), taken, tuple(missing))


# Dims that are named as arithmetic on others.


def _computed(
    names: Sequence[Sequence[str]], dims: Mapping[str, int | str]
) -> dict[str, list[str]]:
    """The names that are arithmetic on other names, each with its expression in postfix order.

    A run knows what is an axis or one number by `dims`; in the order of the inputs, it finds the
    one other size of an expression that rises or falls with it by the same number each. What has
    still others, or is given a size of its own by `dims`, is only a name.
    """
    present = dict.fromkeys(name for row in names for name in row if name)
    plain = {name for name in present if len(OPERATOR.split(name)) == 1}
    known = plain | {key for key, value in dims.items() if _is_number(key, value)}
    found: dict[str, tuple[list[str], bool]] = {}
    for name in (name for name in present if name not in plain):
        postfix = postfix_of(name, plain)
        addends = addends_of(postfix)
        if not addends or (name in dims and addends - plain):
            continue
        unknown = addends - known
        solved = len(unknown) == 1 and bool(slope_of(postfix, *unknown))
        if solved and addends & known:
            known |= unknown
        found[name] = postfix, solved or len(unknown) != 1
    return {
        name: postfix
        for name, (postfix, usable) in found.items()
        if usable and not addends_of(postfix) - known
    }


def _is_number(key: str, value: int | str) -> bool:
    bounds = parse_value(key, value)
    return bounds.low == bounds.high


Place = tuple[int, int]  # an input's position and an axis of it


def _places(
    names: Sequence[Sequence[str]], computed: Mapping[str, Sequence[str]]
) -> dict[str, list[Place]]:
    """Where every name occurs: as an axis, else in one that is computed from it."""
    places: dict[str, list[Place]] = {}
    within: dict[str, list[Place]] = {}
    for position, row in enumerate(names):
        for axis, name in enumerate(row):
            if name:
                places.setdefault(name, []).append((position, axis))
            for part in sorted(addends_of(computed.get(name, ()))):
                within.setdefault(part, []).append((position, axis))
    return {**places, **{name: where for name, where in within.items() if name not in places}}


def _evaluated(name: str, postfix: Sequence[str], sizes: Mapping[str, Size]) -> Size:
    """The size that a name stands for. Raises InputError where it can be below 0."""
    stack: list[Size] = []
    for token in postfix:
        if token in ARITHMETIC:
            right = stack.pop()
            stack.append(ARITHMETIC[token](stack.pop(), right))
        else:
            stack.append(sizes[token] if token in sizes else int(token))
    low, high = bounds(stack[0])
    if low < 0 or high > GREATEST:
        raise InputError(
            f"the size {name!r}",
            f"of the sizes that it is computed from it is {low} to {high}",
            id="input.dim",
            supported=f"0 to {GREATEST}",
            next="give those sizes other values with --dim",
        )
    return stack[0]


def _check_chosen(name: str, given: Bounds, size: Size) -> str:
    """What to say of a value for a computed size. Raises InputError where it need not have it."""
    low, high = bounds(size)
    found = f"{low}" if low == high else f"{low}..{high}"
    if not (given.low <= low and high <= given.high and given.step == 1):
        raise _bad(name, str(given), f"it is computed from other sizes, as {found}")
    return f"the size {name!r} is computed from other sizes, as {found}: --dim {given} adds nothing"


def unknown_sizes(inputs: Sequence[Declared], dims: Mapping[str, int | str]) -> list[str]:
    """Those of the keys of dims that name no size of the inputs."""
    names = _names(inputs)
    computed = _computed(names, _by_name(inputs, names, dims))
    return _unknown(inputs, dims, _places(names, computed))


def _unknown(
    inputs: Sequence[Declared], dims: Mapping[str, int | str], present: Collection[str]
) -> list[str]:
    """present: the names of the sizes of the inputs."""
    return [key for key in dims if key not in present and _find(inputs, key) is None]


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


def _by_name(
    inputs: Sequence[Declared], names: Sequence[Sequence[str]], dims: Mapping[str, int | str]
) -> dict[str, int | str]:
    """Given dims with the sizes' names in place of `INPUT[AXIS]`."""
    found: dict[str, int | str] = {}
    for key, value in dims.items():
        place = None if any(key in row for row in names) else _find(inputs, key)
        found[(names[place[0]][place[1]] if place else "") or key] = value
    return found


def _chosen(
    inputs: Sequence[Declared],
    dims: Mapping[str, int | str],
    names: Sequence[Sequence[str]],
    symbols: Collection[str],
) -> dict[str, Bounds]:
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
    """The error for a key of dims that names no size, and no input that is given a shape."""
    available = sorted(symbols)
    return InputError(
        f"--dim {shlex.quote(key)}",
        "the model has no such symbolic size",
        id="input.dim",
        supported=", ".join(available[:20]) if available else "all sizes of this model are fixed",
    )


def no_input(name: str, inputs: Sequence[str]) -> InputError:
    """The error for a shape given to an input that is not there."""
    return InputError(
        f"--dim {shlex.quote(f'{name}=[..]')}",
        "the model has no such input",
        id="input.dim",
        supported=", ".join(map(repr, inputs[:20])) or "the model has no inputs",
    )


def joined(dims: Mapping[str, int | str], sizes: Mapping[str, int | str]) -> dict[str, int | str]:
    """Given dims with those that whole shapes give. Raises InputError where they contradict."""
    for key, value in sizes.items():
        if key in dims and parse_value(key, dims[key]) != parse_value(key, value):
            raise _bad(key, dims[key], f"the shape given for the input says {value}")
    return {**dims, **sizes}


def _described(inputs: Sequence[Declared], name: str, where: Sequence[Place]) -> str:
    """A size by the first of its places, with its name."""
    position, axis = where[0]
    declared = inputs[position]
    dim = declared.dims[axis]
    place = f"{declared.name}[{axis}]"
    if dim is None:
        return place
    return f"{place} ({name})" if dim == name else f"{name} of {place} ({dim})"


def _open(
    inputs: Sequence[Declared], missing: Mapping[str, Sequence[Place]], model: str
) -> InputError:
    flags = []
    for name, where in missing.items():
        example = 224 if len(inputs[where[0][0]].dims) == 4 else 64
        flags.append(f"--dim {shlex.quote(f'{name}={example}')}")
    texts = [_described(inputs, name, where) for name, where in missing.items()]
    return InputError(
        model,
        f"these input sizes are open: {', '.join(texts)}",
        id="input.open-dims",
        supported="a size (224), or a range (32..1280:32) for one bundle that serves many sizes",
        next=f"add {' '.join(flags)}",
    )
