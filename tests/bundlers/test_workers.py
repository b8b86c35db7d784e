"""A model in workers of every kind, and in an extension of the browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bundlers.test_bundlers import EXPECTED, HERE, ISOLATED
from tests.runtimes.site import Site, serving
from tinyedge.export.verify.browser import CHROMIUM_NAMES, FLAGS, SOFTWARE, Browser

pytestmark = pytest.mark.browser

# What each of them does: a model by both backends.
ANSWER = """
import {load} from "./model.tinyedge/tinyedge.js";

const folder = new URL("./model.tinyedge/", location);

export async function answer() {
  const made = [];
  for (const backend of ["webgpu", "wasm"]) {
    const model = await load(folder, {backend});
    const {passed} = await model.verify();
    const {y} = await model.run({x: Float32Array.of(1, 2, 3, 4)});
    made.push([passed, [...y.data]]);
    model.dispose();
  }
  return made;
}
"""
DEDICATED = (
    'import {answer} from "./answer.js"; answer().then(postMessage, (e) => postMessage(`${e}`));'
)
SHARED = """
import {answer} from "./answer.js";
onconnect = ({ports: [port]}) => answer().catch(String).then((made) => port.postMessage(made));
"""
SERVICE = """
import {answer} from "./answer.js";
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("message", (event) =>
  event.waitUntil(answer().catch(String).then((made) => event.source.postMessage(made))));
"""
MADE = [[True, EXPECTED], [True, EXPECTED]]

SERVED = """async (script) => {
  const {serviceWorker} = navigator;
  const claimed = new Promise((done) => (serviceWorker.oncontrollerchange = done));
  await serviceWorker.register(script, {type: "module"});
  await claimed;
  const answered = new Promise((done) => (serviceWorker.onmessage = ({data}) => done(data)));
  serviceWorker.controller.postMessage("run");
  return answered;
}"""


@pytest.fixture
def site(bundle: Path, tmp_path: Path) -> Iterator[Site]:
    shutil.copytree(bundle, tmp_path / "model.tinyedge")
    scripts = {"answer": ANSWER, "dedicated": DEDICATED, "shared": SHARED, "service": SERVICE}
    for name, text in scripts.items():
        (tmp_path / f"{name}.js").write_text(text)
    with serving(tmp_path) as served:
        yield served


def one_file(script: Path) -> Path:
    """A script with all that it imports, as service workers need it: they may not `import()`."""
    out = script.with_name(f"whole-{script.name}")
    command = [HERE / "node_modules" / ".bin" / "esbuild", script, "--bundle", "--format=esm"]
    subprocess.run([*command, f"--outfile={out}", "--log-level=warning"], check=True)
    return out


def test_dedicated(page: Any) -> None:
    made = page.evaluate(
        """() => new Promise((done) => {
          const worker = new Worker("dedicated.js", {type: "module"});
          worker.onmessage = ({data}) => done(data);
          worker.onerror = ({message}) => done(`error ${message}`);
        })"""
    )
    assert made == MADE


# Beside default-src 'none': which backend a page takes where none is named, as the adapter is a
# software one; and what a page and a worker of it come to by the fallback: an error or whether
# threads compute. By WebGPU both run wherever they may fetch.
POLICIES = {
    "script-src 'self'; connect-src 'self'": ["webgpu", "device.wasm", "device.wasm"],
    "script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'": ["wasm", True, True],
    "script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; worker-src 'none'": [
        *("wasm", False, None)
    ],
    "script-src 'self' 'wasm-unsafe-eval'": ["load.network"] * 3,
}
TRIED = """
import {load} from "./model.tinyedge/tinyedge.js";
export const tried = (backend) => load(new URL("./model.tinyedge/", location), {backend})
  .then((model) => model.run({x: [1, 2, 3, 4]}).then(() => model.threads > 1), ({id}) => id);
