"""Bundles with a program for WebAssembly, where nothing finds a GPU: in Chromium, Firefox, Node,
Deno and workerd, which runs workers at Cloudflare's edge.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tests.attacks.make import spell
from tests.process_replay import corpus
from tests.runtimes.firefox import told
from tests.runtimes.site import serving
from tinyedge.cli import execute
from tinyedge.core.dtype import float32, int32
from tinyedge.core.errors import BundleError, DeviceError, InputError
from tinyedge.export.bundle import writing
from tinyedge.export.bundle.reading import fallback_of, read, read_fallback
from tinyedge.export.package.web import web_file
from tinyedge.export.verify.browser import CHROMIUM_NAMES, Browser, BrowserRunError
from tinyedge.serve import Server
from tinyedge.targets.cpu import fallback, wasm

PROGRAMS = Path(__file__).parent / "js" / "node_modules" / ".bin"
DENO, WORKERD = PROGRAMS / "deno", PROGRAMS / "workerd"
RNG = np.random.default_rng(3)
MANIFESTS = ("manifest-00001.json", "manifest.json")

# Every type, in memory and in arithmetic.
TYPES = {
    "flags": RNG.integers(0, 2, 40).astype(bool),
    "bytes": RNG.integers(-100, 100, 40).astype(np.int8),
    "words": RNG.integers(0, 2**16, 40).astype(np.uint16),
    "big": RNG.integers(-(2**40), 2**40, 40),
    "halves": RNG.normal(size=40).astype(np.float16),
    "doubles": RNG.normal(size=40),
}


def types(flags: Any, bytes: Any, words: Any, big: Any, halves: Any, doubles: Any) -> Any:
    return {
        "flags": ~flags,
        "bytes": bytes * bytes,
        "words": words + words,
        "big": big * 3,
        "halves": halves * 1.5,
        "doubles": doubles.exp(),
    }


def integers(codes: Any, weights: Any) -> Any:
    return {"sums": (codes.cast(int32) - 113) @ weights.cast(int32)}


def entries(folder: Path) -> dict[str, Any]:
    """Graphs of every kind, each a model of its own."""
    codes = RNG.integers(0, 256, (16, 37)).astype(np.uint8)
    weights = RNG.integers(-128, 128, (37, 16)).astype(np.int8)
    made: dict[str, Any] = {
        "types": (types, TYPES),
        "integers": (integers, {"codes": codes, "weights": weights}),
    }
    for name in ("depthwise", "softmax", "layer_norm", "pooling", "concatenation"):
        path = folder / f"{name}.onnx"
        path.write_bytes(corpus.GRAPHS[name]().SerializeToString())
        made[name] = path
    return made


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a state, and entries beside it."""
    folder = tmp_path_factory.mktemp("wasm")
    weight = RNG.normal(size=(8, 64)).astype(np.float32)

    def step(x: Any, total: Any) -> Any:
        total_out = total + x @ weight
        return {"y": total_out.relu(), "total_out": total_out}

    return tinyedge.export_function(
        step,
        {"x": np.zeros((2, 8), np.float32), "total": np.zeros((2, 64), np.float32)},
        target="webgpu",
        fallback="wasm",
        out=folder / "model.tinyedge",
        states={"total": "total_out"},
        entries=entries(folder),
    )


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plain") / "model.tinyedge"
    return tinyedge.export_function(lambda x: x + 1, {"x": np.zeros(4, np.float32)}, out=out)


SETUP = """
const {load} = await import("/tinyedge.js");
const idOf = (promise) => promise.then(() => "none", (error) => error.id ?? String(error));
"""


def evaluate(page: Any, body: str) -> Any:
    return page.evaluate("async () => {" + SETUP + body + "}")


@pytest.fixture
def page(browser: Browser, bundle: Path) -> Iterator[Any]:
    with browser.page(bundle) as opened:
        yield opened


