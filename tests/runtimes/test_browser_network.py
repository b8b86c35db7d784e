"""What goes wrong between a page and its server, and what the runtime does about it."""

from __future__ import annotations

import hashlib
import os
import shutil
import textwrap
import time
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tests.runtimes.site import HURRY, Site, evaluate
from tests.targets import programs
from tinyedge.export.package.package import write_bundle
from tinyedge.export.package.web import MODULES, runtime_files

pytestmark = pytest.mark.browser

TARGET = "webgpu"


def deploy(site: Site, offset: float) -> None:
    """The addition with `offset` more, in the place of what is there."""
    program = programs.addition(TARGET)
    weight = programs.constant("w", np.arange(256) + offset)
    extras = runtime_files(program)
    write_bundle(replace(program, weights=(weight,)), site.folder / "addition", extras=extras)


def test_a_cached_file_of_another_version(page: Any, site: Site) -> None:
    """Deployed anew in place, while caches keep the files, but not the manifest, for a day."""
    site.headers = {".bin": "max-age=86400", ".wgsl": "max-age=86400", ".json": "no-cache"}
    script = """
        const steps = [];
        const model = await load("/addition/", {onProgress: (p) => steps.push(p)});
        const {loaded, total} = steps.at(-1);
        return [(await model.run(add(1, 2))).c.data[1], loaded === total, steps.length > 2];
        """
    assert evaluate(page, script) == [4, True, True]
    deploy(site, 10)
    site.asked.clear()
    assert evaluate(page, script) == [14, True, True]
    assert site.asked == {"manifest.json": 1, "weights-00000.bin": 1}, "what fits stays cached"


@pytest.mark.parametrize("change", ["bit", "short", "long"])
def test_a_damaged_file_is_asked_for_once_more(page: Any, site: Site, change: str) -> None:
    path = site.folder / "addition" / "weights-00000.bin"
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes({"bit": content, "short": content[:-4], "long": content + b"more"}[change])
    got = evaluate(page, 'return (await errorOf(() => load("/addition/"))).id')
    assert got == ("bundle.file.hash" if change == "bit" else "bundle.file.size")
    assert site.asked["weights-00000.bin"] == 2


@pytest.mark.parametrize("address", ["addition/?", "addition?", "addition/manifest.json?"])
def test_a_query_goes_with_every_file(page: Any, site: Site, address: str) -> None:
    site.query = "token=a%2Fb&more=1"
    got = evaluate(
        page,
        f"""
        const model = await load("/{address}{site.query}");
        return [
          (await model.run(add(1, 2))).c.data[1],
          (await errorOf(() => load("/addition/?token=other"))).id,
        ];
        """,
    )
    assert got == [4, "load.http"]


def test_scripts_beside_one_with_a_query_get_it_too(page: Any, site: Site) -> None:
    site.query = "token=a%2Fb&more=1"
    site.statuses = {"extras.js": [503]}
    script = (
        HURRY
        + """
        const theirs = await import("/addition/tinyedge.js?QUERY");
        const model = await theirs.load("/addition/?QUERY");
        await model.example();
        return (await model.run(add(1, 2))).c.data[1];
        """
    )
    assert evaluate(page, script.replace("QUERY", site.query)) == 4
    assert site.asked["loading.js"] == 2, "first without it"
    assert site.asked["extras.js"] == 3, "once more, as the server had no time"


def test_answers_that_are_no_files(page: Any, site: Site) -> None:
    """Statuses, with whether trying again helps; a page of HTML in place of a file."""
    faults = {}
    for name in ("manifest.json", "weights-00000.bin"):
        for status in (401, 403, 404, 408, 410, 425, 429, 500, 503):
            site.statuses = {name: status}
            faults[name, status] = evaluate(
                page, HURRY + 'return errorOf(() => load("/addition/"))'
            )
    for (name, status), fault in faults.items():
        missing = "bundle.manifest.missing" if name == "manifest.json" else "bundle.file.missing"
        assert fault["id"] == (missing if status == 404 else "load.http")
        assert str(status) in fault["because"] and fault["subject"] == name
        again = "try again" in fault["next"]
        assert again == (status in (408, 425, 429, 500, 503)), (status, fault["next"])
    site.statuses = {}
    (site.folder / "addition" / "weights-00000.bin").unlink()
    asked = (("nowhere", "bundle.manifest.missing"), ("addition", "bundle.file.missing"))
    for start in ("\n<!DOCTYPE html><html>", "\ufeff <!-- an app --><!doctype html>", "<html>"):
        site.missing = f"{start}<title>An app</title>" + 2000 * "<p>more</p>"
        for folder, id in asked:
            fault = evaluate(page, f'return errorOf(() => load("/{folder}/"))')
            assert fault["id"] == id and "HTML" in fault["because"]


