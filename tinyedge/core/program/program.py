"""The Program: what the compiler makes, `export` writes, `load` reads and the replay loop runs.

All of it is plain data. Integers that depend on symbolic sizes are *expressions*: an int, a
symbol's name, or a prefix tuple such as `("ceildiv", ("mul", "H", 4), 64)` over add mul sub
floordiv ceildiv mod min max.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Union

import numpy as np

Expression = Union[int, str, tuple[Any, ...]]

EXPRESSION_LIMIT = 2**53
EXPRESSION_OPERATORS = ("add", "mul", "sub", "floordiv", "ceildiv", "mod", "min", "max")


@dataclass(frozen=True)
class Symbol:
    """A size chosen at run time: `min <= value <= max` and `value % step == min % step`."""

    name: str
    min: int
    max: int
    step: int = 1


@dataclass(frozen=True)
class Arena:
    """One allocation that many buffers share. `bytes` is a multiple of 256."""

    bytes: int


@dataclass(frozen=True)
class Buffer:
    """A range of memory a kernel can bind: a range of an arena, or a whole weight.

    Exactly one of `arena` and `weight` is an index, the other is -1. `offset` is a multiple of 256.
    `bytes` is the size at the symbols' maxima, a multiple of 4.
    """

    arena: int = -1
    offset: int = 0
    bytes: int = 0
    weight: int = -1


@dataclass(frozen=True)
class Image:
    """How kernels see the buffer number `buffer`: as rows of four-channel pixels of `dtype`.

    width and height in pixels.
    """

    buffer: int
    dtype: str
    width: int
    height: int
    pitch: int  # bytes from one row to the next, a multiple of a pixel's


@dataclass(frozen=True)
class Slice:
    """A named part of an output: elements [start, start + size) along `axis`."""

    name: str
    axis: int
    start: int
    size: int


@dataclass(frozen=True)
class Port:
    """An input or output. `dtype` is what the caller sees; `storage` the buffer's element type.

    Elements lie in row-major order, `storage` elements without gaps; `float16` storage packs two a
    word. `storage` differs from `dtype` where a device has no such type (int64 kept as int32, bool
    as int32, ...). `count` names an output whose one element is the number of entries along
    `count_axis`, which lie without gaps as if it were the axis's size; or it is empty, and the size
    is what it says.
    """

    name: str
    dtype: str
    shape: tuple[Expression, ...]
    storage: str
    buffer: int
    slices: tuple[Slice, ...] = ()
    count: str = ""
    count_axis: int = 0


@dataclass(frozen=True)
class State:
    """A buffer that survives between runs. `initial` is a weight's index, or -1 for zeros."""

    name: str
    dtype: str
    shape: tuple[Expression, ...]
    storage: str
    buffer: int
    initial: int = -1
    # "replace" (the entry's steps write the new value in place or by a copy) or "shift" along
    # `axis`
    update: Literal["replace", "shift"] = "replace"
    axis: int = 0


@dataclass(frozen=True)
class Order:
    """In which order the elements of a tensor lie in memory, as a row-major array.

    dimensions: of that array, the outermost first: how many places each has, how many of them, the
    first ones, hold elements (the others zeros), and how far these are apart in the tensor's
    row-major order.
    """

    element: int  # bytes: 1, 2 or 4
    dimensions: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Weight:
    """A constant. `dtype` and `shape` are the model's; `storage` and `data` are what
    kernels read, or what `repack` makes that of.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    storage: str
    # `data`, or what makes it, so that weights need not all be in memory at once
    content: np.ndarray[Any, Any] | Callable[[], np.ndarray[Any, Any]] | None = field(repr=False)
    bytes: int
    order: Order | None = None  # None: it is not known, or elements are less than a byte
    # what makes the bytes that kernels read of `data`, which is a row-major array of words of 4
    # bytes: of its axes, the outermost first, how many places each has, how many of them, the first
    # ones, are used, and how far these come to lie from each other; all else is zero. Empty: they
    # are `data`
    repack: tuple[tuple[int, int, int], ...] = ()

    @property
    def data(self) -> np.ndarray[Any, Any] | None:
        """A flat little-endian byte array (length a multiple of 4), or None in a bundle not yet
        read. It may be made anew at every call.
        """
        return self.content() if callable(self.content) else self.content


@dataclass(frozen=True)
class Binding:
    """One buffer argument of a kernel: its access and element type, or `picture`."""

    access: Literal["read", "read_write"]
    dtype: str


@dataclass(frozen=True)
class Kernel:
    """One distinct kernel. `source` is readable text of the target's language."""

    name: str
    source: str
    workgroup: tuple[int, int, int]  # threads a workgroup along x, y, z
    bindings: tuple[Binding, ...]
    moves: tuple[Mapping[str, Any], ...] = ()  # the schedule moves as JSON-able records
    # whether the kernel takes the symbols' uniform (all symbols of the program, in order, as int32)
    symbols: bool = False

    @property
    def written(self) -> tuple[int, ...]:
        """The numbers of the arguments that it may write: where arenas are bound for writing, all
        that lie in one.
        """
        return tuple(i for i, each in enumerate(self.bindings) if each.access == "read_write")


