"""Small graphs compiled for a target, run on a device, compared with the reference evaluator."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.compiler.decompose import retype
from tinyedge.core.compiler.options import Options
from tinyedge.core.compiler.state import Compilation
from tinyedge.core.compiler.target import Target
from tinyedge.core.dtype import DType, float16, from_numpy, named
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.uop import Shape
from tinyedge.core.program.device import Device
from tinyedge.core.program.program import Program
from tinyedge.core.program.replay import Replay
from tinyedge.core.tensor.graph import Graph, Port
from tinyedge.core.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

TOLERANCE = 1e-4  # of the largest expected value of an output: what the design promises for float32
HALF_TOLERANCE = 2e-2


def find_target(name: str) -> Target:
    """The target called `name`."""
    target: Target = importlib.import_module(f"tinyedge.targets.{name}.target").TARGET
    return target


class Inputs:
    """Named inputs of a graph with the arrays they will be given."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self.shapes: dict[str, Shape] = {}

    def new(self, array: Any, name: str = "", shape: Shape | None = None) -> Tensor:
        """A tensor that will hold `array`. shape: with symbols, where it has some."""
        value = np.asarray(array)
        chosen = name or f"x{len(self.arrays)}"
        self.arrays[chosen] = value
        self.shapes[chosen] = value.shape if shape is None else shape
        return Tensor.input(chosen, self.shapes[chosen], from_numpy(value.dtype))

    def ports(self) -> tuple[Port, ...]:
        return tuple(
            Port(name, from_numpy(array.dtype), self.shapes[name])
            for name, array in self.arrays.items()
        )


def graph(outputs: Mapping[str, Tensor], inputs: Inputs) -> Graph:
    """What the compiler takes."""
    ports = tuple(Port(n, t.dtype, t.shape, t.node) for n, t in outputs.items())
    return Graph(inputs.ports(), ports)


def compiled(
    outputs: Mapping[str, Tensor], inputs: Inputs, target: Target, options: Options | None = None
) -> Compilation:
    return compile_graph(graph(outputs, inputs), target, options)


def run(
    outputs: Mapping[str, Tensor],
    inputs: Inputs,
    target: str,
    device: Device,
    options: Options | None = None,
) -> Arrays:
    """The outputs, computed by the device. Its memory is filled with NaN before."""
    program = compiled(outputs, inputs, find_target(target), options).program
    assert program is not None
    return replay(program, device, inputs.arrays)


def replay(program: Program, device: Device, arrays: Arrays) -> Arrays:
    with Replay(program, device, poison=True) as ready:
        return ready.run(arrays)


def reference(
    outputs: Mapping[str, Tensor],
    inputs: Inputs,
    symbols: Mapping[str, int] | None = None,
    *,
    fp64_reference: bool = False,
) -> Arrays:
    """The outputs by the reference evaluator.

    fp64_reference: float32 and float16 are computed in double.
    """
    nodes = [t.node for t in outputs.values()]
    arrays = dict(inputs.arrays)
    if fp64_reference:
        done = retype(tuple(nodes), {"float32": "float64", "float16": "float64"})
        nodes = [done[node] for node in nodes]
        for name, array in arrays.items():
            if array.dtype in (np.float32, np.float16):
                arrays[name] = array.astype(np.float64)
    values = evaluate(nodes, arrays, symbols)
    with np.errstate(all="ignore"):
        return {
            name: named(np.asarray(value).astype(tensor.dtype.numpy), tensor.dtype)
            for (name, tensor), value in zip(outputs.items(), values, strict=True)
        }


@dataclass(frozen=True)
class Tolerance:
    """How far floats may differ: relative to each value, to the output's greatest, absolute."""

    each: float = 0.0
    greatest: float = TOLERANCE
    absolute: float = 1e-30
    flush: bool = True  # values below the least normal number may be zero


AGREEMENT = Tolerance()


def tolerance_of(dtype: DType) -> Tolerance:
    """What the design promises for outputs of a type."""
    return Tolerance(greatest=HALF_TOLERANCE if dtype is float16 else TOLERANCE)


def disagreement(actual: Array, expected: Array, tolerance: Tolerance = AGREEMENT) -> str:
    """Why two outputs do not agree; nothing if they do.

    Integers are equal; NaN and infinity stand at the same places; finite floats are close.
    """
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        got, want = (f"{a.dtype}{list(a.shape)}" for a in (actual, expected))
        return f"it is {got}, expected {want}"
    kind = from_numpy(actual.dtype)
    if not kind.is_float:
        wrong = actual != expected
    else:
        with np.errstate(invalid="ignore"):  # NaN that signal
            wide, exact = actual.astype(np.float64), expected.astype(np.float64)
        finite = np.isfinite(exact)
        wrong = np.isnan(exact) != np.isnan(wide)
        wrong |= np.isinf(exact) & (wide != exact)
        wrong |= finite & ~np.isfinite(wide)
        greatest = np.max(np.abs(exact[finite]), initial=0.0)
        with np.errstate(all="ignore"):
            room = np.abs(exact) * tolerance.each + greatest * tolerance.greatest
            room = np.maximum(room, tolerance.absolute)
            if tolerance.flush and not kind.storage_type:
                room = np.maximum(room, np.finfo(actual.dtype).tiny)
            wrong |= finite & ~(np.abs(wide - exact) <= room)
    if not wrong.any():
        return ""
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    got, want = actual[first], expected[first]
    return f"{int(wrong.sum())} of {wrong.size} differ, first at {list(first)}: {got} for {want}"


def assert_agreement(
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    tolerances: Mapping[str, Tolerance] | None = None,
) -> None:
    """Every output agrees; all that do not are listed."""
    assert set(actual) == set(expected)
    found = []
    for name, array in expected.items():
        given = (tolerances or {}).get(name, tolerance_of(from_numpy(array.dtype)))
        why = disagreement(actual[name], array, given)
        if why:
            found.append(f"{name}: {why}")
    assert not found, "\n" + "\n".join(found)