def test_a_software_adapter_is_slower_than_the_processor(page: Any) -> None:
    """So the processor is taken, unless the page wants the adapter."""
    seen = evaluate(
        page,
        """
        const seen = {};
        for (const backend of [undefined, "wasm", "webgpu"]) {
          const model = await load("/", {backend}), report = await model.verify();
          seen[backend] = [model.backend, report.passed, report.cases.length];
          if (backend === "wasm") {
            const beside = await load("/", {device: model.device});
            seen.beside = beside.backend;
          }
          model.dispose();
        }
        // Chromium said it beside info until 135, and had none until 126; Safari 26 says nothing.
        const say = (name, value) =>
          Object.defineProperty(GPUAdapter.prototype, name, {value, configurable: true});
        seen.older = [];
        for (const [info, beside] of [[{}], [{}, true], [undefined, true], [undefined, false]]) {
          say("info", info);
          say("isFallbackAdapter", beside);
          const model = await load("/");
          seen.older.push(model.backend);
          model.dispose();
        }
        return seen;
        """,
    )
    assert seen.pop("older") == ["webgpu", "wasm", "wasm", "webgpu"]
    assert seen.pop("beside") == "wasm", "of a model's device there, which no GPU takes"
    assert seen == {
        "undefined": ["wasm", True, 8],
        "wasm": ["wasm", True, 8],
        "webgpu": ["webgpu", True, 8],
    }


def test_a_browser_without_a_gpu(browser: Browser, bundle: Path) -> None:
    """It has WebGPU's objects, and no adapter: the processor is taken, where a page may compile."""
    found = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    args = ["--no-sandbox", "--disable-gpu", "--disable-software-rasterizer"]
    chromium = browser.playwright.chromium.launch(executable_path=found, headless=True, args=args)
    with Browser(browser.playwright, chromium).page(bundle) as page:
        seen = evaluate(
            page,
            """
            const adapter = await navigator.gpu.requestAdapter(), model = await load("/"),
              report = await model.verify();
            const id = await idOf(load("/", {backend: "webgpu"}));
            return [adapter, model.backend, report.passed, id];
            """,
        )
    with serving(bundle) as site:
        policy = "default-src 'none'; script-src 'self'; connect-src 'self'"
        site.more = {"Content-Security-Policy": policy}
        page = chromium.new_page()
        page.goto(site.url)
        refused = evaluate(page, 'return idOf(load("/"));')
    chromium.close()
    assert seen == [None, "wasm", True, "device.adapter"]
    assert refused == "device.wasm"


def test_integers_are_multiplied_in_pairs(bundle: Path) -> None:
    """By the instruction i32x4.dot_i16x8_s, which needs no relaxed SIMD."""
    for name in wasm.MODULES:
        assert b"\xfd\xba\x01" in (bundle / name).read_bytes()


def test_only_one_program_is_fetched(page: Any, bundle: Path) -> None:
    fetched = evaluate(
        page,
        """
        const fetched = {};
        for (const backend of ["wasm", "webgpu"]) {
          performance.clearResourceTimings();
          (await load("/", {backend})).dispose();
          const names = performance.getEntriesByType("resource")
            .map(({name}) => name.split("/").pop())
            .filter((name) => /^(kernels|weights)/.test(name));
          fetched[backend] = [...new Set(names)].sort();
        }
        return fetched;
        """,
    )
    kernels = {name: [f for f in fetched[name] if f.startswith("kernels")] for name in fetched}
    assert kernels == {"wasm": ["kernels-00002.wasm"], "webgpu": ["kernels.wgsl"]}, (
        "Chromium has relaxed SIMD"
    )
    own = {file["name"] for file in (read_fallback(bundle) or {})["files"]}
    assert set(fetched["wasm"]) <= own


# Large enough for threads, and so small that a group is little.
WIDE = RNG.normal(size=(96, 160)).astype(np.float32)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinyedge.export_function(
        lambda x: {"y": (x @ x.permute((1, 0))).exp().sum(0), "z": x.exp() * 3},
        {"x": WIDE},
        fallback="wasm",
        out=tmp_path_factory.mktemp("wide") / "model.tinyedge",
    )


RUNS = """
  const model = await load("/", {backend: "wasm"}), inputs = await model.example();
  const {passed} = await model.verify();
  const seen = [];
  for (let i = 0; i < 50; i++) {
    const {y, z} = await model.run(inputs);
    seen.push([...y.data, ...z.data].join());
  }
  const {y} = await model.run(inputs);
  const shared = y.data.buffer instanceof globalThis.SharedArrayBuffer;
  const {threads} = model;
  model.dispose();
  return {threads, passed, shared, results: [...new Set(seen)]};
"""


