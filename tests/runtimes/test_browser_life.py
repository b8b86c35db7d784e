"""What a page does with a model beside running it once: queueing, aborting, losing, sharing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.targets import programs
from tinyedge.core.program.program import Launch
from tinyedge.export.package.package import write_bundle
from tinyedge.export.verify.browser import Browser, BrowserRunError, runtime_source

pytestmark = pytest.mark.browser

TARGET = "webgpu"
PAGES = {
    "tinyedge.js": ("text/javascript", runtime_source()),
    "worker.js": (
        "text/javascript",
        """import {load} from "./tinyedge.js";
onmessage = async () => {
  const model = await load("/addition/");
  const ones = new Float32Array(256).fill(1);
  postMessage(Array.from((await model.run({a: ones, "b:0": ones})).c.data.slice(0, 4)));
};""",
    ),
}

# Each script is the body of an async function of the page with these names.
SETUP = """
const {load, TinyedgeError} = await import("/tinyedge.js");
const idOf = async (promise) => {
  try { await promise; return ""; } catch (error) { return error.id ?? error.name; }
};
const fill = (value) => new Float32Array(256).fill(value);
const setGpu = (value) =>
  Object.defineProperty(Navigator.prototype, "gpu", {value, configurable: true});
const add = (a, b) => ({a: fill(a), "b:0": fill(b)});
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bundles")
    write_bundle(programs.addition(TARGET), root / "addition")
    write_bundle(programs.counter(TARGET), root / "counter")
    write_bundle(programs.symbolic(TARGET), root / "symbolic")
    write_bundle(programs.repeat(TARGET), root / "repeat")
    shutil.copytree(root / "addition", root / "corrupted")
    weights = root / "corrupted" / "weights-00000.bin"
    content = bytearray(weights.read_bytes())
    content[5] ^= 1
    weights.write_bytes(content)
    shutil.copytree(root / "addition", root / "missing")
    (root / "missing" / "weights-00000.bin").unlink()
    return root


@pytest.fixture
def page(browser: Browser, folder: Path) -> Iterator[Any]:
    browser.violations.clear()
    with browser.page(folder, pages=PAGES) as opened:
        yield opened
    assert not browser.violations


def evaluate(page: Any, body: str) -> Any:
    return page.evaluate("async () => {" + SETUP + body + "}")


def test_overlapping_runs_happen_in_order(page: Any) -> None:
    got = evaluate(
        page,
        """
        const model = await load("/counter/");
        const x = new Float32Array(64), runs = [];
        for (let i = 1; i <= 5; i++) {
          x.fill(i);
          runs.push(model.run({x}));
        }
        x.fill(1000);
        return (await Promise.all(runs)).map(({total}) => total.data[63]);
        """,
    )
    assert got == [11, 13, 16, 20, 25]


# What is submitted, read and made to be read, in order.
WATCHED = """
const events = [];
const watch = (type, name, say) => {
  const {[name]: was} = type.prototype;
  type.prototype[name] = function (...given) {
    if (name !== "createBuffer" || /readback/.test(given[0].label)) events.push(say);
    return was.apply(this, given);
  };
};
watch(GPUQueue, "submit", "submit");
watch(GPUBuffer, "getMappedRange", "read");
watch(GPUDevice, "createBuffer", "make");
"""


def test_two_runs_are_in_flight(page: Any) -> None:
    """A second run is given before the first is read, a third only after. Its place to read is made
    for it, once.
    """
    got = evaluate(
        page,
        """
        const model = await load("/counter/"), x = new Float32Array(64);
        await model.run({x});
        """
        + WATCHED
        + """
        const runs = [];
        for (let i = 1; i <= 4; i++) {
          x.fill(i);
          runs.push(model.run({x}));
        }
        x.fill(1000);
        const totals = (await Promise.all(runs)).map(({total}) => total.data[63]);
        const crowd = events.splice(0);
        for (let i = 0; i < 2; i++) await model.run({x: x.fill(0)});
        return [totals, crowd, events];
        """,
    )
    totals, crowd, alone = got
    assert totals == [11, 13, 16, 20]
    assert crowd.count("make") == 1
    ahead = [crowd[:n].count("submit") - crowd[:n].count("read") for n in range(len(crowd) + 1)]
    assert max(ahead) == 2 and ahead[-1] == 0
    assert alone == ["submit", "read"] * 2


