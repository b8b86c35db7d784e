"""States and entries of compiled models in a real browser, against what their graphs mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyedge
from tests import entries
from tests.agreement import assert_agreement, find_target
from tests.stateful import CASES, Case, Machine, X, runs
from tinyedge.core.compiler.compile import compile_graph
from tinyedge.core.program.program import Program
from tinyedge.export.package.package import write_bundle
from tinyedge.export.verify.browser import Browser, runtime_source

pytestmark = pytest.mark.browser

RUNS = 9
ROOT = Path(__file__).resolve().parents[2]


def compiled(case: Case) -> Program:
    program = compile_graph(case.source(), find_target("webgpu")).program
    assert program is not None
    return program


@pytest.mark.parametrize(
    "name",
    [
        *("accumulator", "delay line", "swap", "read after new", "cell", "frames"),
        *("queue of 5 along 0 takes 3", "queue of 6 along 1 takes 4", "queue of 8 along 2 takes 3"),
        *("bool", "int64", "uint8", "float16", "outputs apart"),
    ],
)
def test_runs(browser: Browser, tmp_path: Path, name: str) -> None:
    """Outputs of every run, and states at the end; twice, in two pages, the same bits."""
    case = CASES[name]()
    bundle = write_bundle(compiled(case), tmp_path / "bundle")
    entries, inputs = zip(*runs(case, RUNS), strict=True)
    machine = Machine(case.source())
    outputs, stats = browser.run_in_page(bundle, inputs, entry=entries)
    for got, entry, given in zip(outputs, entries, inputs, strict=True):
        assert_agreement(got, machine.run(entry, given))
    assert_agreement(stats["states"], machine.states)
    again, after = browser.run_in_page(bundle, inputs, entry=entries)
    for one, two in zip([*outputs, stats["states"]], [*again, after["states"]], strict=True):
        assert {k: v.tobytes() for k, v in one.items()} == {k: v.tobytes() for k, v in two.items()}


def test_reset_and_states_in_one_page(browser: Browser, tmp_path: Path) -> None:
    case = CASES["accumulator"]()
    bundle = write_bundle(compiled(case), tmp_path / "bundle")
    source = ("text/javascript", runtime_source())
    with browser.page(bundle, pages={"tinyedge.js": source}) as page:
        got: dict[str, Any] = page.evaluate(
            """async () => {
              const {load} = await import("/tinyedge.js"), model = await load("/");
              const once = async (value) =>
                (await model.run({x: new Float32Array(12).fill(value)})).y.data[0];
              const idOf = (promise) => promise.then(() => "", (error) => error.id);
              const first = [await once(1), await once(2), await once(3)];
              const saved = await model.getState("h"), after = await once(4);
              await model.setState("h", saved.data);
              const same = await once(4);
              await model.reset();
              const zeros = (await model.getState("h")).data;
              const again = [await once(1), await once(2), await once(3)];
              await model.setState("h", Array(12).fill(2));
              // In order, though nobody waits.
              const late = [once(0), model.setState("h", new Float32Array(12)), once(0)];
              const order = [await late[0], await late[2]];
              return {
                first, again, after, same, order, shape: saved.shape, dtype: saved.dtype,
                zeros: Array.from(zeros), states: model.states,
                ids: [
                  await idOf(model.getState("other")),
                  await idOf(model.setState("other", [1])),
                  await idOf(model.setState("h", [1])),
                  await idOf(model.setState("h", new Int32Array(12))),
                ],
              };
            }"""
        )
    assert got["first"] == got["again"] and got["after"] == got["same"]
    assert got["zeros"] == [0] * 12
    assert got["order"] == [12, 0]
    assert (got["shape"], got["dtype"]) == ([2, 6], "float32")
    assert got["states"] == [
        {"name": "h", "dtype": "float32", "storage": "float32", "shape": [2, 6]}
    ]
    assert got["ids"] == ["run.state", "run.state", "run.shape", "run.dtype"]


def test_goldens_and_page(browser: Browser, tmp_path: Path) -> None:
    """An export with states is verified by its own page, which shows and resets them."""
    bundle = tinyedge.export_function(
        lambda x, h: {"y": h + x, "h_out": h * 0.5 + x},
        {"x": X, "h": X},
        out=tmp_path / "bundle",
        states={"h": "h_out"},
        state_init={"h": np.full((2, 6), 4, np.float32)},
        entries={"look": (lambda h: {"sum": h.sum()}, {"h": X})},
        slices={"y": {"left": (0, 2)}},
    )
    report = browser.verify(bundle)
    assert report["passed"]
    assert [case["entry"] for case in report["cases"]] == ["main", "look"]
    failures: list[Any] = []
    browser.violations.clear()
    with browser.page(bundle, start="") as page:
        page.on("pageerror", lambda error: failures.append(error))
        states = page.locator("#states")
        states.get_by_text("from 4 to 4").wait_for()
        page.get_by_label("Runs").fill("2")
        page.get_by_role("button", name="Run").click()
        page.get_by_text("2 runs with upload").wait_for()
        states.get_by_text("from 4 to 4").wait_for(state="detached")
        page.get_by_role("button", name="Reset states").click()
        states.get_by_text("from 4 to 4").wait_for()
        page.get_by_label("Entry").select_option("look")
        page.get_by_role("button", name="Run").click()
        page.locator("#outputs").get_by_text("from 48 to 48").wait_for()
    assert not failures and not browser.violations


def test_one_name_of_many_shapes_and_types(browser: Browser, tmp_path: Path) -> None:
    """Entries whose inputs and outputs have one name, by the page's own form, too."""
    bundle = entries.export(tmp_path, "webgpu")
    names = list(entries.ENTRIES) * 2
    inputs = [entries.inputs_of(name, seed) for seed, name in enumerate(names)]
    outputs, _ = browser.run_in_page(bundle, inputs, entry=names)
    for name, given, got in zip(names, inputs, outputs, strict=True):
        expected = entries.logits_of(name, given)
        assert got["logits"].dtype == expected.dtype
        np.testing.assert_array_equal(got["logits"], expected)
    report = browser.verify(bundle)
    assert report["passed"]
    assert [case["entry"] for case in report["cases"]] == list(entries.ENTRIES)
    with browser.page(bundle, start="") as page:
        for name, kind in (("main", "int64 [1, 8]"), ("small", "int32 [1, 1]")):
            page.get_by_label("Entry").select_option(name)
            page.locator("#inputs").get_by_text(kind).wait_for()


