"""The qcom target's variants, and its other engines.

Intel's runtime has images over buffers; oclgrind checks every access.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import opencl
from tests.targets import checked
from tinyedge.core.compiler.options import Options
from tinyedge.core.program.device import Device

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
CHECKED = ("-m", "tests.targets.checked")

# Not "local": version 2026.2 mixes up the threads where a value that depends on a thread is used on
# both sides of a barrier. It is right without its optimizations, and so are the other engines.
INTEL_PROFILES = ("default", "buffers")


def name_of(options: Options) -> str:
    plain = "" if options.optimize else "-plain"
    return f"{options.profile}-{options.precision}{plain}"


@pytest.mark.parametrize("options", checked.OPTIONS, ids=name_of)
def test_variants(options: Options, qcom_device: Device) -> None:
    """Images and buffers, with workgroup memory and without, floats and halves."""
    checked.check(options, qcom_device)


def test_intel(tmp_path: Path) -> None:
    """The device, some families and the variants; images are views of buffers."""
    files = ("tests/targets/test_devices.py", "tests/targets/test_qcom_device.py")
    chosen = "qcom and (device or ((convolutions or pooling or rows) and optimized))"
    environment = opencl.intel_environment(tmp_path)
    opencl.run([*PYTEST, *files, "tests/conformance", "-k", chosen], environment)
    found = opencl.run([sys.executable, *CHECKED, *INTEL_PROFILES], environment)
    lines = [line for line in found.splitlines() if line.endswith("agrees")]
    assert len(lines) == 6 and all("Intel(R) OpenCL" in line for line in lines)  # on any processor


@pytest.mark.slow
def test_intel_conformance(tmp_path: Path) -> None:
    environment = opencl.intel_environment(tmp_path)
    opencl.run([*PYTEST, "tests/conformance", "tests/fuzz", "-k", "qcom"], environment)


@pytest.mark.slow
def test_intel_real_models(tmp_path: Path) -> None:
    environment = opencl.intel_environment(tmp_path)
    chosen = "qcom and (exported or fixed)"
    opencl.run([*PYTEST, "tests/realmodels/test_outputs.py", "-k", chosen], environment)


@pytest.mark.slow
def test_every_access_is_allowed(tmp_path: Path) -> None:
    """No access outside of a buffer or an image, no race, no barrier that some threads miss."""
    report = opencl.oclgrind(CHECKED, tmp_path / "log")
    assert not report, report


@pytest.mark.slow
def test_what_oclgrind_reports(tmp_path: Path) -> None:
    report = opencl.oclgrind([*CHECKED, "wrong"], tmp_path / "log")
    assert "data race" in report and "Invalid write" in report, report
