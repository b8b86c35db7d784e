"""What a run is given: arrays of the declared types and shapes, and the sizes that these have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyedge.core.errors import RunError
from tinyedge.core.program.ports import allowed, as_array, describe, describe_values, quote, size_of
from tinyedge.core.program.program import Entry, Port, Symbol, symbols_in

Array = np.ndarray[Any, Any]
Sizes = tuple[int, ...]  # of the program's symbols, in order


@dataclass(frozen=True)
class Inputs:
    """The checks of one program's inputs."""

    symbols: Sequence[Symbol]
    ports: Mapping[str, Mapping[str, Port]]  # by entry and name

    def arrays(self, entry: Entry, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """The inputs as arrays of the declared dtype and number of axes."""
        ports = self.ports[entry.name]
        for name in inputs:
            if name not in ports:
                raise RunError(
                    f"input {name!r}",
                    f"entry {entry.name!r} has no such input",
                    id="run.input",
                    supported=self._signature(entry),
                )
        arrays: dict[str, Array] = {}
        for name, port in ports.items():
            if name not in inputs:
                raise RunError(
                    f"input {name!r}",
                    "it is missing",
                    id="run.input",
                    supported=self._signature(entry),
                )
            array = as_array(inputs[name], port.dtype, f"input {name!r}")
            if array.ndim != len(port.shape):
                raise self._shape_error(port, array.shape, f"it has {array.ndim} axes")
            arrays[name] = array
        return arrays

    def solve(
        self, ports: Mapping[str, Port], arrays: Mapping[str, Array], given: Mapping[str, int]
    ) -> Sizes:
        """The value of every symbol, in order; raises RunError where the shapes do not fit."""
        symbols = {symbol.name: symbol for symbol in self.symbols}
        values: dict[str, int] = {}
        origin: dict[str, str] = {}
        for name, array in arrays.items():
            port = ports[name]
            for axis, expected in enumerate(port.shape):
                if not isinstance(expected, str):
                    continue
                size = array.shape[axis]
                if expected not in values:
                    values[expected] = size
                    origin[expected] = f"axis {axis} of {name!r}"
                    self._check_symbol(port, array.shape, axis, symbols[expected], size)
                elif values[expected] != size:
                    because = (
                        f"axis {axis} is {size}, but {expected} is {values[expected]} "
                        f"by {origin[expected]}"
                    )
                    raise self._shape_error(port, array.shape, because)
        for name, size in given.items():
            self._check_given(symbols, values, name, size)
        values.update(given)
        self._solve_sums(ports, arrays, symbols, values)
        for symbol in self.symbols:
            values.setdefault(symbol.name, symbol.max)
        for name, array in arrays.items():
            port = ports[name]
            for axis, expected in enumerate(port.shape):
                wanted = size_of(expected, values, f"input {name!r}")
                if array.shape[axis] != wanted:
                    because = f"axis {axis} is {array.shape[axis]}, not {wanted}"
                    raise self._shape_error(port, array.shape, because)
        return tuple(values[symbol.name] for symbol in self.symbols)

    def _solve_sums(
        self,
        ports: Mapping[str, Port],
        arrays: Mapping[str, Array],
        symbols: Mapping[str, Symbol],
        values: dict[str, int],
    ) -> None:
        """Add to `values` the symbols that an axis tells with the known ones, as `past + new`."""
        for name, port in ports.items():
            for axis, expected in enumerate(port.shape):
                unknown = symbols_in(expected).difference(values)
                if len(unknown) != 1:
                    continue
                symbol = symbols[unknown.pop()]
                given = arrays[name].shape[axis]
                most, below = (
                    size_of(expected, {**values, symbol.name: value}, f"input {name!r}")
                    for value in (symbol.max, symbol.max - symbol.step)
                )
                steps, rest = divmod(most - given, most - below) if most != below else (0, 1)
                size = symbol.max - steps * symbol.step
                if rest or not allowed(symbol, size):
                    made = f"no {symbol.name}" if rest else f"{symbol.name} {size}"
                    because = (
                        f"axis {axis} is {given}, which makes {made}, "
                        f"but it is {describe_values(symbol)}"
                    )
                    raise self._shape_error(port, arrays[name].shape, because)
                values[symbol.name] = size

    def _check_symbol(
        self, port: Port, shape: tuple[int, ...], axis: int, symbol: Symbol, size: int
    ) -> None:
        if not allowed(symbol, size):
            because = f"axis {axis} is {size}, but {symbol.name} is {describe_values(symbol)}"
            raise self._shape_error(port, shape, because)

    def _check_given(
        self, symbols: Mapping[str, Symbol], found: Mapping[str, int], name: str, size: int
    ) -> None:
        subject = f"symbol {name!r}"
        if name not in symbols:
            raise RunError(
                subject,
                "the program has no such symbol",
                id="run.shape",
                supported=quote(symbols),
            )
        if not allowed(symbols[name], size):
            because = f"it is {size}, not {describe_values(symbols[name])}"
            raise RunError(subject, because, id="run.shape")
        if found.get(name, size) != size:
            because = f"it is given as {size}, but the input shapes say {found[name]}"
            raise RunError(subject, because, id="run.shape")

    def _shape_error(self, port: Port, shape: tuple[int, ...], because: str) -> RunError:
        return RunError(
            f"input {port.name!r}",
            f"its shape is {list(shape)}: {because}",
            id="run.shape",
            supported=describe(port),
            next=self._bounds(port),
        )

    def _bounds(self, port: Port) -> str:
        """What the symbols of a shape may be, for an error."""
        used = [symbol for symbol in self.symbols if symbol.name in port.shape]
        said = ", ".join(f"{symbol.name} {describe_values(symbol)}" for symbol in used)
        return f"give an array with {said}" if said else "give an array of that shape"

    def _signature(self, entry: Entry) -> str:
        return "; ".join(map(describe, self.ports[entry.name].values())) or "no inputs"
