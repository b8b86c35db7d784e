"""What goes wrong in a page, and what the runtime says of it: buffers, servers, options, leaks."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from tests.runtimes.test_browser_life import SETUP
from tests.targets import programs
from tinyedge.export.package.package import write_bundle
from tinyedge.export.package.web import runtime_files
from tinyedge.export.verify.browser import Browser

pytestmark = pytest.mark.browser

TARGET = "webgpu"

FAULTS = """
const errorOf = async (work) => {
  try { await work(); return {id: "none"}; }
  catch ({id, name, message, subject, because, next}) {
    return {id: id ?? name, text: message, subject, because, next};
  }
};
const openDevice = async () => (await navigator.gpu.requestAdapter()).requestDevice();
const {STORAGE, COPY_SRC, COPY_DST, MAP_WRITE} = GPUBufferUsage;
const buffer = (device, usage = STORAGE | COPY_SRC | COPY_DST, more = {}) =>
  device.createBuffer({label: "a caller's", size: 256, usage, ...more});
const x = new Float32Array(64).fill(1);
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("faults")
    for name in ("addition", "counter", "repeat", "several", "symbolic"):
        program = getattr(programs, name)(TARGET)
        write_bundle(program, root / name, extras=runtime_files(program))
    return root


@dataclass
class Site:
    """A web server of a folder whose answers a test may change: caching, statuses, a login."""

    folder: Path
    headers: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    query: str = ""
    missing: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    url: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        path = self.folder / parts.path.lstrip("/")
        self.asked[path.name] += 1
        content, status = b"", self.statuses.get(path.name, 200)
        if self.query and path.parent != self.folder and parts.query != self.query:
            status = 403
        elif parts.path == "/":
            content = b"<!doctype html><title>faults</title>"
        elif status == 200 and path.is_file():
            content = path.read_bytes()
        elif status == 200:
            content, status = self.missing.encode(), 200 if self.missing else 404
        handler.send_response(status)
        script = {".js": "text/javascript", ".html": "text/html"}.get(path.suffix)
        handler.send_header("Content-Type", script or ("" if path.suffix else "text/html"))
        handler.send_header("Content-Length", str(len(content)))
        handler.send_header("Cache-Control", self.headers.get(path.suffix, "no-store"))
        handler.end_headers()
        handler.wfile.write(content)


@pytest.fixture
def site(tmp_path: Path, folder: Path) -> Iterator[Site]:
    shutil.copytree(folder, tmp_path / "site")
    for name in ("tinyedge.js", "diagnostics.js"):
        shutil.copy(folder / "addition" / name, tmp_path / "site")
    site = Site(tmp_path / "site")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Any]:
    context = browser.chromium.new_context()
    opened = context.new_page()
    opened.goto(site.url)
    yield opened
    context.close()


def evaluate(page: Any, body: str) -> Any:
    return page.evaluate("async () => {" + SETUP + FAULTS + body + "}")


# ---- GPU buffers


