"""Bundles of small programs on a web server, and a page of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.site import Site, serving
from tests.targets import programs
from tinyedge.export.package.package import write_bundle
from tinyedge.export.package.web import MODULES, runtime_files
from tinyedge.export.verify.browser import CHROMIUM_NAMES, FLAGS, SOFTWARE, Browser

VIDEO = (
    *("--enable-features=Vulkan", "--use-vulkan=swiftshader", "--use-angle=vulkan"),
    *("--ignore-gpu-blocklist", "--use-fake-device-for-media-stream"),
    *("--use-fake-ui-for-media-stream", "--autoplay-policy=no-user-gesture-required"),
)


@pytest.fixture(scope="module")
def cinema(browser: Browser) -> Iterator[Any]:
    """A Chromium whose videos may become textures and whose canvases show them, with a camera."""
    found = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    args = [*FLAGS, SOFTWARE, *VIDEO]
    chromium = browser.playwright.chromium.launch(executable_path=found, headless=True, args=args)
    yield chromium
    chromium.close()


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


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Any]:
    context = browser.chromium.new_context()
    opened = context.new_page()
    opened.goto(site.url)
    yield opened
    context.close()
