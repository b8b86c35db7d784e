"""What a node holds beside its operands, by name: one small record for each kind of argument.

An argument of one part is that part: the axes of a PERMUTE, the shape of a RESHAPE, the lane of a
LANE. `ops` says which row takes what.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyedge.core.ir.ops import Primitive, TensorSource
from tinyedge.core.ir.uop import Size


@dataclass(frozen=True, slots=True)
class Buffer:
    """Of a BUFFER."""

    source: TensorSource
    shape: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Symbol:
    """Of a SYMBOL, which counts the steps t of a size = offset + step * t; min <= t <= max."""

    name: str
    min: int
    max: int
    step: int
    offset: int


@dataclass(frozen=True, slots=True)
class Margin:
    """Of a PAD, one for each axis: how many zeros are added."""

    before: Size
    after: Size


@dataclass(frozen=True, slots=True)
class Span:
    """Of a SHRINK or an ASSIGN, one for each axis: the elements start <= i < end."""

    start: Size
    end: Size


@dataclass(frozen=True, slots=True)
class Window:
    """Of a WINDOW: `size` elements `dilation` apart, at every `stride`-th place along an axis."""

    axis: int
    size: int
    stride: int
    dilation: int


@dataclass(frozen=True, slots=True)
class Reduce:
    """Of a REDUCE: the axes, which disappear."""

    op: Primitive
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Transform:
    """Of a TRANSFORM: a matrix of constants by its rows; what it has zeros for is not read."""

    matrix: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Attend:
    """Of an ATTEND and an ATTEND_LOOP: whether a row whose weights are NaN, as all of its scores
    are -infinity, gives zeros.
    """

    zeros: bool


@dataclass(frozen=True, slots=True)
class Scatter:
    """Of a SCATTER: how an update is combined with what is there; None: it replaces that."""

    axis: int
    op: Primitive | None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Of a CHECKPOINT: which of how many results of a function."""

    number: int
    count: int


@dataclass(frozen=True, slots=True)
class LoopOutput:
    """Of a LOOP_OUTPUT: which of the values that a loop carries."""

    number: int
    shape: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """Of a RANGE."""

    number: int
    kind: str  # how it runs, one of those in `spec`


@dataclass(frozen=True, slots=True)
class Special:
    """Of a SPECIAL."""

    kind: str  # "group" or "thread"
    dimension: int


@dataclass(frozen=True, slots=True)
class Accumulator:
    """Of an ACCUMULATOR, which holds what `op` makes of what it was given so far."""

    number: int
    op: Primitive


@dataclass(frozen=True, slots=True)
class Shared:
    """Of a SHARED: memory that the threads of a workgroup share."""

    number: int  # among those of a kernel
    length: int  # elements, of the node's type
    ahead: bool = False  # a loop may fill it for its next step while it uses what is there


@dataclass(frozen=True, slots=True)
class Region:
    """Of a REGION."""

    length: int  # elements, at least where they are zeros