def test_buffers_that_the_device_refuses(page: Any) -> None:
    """Each run rejects and changes no state; the queue and the page's scopes are as before."""
    got = evaluate(
        page,
        """
        const device = await openDevice(), other = await openDevice();
        let uncaptured = 0;
        device.addEventListener("uncapturederror", () => uncaptured++);
        addEventListener("unhandledrejection", () => uncaptured++);
        const model = await load("/counter/", {device});
        const gone = buffer(device), source = await load("/counter/", {device});
        gone.destroy();
        const {total} = await source.run({x}, {keep: ["total"]});
        source.dispose();
        const bad = {
          "without COPY_SRC": buffer(device, STORAGE),
          "destroyed": gone,
          "of another device": buffer(other),
          "mapped": buffer(device, COPY_SRC | MAP_WRITE, {mappedAtCreation: true}),
          "of a disposed model": {buffer: total.gpu.buffer, offset: total.gpu.offset},
        };
        const first = (await model.run({x})).total.data[0], faults = {};
        device.pushErrorScope("validation");
        for (const [name, given] of Object.entries(bad)) {
          faults[name] = await errorOf(() => model.run({x: given}));
          faults[name].kept = (await errorOf(() => model.run({x: given}, {keep: true}))).id;
        }
        const scope = await device.popErrorScope();
        const state = (await model.getState("memory")).data[0];
        const pending = [model.run({x: gone}), model.run({x})];
        const [failed, right] = await Promise.allSettled(pending);
        return {faults, first, state, scope, uncaptured,
                after: [failed.reason?.id, right.value?.total.data[0]]};
        """,
    )
    assert len(got["faults"]) == 5
    for name, fault in got["faults"].items():
        assert (fault["id"], fault["kept"]) == ("run.input.buffer",) * 2, name
        assert fault["subject"] == 'input "x"' and "COPY_SRC" in fault["next"]
    assert "a caller's" in got["faults"]["destroyed"]["because"]
    assert (got["first"], got["state"]) == (11, 11)
    assert got["after"] == ["run.input.buffer", 12]
    assert got["scope"] is None and got["uncaptured"] == 0


def test_what_a_kept_output_can_be(page: Any, site: Site) -> None:
    """The input of another model on the device, not of the same one; its count is beside it."""
    program = programs.selection(TARGET)
    write_bundle(program, site.folder / "selection", extras=runtime_files(program))
    got = evaluate(
        page,
        """
        const source = await load("/counter/"), device = source.device;
        const other = await load("/counter/", {device}), chosen = await load("/selection/");
        const {total} = await source.run({x}, {keep: ["total"]});
        const given = {...total.gpu, shape: total.shape};
        const refused = await errorOf(() => source.run({x: given}));
        const fed = (await other.run({x: given})).total.data[0];
        const rows = new Float32Array(16);
        const out = await chosen.run({x: rows, n: [3]}, {keep: ["picked"]});
        const part = await errorOf(() => chosen.run({x: rows, n: [3.5]}));
        const nested = await errorOf(() => source.run({x: [Array.from(x)]}));
        return {refused, fed, kept: out.picked.shape, cut: out.beside.shape,
                number: out.number.data[0], ids: [part.id, nested.id]};
        """,
    )
    assert got["refused"]["id"] == "run.shape"
    assert "the model's own memory" in got["refused"]["because"]
    assert got["fed"] == 10 + 11
    assert (got["kept"], got["cut"], got["number"]) == ([8, 2], [2, 3], 3)
    assert got["ids"] == ["run.range", "run.shape"]


def test_a_refused_buffer_before_a_condition_is_read(page: Any) -> None:
    got = evaluate(
        page,
        """
        const model = await load("/repeat/"), bad = buffer(model.device, STORAGE), n = [1];
        const fault = await errorOf(() => model.run({x: bad, n}));
        const good = buffer(model.device);
        model.device.queue.writeBuffer(good, 0, x);
        return [fault.id, (await model.run({x: good, n})).x_out.data[0]];
        """,
    )
    assert got == ["run.input.buffer", 2]


def test_what_the_device_says_against_a_run_of_ours(page: Any) -> None:
    """Memory of the model destroyed by the page; no memory left; a device lost without results."""
    got = evaluate(
        page,
        """
        const model = await load("/counter/"), ids = [];
        const pop = GPUDevice.prototype.popErrorScope, full = new GPUOutOfMemoryError("full");
        let count = 0;
        GPUDevice.prototype.popErrorScope = async function () {
          const fault = await pop.call(this);
          return count++ % 3 === 1 ? full : fault;
        };
        ids.push((await errorOf(() => model.run({x}))).id);
        GPUDevice.prototype.popErrorScope = pop;
        (await model.run({x}, {keep: true})).total.gpu.buffer.destroy();
        ids.push((await errorOf(() => model.run({x}))).id);
        ids.push((await errorOf(() => model.setState("memory", x))).id);
        ids.push((await errorOf(() => model.reset())).id);
        ids.push((await errorOf(() => model.getState("memory"))).id);
        const second = await load("/counter/");
        second.device.destroy();
        for (const options of [{keep: true}, {}])
          ids.push((await errorOf(() => second.run({x}, options))).id);
        ids.push((await errorOf(() => second.reset())).id);
        return ids;
        """,
    )
    assert got == ["device.memory", *["device.run"] * 4, *["device.lost"] * 3]


