"""A page that imports a bundle is built by each bundler, and runs from what it wrote."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tinyedge
from tests.runtimes.site import serving
from tinyedge.export.bundle.manifest import decode
from tinyedge.export.verify.browser import Browser

pytestmark = pytest.mark.browser

HERE = Path(__file__).parent

MAIN = """
import {load, TinyedgeError} from "./model.tinyedge/index.js";

globalThis.done = (async () => {
  const model = await load();
  const {passed} = await model.verify();
  const {y} = await model.run({x: Float32Array.of(1, 2, 3, 4)});
  return [passed, [...y.data], typeof TinyedgeError];
})();
"""
PAGE = (
    '<!doctype html><title>app</title><link rel="icon" href="data:,">'
    '<script type="module" src="{}"></script>'
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x + w by its entry, with weights beyond what bundlers write into their scripts."""
    w = (np.arange(300_000) % 7).astype(np.float32).reshape(-1, 4)
    return tinyedge.export_function(
        lambda x: {"y": x + tinyedge.Tensor(w).sum(0)},
        {"x": np.zeros(4, np.float32)},
        target="webgpu",
        out=tmp_path_factory.mktemp("model") / "My Model.tinyedge",
    )


@pytest.mark.parametrize("bundler", ["vite", "webpack", "rollup", "esbuild"])
def test_a_built_page_runs(bundler: str, bundle: Path, browser: Browser, tmp_path: Path) -> None:
    # Where node looks for what the page's developer has installed.
    (tmp_path / "node_modules").symlink_to(HERE / "node_modules")
    app = tmp_path / "app"
    shutil.copytree(bundle, app / "model.tinyedge")
    (app / "main.js").write_text(MAIN)
    (app / "index.html").write_text(PAGE.format("./main.js"))
    done = subprocess.run(
        ["node", HERE / "build.mjs", bundler, app], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    dist = app / "dist"
    if bundler != "vite":
        (dist / "index.html").write_text(PAGE.format("./main.js"))
    # What the page asks for lies in what was built.
    for left in (app / "model.tinyedge", app / "main.js"):
        left.rename(tmp_path / left.name)
    context = browser.chromium.new_context()
    try:
        with serving(dist) as site:
            page = context.new_page()
            page.goto(site.url + "index.html")
            page.wait_for_function("globalThis.done")
            passed, values, kind = page.evaluate("globalThis.done")
            assert set(site.answered) == {200}
    finally:
        context.close()
    w = (np.arange(300_000) % 7).reshape(-1, 4).sum(axis=0)
    assert passed and kind == "function"
    assert values == [*(np.array([1, 2, 3, 4]) + w)], "sums of small integers are exact"


def test_the_package(bundle: Path) -> None:
    """Its name is one that npm takes, its version another for each content; index.js names all."""
    package = json.loads((bundle / "package.json").read_text())
    assert package["name"] == "my-model"
    files = [file["name"] for file in decode((bundle / "manifest.json").read_bytes())["files"]]
    index = (bundle / "index.js").read_text()
    for name in ("manifest.json", *files):
        assert f'"{name}": new URL("./{name}", import.meta.url)' in index
    for name in (package["main"], package["types"]):
        assert (bundle / name).is_file()


def test_npm_installs_it(bundle: Path, tmp_path: Path) -> None:
    command = ["npm", "install", "--offline", "--no-audit", "--no-fund", str(bundle)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    script = 'const {load} = await import("my-model"); console.log(typeof load)'
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "function", "it can be imported where there is no page"
