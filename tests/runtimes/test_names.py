"""Names that mean something to JavaScript or HTML, in a real browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tinyedge
from tests.names import ROLES, counters, named_model
from tinyedge.export.verify.browser import Browser

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("turn", range(ROLES))
def test_names_of_inputs_and_outputs(turn: int, browser: Browser, tmp_path: Path) -> None:
    model, feeds, right = named_model(turn)
    onnx.save(model, tmp_path / "m.onnx")
    bundle = tinyedge.export_onnx(tmp_path / "m.onnx", target="webgpu", out=tmp_path / "b")
    found, _ = browser.run_in_page(bundle, feeds)
    assert set(found) == set(right)
    for name, value in right.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    report = browser.verify(bundle)
    assert report["passed"]


def test_names_of_states_and_entries(browser: Browser, tmp_path: Path) -> None:
    words, bundle = counters(tmp_path, "webgpu")
    feeds = [{f"var {word}": np.array([1, 2], np.float32)} for word in words] * 2
    found, stats = browser.run_in_page(bundle, feeds, entry=["main", *words[1:]] * 2)
    for number, outputs in enumerate(found):
        word, run = words[number % len(words)], number // len(words) + 1
        np.testing.assert_array_equal(outputs[f"new {word}"], [run, 2 * run])
    assert set(stats["states"]) == set(words)
    assert all(state.tolist() == [2, 4] for state in stats["states"].values())
