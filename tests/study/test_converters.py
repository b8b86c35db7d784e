"""What other programs make of a model is asked for once, and says why there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.bench.worker import SideError
from tests.exporters.networks import Network
from tests.study import converters, operations


def test_a_model_that_is_not_converted_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: the next time what the converter said is read again."""
    case = operations.matmul(70)
    onnx.save(case.make(), tmp_path / "m.onnx")
    folder = tmp_path / "environments" / "some"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").touch()
    monkeypatch.setattr(converters, "ENVIRONMENTS", folder.parent)
    asked: list[Path] = []

    def convert(folder: Path, _: Any) -> Any:
        asked.append(folder)
        return subprocess.CompletedProcess((), 7, "Error: no Conv\na last word\n")

    refusing = converters.Converter("made", convert)
    for _ in range(2):
        with pytest.raises(SideError, match="ended with 7: Error: no Conv"):
            refusing("some", tmp_path / "m.onnx", case.arrays(), tmp_path / "kept")
    assert len(asked) == 1

    def late(folder: Path, _: Any) -> Any:
        asked.append(folder)
        raise subprocess.TimeoutExpired("convert", converters.PATIENCE)

    for _ in range(2):  # of a busy machine, perhaps: not kept
        with pytest.raises(SideError, match="not converted after 600 s"):
            converters.Converter("other", late)("some", tmp_path / "m.onnx", {}, tmp_path / "late")
    assert len(asked) == 3


def test_sizes_are_written_into_a_model_that_is_converted(tmp_path: Path) -> None:
    net = Network("any", 17)
    onnx.save(net.model({net.node("Relu", net.input("x", ["n", 3])): ["n", 3]}), tmp_path / "m")
    text = converters.fixed(tmp_path / "m", {"x": np.zeros((5, 3), np.float32)})
    (port,) = onnx.load_from_string(text).graph.input
    assert [dim.dim_value for dim in port.type.tensor_type.shape.dim] == [5, 3]