def test_places_in_a_buffer(page: Any) -> None:
    got = evaluate(
        page,
        """
        const model = await load("/counter/"), whole = buffer(model.device), faults = [];
        for (const offset of [-4, 4, 2, 0.5, NaN, Infinity, "8"])
          faults.push(await errorOf(() => model.run({x: {buffer: whole, offset}})));
        for (const given of [new ArrayBuffer(256), x.buffer, model.device, {}])
          faults.push(await errorOf(() => model.run({x: {buffer: given}})));
        return faults.map(({id}) => id);
        """,
    )
    assert got == ["run.shape"] * 7 + ["run.dtype"] * 4


# ---- servers and caches


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


def test_answers_that_are_no_files(page: Any, site: Site) -> None:
    """Statuses, with whether trying again helps; a page of HTML in place of a file."""
    faults = {}
    for name in ("manifest.json", "weights-00000.bin"):
        for status in (401, 403, 404, 408, 410, 425, 429, 500, 503):
            site.statuses = {name: status}
            faults[name, status] = evaluate(page, 'return errorOf(() => load("/addition/"))')
    for (name, status), fault in faults.items():
        missing = "bundle.manifest.missing" if name == "manifest.json" else "bundle.file.missing"
        assert fault["id"] == (missing if status == 404 else "load.http")
        assert str(status) in fault["because"] and fault["subject"] == name
        again = "try again" in fault["next"]
        assert again == (status in (408, 425, 429, 500, 503)), (status, fault["next"])
    site.statuses = {}
    site.missing = "\n<!DOCTYPE html><html><title>An app</title>" + 2000 * "<p>more</p>"
    (site.folder / "addition" / "weights-00000.bin").unlink()
    for folder, id in (("nowhere", "bundle.manifest.missing"), ("addition", "bundle.file.missing")):
        fault = evaluate(page, f'return errorOf(() => load("/{folder}/"))')
        assert fault["id"] == id and "HTML" in fault["because"]


# ---- options and values


def test_options_that_do_not_exist(page: Any) -> None:
    got = evaluate(
        page,
        """
        const model = await load("/addition/"), state = await load("/counter/"), inputs = add(1, 2);
        const {signal} = new AbortController(), faults = [];
        for (const options of [{signal}, {keeps: true}, "keep", {keep: ["typo"]}, {keep: "half"},
                               {keep: false}, {keep: [1]}, {keep: null}, {keep: {half: true}}])
          faults.push(await errorOf(() => model.run(inputs, options)));
        for (const work of [
          () => model.verify({signals: signal}), () => model.profile(inputs, {keep: true}),
          () => model.example({entri: "main"}), () => load("/addition/", {onprogress: null}),
          () => state.getState(), () => state.getState("typo"), () => state.setState("typo", x),
          () => state.setState("memory"), () => state.setState("memory", "text"),
          () => model.getState("any"), () => model.run(inputs, {entry: "typo"}),
          () => model.run(inputs, {symbols: {N: 1}}),
          () => load("/addition/", {device: openDevice()}),
          async () => load("/addition/", {device: await navigator.gpu.requestAdapter()}),
        ]) faults.push(await errorOf(work));
        const one = await model.run(inputs, {keep: ["c"], entry: undefined, symbols: null});
        const none = await model.run(inputs, null);
        return {faults, one: [!!one.c.gpu, one.half.data[0]], none: none.c.data[1],
                peek: (await state.profile(null, {entry: "peek"})).length};
        """,
    )
    ids = [fault["id"] for fault in got["faults"]]
    assert ids == [
        *["run.option"] * 9,
        *["run.option", "run.option", "run.option", "load.option"],
        *["run.state", "run.state", "run.state", "run.dtype", "run.dtype", "run.state"],
        *["run.entry", "run.shape", "load.option", "load.option"],
    ]
    assert "entry,symbols,keep" in got["faults"][0]["next"]
    assert "c,half" in got["faults"][3]["next"]
    assert got["one"] == [True, 131] and got["none"] == 4