@pytest.mark.parametrize("name", ["accumulator", "bool", "int64", "uint8", "float16", "queue"])
def test_states_as_a_file(browser: Browser, tmp_path: Path, name: str) -> None:
    """A page's file of states is the one that Python writes of them, and gives them back."""
    from tinyedge.nn import safetensors

    case = CASES["queue of 5 along 0 takes 3" if name == "queue" else name]()
    program = compiled(case)
    bundle = write_bundle(program, tmp_path / "bundle")
    source = ("text/javascript", runtime_source())
    beside = ("text/javascript", (ROOT / "web/src/extras.js").read_bytes())
    with browser.page(bundle, pages={"tinyedge.js": source, "extras.js": beside}) as page:
        saved, same, refused = page.evaluate(
            """async () => {
              const {load} = await import("./tinyedge.js"), model = await load("./");
              const inputs = await model.example();
              for (let i = 0; i < 3; i++) await model.run(inputs);
              const bytes = async () => {
                const blob = await model.saveStates();
                return [...new Uint8Array(await blob.arrayBuffer())];
              };
              const saved = await bytes();
              await model.run(inputs);
              await model.loadStates(new Uint8Array(saved));
              const same = String(await bytes()) === String(saved);
              const cut = saved.slice(0, -1), other = [...saved], refused = [];
              other[9] = 120;  // of the header
              const size = saved[0] + 256 * saved[1], text = new TextDecoder();
              const header = JSON.parse(text.decode(new Uint8Array(saved.slice(8, 8 + size))));
              const body = saved.slice(8 + size);
              const file = (more, bytes) => {
                const head = new TextEncoder().encode(JSON.stringify({...header, ...more}));
                return [...new Uint8Array(new BigUint64Array([BigInt(head.length)]).buffer),
                        ...head, ...bytes];
              };
              const extra = (start, end) =>
                ({"": {dtype: "U8", shape: [end - start], data_offsets: [start, end]}});
              const n = body.length, gap = file(extra(n + 1, n + 2), [...body, 0, 0]);
              const over = file(extra(n - 1, n), body), rest = [...saved, 0];
              for (const file of [cut, other, [1, 2], gap, over, rest])
                await model.loadStates(new Uint8Array(file)).catch((e) => refused.push(e.id));
              await model.loadStates(new Uint8Array(file(extra(n, n + 1), [...body, 7])));
              const kinds = new Set(model.states.map(({dtype}) => dtype));
              if (kinds.has("bool")) {
                const odd = file({}, body.map(() => 2));
                await model.loadStates(new Uint8Array(odd)).catch((e) => refused.push(e.id));
              }
              return [saved, same, refused];
            }"""
        )
    assert same
    assert refused == ["run.states"] * (7 if name == "bool" else 6)
    file = tmp_path / "states.safetensors"
    file.write_bytes(bytes(saved))
    found = safetensors.read(file)
    states = {state.name: (state.dtype, state.shape) for state in program.states}
    assert {n: (dtype.name, array.shape) for n, (dtype, array) in found.items()} == states
