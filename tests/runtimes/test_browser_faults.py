"""What goes wrong in a page, and what the runtime says of it: buffers, options, leaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.site import Site, evaluate
from tests.targets import programs
from tinyedge.export.package.package import write_bundle
from tinyedge.export.package.web import runtime_files
from tinyedge.export.verify.browser import Browser

pytestmark = pytest.mark.browser

TARGET = "webgpu"

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


# ---- options and values


def test_options_that_do_not_exist(page: Any) -> None:
    got = evaluate(
        page,
        """
        const model = await load("/addition/"), state = await load("/counter/"), inputs = add(1, 2);
        const {signal} = new AbortController(), faults = [];
        for (const options of [{latest: "yes"}, {latest: 0}, {symbols: 5}, {symbols: ""}, 5, true,
                               {signals: signal}, {signal: {}}, {keeps: true}, "keep",
                               {keep: ["typo"]}, {keep: "half"},
                               {keep: false}, {keep: [1]}, {keep: null}, {keep: {half: true}}])
          faults.push(await errorOf(() => model.run(inputs, options)));
        for (const work of [
          () => model.verify({signals: signal}), () => model.profile(inputs, {keep: true}),
          () => model.example({entri: "main"}), () => model.example({symbols: {N: 1}}),
          () => load("/addition/", {limits: 5}), () => load("/addition/", {integrity: ""}),
          () => load("/addition/", {backend: ""}), () => load("/addition/", {backend: ["wasm"]}),
          () => load("/addition/", 5), () => load("/addition/", {latest: true}),
          () => load("/addition/", {onprogress: null}),
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
        *["run.option"] * 16,
        *["run.option", "run.option", "run.option", "run.shape"],
        *["load.option"] * 7,
        *["run.state", "run.state", "run.state", "run.dtype", "run.dtype", "run.state"],
        *["run.entry", "run.shape", "load.option", "load.option"],
    ]
    assert "a boolean" in got["faults"][0]["next"]
    assert "entry,symbols,keep,signal" in got["faults"][6]["next"]
    assert "c,half" in got["faults"][10]["next"]
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
        for (const N of [3, -1, 1e9, 2.5])
          ids.push((await errorOf(() => model.example({symbols: {N}}))).id);
        return ids;
        """,
    )
    assert got[:14] == [*["none"] * 3, *["run.shape"] * 4, *["none"] * 3, *["run.shape"] * 4]
    assert got[14:] == ["none", *["run.shape"] * 3], "of an example too"


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
          const given = [undefined, null, 5, Symbol(), Promise.resolve("/addition/"), "http://["];
          for (const address of given)
            await load(address).then(() => ids.push("none"), ({id}) => ids.push(id));
          const model = await load(new URL("/addition/", location.href)), nonsense = [];
          const one = Symbol(), a = new Float32Array(256), b = {data: a, shape: [4, 64]};
          const several = Array(256).fill(one);
          for (const given of [{a: one}, {a: several}, {a: {data: a, shape: [one, 64]}}])
            nonsense.push(await model.run({a, "b:0": b, ...given}).catch(({id}) => id));
          for (const options of [{entry: one}, {keep: one}, {keep: [one]}, {symbols: {M: one}}])
            nonsense.push(await model.run({a, "b:0": b}, options).catch(({id}) => id));
          nonsense.push(await load("/addition/", {onProgress: 5}).catch(({id}) => id));
          const told = nonsense.join(" ").replaceAll("run.", "");
          return [ids, await answer, model.inputs.length, told];
        }""",
        site.url,
    )
    assert got[0] == ["load.url"] * 6 and got[2] == 2
    assert got[3] == "dtype input input entry option option input load.option"
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
    assert page.get_by_text("tinyedge export --single-file").is_visible()
    context.close()
    with browser.page(folder / "addition", start="") as page:
        page.get_by_role("button", name="Run").wait_for()
        assert not page.get_by_text("tinyedge serve").is_visible()