def test_runs_in_flight_keep_their_sizes(page: Any) -> None:
    """Runs of different sizes overlap: each has those of its own inputs."""
    got = evaluate(
        page,
        """
        const model = await load("/symbolic/"), bias = {data: new Float32Array(16), shape: [16]};
        const one = (rows) => model.run({
          x: {data: new Float32Array(rows * 16).fill(rows), shape: [rows, 16]}, bias,
        });
        const all = await Promise.all([8, 2, 5, 8, 1].map(one));
        return all.map(({y}) => [y.shape, Array.from(new Set(y.data))]);
        """,
    )
    assert got == [[[rows * 16], [2 * rows]] for rows in (8, 2, 5, 8, 1)]


def test_runs_with_loops_overlap(page: Any) -> None:
    """A loop waits for its condition between its submissions: no other run gets in between."""
    got = evaluate(
        page,
        """
        const model = await load("/repeat/"), x = new Float32Array(64);
        const one = (n) => model.run({x: x.fill(10 * n), n: [n]});
        const all = await Promise.all([3, 0, 5, 1].map(one));
        return all.map(({x_out, left}) => [x_out.data[5], Number(left.data[0])]);
        """,
    )
    assert got == [[33, 0], [0, 0], [55, 0], [11, 0]]


def test_a_fault_of_one_run_in_flight_is_its_own(page: Any) -> None:
    got = evaluate(
        page,
        """
        const model = await load("/addition/"), {device} = model;
        const gone = device.createBuffer({size: 1024, usage: GPUBufferUsage.COPY_SRC});
        gone.destroy();
        const bad = {a: gone, "b:0": fill(1)}, all = [add(1, 2), bad, add(3, 4), bad, add(5, 6)];
        const settled = await Promise.allSettled(all.map((inputs) => model.run(inputs)));
        const after = await model.run(add(7, 8));
        return [settled.map((r) => r.value?.c.data[1] ?? r.reason.id), after.c.data[1]];
        """,
    )
    assert got == [[4, "run.input.buffer", 8, "run.input.buffer", 12], 16]


@pytest.mark.parametrize("how", ["model.dispose()", "model.device.destroy()"])
def test_the_end_of_runs_in_flight(page: Any, how: str) -> None:
    """Disposed or lost while two runs are in flight and two wait: all are told so, in time."""
    got = evaluate(
        page,
        """
        const model = await load("/counter/"), x = new Float32Array(64);
        await Promise.all([model.run({x}), model.run({x})]);
        const runs = [1, 2, 3, 4].map(() => idOf(model.run({x})));
        await Promise.resolve();
        HOW;
        return [await Promise.all(runs), await idOf(model.reset())];
        """.replace("HOW", how),
    )
    fault = "run.disposed" if "dispose" in how else "device.lost"
    assert got == [[fault] * 4, fault]


def test_no_memory_for_a_second_place_to_read(page: Any) -> None:
    """The run that would need it says so; the others, before and after, are done."""
    got = evaluate(
        page,
        """
        const model = await load("/addition/"), {createBuffer} = GPUDevice.prototype;
        GPUDevice.prototype.createBuffer = function (descriptor) {
          GPUDevice.prototype.createBuffer = createBuffer;
          return this.createBuffer({...descriptor, size: 2 ** 45});
        };
        const settled = await Promise.allSettled([1, 3, 5].map((n) => model.run(add(n, n + 1))));
        return settled.map((r) => r.value?.c.data[1] ?? r.reason.id);
        """,
    )
    assert got == [4, "device.memory", 12]


def test_a_failed_run_does_not_stop_the_next(page: Any) -> None:
    got = evaluate(
        page,
        """
        const model = await load("/addition/");
        const all = [model.run(add(1, 2)), model.run({}), model.run(add(3, 4))];
        const results = await Promise.allSettled(all);
        return results.map((r) => r.value?.c.data[1] ?? r.reason.id);
        """,
    )
    assert got == [4, "run.input", 8]