@dataclass(frozen=True)
class Launch:
    """Run `kernel` over a `grid` of workgroups with `buffers` bound in order."""

    kernel: int
    buffers: tuple[int, ...]
    grid: tuple[Expression, Expression, Expression]
    nodes: tuple[str, ...] = ()  # names of the model's nodes that it computes
    flops: int = 0  # its arithmetic operations, an estimate, at the symbols' maxima


@dataclass(frozen=True)
class Copy:
    """Copy `bytes` from one buffer to another; both offsets are multiples of 4."""

    source: int
    destination: int
    bytes: Expression
    source_offset: int = 0
    destination_offset: int = 0


@dataclass(frozen=True)
class Loop:
    """Repeat `body` while the int32 at `condition`'s start is not zero, at most `bound` times."""

    condition: int
    bound: int
    body: tuple[Step, ...]


Step = Union[Launch, Copy, Loop]


@dataclass(frozen=True)
class Entry:
    """One callable: which ports it takes and gives, and its steps."""

    name: str
    inputs: tuple[str, ...]  # inputs, outputs: their names, each once
    outputs: tuple[str, ...]
    steps: tuple[Step, ...]
    # input_numbers, output_numbers: where these are among the program's ports, of which several may
    # have one name; left out, the first of each name
    input_numbers: tuple[int, ...] = ()
    output_numbers: tuple[int, ...] = ()


def launches(steps: Iterable[Step]) -> Iterator[Launch]:
    """The launches among steps and in their blocks, in order."""
    for step in steps:
        if isinstance(step, Launch):
            yield step
        elif isinstance(step, Loop):
            yield from launches(step.body)


@dataclass(frozen=True)
class Program:
    """A compiled model for one target."""

    target: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[State, ...]
    arenas: tuple[Arena, ...]
    buffers: tuple[Buffer, ...]
    weights: tuple[Weight, ...]
    kernels: tuple[Kernel, ...]
    entries: tuple[Entry, ...]
    images: tuple[Image, ...] = ()
    # source text (helper functions, typedefs) that goes before every kernel's source when it is
    # compiled alone, and once before all of them when they are compiled as one file
    prelude: str = ""
    suffix: str = "txt"  # of that file's name: the language of the kernels
    requirements: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    # that file compiled for kinds of devices, by the name of the bundle's file
    binaries: Mapping[str, bytes] = field(default_factory=dict)

    def inputs_of(self, entry: Entry) -> dict[int, Port]:
        """The inputs that an entry takes, in its order, by their numbers."""
        return _listed(self.inputs, entry.inputs, entry.input_numbers)

    def outputs_of(self, entry: Entry) -> dict[int, Port]:
        """The outputs that an entry gives, in its order, by their numbers."""
        return _listed(self.outputs, entry.outputs, entry.output_numbers)


@dataclass(frozen=True)
class Variant:
    """One of several programs of a bundle: of the same model, for other devices of one target."""

    name: str
    requires: tuple[str, ...]  # of a device, in words of the target
    program: Program


def _listed(
    ports: tuple[Port, ...], names: tuple[str, ...], numbers: tuple[int, ...]
) -> dict[int, Port]:
    if not numbers:
        every = [port.name for port in ports]
        numbers = tuple(every.index(name) for name in names)
    return {number: ports[number] for number in numbers}


def evaluate(expression: Expression, symbols: Mapping[str, int]) -> int:
    """The value of an expression, with every intermediate checked to lie within +-2**53.

    Raises KeyError for an unknown symbol, ValueError for a bad operator, ZeroDivisionError for a
    division by zero and OverflowError beyond 53 bits.
    """
    if isinstance(expression, int):
        value = expression
    elif isinstance(expression, str):
        value = symbols[expression]
    else:
        operator, *operands = expression
        values = [evaluate(operand, symbols) for operand in operands]
        value = _apply(operator, values)
    if not -EXPRESSION_LIMIT <= value <= EXPRESSION_LIMIT:
        raise OverflowError(f"{expression!r} is {value}, beyond 53 bits")
    return value


def symbols_in(expression: Expression) -> set[str]:
    """The names of the symbols of an expression."""
    if isinstance(expression, int):
        return set()
    if isinstance(expression, str):
        return {expression}
    return set().union(*map(symbols_in, expression[1:]))


def _apply(operator: str, values: list[int]) -> int:
    if operator not in EXPRESSION_OPERATORS or len(values) != 2:
        raise ValueError(f"no operator {operator!r} of {len(values)} operands")
    a, b = values
    if operator == "add":
        return a + b
    if operator == "mul":
        return a * b
    if operator == "sub":
        return a - b
    if operator == "floordiv":
        return a // b
    if operator == "ceildiv":
        return -(-a // b)
    if operator == "mod":
        return a % b
    return min(a, b) if operator == "min" else max(a, b)
