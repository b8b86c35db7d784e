"""One suite for every target, optimized and not: each case agrees with the reference evaluator."""

from __future__ import annotations

import importlib

import pytest

from tests.agreement import Inputs, Tolerance, disagreement, reference, run
from tests.conformance.cases import FAMILIES, Limits
from tinyedge.core.compiler.options import Options
from tinyedge.core.errors import TinyedgeError
from tinyedge.core.program.device import Device
from tinyedge.core.tensor.tensor import Tensor

NARROW = (
    "bitcasts",
    "stored_types",
    "stored_bitcasts",
)  # families whose reference is not computed in double precision


def limitations(target: str) -> Limits:
    """What the target declares that it cannot do, with reasons."""
    found: Limits = importlib.import_module(f"tinyedge.targets.{target}.caps").LIMITATIONS
    return found


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
@pytest.mark.parametrize("name", FAMILIES)
def test_conformance(name: str, optimize: bool, target: str, device: Device) -> None:
    _assert_agreement(name, target, device, Options(optimize=optimize))


@pytest.mark.parametrize("name", FAMILIES)
def test_kernels_of_reference_values(name: str, cpu_device: Device) -> None:
    _assert_agreement(name, "cpu", cpu_device, Options(optimize=False, fp64_reference=True))


def _assert_agreement(name: str, target: str, device: Device, options: Options) -> None:
    inputs = Inputs()
    cases = list(FAMILIES[name](inputs, limitations(target)))
    if options.fp64_reference:  # which stores doubles as float32
        cases = [case for case in cases if "float64" not in case[0]]
    tensors = {label: tensor for label, tensor, _ in cases}
    tolerances = {label: tolerance for label, _, tolerance in cases}
    assert len(tensors) == len(cases), "two cases have one name"
    expected = reference(tensors, inputs, fp64_reference=name not in NARROW)
    try:
        actual = run(tensors, inputs, target, device, options)
    except (TinyedgeError, AssertionError, ValueError, KeyError):
        _blame(tensors, inputs, target, device, options)
        raise
    found = []
    for label, array in expected.items():
        why = disagreement(actual[label], array, tolerances[label])
        if why:
            found.append(f"{label}: {why}")
    assert not found, "\n" + "\n".join(found)


def _blame(
    tensors: dict[str, Tensor], inputs: Inputs, target: str, device: Device, options: Options
) -> None:
    """Run each case alone, to name those that do not compile or run."""
    wrong = []
    for label, tensor in tensors.items():
        try:
            run({label: tensor}, inputs, target, device, options)
        except Exception as error:
            wrong.append(f"{label}: {type(error).__name__}: {str(error)[:400]}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_limitations_have_reasons(target: str) -> None:
    for name, reason in limitations(target).items():
        assert name.isidentifier() and len(reason) > 20, name


def test_tolerance() -> None:
    """The comparison itself: what agrees and what does not."""
    import numpy as np

    a = np.array([1.0, np.nan, np.inf, 1000.0], np.float32)
    assert not disagreement(a, a.copy())
    for position, value in [(0, 1.2), (1, 0.0), (2, -np.inf), (2, 3e38), (3, np.nan)]:
        b = a.copy()
        b[position] = value
        assert disagreement(b, a), (position, value)
    near = a + np.array([0.05, 0, 0, 0.05], np.float32)
    assert not disagreement(near, a)
    assert disagreement(near, a, Tolerance(each=1e-4, greatest=0))
    assert disagreement(a.astype(np.float64), a)
    assert disagreement(a[:2], a)
    one = np.array([1], np.int32)
    assert disagreement(one + 1, one)