def test_reset(page: Any) -> None:
    got = evaluate(
        page,
        """
        const model = await load("/counter/"), x = new Float32Array(64).fill(1);
        const first = model.run({x}), reset = model.reset(), second = model.run({x});
        await reset;
        return [(await first).total.data[0], (await second).total.data[0]];
        """,
    )
    assert got == [11, 11]


def test_a_run_creates_nothing_and_submits_once(page: Any) -> None:
    calls = evaluate(
        page,
        """
        const counts = {};
        const count = (type, names) => {
          for (const name of names ?? Object.getOwnPropertyNames(type.prototype)) {
            const found = Object.getOwnPropertyDescriptor(type.prototype, name);
            if (typeof found?.value !== "function" || name === "constructor") continue;
            type.prototype[name] = function (...given) {
              counts[name] = (counts[name] ?? 0) + 1;
              return found.value.apply(this, given);
            };
          }
        };
        const model = await load("/symbolic/");
        const x = {data: new Float32Array(128), shape: [8, 16]};
        const bias = {data: new Float32Array(16), shape: [16]};
        await model.run({x, bias});
        for (const type of [GPUDevice, GPUQueue, GPUCommandEncoder]) count(type);
        for (let i = 0; i < 3; i++) await model.run({x, bias});
        return counts;
        """,
    )
    assert calls == {
        "createCommandEncoder": 3,
        "writeBuffer": 6,  # two inputs a run, and no sizes
        "beginComputePass": 3,
        "copyBufferToBuffer": 3,
        "finish": 3,
        "submit": 3,
        # Three kinds of faults, asked for together with the results.
        "pushErrorScope": 9,
        "popErrorScope": 9,
    }


def test_wrong_inputs(page: Any) -> None:
    got = evaluate(
        page,
        """
        const model = await load("/addition/");
        const bad = [
          {a: fill(0)}, {...add(1, 1), c: fill(0)}, {a: new Int32Array(256), "b:0": fill(0)},
          {a: new Float32Array(255), "b:0": fill(0)},
          {a: {data: fill(0), shape: [64, 4]}, "b:0": fill(0)},
          {a: "text", "b:0": fill(0)}, {a: {}, "b:0": fill(0)}, {a: null, "b:0": fill(0)},
        ];
        const ids = [];
        for (const inputs of bad) ids.push(await idOf(model.run(inputs)));
        ids.push(await idOf(model.run(add(1, 1), {entry: "other"})));
        ids.push(await idOf(model.run(add(1, 1), {symbols: {N: 1}})));
        const right = {a: Array(256).fill(1), "b:0": {data: fill(2), shape: [4, 64]}};
        return [ids, (await model.run(right)).c.data[2]];
        """,
    )
    assert got == [
        [
            "run.input",
            "run.input",
            "run.dtype",
            "run.shape",
            "run.shape",
            "run.dtype",
            "run.dtype",
            "run.input",
            "run.entry",
            "run.shape",
        ],
        5,
    ]


def test_abort(page: Any) -> None:
    got = evaluate(
        page,
        """
        const before = AbortSignal.abort(), later = new AbortController();
        const ids = [await idOf(load("/addition/", {signal: before}))];
        const onProgress = () => later.abort(new DOMException("enough", "AbortError"));
        ids.push(await idOf(load("/addition/", {signal: later.signal, onProgress})));
        const model = await load("/addition/");
        return [ids, (await model.run(add(1, 2))).c.data[1]];
        """,
    )
    assert got == [["AbortError", "AbortError"], 4]


def test_abort_of_runs(page: Any) -> None:
    """What waits is left out, what the device has is computed; nothing stays with the signal."""
    got = evaluate(
        page,
        """
        const model = await load("/counter/"), x = new Float32Array(64).fill(1), ids = [];
        const aborted = {signal: AbortSignal.abort()};
        ids.push(await idOf(model.run({x}, aborted)));
        const stop = new AbortController(), {signal} = stop;
        let listeners = 0;
        for (const [name, more] of [["addEventListener", 1], ["removeEventListener", -1]]) {
          const was = signal[name];
          signal[name] = (...given) => { listeners += more; return was.apply(signal, given); };
        }
        await Promise.all([model.run({x}), model.run({x}, {signal})]);
        const runs = [1, 2, 3, 4].map((n) => idOf(model.run({x}, n % 2 ? undefined : {signal})));
        for (let i = 0; i < 99; i++) await null;  // until two of them are in flight
        stop.abort();
        ids.push(...(await Promise.all(runs)));
        const last = await model.run({x});
        return [ids, last.total.data[0], listeners];
        """,
    )
    # The second of the four was in flight already, the fourth waited.
    assert got == [["AbortError", "", "AbortError", "", "AbortError"], 10 + 2 + 3 + 1, 0]


