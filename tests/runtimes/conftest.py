"""Bundles of small programs on a web server, and a page of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtimes.site import Site, serving
from tests.targets import programs
from tinyedge.export.package.package import write_bundle
from tinyedge.export.package.web import MODULES, runtime_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bundles")
    for name in ("addition", "counter", "repeat", "several", "symbolic"):
        program = getattr(programs, name)("webgpu")
        write_bundle(program, root / name, extras=runtime_files(program))
    return root


@pytest.fixture
def site(tmp_path: Path, folder: Path) -> Iterator[Site]:
    shutil.copytree(folder, tmp_path / "site")
    for name in ("tinyedge.js", *MODULES):
        shutil.copy(folder / "addition" / name, tmp_path / "site")
    with serving(tmp_path / "site") as site:
        yield site