export const taken = () => load(new URL("./model.tinyedge/", location))
  .then((model) => model.run({x: [1, 2, 3, 4]}).then(() => model.backend), ({id}) => id);
"""


def test_the_policy_that_is_documented_is_what_is_needed(site: Site, browser: Browser) -> None:
    (site.folder / "tried.js").write_text(TRIED)
    (site.folder / "trying.js").write_text(
        'import {tried} from "./tried.js";\n'
        "onmessage = async ({data}) => postMessage(await tried(data));"
    )
    for policy, expected in POLICIES.items():
        site.more = {**ISOLATED, "Content-Security-Policy": f"default-src 'none'; {policy}"}
        context = browser.chromium.new_context()
        try:
            page = context.new_page()
            page.goto(site.url)
            seen = page.evaluate(
                """async () => {
                  const {tried, taken} = await import("/tried.js"), seen = [await taken()];
                  for (const backend of ["webgpu", "wasm"])
                    seen.push(await tried(backend), await new Promise((done) => {
                      const worker = new Worker("/trying.js", {type: "module"});
                      worker.onmessage = ({data}) => done(data);
                      worker.onerror = () => done(null);
                      worker.postMessage(backend);
                    }));
                  return seen;
                }"""
            )
        finally:
            context.close()
        several = (os.cpu_count() or 1) > 1
        taken, *by_wasm = expected
        assert seen[0] == taken, policy
        assert seen[3:] == [several if each is True else each for each in by_wasm], policy
        gpu = [each if each in ("load.network", None) else False for each in by_wasm]
        assert seen[1:3] == gpu, policy


def test_shared(page: Any) -> None:
    made = page.evaluate(
        """() => new Promise((done) => {
          const {port} = new SharedWorker("shared.js", {type: "module"});
          port.onmessage = ({data}) => done(data);
        })"""
    )
    assert made == MADE


def test_service(page: Any, site: Site) -> None:
    one_file(site.folder / "service.js")
    assert page.evaluate(SERVED, "whole-service.js") == MADE


def test_a_service_worker_of_several_files_says_why(page: Any) -> None:
    said = page.evaluate(SERVED, "service.js")
    assert "loading.js" in said and "import() is disallowed on ServiceWorkerGlobalScope" in said


def test_extension(bundle: Path, browser: Browser, tmp_path: Path) -> None:
    """Manifest version 3: in a page of the extension and in its background's service worker."""
    folder = tmp_path / "extension"
    shutil.copytree(bundle, folder / "model.tinyedge")
    policy = "script-src 'self' 'wasm-unsafe-eval'; object-src 'self'"
    manifest = {
        "manifest_version": 3,
        "name": "model",
        "version": "1",
        "action": {"default_popup": "popup.html"},
        "background": {"service_worker": "whole-background.js", "type": "module"},
        "content_security_policy": {"extension_pages": policy},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "answer.js").write_text(ANSWER)
    (folder / "popup.html").write_text(
        '<!doctype html><script type="module" src="popup.js"></script>'
    )
    (folder / "popup.js").write_text(
        'import {answer} from "./answer.js"; globalThis.done = answer().catch(String);'
    )
    (folder / "background.js").write_text(
        'import {answer} from "./answer.js"; globalThis.answer = () => answer().catch(String);'
    )
    one_file(folder / "background.js")
    context = browser.playwright.chromium.launch_persistent_context(
        str(tmp_path / "profile"),
        executable_path=next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None),
        args=[
            *(*FLAGS, SOFTWARE),
            f"--load-extension={folder}",
            f"--disable-extensions-except={folder}",
        ],
        ignore_default_args=["--disable-extensions"],
    )
    try:
        (worker,) = context.service_workers or [context.wait_for_event("serviceworker")]
        assert worker.evaluate("answer()") == MADE
        page = context.new_page()
        page.goto(worker.url.replace("whole-background.js", "popup.html"))
        assert page.evaluate("globalThis.done") == MADE
    finally:
        context.close()
