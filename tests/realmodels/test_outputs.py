"""Every model by every runtime, against onnxruntime: fixed sizes, symbolic sizes, half storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.realmodels import cases, facts
from tests.realmodels.conftest import Bundles, Run
from tests.realmodels.inputs import Arrays

PLACES = ("cpu", "wgpu", "chromium", "cuda", "qcom")
COMPATIBILITY = "compatibility"  # Chromium, on an adapter of that mode
TARGETS = dict.fromkeys(("wgpu", "chromium", COMPATIBILITY), "webgpu")  # others are of their name

# In every test run; the others are slow.
FAST: dict[str, tuple[str, ...]] = {
    "pnet": PLACES,
    "rnet": ("cpu", "chromium", "cuda"),
    "onet": ("cpu", "chromium", "cuda", COMPATIBILITY),
    "opennsfw": ("cpu", "chromium"),
    "magika": ("cpu", "chromium", "cuda"),
    "ocr_rec": ("cpu",),
    "minilm": ("cpu", "cuda"),
    "swift_f0": ("cpu",),
    "ocr_det": ("cpu",),
    "common_det": ("cpu",),
}
FAST_QCOM = ("pnet", "rnet", "magika")
FAST_HALF: dict[str, tuple[str, ...]] = {"minilm": ("cuda",)}
FAST_SYMBOLIC: dict[str, tuple[str, ...]] = {"pnet": PLACES, "minilm": ("cpu",)}


def _parameters(
    models: Iterable[str],
    fast: Mapping[str, tuple[str, ...]],
    places: tuple[str, ...] = PLACES,
) -> list[Any]:
    return [
        pytest.param(model, place, id=f"{model}-{place}", marks=_marks(model, place, fast))
        for model in models
        for place in places
    ]


def _marks(model: str, place: str, fast: Mapping[str, tuple[str, ...]]) -> list[Any]:
    marks = [pytest.mark.browser] if place in ("chromium", COMPATIBILITY) else []
    return marks if place in fast.get(model, ()) else [*marks, pytest.mark.slow]


def _agree(actual: Arrays, model: str, size: tuple[int, ...] | None, tolerance: float) -> None:
    errors = cases.errors(actual, cases.expected(model, size))
    assert all(error <= tolerance for error in errors.values()), (size, errors)


@pytest.mark.parametrize(
    ("model", "place"), _parameters(cases.CASES, FAST, (*PLACES, COMPATIBILITY))
)
def test_fixed_sizes(model: str, place: str, bundles: Bundles, run: Run) -> None:
    bundle = bundles(model, TARGETS.get(place, place))
    (first, again), stats = run(bundle, [cases.feeds(model)] * 2)
    _agree(first, model, None, cases.TOLERANCE)
    for name, array in first.items():
        assert again[name].tobytes() == array.tobytes(), "two runs, the same bits"
    if stats:
        _nothing_is_made_per_run(stats, facts.read(bundle), 2)


@pytest.mark.parametrize(("model", "place"), _parameters(cases.SYMBOLIC, FAST_SYMBOLIC))
def test_symbolic_sizes(model: str, place: str, bundles: Bundles, run: Run) -> None:
    sizes = cases.SYMBOLIC[model].sizes
    bundle = bundles(model, TARGETS.get(place, place), symbolic=True)
    outputs, stats = run(bundle, [cases.feeds(model, size) for size in sizes])
    for size, output in zip(sizes, outputs, strict=True):
        _agree(output, model, size, cases.TOLERANCE)
    if stats:
        _nothing_is_made_per_run(stats, facts.read(bundle), len(sizes))
        assert stats["uniformWrites"] == 1 + sum(a != b for a, b in pairwise(sizes))


def _nothing_is_made_per_run(stats: dict[str, Any], found: facts.Facts, runs: int) -> None:
    """A pipeline for each kernel, a bind group for each launch, however many runs."""
    assert stats["pipelines"] == found.kernels
    assert stats["bindGroups"] <= found.launches
    assert stats["launches"] == runs * found.launches
    assert stats["submits"] == stats["passes"] == runs


@pytest.mark.parametrize(
    ("model", "place"), _parameters(cases.HALF, FAST_HALF, ("wgpu", "chromium", "cuda"))
)
def test_half_storage(model: str, place: str, bundles: Bundles, run: Run) -> None:
    bundle = bundles(model, TARGETS.get(place, place), precision="fp16")
    (output,), _ = run(bundle, [cases.feeds(model)])
    _agree(output, model, None, cases.HALF[model])
    assert _bytes(bundle, "weights") < 0.55 * _bytes(bundles(model), "weights")


@pytest.mark.parametrize("profile", ["default", "buffers"])
@pytest.mark.parametrize(
    ("model", "place"), _parameters(cases.CASES, dict.fromkeys(FAST_QCOM, ("qcom",)), ("qcom",))
)
def test_as_qcom_is_exported(
    model: str, profile: str, place: str, bundles: Bundles, run: Run
) -> None:
    """Halves in memory, as images or buffers; the same bits in every run."""
    bundle = bundles(model, place, precision=None, profile=profile)
    (first, again), _ = run(bundle, [cases.feeds(model)] * 2)
    _agree(first, model, None, cases.HALF_TOLERANCE)
    for name, array in first.items():
        assert again[name].tobytes() == array.tobytes(), "two runs, the same bits"


def _bytes(bundle: Path, kind: str) -> int:
    return sum(file.stat().st_size for file in bundle.glob(f"{kind}*"))