def test_threads_give_what_one_gives(browser: Browser, wide: Path) -> None:
    """Where a page is isolated; the second has another number of cores, the third no workers."""
    found = []
    for before in (
        "",
        "Object.defineProperty(navigator, 'hardwareConcurrency', {value: 5});",
        "globalThis.Worker = class { constructor() { throw new Error('none'); } };",
        "Object.defineProperty(globalThis, 'crossOriginIsolated', {value: false});",
    ):
        with browser.page(wide) as page:
            assert page.evaluate("crossOriginIsolated")
            found.append(evaluate(page, before + RUNS))
    cores = min(8, os.cpu_count() or 1)
    assert [seen["threads"] for seen in found] == [cores, 5, 1, 1]
    assert all(seen["passed"] and not seen["shared"] for seen in found)
    assert len({result for seen in found for result in seen["results"]}) == 1


def test_a_worker_of_the_page_has_threads(browser: Browser, wide: Path) -> None:
    worker = (
        'addEventListener("message", async () => postMessage(await (async () => {'
        + SETUP
        + RUNS.replace('load("/"', "load(location.origin")
        + "})()));"
    )
    pages = {"worker.js": ("text/javascript", worker)}
    with browser.page(wide, pages=pages) as page:
        seen = page.evaluate(
            """() => new Promise((resolve, reject) => {
              const worker = new Worker("/worker.js", {type: "module"});
              worker.onerror = ({message}) => reject(new Error(message));
              worker.onmessage = ({data}) => resolve(data);
              worker.postMessage(0);
            })"""
        )
    assert (seen["threads"], seen["passed"]) == (min(8, os.cpu_count() or 1), True)
    assert len(seen["results"]) == 1


def test_states_and_kept_outputs(page: Any) -> None:
    seen = evaluate(
        page,
        """
        const model = await load("/", {backend: "wasm"}), x = new Float32Array(16).fill(1);
        const one = await model.run({x}), two = await model.run({x}, {keep: ["y"]});
        const state = await model.getState("total");
        await model.setState("total", new Float32Array(128).fill(2));
        const [kept, none] = await Promise.all([model.getState("total"), idOf(model.run({}))]);
        await model.reset();
        const again = await model.run({x});
        const entry = {entry: "softmax"}, input = await model.example(entry);
        const [name] = Object.keys(input);
        return {
          one: Array.from(one.y.data), again: Array.from(again.y.data),
          state: Array.from(state.data),
          size: two.y.gpu.size, kept: Array.from(kept.data.slice(0, 2)), none,
          stranger: await idOf(model.run({...input, [name]: new (class GPUBuffer {
            size = 1e6; get [Symbol.toStringTag]() { return "GPUBuffer"; }
          })}, entry)),
        };
        """,
    )
    assert seen["one"] == seen["again"]
    np.testing.assert_allclose(
        np.maximum(seen["state"], 0), 2 * np.array(seen["one"]), rtol=1e-5, atol=1e-5
    )
    assert (seen["size"], seen["kept"], seen["none"]) == (512, [2, 2], "run.input")
    assert seen["stranger"] == "run.input.buffer"


