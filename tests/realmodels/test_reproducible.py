"""The same model exported by two processes, with other hashes of strings: the same bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import models
from tests.realmodels import cases
from tests.realmodels.conftest import Bundles

ROOT = Path(__file__).resolve().parents[2]
FAST = ("pnet", "onet", "magika")


def _digests(bundle: Path) -> dict[str, str]:
    files = (file for file in sorted(bundle.rglob("*")) if file.is_file())
    return {
        str(file.relative_to(bundle)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def _export(model: str, out: Path, seed: int, *more: str) -> dict[str, str]:
    """By the command line."""
    command = [sys.executable, "-m", "tinyedge", "export", str(models.path(model)), "-o", str(out)]
    for name, size in cases.CASES[model].dims.items():
        command += ["--dim", f"{name}={size}"]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    result = subprocess.run(
        [*command, *more], cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return _digests(out)


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=[] if m in FAST else [pytest.mark.slow]) for m in cases.CASES]
)
def test_two_processes(model: str, tmp_path: Path) -> None:
    first, second = (_export(model, tmp_path / str(seed) / "same", seed) for seed in (1, 2))
    assert "manifest.json" in first and any(name.startswith("golden") for name in first)
    assert first == second


def test_symbolic(bundles: Bundles, tmp_path: Path) -> None:
    """One of them this process, with all that it compiled before."""
    before = bundles("pnet", symbolic=True)
    # The name of a bundle is in its package.json.
    again = cases.export("pnet", tmp_path / before.name, symbolic=True)
    assert _digests(again) == _digests(before)
