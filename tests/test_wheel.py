"""An installed wheel works without the repository: commands, runtime files, an export."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import models

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # No isolation: the build back end is installed with the tests, so this works offline.
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*pip, "--wheel-dir", folder, ROOT], check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content, as pip would put it in site-packages."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(installed: Path, where: Path, *arguments: str) -> str:
    """Run Python away from the repository, with the installed package before all others."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    result = subprocess.run(
        [sys.executable, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=where,
        env=environment,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_wheel_holds_the_runtimes_and_nothing_of_development(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {"tinyedge/web/src/tinyedge.js", "tinyedge/web/src/tinyedge.d.ts"} <= set(names)
    assert "tinyedge/py.typed" in names
    tops = {name.split("/")[0] for name in names}
    assert tops == {"tinyedge", next(top for top in tops if top.endswith(".dist-info"))}
    for name in names:
        assert "node_modules" not in name and "package.json" not in name, name
        assert not name.startswith("tinyedge/web/test"), name


def test_the_commands_run(installed: Path, tmp_path: Path) -> None:
    script = "import tinyedge.cli; print(tinyedge.cli.__file__)"
    assert run(installed, tmp_path, "-c", script).startswith(str(installed))
    assert "export" in run(installed, tmp_path, "-m", "tinyedge", "--help")


def test_the_js_runtime_is_found(installed: Path, tmp_path: Path) -> None:
    script = "from tinyedge.export.verify.browser import runtime_source; print(runtime_source())"
    source = run(installed, tmp_path, "-c", script)
    assert source.strip() == (ROOT / "web" / "src" / "tinyedge.js").read_text().strip()


def test_it_exports(installed: Path, tmp_path: Path) -> None:
    """Without node, far from the repository."""
    command = ("-m", "tinyedge", "export", str(models.path("pnet")), "--json")
    dims = ("--dim", "M1=32", "--dim", "M2=40")
    answer = json.loads(run(installed, tmp_path, *command, "-o", "pnet.tinyedge", *dims))
    assert answer["kernels"] > 0
    assert (tmp_path / "pnet.tinyedge" / "tinyedge.js").is_file()
    out = run(installed, tmp_path, "-m", "tinyedge", "inspect", "pnet.tinyedge")
    assert "input    input_1 float32 [1, 32, 40, 3]" in out


def test_the_constraints_hold_what_the_tests_need() -> None:
    """Names and versions only, of each requirement one that it takes; `scripts/setup renew`."""
    head, *lines = (ROOT / "scripts" / "constraints.txt").read_text().splitlines()
    assert re.fullmatch(r"# Python 3\.[0-9]+, on Linux: made by scripts/setup renew", head)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.+]*", line) for line in lines)
    versions = {
        canonicalize_name(name): version for name, version in (x.split("==") for x in lines)
    }
    for requirement in map(Requirement, metadata.requires("tinyedge") or ()):
        if requirement.name != "tinyedge":
            version = versions[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), (requirement, version)
