"""The JS runtime in a real browser: every kind of program, through a bundle on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.targets import programs
from tinyedge.core.program import Program
from tinyedge.export import golden
from tinyedge.export.browser import Browser, BrowserRunError
from tinyedge.export.package import write_bundle

pytestmark = pytest.mark.browser

TARGET = "webgpu"


def write(program: Program, folder: Path, **options: Any) -> Path:
    return write_bundle(program, folder / "model.tinyedge", **options)


def ramp(*shape: int) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def test_addition(browser: Browser, tmp_path: Path) -> None:
    bundle = write(programs.addition(TARGET), tmp_path)
    a, b = ramp(4, 64), 1000 * ramp(4, 64)
    outputs, stats = browser.run_in_page(bundle, {"a": a, "b:0": b})
    expected = a + b + ramp(4, 64)
    np.testing.assert_array_equal(outputs["c"], expected)
    np.testing.assert_array_equal(outputs["half"], expected[2:])
    assert stats["launches"] == stats["pipelines"] == stats["bindGroups"] == 1
    assert stats["bytesFetched"] == sum(
        (bundle / name).stat().st_size
        for name in ("manifest.json", "kernels.wgsl", "weights-00000.bin")
    )
