"""Constants computed at export are weights with a name, as the bundle's format wants them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

import tinyedge
from tests.export.hostile import info, model, node


def _weight(name: str, *shape: int) -> object:
    values = np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32)
    return numpy_helper.from_array(values, name)


CASES: dict[str, ModelProto] = {
    "recurrence": model(
        [node("RNN", ["x", "w", "r", "b"], hidden_size=8)],
        inputs=[info("x", [3, 1, 4])],
        weights=[_weight("w", 1, 8, 4), _weight("r", 1, 8, 8), _weight("b", 1, 16)],  # type: ignore[list-item]
    ),
    "beyond what the importer folds": model(
        [node("MatMul", ["w", "r"], ["a"]), node("Add", ["x", "a"])],
        inputs=[info("x", [700, 700])],
        weights=[_weight("w", 700, 700), _weight("r", 700, 700)],  # type: ignore[list-item]
    ),
}


@pytest.mark.parametrize("target", ["cpu", "webgpu", "qcom"])
@pytest.mark.parametrize("name", CASES)
def test_it_exports(name: str, target: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(CASES[name].SerializeToString())
    out = tinyedge.export_onnx(path, target=target, out=tmp_path / "m.tinyedge", golden=False)
    assert (out / "manifest.json").exists()