def test_buffers_that_the_device_refuses(page: Any) -> None:
    """With the ids of a GPU's device, as input and as output; nothing is computed then."""
    got = evaluate(
        page,
        """
        const open = () => load("/", {backend: "wasm"}), model = await open(), other = await open();
        const made = (usage = 140, more = {}, {device} = model) =>
          device.createBuffer({label: "a caller's", size: 512, usage, ...more});
        const gpu = await (await navigator.gpu.requestAdapter()).requestDevice();
        // The first of each device lie at one place.
        const first = made(), strange = made(140, {}, other), gone = made();
        const written = made(4, {mappedAtCreation: true});
        gone.destroy();
        const bad = {
          usage: made(128), gone, mapped: made(140, {mappedAtCreation: true}), strange,
          gpu: gpu.createBuffer({size: 512, usage: 140}),
        };
        const x = new Float32Array(16).fill(1), total = () => model.getState("total");
        await model.run({x});
        const before = String((await total()).data), faults = {};
        for (const [name, buffer] of Object.entries(bad)) {
          faults[name] = await Promise.all([
            model.run({x: buffer}), model.run({x: buffer}, {keep: true}),
            model.run({x}, {into: {y: buffer}}),
          ].map((run) => run.then(() => "none", ({id, because}) => id + ": " + because)));
        }
        const after = String((await total()).data);
        // Memory of the model that the page has destroyed.
        (await other.run({x}, {keep: true})).y.gpu.buffer.destroy();
        model.device.queue.writeBuffer(strange, 0, new Float32Array(128).fill(7));
        await model.reset();
        const untouched = (await model.run({x: first})).y.data.every((value) => value === 0);
        // What is written while it is mapped; places in elements.
        new Float32Array(written.getMappedRange(0, 64)).fill(1);
        written.unmap();
        const buffer = made(12);
        model.device.queue.writeBuffer(buffer, 0, new Float32Array([...x, ...x, 3]), 16, 16);
        await model.reset();
        const outs = [];
        for (const given of [x, written, buffer]) {
          await model.reset();
          outs.push(String((await model.run({x: given})).y.data));
        }
        const broken = await idOf(other.run({x}));
        other.device.destroy();
        return {faults, same: before === after, untouched, outs, broken,
                lost: await idOf(other.run({x})), again: await idOf(other.getState("total"))};
        """,
    )
    assert list(got["faults"]) == ["usage", "gone", "mapped", "strange", "gpu"]
    because = ("lacks", "was destroyed", "is mapped", "is not of this", "is not of this")
    for (name, faults), word in zip(got["faults"].items(), because, strict=True):
        ids = [fault.split(":")[0] for fault in faults]
        assert ids == [*["run.input.buffer"] * 2, "run.output.buffer"], name
        assert word in faults[0] and (word in faults[2] or name == "usage"), name
    assert got["same"] and got["untouched"] and len(set(got["outs"])) == 1
    assert (got["broken"], got["lost"], got["again"]) == ("device.run", *["device.lost"] * 2)


def test_open_sizes_and_loops(browser: Browser, tmp_path: Path) -> None:
    """Kernels get the sizes of a run; a loop reads its condition. A profile is the GPU's alone."""
    model = tmp_path / "m.onnx"
    for name, options in {
        "convolution": {"dims": {"rows": "4..20", "columns": "3..9"}},
        "loop": {"profile": "wide"},
    }.items():
        model.write_bytes(corpus.GRAPHS[name]().SerializeToString())
        bundle = tinyedge.export_onnx(model, fallback="wasm", out=tmp_path / name, **options)  # type: ignore[arg-type]
        report = browser.verify(bundle, {"backend": "wasm"})
        assert report["passed"], report
        assert report["cases"]


def test_what_is_wrong_is_said(page: Any, browser: Browser, without: Path) -> None:
    seen = evaluate(
        page,
        """
        const grow = WebAssembly.Memory.prototype.grow;
        WebAssembly.Memory.prototype.grow = () => { throw new RangeError("no more"); };
        const memory = await idOf(load("/", {backend: "wasm"}));
        WebAssembly.Memory.prototype.grow = grow;
        const model = await load("/", {backend: "wasm"});
        model.dispose();
        return {
          memory,
          disposed: await idOf(model.getState("total")),
          name: await idOf(load("/", {backend: "cpu"})),
          module: await idOf(load("/", {module: new ArrayBuffer(8)})),
        };
        """,
    )
    assert seen == {
        "memory": "device.memory",
        "disposed": "run.disposed",
        "name": "load.option",
        "module": "load.option",
    }
    with browser.page(without) as opened:
        assert evaluate(opened, 'return idOf(load("/", {backend: "wasm"}))') == "load.backend"


def test_a_damaged_module_is_refused(browser: Browser, bundle: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle, tmp_path / "copy")
    for name in ("kernels-00002.wasm", "manifest-00001.json"):
        content = bytearray((bundle / name).read_bytes())
        content[50] ^= 1
        (copy / name).write_bytes(content)
        with pytest.raises(BrowserRunError) as raised:
            browser.verify(copy, {"backend": "wasm"})
        assert raised.value.id == "bundle.file.hash"
        assert browser.verify(copy, {"backend": "webgpu"})["passed"]
    with pytest.raises(BundleError) as refused:
        read_fallback(copy)
    assert refused.value.id == "bundle.file.hash"