# ---- trying again


def test_a_cut_connection_resumes(page: Any, site: Site) -> None:
    """Cut at half: the other half is asked for, and no more than that."""
    name = "weights-00000.bin"
    size = (site.folder / "addition" / name).stat().st_size
    site.cuts = {name: [size // 2]}
    got = evaluate(
        page,
        HURRY
        + """
        const steps = [];
        const model = await load("/addition/", {onProgress: ({loaded}) => steps.push(loaded)});
        const {c} = await model.run(add(1, 2));
        return {sum: c.data[1], rising: steps.every((n, i) => !i || n >= steps[i - 1])};
        """,
    )
    assert got["sum"] == 4 and got["rising"]
    assert site.asked[name] == 2 and site.sent[name] == size
    ranges = [headers["Range"] for headers in site.given if "Range" in headers]
    assert ranges == [f"bytes={size // 2}-"]


@pytest.mark.parametrize("cut", ["kernels.wgsl", "manifest.json"])
def test_a_cut_connection_to_a_server_without_ranges(page: Any, site: Site, cut: str) -> None:
    """And to the manifest, which has no hash by which parts would be known to fit."""
    site.ranges, site.cuts = False, {cut: [10, 20]}
    script = 'return (await (await load("/addition/")).run(add(1, 2))).c.data[1]'
    assert evaluate(page, HURRY + script) == 4
    assert site.asked[cut] == 3


def test_parts_of_two_versions(page: Any, site: Site) -> None:
    """What was cut is completed from another version: asked for as a whole, past the caches."""
    name = "weights-00000.bin"
    path = site.folder / "addition" / name
    good = path.read_bytes()
    site.cuts = {name: [len(good) // 2]}
    path.write_bytes(bytes(len(good) // 2) + good[len(good) // 2 :])

    def mend(route: Any) -> None:
        if site.asked[name] == 2:
            path.write_bytes(good)
        route.continue_()

    page.route("**/" + name, mend)
    script = 'return (await (await load("/addition/")).run(add(1, 2))).c.data[1]'
    assert evaluate(page, HURRY + script) == 4
    assert site.asked[name] == 3


@pytest.mark.parametrize("name", ["manifest.json", "weights-00000.bin"])
def test_what_passes_is_tried_again(page: Any, site: Site, name: str) -> None:
    """Three times, at growing intervals; what does not pass is asked for once."""
    script = (
        HURRY
        + """
        const error = await errorOf(async () => (await load("/addition/")).run(add(1, 2)));
        return [error.id, waits.filter((ms) => ms > 100)];
        """
    )
    site.statuses = {name: [503, 429, 500]}
    id, waits = evaluate(page, script)
    assert id == "none" and len(waits) == 3 and site.asked[name] == 4
    for wait, usual in zip(waits, (250, 1000, 4000), strict=True):
        assert 0.75 * usual <= wait <= 1.25 * usual
    for status, times in ((503, 4), (401, 1)):
        site.asked.clear()
        site.statuses = {name: status}
        assert evaluate(page, script)[0] == "load.http"
        assert site.asked[name] == times


def test_retry_after(page: Any, site: Site) -> None:
    """A server's wish is granted; one beyond a minute ends the load."""
    script = (
        HURRY
        + """
        const error = await errorOf(async () => (await load("/addition/")).run(add(1, 2)));
        return [error.id, waits.filter((ms) => ms > 100)];
        """
    )
    site.statuses = {"manifest.json": [429]}
    site.more = {"Retry-After": "7"}
    assert evaluate(page, script) == ["none", [7000]]
    site.statuses = {"manifest.json": [503]}
    site.more = {"Retry-After": formatdate(time.time() + 30, usegmt=True)}
    ended, waits = evaluate(page, script)
    assert ended == "none" and len(waits) == 1 and 20_000 < waits[0] <= 30_000, "until a date"
    for beyond in ("61", formatdate(time.time() + 90, usegmt=True)):
        site.statuses = {"manifest.json": [503, 503]}
        site.more = {"Retry-After": beyond}
        assert evaluate(page, script) == ["load.http", []]


def test_what_is_no_fault_of_the_connection(page: Any, site: Site) -> None:
    """What a caller's functions throw or give, a lost device, addresses that are none: at once."""
    got = evaluate(
        page,
        HURRY
        + """
        const heard = [], device = await openDevice();
        addEventListener("unhandledrejection", ({reason}) => heard.push(reason.message));
        const onProgress = ({loaded}) => {
          if (loaded) throw new Error("mine");
        };
        const lose = ({loaded}) => loaded && device.destroy();
        const errors = [
          await errorOf(() => load("/addition/", {onProgress})),
          await errorOf(() => load("/addition/", {device, onProgress: lose})),
          await errorOf(() => load("data:text/plain,model")),
          await errorOf(() => load("/addition/", {files: {"manifest.json": "http://["}})),
          await errorOf(() => load("/addition/", {fetch: () => {}})),
          await errorOf(() => load("/addition/", {fetch: () => "text"})),
        ];
        await new Promise((resolve) => later(resolve, 50));
        return [errors.map(({id, text}) => (id === "Error" ? text : id)),
                waits.filter((ms) => ms > 100), heard];
        """,
    )
    assert got == [["mine", "device.lost", "load.url", "load.url", *["load.http"] * 2], [], []]


def test_addresses_of_files_that_the_bundle_lacks(page: Any, site: Site) -> None:
    """A misspelt name is refused, and told with those that there are, once the manifest is here."""
    got = evaluate(
        page,
        """
        const {requirements} = await import("/addition/tinyedge.js");
        const at = (...names) => (
          {files: Object.fromEntries(names.map((name) => [name, `/addition/${name}`]))});
        const errors = [];
        for (const ask of [load, requirements])
          for (const name of ["weigths-00000.bin", "kernels-00001.wasm", "manifest-00001.json"])
            errors.push((await errorOf(() => ask("/addition/", at("manifest.json", name)))).text);
        const all = at("manifest.json", "kernels.wgsl", "weights-00000.bin");
        const model = await load("/addition/", all);
        await requirements("/addition/", at("weights-00000.bin"));
        return [errors, (await model.run(add(1, 2))).c.data[1]];
        """,
    )
    errors, result = got
    names = ["weigths-00000.bin", "kernels-00001.wasm", "manifest-00001.json"] * 2
    for text, name in zip(errors, names, strict=True):
        assert text.startswith(f'file "{name}" [load.option]\n  because    there is no such file')
        assert "use one of: manifest.json,kernels.wgsl,weights-00000.bin" in text
    assert result == 4 and site.asked["kernels.wgsl"] == 1


def test_an_abort_while_waiting(page: Any, site: Site) -> None:
    site.statuses = {"manifest.json": 503}
    site.more = {"Retry-After": "50"}
    got = evaluate(
        page,
        """
        const stop = new AbortController(), {signal} = stop;
        const failed = errorOf(() => load("/addition/", {signal}));
        setTimeout(() => stop.abort(new Error("enough")), 300);
        return (await failed).text;
        """,
    )
    assert got == "enough" and site.asked["manifest.json"] == 1


# ---- the runtime's own files


def export_of_pictures(out: Path, **options: Any) -> None:
    """A model of pictures of 4 x 4, whose output is twice their bytes."""
    example = {"x": np.ones((1, 3, 4, 4), np.float32)}
    images = {"x": "0..255,max:16"}
    tinyedge.export_function(lambda x: x * 2, example, images=images, out=out, **options)


@pytest.fixture
def everything(page: Any, site: Site) -> Site:
    """A site whose page's model asks for each file of the runtime, under the strictest policy."""
    export_of_pictures(site.folder / "model", fallback="wasm")
    site.more["Cross-Origin-Opener-Policy"] = "same-origin"
    site.more["Cross-Origin-Embedder-Policy"] = "require-corp"
    policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'"
    site.more["Content-Security-Policy"] = policy
    page.reload()
    site.asked.clear()
    return site


def test_files_of_the_runtime_are_asked_for_again(page: Any, everything: Site) -> None:
    """Each is cut in the middle, then the server has no time; what came is shared by two models."""
    site = everything
    for name in MODULES:
        site.cuts[name] = [(site.folder / name).stat().st_size // 2]
        site.statuses[name] = [200, 503]
    got = evaluate(
        page,
        HURRY
        + """
        const picture = new ImageData(new Uint8ClampedArray(36).fill(100), 3);
        const made = async () => {
          const model = await load("/model/", {backend: "wasm"});
          const example = await model.example(), {output} = await model.run({x: picture});
          return [Object.keys(example), Math.round(output.data[47]), model.threads];
        };
        const both = await Promise.all([made(), made()]);
        return [both, waits.filter((ms) => ms > 100).length, navigator.hardwareConcurrency];
        """,
    )
    both, waits, cores = got
    assert both == [[["x"], 200, min(8, cores)]] * 2
    assert waits == 2 * len(MODULES)
    workers = 2 * (min(8, cores) - 1)
    asked = {name: site.asked[name] for name in MODULES}
    assert asked == {name: 3 + workers * (name == "threads.js") for name in MODULES}


def test_files_of_the_runtime_that_do_not_arrive(page: Any, everything: Site) -> None:
    """They are named after the last try; a load that is given up waits for nothing; the next one
    asks again.
    """
    site = everything
    site.statuses = {"image.js": 503}
    script = (
        HURRY
        + """
        const error = await errorOf(() => load("/model/", {signal: SIGNAL}));
        return [error, waits.filter((ms) => ms > 100)];
        """
    )
    error, waits = evaluate(page, script.replace("SIGNAL", "undefined"))
    assert (error["id"], error["subject"]) == ("load.network", "image.js")
    assert "serve the whole folder" in error["next"]
    assert error["because"].endswith("/image.js"), "no address but its own"
    assert site.asked["image.js"] == 4
    for wait, usual in zip(waits, (250, 1000, 4000), strict=True):
        assert 0.75 * usual <= wait <= 1.25 * usual
    site.statuses = {}
    again = script.replace("SIGNAL", "undefined")
    assert evaluate(page, again)[0] == {"id": "none"}
    site.statuses = {"loading.js": 503}
    site.asked.clear()
    page.reload()
    gone = script.replace("SIGNAL", "AbortSignal.timeout(150)").replace("/ 50", "")
    assert evaluate(page, gone)[0]["id"] == "TimeoutError"
    assert site.asked["loading.js"] == 1, "the second request comes later"


# ---- what is on its way together


def test_adapter_and_manifest_device_and_files(page: Any, site: Site) -> None:
    """Each waits until the other was asked for: one after the other would never end."""
    got = evaluate(
        page,
        """
        const asked = (of, name, say) => new Promise((resolve) => {
          const was = of[name];
          of[name] = (...given) => { say(resolve, ...given); return was.apply(of, given); };
        });
        const {gpu} = navigator, {requestDevice} = GPUAdapter.prototype, files = new Set();
        const adapter = asked(gpu, "requestAdapter", (done) => done());
        let all;
        const both = new Promise((resolve) => (all = resolve));
        GPUAdapter.prototype.requestDevice = async function (descriptor) {
          await both;
          return requestDevice.call(this, descriptor);
        };
        const given = async (url, init) => {
          const name = url.pathname.split("/").pop();
          if (name === "manifest.json") await adapter;
          files.add(name);
          if (files.size === 3) all();
          return fetch(url, init);
        };
        const model = await load("/addition/", {fetch: given});
        return [(await model.run(add(1, 2))).c.data[1], [...files]];
        """,
    )
    assert got == [4, ["manifest.json", "kernels.wgsl", "weights-00000.bin"]]
    assert set(site.asked.values()) == {1}


def test_the_page_asks_for_its_first_files(page: Any, site: Site) -> None:
    """Once each: the hints and the script mean the same requests."""
    warned: list[str] = []
    page.on("console", lambda message: warned.append(message.text))
    site.asked.clear()
    page.goto(site.url + "addition/index.html")
    page.get_by_role("button", name="Run").wait_for()
    hinted = page.evaluate(
        "[...document.querySelectorAll('link[rel*=preload]')].map((l) => l.href)"
    )
    names = [address.rsplit("/", 1)[1] for address in hinted]
    assert names == ["tinyedge.js", "loading.js", "manifest.json", "kernels.wgsl"]
    assert {site.asked[name] for name in names} == {1}
    assert not [text for text in warned if "preload" in text]


def offline(page: Any, site: Site, script: str) -> Any:
    """What a script gives once the service worker of docs/page.md is there, and the network is not;
    nothing asks the server.
    """
    text = (Path(__file__).parents[2] / "docs" / "page.md").read_text()
    recipe = text[text.index("    // offline.js\n") :].partition("\n\nThe browser may")[0]
    (site.folder / "offline.js").write_text(textwrap.dedent(recipe))
    page.evaluate(
        """async () => {
          const {serviceWorker} = navigator;
          const claimed = new Promise((done) => (serviceWorker.oncontrollerchange = done));
          await serviceWorker.register("offline.js");
          await claimed;
        }"""
    )
    site.asked.clear()
    page.context.set_offline(True)
    page.reload()
    got = page.evaluate(script)
    assert set(site.asked) <= {"offline.js"}, "which browsers look for again"
    return got


def test_the_offline_recipe(page: Any, site: Site) -> None:
    shutil.copytree(site.folder / "addition", site.folder / "model.tinyedge")
    script = """async () => {
      const {load} = await import("/model.tinyedge/tinyedge.js");
      const ones = new Float32Array(256).fill(1);
      const model = await load("model.tinyedge/");
      return (await model.run({a: ones, "b:0": ones})).c.data[1];
    }"""
    assert offline(page, site, script) == 3


def test_the_offline_recipe_keeps_both_programs(page: Any, site: Site) -> None:
    """And the threads of the one for WebAssembly, as the page is isolated."""
    tinyedge.export_function(
        lambda x: x * 3,
        {"x": np.ones(4, np.float32)},
        fallback="wasm",
        out=site.folder / "model.tinyedge",
    )
    site.more["Cross-Origin-Opener-Policy"] = "same-origin"
    site.more["Cross-Origin-Embedder-Policy"] = "require-corp"
    page.reload()
    script = """async () => {
      const {load} = await import("/model.tinyedge/tinyedge.js");
      const seen = [];
      for (const backend of ["wasm", "webgpu"]) {
        const model = await load("model.tinyedge/", {backend});
        const {output} = await model.run({x: [1, 2, 3, 4]});
        seen.push([model.backend, model.threads > 1, [...output.data]]);
      }
      return seen;
    }"""
    several = (os.cpu_count() or 1) > 1
    assert offline(page, site, script) == [
        ["wasm", several, [3, 6, 9, 12]],
        ["webgpu", False, [3, 6, 9, 12]],
    ]


def test_the_offline_recipe_keeps_what_takes_pictures(page: Any, site: Site) -> None:
    export_of_pictures(site.folder / "model.tinyedge")
    script = """async () => {
      const {load} = await import("/model.tinyedge/tinyedge.js");
      const x = new ImageData(new Uint8ClampedArray(36).fill(100), 3);
      const {output} = await (await load("model.tinyedge/")).run({x});
      return Math.round(output.data[47]);
    }"""
    assert offline(page, site, script) == 200


# ---- options


def test_a_fetch_of_ones_own(page: Any, site: Site) -> None:
    site.missing = "<html>"
    got = evaluate(
        page,
        """
        const seen = [];
        const model = await load("/addition/", {fetch: async (url, init) => {
          seen.push(url.pathname);
          return fetch(url, {...init, headers: {...init.headers, "X-Token": "abc"}});
        }});
        const strange = await errorOf(() => load("/addition/", {fetch: "no"}));
        const nothing = await errorOf(() => model.verify());
        return {sum: (await model.run(add(1, 2))).c.data[1], seen, ids: [strange.id, nothing.id]};
        """,
    )
    assert got["sum"] == 4 and got["ids"] == ["load.option", "verify.nothing"]
    files = ["manifest.json", "kernels.wgsl", "weights-00000.bin"]
    assert got["seen"] == [f"/addition/{name}" for name in files]
    assert sum(headers.get("X-Token") == "abc" for headers in site.given) == 3


def test_integrity(page: Any, site: Site) -> None:
    manifest = (site.folder / "addition" / "manifest.json").read_bytes()
    right = hashlib.sha256(manifest).hexdigest()
    got = evaluate(
        page,
        f"""
        const ids = [];
        for (const integrity of ["{right}", "{"0" * 64}", "sha256-abc", 5, undefined])
          ids.push((await errorOf(() => load("/addition/", {{integrity}}))).id);
        return ids;
        """,
    )
    assert got == ["none", "bundle.manifest.hash", "load.option", "load.option", "none"]
    assert site.asked["manifest.json"] == 1 + 2 + 1, "a wrong one is asked for past the caches"