def test_files_that_fail(browser: Browser, page: Any) -> None:
    def interrupted(route: Any) -> None:
        route.abort()

    page.route("**/addition/weights-00000.bin", interrupted)
    ids = evaluate(
        page,
        """
        const ids = [], later = setTimeout;
        globalThis.setTimeout = (work, ms) => later(work, ms / 50);
        for (const url of ["/corrupted/", "/missing/", "/nowhere/", "/addition/"]) {
          ids.push(await idOf(load(url)));
        }
        ids.push(await idOf(load("http://127.0.0.1:1/")));
        return ids;
        """,
    )
    assert ids == [
        "bundle.file.hash",
        "bundle.file.missing",
        "bundle.manifest.missing",
        "load.network",
        "load.network",
    ]
    assert browser.violations and all("127.0.0.1:1/" in text for text in browser.violations)
    browser.violations.clear()
    page.unroute("**/addition/weights-00000.bin")
    assert evaluate(page, 'return (await (await load("/addition/")).run(add(1, 2))).c.data[1]') == 4


def test_progress(page: Any) -> None:
    steps = evaluate(
        page,
        """
        const steps = [];
        await load("/addition/", {onProgress: (p) => steps.push(p)});
        return steps;
        """,
    )
    assert steps[0]["loaded"] == 0 and steps[0]["compiled"] == 0
    assert steps[-1]["loaded"] == steps[-1]["total"] > 1024
    assert steps[-1]["compiled"] == steps[-1]["pipelines"] == 1
    loaded = [step["loaded"] for step in steps]
    assert loaded == sorted(loaded)


def test_dispose_and_load_again(page: Any) -> None:
    got = evaluate(
        page,
        """
        const first = await load("/addition/"), pending = first.run(add(1, 2));
        first.dispose();
        first.dispose();
        const ids = [];
        for (const p of [pending, first.run(add(1, 2)), first.verify()]) ids.push(await idOf(p));
        return [ids, (await (await load("/addition/")).run(add(1, 2))).c.data[1]];
        """,
    )
    assert got == [["run.disposed", "run.disposed", "run.disposed"], 4]


def test_lost_device(page: Any) -> None:
    got = evaluate(
        page,
        """
        const model = await load("/addition/");
        const pending = model.run(add(1, 2)), queued = model.run(add(1, 2));
        model.device.destroy();
        const ids = [await idOf(pending), await idOf(queued), await idOf(model.run(add(1, 2)))];
        return [ids, (await (await load("/addition/")).run(add(1, 2))).c.data[1]];
        """,
    )
    assert got == [["device.lost", "device.lost", "device.lost"], 4]


def test_device_lost_while_loading(page: Any) -> None:
    got = evaluate(
        page,
        """
        const device = await (await navigator.gpu.requestAdapter()).requestDevice();
        return idOf(load("/addition/", {device, onProgress: () => device.destroy()}));
        """,
    )
    assert got == "device.lost"


def test_two_models_share_a_device(page: Any) -> None:
    got = evaluate(
        page,
        """
        const device = await (await navigator.gpu.requestAdapter()).requestDevice();
        const both = [load("/addition/", {device}), load("/counter/", {device})];
        const [one, two] = await Promise.all(both), x = new Float32Array(64).fill(5);
        const [a, b] = await Promise.all([one.run(add(1, 2)), two.run({x})]);
        one.dispose();
        const c = await two.run({x});
        return [a.c.data[0], b.total.data[0], c.total.data[0]];
        """,
    )
    assert got == [3, 15, 20]