@pytest.mark.parametrize("runtime", ["node", "deno"])
def test_runtimes_without_a_gpu(runtime: str, tmp_path: Path) -> None:
    if runtime == "deno" and not DENO.exists() and not os.environ.get("CI"):
        pytest.skip(f"`npm ci` in {DENO.parents[2]} brings it")
    bundle = tinyedge.export_function(
        lambda x, n: {"y": (x @ x.exp()).relu(), "n": n * n},
        {"x": np.zeros((24, 24), np.float32), "n": np.zeros(5, np.int64)},
        fallback="wasm",
        out=tmp_path / "model.tinyedge",
    )
    script = tmp_path / "run.mjs"
    with Server(bundle) as server:
        module = (bundle / "tinyedge.js").as_uri()
        script.write_text(
            f"import {{load}} from {json.dumps(module)};\n"
            f"const model = await load({json.dumps(server.url)});\n"
            "const {passed} = await model.verify();\n"
            "console.log(JSON.stringify([model.backend, passed]));\n"
        )
        command = ["node"] if runtime == "node" else [str(DENO), "run", "--allow-all", "--no-lock"]
        done = subprocess.run(
            [*command, str(script)], capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == ["wasm", True]


def test_firefox(bundle: Path, tmp_path: Path) -> None:
    """As it is installed, which on Linux has no WebGPU. Until version 155 it keeps the failure of a
    module's address: the runtime's files come by others then.
    """
    policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'"
    said = told(
        shutil.copytree(bundle, tmp_path / "site"),
        'import("./tinyedge.js").then(async ({load}) => {\n'
        '  const model = await load("./"), {passed, cases} = await model.verify();\n'
        "  await say(!navigator.gpu, model.backend, passed, cases.length);\n"
        "}).catch((error) => say(error.id, error.message));\n",
        headers={"Content-Security-Policy": policy},
        statuses={"loading.js": [503], "wasm.js": [503]},
    )
    assert said == "true:wasm:true:8"


WORKER = """
import {load} from "./tinyedge.js";
import module from "./kernels.wasm";
let model;
const idOf = (promise) => promise.then(() => "none", (error) => error.id ?? String(error));
export default {
  async fetch(request, {BUNDLE}) {
    const url = "https://bundle/",
      fetch = (address, init) => BUNDLE.fetch(address, init),
      bytes = idOf(load(url, {fetch}));
    const kept = !!model;
    model ??= await load(url, {fetch, module});
    const {passed, cases} = await model.verify();
    return Response.json([kept, model.backend, passed, cases.length, await bytes]);
  },
};
"""
MODULES = ("tinyedge.js", "loading.js", "wasm.js", "extras.js")
CONFIGURATION = """
using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = (
      modules = [%s],
      bindings = [(name = "BUNDLE", service = "bundle")],
      compatibilityDate = "2026-01-01",
    )),
    (name = "bundle", disk = (path = "%s")),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
"""


def test_a_worker_at_the_edge(bundle: Path, tmp_path: Path) -> None:
    """It may compile no bytes: the module comes with the script. It answers twice by one model."""
    if not WORKERD.exists() and not os.environ.get("CI"):
        pytest.skip(f"`npm ci` in {WORKERD.parents[2]} brings it")
    (tmp_path / "worker.js").write_text(WORKER)
    for name in MODULES:
        shutil.copy(bundle / name, tmp_path)
    shutil.copy(bundle / "kernels-00002.wasm", tmp_path / "kernels.wasm")
    modules = [f'(name = "{n}", esModule = embed "{n}")' for n in ("worker.js", *MODULES)]
    modules.append('(name = "kernels.wasm", wasm = embed "kernels.wasm")')
    file = tmp_path / "worker.capnp"
    file.write_text(CONFIGURATION % (", ".join(modules), bundle))
    ours, theirs = os.pipe()
    with subprocess.Popen(
        [str(WORKERD), "serve", str(file), f"--control-fd={theirs}"],
        pass_fds=[theirs],
        stderr=subprocess.PIPE,
        text=True,
    ) as workerd:
        os.close(theirs)
        with os.fdopen(ours) as control:
            port = next((json.loads(line)["port"] for line in control if '"listen"' in line), None)
        seen = []
        if port is not None:
            for _ in range(2):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=120) as answer:
                    seen.append(json.loads(answer.read()))
        workerd.terminate()
        _, said = workerd.communicate()
    assert seen == [[kept, "wasm", True, 8, "device.wasm"] for kept in (False, True)], said


