"""ONNX's backend tests: never silently wrong, never a crash, and no fewer passes than before."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.export.backend import outcomes

pytest.importorskip("onnx", "1.23")
PASSES = 1904  # of 2024 in onnx 1.23.2; the rest are refused by name


@pytest.mark.filterwarnings("ignore")
def test_onnx_backend_cases() -> None:
    found = outcomes()
    bad = [outcome for outcome in found if outcome.verdict in ("wrong", "crash")]
    assert not bad, bad[:10]
    assert Counter(outcome.verdict for outcome in found)["pass"] >= PASSES


@pytest.mark.filterwarnings("ignore")
def test_onnx_backend_cases_with_symbolic_sizes() -> None:
    """Every fourth case: refused, or right."""
    found = outcomes(symbolic=True, every=4)
    bad = [outcome for outcome in found if outcome.verdict in ("wrong", "crash")]
    assert not bad, bad[:10]
    assert Counter(outcome.verdict for outcome in found)["pass"] >= 300
