"""OpenCL engines beside the machine's default driver: Intel's runtime for processors, oclgrind.

A process loads the drivers that its environment names, once: each engine runs in one of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def intel_environment(folder: Path) -> dict[str, str]:
    """An environment in which Intel's runtime, of a test-only package, is the only driver.

    folder: an empty one, for the file that names the driver. Where the package is not installed,
    the test is skipped, but not in CI.
    """
    driver = Path(sys.prefix) / "lib" / "libintelocl.so"
    if not driver.exists():
        missing("the package intel-opencl-rt is not installed")
    (folder / "intel.icd").write_text(f"{driver}\n")
    return {
        **os.environ,
        "OCL_ICD_VENDORS": str(folder),
        "LD_LIBRARY_PATH": str(driver.parent),
        "PYTHONPATH": str(ROOT),
    }


def oclgrind(command: Sequence[str], log: Path) -> str:
    """Run a Python command under oclgrind and return what it reports; nothing: all is well."""
    program = shutil.which("oclgrind")
    if program is None:
        missing("oclgrind is not installed")
        raise AssertionError
    checks = ("--data-races", "--uniform-writes", "--log", str(log))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run([program, *checks, sys.executable, *command], environment)
    return log.read_text() if log.exists() else ""


def run(command: Sequence[str], environment: dict[str, str]) -> str:
    """What a command prints; fails with all of it where the command does."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0, done.stdout[-20000:]
    return done.stdout


def missing(why: str) -> None:
    """Leave the test out, but not in CI."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