def test_outputs_stay_on_the_gpu(page: Any) -> None:
    got = evaluate(
        page,
        """
        const device = await (await navigator.gpu.requestAdapter()).requestDevice();
        const one = await load("/addition/", {device}), two = await load("/addition/", {device});
        const kept = await one.run(add(1, 2), {keep: ["c"]});
        const {buffer, offset} = kept.c.gpu;
        const next = await two.run({a: {buffer, offset}, "b:0": fill(10)});
        const all = await one.run(add(1, 2), {keep: true});
        return [kept.c.data === undefined, kept.half.data[0], next.c.data[255], all.half.gpu.size];
        """,
    )
    assert got == [True, 131, 3 + 255 + 10 + 255, 512]


def test_slices(page: Any) -> None:
    got = evaluate(
        page,
        """
        const {c} = await (await load("/addition/")).run(add(1, 2));
        return [c.shape, c.slices.tail.shape, Array.from(c.slices.tail.data.slice(0, 3))];
        """,
    )
    assert got == [[4, 64], [1, 64], [195, 196, 197]]


def test_profile(page: Any) -> None:
    got = evaluate(page, 'return (await load("/addition/")).profile()')
    assert [(launch["kernel"], launch["nodes"]) for launch in got] == [("add", ["Add_0"])]
    assert got[0]["milliseconds"] >= 0


def test_worker(page: Any) -> None:
    got = page.evaluate(
        """() => new Promise((resolve, reject) => {
          const worker = new Worker("/worker.js", {type: "module"});
          worker.onmessage = ({data}) => resolve(data);
          worker.onerror = reject;
          worker.postMessage("go");
        })"""
    )
    assert got == [2, 3, 4, 5]


def test_no_webgpu(page: Any) -> None:
    got = evaluate(
        page,
        """
        setGpu(undefined);
        const missing = await idOf(load("/addition/"));
        setGpu({requestAdapter: async () => null});
        return [missing, await idOf(load("/addition/"))];
        """,
    )
    assert got == ["device.webgpu", "device.adapter"]


def test_too_small_a_device(page: Any) -> None:
    got = evaluate(
        page,
        """
        const {limits, features} = await navigator.gpu.requestAdapter();
        const get = (_, name) => name === "maxBufferSize" ? 8192 : limits[name];
        const small = new Proxy({}, {get});
        setGpu({requestAdapter: async () => ({features, limits: small})});
        return idOf(load("/addition/"));
        """,
    )
    assert got == "device.limits"


def test_a_kernel_that_does_not_compile(browser: Browser, tmp_path: Path) -> None:
    program = programs.program(
        TARGET,
        inputs=(),
        outputs=(),
        buffers=(programs.place(0),),
        kernels=(programs.kernel(TARGET, "wrong", "w", "b0[i] = missing;"),),
        entries=(programs.Entry("main", (), (), (Launch(0, (0,), (1, 1, 1)),)),),
    )
    bundle = write_bundle(program, tmp_path / "wrong")
    with pytest.raises(BrowserRunError, match=r"line 5: .*missing") as raised:
        browser.run_in_page(bundle, {})
    assert raised.value.id == "device.kernel"


def test_many_weights_over_several_shards(browser: Browser, tmp_path: Path) -> None:
    """A weight of 40 MiB spans two shards; a small one follows it."""
    large = np.arange(10 * 2**20, dtype=np.float32)
    program = programs.program(
        TARGET,
        inputs=(),
        outputs=(programs.Port("y", "float32", (64,), "float32", 0),),
        buffers=(
            programs.place(0, 256),
            programs.Buffer(weight=0, bytes=large.nbytes),
            programs.Buffer(weight=1, bytes=256),
        ),
        weights=(programs.constant("large", large), programs.constant("small", np.arange(64))),
        kernels=(
            programs.kernel(TARGET, "pick", "wrr", "b0[i] = b1[i * 163840 + 163839] + b2[i];"),
        ),
        entries=(programs.Entry("main", (), ("y",), (Launch(0, (0, 1, 2), (1, 1, 1)),)),),
    )
    bundle = write_bundle(program, tmp_path / "large")
    outputs, stats = browser.run_in_page(bundle, {})
    index = np.arange(64)
    np.testing.assert_array_equal(outputs["y"], large[index * 163840 + 163839] + index)
    assert stats["bytesFetched"] > large.nbytes
