"""ONNX's backend tests do exactly what the committed list says, on every target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.export.backend import front
from tests.export.backend.cases import Case, cases
from tests.export.backend.expectations import Expectations, load
from tests.export.backend.runner import (
    Outcome,
    Run,
    by_reference,
    choose,
    compiled,
    in_browser,
    on_device,
)
from tinyedge.core.program.device import Device
from tinyedge.export.verify.browser import Browser

pytest.importorskip("onnx", "1.23")
pytestmark = pytest.mark.filterwarnings("ignore")

LISTED = load()
PASSES = {"cpu": 1960, "cuda": 1960, "webgpu": 1950, "chromium": 1950, "qcom": 1950}  # at least

# Which of the cases: the first, and every so many from there on.
EVERY_SIXTEENTH = {"webgpu": (0, 16), "qcom": (8, 16), "cuda": (12, 16)}


def test_the_list_is_whole() -> None:
    """No case is missing, and none is expected to be wrong; as many pass as were promised."""
    texts = [LISTED.of(case, place) for case in LISTED.cases for place in ("reference", *PASSES)]
    assert all(text.split(":")[0] in ("pass", "refused") for text in texts)
    for place, least in PASSES.items():
        found = [LISTED.of(case, place).startswith("pass") for case in LISTED.cases]
        assert sum(found) >= least, place
    if LISTED.onnx == onnx.__version__:
        assert set(LISTED.cases) == {case.name for case in cases()}


def test_by_the_reference_evaluator() -> None:
    _as_listed("reference", by_reference(choose()))


def test_with_symbolic_sizes() -> None:
    """Every fourth case: refused, or right."""
    found = list(by_reference(choose(every=4), symbolic=True))
    bad = [outcome for outcome in found if outcome.verdict not in ("pass", "refused")]
    assert not bad, bad[:10]
    assert sum(outcome.verdict == "pass" for outcome in found) >= 300


def test_on_the_cpu(cpu_device: Device) -> None:
    _compiled("cpu", on_device(cpu_device))


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_on_webgpu(whole: bool, webgpu_device: Device) -> None:
    _compiled("webgpu", on_device(webgpu_device), whole)


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_on_qcom(whole: bool, qcom_device: Device) -> None:
    _compiled("qcom", on_device(qcom_device), whole)


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_on_cuda(whole: bool, cuda_device: Device) -> None:
    _compiled("cuda", on_device(cuda_device), whole)


@pytest.mark.slow
@pytest.mark.browser
def test_in_chromium(browser: Browser, tmp_path: Path) -> None:
    _compiled("chromium", in_browser(browser, tmp_path))


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", ["cpu", "webgpu"])
def test_through_the_front_door(target: str, whole: bool) -> None:
    """Exported, loaded and run alone; of every operator on integers one, the widest."""
    chosen = choose() if whole else [*_on_integers(), *choose(first=50, every=101)]
    _as_listed(target, front.outcomes(chosen, target))


@pytest.mark.parametrize("target", ["cpu", "webgpu"])
def test_through_the_command_line(target: str) -> None:
    chosen = choose("pow_types_int64_int64|qlinearconv|test_add_bcast$|test_softmax_axis_0$|top_k$")
    assert len(chosen) == 5
    _as_listed(target, front.outcomes(chosen, target, "commands"))


def test_what_hangs_or_grows_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that takes too long ends its process, and those after it are done by another."""
    monkeypatch.setenv(front.PATIENCE, "0.001")
    found = list(front.outcomes(choose("test_add_bcast$|test_ceil_"), "cpu"))
    assert [outcome.verdict for outcome in found] == ["crash"] * 2


def _on_integers() -> list[Case]:
    """For each operator a case that takes and gives integers, of the widest types."""
    widest: dict[str, tuple[int, Case]] = {}
    for case in choose():
        arrays = [value for value in (*case.inputs, *case.outputs) if isinstance(value, np.ndarray)]
        nodes = case.model.graph.node
        if len(nodes) == 1 and all(array.dtype.kind in "iu" for array in arrays):
            width = max((array.itemsize for array in arrays), default=0)
            best, _ = widest.get(nodes[0].op_type, (0, case))
            if width > best:
                widest[nodes[0].op_type] = width, case
    return [case for _, case in widest.values()]


def _compiled(place: str, run: Run, whole: bool = True) -> None:
    first, every = (0, 1) if whole else EVERY_SIXTEENTH[place]
    chosen = choose(first=first, every=every)
    refused = {c.name for c in chosen if not LISTED.of(c.name, place).startswith("pass")}
    _as_listed(place, compiled(chosen, place.replace("chromium", "webgpu"), run, refused))


def _as_listed(place: str, outcomes: Iterator[Outcome]) -> None:
    found = LISTED.differences(place, outcomes)
    command = "if that is right: python -m tests.export.backend --update"
    assert not found, "\n".join([f"{len(found)} cases; {command}", *found[:20]])


def test_the_list_itself(tmp_path: Path) -> None:
    """Places are said where they differ; what is written is read; any change is a difference."""
    listed = Expectations()
    good, bad = Outcome("a", "pass"), Outcome("a", "refused", "no doubles")
    for place in ("reference", "cpu", "webgpu", "qcom"):
        listed.update(place, [good, Outcome("b", "pass", "small inputs are constants")])
    listed.update("webgpu", [bad])
    assert listed.cases["a"] == {"reference": "pass", "webgpu": "refused: no doubles"}
    assert set(listed.cases["b"]) == {"reference"}
    assert listed.of("a", "chromium") == str(bad) and listed.of("a", "qcom") == "pass"
    listed.save(["a", "b"], tmp_path / "list.json")
    assert load(tmp_path / "list.json") == listed
    assert not listed.differences("webgpu", [bad])
    for other in (good, Outcome("a", "refused", "no halves"), Outcome("a", "wrong", "off by 1")):
        assert listed.differences("webgpu", [other])
    assert listed.differences("cpu", [Outcome("c", "pass")])
    listed.onnx = "0"
    assert not listed.differences("webgpu", [good, Outcome("c", "pass")])
    assert listed.differences("webgpu", [Outcome("a", "crash", "a bug")])
    listed.update("webgpu", [good])
    assert listed.cases["a"] == {"reference": "pass"}
