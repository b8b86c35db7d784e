"""Golden cases of entries that update states: which state differs is said, in every runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tinyedge
from tests.export.hostile import info, model
from tests.export.hostile.build import node
from tinyedge.core.program.device import Device
from tinyedge.core.program.replay import Replay
from tinyedge.export.bundle.golden import Golden, GoldenOutput
from tinyedge.export.bundle.reading import read
from tinyedge.export.package.package import write_bundle
from tinyedge.export.verify.browser import Browser
from tinyedge.export.verify.verify import verify

RANDOM = np.random.default_rng(8)


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    """A softmax, which a number that is added to all of a row does not change."""
    nodes = [
        node("MatMul", ["x", "w"], ["z"]),
        node("Add", ["z", "shift"], ["s"]),
        node("Softmax", ["s"], ["p"]),
        node("Mul", ["p", "scale"], ["y"]),
    ]
    arrays = {
        "w": RANDOM.normal(size=(7, 5)).astype(np.float32),
        "shift": np.full(1, 0.1, np.float32),
        "scale": RANDOM.normal(size=5).astype(np.float32),
    }
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    proto = model(nodes, inputs=[info("x", [9, 7])], outputs=["y"], weights=weights)
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def _export(path: Path, target: str, **more: Any) -> Path:
    options = {"loss": "mse_loss:y", "optimizer": "adam:lr=0.05", "train": "*", **more}
    return tinyedge.export_onnx(path, target=target, out=path.with_suffix(".tinyedge"), **options)


TOLD = {"w", "scale", "adam.step", "adam.mean.w", "adam.square.w", "adam.mean.scale"}


def _train_case(bundle: Path) -> Golden:
    return next(case for case in read(bundle).goldens() if case.entry == "train")


def test_states_agree_on_every_target(scores: Path, target: str, device: Device) -> None:
    """Without what rounding alone makes: the gradient of `shift` is 0."""
    bundle = _export(scores, target)
    report = verify(bundle, device)
    assert report.agrees
    main, train = report.cases
    names = {output.output for output in train.outputs}
    assert names >= {"loss", *(f"state {name}" for name in TOLD)}
    assert not any("shift" in name for name in names)
    assert {output.output for output in main.outputs} == {"y"}
    case = _train_case(bundle)
    assert all(state.data.nbytes <= 4096 for state in case.states)


def test_verify_says_which_state_differs(scores: Path, cpu_device: Device) -> None:
    bundle = _export(scores, "cpu")
    with Replay(read(bundle).program, cpu_device) as replay:

        def get_state(name: str) -> Any:
            value = np.array(replay.get_state(name))
            return value * np.float32(1.001) if name == "adam.square.w" else value

        report = verify(bundle, run=replay.run, reset=replay.reset, get_state=get_state)
    wrong = [output for case in report.cases for output in case.outputs if not output.agrees]
    assert [output.output for output in wrong] == ["state adam.square.w"]
    assert wrong[0].error == pytest.approx(1e-3, rel=0.1)


def _with_wrong(bundle: Path, name: str) -> Path:
    """The bundle with another value of one state in its golden case."""
    opened = read(bundle)
    place = [state.name for state in opened.program.states].index(name)

    def changed(case: Golden) -> Golden:
        states = list(case.states)
        states[place] = GoldenOutput(states[place].stride, states[place].data + np.float32(0.01))
        return replace(case, states=tuple(states))

    goldens = [changed(case) if case.states else case for case in opened.goldens()]
    return write_bundle(opened.program, bundle.with_name("wrong"), goldens=goldens)


def test_in_a_page(scores: Path, browser: Browser) -> None:
    bundle = _export(scores, "webgpu")
    for path, differing in ((bundle, []), (_with_wrong(bundle, "w"), ["state w"])):
        cases: list[Mapping[str, Any]] = browser.verify(path, {})["cases"]
        outputs = [output for case in cases for output in case["outputs"]]
        assert {f"state {name}" for name in TOLD} <= {output["name"] for output in outputs}
        assert [output["name"] for output in outputs if not output["passed"]] == differing


def test_no_states_where_none_is_updated(scores: Path) -> None:
    bundle = _export(scores, "cpu")
    main = next(case for case in read(bundle).goldens() if case.entry == "main")
    assert not main.states
