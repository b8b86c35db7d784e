"""Frames one after the other: the latest, outputs into memory of the page, input buffers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.runtimes.site import Site, evaluate
from tests.runtimes.test_browser_life import WATCHED
from tests.targets import programs
from tinyedge.core.program.program import Port
from tinyedge.export.bundle.reading import read
from tinyedge.export.package.package import write_bundle
from tinyedge.export.package.web import runtime_files

pytestmark = pytest.mark.browser

# Nothing comes back before `open` is called.
GATE = """
const {mapAsync} = GPUBuffer.prototype;
let open;
const gate = new Promise((resolve) => (open = resolve));
GPUBuffer.prototype.mapAsync = async function (...given) {
  await gate;
  return mapAsync.apply(this, given);
};
"""


def test_frames_that_wait_give_way_to_the_latest(page: Any) -> None:
    """Of 60 frames every 5 ms one is computed, two wait, and the others come to nothing."""
    got = evaluate(
        page,
        GATE
        + """
        const model = await load("/counter/"), runs = [], computed = [];
        let waiting = 0, most = 0, dropped = 0;
        for (let i = 1; i <= 60; i++) {
          waiting++;
          runs.push(model.run({x: x.fill(i)}, {latest: true}).then((out) => {
            waiting--;
            if (out) computed.push([i, out.total.data[63]]);
            else dropped++;
          }));
          await new Promise((resolve) => setTimeout(resolve, 5));
          most = Math.max(most, waiting);
        }
        open();
        await Promise.all(runs);
        return {computed, dropped, most, runs: model.stats.runs};
        """,
    )
    assert got["computed"] == [[1, 11], [2, 13], [60, 73]]
    assert got["dropped"] == 57 and got["runs"] == 3
    assert got["most"] == 3, "one is computed, two wait"


def test_only_the_latest_give_way(page: Any) -> None:
    """Runs without the word are all computed, in order; aborting one takes nothing from others."""
    got = evaluate(
        page,
        GATE
        + """
        const model = await load("/counter/"), runs = [], stop = new AbortController();
        const one = (value, options) => runs.push(model.run({x: x.fill(value)}, options));
        for (const value of [1, 2]) one(value, {});
        one(4, {latest: true});
        one(8, {});
        one(16, {latest: true, signal: stop.signal});
        stop.abort();
        one(32, {latest: true});
        one(64, {});
        open();
        return (await Promise.allSettled(runs)).map(({value, reason}) =>
          reason ? reason.name : (value?.total.data[0] ?? null));
        """,
    )
    assert got == [11, 13, None, 21, "AbortError", 53, 117]


READ = """
const contents = async ({device}, buffer, size = buffer.size) => {
  const copy = device.createBuffer({size, usage: GPUBufferUsage.MAP_READ | COPY_DST});
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, 0, copy, 0, size);
  device.queue.submit([encoder.finish()]);
  await copy.mapAsync(1);
  return [...new Float32Array(copy.getMappedRange())];
};
"""


def test_outputs_go_into_buffers(page: Any) -> None:
    """Without a way by the CPU, at an offset, and with what is kept beside them."""
    got = evaluate(
        page,
        READ
        + """
        const model = await load("/addition/"), {device} = model, given = add(3, 4);
        const {c: {data}} = await model.run(given);
        const mine = device.createBuffer({size: 2048, usage: COPY_DST | COPY_SRC});
        """
        + WATCHED
        + """
        const out = await model.run(given, {into: {c: {buffer: mine, offset: 512}}, keep: true});
        const {c} = out, seen = events.splice(0);
        const all = await contents(model, mine);
        await model.run(add(1, 1), {into: {c: mine}});
        const then = await contents(model, mine);
        return {seen, data: [...data], all, then, has: "data" in c, storage: c.storage,
                gpu: [c.gpu.buffer === mine, c.gpu.offset, c.gpu.size]};
        """,
    )
    assert got["seen"] == ["submit"]
    assert got["all"] == [0] * 128 + got["data"] + [0] * 128
    assert got["then"][:256] == [value - 5 for value in got["data"]]
    assert got["gpu"] == [True, 512, 1024]
    assert not got["has"] and got["storage"] == "float32"


def test_what_takes_no_output(page: Any) -> None:
    """Such a run rejects, and its states are as before."""
    got = evaluate(
        page,
        """
        const model = await load("/counter/"), {device} = model, other = await openDevice();
        const kept = (await model.run({x}, {keep: true})).total.gpu.buffer;
        const gone = buffer(device), {memory} = await model.getState("memory");
        gone.destroy();
        const texture = (size, format = "r32float", usage = 16) =>
          device.createTexture({size, format, usage});
        const bad = {
          names: {sum: buffer(device)}, none: buffer(device), number: {total: 1},
          small: {total: {buffer: buffer(device), offset: 4}},
          odd: {total: {buffer: buffer(device), offset: 2}},
          usage: {total: buffer(device, COPY_SRC)}, own: {total: kept}, gone: {total: gone},
          other: {total: buffer(other)},
        };
        const faults = {};
        for (const [name, into] of Object.entries(bad))
          faults[name] = await errorOf(() => model.run({x}, {into}));
        const flat = await errorOf(() => model.run({x}, {into: {total: texture([64, 1])}}));
        return {faults, flat, after: (await model.run({x})).total.data[0]};
        """,
    )
    ids = {name: fault["id"] for name, fault in got["faults"].items()}
    assert (ids.pop("names"), ids.pop("none")) == ("run.option", "run.option")
    assert set(ids.values()) == {"run.output.buffer"} and len(ids) == 7
    gone = got["faults"]["gone"]
    assert gone["subject"] == 'output "total"' and "COPY_DST" in gone["next"]
    assert got["flat"]["id"] == "run.option", "a list of numbers is no picture"
    assert got["after"] == 12


def test_an_input_has_a_buffer_to_write_into(page: Any, site: Site) -> None:
    """At its largest, also where another entry has a larger input of the name."""
    program = programs.counter("webgpu")
    larger = replace(program.entries[1], inputs=("x",), input_numbers=(1,))
    program = replace(
        program,
        inputs=(*program.inputs, Port("x", "float32", (512,), "float32", 3)),
        buffers=(*program.buffers, programs.place(3, 2048)),
        entries=(program.entries[0], larger),
    )
    write_bundle(program, site.folder / "larger", extras=runtime_files(program))
    got = evaluate(
        page,
        """
        const two = await load("/larger/"), wide = await two.inputBuffer("x");
        await two.run({x: wide}, {entry: "peek"});
        const model = await load("/addition/"), {device} = model;
        const {c: {data}} = await model.run(add(3, 4));
        const a = await model.inputBuffer("a");
        device.queue.writeBuffer(a, 0, fill(3));
        const {c} = await model.run({...add(0, 4), a});
        const wrong = await errorOf(() => model.inputBuffer("z"));
        model.dispose();
        device.pushErrorScope("validation");
        device.queue.writeBuffer(a, 0, fill(3));
        return {same: String(data) === String(c.data), size: [a.size, wide.size], wrong: wrong.id,
                after: (await errorOf(() => model.inputBuffer("a"))).id};
        """,
    )
    assert got.pop("size") == [1024, 2048]
    assert got == {"same": True, "wrong": "run.input", "after": "run.disposed"}


def test_requirements_come_without_a_device(page: Any, site: Site) -> None:
    site.asked.clear()
    got = evaluate(
        page,
        """
        const {requirements} = await import("/tinyedge.js");
        let adapters = 0;
        const {requestAdapter} = GPU.prototype;
        GPU.prototype.requestAdapter = function (...given) {
          adapters++;
          return requestAdapter.apply(this, given);
        };
        const found = await requirements("/addition/");
        const wrong = await errorOf(() => requirements("/addition/", {device: 1}));
        const hash = await errorOf(() => requirements("/addition/", {integrity: "0".repeat(64)}));
        return {found, adapters, ids: [wrong.id, hash.id]};
        """,
    )
    fetched = {name for name in site.asked if name.endswith((".json", ".wgsl", ".bin"))}
    program = read(site.folder / "addition").program
    found = got["found"]
    assert fetched == {"manifest.json"} and got["adapters"] == 0
    needed = program.requirements
    assert found["limits"]["maxBufferSize"] == needed["buffer_bytes"]
    assert found["limits"]["maxStorageBuffersPerShaderStage"] == needed["bindings"]
    assert found["features"] == []
    files = [
        path for path in (site.folder / "addition").iterdir() if path.suffix in (".wgsl", ".bin")
    ]
    assert found["bytes"]["fetched"] == sum(path.stat().st_size for path in files)
    assert found["bytes"]["weights"] == sum(len(weight.data) for weight in program.weights)
    assert found["bytes"]["memory"] >= found["bytes"]["weights"]
    assert got["ids"] == ["load.option", "bundle.manifest.hash"]


def test_power_preference(page: Any) -> None:
    """It says which of several GPUs, also when another device is opened after a loss."""
    got = evaluate(
        page,
        """
        const asked = [], {requestAdapter} = GPU.prototype;
        GPU.prototype.requestAdapter = function (options) {
          asked.push(options.powerPreference);
          return requestAdapter.call(this, options);
        };
        const lost = Object.getOwnPropertyDescriptor(GPUDevice.prototype, "lost"), losing = [];
        Object.defineProperty(GPUDevice.prototype, "lost", {
          get() { return new Promise((resolve) => losing.push(resolve)); },
        });
        (await load("/counter/")).dispose();
        const model = await load("/counter/", {powerPreference: "low-power"});
        losing.at(-1)({message: "gone", reason: "unknown"});
        await new Promise((resolve) => setTimeout(resolve, 0));
        await model.run({x});
        return {asked, wrong: await idOf(load("/counter/", {powerPreference: "none"}))};
        """,
    )
    assert got == {"asked": ["high-performance", "low-power", "low-power"], "wrong": "load.option"}
