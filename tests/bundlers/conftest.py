"""The model of the pages that bundlers build."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tinyedge
from tests.bundlers.test_bundlers import WEIGHTS


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x + w by its entry, with weights beyond what bundlers write into their scripts."""
    return tinyedge.export_function(
        lambda x: {"y": x + tinyedge.Tensor(WEIGHTS).sum(0)},
        {"x": np.zeros(4, np.float32)},
        target="webgpu",
        fallback="wasm",
        out=tmp_path_factory.mktemp("model") / "My Model.tinyedge",
    )
