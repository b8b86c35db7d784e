"""`verify` compares a replay with the goldens, and with onnxruntime on fresh inputs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.bundles import programs
from tinyedge.core.errors import DeviceError, InputError
from tinyedge.export.bundle import golden
from tinyedge.export.package.package import write_bundle
from tinyedge.export.verify.verify import verify


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    program = programs.plain()
    return write_bundle(program, tmp_path / "bundle", goldens=programs.goldens(program))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = x + x."""
    shape = [4, 4]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "double",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "model.onnx"
    onnx.save(made, path)
    return path


def wrong(inputs: Mapping[str, Any], entry: str, symbols: Mapping[str, int]) -> dict[str, Any]:
    """Off by 1% of the largest value at one element."""
    outputs = programs.run(inputs, entry, symbols)
    outputs["y"][2, 3] += np.abs(outputs["y"]).max() / 100
    return outputs


def test_goldens_agree_and_differ(bundle: Path) -> None:
    report = verify(bundle, run=programs.run)
    assert report.agrees
    assert [case.reference for case in report.cases] == ["a test", "a test"]
    report = verify(bundle, run=wrong)
    assert not report.agrees
    assert 0.009 < report.cases[0].outputs[0].error < 0.011
    assert "DIFFERS" in str(report)


def test_every_entry_and_feature_is_verified(tmp_path: Path) -> None:
    program = programs.everything()
    path = write_bundle(program, tmp_path / "bundle", goldens=programs.goldens(program))
    report = verify(path, run=programs.run)
    assert [(case.entry, case.agrees) for case in report.cases] == [("main", True), ("again", True)]


def test_against_onnxruntime(bundle: Path, model: Path) -> None:
    pytest.importorskip("onnxruntime")
    report = verify(bundle, against=model, run=programs.run)
    assert report.agrees
    assert report.cases[-1].reference == "onnxruntime"
    assert not verify(bundle, against=model, run=wrong).cases[-1].agrees


def test_fresh_inputs_are_not_the_goldens(bundle: Path, model: Path) -> None:
    pytest.importorskip("onnxruntime")
    seen: list[Any] = []

    def run(inputs: Mapping[str, Any], entry: str, symbols: Mapping[str, int]) -> Any:
        seen.append(inputs["x"])
        return programs.run(inputs, entry, symbols)

    verify(bundle, against=model, run=run)
    assert len({array.tobytes() for array in seen}) == len(seen) == 3


def test_without_onnxruntime(bundle: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match="pip install onnxruntime") as caught:
        verify(bundle, against=model, run=programs.run)
    assert caught.value.id == "verify.onnxruntime"


def test_a_model_that_is_another(bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"no model")
    for path in (damaged, tmp_path / "nowhere.onnx"):
        with pytest.raises(InputError) as caught:
            verify(bundle, against=path, run=programs.run)
        assert caught.value.id == "verify.model"


def test_nothing_to_do_is_an_error(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(DeviceError):
        verify(bundle)
    strip_parens = write_bundle(programs.plain(), tmp_path / "bare")
    with pytest.raises(InputError) as caught:
        verify(strip_parens, run=programs.run)
    assert caught.value.id == "verify.nothing"


def test_a_bundle_with_state_is_not_compared_with_a_model(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = write_bundle(programs.everything(), tmp_path / "state")
    with pytest.raises(InputError) as caught:
        verify(path, against=model, run=programs.run)
    assert caught.value.id == "verify.state"


def test_default_ranges() -> None:
    assert golden.default_range("float16") == (-1, 1)
    assert golden.default_range("int64") == (0, 7)
    assert golden.default_range("uint8") == (0, 255)
    assert golden.default_range("bool") == (0, 1)