def test_verify_names_both_programs(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # In a thread of its own: playwright has one driver a thread, and other tests may keep one.
    with ThreadPoolExecutor(1) as thread:
        code = thread.submit(execute, ["verify", str(bundle), "--browser", "--json"]).result()
    answer = json.loads(capsys.readouterr().out)
    assert (code, answer["device"]) == (0, "Chromium, by WebGPU and by WebAssembly")
    programs = Counter(case["program"] for case in answer["cases"])
    assert programs == {"webgpu": 8, "wasm": 8}


def test_a_compiled_function_has_one(tmp_path: Path) -> None:
    double = tinyedge.jit(lambda x: x + x)
    example = [tinyedge.Tensor(np.ones(4, np.float32))]
    bundle = double.export(tmp_path / "b", example=example, fallback="wasm")
    assert read_fallback(bundle) is not None


def test_growth_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program for WebAssembly is held to the same limit, apart from the other."""
    held: list[int] = []
    monkeypatch.setattr(
        "tinyedge.export.verify.estimate.check_growth", lambda *given: held.append(given[1])
    )
    model = tmp_path / "m.onnx"
    model.write_bytes(corpus.GRAPHS["softmax"]().SerializeToString())
    tinyedge.export_onnx(model, fallback="wasm", out=tmp_path / "b", golden=False)
    assert len(held) == 2
    assert len({*held}) == 2, "the kernels of both"


def test_python_runs_the_program_for_a_gpu(bundle: Path) -> None:
    """It reads both, and the model's inputs and outputs are the same in both."""
    assert read(bundle).program.target == "webgpu"
    other = read_fallback(bundle)
    assert other is not None
    assert other["target"] == "wasm"
    kernels = [file["name"] for file in other["files"] if file["name"].startswith("kernels")]
    assert kernels == ["kernels-00001.c", "kernels-00001.wasm", "kernels-00002.wasm"]
    # The types of memory are the model's own, as the processor has them all.
    assert {p["storage"] for p in other["inputs"]} >= {"int64", "float64", "uint16", "int8"}


# Each kind of weight: filters in rows that a MiB cuts, rows that one of both programs rounds up,
# packed numbers, a table that both read as it is, filters that lie beside each other.
WEIGHTS = {
    "wide": RNG.normal(size=(300, 900)).astype(np.float32),
    "odd": RNG.normal(size=(900, 10)).astype(np.float32),
    "narrow": RNG.normal(size=(300, 2)).astype(np.float32),
    "packed": RNG.integers(-100, 100, (300, 120)).astype(np.int8),
    "filters": RNG.normal(size=(24, 3, 3, 3)).astype(np.float32),
    "depthwise": RNG.normal(size=(24, 1, 3, 3)).astype(np.float32),
    "table": RNG.normal(size=(5000, 16)).astype(np.float32),
    "queries": RNG.normal(size=(300, 64)).astype(np.float32),
    "keys": RNG.normal(size=(300, 64)).astype(np.float32),
}


def layers(x: Any, image: Any, i: Any) -> Any:
    w = {name: tinyedge.Tensor.weight(name, value) for name, value in WEIGHTS.items()}
    queries, keys = (
        (x.abs() @ w[name]).reshape(32, 4, 16).permute(1, 0, 2) for name in ("queries", "keys")
    )
    return {
        "odd": (x @ w["wide"]).relu() @ w["odd"],
        "narrow": x @ w["narrow"],
        "packed": x @ w["packed"].cast(float32),
        "convolved": image.conv(w["filters"]).relu().conv(w["depthwise"], groups=24),
        "found": w["table"].gather(0, i),
        "scores": queries @ keys.permute(0, 2, 1),
    }


def weighty(out: Path) -> Path:
    """With a register more than it has, WebAssembly's tiles have three vectors, so that the end of
    a block cuts a run of their numbers.
    """
    caps = fallback.TARGET.caps("default")
    profiles = {"default": replace(caps, max_vector_registers=caps.max_vector_registers + 1)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fallback, "TARGET", replace(fallback.TARGET, profiles=profiles))
        return tinyedge.export_function(
            layers,
            {
                "x": RNG.normal(size=(32, 300)).astype(np.float32),
                "image": np.zeros((1, 3, 16, 16), np.float32),
                "i": np.zeros(4, np.int32),
            },
            fallback="wasm",
            out=out,
        )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weighty(tmp_path_factory.mktemp("shared") / "model.tinyedge")


def test_weights_are_stored_once(
    browser: Browser, shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And what is made of them gives what copies in the kernels' own order do, to the bit."""
    monkeypatch.setattr(writing, "share_weights", lambda *programs: programs)
    bundles = {"shared": shared, "apart": weighty(tmp_path / "apart")}
    other = read_fallback(shared) or {}
    for each in other["kernels"] + other["steps"]:
        assert not each.get("moves") and not each.get("nodes")
    repacks = other["repacks"]
    words = {axes[-1][0] for axes in repacks if axes}
    assert words >= {3, 12}, "runs of packed numbers, and some that the end of a block cuts"
    size = sum(value.nbytes for value in WEIGHTS.values())
    found, files = {}, {}
    for name, bundle in bundles.items():
        files[name] = sum(file.stat().st_size for file in bundle.glob("weights*"))
        with browser.page(bundle) as page:
            found[name] = evaluate(
                page,
                """
                const model = await load("/", {backend: "wasm"});
                const {passed} = await model.verify();
                const out = await model.run(await model.example());
                const values = Object.values(out).flatMap(({data}) => [...data]);
                return {passed, values};
                """,
            )
        assert browser.verify(bundle, {"backend": "webgpu"})["passed"]
    assert found["shared"]["passed"] and found["shared"] == found["apart"]
    assert size <= files["shared"] < 1.01 * size, files
    assert files["apart"] > files["shared"] + WEIGHTS["wide"].nbytes
    facts = fallback_of(shared)
    assert facts and facts["added_weight_bytes"] < 1000
    assert (fallback_of(bundles["apart"]) or {})["added_weight_bytes"] > WEIGHTS["wide"].nbytes


Change = Callable[[dict[str, Any], dict[str, Any]], object]
HUGE = 2**53 - 1
# What is done to a manifest and to the axes of its first repack, and which error that is.
HOSTILE: dict[str, tuple[str, Change]] = {
    "unlisted": ("bundle.field", lambda m, axes: m["features"].remove("repacks")),
    "twice": ("bundle.name", lambda m, axes: m["features"].append("repacks")),
    "missing": ("bundle.field", lambda m, axes: m.pop("repacks")),
    "a number": ("bundle.field", lambda m, axes: m.update(repacks=1)),
    "one less": ("bundle.index", lambda m, axes: m["repacks"].pop()),
    "one more": ("bundle.index", lambda m, axes: m["repacks"].append([])),
    "no axes": ("bundle.field", lambda m, axes: m["repacks"].__setitem__(0, {})),
    "17 axes": ("bundle.count", lambda m, axes: axes.extend([[1, 1, 1]] * 16)),
    "an axis of two": ("bundle.count", lambda m, axes: axes[0].pop()),
    "an axis that is none": ("bundle.field", lambda m, axes: axes.append(1)),
    "an axis of axes": ("bundle.field", lambda m, axes: axes.append([[1], 1, 1])),
    "no places": ("bundle.field", lambda m, axes: axes.append([0, 0, 1])),
    "a text": ("bundle.field", lambda m, axes: axes[0].__setitem__(0, "1")),
    "a stride of none": ("bundle.field", lambda m, axes: axes[0].__setitem__(2, 0)),
    "more than there is": ("bundle.bounds", lambda m, axes: axes[0].__setitem__(0, 1)),
    "beyond the source": ("bundle.bounds", lambda m, axes: axes[0].__setitem__(0, HUGE)),
    "far beyond": ("bundle.bounds", lambda m, axes: axes.extend([[HUGE, 1, 1]] * 9)),
    "beyond the weight": ("bundle.bounds", lambda m, axes: axes[0].__setitem__(2, HUGE)),
    "one place for two": ("bundle.overlap", lambda m, axes: axes[0].__setitem__(2, 1)),
}


def test_hostile_repacks(browser: Browser, shared: Path, tmp_path: Path) -> None:
    """Both readers refuse each, by the same id, before a weight is fetched."""
    changed, told = {}, {}
    for name, (_, change) in HOSTILE.items():
        other, root = (json.loads((shared / f).read_bytes()) for f in MANIFESTS)
        assert len(other["repacks"][0]) == 3
        change(other, other["repacks"][0])
        text = spell(other)
        facts = {"bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
        texts = (text, spell({**root, "fallback": facts}))
        changed[name] = dict(zip(MANIFESTS, texts, strict=True))
        for file, content in changed[name].items():
            (tmp_path / file).write_text(content)
        with pytest.raises(BundleError) as raised:
            read_fallback(tmp_path)
        told[name] = raised.value.id
    with browser.page(shared) as page:
        answers = page.evaluate(
            "async (changed) => {"
            + SETUP
            + """
            const answers = {};
            let weights = 0;
            for (const [name, texts] of Object.entries(changed)) {
              const given = async (url, init) => {
                const file = url.pathname.slice(1);
                weights += file.startsWith("weights");
                return file in texts ? new Response(texts[file]) : fetch(url, init);
              };
              answers[name] = await idOf(load("/", {backend: "wasm", fetch: given}));
            }
            return [answers, weights];
          }""",
            changed,
        )
    expected = {name: id for name, (id, _) in HOSTILE.items()}
    assert told == expected
    assert answers == [expected, 0]


def test_it_is_small(bundle: Path) -> None:
    assert len(gzip.compress(web_file("src/wasm.js").read_bytes(), 9)) <= 4 * 1024
    for module in bundle.glob("*.wasm"):
        assert len(gzip.compress(module.read_bytes(), 9)) <= 32 * 1024


def test_exports_are_reproducible(bundle: Path, tmp_path: Path) -> None:
    made = [
        tinyedge.export_function(
            lambda x: x.exp() @ x,
            {"x": np.zeros((16, 16), np.float32)},
            fallback="wasm",
            out=tmp_path / name / "model.tinyedge",
        )
        for name in ("one", "two")
    ]
    names = sorted(file.name for file in made[0].iterdir())
    assert all((made[0] / n).read_bytes() == (made[1] / n).read_bytes() for n in names)


def test_other_targets_have_no_fallback(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        tinyedge.export_function(
            lambda x: x, {"x": np.zeros(4, np.float32)}, target="cpu", fallback="wasm",
            out=tmp_path / "b",
        )  # fmt: skip
    assert raised.value.id == "option.fallback"


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DeviceError, match="ziglang") as raised:
        tinyedge.export_function(
            lambda x: x, {"x": np.zeros(4, np.float32)}, fallback="wasm", out=tmp_path / "b"
        )
    assert raised.value.id == "device.compiler"
    assert not (tmp_path / "b").exists()


def test_the_command_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(corpus.GRAPHS["softmax"]().SerializeToString())
    assert execute(["export", str(model), "--fallback", "wasm", "-o", str(tmp_path / "b")]) == 0
    # which `load(url, {integrity})` takes: test_browser_network.py
    sha256 = hashlib.sha256((tmp_path / "b" / "manifest.json").read_bytes()).hexdigest()
    assert f"SHA-256 of manifest.json: {sha256}\n" in capsys.readouterr().out
    assert execute(["inspect", str(tmp_path / "b")]) == 0
    assert "WebAssembly" in capsys.readouterr().out


def test_that_the_first_time_is_long(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Said where ziglang has not kept its C library yet."""
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(tmp_path)}
    wasm._say_what_takes_long(environment)
    assert "about a minute" in caplog.text and caplog.text.count(str(tmp_path)) == 1
    kept = tmp_path / "o" / "0" / "libc.a"
    kept.parent.mkdir(parents=True)
    kept.touch()
    caplog.clear()
    wasm._say_what_takes_long(environment)
    assert not caplog.text
