"""What exporters write becomes what the lists say: it passes, or is refused for a reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.exporters import runner
from tests.exporters.runner import EXPORTERS, LISTS, PASSES, TARGETS, Made

QUICK = {
    exporter: [name for name, file in runner.listed(exporter)["files"].items() if file["quick"]]
    for exporter in ("onnxruntime_quantizer", "onnxruntime_optimizer")
}


def test_every_exporter_has_a_list_and_requirements() -> None:
    assert {path.stem for path in LISTS.glob("*.json")} == set(EXPORTERS)
    requirements = {path.stem for path in (LISTS.parent / "requirements").glob("*.txt")}
    assert requirements == set(EXPORTERS.values())


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """Files of onnxruntime's tools as they are installed beside the tests."""
    return {
        exporter: runner.make(exporter, tmp_path_factory.mktemp(exporter), names, sys.executable)
        for exporter, names in QUICK.items()
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("exporter", "name"), [(e, n) for e in QUICK for n in QUICK[e]])
def test_a_few_files_of_onnxruntimes_tools(
    exporter: str,
    name: str,
    target: str,
    quick: dict[str, Made],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    device = request.getfixturevalue(f"{target}_device")
    made = quick[exporter]
    tolerance = made.recipes[name]["tolerance"]
    path = made.folder / f"{name}.onnx"
    assert runner.result(path, target, device, tolerance, tmp_path / "b") == PASSES


@pytest.mark.slow
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_all_files_of_an_exporter(
    exporter: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Made anew in the exporter's environment, on every target of the lists."""
    if not runner.python_of(exporter).exists():
        pytest.fail(
            f"there is no {EXPORTERS[exporter]} in .cache/exporters: run scripts/setup slow"
        )
    stored = runner.listed(exporter)
    made = runner.make(exporter, tmp_path)
    assert made.versions == stored["versions"]
    assert made.failed.keys() == stored["not written"].keys()
    assert made.recipes.keys() - made.failed.keys() == stored["files"].keys()
    wrong = []
    for name, file in stored["files"].items():
        for target in TARGETS:
            said = file["result"][target]
            device = request.getfixturevalue(f"{target}_device")
            path = tmp_path / f"{name}.onnx"
            got = runner.result(path, target, device, file["tolerance"], tmp_path / "b")
            if got != said:
                wrong.append(f"{name} for {target}: {got}, not {said}")
    assert not wrong, "\n".join(wrong)
