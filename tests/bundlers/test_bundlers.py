"""A page that imports a bundle is built by each bundler, and runs from what it wrote."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tinyedge
from tests.runtimes.site import serving
from tinyedge.export.bundle.manifest import decode
from tinyedge.export.package.web import MODULES
from tinyedge.export.verify.browser import Browser

pytestmark = pytest.mark.browser

HERE = Path(__file__).parent
WEB = HERE.parents[1] / "web"

MAIN = """
import {load, TinyedgeError} from "./model.tinyedge/index.js";

globalThis.done = (async () => {
  const made = [typeof TinyedgeError];
  for (const backend of ["webgpu", "wasm"]) {
    const model = await load({backend});
    const {passed} = await model.verify();
    const {y} = await model.run({x: Float32Array.of(1, 2, 3, 4)});
    made.push([passed, [...y.data], model.threads]);
  }
  return made;
})();
"""
# Of x = 1, 2, 3, 4; sums of small integers are exact.
WEIGHTS = (np.arange(300_000) % 7).astype(np.float32).reshape(-1, 4)
EXPECTED = [*(np.array([1, 2, 3, 4]) + WEIGHTS.sum(axis=0)).tolist()]
# Threads need an isolated page.
ISOLATED = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}
PAGE = (
    '<!doctype html><title>app</title><link rel="icon" href="data:,">'
    '<script type="module" src="{}"></script>'
)


@pytest.mark.parametrize("bundler", ["vite", "webpack", "rollup", "esbuild", "parcel"])
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
    if bundler not in ("vite", "parcel"):
        (dist / "index.html").write_text(PAGE.format("./main.js"))
    # What the page asks for lies in what was built.
    for left in (app / "model.tinyedge", app / "main.js"):
        left.rename(tmp_path / left.name)
    # Parcel's own loader keeps what failed.
    check_page(browser, dist, busy=bundler != "parcel")


def test_the_server_of_vite(bundle: Path, browser: Browser, tmp_path: Path) -> None:
    """While a page is written, of a package that lies in node_modules as from a registry."""
    name = json.loads((bundle / "package.json").read_text())["name"]
    modules = tmp_path / "node_modules"
    shutil.copytree(bundle, modules / name)
    (modules / "vite").symlink_to(HERE / "node_modules" / "vite")
    (tmp_path / "main.js").write_text(MAIN.replace("./model.tinyedge/index.js", name))
    (tmp_path / "index.html").write_text(PAGE.format("./main.js"))
    context = browser.chromium.new_context()
    command = ["node", str(HERE / "serve.mjs"), str(tmp_path), name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            page = context.new_page()
            page.goto(server.stdout.readline().strip())
            page.wait_for_function("globalThis.done")
            assert page.evaluate("globalThis.done") == [
                "function",
                *([True, EXPECTED, threads] for threads in (None, 1)),
            ]
        finally:
            context.close()
            server.communicate()


def check_page(browser: Browser, dist: Path, busy: bool = True) -> None:
    """What a built page says, by both backends, and that the server had all it asked for. busy: the
    script that loads models comes only when it is asked for again.
    """
    (loading,) = (file for file in dist.rglob("*.js") if "retry-after" in file.read_text("utf-8"))
    context = browser.chromium.new_context()
    try:
        with serving(dist) as site:
            site.more = ISOLATED
            site.statuses = {loading.name: [503]} if busy else {}
            page = context.new_page()
            page.goto(site.url + "index.html")
            page.wait_for_function("globalThis.done")
            cores = page.evaluate("navigator.hardwareConcurrency")
            kind, *made = page.evaluate("globalThis.done")
            assert made == [[True, EXPECTED, None], [True, EXPECTED, min(8, cores)]]
            assert kind == "function"
            assert site.answered.count(503) == busy and set(site.answered) <= {200, 503}
    finally:
        context.close()


def test_the_package(bundle: Path) -> None:
    """Its name is one that npm takes, its version another for each content; index.js names all that
    a page fetches, which the source of the fallback is not.
    """
    package = json.loads((bundle / "package.json").read_text())
    assert package["name"] == "my-model"
    manifests = ("manifest.json", "manifest-00001.json")
    read = [decode((bundle / name).read_bytes()) for name in manifests]
    files = {file["name"] for manifest in read for file in manifest["files"]}
    index = (bundle / "index.js").read_text()
    named = re.findall(r'"(.+)": new URL\("\./\1", import\.meta\.url\)', index)
    assert len(named) == len(set(named))
    assert {*manifests, *files} - set(named) == {"kernels-00001.c"}
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


def test_the_runtime_alone(bundle: Path, browser: Browser, tmp_path: Path) -> None:
    """The folder web/ is a package, which loads bundles from anywhere: packed, installed, built."""
    command = ["npm", "pack", "--json", "--pack-destination", str(tmp_path)]
    packed = subprocess.run(command, cwd=WEB, check=True, capture_output=True, text=True)
    (facts,) = json.loads(packed.stdout)
    assert facts["version"] == tinyedge.__version__
    shipped = {"tinyedge.js", "tinyedge.d.ts", *MODULES}
    about = {"LICENSE", "README.md", "package.json"}
    assert {file["path"] for file in facts["files"]} == about | {f"src/{n}" for n in shipped}
    app = tmp_path / "app"
    app.mkdir()
    (app / "package.json").write_text("{}")
    command = ["npm", "install", "--offline", "--no-audit", "--no-fund"]
    subprocess.run(
        [*command, tmp_path / facts["filename"]], cwd=app, check=True, capture_output=True
    )
    source = MAIN.replace("./model.tinyedge/index.js", "tinyedge")
    source = source.replace("load({", 'load("model.tinyedge/", {')
    (app / "main.js").write_text(source)
    (app / "index.html").write_text(PAGE.format("./main.js"))
    # It is found as what an app has installed, beside the bundler.
    (app / "node_modules" / "vite").symlink_to(HERE / "node_modules" / "vite")
    command = ["node", str(HERE / "build.mjs"), "vite", str(app)]
    subprocess.run(command, check=True, capture_output=True)
    shutil.copytree(bundle, app / "dist" / "model.tinyedge")
    own = {name: app / "dist" / "model.tinyedge" / name for name in ("tinyedge.js", *MODULES)}
    for file in own.values():
        file.unlink()
    check_page(browser, app / "dist")