def test_values_that_are_no_arrays(page: Any) -> None:
    got = evaluate(
        page,
        """
        const model = await load("/addition/"), texts = {};
        const bad = {
          undefined: undefined, null: null, HTMLImageElement: new Image(), String: "text",
          ArrayBuffer: new ArrayBuffer(1024), Promise: Promise.resolve(fill(1)), Number: 5, zero: 0,
          DataView: new DataView(new ArrayBuffer(1024)), ImageData: new ImageData(8, 8),
          Object: {}, Int32Array: new Int32Array(256), Map: new Map(), Function: () => 1,
        };
        for (const [name, a] of Object.entries(bad)) {
          const {id, because} = await errorOf(() => model.run({a, "b:0": fill(1)}));
          texts[name] = [id, because];
        }
        const ids = [];
        for (const inputs of [undefined, null, 5, "text", [], fill(1), Promise.resolve({})])
          ids.push((await errorOf(() => model.run(inputs))).id);
        for (const value of ["1", null, undefined, {}, [2], NaN])
          ids.push((await errorOf(() => model.run({...add(1, 1), a: Array(256).fill(value)}))).id);
        return [texts, ids];
        """,
    )
    texts, ids = got
    for name in ("undefined", "null"):
        assert texts.pop(name) == ["run.input", "it is missing"]
    assert texts.pop("zero") == ["run.dtype", "it takes float32 [4,64], not Number"]
    assert texts.pop("ImageData")[0] == "run.dtype"
    for name, text in texts.items():
        assert text == ["run.dtype", f"it takes float32 [4,64], not {name}"]
    assert ids == [*["run.input"] * 7, *["run.range"] * 5, "none"]


def test_sizes_of_other_types(page: Any) -> None:
    got = evaluate(
        page,
        """
        const model = await load("/symbolic/");
        const data = new Float32Array(8), bias = new Float32Array(4);
        const run = (shape, symbols) =>
          errorOf(() => model.run({x: {data, shape}, bias: {data: bias, shape: [4n]}}, {symbols}));
        const ids = [];
        for (const shape of [[2n, 4n], ["2", "4"], new Uint8Array([2, 4]), [2.5, 4], 8, "2,4", [2]])
          ids.push((await run(shape)).id);
        for (const N of ["2", 2n, 2, 2.5, null, "two", {}]) ids.push((await run([2, 4], {N})).id);
        return ids;
        """,
    )
    assert got == [*["none"] * 3, *["run.shape"] * 4, *["none"] * 3, *["run.shape"] * 4]


def test_arrays_of_another_window_and_of_memory_that_grows(page: Any) -> None:
    got = evaluate(
        page,
        """
        const frame = document.body.appendChild(document.createElement("iframe")).contentWindow;
        const model = await load("/addition/"), sums = [];
        const other = new frame.Float32Array(256).fill(1), list = frame.Array(256).fill(1);
        const grows = new Float32Array(new ArrayBuffer(1024, {maxByteLength: 4096})).fill(1);
        const inside = new Float32Array(
          new ArrayBuffer(2048, {maxByteLength: 4096}), 1024).fill(1);
        class Named extends Float32Array {}
        const given = [other, list, {data: other, shape: new frame.Array(4, 64)}, grows, inside,
                       new Named(256).fill(1)];
        if (globalThis.crossOriginIsolated)
          given.push(new Float32Array(new SharedArrayBuffer(1024, {maxByteLength: 4096})).fill(1));
        for (const a of given) sums.push((await model.run({a, "b:0": a})).c.data[1]);
        const runs = given.map((a) => model.run({a, "b:0": a}));
        for (const {c} of await Promise.all(runs)) sums.push(c.data[1]);
        const state = await load("/counter/");
        await state.setState("memory", new frame.Float32Array(64).fill(3));
        const gone = new Float32Array(256);
        structuredClone(gone.buffer, {transfer: [gone.buffer]});
        return [sums, (await state.getState("memory")).data[0],
                (await errorOf(() => model.run({a: gone, "b:0": other}))).id];
        """,
    )
    assert set(got[0]) == {3} and len(got[0]) >= 12
    assert got[1:] == [3, "run.shape"]


