"""ONNX's own backend tests: every case imported, evaluated by the reference evaluator, compared.

    python -m tests.export.backend [pattern]              # what does not pass, and why
    python -m tests.export.backend --symbolic [pattern]   # the same with symbolic input sizes

Inputs are inputs. Where that is refused because a shape depends on one, the case is tried again
with its small integer inputs (and scalars), then with all inputs, as constants.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, load, numpy_helper

from tinyedge.core.dtype import from_numpy, named
from tinyedge.core.errors import InputError
from tinyedge.core.reference import evaluate
from tinyedge.export.onnx import import_model

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")


@dataclass(frozen=True)
class Outcome:
    """verdict: pass, refused, wrong or crash."""

    name: str
    verdict: str
    detail: str = ""


@dataclass(frozen=True)
class Case:
    name: str
    model: ModelProto
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float


@cache
def cases() -> list[Case]:
    """All cases of the installed onnx package that come with data."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            case for kind in KINDS for test in load_model_tests(kind=kind) for case in _case(test)
        ]


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
        from pathlib import Path

        folder = Path(test.model_dir)
        if not (folder / "model.onnx").exists():
            return
        data = folder / "test_data_set_0"
        inputs, outputs = (
            [_tensor(file) for file in sorted(data.glob(f"{kind}_*.pb"), key=_number)]
            for kind in ("input", "output")
        )
        yield Case(test.name, load(folder / "model.onnx"), inputs, outputs, test.rtol, test.atol)


def _number(path: Any) -> int:
    return int(path.stem.split("_")[-1])


def _tensor(path: Any) -> Any:
    tensor = TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def _value(value: Any) -> Any:
    if hasattr(value, "data_type"):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else value


def run(case: Case, symbolic: bool = False) -> Outcome:
    """One case's outcome; a case passes if it passes in one of the three ways.

    symbolic: input sizes of 2 or more become symbols within 2..64, equal sizes the same one.
    """
    outcome = Outcome(case.name, "refused", "nothing was tried")
    for constant in (_none, _small, _every):
        try:
            problem = _attempt(case, constant, symbolic)
        except InputError as error:
            outcome = Outcome(case.name, "refused", f"{error.subject}: {error.because}")
            continue
        except Exception as error:  # the point of the exercise
            return Outcome(case.name, "crash", f"{type(error).__name__}: {error}")
        return Outcome(case.name, "wrong" if problem else "pass", problem)
    return outcome


def _none(value: Any) -> bool:
    return False


def _small(value: Any) -> bool:
    if not isinstance(value, np.ndarray):
        return False
    return value.size <= 64 if value.dtype.kind in "iub" else value.size <= 8


def _every(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _attempt(case: Case, constant: Any, symbolic: bool) -> str:
    model = ModelProto()
    model.CopyFrom(case.model)
    stored = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input]
    if len(names) != len(case.inputs):
        names = [name for name in names if name not in stored]
    feeds = dict(zip(names, case.inputs, strict=False))
    constants = {name: value for name, value in feeds.items() if constant(value)}
    dims: dict[str, int | str] = {}
    sizes: dict[str, int] = {}
    for value in model.graph.input:
        if value.name not in feeds or value.name in constants:
            continue
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            size = int(np.shape(feeds[value.name])[axis])
            if symbolic and size > 1:
                dim.Clear()
                dim.dim_param = f"n{size}"
                dims[dim.dim_param] = "2..64"
                sizes[dim.dim_param] = size
            elif not dim.HasField("dim_value"):
                dims[f"{value.name}[{axis}]"] = size
    imported = import_model(model.SerializeToString(), constants=constants, dims=dims)
    got = evaluate([tensor.node for tensor in imported.outputs.values()], feeds, sizes)
    for tensor, ours, theirs in zip(imported.outputs.values(), got, case.outputs, strict=True):
        problem = _difference(named(ours, tensor.dtype), np.asarray(theirs), case)
        if problem:
            return problem
    return ""


def _difference(ours: Any, theirs: Any, case: Case) -> str:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype} {ours.shape} instead of {theirs.dtype} {theirs.shape}"
    kind = from_numpy(ours.dtype) if ours.dtype != object else None
    if kind is None or not kind.is_float:
        return "" if np.array_equal(ours, theirs) else "other integers"
    ours, theirs = ours.astype(kind.computed.numpy), theirs.astype(kind.computed.numpy)
    units = {"float16": 2e-3, "bfloat16": 2.0**-6}  # two of the last place
    rtol = max(case.rtol, units.get(kind.name, 0.0))
    if np.allclose(ours, theirs, rtol, max(case.atol, 1e-6), equal_nan=True):
        return ""
    return f"off by {np.nanmax(np.abs(ours.astype(np.float64) - theirs)):.3g}"


def outcomes(pattern: str = "", *, symbolic: bool = False, every: int = 1) -> list[Outcome]:
    """Every so many of the cases whose name has the pattern in it."""
    chosen = [case for case in cases() if re.search(pattern, case.name)][::every]
    with np.errstate(all="ignore"):
        return [run(case, symbolic) for case in chosen]


def main() -> None:
    arguments = [a for a in sys.argv[1:] if a != "--symbolic"]
    found = outcomes(*arguments[:1], symbolic="--symbolic" in sys.argv)
    for outcome in found:
        if outcome.verdict != "pass":
            print(f"{outcome.verdict:8} {outcome.name}: {outcome.detail.splitlines()[0]}")
    for verdict in ("pass", "refused", "wrong", "crash"):
        print(f"{verdict:8} {sum(outcome.verdict == verdict for outcome in found)}")


if __name__ == "__main__":
    main()
