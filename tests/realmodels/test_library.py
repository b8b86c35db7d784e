"""The models of `library` on every target, against onnxruntime; what of them is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.imported import import_model
from tests.realmodels import cases, library, training, weights
from tests.realmodels.conftest import Run
from tests.realmodels.inputs import Arrays

PLACES = ("cpu", "wgpu", "qcom", "cuda")
TARGETS = {"wgpu": "webgpu"}  # elsewhere: as the place is called

# In every test run; the others are slow.
FAST: dict[str, tuple[str, ...]] = {
    "silero": ("cpu", "wgpu"),
    "silero.8k": ("cpu",),
    "silero_ifless": ("cpu",),
    "silero_16k": ("cpu",),
    "silero_half": ("cpu",),
    "silero_openvino": ("cpu",),
    "common_old": ("cpu",),
    "smart_turn": ("cpu",),
    "vit.dynamo": ("cpu",),
    "gpt.traced": ("cpu",),
    "unet.dynamo": ("cpu",),
    "detector.traced": ("cpu",),
    "detector.dynamo": ("cpu",),
    "bvlc_alexnet": ("cpu",),
    "densenet121": ("cpu",),
    "inception_v1": ("cpu",),
    "inception_v2": ("cpu",),
    "resnet50": ("cpu",),
    "shufflenet": ("cpu",),
    "squeezenet": ("cpu",),
}
FAST_SYMBOLIC: dict[str, tuple[str, ...]] = {
    "silero_sequence": ("cpu",),
    "common": ("cpu",),
    "tagger.traced": ("cpu",),
    "tagger.dynamo": ("cpu",),
    "vit.traced": ("cpu",),
    "gpt.dynamo": ("cpu",),
    "unet.traced": ("cpu",),
    "packed_gru.traced": ("cpu", "wgpu"),
}

Files = Callable[[str], Path]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The file of a model; written where its weights are drawn."""
    folder = tmp_path_factory.mktemp("library")
    made: dict[str, Path] = {}

    def file(name: str) -> Path:
        if name not in made:
            model = library.ENTRIES[name].load()
            if not isinstance(model, Path):
                onnx.save(model, folder / f"{name}.onnx")
                model = folder / f"{name}.onnx"
            made[name] = model
        return made[name]

    return file


def _parameters(names: Iterable[str], fast: Mapping[str, tuple[str, ...]]) -> list[Any]:
    return [
        pytest.param(
            name,
            place,
            id=f"{name}-{place}",
            marks=[] if place in fast.get(name, ()) else [pytest.mark.slow],
        )
        for name in names
        for place in PLACES
    ]


def _agree(actual: Arrays, right: Arrays, name: str) -> None:
    """Outputs whose size a run finds come with its count."""
    entry = library.ENTRIES[name]
    counts = {key for key in actual if key.removesuffix(".count") in right} - set(right)
    errors = cases.errors({k: a for k, a in actual.items() if k not in counts}, right)
    assert all(error <= entry.tolerance for error in errors.values()), errors
    if entry.chosen:
        best = [each[entry.chosen].argmax(-1) for each in (actual, right)]
        np.testing.assert_array_equal(*best)


@pytest.mark.parametrize(("name", "place"), _parameters(library.ENTRIES, FAST))
def test_runs(name: str, place: str, files: Files, run: Run, tmp_path: Path) -> None:
    """Also one after the other, where states are kept; and again from the start, the same bits."""
    file = files(name)
    bundle = library.export(name, file, tmp_path / "b", target=TARGETS.get(place, place))
    runs = library.feeds(name)
    outputs, _ = run(bundle, runs)
    again, _ = run(bundle, runs)
    for got, same, right in zip(outputs, again, library.expected(name, file), strict=True):
        _agree(got, right, name)
        assert all(got[key].tobytes() == same[key].tobytes() for key in got)


@pytest.mark.parametrize(("name", "place"), _parameters(library.SYMBOLIC, FAST_SYMBOLIC))
def test_symbolic_sizes(name: str, place: str, files: Files, run: Run, tmp_path: Path) -> None:
    file = files(name)
    target = TARGETS.get(place, place)
    bundle = library.export(name, file, tmp_path / "b", target=target, symbolic=True)
    sizes = library.SYMBOLIC[name].sizes
    outputs, _ = run(bundle, [arrays for size in sizes for arrays in library.feeds(name, size)])
    for size, got in zip(sizes, outputs, strict=True):
        _agree(got, library.expected(name, file, size)[0], name)


@pytest.mark.parametrize("name", library.ENTRIES)
def test_import(name: str, files: Files) -> None:
    """All of a model; a topology of the onnx wheel as it lies there, without weights."""
    entry = library.ENTRIES[name]
    drawn = name in weights.names()
    source = weights.TOPOLOGIES / f"light_{name}.onnx" if drawn else files(name)
    model = import_model(source, dims=entry.dims, constants=entry.constants)
    assert not model.symbols
    declared = [value.name for value in onnx.load(source).graph.output]
    assert list(model.outputs) == declared


def test_reasons_why_models_are_not_trained() -> None:
    """Those that are listed are told in the documentation, and hold as long as they are true."""
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    table = text.partition("### Measured on real models")[2]
    for key, reason in training.LISTED.items():
        name, _, target = key.partition(" on ")
        assert name in training.names() and name.partition(".")[0] in table, name
        assert training.judged(name, target, reason.failure)[0]
        assert not training.judged(name, target, "")[0]
        assert not training.judged(name, target, "step")[0]
    assert training.judged("rnet", "cpu", "")[0]
    assert not training.judged("rnet", "cpu", "derivative")[0]