def test_addresses(page: Any, site: Site) -> None:
    """No address, and a relative one in a worker that has no place of its own."""
    got = page.evaluate(
        """async (url) => {
          const {load} = await import("/tinyedge.js");
          const text = `onmessage = ({data}) => answer(data).catch((e) => postMessage([String(e)]));
          const answer = async (data) => {
            const {load} = await import(data + "tinyedge.js"), ids = [];
            for (const address of ["./addition/", "/addition/", data + "addition/"])
              await load(address)
                .then(() => ids.push("none"), ({id, because}) => ids.push(id + " " + because));
            postMessage(ids);
          }`;
          const script = new Blob([text], {type: "text/javascript"});
          const worker = new Worker(URL.createObjectURL(script), {type: "module"});
          const answer = new Promise((resolve, reject) => {
            worker.onmessage = ({data}) => resolve(data);
            worker.onerror = reject;
          });
          worker.postMessage(url);
          const ids = [];
          for (const address of [undefined, null, 5, {}, Promise.resolve("/addition/"), "http://["])
            await load(address).then(() => ids.push("none"), ({id}) => ids.push(id));
          const model = await load(new URL("/addition/", location.href));
          return [ids, await answer, model.inputs.length];
        }""",
        site.url,
    )
    assert got[0] == ["load.url"] * 6 and got[2] == 2
    assert [answer.split()[0] for answer in got[1]] == ["load.url", "load.url", "none"]
    assert "blob:" in got[1][0]


# ---- what stays


def test_disposed_models_leave_a_shared_device(page: Any) -> None:
    """The page keeps the device and one signal; nothing of the models stays with either."""
    session = page.context.new_cdp_session(page)
    evaluate(
        page,
        """
        const device = (globalThis.device = await openDevice());
        const {signal} = (globalThis.controller = new AbortController());
        globalThis.models = [];
        for (let i = 0; i < 10; i++) {
          const model = await load("/addition/", {device, signal});
          await model.run(add(1, 2));
          model.dispose();
          models.push(new WeakRef(model), new WeakRef(model.manifest));
        }
        """,
    )
    session.send("HeapProfiler.enable")
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
        page.evaluate("() => new Promise((resolve) => setTimeout(resolve, 50))")
    alive = page.evaluate("() => models.filter((model) => model.deref()).length")
    assert alive == 0
    got = evaluate(
        page,
        """
        const model = await load("/addition/", {device});
        device.destroy();
        return (await errorOf(() => model.run(add(1, 2)))).id;
        """,
    )
    assert got == "device.lost"


def test_an_abort_while_kernels_compile(page: Any) -> None:
    got = evaluate(
        page,
        """
        const stop = new AbortController(), {signal} = stop;
        const onProgress = ({compiled}) => compiled && stop.abort(new Error("enough"));
        return (await errorOf(() => load("/several/", {signal, onProgress}))).text;
        """,
    )
    assert got == "enough"


def test_the_page_from_disk(browser: Browser, folder: Path) -> None:
    """No module and no fetch there: it says so, and what to do."""
    context = browser.chromium.new_context()
    page = context.new_page()
    page.goto((folder / "addition" / "index.html").as_uri())
    page.get_by_text("tinyedge serve").wait_for()
    context.close()
    with browser.page(folder / "addition", start="") as page:
        page.get_by_role("button", name="Run").wait_for()
        assert not page.get_by_text("tinyedge serve").is_visible()
