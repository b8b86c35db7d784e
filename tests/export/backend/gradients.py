"""Gradients of ONNX's cases beside differences of their values, in doubles.

A case's outputs of floats are weighed by fixed numbers and added up; the derivative of that along a
random direction of all inputs of floats is compared with a central difference. Inputs are moved a
little first, so that no element is at a corner or equal to another.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.export.backend.cases import Case, imported
from tests.export.backend.runner import Outcome
from tinyedge.core import dtype as dt
from tinyedge.core.compiler.decompose import retype
from tinyedge.core.errors import InputError
from tinyedge.core.gradient.reverse import pull_back
from tinyedge.core.ir import ops
from tinyedge.core.ir.reference import evaluate
from tinyedge.core.ir.uop import UOp, toposort
from tinyedge.core.tensor.tensor import Tensor

DOUBLES = {"float32": "float64", "float16": "float64"}
STEPS = (1e-5, 1e-6, 1e-7)
TOLERANCE = 1e-3  # of the derivative
LARGEST = 1e15
MOVED = 1e-3  # of an input's greatest value

Array = Any


def outcome(case: Case) -> Outcome:
    """ "pass" where the gradient agrees; "refused" where there is none, with the reason."""
    try:
        verdict, detail = _compared(case)
    except InputError as error:
        verdict, detail = "refused", f"not imported: {error.because}"
    except Exception as error:
        verdict, detail = "crash", f"{type(error).__name__}: {error}"
    return Outcome(case.name, verdict, detail)


FILE = Path(__file__).with_name("gradients.json")


def listed() -> dict[str, str]:
    """The cases that have no gradient to compare, with the reason."""
    found: dict[str, str] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def save(outcomes: Sequence[Outcome]) -> None:
    """Write that list anew."""
    lines = {o.name: o.detail for o in outcomes if o.verdict == "refused"}
    text = json.dumps(lines, indent=0, sort_keys=True, ensure_ascii=False)
    FILE.write_text(text + "\n", encoding="utf-8")


def _compared(case: Case) -> tuple[str, str]:
    found = imported(case)
    graph = found.graph
    ports = [p for p in graph.outputs if p.node is not None and _differs(p.dtype)]
    if not ports:
        return "refused", "no output of floats"
    if found.sizes or graph.counts:
        return "refused", "sizes that only a run knows"
    roots = tuple(port.node for port in ports if port.node is not None)
    done = retype(roots, DOUBLES)
    roots = tuple(done[root] for root in roots)
    order = toposort(roots)
    inputs = {n.arg.source.name: n for n in order if _is_input(n)}
    wrt = {name: node for name, node in inputs.items() if node.dtype.is_float}
    wrt = {name: node for name, node in wrt.items() if 0 not in node.shape}
    if not wrt:
        return "refused", "no input of floats"
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    feeds = {n: _moved(inputs.get(n), value, rng) for n, value in found.read.items()}
    if any(np.abs(feeds[name]).max() > LARGEST for name in wrt):
        return "refused", "inputs so large that no difference of them shows"
    loss = _weighed(roots, feeds, rng)
    if loss is None:
        return "refused", "values that are not finite"
    back = pull_back([loss], [Tensor.full((), 1, dt.float64)], [*map(Tensor, wrt.values())])
    along = {name: rng.normal(size=feeds[name].shape) for name in wrt}
    gradients = evaluate([g.node for g in back.gradients], feeds)
    ours = sum(float((g * along[n]).sum()) for n, g in zip(wrt, gradients, strict=True))
    if not np.isfinite(ours):
        return "wrong", f"the gradient is {ours}"
    nearest = min(
        (_difference(loss, feeds, along, step) for step in STEPS),
        key=lambda value: abs(value - ours),
    )
    if abs(nearest - ours) <= TOLERANCE * max(0.1, abs(nearest), abs(ours)):
        return "pass", ""
    if any(node.op is ops.BITCAST and node.dtype.is_float for node in order):
        return "refused", "numbers that are made of bits"
    return "wrong", f"{ours:.6g} where the values say {nearest:.6g}"


def _differs(dtype: dt.DType) -> bool:
    return dtype.is_float and not dtype.storage_type


def _is_input(node: UOp) -> bool:
    return node.op is ops.BUFFER and node.arg.source.kind == "input"


def _moved(node: UOp | None, value: Array, rng: np.random.Generator) -> Array:
    if node is None or not node.dtype.is_float:
        return value
    array = np.asarray(value).astype(node.dtype.numpy)
    most = np.abs(array[np.isfinite(array)]).max(initial=0.01)
    return array + rng.normal(size=array.shape) * MOVED * most


def _weighed(
    roots: Sequence[UOp], feeds: Mapping[str, Array], rng: np.random.Generator
) -> Tensor | None:
    """The sum of all finite outputs, each element times a number."""
    total: Tensor | None = None
    for root, value in zip(roots, evaluate(roots, feeds), strict=True):
        weights = rng.normal(size=value.shape)
        if np.isfinite(value).all() and value.size:
            weighed = Tensor(root).cast(dt.float64) * Tensor(weights)
            total = weighed.sum() if total is None else total + weighed.sum()
    return total


def _difference(
    loss: Tensor, feeds: Mapping[str, Array], along: Mapping[str, Array], step: float
) -> float:
    values = []
    for sign in (1, -1):
        moved = {name: feeds[name] + sign * step * d for name, d in along.items()}
        values.append(float(evaluate([loss.node], {**feeds, **moved})[0]))
    return (values[0] - values[1]) / (2 * step)
