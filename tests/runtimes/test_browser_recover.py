"""A model whose device is lost: what its runs say, and how the next one gets another device."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.runtimes.site import HURRY, Site, evaluate
from tinyedge.export.verify.browser import CHROMIUM_NAMES, FLAGS, SOFTWARE, Browser

pytestmark = pytest.mark.browser

# `lose()` ends the last device that was opened as a driver would; `heard` has the model's events.
LOSING = """
let lose, opened = 0;
const {requestDevice} = GPUAdapter.prototype;
GPUAdapter.prototype.requestDevice = async function (descriptor) {
  const device = await requestDevice.call(this, descriptor);
  const lost = new Promise((resolve) => {
    lose = async () => {
      device.destroy();
      await device.queue.onSubmittedWorkDone().catch(() => {});
      resolve({reason: "unknown", message: "a driver's fault"});
      await null;
    };
  });
  Object.defineProperty(device, "lost", {value: lost});
  opened++;
  return device;
};
const heard = [];
const listen = (model) => {
  model.addEventListener("lost", ({error}) => heard.push(error.id));
  model.addEventListener("restored", ({states}) => heard.push(states));
  return model;
};
"""


def test_the_next_run_gets_another_device(page: Any) -> None:
    """What was asked for before is lost; states begin anew, which is said; nothing is left over."""
    got = evaluate(
        page,
        LOSING
        + """
        const model = listen(await load("/counter/")), {device} = model, before = {...model.stats};
        const good = await Promise.all([model.run({x}), model.run({x})]);
        const ids = [1, 2, 3, 4].map(() => idOf(model.run({x})));
        await Promise.resolve();
        await lose();
        const lost = model.lost.id, given = x.slice();
        const next = [model.run({x: given}), model.run({x}), model.getState("memory")];
        given.fill(1000);
        const after = await Promise.all(next);
        const same = ["bufferBytes", "pipelines", "bindGroups"].every(
          (name) => name === "bufferBytes" || model.stats[name] === before[name]);
        return {ids: await Promise.all(ids), lost, now: model.lost ?? null, heard, opened, same,
                memory: model.stats.bufferBytes / before.bufferBytes,
                other: model.device !== device && model.device instanceof GPUDevice,
                good: good.map(({total}) => total.data[0]),
                after: after.map((out) => (out.total ?? out).data[0])};
        """,
    )
    assert got["good"] == [11, 12]
    assert got["ids"] == ["device.lost"] * 4 and got["lost"] == "device.lost"
    assert got["after"] == [11, 12, 12], "from the initial states, of the values given then"
    assert got["heard"] == ["device.lost", "initial"] and got["now"] is None
    assert (got["opened"], got["other"], got["same"]) == (2, True, True)
    assert got["memory"] < 1.5


def test_states_are_kept(page: Any) -> None:
    """As they were after the last work that resolved: runs, setState, reset."""
    got = evaluate(
        page,
        LOSING
        + """
        const now = Date.now;
        let ahead = 0;
        Date.now = () => now() + ahead;
        const model = listen(await load("/counter/", {recover: "states"})), seen = [];
        const again = async (work) => {
          await work();
          const pending = idOf(model.run({x}));
          await lose();
          seen.push(await pending, (await model.run({x})).total.data[0]);
          ahead += 61000;
        };
        const three = [1, 2, 3].map(() => () => model.run({x}));
        await again(() => Promise.all(three.map((run) => run())));
        await again(() => model.setState("memory", x.map(() => 40)));
        await again(() => model.reset());
        await again(() => model.run({x: buffer(model.device, STORAGE)}).catch(() => {}));
        return {seen, heard};
        """,
    )
    lost = "device.lost"
    assert got["seen"] == [lost, 14, lost, 41, lost, 11, lost, 12]
    assert got["heard"] == [lost, "kept"] * 4


def test_at_most_one_device_a_minute(page: Any) -> None:
    got = evaluate(
        page,
        LOSING
        + """
        const now = Date.now, seen = [];
        let ahead = 0;
        Date.now = () => now() + ahead;
        const model = listen(await load("/addition/"));
        const run = () => errorOf(() => model.run(add(1, 2)));
        await lose();
        seen.push(await run());
        await lose();
        for (ahead of [0, 50000, 61000]) seen.push(await run());
        return {seen, opened};
        """,
    )
    assert [error["id"] for error in got["seen"]] == ["none", "device.lost", "device.lost", "none"]
    assert "within a minute" in got["seen"][1]["because"] and "seconds" in got["seen"][1]["next"]
    assert got["opened"] == 3


def test_files_that_do_not_arrive_then(page: Any, site: Site) -> None:
    """The run says so; the next one, which may come at once, gets the device."""
    evaluate(
        page,
        LOSING
        + """
        globalThis.model = listen(await load("/counter/"));
        await model.run({x});
        Object.assign(globalThis, {lose, heard});
        await lose();
        """,
    )
    site.statuses = {"weights-00000.bin": 403}
    script = HURRY + "return (await errorOf(() => model.run({x}))).id"
    assert evaluate(page, script) == "load.http"
    site.statuses = {}
    assert evaluate(page, script) == "none"
    assert page.evaluate("heard") == ["device.lost", "initial"]


def test_devices_that_are_not_reopened(page: Any) -> None:
    """A shared one, one that was destroyed on purpose, that of a disposed model."""
    got = evaluate(
        page,
        LOSING
        + """
        const device = await openDevice(), lend = lose, ids = [];
        const shared = listen(await load("/addition/", {device}));
        await lend();
        ids.push(await idOf(shared.run(add(1, 2))), await idOf(shared.run(add(1, 2))));
        const model = listen(await load("/addition/"));
        await lose();
        const pending = idOf(model.run(add(1, 2)));
        model.dispose();
        ids.push(await pending, await idOf(model.run(add(1, 2))));
        GPUAdapter.prototype.requestDevice = requestDevice;
        const own = listen(await load("/addition/"));
        own.device.destroy();
        await own.device.lost;
        ids.push(await idOf(own.run(add(1, 2))));
        return {ids, heard};
        """,
    )
    lost = "device.lost"
    assert got["ids"] == [lost, lost, "run.disposed", "run.disposed", lost]
    assert got["heard"] == [lost] * 3


@pytest.mark.parametrize("options", ["{}", '{recover: "states"}'])
def test_a_crash_of_the_gpu_process(browser: Browser, site: Site, options: str) -> None:
    """In mid-stream, in a browser of its own: after a second crash Chromium offers no GPU."""
    chromium = browser.playwright.chromium.launch(
        executable_path=next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None),
        args=[*FLAGS, SOFTWARE],
    )
    try:
        page = chromium.new_context().new_page()
        page.goto(site.url)
        script = """
            globalThis.seen = [];
            globalThis.model = await load("/counter/", OPTIONS);
            model.addEventListener("lost", () => seen.push("lost"));
            model.addEventListener("restored", ({states}) => seen.push(states));
            await model.run({x});
            globalThis.stream = (async () => {
              while (!globalThis.over)
                await model.run({x}).then(
                  ({total}) => seen.push(total.data[0]), ({id}) => seen.push(id));
            })();
            """
        evaluate(page, script.replace("OPTIONS", options))
        page.wait_for_function("seen.length > 3")
        chromium.new_browser_cdp_session().send("Browser.crashGpuProcess")
        page.wait_for_function("seen.findIndex((s) => s === 'kept' || s === 'initial') >= 0")
        page.wait_for_function("seen.length > seen.lastIndexOf('lost') + 5")
        seen = page.evaluate("async () => { over = true; await stream; return seen; }")
    finally:
        chromium.close()
    kept = "recover" in options
    at = seen.index("kept" if kept else "initial")
    before = [item for item in seen[:at] if isinstance(item, int)]
    after = [item for item in seen[at:] if isinstance(item, int)]
    assert seen.count("lost") == 1 and "device.lost" in seen
    assert before == list(range(12, 12 + len(before))) and len(after) >= 3
    # A run that was lost is not counted, one that resolved is.
    first = 12 + len(before) if kept else 11
    assert after == list(range(first, first + len(after)))
