"""Three hundred random models on the cpu, some of them on the others; the fuzzer itself."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from onnx import checker

from tests.onnxfuzz import deviations, makers
from tests.onnxfuzz.case import Case, Value
from tests.onnxfuzz.generator import generate
from tests.onnxfuzz.oracle import Oracle, close
from tests.onnxfuzz.session import Tally, session
from tests.onnxfuzz.shrink import shrink
from tinyedge.core.program.device import Device

TOGETHER = 75  # models in one program
MOST_REFUSED = {  # of the models: these test nothing
    "cpu": 0.05,
    "webgpu": 0.15,  # it has no doubles and no 64-bit integers
}


def clean(seeds: range, target: str, device: Device) -> None:
    tally = Tally()
    reports = list(session(seeds, target, device, tally, together=TOGETHER))
    assert not reports, "\n\n".join(reports)
    assert tally.verdicts["refused"] <= MOST_REFUSED[target] * len(seeds), tally.refusals
    assert tally.verdicts["pass"] + tally.verdicts["refused"] == len(seeds)


@pytest.mark.parametrize("first", range(1, 301, TOGETHER))
def test_on_the_cpu(first: int, cpu_device: Device) -> None:
    clean(range(first, first + TOGETHER), "cpu", cpu_device)


def test_on_webgpu(webgpu_device: Device) -> None:
    clean(range(301, 321), "webgpu", webgpu_device)


def test_models_are_reproducible_and_varied() -> None:
    oracle = Oracle()
    cases = [generate(seed, oracle) for seed in range(60)]
    for case in cases[:20]:
        again = generate(int(case.name[1:]), oracle)
        assert again.model().SerializeToString() == case.model().SerializeToString()
        checker.check_model(case.model())
    operators = {node.op_type for case in cases for step in case.steps for node in step.nodes}
    assert len(operators) > 120
    assert sum(case.worlds == 2 for case in cases) > 10
    types = {v[0].array.dtype.name for case in cases for v in case.values.values()}
    assert types >= {"float32", "float64", "float16", "int64", "int8", "uint8", "bool"}


def test_every_maker_makes_a_model() -> None:
    """None is a dead row of the table."""
    oracle = Oracle()
    dead = [
        name
        for name in makers.MAKERS
        if not any(generate(seed, oracle, [name]).steps for seed in range(40))
    ]
    assert not dead


def test_errors_are_seen() -> None:
    value = Value(np.array([1.0, np.nan, np.inf], np.float32), np.full(3, 1e-6))
    assert not close(np.array([1.0000005, np.nan, np.inf], np.float32), value)
    assert "1 of 3" in close(np.array([1.00001, np.nan, np.inf], np.float32), value)
    assert "2 of 3" in close(np.array([1.0, 0.0, -np.inf], np.float32), value)
    assert "float64" in close(value.array.astype(np.float64), value)
    assert "[1, 3]" in close(value.array[None], value)
    exact = Value(np.array([3, -2]))
    assert not close(exact.array, exact) and "for -2" in close(np.array([3, 2]), exact)


def test_chaos_is_no_test() -> None:
    """No result changes by much when inputs change by what rounding changes them."""
    oracle = Oracle()
    for seed in range(40):
        for worlds in generate(seed, oracle).values.values():
            for value in worlds:
                if value.error is not None:
                    finite = np.abs(value.array[np.isfinite(value.array)].astype(float))
                    assert value.error.max(initial=0) <= 0.5 * max(1.0, finite.max(initial=0))


def test_shrinking() -> None:
    """A model that fails when it has a Softmax is shrunk to that node and one number."""
    oracle = Oracle()

    def fails(case: Case) -> bool:
        return any(node.op_type == "Softmax" for step in case.steps for node in step.nodes)

    cases = (generate(seed, oracle) for seed in range(300))
    case = next(c for c in cases if fails(c) and len(c.steps) > 5)
    small = shrink(case, fails, oracle)
    assert [step.operator for step in small.steps] == ["Softmax"]
    (leaf,) = small.leaves
    assert small.values[leaf][0].array.size <= 1


def test_deviations_say_why() -> None:
    assert all(
        known.reason and known.engine in ("onnxruntime", "onnx") for known in deviations.DEVIATIONS
    )


def test_deviations_are_documented() -> None:
    """All are in docs/deviations.md, by the operator's name or among "pools"."""
    page = (Path(__file__).parents[2] / "docs" / "deviations.md").read_text(encoding="utf-8")
    for known in deviations.DEVIATIONS:
        if known.operator != "AveragePool":
            assert re.search(rf"\b{known.operator}\b", page), known.operator
