"""What a caller says of a model beside its file, in one record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tinyedge.core.errors import InputError
from tinyedge.export.limits import Limits, choose_limits

MOST_BOUND = 2**31 - 2


@dataclass(frozen=True)
class ImportOptions:
    """How models are imported. Raises InputError for a bound that is none."""

    # sizes of symbolic input axes, `SYMBOL` or `INPUT[AXIS]` -> `n`, `lo..hi`, `lo..hi:step`; of
    # whole inputs, `INPUT` -> `[1,3,?,?]`
    dims: Mapping[str, int | str] = field(default_factory=dict)
    # by a node's name, the most iterations or elements that only a run will know
    bounds: Mapping[str, int] = field(default_factory=dict)
    # names of values; only what these need is imported. None: the model's outputs
    outputs: str | Sequence[str] | None = None
    # values of inputs that shall be fixed, arrays or numbers; these are inputs no more
    constants: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)  # what the model may ask for
    # weights that stay open: the graph reads them as inputs, their values are its variables
    variables: frozenset[str] = frozenset()
    allow_unused: bool = False  # dims, bounds and constants may name what the model lacks

    @property
    def output_names(self) -> tuple[str, ...]:
        if self.outputs is None:
            return ()
        return (self.outputs,) if isinstance(self.outputs, str) else tuple(self.outputs)

    def __post_init__(self) -> None:
        for name, most in self.bounds.items():
            if not 1 <= most <= MOST_BOUND:
                raise InputError(
                    f"--bound {name!r}",
                    f"{most} is no bound",
                    id="input.bound",
                    supported=f"1 to {MOST_BOUND}",
                )


def choose_import(
    dims: Mapping[str, int | str] | None = None,
    bounds: Mapping[str, int] | None = None,
    outputs: str | Sequence[str] | None = None,
    constants: Mapping[str, Any] | None = None,
    limits: Mapping[str, int] | None = None,
) -> ImportOptions:
    """Options as the public functions take them. Raises InputError."""
    return ImportOptions(dims or {}, bounds or {}, outputs, constants or {}, choose_limits(limits))
