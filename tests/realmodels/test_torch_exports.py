"""Torch's exporters run anew: they write the graphs that are stored, and their weights work too."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.exporters import runner
from tests.realmodels import cases, library, weights
from tests.realmodels.conftest import Run

STORED = sorted(path.stem for path in weights.EXPORTS.glob("*.onnx"))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the networks of `tests/exporters/torch_files.py`."""
    if not runner.python_of("torch_files").exists():
        pytest.fail("there is no torch in .cache/exporters: run scripts/setup slow")
    made = runner.make("torch_files", tmp_path_factory.mktemp("exports"), STORED)
    assert not made.failed
    return made.folder


def test_the_stored_graphs_are_torchs(exports: Path) -> None:
    assert [path.stem for path in sorted(exports.glob("*.onnx"))] == STORED
    for name in STORED:
        fresh = weights.without(onnx.load(exports / f"{name}.onnx")).SerializeToString()
        assert fresh == (weights.EXPORTS / f"{name}.onnx").read_bytes(), name


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("place", ["cpu"])
def test_its_own_weights(name: str, exports: Path, run: Run, tmp_path: Path) -> None:
    file = exports / f"{name}.onnx"
    outputs, _ = run(library.export(name, file, tmp_path / "b", target="cpu"), library.feeds(name))
    (right,) = library.expected(name, file)
    errors = cases.errors({key: outputs[0][key] for key in right}, right)
    assert all(error <= library.TOLERANCE for error in errors.values()), errors
