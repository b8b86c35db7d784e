"""The cases: models with inputs and expected outputs; how they are imported and compared.

Inputs are inputs. Where that is refused because a shape depends on one, a case is tried again with
its small integer inputs (and scalars), then with all inputs, as constants.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, load, numpy_helper

from tests.imported import import_model
from tinyedge.core.dtype import from_numpy
from tinyedge.core.errors import InputError
from tinyedge.core.tensor.graph import Graph

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Case:
    """A model with what goes in and what must come out, to the suite's own tolerances."""

    name: str
    model: ModelProto
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float


@dataclass(frozen=True, eq=False)
class Imported:
    """A case as a graph."""

    case: Case
    graph: Graph
    outputs: tuple[str, ...]  # the model's, without counts of their elements
    feeds: dict[str, Any]  # by input
    sizes: dict[str, int]  # of symbols
    fixed: str  # which inputs are constants

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers, from a state that is an input here."""
        return bool(self.graph.updates)

    @property
    def read(self) -> dict[str, Any]:
        """Values of all that the graph reads, of states too."""
        return {**self.feeds, **{port.name: np.zeros(2, np.uint32) for port in self.graph.updates}}


@cache
def cases() -> tuple[Case, ...]:
    """All cases of the installed onnx package that come with data."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [
            case for kind in KINDS for test in load_model_tests(kind=kind) for case in _case(test)
        ]
    return tuple(sorted(found, key=lambda case: case.name))


def _case(test: Any) -> Iterator[Case]:
    if test.model is not None and test.data_sets:
        inputs, outputs = test.data_sets[0]
        yield Case(
            test.name,
            test.model,
            [_value(v) for v in inputs],
            [_value(v) for v in outputs],
            test.rtol,
            test.atol,
        )
    elif test.model_dir:
        folder = Path(test.model_dir)
        if not (folder / "model.onnx").exists():
            return
        data = folder / "test_data_set_0"
        inputs, outputs = (
            [_tensor(file) for file in sorted(data.glob(f"{kind}_*.pb"), key=_number)]
            for kind in ("input", "output")
        )
        yield Case(test.name, load(folder / "model.onnx"), inputs, outputs, test.rtol, test.atol)


def _number(path: Path) -> int:
    return int(path.stem.split("_")[-1])


def _tensor(path: Path) -> Any:
    tensor = TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(part) for part in value]
    if hasattr(value, "data_type"):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else value


@dataclass(frozen=True, eq=False)
class Asked:
    """A case's model; values of all inputs; those that are constants; its open sizes, as --dim
    takes them, and the sizes that symbols then have.
    """

    model: ModelProto
    feeds: dict[str, Any]
    constants: dict[str, Any]
    dims: dict[str, int | str]
    sizes: dict[str, int]


def _none(value: Any) -> bool:
    return False


def _small(value: Any) -> bool:
    if not isinstance(value, np.ndarray):
        return False
    return value.size <= 64 if value.dtype.kind in "iub" else value.size <= 8


def _every(value: Any) -> bool:
    return isinstance(value, (np.ndarray, list))


# What is tried one after the other: which inputs are constants, and what that is called.
ATTEMPTS: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (_none, ""),
    (_small, "small inputs are constants"),
    (_every, "all inputs are constants"),
)


def imported(case: Case, symbolic: bool = False) -> Imported:
    """The case as a graph, in the first of the three ways that is not refused.

    symbolic: input sizes of 2 or more become symbols within 2..64, equal sizes the same one.
    Raises the first way's InputError where all are refused.
    """
    refused: list[InputError] = []
    for constant, fixed in ATTEMPTS:
        try:
            return _imported(case, constant, fixed, symbolic)
        except InputError as error:
            refused.append(error)
    raise refused[0]


def _imported(case: Case, constant: Callable[[Any], bool], fixed: str, symbolic: bool) -> Imported:
    ask = asked(case, constant, symbolic)
    made = import_model(
        ask.model.SerializeToString(), constants=dict(ask.constants), dims=dict(ask.dims)
    )
    feeds = {port.name: ask.feeds[port.name] for port in made.inputs}
    return Imported(case, made.graph(), tuple(made.outputs), feeds, ask.sizes, fixed)


def asked(case: Case, constant: Callable[[Any], bool], symbolic: bool = False) -> Asked:
    """What a case asks of an import. constant: which of its inputs are constants."""
    model = ModelProto()
    model.CopyFrom(case.model)
    stored = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input]
    if len(names) != len(case.inputs):
        names = [name for name in names if name not in stored]
    feeds = dict(zip(names, case.inputs, strict=False))
    constants = {n: value for n, value in feeds.items() if value is None or constant(value)}
    dims: dict[str, int | str] = {}
    sizes: dict[str, int] = {}
    for value in model.graph.input:
        if value.name not in feeds or value.name in constants:
            continue
        kind = value.type
        kind = kind.optional_type.elem_type if kind.HasField("optional_type") else kind
        for axis, dim in enumerate(kind.tensor_type.shape.dim):
            size = int(np.shape(feeds[value.name])[axis])
            if symbolic and size > 1:
                dim.Clear()
                dim.dim_param = f"n{size}"
                dims[dim.dim_param] = "2..64"
                sizes[dim.dim_param] = size
            elif not dim.HasField("dim_value"):
                dims[f"{value.name}[{axis}]"] = size
    return Asked(model, feeds, constants, dims, sizes)


def difference(case: Case, outputs: Sequence[Array], values: bool = True) -> str:
    """What is wrong with a case's outputs, of sequences each tensor; nothing if they are right.

    values: else only types and shapes are compared.
    """
    expected = [part for v in case.outputs for part in (v if isinstance(v, list) else [v])]
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs instead of {len(expected)}"
    for ours, theirs in zip(outputs, expected, strict=True):
        problem = _difference(ours, np.asarray(theirs), case, values)
        if problem:
            return problem
    return ""


def _difference(ours: Array, theirs: Array, case: Case, values: bool) -> str:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype} {ours.shape} instead of {theirs.dtype} {theirs.shape}"
    if not values:
        return ""
    kind = from_numpy(ours.dtype) if ours.dtype != object else None
    if kind is None or not kind.is_float:
        return "" if np.array_equal(ours, theirs) else "other integers"
    ours, theirs = ours.astype(kind.computed.numpy), theirs.astype(kind.computed.numpy)
    units = {"float16": 2e-3, "bfloat16": 2.0**-6}  # two of the last place
    rtol = max(case.rtol, units.get(kind.name, 0.0))
    if np.allclose(ours, theirs, rtol, max(case.atol, 1e-6), equal_nan=True):
        return ""
    return f"off by {np.nanmax(np.abs(ours.astype(np.float64) - theirs)):.3g}"
